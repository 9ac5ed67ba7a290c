//! The handle of all transactions, and the thread that takes care of those that fall due.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use punctual_model::ports::{Armed, StoreError, Timeline, Topics};
use punctual_model::{GroupName, MessageId, Timestamp, TopicId};

use super::keep::Inbox;
use super::ready::{Ready, Waiting, Way};
use super::record::Stored;
use super::undecided::Noted;
use crate::control::Handler;
use crate::group::Available;
use crate::stats::Counters;
use crate::time::BrokerTime;

/// Where transactions are prepared, decided and asked about. Clones are handles of the same one.
pub struct Desk<T> {
    pub(super) inner: Arc<Inner<T>>,
}

impl<T> Clone for Desk<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for Desk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("ready", &self.inner.ready).finish_non_exhaustive()
    }
}

pub(super) struct Inner<T> {
    pub(super) timeline: Arc<T>,
    pub(super) topics: Arc<dyn Topics>,
    pub(super) time: Arc<BrokerTime>,
    pub(super) counters: Arc<Counters>,
    pub(super) ready: Ready,
    pub(super) inbox: Inbox,
    pub(super) undecided: Noted,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The parts a desk is made of.
pub struct DeskParts<T> {
    /// What is pending.
    pub timeline: Arc<T>,
    /// The topics of the messages.
    pub topics: Arc<dyn Topics>,
    /// What time it is.
    pub time: Arc<BrokerTime>,
    /// What is counted.
    pub counters: Arc<Counters>,
}

impl<T> fmt::Debug for DeskParts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeskParts").finish_non_exhaustive()
    }
}

impl<T: Timeline> Desk<T> {
    /// Starts the thread; it first looks for checks that were ready before a restart. It says on
    /// `failed` when the store is out of order.
    ///
    /// # Errors
    /// As the operating system says when it has no thread left.
    pub fn start(parts: DeskParts<T>, failed: oneshot::Sender<StoreError>) -> io::Result<Self> {
        let DeskParts { timeline, topics, time, counters } = parts;
        let searching = time.activity().begin();
        let inner = Arc::new(Inner {
            timeline,
            topics,
            time,
            counters,
            ready: Ready::default(),
            inbox: Inbox::default(),
            undecided: Noted::default(),
            thread: Mutex::default(),
        });
        let kept = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("punctual-check".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = kept.run(searching) {
                tracing::error!(%error, "checks of transactions have stopped");
                // Receiver gone: nobody waits for failures any more.
                drop(failed.send(error));
            }
        })?;
        *inner.thread.lock() = Some(thread);
        Ok(Self { inner })
    }

    /// Who takes transactions that have fallen due.
    pub(crate) fn handler(&self) -> Handler {
        let desk = self.clone();
        Arc::new(move |due| desk.fired(due))
    }

    /// Takes transactions that have fallen due; returns at once.
    pub fn fired(&self, due: Vec<Armed>) {
        self.inner.inbox.put(due, self.inner.time.activity().begin());
    }

    /// Ends the thread. What was not done is done after the next start.
    pub fn stop(&self) {
        self.inner.inbox.stop();
        self.inner.ready.wake_all();
        if let Some(thread) = self.inner.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("checks of transactions ended by a panic");
        }
    }

    /// Ready when there may be a check for a member of that group. As with consumers: register
    /// first, then ask for [`checks`](Self::checks), then wait.
    pub fn available(&self, producer_group: &GroupName) -> Available {
        self.inner.ready.available(Way::Call(producer_group.clone()))
    }

    /// Up to `max` transactions of that group that have a check ready here, and since when. They
    /// stay: another broker over the same timeline may let them wait there too
    /// ([`also_ready`](Self::also_ready)), and only one of them hands the check out.
    #[must_use]
    pub fn ready_here(
        &self,
        producer_group: &GroupName,
        max: usize,
    ) -> Vec<(Timestamp, MessageId)> {
        let ready = self.inner.ready.look(&Way::Call(producer_group.clone()), max);
        ready.into_iter().map(|waiting| (waiting.since, waiting.id)).collect()
    }

    /// These transactions of that group have a check ready at another broker over the same timeline:
    /// whoever waits here may take it as well. One that was taken there meanwhile is found to be so
    /// before it is handed out.
    pub fn also_ready(&self, producer_group: &GroupName, ready: Vec<(Timestamp, MessageId)>) {
        for (since, id) in ready.into_iter().take(self.inner.ready.room()) {
            self.inner.ready.insert(Way::Call(producer_group.clone()), Waiting { since, id });
        }
    }

    /// Ready when there may be a check for a URL.
    pub fn callback_available(&self) -> Available {
        self.inner.ready.available(Way::Url)
    }
}

impl<T: Timeline> Inner<T> {
    /// The transaction, while it is known.
    pub(super) async fn load(&self, id: MessageId) -> Result<Option<Stored>, StoreError> {
        if id.topic != TopicId::TRANSACTIONS {
            return Ok(None);
        }
        let found = self.timeline.find(vec![id]).await?;
        let entry = found.into_iter().next().flatten().and_then(|found| found.entry);
        Ok(entry.as_ref().and_then(Stored::of_pending))
    }
}
