//! The thread that moves due series on, so that the firing thread only has to hand them over.
//!
//! What waits for it is bounded: a firing thread that is far ahead waits in turn. A store that is
//! full or busy is asked again; after any other error the thread ends and says why.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use futures_executor::block_on;
use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{Armed, StoreError, Timeline};

use super::keeper::{Keeper, Unhandled};
use crate::activity::{Activity, Work};

/// Batches that may wait.
const WAITING_MAX: usize = 16;
/// Series moved on together, sharing a flush.
const TOGETHER_MAX: usize = 512;
/// How long to wait before a refused batch is offered again.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The thread and the way to it.
#[derive(Debug)]
pub(crate) struct Desk {
    queue: Arc<Queue>,
    activity: Activity,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Desk {
    /// Starts the thread; `failed` hears why it ends, if it has to.
    ///
    /// # Errors
    /// As the operating system says when it has no thread left.
    pub(crate) fn start<T: Timeline>(
        keeper: Keeper<T>,
        failed: oneshot::Sender<StoreError>,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let activity = keeper.activity().clone();
        let taken = Ending(Arc::clone(&queue));
        let thread = std::thread::Builder::new().name("punctual-series".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = run(&keeper, &taken.0) {
                tracing::error!(%error, "series have stopped");
                // Receiver gone: nobody waits for failures any more.
                drop(failed.send(error));
            }
        })?;
        Ok(Self { queue, activity, thread: Mutex::new(Some(thread)) })
    }

    /// Takes due series from the firing thread. What comes after the end is left to the next start.
    pub(crate) fn handler(&self) -> Arc<dyn Fn(Vec<Armed>) + Send + Sync> {
        let (queue, activity) = (Arc::clone(&self.queue), self.activity.clone());
        Arc::new(move |batch| queue.put(batch, activity.begin()))
    }

    /// Ends the thread. Series that wait are handed out again after a restart.
    pub(crate) fn stop(&self) {
        self.queue.stop();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("series ended by a panic");
        }
    }
}

/// Moves series on until told to stop, or until the store is out of order; then answers why.
fn run<T: Timeline>(keeper: &Keeper<T>, queue: &Queue) -> Result<(), StoreError> {
    // The work of a batch ends with its turn of the loop.
    while let Some((batch, _work)) = queue.take() {
        let mut batch = batch.into_iter();
        while batch.len() > 0 {
            let mut together: Vec<Armed> = batch.by_ref().take(TOGETHER_MAX).collect();
            while let Err(Unhandled { error, left }) = block_on(keeper.handle(together)) {
                if !error.passes() {
                    return Err(error);
                }
                if queue.pause(RETRY_WAIT) {
                    return Ok(());
                }
                together = left;
            }
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<(Vec<Armed>, Work)>,
    stopped: bool,
}

impl Queue {
    fn put(&self, batch: Vec<Armed>, work: Work) {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| {
            !waiting.stopped && waiting.batches.len() >= WAITING_MAX
        });
        if !waiting.stopped {
            waiting.batches.push_back((batch, work));
            self.changed.notify_all();
        }
    }

    /// The next batch, or `None` at the end.
    fn take(&self) -> Option<(Vec<Armed>, Work)> {
        let mut waiting = self.waiting.lock();
        self.changed
            .wait_while(&mut waiting, |waiting| !waiting.stopped && waiting.batches.is_empty());
        self.changed.notify_all();
        if waiting.stopped { None } else { waiting.batches.pop_front() }
    }

    /// Lets some time pass. True at the end.
    fn pause(&self, time: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while_for(&mut waiting, |waiting| !waiting.stopped, time);
        waiting.stopped
    }

    /// What waits is left to the next start.
    fn stop(&self) {
        let mut waiting = self.waiting.lock();
        waiting.stopped = true;
        waiting.batches.clear();
        drop(waiting);
        self.changed.notify_all();
    }
}

/// However the thread ends, nobody waits for it to take anything.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.stop();
    }
}
