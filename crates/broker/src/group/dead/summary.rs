//! How many letters died when, and of what.
//!
//! The list is walked backwards, so that the newest are counted even where there are more than one look
//! may read. What was not looked at is told as such, never guessed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use punctual_model::Timestamp;
use punctual_model::ports::GroupError;

use super::{DeadFilter, DeadList, Scan, refusal};
use crate::group::{Consumer, Reason};

/// Letters that one look counts at most.
const LOOK_LETTERS_MAX: u64 = 20_000;
/// Bytes of letters that one look reads at most, about.
const LOOK_BYTES_MAX: usize = 64 << 20;
/// Stretches that one look is made of at most: where most letters have left the list there is little in
/// each.
const STRETCHES_MAX: usize = 500;
/// Offsets of a stretch.
const STRETCH: u64 = 1000;
/// Most counts that are told.
const COUNTS_MAX: usize = 100;
const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// How many letters died when, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadSummary {
    /// All letters on the list.
    pub total: u64,
    /// Counts, newest day first.
    pub days: Vec<DeadDay>,
    /// Whether everything on the list was counted, and every count is told.
    pub complete: bool,
}

/// How many letters died on a day of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadDay {
    /// The start of the day, in UTC.
    pub start: Timestamp,
    /// Why they are dead.
    pub reason: Option<Reason>,
    /// How many.
    pub count: u64,
}

/// Counts by day, newest first, and by reason.
#[derive(Debug, Default)]
struct Tally {
    counts: BTreeMap<(Reverse<u64>, Option<Reason>), u64>,
    letters: u64,
    bytes: usize,
}

impl Tally {
    fn is_enough(&self) -> bool {
        self.letters >= LOOK_LETTERS_MAX
            || self.bytes >= LOOK_BYTES_MAX
            || self.counts.len() > COUNTS_MAX
    }

    fn add(&mut self, died_at: Timestamp, reason: Option<Reason>, bytes: usize) {
        let day = Reverse(died_at.as_millis() / DAY_MILLIS);
        *self.counts.entry((day, reason)).or_default() += 1;
        self.letters += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn days(&self) -> Vec<DeadDay> {
        let told = self.counts.iter().take(COUNTS_MAX);
        let day = |(&(Reverse(day), reason), &count): (&(Reverse<u64>, Option<Reason>), &u64)| {
            let start = Timestamp::from_millis_saturating(day * DAY_MILLIS);
            DeadDay { start, reason, count }
        };
        told.map(day).collect()
    }
}

impl Consumer {
    /// How many letters died when, and of what. Blocks.
    ///
    /// # Errors
    /// As [`dead`](Self::dead).
    pub fn summarize_dead(&self) -> Result<DeadSummary, GroupError> {
        self.dead_list().summary()
    }
}

impl DeadList {
    fn summary(&self) -> Result<DeadSummary, GroupError> {
        let standing = self.groups.standing(self.group.id, false).map_err(refusal)?;
        let standing = standing.into_iter().find(|standing| standing.source == self.source());
        let Some(standing) = standing else {
            return Ok(DeadSummary { complete: true, ..DeadSummary::default() });
        };
        let (first, mut end) = (standing.start.max(standing.cursor), standing.end);
        let mut tally = Tally::default();
        for _ in 0..STRETCHES_MAX {
            if end <= first || tally.is_enough() {
                break;
            }
            let from = first.max(end.saturating_sub(STRETCH));
            self.tally(from, end, &mut tally)?;
            end = from;
        }
        Ok(DeadSummary {
            total: standing.lag(),
            complete: end <= first && tally.counts.len() <= COUNTS_MAX,
            days: tally.days(),
        })
    }

    /// Counts the letters of a stretch.
    fn tally(&self, from: u64, end: u64, tally: &mut Tally) -> Result<(), GroupError> {
        let (filter, page) = (DeadFilter::default(), Vec::new().into_iter());
        let mut scan =
            Scan { list: self, filter: &filter, position: from, end, page, records_read: 0 };
        while let Some((_, letter)) = scan.next()? {
            if let Some(letter) = letter {
                tally.add(letter.died_at, letter.history.reason, letter.message.weight());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u64, hour: u64) -> Timestamp {
        Timestamp::from_millis(day * DAY_MILLIS + hour * 3_600_000).unwrap()
    }

    #[test]
    fn counts_are_told_by_day_and_reason_newest_first() {
        let mut tally = Tally::default();
        tally.add(at(3, 0), Some(Reason::Expired), 10);
        tally.add(at(2, 23), Some(Reason::Rejected), 10);
        tally.add(at(3, 23), Some(Reason::Expired), 10);
        tally.add(at(3, 1), Some(Reason::Rejected), 10);
        let day = |day, reason, count| DeadDay { start: at(day, 0), reason: Some(reason), count };
        let expected =
            [day(3, Reason::Rejected, 1), day(3, Reason::Expired, 2), day(2, Reason::Rejected, 1)];
        assert_eq!(tally.days(), expected);
        assert!(!tally.is_enough());
        tally.add(at(1, 0), None, LOOK_BYTES_MAX);
        assert!(tally.is_enough());
    }

    #[test]
    fn no_more_counts_are_told_than_a_hundred() {
        let mut tally = Tally::default();
        for day in 0..150 {
            tally.add(at(day, 5), Some(Reason::Overflow), 1);
        }
        assert!(tally.is_enough());
        let days = tally.days();
        assert_eq!((days.len(), days[0].start, days[99].start), (100, at(149, 0), at(50, 0)));
    }
}
