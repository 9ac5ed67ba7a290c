//! The handle of one group.

use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::group::{Committed, Group, Placed};
use punctual_model::ports::GroupError;
use punctual_model::{Key, MessageId, Partition, Sequence, Span, Timestamp, TopicName, limits};

use super::history::{History, Reason, error_text};
use super::open::Failures;
use super::running::Running;
use super::settle::{is_exhausted, moved};
use super::waiters::Available;
use super::{
    FailedMessage, Failure, GroupStanding, Leased, NackOutcome, Receipt, ResetTo, RetryOutcome,
    retry,
};
use crate::watch::{Leasing, Outcome, Settled, is_followed};

/// One group. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub(crate) running: Arc<Running>,
}

impl Consumer {
    /// The group as it is stored.
    #[must_use]
    pub fn group(&self) -> Arc<Group> {
        self.running.group()
    }

    /// The topic it consumes.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.running.topic
    }

    /// Leases up to `max` messages for `lease`. Empty when there are none, or while the group is
    /// paused. Until its lease runs out a message is with nobody else. Blocks on the disk, but
    /// never waits for messages: see [`available`](Self::available).
    ///
    /// # Errors
    /// [`GroupError::NotFound`] after the group was deleted, or as the store says.
    pub fn take(&self, max: usize, lease: Span) -> Result<Vec<Leased>, GroupError> {
        let mut taken = self.running.take(max, lease)?;
        if let Some(watch) = &self.running.core.watch {
            let (group, at) = (self.group(), self.wall());
            let until = at + Duration::from_millis(lease.as_millis());
            let leasing = Leasing { topic: self.topic(), group: &group.name, at, until };
            let followed = taken.iter_mut().filter(|leased| is_followed(&leased.message));
            followed.for_each(|leased| watch.leased(leased, &leasing));
        }
        Ok(taken)
    }

    /// Ready when there may be something to take, or when the group was changed or deleted. Ask for
    /// it first, then [`take`](Self::take), and wait only if that gave nothing: so no wake is lost.
    /// Whoever was woken has to take; dropped before it was ready it wakes somebody else instead.
    pub fn available(&self) -> Available {
        self.running.waiters.join()
    }

    /// Ready when something that somebody held may be held no more: it was settled, or its lease
    /// ran out. Ask for it first, then look by [`held`](Self::held), and wait only if nothing has
    /// changed.
    pub fn settled(&self) -> Available {
        self.running.holders.join()
    }

    /// Leaves the receipts of what is still held, or on its way to be settled.
    pub fn held(&self, receipts: &mut Vec<Receipt>) {
        let state = self.running.state.lock();
        let now = self.running.core.time.read().monotonic;
        receipts.retain(|receipt| {
            receipt.group == self.running.id
                && state.queue.is_held(receipt.place, receipt.nonce, now)
        });
    }

    /// The group is done with these messages: it will not be given them again. True for each
    /// receipt that was held. If the future is dropped, they may be settled all the same.
    ///
    /// # Errors
    /// As the store says. Then the messages are still held.
    pub async fn ack(&self, receipts: &[Receipt]) -> Result<Vec<bool>, GroupError> {
        let began = self.began();
        let acked = Arc::clone(&self.running).ack(receipts).await?;
        let outcomes = acked.iter().map(|held| held.then_some(Outcome::Acked));
        self.tell_settled(receipts, outcomes, began);
        Ok(acked)
    }

    /// The consumer failed with these messages: they come again, or are dead letters. Blocks.
    ///
    /// # Errors
    /// As the store says. Then those that were not settled are still held.
    pub fn nack(
        &self,
        receipts: &[Receipt],
        failure: &Failure,
    ) -> Result<Vec<NackOutcome>, GroupError> {
        let began = self.began();
        let nacked = self.running.nack(receipts, failure)?;
        self.tell_settled(receipts, nacked.iter().copied().map(Outcome::of_nack), began);
        Ok(nacked)
    }

    /// Gives leases a new length, counted from now. True for each receipt that was held.
    #[must_use]
    pub fn extend(&self, receipts: &[Receipt], lease: Span) -> Vec<bool> {
        let lease = Duration::from_millis(lease.as_millis().min(limits::LEASE_MAX.as_millis()));
        let mut state = self.running.state.lock();
        let now = self.running.core.time.read();
        let deadline = now.monotonic + lease;
        let extend = |receipt: &Receipt| {
            receipt.group == self.running.id
                && state.queue.extend(receipt.place, receipt.nonce, now.monotonic, deadline)
        };
        let extended = receipts.iter().map(extend).collect();
        self.running.set_alarm(&mut state, now);
        drop(state);
        if let Some(watch) = &self.running.core.watch {
            watch.extended(receipts, now.wall + lease);
        }
        extended
    }

    /// Gives messages back that nobody has looked at; that is no failed attempt. True for each
    /// receipt that was held.
    pub fn release(&self, receipts: &[Receipt]) -> Vec<bool> {
        let began = self.began();
        let mut state = self.running.state.lock();
        let now = self.running.core.time.read();
        let mut answers = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let (place, ours) = (receipt.place, receipt.group == self.running.id);
            let held =
                if ours { state.queue.begin(place, receipt.nonce, now.monotonic) } else { None };
            let lease = held.map(|(_, lease)| lease);
            if let Some(lease) = lease {
                state.queue.offer_again(place, lease, Timestamp::MIN, now.timestamp());
            }
            answers.push(lease.is_some());
        }
        drop(state);
        self.running.waiters.wake(answers.iter().filter(|held| **held).count());
        self.running.holders.wake_all();
        let outcomes = answers.iter().map(|held| held.then_some(Outcome::Released));
        self.tell_settled(receipts, outcomes, began);
        answers
    }

    /// The wall clock, if somebody follows messages.
    fn began(&self) -> Option<Duration> {
        self.running.core.watch.as_ref().map(|_| self.wall())
    }

    fn wall(&self) -> Duration {
        self.running.core.time.read().wall
    }

    /// Tells whoever follows messages what became of those that were held.
    fn tell_settled(
        &self,
        receipts: &[Receipt],
        outcomes: impl Iterator<Item = Option<Outcome>>,
        began: Option<Duration>,
    ) {
        let (Some(watch), Some(began)) = (&self.running.core.watch, began) else { return };
        let ended = self.wall();
        for (receipt, outcome) in receipts.iter().zip(outcomes) {
            if let Some(outcome) = outcome {
                watch.settled(*receipt, Settled { outcome, began, ended });
            }
        }
    }

    /// A message failed with somebody who did not take it from the group. It comes again through
    /// the group, or is a dead letter. What it has been through before counts, if it came with that.
    /// Blocks.
    ///
    /// # Errors
    /// As the store says.
    pub fn retry(&self, mut failed: FailedMessage) -> Result<RetryOutcome, GroupError> {
        let core = &self.running.core;
        let (group, now) = (self.group(), core.time.read());
        let error = failed.error.as_deref().and_then(error_text);
        let before = History::gather(&mut failed.message);
        let known = before.as_ref().map_or(0, |history| history.failed);
        let mut failures = Failures {
            failed: failed.attempt.saturating_sub(1).max(known),
            first_error: before.as_ref().and_then(|history| history.first_error.clone()),
            last_error: None,
        };
        failures.add(error);
        core.counters.worst.note(failures.failed, self.topic(), &group.name);
        let attempts_max = super::open::attempts_max(&failed.message);
        let exhausted = is_exhausted(&group, attempts_max, &failures);
        let roll = core.nonces.next();
        let wait = || retry::wait(&group.settings.retry, failures.failed, roll);
        let due = now.timestamp_up().saturating_add(failed.delay.unwrap_or_else(wait));
        let (topic, due, reason) = if exhausted {
            (group.dead, now.timestamp(), Some(Reason::AttemptsExhausted))
        } else {
            (group.retry, due, None)
        };
        let origin = before.unwrap_or_else(|| self.origin_of(&failed, &group, now.timestamp()));
        let Failures { failed: count, first_error, last_error } = failures;
        let history = History { failed: count, first_error, last_error, reason, ..origin };
        let entry = moved(topic, due, failed.message, &history);
        block_on(core.groups.apply(Vec::new(), vec![entry]))?;
        if let Some(reason) = reason {
            core.counters.died(group.topic, reason, 1);
            return Ok(RetryOutcome::Dead);
        }
        core.counters.comes_again(group.topic, 1);
        Ok(RetryOutcome::Requeued(due))
    }

    /// Who a message was that has been through nothing yet, as far as that is known.
    fn origin_of(&self, failed: &FailedMessage, group: &Group, now: Timestamp) -> History {
        let first = Partition::new(0).expect("every topic has a partition 0");
        let partition = failed.partition.or(failed.id.map(|id| id.partition)).unwrap_or(first);
        // Nobody knows its id: one that no message of the broker has.
        let key = Key { due: now, sequence: Sequence::MAX };
        let id = failed.id.unwrap_or(MessageId { key, topic: group.topic, partition });
        History {
            id,
            topic: self.topic().clone(),
            partition,
            offset: failed.offset.unwrap_or_default(),
            due: id.key.due,
            delivered_at: id.key.due,
            failed: 0,
            first_error: None,
            last_error: None,
            reason: None,
        }
    }

    /// How far the group is. Blocks.
    ///
    /// # Errors
    /// [`GroupError::NotFound`] after the group was deleted, or as the store says.
    pub fn standing(&self) -> Result<GroupStanding, GroupError> {
        self.running.standing(true)
    }

    /// The group goes on elsewhere. Nobody holds anything any more of the partitions concerned;
    /// failed messages that wait for their next attempt still come. Offsets outside a log mean the
    /// near end of it. Blocks.
    ///
    /// # Errors
    /// [`GroupError::TopicNotFound`] for a partition that the topic does not have, or as the store
    /// says.
    pub fn reset(&self, to: &ResetTo) -> Result<(), GroupError> {
        self.running.reset(to)
    }

    /// Moves the cursors of a consumer that keeps its own place. Offsets outside a log mean the near
    /// end of it. Nobody holds anything any more of the partitions concerned. Blocks.
    ///
    /// # Errors
    /// [`GroupError::TopicNotFound`] for a partition that the topic does not have, or as the store
    /// says.
    pub fn commit(&self, offsets: &[(Partition, u64)]) -> Result<(), GroupError> {
        self.running.commit(offsets)
    }

    /// As [`commit`](Self::commit), and keeps exactly what the consumer said, also an offset that
    /// the log does not reach: [`placed`](Self::placed) tells it again. Blocks.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_said(&self, said: Vec<(Partition, Committed)>) -> Result<(), GroupError> {
        self.running.commit_said(said)
    }

    /// Where the group goes on in the partitions of its topic; those in which it never was are left
    /// out.
    #[must_use]
    pub fn placed(&self) -> Vec<Placed> {
        self.running.core.groups.placed(self.running.id)
    }

    /// The group was never in these partitions. Nobody holds anything any more of them. Blocks.
    ///
    /// # Errors
    /// As the store says.
    pub fn forget(&self, partitions: &[Partition]) -> Result<(), GroupError> {
        self.running.forget_places(partitions)
    }
}
