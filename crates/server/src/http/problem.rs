//! The one mapping from what the broker refuses to what HTTP answers.

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use punctual_api::{Code, Problem, problem};
use punctual_broker::group::JobError;
use punctual_broker::{Invalid, ScheduleError};
use punctual_model::limits::{
    BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, HEADER_BYTES_MAX, HEADERS_MAX, KEY_BYTES_MAX,
};
use punctual_model::ports::{GroupError, StoreError, TopicError};
use tracing::error;

use crate::http::reply::{Reply, typed};
use crate::tasks::BrokenOff;

/// The answer that tells a problem.
pub(crate) fn reply(problem: &Problem) -> Reply {
    let status = StatusCode::from_u16(problem.code.status()).expect("every code has a status");
    let text = serde_json::to_vec(problem).expect("a problem is plain JSON");
    let mut reply = typed(status, HeaderValue::from_static(problem::MEDIA_TYPE), text);
    if problem.code.is_retriable() {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}

pub(crate) fn of_store(error: StoreError) -> Problem {
    match error {
        StoreError::Busy => Code::TooBusy.into(),
        StoreError::Full => Code::StorageFull.into(),
        StoreError::Closed => Problem::new(Code::Unavailable, "the broker is shutting down"),
        StoreError::Poisoned(_) => {
            Problem::new(Code::Unavailable, "the store stopped after a failed write")
        }
        StoreError::Damaged(what) => {
            error!(%what, "a request met damaged data");
            Code::DamagedData.into()
        }
    }
}

pub(crate) fn of_topic(error: TopicError) -> Problem {
    match error {
        TopicError::NotFound => Code::TopicNotFound.into(),
        TopicError::CannotShrink(partitions) => Problem::new(
            Code::PartitionsCannotShrink,
            format!("it has {partitions} partitions, and a topic cannot lose any"),
        ),
        TopicError::TooMany => Code::TooManyTopics.into(),
        TopicError::Reserved => reserved(),
        TopicError::Store(error) => of_store(error),
    }
}

fn reserved() -> Problem {
    Problem::new(Code::ReservedTopic, "it belongs to a group, which alone writes to it")
}

pub(crate) fn of_group(error: GroupError) -> Problem {
    match error {
        GroupError::TopicNotFound => Code::TopicNotFound.into(),
        GroupError::NotFound => Code::GroupNotFound.into(),
        GroupError::NameTaken(_) => Problem::new(Code::GroupNameTaken, error.to_string()),
        GroupError::NameTooLong => Problem::new(Code::InvalidGroupName, error.to_string()),
        GroupError::TooMany => Code::TooManyGroups.into(),
        GroupError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_job(error: JobError) -> Problem {
    match error {
        JobError::TooMany => Problem::new(Code::TooManyJobs, error.to_string()),
        JobError::Edit(reason) | JobError::At(reason) => of_invalid(&reason),
        JobError::EditWithoutId | JobError::NoRate | JobError::NoTarget => {
            Problem::new(Code::InvalidField, error.to_string())
        }
        JobError::Group(error) => of_group(error),
    }
}

pub(crate) fn of_broken_off(_: BrokenOff) -> Problem {
    error!("work for a request was broken off");
    Code::Internal.into()
}

/// A refused schedule; the index is told only for a batch.
pub(crate) fn of_schedule(error: ScheduleError, is_batch: bool) -> Problem {
    match error {
        ScheduleError::TopicNotFound => Code::TopicNotFound.into(),
        ScheduleError::TooManyTopics => Code::TooManyTopics.into(),
        ScheduleError::Reserved => reserved(),
        ScheduleError::BacklogFull => Code::BacklogFull.into(),
        ScheduleError::Store(error) => of_store(error),
        ScheduleError::Invalid { index, reason } => {
            let problem = of_invalid(&reason);
            let about_one = !matches!(
                reason,
                Invalid::BatchTooLarge | Invalid::TooManyMessages | Invalid::EmptyBatch
            );
            if is_batch && about_one { problem.at(index) } else { problem }
        }
    }
}

pub(crate) fn of_invalid(reason: &Invalid) -> Problem {
    match reason {
        Invalid::DelayTooLong { max } => {
            Problem::new(Code::DelayTooLong, format!("the longest delay is {max}"))
        }
        Invalid::DueOutOfRange => Code::DueOutOfRange.into(),
        Invalid::UnknownLevel => Problem::new(Code::UnknownLevel, "delay levels are 1 to 18"),
        Invalid::BodyTooLarge { max } => {
            Problem::new(Code::BodyTooLarge, format!("a body has at most {max} bytes"))
        }
        Invalid::HeadersTooLarge => Problem::new(
            Code::HeadersTooLarge,
            format!("names and values of headers have at most {HEADER_BYTES_MAX} bytes"),
        ),
        Invalid::TooManyHeaders => Problem::new(
            Code::TooManyHeaders,
            format!("a message has at most {HEADERS_MAX} headers"),
        ),
        Invalid::KeyTooLarge => {
            Problem::new(Code::KeyTooLarge, format!("a key has at most {KEY_BYTES_MAX} bytes"))
        }
        Invalid::NoSuchPartition { partitions } => Problem::new(
            Code::NoSuchPartition,
            format!("the topic has {partitions} partitions, counted from 0"),
        ),
        Invalid::BatchTooLarge => Problem::new(
            Code::BatchTooLarge,
            format!("a batch has at most {BATCH_BYTES_MAX} bytes"),
        ),
        Invalid::TooManyMessages => Problem::new(
            Code::BatchTooLarge,
            format!("a batch has at most {BATCH_MESSAGES_MAX} messages"),
        ),
        Invalid::EmptyBatch => Code::EmptyBatch.into(),
    }
}
