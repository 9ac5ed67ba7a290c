//! What happens when more messages wait for a group than their topic allows.
//!
//! `refuse` turns new messages away before they are accepted, by a measured backlog that is a few
//! hundredths of a second old at most; nobody is turned away but by a fresh one. What was accepted
//! before and becomes due later is never turned away, so a backlog may pass its limit by as much as
//! was under way. The other two policies make messages dead letters `overflow` after a delivery has
//! brought a backlog over its limit: the oldest that nobody holds, or the newest. Topics without a
//! limit cost nothing.

mod seize;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::{Condvar, Mutex};
use punctual_model::group::Standing;
use punctual_model::ports::{GroupError, StoreError, Topic};
use punctual_model::topic::{Backlog, Overflow as Policy};
use punctual_model::{Partition, TopicId};

use super::history::Reason;
use super::read::refusal;
use super::running::{Core, Running};
use crate::activity::Work;

/// For how long a measured backlog counts.
const FRESH: Duration = Duration::from_millis(50);
/// How long to wait before something is tried again that the store has refused.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
/// Messages that become dead letters at once.
const BURY_MESSAGES_MAX: usize = 500;
/// Messages that are looked at, over all partitions, to find the newest.
const LOOK_MESSAGES_MAX: usize = 8192;
/// Measured backlogs that are kept before those of deleted topics are looked for.
const GAUGES_MIN: usize = 1024;

/// Why a batch was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// A group has as much before it as the topic allows.
    Full,
    /// The backlog could not be measured.
    Store(StoreError),
}

/// Finds the groups of a topic.
type GroupsOf = Box<dyn Fn(TopicId) -> Vec<Arc<Running>> + Send>;

/// Watches the backlogs of a broker. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Overflow {
    desk: Arc<Desk>,
}

struct Desk {
    core: Arc<Core>,
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    stopped: bool,
    gauges: BTreeMap<TopicId, Gauge>,
    /// Topics to be measured, and who waits for it.
    asked: BTreeMap<TopicId, Vec<oneshot::Sender<Result<(), StoreError>>>>,
    /// Topics whose backlog may be over its limit.
    grown: BTreeMap<TopicId, Work>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    messages: u64,
    bytes: u64,
}

impl Amount {
    fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn fits(self, limit: Backlog) -> bool {
        limit.messages.is_none_or(|max| self.messages <= max)
            && limit.bytes.is_none_or(|max| self.bytes <= max)
    }
}

/// A measured backlog, and what was let in since.
#[derive(Clone, Copy, Debug)]
struct Gauge {
    measured: Amount,
    admitted: Amount,
    at: Duration,
}

impl Gauge {
    /// Lets a batch in if there is room for it.
    fn admit(&mut self, batch: Amount, limit: Backlog) -> bool {
        let fits = self.measured.and(self.admitted).and(batch).fits(limit);
        if fits {
            self.admitted = self.admitted.and(batch);
        }
        fits
    }
}

impl fmt::Debug for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overflow").finish_non_exhaustive()
    }
}

impl Overflow {
    /// Nothing is watched before [`start`](Self::start).
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let (state, changed, thread) = Default::default();
        Self { desk: Arc::new(Desk { core, state, changed, thread }) }
    }

    /// Starts the thread that measures backlogs and brings them down.
    ///
    /// # Errors
    /// As the operating system says.
    pub(crate) fn start(
        &self,
        groups_of: impl Fn(TopicId) -> Vec<Arc<Running>> + Send + 'static,
    ) -> std::io::Result<()> {
        let desk = Arc::clone(&self.desk);
        let groups_of: GroupsOf = Box::new(groups_of);
        let thread = std::thread::Builder::new().name("punctual-overflow".to_owned());
        let thread = thread.spawn(move || {
            let _ending = Ending(&desk);
            desk.run(&groups_of);
        })?;
        *self.desk.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread after the step it is at. Whoever waits to be let in is told.
    pub(crate) fn stop(&self) {
        self.desk.close();
        if let Some(thread) = self.desk.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the watch over backlogs ended by a panic");
        }
    }

    /// Messages were delivered to a topic that has groups.
    pub(crate) fn delivered(&self, topic: TopicId) {
        if self.desk.core.topics.by_id(topic).is_some_and(|topic| buries(&topic)) {
            let work = self.desk.core.time.activity().begin();
            self.desk.state.lock().grown.insert(topic, work);
            self.desk.changed.notify_one();
        }
    }

    /// Lets a batch of so many messages and bytes in, or refuses it.
    pub(crate) async fn admit(
        &self,
        topic: &Topic,
        messages: u64,
        bytes: u64,
    ) -> Result<(), NotAdmitted> {
        let limit = topic.settings.max_backlog;
        if limit == Backlog::default() || topic.settings.overflow != Policy::Refuse {
            return Ok(());
        }
        let batch = Amount { messages, bytes };
        let measured = {
            let mut state = self.desk.state.lock();
            let now = self.desk.core.time.read().monotonic;
            let gauge = state.gauges.get_mut(&topic.id);
            let gauge = gauge.filter(|gauge| now.saturating_sub(gauge.at) < FRESH);
            if gauge.is_some_and(|gauge| gauge.admit(batch, limit)) {
                return Ok(());
            }
            if state.stopped {
                return Err(NotAdmitted::Store(StoreError::Closed));
            }
            let (sender, receiver) = oneshot::channel();
            state.asked.entry(topic.id).or_default().push(sender);
            self.desk.changed.notify_one();
            receiver
        };
        let measured = measured.await.unwrap_or(Err(StoreError::Closed));
        measured.map_err(NotAdmitted::Store)?;
        let mut state = self.desk.state.lock();
        // Without a gauge the topic was deleted at this moment; the store will say so.
        let admitted =
            state.gauges.get_mut(&topic.id).is_none_or(|gauge| gauge.admit(batch, limit));
        if admitted { Ok(()) } else { Err(NotAdmitted::Full) }
    }
}

/// Whether messages of the topic become dead letters when there are too many.
fn buries(topic: &Topic) -> bool {
    topic.settings.max_backlog != Backlog::default() && topic.settings.overflow != Policy::Refuse
}

impl Desk {
    fn close(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        // Who waits finds the channel closed.
        state.asked.clear();
        state.grown.clear();
        self.changed.notify_all();
    }

    fn run(&self, groups_of: &GroupsOf) {
        // Until when nothing is buried, because the store has refused.
        let mut rest_until = None;
        loop {
            let mut state = self.state.lock();
            let rests = loop {
                let now = self.core.time.read().monotonic;
                let rest = rest_until.map_or(Duration::ZERO, |until: Duration| {
                    until.saturating_sub(now).min(REFUSED_WAIT)
                });
                let rests = !rest.is_zero();
                let idle = state.asked.is_empty() && (rests || state.grown.is_empty());
                if state.stopped || !idle {
                    break rests;
                }
                if rests {
                    self.changed.wait_for(&mut state, rest);
                    if self.core.time.is_by_hand() {
                        // This clock would not show that the time has passed.
                        rest_until = None;
                    }
                } else {
                    self.changed.wait(&mut state);
                }
            };
            if state.stopped {
                return;
            }
            let asked = std::mem::take(&mut state.asked);
            let grown = if rests { None } else { state.grown.pop_first() };
            drop(state);
            for (topic, waiting) in asked {
                let measured = self.gauge(topic, groups_of);
                for sender in waiting {
                    // Whoever asked may have gone.
                    drop(sender.send(measured.clone()));
                }
            }
            if let Some((topic, _work)) = grown {
                let refused = self.bring_down(topic, groups_of);
                rest_until = refused.then(|| self.core.time.read().monotonic + REFUSED_WAIT);
            }
        }
    }

    /// Measures the backlog of a topic and takes it down.
    fn gauge(&self, topic: TopicId, groups_of: &GroupsOf) -> Result<(), StoreError> {
        let at = self.core.time.read().monotonic;
        let admitted = |state: &State| {
            state.gauges.get(&topic).map_or_else(Amount::default, |gauge| gauge.admitted)
        };
        let before = admitted(&self.state.lock());
        let measured = match self.measure(topic, groups_of) {
            Ok(measured) => measured,
            Err(GroupError::Store(error)) => return Err(error),
            Err(_deleted) => {
                self.state.lock().gauges.remove(&topic);
                return Ok(());
            }
        };
        let mut state = self.state.lock();
        // What was let in while it was measured may be counted twice, but is never missed.
        let admitted = admitted(&state).less(before);
        let old = state.gauges.insert(topic, Gauge { measured, admitted, at });
        if old.is_none() && state.gauges.len() >= GAUGES_MIN && state.gauges.len().is_power_of_two()
        {
            state.gauges.retain(|topic, _| self.core.topics.by_id(*topic).is_some());
        }
        Ok(())
    }

    /// The largest backlog of a group; without any group, all that the log holds.
    fn measure(&self, topic: TopicId, groups_of: &GroupsOf) -> Result<Amount, GroupError> {
        let groups = groups_of(topic);
        if groups.is_empty() {
            return self.measure_log(topic);
        }
        let mut largest = Amount::default();
        for running in groups {
            let amount = match running.backlog(topic) {
                Ok(standings) => amount(&standings),
                Err(GroupError::Store(error)) => return Err(GroupError::Store(error)),
                Err(_deleted) => continue,
            };
            largest.messages = largest.messages.max(amount.messages);
            largest.bytes = largest.bytes.max(amount.bytes);
        }
        Ok(largest)
    }

    fn measure_log(&self, topic: TopicId) -> Result<Amount, GroupError> {
        let topic = self.core.topics.by_id(topic).ok_or(GroupError::TopicNotFound)?;
        let mut messages = 0;
        for partition in (0..topic.settings.partitions).filter_map(Partition::new) {
            let bounds = self.core.topics.bounds(topic.id, partition).map_err(refusal)?;
            messages += bounds.end.saturating_sub(bounds.start);
        }
        Ok(Amount { messages, bytes: 0 })
    }

    /// Makes some messages dead letters where there are too many; the topic is looked at again as
    /// long as that helps. True when the store has refused.
    fn bring_down(&self, topic: TopicId, groups_of: &GroupsOf) -> bool {
        let Some(topic) = self.core.topics.by_id(topic).filter(|topic| buries(topic)) else {
            return false;
        };
        let mut again = false;
        let mut refused = false;
        for running in groups_of(topic.id) {
            match running.bury_excess(&topic) {
                Ok(helped) => again |= helped,
                Err(GroupError::Store(error)) => {
                    let group = running.group();
                    tracing::warn!(topic = %topic.name, group = %group.name, %error,
                        "a backlog is over its limit");
                    refused = true;
                }
                // Deleted at this moment.
                Err(_deleted) => {}
            }
        }
        let mut state = self.state.lock();
        if (again || refused) && !state.stopped {
            state.grown.insert(topic.id, self.core.time.activity().begin());
        }
        refused
    }
}

impl Running {
    /// How far the group is in each partition of its topic.
    fn backlog(&self, topic: TopicId) -> Result<Vec<Standing>, GroupError> {
        let mut standings = self.core.groups.standing(self.id, false).map_err(refusal)?;
        standings.retain(|standing| standing.source.topic == topic);
        Ok(standings)
    }

    /// Makes some messages dead letters if there are too many; answers whether it did.
    fn bury_excess(&self, topic: &Topic) -> Result<bool, GroupError> {
        let standings = self.backlog(topic.id)?;
        let excess = excess(amount(&standings), topic.settings.max_backlog);
        let excess = usize::try_from(excess).unwrap_or(usize::MAX).min(BURY_MESSAGES_MAX);
        if excess == 0 {
            return Ok(false);
        }
        let buried = match topic.settings.overflow {
            Policy::Refuse => 0,
            Policy::DropOldest => {
                let works = self.seize(excess)?;
                let count = works.len();
                self.bury(works, Reason::Overflow)?;
                count
            }
            Policy::DeadLetterNewest => {
                let each = (LOOK_MESSAGES_MAX / standings.len().max(1)).max(1);
                self.bury_newest(&standings, excess.min(each))?
            }
        };
        Ok(buried > 0)
    }
}

/// How many messages are too many.
fn excess(amount: Amount, limit: Backlog) -> u64 {
    let over = limit.messages.map_or(0, |max| amount.messages.saturating_sub(max));
    let over_bytes = limit.bytes.map_or(0, |max| amount.bytes.saturating_sub(max));
    // About as heavy as the others.
    let weight = (amount.bytes / amount.messages.max(1)).max(1);
    over.max(over_bytes.div_ceil(weight)).min(amount.messages)
}

/// What is not settled, in messages and about in bytes.
fn amount(standings: &[Standing]) -> Amount {
    standings.iter().fold(Amount::default(), |sum, standing| {
        let messages = standing.lag();
        // The bytes are those of the log, with what is settled ahead of the cursor.
        let logged = u128::from(messages.saturating_add(standing.settled_ahead).max(1));
        let bytes = u128::from(standing.bytes) * u128::from(messages) / logged;
        sum.and(Amount { messages, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) })
    })
}

/// However the thread ends, nobody waits for it in vain.
struct Ending<'a>(&'a Desk);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
