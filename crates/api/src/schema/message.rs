//! Messages: to be sent, and as they are answered.

use serde_json::json;

use super::{
    Bounds, Named, Schema, any_of, anything, base64, count, id, integer, list, map, named, object,
    span, span_asked, text, time, time_asked, truth, word,
};

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("NewMessage", new_message(bounds)),
        ("NewBatch", new_batch(bounds)),
        ("HeadersAsked", headers_asked(bounds)),
        ("RepeatAsked", repeat_asked(bounds)),
        ("CatchUpAsked", catch_up_asked(bounds)),
        ("MessageChange", message_change(bounds)),
        ("Headers", headers()),
        ("Repeat", repeat()),
        ("CatchUp", catch_up()),
        ("Scheduled", scheduled()),
        ("ScheduledBatch", object().with("messages", list(named("Scheduled")))),
        ("Message", message()),
        ("Outcome", object().with("result", text().about("What was done, in a word."))),
    ]
}

/// The fields of a message that say what it holds.
pub(super) fn with_content(shape: Schema, bounds: &Bounds) -> Schema {
    let key = text().set("maxLength", bounds.key_bytes);
    shape
        .may(
            "body",
            anything().about(
                "Any JSON value: a string is taken as its UTF-8 bytes, anything else as its text \
             exactly as sent. Null is nothing.",
            ),
        )
        .can("body_base64", base64().about("Bytes, instead of body."))
        .can("key", key.about("Messages with the same key go to the same partition, in order."))
        .can("key_base64", base64().about("A key of bytes, instead of key."))
        .can("headers", named("HeadersAsked"))
        .at_most_one(&["body", "body_base64"])
        .at_most_one(&["key", "key_base64"])
}

/// The fields that say when; one of them at most.
pub(super) fn with_when(shape: Schema, bounds: &Bounds) -> Schema {
    let level = any_of([integer(1u64, 18u64), text().pattern("^0*([1-9]|1[0-8])$")]);
    shape
        .can("delay", span_asked(0, bounds.delay))
        .can("deliver_at", time_asked(bounds))
        .can("delay_level", level.about("One of the delay levels."))
        .at_most_one(&["delay", "deliver_at", "delay_level"])
}

/// Everything that a new message may say.
pub(super) fn with_message(shape: Schema, bounds: &Bounds) -> Schema {
    let partition = any_of([
        integer(0u64, bounds.partitions - 1),
        text().pattern("^[0-9]+$").format("partition"),
    ]);
    let own_id = text().length(1, bounds.own_id_bytes).format("own-id");
    with_when(with_content(shape, bounds), bounds)
        .can("partition", partition.about("Else by the hash of the key, else in turn."))
        .can("ttl", span_asked(1, bounds.delay_ceiling))
        .can("max_attempts", integer(1u64, bounds.attempts))
        .can(
            "id",
            own_id.about(
                "A name of the sender's own, unique in the topic, without control \
             characters. Repeating the same request returns the first answer.",
            ),
        )
        .can(
            "on_conflict",
            word(["reject", "replace"]).about(
                "With a pending message of that id: refuse this one, or let it take its place.",
            ),
        )
        .can("repeat", named("RepeatAsked"))
        .can("catch_up", named("CatchUpAsked"))
        .at_least_one(&["body", "body_base64"])
}

fn new_message(bounds: &Bounds) -> Schema {
    with_message(object(), bounds)
        .closed()
        .about("A message to send. Without a delay, a time or a level it is due now.")
        .example(json!({
            "body": {"order": 42},
            "key": "customer-7",
            "headers": {"kind": "reminder"},
            "delay": "30s",
            "id": "reminder-42",
            "ttl": "1h",
        }))
}

fn new_batch(bounds: &Bounds) -> Schema {
    object()
        .with("messages", list(named("NewMessage")).items(1, bounds.batch_messages))
        .closed()
        .about("Several messages, of which all are taken or none.")
        .example(json!({"messages": [{"body": "a"}, {"body": "b", "delay": "1m"}]}))
}

fn headers_asked(bounds: &Bounds) -> Schema {
    let plain = map(text().or_null()).set("maxProperties", bounds.headers);
    let item = object()
        .with("name", text())
        .can("value", text())
        .can("value_base64", base64())
        .closed()
        .at_most_one(&["value", "value_base64"])
        .at_least_one(&["value", "value_base64"]);
    any_of([plain, list(item).set("maxItems", bounds.headers)])
        .about("An object of strings; or a list, where a name repeats or a value is not text.")
        .example(json!({"kind": "reminder"}))
}

fn repeat_asked(bounds: &Bounds) -> Schema {
    let zone = text().format("time-zone").about("A zone of the IANA database; UTC if not said.");
    object()
        .can("every", span_asked(bounds.every_min, bounds.delay_ceiling))
        .can("cron", text().format("cron").about("Five fields, or six with seconds first."))
        .can("zone", zone)
        .can("count", integer(1u64, u32::MAX))
        .can("until", time_asked(bounds))
        .closed()
        .at_most_one(&["every", "cron"])
        .at_least_one(&["every", "cron"])
        .at_most_one(&["every", "zone"])
        .about("When the message comes round: after each interval, or at the times of a cron expression.")
        .example(json!({"cron": "0 9 * * 1-5", "zone": "Asia/Shanghai", "count": 10}))
}

pub(super) fn catch_up_asked(bounds: &Bounds) -> Schema {
    let one = |name: &str| {
        let span = span_asked(1, bounds.delay_ceiling);
        object().with(name, span)
    };
    let other =
        |shape: Schema, name: &str| shape.may(name, Schema(json!({"type": "null"}))).closed();
    any_of([
        word(["all", "latest"]),
        other(one("spread"), "skip_older_than"),
        other(one("skip_older_than"), "spread"),
    ])
    .about("What becomes of messages that fell due while the broker was down: all are delivered, only the \
            latest of each key, all spread over a time, or only those not older than a time.")
    .example(json!({"spread": "10m"}))
}

fn message_change(bounds: &Bounds) -> Schema {
    let said =
        ["delay", "deliver_at", "delay_level", "paused", "body", "body_base64", "headers", "ttl"];
    let body = object()
        .may("body", anything())
        .can("body_base64", base64())
        .can("headers", named("HeadersAsked"))
        .at_most_one(&["body", "body_base64"]);
    with_when(body, bounds)
        .can("paused", truth().about("Whether its countdown stands still."))
        .can("ttl", span_asked(1, bounds.delay_ceiling))
        .can("version", integer(0u64, u32::MAX).about("The version it must still have."))
        .closed()
        .at_least_one(&said)
        .about("What to change in a pending message; what is not said stays as it is.")
        .example(json!({"delay": "5m", "version": 1}))
}

fn headers() -> Schema {
    let item = object().with("name", text()).may("value", text()).may("value_base64", base64());
    any_of([map(text()), list(item)])
        .about("An object of strings; a list where a name repeats or a value is not text.")
}

fn repeat() -> Schema {
    object()
        .may("every", span())
        .may("cron", text())
        .may("zone", text())
        .may("count", count())
        .may("until", text())
}

fn catch_up() -> Schema {
    any_of([
        word(["all", "latest"]),
        object().with("spread", span()),
        object().with("skip_older_than", span()),
    ])
}

fn scheduled() -> Schema {
    object()
        .with("id", id().about("The id of the message; of a series the id of the series."))
        .with("topic", text())
        .with("due", time())
        .with("state", state())
        .may("duplicate", truth().about("The same was accepted before; this is its answer."))
        .example(json!({
            "id": "06gy2ak0340000000175j000440068kh",
            "topic": "orders",
            "due": "2030-01-31T08:00:00.000Z",
            "state": "scheduled",
        }))
}

/// Where a message is in its life.
pub(super) fn state() -> Schema {
    word(["scheduled", "paused", "prepared", "delivered", "cancelled"])
}

/// Key, headers and body as they are answered.
pub(super) fn with_answered(shape: Schema) -> Schema {
    shape
        .may("key", text())
        .may("key_base64", base64())
        .may("headers", named("Headers"))
        .may("ttl", span())
        .may("max_attempts", count())
        .may("catch_up", named("CatchUp"))
        .may("app", text().about("The key of the app that sent it."))
        .may("body", text().about("The body where it is text; JSON that was sent is its text."))
        .may("body_base64", base64())
}

fn message() -> Schema {
    let shape = object()
        .with("id", id())
        .may("own_id", text())
        .with("topic", text())
        .may("state", state())
        .may("due", time())
        .may("version", count().about("How often it was changed, counted from 1, while pending."))
        .may("remaining", span().about("What is left of its wait, while it is paused."))
        .may("series", id())
        .may("transaction", id())
        .may("delivered_at", time())
        .with("partition", count())
        .may("offset", count())
        .may("repeat", named("Repeat"))
        .may("number", count().about("Of a series, the number of the next occurrence."))
        .may("occurrence", id().or_null());
    with_answered(shape).about("Everything that is known of a message; what is not is left out.")
}
