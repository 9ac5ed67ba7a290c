//! Who has work in hand: how a virtual clock learns that nothing more happens at the present time.
//!
//! Whoever gives work to another thread begins it here before it hands the work over, and the guard
//! goes along until the work is done. So between the two there is no moment at which the broker
//! looks idle and is not. Without a virtual clock nobody waits, and a guard costs two atomic steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

/// Work under way. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    busy: AtomicUsize,
    /// Taken when the last work ends, so that whoever is about to wait does not miss it.
    ended: Mutex<()>,
    idle: Condvar,
}

/// A piece of work; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the work ends when this is dropped"]
pub struct Work {
    inner: Arc<Inner>,
}

impl Activity {
    /// Begins a piece of work.
    pub fn begin(&self) -> Work {
        self.inner.busy.fetch_add(1, Ordering::SeqCst);
        Work { inner: Arc::clone(&self.inner) }
    }

    /// Whether no work is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner.busy.load(Ordering::SeqCst) == 0
    }

    /// Waits until no work is under way.
    pub fn wait_idle(&self) {
        let mut ended = self.inner.ended.lock();
        while !self.is_idle() {
            self.inner.idle.wait(&mut ended);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.inner.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ended = self.inner.ended.lock();
            self.inner.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn it_is_idle_when_the_last_work_has_ended() {
        let activity = Activity::default();
        assert!(activity.is_idle());
        let first = activity.begin();
        let other = activity.clone();
        let second = other.begin();
        drop(first);
        assert!(!activity.is_idle());
        drop(second);
        assert!(activity.is_idle());
        activity.wait_idle();
    }

    #[test]
    fn whoever_waits_is_told_once_chains_of_work_have_ended() {
        let activity = Activity::default();
        for _ in 0..200 {
            let first = activity.begin();
            let handed_on = activity.clone();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let second = handed_on.begin();
                    drop(first);
                    drop(second);
                });
                activity.wait_idle();
            });
            assert!(activity.is_idle());
        }
    }
}
