//! Deliver: what has fired goes to the outlet, once.
//!
//! claim, hand over, settle. A cancel that comes before the claim wins, one that comes after is
//! told that the message was delivered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_model::ports::{Armed, Outlet, StoreError, Timeline};

use crate::stats::Counters;
use crate::time::BrokerTime;

/// Messages handed over at once.
pub(crate) const BATCH_MAX: usize = 8192;

/// Hands fired messages to the outlet.
#[derive(Debug)]
pub struct Delivery<T, O> {
    pub(crate) timeline: Arc<T>,
    pub(crate) outlet: Arc<O>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    /// Claimed, and not yet taken by the outlet.
    claimed: Vec<Armed>,
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
        Self { timeline, outlet, time, counters, claimed: Vec::new() }
    }

    /// Whether the outlet refused the last batch and it has to be offered again.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        !self.claimed.is_empty()
    }

    /// Hands over `batch`, all due. After an error [`retry`](Self::retry) offers it again.
    ///
    /// # Errors
    /// As the outlet or the timeline says.
    pub async fn deliver(&mut self, mut batch: Vec<Armed>) -> Result<(), StoreError> {
        debug_assert!(self.claimed.is_empty(), "one batch is on its way at a time");
        self.timeline.claim(&mut batch).await?;
        self.counters.fired.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.claimed = batch;
        self.retry().await
    }

    /// Offers what was claimed to the outlet.
    ///
    /// # Errors
    /// As the outlet or the timeline says.
    pub async fn retry(&mut self) -> Result<(), StoreError> {
        if self.claimed.is_empty() {
            return Ok(());
        }
        let now = self.time.read();
        self.outlet.deliver(&self.claimed, now.timestamp()).await?;
        let done = self.time.read().broker;
        self.timeline.settle(&self.claimed).await?;
        for armed in &self.claimed {
            let due = std::time::Duration::from_millis(armed.key.due.as_millis());
            self.counters.lateness.note(done.saturating_sub(due));
        }
        self.counters.delivered.fetch_add(self.claimed.len() as u64, Ordering::Relaxed);
        self.claimed.clear();
        Ok(())
    }
}
