//! Alerts: what is watched, what was wrong, and who was told.

use super::{Named, Schema, list, number, object, span, text, time, truth, word};

const EVENTS: [&str; 3] = ["firing", "resolved", "test"];

pub(super) fn components() -> Named {
    let tested =
        object().with("webhook", word(["sent", "failed", "none"])).with("error", text().or_null());
    vec![("Alerts", alerts()), ("AlertTested", tested)]
}

fn figure() -> Schema {
    number(0.0, f64::MAX)
}

fn alerts() -> Schema {
    let rule = object()
        .with("name", text())
        .with("about", text())
        .with("unit", text().about("What the number counts."))
        .with("threshold", figure().about("What the number is compared with."))
        .with("for", span().about("How long it must be so before the rule fires."))
        .with("enabled", truth())
        .with("state", word(["ok", "pending", "firing"]))
        .with("value", figure().or_null())
        .with("since", time().or_null())
        .with("detail", text().or_null());
    let event = object()
        .with("rule", text())
        .with("event", word(EVENTS))
        .with("at", time())
        .with("value", figure().or_null())
        .with("detail", text().or_null());
    let reached = object().with("at", time()).with("ok", truth()).with("error", text().or_null());
    object()
        .with("rules", list(rule))
        .with("history", list(event).about("Newest first; it begins anew with the server."))
        .with("webhook", object().with("configured", truth()).with("last", reached.or_null()))
}
