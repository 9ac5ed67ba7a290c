//! Listing what is pending in key order, without loading it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{PendingEntry, PendingPage, PendingQuery, StoreError};
use punctual_model::{Key, MessageId};
use roaring::RoaringTreemap;

use crate::record;
use crate::timeline::State;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::Run;
use crate::timeline::shelf::{after, start_of};

/// Entries looked at for one page before it is answered with what was found.
const SCAN_ENTRIES_MAX: usize = 200_000;
/// Bytes of records after which a page ends early.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// What a page is put together from: taken under the lock, read without it.
#[derive(Debug)]
pub struct Sources {
    query: PendingQuery,
    memory: Vec<(Key, Bytes)>,
    /// The first matching entry of the tables that is not in `memory`, for lack of room.
    stop: Option<Key>,
    runs: Vec<(Arc<Run>, Key, RoaringTreemap)>,
}

impl State {
    /// Collects the matching entries of the tables and the runs that may hold more.
    #[must_use]
    pub fn sources(&self, query: PendingQuery) -> Sources {
        let from = first_key(&query);
        if !self.topics.contains(&query.topic) {
            return Sources { query, memory: Vec::new(), stop: None, runs: Vec::new() };
        }
        let mut smallest: BinaryHeap<(Key, usize, bool)> = BinaryHeap::new();
        let tables = [(self.frozen.as_ref(), true), (Some(&self.active), false)];
        for (tabled, frozen) in tables {
            let Some(tabled) = tabled else { continue };
            for (index, slot) in tabled.table.iter() {
                let Some(key) = tabled.table.key(index) else { continue };
                let inside = slot.topic == query.topic && key >= from && key.due < query.to;
                if !inside || tabled.gone.get(index) {
                    continue;
                }
                let content = tabled.table.content(index).unwrap_or_default();
                if !has_key(content, query.key.as_ref()) {
                    continue;
                }
                smallest.push((key, index, frozen));
                if smallest.len() > query.limit + 1 {
                    smallest.pop();
                }
            }
        }
        let mut memory = Vec::new();
        let mut stop = None;
        let mut bytes = 0;
        for (key, index, frozen) in smallest.into_sorted_vec() {
            let tabled = if frozen { self.frozen.as_ref() } else { Some(&self.active) };
            let content = tabled.and_then(|t| t.table.content(index)).unwrap_or_default();
            if bytes > PAGE_BYTES_MAX {
                stop = Some(key);
                break;
            }
            bytes += content.len();
            memory.push((key, Bytes::copy_from_slice(content)));
        }
        let runs = self.runs.values().filter(|shelved| shelved.counts.contains_key(&query.topic));
        let runs = runs
            .filter(|shelved| shelved.run.last >= from && shelved.run.first().due < query.to)
            .map(|shelved| {
                let ended = shelved.ended_above_watermark();
                (Arc::clone(&shelved.run), shelved.watermark().max(from), ended)
            })
            .collect();
        Sources { query, memory, stop, runs }
    }
}

impl Sources {
    /// Reads the page.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a block cannot be read.
    pub fn page(self) -> Result<PendingPage, StoreError> {
        let query = &self.query;
        let mut memory = self.memory.into_iter().peekable();
        let mut cursors: Vec<Cursor> =
            self.runs.iter().map(|(run, from, _)| Cursor::seek(Arc::clone(run), *from)).collect();
        let heads = cursors.iter().enumerate();
        let mut order: BinaryHeap<Reverse<(Key, usize)>> =
            heads.filter_map(|(n, cursor)| Some(Reverse((cursor.key()?, n)))).collect();
        let mut page = PendingPage::default();
        let mut bytes = 0;
        for _ in 0..SCAN_ENTRIES_MAX {
            let far = order.peek().map(|Reverse((key, _))| *key);
            let near = memory.peek().map(|(key, _)| *key);
            let Some(key) = far.into_iter().chain(near).min().filter(|key| key.due < query.to)
            else {
                if self.stop.is_none() {
                    page.next = None;
                }
                return Ok(page);
            };
            let full = page.entries.len() == query.limit || bytes > PAGE_BYTES_MAX;
            if full || self.stop.is_some_and(|stop| key >= stop) {
                return Ok(page);
            }
            page.next = Some(key);
            let content = if near == Some(key) {
                memory.next().map(|(_, content)| content)
            } else {
                self.runs
                    .get(next_index(&order))
                    .and_then(|(_, _, ended)| take_far(&mut cursors, &mut order, ended))
            };
            let broken = cursors.iter_mut().position(|cursor| !cursor.take_damaged().is_empty());
            if let Some((run, _, _)) = broken.and_then(|index| self.runs.get(index)) {
                let number = run.number;
                return Err(StoreError::damaged(format_args!("run {number} cannot be read whole")));
            }
            if let Some(entry) = content.and_then(|content| matching(key, &content, query)) {
                bytes += entry.message.weight();
                page.entries.push(entry);
            }
        }
        Ok(page)
    }
}

fn next_index(order: &BinaryHeap<Reverse<(Key, usize)>>) -> usize {
    order.peek().map_or(usize::MAX, |Reverse((_, index))| *index)
}

fn take_far(
    cursors: &mut [Cursor],
    order: &mut BinaryHeap<Reverse<(Key, usize)>>,
    ended: &RoaringTreemap,
) -> Option<Bytes> {
    let Reverse((_, index)) = order.pop()?;
    let cursor = cursors.get_mut(index)?;
    let taken = cursor.take();
    if let Some(next) = cursor.key() {
        order.push(Reverse((next, index)));
    }
    taken.filter(|(key, _)| !ended.contains(key.sequence.get())).map(|(_, content)| content)
}

fn matching(key: Key, content: &Bytes, query: &PendingQuery) -> Option<PendingEntry> {
    let peeked = record::peek(content).ok()?;
    if peeked.topic != query.topic || !has_key(content, query.key.as_ref()) {
        return None;
    }
    let record = record::decode(content).ok()?;
    let id = MessageId { key, topic: record.topic, partition: record.partition };
    Some(PendingEntry { id, message: record.message })
}

fn has_key(content: &[u8], wanted: Option<&Bytes>) -> bool {
    let Some(wanted) = wanted else { return true };
    record::peek(content).is_ok_and(|peeked| peeked.key == Some(wanted.as_ref()))
}

fn first_key(query: &PendingQuery) -> Key {
    let from = start_of(query.from);
    query.after.map_or(from, |key| after(key).max(from))
}
