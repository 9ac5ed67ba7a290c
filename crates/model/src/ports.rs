//! The seams between the parts: what a durable store, an outlet, the topic logs and a coordinator
//! have to promise.
//!
//! The doc comments are the contract; `testkit::conformance` is the contract again, executable.
//! `Timeline` and `Outlet` may be remote, so they answer with futures; `Topics` is always local and
//! may block on the disk, so it is called from threads that may block.

mod coordinator;
mod orders;
mod outlet;
mod records;
mod trends;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::group::{
    Group, GroupChange, GroupId, GroupName, GroupSettings, Note, Placed, Source, Standing, Start,
};
use crate::id::MessageId;
use crate::levels::DelayLevels;
use crate::lifecycle::State;
use crate::message::{Action, Basis, Changed, Entry, Extra, Key, Lane, Message, Parked};
use crate::time::Timestamp;
use crate::topic::{Partition, TopicId, TopicKind, TopicName, TopicSettings};

pub use coordinator::{
    ClusterView, Coordinator, CoordinatorError, Held, Holding, Node, SlotView, Solo,
};
pub use orders::{Done, Forecast, OnConflict, Order, Refusal, Revised};
pub use outlet::{Fate, Outlet, Told, Untaken};
pub use records::{Append, AppendError, Appended, Records, Slice, SliceError, SliceFile, Stamped};
pub use trends::{Keeping, POINT_SPAN, POINTS_KEPT, StoredPoint, Trends};

/// Everything that is still to come, durable.
///
/// **Handing out.** Each pending entry is handed to the caller of [`arm`](Self::arm) exactly once
/// per process, whether it was stored long ago or accepted a moment ago with a due time that the
/// caller has already read past. After a restart everything not settled is handed out again.
pub trait Timeline: Send + Sync + 'static {
    /// Stores the whole batch or none of it, and returns the ids in order. `Ok` means it survives
    /// a crash. A dropped future changes nothing about the outcome.
    fn schedule(
        &self,
        batch: Vec<Entry>,
    ) -> impl Future<Output = Result<Vec<MessageId>, StoreError>> + Send;

    /// Withdraws each message that has not fired, but for half messages. `Ok` means the outcomes survive a crash: of a
    /// successful cancel and a delivery exactly one happens.
    fn cancel(
        &self,
        ids: Vec<MessageId>,
    ) -> impl Future<Output = Result<Vec<CancelOutcome>, StoreError>> + Send;

    /// Carries out all orders or none of them. `Ok` means the outcome survives a crash. An order is
    /// decided as if those before it had been carried out; it may not name a message of one of them,
    /// but for [`Link::Order`](crate::Link::Order), by which entries of one call know each other. An
    /// occurrence or half message whose series or transaction is [`Done::Known`] is left out.
    /// A dropped future changes nothing about the outcome.
    fn revise(
        &self,
        orders: Vec<Order>,
    ) -> impl Future<Output = Result<Revised, StoreError>> + Send;

    /// The messages of a topic that have these own ids, in order, while they are remembered.
    fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> impl Future<Output = Result<Vec<Option<MessageId>>, StoreError>> + Send;

    /// How much of a topic is due when.
    fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> impl Future<Output = Result<Forecast, StoreError>> + Send;

    /// How much of these topics together is due when.
    fn forecast_together(
        &self,
        topics: Vec<TopicId>,
        bounds: Vec<Timestamp>,
    ) -> impl Future<Output = Result<Forecast, StoreError>> + Send {
        async move {
            let mut sum = Forecast::default();
            for topic in topics {
                sum.add(&self.forecast(topic, bounds.clone()).await?);
            }
            Ok(sum)
        }
    }

    /// What is known about each message, in order. Reading changes nothing.
    fn find(
        &self,
        ids: Vec<MessageId>,
    ) -> impl Future<Output = Result<Vec<Option<Found>>, StoreError>> + Send;

    /// Pending entries of one topic and lane in key order, from `query.after` on.
    fn pending(
        &self,
        query: PendingQuery,
    ) -> impl Future<Output = Result<PendingPage, StoreError>> + Send;

    /// The next entries of a lane due before `until`, in key order as far as they are not late
    /// arrivals, at most `limit.entries` and about `limit.bytes`. Empty means there is nothing more
    /// before `until` for now. Lanes never wait for each other.
    fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> impl Future<Output = Result<Vec<Armed>, StoreError>> + Send;

    /// Takes out of `batch`, all of one lane, what was cancelled. What is left will be delivered:
    /// from here on a cancel of it answers `AlreadyDelivered`.
    fn claim(&self, batch: &mut Vec<Armed>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The outlet has taken these: claimed before, all of one lane. What else is claimed stays so.
    fn settle(&self, batch: &[Armed]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The outlet has not taken these, claimed before and all of one lane: each is pending again
    /// under its id, due at the time beside it, and will be handed out again. `Ok` means that
    /// survives a crash, and from there on a cancel wins again. What is not claimed, or not pending
    /// any more, is left alone.
    fn defer(
        &self,
        batch: Vec<(Armed, Timestamp)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The caller is done with these armed entries without a claim: each was replaced or cancelled.
    fn release(&self, batch: &[Armed]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// `listener` is called, from any thread, whenever an entry of a lane is accepted that is due
    /// before the `until` of the last [`arm`](Self::arm) of that lane.
    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>);

    /// When the first entry of a lane is due that was not handed out yet; `None` when none will be:
    /// what is parked never is. Too early is allowed, as for one that was cancelled, if the next
    /// [`arm`](Self::arm) past that time makes it grow. A virtual clock jumps by it.
    fn next_due(
        &self,
        lane: Lane,
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// The number of pending entries of each topic that has any in this lane.
    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)>;
}

/// The local topic logs and the catalogue of topics. Calls may block on the disk.
pub trait Topics: Send + Sync + 'static {
    /// Makes the topic, or changes the settings of an existing one. `Ok` means it survives a crash.
    ///
    /// # Errors
    /// [`TopicError::CannotShrink`] when it has more partitions already.
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError>;

    /// The topic as it is, or a new one with these settings: for whoever needs it and has no wish
    /// about it. `Ok` means it survives a crash.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn make(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        self.by_name(name).map_or_else(|| self.put(name, settings), Ok)
    }

    /// Removes the topic, its log and what is pending for it. False when there was none.
    ///
    /// # Errors
    /// [`TopicError::Store`] when the store is out of order.
    fn delete(&self, name: &TopicName) -> Result<bool, TopicError>;

    /// The topic of that name.
    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>>;

    /// The topic of that number.
    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>>;

    /// Whether the topic was deleted, for certain. One that [`by_id`](Self::by_id) does not find may
    /// also have been made elsewhere a moment ago. May block.
    fn is_gone(&self, id: TopicId) -> bool {
        self.by_id(id).is_none()
    }

    /// All topics, by name.
    fn list(&self) -> Vec<Arc<Topic>>;

    /// Delivered messages from `from.offset` on, at most `limit`. Empty at the end of the log; an
    /// offset below the start of the log reads from the start.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition; [`TopicError::Store`] for a damaged log.
    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError>;

    /// The offsets at which the log of a partition starts and ends.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition.
    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError>;

    /// The delivered message of that id, while the log still holds it.
    ///
    /// # Errors
    /// [`TopicError::Store`] for a damaged log.
    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError>;

    /// The offset of the first message that was delivered at `time` or later; the end of the log
    /// when there is none.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition; [`TopicError::Store`] for a damaged log.
    fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        time: Timestamp,
    ) -> Result<u64, TopicError>;

    /// The delay levels of topics that have none of their own.
    fn levels(&self) -> DelayLevels;

    /// Changes the delay levels for messages accepted from now on. `Ok` means it survives a crash.
    ///
    /// # Errors
    /// [`StoreError`] when the store is out of order.
    fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError>;
}

/// The groups of the local topics: their settings, and what they are done with, durable. Who holds
/// which message at the moment is not kept here. Calls may block on the disk.
///
/// A message that a group has not settled stays in its log, whatever the retention of the topic,
/// unless the group's cursor was last moved by a commit of offsets.
pub trait Groups: Send + Sync + 'static {
    /// Makes the group, with its retry and dead-letter topics, or changes the settings of an
    /// existing one; `start` counts for a new one only. `Ok` means it survives a crash.
    ///
    /// # Errors
    /// [`GroupError`] for everything but `NotFound`.
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError>;

    /// Removes the group, its retry and dead-letter topics and what is pending for them. False
    /// when there was none.
    ///
    /// # Errors
    /// [`GroupError::Store`] when the store is out of order.
    fn delete(&self, id: GroupId) -> Result<bool, GroupError>;

    /// The group of that name.
    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>>;

    /// All groups, by topic and name.
    fn list(&self) -> Vec<Arc<Group>>;

    /// Messages of the source from `from` on that the group has not settled, at most `limit`.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a group or partition; [`TopicError::Store`] for a
    /// damaged log.
    fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError>;

    /// How far the group is in each partition of its topic, then of its retry topic, then of its
    /// dead letters. `oldest` is told only if asked for: it may have to be read.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError>;

    /// Where the group goes on in the partitions of its topic, by number. Those in which it never
    /// was are left out; without such a group there are none.
    fn placed(&self, id: GroupId) -> Vec<Placed>;

    /// Applies all changes and stores all entries, in the retry lane, or none of it; answers the
    /// ids of the entries. `Ok` means it survives a crash. Changes of a group or source that is no
    /// more are left out. A dropped future changes nothing about the outcome.
    fn apply(
        &self,
        changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>>;
}

/// A page of messages that a group has not settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// In the order of offsets.
    pub messages: Vec<(Delivered, Option<Note>)>,
    /// Where to go on.
    pub next: u64,
}

/// An entry on its way to its due moment.
#[derive(Clone, Debug)]
pub struct Armed {
    /// Due time and sequence.
    pub key: Key,
    /// Where it goes.
    pub topic: TopicId,
    /// Where in the topic it goes.
    pub partition: Partition,
    /// Which clock must show the due time.
    pub basis: Basis,
    /// What to deliver.
    pub message: Message,
    /// What few entries have beside that.
    pub extra: Option<Box<Extra>>,
    /// The store's own note of where it came from; handed back as it is.
    pub origin: Origin,
}

impl Armed {
    /// The id of the message: that of its first key, however often it was moved since.
    #[must_use]
    pub fn id(&self) -> MessageId {
        let changed = self.extra.as_ref().and_then(|extra| extra.changed);
        let key = changed.map_or(self.key, |changed| changed.first);
        MessageId { key, topic: self.topic, partition: self.partition }
    }

    /// The same message as an entry that is due at `due` by the broker clock, under the same id and
    /// version: what [`Timeline::defer`] stores.
    #[must_use]
    pub fn deferred(&self, due: Timestamp) -> Entry {
        let mut extra = self.extra.as_deref().cloned().unwrap_or_default();
        let version = extra.changed.map_or(1, |changed| changed.version);
        extra.changed = Some(Changed { first: self.id().key, version });
        Entry {
            topic: self.topic,
            partition: self.partition,
            due,
            basis: Basis::Delay,
            message: self.message.clone(),
            extra: Some(Box::new(extra)),
        }
    }

    /// What happens when it is due.
    #[must_use]
    pub fn action(&self) -> Action {
        self.extra.as_ref().map_or(Action::Deliver, |extra| extra.action)
    }
}

/// A store's own note on an armed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(pub u64);

/// How much one call of [`Timeline::arm`] may hand out.
#[derive(Clone, Copy, Debug)]
pub struct ArmLimit {
    /// Number of entries.
    pub entries: usize,
    /// Bytes of messages; the last one may pass it.
    pub bytes: usize,
}

/// The definite outcome of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was pending and will never be delivered.
    Cancelled,
    /// It had fired.
    AlreadyDelivered,
    /// It had been cancelled before.
    AlreadyCancelled,
    /// It is half of a transaction, which alone decides about it.
    Undecided,
    /// No such message is known.
    NotFound,
}

/// What a [`Timeline`] knows of a message.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it is in its life.
    pub state: State,
    /// The message, while it is pending.
    pub entry: Option<PendingEntry>,
}

/// A pending message as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its id.
    pub id: MessageId,
    /// Where it stands now; its due time is here.
    pub key: Key,
    /// Which clock must show the due time.
    pub basis: Basis,
    /// What will be delivered.
    pub message: Message,
    /// What few entries have beside that.
    pub extra: Option<Box<Extra>>,
}

impl PendingEntry {
    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        match self.extra.as_ref().and_then(|extra| extra.parked) {
            None => State::Scheduled,
            Some(Parked::Paused { .. }) => State::Paused,
            Some(Parked::Half { .. }) => State::Prepared,
        }
    }

    /// Its version: 1 until somebody changes it.
    #[must_use]
    pub fn version(&self) -> u32 {
        let changed = self.extra.as_ref().and_then(|extra| extra.changed);
        changed.map_or(1, |changed| changed.version)
    }
}

/// Which pending messages to list.
#[derive(Clone, Debug)]
pub struct PendingQuery {
    /// Of this topic.
    pub topic: TopicId,
    /// Of this lane.
    pub lane: Lane,
    /// Due at this time or later.
    pub from: Timestamp,
    /// Due before this time. [`Timestamp::MAX`] is no end at all: what is paused is listed too.
    pub to: Timestamp,
    /// Only past this key: where the page before ended.
    pub after: Option<Key>,
    /// Only with this key.
    pub key: Option<bytes::Bytes>,
    /// Only with a key that begins so.
    pub key_prefix: Option<bytes::Bytes>,
    /// At most this many.
    pub limit: usize,
}

impl PendingQuery {
    /// Everything of a topic's lane, what is parked included, from the first one on.
    #[must_use]
    pub const fn all_of(topic: TopicId, lane: Lane, limit: usize) -> Self {
        let (from, to) = (Timestamp::MIN, Timestamp::MAX);
        Self { topic, lane, from, to, after: None, key: None, key_prefix: None, limit }
    }
}

/// One page of pending messages.
#[derive(Clone, Debug, Default)]
pub struct PendingPage {
    /// Soonest first. May be fewer than asked for although more follow.
    pub entries: Vec<PendingEntry>,
    /// Where the next page starts; `None` when nothing follows.
    pub next: Option<Key>,
}

/// A topic as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its number.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// What it is for.
    pub kind: TopicKind,
    /// The partitions over which keys are spread: those it began with. Partitions that are added
    /// later take messages without a key, so that a key never moves and its order holds.
    pub key_partitions: u16,
    /// Its settings.
    pub settings: TopicSettings,
}

/// A place in the log of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: Partition,
    /// The offset.
    pub offset: u64,
}

/// The offsets a partition's log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Offset of the oldest message still there.
    pub start: u64,
    /// Offset the next message will get.
    pub end: u64,
}

/// A delivered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its id.
    pub id: MessageId,
    /// Its place in the partition's log.
    pub offset: u64,
    /// When it was due.
    pub due: Timestamp,
    /// When it was appended.
    pub delivered_at: Timestamp,
    /// What was delivered.
    pub message: Message,
}

/// How a store refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A write or a flush failed earlier: nothing is acknowledged any more until a restart.
    #[error("the store stopped after a failed write: {0}")]
    Poisoned(Arc<str>),
    /// The disk is full; what was accepted goes on, new messages wait.
    #[error("the disk is full")]
    Full,
    /// More work is queued than the store lets in.
    #[error("the store is busy")]
    Busy,
    /// Stored bytes did not pass their checksum, or could not be read.
    #[error("damaged data: {0}")]
    Damaged(Arc<str>),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// The store, or the outlet, cannot be reached or did not answer in time. What was asked may
    /// have been done all the same; it can be asked for again.
    #[error("{0}")]
    Unavailable(Arc<str>),
    /// Another node holds what this is about.
    #[error("another node holds it")]
    Elsewhere,
}

impl StoreError {
    /// Whether it passes by itself, so that the same can be asked for again after a while.
    #[must_use]
    pub const fn passes(&self) -> bool {
        match self {
            Self::Full | Self::Busy | Self::Unavailable(_) | Self::Elsewhere => true,
            Self::Poisoned(_) | Self::Damaged(_) | Self::Closed => false,
        }
    }

    /// Damage described by `what`.
    #[must_use]
    pub fn damaged(what: impl fmt::Display) -> Self {
        Self::Damaged(what.to_string().into())
    }
}

/// How a topic call refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// No such topic or partition.
    #[error("no such topic or partition")]
    NotFound,
    /// A topic may gain partitions, never lose them.
    #[error("the topic has {0} partitions and a topic cannot lose any")]
    CannotShrink(u16),
    /// There are as many topics as the broker takes.
    #[error("there are too many topics")]
    TooMany,
    /// The topic belongs to a group, which alone may write to it, and goes with it.
    #[error("the topic belongs to a group")]
    Reserved,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a group call refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// No such topic, or one that cannot have groups.
    #[error("no such topic")]
    TopicNotFound,
    /// No such group.
    #[error("no such group")]
    NotFound,
    /// A topic has the name that the dead letters or retries of the group need.
    #[error("a topic {0} exists already")]
    NameTaken(TopicName),
    /// The name of the dead-letter topic would be too long.
    #[error("{{topic}}.{{group}}.dead would be longer than a name may be")]
    NameTooLong,
    /// There are as many groups, or topics, as the broker takes.
    #[error("there are too many groups")]
    TooMany,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}
