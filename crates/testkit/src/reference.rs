//! The seams in their simplest form: everything in ordered maps, nothing durable.
//!
//! It proves the conformance suites against something whose correctness can be seen by reading it,
//! and serves as the oracle of random tests. It is slow on purpose wherever that is simpler.

mod timeline;
mod revise;
mod topics;
mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_model::ports::{CancelOutcome, Delivered, PendingEntry, Topic, TopicError};
use punctual_model::{
    DelayLevels, Entry, Event, Group, GroupName, Key, Lane, MessageId, Partition, Sequence, Source,
    State, Timestamp, TopicId, TopicName,
};

use self::groups::Progress;
use self::revise::Names;

/// A timeline, its topics, their groups and their outlet in memory; clones share everything.
#[derive(Clone, Default)]
pub struct Reference {
    memory: Arc<Mutex<Memory>>,
}

type Listener = Arc<dyn Fn(Lane) + Send + Sync>;

#[derive(Default)]
struct Memory {
    book: Book,
    /// For each lane.
    armed_until: [Timestamp; 2],
    /// Claimed, and neither settled nor deferred.
    claimed: BTreeSet<Key>,
    listener: Option<Listener>,
    topics_given: u32,
    topics: BTreeMap<TopicName, Arc<Topic>>,
    levels: DelayLevels,
    logs: BTreeMap<(TopicId, Partition), Vec<Delivered>>,
    groups_given: u32,
    groups: BTreeMap<(TopicId, GroupName), Arc<Group>>,
    /// A source without an entry is at its beginning.
    progress: BTreeMap<Source, Progress>,
}

/// All that is known of messages; a copy of it is what a refused change goes back to.
#[derive(Clone, Default)]
struct Book {
    /// In each lane.
    sequences_given: [u64; 2],
    /// What is pending, where it stands now, and with it whether it was handed out.
    waiting: BTreeMap<Key, (Entry, bool)>,
    /// Where each pending message stands that was moved since it was accepted.
    moved: BTreeMap<MessageId, Key>,
    names: Names,
    /// Everything that ended.
    ended: BTreeMap<MessageId, State>,
}

impl Reference {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same after a restart: everything pending is handed out again.
    #[must_use]
    pub fn restarted(self) -> Self {
        let mut memory = self.lock();
        memory.book.waiting.values_mut().for_each(|(_, handed_out)| *handed_out = false);
        memory.armed_until = Default::default();
        memory.claimed.clear();
        memory.listener = None;
        drop(memory);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lock().book.waiting.len();
        f.debug_struct("Reference").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Memory {
    /// Accepts a whole batch, and tells who has to hear of it.
    fn accept_all(&mut self, lane: Lane, batch: Vec<Entry>) -> (Vec<MessageId>, Option<Listener>) {
        let late = batch.iter().any(|entry| entry.due < self.armed_until[lane.index()]);
        let ids = batch.into_iter().map(|entry| self.book.accept(lane, entry)).collect();
        (ids, self.listener.clone().filter(|_| late))
    }

    fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.values().find(|topic| topic.id == id)
    }

    fn log(&self, topic: TopicId, partition: Partition) -> Result<&[Delivered], TopicError> {
        let found = self.topic(topic).ok_or(TopicError::NotFound)?;
        if partition.get() >= found.settings.partitions {
            return Err(TopicError::NotFound);
        }
        Ok(self.logs.get(&(topic, partition)).map_or(&[], Vec::as_slice))
    }
}

impl Book {
    /// Stores a new message.
    fn accept(&mut self, lane: Lane, entry: Entry) -> MessageId {
        let key = self.store(lane, entry);
        let (entry, _) = &self.waiting[&key];
        let id = id_of(key, entry);
        if let Some(own) = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref()) {
            self.names.give(entry.topic, own, id);
        }
        id
    }

    /// Puts an entry on the timeline.
    fn store(&mut self, lane: Lane, entry: Entry) -> Key {
        let given = &mut self.sequences_given[lane.index()];
        let number = lane.first().get() + *given;
        *given += 1;
        let sequence = Sequence::new(number).expect("tests accept fewer than a lane has");
        let key = Key { due: entry.due, sequence };
        self.waiting.insert(key, (entry, false));
        key
    }

    fn pending(&self, id: MessageId) -> Option<PendingEntry> {
        let key = *self.moved.get(&id).unwrap_or(&id.key);
        let (entry, _) = self.waiting.get(&key)?;
        Some(shown(key, entry)).filter(|shown| shown.id == id)
    }

    fn state(&self, id: MessageId) -> Option<State> {
        let pending = self.pending(id).map(|shown| shown.state());
        pending.or_else(|| self.ended.get(&id).copied())
    }

    /// Takes the step `event`, if it is allowed.
    fn end(&mut self, id: MessageId, event: Event) -> bool {
        let Some(after) = self.state(id).and_then(|state| state.after(event)) else {
            return false;
        };
        let key = self.moved.remove(&id).unwrap_or(id.key);
        self.waiting.remove(&key);
        self.ended.insert(id, after);
        true
    }

    fn cancel(&mut self, id: MessageId) -> CancelOutcome {
        match self.state(id) {
            None => CancelOutcome::NotFound,
            Some(State::Delivered) => CancelOutcome::AlreadyDelivered,
            Some(State::Cancelled) => CancelOutcome::AlreadyCancelled,
            Some(State::Prepared) => CancelOutcome::Undecided,
            Some(State::Scheduled | State::Paused) => {
                self.end(id, Event::Cancel);
                CancelOutcome::Cancelled
            }
        }
    }

    fn forget_topic(&mut self, id: TopicId) {
        self.waiting.retain(|_, (entry, _)| entry.topic != id);
        self.moved.retain(|message, _| message.topic != id);
        self.names.forget_topic(id);
        self.ended.retain(|message, _| message.topic != id);
    }
}

/// The id of the message that stands at `key`.
fn id_of(key: Key, entry: &Entry) -> MessageId {
    let changed = entry.extra.as_ref().and_then(|extra| extra.changed);
    let key = changed.map_or(key, |changed| changed.first);
    MessageId { key, topic: entry.topic, partition: entry.partition }
}

fn shown(key: Key, entry: &Entry) -> PendingEntry {
    PendingEntry {
        id: id_of(key, entry),
        key,
        basis: entry.basis,
        message: entry.message.clone(),
        extra: entry.extra.clone(),
    }
}
