//! The thread that ends leases: it sleeps until the first group has something to do.
//!
//! It also sees to the end what others have begun and not waited for, such as an ack whose caller
//! has gone away.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use punctual_model::GroupId;

/// Something to be seen to its end.
pub(crate) type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When which group has something to do.
#[derive(Default)]
pub(crate) struct Alarms {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// On the monotonic clock. A group that has nothing to do when its alarm rings does nothing.
    set: BTreeSet<(Duration, GroupId)>,
    errands: Vec<Errand>,
    woken: bool,
    stopped: bool,
}

impl std::fmt::Debug for Alarms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarms").field("set", &self.inner.lock().set.len()).finish_non_exhaustive()
    }
}

impl Alarms {
    /// Rings for a group at a time on the monotonic clock.
    pub(crate) fn set(&self, at: Duration, group: GroupId) {
        let mut inner = self.inner.lock();
        let first = inner.set.first().is_none_or(|(first, _)| at < *first);
        inner.set.insert((at, group));
        if first {
            inner.woken = true;
            self.changed.notify_one();
        }
    }

    /// Takes over what somebody has begun.
    pub(crate) fn adopt(&self, errand: Errand) {
        let mut inner = self.inner.lock();
        if !inner.stopped {
            inner.errands.push(errand);
            inner.woken = true;
            self.changed.notify_one();
        }
    }

    /// The thread is to end.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = true;
        self.changed.notify_one();
    }

    /// Whether the thread was told to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.lock().stopped
    }

    /// The groups whose alarm has rung.
    pub(crate) fn rung(&self, now: Duration) -> Vec<GroupId> {
        let mut inner = self.inner.lock();
        let mut rung = Vec::new();
        while let Some((_, group)) = inner.set.first().copied().filter(|(at, _)| *at <= now) {
            inner.set.pop_first();
            rung.push(group);
        }
        rung
    }

    /// Goes on with everything that was taken over.
    pub(crate) fn run_errands(self: &Arc<Self>) {
        let errands = std::mem::take(&mut self.inner.lock().errands);
        if errands.is_empty() {
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        let poll = |errand: &mut Errand| errand.as_mut().poll(&mut context) == Poll::Pending;
        let unfinished: Vec<Errand> = { errands }.extract_if(.., poll).collect();
        self.inner.lock().errands.extend(unfinished);
    }

    /// Waits until there is something to do. False when the thread is to end.
    pub(crate) fn wait(&self, now: Duration) -> bool {
        let mut inner = self.inner.lock();
        if !inner.woken && !inner.stopped {
            match inner.set.first().map(|(at, _)| at.saturating_sub(now)) {
                Some(wait) if wait.is_zero() => {}
                Some(wait) => drop(self.changed.wait_for(&mut inner, wait)),
                None => self.changed.wait(&mut inner),
            }
        }
        inner.woken = false;
        !inner.stopped
    }
}

impl Wake for Alarms {
    fn wake(self: Arc<Self>) {
        self.inner.lock().woken = true;
        self.changed.notify_one();
    }
}
