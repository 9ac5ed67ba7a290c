//! The one mapping from what the broker refuses to what HTTP answers.

use std::fmt::Display;

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use punctual_api::{Code, Problem, problem};
use punctual_broker::group::JobError;
use punctual_broker::series::RuleError;
use punctual_broker::transaction::{DecideError, PrepareError};
use punctual_broker::{BulkError, ChangeError, Invalid, ScheduleError};
use punctual_model::MessageId;
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
        let seconds = HeaderValue::from(problem.retry_after.unwrap_or(1));
        reply.headers_mut().insert(RETRY_AFTER, seconds);
    }
    if problem.code == Code::Unauthenticated {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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
        StoreError::Unavailable(why) => Problem::new(Code::Unavailable, why.to_string()),
        StoreError::Elsewhere => {
            Problem::new(Code::Unavailable, "the slot of this message is moving to another node")
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
        ScheduleError::OwnIdTaken { index, id } => {
            let problem = of_own_id(id);
            if is_batch { problem.at(index) } else { problem }
        }
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

fn of_own_id(other: Option<MessageId>) -> Problem {
    let detail = match other {
        Some(id) => format!("the message {id} was sent by another request with this id"),
        None => "an earlier message of the same request has this id".to_owned(),
    };
    Problem::new(Code::IdConflict, detail)
}

pub(crate) fn of_change(error: ChangeError) -> Problem {
    match error {
        ChangeError::NotFound => Code::NotFound.into(),
        ChangeError::AlreadyDelivered => Code::AlreadyDelivered.into(),
        ChangeError::AlreadyCancelled => Code::AlreadyCancelled.into(),
        ChangeError::VersionConflict { .. } => {
            Problem::new(Code::VersionConflict, error.to_string())
        }
        ChangeError::Prepared => Problem::new(Code::TransactionUndecided, error.to_string()),
        ChangeError::Series => Problem::new(Code::SeriesNotChangeable, error.to_string()),
        ChangeError::Invalid(reason) => of_invalid(&reason),
        ChangeError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_bulk(error: BulkError) -> Problem {
    match error {
        BulkError::TopicNotFound => Code::TopicNotFound.into(),
        BulkError::EmptyFilter => {
            let detail = "a filter says which; for every one say \"all\":true";
            Problem::new(Code::EmptyFilter, detail)
        }
        BulkError::BadState => Problem::new(Code::InvalidState, error.to_string()),
        BulkError::TooMany => Problem::new(Code::TooManyJobs, error.to_string()),
        BulkError::Invalid(reason) => of_invalid(&reason),
        BulkError::Audit(reason) => of_audit(&*reason),
        BulkError::Store(error) => of_store(error),
    }
}

/// The record of changes could not be kept.
pub(crate) fn of_audit(error: impl Display) -> Problem {
    error!(%error, "the record of changes cannot be written");
    Code::AuditFailed.into()
}

pub(crate) fn of_prepare(error: PrepareError) -> Problem {
    match error {
        PrepareError::Refused { index, error } => {
            let problem = of_schedule(error, true);
            // What is wrong with all of them has no index.
            if problem.index.is_some() || problem.code.status() != 413 {
                problem.at(index)
            } else {
                problem
            }
        }
        PrepareError::OwnIdTaken { index, id } => of_own_id(id).at(index),
        PrepareError::Check(reason) => Problem::new(Code::InvalidCheck, reason.to_string()),
        PrepareError::UrlTooLong => Problem::new(Code::InvalidUrl, error.to_string()),
        PrepareError::Store(error) => of_store(error),
    }
}

pub(crate) fn of_decide(error: DecideError) -> Problem {
    match error {
        DecideError::NotFound => Code::TransactionNotFound.into(),
        DecideError::AlreadyDecided(_) => Problem::new(Code::AlreadyDecided, error.to_string()),
        DecideError::Store(error) => of_store(error),
    }
}

/// Why a message cannot come round like that.
pub(crate) fn of_rule(error: RuleError) -> Problem {
    let code = match error {
        RuleError::IntervalTooShort => Code::IntervalTooShort,
        RuleError::InvalidCron(_) => Code::InvalidCron,
        RuleError::UnknownZone => Code::UnknownZone,
        RuleError::CronNeverFires => Code::CronNeverFires,
    };
    Problem::new(code, error.to_string())
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
        Invalid::OwnIdEmpty | Invalid::OwnIdTooLong | Invalid::OwnIdControl => {
            Problem::new(Code::InvalidId, reason.to_string())
        }
        Invalid::OwnIdLikeOurs => Problem::new(Code::ReservedId, reason.to_string()),
        Invalid::EndsBeforeFirst => Problem::new(Code::EndsBeforeFirst, reason.to_string()),
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
