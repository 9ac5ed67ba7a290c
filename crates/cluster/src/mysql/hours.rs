//! In which hours of which slots a topic may have something: what tells a listing where to look.
//!
//! An entry becomes visible with the row of its hour or after it, never before. Such a row is
//! written once, and remembered here as long as it is certain to be there: until hours of the slot
//! are forgotten, which the slot's own row tells, or another server may have taken the place of
//! ours, which takes a new connection.

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;
use punctual_model::{Key, Lane, Timestamp, TopicId};

use super::row::lane_number;
use super::script::{Script, put};
use super::slots::Terms;
use crate::store::Slot;

/// Milliseconds of an hour.
pub(super) const HOUR_MS: u64 = 3_600_000;

/// Hours that are remembered at most, some 30 bytes each.
const REMEMBERED_MAX: usize = 500_000;

/// The hour of a time, since the epoch.
pub(super) const fn hour_of(time: Timestamp) -> u64 {
    time.as_millis() / HOUR_MS
}

/// A row of the table, in the order of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    topic: TopicId,
    lane: u8,
    hour: u64,
    slot: Slot,
}

/// The rows that are known to be there.
#[derive(Debug, Default)]
pub(super) struct Hours(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Grows when everything is forgotten.
    epoch: u64,
    places: usize,
    slots: HashMap<Slot, Remembered>,
}

/// What is known of one slot, as long as its hours were forgotten so often.
#[derive(Debug, Default)]
struct Remembered {
    swept: u64,
    places: HashSet<(TopicId, u8, u64)>,
}

/// Rows to be written, and what was thought when the others were left out.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    epoch: u64,
    missing: BTreeSet<Place>,
    thought: HashMap<Slot, u64>,
}

impl Wanted {
    /// Writes them, in the order of their keys, so that nobody waits in a circle.
    pub(super) fn write(&self, script: &mut Script) {
        let rows: Vec<_> = self.missing.iter().collect();
        script.rows(
            (
                "INSERT INTO punctual_hours (topic, lane, hour, slot) VALUES",
                " ON DUPLICATE KEY UPDATE slot = VALUES(slot)",
            ),
            &rows,
            |_row| 0,
            |out, Place { topic, lane, hour, slot }| {
                put(out, format_args!("{},{lane},{hour},{}", topic.get(), slot.0));
            },
        );
    }
}

impl Hours {
    /// Which rows have to be written for these entries.
    pub(super) fn wanted(&self, entries: impl Iterator<Item = (Key, TopicId)>) -> Wanted {
        let known = self.0.lock();
        let mut wanted = Wanted { epoch: known.epoch, ..Wanted::default() };
        for (key, topic) in entries {
            let (slot, hour) = (Slot::of(key.sequence), hour_of(key.due));
            let lane = lane_number(key.sequence.lane());
            match known.slots.get(&slot) {
                Some(remembered) if remembered.places.contains(&(topic, lane, hour)) => {
                    wanted.thought.insert(slot, remembered.swept);
                }
                _ => {
                    wanted.missing.insert(Place { topic, lane, hour, slot });
                }
            }
        }
        wanted
    }

    /// Whether what was left out is there, told by what was read under the lock of the slots. What
    /// turns out to be wrong is forgotten.
    pub(super) fn are_as_thought(&self, wanted: &Wanted, terms: &Terms) -> bool {
        let wrong = |(slot, swept): &(&Slot, &u64)| terms.swept(**slot) != Some(**swept);
        let wrong: Vec<Slot> = wanted.thought.iter().filter(wrong).map(|(slot, _)| *slot).collect();
        let mut known = self.0.lock();
        for slot in &wrong {
            known.forget(*slot);
        }
        wrong.is_empty() && (wanted.thought.is_empty() || known.epoch == wanted.epoch)
    }

    /// Remembers what has been committed.
    pub(super) fn remember(&self, wanted: Wanted, terms: &Terms) {
        let mut known = self.0.lock();
        if known.epoch != wanted.epoch {
            return;
        }
        if known.places + wanted.missing.len() > REMEMBERED_MAX {
            known.forget_all();
        }
        for Place { topic, lane, hour, slot } in wanted.missing {
            let Some(swept) = terms.swept(slot) else { continue };
            if known.slots.get(&slot).is_some_and(|remembered| remembered.swept < swept) {
                known.forget(slot);
            }
            let new = Remembered { swept, places: HashSet::new() };
            let remembered = known.slots.entry(slot).or_insert(new);
            let is_new = remembered.swept == swept && remembered.places.insert((topic, lane, hour));
            known.places += usize::from(is_new);
        }
    }

    /// Forgets everything: whatever is on the other side may be another server.
    pub(super) fn forget_all(&self) {
        self.0.lock().forget_all();
    }
}

impl Known {
    fn forget(&mut self, slot: Slot) {
        let gone = self.slots.remove(&slot);
        self.places -= gone.map_or(0, |gone| gone.places.len());
    }

    fn forget_all(&mut self) {
        *self = Self { epoch: self.epoch + 1, ..Self::default() };
    }
}

/// The hours of a lane in a slot that are before that time.
pub(super) fn old_hours_statement(
    slot: Slot,
    lane: Lane,
    before: Timestamp,
    limit: usize,
) -> String {
    let (slot, lane, hour) = (slot.0, lane_number(lane), hour_of(before));
    format!(
        "SELECT topic, lane, hour FROM punctual_hours FORCE INDEX (old) \
         WHERE slot = {slot} AND lane = {lane} AND hour < {hour} LIMIT {limit}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(slot: u16, hour: u64) -> (Key, TopicId) {
        let due = Timestamp::from_millis(hour * HOUR_MS).unwrap();
        let key = Key { due, sequence: Slot(slot).sequence(Lane::Message, 1) };
        (key, TopicId::new(1).unwrap())
    }

    /// Writes what is missing of these, in slots that were swept so often.
    fn write(hours: &Hours, entries: &[(Key, TopicId)], swept: u64) -> usize {
        let wanted = hours.wanted(entries.iter().copied());
        let terms = Terms::of(entries.iter().map(|(key, _)| Slot::of(key.sequence)), swept);
        assert!(hours.are_as_thought(&wanted, &terms));
        let missing = wanted.missing.len();
        hours.remember(wanted, &terms);
        missing
    }

    #[test]
    fn an_hour_is_written_once() {
        let hours = Hours::default();
        let all = [entry(1, 5), entry(1, 6), entry(2, 5), entry(1, 5)];
        assert_eq!(write(&hours, &all, 0), 3);
        assert_eq!(write(&hours, &all, 0), 0);
        assert_eq!(write(&hours, &[entry(2, 6), entry(2, 5)], 0), 1);
    }

    #[test]
    fn a_swept_slot_is_written_again() {
        let hours = Hours::default();
        write(&hours, &[entry(1, 5), entry(2, 5)], 0);
        let wanted = hours.wanted([entry(1, 5)].into_iter());
        let swept = Terms::of([Slot(1)].into_iter(), 1);
        assert!(!hours.are_as_thought(&wanted, &swept), "it counted on what is gone");
        assert_eq!(write(&hours, &[entry(1, 5)], 1), 1);
        assert_eq!(write(&hours, &[entry(2, 5)], 0), 0, "another slot's are there");
    }

    #[test]
    fn a_new_server_is_told_everything() {
        let hours = Hours::default();
        write(&hours, &[entry(1, 5)], 0);
        let counted_on = hours.wanted([entry(1, 5)].into_iter());
        let written_before = hours.wanted([entry(1, 6)].into_iter());
        hours.forget_all();
        let terms = Terms::of([Slot(1)].into_iter(), 0);
        assert!(!hours.are_as_thought(&counted_on, &terms));
        hours.remember(written_before, &terms);
        assert_eq!(write(&hours, &[entry(1, 5), entry(1, 6)], 0), 2);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let hours = Hours::default();
        for first in (0..REMEMBERED_MAX as u64 * 2).step_by(100_000) {
            let all: Vec<_> = (first..first + 100_000).map(|hour| entry(1, hour)).collect();
            write(&hours, &all, 0);
            assert!(hours.0.lock().places <= REMEMBERED_MAX);
        }
    }
}
