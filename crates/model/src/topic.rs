//! Topics: their names, numbers and settings.
//!
//! A name is what people use, a [`TopicId`] what is stored: it is never used again after the topic
//! is deleted, so an old message can not wake up in a new topic of the same name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::levels::DelayLevels;
use crate::limits::{NAME_CHARS_MAX, PARTITIONS_DEFAULT, PARTITIONS_MAX};
use crate::time::Span;

/// A legal topic name: `[A-Za-z0-9._-]{1,249}`, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a text is not a topic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to 249 characters of A-Z a-z 0-9 . _ - and is not . or ..")]
pub struct NameError;

impl TopicName {
    /// The name `text`, if it is a legal one.
    ///
    /// # Errors
    /// [`NameError`] for anything that is not a legal name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let long_enough = (1..=NAME_CHARS_MAX).contains(&text.len());
        if long_enough && text.bytes().all(legal) && text != "." && text != ".." {
            Ok(Self(text.into()))
        } else {
            Err(NameError)
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The number of a topic: 24 bits, given once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(u32);

impl TopicId {
    /// The largest number.
    pub const MAX: Self = Self((1 << 24) - 1);

    /// Where transactions stand: a topic without a name, a log or an end.
    pub const TRANSACTIONS: Self = Self::MAX;

    /// The topic with this number, or `None` above 24 bits.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The number of a partition within its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    /// The partition with this number, or `None` where no topic has that many.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < PARTITIONS_MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What a topic is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicKind {
    /// Producers send to it.
    #[default]
    Plain,
    /// Failed messages of a group come back through it; nobody else sees it.
    Retry,
    /// It holds the dead letters of a group; nobody else sends to it.
    Dead,
}

/// How many delivered messages may wait for a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of messages.
    pub messages: Option<u64>,
    /// Bytes of log.
    pub bytes: Option<u64>,
}

/// What happens when more wait than the backlog allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// New messages are refused.
    #[default]
    Refuse,
    /// The oldest that wait become dead letters.
    DropOldest,
    /// The newest become dead letters.
    DeadLetterNewest,
}

/// What becomes of messages that fell due while the broker was down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// All are delivered at once, in order.
    #[default]
    All,
    /// All are delivered, evenly spread over this time.
    Spread(Span),
    /// Those that are late by more than this are cancelled.
    SkipOlder(Span),
    /// Of each key, or series, only the latest is delivered; the others are cancelled.
    Latest,
}

/// When the producers of a transaction are asked what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckPolicy {
    /// The first time, counted from the prepare.
    pub first: Span,
    /// Between two times.
    pub interval: Span,
    /// How often at most.
    pub max: u16,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        Self { first: Span::from_secs(6), interval: Span::from_secs(30), max: 15 }
    }
}

/// Which time the records carry that producers put into a log themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// The one that the producer gave them.
    #[default]
    Producer,
    /// The time at which they came into the log.
    Log,
}

/// What can be set for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Number of partitions, from 1 to `PARTITIONS_MAX`; it may grow, never shrink.
    pub partitions: u16,
    /// How long delivered messages stay in the log; `None` keeps them.
    pub retention: Option<Span>,
    /// How many bytes of delivered messages each partition keeps; `None` keeps all.
    pub retention_bytes: Option<u64>,
    /// How long after its due time a message may be given to a group, if it says nothing itself.
    pub default_ttl: Option<Span>,
    /// How much may wait for a group.
    pub max_backlog: Backlog,
    /// What happens past that.
    pub overflow: Overflow,
    /// The longest delay, if it is shorter than that of the broker.
    pub max_delay: Option<Span>,
    /// How many messages fire in a second at most.
    pub rate_cap: Option<u32>,
    /// Each message is due up to this much later than it was asked for, at random.
    pub jitter: Option<Span>,
    /// What becomes of messages that fell due while the broker was down.
    pub catch_up: CatchUp,
    /// Delay levels of its own.
    pub levels: Option<DelayLevels>,
    /// When producers of transactions with messages for this topic are asked, if they say nothing.
    pub check: Option<CheckPolicy>,
    /// Nothing fires: what falls due waits as a paused message does, until this ends.
    pub paused: bool,
    /// Which time records carry that producers put into its logs themselves.
    pub stamps: Stamps,
    /// Largest batch of records that a producer puts into its logs, in bytes, if it is smaller than
    /// that of the broker.
    pub batch_bytes_max: Option<u32>,
    /// What other products' tools set, by their names: it changes nothing, and is kept for them.
    pub kept: BTreeMap<Arc<str>, Arc<str>>,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            partitions: PARTITIONS_DEFAULT,
            retention: Some(Span::from_days(7)),
            retention_bytes: None,
            default_ttl: None,
            max_backlog: Backlog::default(),
            overflow: Overflow::default(),
            max_delay: None,
            rate_cap: None,
            jitter: None,
            catch_up: CatchUp::default(),
            levels: None,
            check: None,
            paused: false,
            stamps: Stamps::default(),
            batch_bytes_max: None,
            kept: BTreeMap::new(),
        }
    }
}
