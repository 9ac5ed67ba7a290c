//! Times and durations as the contract writes them.
//!
//! What must hold: nothing wraps around. What the contract cannot express becomes the largest it
//! can, which the broker refuses by name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::{Duration as WireDuration, Timestamp as WireTimestamp};

/// The longest duration of the contract, about 10,000 years.
const SECONDS_MAX: i64 = 315_576_000_000;

/// A duration for the wire.
pub(crate) fn duration(duration: Duration) -> WireDuration {
    let nanos = i32::try_from(duration.subsec_nanos()).expect("less than a second of them");
    match i64::try_from(duration.as_secs()) {
        Ok(seconds) if seconds < SECONDS_MAX => WireDuration { seconds, nanos },
        _ => WireDuration { seconds: SECONDS_MAX, nanos: 0 },
    }
}

/// A duration from the wire; a negative one, which no broker sends, is none at all.
pub(crate) fn from_duration(duration: WireDuration) -> Duration {
    Duration::try_from(duration).unwrap_or_default()
}

/// A time for the wire.
pub(crate) fn time(time: SystemTime) -> WireTimestamp {
    WireTimestamp::from(time)
}

/// A time from the wire; one that this machine cannot express is the beginning of time.
pub(crate) fn from_time(time: Option<WireTimestamp>) -> SystemTime {
    time.and_then(|time| SystemTime::try_from(time).ok()).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_times_come_back_as_they_went() {
        for millis in [0, 1, 999, 1000, 86_400_001] {
            let there = Duration::from_millis(millis);
            assert_eq!(from_duration(duration(there)), there);
            let time_there = UNIX_EPOCH + there;
            assert_eq!(from_time(Some(time(time_there))), time_there);
        }
    }

    #[test]
    fn what_cannot_be_expressed_does_not_wrap_around() {
        assert_eq!(duration(Duration::MAX).seconds, SECONDS_MAX);
        assert_eq!(from_duration(WireDuration { seconds: -5, nanos: 0 }), Duration::ZERO);
        assert_eq!(from_time(None), UNIX_EPOCH);
    }
}
