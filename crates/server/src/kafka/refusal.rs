//! Why something was refused: a code that clients know, and a sentence for people.

use punctual_api::{Code, Problem};
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::ports::{StoreError, TopicError};

use crate::tasks::BrokenOff;

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    /// Where the code says it all there is none.
    pub(crate) message: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// A name that no topic has.
    pub(crate) fn illegal_name() -> Self {
        let text = "a topic's name has 1 to 249 characters of A-Z a-z 0-9 . _ - and is not . or ..";
        Self::new(ErrorCode::INVALID_TOPIC_EXCEPTION, text)
    }

    /// The topic belongs to a group.
    pub(crate) fn reserved() -> Self {
        let text = "the topic belongs to a group, which alone writes to it and goes with it";
        Self::new(ErrorCode::POLICY_VIOLATION, text)
    }

    pub(crate) fn of_topic(error: TopicError) -> Self {
        match error {
            TopicError::NotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into(),
            TopicError::CannotShrink(_) => {
                Self::new(ErrorCode::INVALID_PARTITIONS, error.to_string())
            }
            TopicError::TooMany => Self::new(ErrorCode::POLICY_VIOLATION, error.to_string()),
            TopicError::Reserved => Self::reserved(),
            TopicError::Store(error) => Self::of_store(&error),
        }
    }

    pub(crate) fn of_store(error: &StoreError) -> Self {
        Self::new(ErrorCode::KAFKA_STORAGE_ERROR, error.to_string())
    }

    /// The same in the words of HTTP.
    pub(crate) fn into_problem(self) -> Problem {
        let code = match self.code {
            ErrorCode::INVALID_PARTITIONS => Code::PartitionsCannotShrink,
            _ => Code::InvalidField,
        };
        Problem::new(code, self.message.unwrap_or_default())
    }

    /// A refusal in the words of HTTP.
    pub(crate) fn of_problem(problem: Problem) -> Self {
        let code = match problem.code {
            Code::Forbidden => ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            Code::TopicNotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Code::InvalidTopicName => ErrorCode::INVALID_TOPIC_EXCEPTION,
            Code::PartitionsCannotShrink => ErrorCode::INVALID_PARTITIONS,
            Code::InvalidField => ErrorCode::INVALID_CONFIG,
            Code::ReservedTopic | Code::TooManyTopics => ErrorCode::POLICY_VIOLATION,
            _ => ErrorCode::KAFKA_STORAGE_ERROR,
        };
        Self { code, message: Some(problem.detail.into_owned()) }
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl From<BrokenOff> for Refusal {
    fn from(error: BrokenOff) -> Self {
        Self::new(ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string())
    }
}
