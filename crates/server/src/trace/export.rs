//! Spans on their way to the collector.
//!
//! Nobody who makes a span waits: what does not fit into the queue is lost and counted, and so is
//! what the collector does not take in time. A dead collector costs one bounded queue.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tracing::{info, warn};
use url::Url;

use crate::tasks::Tasks;
use crate::trace::Counts;

/// Most spans that wait to be sent.
const QUEUE_MAX: usize = 8192;
/// Most spans sent at once.
const BATCH_MAX: usize = 512;
/// How long more spans are waited for before some are sent.
const LINGER: Duration = Duration::from_millis(200);
/// Longest time for the collector to take a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for what is left at the end.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// How often spans are looked for whose lease has ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The near end of the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Span>,
    counts: Arc<Counts>,
}

/// A queue, and its far end.
pub(super) fn queue(counts: Arc<Counts>) -> (Queue, mpsc::Receiver<Span>) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    (Queue { sender, counts }, receiver)
}

impl Queue {
    /// Puts a span in, or loses it. Never waits.
    pub(super) fn put(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            self.lose(1);
        }
    }

    /// Spans were lost elsewhere.
    pub(super) fn lose(&self, count: usize) {
        self.counts.add_dropped(count);
    }
}

/// Sends spans.
pub(super) struct Exporter {
    client: TraceServiceClient<Channel>,
    resource: Resource,
    counts: Arc<Counts>,
    /// Whether the last batch was not taken.
    failing: bool,
}

impl Exporter {
    /// To this collector. Nothing is connected yet.
    pub(super) fn new(endpoint: &Url, service_name: &str, counts: Arc<Counts>) -> Self {
        let endpoint = Endpoint::from_shared(endpoint.to_string());
        let endpoint = endpoint.expect("the configuration has an http address");
        let channel =
            endpoint.connect_timeout(EXPORT_TIMEOUT).timeout(EXPORT_TIMEOUT).connect_lazy();
        let attribute = |key: &str, text: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::StringValue(text.to_owned())) }),
            ..KeyValue::default()
        };
        let attributes = vec![
            attribute("service.name", service_name),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let resource = Resource { attributes, ..Resource::default() };
        Self { client: TraceServiceClient::new(channel), resource, counts, failing: false }
    }

    /// Sends what comes until the tasks are asked to stop, then what is left.
    pub(super) async fn run(
        mut self,
        mut spans: mpsc::Receiver<Span>,
        sweep: impl Fn() + Send,
        tasks: Tasks,
    ) {
        let mut sweeps = interval(SWEEP_INTERVAL);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                count = spans.recv_many(&mut batch, BATCH_MAX) => if count == 0 {
                    return;
                },
                _ = sweeps.tick() => {
                    sweep();
                    continue;
                }
                () = tasks.stopped() => break,
            }
            gather(&mut spans, &mut batch, &tasks).await;
            self.export(std::mem::take(&mut batch), EXPORT_TIMEOUT).await;
        }
        let last = Instant::now() + LAST_TIMEOUT;
        // What is under way may still make some.
        while let Ok(1..) = timeout(LINGER, spans.recv_many(&mut batch, BATCH_MAX)).await {
            let left = last.saturating_duration_since(Instant::now());
            self.export(std::mem::take(&mut batch), left).await;
        }
    }

    async fn export(&mut self, spans: Vec<Span>, patience: Duration) {
        let count = spans.len();
        let scope = InstrumentationScope { name: "punctual".to_owned(), ..Default::default() };
        let scope_spans = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        };
        let request = ExportTraceServiceRequest { resource_spans: vec![resource_spans] };
        let error = match timeout(patience, self.client.export(request)).await {
            Ok(Ok(answer)) => {
                let partly = answer.into_inner().partial_success.unwrap_or_default();
                let lost = usize::try_from(partly.rejected_spans).unwrap_or_default().min(count);
                self.counts.add_exported(count - lost);
                self.counts.add_dropped(lost);
                None
            }
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(_late) => Some("it does not answer in time".to_owned()),
        };
        match error {
            Some(error) => {
                self.counts.add_dropped(count);
                if !self.failing {
                    warn!(error, "the collector does not take traces; they are lost meanwhile");
                }
                self.failing = true;
            }
            None if self.failing => {
                info!(dropped = self.counts.dropped(), "the collector takes traces again");
                self.failing = false;
            }
            None => {}
        }
    }
}

/// Waits a little for more, so that not each span is sent by itself.
async fn gather(spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>, tasks: &Tasks) {
    let deadline = Instant::now() + LINGER;
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        let more = timeout_at(deadline, spans.recv_many(batch, room));
        let gathered = tokio::select! {
            more = more => more,
            () = tasks.stopped() => return,
        };
        if !matches!(gathered, Ok(1..)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_and_counted() {
        let counts = Arc::new(Counts::default());
        let (queue, _spans) = queue(Arc::clone(&counts));
        for _ in 0..QUEUE_MAX + 5 {
            queue.put(Span::default());
        }
        assert_eq!((counts.dropped(), counts.exported()), (5, 0));
    }

    #[tokio::test]
    async fn a_collector_that_is_not_there_costs_only_spans() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", closed.local_addr().unwrap()).parse().unwrap();
        drop(closed);
        let counts = Arc::new(Counts::default());
        let (queue, spans) = queue(Arc::clone(&counts));
        let tasks = Tasks::default();
        let exporter = Exporter::new(&endpoint, "test", Arc::clone(&counts));
        tasks.spawn(exporter.run(spans, || {}, tasks.clone()));
        for _ in 0..10 {
            queue.put(Span::default());
        }
        assert!(tasks.stop(Duration::from_secs(60)).await, "it ends when it is asked to");
        assert_eq!((counts.dropped(), counts.exported()), (10, 0));
    }
}
