//! What a database has to do for a cluster: keep the entries of slots, each change fenced by a term,
//! and a few small documents that all nodes share.
//!
//! [`SlotStore`] and [`Documents`] are seams within this crate: MySQL and Cassandra stand behind
//! them, and one suite holds both to them (`tests/store_conformance`). Only the owner of a slot
//! writes to it, so nothing else has to be locked: a write with a term that is not the slot's is
//! refused, in the same statement or transaction.

pub mod memory;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{Forecast, PendingPage, PendingQuery};
use punctual_model::{Entry, Key, Lane, MessageId, Sequence, State, Timestamp, TopicId};

/// Bits of a sequence that tell the slot.
const SLOT_BITS: u32 = 16;

/// Bits of a sequence that count within a slot.
const COUNTER_BITS: u32 = 38;

/// The most slots a cluster may have.
pub const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// A unit of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot in which the entry of that sequence stands.
    #[must_use]
    pub fn of(sequence: Sequence) -> Self {
        let low = sequence.get() & (u64::from(SLOTS_MAX) - 1);
        Self(u16::try_from(low).expect("sixteen bits"))
    }

    /// Which number within its slot the sequence has.
    #[must_use]
    pub fn counter(sequence: Sequence) -> u64 {
        (sequence.get() >> SLOT_BITS) & ((1 << COUNTER_BITS) - 1)
    }

    /// The `counter`-th sequence of this slot in a lane. Counters start again at their end: a key
    /// is unique because of its due time too, and the store refuses one that is taken.
    #[must_use]
    pub fn sequence(self, lane: Lane, counter: u64) -> Sequence {
        let counter = counter & ((1 << COUNTER_BITS) - 1);
        let number = lane.first().get() | (counter << SLOT_BITS) | u64::from(self.0);
        Sequence::new(number).expect("lane, counter and slot have 56 bits together")
    }
}

/// A slot as one owner holds it. A later owner has a higher term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// The slot.
    pub slot: Slot,
    /// The fencing number.
    pub term: u64,
}

/// What the store remembers of a slot beside its entries; written by its owner about every second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Entries that are due up to here may have been sent by the owner that wrote this: after it
    /// they are sent again rather than withdrawn. Goes back only when its owner lets go of the slot
    /// with nothing on its way.
    pub claimed_until: Timestamp,
    /// Of each lane: everything that is due before it has ended. Never goes back but by a schedule
    /// for a past time, which its writer sees to.
    pub ended_before: [Timestamp; Lane::ALL.len()],
    /// Counters below this one may have been given out.
    pub counters_until: u64,
}

/// One slot's changes, carried out all or none.
#[derive(Clone, Debug)]
pub struct Group {
    /// Who writes.
    pub tenure: Tenure,
    /// In this order. No two name the same message.
    pub changes: Vec<Change>,
}

/// A change of a slot's entries.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new entry. Its links are ids.
    Put {
        /// Where it stands.
        key: Key,
        /// What it is.
        entry: Entry,
    },
    /// An entry takes the place of another, under the same id.
    Move {
        /// The message.
        id: MessageId,
        /// Where it stood.
        from: Key,
        /// Where it stands now.
        to: Key,
        /// What it is now.
        entry: Entry,
    },
    /// A message has ended.
    End {
        /// The message.
        id: MessageId,
        /// Where it stood.
        key: Key,
        /// [`State::Delivered`] or [`State::Cancelled`].
        state: State,
        /// When.
        at: Timestamp,
    },
    /// A message gets the name that its sender gave it, if nobody else has got it meanwhile.
    Name {
        /// The topic in which the name is unique.
        topic: TopicId,
        /// The name.
        text: Arc<str>,
        /// The fingerprint of the request.
        print: u64,
        /// The message.
        id: MessageId,
        /// Whose name it was when that was read; `None` when nobody's.
        expected: Option<MessageId>,
    },
}

/// What became of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, durably.
    Done,
    /// The slot has another term: nothing was changed.
    Fenced,
    /// The name of this change is another message's by now: nothing was changed.
    NameTaken {
        /// The place of the change in its group.
        index: usize,
    },
}

/// A stored message.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The message.
    pub id: MessageId,
    /// Where it stands, or stood at its end.
    pub key: Key,
    /// Where it is in its life.
    pub state: State,
    /// What it is; `None` once it has ended.
    pub entry: Option<Entry>,
}

/// Whose name an own id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The message.
    pub id: MessageId,
    /// The fingerprint of its request.
    pub print: u64,
    /// Where the message is in its life; `None` when nothing is known of it any more.
    pub state: Option<State>,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// How much of a topic stands in which hour of a slot, as a change to what is stored. The owner of
/// a slot keeps count in memory and writes the differences down with its marks, so after a crash
/// the counts of far hours may be off by the last moments; counting is for forecasts alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Of this topic.
    pub topic: TopicId,
    /// In this lane.
    pub lane: Lane,
    /// What is counted.
    pub kind: Kind,
    /// Due in this hour since the epoch; 0 for what is parked.
    pub hour: u32,
    /// How many more, or fewer.
    pub difference: i64,
}

/// What is counted for forecasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Messages that will become due.
    Scheduled,
    /// Paused messages.
    Paused,
    /// Half messages.
    Prepared,
    /// Series and transactions.
    Control,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It could not be reached or refused for now, and nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// It did not answer: whether anything was changed is not known.
    #[error("the store did not answer: {0}")]
    Unsure(Arc<str>),
    /// What it holds cannot be read.
    #[error("damaged data in the store: {0}")]
    Damaged(Arc<str>),
}

/// The entries of slots. Calls are made within a tokio runtime; each has a deadline of its own, so
/// a store that hangs becomes a [`Failure`].
pub trait SlotStore: Send + Sync + 'static {
    /// Takes a slot over: from here on writes with a lower term are refused. The same tenure may
    /// take again. Answers what the owner before has left; `None` when the slot has a higher term.
    fn take(&self, tenure: Tenure) -> impl Future<Output = Result<Option<Marks>, Failure>> + Send;

    /// Writes marks and counts of slots down. Answers for each whether the term still holds.
    fn keep(
        &self,
        slots: Vec<(Tenure, Marks, Vec<Counted>)>,
    ) -> impl Future<Output = Result<Vec<bool>, Failure>> + Send;

    /// Carries out each group, all or none of it, and answers what became of each. A group is
    /// durable before it is answered as [`Outcome::Done`].
    fn apply(
        &self,
        groups: Vec<Group>,
    ) -> impl Future<Output = Result<Vec<Outcome>, Failure>> + Send;

    /// Pending entries of a slot and lane past `after` and due before `until`, in key order, at
    /// most `limit` and about `bytes` of them. What is parked is never due.
    fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> impl Future<Output = Result<Vec<Stored>, Failure>> + Send;

    /// What is known of each message, in order, wherever it stands now.
    fn get(
        &self,
        ids: Vec<MessageId>,
    ) -> impl Future<Output = Result<Vec<Option<Stored>>, Failure>> + Send;

    /// Whose names these own ids are, in order, however long ago.
    fn names(
        &self,
        topic: TopicId,
        texts: Vec<Arc<str>>,
    ) -> impl Future<Output = Result<Vec<Option<Named>>, Failure>> + Send;

    /// Pending entries of one topic and lane of all slots, in key order.
    fn pending(
        &self,
        query: PendingQuery,
    ) -> impl Future<Output = Result<PendingPage, Failure>> + Send;

    /// How much of a topic is due when, in all slots, as it was last written down.
    fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> impl Future<Output = Result<Forecast, Failure>> + Send;

    /// How much is pending of each topic in a lane, in all slots, as it was last written down.
    fn counts(
        &self,
        lane: Lane,
    ) -> impl Future<Output = Result<Vec<(TopicId, u64)>, Failure>> + Send;

    /// Archives or deletes some of what has ended in a slot before `before`, and names that are
    /// forgotten by then. Answers whether there may be more.
    fn purge(
        &self,
        tenure: Tenure,
        before: Timestamp,
    ) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Whether the slot has nothing pending, parked entries included.
    fn is_empty(&self, slot: Slot) -> impl Future<Output = Result<bool, Failure>> + Send;
}

/// A small document that all nodes share: a topic, an app, a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its name within its kind.
    pub name: Arc<str>,
    /// Grows with each change of it.
    pub revision: u64,
    /// `None` once it was deleted.
    pub content: Option<Bytes>,
}

/// Documents of a few kinds, each changed only by whoever has read its present state.
pub trait Documents: Send + Sync + 'static {
    /// All documents of a kind that were changed after `revision`, deleted ones too, and the
    /// revision up to which that is all there is. Revisions are of the kind as a whole: no two
    /// changes of a kind have the same.
    fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> impl Future<Output = Result<(Vec<Document>, u64), Failure>> + Send;

    /// Writes a document, or deletes it, if its revision is still `expected` (0 for one that never
    /// was). Answers its new revision, or `None` when somebody else was first.
    fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> impl Future<Output = Result<Option<u64>, Failure>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_tells_its_slot_and_lane() {
        for lane in Lane::ALL {
            for slot in [0, 1, 777, u16::MAX] {
                let sequence = Slot(slot).sequence(lane, (1 << COUNTER_BITS) - 1);
                assert_eq!((Slot::of(sequence), sequence.lane()), (Slot(slot), lane));
                assert_eq!(sequence.offset(), None, "not one of a record");
            }
        }
    }

    #[test]
    fn sequences_of_a_slot_grow() {
        let slot = Slot(3);
        assert!(slot.sequence(Lane::Message, 1) < slot.sequence(Lane::Message, 2));
    }
}
