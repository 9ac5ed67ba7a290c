//! What all Kafka connections share.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::Guard;
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::Span;
use punctual_model::ports::{Records, Topics};

use crate::access::Caller;
use crate::app::Broker;
use crate::http::shared::Shared;
use crate::kafka::coordinator::{Bounds, Coordinator};
use crate::kafka::fetch;
use crate::kafka::held::Held;
use crate::kafka::produce;
use crate::kafka::refusal::Refusal;
use crate::kafka::share::Shares;
use crate::kafka::topic_id::ClusterId;
use crate::live::Current;
use crate::net::Places;
use crate::tasks::Tasks;

/// The one broker there is, as clients number them.
pub(crate) const NODE_ID: i32 = 1;

/// What all Kafka connections share.
pub(crate) struct Kafka {
    /// What is shared with the HTTP listener: the gate, the record of changes, the configuration.
    pub(crate) shared: Arc<Shared>,
    pub(crate) broker: Broker,
    pub(crate) tasks: Tasks,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Who this is, and how topics are numbered for clients.
    pub(crate) cluster: ClusterId,
    /// Who is connected.
    pub(crate) places: Arc<Places>,
    /// Bytes of requests that are held.
    pub(crate) held: Held,
    /// Whether connections are encrypted.
    pub(crate) encrypted: bool,
    /// Memory for batches that are taken apart.
    pub(crate) rooms: produce::Rooms,
    /// Who fetches what.
    pub(crate) fetch_sessions: fetch::Sessions,
    /// Who is in which group.
    pub(crate) coordinator: Coordinator,
    /// Who shares which group, and holds what.
    pub(crate) shares: Shares,
}

impl Kafka {
    pub(crate) fn new(
        shared: Arc<Shared>,
        address: SocketAddr,
        cluster: ClusterId,
        encrypted: bool,
    ) -> Self {
        let (consumers, topics) = (shared.broker.consumers(), shared.broker.topics());
        let shares = Shares::start(consumers.clone(), Arc::clone(topics), &shared.tasks);
        let held = Held::new(shared.live().config.kafka.held_bytes_max);
        let delay = shared.live().config.kafka.group_delay.as_millis();
        let delay = Span::from_millis(u64::try_from(delay).unwrap_or(u64::MAX));
        let bounds = Bounds { delay, ..Bounds::default() };
        Self {
            broker: shared.broker.clone(),
            tasks: shared.tasks.clone(),
            address,
            cluster,
            places: Arc::clone(&shared.kafka_places),
            held,
            encrypted,
            rooms: produce::Rooms::default(),
            fetch_sessions: fetch::Sessions::default(),
            coordinator: Coordinator::start(bounds, &shared.tasks),
            shares,
            shared,
        }
    }

    /// Who asks on a connection where nobody has said anything yet.
    pub(crate) fn first_caller(&self) -> Caller {
        if self.shared.gate.is_enabled() { Caller::Nobody } else { Caller::Local }
    }

    /// Runs work on the catalogue or the logs, which may block on the disk.
    pub(crate) async fn with_topics<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Topics) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let topics = Arc::clone(self.broker.topics());
        self.tasks.blocking(move || work(&*topics)).await?
    }

    /// The logs, for those who write and read whole batches.
    pub(crate) fn records(&self) -> Result<Arc<dyn Records>, Refusal> {
        let records = self.broker.local_records().cloned();
        records.ok_or_else(|| ErrorCode::KAFKA_STORAGE_ERROR.into())
    }

    /// What holds now; not to be kept.
    pub(crate) fn live(&self) -> Guard<Arc<Current>> {
        self.shared.live()
    }
}
