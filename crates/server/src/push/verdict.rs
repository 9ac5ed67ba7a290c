//! What an answer means for the message: done, or to be tried again, and when.

use std::time::UNIX_EPOCH;

use http::StatusCode;
use http::header::HeaderValue;
use punctual_model::{Span, Timestamp};

use crate::push::client::{ANSWER_BYTES_MAX, Answer, SendError};

/// The longest wait an endpoint may ask for.
const RETRY_AFTER_MAX: Span = Span::from_secs(3600);
/// The shortest: an endpoint that has too much to do does not mean at once.
const RETRY_AFTER_MIN: Span = Span::from_secs(1);
/// How much of an answer's body goes into the error text, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// What an answer, or none, means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The message is done.
    Done,
    /// It is to be tried again.
    Failed {
        /// After this wait; `None` leaves it to the group.
        delay: Option<Span>,
        /// What went wrong, for people.
        error: String,
        /// Whether the endpoint itself is at fault, rather than the message.
        down: bool,
    },
}

/// Judges the outcome of a request.
pub(crate) fn judge(outcome: &Result<Answer, SendError>, now: Timestamp) -> Verdict {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(error) => {
            return Verdict::Failed { delay: None, error: told(error), down: true };
        }
    };
    let code = answer.status.as_u16();
    if answer.status.is_success() {
        if answer.whole {
            return Verdict::Done;
        }
        let error = format!("HTTP {code}, with an answer of more than {ANSWER_BYTES_MAX} bytes");
        return Verdict::Failed { delay: None, error, down: false };
    }
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    let delay = match &answer.retry_after {
        Some(value) if busy.contains(&answer.status) => wait(value, now),
        _ => None,
    };
    let error = match plain(&answer.excerpt) {
        excerpt if excerpt.is_empty() => format!("HTTP {code}"),
        excerpt => format!("HTTP {code}: {excerpt}"),
    };
    Verdict::Failed { delay, error, down: answer.status.is_server_error() }
}

/// An error with the reasons behind it.
fn told(error: &SendError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        let reason_text = reason.to_string();
        if !text.contains(&reason_text) {
            text = format!("{text}: {reason_text}");
        }
        source = reason.source();
    }
    plain(text.as_bytes())
}

/// The wait that `Retry-After` asks for, in seconds or as a date.
fn wait(value: &HeaderValue, now: Timestamp) -> Option<Span> {
    let text = value.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large to read is longer than the longest wait.
        text.parse().map_or(RETRY_AFTER_MAX, Span::from_secs)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        let date = date.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Timestamp::from_millis_saturating(u64::try_from(date).unwrap_or(u64::MAX)).since(now)
    };
    Some(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
}

/// The beginning of a text from outside, in one line, without anything but characters to see.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let seen = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let seen: String = seen.filter(|char| !turns_writing(*char)).take(EXCERPT_CHARS_MAX).collect();
    seen.trim().to_owned()
}

/// Characters that change how the text around them is shown.
const fn turns_writing(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis_saturating(784_111_777_000);

    fn answer(status: u16, retry_after: Option<&str>, body: &[u8]) -> Result<Answer, SendError> {
        Ok(Answer {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(|text| HeaderValue::from_str(text).unwrap()),
            excerpt: body.to_vec(),
            whole: true,
        })
    }

    fn delay(status: u16, retry_after: &str) -> Option<Span> {
        match judge(&answer(status, Some(retry_after), b""), NOW) {
            Verdict::Failed { delay, .. } => delay,
            Verdict::Done => panic!("not done"),
        }
    }

    #[test]
    fn only_a_success_is_done() {
        for status in [200, 201, 202, 204, 206, 299] {
            assert_eq!(judge(&answer(status, None, b"x"), NOW), Verdict::Done, "{status}");
        }
        for (status, is_down) in [
            (101, false),
            (301, false),
            (302, false),
            (307, false),
            (400, false),
            (404, false),
            (410, false),
            (429, false),
            (500, true),
            (502, true),
            (503, true),
            (599, true),
            (600, false),
        ] {
            let verdict = judge(&answer(status, None, b""), NOW);
            let error = format!("HTTP {status}");
            assert_eq!(verdict, Verdict::Failed { delay: None, error, down: is_down });
        }
        let late = judge(&Err(SendError::Late(Duration::from_secs(1))), NOW);
        let error = "no whole answer within 1s".to_owned();
        assert_eq!(late, Verdict::Failed { delay: None, error, down: true });
    }

    #[test]
    fn an_answer_that_does_not_end_is_not_done() {
        let mut answer = answer(200, None, b"x").unwrap();
        answer.whole = false;
        let Verdict::Failed { error, down, .. } = judge(&Ok(answer), NOW) else {
            panic!("not done");
        };
        assert_eq!(error, "HTTP 200, with an answer of more than 65536 bytes");
        assert!(!down);
    }

    #[test]
    fn the_wait_that_a_busy_endpoint_asks_for_is_kept_within_bounds() {
        assert_eq!(delay(429, "7"), Some(Span::from_secs(7)));
        assert_eq!(delay(503, " 7 "), Some(Span::from_secs(7)));
        assert_eq!(delay(503, "0"), Some(RETRY_AFTER_MIN));
        assert_eq!(delay(503, "99999999999999999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(delay(429, "Sun, 06 Nov 1994 08:50:37 GMT"), Some(Span::from_secs(60)));
        assert_eq!(delay(429, "Sun, 06 Nov 1994 08:00:00 GMT"), Some(RETRY_AFTER_MIN));
        assert_eq!(delay(429, "Sat, 06 Nov 2094 08:00:00 GMT"), Some(RETRY_AFTER_MAX));
        assert_eq!(delay(500, "7"), None);
        for odd in ["", "-1", "1.5", "soon", "+5"] {
            assert_eq!(delay(503, odd), None, "{odd}");
        }
    }

    #[test]
    fn the_error_text_is_one_short_line() {
        let error = |body: &[u8]| match judge(&answer(500, None, body), NOW) {
            Verdict::Failed { error, .. } => error,
            Verdict::Done => panic!("not done"),
        };
        assert_eq!(error(b"no\r\nroom\x1b[31m\0"), "HTTP 500: no  room [31m");
        assert_eq!(error("a\u{202e}b".as_bytes()), "HTTP 500: ab");
        assert_eq!(error(b" \n "), "HTTP 500");
        assert_eq!(error(b"\xff\xfe"), "HTTP 500: \u{fffd}\u{fffd}");
        let long = error("\u{e9}".repeat(500).as_bytes());
        assert_eq!(long.chars().count(), "HTTP 500: ".len() + 200);
    }
}
