//! Those who wait until there may be something to take.
//!
//! The protocol, by which no wake is ever lost: register first, then try, then wait.
//!
//! ```text
//! loop {
//!     let available = consumer.available();
//!     if take() gives anything { return it }
//!     available.await;
//! }
//! ```
//!
//! Whoever makes a message available wakes one waiter for it or a few, not all. A woken waiter that
//! goes away without having looked passes the wake on. One whose future has said "ready" is taken
//! to look: between that and its next take there must be no point at which it can be dropped.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_channel::oneshot;
use parking_lot::Mutex;

/// All who wait for one thing, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    came: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Waiters {
    /// Joins those who wait.
    pub(crate) fn join(self: &Arc<Self>) -> Available {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.inner.lock();
        inner.came += 1;
        let number = inner.came;
        inner.waiting.insert(number, sender);
        drop(inner);
        Available { waiters: Arc::clone(self), number, receiver, done: false }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().waiting.is_empty()
    }

    /// Wakes up to `count` of those who have waited longest.
    pub(crate) fn wake(&self, count: usize) {
        for _ in 0..count {
            let Some((_, sender)) = self.inner.lock().waiting.pop_first() else { return };
            // One that goes at this moment finds itself woken, and passes it on.
            sender.send(()).ok();
        }
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut self.inner.lock().waiting);
        for sender in all.into_values() {
            // Whoever has gone needs no wake.
            sender.send(()).ok();
        }
    }
}

/// Ready when there may be something to take, or when the group was changed or deleted.
#[derive(Debug)]
#[must_use = "a waiter that is not awaited holds up others"]
pub struct Available {
    waiters: Arc<Waiters>,
    number: u64,
    receiver: oneshot::Receiver<()>,
    done: bool,
}

impl Future for Available {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = Pin::new(&mut self.receiver).poll(context);
        self.done |= polled.is_ready();
        polled.map(drop)
    }
}

impl Drop for Available {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let waiting = self.waiters.inner.lock().waiting.remove(&self.number);
        if waiting.is_none() {
            // Woken, or about to be: the next one is to look instead.
            self.waiters.wake(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn is_ready(available: &mut Available) -> bool {
        Pin::new(available).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_has_waited_longest_is_woken_first() {
        let waiters = Arc::new(Waiters::default());
        let (mut first, mut second) = (waiters.join(), waiters.join());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        waiters.wake(1);
        assert!(is_ready(&mut first) && !is_ready(&mut second));
        waiters.wake(5);
        assert!(is_ready(&mut second));
    }

    #[test]
    fn a_woken_waiter_that_goes_passes_the_wake_on() {
        let waiters = Arc::new(Waiters::default());
        let (first, mut second, mut third) = (waiters.join(), waiters.join(), waiters.join());
        waiters.wake(1);
        drop(first);
        assert!(is_ready(&mut second) && !is_ready(&mut third));
    }

    #[test]
    fn a_waiter_that_goes_unwoken_leaves_nothing_behind() {
        let waiters = Arc::new(Waiters::default());
        drop(waiters.join());
        let mut second = waiters.join();
        assert_eq!(waiters.inner.lock().waiting.len(), 1);
        waiters.wake(1);
        assert!(is_ready(&mut second));
    }

    #[test]
    fn one_that_has_looked_keeps_its_wake() {
        let waiters = Arc::new(Waiters::default());
        let (mut first, mut second) = (waiters.join(), waiters.join());
        waiters.wake(1);
        assert!(is_ready(&mut first));
        drop(first);
        assert!(!is_ready(&mut second));
        waiters.wake_all();
        assert!(is_ready(&mut second));
    }
}
