//! The figures of the broker in Prometheus' text form.
//!
//! However many topics and groups there are, the text stays small: the largest have lines of their own
//! (`chosen.rs`), the rest are summed in one. What is counted by topic and only grows is bounded where
//! it is counted, because a sum that loses a part would look like a restart.

mod text;
mod chosen;
mod names;
mod process;
mod cluster;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderValue;
use punctual_api::Problem;
use punctual_broker::Stats;

pub(crate) use self::chosen::Chosen;
use self::names::Named;
use self::process::Process;
use self::text::{buckets, counter, gauge, head, histogram, line};
use crate::backend::StoreFigures;
use crate::http::call::Call;
use crate::http::problem::of_broken_off;
use crate::http::reply::{Reply, typed};
use crate::http::shared::Shared;
use crate::net::Standing;
use crate::push::Counts;
use crate::timings::{Timings, Waits};
use crate::trace;

/// `GET /metrics`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    let shared = Arc::clone(&call.shared);
    let text = call.shared.tasks.blocking(move || write(&shared)).await.map_err(of_broken_off)?;
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(typed(StatusCode::OK, media_type, text.into_bytes()))
}

/// All figures. Blocks on the disk.
fn write(shared: &Shared) -> String {
    let stats = shared.broker.stats();
    let store = (shared.store_figures)();
    let mut text = String::with_capacity(32 << 10);
    messages(&mut text, &stats);
    Named::look(shared, &stats).write(&mut text);
    pushes(&mut text, shared.pushed.counts());
    connections(&mut text, shared.places.standing(), shared.kafka_places.standing());
    waits(&mut text, &stats, &store, &shared.timings);
    traces(&mut text, &shared.traces.counts);
    alerts(&mut text, shared.alerts.firing());
    Process::look(shared).write(&mut text);
    cluster::nodes(&mut text, shared);
    #[cfg(feature = "cluster")]
    if let Some(outside) = &store.outside {
        cluster::outside(&mut text, outside);
    }
    text
}

/// What became of messages.
fn messages(text: &mut String, stats: &Stats) {
    for (name, help, count) in [
        ("punctual_scheduled_total", "Messages accepted.", stats.scheduled),
        ("punctual_fired_total", "Messages whose due time came.", stats.fired),
        ("punctual_delivered_total", "Messages handed to the outlet.", stats.delivered),
        ("punctual_cancelled_total", "Messages cancelled before they fired.", stats.cancelled),
        ("punctual_skipped_total", "Messages a catch-up policy cancelled.", stats.skipped),
        ("punctual_received_total", "Messages given to consumers of groups.", stats.received),
        ("punctual_acked_total", "Messages that groups were done with.", stats.acked),
        ("punctual_retries_total", "Failed messages that come again.", stats.retries),
        ("punctual_clock_steps_total", "Steps of the wall clock noticed.", stats.clock_steps),
    ] {
        counter(text, name, help, count);
    }
    let name = "punctual_dead_total";
    head(text, name, "counter", "Messages that became dead letters.");
    for (reason, count) in &stats.dead {
        line(text, format_args!("{name}{{reason=\"{}\"}} {count}", reason.word()));
    }
}

/// What concerns pushing.
fn pushes(text: &mut String, pushed: Counts) {
    for (name, help, count) in [
        ("punctual_push_delivered_total", "Pushes answered with success.", pushed.delivered),
        ("punctual_push_failed_total", "Pushes that failed.", pushed.failed),
        ("punctual_push_pauses_total", "Pauses given to failing endpoints.", pushed.pauses),
    ] {
        counter(text, name, help, count);
    }
    let help = "Endpoints that fail and are given a pause.";
    gauge(text, "punctual_push_paused_endpoints", help, pushed.paused);
}

/// What concerns connections.
fn connections(text: &mut String, standing: Standing, kafka: Standing) {
    for (name, help, count) in [
        ("punctual_connections", "Connections to the HTTP listener.", standing.open),
        ("punctual_connections_strange", "Those without a request let in.", standing.strangers),
        ("punctual_kafka_connections", "Connections of Kafka clients.", kafka.open),
        ("punctual_kafka_connections_strange", "Those nobody let in yet.", kafka.strangers),
    ] {
        gauge(text, name, help, count);
    }
    for (name, help, count) in [
        ("punctual_connections_refused_total", "Those without a place.", standing.refused),
        ("punctual_connections_gave_way_total", "Strangers that gave way.", standing.gave_way),
        ("punctual_kafka_connections_refused_total", "Those without a place.", kafka.refused),
        ("punctual_kafka_connections_gave_way_total", "Strangers that gave way.", kafka.gave_way),
    ] {
        counter(text, name, help, count);
    }
}

/// How long things took.
fn waits(text: &mut String, stats: &Stats, store: &StoreFigures, timings: &Timings) {
    let help = "Time from the due time to the delivery.";
    histogram(text, "punctual_fire_lateness_seconds", help, &stats.lateness);
    let help = "Time that one flush of the journal took.";
    histogram(text, "punctual_journal_sync_seconds", help, &store.journal_sync);
    let help = "Stored blocks found damaged.";
    counter(text, "punctual_damaged_blocks_total", help, store.damaged_blocks);
    let help = "Time from the arrival of a request to schedule until it was durable and answered.";
    by_way(text, "punctual_schedule_seconds", help, &timings.schedule);
    let help = "Time from the asking for messages, or the wake for them, until they were handed \
                to the connection.";
    by_way(text, "punctual_receive_seconds", help, &timings.receive);
}

fn by_way(text: &mut String, name: &str, help: &str, waits: &Waits) {
    head(text, name, "histogram", help);
    for (via, counted) in waits.read() {
        buckets(text, name, Some(("via", via.word())), &counted);
    }
}

/// Which rules of alerts fire.
fn alerts(text: &mut String, firing: impl IntoIterator<Item = (&'static str, bool)>) {
    let name = "punctual_alert_firing";
    head(text, name, "gauge", "Whether an alert fires.");
    for (rule, fires) in firing {
        line(text, format_args!("{name}{{rule=\"{rule}\"}} {}", u8::from(fires)));
    }
}

/// What concerns traces.
fn traces(text: &mut String, counts: &trace::Counts) {
    for (name, help, count) in [
        ("punctual_trace_spans_exported_total", "Spans the collector took.", counts.exported()),
        ("punctual_trace_spans_dropped_total", "Spans that were lost.", counts.dropped()),
    ] {
        counter(text, name, help, count);
    }
}
