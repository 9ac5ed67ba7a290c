//! The registry on etcd: a lease is the session, and all keys of a cluster have one prefix.
//!
//! ```text
//! punctual/{cluster}/assignment       the assignment
//! punctual/{cluster}/slots            the number of slots asked for, as text
//! punctual/{cluster}/leader           the name of the leader               (lease)
//! punctual/{cluster}/nodes/{name}     who the node is                      (lease)
//! punctual/{cluster}/words/{name}     what it says of its slots            (lease)
//! ```
//!
//! Reads are linearizable and come from one transaction. A renewal opens a stream of its own, so
//! that an answer is never taken for that of a later question.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, KeyValue, PutOptions, Txn,
    TxnOp, TxnOpResponse, WatchOptions,
};
use tokio::task::JoinHandle;
use tracing::debug;

use super::assignment::Name;
use super::registry::{Changes, Registry, Revision, Session, Snapshot, Trouble};

/// The shortest deadline of a call that is no renewal: a large assignment takes its time.
const CALL_TIMEOUT_MIN: Duration = Duration::from_secs(3);

/// How long to wait before a broken watch is set up again.
const WATCH_DELAY: Duration = Duration::from_millis(300);

/// A cluster's keys in etcd.
#[derive(Clone, Debug)]
pub(crate) struct Etcd {
    endpoints: Vec<String>,
    prefix: Arc<str>,
    lease: Duration,
}

impl Etcd {
    /// The cluster of that name. Nothing is connected yet.
    pub(crate) fn new(endpoints: Vec<String>, cluster: &str, lease: Duration) -> Self {
        Self { endpoints, prefix: format!("punctual/{cluster}/").into(), lease }
    }

    async fn connect(&self) -> Result<Client, Trouble> {
        let idle = self.lease / 3;
        let options = ConnectOptions::new()
            .with_connect_timeout(idle)
            .with_keep_alive(idle, idle)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        let connect = Box::pin(Client::connect(&self.endpoints, Some(options)));
        within(self.lease, connect).await
    }
}

impl Registry for Etcd {
    type Session = EtcdSession;

    async fn register(&self, name: Name, about: Bytes) -> Result<EtcdSession, Trouble> {
        let mut client = self.connect().await?;
        let seconds = self.lease.as_secs() + u64::from(self.lease.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = within(self.lease, client.lease_grant(ttl, None)).await?;
        let mut session = EtcdSession {
            client,
            prefix: self.prefix.clone(),
            name,
            lease: granted.id(),
            // What was asked for, when etcd grants more: the node then stops a little sooner.
            length: Duration::from_secs(granted.ttl().unsigned_abs()).min(self.lease),
            changes: Arc::new(Changes::default()),
            watching: None,
        };
        let key = session.own_key("nodes");
        if let Err(trouble) = session.put_under_lease(key, about).await {
            session.end().await;
            return Err(trouble);
        }
        session.watch();
        Ok(session)
    }
}

/// A node's lease.
pub(crate) struct EtcdSession {
    client: Client,
    prefix: Arc<str>,
    name: Name,
    lease: i64,
    length: Duration,
    changes: Arc<Changes>,
    watching: Option<JoinHandle<()>>,
}

impl EtcdSession {
    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    fn own_key(&self, kind: &str) -> String {
        format!("{}{kind}/{}", self.prefix, self.name)
    }

    /// A client for one call; they share a connection.
    fn client(&self) -> Client {
        self.client.clone()
    }

    fn call_timeout(&self) -> Duration {
        self.length.max(CALL_TIMEOUT_MIN)
    }

    async fn put_under_lease(&self, key: String, value: Bytes) -> Result<(), Trouble> {
        let options = PutOptions::new().with_lease(self.lease);
        let mut client = self.client();
        let put = client.put(key, value, Some(options));
        within(self.call_timeout(), put).await.map(|_answer| ())
    }

    /// Begins to tell of changes.
    fn watch(&mut self) {
        let (client, prefix) = (self.client(), self.prefix.clone());
        let changes = self.changes.clone();
        self.watching = Some(tokio::runtime::Handle::current().spawn(async move {
            loop {
                if let Err(why) = watch_once(client.clone(), &prefix, &changes).await {
                    debug!(%why, "the watch broke off");
                }
                let _elapsed =
                    tokio::time::timeout(WATCH_DELAY, std::future::pending::<()>()).await;
            }
        }));
    }
}

impl Session for EtcdSession {
    fn lease(&self) -> Duration {
        self.length
    }

    async fn renew(&self) -> Result<(), Trouble> {
        let mut client = self.client();
        // A third of a lease at most, so that there is time for another try.
        match within_raw(self.length / 3, client.lease_keep_alive(self.lease)).await {
            Ok(_stream) => Ok(()),
            Err(Late::Failed(Error::LeaseKeepAliveError(_))) => Err(Trouble::Gone),
            Err(late) => Err(late.into()),
        }
    }

    async fn read(&self, known: Option<Revision>) -> Result<Snapshot, Trouble> {
        let assignment = self.key("assignment");
        let same = known.map_or(0, |revision| revision.0.cast_signed());
        let all = |kind: &str| TxnOp::get(self.key(kind), Some(GetOptions::new().with_prefix()));
        let one = |key: &str| TxnOp::get(self.key(key), None);
        let leads = Compare::value(self.key("leader"), CompareOp::Equal, self.name.as_bytes());
        let words = TxnOp::txn(Txn::new().when([leads]).and_then([all("words/")]));
        let rest = [all("nodes/"), words, one("leader"), one("slots")];
        let short = GetOptions::new().with_keys_only();
        let with = |first: TxnOp| [vec![first], rest.to_vec()].concat();
        let transaction = Txn::new()
            .when([Compare::mod_revision(assignment.clone(), CompareOp::Equal, same)])
            .and_then(with(TxnOp::get(assignment.clone(), Some(short))))
            .or_else(with(TxnOp::get(assignment, None)));
        let mut client = self.client();
        let answer = within(self.call_timeout(), client.txn(transaction)).await?;
        let mut parts = answer.op_responses().into_iter().map(found);
        let mut next = || parts.next().unwrap_or_default();
        let (assignment, nodes, words) = (next().pop(), next(), next());
        let (leader, slots) = (next().pop(), next().pop());
        let revision = assignment.as_ref().map(|kv| Revision(kv.mod_revision().cast_unsigned()));
        Ok(Snapshot {
            document: assignment.filter(|_| revision != known).map(value),
            revision,
            asked: slots.and_then(|kv| kv.value_str().ok()?.parse().ok()),
            members: nodes.into_iter().filter_map(|kv| self.named("nodes/", kv)).collect(),
            words: words.into_iter().filter_map(|kv| self.named("words/", kv)).collect(),
            leader: leader.and_then(|kv| kv.value_str().ok().map(Name::from)),
        })
    }

    async fn lead(&self) -> Result<(), Trouble> {
        let key = self.key("leader");
        let put = PutOptions::new().with_lease(self.lease);
        let transaction = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, self.name.as_bytes(), Some(put))]);
        let mut client = self.client();
        within(self.call_timeout(), client.txn(transaction)).await.map(|_answer| ())
    }

    async fn write(&self, expected: Option<Revision>, document: Bytes) -> Result<bool, Trouble> {
        let key = self.key("assignment");
        let stands = expected.map_or(0, |revision| revision.0.cast_signed());
        let transaction = Txn::new()
            .when([
                Compare::mod_revision(key.clone(), CompareOp::Equal, stands),
                Compare::value(self.key("leader"), CompareOp::Equal, self.name.as_bytes()),
            ])
            .and_then([TxnOp::put(key, document, None)]);
        let mut client = self.client();
        let answer = within(self.call_timeout(), client.txn(transaction)).await?;
        Ok(answer.succeeded())
    }

    async fn say(&self, word: Bytes) -> Result<(), Trouble> {
        self.put_under_lease(self.own_key("words"), word).await
    }

    async fn ask(&self, slots: u32) -> Result<(), Trouble> {
        let mut client = self.client();
        let put = client.put(self.key("slots"), slots.to_string(), None);
        within(self.call_timeout(), put).await.map(|_answer| ())
    }

    async fn changed(&self, leading: bool) {
        self.changes.wait(leading).await;
    }

    async fn end(&self) {
        let mut client = self.client();
        if let Err(why) = within(self.length, client.lease_revoke(self.lease)).await {
            debug!(%why, "the lease was not given back and ends by itself");
        }
    }
}

impl EtcdSession {
    /// The node that a key of a kind is about, and the value.
    fn named(&self, kind: &str, kv: KeyValue) -> Option<(Name, Bytes)> {
        let name = kv.key_str().ok()?.strip_prefix(&*self.prefix)?.strip_prefix(kind)?;
        Some((name.into(), value(kv)))
    }
}

impl Drop for EtcdSession {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}

/// Tells of changes until the watch breaks off.
async fn watch_once(mut client: Client, prefix: &str, changes: &Changes) -> Result<(), Error> {
    let words = format!("{prefix}words/");
    let options = WatchOptions::new().with_prefix();
    let mut stream = client.watch(prefix, Some(options)).await?;
    while let Some(message) = stream.message().await? {
        if message.created() {
            // What happened before is not told.
            changes.tell_all();
        }
        if message.canceled() {
            return Ok(());
        }
        for event in message.events() {
            let key = event.kv().map_or(&[][..], KeyValue::key);
            if key.starts_with(words.as_bytes()) {
                changes.tell_words();
            } else {
                changes.tell_state();
            }
        }
    }
    Ok(())
}

/// The keys that a part of a transaction has found.
fn found(response: TxnOpResponse) -> Vec<KeyValue> {
    match response {
        TxnOpResponse::Get(mut got) => got.take_kvs(),
        TxnOpResponse::Txn(inner) => inner.op_responses().into_iter().flat_map(found).collect(),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) => Vec::new(),
    }
}

fn value(kv: KeyValue) -> Bytes {
    let (_, value) = kv.into_key_value();
    value.into()
}

/// How a call failed.
enum Late {
    Failed(Error),
    TimedOut,
}

impl From<Late> for Trouble {
    fn from(late: Late) -> Self {
        match late {
            // etcd's own words for a lease that is no more.
            Late::Failed(Error::GRpcStatus(status))
                if status.message().contains("requested lease not found") =>
            {
                Self::Gone
            }
            Late::Failed(error) => Self::Unavailable(format!("etcd: {error}").into()),
            Late::TimedOut => Self::Unavailable("etcd did not answer in time".into()),
        }
    }
}

async fn within_raw<T>(
    span: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Late> {
    match tokio::time::timeout(span, call).await {
        Ok(answer) => answer.map_err(Late::Failed),
        Err(_elapsed) => Err(Late::TimedOut),
    }
}

async fn within<T>(
    span: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Trouble> {
    Ok(within_raw(span, call).await?)
}
