//! The clock seam, and the only code that reads the machine's clocks.
//!
//! [`VirtualClock`] reads none: it stands still until somebody moves it.
//!
//! A reading pairs the wall clock with the monotonic one, because only the pair tells a step of
//! the wall clock from time that really passed. What follows from a step is decided in
//! `broker::time`, not here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

/// What the machine's clocks showed at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Wall-clock time since the Unix epoch; zero when the wall clock shows an earlier date.
    pub wall: Duration,
    /// Time since an arbitrary fixed point; never runs backwards.
    pub monotonic: Duration,
}

impl Reading {
    /// The wall clock rounded down to the millisecond, so that nothing is ever early.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis_saturating(u64::try_from(self.wall.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Where time comes from. `testkit::conformance::clock` holds every clock to this text.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// Both clocks, read together. The monotonic part never decreases between two calls.
    fn read(&self) -> Reading;

    /// Itself, if it only moves when somebody moves it.
    fn by_hand(&self) -> Option<&VirtualClock> {
        None
    }
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic part starts at zero now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the seam that reads the clock")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the seam that reads the clock")]
    fn read(&self) -> Reading {
        let monotonic = self.started.elapsed();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading { wall, monotonic }
    }
}

/// A clock for trying out in moments what takes days: both its parts stand still until it is moved,
/// and then move together.
#[derive(Debug)]
pub struct VirtualClock {
    start: Timestamp,
    passed_ms: AtomicU64,
}

impl VirtualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub const fn new(start: Timestamp) -> Self {
        Self { start, passed_ms: AtomicU64::new(0) }
    }

    /// Moves it to a time. It never moves back.
    pub fn move_to(&self, time: Timestamp) {
        self.passed_ms.fetch_max(time.since(self.start).as_millis(), Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn read(&self) -> Reading {
        let monotonic = Duration::from_millis(self.passed_ms.load(Ordering::SeqCst));
        Reading { wall: Duration::from_millis(self.start.as_millis()) + monotonic, monotonic }
    }

    fn by_hand(&self) -> Option<&VirtualClock> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn a_virtual_clock_moves_forwards_only_and_only_when_told() {
        let start = Timestamp::from_millis_saturating(1_800_000_000_000);
        let clock = VirtualClock::new(start);
        assert_eq!(clock.read(), clock.read());
        clock.move_to(start.saturating_add(Span::from_days(30)));
        clock.move_to(start);
        assert_eq!(clock.read().timestamp().since(start), Span::from_days(30));
        assert_eq!(clock.read().monotonic, Duration::from_secs(30 * 86_400));
        assert!(clock.by_hand().is_some() && SystemClock::new().by_hand().is_none());
    }
}
