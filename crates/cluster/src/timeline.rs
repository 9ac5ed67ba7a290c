//! What is pending in the slots that this node holds: the near future in memory, all of it in a store.
//!
//! What must hold: an entry that was answered is in the store and comes to its moment at whoever
//! holds its slot; nothing is handed out before its time; what was cancelled is never delivered.
//! Every slot has one writer, which alone changes it (`writer`); what is due soon is in memory
//! (`near`); claims are announced in the store before they are made, so that the next owner of a
//! slot knows what may have been sent (`keeper`).
//!
//! Everything that waits for the store runs in tasks of its own, so callers need no runtime, and a
//! call that nobody waits for any more is carried out all the same.

mod near;
mod counting;
mod job;
mod slot;
mod state;
mod decide;
mod inner;
mod writer;
mod reader;
mod keeper;
mod tenure;
mod calls;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Coordinator, Forecast, Found, OnConflict, Order, PendingPage,
    PendingQuery, Revised, StoreError, Timeline,
};
use punctual_model::{Clock, Entry, Lane, MessageId, Span, Timestamp, TopicId};
use tokio::runtime::Handle;

use crate::catalogue::KnownTopics;
use crate::store::{Slot, SlotStore};

use self::inner::Inner;

/// How long the end of everything waits for the last marks.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// How a timeline works.
#[derive(Clone, Copy, Debug)]
pub struct TimelineOptions {
    /// How far ahead of now entries are in memory.
    pub horizon: Span,
    /// Entries in memory, of all slots together.
    pub memory_entries: usize,
    /// Bytes of them.
    pub memory_bytes: usize,
    /// Calls that wait for the writer of a slot; past that it is busy.
    pub queue_jobs: usize,
    /// Bytes of what waits for all writers together.
    pub queue_bytes: usize,
    /// Sequences that are reserved at a time.
    pub counters_block: u64,
    /// How long own ids, and what became of a message, are known after its end.
    pub finished_after: Span,
    /// How often marks are written down.
    pub keep_every: Duration,
    /// How often what ended long ago is looked for.
    pub purge_every: Duration,
    /// How long [`arm`](Timeline::arm) waits for what is being read.
    pub patience: Duration,
    /// How long a slot that is to leave waits for what is being delivered.
    pub leave_within: Duration,
}

impl Default for TimelineOptions {
    fn default() -> Self {
        Self {
            horizon: Span::from_secs(300),
            memory_entries: 1 << 20,
            memory_bytes: 256 << 20,
            queue_jobs: 4096,
            queue_bytes: 128 << 20,
            counters_block: 4 << 20,
            finished_after: punctual_model::limits::REMEMBERED,
            keep_every: Duration::from_secs(1),
            purge_every: Duration::from_secs(60),
            patience: Duration::from_millis(20),
            leave_within: Duration::from_secs(10),
        }
    }
}

/// How far this node is with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It holds it.
    Held,
    /// It brings it to rest, to let it go.
    Leaving,
    /// It reads it again, after a write of which nobody knows whether it was done.
    Reloading,
}

/// A slot that this node holds, as it is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenureView {
    /// The slot.
    pub slot: Slot,
    /// The fencing number.
    pub term: u64,
    /// How far this node is with it.
    pub phase: Phase,
    /// It is to end.
    pub retired: bool,
    /// Entries in memory.
    pub entries: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Entries that are being delivered.
    pub claimed: usize,
    /// Calls that wait for the writer.
    pub queued: usize,
    /// Of each lane, up to when everything is in memory.
    pub read_until: [Timestamp; Lane::ALL.len()],
    /// Up to when claims were announced.
    pub claimed_until: Timestamp,
}

/// What a timeline has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineStats {
    /// Slots held.
    pub slots: usize,
    /// Entries in memory.
    pub entries: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Entries that are being delivered.
    pub claimed: usize,
    /// Calls that wait for writers.
    pub queued: usize,
    /// Groups written down.
    pub commits: u64,
    /// Changes in them.
    pub committed_changes: u64,
    /// Slots that turned out to be another node's.
    pub fenced: u64,
    /// Slots that were read again.
    pub reloads: u64,
    /// Changes that the store did not carry out.
    pub store_failures: u64,
}

/// The pending messages of the slots that this node holds; clones share everything.
#[derive(Debug)]
pub struct SlotTimeline<S> {
    inner: Arc<Inner<S>>,
}

impl<S> Clone for SlotTimeline<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: SlotStore> SlotTimeline<S> {
    /// Begins to take slots over and lets them go as `coordinator` says, in tasks on `handle`.
    pub fn new(
        store: Arc<S>,
        coordinator: Arc<dyn Coordinator>,
        clock: Arc<dyn Clock>,
        handle: Handle,
        options: TimelineOptions,
    ) -> Self {
        let inner = Inner::new(store, Arc::clone(&coordinator), clock, handle.clone(), options);
        let inner = Arc::new(inner);
        let signals = &inner.signals;
        let weak = || Arc::downgrade(&inner);
        drop(handle.spawn(tenure::run(weak(), Arc::clone(signals))));
        drop(handle.spawn(reader::run(weak(), Arc::clone(signals))));
        drop(handle.spawn(keeper::run(weak())));
        drop(handle.spawn(keeper::purge(weak())));
        let told = Arc::clone(signals);
        coordinator.listen(Arc::new(move || told.tenures.notify_one()));
        Self { inner }
    }

    /// From here on what falls due for a topic that is no more is withdrawn instead of delivered.
    #[must_use]
    pub fn knowing(self, topics: Arc<dyn KnownTopics>) -> Self {
        // Whoever said it first is as good.
        self.inner.topics.set(topics).unwrap_or_default();
        self
    }

    /// Waits until every slot that is assigned now has been taken over and its near future read.
    pub async fn ready(&self) {
        let mut progress = self.inner.signals.progress.subscribe();
        while !self.inner.is_ready() {
            // The sender lives as long as this.
            progress.changed().await.unwrap_or_default();
        }
    }

    /// Lets go of everything: brings each slot to rest, writes its marks down and tells the
    /// coordinator. After it every call answers [`StoreError::Closed`].
    pub async fn close(&self) {
        self.inner.state.lock().closed = true;
        let mut progress = self.inner.signals.progress.subscribe();
        self.inner.signals.tenures.notify_one();
        self.inner.follow();
        let rest = async {
            while !self.inner.state.lock().slots.is_empty() {
                progress.changed().await.unwrap_or_default();
            }
        };
        // A store that cannot be reached must not hold up the end of a process.
        let wait = self.inner.options.leave_within.saturating_add(CLOSE_WAIT);
        tokio::time::timeout(wait, rest).await.unwrap_or_default();
    }

    /// The slots that this node holds, by number.
    #[must_use]
    pub fn tenures(&self) -> Vec<TenureView> {
        let state = self.inner.state.lock();
        let view = |owned: &slot::Owned| TenureView {
            slot: owned.tenure.slot,
            term: owned.tenure.term,
            phase: owned.phase,
            retired: owned.retired,
            entries: owned.entries(),
            bytes: owned.bytes(),
            claimed: owned.claimed(),
            queued: owned.queue.len(),
            read_until: Lane::ALL.map(|lane| owned.near(lane).read_to().due),
            claimed_until: owned.marks.claimed_until,
        };
        state.slots.values().map(view).collect()
    }

    /// What it has done, and what it holds.
    #[must_use]
    pub fn stats(&self) -> TimelineStats {
        let counters = &self.inner.stats;
        let state = self.inner.state.lock();
        TimelineStats {
            slots: state.slots.len(),
            entries: state.entries(),
            bytes: state.bytes(),
            claimed: state.slots.values().map(slot::Owned::claimed).sum(),
            queued: state.slots.values().map(|owned| owned.queue.len()).sum(),
            commits: counters.commits.load(Ordering::Relaxed),
            committed_changes: counters.changes.load(Ordering::Relaxed),
            fenced: counters.fenced.load(Ordering::Relaxed),
            reloads: counters.reloads.load(Ordering::Relaxed),
            store_failures: counters.failures.load(Ordering::Relaxed),
        }
    }

    /// Carries something out in a task, whoever waits for it.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A task that was cut off: the runtime is ending.
        self.inner.handle.spawn(work).await.unwrap_or(Err(StoreError::Closed))
    }
}

impl<S: SlotStore> Timeline for SlotTimeline<S> {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        let order = |entry| {
            let (lane, conflict) = (Lane::Message, OnConflict::Reject);
            Order::Schedule { lane, entry, conflict }
        };
        let orders = batch.into_iter().map(order).collect();
        let revised = self.run(Arc::clone(&self.inner).revise(orders)).await?;
        calls::stored(revised)
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        self.run(Arc::clone(&self.inner).cancel(ids)).await
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        self.run(Arc::clone(&self.inner).revise(orders)).await
    }

    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        self.run(Arc::clone(&self.inner).named(topic, own_ids)).await
    }

    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        self.run(Arc::clone(&self.inner).forecast(topic, bounds)).await
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        self.run(Arc::clone(&self.inner).find(ids)).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        self.run(Arc::clone(&self.inner).pending(query)).await
    }

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        if let Some(batch) = self.inner.arm_now(lane, until, limit) {
            return Ok(batch);
        }
        self.run(Arc::clone(&self.inner).arm(lane, until, limit)).await
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        let homeless = self.inner.homeless(batch);
        if !homeless.is_empty() {
            let gone = self.run(Arc::clone(&self.inner).withdraw(homeless)).await?;
            batch.retain(|armed| !gone.contains(&armed.topic));
        }
        while !batch.is_empty() {
            let unmarked = self.inner.claim(batch)?;
            if unmarked.is_empty() {
                break;
            }
            self.run(Arc::clone(&self.inner).announce(unmarked)).await?;
        }
        Ok(())
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        let told = self.inner.settle(batch);
        self.run(calls::all_done(told)).await
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        let told = self.inner.defer(batch);
        self.run(calls::all_done(told)).await
    }

    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        let mut state = self.inner.state.lock();
        for armed in batch {
            // What was replaced or cancelled is not there any more.
            if let Some(owned) = state.slots.get_mut(&Slot::of(armed.key.sequence)) {
                owned.take_back(armed.key, armed.origin.0);
            }
        }
        Ok(())
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        self.inner.listen(listener);
    }

    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        self.run(Arc::clone(&self.inner).next_due(lane)).await
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        self.inner.state.lock().count(lane)
    }
}
