//! How long a failed message waits before it is tried again. Pure: the dice are thrown elsewhere.
//!
//! A wait is never shorter than what the policy allows to be taken off it.

use punctual_model::Span;
use punctual_model::group::{Exponential, RetryPolicy};

/// The wait after the `failed`-th failure, counted from 1; `roll` is a random number.
#[must_use]
pub fn wait(policy: &RetryPolicy, failed: u16, roll: u64) -> Span {
    match policy {
        RetryPolicy::Ladder(rungs) => {
            let rung = usize::from(failed.saturating_sub(1)).min(rungs.len().saturating_sub(1));
            rungs.get(rung).copied().unwrap_or_default()
        }
        RetryPolicy::Exponential(policy) => exponential(policy, failed, roll),
    }
}

fn exponential(policy: &Exponential, failed: u16, roll: u64) -> Span {
    let max = policy.max.as_millis();
    let mut wait = policy.first.as_millis().min(max);
    for _ in 1..failed {
        let before = wait;
        // Rounded up, so that also a small factor gets ahead.
        wait = percent(wait, policy.factor_percent, u128::div_ceil).min(max);
        if wait == before {
            break;
        }
    }
    let jitter = u32::from(policy.jitter_percent.min(100));
    let off_max = percent(wait, jitter, |part, whole| part / whole);
    let off = off_max.checked_add(1).map_or(roll, |sides| roll % sides);
    Span::from_millis(wait - off)
}

fn percent(millis: u64, percent: u32, divide: fn(u128, u128) -> u128) -> u64 {
    let part = divide(u128::from(millis) * u128::from(percent), 100);
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(policy: &RetryPolicy, failed: u16, roll: u64) -> u64 {
        wait(policy, failed, roll).as_millis()
    }

    fn growing(first: u64, max: u64, factor_percent: u32, jitter_percent: u8) -> RetryPolicy {
        RetryPolicy::Exponential(Exponential {
            first: Span::from_millis(first),
            max: Span::from_millis(max),
            factor_percent,
            jitter_percent,
        })
    }

    #[test]
    fn the_rungs_come_in_turn_and_the_last_one_again() {
        let ladder = RetryPolicy::Ladder([10, 30, 20].map(Span::from_millis).into());
        let waits: Vec<u64> = (1..=5).map(|failed| millis(&ladder, failed, 7)).collect();
        assert_eq!(waits, [10, 30, 20, 20, 20]);
        assert_eq!(millis(&ladder, u16::MAX, 7), 20);
        assert_eq!(millis(&ladder, 0, 7), 10, "nothing failed counts as the first failure");
    }

    #[test]
    fn a_ladder_without_rungs_does_not_wait() {
        assert_eq!(wait(&RetryPolicy::Ladder([].into()), 3, 7), Span::ZERO);
    }

    #[test]
    fn exponential_waits_grow_to_the_longest() {
        let policy = growing(1000, 10_000, 200, 0);
        let waits: Vec<u64> = (1..=6).map(|failed| millis(&policy, failed, u64::MAX)).collect();
        assert_eq!(waits, [1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(millis(&policy, u16::MAX, 1), 10_000);
        let slow = growing(1, 1000, 101, 0);
        assert_eq!(millis(&slow, u16::MAX, 0), 1000, "rounding does not stop the growth");
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        let policy = growing(u64::MAX, u64::MAX, u32::MAX, 100);
        for roll in [0, 1, u64::MAX] {
            assert_eq!(millis(&policy, u16::MAX, roll), u64::MAX - roll);
        }
        assert_eq!(millis(&growing(5, 3, 0, 255), 9, 0), 0);
    }

    proptest! {
        #[test]
        fn jitter_takes_off_no_more_than_its_share(
            first in any::<u64>(),
            max in any::<u64>(),
            factor in any::<u32>(),
            jitter in 0..=100u8,
            failed in any::<u16>(),
            roll in any::<u64>(),
        ) {
            let full = millis(&growing(first, max, factor, 0), failed, roll);
            let short = millis(&growing(first, max, factor, jitter), failed, roll);
            prop_assert!(short <= full && full <= max);
            let least = u128::from(full) * u128::from(100 - jitter);
            prop_assert!(u128::from(short) * 100 >= least);
        }

        #[test]
        fn the_next_wait_is_no_shorter(
            first in 1..1_000_000u64, factor in 100..1000u32, failed in 1..200u16
        ) {
            let policy = growing(first, 1 << 40, factor, 0);
            prop_assert!(millis(&policy, failed, 0) <= millis(&policy, failed + 1, 0));
        }
    }
}
