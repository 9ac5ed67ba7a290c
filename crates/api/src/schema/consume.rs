//! Consuming: receive, ack, nack, extend, retry.

use serde_json::json;

use super::{
    Bounds, Named, Schema, count, id, id_asked, integer, list, named, object, span_asked, text,
    time, truth, word,
};
use crate::consume::RECEIPT_CHARS_MAX;
use crate::schema::message::{with_answered, with_content};

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("Receive", receive(bounds)),
        ("Received", received()),
        ("Receipts", receipts(bounds).closed()),
        ("Nack", nack(bounds)),
        ("Extend", extend(bounds)),
        ("AckResults", results(&["acked", "not_held"])),
        ("NackResults", results(&["requeued", "dead", "not_held"])),
        ("ExtendResults", results(&["extended", "not_held"])),
        ("Retry", retry(bounds)),
        ("FailedMessage", failed_message(bounds)),
        ("Retried", object().with("result", word(["requeued", "dead"])).may("due", time())),
        ("ReceivedBatch", object().with("messages", list(named("Received")))),
    ]
}

fn receive(bounds: &Bounds) -> Schema {
    let max = integer(1u64, u64::try_from(bounds.receive).unwrap_or(u64::MAX));
    object()
        .can("max", max.about("At most so many messages."))
        .can("wait", span_asked(0, bounds.wait).about("How long to wait for the first."))
        .can(
            "lease",
            span_asked(bounds.lease_min, bounds.lease_max)
                .about("How long they are lent; as the group says, if not said."),
        )
        .closed()
        .example(json!({"max": 10, "wait": "20s", "lease": "60s"}))
}

fn received() -> Schema {
    let shape = object()
        .with("id", id())
        .with("receipt", text().about("What to ack, nack or extend it with."))
        .with("topic", text())
        .with("partition", count())
        .with("offset", count())
        .with("due", time())
        .with("delivered_at", time())
        .with("attempt", count().about("Counted from 1."));
    with_answered(shape)
}

fn receipts(bounds: &Bounds) -> Schema {
    let receipt = text().set("maxLength", RECEIPT_CHARS_MAX);
    object()
        .with("receipts", list(receipt).items(1, bounds.receipts))
        .example(json!({"receipts": ["0k3…"]}))
}

fn nack(bounds: &Bounds) -> Schema {
    receipts(bounds)
        .can(
            "delay",
            span_asked(0, bounds.retry_wait).about("When to try again; else by the ladder."),
        )
        .can("reject", truth().about("To the dead letters at once."))
        .can("error", text().about("What went wrong."))
        .closed()
        .never(json!({
            "required": ["delay", "reject"],
            "properties": {"delay": {"not": {"type": "null"}}, "reject": {"const": true}},
        }))
        .example(
            json!({"receipts": ["0k3…"], "delay": "5s", "error": "the printer is out of paper"}),
        )
}

fn extend(bounds: &Bounds) -> Schema {
    receipts(bounds)
        .can("lease", span_asked(bounds.lease_min, bounds.lease_max))
        .closed()
        .example(json!({"receipts": ["0k3…"], "lease": "60s"}))
}

fn results(words: &[&str]) -> Schema {
    let one = object().with("receipt", text()).with("result", word(words.iter().copied()));
    object().with("results", list(one).about("In the order of the request."))
}

fn failed_message(bounds: &Bounds) -> Schema {
    let partition = integer(0u64, bounds.partitions - 1);
    with_content(object(), bounds)
        .can("partition", partition)
        .at_least_one(&["body", "body_base64"])
        .closed()
        .about("The content of a message that was sent before, and its partition.")
}

fn retry(bounds: &Bounds) -> Schema {
    object()
        .with("message", named("FailedMessage"))
        .with("attempt", integer(1u64, bounds.attempts).about("The attempt that failed."))
        .can("id", id_asked(bounds))
        .can("offset", integer(0u64, u64::MAX))
        .can("delay", span_asked(0, bounds.retry_wait))
        .can("error", text())
        .closed()
        .example(json!({"message": {"body": "x"}, "attempt": 1, "error": "no answer"}))
}
