//! A run on the shelf: the file, and what has become of its entries since it was written.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use punctual_model::{Key, Sequence, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::timeline::cells::Cell;
use crate::timeline::ended::Ended;
use crate::timeline::run::Run;

/// A run and the fate of its entries.
#[derive(Debug)]
pub struct Shelved {
    /// The file.
    pub run: Arc<Run>,
    /// Entries before this key were handed out, or came through the near future.
    pub read_from: Key,
    /// Everything before this key had ended when the run was opened; it is never read again.
    pub floor: Key,
    /// Entries handed out from this run, in key order, and whether each has ended.
    handed: VecDeque<(Key, bool)>,
    /// Sequences that were cancelled or delivered out of order.
    pub gone: RoaringTreemap,
    /// Sequences below `read_from` that are still in the near future or with the caller.
    pub early: RoaringTreemap,
    /// Live entries of each topic.
    pub counts: HashMap<TopicId, u64>,
    /// The first key that could not be read; what follows stays on disk for ever.
    pub damaged_from: Option<Key>,
    /// Bytes at the front that were given back to the file system.
    pub punched: u64,
    /// When those of `gone` were due that ended before their time.
    pub(crate) ended: Ended,
    /// While the run is being merged: what ended since that began.
    ended_since: Option<RoaringTreemap>,
}

impl Shelved {
    /// A run whose entries from `read_from` on are still to be handed out. Nothing is noted yet of
    /// when what has ended was due.
    #[must_use]
    pub fn new(run: Arc<Run>, read_from: Key) -> Self {
        let counts = run.counts.clone();
        Self {
            run,
            read_from,
            floor: Key::default(),
            handed: VecDeque::new(),
            gone: RoaringTreemap::new(),
            early: RoaringTreemap::new(),
            counts,
            damaged_from: None,
            punched: 0,
            ended: Ended::default(),
            ended_since: None,
        }
    }

    /// The first key that may still be alive: everything before it has ended.
    #[must_use]
    pub fn watermark(&self) -> Key {
        let alive = if !self.early.is_empty() {
            self.run.first()
        } else {
            self.handed.front().map_or(self.read_from, |&(key, _)| key.min(self.read_from))
        };
        self.damaged_from.map_or(alive, |damaged| damaged.min(alive))
    }

    /// Whether everything in it has ended.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.watermark() > self.run.last
    }

    /// Notes that the entry `key` was read. True when it is to be handed out, false when the caller
    /// has it already, as may be with a run that was merged.
    pub fn hand_out(&mut self, key: Key) -> bool {
        self.read_from = after(key);
        if self.early.contains(key.sequence.get()) {
            return false;
        }
        if self.handed.back().is_none_or(|&(last, _)| last < key) {
            self.handed.push_back((key, false));
            return true;
        }
        match self.handed.binary_search_by(|(handed, _)| handed.cmp(&key)) {
            Ok(_) => {
                self.settle_front();
                false
            }
            Err(place) => {
                self.handed.insert(place, (key, false));
                true
            }
        }
    }

    /// Notes that an entry handed out from here has ended.
    pub fn end_handed(&mut self, key: Key) {
        // Most end in the order in which they were handed out.
        let first = self.handed.front().is_some_and(|&(first, _)| first == key).then_some(0);
        let place =
            first.or_else(|| self.handed.binary_search_by(|(handed, _)| handed.cmp(&key)).ok());
        if let Some((_, ended)) = place.and_then(|place| self.handed.get_mut(place)) {
            *ended = true;
        }
        if let Some(since) = &mut self.ended_since {
            since.insert(key.sequence.get());
        }
        self.settle_front();
    }

    /// Notes that an entry that was not read from here has ended.
    pub fn end_unread(&mut self, key: Key) {
        self.gone.insert(key.sequence.get());
        self.forget_early(key);
    }

    /// Notes that an entry has ended before its time.
    pub fn withdraw(&mut self, key: Key, topic: TopicId) {
        self.end_unread(key);
        self.discount(topic);
        self.ended.push(topic, Cell::of(key.due));
    }

    /// Notes that an entry below `read_from` has ended, or will be read from here after all.
    pub fn forget_early(&mut self, key: Key) {
        self.early.remove(key.sequence.get());
        self.settle_front();
    }

    /// Forgets ended entries at the front, unless the watermark stands before them for another
    /// reason: an early entry that lives, or a block that cannot be read. A merged run may still
    /// have to be read past entries that one of its sources had handed out; until then they are
    /// remembered, or they would be handed out again.
    fn settle_front(&mut self) {
        let free = self.early.is_empty() && self.damaged_from.is_none();
        let read = self.read_from;
        while free && self.handed.front().is_some_and(|&(key, ended)| ended && key < read) {
            self.handed.pop_front();
        }
    }

    /// Whether the entry `key`, which is or was in this run, has ended.
    #[must_use]
    pub fn has_ended(&self, key: Key) -> bool {
        key < self.watermark() || self.gone.contains(key.sequence.get()) || {
            let found = self.handed.binary_search_by(|(handed, _)| handed.cmp(&key));
            found.ok().and_then(|index| self.handed.get(index)).is_some_and(|&(_, ended)| ended)
        }
    }

    /// Everything that has ended and is not below the watermark.
    #[must_use]
    pub fn ended_above_watermark(&self) -> RoaringTreemap {
        let mut ended = self.gone.clone();
        ended.extend(self.handed.iter().filter(|(_, ended)| *ended).map(|(k, _)| k.sequence.get()));
        ended
    }

    /// One live entry of `topic` less.
    pub fn discount(&mut self, topic: TopicId) {
        if let Some(count) = self.counts.get_mut(&topic) {
            *count = count.saturating_sub(1);
        }
    }

    /// Starts to note what ends, for a merge that begins now. Answers what to leave out of it.
    pub fn begin_merge(&mut self) -> (Arc<Run>, Key, RoaringTreemap) {
        self.ended_since = Some(RoaringTreemap::new());
        self.ended.begin_merge();
        (Arc::clone(&self.run), self.watermark(), self.ended_above_watermark())
    }

    /// Stops noting what ends; the merge came to nothing.
    pub fn abandon_merge(&mut self) {
        self.ended_since = None;
        self.ended.abandon_merge();
    }

    /// Takes the place of the runs this one was merged from.
    pub fn adopt(&mut self, sources: Vec<Self>) {
        let mut handed: Vec<(Key, bool)> = Vec::new();
        self.counts.clear();
        // A merged run has nothing in it that ended before the merge began.
        self.ended = Ended::nothing();
        for source in sources {
            self.read_from = self.read_from.min(source.read_from);
            handed.extend(source.handed);
            self.gone |= source.gone;
            self.gone |= source.ended_since.unwrap_or_default();
            self.early |= source.early;
            self.ended.adopt(source.ended);
            for (topic, count) in source.counts {
                *self.counts.entry(topic).or_default() += count;
            }
        }
        handed.sort_unstable();
        self.handed = handed.into();
    }
}

/// The smallest key after `key`.
#[must_use]
pub fn after(key: Key) -> Key {
    match Sequence::new(key.sequence.get() + 1) {
        Some(sequence) => Key { due: key.due, sequence },
        None => start_of(Timestamp::from_millis_saturating(key.due.as_millis() + 1)),
    }
}

/// The smallest key due at `due`.
#[must_use]
pub fn start_of(due: Timestamp) -> Key {
    Key { due, sequence: Sequence::default() }
}
