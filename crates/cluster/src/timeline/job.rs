//! What is asked of the writer of a slot, and what it does.

use std::sync::Arc;

use punctual_model::ports::{CancelOutcome, OnConflict, Order, Revised, StoreError};
use punctual_model::{Entry, Key, MessageId, Timestamp, TopicId};
use tokio::sync::oneshot;

use super::counting::Class;

/// What an entry weighs in a queue beside its message.
const OVERHEAD_BYTES: usize = 128;

/// A call that waits to be written.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) bytes: usize,
    answer: oneshot::Sender<Result<Answer, StoreError>>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// All or none of these.
    Orders(Vec<Order>),
    /// Tell what would become of these, and change nothing.
    Look(Vec<Order>),
    /// Each of these that can be withdrawn.
    Cancel(Vec<MessageId>),
    /// These were handed out and have no topic any more.
    Drop(Vec<(Key, MessageId)>),
    /// These were delivered.
    Settle(Vec<(Key, MessageId)>),
    /// These were not, and are due at another time.
    Defer(Vec<(Key, MessageId, Entry)>),
}

/// What became of it.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Revised(Revised),
    Cancelled(Vec<CancelOutcome>),
    /// Own ids are those of messages in other slots, which have to be withdrawn first.
    Foreign(Vec<MessageId>),
    Nothing,
}

impl Job {
    pub(super) fn new(work: Work) -> (Self, oneshot::Receiver<Result<Answer, StoreError>>) {
        let (answer, told) = oneshot::channel();
        let bytes = work.weight();
        (Self { work, bytes, answer }, told)
    }

    pub(super) fn answer(self, answer: Result<Answer, StoreError>) {
        // Whoever asked may have gone: the outcome is the same.
        self.answer.send(answer).unwrap_or_default();
    }

    /// Messages that it names.
    pub(super) fn ids(&self) -> Vec<MessageId> {
        match &self.work {
            Work::Cancel(ids) => ids.clone(),
            Work::Orders(orders) | Work::Look(orders) => {
                orders.iter().filter_map(named_by).collect()
            }
            // Those are in memory.
            Work::Drop(_) | Work::Settle(_) | Work::Defer(_) => Vec::new(),
        }
    }

    /// Own ids that it gives.
    pub(super) fn own_ids(&self) -> Vec<(TopicId, Arc<str>, OnConflict)> {
        let (Work::Orders(orders) | Work::Look(orders)) = &self.work else { return Vec::new() };
        let own = orders.iter().filter_map(|order| {
            let Order::Schedule { entry, conflict, .. } = order else { return None };
            let own = entry.extra.as_ref()?.own_id.as_ref()?;
            Some((entry.topic, Arc::clone(&own.text), *conflict))
        });
        own.collect()
    }

    /// The most counters that it needs.
    pub(super) fn counters(&self) -> u64 {
        let count = match &self.work {
            Work::Orders(orders) | Work::Look(orders) => orders.len(),
            Work::Defer(entries) => entries.len(),
            Work::Cancel(_) | Work::Drop(_) | Work::Settle(_) => 0,
        };
        count as u64
    }

    /// Whether it is about what is being delivered, which never has to wait for room.
    pub(super) fn is_delivery(&self) -> bool {
        matches!(self.work, Work::Drop(_) | Work::Settle(_) | Work::Defer(_))
    }
}

impl Work {
    fn weight(&self) -> usize {
        let entry = |entry: &Entry| entry.message.weight() + OVERHEAD_BYTES;
        match self {
            Self::Cancel(ids) => ids.len() * OVERHEAD_BYTES,
            Self::Drop(batch) | Self::Settle(batch) => batch.len() * OVERHEAD_BYTES,
            Self::Defer(batch) => batch.iter().map(|(_, _, moved)| entry(moved)).sum(),
            Self::Orders(orders) | Self::Look(orders) => {
                let weigh = |order: &Order| match order {
                    Order::Schedule { entry: new, .. } | Order::Replace { entry: new, .. } => {
                        entry(new)
                    }
                    Order::Cancel { .. } => OVERHEAD_BYTES,
                };
                orders.iter().map(weigh).sum()
            }
        }
    }
}

/// The message that an order names.
pub(super) fn named_by(order: &Order) -> Option<MessageId> {
    match order {
        Order::Schedule { .. } => None,
        Order::Replace { id, .. } | Order::Cancel { id, .. } => Some(*id),
    }
}

/// What a change does to what is pending.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Put { key: Key, id: MessageId, entry: Entry },
    Move { id: MessageId, from: Key, was: Class, to: Key, entry: Entry },
    End { id: MessageId, key: Key, was: Class },
}

impl Effect {
    /// Where something stood.
    pub(super) fn from(&self) -> Option<Key> {
        match self {
            Self::Put { .. } => None,
            Self::Move { from: key, .. } | Self::End { key, .. } => Some(*key),
        }
    }

    /// Where something will stand.
    pub(super) fn to(&self) -> Option<Key> {
        match self {
            Self::Put { key, .. } | Self::Move { to: key, .. } => Some(*key),
            Self::End { .. } => None,
        }
    }

    /// What stood somewhere.
    pub(super) fn left(&self) -> Option<(Key, MessageId, Class)> {
        match self {
            Self::Put { .. } => None,
            Self::Move { id, from: key, was, .. } | Self::End { id, key, was } => {
                Some((*key, *id, *was))
            }
        }
    }
}

/// How long own ids are remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    /// What ended before this is forgotten.
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}
