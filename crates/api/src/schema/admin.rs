//! What concerns the whole broker: the record of changes, time, health.

use serde_json::json;

use super::{
    Bounds, Named, Schema, count, map, object, span_asked, text, time, time_asked, truth, word,
};
use crate::schema::pending::page;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("AuditEntry", entry()),
        ("AuditPage", page("entries", "AuditEntry")),
        ("Advance", advance(bounds)),
        ("Time", object().with("now", time()).with("virtual", truth())),
        ("Advanced", object().with("now", time()).with("fired", count())),
        ("Health", object().with("status", word(["live", "ready"]))),
    ]
}

fn entry() -> Schema {
    object()
        .with("at", time())
        .with("who", text())
        .with("what", text())
        .may("topic", text())
        .with("details", map(text()))
}

fn advance(bounds: &Bounds) -> Schema {
    object()
        .can("by", span_asked(0, bounds.delay_ceiling))
        .can("to", time_asked(bounds).about("Not before now."))
        .closed()
        .at_most_one(&["by", "to"])
        .at_least_one(&["by", "to"])
        .example(json!({"by": "30d"}))
}
