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

use crate::activity::{Activity, Work};
use crate::time::BrokerTime;

/// Something to be seen to its end.
pub(crate) type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When which group has something to do.
pub(crate) struct Alarms {
    inner: Mutex<Inner>,
    changed: Condvar,
    activity: Activity,
    /// Time stands still: alarms ring when somebody has moved it.
    by_hand: bool,
}

#[derive(Default)]
struct Inner {
    /// On the monotonic clock. A group that has nothing to do when its alarm rings does nothing.
    set: BTreeSet<(Duration, GroupId)>,
    errands: Vec<Errand>,
    woken: bool,
    stopped: bool,
    /// There unless the thread has nothing to do at the present time.
    work: Option<Work>,
}

impl std::fmt::Debug for Alarms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarms").field("set", &self.inner.lock().set.len()).finish_non_exhaustive()
    }
}

impl Alarms {
    /// No alarm set.
    pub(crate) fn new(time: &BrokerTime) -> Self {
        let (inner, changed) = Default::default();
        Self { inner, changed, activity: time.activity().clone(), by_hand: time.is_by_hand() }
    }

    /// When the first alarm rings.
    pub(crate) fn first(&self) -> Option<Duration> {
        self.inner.lock().set.first().map(|(at, _)| *at)
    }

    /// Time was moved.
    pub(crate) fn look(&self) {
        self.wake_up(&mut self.inner.lock());
    }

    fn wake_up(&self, inner: &mut Inner) {
        if !inner.stopped {
            inner.work.get_or_insert_with(|| self.activity.begin());
        }
        inner.woken = true;
        self.changed.notify_one();
    }

    /// Rings for a group at a time on the monotonic clock.
    pub(crate) fn set(&self, at: Duration, group: GroupId) {
        let mut inner = self.inner.lock();
        let first = inner.set.first().is_none_or(|(first, _)| at < *first);
        inner.set.insert((at, group));
        if first {
            self.wake_up(&mut inner);
        }
    }

    /// Takes over what somebody has begun.
    pub(crate) fn adopt(&self, errand: Errand) {
        let mut inner = self.inner.lock();
        if !inner.stopped {
            inner.errands.push(errand);
            self.wake_up(&mut inner);
        }
    }

    /// The thread is to end.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.stopped = true;
        inner.work = None;
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
            // What was taken over goes on elsewhere and is not done yet.
            if inner.errands.is_empty() {
                inner.work = None;
            }
            let first = if self.by_hand { None } else { inner.set.first() };
            match first.map(|(at, _)| at.saturating_sub(now)) {
                Some(wait) if wait.is_zero() => {}
                Some(wait) => drop(self.changed.wait_for(&mut inner, wait)),
                None => self.changed.wait(&mut inner),
            }
            if !inner.stopped {
                inner.work.get_or_insert_with(|| self.activity.begin());
            }
        }
        inner.woken = false;
        !inner.stopped
    }
}

impl Wake for Alarms {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}
