//! A request on its way to its handler: who asks, and on which connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::ports::Topic;
use punctual_model::topic::TopicKind;
use punctual_model::{GroupName, TopicName};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{Caller, Connection, Permission, Target};
use crate::config::Advertised;
use crate::http::audit::Asker;
use crate::kafka::refusal::Refusal;
use crate::kafka::sasl::Stage;
use crate::kafka::shared::Kafka;
use crate::kafka::topic_id::TopicUuid;

/// Longest time for which nothing is taken from a client at one go.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What a handler knows of a request beside what it says.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Kafka>,
    /// Who asks.
    pub(crate) caller: Caller,
    /// What the client calls itself.
    pub(crate) client_id: Option<Arc<str>>,
    pub(crate) from: SocketAddr,
    /// Of the request.
    pub(crate) version: i16,
    pub(crate) connection: Arc<ConnectionState>,
}

impl Call {
    /// Whether the caller has that right on that topic.
    pub(crate) fn may_topic(&self, permission: Permission, topic: &TopicName) -> bool {
        self.caller.may(permission, Target::Topic(topic))
    }

    /// Whether the caller may read the log of that topic: as a reader of it, or for any of the
    /// groups that it may consume with.
    pub(crate) fn may_fetch(&self, topic: &TopicName) -> bool {
        self.may_topic(Permission::Read, topic) || self.may_topic(Permission::Consume, topic)
    }

    /// Whether the caller may know that there is such a topic: whoever may do anything with it.
    pub(crate) fn may_know(&self, topic: &TopicName) -> bool {
        let rights = [
            Permission::See,
            Permission::Send,
            Permission::Read,
            Permission::Consume,
            Permission::Manage,
        ];
        rights.into_iter().any(|right| self.may_topic(right, topic))
    }

    /// The topic of that name. One that the caller may not know is refused whether it exists or not;
    /// one that nobody is shown is missing.
    pub(crate) fn topic_named(&self, name: &str) -> Result<Arc<Topic>, Refusal> {
        let name = TopicName::new(name).map_err(|_illegal| Refusal::illegal_name())?;
        if !self.may_know(&name) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into());
        }
        let topic = self.shared.broker.topics().by_name(&name);
        let shown = topic.filter(|topic| topic.kind != TopicKind::Retry);
        shown.ok_or_else(|| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into())
    }

    /// The topic of that id. One that the caller may not know is missing.
    pub(crate) fn topic_of_id(&self, id: &TopicUuid) -> Result<Arc<Topic>, Refusal> {
        let topic = self.shared.cluster.topic(&**self.shared.broker.topics(), id);
        let shown =
            topic.filter(|topic| topic.kind != TopicKind::Retry && self.may_know(&topic.name));
        shown.ok_or_else(|| ErrorCode::UNKNOWN_TOPIC_ID.into())
    }

    /// Where the client is told to connect to: what is configured, or where it came to.
    pub(crate) fn advertised(&self) -> Advertised {
        let configured = self.shared.live().config.kafka.advertised.clone();
        configured.unwrap_or_else(|| {
            let local = self.connection.local;
            Advertised { host: local.ip().to_canonical().to_string(), port: local.port() }
        })
    }

    /// Whether the caller may consume that topic with that group.
    pub(crate) fn may_consume(&self, topic: &TopicName, group: &GroupName) -> bool {
        self.caller.may(Permission::Consume, Target::Group(topic, group))
    }

    /// Whether the caller has that right on the whole broker.
    pub(crate) fn may_whole(&self, permission: Permission) -> bool {
        self.caller.may(permission, Target::Whole)
    }

    /// The caller as the record of changes names it.
    pub(crate) fn asker(&self) -> Asker {
        Asker::new(self.caller.clone(), self.from)
    }
}

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Differs from that of every other connection since the start.
    pub(crate) number: u64,
    /// The address that the client connected to.
    pub(crate) local: SocketAddr,
    /// Which apps have a seat here.
    pub(crate) seats: Connection,
    /// Ends what waits for something that the client has no use for any more: it is gone, or the
    /// server is going.
    pub(crate) over: CancellationToken,
    /// How many requests are being answered.
    pub(crate) under_way: Arc<AtomicUsize>,
    /// How far the client has come with showing who it is.
    pub(crate) sasl: Mutex<Stage>,
    /// Who has shown who it is.
    caller: Mutex<Caller>,
    muted: Mutex<Option<Instant>>,
}

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

impl ConnectionState {
    pub(crate) fn new(local: SocketAddr, caller: Caller) -> Self {
        Self {
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed),
            local,
            seats: Connection::default(),
            over: CancellationToken::new(),
            under_way: Arc::default(),
            sasl: Mutex::default(),
            caller: Mutex::new(caller),
            muted: Mutex::default(),
        }
    }

    /// Who asks from now on.
    pub(crate) fn caller(&self) -> Caller {
        self.caller.lock().clone()
    }

    /// Somebody has shown who it is.
    pub(crate) fn set_caller(&self, caller: Caller) {
        *self.caller.lock() = caller;
    }

    /// Whether nobody has.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(&*self.caller.lock(), Caller::Nobody)
    }

    /// Nothing more is taken from the client for so long; what it was told by now is answered. It is
    /// told so in the answer (`throttle_time_ms`).
    pub(crate) fn mute(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let until = Instant::now() + pause.min(PAUSE_MAX);
        let mut muted = self.muted.lock();
        *muted = (*muted).max(Some(until));
    }

    /// Until when nothing is taken.
    pub(crate) fn muted_until(&self) -> Option<Instant> {
        let mut muted = self.muted.lock();
        *muted = muted.filter(|until| *until > Instant::now());
        *muted
    }
}
