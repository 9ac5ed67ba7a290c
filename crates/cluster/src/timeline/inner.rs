//! What all tasks of a timeline share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::ports::{Coordinator, StoreError};
use punctual_model::{Clock, Lane, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::catalogue::KnownTopics;
use crate::store::{Failure, SlotStore, Tenure};

use super::job::{Answer, Job, Work};
use super::state::{State, Told};
use super::{Phase, TimelineOptions, writer};

/// How long to wait before something that failed is tried again.
pub(super) const RETRY_WAIT: Duration = Duration::from_millis(200);

/// Who fires.
pub(super) type Listener = Arc<dyn Fn(Lane) + Send + Sync>;

pub(super) struct Inner<S> {
    pub(super) store: Arc<S>,
    pub(super) coordinator: Arc<dyn Coordinator>,
    clock: Arc<dyn Clock>,
    pub(super) handle: Handle,
    pub(super) options: TimelineOptions,
    pub(super) state: Mutex<State>,
    /// Held while marks are written down, so that they arrive in the order in which they were made.
    pub(super) keeping: tokio::sync::Mutex<()>,
    listener: Mutex<Option<Listener>>,
    /// What tells whether a topic is still there.
    pub(super) topics: OnceLock<Arc<dyn KnownTopics>>,
    pub(super) signals: Arc<Signals>,
    pub(super) stats: Counters,
}

/// What the tasks wait for.
#[derive(Debug)]
pub(super) struct Signals {
    /// There may be pages to read.
    pub(super) pages: Notify,
    /// There may be slots to take or to let go.
    pub(super) tenures: Notify,
    /// Something was taken, read or let go.
    pub(super) progress: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) changes: AtomicU64,
    pub(super) fenced: AtomicU64,
    pub(super) reloads: AtomicU64,
    pub(super) failures: AtomicU64,
}

impl<S: SlotStore> Inner<S> {
    pub(super) fn new(
        store: Arc<S>,
        coordinator: Arc<dyn Coordinator>,
        clock: Arc<dyn Clock>,
        handle: Handle,
        options: TimelineOptions,
    ) -> Self {
        let (progress, _) = watch::channel(0);
        let signals = Signals { pages: Notify::new(), tenures: Notify::new(), progress };
        Self {
            store,
            coordinator,
            clock,
            handle,
            options,
            state: Mutex::new(State::new()),
            keeping: tokio::sync::Mutex::new(()),
            listener: Mutex::new(None),
            topics: OnceLock::new(),
            signals: Arc::new(signals),
            stats: Counters::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.read().timestamp()
    }

    pub(super) fn listen(&self, listener: Listener) {
        *self.listener.lock() = Some(listener);
    }

    /// Tells whoever fires that there is something new in these lanes.
    pub(super) fn wake(&self, lanes: [bool; 2]) {
        let listener = self.listener.lock().clone();
        let Some(listener) = listener else { return };
        for lane in Lane::ALL.into_iter().filter(|lane| lanes[lane.index()]) {
            listener(lane);
        }
    }

    pub(super) fn progressed(&self) {
        self.signals.progress.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Gives a call to the writer of a slot.
    pub(super) fn submit(
        self: &Arc<Self>,
        slot: crate::store::Slot,
        work: Work,
    ) -> Result<Told, StoreError> {
        let (told, writer) = self.state.lock().submit(slot, work, &self.options)?;
        if let Some(tenure) = writer {
            drop(self.handle.spawn(writer::run(Arc::clone(self), tenure)));
        }
        Ok(told)
    }

    /// The store has another owner of the slot.
    pub(super) fn fenced(&self, tenure: Tenure) {
        self.stats.fenced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tracing::warn!(slot = tenure.slot.0, term = tenure.term, "another node has taken the slot");
        self.lose(tenure);
        // Whoever assigns slots finds a new term for it, should it still believe that it is here.
        self.coordinator.released(u32::from(tenure.slot.0), tenure.term);
    }

    /// Drops everything of a slot.
    pub(super) fn lose(&self, tenure: Tenure) {
        let lost = {
            let mut state = self.state.lock();
            match state.owned(tenure) {
                Some(_) => state.slots.remove(&tenure.slot),
                None => None,
            }
        };
        if let Some(mut lost) = lost {
            self.refuse_lost(lost.queue.drain(..).collect());
            self.progressed();
        }
    }

    /// Answers calls about a slot that is no longer here.
    pub(super) fn refuse_lost(&self, jobs: Vec<Job>) {
        for job in jobs {
            // What was delivered is the next owner's to deliver again: there is nothing to repeat.
            let answer =
                if job.is_delivery() { Ok(Answer::Nothing) } else { Err(StoreError::Elsewhere) };
            job.answer(answer);
        }
    }

    /// Stops a slot of which nobody knows what is in the store, and has it read again.
    pub(super) fn reload(self: &Arc<Self>, tenure: Tenure) {
        let waiting: Vec<Job> = {
            let mut state = self.state.lock();
            let Some(owned) = state.owned_mut(tenure) else { return };
            if owned.phase == Phase::Reloading {
                return;
            }
            owned.phase = Phase::Reloading;
            owned.queue_bytes = 0;
            owned.queue.drain(..).collect()
        };
        self.stats.reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for job in waiting {
            job.answer(Err(StoreError::Unavailable("the slot is read again".into())));
        }
        drop(self.handle.spawn(super::tenure::read_again(Arc::clone(self), tenure)));
    }
}

impl<S> std::fmt::Debug for Inner<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("stats", &self.stats).finish_non_exhaustive()
    }
}

/// What a caller is told of a failure of the store.
pub(super) fn refusal(failure: &Failure) -> StoreError {
    match failure {
        Failure::Unavailable(_) | Failure::Unsure(_) => {
            StoreError::Unavailable(failure.to_string().into())
        }
        Failure::Damaged(what) => StoreError::Damaged(Arc::clone(what)),
    }
}

/// Waits, in a task.
pub(super) async fn pause(wait: Duration) {
    // Nothing ever comes: the time runs out.
    tokio::time::timeout(wait, std::future::pending::<()>()).await.unwrap_or_default();
}
