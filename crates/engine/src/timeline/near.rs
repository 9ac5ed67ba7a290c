//! The near future: what is due before the horizon and came in through memory.
//!
//! The frontier rule, on which everything depends: **an entry of a memory table that is due before
//! the horizon is in here (or was handed out from here); one that is due at the horizon or later is
//! not.** A run that is made of a table is therefore read from the horizon on, and nothing is
//! handed out twice or not at all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use punctual_model::{Key, Timestamp};

/// Memory an entry takes beyond its record.
const ENTRY_BYTES: usize = 64;

/// Entries by key, soonest first, with their own copies of the records.
#[derive(Debug, Default)]
pub struct Near {
    heap: BinaryHeap<Reverse<Item>>,
    bytes: usize,
}

#[derive(Debug)]
struct Item {
    key: Key,
    content: Bytes,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Near {
    /// Adds an entry, copying its record, so that it does not pin the batch it came with.
    pub fn push(&mut self, key: Key, content: &[u8]) {
        self.bytes += content.len() + ENTRY_BYTES;
        self.heap.push(Reverse(Item { key, content: Bytes::copy_from_slice(content) }));
    }

    /// The soonest key.
    #[must_use]
    pub fn peek(&self) -> Option<Key> {
        self.heap.peek().map(|Reverse(item)| item.key)
    }

    /// Takes the soonest entry.
    pub fn pop(&mut self) -> Option<(Key, Bytes)> {
        let Reverse(item) = self.heap.pop()?;
        self.bytes -= item.content.len() + ENTRY_BYTES;
        Some((item.key, item.content))
    }

    /// Bytes of memory it holds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A time that splits what is due at `floor` or later into halves; `None` if there is none.
    #[must_use]
    pub fn middle(&self, floor: Timestamp) -> Option<Timestamp> {
        let dues = self.heap.iter().map(|Reverse(item)| item.key.due);
        let mut dues: Vec<Timestamp> = dues.filter(|&due| due >= floor).collect();
        let middle = dues.len() / 2;
        (!dues.is_empty()).then(|| *dues.select_nth_unstable(middle).1)
    }

    /// Drops everything due at `horizon` or later and answers the keys.
    pub fn cut(&mut self, horizon: Timestamp) -> Vec<Key> {
        let mut dropped = Vec::new();
        let mut bytes = self.bytes;
        self.heap.retain(|Reverse(item)| {
            let keep = item.key.due < horizon;
            if !keep {
                bytes -= item.content.len() + ENTRY_BYTES;
                dropped.push(item.key);
            }
            keep
        });
        self.bytes = bytes;
        dropped
    }
}
