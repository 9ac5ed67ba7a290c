//! Pending messages: lists, changes of many, jobs, and how much is due when.

use serde_json::json;

use super::{
    Bounds, Named, Schema, base64, count, edge_asked, list, named, object, span, span_asked, text,
    time, truth, word,
};
use crate::schema::message::with_when;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("PendingFilter", filter()),
        ("Bulk", bulk(bounds).closed()),
        ("BulkMove", bulk_move(bounds)),
        ("BulkOutcome", bulk_outcome()),
        ("Job", job()),
        ("Jobs", page("jobs", "Job")),
        ("MessagePage", page("messages", "Message")),
        ("SeriesPage", page("series", "Message")),
        ("Forecast", forecast()),
    ]
}

/// One page of a listing.
pub(super) fn page(field: &str, shape: &str) -> Schema {
    object()
        .with(field, list(named(shape)))
        .with("next", text().about("The cursor of the next page; null at the end.").or_null())
}

fn filter() -> Schema {
    object()
        .can("from", edge_asked())
        .can("to", edge_asked())
        .can("key", text())
        .can("key_base64", base64())
        .can("key_prefix", text())
        .can("app", text().about("The key of the app that sent them."))
        .can("state", word(["scheduled", "paused"]).about("One that can be changed like that."))
        .closed()
        .at_most_one(&["key", "key_base64"])
        .about("Which pending messages: due from (inclusive) to (exclusive), by key, in a state.")
        .example(json!({"from": "2030-01-31T00:00:00Z", "key_prefix": "customer-"}))
}

fn bulk(bounds: &Bounds) -> Schema {
    object()
        .can("filter", named("PendingFilter"))
        .can("all", truth().about("Really all; needed where the filter says nothing."))
        .can("dry_run", truth().about("Only count them."))
        .can("wait", span_asked(0, bounds.wait).about("How long the answer may wait for the end."))
        .all_or("filter", &["from", "to", "key", "key_base64", "key_prefix", "app"])
        .example(json!({"filter": {"key_prefix": "customer-"}, "dry_run": true}))
}

fn bulk_move(bounds: &Bounds) -> Schema {
    let shift = text().format("shift").pattern("^[+-]?[0-9PT].*$");
    let shift =
        super::any_of([shift, super::integer(1u64, bounds.delay_ceiling), negative(bounds)]);
    with_when(bulk(bounds), bounds)
        .can("shift", shift.about("By how much each is moved; a duration that may have a sign."))
        .closed()
        .at_most_one(&["delay", "shift"])
        .at_most_one(&["deliver_at", "shift"])
        .at_most_one(&["delay_level", "shift"])
        .at_least_one(&["delay", "deliver_at", "delay_level", "shift"])
        .example(json!({"all": true, "shift": "-1h"}))
}

fn negative(bounds: &Bounds) -> Schema {
    let least = i64::try_from(bounds.delay_ceiling).map_or(i64::MIN, |most| -most);
    Schema(json!({"type": "integer", "minimum": least, "maximum": -1}))
}

fn bulk_outcome() -> Schema {
    let done = ["cancelled", "rescheduled", "delivered", "paused", "resumed"];
    let shape = object().with("matched", count().about("How many it is about, so far."));
    done.into_iter()
        .fold(shape, |shape, word| shape.may(word, count().about("With how many it was done.")))
        .with("failed", count())
        .with("job", text().about("What to ask for its progress with."))
        .with("state", word(["running", "done", "stopped", "failed"]))
}

fn job() -> Schema {
    object()
        .with("job", text())
        .with("kind", word(["cancel", "reschedule", "shift", "deliver", "pause", "resume"]))
        .with("dry_run", truth())
        .with("state", word(["running", "done", "stopped", "failed"]))
        .with("started", time())
        .with("matched", count())
        .with("done", count())
        .with("failed", count())
        .may("error", text())
}

fn forecast() -> Schema {
    let within = object().with("within", span()).with("count", count());
    let step = object()
        .with("until", time().about("When the step ends."))
        .with("count", count().about("Of this step alone; what is overdue is in the first."));
    object()
        .with("total", count().about("Everything that is pending."))
        .with("paused", count())
        .with("prepared", count())
        .with("due", list(within).about("How much is due within each time from now, cumulative."))
        .with("later", count())
        .may("steps", list(step).about("With `within` and `steps`: how much is due in each step."))
}
