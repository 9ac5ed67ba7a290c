//! Who starts tasks and who waits for time.
//!
//! A library lives in the runtime of its user and has no clock of its own; everything else in this
//! crate that runs beside its caller, or waits, goes through here.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Starts a task in the runtime of the caller.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime is the user's; each task of this crate ends by itself or with its owner"
)]
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct Owned(JoinHandle<()>);

impl Owned {
    pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(spawn(task))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until `at`; for ever, if there is no such moment.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits that long.
pub(crate) async fn pause(wait: Duration) {
    until(Instant::now().checked_add(wait)).await;
}
