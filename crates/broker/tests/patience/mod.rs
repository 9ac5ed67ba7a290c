//! Waiting for what other threads bring about: never for ever, so that a test fails and says what
//! it has waited for, instead of hanging.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of it")]
#![expect(clippy::disallowed_methods, reason = "how long a test takes is real time")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Longer than anything in these tests takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Ends at some time.
pub(crate) struct Patience(Instant);

impl Patience {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Fails when it has waited for too long.
    pub(crate) fn check(&self, what: &str) {
        assert!(self.0.elapsed() < PATIENCE, "no {what} after {PATIENCE:?}");
    }
}

/// Waits for what other threads bring about, but not for ever.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Patience::new();
    while !done() {
        patience.check(what);
        std::thread::yield_now();
    }
}

/// Waits for a future, but not for ever.
pub(crate) fn within_a_minute<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let mut rung = bell.rung.lock();
        while !*rung {
            let late = bell.changed.wait_for(&mut rung, PATIENCE).timed_out();
            assert!(!late, "waited for a minute in vain");
        }
        *rung = false;
    }
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }
}

/// Does something when it is dropped, also while a test fails: other threads wait for it.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
