//! A whole broker over the reference store, on a clock moved by hand, with groups that consume. The
//! store can be told to hold back or to refuse what groups change.

#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test file uses its own part of it"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../patience/mod.rs"]
mod patience;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_channel::oneshot;
use parking_lot::Mutex;
use punctual_broker::group::{Consumer, Failure, Leased, NackOutcome, Receipt};
use punctual_broker::{Broker, Options, Parts, Request, When};
use punctual_model::group::{Group, GroupChange, Placed, RetryPolicy, Source, Standing, Start};
use punctual_model::ports::{
    Armed, Delivered, GroupError, Groups, LogPosition, Outlet, Pulled, StoreError, TopicError,
    Topics, Untaken,
};
use punctual_model::{
    Entry, GroupId, GroupName, GroupSettings, Message, MessageId, Partition, Span, Timestamp,
    TopicId, TopicName, TopicSettings,
};
use punctual_testkit::{ManualClock, Reference};

pub(crate) use patience::{Finally, wait_until, within_a_minute};

/// The lease of most tests.
pub(crate) const LEASE: Span = Span::from_secs(30);

/// A broker and what is around it.
pub(crate) struct Market {
    pub(crate) clock: ManualClock,
    pub(crate) store: Reference,
    pub(crate) valve: Arc<Valve>,
    pub(crate) broker: Broker<Reference>,
    pub(crate) topic: TopicName,
}

impl Market {
    /// A topic `orders` with that many partitions.
    pub(crate) fn new(partitions: u16) -> Self {
        let start = Timestamp::from_millis(1_800_000_000_000).unwrap();
        let market = Self::on(Reference::new(), ManualClock::new(start));
        market.partitions(partitions);
        market
    }

    /// The same with options.
    pub(crate) fn with(partitions: u16, options: Options) -> Self {
        let start = Timestamp::from_millis(1_800_000_000_000).unwrap();
        let market = Self::over(Reference::new(), ManualClock::new(start), options);
        market.partitions(partitions);
        market
    }

    fn on(store: Reference, clock: ManualClock) -> Self {
        Self::over(store, clock, Options::default())
    }

    fn over(store: Reference, clock: ManualClock, options: Options) -> Self {
        let valve = Arc::new(Valve { inner: store.clone(), state: Mutex::default() });
        let parts = Parts {
            timeline: Arc::new(store.clone()),
            outlet: Arc::new(Punctual { inner: store.clone(), clock: clock.clone() }),
            topics: Arc::new(store.clone()),
            groups: Arc::clone(&valve) as Arc<dyn Groups>,
            records: None,
            clock: Arc::new(clock.clone()),
        };
        let broker = Broker::start(options, parts).unwrap();
        Self { clock, store, valve, broker, topic: TopicName::new("orders").unwrap() }
    }

    /// The same store under a new broker, as after a restart.
    pub(crate) fn restart(&self) -> Self {
        self.broker.stop();
        Self::on(self.store.clone(), self.clock.clone())
    }

    /// Makes the topic, or gives it more partitions.
    pub(crate) fn partitions(&self, partitions: u16) {
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        Topics::put(&self.store, &self.topic, settings).unwrap();
    }

    pub(crate) fn put(&self, name: &str, settings: GroupSettings) -> Consumer {
        let name = GroupName::new(name).unwrap();
        self.broker.consumers().put(&self.topic, &name, settings, Start::Earliest).unwrap()
    }

    pub(crate) fn group(&self, name: &str) -> Consumer {
        self.broker.consumers().open(&self.topic, &GroupName::new(name).unwrap()).unwrap()
    }

    pub(crate) fn schedule(&self, requests: Vec<Request>) -> Vec<MessageId> {
        let sent = within_a_minute(self.broker.schedule(&self.topic, requests)).unwrap();
        sent.into_iter().map(|scheduled| scheduled.id).collect()
    }

    /// Sends messages with these bodies; `key:body` has a key.
    pub(crate) fn send(&self, bodies: &[&str]) -> Vec<MessageId> {
        self.schedule(bodies.iter().map(|body| request(body)).collect())
    }

    /// Sends and waits until all are in the log and every group has heard of it, so that a take finds
    /// them.
    pub(crate) fn deliver(&self, bodies: &[&str]) -> Vec<MessageId> {
        let before = self.broker.stats().delivered;
        let ids = self.send(bodies);
        let scout = self.put("scout", GroupSettings::default());
        let mut missing = bodies.len();
        while missing > 0 {
            let scouted = receive(&scout, missing);
            missing -= scouted.len();
            assert_eq!(ack(&scout, &receipts(&scouted)), vec![true; scouted.len()]);
        }
        // The scout may have looked before the others were told; only then they are counted.
        self.wait_for_delivered(before + bodies.len() as u64);
        ids
    }

    /// Waits until so many messages were delivered in all, retries and dead letters too, and their
    /// groups have heard of it. That they are in the log is not enough for a take to find them.
    pub(crate) fn wait_for_delivered(&self, count: u64) {
        wait_until("delivery", || self.broker.stats().delivered >= count);
    }

    /// Lets time pass and lets the broker notice that leases have run out.
    pub(crate) fn pass(&self, span: Span) {
        self.clock.advance(span);
        self.broker.consumers().tend();
    }

    /// What a topic has received in its first partition.
    pub(crate) fn log(&self, topic: TopicId) -> Vec<Delivered> {
        let from = LogPosition { topic, partition: Partition::new(0).unwrap(), offset: 0 };
        self.store.read(from, usize::MAX).unwrap()
    }
}

impl Drop for Market {
    fn drop(&mut self) {
        // A test that failed may have left it shut, and a stop waits for what is held back.
        self.valve.open();
        self.broker.stop();
    }
}

/// Settings with a ladder of waits.
pub(crate) fn ladder(waits: &[Span]) -> GroupSettings {
    GroupSettings { retry: RetryPolicy::Ladder(waits.into()), ..GroupSettings::default() }
}

pub(crate) fn ordered(waits: &[Span]) -> GroupSettings {
    GroupSettings { ordered: true, ..ladder(waits) }
}

/// A message for now; of `key:body` the key is what is before the colon.
pub(crate) fn request(text: &str) -> Request {
    let key = text.split_once(':').map(|(key, _)| Bytes::copy_from_slice(key.as_bytes()));
    let message = Message { key, headers: Vec::new(), body: text.to_owned().into() };
    Request::new(message, When::Now)
}

/// Takes what there is; waits until there is something.
pub(crate) fn receive(consumer: &Consumer, max: usize) -> Vec<Leased> {
    loop {
        let available = consumer.available();
        let taken = consumer.take(max, LEASE).unwrap();
        if !taken.is_empty() {
            return taken;
        }
        within_a_minute(available);
    }
}

/// Takes until there are that many.
pub(crate) fn receive_all(consumer: &Consumer, count: usize) -> Vec<Leased> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(receive(consumer, count - all.len()));
    }
    all
}

/// Takes what is there now, without waiting.
pub(crate) fn take(consumer: &Consumer) -> Vec<Leased> {
    consumer.take(1000, LEASE).unwrap()
}

pub(crate) fn bodies(leased: &[Leased]) -> Vec<String> {
    let body = |leased: &Leased| String::from_utf8(leased.message.body.to_vec()).unwrap();
    leased.iter().map(body).collect()
}

pub(crate) fn receipts(leased: &[Leased]) -> Vec<Receipt> {
    leased.iter().map(|leased| leased.receipt).collect()
}

pub(crate) fn ack(consumer: &Consumer, receipts: &[Receipt]) -> Vec<bool> {
    within_a_minute(consumer.ack(receipts)).unwrap()
}

/// Nacks one message, with nothing but an error text.
pub(crate) fn fail(consumer: &Consumer, receipt: Receipt, error: &str) -> NackOutcome {
    let failure = Failure { error: Some(error.to_owned()), ..Failure::default() };
    consumer.nack(&[receipt], &failure).unwrap()[0]
}

/// The store as an outlet that is never handed anything before its time.
pub(crate) struct Punctual {
    inner: Reference,
    clock: ManualClock,
}

impl Outlet for Punctual {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        let shown = self.clock.now();
        for armed in batch {
            assert!(armed.key.due <= shown, "due {} delivered at {shown}", armed.key.due);
        }
        self.inner.deliver(batch, now).await
    }
}

/// The groups of the store. What they change can be held back, or refused.
pub(crate) struct Valve {
    inner: Reference,
    state: Mutex<Flow>,
}

#[derive(Default)]
enum Flow {
    #[default]
    Open,
    Shut(Vec<oneshot::Sender<()>>),
    Refuse,
}

impl Valve {
    pub(crate) fn shut(&self) {
        *self.state.lock() = Flow::Shut(Vec::new());
    }

    /// Whether it holds something back.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(&*self.state.lock(), Flow::Shut(held) if !held.is_empty())
    }

    pub(crate) fn refuse(&self) {
        *self.state.lock() = Flow::Refuse;
    }

    /// Lets everything through, also what was held back.
    pub(crate) fn open(&self) {
        *self.state.lock() = Flow::Open;
    }

    /// Refuses what was held back, and lets everything else through.
    pub(crate) fn open_too_late(&self) {
        if let Flow::Shut(held) = std::mem::take(&mut *self.state.lock()) {
            held.into_iter().for_each(|held| held.send(()).unwrap());
        }
    }
}

impl Groups for Valve {
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        Groups::put(&self.inner, topic, name, settings, start)
    }

    fn delete(&self, id: GroupId) -> Result<bool, GroupError> {
        Groups::delete(&self.inner, id)
    }

    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        Groups::by_name(&self.inner, topic, name)
    }

    fn list(&self) -> Vec<Arc<Group>> {
        Groups::list(&self.inner)
    }

    fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError> {
        self.inner.pull(source, from, limit)
    }

    fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError> {
        self.inner.standing(id, oldest)
    }

    fn placed(&self, id: GroupId) -> Vec<Placed> {
        self.inner.placed(id)
    }

    fn apply(
        &self,
        changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>> {
        let waits = match &mut *self.state.lock() {
            Flow::Open => None,
            Flow::Refuse => return Box::pin(async { Err(StoreError::Full) }),
            Flow::Shut(held) => {
                let (sender, receiver) = oneshot::channel::<()>();
                held.push(sender);
                Some(receiver)
            }
        };
        let inner = self.inner.clone();
        Box::pin(async move {
            // Opening drops the other end.
            if let Some(waits) = waits
                && waits.await.is_ok()
            {
                return Err(StoreError::Full);
            }
            inner.apply(changes, entries).await
        })
    }
}
