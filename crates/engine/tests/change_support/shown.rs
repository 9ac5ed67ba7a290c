//! Everything a store shows of messages that may have been changed, read at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_engine::log::batch::{OWN_ID_HEADER, SERIES_HEADER};
use punctual_engine::store::Store;
use punctual_model::ports::{Found, LogPosition, PendingEntry, PendingQuery, Topic, TopicError};
use punctual_model::{
    Header, Key, Lane, Link, Message, MessageId, Partition, State, Timestamp, TopicId,
};

use super::runner::LATE_MS;
use super::world::{World, is_message};
use crate::store_support::at;

/// What a store shows.
#[derive(Debug, Default)]
pub struct Shown {
    topics: BTreeMap<TopicId, Arc<Topic>>,
    /// What is pending.
    pub pending: BTreeMap<MessageId, PendingEntry>,
    /// What is in the logs, with the time for which it was delivered.
    pub logged: BTreeMap<MessageId, (Timestamp, Message)>,
}

impl Shown {
    /// Reads everything.
    pub fn by(store: &Store) -> Result<Self, String> {
        let mut shown = Self::default();
        for topic in store.topics() {
            shown.topics.insert(topic.id, Arc::clone(&topic));
            for number in 0..topic.settings.partitions {
                shown.read_log(store, topic.id, Partition::new(number).unwrap())?;
            }
        }
        let topics: Vec<TopicId> = shown.topics.keys().copied().collect();
        for topic in topics.into_iter().chain([TopicId::TRANSACTIONS]) {
            for lane in Lane::ALL {
                shown.read_pending(store, topic, lane)?;
            }
            shown.compare_forecast(store, topic)?;
        }
        Ok(shown)
    }

    fn read_pending(&mut self, store: &Store, topic: TopicId, lane: Lane) -> Result<(), String> {
        let mut after: Option<Key> = None;
        let mut count = 0;
        loop {
            let query = PendingQuery { after, ..PendingQuery::all_of(topic, lane, 9) };
            let page = store.pending(query).map_err(|error| format!("pending: {error}"))?;
            for entry in page.entries {
                if after.is_some_and(|after| entry.key <= after) {
                    return Err(format!("{} is listed out of order", entry.id));
                }
                if entry.key.sequence.lane() != lane || entry.id.topic != topic {
                    return Err(format!("{} is listed in another lane or topic", entry.id));
                }
                after = Some(entry.key);
                count += 1;
                if let Some(twice) = self.pending.insert(entry.id, entry) {
                    return Err(format!("{} stands in two places: {twice:?}", twice.id));
                }
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        let told = store.counts_in(lane).into_iter().find(|(of, _)| *of == topic);
        let told = told.map_or(0, |(_, count)| count);
        if told == count {
            Ok(())
        } else {
            Err(format!("the store counts {told} of {topic:?} in {lane:?} and lists {count}"))
        }
    }

    fn read_log(&mut self, store: &Store, topic: TopicId, of: Partition) -> Result<(), String> {
        let read = |error: TopicError| format!("log: {error}");
        let bounds = store.logs().bounds(topic, of).map_err(read)?;
        let mut offset = bounds.start;
        while offset < bounds.end {
            let from = LogPosition { topic, partition: of, offset };
            let page = store.logs().read(from, 50).map_err(read)?;
            if page.is_empty() {
                return Err(format!("the log ends at {offset}, not at {}", bounds.end));
            }
            for delivered in page {
                offset = delivered.offset + 1;
                if delivered.delivered_at < delivered.due {
                    return Err(format!("{} has a time before its due time", delivered.id));
                }
                let what = (delivered.due, delivered.message);
                if self.logged.insert(delivered.id, what).is_some() {
                    return Err(format!("{} is in the log twice", delivered.id));
                }
            }
        }
        Ok(())
    }

    /// Holds the forecast of a topic against what is listed.
    fn compare_forecast(&self, store: &Store, topic: TopicId) -> Result<(), String> {
        let bounds: Vec<Timestamp> = [0, 1000, 5000, 60_000, 300_000].map(at).into();
        let told = store.forecast(topic, &bounds).map_err(|error| format!("forecast: {error}"))?;
        let of_topic = |entry: &&PendingEntry| entry.id.topic == topic && is_message(entry);
        let entries = || self.pending.values().filter(of_topic);
        let count = |state: State| entries().filter(|entry| entry.state() == state).count() as u64;
        let expected = [State::Scheduled, State::Paused, State::Prepared].map(count);
        let before: Vec<u64> = bounds
            .iter()
            .map(|bound| entries().filter(|entry| entry.key.due < *bound).count() as u64)
            .collect();
        if [told.scheduled, told.paused, told.prepared] == expected && told.before == before {
            Ok(())
        } else {
            Err(format!("the forecast of {topic:?} is {told:?}; listed {expected:?} {before:?}"))
        }
    }

    /// Whether this is `world`, where anything may have been delivered for the time it had last.
    pub fn compare(&self, store: &Store, world: &World) -> Result<(), String> {
        if self.topics != world.topics {
            return Err(format!("topics {:?}, not {:?}", self.topics, world.topics));
        }
        for (id, entry) in &world.alive {
            self.compare_alive(store, *id, entry)?;
        }
        let there: BTreeSet<&MessageId> = self.pending.keys().chain(self.logged.keys()).collect();
        if let Some(id) = there.into_iter().find(|id| !world.alive.contains_key(id)) {
            let was = if world.cancelled.contains(id) { "was cancelled" } else { "nobody sent" };
            return Err(format!("{id} is there, which {was}"));
        }
        for id in &world.cancelled {
            let state = state(store, *id)?;
            if state != Some(State::Cancelled) {
                return Err(format!("{id} was cancelled and is {state:?}"));
            }
        }
        self.compare_names(store, world)
    }

    fn compare_alive(
        &self,
        store: &Store,
        id: MessageId,
        entry: &PendingEntry,
    ) -> Result<(), String> {
        match (self.pending.get(&id), self.logged.get(&id)) {
            (Some(pending), None) if pending == entry => {}
            (Some(pending), None) => return Err(format!("{id} is {pending:?}, not {entry:?}")),
            (None, Some((due, message))) => {
                if *due != entry.key.due || *message != labelled(entry) {
                    return Err(format!("{id} was delivered for {due} as {message:?}: {entry:?}"));
                }
            }
            (None, None) => return Err(format!("{id} is lost: {entry:?}")),
            (Some(_), Some(_)) => return Err(format!("{id} is pending and in the log")),
        }
        let expected = self.pending.get(&id).map_or(State::Delivered, PendingEntry::state);
        let found = find(store, id)?;
        let shown = found.as_ref().map(|found| (found.state, found.entry.as_ref()));
        if shown == Some((expected, self.pending.get(&id))) {
            Ok(())
        } else {
            Err(format!("{id} is {expected:?} and found as {found:?}"))
        }
    }

    fn compare_names(&self, store: &Store, world: &World) -> Result<(), String> {
        let texts: BTreeSet<&Arc<str>> = world.names.keys().map(|(_, text)| text).collect();
        let mut texts: Vec<Arc<str>> = texts.into_iter().cloned().collect();
        texts.push("nobody has it".into());
        for topic in self.topics.keys() {
            let told = store.named(*topic, &texts, at(LATE_MS));
            let told = told.map_err(|error| format!("named: {error}"))?;
            for (text, told) in texts.iter().zip(told) {
                let expected = world.names.get(&(*topic, Arc::clone(text))).map(|(id, _)| *id);
                if told != expected {
                    return Err(format!("{text} of {topic:?} is {told:?}, not {expected:?}"));
                }
            }
        }
        Ok(())
    }
}

/// The message as it is delivered: with headers that tell its name and its series.
fn labelled(entry: &PendingEntry) -> Message {
    let mut message = entry.message.clone();
    let Some(extra) = &entry.extra else { return message };
    let own_id = extra.own_id.as_ref().map(|own| (OWN_ID_HEADER, own.text.to_string()));
    let series = extra.series.and_then(Link::id).map(|id| (SERIES_HEADER, id.to_string()));
    for (name, value) in own_id.into_iter().chain(series) {
        message.headers.push(Header { name: name.to_owned(), value: value.into() });
    }
    message
}

fn find(store: &Store, id: MessageId) -> Result<Option<Found>, String> {
    let mut found = store.find(&[id]).map_err(|error| format!("find: {error}"))?;
    Ok(found.remove(0))
}

fn state(store: &Store, id: MessageId) -> Result<Option<State>, String> {
    Ok(find(store, id)?.map(|found| found.state))
}
