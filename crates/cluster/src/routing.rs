//! Any node takes any request: what belongs to another node is carried out there.
//!
//! [`Routed`] is the timeline of a whole cluster. What concerns the slots of this node goes to the
//! timeline of those; what concerns others goes to the node that holds them, by a peer call. Reads
//! go straight to the store, which all nodes share. A slot that moves while somebody asks for it is
//! asked for again, so callers see nothing of it but time.
//!
//! `split.rs` says which orders belong together, `carry.rs` brings them there and tries again,
//! `wire.rs` has the bytes that nodes send each other. How those travel is somebody else's: see
//! [`Peers`].

mod split;
mod carry;
pub mod wire;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Coordinator, Forecast, Found, Order, PendingPage, PendingQuery,
    Revised, StoreError, Timeline,
};
use punctual_model::{Entry, Lane, MessageId, Timestamp, TopicId};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use self::wire::{Answer, Request};

/// How nodes reach each other.
pub trait Peers: Send + Sync + 'static {
    /// Sends a request to the node at this address and brings its answer back, all within the time.
    fn call(
        &self,
        address: Arc<str>,
        request: Bytes,
        within: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, PeerError>> + Send>>;
}

/// Why there is no answer of another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It certainly has done nothing.
    #[error("another node was not reached: {0}")]
    NotSent(Arc<str>),
    /// It may have done what it was asked for.
    #[error("another node did not answer: {0}")]
    Unanswered(Arc<str>),
}

/// What a [`Routed`] is made of.
pub struct RoutedParts<L> {
    /// What is pending in the slots of this node.
    pub local: Arc<L>,
    /// Who holds which slots.
    pub coordinator: Arc<dyn Coordinator>,
    /// How other nodes are reached.
    pub peers: Arc<dyn Peers>,
    /// The name under which this node is known at the moment.
    pub name: Arc<dyn Fn() -> Option<Arc<str>> + Send + Sync>,
    /// Where work goes on that must not end with whoever waits for it.
    pub tasks: Handle,
    /// For how long something is tried again.
    pub patience: Duration,
}

impl<L> fmt::Debug for RoutedParts<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedParts").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// The timeline of a whole cluster, as one node serves it.
pub struct Routed<L> {
    inner: Arc<Inner<L>>,
}

struct Inner<L> {
    local: Arc<L>,
    coordinator: Arc<dyn Coordinator>,
    peers: Arc<dyn Peers>,
    name: Arc<dyn Fn() -> Option<Arc<str>> + Send + Sync>,
    tasks: Handle,
    patience: Duration,
    /// Something has changed in the cluster.
    news: watch::Sender<()>,
    /// Which node is asked next to take new entries.
    turn: AtomicUsize,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    calls: AtomicU64,
    failed: AtomicU64,
    retried: AtomicU64,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutingCounts {
    /// Calls of other nodes.
    pub calls: u64,
    /// Those that were not answered.
    pub failed: u64,
    /// Tries that came to nothing because a slot was moving or its node was gone.
    pub retried: u64,
}

impl<L> Clone for Routed<L> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<L> fmt::Debug for Routed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routed").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl<L> Routed<L> {
    /// What was counted since the start.
    #[must_use]
    pub fn figures(&self) -> RoutingCounts {
        let Figures { calls, failed, retried } = &self.inner.figures;
        RoutingCounts {
            calls: calls.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            retried: retried.load(Ordering::Relaxed),
        }
    }

    /// What is pending in the slots of this node.
    #[must_use]
    pub fn local(&self) -> &Arc<L> {
        &self.inner.local
    }
}

impl<L: Timeline> Routed<L> {
    /// The timeline of the cluster.
    #[must_use]
    pub fn new(parts: RoutedParts<L>) -> Self {
        let RoutedParts { local, coordinator, peers, name, tasks, patience } = parts;
        let news = watch::Sender::new(());
        let told = news.clone();
        coordinator.listen(Arc::new(move || told.send_replace(())));
        let (turn, figures) = (AtomicUsize::default(), Figures::default());
        let inner = Inner { local, coordinator, peers, name, tasks, patience, news, turn, figures };
        Self { inner: Arc::new(inner) }
    }

    /// Carries out what another node asks of this one, in the slots of this node alone: a request
    /// is never passed on twice.
    ///
    /// # Errors
    /// As the timeline says; [`StoreError::Elsewhere`] for slots of others.
    pub async fn answer(&self, request: Request) -> Result<Answer, StoreError> {
        self.inner.here(request).await
    }

    /// Work that goes on when nobody waits for it any more, on threads that have timers.
    async fn spawned<T, F>(&self, work: impl FnOnce(Arc<Inner<L>>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        let work = work(Arc::clone(&self.inner));
        self.inner.tasks.spawn(async move {
            // Nobody waits any more: it is done all the same.
            drop(done.send(work.await));
        });
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl<L: Timeline> Timeline for Routed<L> {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        let is_free = batch.iter().all(|entry| split::parent(entry).is_none());
        if is_free && self.inner.takes_new() {
            match self.inner.local.schedule(batch.clone()).await {
                Err(StoreError::Elsewhere) => {}
                outcome => return outcome,
            }
        }
        self.spawned(|inner| async move { inner.schedule(batch).await }).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        if self.inner.holds_all(&ids) {
            match self.inner.local.cancel(ids.clone()).await {
                Err(StoreError::Elsewhere) => {}
                outcome => return outcome,
            }
        }
        self.spawned(|inner| async move { inner.cancel(ids).await }).await
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        if split::are_new(&orders) && self.inner.takes_new() {
            match self.inner.local.revise(orders.clone()).await {
                Err(StoreError::Elsewhere) => {}
                outcome => return outcome,
            }
        }
        self.spawned(|inner| async move { inner.revise(orders).await }).await
    }

    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        self.inner.local.named(topic, own_ids).await
    }

    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        self.inner.local.forecast(topic, bounds).await
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        self.inner.local.find(ids).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        self.inner.local.pending(query).await
    }

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        self.inner.local.arm(lane, until, limit).await
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        self.inner.local.claim(batch).await
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.inner.local.settle(batch).await
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        self.inner.local.defer(batch).await
    }

    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.inner.local.release(batch).await
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        self.inner.local.listen(listener);
    }

    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        self.inner.local.next_due(lane).await
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        self.inner.local.counts(lane)
    }
}

#[cfg(test)]
mod tests;
