//! When a series comes round: an interval, or a cron expression in a time zone.
//!
//! A rule names instants, each once and in order. An interval is counted from the first time, so it
//! never drifts. A cron expression names times of the wall clock of its zone; where clocks are put
//! forward or back, these rules make instants of them:
//!
//! - a time that the clocks skip is the first instant after the gap; several that fall into one gap
//!   are that one instant;
//! - a time that the clocks show twice is the first of the two.

use std::fmt;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use punctual_model::limits::REPEAT_EVERY_MIN;
use punctual_model::{Span, Timestamp};

use super::cron::{CronError, Pattern};

/// The zone of a cron expression that names none.
pub const ZONE_DEFAULT: &str = "UTC";

/// Longest name of a time zone; the longest in use has 32.
const ZONE_BYTES_MAX: usize = 64;

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The interval is too short.
    #[error("the interval is shorter than {REPEAT_EVERY_MIN}")]
    IntervalTooShort,
    /// The cron expression is none.
    #[error(transparent)]
    InvalidCron(#[from] CronError),
    /// No such time zone.
    #[error("no such time zone; use a name such as Europe/Berlin or UTC")]
    UnknownZone,
    /// The expression names no time, such as 30 February.
    #[error("the cron expression names a day that no year has, so it would never fire")]
    CronNeverFires,
}

/// When a series comes round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// After each interval.
    Every(Every),
    /// At the times a cron expression names.
    Cron(Cron),
}

impl Rule {
    /// An interval.
    ///
    /// # Errors
    /// [`RuleError::IntervalTooShort`].
    pub fn every(interval: Span) -> Result<Self, RuleError> {
        Every::new(interval).map(Self::Every)
    }

    /// A cron expression, in UTC or in a zone.
    ///
    /// # Errors
    /// [`RuleError`], but for `IntervalTooShort`.
    pub fn cron(text: &str, zone: Option<&str>) -> Result<Self, RuleError> {
        Cron::new(text, zone.unwrap_or(ZONE_DEFAULT)).map(Self::Cron)
    }

    /// The first time of a series that begins at `start` and names no time itself. `None` past the
    /// end of time.
    #[must_use]
    pub fn first(&self, start: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(every) => start.checked_add(every.0),
            Self::Cron(cron) => cron.next(start),
        }
        .filter(|time| !time.is_parked())
    }

    /// The next time after `after` of a series whose first time was `first`. `None` when there is
    /// none any more.
    #[must_use]
    pub fn next(&self, first: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(every) => every.next(first, after),
            Self::Cron(cron) => cron.next(after),
        }
        .filter(|time| !time.is_parked())
    }
}

/// The rule in one form, whatever form it was given in.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(every) => write!(f, "every {}", every.0),
            Self::Cron(cron) => write!(f, "cron {} in {}", cron.text, cron.zone()),
        }
    }
}

/// A fixed interval, of a second at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(Span);

impl Every {
    /// The interval, if it is not too short.
    ///
    /// # Errors
    /// [`RuleError::IntervalTooShort`].
    pub fn new(interval: Span) -> Result<Self, RuleError> {
        if interval < REPEAT_EVERY_MIN {
            return Err(RuleError::IntervalTooShort);
        }
        Ok(Self(interval))
    }

    /// The interval.
    #[must_use]
    pub const fn interval(self) -> Span {
        self.0
    }

    fn next(self, first: Timestamp, after: Timestamp) -> Option<Timestamp> {
        if after < first {
            return Some(first);
        }
        let passed = after.since(first).as_millis();
        let interval = self.0.as_millis();
        let steps = (passed / interval).checked_add(1)?;
        first.checked_add(Span::from_millis(steps.checked_mul(interval)?))
    }
}

/// A cron expression and the zone whose clocks it means.
#[derive(Clone)]
pub struct Cron {
    text: Arc<str>,
    zone: TimeZone,
    pattern: Pattern,
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`RuleError`], but for `IntervalTooShort`.
    pub fn new(text: &str, zone: &str) -> Result<Self, RuleError> {
        let pattern = Pattern::parse(text)?;
        let zone = find_zone(zone).ok_or(RuleError::UnknownZone)?;
        // Any start does: the calendar repeats, and what is rare is found from everywhere.
        if pattern.next(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(RuleError::CronNeverFires);
        }
        Ok(Self { text: text.into(), zone, pattern })
    }

    /// The expression as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or(ZONE_DEFAULT)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let seconds = i64::try_from(after.as_millis() / 1000).ok()?;
        let mut wall = self.zone.to_datetime(jiff::Timestamp::from_second(seconds).ok()?);
        // While clocks show an hour for the second time, its times have passed already; that is the
        // only reason to go round again, and it ends with the hour.
        loop {
            wall = self.pattern.next(wall)?;
            let time = instant(&self.zone, wall)?;
            if time > after {
                return Some(time);
            }
        }
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone() == other.zone()
    }
}

impl Eq for Cron {}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cron").field("text", &self.text).field("zone", &self.zone()).finish()
    }
}

fn find_zone(name: &str) -> Option<TimeZone> {
    if name.len() > ZONE_BYTES_MAX {
        return None;
    }
    let zone = TimeZone::get(name).ok()?;
    // Without a name it could not be stored.
    (!zone.is_unknown() && zone.iana_name().is_some()).then_some(zone)
}

/// The instant at which the clocks of a zone show `wall`, by the rules above.
fn instant(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    let time = match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(wall).ok()?
        }
        AmbiguousOffset::Gap { before, .. } => {
            // Read on the old clock the time lies behind the moment at which the clocks were put
            // forward, and no other change comes between.
            let behind = before.to_timestamp(wall).ok()?;
            let after = behind.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
            zone.preceding(after).next()?.timestamp()
        }
    };
    Timestamp::from_millis(u64::try_from(time.as_millisecond()).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The times of an expression in a zone after a start.
    fn times(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let rule = Rule::cron(text, Some(zone)).unwrap();
        let after = time(after);
        let times = std::iter::successors(rule.next(after, after), |last| rule.next(after, *last));
        times.take(count).map(|time| time.to_string()[..16].replace('T', " ")).collect()
    }

    #[test]
    fn an_interval_is_counted_from_the_first_time() {
        let rule = Rule::every(Span::from_secs(7)).unwrap();
        let start = time("2026-01-01T00:00:00.123Z");
        assert_eq!(rule.first(start), Some(time("2026-01-01T00:00:07.123Z")));
        assert_eq!(rule.next(start, start), Some(time("2026-01-01T00:00:07.123Z")));
        assert_eq!(rule.next(start, time("2026-01-01T00:00:07.122Z")), rule.first(start));
        let late = time("2026-01-01T00:00:07.124Z");
        assert_eq!(rule.next(start, late), Some(time("2026-01-01T00:00:14.123Z")));
        assert_eq!(rule.next(start, time("2025-01-01T00:00:00Z")), Some(start));
    }

    #[test]
    fn an_interval_has_an_end_and_a_shortest() {
        assert_eq!(Rule::every(Span::from_millis(999)), Err(RuleError::IntervalTooShort));
        let long = Rule::every(Span::from_millis(u64::MAX)).unwrap();
        assert_eq!(long.first(Timestamp::MIN), None);
        let rule = Rule::every(Span::from_secs(1)).unwrap();
        assert_eq!(rule.next(Timestamp::MIN, Timestamp::PREPARED), None);
        assert_eq!(rule.first(Timestamp::MAX), None);
    }

    #[test]
    fn a_skipped_time_is_the_first_instant_after_the_gap() {
        // Clocks go from 02:00 to 03:00 on 8 March, which is 07:00 in UTC.
        let new_york = |text, count| times(text, "America/New_York", "2026-03-07T12:00:00Z", count);
        assert_eq!(new_york("30 2 * * *", 2), ["2026-03-08 07:00", "2026-03-09 06:30"]);
        assert_eq!(new_york("0 2 * * *", 2), ["2026-03-08 07:00", "2026-03-09 06:00"]);
        assert_eq!(new_york("59 2 * * *", 1), ["2026-03-08 07:00"]);
        assert_eq!(new_york("0 3 * * *", 1), ["2026-03-08 07:00"]);
        assert_eq!(new_york("0,10,50 2 * * *", 2), ["2026-03-08 07:00", "2026-03-09 06:00"]);
        let both = new_york("30 2,3 * * *", 3);
        assert_eq!(both, ["2026-03-08 07:00", "2026-03-08 07:30", "2026-03-09 06:30"]);
        let often = times("*/30 * * * *", "America/New_York", "2026-03-08T06:00:00Z", 4);
        let expected =
            ["2026-03-08 06:30", "2026-03-08 07:00", "2026-03-08 07:30", "2026-03-08 08:00"];
        assert_eq!(often, expected);
    }

    #[test]
    fn a_time_shown_twice_is_the_first_of_the_two() {
        // Clocks go from 02:00 back to 01:00 on 1 November, which is 06:00 in UTC.
        let new_york =
            |text, after, count| times(text, "America/New_York", &format!("2026-{after}Z"), count);
        let daily = new_york("30 1 * * *", "11-01T00:00:00", 2);
        assert_eq!(daily, ["2026-11-01 05:30", "2026-11-02 06:30"]);
        let often = new_york("*/30 * * * *", "11-01T04:45:00", 4);
        let expected =
            ["2026-11-01 05:00", "2026-11-01 05:30", "2026-11-01 07:00", "2026-11-01 07:30"];
        assert_eq!(often, expected);
        // Asked in the hour that repeats.
        assert_eq!(new_york("* * * * * *", "11-01T06:20:00", 1), ["2026-11-01 07:00"]);
    }

    #[test]
    fn odd_zones_follow_the_same_rules() {
        // Lord Howe moves by half an hour: at 02:00 to 02:30, and at 02:00 back to 01:30.
        let lord_howe = |after, text| times(text, "Australia/Lord_Howe", after, 2);
        let gap = lord_howe("2026-10-03T12:00:00Z", "15 2 * * *");
        assert_eq!(gap, ["2026-10-03 15:30", "2026-10-04 15:15"]);
        let fold = lord_howe("2026-04-04T12:00:00Z", "45 1 * * *");
        assert_eq!(fold, ["2026-04-04 14:45", "2026-04-05 15:15"]);
        // Samoa left out 30 December 2011.
        let apia = times("0 12 30 12 *", "Pacific/Apia", "2011-12-29T00:00:00Z", 2);
        assert_eq!(apia, ["2011-12-30 10:00", "2012-12-29 22:00"]);
        let shanghai = times("0 9 * * 1-5", "Asia/Shanghai", "2026-11-14T00:00:00Z", 1);
        assert_eq!(shanghai, ["2026-11-16 01:00"]);
    }

    #[test]
    fn zones_are_known_by_their_names_only() {
        let zone = |name: &str| match Rule::cron("0 0 * * *", Some(name)) {
            Ok(Rule::Cron(cron)) => Ok(cron.zone().to_owned()),
            Ok(Rule::Every(_)) => panic!("this is no interval"),
            Err(error) => Err(error),
        };
        assert_eq!(zone("Europe/Berlin").unwrap(), "Europe/Berlin");
        assert_eq!(zone("europe/berlin").unwrap(), "Europe/Berlin");
        assert_eq!(zone("UTC").unwrap(), "UTC");
        let long = "Europe/".repeat(20);
        for name in
            ["", "Mars/Phobos", "+08:00", "EST5EDT4,M3", "Etc/Unknown", "../passwd", "/etc", &long]
        {
            assert_eq!(zone(name), Err(RuleError::UnknownZone), "{name:?}");
        }
        let Ok(Rule::Cron(cron)) = Rule::cron("0 0 * * *", None) else { panic!("a cron rule") };
        assert_eq!(cron.zone(), "UTC");
    }

    #[test]
    fn what_never_fires_is_refused() {
        assert_eq!(Rule::cron("0 0 30 2 *", None), Err(RuleError::CronNeverFires));
        assert_eq!(Rule::cron("0 0 31 6 *", None), Err(RuleError::CronNeverFires));
        assert!(Rule::cron("0 0 29 2 *", None).is_ok());
        assert!(Rule::cron("0 0 * 2 MON#5", None).is_ok());
        assert!(matches!(Rule::cron("x", None), Err(RuleError::InvalidCron(_))));
    }

    #[test]
    fn a_rule_has_one_text() {
        let every = Rule::every(Span::from_millis(5_400_000)).unwrap();
        assert_eq!(every.to_string(), "every 1h30m");
        let cron = Rule::cron("0 9 * * 1-5", Some("asia/shanghai")).unwrap();
        assert_eq!(cron.to_string(), "cron 0 9 * * 1-5 in Asia/Shanghai");
    }

    const ZONES: [&str; 6] = [
        "UTC",
        "America/New_York",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Pacific/Chatham",
    ];

    proptest! {
        #[test]
        fn times_are_later_and_none_lies_between(
            zone in 0..ZONES.len(),
            millis in 1_600_000_000_000u64..2_200_000_000_000,
            text in "(\\*|\\*/[1-9]|[1-5]?[0-9]) (\\*|[0-3]|\\*/[2-9]) (\\*|[1-9]) \\* (\\*|[0-7])",
        ) {
            let rule = Rule::cron(&text, Some(ZONES[zone])).unwrap();
            let after = Timestamp::from_millis(millis).unwrap();
            let next = rule.next(after, after).unwrap();
            prop_assert!(next > after);
            prop_assert_eq!(next.as_millis() % 1000, 0);
            let half = Timestamp::from_millis(u64::midpoint(millis, next.as_millis())).unwrap();
            for between in [half, Timestamp::from_millis(next.as_millis() - 1).unwrap()] {
                prop_assert_eq!(rule.next(after, between), Some(next));
            }
        }

        #[test]
        fn an_interval_never_drifts(
            first in 0u64..2_000_000_000_000,
            interval in 1000u64..10_000_000_000,
            passed in 0u64..1_000_000_000_000,
        ) {
            let rule = Rule::every(Span::from_millis(interval)).unwrap();
            let first = Timestamp::from_millis(first).unwrap();
            let after = first.saturating_add(Span::from_millis(passed));
            let next = rule.next(first, after).unwrap();
            prop_assert!(next > after && next.since(after).as_millis() <= interval);
            prop_assert_eq!(next.since(first).as_millis() % interval, 0);
        }
    }
}
