//! Topics and delay levels.

use serde_json::json;

use super::{
    Bounds, Named, Schema, any_of, count, integer, list, named, object, span, span_asked, text,
    truth, word,
};
use crate::schema::pending::page;
use crate::topic::LEVELS;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("TopicChange", change(bounds)),
        ("Topic", topic()),
        ("TopicPage", page("topics", "Topic")),
        ("LevelsAsked", object().with("levels", levels_asked(bounds)).closed()),
        ("Levels", object().with("levels", list(span()))),
        ("CheckPolicy", check_policy()),
    ]
}

/// A duration, or a word for none.
fn span_or(word: &str, least: u64, most: u64) -> Schema {
    any_of([super::word([word]), span_asked(least, most)])
}

fn whole_or_text(words: &str) -> Schema {
    any_of([
        word([words]),
        integer(0u64, u64::MAX),
        text().pattern("^[0-9]+$").format("epoch-millis"),
    ])
}

fn levels_asked(bounds: &Bounds) -> Schema {
    list(span_asked(1, bounds.delay)).items(LEVELS, LEVELS).about("From level 1 on.")
}

/// When producers are asked.
pub(super) fn check_asked(bounds: &Bounds) -> Schema {
    object()
        .can("first", span_asked(0, bounds.delay))
        .can("interval", span_asked(bounds.check_interval_min, bounds.delay))
        .can("max", integer(1u64, bounds.checks))
}

fn change(bounds: &Bounds) -> Schema {
    let backlog = object()
        .can("messages", integer(0u64, u64::MAX))
        .can("bytes", integer(0u64, u64::MAX))
        .closed();
    let check = check_asked(bounds).may("url", Schema(json!({"type": "null"}))).closed();
    let rate = any_of([word(["none"]), integer(1u64, bounds.rate)]);
    object()
        .can("partitions", integer(1u64, bounds.partitions).about("Can grow, never shrink."))
        .can("retention", span_or("forever", 0, u64::MAX))
        .can("retention_bytes", whole_or_text("forever").about("Of each partition."))
        .can("default_ttl", span_or("forever", 1, bounds.delay_ceiling))
        .can("max_backlog", any_of([word(["none"]), integer(0u64, u64::MAX), backlog]))
        .can("overflow", word(["refuse", "drop_oldest", "dead_letter_newest"]))
        .can("max_delay", span_or("none", 1, bounds.delay))
        .can("rate_cap", rate.about("Messages that fire in a second at most."))
        .can("jitter", span_or("none", 0, bounds.jitter))
        .can("catch_up", named("CatchUpAsked"))
        .can("levels", any_of([word(["default"]), levels_asked(bounds)]))
        .can("check", any_of([word(["default"]), check]))
        .can("paused", truth())
        .closed()
        .about("Settings of a topic; what is not said stays as it is.")
        .example(json!({"partitions": 8, "retention": "7d", "overflow": "refuse", "max_backlog": 100_000}))
}

fn totals() -> Schema {
    let names = ["scheduled", "fired", "delivered", "cancelled", "retried", "dead"];
    names.iter().fold(object(), |shape, name| shape.with(name, count()))
}

fn topic() -> Schema {
    object()
        .with("name", text())
        .with("kind", word(["plain", "dead"]).about("Dead: the dead letters of a group."))
        .with("partitions", count())
        .with("retention", text().about("A duration, or forever."))
        .may("retention_bytes", count())
        .may("default_ttl", span())
        .may("max_backlog", object().may("messages", count()).may("bytes", count()))
        .with("overflow", word(["refuse", "drop_oldest", "dead_letter_newest"]))
        .may("max_delay", span())
        .may("rate_cap", count())
        .may("jitter", span())
        .with("catch_up", named("CatchUp"))
        .may("levels", list(span()))
        .may("check", named("CheckPolicy"))
        .with("paused", truth())
        .may(
            "pending",
            count().about("How many messages are pending; only where one is asked for."),
        )
        .may("backlog", count().about("How many wait for the group that is furthest behind."))
        .may("totals", totals().about("What was counted since it was made."))
}

fn check_policy() -> Schema {
    object().with("first", span()).with("interval", span()).with("max", count()).may("url", text())
}
