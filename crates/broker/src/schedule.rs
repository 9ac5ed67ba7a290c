//! Schedule: from what a producer asks to an entry on the timeline.
//!
//! Everything is checked before anything is stored; a batch is stored whole or not at all. Messages
//! that have a name or come round take a longer way, in `orders.rs`.

mod orders;

use std::sync::Arc;

use punctual_model::ports::{OnConflict, StoreError, Timeline, Topic, TopicError};
use punctual_model::{
    CatchUp, Message, MessageId, Span, State, Timestamp, TopicKind, TopicName, TopicSettings,
    limits,
};

use crate::broker::Broker;
use crate::group::NotAdmitted;
use crate::series::Repeat;

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
    /// The name its sender gives it, unique in the topic.
    pub own_id: Option<Arc<str>>,
    /// What to do if a message of that name is there.
    pub on_conflict: OnConflict,
    /// What becomes of it if it falls due while the broker is down; as the topic says where nothing
    /// is said.
    pub catch_up: Option<CatchUp>,
    /// Whether and when it comes round; then `when` is the first time, if it is not now.
    pub repeat: Option<Repeat>,
    /// Who sends it, where that is known.
    pub sender: Option<Arc<str>>,
}

impl Request {
    /// A message that wants nothing special.
    #[must_use]
    pub fn new(message: Message, when: When) -> Self {
        Self {
            message,
            when,
            partition: None,
            ttl: None,
            max_attempts: None,
            own_id: None,
            on_conflict: OnConflict::Reject,
            catch_up: None,
            repeat: None,
            sender: None,
        }
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
    /// Its id; of a message that comes round, that of the series.
    pub id: MessageId,
    /// When it is due. Of a duplicate, when the first one was due as it was accepted.
    pub due: Timestamp,
    /// Whether the same request was accepted before; then this is what it was answered.
    pub duplicate: bool,
    /// Where it is in its life now.
    pub state: State,
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
    /// Another request has the own id of the message at `index`.
    #[error("message {index}: another message has this id")]
    OwnIdTaken {
        /// The place of the message in the batch.
        index: usize,
        /// The message that has it; an earlier one of the same batch has no id.
        id: Option<MessageId>,
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
    /// The own id is empty.
    #[error("an id has at least one character")]
    OwnIdEmpty,
    /// The own id is too long.
    #[error("an id has at most {} bytes", limits::OWN_ID_BYTES_MAX)]
    OwnIdTooLong,
    /// The own id has control characters.
    #[error("an id has no control characters")]
    OwnIdControl,
    /// The own id could be one that the broker gave.
    #[error("the id has the form of those that the broker gives")]
    OwnIdLikeOurs,
    /// The message would never come round.
    #[error("until is earlier than the first time, so nothing would ever be delivered")]
    EndsBeforeFirst,
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
        mut requests: Vec<Request>,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        check_batch(&requests)?;
        let now = self.shared.time.read();
        let placing = &self.shared.placing;
        let known = self.shared.topics.by_name(topic);
        let settings = known.map_or_else(TopicSettings::default, |topic| topic.settings.clone());
        for (index, request) in requests.iter().enumerate() {
            placing
                .check(request, &settings, now)
                .map_err(|reason| ScheduleError::Invalid { index, reason })?;
        }
        let topic = self.topic_for_use(topic).await?;
        let bytes: usize = requests.iter().map(|request| request.message.weight()).sum();
        self.admit(&topic, requests.len() as u64, bytes as u64).await?;
        if requests.iter().any(|request| request.own_id.is_some() || request.repeat.is_some()) {
            return self.schedule_orders(&topic, requests, now).await;
        }
        let acceptance = self.watch(&topic.name, &mut requests);
        let mut entries = Vec::with_capacity(requests.len());
        for (index, request) in requests.into_iter().enumerate() {
            let entry = placing.place(&topic, request, now);
            entries.push(entry.map_err(|reason| ScheduleError::Invalid { index, reason })?);
        }
        let count = entries.len() as u64;
        let ids = self.shared.timeline.schedule(entries).await?;
        self.shared.counters.accepted(topic.id, count);
        let scheduled: Vec<Scheduled> = ids.into_iter().map(Scheduled::new).collect();
        acceptance.done(&scheduled, || self.shared.time.read().wall);
        Ok(scheduled)
    }

    /// Whether the topic takes these messages now.
    pub(crate) async fn admit(
        &self,
        topic: &Topic,
        messages: u64,
        bytes: u64,
    ) -> Result<(), ScheduleError> {
        if topic.kind != TopicKind::Plain {
            return Err(ScheduleError::Reserved);
        }
        let admitted = self.shared.consumers.admit(topic, messages, bytes);
        admitted.await.map_err(|error| match error {
            NotAdmitted::Full => ScheduleError::BacklogFull,
            NotAdmitted::Store(error) => ScheduleError::Store(error),
        })
    }

    /// The topic of that name; it is made where topics are made on use.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn topic_for_use(&self, name: &TopicName) -> Result<Arc<Topic>, ScheduleError> {
        if let Some(topic) = self.shared.topics.by_name(name) {
            return Ok(topic);
        }
        if !self.shared.bounds.auto_create() {
            return Err(ScheduleError::TopicNotFound);
        }
        let (topics, name) = (Arc::clone(&self.shared.topics), name.clone());
        let errand = move || topics.make(&name, TopicSettings::default());
        let made = self.shared.errands.run(errand);
        made.await?.map_err(|error| match error {
            TopicError::Store(error) => ScheduleError::Store(error),
            TopicError::NotFound | TopicError::CannotShrink(_) => ScheduleError::TopicNotFound,
            TopicError::TooMany => ScheduleError::TooManyTopics,
            TopicError::Reserved => ScheduleError::Reserved,
        })
    }
}

impl Scheduled {
    pub(crate) fn new(id: MessageId) -> Self {
        Self { id, due: id.key.due, duplicate: false, state: State::Scheduled }
    }
}

pub(crate) fn check_batch(requests: &[Request]) -> Result<(), ScheduleError> {
    let whole = |reason| ScheduleError::Invalid { index: 0, reason };
    if requests.is_empty() {
        return Err(whole(Invalid::EmptyBatch));
    }
    // A series is stored together with its first occurrence.
    let entries = |request: &Request| if request.repeat.is_some() { 2 } else { 1 };
    if requests.iter().map(entries).sum::<usize>() > limits::BATCH_MESSAGES_MAX {
        return Err(whole(Invalid::TooManyMessages));
    }
    let bytes: usize =
        requests.iter().map(|request| request.message.weight() * entries(request)).sum();
    if requests.len() > 1 && bytes > limits::BATCH_BYTES_MAX {
        return Err(whole(Invalid::BatchTooLarge));
    }
    Ok(())
}
