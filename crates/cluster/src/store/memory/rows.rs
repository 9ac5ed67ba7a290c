//! What the store in memory holds, and each call carried out on it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{Forecast, PendingEntry, PendingPage, PendingQuery};
use punctual_model::{Action, Entry, Key, Lane, MessageId, State, Timestamp, TopicId};

use crate::store::{
    Change, Counted, Document, Failure, Group, Kind, Marks, Named, Outcome, Slot, Stored, Tenure,
};

const HOUR_MS: u64 = 3_600_000;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Rows {
    slots: BTreeMap<Slot, (u64, Marks)>,
    messages: HashMap<MessageId, Row>,
    /// What is pending.
    places: BTreeMap<Key, MessageId>,
    names: HashMap<(TopicId, Arc<str>), (MessageId, u64)>,
    counts: BTreeMap<(TopicId, Lane, Kind, u32), i64>,
    documents: BTreeMap<(&'static str, Arc<str>), Document>,
    revisions: HashMap<&'static str, u64>,
}

#[derive(Clone, Debug)]
struct Row {
    key: Key,
    /// `None` once it has ended.
    entry: Option<Entry>,
    ended: Option<(State, Timestamp)>,
}

impl Row {
    fn state(&self, id: MessageId) -> State {
        match (self.ended, &self.entry) {
            (Some((state, _)), _) => state,
            (None, Some(entry)) => shown(id, self.key, entry).state(),
            (None, None) => State::Scheduled,
        }
    }
}

impl Rows {
    pub(super) fn marks(&self, slot: Slot) -> Option<Marks> {
        self.slots.get(&slot).map(|(_, marks)| *marks)
    }

    pub(super) fn take(&mut self, tenure: Tenure) -> Option<Marks> {
        let (term, marks) = self.slots.entry(tenure.slot).or_default();
        if *term > tenure.term {
            return None;
        }
        *term = tenure.term;
        Some(*marks)
    }

    fn holds(&self, tenure: Tenure) -> bool {
        self.slots.get(&tenure.slot).is_some_and(|(term, _)| *term == tenure.term)
    }

    pub(super) fn keep(&mut self, tenure: Tenure, marks: Marks, counted: &[Counted]) -> bool {
        if !self.holds(tenure) {
            return false;
        }
        self.slots.insert(tenure.slot, (tenure.term, marks));
        for Counted { topic, lane, kind, hour, difference } in counted {
            *self.counts.entry((*topic, *lane, *kind, *hour)).or_default() += difference;
        }
        self.counts.retain(|_, count| *count != 0);
        true
    }

    pub(super) fn apply(&mut self, group: Group) -> Result<Outcome, Failure> {
        if !self.holds(group.tenure) {
            return Ok(Outcome::Fenced);
        }
        for (index, change) in group.changes.iter().enumerate() {
            if let Change::Name { topic, text, expected, .. } = change {
                let owner = self.names.get(&(*topic, Arc::clone(text))).map(|(id, _)| *id);
                if owner != *expected {
                    return Ok(Outcome::NameTaken { index });
                }
            }
            if let Change::Put { key, .. } | Change::Move { to: key, .. } = change
                && self.places.contains_key(key)
            {
                return Err(Failure::Unavailable("the key is taken".into()));
            }
        }
        for change in group.changes {
            self.change(change);
        }
        Ok(Outcome::Done)
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Put { key, entry } => {
                let id = MessageId { key, topic: entry.topic, partition: entry.partition };
                self.places.insert(key, id);
                self.messages.insert(id, Row { key, entry: Some(entry), ended: None });
            }
            Change::Move { id, from, to, entry } => {
                self.places.remove(&from);
                self.places.insert(to, id);
                self.messages.insert(id, Row { key: to, entry: Some(entry), ended: None });
            }
            Change::End { id, key, state, at } => {
                self.places.remove(&key);
                let ended = self.messages.get_mut(&id).filter(|row| row.ended.is_none());
                if let Some(row) = ended {
                    (row.entry, row.ended) = (None, Some((state, at)));
                }
            }
            Change::Name { topic, text, print, id, .. } => {
                self.names.insert((topic, text), (id, print));
            }
        }
    }

    pub(super) fn page(
        &self,
        (slot, lane): (Slot, Lane),
        after: Key,
        until: Timestamp,
        (entries, bytes): (usize, usize),
    ) -> Vec<Stored> {
        let mut page: Vec<Stored> = Vec::new();
        let mut weight = 0;
        let past = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        for (key, id) in self.places.range(past) {
            let enough = page.len() >= entries || weight >= bytes;
            if key.due >= until || key.due.is_parked() || enough {
                break;
            }
            if Slot::of(key.sequence) == slot && key.sequence.lane() == lane {
                let stored = self.get(*id);
                let entry = stored.as_ref().and_then(|stored| stored.entry.as_ref());
                weight += entry.map_or(0, |entry| entry.message.weight());
                page.extend(stored);
            }
        }
        page
    }

    pub(super) fn get(&self, id: MessageId) -> Option<Stored> {
        let row = self.messages.get(&id)?;
        Some(Stored { id, key: row.key, state: row.state(id), entry: row.entry.clone() })
    }

    pub(super) fn named(&self, topic: TopicId, text: &Arc<str>) -> Option<Named> {
        let (id, print) = *self.names.get(&(topic, Arc::clone(text)))?;
        let row = self.messages.get(&id);
        let ended_at = row.and_then(|row| row.ended).map(|(_, at)| at);
        Some(Named { id, print, state: row.map(|row| row.state(id)), ended_at })
    }

    pub(super) fn pending(&self, query: &PendingQuery) -> PendingPage {
        let wanted = |shown: &PendingEntry| {
            let message_key = shown.message.key.as_ref();
            let begins = |prefix: &Bytes| message_key.is_some_and(|key| key.starts_with(prefix));
            shown.id.topic == query.topic
                && shown.key.sequence.lane() == query.lane
                && query.from <= shown.key.due
                && (shown.key.due < query.to || query.to == Timestamp::MAX)
                && query.after.is_none_or(|after| shown.key > after)
                && query.key.as_ref().is_none_or(|key| message_key == Some(key))
                && query.key_prefix.as_ref().is_none_or(begins)
        };
        let show = |(key, id): (&Key, &MessageId)| {
            let entry = self.messages.get(id)?.entry.as_ref()?;
            Some(shown(*id, *key, entry)).filter(wanted)
        };
        let mut found = self.places.iter().filter_map(show);
        let entries: Vec<PendingEntry> = found.by_ref().take(query.limit).collect();
        let last = entries.last().map(|entry| entry.key);
        PendingPage { entries, next: found.next().and(last) }
    }

    /// Whole hours are as they were counted; within the hour of a bound the entries are.
    pub(super) fn forecast(&self, topic: TopicId, bounds: &[Timestamp]) -> Forecast {
        let of = |wanted: Kind, until: Option<u64>| {
            let counted = self.counts.iter().filter(|((of, _, kind, hour), _)| {
                *of == topic
                    && *kind == wanted
                    && until.is_none_or(|until| u64::from(*hour) < until)
            });
            let sum: i64 = counted.map(|(_, count)| count).sum();
            u64::try_from(sum).unwrap_or(0)
        };
        let before = |bound: &Timestamp| {
            let bound = bound.as_millis().next_multiple_of(1000);
            let hour = bound / HOUR_MS;
            let in_the_hour = self.places.iter().filter(|(key, id)| {
                let due = key.due.as_millis();
                let row = self.messages.get(*id);
                let entry = row.and_then(|row| row.entry.as_ref());
                id.topic == topic
                    && (hour * HOUR_MS..bound).contains(&due)
                    && entry.is_some_and(|entry| is_scheduled(**id, **key, entry))
            });
            of(Kind::Scheduled, Some(hour)) + in_the_hour.count() as u64
        };
        Forecast {
            scheduled: of(Kind::Scheduled, None),
            paused: of(Kind::Paused, None),
            prepared: of(Kind::Prepared, None),
            before: bounds.iter().map(before).collect(),
        }
    }

    pub(super) fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        let mut sums: BTreeMap<TopicId, i64> = BTreeMap::new();
        for ((topic, _, _, _), count) in self.counts.iter().filter(|((_, of, ..), _)| *of == lane) {
            *sums.entry(*topic).or_default() += count;
        }
        let sums = sums.into_iter().map(|(topic, sum)| (topic, u64::try_from(sum).unwrap_or(0)));
        sums.filter(|(_, sum)| *sum > 0).collect()
    }

    pub(super) fn purge(&mut self, tenure: Tenure, before: Timestamp) -> bool {
        if self.holds(tenure) {
            self.messages.retain(|id, row| {
                let old = row.ended.is_some_and(|(_, at)| at < before);
                Slot::of(id.key.sequence) != tenure.slot || !old
            });
            let known = &self.messages;
            self.names.retain(|_, (id, _)| {
                Slot::of(id.key.sequence) != tenure.slot || known.contains_key(id)
            });
        }
        false
    }

    pub(super) fn is_empty(&self, slot: Slot) -> bool {
        !self.places.keys().any(|key| Slot::of(key.sequence) == slot)
    }

    pub(super) fn changed_since(&self, kind: &'static str, revision: u64) -> (Vec<Document>, u64) {
        let changed = self
            .documents
            .iter()
            .filter(|((of, _), document)| *of == kind && document.revision > revision);
        let mut changed: Vec<Document> = changed.map(|(_, document)| document.clone()).collect();
        changed.sort_by_key(|document| document.revision);
        (changed, self.revisions.get(kind).copied().unwrap_or(0).max(revision))
    }

    pub(super) fn put(
        &mut self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Option<u64> {
        let present = self.documents.get(&(kind, Arc::clone(&name)));
        if present.map_or(0, |document| document.revision) != expected {
            return None;
        }
        let revision = self.revisions.entry(kind).or_default();
        *revision += 1;
        let document = Document { name: Arc::clone(&name), revision: *revision, content };
        self.documents.insert((kind, name), document);
        Some(*revision)
    }
}

fn is_scheduled(id: MessageId, key: Key, entry: &Entry) -> bool {
    let action = entry.extra.as_ref().map_or(Action::Deliver, |extra| extra.action);
    action == Action::Deliver && shown(id, key, entry).state() == State::Scheduled
}

fn shown(id: MessageId, key: Key, entry: &Entry) -> PendingEntry {
    PendingEntry {
        id,
        key,
        basis: entry.basis,
        message: entry.message.clone(),
        extra: entry.extra.clone(),
    }
}
