//! Changes that the broker itself makes to messages on the timeline: later, parked, or withdrawn.
//!
//! A message keeps its id and its version, which counts what others asked for. Each change holds
//! only if the message still stands where it was read; one that was changed or has ended meanwhile
//! is left alone.

use punctual_model::ports::{Armed, Done, Order, PendingEntry, Revised, StoreError, Timeline};
use punctual_model::{Basis, Changed, Entry, Extra, MessageId, Parked, Span, Timestamp};

use crate::change::is_series;

/// Changes made with one call.
const ORDERS_MAX: usize = 1024;

/// A due message that does not fire now, and what becomes of it.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) armed: Armed,
    pub(crate) change: Change,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is due at this time instead.
    Later(Timestamp),
    /// It waits until its topic is no longer paused.
    Park,
    /// It is withdrawn.
    Skip,
}

impl Move {
    fn order(&self) -> Order {
        let (armed, id) = (&self.armed, self.armed.id());
        let (due, parked) = match self.change {
            Change::Later(due) => (due, None),
            Change::Park => {
                let (remaining, due) = (Span::ZERO, armed.key.due);
                (Timestamp::PAUSED, Some(Parked::Paused { remaining, due }))
            }
            Change::Skip => return Order::Cancel { id, expected: Some(armed.key) },
        };
        let entry = Entry {
            topic: armed.topic,
            partition: armed.partition,
            due,
            // Turns are counted on the broker clock.
            basis: Basis::Delay,
            message: armed.message.clone(),
            extra: Some(moved(armed.extra.as_deref(), id, parked)),
        };
        Order::Replace { id, expected: armed.key, entry }
    }
}

/// The order that makes a parked message due at `due`.
pub(crate) fn unpark(pending: &PendingEntry, due: Timestamp) -> Order {
    let id = pending.id;
    let entry = Entry {
        topic: id.topic,
        partition: id.partition,
        due,
        // A series counts on with the clock it has; a message is due now by any.
        basis: if is_series(pending) { pending.basis } else { Basis::Delay },
        message: pending.message.clone(),
        extra: Some(moved(pending.extra.as_deref(), id, None)),
    };
    Order::Replace { id, expected: pending.key, entry }
}

/// The extra of a message that the broker moves.
fn moved(extra: Option<&Extra>, id: MessageId, parked: Option<Parked>) -> Box<Extra> {
    let mut extra = extra.cloned().unwrap_or_default();
    let version = extra.changed.map_or(1, |changed| changed.version);
    extra.changed = Some(Changed { first: id.key, version });
    extra.parked = parked;
    Box::new(extra)
}

/// Carries out all moves and gives the messages back. Answers how many were withdrawn. After an
/// error what is left in `moves` is to be tried again.
///
/// # Errors
/// As the timeline says.
pub(crate) async fn carry_out<T: Timeline>(
    timeline: &T,
    moves: &mut Vec<Move>,
) -> Result<u64, StoreError> {
    let mut skipped = 0;
    while !moves.is_empty() {
        let count = moves.len().min(ORDERS_MAX);
        let orders = moves[..count].iter().map(Move::order).collect();
        let done = revise_all(timeline, orders).await?;
        skipped += done.into_iter().filter(|done| *done == Done::Cancelled).count() as u64;
        let armed: Vec<Armed> = moves.drain(..count).map(|done| done.armed).collect();
        timeline.release(&armed).await?;
    }
    Ok(skipped)
}

/// Carries out orders that do not depend on each other, leaving out those that cannot be.
///
/// # Errors
/// As the timeline says; some of the orders may have been carried out by then.
pub(crate) async fn revise_all<T: Timeline>(
    timeline: &T,
    mut orders: Vec<Order>,
) -> Result<Vec<Done>, StoreError> {
    let mut all = Vec::with_capacity(orders.len());
    while !orders.is_empty() {
        match timeline.revise(orders.clone()).await? {
            Revised::Done(done) => {
                all.extend(done);
                break;
            }
            Revised::Refused { index, .. } => {
                let rest = orders.split_off(index.saturating_add(1).min(orders.len()));
                orders.pop();
                // Those before it were found to be in order.
                if !orders.is_empty()
                    && let Revised::Done(done) = timeline.revise(orders.clone()).await?
                {
                    all.extend(done);
                } else if !orders.is_empty() {
                    // Another one was changed since: they are looked at once more, one by one.
                    for order in orders {
                        if let Revised::Done(done) = timeline.revise(vec![order]).await? {
                            all.extend(done);
                        }
                    }
                }
                orders = rest;
            }
        }
    }
    Ok(all)
}
