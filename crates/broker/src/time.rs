//! The broker clock: the wall clock, carried forward by the monotonic one where the wall clock
//! falls back.
//!
//! It never runs backwards inside one process. A forward step of the wall clock is followed at
//! once. After a small backward step the broker clock stands still until the wall clock has caught
//! up; after a large one it goes on at the pace of the monotonic clock, ahead of the wall, so that
//! delays keep their length. Dates are compared with the wall clock itself.
//!
//! A clock that is moved by hand is moved only when nobody has anything to do at the time it shows;
//! that is why whoever has work in hand says so here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::{Clock, Reading, Timestamp, VirtualClock};

use crate::activity::Activity;

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
    /// Time since a fixed point, whatever becomes of the wall clock.
    pub monotonic: Duration,
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
    activity: Activity,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    monotonic: Duration,
    wall: Duration,
    broker: Duration,
}

impl BrokerTime {
    /// A broker clock that starts at the wall clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let Reading { wall, monotonic } = clock.read();
        let last = Last { monotonic, wall, broker: wall };
        let activity = Activity::default();
        Self { clock, last: Mutex::new(last), steps: AtomicU64::new(0), activity }
    }

    /// Who has work in hand.
    #[must_use]
    pub const fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The clock behind this one, if it only moves when somebody moves it.
    #[must_use]
    pub fn by_hand(&self) -> Option<&VirtualClock> {
        self.clock.by_hand()
    }

    /// Whether time stands still until somebody moves it. Then nobody waits for a time to come.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.by_hand().is_some()
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
        // A step is what the wall clock did beyond the time that passed, wherever the broker clock
        // stood: also the way back from an earlier step is one.
        let unstepped = last.wall + passed;
        let (forward, backward) = (wall.saturating_sub(unstepped), unstepped.saturating_sub(wall));
        *last = Last { monotonic, wall, broker };
        drop(last);
        if forward >= REPORT {
            self.report("forward", forward);
        } else if backward >= REPORT {
            self.report("backward", backward);
        }
        Now { broker, wall: wall.min(broker), monotonic }
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

#[cfg(test)]
mod tests {
    use punctual_model::Span;
    use punctual_testkit::ManualClock;

    use super::*;

    const START: Duration = Duration::from_secs(1_800_000_000);

    /// Each line: milliseconds that pass, milliseconds by which the wall clock is then stepped, and
    /// what the broker clock and the wall clock show, in milliseconds since the start.
    fn check(table: &str) -> u64 {
        let clock = ManualClock::new(floor(START));
        let time = BrokerTime::new(Arc::new(clock.clone()));
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let numbers = line.split_whitespace().map(|word| word.parse::<i64>().unwrap());
            let [passed, step, broker, wall] = numbers.collect::<Vec<_>>()[..] else {
                panic!("four numbers, not {line:?}");
            };
            clock.advance(Span::from_millis(passed.unsigned_abs()));
            clock.step_wall(step);
            let now = time.read();
            let since = |point: Duration| {
                i64::try_from(point.as_millis()).unwrap()
                    - i64::try_from(START.as_millis()).unwrap()
            };
            assert_eq!((since(now.broker), since(now.wall)), (broker, wall), "at {line:?}");
        }
        time.steps()
    }

    #[test]
    fn it_follows_the_wall_clock() {
        let steps = check(
            "
                0        0        0        0
                1        0        1        1
              250        0      251      251
            60000        0    60251    60251
        ",
        );
        assert_eq!(steps, 0);
    }

    #[test]
    fn a_forward_step_is_followed_at_once() {
        let steps = check(
            "
              100        0      100      100
                0        1      101      101
                0     1000     1101     1101
               10  3600000  3601111  3601111
               10        0  3601121  3601121
        ",
        );
        assert_eq!(steps, 2, "from one second on");
    }

    #[test]
    fn a_small_backward_step_is_waited_out() {
        let steps = check(
            "
             1000        0     1000     1000
                0     -500     1000      500
              100        0     1000      600
              400        0     1000     1000
                1        0     1001     1001
                0       -1     1001     1000
                1        0     1001     1001
        ",
        );
        assert_eq!(steps, 0);
    }

    #[test]
    fn after_a_large_backward_step_it_goes_on_at_the_monotonic_pace() {
        let steps = check(
            "
             1000        0     1000     1000
                0  -100000     1000   -99000
              100        0     1100   -98900
            10000        0    11100   -88900
        ",
        );
        assert_eq!(steps, 1);
    }

    #[test]
    fn small_steps_that_add_up_are_a_large_one() {
        check(
            "
             1000        0     1000     1000
                0     -400     1000      600
              100        0     1000      700
                0     -400     1000      300
              100        0     1100      400
              100        0     1200      500
        ",
        );
    }

    #[test]
    fn the_way_back_ends_the_lead() {
        let steps = check(
            "
                0  3600000  3600000  3600000
               10 -3600000  3600010       10
             1000        0  3601010     1010
                0  3599900  3601010  3600910
               50        0  3601010  3600960
               50        0  3601010  3601010
               50        0  3601060  3601060
        ",
        );
        assert_eq!(steps, 3, "the way back is a step too");
    }

    #[test]
    fn a_step_is_reported_whatever_time_passed_since_the_last_reading() {
        for passed in [0, 1, 250, 499, 500, 10_000] {
            let (broker, wall) = (passed, passed - 1000);
            let table = format!("{passed} -1000 {broker} {wall}\n1 0 {} {}", broker + 1, wall + 1);
            assert_eq!(check(&table), 1, "after {passed} ms");
            let table = format!("{passed} -999 {broker} {}", wall + 1);
            assert_eq!(check(&table), 0, "after {passed} ms");
        }
    }

    #[test]
    fn a_pause_in_which_both_clocks_run_is_no_step() {
        assert_eq!(check("60000 0 60000 60000"), 0);
    }

    #[test]
    fn a_wall_clock_at_half_pace_is_followed() {
        check(
            "
              100      -50       50       50
              100      -50      100      100
              100      -50      150      150
        ",
        );
    }

    #[test]
    fn it_never_runs_backwards_and_the_wall_is_never_ahead_of_it() {
        let clock = ManualClock::new(floor(START));
        let time = BrokerTime::new(Arc::new(clock.clone()));
        let mut last = time.read().broker;
        let mut dice: u64 = 7;
        for _ in 0..100_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            let size = 1i64 << ((dice >> 40) % 30);
            match (dice >> 33) % 4 {
                0 => clock.step_wall(size),
                1 => clock.step_wall(-size),
                _ => clock.advance(Span::from_millis((dice >> 50) % 1000)),
            }
            let now = time.read();
            assert!(last <= now.broker && now.wall <= now.broker);
            last = now.broker;
        }
    }

    #[test]
    fn delays_are_counted_from_the_next_whole_millisecond() {
        let broker = Duration::from_nanos(5_000_001);
        let monotonic = Duration::ZERO;
        let now = Now { broker, wall: broker, monotonic };
        assert_eq!((now.timestamp().as_millis(), now.timestamp_up().as_millis()), (5, 6));
        let whole = Now { broker: Duration::from_millis(5), wall: broker, monotonic };
        assert_eq!(whole.timestamp_up().as_millis(), 5);
    }
}
