//! What all requests share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::Guard;
use punctual_model::{Span, Timestamp};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::access::Gate;
use crate::alerts::Alerts;
use crate::app::Broker;
use crate::audit::AuditRecord;
use crate::backend::{Backend, Nodes, StoreFigures};
use crate::consuming::Consuming;
use crate::http::Pulse;
use crate::http::forecast::Forecasts;
use crate::http::metrics::Chosen;
use crate::http::openapi::Document;
use crate::http::page::PAGE_BYTES_MAX;
use crate::http::routes::Router;
use crate::live::{Current, Live};
use crate::machine::FileBytes;
use crate::net::Places;
use crate::push::Figures;
use crate::tasks::Tasks;
use crate::timings::Timings;
use crate::trace::Traces;
use crate::trends::Keeper;

/// Exports and imports under way at one time.
const TRANSFERS_MAX: usize = 4;
/// Streams of messages under way at one time, in and out.
const STREAMS_MAX: usize = 1024;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) broker: Broker,
    pub(crate) store_figures: Box<dyn Fn() -> StoreFigures + Send + Sync>,
    pub(crate) pushed: Arc<Figures>,
    pub(crate) tasks: Tasks,
    /// The configuration in force.
    pub(crate) live: Live,
    /// Who changed what.
    pub(crate) audit: Arc<AuditRecord>,
    /// Who is let in.
    pub(crate) gate: Gate,
    /// What is told of messages to a collector.
    pub(crate) traces: Traces,
    /// What was counted before this start, and how it went over time.
    pub(crate) trends: Arc<Keeper>,
    pub(crate) router: Router,
    pub(crate) openapi: Document,
    /// Who is connected.
    pub(crate) places: Arc<Places>,
    /// Which Kafka clients are.
    pub(crate) kafka_places: Arc<Places>,
    /// Bytes of requests that may still be taken in; what is held is given back with the answer.
    pub(crate) held: Arc<Semaphore>,
    /// How many may read whole pages of messages at one time.
    pub(crate) pages: Semaphore,
    /// Turns at listing messages: a page counts as held only once it is written.
    listings: Semaphore,
    /// How many exports and imports may be under way.
    pub(crate) transfers: Arc<Semaphore>,
    /// How many may send or receive for as long as they like.
    pub(crate) streams: Arc<Semaphore>,
    /// Held while settings are read, judged and changed, so that of two changes none gets lost.
    pub(crate) changes: Mutex<()>,
    /// Where it listens, once it does.
    pub(crate) address: OnceLock<SocketAddr>,
    /// How large the files of the store are.
    pub(crate) store_bytes: Arc<FileBytes>,
    /// What live views are told.
    pub(crate) pulse: Pulse,
    /// How long callers wait.
    pub(crate) timings: Timings,
    /// What was told of how much is due when.
    pub(crate) forecasts: Forecasts,
    /// Which topics and groups have figures of their own.
    pub(crate) chosen: Chosen,
    /// When the server was started, on the clock of the broker and on that of the machine.
    pub(crate) started: (Timestamp, Instant),
    /// What watches over the broker.
    pub(crate) alerts: Alerts,
    /// The nodes that make up the broker.
    pub(crate) nodes: Nodes,
    taking: AtomicBool,
}

/// What was opened beside the broker.
type Known<'a> = (&'a Live, Arc<AuditRecord>, Gate, Traces, Arc<Keeper>);

impl Shared {
    pub(crate) fn new(
        broker: Broker,
        (backend, nodes, store_bytes): (&Backend, Nodes, Arc<FileBytes>),
        pushed: Arc<Figures>,
        tasks: Tasks,
        (live, audit, gate, traces, trends): Known<'_>,
        alerts: Alerts,
    ) -> Self {
        let started = (broker.now(), Instant::now());
        let held_bytes_max = live.read().config.http.held_bytes_max;
        let backend = backend.clone();
        let clock = broker.clone();
        nodes.remember(move || clock.now());
        Self {
            broker,
            store_figures: Box::new(move || backend.figures()),
            pushed,
            tasks,
            places: Arc::default(),
            kafka_places: Arc::default(),
            held: Arc::new(Semaphore::new(held_bytes_max)),
            // Half as much again as may be held.
            pages: Semaphore::new((held_bytes_max / PAGE_BYTES_MAX / 2).max(1)),
            listings: Semaphore::new((held_bytes_max / PAGE_BYTES_MAX / 2).max(1)),
            live: live.clone(),
            audit,
            gate,
            traces,
            trends,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            router: Router::new(),
            openapi: Document::default(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            changes: Mutex::new(()),
            address: OnceLock::new(),
            store_bytes,
            pulse: Pulse::default(),
            timings: Timings::default(),
            forecasts: Forecasts::default(),
            chosen: Chosen::default(),
            started,
            alerts,
            nodes,
            taking: AtomicBool::new(true),
        }
    }

    /// What holds now; not to be kept.
    pub(crate) fn live(&self) -> Guard<Arc<Current>> {
        self.live.read()
    }

    /// Largest body of a message, in bytes.
    pub(crate) fn body_bytes_max(&self) -> usize {
        self.live().config.limits.body_bytes_max
    }

    /// Where delivered messages are read.
    pub(crate) fn consuming(&self) -> Consuming {
        self.live().config.outlet.kind.into()
    }

    /// Longest delay.
    pub(crate) fn delay_max(&self) -> Span {
        self.live().config.limits.delay_max
    }

    /// Waits for a turn to read and write a page of messages; it ends when the answer is made.
    pub(crate) async fn listing(&self) -> SemaphorePermit<'_> {
        self.listings.acquire().await.expect("it is never closed")
    }

    /// From now on the server calls itself not ready.
    pub(crate) fn stop_taking(&self) {
        self.taking.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_taking(&self) -> bool {
        self.taking.load(Ordering::Relaxed)
    }
}
