//! The figures of the broker in Prometheus' text form.

use std::collections::HashSet;
use std::fmt::Write as _;

use http::StatusCode;
use http::header::HeaderValue;
use punctual_api::Problem;
use punctual_broker::Stats;
use punctual_broker::group::GroupLag;
use punctual_model::{Buckets, TopicName};

#[cfg(feature = "cluster")]
use crate::backend::OutsideFigures;
use crate::backend::StoreFigures;
use crate::consuming::Consuming;
use crate::http::call::Call;
use crate::http::problem::of_broken_off;
use crate::http::reply::{Reply, typed};
use crate::http::topics::is_shown;
use crate::net::Standing;
use crate::push::Counts;
use crate::trace;

/// `GET /metrics`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    let broker = call.shared.broker.clone();
    let reads_here = call.shared.consuming() == Consuming::Here;
    let look = move || {
        let mut stats = broker.stats();
        let topics = broker.topics().list();
        let hidden: HashSet<&TopicName> =
            topics.iter().filter(|topic| !is_shown(topic)).map(|topic| &topic.name).collect();
        stats.pending.retain(|(name, _)| !hidden.contains(name));
        // How far groups are that read from Kafka is known there.
        let lags = if reads_here { broker.consumers().lags() } else { Vec::new() };
        (stats, lags)
    };
    let (stats, lags) = call.shared.tasks.blocking(look).await.map_err(of_broken_off)?;
    let store = (call.shared.store_figures)();
    let mut text = render(&stats, &store, call.shared.pushed.counts());
    let kafka = call.shared.kafka_places.standing();
    connections(&mut text, call.shared.places.standing(), kafka);
    groups(&mut text, &stats, &lags);
    traces(&mut text, &call.shared.traces.counts);
    alerts(&mut text, call.shared.alerts.firing());
    #[cfg(feature = "cluster")]
    if let Some(outside) = &store.outside {
        self::outside(&mut text, outside);
    }
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(typed(StatusCode::OK, media_type, text.into_bytes()))
}

/// What concerns connections.
fn connections(text: &mut String, standing: Standing, kafka: Standing) {
    let gauges = [
        ("punctual_connections", "Connections to the HTTP listener.", standing.open),
        ("punctual_connections_strange", "Those without a request let in.", standing.strangers),
        ("punctual_kafka_connections", "Connections of Kafka clients.", kafka.open),
        ("punctual_kafka_connections_strange", "Those nobody let in yet.", kafka.strangers),
    ];
    for (name, help, count) in gauges {
        head(text, name, "gauge", help);
        line(text, format_args!("{name} {count}"));
    }
    let counters = [
        ("punctual_connections_refused_total", "Those without a place.", standing.refused),
        ("punctual_connections_gave_way_total", "Strangers that gave way.", standing.gave_way),
        ("punctual_kafka_connections_refused_total", "Those without a place.", kafka.refused),
        ("punctual_kafka_connections_gave_way_total", "Strangers that gave way.", kafka.gave_way),
    ];
    for (name, help, count) in counters {
        head(text, name, "counter", help);
        line(text, format_args!("{name} {count}"));
    }
}

/// What concerns Kafka, slots and other nodes.
#[cfg(feature = "cluster")]
fn outside(text: &mut String, outside: &OutsideFigures) {
    let mut gauges = vec![(
        "punctual_kafka_outlet_reachable",
        "Whether Kafka answered last.",
        u64::from(outside.kafka_reachable),
    )];
    let mut counters = Vec::new();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    if let Some(slots) = &outside.slots {
        gauges.extend([
            ("punctual_slots_held", "Slots that this node holds.", count(slots.slots)),
            ("punctual_timeline_entries", "Entries in memory.", count(slots.entries)),
            ("punctual_timeline_bytes", "Bytes of messages in memory.", count(slots.bytes)),
            ("punctual_timeline_claimed", "Entries on their way out.", count(slots.claimed)),
            ("punctual_timeline_queued", "Calls that wait for the store.", count(slots.queued)),
        ]);
        counters.extend([
            ("punctual_store_commits_total", "Groups of changes written.", slots.commits),
            ("punctual_store_changes_total", "Changes in them.", slots.committed_changes),
            ("punctual_store_fenced_total", "Writes refused for an old term.", slots.fenced),
            ("punctual_store_reloads_total", "Slots read again after doubt.", slots.reloads),
            ("punctual_store_failures_total", "Calls that failed.", slots.store_failures),
        ]);
    }
    if let Some(routing) = outside.routing {
        counters.extend([
            ("punctual_peer_calls_total", "Calls of other nodes.", routing.calls),
            ("punctual_peer_calls_failed_total", "Those without an answer.", routing.failed),
            ("punctual_routing_retries_total", "Tries while a slot moved.", routing.retried),
        ]);
    }
    for (kind, figures) in [("gauge", gauges), ("counter", counters)] {
        for (name, help, number) in figures {
            head(text, name, kind, help);
            line(text, format_args!("{name} {number}"));
        }
    }
    if let Some(calls) = &outside.peer_calls {
        histogram(text, "punctual_peer_call_seconds", "Time that calls of nodes took.", calls);
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
        head(text, name, "counter", help);
        line(text, format_args!("{name} {count}"));
    }
}

type Figure = fn(&GroupLag) -> u64;

/// What concerns groups.
fn groups(text: &mut String, stats: &Stats, lags: &[GroupLag]) {
    let name = "punctual_dead_total";
    head(text, name, "counter", "Messages that became dead letters.");
    for (reason, count) in &stats.dead {
        line(text, format_args!("{name}{{reason=\"{}\"}} {count}", reason.word()));
    }
    let gauges: [(&str, &str, Figure); 4] = [
        ("punctual_group_lag", "Delivered messages a group is not done with.", |of| of.lag),
        ("punctual_group_in_flight", "Messages that are with consumers.", |of| of.in_flight),
        ("punctual_group_retrying", "Messages that wait for another attempt.", |of| of.retrying),
        ("punctual_group_dead", "Dead letters.", |of| of.dead),
    ];
    for (name, help, figure) in gauges {
        head(text, name, "gauge", help);
        for of in lags {
            let (topic, group) = (&of.topic, &of.group);
            let labels = format_args!("topic=\"{topic}\",group=\"{group}\"");
            line(text, format_args!("{name}{{{labels}}} {}", figure(of)));
        }
    }
}

fn render(stats: &Stats, store: &StoreFigures, pushed: Counts) -> String {
    let mut text = String::with_capacity(4096);
    let name = "punctual_pending_messages";
    head(&mut text, name, "gauge", "Messages that wait for their due time.");
    for (topic, count) in &stats.pending {
        // Names of topics need no escaping.
        line(&mut text, format_args!("{name}{{topic=\"{topic}\"}} {count}"));
    }
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
        ("punctual_damaged_blocks_total", "Stored blocks found damaged.", store.damaged_blocks),
        ("punctual_push_delivered_total", "Pushes answered with success.", pushed.delivered),
        ("punctual_push_failed_total", "Pushes that failed.", pushed.failed),
        ("punctual_push_pauses_total", "Pauses given to failing endpoints.", pushed.pauses),
    ] {
        head(&mut text, name, "counter", help);
        line(&mut text, format_args!("{name} {count}"));
    }
    let name = "punctual_deliveries_refused_total";
    head(&mut text, name, "counter", "Deliveries that the outlet put off.");
    for (topic, count) in &stats.refused {
        let topic = topic.as_ref().map_or("", TopicName::as_str);
        line(&mut text, format_args!("{name}{{topic=\"{topic}\"}} {count}"));
    }
    let name = "punctual_push_paused_endpoints";
    head(&mut text, name, "gauge", "Endpoints that fail and are given a pause.");
    line(&mut text, format_args!("{name} {}", pushed.paused));
    let help = "Time from the due time to the delivery.";
    histogram(&mut text, "punctual_fire_lateness_seconds", help, &stats.lateness);
    let help = "Time that one flush of the journal took.";
    histogram(&mut text, "punctual_journal_sync_seconds", help, &store.journal_sync);
    text
}

fn histogram(text: &mut String, name: &str, help: &str, histogram: &Buckets) {
    head(text, name, "histogram", help);
    for (bound, count) in &histogram.bounds {
        if bound.is_finite() {
            line(text, format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
    }
    line(text, format_args!("{name}_bucket{{le=\"+Inf\"}} {}", histogram.count));
    line(text, format_args!("{name}_sum {}", histogram.sum));
    line(text, format_args!("{name}_count {}", histogram.count));
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}
