//! A server over a store that nodes share: it keeps nothing itself but the record of what was asked
//! of it, and waits for whatever is not there yet.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use punctual_cluster::cassandra::{self, CassandraOptions, CassandraStore, Replication};
use punctual_cluster::catalogue::SharedTopics;
use punctual_cluster::coordinator::{Cluster, JoinOptions, Service};
use punctual_cluster::mysql::{self, MysqlOptions, MysqlStore};
use punctual_cluster::routing::{Routed, RoutedParts};
use punctual_cluster::store::{Documents, SlotStore};
use punctual_cluster::timeline::{SlotTimeline, TimelineOptions};
use punctual_engine::disk::{Disk, RealDisk};
use punctual_model::Clock;
use punctual_model::ports::{Coordinator, Groups, Node, Solo, Topics, Trends};
use tokio::runtime::Handle;

use super::outlet::{self, Kafka};
use super::waiting::{Failed, Waiting};
use super::{Given, Opened, ServeError, options};
use crate::access::{AppDocuments, Auth, Facts, Gate};
use crate::app::Broker;
use crate::audit::AuditRecord;
use crate::backend::{
    Backend, HttpPeers, Link, Memory, Name, Nodes, Outside, SharedStore, SharedTimeline, Store, Way,
};
use crate::config::{
    ClusterSecret, Config, CoordinatorKind, CopiesPer, TimelineConfig, TimelineKind,
};
use crate::kafka::ClusterId;
use crate::tasks::Tasks;
use crate::trends::Kept;

/// Says that somebody uses the directory.
const LOCK: &str = "LOCK";
/// Memory that an entry takes beside its message, about; a bound on entries follows from it.
const ENTRY_BYTES: usize = 256;
/// Connections to a database.
const DEADLINE: Duration = Duration::from_secs(5);

/// Opens everything, waiting for what is not there yet.
pub(super) async fn open(
    given: Given,
    http: SocketAddr,
    (waiting, tasks): (&Waiting, &Tasks),
) -> Result<Opened, ServeError> {
    let config = given.config.timeline.clone();
    let limits = &given.config.limits;
    match config.kind {
        TimelineKind::Mysql => {
            let options = mysql_options(&config, limits.body_bytes_max);
            let store = waiting.until("MySQL", || open_mysql(options.clone())).await?;
            over(given, http, store, (waiting, tasks)).await
        }
        TimelineKind::Cassandra => {
            let options = cassandra_options(&config);
            let store = waiting.until("Cassandra", || open_cassandra(options.clone())).await?;
            over(given, http, store, (waiting, tasks)).await
        }
        TimelineKind::Embedded => Err(ServeError::Shared("the timeline is not shared".to_owned())),
    }
}

fn mysql_options(config: &TimelineConfig, body_bytes_max: usize) -> MysqlOptions {
    let url = config.url.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut options = MysqlOptions::new(url);
    options.user = config.user.clone();
    options.password = config.password.as_ref().map(|password| password.text().to_owned());
    options.deadline = DEADLINE;
    options.finished =
        if config.archive { mysql::Finished::Archive } else { mysql::Finished::Delete };
    options.allow_unsafe = config.allow_unsafe.clone();
    options.body_bytes_max = body_bytes_max;
    options
}

async fn open_mysql(options: MysqlOptions) -> Result<MysqlStore, Failed<ServeError>> {
    MysqlStore::open(options).await.map_err(|error| match error {
        // Somebody may make the database while this waits, as its text says how.
        mysql::OpenError::Unreachable(_) | mysql::OpenError::NoDatabase { .. } => {
            Failed::ForNow(error.to_string())
        }
        error => Failed::ForGood(ServeError::Shared(error.to_string())),
    })
}

fn cassandra_options(config: &TimelineConfig) -> CassandraOptions {
    let mut options = CassandraOptions::new(config.endpoints.clone(), &config.keyspace);
    options.user = config.user.clone();
    options.password = config.password.as_ref().map(|password| password.text().to_owned());
    options.replication = match &config.replication {
        CopiesPer::Cluster(copies) => Replication::Simple(*copies),
        CopiesPer::Datacentre(centres) => Replication::Datacenters(centres.clone()),
    };
    options.finished =
        if config.archive { cassandra::Finished::Archive } else { cassandra::Finished::Delete };
    options.allow_unsafe = config.allow_unsafe.clone();
    options
}

async fn open_cassandra(options: CassandraOptions) -> Result<CassandraStore, Failed<ServeError>> {
    CassandraStore::open(options).await.map_err(|error| match error {
        cassandra::OpenError::Unavailable(_) => Failed::ForNow(error.to_string()),
        error => Failed::ForGood(ServeError::Shared(error.to_string())),
    })
}

/// Puts the broker on a store that is there.
async fn over<S: SlotStore + Documents + Trends>(
    given: Given,
    http: SocketAddr,
    store: S,
    (waiting, tasks): (&Waiting, &Tasks),
) -> Result<Opened, ServeError> {
    let (store, handle) = (Arc::new(store), Handle::current());
    let topics = waiting
        .until("the topics of the cluster", || {
            let opening = SharedTopics::open(Arc::clone(&store), handle.clone());
            async { opening.await.map_err(|error| passing(error.passes(), error)) }
        })
        .await?;
    let apps = waiting
        .until("the apps of the cluster", || {
            let opening = AppDocuments::open(Arc::clone(&store), handle.clone());
            let passes = |error: &io::Error| error.kind() != io::ErrorKind::InvalidData;
            async move { opening.await.map_err(|error| passing(passes(&error), error)) }
        })
        .await?;
    let kept = waiting
        .until("the figures of the cluster", || {
            let reading = Kept::of_cluster(Arc::clone(&store) as Arc<dyn Trends>);
            async { reading.await.map_err(|error| passing(true, error)) }
        })
        .await?;
    let joined = join(&given.config, http, Arc::clone(&given.clock), &handle)?;
    waiting.until("the coordinator", || std::future::ready(joined.is_in())).await?;
    let peers = Arc::new(HttpPeers::new(&given.config.cluster, handle.clone())?);
    let timeline = SlotTimeline::new(
        store,
        Arc::clone(&joined.coordinator),
        Arc::clone(&given.clock),
        handle.clone(),
        timeline_options(&given.config.timeline),
    );
    let routed = Routed::new(RoutedParts {
        local: Arc::new(timeline.knowing(Arc::clone(&topics) as _)),
        coordinator: Arc::clone(&joined.coordinator),
        peers: Arc::clone(&peers) as _,
        name: Arc::clone(&joined.name),
        tasks: handle.clone(),
        patience: given.config.cluster.patience,
    });
    let base = Base { timeline: Arc::new(routed), topics, joined, peers, kept };
    // Threads are started and files written, which may block.
    let records = apps.1;
    let apps = apps.0;
    let starting = move || start(given, base, (apps, records), &handle);
    tasks.blocking(starting).await?
}

fn passing<E: std::fmt::Display>(passes: bool, error: E) -> Failed<ServeError> {
    match passes {
        true => Failed::ForNow(error.to_string()),
        false => Failed::ForGood(ServeError::Shared(error.to_string())),
    }
}

fn timeline_options(config: &TimelineConfig) -> TimelineOptions {
    TimelineOptions {
        horizon: config.horizon,
        memory_bytes: config.memory,
        memory_entries: config.memory / ENTRY_BYTES,
        finished_after: config.finished_after,
        ..TimelineOptions::default()
    }
}

/// Who divides the slots, and as whom this node takes part.
struct Joined {
    coordinator: Arc<dyn Coordinator>,
    name: Name,
    /// There is one, unless this is the only node.
    cluster: Option<Arc<Cluster>>,
}

impl Joined {
    /// Whether this node takes part, and knows who else does.
    fn is_in(&self) -> Result<(), Failed<ServeError>> {
        match (self.name)() {
            Some(_) if self.coordinator.view().slots_wanted > 0 => Ok(()),
            _ => Err(Failed::ForNow("this node is not registered yet".to_owned())),
        }
    }
}

fn join(
    config: &Config,
    http: SocketAddr,
    clock: Arc<dyn Clock>,
    handle: &Handle,
) -> Result<Joined, ServeError> {
    let cluster = &config.cluster;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let own = || format!("{scheme}://{http}");
    let advertised = cluster.advertise.as_ref().map(|url| url.as_str().trim_end_matches('/'));
    let address = advertised.map_or_else(own, str::to_owned);
    let node = cluster.node.clone().unwrap_or_else(host_name);
    let service = match cluster.coordinator {
        CoordinatorKind::None => {
            let name: Arc<str> = node.into();
            let known = Arc::clone(&name);
            let version = env!("CARGO_PKG_VERSION").into();
            let since = clock.read().timestamp();
            let only = Node { name, address: address.into(), version, since };
            return Ok(Joined {
                coordinator: Arc::new(Solo::node(only)),
                name: Arc::new(move || Some(Arc::clone(&known))),
                cluster: None,
            });
        }
        CoordinatorKind::Etcd => Service::Etcd { endpoints: cluster.endpoints.clone() },
        CoordinatorKind::ZooKeeper => Service::ZooKeeper { endpoints: cluster.endpoints.clone() },
    };
    let options = JoinOptions {
        cluster: cluster.name.clone(),
        node,
        address,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots: cluster.slots,
        lease: cluster.lease,
        rebalance_delay: cluster.rebalance_delay,
    };
    let joined = Cluster::join(options, service, clock, handle)
        .map_err(|error| ServeError::Shared(error.to_string()))?;
    let named = Arc::clone(&joined);
    Ok(Joined {
        coordinator: Arc::clone(&joined) as Arc<dyn Coordinator>,
        name: Arc::new(move || named.name()),
        cluster: Some(joined),
    })
}

/// The name of the machine, as far as a node may have it.
fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let name: String = name.chars().filter(|letter| legal(*letter)).take(80).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// What is there before the broker.
struct Base {
    timeline: Arc<dyn SharedTimeline>,
    topics: Arc<SharedTopics>,
    joined: Joined,
    peers: Arc<HttpPeers>,
    kept: Kept,
}

type Apps = (crate::access::AppStore, Vec<crate::access::AppRecord>);

/// Starts the broker. Blocks on the disk.
fn start(given: Given, base: Base, apps: Apps, handle: &Handle) -> Result<Opened, ServeError> {
    let Given { config, clock, watch } = given;
    let Base { timeline: shared, topics, joined, peers, kept } = base;
    let path = &config.store.data;
    let unusable = |error| ServeError::Directory { path: path.clone(), error };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path).map_err(unusable)?);
    let lock = disk.lock(Path::new(LOCK)).map_err(unusable)?;
    let audit = Arc::new(AuditRecord::open(Arc::clone(&disk)).map_err(unusable)?);
    let cluster_id = ClusterId::open(&*disk).map_err(unusable)?;
    let refused =
        |error: punctual_cluster::kafka::KafkaError| ServeError::Shared(error.to_string());
    let kafka = Kafka::start(&config.outlet, Arc::clone(&topics) as Arc<dyn Topics>, handle)
        .map_err(refused)?;
    let timeline = Arc::new(Store::Shared(Arc::clone(&shared)));
    let groups =
        punctual_cluster::catalogue::SharedGroups::new(Arc::clone(&topics), Arc::clone(&timeline));
    let parts = punctual_broker::Parts {
        timeline,
        outlet: Arc::new(Way::Kafka(Arc::clone(&kafka.outlet))),
        topics: Arc::clone(&kafka.topics),
        groups: kafka.groups(Arc::new(groups) as Arc<dyn Groups>),
        records: None,
        clock,
    };
    let broker = Broker::start(options(&config, &audit, watch), parts).map_err(ServeError::Fire)?;
    let told = broker.clone();
    topics.listen(Arc::new(move || told.topics_changed()));
    let auth = Auth {
        enabled: config.auth.enabled,
        admin: config.auth.admin_token.clone(),
        nodes: config.cluster.secret.as_ref().map(ClusterSecret::text),
    };
    let (gate, _) = Gate::open(auth, apps, Facts::of(&broker)).map_err(unusable)?;
    let ingress = outlet::take_in(&config, &broker, handle).map_err(refused)?;
    let nodes = nodes(&config, &shared, &joined, Arc::clone(&peers));
    let shared = SharedStore {
        timeline: shared,
        topics,
        cluster: joined.cluster,
        peers,
        _lock: lock.into(),
    };
    let outside = Outside { outlet: kafka.outlet, ingress, shared: Some(shared) };
    let backend = Backend { engine: None, outside: Some(outside) };
    let kept = kept.named(&config.cluster.node.clone().unwrap_or_else(host_name), &cluster_id);
    Ok(Opened { backend, nodes, broker, audit, gate, cluster: cluster_id, kept })
}

fn nodes(
    config: &Config,
    timeline: &Arc<dyn SharedTimeline>,
    joined: &Joined,
    peers: Arc<HttpPeers>,
) -> Nodes {
    let (carrier, looked) = (Arc::clone(timeline), Arc::clone(timeline));
    let known = (Arc::clone(&joined.coordinator), Arc::clone(&joined.name));
    // A node that is alone needs no secret, so nobody may speak to it like a node.
    let link = joined.cluster.as_ref().map(|_| {
        let carry = move |request| {
            let timeline = Arc::clone(&carrier);
            Box::pin(async move { timeline.answer(request).await }) as _
        };
        Link::new(config.cluster.secret.clone(), carry, peers, known.clone())
    });
    let memory = move || {
        let stats = looked.slot_stats();
        Memory {
            slots: stats.slots,
            entries: stats.entries,
            bytes: stats.bytes,
            frontier: looked.frontier(),
        }
    };
    // Without Kafka, or without the coordinator for a while, messages are taken in all the same.
    let (holder, name) = known.clone();
    let standing = move || match name() {
        None if holder.holding().slots.is_empty() => {
            Err("this node is not registered with the coordinator".to_owned())
        }
        _ => Ok(()),
    };
    Nodes::shared(known, memory, Box::new(standing), link)
}
