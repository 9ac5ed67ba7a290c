//! Reading all runs at once in key order, and making one run of many.
//!
//! The reader is used by one caller at a time and has its own lock, so that waiting for the disk
//! never holds up those who accept, cancel or settle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::ArmLimit;
use punctual_model::{Key, Timestamp};

use crate::disk::Disk;
use crate::record;
use crate::timeline::State;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::{Run, Stamp};
use crate::timeline::run_writer::{Ids, RunWriter};
use crate::timeline::shelf::start_of;

/// What happened to the runs since the reader looked last.
#[derive(Debug)]
pub enum ShelfChange {
    /// A run to be read from this key on.
    Add(Arc<Run>, Key),
    /// A run to be read from this key on instead.
    Seek(u64, Key),
    /// A run that is no more.
    Remove(u64),
}

/// An entry as it lies in a run or in memory.
#[derive(Debug)]
pub struct Taken {
    /// Its key.
    pub key: Key,
    /// The run it was read from; `None` for the near future.
    pub run: Option<u64>,
    /// Its record.
    pub content: Bytes,
}

/// Reads the runs in key order.
#[derive(Debug, Default)]
pub struct Reader {
    cursors: HashMap<u64, Cursor>,
    order: BinaryHeap<Reverse<(Key, u64)>>,
    /// Read, and not yet handed out.
    stash: VecDeque<(Key, u64, Bytes)>,
    /// Blocks that could not be read, run and index, until somebody is told.
    damaged: Vec<(u64, usize)>,
}

impl Reader {
    /// The due time of the first entry that it has not handed out.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let stashed = self.stash.front().map(|(key, ..)| key.due);
        let unread = self.order.peek().map(|Reverse((key, _))| key.due);
        stashed.into_iter().chain(unread).min()
    }

    /// Follows what happened to the runs.
    pub fn follow(&mut self, changes: Vec<ShelfChange>) {
        for change in changes {
            match change {
                ShelfChange::Add(run, from) => self.seek(run, from),
                ShelfChange::Seek(number, from) => {
                    if let Some(cursor) = self.cursors.get(&number) {
                        self.seek(Arc::clone(cursor.run()), from);
                    }
                }
                ShelfChange::Remove(number) => {
                    self.cursors.remove(&number);
                    self.stash.retain(|&(_, run, _)| run != number);
                }
            }
        }
        let heads = self.cursors.iter();
        self.order = heads.filter_map(|(&n, cursor)| Some(Reverse((cursor.key()?, n)))).collect();
    }

    fn seek(&mut self, run: Arc<Run>, from: Key) {
        let number = run.number;
        let mut cursor = Cursor::seek(run, from);
        self.damaged.extend(cursor.take_damaged().into_iter().map(|block| (number, block)));
        self.cursors.insert(number, cursor);
    }

    /// Reads on until enough is at hand or nothing is due before `until`. Answers the blocks that
    /// could not be read: run and index.
    pub fn fill(&mut self, until: Timestamp, limit: ArmLimit) -> Vec<(u64, usize)> {
        let mut damaged = std::mem::take(&mut self.damaged);
        let mut bytes: usize = self.stash.iter().map(|(_, _, content)| content.len()).sum();
        while self.stash.len() < limit.entries && bytes < limit.bytes {
            let Some(mut top) = self.order.peek_mut() else { break };
            let Reverse((key, number)) = *top;
            if key >= start_of(until) {
                break;
            }
            let Some(cursor) = self.cursors.get_mut(&number) else {
                std::collections::binary_heap::PeekMut::pop(top);
                continue;
            };
            if let Some((key, content)) = cursor.take() {
                bytes += content.len();
                self.stash.push_back((key, number, content));
            }
            match cursor.key() {
                Some(next) => *top = Reverse((next, number)),
                None => drop(std::collections::binary_heap::PeekMut::pop(top)),
            }
            damaged.extend(cursor.take_damaged().into_iter().map(|block| (number, block)));
        }
        damaged
    }

    /// How many entries were read and wait to be handed out.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.stash.len()
    }

    /// Hands out what is due before `until` from the runs and the near future, in key order.
    pub fn hand_out(&mut self, state: &mut State, until: Timestamp, limit: ArmLimit) -> Vec<Taken> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < limit.entries && bytes < limit.bytes {
            let near = state.near.peek().filter(|key| key.due < until);
            let far = self.stash.front().map(|(key, _, _)| *key).filter(|key| key.due < until);
            let entry = match (near, far) {
                (Some(near), Some(far)) if near > far => self.next_far(state),
                (None, Some(_)) => self.next_far(state),
                (Some(_), _) => {
                    state.near.pop().map(|(key, content)| Taken { key, run: None, content })
                }
                (None, None) => break,
            };
            let Some(entry) = entry else { continue };
            let Ok(peeked) = record::peek(&entry.content) else { continue };
            if state.is_withdrawn(entry.key.sequence, peeked.topic) {
                state.end_handed(entry.key, peeked.topic, entry.run);
            } else {
                bytes += entry.content.len();
                taken.push(entry);
            }
        }
        taken
    }

    fn next_far(&mut self, state: &mut State) -> Option<Taken> {
        let (key, number, content) = self.stash.pop_front()?;
        let fresh = state.runs.get_mut(&number)?.hand_out(key);
        fresh.then_some(Taken { key, run: Some(number), content })
    }
}

/// Writes one run of what is alive in `sources` from their watermarks on.
///
/// # Errors
/// As the disk says; `InvalidData` when a block of a source is damaged.
pub fn merge_runs(
    disk: &dyn Disk,
    number: u64,
    sources: &[(Arc<Run>, Key, roaring::RoaringTreemap)],
    (block_bytes, far_from): (usize, Timestamp),
) -> io::Result<Option<Run>> {
    let first = sources.iter().flat_map(|(run, _, _)| run.spans.first()).map(|span| span.first);
    let Some(first) = first.min() else { return Ok(None) };
    let mut ids: Vec<Ids> = Vec::new();
    for (run, _, _) in sources {
        ids.extend(
            run.spans
                .iter()
                .map(|span| Ids { first: span.first, stamps: vec![None; span.sequences as usize] }),
        );
    }
    ids.sort_by_key(|range| range.first);
    let mut cursors: Vec<Cursor> = sources
        .iter()
        .map(|(run, watermark, _)| Cursor::seek(Arc::clone(run), *watermark))
        .collect();
    let mut order: BinaryHeap<Reverse<(Key, usize)>> = cursors
        .iter()
        .enumerate()
        .filter_map(|(index, cursor)| Some(Reverse((cursor.key()?, index))))
        .collect();
    let writer = RunWriter::create(disk, number, first, block_bytes)?;
    let mut writer = writer.with_far_from(far_from);
    while let Some(Reverse((_, index))) = order.pop() {
        let (Some(cursor), Some((_, _, gone))) = (cursors.get_mut(index), sources.get(index))
        else {
            continue;
        };
        if let Some((key, content)) = cursor.take()
            && !gone.contains(key.sequence.get())
        {
            let peeked = record::peek(&content).map_err(io::Error::other)?;
            writer.push(key, peeked.topic, &content)?;
            stamp(&mut ids, key, Stamp::new(key.due, peeked.topic, peeked.partition));
        }
        if !cursor.take_damaged().is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Some(key) = cursor.key() {
            order.push(Reverse((key, index)));
        }
    }
    writer.finish(disk, &ids).map(Some)
}

fn stamp(ids: &mut [Ids], key: Key, stamp: Stamp) {
    let sequence = key.sequence.get();
    let after = ids.partition_point(|range| range.first <= sequence);
    if let Some(range) = after.checked_sub(1).and_then(|index| ids.get_mut(index))
        && let Ok(place) = usize::try_from(sequence - range.first)
        && let Some(slot) = range.stamps.get_mut(place)
    {
        *slot = Some(stamp);
    }
}
