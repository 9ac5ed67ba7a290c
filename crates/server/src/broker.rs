//! A stand-in for the broker: the same calls, everything in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_model::ports::{
    CancelOutcome, Delivered, LogBounds, LogPosition, PendingEntry, PendingPage, PendingQuery,
    StoreError, Topic, TopicError, Topics,
};
use punctual_model::{
    Clock, DelayLevels, Key, Message, MessageId, Partition, Sequence, Span, State, SystemClock,
    Timestamp, TopicId, TopicName, TopicSettings, limits,
};

use crate::config::Config;

#[derive(Clone)]
pub(crate) struct Broker(Arc<Inner>);

pub(crate) struct Request {
    pub(crate) message: Message,
    pub(crate) when: When,
    pub(crate) partition: Option<u16>,
}

pub(crate) enum When {
    Now,
    After(Span),
    At(Timestamp),
    Level(u64),
}

pub(crate) struct Scheduled {
    pub(crate) id: MessageId,
    pub(crate) due: Timestamp,
}

pub(crate) enum ScheduleError {
    TopicNotFound,
    TooManyTopics,
    Invalid {
        index: usize,
        reason: Invalid,
    },
    #[expect(dead_code, reason = "the stand-in never fails")]
    Store(StoreError),
}

#[expect(dead_code, reason = "the stand-in does not check everything")]
pub(crate) enum Invalid {
    DelayTooLong { max: Span },
    DueOutOfRange,
    UnknownLevel,
    BodyTooLarge { max: usize },
    HeadersTooLarge,
    TooManyHeaders,
    KeyTooLarge,
    NoSuchPartition { partitions: u16 },
    BatchTooLarge,
    TooManyMessages,
    EmptyBatch,
}

pub(crate) struct Report {
    pub(crate) id: MessageId,
    pub(crate) state: State,
    pub(crate) topic: Arc<Topic>,
    pub(crate) message: Option<Message>,
    pub(crate) delivered: Option<Delivered>,
}

#[derive(Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) scheduled: u64,
    pub(crate) fired: u64,
    pub(crate) delivered: u64,
    pub(crate) cancelled: u64,
    pub(crate) pending: Vec<(TopicName, u64)>,
    pub(crate) lateness: Histogram,
    pub(crate) journal_sync: Histogram,
    pub(crate) clock_steps: u64,
    pub(crate) damaged_blocks: u64,
}

struct Inner {
    clock: SystemClock,
    store: Arc<Store>,
    topics: Arc<dyn Topics>,
    auto_create: bool,
    body_max: usize,
    delay_max: Span,
}

#[derive(Default)]
struct Store(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    topics: BTreeMap<String, Arc<Topic>>,
    topic_next: u32,
    sequence: u64,
    entries: BTreeMap<MessageId, (State, Message)>,
    logs: BTreeMap<(TopicId, Partition), Vec<Delivered>>,
    cancelled: u64,
}

impl Tables {
    fn fire(&mut self, now: Timestamp) {
        for (id, (state, message)) in &mut self.entries {
            if id.key.due > now {
                break;
            }
            if *state == State::Scheduled {
                *state = State::Delivered;
                let log = self.logs.entry((id.topic, id.partition)).or_default();
                let offset = u64::try_from(log.len()).expect("small");
                let message = message.clone();
                log.push(Delivered { id: *id, offset, delivered_at: now, message });
            }
        }
    }
}

impl Broker {
    #[expect(clippy::unnecessary_wraps, reason = "the real one can fail")]
    pub(crate) fn open(config: &Config) -> Result<Self, StoreError> {
        let store = Arc::new(Store::default());
        Ok(Self(Arc::new(Inner {
            clock: SystemClock::new(),
            topics: Arc::clone(&store) as Arc<dyn Topics>,
            store,
            auto_create: config.topics.auto_create,
            body_max: config.limits.body_bytes_max,
            delay_max: config.limits.delay_max,
        })))
    }

    pub(crate) async fn failed(&self) -> StoreError {
        std::future::pending().await
    }

    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(crate) async fn schedule(
        &self,
        name: &TopicName,
        requests: Vec<Request>,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let now = self.now();
        let topic = match self.0.topics.by_name(name) {
            Some(topic) => topic,
            None if self.0.auto_create => Arc::new(Topic {
                id: TopicId::MAX,
                name: name.clone(),
                settings: TopicSettings::default(),
            }),
            None => return Err(ScheduleError::TopicNotFound),
        };
        let mut dues = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let due = self.check(request, &topic, now);
            dues.push(due.map_err(|reason| ScheduleError::Invalid { index, reason })?);
        }
        let topic = self.0.topics.put(name, topic.settings.clone());
        let topic = topic.map_err(|_full| ScheduleError::TooManyTopics)?;
        let mut tables = self.0.store.0.lock();
        let mut answers = Vec::new();
        for (request, due) in requests.into_iter().zip(dues) {
            tables.sequence += 1;
            let sequence = Sequence::new(tables.sequence).expect("small");
            let partition = Partition::new(request.partition.unwrap_or(0)).expect("checked");
            let id = MessageId { key: Key { due, sequence }, topic: topic.id, partition };
            tables.entries.insert(id, (State::Scheduled, request.message));
            answers.push(Scheduled { id, due });
        }
        Ok(answers)
    }

    fn check(
        &self,
        request: &Request,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<Timestamp, Invalid> {
        let message = &request.message;
        let due = match request.when {
            When::Now => Some(now),
            When::At(due) => Some(due),
            When::After(span) if span > self.0.delay_max => None,
            When::After(span) => now.checked_add(span),
            When::Level(level) => {
                let span = DelayLevels::default().delay(level).ok_or(Invalid::UnknownLevel)?;
                now.checked_add(span)
            }
        };
        let due = due
            .filter(|due| due.since(now) <= self.0.delay_max)
            .ok_or(Invalid::DelayTooLong { max: self.0.delay_max })?;
        let partitions = topic.settings.partitions;
        if request.partition.is_some_and(|partition| partition >= partitions) {
            return Err(Invalid::NoSuchPartition { partitions });
        }
        if message.body.len() > self.0.body_max {
            return Err(Invalid::BodyTooLarge { max: self.0.body_max });
        }
        if message.header_bytes() > limits::HEADER_BYTES_MAX {
            return Err(Invalid::HeadersTooLarge);
        }
        if message.key.as_ref().is_some_and(|key| key.len() > limits::KEY_BYTES_MAX) {
            return Err(Invalid::KeyTooLarge);
        }
        Ok(due)
    }

    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(crate) async fn cancel(
        &self,
        ids: Vec<MessageId>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        let mut tables = self.0.store.0.lock();
        tables.fire(self.now());
        let mut cancelled = 0;
        let outcomes = ids
            .into_iter()
            .map(|id| match tables.entries.get_mut(&id) {
                None => CancelOutcome::NotFound,
                Some((State::Delivered, _)) => CancelOutcome::AlreadyDelivered,
                Some((State::Cancelled, _)) => CancelOutcome::AlreadyCancelled,
                Some((state @ State::Scheduled, _)) => {
                    *state = State::Cancelled;
                    cancelled += 1;
                    CancelOutcome::Cancelled
                }
            })
            .collect();
        tables.cancelled += cancelled;
        Ok(outcomes)
    }

    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(crate) async fn get(&self, id: MessageId) -> Result<Option<Report>, StoreError> {
        let Some(topic) = self.0.topics.by_id(id.topic) else {
            return Ok(None);
        };
        let mut tables = self.0.store.0.lock();
        tables.fire(self.now());
        let Some((state, message)) = tables.entries.get(&id) else {
            return Ok(None);
        };
        let delivered = tables
            .logs
            .get(&(id.topic, id.partition))
            .and_then(|log| log.iter().find(|delivered| delivered.id == id).cloned());
        let message = (*state != State::Cancelled).then(|| message.clone());
        Ok(Some(Report { id, state: *state, topic, message, delivered }))
    }

    #[expect(clippy::unused_async, reason = "the real one waits")]
    pub(crate) async fn scheduled(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let mut tables = self.0.store.0.lock();
        tables.fire(self.now());
        let mut entries: Vec<PendingEntry> = tables
            .entries
            .iter()
            .filter(|(id, (state, message))| {
                *state == State::Scheduled
                    && id.topic == query.topic
                    && (query.from..query.to).contains(&id.key.due)
                    && query.after.is_none_or(|after| id.key > after)
                    && (query.key.is_none() || query.key == message.key)
            })
            .take(query.limit + 1)
            .map(|(id, (_, message))| PendingEntry { id: *id, message: message.clone() })
            .collect();
        let more = entries.len() > query.limit;
        entries.truncate(query.limit);
        let next = if more { entries.last().map(|entry| entry.id.key) } else { None };
        Ok(PendingPage { entries, next })
    }

    pub(crate) fn topics(&self) -> &Arc<dyn Topics> {
        &self.0.topics
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut tables = self.0.store.0.lock();
        tables.fire(self.now());
        let mut stats = Stats { scheduled: tables.sequence, ..Stats::default() };
        stats.delivered =
            tables.logs.values().map(|log| u64::try_from(log.len()).expect("small")).sum();
        stats.fired = stats.delivered;
        stats.cancelled = tables.cancelled;
        for topic in tables.topics.values() {
            let pending = tables
                .entries
                .iter()
                .filter(|(id, (state, _))| id.topic == topic.id && *state == State::Scheduled);
            let count = u64::try_from(pending.count()).expect("small");
            stats.pending.push((topic.name.clone(), count));
        }
        stats
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.read().timestamp()
    }
}

impl Topics for Store {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        let mut tables = self.0.lock();
        let id = match tables.topics.get(name.as_str()) {
            Some(old) if old.settings.partitions > settings.partitions => {
                return Err(TopicError::CannotShrink(old.settings.partitions));
            }
            Some(old) => old.id,
            None => {
                tables.topic_next += 1;
                TopicId::new(tables.topic_next).expect("small")
            }
        };
        let topic = Arc::new(Topic { id, name: name.clone(), settings });
        tables.topics.insert(name.as_str().to_owned(), Arc::clone(&topic));
        Ok(topic)
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        Ok(self.0.lock().topics.remove(name.as_str()).is_some())
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.0.lock().topics.get(name.as_str()).cloned()
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.0.lock().topics.values().find(|topic| topic.id == id).cloned()
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.0.lock().topics.values().cloned().collect()
    }

    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        let mut tables = self.0.lock();
        tables.fire(SystemClock::new().read().timestamp());
        let log = tables.logs.get(&(from.topic, from.partition));
        let skip = usize::try_from(from.offset).unwrap_or(usize::MAX);
        Ok(log.into_iter().flatten().skip(skip).take(limit).cloned().collect())
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        let end = self.0.lock().logs.get(&(topic, partition)).map_or(0, Vec::len);
        Ok(LogBounds { start: 0, end: u64::try_from(end).expect("small") })
    }

    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        let tables = self.0.lock();
        let log = tables.logs.get(&(id.topic, id.partition));
        Ok(log.and_then(|log| log.iter().find(|delivered| delivered.id == id).cloned()))
    }
}
