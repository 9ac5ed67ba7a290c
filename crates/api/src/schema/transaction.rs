//! Transactions: prepare, decide, and what producers are asked.

use serde_json::json;

use super::{
    Bounds, Named, Schema, count, id, integer, list, name, named, object, span_asked, text, time,
    truth, word,
};
use crate::schema::message::{with_answered, with_message};
use crate::schema::pending::page;
use crate::schema::topic::check_asked;
use crate::transaction::REASON_BYTES_MAX;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("Prepare", prepare(bounds)),
        ("HalfMessage", half_message(bounds)),
        ("Prepared", prepared()),
        ("Half", object().with("topic", text().or_null()).with("id", id())),
        ("Transaction", transaction()),
        ("TransactionPage", page("transactions", "Transaction")),
        ("Reason", reason()),
        ("AskChecks", ask_checks(bounds)),
        ("Checks", object().with("checks", list(named("Check")))),
        ("Check", check()),
    ]
}

fn prepare(bounds: &Bounds) -> Schema {
    let url = text().format("uri").set("maxLength", bounds.url_chars);
    let check = check_asked(bounds)
        .can("url", url.about("Where to ask, if not by a waiting call."))
        .closed();
    object()
        .with("producer_group", name(bounds).about("Whose members are asked."))
        .with("messages", list(named("HalfMessage")).items(1, bounds.batch_messages))
        .can("check", check.about("When producers are asked what became of it."))
        .closed()
        .example(json!({
            "producer_group": "orders",
            "messages": [{"topic": "orders", "body": {"order": 42}, "delay": "30s"}],
            "check": {"first": "6s", "interval": "30s", "max": 15},
        }))
}

fn half_message(bounds: &Bounds) -> Schema {
    with_message(object().with("topic", name(bounds)), bounds)
        .may("repeat", Schema(json!({"type": "null"})).about("It cannot come round."))
        .can("delay_from", word(["commit", "send"]).about("What its delay counts from."))
        .closed()
        .about("A message of a transaction.")
}

fn state() -> Schema {
    word(["prepared", "committed", "rolled_back", "unresolved"])
}

fn prepared() -> Schema {
    object()
        .with("id", id())
        .with("state", state())
        .with("messages", list(named("Half")))
        .may("duplicate", truth())
}

fn transaction() -> Schema {
    object()
        .with("id", id())
        .with("producer_group", text())
        .with("state", state())
        .with("created", time())
        .may("decided", time())
        .with("checks_sent", count())
        .with("check", named("CheckPolicy"))
        .may("next_check", time())
        .with("messages", list(named("Half")))
}

fn reason() -> Schema {
    object()
        .can("reason", text().set("maxLength", REASON_BYTES_MAX))
        .closed()
        .about("Why somebody decides by hand; for the record.")
}

fn ask_checks(bounds: &Bounds) -> Schema {
    let max = integer(1u64, u64::try_from(bounds.receive).unwrap_or(u64::MAX));
    object()
        .can("max", max)
        .can("wait", span_asked(0, bounds.wait))
        .may("lease", Schema(json!({"type": "null"})))
        .closed()
        .example(json!({"wait": "20s", "max": 10}))
}

fn check() -> Schema {
    let message = object().with("id", id()).may("own_id", text()).with("topic", text());
    object()
        .with("transaction", id())
        .may("producer_group", text())
        .with("attempt", count())
        .with("messages", list(with_answered(message)))
}
