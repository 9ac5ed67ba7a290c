//! The one mapping from refusals to what gRPC answers: a status, and metadata with the stable code.

use std::fmt::Write as _;

use http::HeaderMap;
use http::header::HeaderValue;
use punctual_api::{Code, Problem};
use punctual_proto::v1;
use tonic::{Code as GrpcCode, Status};

/// The stable code of a refusal.
const CODE: &str = "punctual-code";
/// Which message of a batch was refused, counted from 0.
const INDEX: &str = "punctual-index";
/// How many milliseconds to wait at least before asking again.
const RETRY_AFTER: &str = "retry-after-ms";
/// How long to wait before asking again, where nobody knows better.
const RETRY_AFTER_SECS: u64 = 1;

/// The gRPC code that goes with a code of ours.
pub(crate) const fn code(code: Code) -> GrpcCode {
    match code {
        Code::IdConflict => GrpcCode::AlreadyExists,
        Code::VersionConflict => GrpcCode::Aborted,
        Code::DamagedData => GrpcCode::DataLoss,
        Code::RouteNotFound => GrpcCode::Unimplemented,
        other => match other.status() {
            401 => GrpcCode::Unauthenticated,
            403 => GrpcCode::PermissionDenied,
            404 => GrpcCode::NotFound,
            408 => GrpcCode::DeadlineExceeded,
            409 | 412 => GrpcCode::FailedPrecondition,
            429 | 507 => GrpcCode::ResourceExhausted,
            503 => GrpcCode::Unavailable,
            500.. => GrpcCode::Internal,
            _ => GrpcCode::InvalidArgument,
        },
    }
}

/// How long to wait at least before the same may succeed; `None` if it never will.
fn retry_after(problem: &Problem) -> Option<u64> {
    let known = problem.code.is_retriable().then_some(RETRY_AFTER_SECS);
    problem.retry_after.or(known)
}

/// Writes how a call ended: well, or with a problem.
pub(crate) fn write(outcome: Result<(), &Problem>, headers: &mut HeaderMap) {
    let Err(problem) = outcome else {
        headers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        return;
    };
    headers.insert(Status::GRPC_STATUS, HeaderValue::from(i32::from(code(problem.code))));
    headers.insert(Status::GRPC_MESSAGE, told(&problem.detail));
    write_details(problem, headers);
}

/// A text as gRPC tells it: only what must be is escaped, because not every client reads escapes.
fn told(text: &str) -> HeaderValue {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => escaped.push_str("%25"),
            b' '..=b'~' => escaped.push(char::from(byte)),
            other => write!(escaped, "%{other:02X}").expect("writing to a string cannot fail"),
        }
    }
    HeaderValue::try_from(escaped).expect("visible characters only")
}

/// Writes what our own clients look at.
pub(crate) fn write_details(problem: &Problem, headers: &mut HeaderMap) {
    headers.insert(CODE, HeaderValue::from_static(problem.code.as_str()));
    if let Some(index) = problem.index {
        headers.insert(INDEX, HeaderValue::from(index));
    }
    if let Some(seconds) = retry_after(problem) {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.saturating_mul(1000)));
    }
}

/// A refusal of one part of a stream.
pub(crate) fn shown(problem: &Problem) -> v1::Problem {
    let after = retry_after(problem);
    v1::Problem {
        code: problem.code.as_str().to_owned(),
        detail: problem.detail.to_string(),
        index: problem.index.and_then(|index| u32::try_from(index).ok()),
        retriable: after.is_some(),
        retry_after: after.map(|seconds| prost_types::Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_that_is_no_success() {
        for known in Code::ALL {
            assert!(!matches!(code(*known), GrpcCode::Ok | GrpcCode::Unknown), "{known:?}");
        }
    }

    #[test]
    fn a_refusal_tells_its_code_its_place_and_when_to_come_again() {
        let mut headers = HeaderMap::new();
        write(Err(&Problem::from(Code::TooBusy).at(7)), &mut headers);
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers[CODE], "too_busy");
        assert_eq!(headers[INDEX], "7");
        assert_eq!(headers[RETRY_AFTER], "1000");
    }

    #[test]
    fn a_text_of_any_characters_can_be_told() {
        let mut headers = HeaderMap::new();
        write(Err(&Problem::new(Code::InvalidField, "ä\n\u{0}%")), &mut headers);
        assert_eq!(headers["grpc-status"], "3");
        assert_eq!(headers["grpc-message"], "%C3%A4%0A%00%25");
    }
}
