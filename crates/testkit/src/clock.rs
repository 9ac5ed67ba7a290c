//! A clock that stands still until a test moves it.
//!
//! The wall clock and the monotonic one move separately, as they do when somebody sets the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_model::{Clock, Reading, Span, Timestamp};

/// A clock moved by hand; clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    reading: Arc<Mutex<Reading>>,
}

impl ManualClock {
    /// A clock whose wall shows `wall` and whose monotonic part is at zero.
    #[must_use]
    pub fn new(wall: Timestamp) -> Self {
        let wall = Duration::from_millis(wall.as_millis());
        Self { reading: Arc::new(Mutex::new(Reading { wall, monotonic: Duration::ZERO })) }
    }

    /// Lets time pass: both clocks move.
    pub fn advance(&self, span: Span) {
        let span = Duration::from_millis(span.as_millis());
        let mut reading = self.lock();
        reading.wall = reading.wall.saturating_add(span);
        reading.monotonic = reading.monotonic.saturating_add(span);
    }

    /// Steps the wall clock by `millis`, forwards or backwards but not before the epoch; no time
    /// passes.
    pub fn step_wall(&self, millis: i64) {
        let step = Duration::from_millis(millis.unsigned_abs());
        let mut reading = self.lock();
        reading.wall = if millis < 0 {
            reading.wall.saturating_sub(step)
        } else {
            reading.wall.saturating_add(step)
        };
    }

    /// Sets the wall clock; no time passes.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().wall = Duration::from_millis(wall.as_millis());
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.read().timestamp()
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        // A reading is whole at every moment, so a panic elsewhere has not broken it.
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_clocks_move_separately() {
        let start = Timestamp::from_millis(1_000_000).unwrap();
        let clock = ManualClock::new(start);
        let other = clock.clone();
        clock.advance(Span::from_secs(5));
        assert_eq!(other.now().since(start), Span::from_secs(5));
        assert_eq!(other.read().monotonic, Duration::from_secs(5));

        clock.step_wall(-2000);
        assert_eq!(clock.now().since(start), Span::from_secs(3));
        clock.step_wall(1000);
        assert_eq!(clock.now().since(start), Span::from_secs(4));
        clock.step_wall(i64::MIN);
        assert_eq!(clock.now(), Timestamp::MIN);
        clock.set_wall(start);
        assert_eq!(clock.now(), start);
        assert_eq!(clock.read().monotonic, Duration::from_secs(5));
    }
}
