//! The seams in their simplest form: everything in ordered maps, nothing durable.
//!
//! It proves the conformance suites against something whose correctness can be seen by reading it,
//! and serves as the oracle of random tests. It is slow on purpose wherever that is simpler.

mod timeline;
mod topics;
mod groups;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_model::ports::{CancelOutcome, Delivered, Topic, TopicError};
use punctual_model::{
    Entry, Event, Group, GroupName, Key, Lane, MessageId, Partition, Sequence, Source, State,
    Timestamp, TopicId, TopicName,
};

use self::groups::Progress;

/// A timeline, its topics, their groups and their outlet in memory; clones share everything.
#[derive(Clone, Default)]
pub struct Reference {
    memory: Arc<Mutex<Memory>>,
}

type Listener = Arc<dyn Fn(Lane) + Send + Sync>;

#[derive(Default)]
struct Memory {
    /// In each lane.
    sequences_given: [u64; 2],
    /// What is scheduled, and with it whether it was handed out.
    waiting: BTreeMap<Key, (Entry, bool)>,
    /// Everything that ended.
    ended: BTreeMap<MessageId, State>,
    /// For each lane.
    armed_until: [Timestamp; 2],
    listener: Option<Listener>,
    topics_given: u32,
    topics: BTreeMap<TopicName, Arc<Topic>>,
    logs: BTreeMap<(TopicId, Partition), Vec<Delivered>>,
    groups_given: u32,
    groups: BTreeMap<(TopicId, GroupName), Arc<Group>>,
    /// A source without an entry is at its beginning.
    progress: BTreeMap<Source, Progress>,
}

impl Reference {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.lock().waiting.len();
        f.debug_struct("Reference").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Memory {
    fn accept(&mut self, lane: Lane, entry: Entry) -> MessageId {
        let given = &mut self.sequences_given[lane.index()];
        let number = lane.first().get() + *given;
        *given += 1;
        let sequence = Sequence::new(number).expect("tests accept fewer than a lane has");
        let key = Key { due: entry.due, sequence };
        let id = id_of(key, &entry);
        self.waiting.insert(key, (entry, false));
        id
    }

    /// Accepts a whole batch, and tells who has to hear of it.
    fn accept_all(&mut self, lane: Lane, batch: Vec<Entry>) -> (Vec<MessageId>, Option<Listener>) {
        let late = batch.iter().any(|entry| entry.due < self.armed_until[lane.index()]);
        let ids = batch.into_iter().map(|entry| self.accept(lane, entry)).collect();
        (ids, self.listener.clone().filter(|_| late))
    }

    fn pending(&self, id: MessageId) -> Option<&Entry> {
        let (entry, _) = self.waiting.get(&id.key)?;
        Some(entry).filter(|entry| id_of(id.key, entry) == id)
    }

    fn state(&self, id: MessageId) -> Option<State> {
        self.pending(id).map(|_| State::Scheduled).or_else(|| self.ended.get(&id).copied())
    }

    /// Takes the step `event`, if it is allowed.
    fn end(&mut self, id: MessageId, event: Event) -> bool {
        let Some(after) = self.state(id).and_then(|state| state.after(event)) else {
            return false;
        };
        self.waiting.remove(&id.key);
        self.ended.insert(id, after);
        true
    }

    fn cancel(&mut self, id: MessageId) -> CancelOutcome {
        match self.state(id) {
            None => CancelOutcome::NotFound,
            Some(State::Delivered) => CancelOutcome::AlreadyDelivered,
            Some(State::Cancelled) => CancelOutcome::AlreadyCancelled,
            Some(State::Scheduled) => {
                self.end(id, Event::Cancel);
                CancelOutcome::Cancelled
            }
        }
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

fn id_of(key: Key, entry: &Entry) -> MessageId {
    MessageId { key, topic: entry.topic, partition: entry.partition }
}
