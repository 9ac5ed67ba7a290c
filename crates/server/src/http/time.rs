//! From the durations and times of a request, which arrive as text, to what they mean.
//!
//! How they are written is decided in the model alone; here each refusal gets its stable code.

use punctual_api::{Code, Problem};
use punctual_model::time::{SpanError, TimestampError};
use punctual_model::{Span, Timestamp};

/// A delay.
pub(crate) fn delay(text: &str) -> Result<Span, Problem> {
    text.parse().map_err(|error: SpanError| Problem::new(Code::InvalidDelay, error.to_string()))
}

/// A point in time.
pub(crate) fn time(text: &str) -> Result<Timestamp, Problem> {
    text.parse().map_err(|error: TimestampError| {
        let code = match error {
            // What has a sign is no time at all, as it is no delay.
            TimestampError::OutOfRange if !text.starts_with('-') => Code::DueOutOfRange,
            _ => Code::InvalidTime,
        };
        Problem::new(code, error.to_string())
    })
}

/// The edge of a window of time. Nothing can be due beyond the last due time there is, so an edge
/// that is later, which only digits can be, is that one.
pub(crate) fn edge(text: &str) -> Result<Timestamp, Problem> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    time(text).or_else(|problem| match problem.code {
        Code::DueOutOfRange if is_digits => Ok(Timestamp::MAX),
        _ => Err(problem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_code() {
        for text in ["", "-1", "1.5", "1e3", "99999999999999999999", "soon", "P1M", "1h 30m"] {
            assert_eq!(delay(text).unwrap_err().code, Code::InvalidDelay, "{text:?}");
        }
        for (text, code) in [
            ("", Code::InvalidTime),
            ("-5", Code::InvalidTime),
            ("1.5", Code::InvalidTime),
            ("1e12", Code::InvalidTime),
            ("2030-01-01T00:00:00", Code::InvalidTime),
            ("2016-12-31T23:59:60Z", Code::InvalidTime),
            ("1969-12-31T23:59:59Z", Code::DueOutOfRange),
            ("253402300800000", Code::DueOutOfRange),
            ("99999999999999999999", Code::DueOutOfRange),
        ] {
            assert_eq!(time(text).unwrap_err().code, code, "{text:?}");
        }
    }

    #[test]
    fn an_edge_past_the_end_is_the_end() {
        for text in ["253402300799999", "253402300800000", "99999999999999999999"] {
            assert_eq!(edge(text), Ok(Timestamp::MAX), "{text}");
        }
        for text in ["1969-12-31T23:59:59Z", "-5", ""] {
            assert!(edge(text).is_err(), "{text:?}");
        }
    }
}
