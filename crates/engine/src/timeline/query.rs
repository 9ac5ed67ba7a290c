//! Listing what is pending in key order, without loading it.
//!
//! A page takes what it needs from the tables and from the runs that overlap the window, smallest
//! key first. A run is opened when its turn comes and not before, and where its entries are mostly
//! of other topics, the cells tell how far to go on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{PendingEntry, PendingPage, PendingQuery, StoreError};
use punctual_model::{Key, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::record;
use crate::store::pending_entry;
use crate::timeline::State;
use crate::timeline::cells::Cell;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::Run;
use crate::timeline::shelf::{after, start_of};
use crate::timeline::table::{Bits, Table};

/// Entries looked at for one page before it is answered with what was found.
const SCAN_ENTRIES_MAX: usize = 200_000;
/// Entries of the tables that are looked at for a page where only some keys are wanted.
const TABLE_ENTRIES_MAX: usize = 8192;
/// Bytes of records after which a page ends early.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Entries of other topics in a row after which the cells are asked where the next one is.
const FOREIGN_MAX: u32 = 64;

/// What a page is put together from: taken under the lock, read without it.
#[derive(Debug)]
pub struct Sources {
    query: PendingQuery,
    picked: Picked,
    frozen: Option<(Arc<Table>, Bits)>,
    streams: Vec<Stream>,
}

impl State {
    /// Collects the matching entries of the active table and where the others may be.
    #[must_use]
    pub fn sources(&self, query: PendingQuery) -> Sources {
        let mut picked = Picked::new(&query);
        if !self.topics.contains(&query.topic) {
            return Sources { query, picked, frozen: None, streams: Vec::new() };
        }
        picked.pick(&self.active.table, &self.active.gone, &query);
        let from = first_key(&query);
        let here = self.runs.values().filter(|shelved| {
            shelved.counts.get(&query.topic).is_some_and(|live| *live > 0)
                && shelved.run.last >= from
                && is_before_end(shelved.run.first().due, &query)
        });
        let streams = here.map(|shelved| Stream {
            run: Arc::clone(&shelved.run),
            ended: shelved.ended_above_watermark(),
            next: shelved.watermark().max(from).max(shelved.run.first()),
            cursor: None,
            foreign: 0,
        });
        let streams = streams.collect();
        Sources { query, picked, frozen: self.frozen(), streams }
    }
}

impl Sources {
    /// Reads the page.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a block cannot be read.
    pub fn page(self) -> Result<PendingPage, StoreError> {
        let Self { query, mut picked, frozen, mut streams } = self;
        if let Some((table, gone)) = frozen {
            picked.pick(&table, &gone, &query);
        }
        let (memory, stop) = picked.finish();
        let mut memory = memory.into_iter().peekable();
        for stream in &mut streams {
            stream.leap_if_rare(query.topic)?;
        }
        expect_first(&streams);
        let mut order: BinaryHeap<Reverse<(Key, usize)>> =
            streams.iter().enumerate().map(|(n, stream)| Reverse((stream.next, n))).collect();
        let mut page = PendingPage::default();
        let (mut bytes, mut looked_at) = (0, 0);
        while looked_at < SCAN_ENTRIES_MAX {
            let far = order.peek().map(|Reverse((key, _))| *key);
            let near = memory.peek().map(|(key, _)| *key);
            let next = far.into_iter().chain(near).min();
            let Some(key) = next.filter(|key| is_before_end(key.due, &query)) else {
                if stop.is_none() {
                    page.next = None;
                }
                return Ok(page);
            };
            let full = page.entries.len() == query.limit || bytes > PAGE_BYTES_MAX;
            if full || stop.is_some_and(|stop| key >= stop) {
                return Ok(page);
            }
            let content = if near == Some(key) {
                memory.next().map(|(_, content)| content)
            } else {
                let taken = take_far(&mut streams, &mut order, query.topic)?;
                let Taken::Entry(content) = taken else { continue };
                content
            };
            looked_at += 1;
            page.next = Some(key);
            if let Some(entry) = content.and_then(|content| matching(key, &content, &query)) {
                bytes += entry.message.weight();
                page.entries.push(entry);
            }
        }
        Ok(page)
    }
}

/// A run that is read for a page.
#[derive(Debug)]
struct Stream {
    run: Arc<Run>,
    ended: RoaringTreemap,
    /// Nothing that may be wanted comes before this.
    next: Key,
    /// Once it is open: stands on the entry `next`.
    cursor: Option<Cursor>,
    /// Entries of other topics in a row.
    foreign: u32,
}

/// What the stream whose turn it was had.
enum Taken {
    /// Nothing yet: now it is known better when its turn comes.
    Later,
    /// The entry of its key, unless that has ended.
    Entry(Option<Bytes>),
}

impl Stream {
    /// Goes on to where the topic has entries, if it has few of them here.
    fn leap_if_rare(&mut self, topic: TopicId) -> Result<(), StoreError> {
        let own = self.run.counts.get(&topic).copied().unwrap_or(0);
        if own.saturating_mul(u64::from(FOREIGN_MAX)) < self.run.entries {
            self.leap(topic)?;
        }
        Ok(())
    }

    /// Goes on to the next second in which the topic has entries, as far as that is known.
    fn leap(&mut self, topic: TopicId) -> Result<(), StoreError> {
        self.foreign = 0;
        let next = match self.run.next_cell(topic, Cell::of(self.next.due))? {
            Some(Some(cell)) => start_of(cell.start()),
            // The topic has nothing more here.
            Some(None) => after(self.run.last),
            None => return Ok(()),
        };
        if next > self.next {
            self.next = next;
            self.cursor = self.cursor.take().filter(|cursor| cursor.shares_block(next));
            if let Some(cursor) = &mut self.cursor {
                cursor.skip_to(next);
                self.next = cursor.key().unwrap_or_else(|| after(self.run.last));
            }
        }
        Ok(())
    }

    /// Takes the entry at `next`, or finds out where that is.
    fn take(&mut self, topic: TopicId) -> Result<Taken, StoreError> {
        let end = after(self.run.last);
        let Some(cursor) = &mut self.cursor else {
            let cursor = Cursor::seek(Arc::clone(&self.run), self.next);
            self.next = cursor.key().unwrap_or(end);
            self.cursor = Some(cursor);
            return self.check().map(|()| Taken::Later);
        };
        let taken = cursor.take();
        self.next = cursor.key().unwrap_or(end);
        self.check()?;
        let Some((key, content)) = taken else { return Ok(Taken::Later) };
        if record::peek(&content).is_ok_and(|peeked| peeked.topic == topic) {
            self.foreign = 0;
        } else {
            self.foreign += 1;
            if self.foreign == FOREIGN_MAX {
                self.leap(topic)?;
            }
        }
        Ok(Taken::Entry((!self.ended.contains(key.sequence.get())).then_some(content)))
    }

    fn check(&mut self) -> Result<(), StoreError> {
        let damaged = self.cursor.as_mut().map(Cursor::take_damaged).unwrap_or_default();
        if damaged.is_empty() {
            return Ok(());
        }
        let number = self.run.number;
        Err(StoreError::damaged(format_args!("run {number} cannot be read whole")))
    }
}

/// Tells the disk which blocks come first. Those that are not at hand come at once, rather than one
/// after the other.
fn expect_first(streams: &[Stream]) {
    let Some(first) = streams.iter().map(|stream| stream.next).min() else { return };
    for stream in streams {
        // A run that starts later may never be read.
        if stream.next.due == first.due {
            stream.run.expect_block(stream.next);
        }
    }
}

fn take_far(
    streams: &mut [Stream],
    order: &mut BinaryHeap<Reverse<(Key, usize)>>,
    topic: TopicId,
) -> Result<Taken, StoreError> {
    let Some(mut top) = order.peek_mut() else { return Ok(Taken::Later) };
    let Reverse((_, index)) = *top;
    let Some(stream) = streams.get_mut(index) else { return Ok(Taken::Later) };
    let taken = stream.take(topic)?;
    if stream.next > stream.run.last {
        std::collections::binary_heap::PeekMut::pop(top);
    } else {
        *top = Reverse((stream.next, index));
    }
    Ok(taken)
}

/// The smallest entries of the tables that may be wanted.
#[derive(Debug)]
struct Picked {
    from: Key,
    /// How many to keep.
    most: usize,
    /// Up to twice as many as are kept, and one more.
    entries: Vec<(Key, Bytes)>,
    /// The smallest key that is not among them, for lack of room.
    stop: Option<Key>,
}

impl Picked {
    fn new(query: &PendingQuery) -> Self {
        let picky = query.key.is_some() || query.key_prefix.is_some();
        let most = if picky { TABLE_ENTRIES_MAX } else { query.limit };
        Self { from: first_key(query), most, entries: Vec::new(), stop: None }
    }

    /// Adds those of a table.
    fn pick(&mut self, table: &Table, gone: &Bits, query: &PendingQuery) {
        let mut found: Vec<(Key, usize)> = Vec::new();
        let mut limit = self.stop;
        let room = 2 * (self.most + 1);
        for (index, slot) in table.iter() {
            // What is true of few comes first: this is done for every entry, under the lock.
            let inside = slot.due >= self.from.due
                && limit.is_none_or(|limit| slot.due <= limit.due)
                && is_before_end(slot.due, query)
                && slot.topic == query.topic;
            if !inside || gone.get(index) {
                continue;
            }
            let Some(key) = table.key(index) else { continue };
            if key < self.from || limit.is_some_and(|limit| key >= limit) {
                continue;
            }
            found.push((key, index));
            if found.len() == room {
                found.select_nth_unstable(self.most);
                limit = found.get(self.most).map(|(key, _)| *key);
                found.truncate(self.most);
            }
        }
        found.sort_unstable();
        let mut bytes = 0;
        for (place, (key, index)) in found.into_iter().enumerate() {
            if place == self.most || bytes > PAGE_BYTES_MAX {
                limit = Some(key);
                break;
            }
            let content = table.content(index).unwrap_or_default();
            bytes += content.len();
            self.entries.push((key, Bytes::copy_from_slice(content)));
        }
        self.stop = limit;
    }

    /// The entries in order, and the first key that is not among them.
    fn finish(mut self) -> (Vec<(Key, Bytes)>, Option<Key>) {
        self.entries.sort_unstable_by_key(|(key, _)| *key);
        let kept = self.entries.partition_point(|(key, _)| self.stop.is_none_or(|s| *key < s));
        self.entries.truncate(kept);
        (self.entries, self.stop)
    }
}

fn matching(key: Key, content: &Bytes, query: &PendingQuery) -> Option<PendingEntry> {
    let peeked = record::peek(content).ok()?;
    let wanted = peeked.topic == query.topic
        && query.key.as_ref().is_none_or(|wanted| peeked.key == Some(wanted.as_ref()))
        && query
            .key_prefix
            .as_ref()
            .is_none_or(|prefix| peeked.key.is_some_and(|key| key.starts_with(prefix)));
    if !wanted {
        return None;
    }
    Some(pending_entry(key, record::decode(content).ok()?))
}

/// Whether `due` lies before the end of the window, which may be no end at all.
fn is_before_end(due: Timestamp, query: &PendingQuery) -> bool {
    due < query.to || query.to == Timestamp::MAX
}

fn first_key(query: &PendingQuery) -> Key {
    let from = start_of(query.from);
    query.after.map_or(from, |key| after(key).max(from))
}
