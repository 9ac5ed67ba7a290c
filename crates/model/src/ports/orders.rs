//! What can be asked of a timeline in one go, and what it answers.

use crate::id::MessageId;
use crate::lifecycle::State;
use crate::message::{Entry, Key, Lane};

/// One of the changes that [`Timeline::revise`](super::Timeline::revise) carries out together.
#[derive(Clone, Debug)]
pub enum Order {
    /// Store a new entry.
    Schedule {
        /// Where.
        lane: Lane,
        /// What.
        entry: Entry,
        /// What to do if its own id is taken.
        conflict: OnConflict,
    },
    /// Put an entry in the place of a pending one, under the same id. It has the same topic and
    /// partition, and its `extra.changed.first` is the key of the id.
    Replace {
        /// The message.
        id: MessageId,
        /// Where it stood when it was read: it must still be there.
        expected: Key,
        /// What it becomes.
        entry: Entry,
    },
    /// Withdraw a message.
    Cancel {
        /// The message.
        id: MessageId,
        /// Where it must still stand. Without it, one that has ended is left alone.
        expected: Option<Key>,
    },
}

/// What to do with an entry whose own id is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The same request is told the first answer, another one is refused.
    #[default]
    Reject,
    /// What is pending under the own id is withdrawn.
    Replace,
}

/// What became of the orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revised {
    /// All were carried out; what became of each.
    Done(Vec<Done>),
    /// None was.
    Refused {
        /// The first order that cannot be carried out.
        index: usize,
        /// Why.
        reason: Refusal,
    },
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A new message.
    Stored(MessageId),
    /// Its own id and request are those of this message, which was accepted before.
    Known(MessageId),
    /// It stands at this key now.
    Moved(Key),
    /// It was withdrawn.
    Cancelled,
    /// It had ended.
    Nothing,
}

/// Why an order cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another request has the own id.
    OwnIdTaken(MessageId),
    /// The message was changed since it was read.
    Changed,
    /// It has ended.
    Ended(State),
    /// No such message is known.
    NotFound,
}

/// How much of a topic is due when; series and transactions do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Messages that will become due.
    pub scheduled: u64,
    /// Paused messages.
    pub paused: u64,
    /// Half messages.
    pub prepared: u64,
    /// Of the scheduled ones, how many are due before each of the bounds. A bound is not in the past,
    /// and counts as the next whole second.
    pub before: Vec<u64>,
}

impl Forecast {
    /// Adds what others have, for the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.scheduled = self.scheduled.saturating_add(other.scheduled);
        self.paused = self.paused.saturating_add(other.paused);
        self.prepared = self.prepared.saturating_add(other.prepared);
        self.before.resize(self.before.len().max(other.before.len()), 0);
        for (sum, other) in self.before.iter_mut().zip(&other.before) {
            *sum = sum.saturating_add(*other);
        }
    }
}
