//! Deliver: what has fired goes to the outlet, once.
//!
//! claim, hand over, settle. A cancel that comes before the claim wins, one that comes after is
//! told that the message was delivered. What the outlet does not take with its batch goes aside
//! and holds up nobody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use punctual_model::ports::{Armed, Outlet, StoreError, Timeline, Topics};
use punctual_model::{Basis, Lane, Timestamp, TopicId};

use crate::aside::Aside;
use crate::group::Consumers;
use crate::stats::Counters;
use crate::time::{BrokerTime, Now};
use crate::watch::{Watch, tell_fired};

/// Hands fired messages to the outlet.
pub struct Delivery<T, O> {
    pub(crate) timeline: Arc<T>,
    pub(crate) outlet: Arc<O>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    /// Who is told what has arrived.
    consumers: Option<Consumers>,
    /// Who follows messages, and what tells the names of their topics.
    watch: Option<(Arc<dyn Watch>, Arc<dyn Topics>)>,
    /// The batch on its way.
    batch: Vec<Armed>,
    stage: Stage,
    /// What of earlier batches was not taken.
    aside: Aside,
    /// When its turn came, by the wall clock.
    began: Duration,
}

/// How far the batch has come. Each call that was refused is repeated, and none before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fired,
    Claimed,
    Taken,
}

impl<T, O> std::fmt::Debug for Delivery<T, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("batch", &self.batch)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl<T: Timeline, O: Outlet> Delivery<T, O> {
    /// Nothing on its way yet.
    #[must_use]
    pub fn new(
        timeline: Arc<T>,
        outlet: Arc<O>,
        time: Arc<BrokerTime>,
        counters: Arc<Counters>,
    ) -> Self {
        let (batch, stage, aside) = (Vec::new(), Stage::Fired, Aside::default());
        let (consumers, watch, began) = (None, None, Duration::ZERO);
        Self { timeline, outlet, time, counters, consumers, watch, batch, stage, aside, began }
    }

    /// The same, and `consumers` are told what the outlet has taken.
    #[must_use]
    pub fn heard_by(mut self, consumers: Consumers) -> Self {
        self.consumers = Some(consumers);
        self
    }

    /// The same, and `watch` is told of messages that it follows.
    #[must_use]
    pub(crate) fn watched_by(
        mut self,
        watch: Option<Arc<dyn Watch>>,
        topics: Arc<dyn Topics>,
    ) -> Self {
        self.watch = watch.map(|watch| (watch, topics));
        self
    }

    /// Hands over `batch`, all due. After an error [`retry`](Self::retry) offers it again.
    ///
    /// # Errors
    /// As the outlet or the timeline says.
    pub async fn deliver(&mut self, batch: Vec<Armed>) -> Result<(), StoreError> {
        debug_assert!(self.batch.is_empty(), "one batch is on its way at a time");
        self.aside.welcome(&batch);
        self.batch = batch;
        self.stage = Stage::Fired;
        if self.watch.is_some() {
            self.began = self.time.read().wall;
        }
        self.retry().await
    }

    /// Goes on with the batch on its way from where it was refused.
    ///
    /// # Errors
    /// As the outlet or the timeline says.
    pub async fn retry(&mut self) -> Result<(), StoreError> {
        if !self.aside.is_empty() {
            self.look_aside().await?;
        }
        if self.stage == Stage::Fired && !self.batch.is_empty() {
            self.timeline.claim(&mut self.batch).await?;
            self.counters.fired.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
            self.counters.topics.note_each(sent_to(&self.batch), |of| &of.fired);
            self.stage = Stage::Claimed;
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.stage == Stage::Claimed {
            let now = self.time.read();
            let untaken = self.outlet.deliver(&self.batch, now.timestamp()).await?;
            self.stage = Stage::Taken;
            if !untaken.is_empty() {
                let refused = self.aside.put(&mut self.batch, untaken, now.timestamp());
                self.counters.refused.note_all(&refused);
            }
            if let Some(consumers) = &self.consumers {
                consumers.delivered(&self.batch);
            }
        }
        let done = self.time.read();
        if !self.batch.is_empty() {
            self.timeline.settle(&self.batch).await?;
            self.count(&self.batch, done);
            self.batch.clear();
        }
        if self.aside.is_empty() { Ok(()) } else { self.look_aside().await }
    }

    /// Whether something is neither taken nor to come again for now.
    pub(crate) fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// When the oldest message was due that is neither taken nor in hand.
    pub(crate) fn oldest(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.aside.oldest(now)
    }

    /// Hears what became of what was not taken, and writes it down.
    async fn look_aside(&mut self) -> Result<(), StoreError> {
        let now = self.time.read();
        let refused = self.aside.hear(&*self.outlet, now.timestamp());
        self.counters.refused.note_all(&refused);
        let settled = self.aside.tell(&*self.timeline).await?;
        if !settled.is_empty() {
            if let Some(consumers) = &self.consumers {
                consumers.delivered(&settled);
            }
            self.count(&settled, self.time.read());
        }
        if self.aside.is_crowded() && self.stage == Stage::Fired {
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// Counts what is out, and tells whoever follows it.
    fn count(&self, batch: &[Armed], done: Now) {
        for armed in batch {
            self.counters.lateness.note(lateness(armed, done));
        }
        if let Some((watch, topics)) = &self.watch {
            let name = |armed: &Armed| topics.by_id(armed.topic).map(|topic| topic.name.clone());
            let times = (self.began, done.wall);
            tell_fired(watch, batch, name, times, |armed| lateness(armed, done));
        }
        self.counters.delivered.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.counters.topics.note_each(sent_to(batch), |of| &of.delivered);
    }
}

/// The topics of messages that were sent to them, and not moved there by the broker.
fn sent_to(batch: &[Armed]) -> impl Iterator<Item = TopicId> {
    let sent = batch.iter().filter(|armed| armed.key.sequence.lane() == Lane::Message);
    sent.map(|armed| armed.topic)
}

/// How long after its due time a message is out, by the clock that its time is measured with.
fn lateness(armed: &Armed, done: Now) -> Duration {
    let due = Duration::from_millis(armed.key.due.as_millis());
    let reached = match armed.basis {
        Basis::Delay => done.broker,
        Basis::Date => done.wall,
    };
    reached.saturating_sub(due)
}
