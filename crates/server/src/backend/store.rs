//! The timeline and the outlet of this server, whichever they are.
//!
//! One match for each call: the embedded engine is as fast as without it. A timeline that nodes share
//! is behind a pointer, so that nothing else has to know which database it is in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_cluster::kafka::KafkaOutlet;
use punctual_cluster::routing::wire::{Answer, Request};
use punctual_cluster::routing::{Routed, RoutingCounts};
use punctual_cluster::store::SlotStore;
use punctual_cluster::timeline::{SlotTimeline, TimelineStats};
use punctual_engine::Engine;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Forecast, Found, Order, Outlet, PendingPage, PendingQuery,
    Revised, StoreError, Timeline, Told, Untaken,
};
use punctual_model::{Entry, Lane, MessageId, Timestamp, TopicId};

/// What is pending, wherever it is.
#[derive(Clone)]
pub(crate) enum Store {
    /// In the data directory of this machine.
    Engine(Arc<Engine>),
    /// In a database, in slots that nodes share.
    Shared(Arc<dyn SharedTimeline>),
}

/// An answer on its way.
pub(crate) type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A [`Timeline`] over slots that nodes share, in whichever database.
pub(crate) trait SharedTimeline: Send + Sync {
    /// Carries out what another node asks, in the slots of this one.
    fn answer(&self, request: Request) -> Answering<'_, Answer>;

    /// Figures of the slots of this node.
    fn slot_stats(&self) -> TimelineStats;

    /// Figures of calls between nodes.
    fn routing(&self) -> RoutingCounts;

    /// Up to when everything that is due in the slots of this node is in memory.
    fn frontier(&self) -> Option<Timestamp>;

    /// Lets go of the slots of this node.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    fn schedule(&self, batch: Vec<Entry>) -> Answering<'_, Vec<MessageId>>;
    fn cancel(&self, ids: Vec<MessageId>) -> Answering<'_, Vec<CancelOutcome>>;
    fn revise(&self, orders: Vec<Order>) -> Answering<'_, Revised>;
    fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Answering<'_, Vec<Option<MessageId>>>;
    fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Answering<'_, Forecast>;
    fn forecast_together(
        &self,
        topics: Vec<TopicId>,
        bounds: Vec<Timestamp>,
    ) -> Answering<'_, Forecast>;
    fn find(&self, ids: Vec<MessageId>) -> Answering<'_, Vec<Option<Found>>>;
    fn pending(&self, query: PendingQuery) -> Answering<'_, PendingPage>;
    fn arm(&self, lane: Lane, until: Timestamp, limit: ArmLimit) -> Answering<'_, Vec<Armed>>;
    fn settle<'a>(&'a self, batch: &'a [Armed]) -> Answering<'a, ()>;
    fn claim<'a>(&'a self, batch: &'a mut Vec<Armed>) -> Answering<'a, ()>;
    fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Answering<'_, ()>;
    fn release<'a>(&'a self, batch: &'a [Armed]) -> Answering<'a, ()>;
    fn next_due(&self, lane: Lane) -> Answering<'_, Option<Timestamp>>;
    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>);
    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)>;
}

impl<S: SlotStore> SharedTimeline for Routed<SlotTimeline<S>> {
    fn answer(&self, request: Request) -> Answering<'_, Answer> {
        Box::pin(Self::answer(self, request))
    }

    fn slot_stats(&self) -> TimelineStats {
        self.local().stats()
    }

    fn routing(&self) -> RoutingCounts {
        self.figures()
    }

    fn frontier(&self) -> Option<Timestamp> {
        self.local().tenures().into_iter().flat_map(|tenure| tenure.read_until).min()
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.local().close())
    }

    fn schedule(&self, batch: Vec<Entry>) -> Answering<'_, Vec<MessageId>> {
        Box::pin(Timeline::schedule(self, batch))
    }

    fn cancel(&self, ids: Vec<MessageId>) -> Answering<'_, Vec<CancelOutcome>> {
        Box::pin(Timeline::cancel(self, ids))
    }

    fn revise(&self, orders: Vec<Order>) -> Answering<'_, Revised> {
        Box::pin(Timeline::revise(self, orders))
    }

    fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Answering<'_, Vec<Option<MessageId>>> {
        Box::pin(Timeline::named(self, topic, own_ids))
    }

    fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Answering<'_, Forecast> {
        Box::pin(Timeline::forecast(self, topic, bounds))
    }

    fn forecast_together(
        &self,
        topics: Vec<TopicId>,
        bounds: Vec<Timestamp>,
    ) -> Answering<'_, Forecast> {
        Box::pin(Timeline::forecast_together(self, topics, bounds))
    }

    fn find(&self, ids: Vec<MessageId>) -> Answering<'_, Vec<Option<Found>>> {
        Box::pin(Timeline::find(self, ids))
    }

    fn pending(&self, query: PendingQuery) -> Answering<'_, PendingPage> {
        Box::pin(Timeline::pending(self, query))
    }

    fn arm(&self, lane: Lane, until: Timestamp, limit: ArmLimit) -> Answering<'_, Vec<Armed>> {
        Box::pin(Timeline::arm(self, lane, until, limit))
    }

    fn settle<'a>(&'a self, batch: &'a [Armed]) -> Answering<'a, ()> {
        Box::pin(Timeline::settle(self, batch))
    }

    fn claim<'a>(&'a self, batch: &'a mut Vec<Armed>) -> Answering<'a, ()> {
        Box::pin(Timeline::claim(self, batch))
    }

    fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Answering<'_, ()> {
        Box::pin(Timeline::defer(self, batch))
    }

    fn release<'a>(&'a self, batch: &'a [Armed]) -> Answering<'a, ()> {
        Box::pin(Timeline::release(self, batch))
    }

    fn next_due(&self, lane: Lane) -> Answering<'_, Option<Timestamp>> {
        Box::pin(Timeline::next_due(self, lane))
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        Timeline::listen(self, listener);
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        Timeline::counts(self, lane)
    }
}

/// The same for whichever it is.
macro_rules! each {
    ($store:expr, $timeline:ident => $work:expr) => {
        match $store {
            Store::Engine($timeline) => $work,
            Store::Shared($timeline) => $work,
        }
    };
}

impl Timeline for Store {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        each!(self, timeline => timeline.schedule(batch).await)
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        each!(self, timeline => timeline.cancel(ids).await)
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        each!(self, timeline => timeline.revise(orders).await)
    }

    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        each!(self, timeline => timeline.named(topic, own_ids).await)
    }

    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        each!(self, timeline => timeline.forecast(topic, bounds).await)
    }

    async fn forecast_together(
        &self,
        topics: Vec<TopicId>,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        each!(self, timeline => timeline.forecast_together(topics, bounds).await)
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        each!(self, timeline => timeline.find(ids).await)
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        each!(self, timeline => timeline.pending(query).await)
    }

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        each!(self, timeline => timeline.arm(lane, until, limit).await)
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        each!(self, timeline => timeline.settle(batch).await)
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        each!(self, timeline => timeline.claim(batch).await)
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        each!(self, timeline => timeline.defer(batch).await)
    }

    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        each!(self, timeline => timeline.release(batch).await)
    }

    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        each!(self, timeline => timeline.next_due(lane).await)
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        each!(self, timeline => timeline.listen(listener));
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        each!(self, timeline => timeline.counts(lane))
    }
}

/// Where due messages go.
#[derive(Clone)]
pub(crate) enum Way {
    /// To the topics of this machine.
    Engine(Arc<Engine>),
    /// To Kafka.
    Kafka(Arc<KafkaOutlet>),
}

impl Outlet for Way {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        match self {
            Self::Engine(engine) => engine.deliver(batch, now).await,
            Self::Kafka(kafka) => kafka.deliver(batch, now).await,
        }
    }

    fn told(&self, lane: Lane) -> Vec<Told> {
        match self {
            Self::Engine(engine) => engine.told(lane),
            Self::Kafka(kafka) => kafka.told(lane),
        }
    }
}
