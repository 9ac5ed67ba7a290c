//! Fire: the moment of each message comes, never before its due time.
//!
//! The near future is armed from the timeline a bounded number of entries at a time and waits on
//! the wheel. [`Firing::step`] does what is to be done now and says how long to wait; the thread
//! around it only waits. Each lane has its own, so that a storm of retries never stands in the way
//! of new messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{ArmLimit, Armed, Outlet, StoreError, Timeline};
use punctual_model::{Basis, Key, Lane, Span, Timestamp};

use crate::deliver::Delivery;
use crate::time::Now;
use crate::wheel::Wheel;

/// How far ahead entries are armed.
const AHEAD: Span = Span::from_secs(2);
/// The longest wait: how soon a step of the clock is noticed.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// How long to wait before a refused batch is offered again.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// Entries armed with one call, and handed over at once.
const PAGE_MAX: usize = 8192;
/// The same for retries: smaller steps, between which new messages get the disk.
const RETRY_PAGE_MAX: usize = 1024;
/// Entries on the wheel, and bytes of their messages.
const WHEEL_MAX: usize = 256 << 10;
const WHEEL_BYTES_MAX: usize = 64 << 20;
/// Dated messages set aside after a backward step of the wall clock. Past this many nothing more
/// is armed until the wall clock has come to some of them.
const HELD_MAX: usize = 256 << 10;
const HELD_BYTES_MAX: usize = 64 << 20;

/// Brings messages to their moment.
#[derive(Debug)]
pub struct Firing<T, O> {
    lane: Lane,
    page_max: usize,
    delivery: Delivery<T, O>,
    wheel: Wheel<Box<Armed>>,
    wheel_bytes: usize,
    /// Dates that the broker clock has passed and the wall clock has not reached.
    held: BTreeMap<Key, Armed>,
    held_bytes: usize,
    fired: Vec<(Timestamp, Box<Armed>)>,
}

impl<T: Timeline, O: Outlet> Firing<T, O> {
    /// Nothing armed yet.
    #[must_use]
    pub fn new(lane: Lane, delivery: Delivery<T, O>) -> Self {
        let now = delivery.time.read();
        let page_max = match lane {
            Lane::Message => PAGE_MAX,
            Lane::Retry => RETRY_PAGE_MAX,
        };
        Self {
            lane,
            page_max,
            delivery,
            wheel: Wheel::new(now.timestamp()),
            wheel_bytes: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            fired: Vec::new(),
        }
    }

    /// Does what is to be done now. Answers how long nothing else has to be done, unless something
    /// is accepted meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Full`] can be tried again; after anything else the store is out of order.
    pub async fn step(&mut self) -> Result<Duration, StoreError> {
        self.delivery.retry().await?;
        let now = self.delivery.time.read();
        let (armed, more) = self.arm(now).await?;
        let mut due = self.advance(now);
        due.extend(armed);
        // What was armed just now mostly comes after what was on the wheel.
        if !due.is_sorted_by_key(|armed| armed.key) {
            due.sort_by_key(|armed| armed.key);
        }
        let mut due = due.into_iter();
        while due.len() > 0 {
            let batch = due.by_ref().take(self.page_max).collect();
            if let Err(error) = self.delivery.deliver(batch).await {
                self.put_back(due);
                return Err(error);
            }
        }
        Ok(if more { Duration::ZERO } else { self.wait() })
    }

    /// Arms one page. Answers what is due already, and whether there may be more of that.
    async fn arm(&mut self, now: Now) -> Result<(Vec<Armed>, bool), StoreError> {
        let room = WHEEL_MAX.saturating_sub(self.wheel.len());
        let crowded = room == 0 || self.wheel_bytes >= WHEEL_BYTES_MAX;
        if self.held.len() >= HELD_MAX || self.held_bytes >= HELD_BYTES_MAX {
            return Ok((Vec::new(), false));
        }
        // With a crowded wheel only what is due now is taken: it does not stay.
        let until = if crowded {
            now.timestamp().saturating_add(Span::from_millis(1))
        } else {
            now.timestamp().saturating_add(AHEAD)
        };
        let entries = if crowded { self.page_max } else { room.min(self.page_max) };
        let limit = ArmLimit { entries, bytes: WHEEL_BYTES_MAX / 2 };
        let page = self.delivery.timeline.arm(self.lane, until, limit).await?;
        let more = !page.is_empty();
        let mut due = Vec::new();
        for armed in page {
            if armed.key.due <= now.timestamp() {
                due.push(armed);
            } else {
                self.wheel_bytes += armed.message.weight();
                self.wheel.insert(armed.key.due, Box::new(armed));
            }
        }
        let due = due.into_iter().filter_map(|armed| self.hold(armed, now)).collect();
        Ok((due, more))
    }

    /// Moves the wheel to `now`, and lets go of dates that the wall clock has reached.
    fn advance(&mut self, now: Now) -> Vec<Armed> {
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now.timestamp(), &mut fired);
        let mut due = Vec::with_capacity(fired.len());
        for (_, armed) in fired.drain(..) {
            self.wheel_bytes = self.wheel_bytes.saturating_sub(armed.message.weight());
            due.extend(self.hold(*armed, now));
        }
        self.fired = fired;
        while let Some(entry) = self.held.first_entry() {
            if entry.key().due > now.wall_timestamp() {
                break;
            }
            let armed = entry.remove();
            self.held_bytes = self.held_bytes.saturating_sub(armed.message.weight());
            due.push(armed);
        }
        due
    }

    /// The entry again, unless it is a date that the wall clock has not reached.
    fn hold(&mut self, armed: Armed, now: Now) -> Option<Armed> {
        if armed.basis == Basis::Date && armed.key.due > now.wall_timestamp() {
            self.held_bytes += armed.message.weight();
            self.held.insert(armed.key, armed);
            return None;
        }
        Some(armed)
    }

    /// Takes back what could not be handed over; it is due and comes out at the next step.
    fn put_back(&mut self, due: impl Iterator<Item = Armed>) {
        for armed in due {
            self.wheel_bytes += armed.message.weight();
            self.wheel.insert(armed.key.due, Box::new(armed));
        }
    }

    fn wait(&self) -> Duration {
        let now = self.delivery.time.read();
        let until = |due: Timestamp, clock: Duration| {
            Duration::from_millis(due.as_millis()).saturating_sub(clock)
        };
        let wheel = self.wheel.next_due().map_or(WAIT_MAX, |due| until(due, now.broker));
        let held = self.held.keys().next().map_or(WAIT_MAX, |key| until(key.due, now.wall));
        wheel.min(held).min(WAIT_MAX)
    }
}

/// Wakes the firing thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    woken: bool,
    stopped: bool,
}

impl Signal {
    /// Something was accepted that may be due soon.
    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }

    /// The thread is to end.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Waits at most `wait`. False when the thread is to end.
    fn wait(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stopped && !wait.is_zero() {
            self.changed.wait_for(&mut state, wait);
        }
        state.woken = false;
        !state.stopped
    }
}

/// Fires until told to stop, or until the store is out of order; then answers why.
pub(crate) fn run<T: Timeline, O: Outlet>(
    mut firing: Firing<T, O>,
    signal: &Arc<Signal>,
) -> Result<(), StoreError> {
    loop {
        let wait = match futures_executor::block_on(firing.step()) {
            Ok(wait) => wait,
            Err(StoreError::Full | StoreError::Busy) => RETRY_WAIT,
            Err(error) => return Err(error),
        };
        if !signal.wait(wait) {
            return Ok(());
        }
    }
}
