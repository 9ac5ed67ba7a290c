//! The newest entries, in memory.
//!
//! Cut into parts by the front of the name. The parts follow each other in the order of names, so
//! that sorting is cheap; growing a part moves only its own entries, so that nobody waits long for
//! it. The parts at the end take up to twice as much as those at the front, so that they do not all
//! grow at about the same time.

use std::collections::HashMap;

use crate::ids::Value;
use crate::ids::name::{BuildNameHasher, Name};
use crate::journal::Position;

const PARTS: usize = 256;

type Part = HashMap<Name, Value, BuildNameHasher>;

/// A table that takes entries.
#[derive(Debug)]
pub(crate) struct Table {
    parts: Vec<Part>,
    len: usize,
    start: Position,
}

impl Default for Table {
    fn default() -> Self {
        let parts = std::iter::repeat_with(Part::default).take(PARTS).collect();
        Self { parts, len: 0, start: Position::default() }
    }
}

impl Table {
    /// Puts an entry, instead of what had the name before.
    pub(crate) fn put(&mut self, name: Name, value: Value) {
        let part = self.parts.get_mut(part_of(name)).expect("every name has its part");
        self.len += usize::from(part.insert(name, value).is_none());
    }

    /// What has the name.
    pub(crate) fn get(&self, name: Name) -> Option<Value> {
        self.parts.get(part_of(name))?.get(&name).copied()
    }

    /// Notes where the journal stands before the first entry.
    pub(crate) const fn begin_at(&mut self, journal: Position) {
        if self.len == 0 {
            self.start = journal;
        }
    }

    /// Where the journal stood before the first entry, if there is one.
    pub(crate) fn start(&self) -> Option<Position> {
        (self.len > 0).then_some(self.start)
    }

    /// The number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory it takes, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The maps are filled to seven eighths at most and have a byte of their own for each place.
        let places = |part: &Part| (part.capacity() / 7 * 8).next_power_of_two();
        let used = self.parts.iter().filter(|part| part.capacity() > 0);
        used.map(|part| places(part) * (size_of::<(Name, Value)>() + 1)).sum()
    }
}

/// A table that takes no more entries and is written out.
#[derive(Debug)]
pub struct Frozen(Table);

impl Frozen {
    pub(crate) const fn new(table: Table) -> Self {
        Self(table)
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.0
    }

    /// Its entries in the order of names.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (Name, Value)> {
        self.0.parts.iter().flat_map(|part| {
            let mut entries: Vec<(Name, Value)> =
                part.iter().map(|(&name, &value)| (name, value)).collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            entries
        })
    }
}

/// With the front of the name as `x` from 0 to 1 this is `x (4 - x) / 3`, which rises half as fast at
/// the end as at the front.
fn part_of(name: Name) -> usize {
    let front = u64::from(name.prefix() >> 16);
    let part = front * ((4 << 16) - front) / 3;
    usize::try_from(part >> 24).unwrap_or(PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_part_and_parts_follow_the_order_of_names() {
        let parts = (0..1 << 16).map(|front| part_of(Name { high: front << 48, low: 0 }));
        let mut sizes = vec![0; PARTS];
        let mut before = 0;
        for part in parts {
            assert!(part >= before);
            before = part;
            *sizes.get_mut(part).expect("every name has its part") += 1;
        }
        let last = part_of(Name { high: u64::MAX, low: u64::MAX });
        assert_eq!(last, PARTS - 1);
        assert!(sizes.iter().all(|&size| (190..=390).contains(&size)), "{sizes:?}");
    }
}
