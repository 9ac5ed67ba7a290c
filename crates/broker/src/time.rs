//! The broker clock: the wall clock, carried forward by the monotonic one where the wall clock
//! falls back.
//!
//! It never runs backwards inside one process. A forward step of the wall clock is followed at
//! once. After a small backward step the broker clock stands still until the wall clock has caught
//! up; after a large one it goes on at the pace of the monotonic clock, ahead of the wall, so that
//! delays keep their length. Dates are compared with the wall clock itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::{Clock, Reading, Timestamp};

/// Backward steps up to this are waited out.
const PATIENCE: Duration = Duration::from_millis(500);
/// Steps of at least this are reported.
const REPORT: Duration = Duration::from_secs(1);

/// What time it is, in both senses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The broker clock, since the epoch.
    pub broker: Duration,
    /// The wall clock, since the epoch; never ahead of `broker`.
    pub wall: Duration,
}

impl Now {
    /// The broker clock in whole milliseconds, rounded down.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        floor(self.broker)
    }

    /// The wall clock in whole milliseconds, rounded down.
    #[must_use]
    pub fn wall_timestamp(&self) -> Timestamp {
        floor(self.wall)
    }

    /// The broker clock rounded up, from which delays are counted: none is ever cut short.
    #[must_use]
    pub fn timestamp_up(&self) -> Timestamp {
        floor(self.broker + Duration::from_nanos(999_999))
    }
}

fn floor(time: Duration) -> Timestamp {
    Timestamp::from_millis_saturating(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The broker clock.
#[derive(Debug)]
pub struct BrokerTime {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
    steps: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    monotonic: Duration,
    broker: Duration,
    ahead: Duration,
}

impl BrokerTime {
    /// A broker clock that starts at the wall clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let Reading { wall, monotonic } = clock.read();
        let last = Last { monotonic, broker: wall, ahead: Duration::ZERO };
        Self { clock, last: Mutex::new(last), steps: AtomicU64::new(0) }
    }

    /// What time it is.
    #[must_use]
    pub fn read(&self) -> Now {
        let mut last = self.last.lock();
        // Read under the lock, so that two callers do not disturb each other's order.
        let Reading { wall, monotonic } = self.clock.read();
        let passed = monotonic.saturating_sub(last.monotonic);
        let expected = last.broker + passed;
        let behind = expected.saturating_sub(wall);
        let broker = if behind.is_zero() {
            wall
        } else if behind <= PATIENCE {
            last.broker.max(wall)
        } else {
            expected
        };
        let ahead = broker.saturating_sub(wall);
        let forward = wall.saturating_sub(expected);
        let backward = ahead.saturating_sub(last.ahead + passed.min(PATIENCE));
        *last = Last { monotonic, broker, ahead };
        drop(last);
        if forward >= REPORT {
            self.report("forward", forward);
        } else if backward >= REPORT {
            self.report("backward", backward);
        }
        Now { broker, wall: wall.min(broker) }
    }

    /// How many steps were reported.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    fn report(&self, direction: &str, by: Duration) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(direction, by_ms, "the wall clock was stepped, or the process was paused");
    }
}
