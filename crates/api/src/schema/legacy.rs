//! The calls of older delay servers.

use serde_json::json;

use super::{
    Bounds, Named, Schema, any_of, anything, integer, name, object, text, time_asked, word,
};
use crate::code::Code;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![("LegacySend", send(bounds)), ("LegacyCancel", cancel(bounds)), ("LegacyAnswer", answer())]
}

fn send(bounds: &Bounds) -> Schema {
    let interval = any_of([
        integer(0u64, 0u64),
        integer(bounds.every_min, bounds.delay_ceiling),
        text().pattern("^[0-9]+$").format("interval"),
    ]);
    let id = text().set("maxLength", bounds.own_id_bytes).format("own-id");
    object()
        .can("appKey", text())
        .with("topic", name(bounds))
        .may("message", anything().about("Any JSON value but null: the body."))
        .can("execTime", time_asked(bounds).about("When it is due; now, if not said."))
        .can("repeatInterval", interval.about("Milliseconds; 0 is once."))
        .can("messageId", id.about("A name of the sender's own; empty is none."))
        .closed()
        .at_least_one(&["message"])
        .example(json!({
            "appKey": "shop",
            "topic": "orders",
            "message": {"order": 42},
            "execTime": 1_893_456_000_000_u64,
            "messageId": "order-42",
        }))
}

fn cancel(bounds: &Bounds) -> Schema {
    object()
        .can("appKey", text())
        .can("topic", name(bounds).about("Needed for a name of the sender's own."))
        .with("messageId", text())
        .closed()
        .example(json!({"topic": "orders", "messageId": "order-42"}))
}

fn answer() -> Schema {
    let data = object().with("messageId", text()).may("id", text());
    object()
        .with("code", integer(0u64, 599u64).about("0, or the status of the refusal."))
        .with("message", text())
        .may("error", word(Code::ALL.iter().map(|code| code.as_str())))
        .with("data", data.or_null())
}
