//! Why something did not work: one enum per kind of operation, each with a stable code.
//!
//! What must hold: an error says whether the broker may have carried the request out. `Refused` and
//! its finer forms mean that it has not; `Unreachable` means that the request never got there;
//! `Unanswered` means that nobody knows.

use std::time::Duration;

use crate::fault::Fault;

/// A refusal by the broker, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Problem {
    /// The stable code; programs branch on it. All of them are listed in the broker's manual.
    pub code: String,
    /// What was wrong this time, for people.
    pub detail: String,
    /// Whether the same request may succeed later, unchanged.
    pub retriable: bool,
    /// How long to wait at least, where the broker said so.
    pub retry_after: Option<Duration>,
    /// Which message of a batch it was, counted from 0.
    pub(crate) index: Option<usize>,
}

impl Problem {
    pub(crate) fn of_client(code: &str, detail: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            detail: detail.into(),
            retriable: false,
            retry_after: None,
            index: None,
        }
    }
}

/// The code of an [`Unanswered`](SendError::Unanswered) error.
const UNANSWERED: &str = "unanswered";
/// The code of an [`Unreachable`](SendError::Unreachable) error.
const UNREACHABLE: &str = "unreachable";
/// The code of a [`Closed`](SendError::Closed) error.
const CLOSED: &str = "closed";

/// Gives every error of an operation its code and whether trying again may help, and makes it of a
/// fault: by the code of the refusal where the operation has a name for it.
macro_rules! operation_error {
    ($name:ident { $($code:literal => $variant:ident),* $(,)? }) => {
        impl $name {
            /// The stable code: the broker's, or one of the client's own `unanswered`,
            /// `unreachable` and `closed`.
            #[must_use]
            pub fn code(&self) -> &str {
                match self {
                    $(Self::$variant(problem) => &problem.code,)*
                    Self::Refused(problem) => &problem.code,
                    Self::Unanswered(_) => UNANSWERED,
                    Self::Unreachable(_) => UNREACHABLE,
                    Self::Closed => CLOSED,
                }
            }

            /// Whether the same may succeed later, unchanged.
            #[must_use]
            pub fn is_retriable(&self) -> bool {
                match self {
                    $(Self::$variant(problem) => problem.retriable,)*
                    Self::Refused(problem) => problem.retriable,
                    Self::Unanswered(_) | Self::Unreachable(_) => true,
                    Self::Closed => false,
                }
            }
        }

        impl From<Fault> for $name {
            fn from(fault: Fault) -> Self {
                match fault {
                    Fault::Refused(problem) => match problem.code.as_str() {
                        $($code => Self::$variant(problem),)*
                        _ => Self::Refused(problem),
                    },
                    Fault::Lost { detail, is_unsent: true } => Self::Unreachable(detail),
                    Fault::Lost { detail, is_unsent: false } => Self::Unanswered(detail),
                }
            }
        }
    };
}

/// Why a message was not sent, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Another message of the topic has this own id.
    #[error("{0}")]
    IdConflict(Problem),
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// It was handed to the broker, whose answer was lost or did not come in time. It may be
    /// stored; sending it again under the same own id is harmless.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time; the message was not sent.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The producer was closed, or its runtime is going away.
    #[error("the producer is closed")]
    Closed,
}

operation_error!(SendError { "id_conflict" => IdConflict });

/// Why nothing can be said about a message, or about what is pending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such message, or it may not be seen.
    #[error("{0}")]
    NotFound(Problem),
    /// There is no such topic.
    #[error("{0}")]
    TopicNotFound(Problem),
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// The answer was lost or did not come in time.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The client is gone.
    #[error("the client is closed")]
    Closed,
}

operation_error!(ReadError { "not_found" => NotFound, "topic_not_found" => TopicNotFound });

/// Why a message was not cancelled for another reason than its state; see
/// [`Cancel`](crate::Cancel) for those.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// The answer was lost or did not come in time: it may be cancelled or not.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The client is gone.
    #[error("the client is closed")]
    Closed,
}

operation_error!(CancelError {});

/// Why a message was not changed, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no such message, or it may not be seen.
    #[error("{0}")]
    NotFound(Problem),
    /// It was delivered before.
    #[error("{0}")]
    AlreadyDelivered(Problem),
    /// It was cancelled before.
    #[error("{0}")]
    AlreadyCancelled(Problem),
    /// It has another version than the one that was named.
    #[error("{0}")]
    VersionConflict(Problem),
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// The answer was lost or did not come in time: it may be changed or not.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The client is gone.
    #[error("the client is closed")]
    Closed,
}

operation_error!(ChangeError {
    "not_found" => NotFound,
    "already_delivered" => AlreadyDelivered,
    "already_cancelled" => AlreadyCancelled,
    "version_conflict" => VersionConflict,
});

/// Why messages cannot be consumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// There is no such topic.
    #[error("{0}")]
    TopicNotFound(Problem),
    /// There is no such group.
    #[error("{0}")]
    GroupNotFound(Problem),
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// The answer was lost or did not come in time.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The client is gone, or its runtime is going away.
    #[error("the client is closed")]
    Closed,
}

operation_error!(ConsumeError {
    "topic_not_found" => TopicNotFound,
    "group_not_found" => GroupNotFound,
});

/// Why a transaction was not prepared or decided, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The opposite was decided before, by an answer to a question of the broker or by hand.
    #[error("{0}")]
    AlreadyDecided(Problem),
    /// There is no such transaction any more.
    #[error("{0}")]
    NotFound(Problem),
    /// The broker refused it.
    #[error("{0}")]
    Refused(Problem),
    /// The answer was lost or did not come in time. The broker will ask what became of it.
    #[error("the broker did not answer: {0}")]
    Unanswered(String),
    /// The broker was not there in time.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The client is gone, or its runtime is going away.
    #[error("the client is closed")]
    Closed,
}

operation_error!(TransactionError {
    "already_decided" => AlreadyDecided,
    "transaction_not_found" => NotFound,
});

/// Why [`Transaction::run`](crate::Transaction::run) did not end with a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The local work failed with this, and the messages were withdrawn.
    #[error("the local work failed and the transaction was rolled back")]
    RolledBack(E),
    /// The local work failed with this, and the messages could not be withdrawn for now; the broker
    /// will ask.
    #[error("the local work failed and the transaction is left to be asked about: {rollback}")]
    Undecided {
        /// What the local work failed with.
        error: E,
        /// Why the transaction could not be rolled back.
        rollback: TransactionError,
    },
    /// The messages were not prepared; the local work was not begun.
    #[error("the transaction was not prepared: {0}")]
    Prepare(TransactionError),
    /// The local work is done, but the commit was refused.
    #[error("the transaction was not committed: {0}")]
    Commit(TransactionError),
}

impl<E> RunError<E> {
    /// The stable code: that of the refusal, or `rolled_back`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::RolledBack(_) => "rolled_back",
            Self::Undecided { rollback, .. } => rollback.code(),
            Self::Prepare(error) | Self::Commit(error) => error.code(),
        }
    }

    /// Whether the whole of it, local work and all, may succeed later, unchanged.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Prepare(error) if error.is_retriable())
    }
}

/// Why there is no client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one of the form `http://host:port` or `https://host:port`.
    #[error("not the address of a broker: {0}")]
    InvalidAddress(String),
    /// The token, the user agent, a certificate or a key cannot be used.
    #[error("not usable: {0}")]
    InvalidSetting(String),
    /// Nobody answers there.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The system gives no random numbers, of which own ids are made.
    #[error("the system gives no random numbers: {0}")]
    NoRandomness(String),
}

impl ConnectError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::InvalidAddress(_) => "invalid_address",
            Self::InvalidSetting(_) => "invalid_setting",
            Self::Unreachable(_) => UNREACHABLE,
            Self::NoRandomness(_) => "no_randomness",
        }
    }

    /// Whether the same may succeed later, unchanged.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}
