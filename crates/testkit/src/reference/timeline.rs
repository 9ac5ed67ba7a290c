//! [`Timeline`] and [`Outlet`] of the reference: one map of all that waits, searched from its start.

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Delivered, Found, Origin, Outlet, PendingEntry, PendingPage,
    PendingQuery, StoreError, Timeline,
};
use punctual_model::{Entry, Event, Key, Lane, MessageId, Timestamp, TopicId};

use super::{Listener, Reference, id_of};

impl Timeline for Reference {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        // The listener may call back into the store, so the lock must be gone by then.
        let (ids, listener) = self.lock().accept_all(Lane::Message, batch);
        if let Some(listener) = listener {
            listener(Lane::Message);
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

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        let mut memory = self.lock();
        memory.armed_until[lane.index()] = until;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (key, (entry, handed_out)) in &mut memory.waiting {
            if key.due >= until || batch.len() >= limit.entries || bytes >= limit.bytes {
                break;
            }
            if key.sequence.lane() == lane && !*handed_out {
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
