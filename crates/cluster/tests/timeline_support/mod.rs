//! A timeline over the store in memory, with a coordinator that a test moves by hand.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of it")]
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails panics"
)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_cluster::store::memory::Memory;
use punctual_cluster::timeline::{SlotTimeline, TimelineOptions};
use punctual_model::ports::{
    ArmLimit, Armed, ClusterView, Coordinator, CoordinatorError, Held, Holding, StoreError,
    Timeline,
};
use punctual_model::{Basis, Entry, Lane, Message, MessageId, Partition, Span, Timestamp, TopicId};
use punctual_testkit::ManualClock;
use tokio::runtime::Handle;

/// Some moment in 2027.
pub(crate) const START: Timestamp = Timestamp::from_millis_saturating(1_800_000_000_000);
pub(crate) const PLENTY: ArmLimit = ArmLimit { entries: 1000, bytes: 64 << 20 };
/// Far more than anything needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn after(millis: u64) -> Timestamp {
    START.saturating_add(Span::from_millis(millis))
}

pub(crate) fn topic() -> TopicId {
    TopicId::new(1).unwrap()
}

pub(crate) fn entry(due: u64, body: &str) -> Entry {
    let message = Message { body: Bytes::copy_from_slice(body.as_bytes()), ..Message::default() };
    let partition = Partition::new(0).unwrap();
    let (topic, basis) = (topic(), Basis::Delay);
    Entry { topic, partition, due: after(due), basis, message, extra: None }
}

/// A coordinator that says what a test says.
pub(crate) struct Script {
    holding: Mutex<Arc<Holding>>,
    certain: AtomicBool,
    listeners: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
    released: Mutex<Vec<(u32, u64)>>,
    drained: Mutex<Vec<(u32, u64)>>,
    changed: tokio::sync::Notify,
}

impl Script {
    /// Slots with their terms.
    pub(crate) fn new(slots: &[(u32, u64)]) -> Arc<Self> {
        let script = Self {
            holding: Mutex::new(Arc::default()),
            certain: AtomicBool::new(true),
            listeners: Mutex::default(),
            released: Mutex::default(),
            drained: Mutex::default(),
            changed: tokio::sync::Notify::new(),
        };
        script.assign(slots);
        Arc::new(script)
    }

    /// These are held from now on, and nothing else.
    pub(crate) fn assign(&self, slots: &[(u32, u64)]) {
        let held = |(slot, term): &(u32, u64)| Held {
            slot: *slot,
            term: *term,
            leaving: false,
            retired: false,
        };
        self.say(slots.iter().map(held).collect());
    }

    /// What is held from now on.
    pub(crate) fn say(&self, slots: Vec<Held>) {
        *self.holding.lock() = Arc::new(Holding { slots });
        let listeners = self.listeners.lock().clone();
        listeners.iter().for_each(|listener| listener());
    }

    pub(crate) fn be_certain(&self, certain: bool) {
        self.certain.store(certain, Ordering::SeqCst);
    }

    pub(crate) fn released_slots(&self) -> Vec<(u32, u64)> {
        self.released.lock().clone()
    }

    /// Waits until the node has let go of a slot.
    pub(crate) async fn until_released(&self, slot: u32, term: u64) {
        within(async {
            while !self.released.lock().contains(&(slot, term)) {
                self.changed.notified().await;
            }
        })
        .await;
    }

    pub(crate) async fn until_drained(&self, slot: u32, term: u64) {
        within(async {
            while !self.drained.lock().contains(&(slot, term)) {
                self.changed.notified().await;
            }
        })
        .await;
    }
}

impl Coordinator for Script {
    fn holding(&self) -> Arc<Holding> {
        Arc::clone(&self.holding.lock())
    }

    fn is_certain(&self) -> bool {
        self.certain.load(Ordering::SeqCst)
    }

    fn view(&self) -> Arc<ClusterView> {
        Arc::default()
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.listeners.lock().push(listener);
    }

    fn released(&self, slot: u32, term: u64) {
        self.released.lock().push((slot, term));
        let mut holding = self.holding.lock();
        let mut slots = holding.slots.clone();
        slots.retain(|held| (held.slot, held.term) != (slot, term));
        *holding = Arc::new(Holding { slots });
        self.changed.notify_one();
    }

    fn drained(&self, slot: u32, term: u64) {
        self.drained.lock().push((slot, term));
        self.changed.notify_one();
    }

    fn resize(
        &self,
        _slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>> {
        Box::pin(std::future::ready(Err(CoordinatorError::Alone)))
    }
}

/// Options under which nothing happens by itself in a test, and nothing is given up.
pub(crate) fn options() -> TimelineOptions {
    TimelineOptions {
        keep_every: Duration::from_millis(50),
        patience: PATIENCE,
        leave_within: PATIENCE,
        ..TimelineOptions::default()
    }
}

/// A timeline of these slots.
pub(crate) fn open(store: &Memory, script: &Arc<Script>, handle: &Handle) -> SlotTimeline<Memory> {
    open_with(store, script, handle, options())
}

pub(crate) fn open_with(
    store: &Memory,
    script: &Arc<Script>,
    handle: &Handle,
    options: TimelineOptions,
) -> SlotTimeline<Memory> {
    let clock = Arc::new(ManualClock::new(START));
    let coordinator: Arc<dyn Coordinator> = Arc::clone(script) as Arc<dyn Coordinator>;
    SlotTimeline::new(Arc::new(store.clone()), coordinator, clock, handle.clone(), options)
}

/// Waits for something that will come.
pub(crate) async fn within<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.expect("it comes in time")
}

/// A timeline that holds these slots and has read them.
pub(crate) async fn ready(store: &Memory, script: &Arc<Script>) -> SlotTimeline<Memory> {
    let timeline = open(store, script, &Handle::current());
    within(timeline.ready()).await;
    timeline
}

pub(crate) async fn schedule<T: Timeline>(timeline: &T, dues: &[u64]) -> Vec<MessageId> {
    let batch = dues.iter().map(|due| entry(*due, &format!("due {due}"))).collect();
    timeline.schedule(batch).await.unwrap()
}

/// Arms everything that is due before `until`.
pub(crate) async fn arm<T: Timeline>(timeline: &T, until: u64) -> Vec<Armed> {
    let mut all = Vec::new();
    loop {
        let armed = timeline.arm(Lane::Message, after(until), PLENTY).await.unwrap();
        if armed.is_empty() {
            return all;
        }
        all.extend(armed);
    }
}

pub(crate) async fn claim<T: Timeline>(timeline: &T, mut batch: Vec<Armed>) -> Vec<Armed> {
    timeline.claim(&mut batch).await.unwrap();
    batch
}

pub(crate) fn ids(batch: &[Armed]) -> Vec<MessageId> {
    batch.iter().map(Armed::id).collect()
}

pub(crate) fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort();
    ids
}

/// Whether an answer says that it may be asked for again.
pub(crate) fn is_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> bool {
    match answer {
        Err(StoreError::Unavailable(_)) => true,
        other => panic!("it should be unavailable, and was {other:?}"),
    }
}
