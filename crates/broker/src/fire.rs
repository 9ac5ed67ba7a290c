//! Fire: the moment of each message comes, never before its due time.
//!
//! The near future is armed from the timeline a bounded number of entries at a time and waits on
//! the wheel. [`Firing::step`] does what is to be done now and says how long to wait; the thread
//! around it only waits. Each lane has its own, so that a storm of retries never stands in the way
//! of new messages. What a paused topic, a rate cap or a catching up holds back is decided in
//! `pace`; topics without such settings never meet it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{ArmLimit, Armed, Outlet, StoreError, Timeline};
use punctual_model::{Basis, Key, Lane, Span, Timestamp};

use crate::activity::{Activity, Work};
use crate::control::Controls;
use crate::deliver::Delivery;
use crate::moves::{self, Change, Move};
use crate::pace::Pace;
use crate::pulse::Behind;
use crate::rate::place;
use crate::series::Keeper;
use crate::time::{BrokerTime, Now};
use crate::wheel::Wheel;

/// How far ahead entries are armed.
const AHEAD: Span = Span::from_secs(2);
/// The longest wait: how soon a step of the clock is noticed.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// The longest wait while it is not known what became of something.
const ASIDE_WAIT: Duration = Duration::from_millis(50);
/// How long to wait before a refused batch is offered again.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// Whoever did nothing for so long was asleep with the machine.
const ASLEEP_MIN: Duration = Duration::from_secs(60);
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
    /// Who takes care of what is not simply delivered.
    controls: Option<Controls>,
    /// What holds back some of what is due.
    pace: Option<Pace>,
    /// Who makes the occurrences of series.
    keeper: Option<Keeper<T>>,
    wheel: Wheel<Box<Armed>>,
    wheel_bytes: usize,
    /// Dates that the broker clock has passed and the wall clock has not reached.
    held: BTreeMap<Key, Armed>,
    held_bytes: usize,
    fired: Vec<(Timestamp, Box<Armed>)>,
    /// All that was missed has been read.
    caught_up: bool,
    /// When something was last done, on the broker clock.
    last: Duration,
}

impl<T: Timeline, O: Outlet> Firing<T, O> {
    /// Nothing armed yet.
    #[must_use]
    pub fn new(lane: Lane, delivery: Delivery<T, O>) -> Self {
        let now = delivery.time.read();
        delivery.counters.behind[lane.index()].note_reached(now.timestamp());
        let page_max = match lane {
            Lane::Message => PAGE_MAX,
            Lane::Retry => RETRY_PAGE_MAX,
        };
        Self {
            lane,
            page_max,
            delivery,
            controls: None,
            pace: None,
            keeper: None,
            wheel: Wheel::new(now.timestamp()),
            wheel_bytes: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            fired: Vec::new(),
            caught_up: false,
            last: now.broker,
        }
    }

    /// The same, and `controls` take what is not simply delivered.
    #[must_use]
    pub(crate) fn controlled_by(mut self, controls: Controls) -> Self {
        self.controls = Some(controls);
        self
    }

    /// The same, and `pace` decides what fires of what is due.
    #[must_use]
    pub(crate) fn paced_by(mut self, pace: Pace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// The same, and `keeper` is asked about occurrences of series that were missed.
    #[must_use]
    pub(crate) fn with_series(mut self, keeper: Keeper<T>) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// What holds back some of what is due.
    #[cfg(test)]
    pub(crate) fn pace(&self) -> &Pace {
        self.pace.as_ref().expect("tests of it have one")
    }

    /// Does what is to be done now. Answers how long nothing else has to be done, unless something
    /// is accepted meanwhile.
    ///
    /// # Errors
    /// One that [passes](StoreError::passes) can be tried again; after anything else the store is
    /// out of order.
    pub async fn step(&mut self) -> Result<Duration, StoreError> {
        self.delivery.retry().await?;
        self.move_on().await?;
        let now = self.delivery.time.read();
        self.notice_sleep(now);
        let (armed, more) = self.arm(now).await?;
        let mut due = self.advance(now);
        due.extend(armed);
        // What was armed just now mostly comes after what was on the wheel.
        if !due.is_sorted_by_key(|armed| armed.key) {
            due.sort_by_key(|armed| armed.key);
        }
        if let Some(controls) = &self.controls {
            controls.take(&mut due);
        }
        self.note_waiting(&due, now);
        let due = self.sort_out(due, now).await?;
        self.note_waiting(&due, now);
        let mut due = due.into_iter();
        while due.len() > 0 {
            let batch = due.by_ref().take(self.page_max).collect();
            if let Err(error) = self.delivery.deliver(batch).await {
                self.put_back(due);
                return Err(error);
            }
        }
        self.move_on().await?;
        self.note_waiting(&[], now);
        Ok(if more { Duration::ZERO } else { self.wait() })
    }

    /// Leaves a note of how long the oldest of what is due waits, with what is in hand.
    fn note_waiting(&mut self, due: &[Armed], now: Now) {
        let in_hand = due.iter().map(|armed| place(armed).due).min();
        let held = self.pace.as_ref().and_then(Pace::oldest);
        let aside = self.delivery.oldest(now.timestamp());
        let oldest = [in_hand, held, aside].into_iter().flatten().min();
        self.behind().note_oldest(oldest);
    }

    fn behind(&self) -> &Behind {
        &self.delivery.counters.behind[self.lane.index()]
    }

    /// Answers what fires now of what is due.
    async fn sort_out(&mut self, due: Vec<Armed>, now: Now) -> Result<Vec<Armed>, StoreError> {
        let Some(pace) = &mut self.pace else { return Ok(due) };
        let uncounted = pace.prepare(&due, now);
        if let Some(start) = pace.missing_before() {
            for topic in uncounted {
                match self.delivery.timeline.forecast(topic, vec![start]).await {
                    Ok(forecast) => {
                        pace.count(topic, forecast.before.first().copied().unwrap_or(0));
                    }
                    Err(error) => {
                        self.put_back(due.into_iter());
                        return Err(error);
                    }
                }
            }
        }
        let mut due = pace.sort_out(due, now);
        if self.caught_up {
            self.caught_up = false;
            let mut held = pace.end_catching_up();
            if let Err(error) = self.skip_overtaken(&mut held).await {
                self.put_back(held.into_iter().chain(due));
                return Err(error);
            }
            if let Some(pace) = &mut self.pace {
                due.extend(pace.let_go(held, now));
            }
        }
        Ok(due)
    }

    /// Withdraws occurrences of series of which a later one was missed that is not there yet.
    async fn skip_overtaken(&mut self, held: &mut Vec<Armed>) -> Result<(), StoreError> {
        let (Some(keeper), Some(pace)) = (&self.keeper, &mut self.pace) else { return Ok(()) };
        let mut overtaken = Vec::new();
        for armed in held.iter() {
            overtaken.push(keeper.overtaken(armed).await?);
        }
        let mut overtaken = overtaken.into_iter();
        let skipped = held.extract_if(.., |_| overtaken.next().unwrap_or(false));
        pace.moves.extend(skipped.map(|armed| Move { armed, change: Change::Skip }));
        Ok(())
    }

    /// Notices that nothing was done for so long that the machine must have been asleep.
    fn notice_sleep(&mut self, now: Now) {
        let slept = now.broker.saturating_sub(self.last) >= ASLEEP_MIN;
        self.last = now.broker;
        if !slept || self.delivery.time.is_by_hand() {
            return;
        }
        if let Some(pace) = &mut self.pace {
            pace.wake_up(now);
        }
        if let Some(keeper) = &self.keeper {
            keeper.woke_up(now.timestamp());
        }
    }

    /// Writes down what became of messages that are due and did not fire.
    async fn move_on(&mut self) -> Result<(), StoreError> {
        let Some(pace) = self.pace.as_mut().filter(|pace| !pace.moves.is_empty()) else {
            return Ok(());
        };
        let skipped = moves::carry_out(&*self.delivery.timeline, &mut pace.moves).await?;
        self.delivery.counters.skipped.fetch_add(skipped, Ordering::Relaxed);
        Ok(())
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
        self.behind().note_reached(page.last().map_or(until, |last| last.key.due));
        if let Some(pace) = &self.pace {
            let start = pace.missing_before();
            let past = |start: Timestamp| page.last().is_none_or(|last| last.key.due >= start);
            self.caught_up = start.is_some_and(past);
        }
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
        let turn = self.pace.as_ref().and_then(|pace| pace.next_turn(now));
        let turn = turn.map_or(WAIT_MAX, |turn| turn.saturating_sub(now.broker));
        let aside = if self.delivery.has_aside() { ASIDE_WAIT } else { WAIT_MAX };
        wheel.min(held).min(turn).min(aside)
    }

    /// When something in memory has its moment, on the broker clock, or a little before that.
    fn next(&self) -> Option<Timestamp> {
        let now = self.delivery.time.read();
        let turn = self.pace.as_ref().and_then(|pace| pace.next_turn(now));
        let turn = turn.map(|turn| {
            let millis = turn.as_nanos().div_ceil(1_000_000);
            Timestamp::from_millis_saturating(u64::try_from(millis).unwrap_or(u64::MAX))
        });
        let held = self.held.keys().next().map(|key| key.due);
        [self.wheel.next_due(), held, turn].into_iter().flatten().min()
    }
}

/// Wakes the firing thread. Whoever wakes it gives it work, which ends when it waits again.
#[derive(Debug)]
pub(crate) struct Signal {
    state: Mutex<Pending>,
    changed: Condvar,
    activity: Activity,
    /// Time stands still: nothing is to be waited for.
    by_hand: bool,
}

#[derive(Debug)]
struct Pending {
    woken: bool,
    stopped: bool,
    /// When the thread has something to do that it holds in memory.
    next: Option<Timestamp>,
    /// There unless the thread waits, or has ended.
    work: Option<Work>,
}

impl Signal {
    /// For a thread that has not begun yet.
    pub(crate) fn new(time: &BrokerTime) -> Self {
        let work = Some(time.activity().begin());
        Self {
            state: Mutex::new(Pending { woken: false, stopped: false, next: None, work }),
            changed: Condvar::new(),
            activity: time.activity().clone(),
            by_hand: time.is_by_hand(),
        }
    }

    /// Something was accepted that may be due soon, or time was moved.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.stopped {
            state.work.get_or_insert_with(|| self.activity.begin());
        }
        state.woken = true;
        self.changed.notify_one();
    }

    /// The thread is to end.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// When the thread, which waits, has something to do that it holds in memory.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.state.lock().next
    }

    /// Waits at most `wait`, or where time stands still until there is something to do. False when
    /// the thread is to end.
    fn wait(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stopped && !wait.is_zero() {
            state.work = None;
            if self.by_hand {
                self.changed.wait(&mut state);
            } else {
                self.changed.wait_for(&mut state, wait);
            }
            state.work.get_or_insert_with(|| self.activity.begin());
        }
        state.woken = false;
        !state.stopped
    }

    /// Waits at most `wait` with work in hand that was refused. False when the thread is to end.
    fn pause(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopped {
            self.changed.wait_for(&mut state, wait);
        }
        !state.stopped
    }

    /// The thread has ended.
    fn end(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.work = None;
    }
}

/// Fires until told to stop, or until the store is out of order; then answers why.
pub(crate) fn run<T: Timeline, O: Outlet>(
    mut firing: Firing<T, O>,
    signal: &Arc<Signal>,
) -> Result<(), StoreError> {
    let outcome = loop {
        let goes_on = match futures_executor::block_on(firing.step()) {
            Ok(wait) => {
                if signal.by_hand {
                    signal.state.lock().next = firing.next();
                }
                signal.wait(wait)
            }
            Err(error) if error.passes() => signal.pause(RETRY_WAIT),
            Err(error) => break Err(error),
        };
        if !goes_on {
            break Ok(());
        }
    };
    signal.end();
    outcome
}
