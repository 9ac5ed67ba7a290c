//! Dead letters, and moving a backlog.

use serde_json::json;

use super::{
    Bounds, Named, Schema, anything, base64, count, edge_asked, id, id_asked, integer, list, name,
    named, object, text, time, time_asked, truth, word,
};
use crate::schema::message::with_answered;
use crate::schema::pending::page;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("DeadFilter", filter(bounds)),
        ("Redrive", redrive(bounds)),
        ("Purge", purge()),
        ("Drain", drain(bounds)),
        ("DeadLetter", letter()),
        ("DeadPage", page("messages", "DeadLetter")),
        ("DeadSummary", summary()),
        ("Started", object().with("job", text().about("What to ask for its progress with."))),
        ("Matched", object().with("matched", count())),
        ("Purged", object().with("matched", count()).with("purged", count())),
        ("GroupJob", job()),
    ]
}

/// The fields of a filter.
const FILTER: &[&str] = &["reason", "from", "to", "day", "key", "key_base64", "id"];

/// Why a letter is dead.
pub(super) fn reason() -> Schema {
    word(["rejected", "expired", "overflow", "attempts_exhausted"])
}

fn filter(bounds: &Bounds) -> Schema {
    object()
        .can("reason", reason())
        .can("from", edge_asked())
        .can("to", edge_asked())
        .can("day", text().format("date").about("A day in UTC."))
        .can("key", text())
        .can("key_base64", base64())
        .can("id", id_asked(bounds))
        .closed()
        .at_most_one(&["key", "key_base64"])
        .at_most_one(&["day", "from"])
        .at_most_one(&["day", "to"])
        .about("Which dead letters; nothing said means all.")
        .example(json!({"reason": "expired", "day": "2030-01-31"}))
}

fn redrive(bounds: &Bounds) -> Schema {
    let edit = object()
        .can("key", text().set("maxLength", bounds.key_bytes))
        .can("key_base64", base64())
        .can("headers", named("HeadersAsked"))
        .may("body", anything())
        .can("body_base64", base64())
        .closed()
        .at_most_one(&["key", "key_base64"])
        .at_most_one(&["body", "body_base64"]);
    object()
        .can("filter", named("DeadFilter"))
        .can("rate", integer(1u64, bounds.rate).about("How many in a second."))
        .can("at", time_asked(bounds).about("Not before this time."))
        .can("dry_run", truth().about("Only count them."))
        .can("edit", edit.about("What to change; needs a filter with an id."))
        .closed()
        .never(json!({
            "required": ["edit"],
            "properties": {
                "edit": {"type": "object"},
                "filter": {"anyOf": [{"type": "null"}, {"properties": {"id": {"type": "null"}}}]},
            },
        }))
        .example(json!({"filter": {"reason": "attempts_exhausted"}, "rate": 100}))
}

fn purge() -> Schema {
    let silent = FILTER.iter().map(|name| ((*name).to_owned(), json!({"type": "null"})));
    let silent: serde_json::Map<String, serde_json::Value> = silent.collect();
    object()
        .can("filter", named("DeadFilter"))
        .can("all", truth().about("Really all; needed where the filter says nothing."))
        .can("dry_run", truth().about("Only count them."))
        .closed()
        .all_or("filter", FILTER)
        .never(json!({
            "required": ["all", "filter"],
            "properties": {
                "all": {"const": true},
                "filter": {"type": "object", "not": {"properties": silent}},
            },
        }))
        .example(json!({"filter": {"reason": "expired"}}))
}

fn drain(bounds: &Bounds) -> Schema {
    object()
        .with("to", name(bounds).about("The topic that they go to."))
        .can("max", integer(0u64, u64::MAX))
        .closed()
        .example(json!({"to": "orders-later", "max": 1000}))
}

fn letter() -> Schema {
    let shape = object()
        .with("id", id())
        .with("topic", text())
        .with("partition", count())
        .with("offset", count())
        .with("due", time())
        .with("delivered_at", time())
        .with("reason", reason().or_null())
        .with("attempts", count())
        .with("first_error", text().or_null())
        .with("last_error", text().or_null())
        .with("died_at", time());
    with_answered(shape)
}

fn summary() -> Schema {
    let day = object()
        .with("day", text().format("date"))
        .with("reason", reason().or_null())
        .with("count", count());
    object()
        .with("total", count().about("All letters on the list."))
        .with("days", list(day).about("Newest day first, at most 100 counts."))
        .with("complete", truth().about("Whether everything was counted, and every count is told."))
}

fn job() -> Schema {
    let result = object()
        .with("id", id())
        .with("result", word(["redriven", "drained", "gone"]))
        .may("due", time());
    object()
        .with("job", text())
        .with("kind", word(["redrive", "drain"]))
        .with("state", word(["running", "done", "failed"]))
        .with("started", time())
        .with("matched", count())
        .with("done", count())
        .may("error", text())
        .with("results", list(result))
        .with("next", text().or_null())
        .with("results_cut", truth())
}
