//! Messages in the document: send, get, change, cancel.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{any_of, list, named, text};

use super::Numbers;
use super::described::{CONTENT, Described, JSON, JSON_BODY, MESSAGE, QUERY, STORE, WHEN};
use crate::http::export::NDJSON;

const TAG: &str = "messages";
const ONE: &[Code] = &[Code::NotFound, Code::TopicNotFound];
const PENDING: &[Code] =
    &[Code::AlreadyDelivered, Code::AlreadyCancelled, Code::TransactionUndecided];

pub(super) fn schedule() -> Described {
    let asked = any_of([named("NewMessage"), named("NewBatch")]);
    let answer = || any_of([named("Scheduled"), named("ScheduledBatch")]);
    let answered = any_of([named("Scheduled"), named("Problem")]);
    sent(Described::new(TAG, "Send a message, or a batch"))
        .detail(
            "The answer comes when the message is durable. A batch is taken as a whole or not at \
             all; a refusal names the `index` of the message that is wrong. As `application/x-ndjson` \
             it is a stream without end: each line a `NewMessage`, each answered by a line, in order.",
        )
        .takes_content(true, vec![(JSON, asked), (NDJSON, text().format("binary").about("One `NewMessage` a line."))])
        .answers(StatusCode::CREATED, "Taken.", answer())
        .answers_content(
            StatusCode::OK,
            "Everything was taken before, by the same ids; or the answers to lines, one for each.",
            vec![(JSON, answer()), (NDJSON, list(answered))],
        )
        .refused(JSON_BODY)
        .refused(&[Code::EmptyBatch])
}

pub(super) fn publish(numbers: &Numbers) -> Described {
    let described = Described::new(TAG, "Send the raw request body as a message")
        .detail(
            "For curl: the bytes of the request, of whatever type, are the body; the query says the rest.",
        );
    sent(numbers.message_query(described))
        .takes_content(false, vec![("application/octet-stream", text().format("binary"))])
        .answers(StatusCode::CREATED, "Taken.", named("Scheduled"))
        .leads_to("getMessage", "id", "/id")
        .leads_to("patchMessage", "id", "/id")
        .leads_to("deliverMessage", "id", "/id")
        .leads_to("cancelMessage", "id", "/id")
        .answers(StatusCode::OK, "It was taken before, by the same id.", named("Scheduled"))
        .refused(&[Code::InvalidRequest, Code::InvalidField, Code::ConflictingFields])
        .refused(&[Code::RequestTimeout, Code::UnsupportedEncoding])
}

fn sent(described: Described) -> Described {
    described.refused(QUERY).refused(CONTENT).refused(WHEN).refused(MESSAGE).refused(STORE)
}

pub(super) fn get() -> Described {
    Described::new(TAG, "Get a message")
        .detail("By our id, or under its topic also by its sender's own. Known for a day after its end.")
        .ok("The message.", "Message")
        .tagged()
        .refused(QUERY)
        .refused(ONE)
        .refused(STORE)
}

pub(super) fn cancel() -> Described {
    Described::new(TAG, "Cancel a message or a series")
        .ok("It will not be delivered.", "Outcome")
        .conditional()
        .refused(QUERY)
        .refused(ONE)
        .refused(PENDING)
        .refused(STORE)
}

pub(super) fn patch() -> Described {
    Described::new(TAG, "Change a pending message")
        .detail("Only what is said changes; the id stays. With `version`, only if it still has it.")
        .takes("MessageChange")
        .ok("The message as it is now.", "Message")
        .conditional()
        .refused(ONE)
        .refused(PENDING)
        .refused(&[Code::EmptyChange, Code::VersionConflict, Code::SeriesNotChangeable])
        .refused(CONTENT)
        .refused(WHEN)
        .refused(STORE)
}

pub(super) fn deliver() -> Described {
    Described::new(TAG, "Deliver a pending message now")
        .ok("The message as it is now.", "Message")
        .conditional()
        .refused(&[Code::VersionConflict])
        .refused(QUERY)
        .refused(ONE)
        .refused(PENDING)
        .refused(&[Code::SeriesNotChangeable])
        .refused(STORE)
}

pub(super) fn legacy_send() -> Described {
    sent(legacy("Send in the words of older delay servers", "LegacySend"))
        .refused(&[Code::InvalidTopicName])
}

pub(super) fn legacy_cancel() -> Described {
    legacy("Cancel in the words of older delay servers", "LegacyCancel")
        .refused(ONE)
        .refused(PENDING)
        .refused(STORE)
        .refused(&[Code::InvalidTopicName])
}

fn legacy(summary: &'static str, shape: &str) -> Described {
    let mut described = Described::new("older calls", summary)
        .detail(
            "For services that move over. A refusal has the older form too, with today's status.",
        )
        .takes(shape)
        .ok("Done.", "LegacyAnswer");
    described.refusal = Some("LegacyAnswer");
    described
}
