//! All groups at work, and the thread that looks after their leases.
//!
//! Which groups there are is told by the store alone; this keeps one [`Running`] for each, from the
//! start on, or from when it is first asked for.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::{Mutex, RwLock};
use punctual_model::group::{Group, Start};
use punctual_model::ports::{Armed, GroupError, Groups, StoreError, Topic, TopicError, Topics};
use punctual_model::{
    GroupId, GroupName, GroupSettings, Partition, TopicId, TopicName, TopicSettings,
};

use super::Consumer;
use super::alarms::Alarms;
use super::overflow::{NotAdmitted, Overflow};
use super::running::{Core, Pending, Running};
use super::waiters::{Available, Waiters};
use crate::arrivals::Arrivals;
use crate::bounds::InForce;
use crate::pulse::Worst;
use crate::stats::Counters;
use crate::time::BrokerTime;
use crate::watch::Watch;

/// All groups. Clones are handles of the same.
#[derive(Clone)]
pub struct Consumers {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    overflow: Overflow,
    running: RwLock<Table>,
    /// Held while a group is made or changed, so that a first use never undoes a change.
    making: Mutex<()>,
    /// Those who wait for a change of which groups there are.
    watchers: Arc<Waiters>,
    arrivals: Arrivals,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<GroupId, Arc<Running>>,
    /// Groups by the topics whose deliveries concern them: their own, and their retry topic.
    by_topic: HashMap<TopicId, Vec<Arc<Running>>>,
}

/// How far behind a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLag {
    /// Its topic.
    pub topic: TopicName,
    /// Its name.
    pub group: GroupName,
    /// Delivered messages that it has not settled.
    pub lag: u64,
    /// Messages with consumers.
    pub in_flight: u64,
    /// Failed messages that wait for their next attempt.
    pub retrying: u64,
    /// Dead letters.
    pub dead: u64,
}

/// What the consumers need of a broker.
pub(crate) struct ConsumerParts {
    pub(crate) groups: Arc<dyn Groups>,
    pub(crate) topics: Arc<dyn Topics>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pending: Pending,
    pub(crate) bounds: Arc<InForce>,
    pub(crate) watch: Option<Arc<dyn Watch>>,
}

impl Consumers {
    /// Starts the groups there are, and the thread that ends leases; `failed` is dropped when that
    /// ends.
    pub(crate) fn start(
        parts: ConsumerParts,
        failed: oneshot::Sender<StoreError>,
    ) -> io::Result<Self> {
        let ConsumerParts { groups, topics, time, counters, pending, bounds, watch } = parts;
        let (nonces, kept, jobs) = Default::default();
        let alarms = Arc::new(Alarms::new(&time));
        let core = Core {
            groups,
            topics,
            time,
            counters,
            pending,
            nonces,
            alarms,
            kept,
            jobs,
            bounds,
            watch,
        };
        let core = Arc::new(core);
        let inner = Inner {
            overflow: Overflow::new(Arc::clone(&core)),
            core,
            running: RwLock::default(),
            making: Mutex::default(),
            watchers: Arc::default(),
            arrivals: Arrivals::default(),
            thread: Mutex::default(),
        };
        let consumers = Self { inner: Arc::new(inner) };
        consumers.topics_changed();
        let table = Arc::downgrade(&consumers.inner);
        consumers.inner.overflow.start(move |topic| {
            table.upgrade().map(|inner| inner.running.read().of_topic(topic)).unwrap_or_default()
        })?;
        let inner = Arc::clone(&consumers.inner);
        let thread = std::thread::Builder::new().name("punctual-lease".to_owned());
        let thread = thread.spawn(move || {
            let _failed = failed;
            while inner.core.alarms.wait(inner.core.time.read().monotonic) {
                inner.tend();
            }
        })?;
        *consumers.inner.thread.lock() = Some(thread);
        Ok(consumers)
    }

    /// Ends the thread. Leases do not run out any more.
    pub(crate) fn stop(&self) {
        self.inner.core.jobs.stop();
        self.inner.overflow.stop();
        self.inner.core.alarms.stop();
        if let Some(thread) = self.inner.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the end of leases ended by a panic");
        }
    }

    /// Lets a batch of so many messages and bytes into a topic, unless too much waits there.
    pub(crate) async fn admit(
        &self,
        topic: &Topic,
        messages: u64,
        bytes: u64,
    ) -> Result<(), NotAdmitted> {
        self.inner.overflow.admit(topic, messages, bytes).await
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.core.alarms.is_stopped()
    }

    /// The group, if there is one.
    ///
    /// # Errors
    /// [`GroupError::TopicNotFound`] or [`GroupError::NotFound`].
    pub fn find(&self, topic: &TopicName, group: &GroupName) -> Result<Consumer, GroupError> {
        let core = &self.inner.core;
        let topic = core.topics.by_name(topic).ok_or(GroupError::TopicNotFound)?;
        let group = core.groups.by_name(topic.id, group).ok_or(GroupError::NotFound)?;
        Ok(self.consumer(&topic, group))
    }

    /// The group, made if there is none; the topic too, where topics are made on use. Blocks.
    ///
    /// # Errors
    /// As [`Groups::put`].
    pub fn open(&self, topic: &TopicName, group: &GroupName) -> Result<Consumer, GroupError> {
        let is_missing = |found: &Result<Consumer, GroupError>| {
            matches!(found, Err(GroupError::TopicNotFound | GroupError::NotFound))
        };
        let found = self.find(topic, group);
        if !is_missing(&found) {
            return found;
        }
        let _making = self.inner.making.lock();
        let found = self.find(topic, group);
        if !is_missing(&found) {
            return found;
        }
        self.make(topic, group, GroupSettings::default(), Start::default())
    }

    /// Makes the group, or changes its settings; makes the topic too, where topics are made on use.
    /// Blocks. A change of `ordered` ends all leases.
    ///
    /// # Errors
    /// As [`Groups::put`].
    pub fn put(
        &self,
        topic: &TopicName,
        group: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Consumer, GroupError> {
        let _making = self.inner.making.lock();
        self.make(topic, group, settings, start)
    }

    fn make(
        &self,
        topic: &TopicName,
        group: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Consumer, GroupError> {
        let topic = self.topic_for_use(topic)?;
        let group = self.inner.core.groups.put(topic.id, group, settings, start)?;
        let consumer = self.consumer(&topic, Arc::clone(&group));
        if consumer.group() != group {
            consumer.running.change(group);
        }
        self.inner.watchers.wake_all();
        Ok(consumer)
    }

    fn topic_for_use(&self, name: &TopicName) -> Result<Arc<Topic>, GroupError> {
        let topics = &self.inner.core.topics;
        if let Some(topic) = topics.by_name(name) {
            return Ok(topic);
        }
        if !self.inner.core.bounds.auto_create() {
            return Err(GroupError::TopicNotFound);
        }
        topics.make(name, TopicSettings::default()).map_err(|error| match error {
            TopicError::Store(error) => GroupError::Store(error),
            TopicError::TooMany => GroupError::TooMany,
            TopicError::NotFound | TopicError::CannotShrink(_) | TopicError::Reserved => {
                GroupError::TopicNotFound
            }
        })
    }

    /// Removes the group with its retries and dead letters. False when there was none. Blocks.
    ///
    /// # Errors
    /// As the store says.
    pub fn delete(&self, topic: &TopicName, group: &GroupName) -> Result<bool, GroupError> {
        let consumer = match self.find(topic, group) {
            Ok(consumer) => consumer,
            Err(GroupError::TopicNotFound | GroupError::NotFound) => return Ok(false),
            Err(error) => return Err(error),
        };
        let deleted = self.inner.core.groups.delete(consumer.running.id)?;
        self.inner.core.jobs.forget(consumer.running.id);
        self.topics_changed();
        Ok(deleted)
    }

    /// All groups with their topics.
    #[must_use]
    pub fn list(&self) -> Vec<(TopicName, Arc<Group>)> {
        let core = &self.inner.core;
        let named = |group: Arc<Group>| Some((core.topics.by_id(group.topic)?.name.clone(), group));
        core.groups.list().into_iter().filter_map(named).collect()
    }

    /// How far behind each group is. Reads no messages, but may block on the disk.
    #[must_use]
    pub fn lags(&self) -> Vec<GroupLag> {
        let running: Vec<Arc<Running>> =
            self.inner.running.read().by_id.values().cloned().collect();
        let lag = |running: Arc<Running>| {
            // A group that is deleted at this moment has no lag.
            let standing = running.standing(false).ok()?;
            Some(GroupLag {
                topic: running.topic.clone(),
                group: running.group().name.clone(),
                lag: standing.lag,
                in_flight: standing.in_flight,
                retrying: standing.retrying,
                dead: standing.dead,
            })
        };
        let mut lags: Vec<GroupLag> = running.into_iter().filter_map(lag).collect();
        lags.sort_by(|a, b| (&a.topic, &a.group).cmp(&(&b.topic, &b.group)));
        lags
    }

    /// The message that has failed most often since this was last asked.
    #[must_use]
    pub fn take_worst(&self) -> Option<Worst> {
        self.inner.core.counters.worst.take()
    }

    /// Ready when a group was made, changed or deleted. Ask for it first, then look, then wait.
    pub fn changed(&self) -> Available {
        self.inner.watchers.join()
    }

    /// Topics were changed or deleted elsewhere: groups that are gone end, and those who wait for
    /// them are told.
    pub fn topics_changed(&self) {
        let groups = self.inner.core.groups.list();
        let known: HashMap<GroupId, &Arc<Group>> = groups.iter().map(|g| (g.id, g)).collect();
        let mut table = self.inner.running.write();
        let gone: Vec<Arc<Running>> =
            table.by_id.extract_if(|id, _| !known.contains_key(id)).map(|(_, gone)| gone).collect();
        table.by_topic.retain(|_, groups| {
            groups.retain(|running| known.contains_key(&running.id));
            !groups.is_empty()
        });
        let mut changed = Vec::new();
        for group in &groups {
            if let Some(topic) = self.inner.core.topics.by_id(group.topic) {
                let running = table.get(&self.inner.core, &topic, group);
                if running.group() != *group {
                    changed.push(running);
                }
            }
        }
        drop(table);
        for running in changed {
            // Read once more: it may have been changed here since the list was made.
            let (topic, name) = (running.group().topic, running.group().name.clone());
            let stored = self.inner.core.groups.by_name(topic, &name);
            if let Some(stored) = stored.filter(|stored| stored.id == running.id) {
                running.change(stored);
            }
        }
        gone.iter().for_each(|running| running.end());
        self.inner.watchers.wake_all();
        self.inner.arrivals.wake_all();
    }

    /// Those who wait for a topic's log to grow.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        &self.inner.arrivals
    }

    /// A producer has put so many messages into the log of a partition itself.
    pub(crate) fn appended(&self, topic: TopicId, partition: Partition, count: usize) {
        self.inner.arrivals.wake(topic);
        let table = self.inner.running.read();
        let Some(groups) = table.by_topic.get(&topic) else { return };
        let mut partitions = vec![false; usize::from(partition.get()) + 1];
        partitions[usize::from(partition.get())] = true;
        for running in groups {
            running.delivered(topic, &partitions, count);
        }
        self.inner.overflow.delivered(topic);
    }

    /// The outlet has taken these messages.
    pub fn delivered(&self, batch: &[Armed]) {
        for row in batch.chunk_by(|a, b| a.topic == b.topic) {
            row.first().into_iter().for_each(|armed| self.inner.arrivals.wake(armed.topic));
        }
        let table = self.inner.running.read();
        if table.by_id.is_empty() {
            return;
        }
        let mut news: HashMap<TopicId, News> = HashMap::new();
        let mut rest = batch;
        while let Some(first) = rest.first() {
            // Mostly a batch is for few topics, each in a row.
            let row = rest.iter().take_while(|armed| armed.topic == first.topic).count();
            let (same, others) = rest.split_at(row);
            if table.by_topic.contains_key(&first.topic) {
                news.entry(first.topic).or_default().add(same);
            }
            rest = others;
        }
        for (topic, news) in news {
            for running in table.by_topic.get(&topic).into_iter().flatten() {
                running.delivered(topic, &news.partitions, news.count);
            }
            self.inner.overflow.delivered(topic);
        }
    }

    /// Sees to the alarms that have rung now that time was moved by hand.
    pub(crate) fn look(&self) {
        self.inner.core.alarms.look();
    }

    /// When the first alarm rings, on the monotonic clock.
    pub(crate) fn next_alarm(&self) -> Option<Duration> {
        self.inner.core.alarms.first()
    }

    /// Does what the lease thread does when an alarm has rung. There is no need for it, except
    /// where a test moves the clock by hand.
    pub fn tend(&self) {
        self.inner.tend();
    }

    fn consumer(&self, topic: &Topic, group: Arc<Group>) -> Consumer {
        if let Some(running) = self.inner.running.read().by_id.get(&group.id) {
            return Consumer { running: Arc::clone(running) };
        }
        let running = self.inner.running.write().get(&self.inner.core, topic, &group);
        Consumer { running }
    }
}

impl Inner {
    fn tend(&self) {
        self.core.alarms.run_errands();
        for group in self.core.alarms.rung(self.core.time.read().monotonic) {
            let running = self.running.read().by_id.get(&group).cloned();
            if let Some(running) = running {
                running.tend();
            }
        }
    }
}

impl Table {
    /// The groups that consume a topic.
    fn of_topic(&self, topic: TopicId) -> Vec<Arc<Running>> {
        let groups = self.by_topic.get(&topic).into_iter().flatten();
        groups.filter(|running| running.group().topic == topic).cloned().collect()
    }

    fn get(&mut self, core: &Arc<Core>, topic: &Topic, group: &Arc<Group>) -> Arc<Running> {
        if let Some(running) = self.by_id.get(&group.id) {
            return Arc::clone(running);
        }
        let running = Running::new(Arc::clone(core), topic.name.clone(), Arc::clone(group));
        let running = Arc::new(running);
        self.by_id.insert(group.id, Arc::clone(&running));
        for of in [group.topic, group.retry] {
            self.by_topic.entry(of).or_default().push(Arc::clone(&running));
        }
        running
    }
}

impl std::fmt::Debug for Consumers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.inner.running.read().by_id.len();
        f.debug_struct("Consumers").field("groups", &count).finish_non_exhaustive()
    }
}

/// What was delivered to one topic.
#[derive(Default)]
struct News {
    partitions: Vec<bool>,
    count: usize,
}

impl News {
    fn add(&mut self, batch: &[Armed]) {
        self.count += batch.len();
        for armed in batch {
            let number = usize::from(armed.partition.get());
            if self.partitions.len() <= number {
                self.partitions.resize(number + 1, false);
            }
            self.partitions[number] = true;
        }
    }
}
