//! Points in time and spans of time, and the one way each is read from text.
//!
//! Both are whole milliseconds. A [`Timestamp`] lies between the epoch and the end of year 9999,
//! so adding any legal span never overflows. What is written here is read back as the same value,
//! and what cannot be read exactly is refused; only a fraction of a millisecond is rounded, and
//! then to the later one, so that nothing is ever early. Nothing here reads a clock; that is
//! `clock.rs`.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself: earlier than every due time.
    pub const MIN: Self = Self(0);
    /// The last millisecond of year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Where paused messages stand on the timeline: nothing becomes due there.
    pub const PAUSED: Self = Self::MAX;

    /// Where half messages and transactions that nobody decides stand on the timeline.
    pub const PREPARED: Self = Self(Self::MAX.0 - 60_000);

    /// Whether this is a place on the timeline where nothing becomes due.
    #[must_use]
    pub const fn is_parked(self) -> bool {
        self.0 >= Self::PREPARED.0
    }

    /// The point `millis` after the epoch, or `None` past year 9999.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis <= Self::MAX.0 { Some(Self(millis)) } else { None }
    }

    /// The point `millis` after the epoch; anything past year 9999 becomes its last millisecond.
    #[must_use]
    pub const fn from_millis_saturating(millis: u64) -> Self {
        if millis <= Self::MAX.0 { Self(millis) } else { Self::MAX }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This point moved later, or `None` past year 9999.
    #[must_use]
    pub const fn checked_add(self, span: Span) -> Option<Self> {
        match self.0.checked_add(span.0) {
            Some(millis) => Self::from_millis(millis),
            None => None,
        }
    }

    /// This point moved later, stopping at the end of year 9999.
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Self {
        Self::from_millis_saturating(self.0.saturating_add(span.0))
    }

    /// This point moved earlier, stopping at the epoch.
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// How much later this is than `earlier`; nothing when it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// A span of days of 24 hours.
    #[must_use]
    pub const fn from_days(days: u64) -> Self {
        Self(days.saturating_mul(86_400_000))
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0 / 1000).expect("a timestamp is at most year 9999");
        let civil = EPOCH
            .checked_add(SignedDuration::from_secs(seconds))
            .expect("a timestamp is at most year 9999");
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
            self.0 % 1000
        )
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, millis) in UNITS {
            let count = rest / millis;
            rest %= millis;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The units of a span and their milliseconds, in the order in which they are written.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// None of the accepted forms.
    #[error(
        "not a duration; write for example 30s, 1h30m, 250ms, PT30S or a number of milliseconds"
    )]
    Malformed,
    /// It has a minus sign.
    #[error("a duration cannot be negative; leave out the minus sign")]
    Negative,
    /// A letter that is no unit.
    #[error("unknown unit in a duration; use d, h, m, s or ms")]
    UnknownUnit,
    /// A unit twice, or after a smaller one.
    #[error("units of a duration go from large to small, each once; write them as in 1d2h3m4s5ms")]
    UnitOrder,
    /// Years and months differ in length, and weeks are not taken either.
    #[error(
        "a duration takes no years, months or weeks; write the number of days, as in 7d or P7D"
    )]
    Calendar,
    /// A fraction finer than a millisecond.
    #[error("a duration is whole milliseconds; leave out what is finer")]
    TooFine,
    /// It does not fit.
    #[error("the duration is too long; write at most 18446744073709551615 milliseconds")]
    TooLong,
}

impl FromStr for Span {
    type Err = SpanError;

    /// Reads `1h30m`, ISO 8601 `PT1H30M`, or a plain number of milliseconds.
    fn from_str(text: &str) -> Result<Self, SpanError> {
        if text.starts_with('-') {
            return Err(SpanError::Negative);
        }
        if is_digits(text) {
            return number(text).map(Self);
        }
        match text.strip_prefix('P') {
            Some(rest) => iso_span(rest),
            None => compact_span(text),
        }
    }
}

fn compact_span(text: &str) -> Result<Span, SpanError> {
    let mut sum = SpanSum::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, tail) = split_run(rest, |byte| byte.is_ascii_digit());
        let (unit, tail) = split_run(tail, |byte| byte.is_ascii_alphabetic());
        if digits.is_empty() || unit.is_empty() {
            return Err(SpanError::Malformed);
        }
        sum.add(number(digits)?, unit)?;
        rest = tail;
    }
    sum.finish()
}

/// What follows the `P`: days, then after a `T` hours, minutes and seconds.
fn iso_span(text: &str) -> Result<Span, SpanError> {
    let (date, time) = match text.split_once('T') {
        Some((_, "")) => return Err(SpanError::Malformed),
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    let mut sum = SpanSum::default();
    let mut rest = date;
    while !rest.is_empty() {
        let (count, unit, tail) = iso_part(rest)?;
        match unit {
            'D' => sum.add(number(count)?, "d")?,
            'Y' | 'M' | 'W' => return Err(SpanError::Calendar),
            _ => return Err(SpanError::UnknownUnit),
        }
        rest = tail;
    }
    rest = time;
    while !rest.is_empty() {
        let (count, unit, tail) = iso_part(rest)?;
        match unit {
            'H' => sum.add(number(count)?, "h")?,
            'M' => sum.add(number(count)?, "m")?,
            'S' => sum.add_iso_seconds(count)?,
            _ => return Err(SpanError::UnknownUnit),
        }
        rest = tail;
    }
    sum.finish()
}

/// A number, perhaps with a fraction, and the letter behind it.
fn iso_part(text: &str) -> Result<(&str, char, &str), SpanError> {
    let (count, tail) = split_run(text, |byte| byte.is_ascii_digit() || byte == b'.');
    let mut letters = tail.chars();
    match letters.next() {
        Some('-') => Err(SpanError::Negative),
        Some(unit) if !count.is_empty() => Ok((count, unit, letters.as_str())),
        _ => Err(SpanError::Malformed),
    }
}

/// Adds up the parts of a span and holds them to the order of [`UNITS`].
#[derive(Default)]
struct SpanSum {
    millis: Option<u64>,
    units_passed: usize,
}

impl SpanSum {
    fn add(&mut self, count: u64, unit: &str) -> Result<(), SpanError> {
        let index = UNITS.iter().position(|known| known.0 == unit).ok_or(SpanError::UnknownUnit)?;
        if index < self.units_passed {
            return Err(SpanError::UnitOrder);
        }
        self.units_passed = index + 1;
        let part = count.checked_mul(UNITS[index].1).ok_or(SpanError::TooLong)?;
        let sum = self.millis.unwrap_or(0).checked_add(part).ok_or(SpanError::TooLong)?;
        self.millis = Some(sum);
        Ok(())
    }

    fn add_iso_seconds(&mut self, count: &str) -> Result<(), SpanError> {
        let Some((whole, fraction)) = count.split_once('.') else {
            return self.add(number(count)?, "s");
        };
        if !is_digits(whole) || !is_digits(fraction) {
            return Err(SpanError::Malformed);
        }
        let fraction = fraction_millis(fraction);
        if fraction.more_follows {
            return Err(SpanError::TooFine);
        }
        self.add(number(whole)?, "s")?;
        self.add(fraction.millis, "ms")
    }

    fn finish(self) -> Result<Span, SpanError> {
        self.millis.map(Span).ok_or(SpanError::Malformed)
    }
}

fn number(digits: &str) -> Result<u64, SpanError> {
    if !is_digits(digits) {
        return Err(SpanError::Malformed);
    }
    // Only digits are left, so the one thing that can go wrong is the size.
    digits.parse().map_err(|_too_large| SpanError::TooLong)
}

/// Why a text is not a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimestampError {
    /// Neither RFC 3339 nor digits.
    #[error("not a time; write RFC 3339 such as 2026-11-15T10:00:00Z, or epoch milliseconds")]
    Malformed,
    /// No zone, and guessing one would make the message early or late by hours.
    #[error("the time has no zone; add Z or an offset such as +08:00")]
    MissingZone,
    /// A date that no calendar has, or an hour that no day has.
    #[error("no such date or time of day; correct the month, the day, the hour or the offset")]
    NoSuchTime,
    /// Second 60, which epoch milliseconds cannot express.
    #[error("a leap second cannot be expressed in epoch milliseconds; write the second after it")]
    LeapSecond,
    /// Before the epoch or past year 9999.
    #[error("the time is out of range; write one from 1970 to the end of 9999")]
    OutOfRange,
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Reads RFC 3339 with a zone, or epoch milliseconds.
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        if is_digits(text) {
            // Only digits are left, so the one thing that can go wrong is the size.
            let millis = text.parse().map_err(|_too_large| TimestampError::OutOfRange)?;
            return Self::from_millis(millis).ok_or(TimestampError::OutOfRange);
        }
        if text.strip_prefix('-').is_some_and(is_digits) {
            return Err(TimestampError::OutOfRange);
        }
        rfc_3339(text)
    }
}

/// Characters of `2026-11-15T10:00:00`, the part that every RFC 3339 time starts with.
const CIVIL_CHARS: usize = 19;

fn rfc_3339(text: &str) -> Result<Timestamp, TimestampError> {
    let (civil, rest) = text.split_at_checked(CIVIL_CHARS).ok_or(TimestampError::Malformed)?;
    let local_seconds = civil_seconds(civil.as_bytes())?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => match split_run(rest, |byte| byte.is_ascii_digit()) {
            ("", _) => return Err(TimestampError::Malformed),
            (digits, zone) => (fraction_millis(digits), zone),
        },
        None => (Fraction::default(), rest),
    };
    let seconds = local_seconds - offset_seconds(zone)?;
    // Checked before rounding: what lies before the epoch must not be rounded up into it.
    let seconds = u64::try_from(seconds).map_err(|_negative| TimestampError::OutOfRange)?;
    let millis = seconds * 1000 + fraction.millis + u64::from(fraction.more_follows);
    Timestamp::from_millis(millis).ok_or(TimestampError::OutOfRange)
}

/// Seconds from the epoch to a date and time of day, as if it were in UTC.
fn civil_seconds(text: &[u8]) -> Result<i64, TimestampError> {
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => byte.eq_ignore_ascii_case(&b'T'),
        _ => byte == form,
    };
    if !text.iter().zip(b"0000-00-00T00:00:00").all(fits) {
        return Err(TimestampError::Malformed);
    }
    let two = |at: usize| two_digits([text[at], text[at + 1]]);
    if two(17) == 60 {
        return Err(TimestampError::LeapSecond);
    }
    let year = i16::from(two(0)) * 100 + i16::from(two(2));
    let civil = DateTime::new(year, two(5), two(8), two(11), two(14), two(17), 0)
        .map_err(|_not_in_calendar| TimestampError::NoSuchTime)?;
    Ok(civil.duration_since(EPOCH).as_secs())
}

fn offset_seconds(zone: &str) -> Result<i64, TimestampError> {
    let bytes = match zone.as_bytes() {
        [] => return Err(TimestampError::MissingZone),
        [b'Z' | b'z'] => return Ok(0),
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => [sign, h1, h2, m1, m2],
        _ => return Err(TimestampError::Malformed),
    };
    let [sign, h1, h2, m1, m2] = bytes;
    if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
        return Err(TimestampError::Malformed);
    }
    let (hours, minutes) = (two_digits([h1, h2]), two_digits([m1, m2]));
    if hours > 23 || minutes > 59 {
        return Err(TimestampError::NoSuchTime);
    }
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    Ok(if sign == b'-' { -seconds } else { seconds })
}

fn two_digits(digits: [u8; 2]) -> i8 {
    let [tens, ones] = digits.map(|digit| (digit - b'0').cast_signed());
    tens * 10 + ones
}

/// The part of a second behind the decimal point.
#[derive(Default)]
struct Fraction {
    millis: u64,
    more_follows: bool,
}

fn fraction_millis(digits: &str) -> Fraction {
    let (head, tail) = digits.split_at_checked(3).unwrap_or((digits, ""));
    let shown = head.bytes().chain(std::iter::repeat(b'0')).take(3);
    Fraction {
        millis: shown.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
        more_follows: tail.bytes().any(|digit| digit != b'0'),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Splits off the longest front whose bytes, all ASCII, satisfy `belongs`.
fn split_run(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !belongs(byte)).unwrap_or(text.len());
    text.split_at(end)
}
