//! What became of one call, as the transport tells it: a refusal with a code, or a loss.
//!
//! What must hold: only what surely never left this process counts as unsent. Everything else that
//! brought no answer may have been carried out.

use std::error::Error as _;
use std::time::Duration;

use punctual_proto::v1;
use tonic::{Code, Status};

use crate::error::Problem;
use crate::wire;

/// The name of the stable code in the metadata of a refusal.
const CODE: &str = "punctual-code";
/// The name of the place in a batch.
const INDEX: &str = "punctual-index";
/// The name of the time to wait, in milliseconds.
const RETRY_AFTER: &str = "retry-after-ms";
/// Codes that pass by themselves, for refusals that do not say whether they do.
const PASSING: [&str; 7] = [
    "too_busy",
    "backlog_full",
    "too_many_jobs",
    "storage_full",
    "unavailable",
    "request_timeout",
    "quota_exceeded",
];

/// Why a call brought no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The broker said no.
    Refused(Problem),
    /// There was no answer.
    Lost {
        /// In words.
        detail: String,
        /// Whether the request surely never left.
        is_unsent: bool,
    },
}

impl Fault {
    /// No answer within the time for one.
    pub(crate) fn late() -> Self {
        Self::Lost { detail: "no answer in time".to_owned(), is_unsent: false }
    }

    /// The other side ended a stream that should go on.
    pub(crate) fn ended() -> Self {
        Self::Lost { detail: "the stream ended".to_owned(), is_unsent: false }
    }

    /// Whether trying again may help.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.retriable,
            Self::Lost { .. } => true,
        }
    }

    /// How long the broker wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(problem) => problem.retry_after,
            Self::Lost { .. } => None,
        }
    }

    /// In words, for the log.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused(problem) => problem.to_string(),
            Self::Lost { detail, .. } => detail.clone(),
        }
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        if let Some(code) = text(&status, CODE) {
            let retry_after = text(&status, RETRY_AFTER)
                .and_then(|millis| millis.parse().ok())
                .map(Duration::from_millis);
            return Self::Refused(Problem {
                retriable: retry_after.is_some() || PASSING.contains(&code),
                code: code.to_owned(),
                detail: status.message().to_owned(),
                retry_after,
                index: text(&status, INDEX).and_then(|index| index.parse().ok()),
            });
        }
        match status.code() {
            // What the transport makes of a connection that broke or was never there, and of a
            // server that is going away.
            Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::Internal
            | Code::Aborted
            | Code::DataLoss
            | Code::DeadlineExceeded
            | Code::Ok => Self::Lost { is_unsent: is_unsent(&status), detail: words(&status) },
            code => Self::Refused(Problem::of_client(name(code), words(&status))),
        }
    }
}

impl From<v1::Problem> for Problem {
    fn from(problem: v1::Problem) -> Self {
        Self {
            code: problem.code,
            detail: problem.detail,
            retriable: problem.retriable,
            retry_after: problem.retry_after.map(wire::from_duration),
            index: problem.index.and_then(|index| usize::try_from(index).ok()),
        }
    }
}

fn text<'a>(status: &'a Status, name: &str) -> Option<&'a str> {
    status.metadata().get(name)?.to_str().ok()
}

/// Whether no connection came into being.
fn is_unsent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message of a status with the innermost cause, which is the one that says something.
fn words(status: &Status) -> String {
    let mut innermost = None;
    let mut cause = status.source();
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    let message = status.message();
    match innermost {
        Some(cause) if message.is_empty() => cause,
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ if message.is_empty() => name(status.code()).to_owned(),
        _ => message.to_owned(),
    }
}

/// A code for refusals that carry none of the broker's: they come from something between us and it.
fn name(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => "invalid_argument",
        Code::NotFound => "not_found_on_the_way",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Unauthenticated => "unauthenticated",
        _ => "no_answer",
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;

    use super::*;

    fn refusal(pairs: &[(&'static str, &str)]) -> Fault {
        let mut metadata = MetadataMap::new();
        for (name, value) in pairs {
            metadata.insert(*name, value.parse().unwrap());
        }
        Status::with_metadata(Code::ResourceExhausted, "no", metadata).into()
    }

    #[test]
    fn a_refusal_keeps_its_code_its_place_and_its_wait() {
        let fault = refusal(&[(CODE, "too_busy"), (INDEX, "7"), (RETRY_AFTER, "250")]);
        let Fault::Refused(problem) = &fault else { panic!("{fault:?}") };
        assert_eq!((problem.code.as_str(), problem.index), ("too_busy", Some(7)));
        assert_eq!(fault.retry_after(), Some(Duration::from_millis(250)));
        assert!(fault.is_passing());
        assert!(!refusal(&[(CODE, "id_conflict")]).is_passing());
        assert!(!refusal(&[(CODE, "id_conflict"), (RETRY_AFTER, "soon")]).is_passing());
    }

    #[test]
    fn what_carries_no_code_of_the_broker_is_a_loss_or_a_refusal_on_the_way() {
        let lost = Fault::from(Status::unavailable("gone"));
        assert_eq!(lost, Fault::Lost { detail: "gone".to_owned(), is_unsent: false });
        let refused = Fault::from(Status::unauthenticated("who are you"));
        assert!(matches!(refused, Fault::Refused(problem) if problem.code == "unauthenticated"));
    }
}
