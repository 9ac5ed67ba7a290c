//! Commit, rollback, resume. The first durable decision wins.
//!
//! A decision is one change of the transaction and of all its halves, and expects each of them where
//! it was read. Whoever loses the race reads again and finds out what was decided.

use std::sync::atomic::Ordering;

use punctual_model::ports::{Order, PendingEntry, Revised, StoreError, Timeline};
use punctual_model::{Changed, Entry, MessageId, Parked, Span, State, Timestamp, TopicId, limits};

use super::desk::{Desk, Inner};
use super::record::Stored;
use super::{DecideError, Transaction, TransactionState};
use crate::time::Now;

/// How often a decision that was overtaken is tried again.
const TRIES_MAX: usize = 1000;

impl<T: Timeline> Desk<T> {
    /// Makes the messages deliverable: their delays begin. `Ok` means that it survives a crash; said
    /// again it changes nothing. If the future is dropped, it may have been committed.
    ///
    /// # Errors
    /// [`DecideError::AlreadyDecided`] when it was rolled back.
    pub async fn commit(&self, id: MessageId) -> Result<Transaction, DecideError> {
        self.inner.decide(id, TransactionState::Committed).await
    }

    /// Withdraws the messages. `Ok` means that it survives a crash; said again it changes nothing.
    /// If the future is dropped, it may have been rolled back.
    ///
    /// # Errors
    /// [`DecideError::AlreadyDecided`] when it was committed.
    pub async fn rollback(&self, id: MessageId) -> Result<Transaction, DecideError> {
        self.inner.decide(id, TransactionState::RolledBack).await
    }

    /// Asks the producers of an unresolved transaction again, from the first check on, now. One that
    /// is prepared stays as it is.
    ///
    /// # Errors
    /// [`DecideError::AlreadyDecided`] when it was committed or rolled back.
    pub async fn resume(&self, id: MessageId) -> Result<Transaction, DecideError> {
        for _ in 0..TRIES_MAX {
            let mut stored = self.inner.load(id).await?.ok_or(DecideError::NotFound)?;
            match stored.record.state {
                TransactionState::Prepared => return Ok(self.inner.shown(&stored)),
                TransactionState::Unresolved => {}
                decided => return Err(DecideError::AlreadyDecided(decided)),
            }
            let due = self.inner.time.read().timestamp();
            stored.record.state = TransactionState::Prepared;
            stored.record.checks_sent = 0;
            let order = Order::Replace { id, expected: stored.key, entry: stored.entry(due) };
            if let Revised::Done(_) = self.inner.timeline.revise(vec![order]).await? {
                stored.key.due = due;
                return Ok(self.inner.shown(&stored));
            }
        }
        Err(StoreError::Busy.into())
    }
}

impl<T: Timeline> Inner<T> {
    async fn decide(
        &self,
        id: MessageId,
        decision: TransactionState,
    ) -> Result<Transaction, DecideError> {
        for _ in 0..TRIES_MAX {
            let mut stored = self.load(id).await?.ok_or(DecideError::NotFound)?;
            let state = stored.record.state;
            if state == decision {
                return Ok(self.shown(&stored));
            }
            if state.is_decided() {
                return Err(DecideError::AlreadyDecided(state));
            }
            let halves = self.open_halves(&stored).await?;
            let topics: Vec<TopicId> = halves.iter().map(|half| half.id.topic).collect();
            let now = self.time.read();
            stored.record.state = decision;
            stored.record.ready_since = None;
            stored.record.decided = Some(now.timestamp());
            let entry = stored.entry(now.timestamp_up().saturating_add(limits::REMEMBERED));
            let mut orders = vec![Order::Replace { id, expected: stored.key, entry }];
            orders.extend(halves.into_iter().map(|half| match decision {
                TransactionState::Committed => arm(half, now),
                _ => Order::Cancel { id: half.id, expected: Some(half.key) },
            }));
            if let Revised::Done(_) = self.timeline.revise(orders).await? {
                self.ready.remove(id);
                self.undecided.forget(stored.record.created, id);
                if decision == TransactionState::RolledBack {
                    self.counters.cancelled.fetch_add(topics.len() as u64, Ordering::Relaxed);
                    self.counters.topics.note_each(topics.into_iter(), |of| &of.cancelled);
                }
                return Ok(self.shown(&stored));
            }
        }
        Err(StoreError::Busy.into())
    }

    /// The halves that are still there: not withdrawn, and their topics not deleted.
    async fn open_halves(&self, stored: &Stored) -> Result<Vec<PendingEntry>, StoreError> {
        let found = self.timeline.find(stored.halves.clone()).await?;
        let open = found.into_iter().flatten().filter(|found| found.state == State::Prepared);
        let is_own = |entry: &PendingEntry| {
            let parked = entry.extra.as_ref().and_then(|extra| extra.parked);
            matches!(parked, Some(Parked::Half { transaction, .. })
                if transaction.id() == Some(stored.id))
        };
        let there = |entry: &PendingEntry| self.topics.by_id(entry.id.topic).is_some();
        Ok(open
            .filter_map(|found| found.entry)
            .filter(|entry| is_own(entry) && there(entry))
            .collect())
    }
}

/// The half becomes a message like any other.
fn arm(half: PendingEntry, now: Now) -> Order {
    let (id, expected, version) = (half.id, half.key, half.version());
    let mut extra = half.extra.unwrap_or_default();
    let due = match extra.parked.take() {
        Some(Parked::Half { delay: Some(delay), .. }) => due_after(delay, now),
        Some(Parked::Half { due, .. } | Parked::Paused { due, .. }) => due,
        None => expected.due,
    };
    extra.changed = Some(Changed { first: id.key, version });
    let entry = Entry {
        topic: id.topic,
        partition: id.partition,
        due,
        basis: half.basis,
        message: half.message,
        extra: Some(extra),
    };
    Order::Replace { id, expected, entry }
}

fn due_after(delay: Span, now: Now) -> Timestamp {
    if delay == Span::ZERO {
        return now.timestamp();
    }
    // Nobody may be due where nothing falls due.
    let latest = Timestamp::PREPARED.saturating_sub(Span::from_millis(1));
    now.timestamp_up().saturating_add(delay).min(latest)
}
