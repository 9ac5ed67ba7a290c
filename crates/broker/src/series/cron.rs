//! Cron expressions: which times of the wall clock they name.
//!
//! Five fields (minute, hour, day of month, month, day of week), or six with the second first. What
//! a field may hold is in [`Field`]; everything else is refused, also what other readers of cron
//! guess at: empty places in a list, ranges that run backwards, steps without a range and steps
//! longer than the field. Nothing here knows of time zones or clocks.

use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime, Time};

/// Longest expression.
pub const CRON_BYTES_MAX: usize = 256;

/// Every expression that names a time at all names one within this many years: the longest wait is
/// for a 29 February on a certain day of the week, across a century without a leap year.
const YEARS_MAX: i16 = 50;

/// Why a text is not a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It is too long.
    #[error("a cron expression has at most {CRON_BYTES_MAX} bytes")]
    TooLong,
    /// It does not have five or six fields.
    #[error(
        "a cron expression has 5 fields (minute hour day month weekday), or 6 with seconds first"
    )]
    FieldCount,
    /// A field holds something else than it may.
    #[error(
        "the {0} field is not understood; write for example *, 5, 1-5, */15, 10-40/10 or 1,15,30"
    )]
    Malformed(&'static str),
    /// A number is too small or too large for its field.
    #[error("a number in the {field} field is out of range; use {min} to {max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its smallest number.
        min: u8,
        /// Its largest number.
        max: u8,
    },
    /// A range ends before it begins.
    #[error("a range in the {0} field runs backwards; write it as two ranges")]
    Backwards(&'static str),
    /// A step of nothing, or one longer than the field.
    #[error(
        "a step in the {0} field is zero, or longer than the field, which would fire at its first value only"
    )]
    Step(&'static str),
}

/// The times that an expression names, as sets of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    last_day: bool,
    months: u64,
    weekdays: u64,
    /// Of each day of the week, from Sunday on: the first to the fifth of a month as bits 1 to 5, the
    /// last as [`LAST`].
    of_month: [u8; 7],
    /// The field says nothing about the day.
    any_day: bool,
    any_weekday: bool,
}

const LAST: u8 = 6;

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`CronError`] for anything that is none.
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > CRON_BYTES_MAX {
            return Err(CronError::TooLong);
        }
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let [second, minute, hour, day, month, weekday] = match parts[..] {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => {
                [second, minute, hour, day, month, weekday]
            }
            _ => return Err(CronError::FieldCount),
        };
        let anything = |part: &str| matches!(part, "*" | "?");
        let mut pattern = Self {
            seconds: SECOND.numbers(second)?,
            minutes: MINUTE.numbers(minute)?,
            hours: HOUR.numbers(hour)?,
            days: 0,
            last_day: false,
            months: MONTH.numbers(month)?,
            weekdays: 0,
            of_month: [0; 7],
            any_day: anything(day),
            any_weekday: anything(weekday),
        };
        if !pattern.any_day {
            pattern.read_days(day)?;
        }
        if !pattern.any_weekday {
            pattern.read_weekdays(weekday)?;
        }
        Ok(pattern)
    }

    fn read_days(&mut self, text: &str) -> Result<(), CronError> {
        for part in text.split(',') {
            if part.eq_ignore_ascii_case("L") {
                self.last_day = true;
            } else {
                self.days |= DAY.part(part)?;
            }
        }
        Ok(())
    }

    fn read_weekdays(&mut self, text: &str) -> Result<(), CronError> {
        for part in text.split(',') {
            let (name, which) = if let Some((name, which)) = part.split_once('#') {
                let which = number(which).filter(|which| (1..=5).contains(which));
                (name, which.ok_or(CronError::Malformed(WEEKDAY.name))?)
            } else if let Some(name) = part.strip_suffix(['L', 'l']) {
                (name, LAST)
            } else {
                self.weekdays |= WEEKDAY.part(part)?;
                continue;
            };
            let weekday = usize::from(WEEKDAY.value(name)? % 7);
            self.of_month[weekday] |= 1 << which;
        }
        // Sunday is 0 and 7.
        self.weekdays = (self.weekdays | self.weekdays >> 7) & 0x7f;
        Ok(())
    }

    /// The first time after `after` that the expression names; `None` when it names none.
    pub(crate) fn next(&self, after: DateTime) -> Option<DateTime> {
        let from = after.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
        let mut date = from.date();
        if self.names(date)
            && let Some(time) = self.time_from(from.time())
        {
            return Some(date.to_datetime(time));
        }
        let year_max = date.year().saturating_add(YEARS_MAX);
        loop {
            date = if bit(self.months, date.month()) {
                date.tomorrow().ok()?
            } else {
                date.last_of_month().tomorrow().ok()?
            };
            if date.year() > year_max {
                return None;
            }
            if self.names(date) {
                return self.time_from(Time::midnight()).map(|time| date.to_datetime(time));
            }
        }
    }

    /// Whether the expression names this day.
    fn names(&self, date: Date) -> bool {
        if !bit(self.months, date.month()) {
            return false;
        }
        match (self.any_day, self.any_weekday) {
            (true, true) => true,
            (false, true) => self.names_day(date),
            (true, false) => self.names_weekday(date),
            // Cron's old rule: where both say something, either is enough.
            (false, false) => self.names_day(date) || self.names_weekday(date),
        }
    }

    fn names_day(&self, date: Date) -> bool {
        bit(self.days, date.day()) || self.last_day && date.day() == date.days_in_month()
    }

    fn names_weekday(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        let of_month = usize::try_from(weekday).map_or(0, |weekday| self.of_month[weekday]);
        let nth = (date.day() - 1) / 7 + 1;
        let last = date.day() + 7 > date.days_in_month();
        bit(self.weekdays, weekday)
            || bit(u64::from(of_month), nth)
            || last && of_month & (1 << LAST) != 0
    }

    /// The first time of day that the expression names, from `time` on.
    fn time_from(&self, time: Time) -> Option<Time> {
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        if bit(self.hours, hour) {
            if bit(self.minutes, minute)
                && let Some(second) = bit_from(self.seconds, second)
            {
                return Some(Time::constant(hour, minute, second, 0));
            }
            if let Some(minute) = bit_from(self.minutes, minute + 1) {
                return Some(Time::constant(hour, minute, bit_from(self.seconds, 0)?, 0));
            }
        }
        let hour = bit_from(self.hours, hour + 1)?;
        Some(Time::constant(hour, bit_from(self.minutes, 0)?, bit_from(self.seconds, 0)?, 0))
    }
}

fn bit(set: u64, place: i8) -> bool {
    bit_from(set, place) == Some(place)
}

/// The first place from `from` on that is in the set.
fn bit_from(set: u64, from: i8) -> Option<i8> {
    let rest = set.checked_shr(u32::try_from(from).ok()?)?;
    if rest == 0 {
        return None;
    }
    i8::try_from(rest.trailing_zeros()).ok()?.checked_add(from)
}

/// A field: its numbers, and the names some of them have. A list of parts, each `*`, a value or a
/// range `a-b`; `*` and a range may have a step.
struct Field {
    name: &'static str,
    numbers: RangeInclusive<u8>,
    names: &'static [&'static str],
    /// The number of the first name.
    named_from: u8,
}

const SECOND: Field = Field { name: "second", numbers: 0..=59, names: &[], named_from: 0 };
const MINUTE: Field = Field { name: "minute", numbers: 0..=59, names: &[], named_from: 0 };
const HOUR: Field = Field { name: "hour", numbers: 0..=23, names: &[], named_from: 0 };
const DAY: Field = Field { name: "day of month", numbers: 1..=31, names: &[], named_from: 1 };
const MONTH: Field = Field {
    name: "month",
    numbers: 1..=12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    named_from: 1,
};
const WEEKDAY: Field = Field {
    name: "day of week",
    numbers: 0..=7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    named_from: 0,
};

impl Field {
    /// The set of a whole field.
    fn numbers(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, text: &str) -> Result<u64, CronError> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (text, None),
        };
        let (first, last) = if range == "*" {
            (*self.numbers.start(), *self.numbers.end())
        } else if let Some((first, last)) = range.split_once('-') {
            self.range(first, last)?
        } else if step.is_none() {
            let value = self.value(range)?;
            (value, value)
        } else {
            // Some readers take 5/10 for 5-59/10, others for 5: better ask.
            return Err(CronError::Malformed(self.name));
        };
        let step = match step {
            None => 1,
            Some(step) => number(step).ok_or(CronError::Malformed(self.name))?,
        };
        if step == 0 || step > *self.numbers.end() {
            return Err(CronError::Step(self.name));
        }
        Ok((first..=last).step_by(usize::from(step)).fold(0, |set, place| set | 1 << place))
    }

    fn range(&self, first: &str, last: &str) -> Result<(u8, u8), CronError> {
        let begin = self.value(first)?;
        let mut end = self.value(last)?;
        // MON-SUN is a whole week.
        if end == 0 && begin > 0 && self.name == WEEKDAY.name {
            end = 7;
        }
        if end < begin {
            return Err(CronError::Backwards(self.name));
        }
        Ok((begin, end))
    }

    /// A number or a name.
    fn value(&self, text: &str) -> Result<u8, CronError> {
        let named = (self.named_from..).zip(self.names);
        for (number, name) in named {
            if text.eq_ignore_ascii_case(name) {
                return Ok(number);
            }
        }
        let number = number(text).ok_or(CronError::Malformed(self.name))?;
        if self.numbers.contains(&number) {
            return Ok(number);
        }
        let (min, max) = (*self.numbers.start(), *self.numbers.end());
        Err(CronError::OutOfRange { field: self.name, min, max })
    }
}

/// Digits, at most three, and not more than a byte holds.
fn number(text: &str) -> Option<u8> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { Some(text.parse().unwrap_or(u8::MAX)) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The next times after a start, as text.
    fn next(text: &str, after: &str, count: usize) -> Vec<String> {
        let pattern = Pattern::parse(text).unwrap();
        let first = pattern.next(after.parse().unwrap());
        let times = std::iter::successors(first, |time| pattern.next(*time)).take(count);
        times.map(|time| time.strftime("%m-%d %H:%M:%S").to_string()).collect()
    }

    fn days(text: &str) -> Vec<String> {
        let times = next(&format!("0 0 {text}"), "2026-01-01T00:00:00", 4);
        times.into_iter().map(|time| time[..5].to_owned()).collect()
    }

    #[test]
    fn times_of_day_follow_each_other() {
        let start = "2026-03-01T10:59:58";
        assert_eq!(next("* * * * * *", start, 2), ["03-01 10:59:59", "03-01 11:00:00"]);
        assert_eq!(next("* * * * *", start, 2), ["03-01 11:00:00", "03-01 11:01:00"]);
        assert_eq!(next("*/20 9-17 * * *", start, 2), ["03-01 11:00:00", "03-01 11:20:00"]);
        let evening = next("30 5 22-23 * * *", start, 3);
        assert_eq!(evening, ["03-01 22:05:30", "03-01 23:05:30", "03-02 22:05:30"]);
        let steps = next("10-40/15,59 11 * * *", start, 4);
        assert_eq!(steps, ["03-01 11:10:00", "03-01 11:25:00", "03-01 11:40:00", "03-01 11:59:00"]);
    }

    #[test]
    fn a_time_is_strictly_after() {
        assert_eq!(next("0 9 * * *", "2026-03-01T09:00:00", 1), ["03-02 09:00:00"]);
        assert_eq!(next("0 9 * * *", "2026-03-01T08:59:59", 1), ["03-01 09:00:00"]);
        assert_eq!(next("0 0 1 1 *", "2026-12-31T23:59:59", 1), ["01-01 00:00:00"]);
    }

    #[test]
    fn days_are_named_by_number_name_and_place() {
        assert_eq!(days("* * MON"), ["01-05", "01-12", "01-19", "01-26"]);
        assert_eq!(days("* * mon-fri"), ["01-02", "01-05", "01-06", "01-07"]);
        assert_eq!(days("* * 5-7"), ["01-02", "01-03", "01-04", "01-09"]);
        assert_eq!(days("* * SAT-SUN"), ["01-03", "01-04", "01-10", "01-11"]);
        assert_eq!(days("* * 0"), days("* * 7"));
        assert_eq!(days("* * MON-SUN"), days("* * *"));
        assert_eq!(days("L * *"), ["01-31", "02-28", "03-31", "04-30"]);
        assert_eq!(days("1,L FEB-APR *"), ["02-01", "02-28", "03-01", "03-31"]);
        assert_eq!(days("* * FRI#2"), ["01-09", "02-13", "03-13", "04-10"]);
        assert_eq!(days("* * 7L"), ["01-25", "02-22", "03-29", "04-26"]);
        assert_eq!(days("* * 0L"), days("* * SUNL"));
        assert_eq!(days("? 6,7 ?"), ["06-01", "06-02", "06-03", "06-04"]);
        assert_eq!(days("*/10 * *"), ["01-11", "01-21", "01-31", "02-01"]);
    }

    #[test]
    fn where_both_day_fields_say_something_either_is_enough() {
        assert_eq!(days("13 * FRI"), ["01-02", "01-09", "01-13", "01-16"]);
        assert_eq!(days("*/15 * MON"), ["01-05", "01-12", "01-16", "01-19"]);
        assert_eq!(days("31 * MON#1"), ["01-05", "01-31", "02-02", "03-02"]);
    }

    #[test]
    fn rare_days_are_found_and_impossible_ones_are_not() {
        let next = |text: &str, after: &str| {
            Pattern::parse(text).unwrap().next(after.parse().unwrap()).map(|time| time.date())
        };
        let date = |year, month, day| Some(Date::constant(year, month, day));
        assert_eq!(next("0 0 29 2 *", "2096-02-29T12:00"), date(2104, 2, 29));
        // Five Mondays in a February: across 2100 forty years apart.
        assert_eq!(next("0 0 * 2 MON#5", "2072-02-29T12:00"), date(2112, 2, 29));
        assert_eq!(next("0 0 30 2 *", "2026-01-01T00:00"), None);
        assert_eq!(next("0 0 31 4,6,9,11 *", "2026-01-01T00:00"), None);
        assert_eq!(next("0 0 * * *", "9999-12-31T12:00"), None);
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let refused = |text: &str| Pattern::parse(text).unwrap_err();
        for text in ["", "   ", "*", "* * * *", "* * * * * * *", "@daily"] {
            assert_eq!(refused(text), CronError::FieldCount, "{text:?}");
        }
        for part in [
            "", ",", "1,", "1,,2", "a", "-1", "1-", "1-2-3", "*/", "5/10", "/5", "**", "1 -2", "+1",
        ] {
            let error = refused(&format!("{part}, * * * *"));
            assert_eq!(error, CronError::Malformed("minute"), "{part:?}");
        }
        for part in ["?", "L", "5L", "MON", "1#1", "٣", "0x1", "1.5", "0001"] {
            assert_eq!(refused(&format!("{part} * * * *")), CronError::Malformed("minute"));
        }
        for part in ["MON#0", "MON#6", "MON#", "#1", "MON-FRI#1", "LL", "FRIDAY", "15W", "JAN"] {
            let error = refused(&format!("* * * * {part}"));
            assert_eq!(error, CronError::Malformed("day of week"), "{part:?}");
        }
        let range = |field, min, max| CronError::OutOfRange { field, min, max };
        assert_eq!(refused("60 * * * *"), range("minute", 0, 59));
        assert_eq!(refused("0 24 * * *"), range("hour", 0, 23));
        assert_eq!(refused("0 0 0 * *"), range("day of month", 1, 31));
        assert_eq!(refused("0 0 * 1-13 *"), range("month", 1, 12));
        assert_eq!(refused("0 0 * * 8"), range("day of week", 0, 7));
        assert_eq!(refused("999 * * * * *"), range("second", 0, 59));
        assert_eq!(refused("0 22-4 * * *"), CronError::Backwards("hour"));
        assert_eq!(refused("0 0 * * FRI-MON"), CronError::Backwards("day of week"));
        assert_eq!(refused("*/0 * * * *"), CronError::Step("minute"));
        assert_eq!(refused("*/90 * * * *"), CronError::Step("minute"));
        assert_eq!(refused(&"1,".repeat(200)), CronError::TooLong);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in ".{0,80}", fields in "[-*/0-9,L#?A-Z ]{0,40}") {
            for text in [text, fields] {
                if let Ok(pattern) = Pattern::parse(&text) {
                    let start = DateTime::constant(2026, 1, 1, 0, 0, 0, 0);
                    let next = pattern.next(start);
                    prop_assert!(next.is_none_or(|next| next > start));
                }
            }
        }
    }
}
