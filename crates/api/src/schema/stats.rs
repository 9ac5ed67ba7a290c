//! Figures about the whole broker, and who makes it up.

use super::{Named, Schema, count, integer, list, number, object, span, text, time, truth, word};
use crate::stats::SLOTS_MAX;

pub(super) fn components() -> Named {
    let asked = object().with("slots", integer(1u32, SLOTS_MAX)).closed();
    vec![
        ("Stats", stats()),
        ("LiveFigures", live()),
        ("Trends", trends()),
        ("Cluster", cluster()),
        ("ClusterAsked", asked),
    ]
}

const TOTALS: [&str; 9] = [
    "scheduled",
    "fired",
    "delivered",
    "received",
    "acked",
    "cancelled",
    "skipped",
    "retried",
    "dead",
];

fn live() -> Schema {
    let rate = || number(0.0, f64::MAX);
    let rates = TOTALS.iter().fold(object(), |shape, name| shape.with(name, rate()));
    counts(&[
        "topic_count",
        "group_count",
        "app_count",
        "pending",
        "lag",
        "in_flight",
        "retrying",
        "dead_letters",
        "store_bytes",
        "alerts_firing",
    ])
    .with("now", time())
    .with("node", text())
    .with("totals", counts(&TOTALS))
    .with("rates", rates.about("In a second."))
    .with("lateness", latency().about("How late messages were delivered in the last minute."))
    .with("success_rate", number(0.0, 1.0).or_null())
    .with("memory_bytes", count().or_null())
}

/// Figures of points that are whole numbers.
const TREND_COUNTS: [&str; 15] = [
    "scheduled",
    "fired",
    "delivered",
    "acked",
    "cancelled",
    "retried",
    "dead",
    "pending",
    "bytes",
    "refused",
    "entries",
    "slots",
    "memory_bytes",
    "store_bytes",
    "disk_free_bytes",
];

fn trends() -> Schema {
    let millis = || number(0.0, f64::MAX);
    let point = object().with("at", time().about("When the ten minutes began."));
    let point = TREND_COUNTS.iter().fold(point, |point, name| point.may(name, count()));
    let point = point.may("journal_p99_ms", millis()).may("lateness_p99_ms", millis());
    object().with("interval", span()).with(
        "points",
        list(point).about("The oldest first; points without anything are left out."),
    )
}

fn counts(names: &[&str]) -> Schema {
    names.iter().fold(object(), |shape, name| shape.with(name, count()))
}

fn latency() -> Schema {
    let millis = || number(0.0, f64::MAX).or_null();
    object().with("p50_ms", millis()).with("p99_ms", millis()).with("count", count())
}

fn stats() -> Schema {
    let totals = counts(&TOTALS);
    let group = counts(&["lag", "in_flight", "retrying", "dead"]);
    counts(&[
        "topic_count",
        "group_count",
        "pending",
        "lag",
        "in_flight",
        "retrying",
        "dead_letters",
    ])
    .with("now", time())
    .with("started_at", time())
    .with("uptime", span())
    .with("version", text())
    .with("virtual", truth())
    .with("totals", totals.about("Since the first start; restarts do not matter."))
    .with("lateness", latency().about("How late messages were delivered, since the start."))
    .with("journal_sync", latency())
    .with("memory_bytes", count().or_null())
    .with("store_bytes", count())
    .with("connections", counts(&["open", "max"]))
    .with("topics", list(object().with("name", text()).with("pending", count())))
    .with("groups", list(group.with("topic", text()).with("name", text())))
}

fn cluster() -> Schema {
    let node = object()
        .with("id", text())
        .with("address", text())
        .with("version", text())
        .with("started_at", time())
        .with("state", word(["up", "lost"]))
        .with("slots", count())
        .with("term", count());
    let assigned = object()
        .with("slot", count())
        .with("owner", text().or_null())
        .with("term", count())
        .with("next", text().or_null());
    let event = object()
        .with("at", time())
        .with("event", word(["joined", "left", "lost", "leader", "slots"]))
        .with("node", text().or_null())
        .with("slots", count().about("How many moved."));
    let memory = counts(&["slots", "entries", "bytes"]).with("frontier", time().or_null());
    object()
        .with("mode", word(["single", "cluster"]))
        .with("node", text())
        .with("leader", text().or_null())
        .with("nodes", list(node.clone()))
        .with("lost", list(node).about("Gone without having left, and not back yet."))
        .with("slots", counts(&["total", "wanted", "unowned", "moving", "retired"]))
        .may("assignment", list(assigned).about("Only if the query says `slots=true`."))
        .with("memory", memory.about("What this machine has in memory of the timeline."))
        .with("history", list(event).about("As this machine has seen it, newest first."))
}
