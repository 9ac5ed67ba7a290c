//! Durations and times between the contract and the model, which counts whole milliseconds.
//!
//! What is finer is rounded up, so that nothing comes early.

use prost_types::{Duration as WireDuration, Timestamp as WireTimestamp};
use punctual_api::{Code, Problem};
use punctual_model::limits::{DELAY_CEILING, DELAY_MAX, LEASE_MAX, LEASE_MIN};
use punctual_model::{Span, Timestamp};

const NANOS_OF_MILLI: i32 = 1_000_000;
const MILLIS_OF_SEC: u64 = 1000;

/// Milliseconds of seconds and nanoseconds; `None` if they are before zero or no such value.
fn millis(seconds: i64, nanos: i32) -> Option<u64> {
    let nanos = (0..1_000_000_000).contains(&nanos).then_some(nanos)?;
    let part = u64::try_from((nanos + NANOS_OF_MILLI - 1) / NANOS_OF_MILLI).ok()?;
    u64::try_from(seconds).ok()?.checked_mul(MILLIS_OF_SEC)?.checked_add(part)
}

/// A delay.
pub(crate) fn delay(written: &WireDuration) -> Result<Span, Problem> {
    let refused = || Problem::new(Code::InvalidDelay, "a delay is a duration from nothing on");
    millis(written.seconds, written.nanos).map(Span::from_millis).ok_or_else(refused)
}

/// A duration between `least` and `most`, of the field of that name.
pub(crate) fn span(
    field: &str,
    written: &WireDuration,
    (least, most): (Span, Span),
) -> Result<Span, Problem> {
    let span = millis(written.seconds, written.nanos).map(Span::from_millis);
    span.filter(|span| (least..=most).contains(span)).ok_or_else(|| {
        let detail = format!("{field} is a duration from {least} to {most}");
        Problem::new(Code::InvalidField, detail)
    })
}

/// How long a message is lent.
pub(crate) fn lease(written: &WireDuration) -> Result<Span, Problem> {
    span("lease", written, (LEASE_MIN, LEASE_MAX))
}

/// How long after its due time a message may be given to a group.
pub(crate) fn ttl(written: &WireDuration) -> Result<Span, Problem> {
    span("ttl", written, (Span::from_millis(1), DELAY_CEILING))
}

/// How long to wait before another attempt.
pub(crate) fn retry_delay(written: &WireDuration) -> Result<Span, Problem> {
    let delay = delay(written)?;
    if delay <= DELAY_MAX {
        return Ok(delay);
    }
    Err(Problem::new(Code::DelayTooLong, format!("the longest delay is {DELAY_MAX}")))
}

/// A point in time.
pub(crate) fn time(written: &WireTimestamp) -> Result<Timestamp, Problem> {
    if !(0..1_000_000_000).contains(&written.nanos) {
        return Err(Problem::new(
            Code::InvalidTime,
            "a second has less than that many nanoseconds",
        ));
    }
    let time = millis(written.seconds, written.nanos).and_then(Timestamp::from_millis);
    time.ok_or_else(|| Code::DueOutOfRange.into())
}

/// The edge of a window of time: beyond the last due time there is nothing.
pub(crate) fn edge(written: &WireTimestamp) -> Result<Timestamp, Problem> {
    time(written).or_else(|problem| match problem.code {
        Code::DueOutOfRange if written.seconds > 0 => Ok(Timestamp::MAX),
        _ => Err(problem),
    })
}

/// A duration as the contract has it.
pub(crate) fn duration(span: Span) -> WireDuration {
    let (seconds, nanos) = parts(span.as_millis());
    WireDuration { seconds, nanos }
}

/// A time as the contract has it.
pub(crate) fn timestamp(time: Timestamp) -> WireTimestamp {
    let (seconds, nanos) = parts(time.as_millis());
    WireTimestamp { seconds, nanos }
}

/// Seconds and nanoseconds of milliseconds.
pub(crate) fn parts(millis: u64) -> (i64, i32) {
    let seconds = i64::try_from(millis / MILLIS_OF_SEC).unwrap_or(i64::MAX);
    let part = i32::try_from(millis % MILLIS_OF_SEC).expect("less than a second");
    (seconds, part * NANOS_OF_MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(seconds: i64, nanos: i32) -> WireDuration {
        WireDuration { seconds, nanos }
    }

    #[test]
    fn a_delay_is_rounded_up_to_milliseconds() {
        assert_eq!(delay(&wire(1, 1)), Ok(Span::from_millis(1001)));
        assert_eq!(delay(&wire(0, 0)), Ok(Span::ZERO));
        assert_eq!(delay(&wire(0, 999_999_999)), Ok(Span::from_secs(1)));
    }

    #[test]
    fn what_is_no_delay_is_refused() {
        for (seconds, nanos) in
            [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (i64::MIN, i32::MIN)]
        {
            let refused = delay(&wire(seconds, nanos)).unwrap_err();
            assert_eq!(refused.code, Code::InvalidDelay, "{seconds} {nanos}");
        }
    }

    #[test]
    fn a_time_comes_back_as_it_was() {
        for millis in [0, 1, 999, 1000, 1_700_000_000_123, Timestamp::MAX.as_millis()] {
            let written = timestamp(Timestamp::from_millis(millis).unwrap());
            assert_eq!(time(&written).unwrap().as_millis(), millis);
        }
    }

    #[test]
    fn an_edge_past_the_end_is_the_end() {
        let late = WireTimestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(edge(&late), Ok(Timestamp::MAX));
        let early = WireTimestamp { seconds: -1, nanos: 0 };
        assert_eq!(edge(&early).unwrap_err().code, Code::DueOutOfRange);
    }
}
