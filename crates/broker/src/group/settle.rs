//! Settling: ack, nack, and what becomes of leases that ran out.
//!
//! Each goes the same way. Under the lock the message is taken out of its holder's hands; then the
//! change is made durable without the lock; then the message moves on, or goes back to where it
//! was if the store refused.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::group::{Group, GroupChange, Mark};
use punctual_model::ports::{GroupError, StoreError};
use punctual_model::{Basis, Entry, Message, Partition, Timestamp, TopicId};

use super::alarms::{Alarms, Errand};
use super::history::{History, Reason, error_text};
use super::open::{Failures, Lease, Open};
use super::queue::Place;
use super::running::Running;
use super::{Failure, NackOutcome, Receipt, retry};
use crate::time::Now;

/// The error of an attempt whose lease ran out.
const RAN_OUT: &str = "lease ran out";
/// How long to wait before something is tried again that the store has refused.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// Entries, and bytes of their messages, that are made durable with one call.
const BATCH_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A message that is being settled.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) place: Place,
    pub(crate) lease: Lease,
    pub(crate) open: Open,
}

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays where it is and is offered again.
    Stay(Timestamp),
    /// It comes back through the retry topic.
    Retry(Timestamp),
    /// It is a dead letter.
    Dead(Reason),
}

impl Running {
    /// Whether each receipt was held; what was is settled. See [`Consumer::ack`](super::Consumer).
    pub(crate) async fn ack(
        self: Arc<Self>,
        receipts: &[Receipt],
    ) -> Result<Vec<bool>, GroupError> {
        let (answers, held) = self.begin(receipts, |place, lease, open| (place, lease, open.mark));
        if held.is_empty() {
            return Ok(answers);
        }
        let group = self.group();
        let marks = held.iter().map(|(place, _, mark)| (place.feed, *mark));
        let applied = self.core.groups.apply(self.settle_changes(&group, marks), Vec::new());
        let alarms = Arc::clone(&self.core.alarms);
        let (sender, answer) = futures_channel::oneshot::channel();
        let errand = Box::pin(async move {
            let result = applied.await;
            self.acked(&held, &result);
            // The caller may have gone; what it asked for is done all the same.
            drop(sender.send(result));
        });
        Begun { errand: Some(errand), alarms }.await;
        match answer.await {
            Ok(Ok(_)) => Ok(answers),
            Ok(Err(error)) => Err(GroupError::Store(error)),
            Err(_gone) => Err(GroupError::Store(StoreError::Closed)),
        }
    }

    fn acked<T>(&self, held: &[(Place, Lease, Mark)], result: &Result<T, StoreError>) {
        let mut state = self.state.lock();
        let topic = state.group.topic;
        let now = self.core.time.read();
        let mut ready = 0;
        for (place, lease, _) in held {
            if result.is_ok() {
                ready += state.queue.settled(*place, *lease, now.timestamp());
            } else {
                state.queue.put_back(*place, *lease, lease.deadline);
            }
        }
        self.set_alarm(&mut state, now);
        drop(state);
        self.waiters.wake(ready);
        self.holders.wake_all();
        if result.is_ok() {
            let count = held.len() as u64;
            self.core.counters.acked.fetch_add(count, Ordering::Relaxed);
            self.core.counters.topics.note(topic, |of| &of.acked, count);
        }
    }

    /// Takes what is held out of the hands of its holder. A receipt that comes twice is held once.
    fn begin<T>(
        &self,
        receipts: &[Receipt],
        mut note: impl FnMut(Place, Lease, &Open) -> T,
    ) -> (Vec<bool>, Vec<T>) {
        let mut state = self.state.lock();
        let now = self.core.time.read().monotonic;
        let mut held = Vec::new();
        let mut answers = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            let (place, ours) = (receipt.place, receipt.group == self.id);
            let begun = if ours { state.queue.begin(place, receipt.nonce, now) } else { None };
            answers.push(begun.is_some());
            held.extend(begun.map(|(open, lease)| note(place, lease, open)));
        }
        (answers, held)
    }

    /// See [`Consumer::nack`](super::Consumer::nack).
    pub(crate) fn nack(
        &self,
        receipts: &[Receipt],
        failure: &Failure,
    ) -> Result<Vec<NackOutcome>, GroupError> {
        let (answers, mut works) =
            self.begin(receipts, |place, lease, open| Work { place, lease, open: open.clone() });
        let group = self.group();
        let now = self.core.time.read();
        let error = failure.error.as_deref().and_then(error_text);
        let mut fates = Vec::with_capacity(works.len());
        for work in &mut works {
            work.open.failures.add(error.clone());
            self.core.counters.worst.note(work.open.failures.failed, &self.topic, &group.name);
            fates.push(self.fate(&group, &work.open, failure, now));
        }
        let outcome = |fate: &Fate| match fate {
            Fate::Stay(_) | Fate::Retry(_) => NackOutcome::Requeued,
            Fate::Dead(_) => NackOutcome::Dead,
        };
        let mut outcomes = fates.iter().map(outcome).collect::<Vec<_>>().into_iter();
        let answer = |held: bool| if held { outcomes.next() } else { None };
        let answers = answers.into_iter().map(answer);
        let answers = answers.map(|known| known.unwrap_or(NackOutcome::NotHeld)).collect();
        self.settle(&group, works.into_iter().zip(fates).collect(), None)?;
        Ok(answers)
    }

    /// What is to become of a message that has just failed.
    fn fate(&self, group: &Group, open: &Open, failure: &Failure, now: Now) -> Fate {
        if failure.reject {
            return Fate::Dead(Reason::Rejected);
        }
        if is_exhausted(group, open.attempts_max, &open.failures) {
            return Fate::Dead(Reason::AttemptsExhausted);
        }
        let roll = self.core.nonces.next();
        let policy = &group.settings.retry;
        let delay = failure.delay;
        let delay = delay.unwrap_or_else(|| retry::wait(policy, open.failures.failed, roll));
        let due = now.timestamp_up().saturating_add(delay);
        if group.settings.ordered { Fate::Stay(due) } else { Fate::Retry(due) }
    }

    /// Messages nobody holds become dead letters. If the store refuses they are offered again.
    pub(crate) fn bury(&self, works: Vec<Work>, reason: Reason) -> Result<(), GroupError> {
        if works.is_empty() {
            return Ok(());
        }
        let works = works.into_iter().map(|work| (work, Fate::Dead(reason))).collect();
        self.settle(&self.group(), works, Some(Refused::OfferAgain))
    }

    /// Leases have run out. The messages are offered again at once, except for those that have used
    /// up their attempts.
    pub(crate) fn ran_out(&self, expired: Vec<(Place, Lease)>) {
        let group = self.group();
        let error: Option<Arc<str>> = Some(RAN_OUT.into());
        let mut exhausted = Vec::new();
        let mut again = Vec::new();
        let mut changes = Vec::new();
        let mut state = self.state.lock();
        for (place, lease) in expired {
            let Some(open) = state.queue.settling(place, lease) else { continue };
            // What is exhausted was counted when the store refused to take it.
            if !is_exhausted(&group, open.attempts_max, &open.failures) {
                open.failures.add(error.clone());
                self.core.counters.worst.note(open.failures.failed, &self.topic, &group.name);
            }
            if is_exhausted(&group, open.attempts_max, &open.failures) {
                exhausted.push(Work { place, lease, open: open.clone() });
            } else {
                let source = self.source(&group, place.feed);
                let note = open.failures.note(Timestamp::MIN);
                changes.push(GroupChange::Note(source, open.mark, note));
                again.push((place, lease));
            }
        }
        drop(state);
        self.note(changes);
        self.offer_again(&again);
        let works = exhausted.into_iter();
        let works = works.map(|work| (work, Fate::Dead(Reason::AttemptsExhausted))).collect();
        if let Err(error) = self.settle(&group, works, Some(Refused::Later)) {
            tracing::warn!(topic = %self.topic, group = %group.name, %error, "dead letters wait");
        }
    }

    /// Makes notes durable without waiting for it: they are on their way before anything that may
    /// follow them.
    fn note(&self, changes: Vec<GroupChange>) {
        if changes.is_empty() {
            return;
        }
        let applied = self.core.groups.apply(changes, Vec::new());
        let topic = self.topic.clone();
        let mut errand: Errand = Box::pin(async move {
            if let Err(error) = applied.await {
                tracing::warn!(%topic, %error, "failed attempts were not noted");
            }
        });
        let begun = errand.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if begun.is_pending() {
            self.core.alarms.adopt(errand);
        }
    }

    fn offer_again(&self, again: &[(Place, Lease)]) {
        let mut state = self.state.lock();
        let now = self.core.time.read();
        for (place, lease) in again {
            state.queue.offer_again(*place, *lease, Timestamp::MIN, now.timestamp());
        }
        drop(state);
        self.waiters.wake(again.len());
    }

    /// Settles messages, a batch at a time.
    fn settle(
        &self,
        group: &Group,
        works: Vec<(Work, Fate)>,
        refused: Option<Refused>,
    ) -> Result<(), GroupError> {
        let mut works = works.into_iter().peekable();
        let mut result = Ok(());
        while works.peek().is_some() {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_MAX
                && bytes < BATCH_BYTES_MAX
                && let Some((work, fate)) = works.next()
            {
                bytes += work.open.bytes;
                batch.push((work, fate));
            }
            let settled = match result {
                Ok(()) => self.settle_batch(group, &mut batch),
                Err(error) => Err(error),
            };
            self.move_on(&batch, settled.is_ok(), refused);
            result = settled;
        }
        result
    }

    fn settle_batch(&self, group: &Group, batch: &mut Vec<(Work, Fate)>) -> Result<(), GroupError> {
        self.load(batch)?;
        let now = self.core.time.read().timestamp();
        let mut marks = Vec::new();
        let mut changes = Vec::new();
        let mut entries = Vec::new();
        for (Work { place, open, .. }, fate) in batch {
            let (topic, due, reason) = match *fate {
                Fate::Stay(not_before) => {
                    let note = open.failures.note(not_before);
                    let source = self.source(group, place.feed);
                    changes.push(GroupChange::Note(source, open.mark, note));
                    continue;
                }
                Fate::Retry(due) => (group.retry, due, None),
                Fate::Dead(reason) => (group.dead, now, Some(reason)),
            };
            marks.push((place.feed, open.mark));
            if let Some(message) = open.content.take() {
                let history = self.history(open, reason);
                entries.push(moved(topic, due, *message, &history));
            }
        }
        changes.extend(self.settle_changes(group, marks.into_iter()));
        block_on(self.core.groups.apply(changes, entries))?;
        Ok(())
    }

    /// Reads the content that is to move and is not in memory. One that is not in the log any more
    /// is settled all the same.
    fn load(&self, batch: &mut [(Work, Fate)]) -> Result<(), GroupError> {
        let moves = |work: &Work, fate: &Fate| {
            work.open.content.is_none() && !matches!(fate, Fate::Stay(_))
        };
        let bare = batch.iter().filter(|(work, fate)| moves(work, fate));
        let mut contents = self.contents(bare.map(|(work, _)| work.place))?;
        for (work, _) in batch {
            if let Some((mark, message)) = contents.remove(&work.place)
                && mark == work.open.mark
            {
                work.open.content = Some(Box::new(message));
            }
        }
        Ok(())
    }

    fn history(&self, open: &Open, reason: Option<Reason>) -> History {
        let (identity, failures) = (open.identity.clone(), open.failures.clone());
        History {
            id: identity.id,
            topic: identity.topic.unwrap_or_else(|| self.topic.clone()),
            partition: identity.partition,
            offset: identity.offset,
            due: identity.due,
            delivered_at: identity.delivered_at,
            failed: failures.failed,
            first_error: failures.first_error,
            last_error: failures.last_error,
            reason,
        }
    }

    /// Lets messages go where they were to go, or back to where they were.
    fn move_on(&self, batch: &[(Work, Fate)], settled: bool, refused: Option<Refused>) {
        let mut state = self.state.lock();
        let topic = state.group.topic;
        let now = self.core.time.read();
        let (time, mut ready) = (now.timestamp(), 0);
        for (Work { place, lease, open }, fate) in batch {
            match (settled, fate, refused) {
                (true, Fate::Stay(not_before), _) => {
                    if let Some(known) = state.queue.settling(*place, *lease) {
                        known.failures.clone_from(&open.failures);
                    }
                    ready +=
                        usize::from(state.queue.offer_again(*place, *lease, *not_before, time));
                }
                (true, Fate::Retry(_) | Fate::Dead(_), _) => {
                    ready += state.queue.settled(*place, *lease, time);
                }
                (false, _, None) => state.queue.put_back(*place, *lease, lease.deadline),
                (false, _, Some(Refused::Later)) => {
                    state.queue.put_back(*place, *lease, now.monotonic + REFUSED_WAIT);
                }
                (false, _, Some(Refused::OfferAgain)) => {
                    state.queue.offer_again(*place, *lease, Timestamp::MIN, time);
                }
            }
        }
        self.set_alarm(&mut state, now);
        drop(state);
        self.waiters.wake(ready);
        self.holders.wake_all();
        if settled {
            batch.iter().for_each(|(_, fate)| self.count(topic, *fate));
        }
    }

    fn count(&self, topic: TopicId, fate: Fate) {
        match fate {
            Fate::Stay(_) | Fate::Retry(_) => self.core.counters.comes_again(topic, 1),
            Fate::Dead(reason) => self.core.counters.died(topic, reason, 1),
        }
    }

    /// The changes that settle messages, one for each source.
    fn settle_changes(
        &self,
        group: &Group,
        marks: impl Iterator<Item = (u16, Mark)>,
    ) -> Vec<GroupChange> {
        let mut by_feed: BTreeMap<u16, Vec<Mark>> = BTreeMap::new();
        for (feed, mark) in marks {
            by_feed.entry(feed).or_default().push(mark);
        }
        let change = |(feed, marks)| GroupChange::Settle(self.source(group, feed), marks);
        by_feed.into_iter().map(change).collect()
    }
}

/// What becomes of messages that nobody holds when the store refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It is tried again a little later.
    Later,
    /// They are offered again, to whoever looks next.
    OfferAgain,
}

/// Whether a message has used up its attempts.
pub(crate) fn is_exhausted(group: &Group, own_max: Option<u16>, failures: &Failures) -> bool {
    let attempts = group.settings.attempts().min(own_max.unwrap_or(u16::MAX));
    failures.failed >= attempts
}

/// The entry by which the broker moves a message to another topic.
pub(crate) fn moved(
    topic: TopicId,
    due: Timestamp,
    mut message: Message,
    history: &History,
) -> Entry {
    history.attach(&mut message);
    let partition = Partition::new(0).expect("every topic has a partition 0");
    Entry { topic, partition, due, basis: Basis::Delay, message, extra: None }
}

/// Something that is seen to its end by others if its caller goes away.
struct Begun {
    errand: Option<Errand>,
    alarms: Arc<Alarms>,
}

impl Future for Begun {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(errand) = &mut self.errand else { return Poll::Ready(()) };
        let polled = errand.as_mut().poll(context);
        if polled.is_ready() {
            self.errand = None;
        }
        polled
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.alarms.adopt(errand);
        }
    }
}
