//! Groups: settings, how far they are, and putting them elsewhere.

use serde_json::json;

use super::{
    Bounds, Named, Schema, any_of, count, edge_asked, integer, list, map, named, number, object,
    span, span_asked, text, time, truth, word,
};
use crate::schema::pending::page;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("GroupChange", change(bounds)),
        ("RetryAsked", retry_asked(bounds)),
        ("Reset", reset(bounds)),
        ("OffsetsAsked", object().with("offsets", offsets_asked(bounds)).closed()),
        ("Offsets", object().with("offsets", map(count()))),
        ("Group", group()),
        ("GroupPage", page("groups", "Group")),
    ]
}

fn retry_asked(bounds: &Bounds) -> Schema {
    let wait = || span_asked(0, bounds.retry_wait);
    let factor = number(1.0, 100.0).set("multipleOf", 0.01);
    let jitter = number(0.0, 1.0).set("multipleOf", 0.01);
    let exponential = object()
        .with("first", span_asked(1, bounds.retry_wait))
        .can("max", span_asked(1, bounds.retry_wait).about("Not less than the first."))
        .can("factor", factor)
        .can("jitter", jitter.about("How much of each wait is left to chance."))
        .closed();
    object()
        .can("ladder", list(wait()).items(1, bounds.rungs).about("One wait for each failure."))
        .can("exponential", exponential)
        .closed()
        .at_most_one(&["ladder", "exponential"])
        .at_least_one(&["ladder", "exponential"])
        .about("How long to wait between attempts.")
        .example(json!({"ladder": ["10s", "1m", "10m"]}))
}

fn push_asked(bounds: &Bounds) -> Schema {
    let (least, most) = bounds.push_timeout;
    let url = text().format("uri").set("maxLength", bounds.url_chars);
    let secret = text().format("push-secret");
    object()
        .can("url", url.about(
            "https, at a public address or one that the configuration lists. Needed where the group has none.",
        ))
        .can(
            "secret",
            secret.about("What requests are signed with; never shown. Empty takes it away."),
        )
        .can("concurrency", integer(1u64, bounds.push_concurrency))
        .can("timeout", span_asked(least, most))
        .closed()
}

fn change(bounds: &Bounds) -> Schema {
    object()
        .can("ordered", truth().about("Messages of one key one after the other."))
        .can("retry", named("RetryAsked"))
        .can("max_attempts", integer(1u64, bounds.attempts))
        .can("lease", span_asked(bounds.lease_min, bounds.lease_max))
        .can("paused", truth().about("Nothing is given out."))
        .may(
            "push",
            push_asked(bounds).or_null().about(
                "Where messages are pushed to; null takes that away. What is not said stays.",
            ),
        )
        .can("start", word(["earliest", "latest"]).about("Where a new group starts."))
        .closed()
        .about("Settings of a group; what is not said stays as it is.")
        .example(json!({"max_attempts": 5, "lease": "2m", "retry": {"ladder": ["10s", "1m"]}}))
}

fn offsets_asked(bounds: &Bounds) -> Schema {
    let partitions = usize::from(bounds.partitions);
    map(integer(0u64, u64::MAX))
        .set("propertyNames", json!({"pattern": "^[0-9]+$"}))
        .set("minProperties", 1)
        .set("maxProperties", partitions)
        .about("By the number of the partition.")
        .example(json!({"0": 12}))
}

fn reset(bounds: &Bounds) -> Schema {
    let null = || Schema(json!({"type": "null"}));
    let time = object().with("time", edge_asked()).may("offsets", null()).closed();
    let offsets = object().with("offsets", offsets_asked(bounds)).may("time", null()).closed();
    object()
        .with("to", any_of([word(["earliest", "latest"]), time, offsets]))
        .closed()
        .example(json!({"to": "earliest"}))
}

fn group() -> Schema {
    let exponential = object()
        .with("first", span())
        .with("max", span())
        .with("factor", number(1.0, 100.0))
        .with("jitter", number(0.0, 1.0));
    let retry = object().may("ladder", list(span())).may("exponential", exponential);
    let push = object()
        .with("url", text())
        .with("secret_set", truth())
        .with("concurrency", count())
        .with("timeout", span());
    let partition = object()
        .with("partition", count())
        .with("cursor", count().about("Everything before this offset is done."))
        .with("end", count().about("The offset that the next message gets."))
        .with("lag", count());
    object()
        .with("name", text())
        .with("topic", text())
        .with("ordered", truth())
        .with("retry", retry)
        .with("max_attempts", count())
        .with("lease", span())
        .with("paused", truth())
        .with("push", push.or_null())
        .with("dead_topic", text().about("The topic of its dead letters."))
        .may(
            "lag",
            count().about(
                "Messages it is not done with. This and what follows is there \
             only where the group itself is asked for.",
            ),
        )
        .may("in_flight", count())
        .may("retrying", count())
        .may("dead", count())
        .may("oldest_unacked", time().or_null())
        .may("oldest_unacked_age", span().or_null())
        .may("partitions", list(partition))
}
