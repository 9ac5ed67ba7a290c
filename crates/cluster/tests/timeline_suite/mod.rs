//! The contract of every timeline, for slots in a database.
//!
//! Each case has a store of its own, and what it left is closed when it ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use punctual_cluster::store::SlotStore;
use punctual_cluster::timeline::SlotTimeline;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Coordinator, Forecast, Found, Order, Outlet, PendingPage,
    PendingQuery, Revised, StoreError, Timeline, Untaken,
};
use punctual_model::{Entry, Lane, MessageId, Timestamp, TopicId};
use punctual_testkit::ManualClock;
use punctual_testkit::conformance::{self, Stage};
use tokio::runtime::{Handle, Runtime};

use crate::timeline_support::{START, Script, options};

/// Holds a timeline over such stores to the contract: with one slot, with several, while messages are
/// changed, and when another owner goes on with them.
pub(crate) fn timeline<S: SlotStore>(make: impl AsyncFn() -> S) {
    let runtime = Runtime::new().expect("a runtime");
    let stage = |slots: &[(u32, u64)]| {
        let store = Arc::new(runtime.block_on(make()));
        let subject = Subject::open(&store, slots, runtime.handle());
        Stage { subject, topics: [1, 2].map(|number| TopicId::new(number).expect("small")) }
    };
    conformance::timeline(|| stage(&[(0, 1)]));
    conformance::timeline(|| stage(&[(0, 5), (14, 6), (u32::from(u16::MAX), 7)]));
    conformance::changes(|| stage(&[(0, 1)]));
    let terms: RefCell<HashMap<u32, u64>> = RefCell::default();
    let reopen = |subject: Subject<S>| {
        let mut terms = terms.borrow_mut();
        let mut slots = subject.slots.clone();
        for (slot, term) in &mut slots {
            let last = terms.entry(*slot).or_insert(*term);
            *last = (*last).max(*term) + 1;
            *term = *last;
        }
        let store = Arc::clone(&subject.store);
        drop(subject);
        Subject::open(&store, &slots, runtime.handle())
    };
    conformance::lasting_changes(|| stage(&[(0, 1)]), reopen);
}

/// A timeline with an outlet that takes everything.
pub(crate) struct Subject<S: SlotStore> {
    timeline: SlotTimeline<S>,
    store: Arc<S>,
    slots: Vec<(u32, u64)>,
    handle: Handle,
}

impl<S: SlotStore> Subject<S> {
    fn open(store: &Arc<S>, slots: &[(u32, u64)], handle: &Handle) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let coordinator: Arc<dyn Coordinator> = Script::new(slots);
        let (store, handle) = (Arc::clone(store), handle.clone());
        let timeline =
            SlotTimeline::new(Arc::clone(&store), coordinator, clock, handle.clone(), options());
        handle.block_on(timeline.ready());
        Self { timeline, store, slots: slots.to_vec(), handle }
    }
}

impl<S: SlotStore> Drop for Subject<S> {
    fn drop(&mut self) {
        // A case that failed may have left something that is never settled.
        if !std::thread::panicking() {
            self.handle.block_on(self.timeline.close());
        }
    }
}

impl<S: SlotStore> Timeline for Subject<S> {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        self.timeline.schedule(batch).await
    }
    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        self.timeline.cancel(ids).await
    }
    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        self.timeline.revise(orders).await
    }
    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        self.timeline.named(topic, own_ids).await
    }
    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        self.timeline.forecast(topic, bounds).await
    }
    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        self.timeline.find(ids).await
    }
    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        self.timeline.pending(query).await
    }
    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        self.timeline.arm(lane, until, limit).await
    }
    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        self.timeline.claim(batch).await
    }
    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.timeline.settle(batch).await
    }
    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        self.timeline.defer(batch).await
    }
    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.timeline.release(batch).await
    }
    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        self.timeline.listen(listener);
    }
    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        self.timeline.next_due(lane).await
    }
    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        self.timeline.counts(lane)
    }
}

impl<S: SlotStore> Outlet for Subject<S> {
    async fn deliver(&self, _batch: &[Armed], _now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        Ok(Vec::new())
    }
}
