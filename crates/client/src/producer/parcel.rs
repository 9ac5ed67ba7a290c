//! What one call of a producer has to wait for: an outcome for each of its messages.
//!
//! What must hold: each message has exactly one outcome, the first that is known; the caller hears
//! of all of them at once. A parcel that is dropped before is heard of as closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use crate::error::SendError;
use crate::producer::Receipt;

/// What became of one message.
pub(crate) type Outcome = Result<Receipt, SendError>;

/// Messages that were sent by one call.
#[derive(Debug)]
struct Parcel {
    state: Mutex<State>,
    /// Their room in the queue, until all of them have an outcome.
    _room: OwnedSemaphorePermit,
    _open: Open,
}

#[derive(Debug)]
struct State {
    outcomes: Vec<Option<Outcome>>,
    left: usize,
    reply: Option<oneshot::Sender<Vec<Outcome>>>,
}

/// The place of one message in its parcel.
#[derive(Debug)]
pub(crate) struct Slot {
    parcel: Arc<Parcel>,
    place: usize,
}

/// A parcel of so many messages: a slot for each, and where the outcomes come.
pub(crate) fn parcel(
    count: usize,
    room: OwnedSemaphorePermit,
    open: Open,
) -> (impl Iterator<Item = Slot>, oneshot::Receiver<Vec<Outcome>>) {
    let (reply, outcomes) = oneshot::channel();
    let state = State {
        outcomes: std::iter::repeat_with(|| None).take(count).collect(),
        left: count,
        reply: Some(reply),
    };
    let parcel = Arc::new(Parcel { state: Mutex::new(state), _room: room, _open: open });
    let slots = (0..count).map(move |place| Slot { parcel: Arc::clone(&parcel), place });
    (slots, outcomes)
}

impl Slot {
    /// Tells what became of the message, unless that was told before.
    pub(crate) fn settle(&self, outcome: Outcome) {
        let mut state = self.parcel.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(empty @ None) = state.outcomes.get_mut(self.place) else { return };
        *empty = Some(outcome);
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let outcomes = std::mem::take(&mut state.outcomes).into_iter().flatten().collect();
        if let Some(reply) = state.reply.take() {
            // The caller may have stopped waiting; the messages are sent all the same.
            let _unheard = reply.send(outcomes).is_err();
        }
    }
}

/// Which parcels are open, by the flush that waits for them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<Counts>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    /// Flushes so far.
    flushes: u64,
    /// Open parcels, by the number of flushes before them.
    open: BTreeMap<u64, usize>,
}

/// An open parcel in the ledger.
#[derive(Debug)]
pub(crate) struct Open {
    ledger: Arc<Ledger>,
    flushes: u64,
}

impl Ledger {
    /// Enters a parcel.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        let mut counts = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let flushes = counts.flushes;
        *counts.open.entry(flushes).or_default() += 1;
        Open { ledger: Arc::clone(self), flushes }
    }

    /// Waits until no parcel is open that was entered before.
    pub(crate) async fn flushed(&self) {
        let flush = {
            let mut counts = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            counts.flushes += 1;
            counts.flushes
        };
        loop {
            // Made before looking, so that nothing that happens in between is missed.
            let closed = self.closed.notified();
            if self.is_flushed(flush) {
                return;
            }
            closed.await;
        }
    }

    fn is_flushed(&self, flush: u64) -> bool {
        let counts = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        counts.open.range(..flush).next().is_none()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut counts = self.ledger.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.open.get_mut(&self.flushes) {
            *count -= 1;
            if *count == 0 {
                counts.open.remove(&self.flushes);
            }
        }
        drop(counts);
        self.ledger.closed.notify_waiters();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::task::{Context, Poll, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// A parcel that nobody flushes.
    pub(crate) fn loose(count: usize) -> (Vec<Slot>, oneshot::Receiver<Vec<Outcome>>) {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (slots, outcomes) = parcel(count, room, Arc::<Ledger>::default().open());
        (slots.collect(), outcomes)
    }

    #[test]
    fn a_flush_waits_for_what_was_there_before_it_and_for_nothing_else() {
        let ledger = Arc::<Ledger>::default();
        let (first, second) = (ledger.open(), ledger.open());
        let mut flush = Box::pin(ledger.flushed());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(flush.as_mut().poll(&mut context), Poll::Pending);
        let later = ledger.open();
        drop(second);
        assert_eq!(flush.as_mut().poll(&mut context), Poll::Pending);
        drop(first);
        assert_eq!(flush.as_mut().poll(&mut context), Poll::Ready(()));
        drop(later);
    }

    #[test]
    fn the_first_outcome_counts_and_the_caller_hears_of_all_at_once() {
        let (slots, mut outcomes) = loose(2);
        slots[1].settle(Err(SendError::Closed));
        slots[1].settle(Err(SendError::Unreachable("later".to_owned())));
        assert!(outcomes.try_recv().is_err(), "one is still open");
        slots[0].settle(Err(SendError::Closed));
        let told = outcomes.try_recv().unwrap();
        assert_eq!(told, [Err(SendError::Closed), Err(SendError::Closed)]);
        slots[0].settle(Err(SendError::Closed));
    }
}
