//! How long to wait before trying again.
//!
//! What must hold: waits double up to a limit and never all at the same moment, so that clients
//! that lost one broker at once do not come back at once.

use std::time::Duration;

/// How to go on after something failed that may pass.
///
/// The first repetition comes after about `first`, each further one after about twice as long, at
/// most `longest`; each wait is shortened by a random part of up to a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// After this time, counted from the start, the operation fails.
    pub give_up_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            longest: Duration::from_secs(2),
            give_up_after: Duration::from_secs(120),
        }
    }
}

/// Counts failures in a row and says how long to wait after the last.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    policy: RetryPolicy,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, next: policy.first }
    }

    /// The wait after one more failure.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let whole = self.next.min(self.policy.longest);
        self.next = whole.saturating_mul(2).min(self.policy.longest);
        let half = whole / 2;
        half + half.mul_f64(random_part())
    }

    /// Something worked.
    pub(crate) fn reset(&mut self) {
        self.next = self.policy.first;
    }
}

/// A random number from 0 to 1. Without randomness it is 1: the wait is then merely not spread.
fn random_part() -> f64 {
    getrandom::u32().map_or(1.0, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_after_a_success() {
        let policy = RetryPolicy {
            first: Duration::from_millis(100),
            longest: Duration::from_millis(350),
            ..RetryPolicy::default()
        };
        let mut backoff = Backoff::new(policy);
        for whole in [100, 200, 350, 350, 350] {
            let (wait, whole) = (backoff.after_failure(), Duration::from_millis(whole));
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.after_failure() <= Duration::from_millis(100));
    }
}
