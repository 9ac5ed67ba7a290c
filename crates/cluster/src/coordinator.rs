//! Who owns which slots: registration, election, assignment and hand-over, on etcd or ZooKeeper.
//!
//! A node registers with the service under a lease. One of the nodes leads: it writes the
//! assignment, one document that says who holds which slot with which term, and all others follow
//! it. A slot moves in two steps: the leader names who is to have it, the owner finishes what it has
//! begun and says that it let go, and only then is it assigned, with a higher term. A node that does
//! not get its lease renewed stops by itself before the lease ends, by a clock that goes on while
//! the machine sleeps; so there are never two nodes that believe they hold a slot.
//!
//! Read in the order of the modules: what is decided (`assignment`, `leader`, `member`), how it is
//! written down (`document`), how long it is believed in (`lease`), what a service has to do
//! (`registry`), the life of a node (`seat`, `node`), and the two services.

mod assignment;
mod leader;
mod member;
mod document;
mod lease;
mod registry;
mod seat;
mod node;
mod etcd;
mod zookeeper;
#[cfg(test)]
mod simulation;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::ports::{ClusterView, Coordinator, CoordinatorError, Holding};
use punctual_model::{Clock, Span};
use tokio::runtime::Handle;

use self::assignment::Name;
use self::etcd::Etcd;
use self::lease::BootTiming;
use self::node::Life;
use self::registry::Registry;
use self::seat::Seat;
use self::zookeeper::ZooKeeper;
use crate::store::SLOTS_MAX;

/// The longest name of a cluster or a node.
const NAME_BYTES_MAX: usize = 100;

/// How short and how long a lease may be.
const LEASE_MIN: Span = Span::from_secs(2);
const LEASE_MAX: Span = Span::from_secs(3600);

/// How a node joins a cluster.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The name of the cluster: all nodes that share it share its slots.
    pub cluster: String,
    /// What the name of the node begins with. What follows is another one after each start.
    pub node: String,
    /// Where other nodes reach this one: scheme, host and port.
    pub address: String,
    /// The version this node runs.
    pub version: String,
    /// The number of slots of a new cluster.
    pub slots: u32,
    /// How long a node that is not heard of keeps its slots.
    pub lease: Span,
    /// How long slots stay where they are after nodes came or went.
    pub rebalance_delay: Span,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self {
            cluster: "punctual".into(),
            node: "node".into(),
            address: String::new(),
            version: String::new(),
            slots: 64,
            lease: Span::from_secs(9),
            rebalance_delay: Span::from_secs(1),
        }
    }
}

/// Where nodes find each other. Endpoints are `host:port`, with or without `http://`.
#[derive(Clone, Debug)]
pub enum Service {
    /// etcd, version 3.4 or later.
    Etcd {
        /// Its servers.
        endpoints: Vec<String>,
    },
    /// ZooKeeper, version 3.6 or later.
    ZooKeeper {
        /// Its servers.
        endpoints: Vec<String>,
    },
}

/// Why a node cannot even try to join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A name that cannot be part of a key.
    #[error("a name has 1 to 100 letters, digits, dots, hyphens and underscores, not `{0}`")]
    BadName(String),
    /// No cluster has that many slots.
    #[error("a cluster has 1 to 65536 slots, not {0}")]
    BadSlots(u32),
    /// A lease that is too short to be renewed or too long to be waited for.
    #[error("a lease lasts between 2 seconds and 1 hour")]
    BadLease,
    /// Nobody to ask.
    #[error("the coordinator needs at least one endpoint")]
    NoEndpoints,
    /// The machine has no randomness for a name.
    #[error("no random name could be made: {0}")]
    NoName(String),
}

/// A node's membership in a cluster. Ends when it is dropped; [`leave`](Self::leave) ends it in
/// order.
#[derive(Debug)]
pub struct Cluster {
    seat: Arc<Seat>,
    lease: Duration,
}

impl Cluster {
    /// Begins to join, and goes on trying for as long as it takes. Everything is done in tasks of
    /// the runtime of `handle`.
    ///
    /// # Errors
    /// [`JoinError`] for options that cannot work; never because the service cannot be reached.
    pub fn join(
        options: JoinOptions,
        service: Service,
        clock: Arc<dyn Clock>,
        handle: &Handle,
    ) -> Result<Arc<Self>, JoinError> {
        check(&options, &service)?;
        let lease = Duration::from_millis(options.lease.as_millis());
        let cluster = options.cluster.clone();
        match service {
            Service::Etcd { endpoints } => {
                let registry = Etcd::new(endpoints, &cluster, lease);
                Self::begin(options, registry, clock, handle)
            }
            Service::ZooKeeper { endpoints } => {
                let registry = ZooKeeper::new(&endpoints, &cluster, lease);
                Self::begin(options, registry, clock, handle)
            }
        }
    }

    fn begin<R: Registry>(
        options: JoinOptions,
        registry: R,
        clock: Arc<dyn Clock>,
        handle: &Handle,
    ) -> Result<Arc<Self>, JoinError> {
        let mut names = Names::new(options.node)?;
        let (seat, asks) = Seat::new(Arc::new(BootTiming));
        let life = Life {
            seat: seat.clone(),
            registry,
            clock,
            address: options.address,
            version: options.version,
            slots: options.slots,
            rebalance_delay: Duration::from_millis(options.rebalance_delay.as_millis()),
            asks,
        };
        handle.spawn(life.run(move || names.next()));
        let lease = Duration::from_millis(options.lease.as_millis());
        Ok(Arc::new(Self { seat, lease }))
    }

    /// The name under which this node is registered; `None` while it is not.
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.seat.with_member(|member| member.name().clone())
    }

    /// Leaves: holds nothing from here on, and gives the lease back, so that the slots move after
    /// the rebalance delay. What was begun is to be finished before. Waits until that is done, for
    /// about a lease at most; without the service the lease ends by itself.
    pub async fn leave(&self) {
        self.seat.leaving.send_replace(true);
        let mut left = self.seat.left.subscribe();
        let done = left.wait_for(|left| *left);
        let within = self.lease + Duration::from_secs(2);
        if tokio::time::timeout(within, done).await.is_err() {
            tracing::warn!("left the cluster without the service knowing");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.seat.leaving.send_replace(true);
    }
}

impl Coordinator for Cluster {
    fn holding(&self) -> Arc<Holding> {
        self.seat.holding()
    }

    fn is_certain(&self) -> bool {
        self.seat.is_certain()
    }

    fn view(&self) -> Arc<ClusterView> {
        self.seat.view()
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.seat.listen(listener);
    }

    fn released(&self, slot: u32, term: u64) {
        self.seat.released(slot, term);
    }

    fn drained(&self, slot: u32, term: u64) {
        self.seat.drained(slot, term);
    }

    fn resize(
        &self,
        slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>> {
        self.seat.resize(slots)
    }
}

/// Names for the registrations of one node: never the same twice, here or after a start.
struct Names {
    node: String,
    seed: u64,
    count: u64,
}

impl Names {
    fn new(node: String) -> Result<Self, JoinError> {
        let seed = getrandom::u64().map_err(|error| JoinError::NoName(error.to_string()))?;
        Ok(Self { node, seed, count: 0 })
    }

    fn next(&mut self) -> Name {
        let number = self.seed.wrapping_add(self.count);
        self.count += 1;
        format!("{}-{number:016x}", self.node).into()
    }
}

/// Whether the options can work.
fn check(options: &JoinOptions, service: &Service) -> Result<(), JoinError> {
    for name in [&options.cluster, &options.node] {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        // A name of dots alone would be a path of its own in ZooKeeper.
        let legal = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(plain)
            && name.bytes().any(|byte| byte != b'.');
        if !legal {
            return Err(JoinError::BadName(name.clone()));
        }
    }
    if !(1..=SLOTS_MAX).contains(&options.slots) {
        return Err(JoinError::BadSlots(options.slots));
    }
    if !(LEASE_MIN..=LEASE_MAX).contains(&options.lease) {
        return Err(JoinError::BadLease);
    }
    let (Service::Etcd { endpoints } | Service::ZooKeeper { endpoints }) = service;
    if endpoints.is_empty() { Err(JoinError::NoEndpoints) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use punctual_model::SystemClock;

    use super::*;

    fn refusal(options: JoinOptions) -> JoinError {
        let service = Service::Etcd { endpoints: vec!["127.0.0.1:1".into()] };
        check(&options, &service).unwrap_err()
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        let usual = JoinOptions::default;
        for name in ["", "..", "a/b", "ä", &"x".repeat(101)] {
            let bad = JoinError::BadName(name.into());
            assert_eq!(refusal(JoinOptions { cluster: name.into(), ..usual() }), bad);
            assert_eq!(refusal(JoinOptions { node: name.into(), ..usual() }), bad);
        }
        for slots in [0, SLOTS_MAX + 1] {
            assert_eq!(refusal(JoinOptions { slots, ..usual() }), JoinError::BadSlots(slots));
        }
        for millis in [0, 1999, 3_600_001] {
            let lease = Span::from_millis(millis);
            assert_eq!(refusal(JoinOptions { lease, ..usual() }), JoinError::BadLease);
        }
        let nobody = Service::ZooKeeper { endpoints: Vec::new() };
        assert_eq!(check(&usual(), &nobody), Err(JoinError::NoEndpoints));
    }

    #[test]
    fn a_node_has_another_name_each_time() {
        let mut names = Names::new("eins".into()).unwrap();
        let (first, second) = (names.next(), names.next());
        assert_ne!(first, second);
        assert!(first.starts_with("eins-") && first.len() == 21, "{first}");
        assert_ne!(Names::new("eins".into()).unwrap().next(), first);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn without_the_service_a_node_holds_nothing_and_leaves_at_once() {
        let service = Service::Etcd { endpoints: vec!["127.0.0.1:1".into()] };
        let clock = Arc::new(SystemClock::new());
        let options = JoinOptions { lease: LEASE_MIN, ..JoinOptions::default() };
        let node = Cluster::join(options, service, clock, &Handle::current()).unwrap();
        assert!(!node.is_certain());
        assert!(node.holding().slots.is_empty() && node.name().is_none());
        let refused = node.resize(0).await;
        assert_eq!(refused, Err(CoordinatorError::SlotsOutOfRange));
        assert!(matches!(node.resize(5).await, Err(CoordinatorError::Unavailable(_))));
        node.leave().await;
        assert!(node.holding().slots.is_empty());
    }
}
