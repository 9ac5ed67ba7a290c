//! The memory table: accepted entries in the order of acceptance, until they are written as a run.
//!
//! Sequences in a table have no gaps, so an entry is found by subtraction. The bytes are those of
//! the journal; nothing is copied when an entry comes in.

use bytes::Bytes;
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};

use crate::journal::Position;
use crate::journal::change::Slot;

/// Slots with one note of the soonest due time among them.
const STRETCH: usize = 1024;

/// Entries with consecutive sequences.
#[derive(Debug)]
pub struct Table {
    first: u64,
    slots: Vec<Placed>,
    frames: Vec<Bytes>,
    bytes: usize,
    /// The soonest due time of each stretch of slots, so that most need no look.
    soonest: Vec<Timestamp>,
    /// Where in the journal its first entry may stand.
    pub journal_start: Position,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    slot: Slot,
    frame: u32,
}

impl Table {
    /// An empty table for the sequences from `first` on.
    #[must_use]
    pub const fn new(first: Sequence, journal_start: Position) -> Self {
        Self {
            first: first.get(),
            slots: Vec::new(),
            frames: Vec::new(),
            bytes: 0,
            soonest: Vec::new(),
            journal_start,
        }
    }

    /// Adds the entries of one change; they follow what is there without a gap.
    pub fn push(&mut self, frame: Bytes, slots: &[Slot]) {
        let index = u32::try_from(self.frames.len()).expect("a table has few frames");
        self.bytes += frame.len() + size_of_val(slots);
        self.frames.push(frame);
        for &slot in slots {
            self.push_slot(Placed { slot, frame: index });
        }
    }

    fn push_slot(&mut self, placed: Placed) {
        match self.soonest.last_mut() {
            Some(soonest) if !self.slots.len().is_multiple_of(STRETCH) => {
                *soonest = placed.slot.due.min(*soonest);
            }
            _ => self.soonest.push(placed.slot.due),
        }
        self.slots.push(placed);
    }

    /// Adds a place that no entry has.
    pub fn push_nothing(&mut self) {
        let (Some(topic), Some(partition)) = (TopicId::new(0), Partition::new(0)) else { return };
        let slot = Slot { due: Timestamp::MAX, topic, partition, offset: 0, length: 0 };
        self.push_slot(Placed { slot, frame: u32::MAX });
    }

    /// Bytes of memory it holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of entries, gone ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing was ever added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The sequence of the first entry.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The place of `sequence`, if it is in this table.
    #[must_use]
    pub fn index(&self, sequence: Sequence) -> Option<usize> {
        let index = usize::try_from(sequence.get().checked_sub(self.first)?).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    /// The key of the entry at `index`.
    #[must_use]
    pub fn key(&self, index: usize) -> Option<Key> {
        let placed = self.slots.get(index)?;
        let sequence = Sequence::new(self.first + index as u64)?;
        Some(Key { due: placed.slot.due, sequence })
    }

    /// The slot of the entry at `index`.
    #[must_use]
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.slots.get(index).map(|placed| &placed.slot)
    }

    /// The record of the entry at `index`.
    #[must_use]
    pub fn content(&self, index: usize) -> Option<&[u8]> {
        let placed = self.slots.get(index)?;
        let start = usize::try_from(placed.slot.offset).ok()?;
        let end = start + usize::try_from(placed.slot.length).ok()?;
        self.frames.get(usize::try_from(placed.frame).ok()?)?.get(start..end)
    }

    /// Entries due at `from` or later and before `to`, in the order of acceptance.
    pub fn due_within(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = (usize, &Slot)> {
        let stretches = self.soonest.iter().zip(self.slots.chunks(STRETCH)).enumerate();
        let stretches = stretches.filter(move |(_, (soonest, _))| **soonest < to);
        stretches.flat_map(move |(number, (_, stretch))| {
            let entries = (number * STRETCH..).zip(stretch.iter().map(|placed| &placed.slot));
            entries.filter(move |(_, slot)| slot.due >= from && slot.due < to)
        })
    }

    /// All entries in the order of acceptance.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots.iter().map(|placed| &placed.slot).enumerate()
    }
}

/// A growing set of small numbers.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Whether `index` is in it.
    #[must_use]
    pub fn get(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// What is in it and not in `earlier`.
    pub fn added_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = usize> + 'a {
        self.0.iter().enumerate().flat_map(|(place, &word)| {
            let mut fresh = word & !earlier.0.get(place).copied().unwrap_or(0);
            std::iter::from_fn(move || {
                let bit = fresh.trailing_zeros();
                fresh &= fresh.wrapping_sub(1);
                (bit < 64).then_some(place * 64 + bit as usize)
            })
        })
    }

    /// Adds `index`; false if it was there before.
    pub fn set(&mut self, index: usize) -> bool {
        if self.0.len() <= index / 64 {
            self.0.resize(index / 64 + 1, 0);
        }
        let Some(word) = self.0.get_mut(index / 64) else { return false };
        let fresh = *word & (1 << (index % 64)) == 0;
        *word |= 1 << (index % 64);
        fresh
    }
}
