//! Traces: the way of single messages, for an OpenTelemetry collector.
//!
//! schedule, fire, deliver and ack of a message are spans of one trace, because the message carries
//! its place in the trace in a header. What a span is and where it goes is known only in here; the
//! broker tells of single messages through its `Watch`. Without the cargo feature `otel` and an
//! endpoint in the configuration nobody is told and nothing is looked for.

pub(crate) mod context;
#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod open;
#[cfg(feature = "otel")]
mod span;
#[cfg(feature = "otel")]
mod tracer;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use punctual_broker::watch::Watch;
use punctual_model::Clock;

use crate::live::Live;
use crate::tasks::Tasks;
use crate::trace::context::Caller;

/// What became of spans since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    /// Spans that the collector took.
    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were lost, because there were too many or the collector did not take them.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    #[cfg(feature = "otel")]
    fn add_dropped(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    #[cfg(feature = "otel")]
    fn add_exported(&self, count: usize) {
        self.exported.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The traces of a server, if it makes any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    pub(crate) counts: Arc<Counts>,
    watch: Option<Arc<dyn Watch>>,
}

impl Traces {
    /// Who is to be told of messages.
    pub(crate) fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.watch.clone()
    }

    /// The place in a trace from which a request comes, if it says so and anybody cares.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        self.watch.as_ref().and_then(|_| Caller::of(headers))
    }

    /// Starts to send spans, if the configuration says where.
    #[cfg(feature = "otel")]
    pub(crate) fn start(live: &Live, tasks: &Tasks, clock: &Arc<dyn Clock>) -> Self {
        let otel = live.read().config.otel.clone();
        let Some(endpoint) = otel.endpoint else { return Self::default() };
        let counts = Arc::new(Counts::default());
        let (queue, spans) = export::queue(Arc::clone(&counts));
        let tracer = Arc::new(tracer::Tracer::new(queue, otel.sample));
        let exporter = export::Exporter::new(&endpoint, &otel.service_name, Arc::clone(&counts));
        let (sweeping, clock) = (Arc::clone(&tracer), Arc::clone(clock));
        let sweep = move || sweeping.sweep(clock.read().wall);
        tasks.spawn(exporter.run(spans, sweep, tasks.clone()));
        let sampling = Arc::clone(&tracer);
        live.follow(move |config| sampling.set_sample(config.otel.sample));
        tracing::info!(%endpoint, "traces are sent");
        Self { counts, watch: Some(tracer) }
    }

    /// Starts nothing: this program was built without traces.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn start(_live: &Live, _tasks: &Tasks, _clock: &Arc<dyn Clock>) -> Self {
        Self::default()
    }
}

#[cfg(feature = "otel")]
tokio::task_local! {
    /// From where in a trace the request under way comes.
    static CALLER: Option<Caller>;
}

/// Does the work of a request for that caller.
#[cfg(feature = "otel")]
pub(crate) fn within<F: Future>(
    caller: Option<Caller>,
    work: F,
) -> impl Future<Output = F::Output> {
    CALLER.scope(caller, work)
}

/// Does the work of a request.
#[cfg(not(feature = "otel"))]
pub(crate) fn within<F: Future>(
    _caller: Option<Caller>,
    work: F,
) -> impl Future<Output = F::Output> {
    work
}
