//! How the parts are put together; nowhere else are they.

mod listeners;
#[cfg(feature = "cluster")]
mod waiting;
#[cfg(feature = "cluster")]
mod outlet;
#[cfg(feature = "cluster")]
mod shared;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use punctual_broker::audit::Sink;
use punctual_broker::watch::Watch;
use punctual_broker::{Bounds, Options, Parts};
#[cfg(feature = "cluster")]
use punctual_cluster::kafka::KafkaError;
use punctual_engine::disk::{Disk, RealDisk};
use punctual_engine::{Engine, OpenError};
use punctual_model::Clock;
use punctual_model::ports::{Groups, Records, StoreError, Topics};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use self::listeners::Listeners;
use crate::access::{AppFiles, Auth, Facts, FirstToken, Gate, TOKEN};
use crate::alerts::{self, Alerts};
use crate::audit::AuditRecord;
use crate::backend::{Backend, Memory, Nodes, Store};
#[cfg(feature = "cluster")]
use crate::backend::{Outside, Way};
#[cfg(feature = "cluster")]
use crate::config::TimelineKind;
use crate::config::{Config, Durability, OutletKind};
use crate::http::shared::Shared;
use crate::kafka::ClusterId;
use crate::live::Live;
use crate::machine::FileBytes;
use crate::open_files;
use crate::push::{self, Connector, TrustError};
use crate::tasks::{BrokenOff, Tasks};
use crate::tls::TlsError;
use crate::trace::Traces;
use crate::trends::{Keeper, KeeperParts, Kept, Looking, TrendFiles};
use crate::virtual_time;

/// The broker of this server.
pub(crate) type Broker = punctual_broker::Broker<Store>;

/// How often the store is asked whether it still stands.
const STORE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// What a started server tells.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where HTTP is answered.
    pub http: SocketAddr,
    /// Where Kafka clients are answered, if they are.
    pub kafka: Option<SocketAddr>,
    /// Where the data is.
    pub data: PathBuf,
    /// The configuration it runs with.
    pub live: Live,
}

/// Why a server ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address could not be taken.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The address for Kafka clients could not be taken.
    #[error(
        "cannot listen on {address} for Kafka clients: {error}; choose another address with \
         --kafka (kafka.listen), or --kafka off"
    )]
    ListenKafka {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The directory could not be made or reached.
    #[error("cannot use {} for the data: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The store could not be opened.
    #[error("cannot open the store in {}: {error}", path.display())]
    Open {
        /// Its directory.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// The data belongs to a clock of the other kind.
    #[error(
        "the data in {} was written in {written} time: serve it {serve}, or choose another \
         directory",
        path.display()
    )]
    Mixed {
        /// Its directory.
        path: PathBuf,
        /// The kind of time it was written in.
        written: &'static str,
        /// How it can be served.
        serve: &'static str,
    },
    /// The certificates that pushes are to trust could not be read.
    #[error(transparent)]
    Push(#[from] TrustError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A thread could not be started.
    #[error("cannot start to fire: {0}")]
    Fire(std::io::Error),
    /// Opening the store ended in a panic.
    #[error("opening the store: {0}")]
    BrokenOff(#[from] BrokenOff),
    /// What is outside of this machine cannot be used as it is.
    #[error("{0}")]
    Shared(String),
    /// The store failed on the way.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Serves until `shutdown` ends, then finishes what is under way. `ready` is told once requests
/// are answered.
///
/// # Errors
/// [`ServeError`] when it cannot start, or when the store fails: then nothing more is acknowledged
/// and the process should end.
pub async fn serve(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    open_files::raise(connections_max(&config));
    let listeners = Listeners::take(&config)?;
    let (http, kafka) = (listeners.http(), listeners.kafka());
    let live = Live::new(config.clone());
    let connector = Arc::new(Connector::new(&config.push)?);
    let tasks = Tasks::default();
    let mut shutdown = pin!(shutdown);
    let clock = virtual_time::clock(&config)?;
    let traces = Traces::start(&live, &tasks, &clock);
    let given = Given { config: config.clone(), clock: Arc::clone(&clock), watch: traces.watch() };
    let opening = Box::pin(open_any(given, &listeners, &tasks));
    let Some(opened) = unless(shutdown.as_mut(), opening).await else { return Ok(()) };
    let Opened { backend, nodes, broker, audit, gate, cluster, kept } = opened?;
    follow(&live, &broker, &connector, &gate);
    let asking = push::Asking {
        broker: broker.clone(),
        connector: Arc::clone(&connector),
        signer: config.push.check_secret.as_ref().map(push::Secret::signer),
        clock: Arc::clone(&clock),
        tasks: tasks.clone(),
    };
    asking.start();
    let alerts = watching(&live, &connector, &broker);
    let pushed = push::start(broker.consumers().clone(), connector, &tasks, clock);
    let store_bytes = Arc::new(FileBytes::below(config.store.data.clone()));
    let looking = Looking::at(&config, (&broker, &gate), (&backend, &nodes, &store_bytes));
    let trends = keep_figures(kept, looking, &tasks).await?;
    let (own, known) = (tasks.clone(), (&live, audit, gate, traces, Arc::clone(&trends)));
    let behind = (&backend, nodes, store_bytes);
    let shared = Arc::new(Shared::new(broker.clone(), behind, pushed, own, known, alerts));
    alerts::start(&shared);
    listeners.serve(&shared, cluster);
    if config.virtual_time.is_some() {
        warn!(now = %broker.now(), "time is virtual: it stands still until it is moved");
    }
    let data = config.store.data.clone();
    announce(ready, Ready { http, kafka, data, live: live.clone() });

    let outcome = tokio::select! {
        () = &mut shutdown => Ok(()),
        error = broker.failed() => Err(ServeError::Store(error)),
        error = store_failed(&backend) => Err(ServeError::Store(error)),
    };
    shared.stop_taking();
    match &outcome {
        Ok(()) => shared.nodes.tell_leaving().await,
        Err(error) => error!(%error, "the store failed; nothing more is acknowledged"),
    }
    let stopped = backend.clone();
    tasks.blocking(move || stopped.stop_taking()).await?;
    if !tasks.stop(live.read().config.http.drain_timeout).await {
        warn!("requests still under way were broken off");
    }
    let closed = backend.clone();
    let closing = move || {
        broker.stop();
        closed.close();
        // Nothing is counted any more.
        trends.save();
        if let Err(error) = virtual_time::mark(&config, broker.now()) {
            warn!(%error, "the time of this virtual clock is not remembered");
        }
    };
    tasks.blocking(closing).await?;
    backend.leave().await;
    outcome
}

/// Says that requests are answered.
fn announce(waiting: oneshot::Sender<Ready>, ready: Ready) {
    let kafka = ready.kafka.map_or_else(|| "off".to_owned(), |address| address.to_string());
    info!(http = %ready.http, %kafka, data = %ready.data.display(), "ready");
    // Nobody waiting for the news is fine.
    let _unheard = waiting.send(ready).is_err();
}

/// Goes on with the figures of earlier starts.
async fn keep_figures(
    kept: Kept,
    looking: Looking,
    tasks: &Tasks,
) -> Result<Arc<Keeper>, ServeError> {
    let (handle, clock) = (Handle::current(), looking.broker.clone());
    let parts = KeeperParts {
        kept,
        look: Box::new(move || looking.look()),
        now: Box::new(move || clock.now()),
    };
    let trends = Arc::new(tasks.blocking(move || Keeper::open(parts, handle)).await?);
    trends.start(tasks);
    Ok(trends)
}

/// What a server is opened with.
struct Given {
    config: Config,
    clock: Arc<dyn Clock>,
    watch: Option<Arc<dyn Watch>>,
}

/// Opens what the configuration says. Where that is not on this machine it is waited for, and the
/// listener says so meanwhile.
async fn open_any(
    given: Given,
    listeners: &Listeners,
    tasks: &Tasks,
) -> Result<Opened, ServeError> {
    #[cfg(feature = "cluster")]
    if given.config.timeline.kind != TimelineKind::Embedded {
        let waiting = waiting::Waiting::default();
        let opening = shared::open(given, listeners.http(), (&waiting, tasks));
        return tokio::select! {
            opened = opening => opened,
            never = waiting.answer(listeners.http_listener(), tasks) => match never {},
        };
    }
    let _nobody_waits = listeners;
    let handle = Handle::current();
    tasks.blocking(move || open(given, &handle)).await?
}

/// What comes of the work, unless the server is asked to end before.
async fn unless<T>(
    end: Pin<&mut impl Future<Output = ()>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = end => None,
    }
}

/// Hands on what may change while the server runs to those who do not read it on each use.
fn follow(live: &Live, broker: &Broker, connector: &Arc<Connector>, gate: &Gate) {
    let (broker, connector, gate) = (broker.clone(), Arc::clone(connector), gate.clone());
    live.follow(move |config| {
        broker.set_bounds(Bounds {
            body_bytes_max: config.limits.body_bytes_max,
            delay_max: config.limits.delay_max,
            auto_create: config.topics.auto_create,
        });
        connector.allow(&config.push.allow);
        open_files::raise(connections_max(config));
        gate.set_admin_token(config.auth.admin_token.as_ref());
    });
}

/// What watches over the broker, before it is started.
fn watching(live: &Live, connector: &Arc<Connector>, broker: &Broker) -> Alerts {
    let broker = broker.clone();
    Alerts::new(live, Arc::clone(connector), Box::new(move || broker.now()))
}

/// Most connections of all listeners at one time.
fn connections_max(config: &Config) -> usize {
    let kafka = config.kafka.listen.map_or(0, |_| config.kafka.connections_max);
    config.http.connections_max.saturating_add(kafka)
}

/// What stands on the data.
struct Opened {
    backend: Backend,
    nodes: Nodes,
    broker: Broker,
    audit: Arc<AuditRecord>,
    gate: Gate,
    cluster: ClusterId,
    kept: Kept,
}

/// Opens the store and starts the broker over it. Blocks on the disk.
fn open(given: Given, handle: &Handle) -> Result<Opened, ServeError> {
    let Given { config, clock, watch } = given;
    let config = &config;
    let path = &config.store.data;
    let unusable = |error| ServeError::Directory { path: path.clone(), error };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(path).map_err(unusable)?);
    let engine = Engine::open(Arc::clone(&disk), engine_options(config), Arc::clone(&clock))
        .map_err(|error| ServeError::Open { path: path.clone(), error })?;
    let engine = Arc::new(engine);
    let now = clock.read().timestamp();
    virtual_time::mark(config, now).map_err(unusable)?;
    // Only once it is known that the directory is a store, and nobody else's.
    let audit = Arc::new(AuditRecord::open(Arc::clone(&disk)).map_err(unusable)?);
    let options = options(config, &audit, watch);
    let tables = Arc::downgrade(&engine);
    let (broker, backend) = start(config, options, (engine, clock), handle)?;
    let cluster = ClusterId::open(&*disk).map_err(unusable)?;
    let files = TrendFiles::open(Arc::clone(&disk)).map_err(unusable)?;
    let kept = Kept::of_machine(files, handle);
    let gate = gate(config, disk, &broker).map_err(unusable)?;
    let memory = move || {
        let size = tables.upgrade().map(|engine| engine.store().tables_size());
        let (entries, bytes) = size.unwrap_or_default();
        Memory { slots: 1, entries, bytes, frontier: None }
    };
    let nodes = Nodes::single(memory, Box::new(|| Ok(())));
    Ok(Opened { backend, nodes, broker, audit, gate, cluster, kept })
}

fn engine_options(config: &Config) -> punctual_engine::Options {
    let mut options = punctual_engine::Options::with_memory(config.store.memory);
    options.durability = match config.store.durability {
        Durability::Fsync => punctual_engine::Durability::Fsync,
        Durability::Interval(interval) => punctual_engine::Durability::Interval(interval),
        Durability::Os => punctual_engine::Durability::Os,
    };
    if config.outlet.kind == OutletKind::Kafka {
        options.outlet = punctual_engine::OutletKind::Foreign;
    }
    options
}

fn options(config: &Config, audit: &Arc<AuditRecord>, watch: Option<Arc<dyn Watch>>) -> Options {
    Options {
        body_bytes_max: config.limits.body_bytes_max,
        delay_max: config.limits.delay_max,
        auto_create: config.topics.auto_create,
        // Where time is moved by hand the same calls are to have the same results.
        seed: config.virtual_time.is_some().then_some(0),
        audit: Arc::clone(audit) as Arc<dyn Sink>,
        watch,
    }
}

/// Starts the broker over the engine.
#[cfg(not(feature = "cluster"))]
fn start(
    _config: &Config,
    options: Options,
    (engine, clock): (Arc<Engine>, Arc<dyn Clock>),
    _handle: &Handle,
) -> Result<(Broker, Backend), ServeError> {
    let parts = Parts {
        timeline: Arc::clone(&engine),
        outlet: Arc::clone(&engine),
        topics: Arc::clone(&engine) as Arc<dyn Topics>,
        groups: Arc::clone(&engine) as Arc<dyn Groups>,
        records: Some(Arc::clone(&engine) as Arc<dyn Records>),
        clock,
    };
    let broker = Broker::start(options, parts).map_err(ServeError::Fire)?;
    Ok((broker, Backend { engine: Some(engine) }))
}

/// Starts the broker over the engine, with its own topics or those of Kafka.
#[cfg(feature = "cluster")]
fn start(
    config: &Config,
    options: Options,
    (engine, clock): (Arc<Engine>, Arc<dyn Clock>),
    handle: &Handle,
) -> Result<(Broker, Backend), ServeError> {
    let mut parts = Parts {
        timeline: Arc::new(Store::Engine(Arc::clone(&engine))),
        outlet: Arc::new(Way::Engine(Arc::clone(&engine))),
        topics: Arc::clone(&engine) as Arc<dyn Topics>,
        groups: Arc::clone(&engine) as Arc<dyn Groups>,
        records: Some(Arc::clone(&engine) as Arc<dyn Records>),
        clock,
    };
    if config.outlet.kind == OutletKind::Local {
        let broker = Broker::start(options, parts).map_err(ServeError::Fire)?;
        return Ok((broker, Backend { engine: Some(engine), outside: None }));
    }
    let refused = |error: KafkaError| ServeError::Shared(error.to_string());
    let kafka = outlet::Kafka::start(&config.outlet, parts.topics, handle).map_err(refused)?;
    parts.outlet = Arc::new(Way::Kafka(Arc::clone(&kafka.outlet)));
    parts.topics = Arc::clone(&kafka.topics);
    parts.groups = kafka.groups(parts.groups);
    parts.records = None;
    let broker = Broker::start(options, parts).map_err(ServeError::Fire)?;
    let ingress = outlet::take_in(config, &broker, handle).map_err(refused)?;
    let outside = Outside { outlet: kafka.outlet, ingress, shared: None };
    Ok((broker, Backend { engine: Some(engine), outside: Some(outside) }))
}

/// Opens the gate for the apps that the directory knows.
fn gate(config: &Config, disk: Arc<dyn Disk>, broker: &Broker) -> std::io::Result<Gate> {
    let admin = config.auth.admin_token.clone();
    let auth = Auth { enabled: config.auth.enabled, admin, nodes: None };
    let (gate, first) = Gate::open(auth, AppFiles::open(disk)?, Facts::of(broker))?;
    if first == FirstToken::Made {
        let file = config.store.data.join(TOKEN);
        info!(file = %file.display(), "the token of the administrator was made; it is in this file");
    }
    Ok(gate)
}

/// Ends when the store has stopped after a failed write, even while nothing fires.
async fn store_failed(backend: &Backend) -> StoreError {
    let mut interval = tokio::time::interval(STORE_CHECK_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = backend.check() {
            return error;
        }
    }
}
