//! What becomes of a transaction that falls due, and the thread that sees to it.
//!
//! An undecided one becomes ready for a check, or unresolved; a decided one has been remembered for
//! long enough. Every step is a durable change that expects the transaction where it fell due, so one
//! that was decided meanwhile is left alone.

use std::collections::VecDeque;
use std::time::Duration;

use futures_executor::block_on;
use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{Armed, Order, PendingQuery, Revised, StoreError, Timeline};
use punctual_model::{Changed, Entry, Key, Lane, MessageId, Span, Timestamp, TopicId, limits};

use super::TransactionState;
use super::desk::Inner;
use super::ready::{Waiting, Way};
use super::record::{Record, Stored};
use crate::activity::Work;

/// Transactions changed at once.
const STEP_MAX: usize = 256;
/// Transactions read at once at the start.
const PAGE_MAX: usize = 1000;
/// How long to wait before a change that the store had no room for is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// When a transaction that finds no room among those that are ready tries again, at the earliest.
const CROWDED_WAIT: Span = Span::from_secs(60);

/// What was handed over to the thread. It is not bounded: whoever fires must not wait for the
/// thread, whose changes may have to wait for the firing.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<(Vec<Armed>, Work)>,
    stopped: bool,
}

impl Inbox {
    pub(super) fn put(&self, due: Vec<Armed>, work: Work) {
        self.state.lock().batches.push_back((due, work));
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// The next batch; `None` when the thread is to end.
    fn next(&self) -> Option<(Vec<Armed>, Work)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            self.changed.wait(&mut state);
        }
    }

    fn try_next(&self) -> Option<(Vec<Armed>, Work)> {
        let mut state = self.state.lock();
        if state.stopped { None } else { state.batches.pop_front() }
    }

    /// Waits a little. False when the thread is to end.
    fn pause(&self) -> bool {
        let mut state = self.state.lock();
        if !state.stopped {
            self.changed.wait_for(&mut state, RETRY_WAIT);
        }
        !state.stopped
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}

/// What is to be done with a transaction that fell due.
struct Step {
    order: Order,
    then: Then,
}

/// What memory has to know afterwards.
enum Then {
    Nothing,
    Wait(Way, Waiting),
    Forget(MessageId),
}

impl<T: Timeline> Inner<T> {
    /// Works until told to stop, or until the store is out of order; then answers why.
    pub(super) fn run(&self, searching: Work) -> Result<(), StoreError> {
        self.search(searching)?;
        while let Some((due, _work)) = self.inbox.next() {
            self.handle(&due)?;
        }
        Ok(())
    }

    /// Looks for checks that were ready before a restart; what falls due meanwhile goes first.
    fn search(&self, _searching: Work) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            while let Some((due, _work)) = self.inbox.try_next() {
                self.handle(&due)?;
            }
            after = match block_on(self.search_page(after)) {
                Ok(None) => return Ok(()),
                Ok(next) => next,
                Err(error) if error.passes() && self.inbox.pause() => after,
                Err(error) if error.passes() => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.inbox.is_stopped() {
                return Ok(());
            }
        }
    }

    async fn search_page(&self, after: Option<Key>) -> Result<Option<Key>, StoreError> {
        // Those that are unresolved stand where nothing falls due.
        let query = PendingQuery {
            after,
            ..PendingQuery::all_of(TopicId::TRANSACTIONS, Lane::Retry, PAGE_MAX)
        };
        let page = self.timeline.pending(query).await?;
        self.undecided.note_all(page.entries.iter().filter_map(Stored::of_pending));
        for stored in page.entries.iter().filter_map(Stored::of_pending) {
            // Those that had found no room come by themselves, and so do those that are late.
            if let Some(since) = stored.record.ready_since
                && stored.key.due == given_up_at(since)
            {
                self.ready.insert(Way::of(&stored.record), Waiting { since, id: stored.id });
            }
        }
        Ok(page.next)
    }

    fn handle(&self, due: &[Armed]) -> Result<(), StoreError> {
        for some in due.chunks(STEP_MAX) {
            if !self.change(some)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Changes some transactions and gives them back. False when the thread is to end.
    fn change(&self, due: &[Armed]) -> Result<bool, StoreError> {
        let now = self.time.read().timestamp();
        let mut room = self.ready.room();
        // Also those that other brokers over the same timeline have prepared.
        self.undecided.note_all(due.iter().filter_map(Stored::of_armed));
        let mut steps: Vec<Step> = due.iter().map(|armed| step(armed, now, &mut room)).collect();
        while !steps.is_empty() {
            let orders = steps.iter().map(|step| step.order.clone()).collect();
            match block_on(self.timeline.revise(orders)) {
                Ok(Revised::Done(_)) => {
                    steps.drain(..).for_each(|step| self.remember(step.then));
                }
                // Somebody has changed this one: what it is now falls due by itself.
                Ok(Revised::Refused { index, .. }) => drop(steps.remove(index)),
                Err(error) if error.passes() => {
                    if !self.inbox.pause() {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        block_on(self.timeline.release(due))?;
        Ok(true)
    }

    fn remember(&self, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Wait(way, waiting) => self.ready.insert(way, waiting),
            Then::Forget(id) => self.ready.remove(id),
        }
    }
}

/// When a check that nobody takes is given up.
fn given_up_at(since: Timestamp) -> Timestamp {
    since.saturating_add(limits::CHECK_LISTENER_WAIT)
}

fn step(armed: &Armed, now: Timestamp, room: &mut usize) -> Step {
    let id = armed.id();
    let Some(mut stored) = Stored::of_armed(armed) else {
        tracing::warn!(%id, "an entry that is no transaction is set aside");
        let entry = set_aside(armed);
        return Step {
            order: Order::Replace { id, expected: armed.key, entry },
            then: Then::Nothing,
        };
    };
    if stored.record.state.is_decided() {
        let order = Order::Cancel { id, expected: Some(armed.key) };
        return Step { order, then: Then::Nothing };
    }
    let (due, then) = if is_given_up(&stored.record, now) {
        stored.record.state = TransactionState::Unresolved;
        stored.record.ready_since = None;
        (Timestamp::PREPARED, Then::Forget(id))
    } else {
        let since = stored.record.ready_since.unwrap_or(now);
        stored.record.ready_since = Some(since);
        if *room > 0 {
            *room -= 1;
            (given_up_at(since), Then::Wait(Way::of(&stored.record), Waiting { since, id }))
        } else {
            let wait = stored.record.policy.interval.max(CROWDED_WAIT);
            (now.saturating_add(wait).min(given_up_at(since)), Then::Nothing)
        }
    };
    let order = Order::Replace { id, expected: armed.key, entry: stored.entry(due) };
    Step { order, then }
}

/// Whether nobody is asked any more: the last check was spent, or nobody has taken one.
fn is_given_up(record: &Record, now: Timestamp) -> bool {
    match record.ready_since {
        Some(since) => now >= given_up_at(since),
        None => {
            record.state == TransactionState::Unresolved || record.checks_sent >= record.policy.max
        }
    }
}

/// The same entry where it falls due no more.
fn set_aside(armed: &Armed) -> Entry {
    let entry = Entry {
        topic: armed.topic,
        partition: armed.partition,
        due: Timestamp::PREPARED,
        basis: armed.basis,
        message: armed.message.clone(),
        extra: armed.extra.clone(),
    };
    let first = armed.id().key;
    entry.with_extra(|extra| extra.changed = Some(Changed { first, version: 1 }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use punctual_model::ports::Origin;
    use punctual_model::{CheckPolicy, GroupName, Sequence};

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn record() -> Record {
        Record {
            producer_group: GroupName::new("billing").unwrap(),
            state: TransactionState::Prepared,
            created: at(1),
            decided: None,
            policy: CheckPolicy { first: Span::ZERO, interval: Span::from_secs(90), max: 2 },
            checks_sent: 0,
            ready_since: None,
            url: None,
        }
    }

    fn armed(record: &Record, due: Timestamp) -> Armed {
        let entry = record.entry(due, Vec::new(), None);
        let sequence = Sequence::new(7).unwrap();
        Armed {
            key: Key { due, sequence },
            topic: entry.topic,
            partition: entry.partition,
            basis: entry.basis,
            message: entry.message,
            extra: entry.extra,
            origin: Origin(0),
        }
    }

    /// What becomes of a record that falls due, when it falls due again, and whether it waits.
    fn after(record: &Record, now: Timestamp, mut room: usize) -> (Record, Timestamp, bool) {
        let armed = armed(record, now);
        let Step { order, then } = step(&armed, now, &mut room);
        let Order::Replace { id, expected, entry } = order else { panic!("{order:?}") };
        assert_eq!((id, expected), (armed.id(), armed.key));
        let shown = Armed { message: entry.message, extra: entry.extra, ..armed };
        let stored = Stored::of_armed(&shown).unwrap();
        (stored.record, entry.due, matches!(then, Then::Wait(..)))
    }

    #[test]
    fn one_that_finds_no_room_comes_again_and_its_wait_goes_on() {
        let start = at(50 * HOUR_MS);
        let (crowded, due, waits) = after(&record(), start, 0);
        assert_eq!((crowded.ready_since, waits), (Some(start), false));
        assert_eq!(due, start.saturating_add(Span::from_secs(90)));
        let late = at(61 * HOUR_MS + HOUR_MS - 1000);
        let (crowded, due, _) = after(&crowded, late, 0);
        assert_eq!((crowded.ready_since, due), (Some(start), at(62 * HOUR_MS)));
        let (ready, due, waits) = after(&crowded, late, 1);
        assert_eq!((ready.ready_since, due, waits), (Some(start), at(62 * HOUR_MS), true));
        let (given_up, due, waits) = after(&ready, due, 1);
        assert_eq!((given_up.state, waits), (TransactionState::Unresolved, false));
        assert_eq!((given_up.ready_since, due), (None, Timestamp::PREPARED));
    }

    #[test]
    fn after_its_last_check_it_is_unresolved() {
        for (checks_sent, state) in [
            (0, TransactionState::Prepared),
            (1, TransactionState::Prepared),
            (2, TransactionState::Unresolved),
            (u16::MAX, TransactionState::Unresolved),
        ] {
            let (record, _, _) = after(&Record { checks_sent, ..record() }, at(HOUR_MS), 1);
            assert_eq!((record.state, record.checks_sent), (state, checks_sent));
        }
    }

    #[test]
    fn a_decided_one_is_forgotten() {
        let decided = Record {
            state: TransactionState::Committed,
            url: Some(Arc::from("https://example.com")),
            ..record()
        };
        let armed = armed(&decided, at(HOUR_MS));
        let Step { order, .. } = step(&armed, at(HOUR_MS), &mut 1);
        let expected = Some(armed.key);
        assert!(
            matches!(order, Order::Cancel { id, expected: at } if (id, at) == (armed.id(), expected))
        );
    }
}
