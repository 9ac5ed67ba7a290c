//! What is pending in one lane: memory tables, runs, the near future, and the fate of each entry.
//!
//! Everything here is plain data; each lane has its own behind a lock of its own. Reading runs in key order is
//! `merge.rs`; that needs the disk and has a lock of its own.

pub mod table;
pub mod cells;
pub mod run;
pub mod run_writer;
pub mod cursor;
pub mod near;
pub mod ended;
pub mod shelf;
pub mod merge;
pub mod flush;
pub mod query;
pub mod forecast;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::StoreError;
use punctual_model::{Key, MessageId, Sequence, Span, State as LifeState, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::journal::Position;
use crate::journal::change::Slot;
use crate::timeline::merge::ShelfChange;
use crate::timeline::near::Near;
use crate::timeline::run::Stamp;
use crate::timeline::shelf::{Shelved, start_of};
use crate::timeline::table::{Bits, Table};

/// Most sequences that may be missing in a row.
const SKIP_MAX: u64 = 1 << 24;

/// A memory table and which of its entries have ended.
#[derive(Debug)]
pub struct Tabled {
    /// The entries. Shared only once the table is frozen.
    pub table: Arc<Table>,
    /// Indexes of the entries that were delivered or cancelled.
    pub gone: Bits,
    /// Sequences of those that were cancelled or replaced.
    pub withdrawn: RoaringTreemap,
}

impl Tabled {
    /// An empty table for the sequences from `first` on.
    #[must_use]
    pub fn new(first: Sequence, journal_start: Position) -> Self {
        Self {
            table: Arc::new(Table::new(first, journal_start)),
            gone: Bits::default(),
            withdrawn: RoaringTreemap::new(),
        }
    }
}

/// Everything that is pending in one lane, and what is known of what was.
#[derive(Debug)]
pub struct State {
    pub(crate) active: Tabled,
    pub(crate) frozen: Option<Tabled>,
    pub(crate) runs: BTreeMap<u64, Shelved>,
    /// First sequence of each span of each run → one past its last, and the run.
    spans: BTreeMap<u64, (u64, u64)>,
    pub(crate) near: Near,
    /// Entries of the tables due before this are in `near`.
    pub(crate) horizon: Timestamp,
    /// Everything due before this was asked for.
    pub(crate) armed_until: Timestamp,
    /// Claimed and not yet settled, sorted.
    in_flight: Vec<u64>,
    pub(crate) counts: HashMap<TopicId, u64>,
    pub(crate) topics: HashSet<TopicId>,
    /// Cancelled lately, in the period before, and before that: how a cancelled message is told from
    /// another. Of the last only those that still lie somewhere are kept.
    pub(crate) cancelled: [RoaringTreemap; 3],
    pub(crate) next: Sequence,
    pub(crate) changes: Vec<ShelfChange>,
    /// Counts the changes of the shelf: what a run said before one need not hold after it.
    pub(crate) edition: u64,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(usize),
    Frozen(usize),
    Run(u64),
    Nowhere,
}

/// How a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In this state; what is on its way to the outlet counts as delivered.
    In(LifeState),
    /// Ended long ago, or never there: the topic's log has to tell.
    Past,
    /// Never there.
    Unknown,
}

impl State {
    /// Nothing pending; sequences start at `next`.
    #[must_use]
    pub fn new(next: Sequence, journal: Position) -> Self {
        Self {
            active: Tabled::new(next, journal),
            frozen: None,
            runs: BTreeMap::new(),
            spans: BTreeMap::new(),
            near: Near::default(),
            horizon: Timestamp::MIN,
            armed_until: Timestamp::MIN,
            in_flight: Vec::new(),
            counts: HashMap::new(),
            topics: HashSet::new(),
            cancelled: Default::default(),
            next,
            changes: Vec::new(),
            edition: 0,
        }
    }

    /// Takes in entries that are durable now. Answers whether one is due before what was asked for.
    pub fn admit(&mut self, bytes: Bytes, slots: &[Slot]) -> bool {
        let table = &self.active.table;
        let base = table.len();
        let mut hurry = false;
        let mut run_of_topic: Option<(TopicId, u64)> = None;
        for (index, slot) in (0u64..).zip(slots) {
            if slot.due < self.horizon {
                let start = slot.offset as usize;
                let content = bytes.get(start..start + slot.length as usize).unwrap_or_default();
                let sequence = Sequence::new(self.next.get() + index).unwrap_or(Sequence::MAX);
                self.near.push(slot.key(sequence), content);
                hurry |= slot.due < self.armed_until;
            }
            run_of_topic = match run_of_topic {
                Some((topic, count)) if topic == slot.topic => Some((topic, count + 1)),
                other => {
                    add_count(&mut self.counts, other);
                    Some((slot.topic, 1))
                }
            };
        }
        add_count(&mut self.counts, run_of_topic);
        let table = Arc::get_mut(&mut self.active.table).expect("an active table is not shared");
        table.push(bytes, slots);
        debug_assert_eq!(table.len(), base + slots.len(), "every entry got its place");
        self.next = Sequence::new(self.next.get() + slots.len() as u64).unwrap_or(Sequence::MAX);
        hurry
    }

    /// Leaves out the sequences before `first`: they were given out by a process that did not wait
    /// for the disk, and a loss of power took them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when `first` is behind what was admitted, or absurdly far ahead.
    pub fn skip_to(&mut self, first: Sequence) -> Result<(), StoreError> {
        let missing = first.get().checked_sub(self.next.get()).filter(|n| *n <= SKIP_MAX);
        let missing = missing.ok_or_else(|| {
            let (next, first) = (self.next.get(), first.get());
            StoreError::damaged(format_args!("sequence {first} follows {next} in the journal"))
        })?;
        let table = Arc::get_mut(&mut self.active.table).expect("an active table is not shared");
        for _ in 0..missing {
            self.active.gone.set(table.len());
            table.push_nothing();
        }
        self.next = first;
        Ok(())
    }

    /// Sets the active table aside to be written out; what comes in later goes to a new one.
    pub fn freeze(&mut self, journal_end: Position) {
        assert!(self.frozen.is_none(), "one table is written out at a time");
        let fresh = Tabled::new(self.next, journal_end);
        self.frozen = Some(std::mem::replace(&mut self.active, fresh));
    }

    /// Notes that what is admitted next stands at `position` of the journal or behind it. An empty
    /// table needs nothing of what stands before.
    pub fn begin_at(&mut self, position: Position) {
        let table = Arc::get_mut(&mut self.active.table).expect("an active table is not shared");
        if table.is_empty() {
            table.journal_start = position;
        }
    }

    /// Where the journal has to be read from to get the tables back; `None` when they are empty.
    #[must_use]
    pub fn journal_start(&self) -> Option<Position> {
        let tables = [self.frozen.as_ref(), Some(&self.active)].into_iter().flatten();
        let mut filled = tables.filter(|tabled| !tabled.table.is_empty());
        filled.next().map(|tabled| tabled.table.journal_start)
    }

    /// The first sequence that the tables may hold: what came before is in runs or has ended.
    #[must_use]
    pub fn tables_start(&self) -> Sequence {
        let first = self.frozen.as_ref().unwrap_or(&self.active).table.first();
        Sequence::new(first).unwrap_or(self.next)
    }

    /// Moves the horizon to at least `until`, and collects what lies before it.
    pub fn look_ahead(&mut self, until: Timestamp, step: Span) {
        self.armed_until = self.armed_until.max(until);
        if until <= self.horizon {
            return;
        }
        let horizon = until.saturating_add(step);
        for tabled in [self.frozen.as_ref(), Some(&self.active)].into_iter().flatten() {
            for (index, _) in tabled.table.due_within(self.horizon, horizon) {
                if !tabled.gone.get(index)
                    && let Some(key) = tabled.table.key(index)
                    && let Some(content) = tabled.table.content(index)
                {
                    self.near.push(key, content);
                }
            }
        }
        self.horizon = horizon;
    }

    /// The due time of the first entry of tables and near future that was not handed out.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let near = self.near.peek().map(|key| key.due);
        let tables = [self.frozen.as_ref(), Some(&self.active)].into_iter().flatten();
        let waiting = |tabled: &Tabled| {
            let alive = tabled.table.iter().filter(|(index, _)| !tabled.gone.get(*index));
            alive.map(|(_, slot)| slot.due).filter(|due| *due >= self.horizon).min()
        };
        near.into_iter().chain(tables.filter_map(waiting)).min()
    }

    /// Brings the horizon nearer until the near future takes at most `bytes`, if that is possible:
    /// what was asked for already cannot be put back.
    pub fn shrink(&mut self, bytes: usize) {
        while self.near.bytes() > bytes {
            let Some(horizon) = self.near.middle(self.armed_until) else { return };
            for key in self.near.cut(horizon) {
                if let Place::Run(number) = self.place(key.sequence)
                    && let Some(shelved) = self.runs.get_mut(&number)
                {
                    shelved.forget_early(key);
                }
            }
            self.horizon = horizon;
            for (&number, shelved) in &mut self.runs {
                let from = start_of(horizon).max(shelved.floor);
                if shelved.read_from > from {
                    shelved.read_from = from;
                    self.changes.push(ShelfChange::Seek(number, shelved.read_from));
                }
            }
        }
    }

    /// How the message of this id stands, as far as memory tells; `stamp` is what the run that
    /// covers it says, where one does.
    #[must_use]
    pub fn standing(&self, id: MessageId, stamp: Option<Stamp>) -> Standing {
        let sequence = id.key.sequence;
        if !self.topics.contains(&id.topic) {
            return Standing::Unknown;
        }
        // It never waited here.
        if sequence.offset().is_some() {
            return Standing::Past;
        }
        if sequence >= self.next {
            return Standing::Unknown;
        }
        let expected = Stamp::new(id.key.due, id.topic, id.partition);
        let (known, ended) = match self.place(sequence) {
            Place::Active(index) => {
                (in_table(&self.active, index, id), self.active.gone.get(index))
            }
            Place::Frozen(index) => match &self.frozen {
                Some(frozen) => (in_table(frozen, index, id), frozen.gone.get(index)),
                None => (false, true),
            },
            Place::Run(number) => match (stamp, self.runs.get(&number)) {
                (Some(stamp), Some(shelved)) => (stamp == expected, shelved.has_ended(id.key)),
                (None, _) | (_, None) => return self.past(sequence),
            },
            Place::Nowhere => return self.past(sequence),
        };
        if !known {
            return Standing::Unknown;
        }
        if self.is_cancelled(sequence) {
            Standing::In(LifeState::Cancelled)
        } else if ended || self.is_claimed(sequence) {
            Standing::In(LifeState::Delivered)
        } else {
            Standing::In(LifeState::Scheduled)
        }
    }

    fn past(&self, sequence: Sequence) -> Standing {
        if self.is_cancelled(sequence) {
            Standing::In(LifeState::Cancelled)
        } else {
            Standing::Past
        }
    }

    /// Begins a new period of remembered cancels and forgets those before the last one. An entry
    /// that still lies somewhere keeps its cancel: without it, it would look delivered.
    pub fn forget_cancels(&mut self) {
        let [recent, before, long_ago] = std::mem::take(&mut self.cancelled);
        let lies = |number: &u64| {
            Sequence::new(*number).is_some_and(|sequence| self.place(sequence) != Place::Nowhere)
        };
        let kept: RoaringTreemap = (before | long_ago).iter().filter(lies).collect();
        self.cancelled = [RoaringTreemap::new(), recent, kept];
    }

    /// Whether it was cancelled in this period or in the one before.
    #[must_use]
    pub fn is_cancelled_lately(&self, sequence: Sequence) -> bool {
        let [recent, before, _] = &self.cancelled;
        recent.contains(sequence.get()) || before.contains(sequence.get())
    }

    fn is_cancelled(&self, sequence: Sequence) -> bool {
        self.cancelled.iter().any(|set| set.contains(sequence.get()))
    }

    /// The run that covers `sequence`.
    #[must_use]
    pub fn run_of(&self, sequence: Sequence) -> Option<&Shelved> {
        match self.place(sequence) {
            Place::Run(number) => self.runs.get(&number),
            Place::Active(_) | Place::Frozen(_) | Place::Nowhere => None,
        }
    }

    /// The record of `sequence`, while it is in memory.
    #[must_use]
    pub fn content(&self, sequence: Sequence) -> Option<Bytes> {
        let (tabled, index) = match self.place(sequence) {
            Place::Active(index) => (&self.active, index),
            Place::Frozen(index) => (self.frozen.as_ref()?, index),
            Place::Run(_) | Place::Nowhere => return None,
        };
        tabled.table.content(index).map(Bytes::copy_from_slice)
    }

    /// Cancels a pending message; the caller makes it durable. False when it had ended before.
    pub fn cancel(&mut self, key: Key, topic: TopicId) -> bool {
        let fresh = self.withdraw(key, topic);
        if fresh {
            let [recent, ..] = &mut self.cancelled;
            recent.insert(key.sequence.get());
        }
        fresh
    }

    /// Ends an entry that is not to fire: cancelled, or replaced by another. The caller makes it
    /// durable. False when it had ended before.
    pub fn withdraw(&mut self, key: Key, topic: TopicId) -> bool {
        let fresh = self.end_unread(key, topic);
        if fresh {
            for tabled in [self.frozen.as_mut(), Some(&mut self.active)].into_iter().flatten() {
                if tabled.table.index(key.sequence).is_some() {
                    tabled.withdrawn.insert(key.sequence.get());
                }
            }
        }
        fresh
    }

    /// Ends a message that nobody holds: cancelled, or delivered before a restart. False when it
    /// had ended before.
    pub fn end_unread(&mut self, key: Key, topic: TopicId) -> bool {
        let fresh = match self.place(key.sequence) {
            Place::Active(index) => self.active.gone.set(index),
            Place::Frozen(index) => self.frozen.as_mut().is_some_and(|t| t.gone.set(index)),
            Place::Run(number) => self.runs.get_mut(&number).is_some_and(|shelved| {
                let fresh = !shelved.has_ended(key);
                if fresh {
                    shelved.withdraw(key, topic);
                }
                fresh
            }),
            Place::Nowhere => false,
        };
        if fresh {
            self.discount(topic);
        }
        fresh
    }

    /// Whether an entry that is being handed out, or was, has been cancelled or lost its topic.
    #[must_use]
    pub fn is_withdrawn(&self, sequence: Sequence, topic: TopicId) -> bool {
        !self.topics.contains(&topic) || self.is_gone(sequence)
    }

    fn is_gone(&self, sequence: Sequence) -> bool {
        match self.place(sequence) {
            Place::Active(index) => self.active.gone.get(index),
            Place::Frozen(index) => self.frozen.as_ref().is_none_or(|t| t.gone.get(index)),
            Place::Run(number) => {
                self.runs.get(&number).is_none_or(|s| s.gone.contains(sequence.get()))
            }
            Place::Nowhere => true,
        }
    }

    /// Ends an entry that was handed out: from the run `origin`, or from the near future.
    pub fn end_handed(&mut self, key: Key, topic: TopicId, origin: Option<u64>) {
        let withdrawn = self.is_gone(key.sequence);
        match self.place(key.sequence) {
            Place::Active(index) => {
                self.active.gone.set(index);
            }
            Place::Frozen(index) => {
                if let Some(frozen) = &mut self.frozen {
                    frozen.gone.set(index);
                }
            }
            Place::Run(number) => {
                if let Some(shelved) = self.runs.get_mut(&number) {
                    if origin.is_some() {
                        shelved.end_handed(key);
                    } else {
                        shelved.end_unread(key);
                    }
                    if !withdrawn {
                        shelved.discount(topic);
                    }
                }
            }
            Place::Nowhere => return,
        }
        if !withdrawn {
            self.discount(topic);
        }
    }

    /// Notes what else is on its way to the outlet.
    pub fn claim(&mut self, sequences: impl Iterator<Item = u64>) {
        self.in_flight.extend(sequences);
        self.in_flight.sort_unstable();
        self.in_flight.dedup();
    }

    /// These are no longer on their way.
    pub fn unclaim(&mut self, sequences: impl ExactSizeIterator<Item = u64>) {
        // Mostly that is everything.
        if sequences.len() == self.in_flight.len() {
            self.in_flight.clear();
            return;
        }
        let mut ended: Vec<u64> = sequences.collect();
        ended.sort_unstable();
        self.in_flight.retain(|sequence| ended.binary_search(sequence).is_err());
    }

    /// How the message of this id stands if it came back from its way to the outlet; of one that is
    /// not on its way, that it has ended.
    #[must_use]
    pub fn standing_unclaimed(&self, id: MessageId, stamp: Option<Stamp>) -> Standing {
        match self.standing(id, stamp) {
            Standing::In(LifeState::Delivered) if self.is_claimed(id.key.sequence) => {
                if self.is_gone(id.key.sequence) {
                    Standing::In(LifeState::Delivered)
                } else {
                    Standing::In(LifeState::Scheduled)
                }
            }
            Standing::In(LifeState::Scheduled) => Standing::In(LifeState::Delivered),
            standing => standing,
        }
    }

    fn is_claimed(&self, sequence: Sequence) -> bool {
        self.in_flight.binary_search(&sequence.get()).is_ok()
    }

    /// Puts a run on the shelf.
    pub fn shelve(&mut self, shelved: Shelved) {
        self.edition += 1;
        let number = shelved.run.number;
        for span in &shelved.run.spans {
            let end = span.first + u64::from(span.sequences);
            self.spans.insert(span.first, (end, number));
        }
        self.runs.insert(number, shelved);
    }

    /// Takes a run off the shelf.
    pub fn unshelve(&mut self, number: u64) -> Option<Shelved> {
        let shelved = self.runs.remove(&number)?;
        self.edition += 1;
        for span in &shelved.run.spans {
            if self.spans.get(&span.first).is_some_and(|&(_, owner)| owner == number) {
                self.spans.remove(&span.first);
            }
        }
        Some(shelved)
    }

    /// Forgets what was pending for a topic that is no more.
    pub fn drop_topic(&mut self, topic: TopicId) {
        self.topics.remove(&topic);
        self.counts.remove(&topic);
        for shelved in self.runs.values_mut() {
            shelved.counts.remove(&topic);
            shelved.ended.forget(topic);
        }
    }

    fn discount(&mut self, topic: TopicId) {
        if let Some(count) = self.counts.get_mut(&topic) {
            *count = count.saturating_sub(1);
        }
    }

    fn place(&self, sequence: Sequence) -> Place {
        if let Some(index) = self.active.table.index(sequence) {
            return Place::Active(index);
        }
        if let Some(index) = self.frozen.as_ref().and_then(|t| t.table.index(sequence)) {
            return Place::Frozen(index);
        }
        match self.spans.range(..=sequence.get()).next_back() {
            Some((_, &(end, number))) if sequence.get() < end => Place::Run(number),
            _ => Place::Nowhere,
        }
    }
}

fn add_count(counts: &mut HashMap<TopicId, u64>, more: Option<(TopicId, u64)>) {
    if let Some((topic, count)) = more {
        *counts.entry(topic).or_default() += count;
    }
}

fn in_table(tabled: &Tabled, index: usize, id: MessageId) -> bool {
    tabled.table.slot(index).is_some_and(|slot| {
        slot.due == id.key.due && slot.topic == id.topic && slot.partition == id.partition
    })
}
