//! The clock seam, and the only code that reads the machine's clocks.
//!
//! A reading pairs the wall clock with the monotonic one, because only the pair tells a step of
//! the wall clock from time that really passed. What follows from a step is decided in
//! `broker::time`, not here.

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
