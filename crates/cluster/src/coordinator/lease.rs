//! How long a node may believe in its lease, by a clock that goes on while the machine sleeps.
//!
//! A lease is counted from the moment before its renewal was sent, and given up well before its
//! end, so a node stops by itself before the service can have given its slots to another one. What
//! must hold: [`Lease::is_certain`] reads the clock at each call, so it is right after a pause of
//! any length without anybody having noticed the pause.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of the clock that a lease is measured by: time since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    /// That much later.
    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

/// Where the time of leases comes from.
pub(crate) trait Timing: Send + Sync + 'static {
    /// The time. Goes on while the process is stopped and while the machine sleeps.
    fn now(&self) -> Moment;

    /// Waits until then; at least so long, and as a rule not much longer.
    fn wait_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootTiming;

impl Timing for BootTiming {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Moment(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    fn wait_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                let left = moment.0.saturating_sub(BootTiming.now().0);
                if left.is_zero() {
                    return;
                }
                // The runtime's timers stand still while the machine sleeps, so a long wait is
                // made of short ones. Nothing but the time ends it.
                let step = left.min(Duration::from_secs(1));
                let _elapsed = tokio::time::timeout(step, std::future::pending::<()>()).await;
            }
        })
    }
}

/// What part of a lease is not believed in: renewals on their way, clocks that differ in speed, and
/// a server of the service that is a little behind the others.
const MARGIN_PART: u32 = 3;

/// How often a lease is renewed while it lasts.
const RENEWALS: u32 = 6;

/// How long the lease that a node holds may be believed in.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Milliseconds of the clock; 0 without a lease.
    certain_until: AtomicU64,
}

impl Lease {
    /// The lease was granted or renewed for `length` by a call that was begun at `sent`.
    pub(crate) fn renewed(&self, sent: Moment, length: Duration) {
        let until = sent.after(length - length / MARGIN_PART);
        let until = u64::try_from(until.0.as_millis()).unwrap_or(u64::MAX);
        self.certain_until.fetch_max(until, Ordering::SeqCst);
    }

    /// There is no lease any more.
    pub(crate) fn lost(&self) {
        self.certain_until.store(0, Ordering::SeqCst);
    }

    /// Whether it may be believed in.
    pub(crate) fn is_certain(&self, now: Moment) -> bool {
        now < self.certain_until()
    }

    /// Until when it may be believed in.
    pub(crate) fn certain_until(&self) -> Moment {
        Moment(Duration::from_millis(self.certain_until.load(Ordering::SeqCst)))
    }
}

/// How long after one renewal the next one is due.
pub(crate) fn renewal_interval(length: Duration) -> Duration {
    length / RENEWALS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment(Duration::from_millis(millis))
    }

    #[test]
    fn a_lease_is_believed_in_until_its_margin_from_when_it_was_sent() {
        let lease = Lease::default();
        assert!(!lease.is_certain(at(0)));
        lease.renewed(at(1000), Duration::from_secs(9));
        assert!(lease.is_certain(at(6999)));
        assert!(!lease.is_certain(at(7000)));
        lease.renewed(at(500), Duration::from_secs(9));
        assert_eq!(lease.certain_until(), at(7000), "an answer that was long under way");
        lease.lost();
        assert!(!lease.is_certain(at(1)));
    }

    #[test]
    fn the_machine_s_clock_goes_on() {
        let before = BootTiming.now();
        assert!(before.0 > Duration::ZERO);
        while BootTiming.now() == before {
            std::hint::spin_loop();
        }
        assert!(BootTiming.now() > before);
    }
}
