//! Schedule: from what a producer asks to an entry on the timeline.
//!
//! Everything is checked before anything is stored; a batch is stored whole or not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_model::ports::{StoreError, Timeline, Topic, TopicError};
use punctual_model::{
    Basis, Entry, Header, Message, MessageId, Partition, Span, Timestamp, TopicKind, TopicName,
    TopicSettings, limits, partitioner,
};

use crate::broker::Broker;
use crate::group::{ATTEMPTS_HEADER, NotAdmitted, TTL_HEADER};
use crate::time::Now;

/// A message and when it is wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to deliver.
    pub message: Message,
    /// When.
    pub when: When,
    /// Into which partition; by key or in turn where nothing is said.
    pub partition: Option<u16>,
    /// How long after its due time it may be given to a group; as the topic says where nothing is
    /// said.
    pub ttl: Option<Span>,
    /// After this many failed attempts it is a dead letter, if the group does not give up earlier.
    pub max_attempts: Option<u16>,
}

impl Request {
    /// A message that wants nothing special.
    #[must_use]
    pub fn new(message: Message, when: When) -> Self {
        Self { message, when, partition: None, ttl: None, max_attempts: None }
    }
}

/// When a message is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After a delay, counted from acceptance.
    After(Span),
    /// At a date; one in the past means at once.
    At(Timestamp),
    /// After the delay of a level, counted from 1.
    Level(u64),
}

/// An accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Its id.
    pub id: MessageId,
    /// When it is due.
    pub due: Timestamp,
}

/// Why a batch was not accepted. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No such topic, and topics are not made on use.
    #[error("no such topic")]
    TopicNotFound,
    /// The topic belongs to a group, which alone writes to it.
    #[error("the topic belongs to a group")]
    Reserved,
    /// As much waits for a group of the topic as may.
    #[error("too many messages wait in the topic")]
    BacklogFull,
    /// The topic would be one too many.
    #[error("there are too many topics")]
    TooManyTopics,
    /// The message at `index` asks for something that is not possible.
    #[error("message {index}: {reason}")]
    Invalid {
        /// The place of the message in the batch.
        index: usize,
        /// What is wrong with it.
        reason: Invalid,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What can be wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The delay is longer than allowed.
    #[error("the delay is longer than {max}")]
    DelayTooLong {
        /// The longest delay.
        max: Span,
    },
    /// The due time lies past year 9999.
    #[error("the due time is out of range")]
    DueOutOfRange,
    /// No such delay level.
    #[error("delay levels go from 1 to 18")]
    UnknownLevel,
    /// The body is too large.
    #[error("the body is larger than {max} bytes")]
    BodyTooLarge {
        /// The largest body.
        max: usize,
    },
    /// Header names and values are too large together.
    #[error("the headers are larger than {} bytes", limits::HEADER_BYTES_MAX)]
    HeadersTooLarge,
    /// There are too many headers.
    #[error("there are more than {} headers", limits::HEADERS_MAX)]
    TooManyHeaders,
    /// The key is too large.
    #[error("the key is larger than {} bytes", limits::KEY_BYTES_MAX)]
    KeyTooLarge,
    /// The topic does not have that partition.
    #[error("the topic has {partitions} partitions, counted from 0")]
    NoSuchPartition {
        /// How many it has.
        partitions: u16,
    },
    /// The batch as a whole is too large.
    #[error("the batch is larger than {} bytes", limits::BATCH_BYTES_MAX)]
    BatchTooLarge,
    /// The batch has too many messages.
    #[error("the batch has more than {} messages", limits::BATCH_MESSAGES_MAX)]
    TooManyMessages,
    /// The batch is empty.
    #[error("the batch has no messages")]
    EmptyBatch,
}

impl<T: Timeline> Broker<T> {
    /// Accepts a batch for one topic, whole or not at all. `Ok` means that it survives a crash. If
    /// the future is dropped, the batch may have been accepted.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn schedule(
        &self,
        topic: &TopicName,
        requests: Vec<Request>,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        check_batch(&requests)?;
        let now = self.shared.time.read();
        let known = self.shared.topics.by_name(topic);
        let settings = known.map_or_else(TopicSettings::default, |topic| topic.settings.clone());
        for (index, request) in requests.iter().enumerate() {
            self.check(request, settings.partitions, now)
                .map_err(|reason| ScheduleError::Invalid { index, reason })?;
        }
        let topic = self.topic_for_use(topic).await?;
        self.admit(&topic, &requests).await?;
        let mut entries = Vec::with_capacity(requests.len());
        for (index, request) in requests.into_iter().enumerate() {
            let entry = self.place(&topic, request, now);
            entries.push(entry.map_err(|reason| ScheduleError::Invalid { index, reason })?);
        }
        let count = entries.len() as u64;
        let ids = self.shared.timeline.schedule(entries).await?;
        self.shared.counters.scheduled.fetch_add(count, Ordering::Relaxed);
        Ok(ids.into_iter().map(|id| Scheduled { id, due: id.key.due }).collect())
    }

    /// Whether the topic takes these messages now.
    async fn admit(&self, topic: &Topic, requests: &[Request]) -> Result<(), ScheduleError> {
        if topic.kind != TopicKind::Plain {
            return Err(ScheduleError::Reserved);
        }
        let bytes: usize = requests.iter().map(|request| request.message.weight()).sum();
        let admitted = self.shared.consumers.admit(topic, requests.len() as u64, bytes as u64);
        admitted.await.map_err(|error| match error {
            NotAdmitted::Full => ScheduleError::BacklogFull,
            NotAdmitted::Store(error) => ScheduleError::Store(error),
        })
    }

    async fn topic_for_use(&self, name: &TopicName) -> Result<Arc<Topic>, ScheduleError> {
        if let Some(topic) = self.shared.topics.by_name(name) {
            return Ok(topic);
        }
        if !self.shared.options.auto_create {
            return Err(ScheduleError::TopicNotFound);
        }
        let (topics, name) = (Arc::clone(&self.shared.topics), name.clone());
        let made = self.shared.errands.run(move || match topics.by_name(&name) {
            Some(topic) => Ok(topic),
            None => topics.put(&name, TopicSettings::default()),
        });
        made.await?.map_err(|error| match error {
            TopicError::Store(error) => ScheduleError::Store(error),
            TopicError::NotFound | TopicError::CannotShrink(_) => ScheduleError::TopicNotFound,
            TopicError::TooMany => ScheduleError::TooManyTopics,
            TopicError::Reserved => ScheduleError::Reserved,
        })
    }

    fn check(&self, request: &Request, partitions: u16, now: Now) -> Result<(), Invalid> {
        if request.partition.is_some_and(|number| number >= partitions) {
            return Err(Invalid::NoSuchPartition { partitions });
        }
        let message = &request.message;
        let max = self.shared.options.body_bytes_max;
        if message.body.len() > max {
            return Err(Invalid::BodyTooLarge { max });
        }
        if message.headers.len() > limits::HEADERS_MAX {
            return Err(Invalid::TooManyHeaders);
        }
        if message.header_bytes() > limits::HEADER_BYTES_MAX {
            return Err(Invalid::HeadersTooLarge);
        }
        if message.key.as_ref().is_some_and(|key| key.len() > limits::KEY_BYTES_MAX) {
            return Err(Invalid::KeyTooLarge);
        }
        self.due(request.when, now).map(drop)
    }

    /// The due time, fixed once, and the clock it is measured with.
    fn due(&self, when: When, now: Now) -> Result<(Timestamp, Basis), Invalid> {
        let options = &self.shared.options;
        let delay = match when {
            When::Now => return Ok((now.timestamp(), Basis::Delay)),
            When::At(date) => {
                if date.since(now.wall_timestamp()) > options.delay_max {
                    return Err(Invalid::DelayTooLong { max: options.delay_max });
                }
                return Ok((date, Basis::Date));
            }
            When::After(delay) => delay,
            When::Level(level) => options.levels.delay(level).ok_or(Invalid::UnknownLevel)?,
        };
        if delay > options.delay_max {
            return Err(Invalid::DelayTooLong { max: options.delay_max });
        }
        let due = now.timestamp_up().checked_add(delay).ok_or(Invalid::DueOutOfRange)?;
        Ok((due, Basis::Delay))
    }

    fn place(&self, topic: &Topic, request: Request, now: Now) -> Result<Entry, Invalid> {
        let (due, basis) = self.due(request.when, now)?;
        let partitions = topic.settings.partitions;
        let partition = match (request.partition, &request.message.key) {
            (Some(number), _) => Partition::new(number)
                .filter(|_| number < partitions)
                .ok_or(Invalid::NoSuchPartition { partitions })?,
            (None, Some(key)) => partitioner::by_key(key, topic.key_partitions),
            (None, None) => partitioner::by_turn(self.shared.turn(topic.id), partitions),
        };
        let message = stamped(request, topic.settings.default_ttl);
        Ok(Entry { topic: topic.id, partition, due, basis, message })
    }
}

/// The message with headers for what was asked for beside it. A header of the sender's own counts
/// where nothing else was asked for.
fn stamped(request: Request, default_ttl: Option<Span>) -> Message {
    let Request { mut message, ttl, max_attempts, .. } = request;
    let own = message.headers.iter().any(|header| header.name == TTL_HEADER);
    let ttl = ttl.or(if own { None } else { default_ttl });
    let ttl = ttl.map(|ttl| (TTL_HEADER, ttl.as_millis().to_string()));
    let attempts = max_attempts.map(|attempts| (ATTEMPTS_HEADER, attempts.to_string()));
    message.headers.extend(
        ttl.into_iter()
            .chain(attempts)
            .map(|(name, value)| Header { name: name.to_owned(), value: value.into() }),
    );
    message
}

fn check_batch(requests: &[Request]) -> Result<(), ScheduleError> {
    let whole = |reason| ScheduleError::Invalid { index: 0, reason };
    if requests.is_empty() {
        return Err(whole(Invalid::EmptyBatch));
    }
    if requests.len() > limits::BATCH_MESSAGES_MAX {
        return Err(whole(Invalid::TooManyMessages));
    }
    let bytes: usize = requests.iter().map(|request| request.message.weight()).sum();
    if requests.len() > 1 && bytes > limits::BATCH_BYTES_MAX {
        return Err(whole(Invalid::BatchTooLarge));
    }
    Ok(())
}
