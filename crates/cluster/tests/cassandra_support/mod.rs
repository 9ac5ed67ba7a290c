//! A Cassandra for tests, and a store in it that looks empty each time.

#![expect(clippy::unwrap_used, reason = "a failed step panics")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use punctual_cluster::cassandra::{CassandraOptions, CassandraStore, Replication};
use punctual_cluster::store::{
    Change, Counted, Document, Documents, Failure, Group, Marks, Named, Outcome, Slot, SlotStore,
    Stored, Tenure,
};
use punctual_model::ports::{Forecast, PendingPage, PendingQuery};
use punctual_model::{
    Entry, Extra, Key, Lane, Link, MessageId, Parked, Sequence, Timestamp, TopicId,
};
use punctual_testkit::services;

/// Topics between two cases.
const TOPICS: u32 = 100;

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Options for a keyspace of one copy, allowed by name. A machine under load may be slow.
pub(crate) fn options(address: SocketAddr, keyspace: &str) -> CassandraOptions {
    CassandraOptions {
        replication: Replication::Simple(1),
        deadline: Duration::from_secs(60),
        allow_unsafe: vec!["replication".into()],
        ..CassandraOptions::new(vec![address.to_string()], keyspace)
    }
}

/// A name for a keyspace of this process: what others have left there stays, so nobody has had it.
pub(crate) fn keyspace(what: &str) -> String {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    let number = NUMBER.get_or_init(|| getrandom::u64().unwrap());
    format!("{what}_{number:016x}")
}

/// A keyspace of this process; `None` where Cassandra cannot be had.
pub(crate) async fn store() -> Option<CassandraStore> {
    let address = services::cassandra()?;
    Some(CassandraStore::open(options(address, &keyspace("test"))).await.unwrap())
}

/// A store whose slots, topics and kinds nobody else uses: those of a case, moved up.
#[derive(Clone)]
pub(crate) struct Fresh {
    store: CassandraStore,
    case: u32,
    slots: u16,
}

impl Fresh {
    /// `slots` is more than any case uses, at both ends of the numbers.
    pub(crate) fn of(store: &CassandraStore, slots: u16) -> Self {
        static CASES: AtomicU32 = AtomicU32::new(1);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let slots = u16::try_from(case).unwrap().checked_mul(slots).expect("enough slots");
        Self { store: store.clone(), case, slots }
    }

    /// A slot as it is in the store.
    pub(crate) fn slot(&self, slot: Slot) -> Slot {
        Slot(slot.0.wrapping_add(self.slots))
    }

    fn tenure(&self, tenure: Tenure) -> Tenure {
        Tenure { slot: self.slot(tenure.slot), ..tenure }
    }

    /// Each case has a place for transactions of its own too, down from where it is.
    fn topic(&self, topic: TopicId) -> TopicId {
        let number = match topic {
            TopicId::TRANSACTIONS => topic.get() - self.case,
            _ => topic.get() + self.case * TOPICS,
        };
        TopicId::new(number).unwrap()
    }

    fn topic_back(&self, topic: TopicId) -> TopicId {
        self.ours(topic).expect("a topic of this case")
    }

    /// The topic of this case that is so in the store.
    fn ours(&self, topic: TopicId) -> Option<TopicId> {
        if topic.get() == TopicId::TRANSACTIONS.get() - self.case {
            return Some(TopicId::TRANSACTIONS);
        }
        let number = topic.get().checked_sub(self.case * TOPICS)?;
        TopicId::new(number).filter(|_| number < TOPICS)
    }

    fn key(&self, key: Key, by: u16) -> Key {
        // The bare start of a lane is no place of an entry.
        if key.sequence == key.sequence.lane().first() {
            return key;
        }
        let number = key.sequence.get();
        let slot = Slot::of(key.sequence).0;
        let number = number - u64::from(slot) + u64::from(slot.wrapping_add(by));
        Key { due: key.due, sequence: Sequence::new(number).unwrap() }
    }

    fn there(&self, key: Key) -> Key {
        self.key(key, self.slots)
    }

    fn back(&self, key: Key) -> Key {
        self.key(key, 0u16.wrapping_sub(self.slots))
    }

    fn id(&self, id: MessageId) -> MessageId {
        MessageId { key: self.there(id.key), topic: self.topic(id.topic), ..id }
    }

    fn id_back(&self, id: MessageId) -> MessageId {
        MessageId { key: self.back(id.key), topic: self.topic_back(id.topic), ..id }
    }

    fn entry(&self, mut entry: Entry) -> Entry {
        entry.topic = self.topic(entry.topic);
        if let Some(extra) = &mut entry.extra {
            Self::links(extra, |key| self.there(key), |id| self.id(id));
        }
        entry
    }

    fn entry_back(&self, mut entry: Entry) -> Entry {
        entry.topic = self.topic_back(entry.topic);
        if let Some(extra) = &mut entry.extra {
            Self::links(extra, |key| self.back(key), |id| self.id_back(id));
        }
        entry
    }

    fn links(extra: &mut Extra, key: impl Fn(Key) -> Key, id: impl Fn(MessageId) -> MessageId) {
        let link = |link: &mut Link| {
            if let Link::Id(of) = link {
                *of = id(*of);
            }
        };
        if let Some(changed) = &mut extra.changed {
            changed.first = key(changed.first);
        }
        extra.series.iter_mut().for_each(link);
        extra.links.iter_mut().for_each(link);
        if let Some(Parked::Half { transaction, .. }) = &mut extra.parked {
            link(transaction);
        }
    }

    fn change(&self, change: Change) -> Change {
        match change {
            Change::Put { key, entry } => {
                Change::Put { key: self.there(key), entry: self.entry(entry) }
            }
            Change::Move { id, from, to, entry } => Change::Move {
                id: self.id(id),
                from: self.there(from),
                to: self.there(to),
                entry: self.entry(entry),
            },
            Change::End { id, key, state, at } => {
                Change::End { id: self.id(id), key: self.there(key), state, at }
            }
            Change::Name { topic, text, print, id, expected } => Change::Name {
                topic: self.topic(topic),
                text,
                print,
                id: self.id(id),
                expected: expected.map(|id| self.id(id)),
            },
        }
    }

    fn stored(&self, stored: Stored) -> Stored {
        Stored {
            id: self.id_back(stored.id),
            key: self.back(stored.key),
            state: stored.state,
            entry: stored.entry.map(|entry| self.entry_back(entry)),
        }
    }

    fn kind(&self, kind: &'static str) -> &'static str {
        format!("{kind} {}", self.case).leak()
    }
}

impl SlotStore for Fresh {
    async fn take(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        self.store.take(self.tenure(tenure)).await
    }

    async fn keep(&self, slots: Vec<(Tenure, Marks, Vec<Counted>)>) -> Result<Vec<bool>, Failure> {
        let counted = |counted: Vec<Counted>| {
            let one = |one: Counted| Counted { topic: self.topic(one.topic), ..one };
            counted.into_iter().map(one).collect()
        };
        let slots =
            slots.into_iter().map(|(of, marks, all)| (self.tenure(of), marks, counted(all)));
        self.store.keep(slots.collect()).await
    }

    async fn apply(&self, groups: Vec<Group>) -> Result<Vec<Outcome>, Failure> {
        let group = |group: Group| Group {
            tenure: self.tenure(group.tenure),
            changes: group.changes.into_iter().map(|change| self.change(change)).collect(),
        };
        self.store.apply(groups.into_iter().map(group).collect()).await
    }

    async fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> Result<Vec<Stored>, Failure> {
        let page = self.store.page(self.slot(slot), lane, self.there(after), until, limit).await?;
        Ok(page.into_iter().map(|stored| self.stored(stored)).collect())
    }

    async fn get(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Stored>>, Failure> {
        let found = self.store.get(ids.into_iter().map(|id| self.id(id)).collect()).await?;
        Ok(found.into_iter().map(|stored| stored.map(|stored| self.stored(stored))).collect())
    }

    async fn names(
        &self,
        topic: TopicId,
        texts: Vec<Arc<str>>,
    ) -> Result<Vec<Option<Named>>, Failure> {
        let found = self.store.names(self.topic(topic), texts).await?;
        let back = |named: Named| Named { id: self.id_back(named.id), ..named };
        Ok(found.into_iter().map(|named| named.map(back)).collect())
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, Failure> {
        let after = query.after.map(|key| self.there(key));
        let query = PendingQuery { topic: self.topic(query.topic), after, ..query };
        let mut page = self.store.pending(query).await?;
        for entry in &mut page.entries {
            entry.id = self.id_back(entry.id);
            entry.key = self.back(entry.key);
            if let Some(extra) = &mut entry.extra {
                Self::links(extra, |key| self.back(key), |id| self.id_back(id));
            }
        }
        page.next = page.next.map(|key| self.back(key));
        Ok(page)
    }

    async fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Result<Forecast, Failure> {
        self.store.forecast(self.topic(topic), bounds).await
    }

    async fn counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        let counts = self.store.counts(lane).await?;
        let ours = |(topic, count)| Some((self.ours(topic)?, count));
        Ok(counts.into_iter().filter_map(ours).collect())
    }

    async fn purge(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Failure> {
        self.store.purge(self.tenure(tenure), before).await
    }

    async fn is_empty(&self, slot: Slot) -> Result<bool, Failure> {
        self.store.is_empty(self.slot(slot)).await
    }
}

impl Documents for Fresh {
    async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.store.changed_since(self.kind(kind), revision).await
    }

    async fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        self.store.put(self.kind(kind), name, expected, content).await
    }
}
