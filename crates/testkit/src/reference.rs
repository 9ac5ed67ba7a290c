//! The seams in their simplest form: everything in ordered maps, nothing durable.
//!
//! It proves the conformance suites against something whose correctness can be seen by reading it,
//! and serves as the oracle of random tests. It is slow on purpose wherever that is simpler.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_model::limits::TOPICS_MAX;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Delivered, Found, LogBounds, LogPosition, Origin, Outlet,
    PendingEntry, PendingPage, PendingQuery, StoreError, Timeline, Topic, TopicError, Topics,
};
use punctual_model::{
    Entry, Event, Key, MessageId, Partition, Sequence, State, Timestamp, TopicId, TopicName,
    TopicSettings,
};

/// A timeline, its topics and their outlet in memory; clones share everything.
#[derive(Clone, Default)]
pub struct Reference {
    memory: Arc<Mutex<Memory>>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Memory {
    sequences_given: u64,
    /// What is scheduled, and with it whether it was handed out.
    waiting: BTreeMap<Key, (Entry, bool)>,
    /// Everything that ended.
    ended: BTreeMap<MessageId, State>,
    armed_until: Timestamp,
    listener: Option<Listener>,
    topics_given: u32,
    topics: BTreeMap<TopicName, Arc<Topic>>,
    logs: BTreeMap<(TopicId, Partition), Vec<Delivered>>,
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
    fn accept(&mut self, entry: Entry) -> MessageId {
        self.sequences_given += 1;
        let sequence = Sequence::new(self.sequences_given).expect("tests accept fewer than 2^56");
        let key = Key { due: entry.due, sequence };
        let id = id_of(key, &entry);
        self.waiting.insert(key, (entry, false));
        id
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

    fn log(&self, topic: TopicId, partition: Partition) -> Result<&[Delivered], TopicError> {
        let found = self.topics.values().find(|found| found.id == topic);
        let found = found.ok_or(TopicError::NotFound)?;
        if partition.get() >= found.settings.partitions {
            return Err(TopicError::NotFound);
        }
        Ok(self.logs.get(&(topic, partition)).map_or(&[], Vec::as_slice))
    }
}

fn id_of(key: Key, entry: &Entry) -> MessageId {
    MessageId { key, topic: entry.topic, partition: entry.partition }
}

fn armed(key: Key, entry: &Entry) -> Armed {
    Armed {
        key,
        topic: entry.topic,
        partition: entry.partition,
        basis: entry.basis,
        message: entry.message.clone(),
        origin: Origin(key.sequence.get()),
    }
}

impl Timeline for Reference {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        let mut memory = self.lock();
        let late = batch.iter().any(|entry| entry.due < memory.armed_until);
        let ids = batch.into_iter().map(|entry| memory.accept(entry)).collect();
        let listener = memory.listener.clone().filter(|_| late);
        // The listener may call back into the store.
        drop(memory);
        if let Some(listener) = listener {
            listener();
        }
        Ok(ids)
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        let mut memory = self.lock();
        Ok(ids.into_iter().map(|id| memory.cancel(id)).collect())
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        let memory = self.lock();
        let find = |id| {
            let state = memory.state(id)?;
            let message = memory.pending(id).map(|entry| entry.message.clone());
            Some(Found { state, entry: message.map(|message| PendingEntry { id, message }) })
        };
        Ok(ids.into_iter().map(find).collect())
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let memory = self.lock();
        let wanted = |key: &Key, entry: &Entry| {
            entry.topic == query.topic
                && (query.from..query.to).contains(&key.due)
                && query.after.is_none_or(|after| *key > after)
                && query.key.as_ref().is_none_or(|key| entry.message.key.as_ref() == Some(key))
        };
        let mut found = memory.waiting.iter().filter(|(key, (entry, _))| wanted(key, entry));
        let show = |(key, (entry, _)): (&Key, &(Entry, bool))| PendingEntry {
            id: id_of(*key, entry),
            message: entry.message.clone(),
        };
        let entries: Vec<PendingEntry> = found.by_ref().take(query.limit).map(show).collect();
        let last = entries.last().map(|entry| entry.id.key);
        Ok(PendingPage { entries, next: found.next().and(last) })
    }

    async fn arm(&self, until: Timestamp, limit: ArmLimit) -> Result<Vec<Armed>, StoreError> {
        let mut memory = self.lock();
        memory.armed_until = until;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (key, (entry, handed_out)) in &mut memory.waiting {
            if key.due >= until || batch.len() >= limit.entries || bytes >= limit.bytes {
                break;
            }
            if !*handed_out {
                *handed_out = true;
                bytes += entry.message.weight();
                batch.push(armed(*key, entry));
            }
        }
        Ok(batch)
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        let mut memory = self.lock();
        batch.retain(|armed| memory.end(armed.id(), Event::Fire));
        Ok(())
    }

    async fn settle(&self, _batch: &[Armed]) -> Result<(), StoreError> {
        // Without a disk nothing is left to do once a batch was claimed.
        Ok(())
    }

    fn listen(&self, listener: Listener) {
        self.lock().listener = Some(listener);
    }

    fn counts(&self) -> Vec<(TopicId, u64)> {
        let mut counts = BTreeMap::new();
        for (entry, _) in self.lock().waiting.values() {
            *counts.entry(entry.topic).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}

impl Outlet for Reference {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<(), StoreError> {
        let mut memory = self.lock();
        let known: BTreeSet<TopicId> = memory.topics.values().map(|topic| topic.id).collect();
        // A topic deleted after the claim has no log to deliver to.
        for armed in batch.iter().filter(|armed| known.contains(&armed.topic)) {
            let log = memory.logs.entry((armed.topic, armed.partition)).or_default();
            log.push(Delivered {
                id: armed.id(),
                offset: log.len() as u64,
                delivered_at: now,
                message: armed.message.clone(),
            });
        }
        Ok(())
    }
}

impl Topics for Reference {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        let mut memory = self.lock();
        let id = match memory.topics.get(name) {
            Some(topic) if settings.partitions < topic.settings.partitions => {
                return Err(TopicError::CannotShrink(topic.settings.partitions));
            }
            Some(topic) => topic.id,
            None if memory.topics.len() >= TOPICS_MAX => return Err(TopicError::TooMany),
            None => {
                memory.topics_given += 1;
                TopicId::new(memory.topics_given).ok_or(TopicError::TooMany)?
            }
        };
        let topic = Arc::new(Topic { id, name: name.clone(), settings });
        memory.topics.insert(name.clone(), Arc::clone(&topic));
        Ok(topic)
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        let mut memory = self.lock();
        let Some(topic) = memory.topics.remove(name) else {
            return Ok(false);
        };
        memory.logs.retain(|(id, _), _| *id != topic.id);
        memory.waiting.retain(|_, (entry, _)| entry.topic != topic.id);
        memory.ended.retain(|id, _| id.topic != topic.id);
        Ok(true)
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.lock().topics.get(name).cloned()
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.lock().topics.values().find(|topic| topic.id == id).cloned()
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.lock().topics.values().cloned().collect()
    }

    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        let memory = self.lock();
        let log = memory.log(from.topic, from.partition)?;
        let behind = log.iter().filter(|delivered| delivered.offset >= from.offset);
        Ok(behind.take(limit).cloned().collect())
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        let end = self.lock().log(topic, partition)?.len() as u64;
        Ok(LogBounds { start: 0, end })
    }

    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        let memory = self.lock();
        let log = memory.logs.get(&(id.topic, id.partition));
        Ok(log.and_then(|log| log.iter().find(|delivered| delivered.id == id).cloned()))
    }
}
