//! One group at work: its open messages behind a lock, and those who wait for more.
//!
//! Locks are taken in one order: the reader's, then the state's. The state's is never held while
//! the disk is waited for, so an ack never waits for a read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::group::{Group, Source};
use punctual_model::ports::{GroupError, Groups, Topics};
use punctual_model::{GroupId, Partition, Span, TopicId, TopicName, limits};

use super::alarms::Alarms;
use super::feed::RETRY_FEED;
use super::jobs::Jobs;
use super::nonce::Nonces;
use super::open::{Lease, Open};
use super::queue::{Next, Place, Queue, ReadFrom};
use super::read::Reader;
use super::settle::Work;
use super::waiters::Waiters;
use super::{Leased, Reason, Receipt};
use crate::bounds::InForce;
use crate::stats::Counters;
use crate::time::{BrokerTime, Now};
use crate::watch::Watch;

/// How many of those who wait are woken for a batch of messages; whoever then finds more than it
/// takes wakes others.
const WAKES_MAX: usize = 4;
/// How many are woken by one who has left something.
const WAKES_ON: usize = 2;
/// How soon a step of the broker clock is noticed while a message waits for its time.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Pages that one take reads at most in search of something to give out.
const PAGES_MAX: usize = 64;
/// Expired messages that one take buries at most with one call.
const BURY_MAX: usize = 1000;

/// Pending entries of a topic.
pub(crate) type Pending = Arc<dyn Fn(TopicId) -> u64 + Send + Sync>;

/// What all groups share.
pub(crate) struct Core {
    pub(crate) groups: Arc<dyn Groups>,
    pub(crate) topics: Arc<dyn Topics>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pending: Pending,
    pub(crate) nonces: Nonces,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) jobs: Jobs,
    pub(crate) bounds: Arc<InForce>,
    /// Who follows messages on their way.
    pub(crate) watch: Option<Arc<dyn Watch>>,
    /// Bytes of content that all groups keep in memory, about.
    pub(crate) kept: AtomicUsize,
}

/// A group at work.
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    pub(crate) id: GroupId,
    pub(crate) topic: TopicName,
    pub(crate) state: Mutex<State>,
    pub(crate) reader: Mutex<Reader>,
    pub(crate) waiters: Arc<Waiters>,
    /// Those who wait until something that they hold is settled.
    pub(crate) holders: Arc<Waiters>,
}

pub(crate) struct State {
    pub(crate) group: Arc<Group>,
    pub(crate) queue: Queue,
    /// When the next alarm rings.
    alarm: Option<Duration>,
    /// Bytes of content that count as kept.
    kept: usize,
    /// Deleted: nothing is given out any more.
    gone: bool,
}

impl Running {
    pub(crate) fn new(core: Arc<Core>, topic: TopicName, group: Arc<Group>) -> Self {
        let partitions =
            core.topics.by_id(group.topic).map_or(1, |known| known.settings.partitions);
        let queue = Queue::new(group.settings.ordered, partitions);
        Self {
            core,
            id: group.id,
            topic,
            state: Mutex::new(State { group, queue, alarm: None, kept: 0, gone: false }),
            reader: Mutex::default(),
            waiters: Arc::default(),
            holders: Arc::default(),
        }
    }

    pub(crate) fn group(&self) -> Arc<Group> {
        Arc::clone(&self.state.lock().group)
    }

    /// The settings have changed. Where `ordered` has, everything begins anew: whoever holds a
    /// message holds it no more, or messages of one key could be with two consumers.
    pub(crate) fn change(&self, group: Arc<Group>) {
        let reader = self.reader.lock();
        let mut state = self.state.lock();
        if state.queue.is_ordered() != group.settings.ordered {
            state.queue.rebuild(group.settings.ordered);
        }
        state.group = group;
        drop((state, reader));
        self.waiters.wake_all();
        self.holders.wake_all();
    }

    /// The group is no more.
    pub(crate) fn end(&self) {
        self.state.lock().gone = true;
        self.waiters.wake_all();
        self.holders.wake_all();
    }

    /// Messages were delivered to the topic, or to the retry topic.
    pub(crate) fn delivered(&self, topic: TopicId, partitions: &[bool], count: usize) {
        let mut state = self.state.lock();
        if topic == state.group.retry {
            state.queue.hear(RETRY_FEED);
        } else {
            let known = u16::try_from(partitions.len()).unwrap_or(limits::PARTITIONS_MAX);
            state.queue.grow(known);
            for (feed, _) in (1..).zip(partitions).filter(|(_, got)| **got) {
                state.queue.hear(feed);
            }
        }
        drop(state);
        self.waiters.wake(count.min(WAKES_MAX));
    }

    pub(crate) fn source(&self, group: &Group, feed: u16) -> Source {
        let (topic, partition) = match feed.checked_sub(1) {
            Some(partition) => (group.topic, partition),
            None => (group.retry, 0),
        };
        let partition = Partition::new(partition).expect("there are no more feeds than partitions");
        Source { group: self.id, topic, partition }
    }

    /// Leases up to `max` messages. See [`Consumer::take`](super::Consumer::take).
    pub(crate) fn take(&self, max: usize, lease: Span) -> Result<Vec<Leased>, GroupError> {
        self.tend();
        let max = max.min(limits::RECEIVE_MESSAGES_MAX);
        let lease = Duration::from_millis(lease.as_millis().min(limits::LEASE_MAX.as_millis()));
        let mut taken = Vec::new();
        let mut pages = 0;
        let result = loop {
            let found = self.find(max - taken.len(), lease)?;
            let (from, buried) = (found.read, found.expired.len());
            taken.extend(found.leased);
            let filled = self.fill(found.bare).map(|bare| taken.extend(bare));
            let done = self.bury(found.expired, Reason::Expired);
            if let Err(error) = filled.and(done) {
                break Err(error);
            }
            match from {
                Some(_) if pages == PAGES_MAX => {
                    self.waiters.wake(1);
                    break Ok(());
                }
                Some(from) => {
                    pages += 1;
                    if let Err(error) = self.read(from) {
                        break Err(error);
                    }
                }
                None if buried == BURY_MAX => {}
                None => break Ok(()),
            }
        };
        if let Err(error) = result {
            if taken.is_empty() {
                return Err(error);
            }
            // What was leased must reach its consumer; the error will come again.
            tracing::warn!(topic = %self.topic, %error, "a take was cut short");
        }
        if taken.len() == max && max > 0 && self.state.lock().queue.has_more() {
            self.waiters.wake(WAKES_ON);
        }
        self.core.counters.received.fetch_add(taken.len() as u64, Ordering::Relaxed);
        Ok(taken)
    }

    /// Leases what is in memory.
    fn find(&self, wanted: usize, lease: Duration) -> Result<Findings, GroupError> {
        let topic = self.core.topics.by_id(self.state.lock().group.topic);
        let mut state = self.state.lock();
        let topic = topic.filter(|_| !state.gone).ok_or(GroupError::NotFound)?;
        let mut found = Findings::default();
        if state.group.settings.paused {
            return Ok(found);
        }
        state.queue.grow(topic.settings.partitions);
        let now = self.core.time.read();
        let deadline = now.monotonic + lease;
        while found.leased.len() + found.bare.len() < wanted && found.expired.len() < BURY_MAX {
            let place = match state.queue.next() {
                Next::Give(place) => place,
                Next::Read(from) => {
                    found.read = Some(from);
                    break;
                }
                Next::Nothing => break,
            };
            let lease = Lease { nonce: self.core.nonces.next(), deadline };
            let expires = state.queue.get(place).map(|open| open.expires);
            if expires.is_some_and(|expires| expires <= now.timestamp()) {
                let open = state.queue.seize(place, lease);
                found.expired.extend(open.map(|open| Work { place, lease, open }));
            } else if let Some(open) = state.queue.lease(place, lease) {
                found.add(self.id, place, lease, open);
            }
        }
        self.account(&mut state);
        self.set_alarm(&mut state, now);
        Ok(found)
    }

    /// Tells all groups how much this one keeps in memory.
    pub(crate) fn account(&self, state: &mut State) {
        let kept = state.queue.kept_bytes();
        self.core.kept.fetch_add(kept, Ordering::Relaxed);
        self.core.kept.fetch_sub(state.kept, Ordering::Relaxed);
        state.kept = kept;
    }

    /// Sees to it that this group is looked after when the next lease or wait ends.
    pub(crate) fn set_alarm(&self, state: &mut State, now: Now) {
        let wait = state.queue.next_wait().map(|not_before| {
            let wait = Duration::from_millis(not_before.as_millis()).saturating_sub(now.broker);
            // A clock that is moved by hand has no steps to be noticed.
            let most = if self.core.time.is_by_hand() { wait } else { WAIT_MAX };
            now.monotonic + wait.min(most)
        });
        let next = [state.queue.next_deadline(), wait].into_iter().flatten().min();
        if let Some(next) = next
            && state.alarm.is_none_or(|alarm| next < alarm)
        {
            state.alarm = Some(next);
            self.core.alarms.set(next, self.id);
        }
    }

    /// Ends the leases and the waits whose time has come.
    pub(crate) fn tend(&self) {
        let mut state = self.state.lock();
        let now = self.core.time.read();
        if state.alarm.is_some_and(|alarm| alarm <= now.monotonic) {
            state.alarm = None;
        }
        let ready = state.queue.end_waits(now.timestamp());
        let expired = state.queue.expire(now.monotonic, || self.core.nonces.next());
        self.set_alarm(&mut state, now);
        drop(state);
        self.waiters.wake(ready);
        if !expired.is_empty() {
            self.ran_out(expired);
            self.holders.wake_all();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.kept.fetch_sub(self.state.get_mut().kept, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("id", &self.id).field("topic", &self.topic).finish()
    }
}

/// What a look at the open messages has found.
#[derive(Default)]
struct Findings {
    leased: Vec<Leased>,
    /// Leased, and their content is to be read again.
    bare: Vec<(Place, Lease, Leased)>,
    /// Not to be given out any more.
    expired: Vec<Work>,
    /// Where there may be more.
    read: Option<ReadFrom>,
}

impl Findings {
    fn add(&mut self, group: GroupId, place: Place, lease: Lease, open: Open) {
        let message = open.content.map(|content| *content);
        let is_bare = message.is_none();
        let leased = Leased {
            receipt: Receipt { group, place, nonce: lease.nonce },
            id: open.identity.id,
            partition: open.identity.partition,
            offset: open.identity.offset,
            message: message.unwrap_or_default(),
            due: open.identity.due,
            delivered_at: open.identity.delivered_at,
            attempt: open.failures.failed.saturating_add(1),
        };
        if is_bare {
            self.bare.push((place, lease, leased));
        } else {
            self.leased.push(leased);
        }
    }
}
