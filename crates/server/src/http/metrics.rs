//! The figures of the broker in Prometheus' text form.

use std::fmt::Write as _;

use http::StatusCode;
use http::header::HeaderValue;
use punctual_broker::Stats;
use punctual_model::Buckets;

use crate::app::StoreFigures;
use crate::http::reply::{Reply, typed};
use crate::http::router::Call;

pub(crate) fn show(call: &Call) -> Reply {
    let text = render(&call.shared.broker.stats(), &(call.shared.store_figures)());
    let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    typed(StatusCode::OK, media_type, text.into_bytes())
}

fn render(stats: &Stats, store: &StoreFigures) -> String {
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
        ("punctual_clock_steps_total", "Steps of the wall clock noticed.", stats.clock_steps),
        ("punctual_damaged_blocks_total", "Stored blocks found damaged.", store.damaged_blocks),
    ] {
        head(&mut text, name, "counter", help);
        line(&mut text, format_args!("{name} {count}"));
    }
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
