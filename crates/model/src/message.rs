//! A message, and the entry that holds it while it waits.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::MessageId;
use crate::time::{Span, Timestamp};
use crate::topic::{Partition, TopicId};

/// What a producer sent: kept byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Messages with the same key go to the same partition.
    pub key: Option<Bytes>,
    /// In the order given; a name may repeat.
    pub headers: Vec<Header>,
    /// The content. Empty is a body too.
    pub body: Bytes,
}

impl Message {
    /// Bytes of key, header names and values, and body.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len) + self.header_bytes() + self.body.len()
    }

    /// Bytes of header names and values.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.headers.iter().map(|header| header.name.len() + header.value.len()).sum()
    }
}

/// A name and a value that travel with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// UTF-8 text.
    pub name: String,
    /// Any bytes.
    pub value: Bytes,
}

/// The place of a message in the order of acceptance; unique in one store, and growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(u64);

impl Sequence {
    /// Set in sequences that stand for an offset.
    const OFFSET_BIT: u64 = 1 << 54;

    /// The largest sequence: 56 bits.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The sequence with this number, or `None` above 56 bits.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sequence of a record that a producer put into a log itself, at this offset; `None` above
    /// 54 bits. Sequences of entries stay below these.
    #[must_use]
    pub const fn of_offset(offset: u64) -> Option<Self> {
        if offset < Self::OFFSET_BIT { Some(Self(Self::OFFSET_BIT | offset)) } else { None }
    }

    /// The offset, if this is the sequence of a record that never was an entry.
    #[must_use]
    pub const fn offset(self) -> Option<u64> {
        let marks = Self::OFFSET_BIT | Lane::RETRY_BIT;
        if self.0 & marks == Self::OFFSET_BIT { Some(self.0 & !marks) } else { None }
    }

    /// The lane this sequence belongs to.
    #[must_use]
    pub const fn lane(self) -> Lane {
        if self.0 & Lane::RETRY_BIT == 0 { Lane::Message } else { Lane::Retry }
    }
}

/// Two streams of entries that fire independently, so that a storm in one never delays the other.
/// Each has half of the sequences: the top bit tells which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// What producers sent.
    Message,
    /// Retries, dead letters and whatever else the broker itself moves.
    Retry,
}

impl Lane {
    const RETRY_BIT: u64 = 1 << 55;

    /// All lanes.
    pub const ALL: [Self; 2] = [Self::Message, Self::Retry];

    /// The first sequence of the lane.
    #[must_use]
    pub const fn first(self) -> Sequence {
        match self {
            Self::Message => Sequence(0),
            Self::Retry => Sequence(Self::RETRY_BIT),
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Message => 0,
            Self::Retry => 1,
        }
    }
}

/// Where an entry stands on the timeline: by due time, then in the order of acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// When it is due.
    pub due: Timestamp,
    /// Where it came in the order of acceptance.
    pub sequence: Sequence,
}

/// Which clock a due time was measured with; they differ after a backward step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A delay, counted on the broker clock, which never runs backwards.
    Delay,
    /// A date, reached when the wall clock shows it.
    Date,
}

/// A message with all that was decided when it was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// When it is due.
    pub due: Timestamp,
    /// Which clock must show the due time.
    pub basis: Basis,
    /// What to deliver.
    pub message: Message,
    /// What few entries have beside that.
    pub extra: Option<Box<Extra>>,
}

impl Entry {
    /// The same with an extra that `change` has changed.
    #[must_use]
    pub fn with_extra(mut self, change: impl FnOnce(&mut Extra)) -> Self {
        change(self.extra.get_or_insert_default());
        self
    }
}

/// What few entries have beside their message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// What happens when it is due.
    pub action: Action,
    /// What it was before, if it was changed since it was accepted.
    pub changed: Option<Changed>,
    /// The name its sender gave it.
    pub own_id: Option<OwnId>,
    /// The series it is an occurrence of.
    pub series: Option<Link>,
    /// Of a series its occurrence that is to come; of a transaction its half messages.
    pub links: Vec<Link>,
    /// Why it waits without a due time.
    pub parked: Option<Parked>,
    /// Whether it may have been delivered already, by a node that lost it: it is to be delivered, and
    /// nobody can change or withdraw it any more.
    pub in_doubt: bool,
}

/// What happens when an entry is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Its message goes to the outlet.
    #[default]
    Deliver,
    /// It is a series: its next occurrence is put on the timeline. In the retry lane.
    Repeat,
    /// It is a transaction: its producers are asked what became of it. In the retry lane.
    Check,
}

/// How an entry that was changed is known outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key under which it was accepted: that of its id, for ever.
    pub first: Key,
    /// Counts the changes somebody asked for; 1 is the message as it was accepted.
    pub version: u32,
}

/// The name a sender gave a message, unique in its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnId {
    /// The name.
    pub text: Arc<str>,
    /// A fingerprint of the request: the same one again is no conflict.
    pub print: u64,
}

/// One entry's knowledge of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It has this id.
    Id(MessageId),
    /// It is stored together with this one, by the order at this place; the store puts the id in.
    Order(u32),
}

impl Link {
    /// The id, which whatever was stored has.
    #[must_use]
    pub const fn id(self) -> Option<MessageId> {
        match self {
            Self::Id(id) => Some(id),
            Self::Order(_) => None,
        }
    }
}

/// Why an entry waits without a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// Somebody paused it.
    Paused {
        /// What was left of its wait.
        remaining: Span,
        /// When it was due.
        due: Timestamp,
    },
    /// It is a half message of a transaction.
    Half {
        /// The transaction.
        transaction: Link,
        /// The delay from the commit on; without one `due` counts.
        delay: Option<Span>,
        /// When it is due if its time runs from the send.
        due: Timestamp,
    },
}
