//! [`Timeline`] and [`Outlet`] of the reference: one map of all that waits, searched from its start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_engine::log::batch::{OWN_ID_HEADER, SERIES_HEADER};
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Delivered, Forecast, Found, Order, Origin, Outlet,
    PendingEntry, PendingPage, PendingQuery, Revised, StoreError, Timeline, Untaken,
};
use punctual_model::{
    Action, Entry, Event, Header, Key, Lane, Link, Message, MessageId, State, Timestamp, TopicId,
};

use super::{Listener, Reference, shown};

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
        Ok(ids.into_iter().map(|id| memory.book.cancel(id)).collect())
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        let (revised, listeners) = self.lock().revise(orders);
        for (lane, listener) in listeners {
            listener(lane);
        }
        Ok(revised)
    }

    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        let memory = self.lock();
        let owner = |text: &Arc<str>| memory.book.names.owner(topic, text).map(|(id, _)| id);
        Ok(own_ids.iter().map(owner).collect())
    }

    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        let memory = self.lock();
        let waiting = memory.book.waiting.iter();
        let counted = waiting.filter(|(_, (entry, _))| entry.topic == topic && delivers(entry));
        let mut forecast = Forecast { before: vec![0; bounds.len()], ..Forecast::default() };
        for (key, (entry, _)) in counted {
            match shown(*key, entry).state() {
                State::Paused => forecast.paused += 1,
                State::Prepared => forecast.prepared += 1,
                _ => {
                    forecast.scheduled += 1;
                    let due = key.due.as_millis();
                    for (before, bound) in forecast.before.iter_mut().zip(&bounds) {
                        *before += u64::from(due < bound.as_millis().next_multiple_of(1000));
                    }
                }
            }
        }
        Ok(forecast)
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        let memory = self.lock();
        let find = |id| {
            let state = memory.book.state(id)?;
            Some(Found { state, entry: memory.book.pending(id) })
        };
        Ok(ids.into_iter().map(find).collect())
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let memory = self.lock();
        let wanted = |key: &Key, entry: &Entry| {
            let message_key = entry.message.key.as_ref();
            entry.topic == query.topic
                && key.sequence.lane() == query.lane
                && query.from <= key.due
                && (key.due < query.to || query.to == Timestamp::MAX)
                && query.after.is_none_or(|after| *key > after)
                && query.key.as_ref().is_none_or(|key| message_key == Some(key))
                && query
                    .key_prefix
                    .as_ref()
                    .is_none_or(|prefix| message_key.is_some_and(|key| key.starts_with(prefix)))
        };
        let mut found = memory.book.waiting.iter().filter(|(key, (entry, _))| wanted(key, entry));
        let show = |(key, (entry, _)): (&Key, &(Entry, bool))| shown(*key, entry);
        let entries: Vec<PendingEntry> = found.by_ref().take(query.limit).map(show).collect();
        let last = entries.last().map(|entry| entry.key);
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
        for (key, (entry, handed_out)) in &mut memory.book.waiting {
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
        // What was moved since it was armed comes again, from where it stands now.
        batch.retain(|armed| {
            memory.book.waiting.contains_key(&armed.key) && memory.book.end(armed.id(), Event::Fire)
        });
        memory.claimed.extend(batch.iter().map(|armed| armed.key));
        Ok(())
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        let mut memory = self.lock();
        for armed in batch {
            memory.claimed.remove(&armed.key);
        }
        Ok(())
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        let mut heard = BTreeMap::new();
        let mut memory = self.lock();
        for (armed, due) in batch {
            let (id, lane) = (armed.id(), armed.key.sequence.lane());
            // The topic may be gone since the claim.
            if !memory.claimed.remove(&armed.key) || memory.book.ended.remove(&id).is_none() {
                continue;
            }
            let key = memory.book.store(lane, armed.deferred(due));
            memory.book.moved.insert(id, key);
            if due < memory.armed_until[lane.index()]
                && let Some(listener) = memory.listener.clone()
            {
                heard.insert(lane.index(), (lane, listener));
            }
        }
        drop(memory);
        for (lane, listener) in heard.into_values() {
            listener(lane);
        }
        Ok(())
    }

    async fn release(&self, _batch: &[Armed]) -> Result<(), StoreError> {
        // Nothing is held for what was armed.
        Ok(())
    }

    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        let memory = self.lock();
        let unarmed = |(key, (_, handed_out)): &(&Key, &(Entry, bool))| {
            key.sequence.lane() == lane && !handed_out && !key.due.is_parked()
        };
        Ok(memory.book.waiting.iter().find(unarmed).map(|(key, _)| key.due))
    }

    fn listen(&self, listener: Listener) {
        self.lock().listener = Some(listener);
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        let mut counts = BTreeMap::new();
        let memory = self.lock();
        let waiting = memory.book.waiting.iter();
        for (_, (entry, _)) in waiting.filter(|(key, _)| key.sequence.lane() == lane) {
            *counts.entry(entry.topic).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}

impl Outlet for Reference {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        let mut memory = self.lock();
        let known: BTreeSet<TopicId> = memory.topics.values().map(|topic| topic.id).collect();
        // A topic deleted after the claim has no log to deliver to.
        for armed in batch.iter().filter(|armed| known.contains(&armed.topic)) {
            let log = memory.logs.entry((armed.topic, armed.partition)).or_default();
            log.push(Delivered {
                id: armed.id(),
                offset: log.len() as u64,
                due: armed.key.due,
                delivered_at: now,
                message: labelled(armed),
            });
        }
        Ok(Vec::new())
    }
}

/// The message with headers that tell what it is called and to which series it belongs.
fn labelled(armed: &Armed) -> Message {
    let mut message = armed.message.clone();
    let Some(extra) = &armed.extra else { return message };
    let own_id = extra.own_id.as_ref().map(|own| (OWN_ID_HEADER, own.text.to_string()));
    let series = extra.series.and_then(Link::id).map(|id| (SERIES_HEADER, id.to_string()));
    for (name, value) in own_id.into_iter().chain(series) {
        message.headers.retain(|header| header.name != name);
        message.headers.push(Header { name: name.to_owned(), value: value.into() });
    }
    message
}

fn armed(key: Key, entry: &Entry) -> Armed {
    Armed {
        key,
        topic: entry.topic,
        partition: entry.partition,
        basis: entry.basis,
        message: entry.message.clone(),
        extra: entry.extra.clone(),
        origin: Origin(key.sequence.get()),
    }
}

/// Whether it is a message, not a series or a transaction.
fn delivers(entry: &Entry) -> bool {
    entry.extra.as_ref().is_none_or(|extra| extra.action == Action::Deliver)
}
