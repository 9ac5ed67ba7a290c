//! From the durations and times of a request, which arrive as text, to what they mean.
//!
//! How they are written is decided in the model alone; here each refusal gets its stable code.

use punctual_api::{Code, Problem};
use punctual_model::limits::{DELAY_CEILING, DELAY_MAX, LEASE_MAX, LEASE_MIN};
use punctual_model::time::{SpanError, TimestampError};
use punctual_model::{Span, Timestamp};

/// A delay.
pub(crate) fn delay(text: &str) -> Result<Span, Problem> {
    text.parse().map_err(|error: SpanError| Problem::new(Code::InvalidDelay, error.to_string()))
}

/// A duration between `least` and `most`, of the field of that name.
pub(crate) fn span(field: &str, text: &str, (least, most): (Span, Span)) -> Result<Span, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidField, detail);
    let span: Span =
        text.parse().map_err(|error: SpanError| refused(format!("{field}: {error}")))?;
    if (least..=most).contains(&span) {
        Ok(span)
    } else {
        Err(refused(format!("{field} is a duration from {least} to {most}")))
    }
}

/// How long a message is lent.
pub(crate) fn lease(text: &str) -> Result<Span, Problem> {
    span("lease", text, (LEASE_MIN, LEASE_MAX))
}

/// How long after its due time a message may be given to a group.
pub(crate) fn ttl(field: &str, text: &str) -> Result<Span, Problem> {
    span(field, text, (Span::from_millis(1), DELAY_CEILING))
}

/// How long to wait before another attempt.
pub(crate) fn retry_delay(text: &str) -> Result<Span, Problem> {
    let delay = delay(text)?;
    if delay <= DELAY_MAX {
        return Ok(delay);
    }
    Err(Problem::new(Code::DelayTooLong, format!("the longest delay is {DELAY_MAX}")))
}

/// The window of a day in UTC, written `2030-01-31`.
pub(crate) fn day(text: &str) -> Result<(Timestamp, Timestamp), Problem> {
    let plain = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    let start = (text.len() == 10 && text.bytes().enumerate().all(plain))
        .then(|| format!("{text}T00:00:00Z").parse::<Timestamp>().ok())
        .flatten();
    let form = || Problem::new(Code::InvalidTime, "a day is written as 2030-01-31");
    let start = start.ok_or_else(form)?;
    Ok((start, start.saturating_add(Span::from_days(1))))
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

    #[test]
    fn a_day_is_a_window() {
        let (from, to) = day("2024-02-29").unwrap();
        assert_eq!(from.to_string(), "2024-02-29T00:00:00.000Z");
        assert_eq!(to.to_string(), "2024-03-01T00:00:00.000Z");
        for text in ["2023-02-29", "2024-2-29", "today", "", "2024-02-29T00:00:00Z", "+024-02-29"] {
            assert_eq!(day(text).unwrap_err().code, Code::InvalidTime, "{text:?}");
        }
    }

    #[test]
    fn a_lease_has_bounds() {
        assert_eq!(lease("1s"), Ok(LEASE_MIN));
        assert_eq!(lease("12h"), Ok(LEASE_MAX));
        for text in ["0", "999ms", "12h1ms", "-1s", "long", "99999999999999999999"] {
            assert_eq!(lease(text).unwrap_err().code, Code::InvalidField, "{text:?}");
        }
    }
}
