//! Which transactions wait for somebody who takes their check: only their ids, and only so many.
//!
//! Those that have waited longest come first. What is taken and not handed out is put back.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_model::{GroupName, MessageId, Timestamp};

use super::record::Record;
use crate::group::{Available, Waiters};

/// Transactions that wait in memory. Those past it try again later.
pub(super) const READY_MAX: usize = 100_000;
/// Groups that are kept before those that nobody needs are looked for.
const GROUPS_MIN: usize = 1024;

/// By which way the producers of a transaction are asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// A waiting call of a member of this group.
    Call(GroupName),
    /// A callback URL.
    Url,
}

impl Way {
    /// How the producers of this one are asked.
    pub(super) fn of(record: &Record) -> Self {
        match record.url {
            None => Self::Call(record.producer_group.clone()),
            Some(_) => Self::Url,
        }
    }
}

/// A transaction with a check to hand out, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub(super) since: Timestamp,
    pub(super) id: MessageId,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Ready {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<Way, Queue>,
    /// Where each one waits.
    places: HashMap<MessageId, (Way, Timestamp)>,
    /// The number of queues at which unused ones are looked for.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeSet<Waiting>,
    waiters: Arc<Waiters>,
}

impl Ready {
    /// How many more may wait.
    pub(super) fn room(&self) -> usize {
        READY_MAX.saturating_sub(self.inner.lock().places.len())
    }

    /// Lets one wait, unless it does; whoever wants to take it is woken.
    pub(super) fn insert(&self, way: Way, waiting: Waiting) {
        let mut inner = self.inner.lock();
        if inner.places.contains_key(&waiting.id) {
            return;
        }
        inner.places.insert(waiting.id, (way.clone(), waiting.since));
        let queue = inner.queue(way);
        queue.waiting.insert(waiting);
        let waiters = Arc::clone(&queue.waiters);
        drop(inner);
        waiters.wake(1);
    }

    /// Takes up to `max` of those that have waited longest.
    pub(super) fn take(&self, way: &Way, max: usize) -> Vec<Waiting> {
        let mut inner = self.inner.lock();
        let Some(queue) = inner.queues.get_mut(way) else { return Vec::new() };
        let taken: Vec<Waiting> =
            std::iter::from_fn(|| queue.waiting.pop_first()).take(max).collect();
        for waiting in &taken {
            inner.places.remove(&waiting.id);
        }
        taken
    }

    /// Up to `max` of those that have waited longest, which stay. As whoever looks may leave them to
    /// others, one more who waits is woken.
    pub(super) fn look(&self, way: &Way, max: usize) -> Vec<Waiting> {
        let inner = self.inner.lock();
        let Some(queue) = inner.queues.get(way) else { return Vec::new() };
        let seen: Vec<Waiting> = queue.waiting.iter().take(max).copied().collect();
        let waiters = Arc::clone(&queue.waiters);
        drop(inner);
        if !seen.is_empty() {
            waiters.wake(1);
        }
        seen
    }

    /// It waits no more.
    pub(super) fn remove(&self, id: MessageId) {
        let mut inner = self.inner.lock();
        if let Some((way, since)) = inner.places.remove(&id)
            && let Some(queue) = inner.queues.get_mut(&way)
        {
            queue.waiting.remove(&Waiting { since, id });
        }
    }

    /// Ready when there may be something to take.
    pub(super) fn available(&self, way: Way) -> Available {
        self.inner.lock().queue(way).waiters.join()
    }

    /// Wakes everybody.
    pub(super) fn wake_all(&self) {
        let waiters: Vec<_> =
            self.inner.lock().queues.values().map(|queue| Arc::clone(&queue.waiters)).collect();
        waiters.iter().for_each(|waiters| waiters.wake_all());
    }
}

impl Inner {
    fn queue(&mut self, way: Way) -> &mut Queue {
        // Anybody may ask for any name, so names are not kept for ever.
        if self.queues.len() >= self.sweep_at.max(GROUPS_MIN) {
            self.queues.retain(|_, queue| {
                !queue.waiting.is_empty() || Arc::strong_count(&queue.waiters) > 1
            });
            self.sweep_at = self.queues.len() * 2;
        }
        self.queues.entry(way).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use punctual_model::{Key, Sequence, TopicId};

    use super::super::record::partition;
    use super::*;

    fn waiting(since: u64, number: u64) -> Waiting {
        let since = Timestamp::from_millis(since).unwrap();
        let key = Key { due: since, sequence: Sequence::new(number).unwrap() };
        let id = MessageId { key, topic: TopicId::TRANSACTIONS, partition: partition() };
        Waiting { since, id }
    }

    fn call(group: &str) -> Way {
        Way::Call(GroupName::new(group).unwrap())
    }

    fn is_ready(available: &mut Available) -> bool {
        Pin::new(available).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn those_that_have_waited_longest_come_first() {
        let ready = Ready::default();
        let all = [waiting(5, 1), waiting(3, 2), waiting(4, 3)];
        all.into_iter().for_each(|waiting| ready.insert(call("a"), waiting));
        ready.insert(Way::Url, waiting(1, 4));
        assert_eq!(ready.take(&call("a"), 2), [waiting(3, 2), waiting(4, 3)]);
        assert_eq!(ready.take(&call("b"), 2), []);
        assert_eq!(ready.room(), READY_MAX - 2);
        assert_eq!(ready.take(&call("a"), 2), [waiting(5, 1)]);
        assert_eq!(ready.take(&Way::Url, 2), [waiting(1, 4)]);
        assert_eq!(ready.room(), READY_MAX);
    }

    #[test]
    fn one_waits_once_and_can_be_removed() {
        let ready = Ready::default();
        ready.insert(call("a"), waiting(1, 1));
        ready.insert(call("a"), waiting(1, 1));
        assert_eq!(ready.room(), READY_MAX - 1);
        ready.remove(waiting(1, 1).id);
        ready.remove(waiting(1, 1).id);
        assert_eq!((ready.room(), ready.take(&call("a"), 9)), (READY_MAX, vec![]));
    }

    #[test]
    fn a_new_one_wakes_one_who_waits_for_it() {
        let ready = Ready::default();
        let mut waits = [ready.available(call("a")), ready.available(call("b"))];
        ready.insert(call("b"), waiting(1, 1));
        let [a, b] = &mut waits;
        assert!(!is_ready(a) && is_ready(b));
        ready.wake_all();
        assert!(is_ready(a));
    }

    #[test]
    fn names_that_nobody_needs_are_forgotten() {
        let ready = Ready::default();
        let kept = ready.available(call("kept"));
        ready.insert(call("used"), waiting(1, 1));
        for number in 0..10 * GROUPS_MIN {
            drop(ready.available(call(&format!("group{number}"))));
        }
        let inner = ready.inner.lock();
        assert!(inner.queues.len() <= 2 * GROUPS_MIN);
        assert!(["kept", "used"].iter().all(|name| inner.queues.contains_key(&call(name))));
        drop(inner);
        drop(kept);
    }
}
