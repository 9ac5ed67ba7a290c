//! Time that is moved by hand: a flow of thirty days in the time its work takes.
//!
//! Time goes from one moment at which anything is due to the next, and stays there until all that
//! the moment brings has been done: messages first, then retries, series and transactions, then
//! leases that run out. So everything happens in its true order, and the same calls have the same
//! results. Whoever is not part of the broker, such as a consumer, is not waited for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::ports::{StoreError, Timeline};
use punctual_model::{Lane, Timestamp};

use crate::broker::Broker;

/// Rounds of work that one moment may bring. Past that time goes on, so that a flow that feeds
/// itself without a delay does not stop the clock for ever.
const ROUNDS_MAX: usize = 100_000;

/// How far time was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The time it is now.
    pub now: Timestamp,
    /// Messages whose moment came on the way, retries too.
    pub fired: u64,
}

/// Why time was not moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The broker goes by the clock of the machine.
    #[error("the broker goes by the clock of the machine")]
    NotVirtual,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<T: Timeline> Broker<T> {
    /// Whether time is moved by hand.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.shared.time.is_by_hand()
    }

    /// Moves time to `to`, and does all that becomes due on the way. A time that has passed moves
    /// nothing; what is due now is done. Blocks. One call waits for the other.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub fn move_time(&self, to: Timestamp) -> Result<Moved, MoveError> {
        let clock = self.shared.time.by_hand().ok_or(MoveError::NotVirtual)?;
        let _one_at_a_time = self.shared.moving.lock();
        let fired = || self.shared.counters.fired.load(Ordering::Relaxed);
        let before = fired();
        loop {
            let next = self.settle()?;
            let now = self.now();
            if now >= to {
                return Ok(Moved { now, fired: fired() - before });
            }
            clock.move_to(next.map_or(to, |next| next.min(to)));
        }
    }

    /// Does all that the present brings. Answers when there is something to do next.
    fn settle(&self) -> Result<Option<Timestamp>, MoveError> {
        let activity = self.shared.time.activity();
        activity.wait_idle();
        let now = self.now();
        let mut next = self.next()?;
        for _ in 0..ROUNDS_MAX {
            if next.first().is_none_or(|first| first > now) {
                break;
            }
            if self.shared.consumers.is_stopped() {
                return Err(StoreError::Closed.into());
            }
            for lane in Lane::ALL {
                if next.lanes[lane.index()].is_some_and(|due| due <= now) {
                    self.shared.signals[lane.index()].wake();
                    activity.wait_idle();
                }
            }
            if next.alarm.is_some_and(|due| due <= now) {
                self.shared.consumers.look();
                activity.wait_idle();
            }
            next = self.next()?;
        }
        Ok(next.first().map(|first| first.max(after(now))))
    }

    fn next(&self) -> Result<Next, StoreError> {
        let now = self.shared.time.read();
        let mut lanes = [None; Lane::ALL.len()];
        for lane in Lane::ALL {
            let unarmed = block_on(self.shared.timeline.next_due(lane))?;
            let unarmed = unarmed.filter(|due| !due.is_parked());
            let armed = self.shared.signals[lane.index()].next();
            lanes[lane.index()] = [unarmed, armed].into_iter().flatten().min();
        }
        let alarm = self.shared.consumers.next_alarm();
        let alarm = alarm.map(|at| up(now.broker + at.saturating_sub(now.monotonic)));
        Ok(Next { lanes, alarm })
    }
}

/// When which part of the broker has something to do.
struct Next {
    lanes: [Option<Timestamp>; Lane::ALL.len()],
    alarm: Option<Timestamp>,
}

impl Next {
    fn first(&self) -> Option<Timestamp> {
        self.lanes.into_iter().chain([self.alarm]).flatten().min()
    }
}

/// The first whole millisecond at `time` or later.
fn up(time: Duration) -> Timestamp {
    let millis = time.as_nanos().div_ceil(1_000_000);
    Timestamp::from_millis_saturating(u64::try_from(millis).unwrap_or(u64::MAX))
}

fn after(time: Timestamp) -> Timestamp {
    Timestamp::from_millis_saturating(time.as_millis() + 1)
}
