//! Times and durations in text: the one way they are read and written.
//!
//! Both are whole milliseconds. What is finer than a millisecond is rounded up, so that nothing
//! becomes due early. Nothing is clamped: what does not fit is refused.

use std::fmt;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// The text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration: write 30s, 1h30m, 250ms, 40d, PT30S or a number of milliseconds")]
pub struct DurationError;

/// The text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// It could not be read.
    #[error("not a time: write RFC 3339 with a zone (2030-01-31T09:00:00Z) or epoch milliseconds")]
    Unreadable,
    /// It lies before 1970.
    #[error("a time before 1970 is not supported")]
    BeforeEpoch,
}

/// Reads `30s`, `1h30m`, `250ms`, `40d`, `PT30S`, or a plain number of milliseconds.
///
/// # Errors
/// [`DurationError`] for anything else, also for a negative or a too large one.
pub fn parse_duration(text: &str) -> Result<u64, DurationError> {
    let read = match text.as_bytes() {
        [b'P' | b'p', rest @ ..] => iso_duration(rest),
        [.., b'0'..=b'9'] => digits(text.as_bytes()),
        bytes => unit_duration(bytes),
    };
    read.ok_or(DurationError)
}

/// Reads RFC 3339 with a zone, or epoch milliseconds.
///
/// # Errors
/// [`TimeError`] for anything else.
pub fn parse_time(text: &str) -> Result<u64, TimeError> {
    let bytes = text.as_bytes();
    if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) {
        return digits(bytes).ok_or(TimeError::Unreadable);
    }
    let millis = rfc3339(bytes).ok_or(TimeError::Unreadable)?;
    u64::try_from(millis).map_err(|_negative| TimeError::BeforeEpoch)
}

/// Epoch milliseconds, shown as RFC 3339 in UTC with milliseconds; right up to year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc3339(pub u64);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0 / DAY);
        let in_day = self.0 % DAY;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            in_day / HOUR,
            in_day / MINUTE % 60,
            in_day / SECOND % 60,
            in_day % SECOND
        )
    }
}

/// Milliseconds, shown as a duration that [`parse_duration`] reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, name) in [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (1, "ms")] {
            let count = rest / unit;
            rest %= unit;
            if count > 0 {
                write!(f, "{count}{name}")?;
            }
        }
        Ok(())
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Splits leading digits from what follows; there must be at least one.
fn leading(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = bytes.split_at_checked(count)?;
    Some((digits(number)?, rest))
}

/// Numbers with units, each unit at most once, the longest first.
fn unit_duration(mut bytes: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    let mut unit_before = u64::MAX;
    while !bytes.is_empty() {
        let (number, rest) = leading(bytes)?;
        let letters = rest.iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let (name, rest) = rest.split_at_checked(letters)?;
        let unit = match name {
            b"w" => WEEK,
            b"d" => DAY,
            b"h" => HOUR,
            b"m" => MINUTE,
            b"s" => SECOND,
            b"ms" => 1,
            _ => return None,
        };
        if unit >= unit_before {
            return None;
        }
        unit_before = unit;
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        bytes = rest;
    }
    (unit_before != u64::MAX).then_some(sum)
}

/// ISO 8601 behind its `P`. Years and months have no fixed length and are refused.
fn iso_duration(mut bytes: &[u8]) -> Option<u64> {
    let mut sum = 0u64;
    let mut unit_before = u64::MAX;
    let mut in_time = false;
    while !bytes.is_empty() {
        if let [b'T' | b't', rest @ ..] = bytes {
            if in_time || rest.is_empty() {
                return None;
            }
            in_time = true;
            bytes = rest;
        }
        let (number, mut rest) = leading(bytes)?;
        let mut fraction_millis = None;
        if let [b'.' | b',', behind @ ..] = rest {
            let (millis, behind) = fraction(behind)?;
            fraction_millis = Some(millis);
            rest = behind;
        }
        let (&name, rest) = rest.split_first()?;
        let unit = match (in_time, name.to_ascii_uppercase()) {
            (false, b'W') => WEEK,
            (false, b'D') => DAY,
            (true, b'H') => HOUR,
            (true, b'M') => MINUTE,
            (true, b'S') => SECOND,
            _ => return None,
        };
        if unit >= unit_before || (fraction_millis.is_some() && unit != SECOND) {
            return None;
        }
        unit_before = unit;
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        sum = sum.checked_add(fraction_millis.unwrap_or(0))?;
        bytes = rest;
    }
    (unit_before != u64::MAX).then_some(sum)
}

/// The decimals of a second as milliseconds, rounded up, and what follows them.
fn fraction(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (decimals, rest) = bytes.split_at_checked(count)?;
    if decimals.is_empty() {
        return None;
    }
    let mut millis = 0;
    for place in 0..3 {
        millis = millis * 10 + decimals.get(place).map_or(0, |digit| u64::from(digit - b'0'));
    }
    let finer = decimals.iter().skip(3).any(|&digit| digit != b'0');
    Some((millis + u64::from(finer), rest))
}

/// `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)` as milliseconds from the epoch.
fn rfc3339(bytes: &[u8]) -> Option<i64> {
    let (date_time, rest) = bytes.split_at_checked(19)?;
    let &[
        y0,
        y1,
        y2,
        y3,
        b'-',
        mo0,
        mo1,
        b'-',
        d0,
        d1,
        b'T' | b't' | b' ',
        h0,
        h1,
        b':',
        mi0,
        mi1,
        b':',
        s0,
        s1,
    ] = date_time
    else {
        return None;
    };
    let two = |high, low| digits(&[high, low]);
    let year = digits(&[y0, y1, y2, y3])?;
    let (month, day) = (two(mo0, mo1)?, two(d0, d1)?);
    let (hour, minute, second) = (two(h0, h1)?, two(mi0, mi1)?, two(s0, s1)?);
    // A leap second is the same instant as the second after it, here as everywhere in Unix time.
    let legal = (1..=12).contains(&month)
        && (1..=month_days(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && (second < 60 || (second == 60 && minute == 59));
    if !legal {
        return None;
    }
    let (millis, rest) = match rest {
        [b'.', behind @ ..] => fraction(behind)?,
        _ => (0, rest),
    };
    let offset_minutes = match *rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), oh0, oh1, b':', om0, om1] => {
            let (hours, minutes) = (two(oh0, oh1)?, two(om0, om1)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = i64::try_from(hours * 60 + minutes).ok()?;
            if sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let in_day = hour * HOUR + minute * MINUTE + second * SECOND + millis;
    let local = days(year, month, day)?.checked_mul(86_400_000)? + i64::try_from(in_day).ok()?;
    Some(local - offset_minutes * 60_000)
}

fn month_days(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a date of the proleptic Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year and every month
/// before it has the same place in each year.
fn days(year: u64, month: u64, day: u64) -> Option<i64> {
    let (year, month_from_march) =
        if month > 2 { (year + 400, month - 3) } else { (year + 399, month + 9) };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // One era was added above so that the year 0 has a March before it.
    i64::try_from(era * 146_097 + day_of_era).ok().map(|days| days - 146_097 - 719_468)
}

/// The date that lies so many days after the epoch; the inverse of [`days`].
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_in_every_form() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("40d", 40 * DAY),
            ("1w", WEEK),
            ("1500", 1500),
            ("0", 0),
            ("PT30S", 30_000),
            ("P1DT2H", DAY + 2 * HOUR),
            ("P2W", 2 * WEEK),
            ("PT0.5S", 500),
            ("PT0.0001S", 1),
            ("pt1m", MINUTE),
        ] {
            assert_eq!(parse_duration(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            "-5s",
            "-5",
            "+5s",
            "abc",
            "5",
            "1.5h",
            "s",
            "30",
            "5x",
            "5m5m",
            "1s1h",
            "P",
            "PT",
            "P1Y",
            "P1M",
            "P1DT",
            "PT-1S",
            "PT1.5H",
            "99999999999999999999",
            "9999999999999999999w",
            "1 h",
            " 1s",
            "1s ",
            "１s",
            "1e3",
            "0x10",
            "NaN",
        ] {
            let expected = digits(text.as_bytes());
            assert_eq!(parse_duration(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn times_in_every_form() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-15T10:50:13.250Z", 1_794_739_813_250),
            ("2026-11-15T18:50:13+08:00", 1_794_739_813_000),
            ("2026-11-15t02:50:13-08:00", 1_794_739_813_000),
            ("2000-02-29T00:00:00.0001Z", 951_782_400_001),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("1794739813000", 1_794_739_813_000),
        ] {
            assert_eq!(parse_time(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_time() {
        for text in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T10:50:13",
            "2026-13-01T00:00:00Z",
            "-5",
            "2026-02-29T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T10:50:13+24:00",
            "1e12",
            "2026-11-15T10:50:13.Z",
            "2026-11-15T10:50:13Z ",
            "99999999999999999999",
        ] {
            assert_eq!(parse_time(text), Err(TimeError::Unreadable), "{text:?}");
        }
        assert_eq!(parse_time("1969-12-31T23:59:59Z"), Err(TimeError::BeforeEpoch));
        assert_eq!(parse_time("0000-01-01T00:00:00Z"), Err(TimeError::BeforeEpoch));
    }

    proptest! {
        #[test]
        fn a_time_survives_its_text(millis in 0..=253_402_300_799_999u64) {
            let text = Rfc3339(millis).to_string();
            prop_assert_eq!(parse_time(&text), Ok(millis));
            let judge: jiff::Timestamp = text.parse().unwrap();
            prop_assert_eq!(judge.as_millisecond(), i64::try_from(millis).unwrap());
        }

        #[test]
        fn a_duration_survives_its_text(millis in 0..u64::MAX / 2) {
            prop_assert_eq!(parse_duration(&Duration(millis).to_string()), Ok(millis));
        }

        #[test]
        fn hostile_text_never_panics(text in ".{0,40}", more in "[0-9PTWDHMSZpt:.+-]{0,40}") {
            for text in [text, more] {
                let _duration = parse_duration(&text);
                let _time = parse_time(&text);
            }
        }
    }
}
