//! Pending messages in the document: lists, changes of many, export and import.

use http::StatusCode;
use punctual_api::Code;
use punctual_api::schema::{any_of, integer, list as list_of, named, span_asked, text};
use punctual_broker::Steps;

use super::Numbers;
use super::described::{CONTENT, Described, MESSAGE, QUERY, RECORD, STORE, WHEN, WINDOW};
use crate::http::export::NDJSON;

const TAG: &str = "pending";
const TOPIC: &[Code] = &[Code::TopicNotFound];
const FILTER: &[Code] = &[Code::InvalidState, Code::InvalidBase64, Code::ConflictingFields];
const BULK: &[Code] = &[Code::EmptyFilter, Code::TooManyJobs, Code::JobNotFound];

pub(super) fn list(numbers: &Numbers) -> Described {
    let described = Described::new(TAG, "List pending messages, soonest first")
        .detail("Paused ones only with `state=paused`.");
    numbers
        .page(numbers.pending_query(described))
        .ok("One page.", "MessagePage")
        .refused(TOPIC)
        .refused(FILTER)
        .refused(WINDOW)
        .refused(STORE)
}

fn bulk(summary: &'static str, shape: &str) -> Described {
    Described::new(TAG, summary)
        .detail(
            "Waits for the end as long as `wait` says (2s if not said); what is still running then \
             goes on, and its job tells how far it is.",
        )
        .takes(shape)
        .ok("It has ended.", "BulkOutcome")
        .leads_to_job(&["getJob"])
        .answers(StatusCode::ACCEPTED, "It is still running.", named("BulkOutcome"))
        .leads_to_job(&["getJob", "stopJob"])
        .refused(TOPIC)
        .refused(FILTER)
        .refused(BULK)
        .refused(WINDOW)
        .refused(RECORD)
        .refused(STORE)
}

pub(super) fn cancel_many() -> Described {
    bulk("Cancel many pending messages", "Bulk")
}

pub(super) fn deliver_many() -> Described {
    bulk("Deliver many pending messages now", "Bulk")
}

pub(super) fn pause_many() -> Described {
    bulk("Pause many pending messages", "Bulk")
}

pub(super) fn resume_many() -> Described {
    bulk("Let many paused messages go on", "Bulk")
}

pub(super) fn reschedule_many() -> Described {
    let described = bulk("Move many pending messages to another time", "BulkMove");
    described.refused(WHEN).refused(&[Code::MissingTime, Code::InvalidShift])
}

pub(super) fn jobs(numbers: &Numbers) -> Described {
    let described = Described::new(TAG, "List the jobs of a topic, newest first");
    numbers.job_page(described).ok("One page.", "Jobs").refused(TOPIC)
}

pub(super) fn job() -> Described {
    one_job("Look how far a job is")
}

pub(super) fn stop_job() -> Described {
    one_job("Stop a job").detail("What it did stays done.")
}

fn one_job(summary: &'static str) -> Described {
    Described::new(TAG, summary)
        .ok("The job.", "Job")
        .refused(QUERY)
        .refused(TOPIC)
        .refused(&[Code::JobNotFound])
}

pub(super) fn series(numbers: &Numbers) -> Described {
    numbers
        .page(Described::new(TAG, "List the series of a topic, by their next occurrence"))
        .ok("One page.", "SeriesPage")
        .refused(TOPIC)
        .refused(STORE)
}

pub(super) fn forecast(numbers: &Numbers) -> Described {
    foreseen(numbers, "How much of a topic is due when").refused(TOPIC)
}

pub(super) fn forecast_all(numbers: &Numbers) -> Described {
    foreseen(numbers, "How much is due when, of all topics together")
        .detail("The answer may be two seconds old.")
}

fn foreseen(numbers: &Numbers, summary: &'static str) -> Described {
    let within = span_asked(0, numbers.bounds.delay_ceiling);
    let steps = integer(1u64, Steps::COUNT_MAX);
    Described::new(TAG, summary)
        .query("within", within.about("How far ahead the steps go; 1h if only `steps` is said."))
        .query(
            "steps",
            steps.about(
                "Into how many steps that is divided; fewer where they would be shorter than 1s.",
            ),
        )
        .ok("Counts, cumulative, and those of the steps.", "Forecast")
        .refused(QUERY)
        .refused(&[Code::InvalidField])
        .refused(STORE)
}

pub(super) fn export() -> Described {
    Described::new(TAG, "Export what is pending, one JSON object a line")
        .query("limit", integer(1u64, u64::MAX).about("At most so many messages."))
        .query("cursor", text().format("export-cursor").about("From an export that stopped."))
        .answers_content(
            StatusCode::OK,
            "Lines: each a message; the last says how many came before and where to go on.",
            vec![(NDJSON, list_of(any_of([named("ExportLine"), named("ExportEnd")])))],
        )
        .refused(QUERY)
        .refused(TOPIC)
        .refused(&[Code::InvalidCursor, Code::TooBusy])
}

pub(super) fn import() -> Described {
    Described::new(TAG, "Import what was exported elsewhere")
        .detail(
            "Each line is an `ExportLine`. Lines that cannot be taken are told and left out. Repeating it \
             changes nothing.",
        )
        .takes_content(true, vec![(NDJSON, text().format("binary").about("One JSON object a line."))])
        .ok("What became of the lines.", "Imported")
        .refused(QUERY)
        .refused(CONTENT)
        .refused(MESSAGE)
        .refused(WHEN)
        .refused(RECORD)
        .refused(STORE)
        .refused(&[Code::UnsupportedMediaType, Code::RequestTimeout, Code::InvalidRequest])
        .refused(&[Code::UnsupportedEncoding])
        .refused(&[Code::LineTooLarge])
}
