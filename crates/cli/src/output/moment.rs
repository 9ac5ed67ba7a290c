//! How far away a time is, for people.

use jiff::Timestamp;

const MS: i64 = 1;
const SECOND: i64 = 1000 * MS;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Milliseconds that need not be told apart from now.
const JUST_NOW: i64 = -SECOND + 1;

const UNITS: [(i64, &str); 4] = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];

/// `in 29m 58s`, `3d 4h ago`, `now`; nothing for what is no time.
pub(crate) fn distance(time: &str, now: Timestamp) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    let distance = time.as_millisecond().saturating_sub(now.as_millisecond());
    let length = length(distance.saturating_abs());
    Some(match distance {
        // What has just happened has happened now.
        JUST_NOW..=0 => "now".to_owned(),
        1.. => format!("in {length}"),
        _ => format!("{length} ago"),
    })
}

/// The two largest units, rounded to the smaller one.
fn length(ms: i64) -> String {
    if ms < SECOND {
        return format!("{ms}ms");
    }
    let seconds = ms.saturating_add(SECOND / 2) / SECOND * SECOND;
    // Past an hour the seconds are not shown, so they round too.
    let rounded = match seconds {
        DAY.. => seconds.saturating_add(HOUR / 2) / HOUR * HOUR,
        HOUR.. => seconds.saturating_add(MINUTE / 2) / MINUTE * MINUTE,
        _ => seconds,
    };
    let mut left = rounded;
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        let count = left / unit;
        left %= unit;
        if count > 0 {
            parts.push(format!("{count}{name}"));
        }
    }
    parts.truncate(2);
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_largest_units_are_shown() {
        for (ms, expected) in [
            (250, "250ms"),
            (1499, "1s"),
            (59_600, "1m"),
            (29 * MINUTE + 58 * SECOND, "29m 58s"),
            (HOUR, "1h"),
            (HOUR + 59 * MINUTE + 59 * SECOND, "2h"),
            (3 * DAY + 4 * HOUR + 10 * MINUTE, "3d 4h"),
            (40 * DAY - 1, "40d"),
        ] {
            assert_eq!(length(ms), expected, "{ms}");
        }
    }

    #[test]
    fn a_time_is_before_or_after_now() {
        let now: Timestamp = "2030-01-31T12:00:00Z".parse().unwrap();
        let distance = |time| distance(time, now);
        assert_eq!(distance("2030-01-31T12:30:00.000Z").as_deref(), Some("in 30m"));
        assert_eq!(distance("2030-01-31T11:59:55.000Z").as_deref(), Some("5s ago"));
        assert_eq!(distance("2030-01-31T12:00:00.000Z").as_deref(), Some("now"));
        assert_eq!(distance("2030-01-31T11:59:59.900Z").as_deref(), Some("now"));
        assert_eq!(distance("2030-01-31T12:00:00.100Z").as_deref(), Some("in 100ms"));
        assert_eq!(distance("tomorrow"), None);
    }
}
