//! Who starts tasks: everything spawned here is waited for at shutdown.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts tasks and knows when all of them have ended. Clones share one set of tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// A piece of work was ended before it was done: it panicked, or the runtime is going away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work was broken off")]
pub struct BrokenOff;

impl Tasks {
    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Runs work that may block on the disk or the processor, on a thread that may block.
    ///
    /// Dropping the future does not stop the work.
    ///
    /// # Errors
    /// [`BrokenOff`] when the work panicked.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BrokenOff> {
        self.tracker.spawn_blocking(work).await.map_err(|_panicked_or_ended| BrokenOff)
    }

    /// Ends when tasks are asked to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Whether tasks were asked to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Asks all tasks to stop and waits for them, at most `patience`. False when some remain.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}
