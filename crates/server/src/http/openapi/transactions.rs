//! Transactions in the document.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{named, word};

use super::Numbers;
use super::described::{CONTENT, Described, MESSAGE, QUERY, RECORD, STORE, WHEN};

const TAG: &str = "transactions";
const NOT_FOUND: &[Code] = &[Code::TransactionNotFound];

pub(super) fn prepare() -> Described {
    Described::new(TAG, "Prepare messages that wait for a decision")
        .detail(
            "Nobody sees them until they are committed. A producer that says nothing is asked, by a \
             waiting call or at a URL, until it decides or the checks are spent.",
        )
        .takes("Prepare")
        .answers(StatusCode::CREATED, "They wait.", named("Prepared"))
        .leads_to("getTransaction", "id", "/id")
        .leads_to("commit", "id", "/id")
        .leads_to("rollback", "id", "/id")
        .ok("The same was prepared before.", "Prepared")
        .refused(CONTENT)
        .refused(WHEN)
        .refused(MESSAGE)
        .refused(&[Code::InvalidTopicName, Code::InvalidGroupName, Code::InvalidCheck])
        .refused(&[Code::InvalidUrl, Code::NotSupported, Code::EmptyBatch])
        .refused(STORE)
}

pub(super) fn list(numbers: &Numbers) -> Described {
    let state = word(["prepared", "committed", "rolled_back", "unresolved"]);
    let described = Described::new(TAG, "List transactions")
        .query("state", state)
        .query("producer_group", numbers.name());
    numbers
        .page(described)
        .ok("One page.", "TransactionPage")
        .refused(&[Code::InvalidState, Code::InvalidGroupName])
        .refused(STORE)
}

pub(super) fn get() -> Described {
    Described::new(TAG, "Look at a transaction")
        .ok("The transaction.", "Transaction")
        .refused(QUERY)
        .refused(NOT_FOUND)
        .refused(STORE)
}

pub(super) fn commit() -> Described {
    decided("Commit a transaction").detail("Its messages count from now on. May be repeated.")
}

pub(super) fn rollback() -> Described {
    decided("Roll a transaction back").detail("Its messages never were. May be repeated.")
}

pub(super) fn resume() -> Described {
    decided("Ask the producers of an unresolved transaction again")
}

fn decided(summary: &'static str) -> Described {
    Described::new(TAG, summary)
        .may_take("Reason")
        .ok("The transaction as it is now.", "Transaction")
        .refused(NOT_FOUND)
        .refused(&[Code::AlreadyDecided])
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn checks() -> Described {
    Described::new(TAG, "Wait for questions about transactions")
        .detail("Answer each with commit, rollback, or nothing: then it is asked again.")
        .may_take("AskChecks")
        .ok("What the producers are asked.", "Checks")
        .refused(STORE)
}
