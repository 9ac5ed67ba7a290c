//! The rate cap of a topic: how many of its messages fire in a second, and who waits for a turn.
//!
//! A token bucket: in any stretch of time at most the rate times its length fires, plus one
//! [`burst`]. What waits is not claimed, so it can be cancelled and changed. It waits in the order
//! of due time and acceptance; what does not fit into memory is sent back to the timeline, due when
//! its turn comes, and keeps its place: while it is away nothing that belongs behind it fires.
//!
//! Pure: time enters as a number.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_model::ports::Armed;
use punctual_model::{Key, Timestamp};

use crate::time::Now;

/// A token, in the unit in which credit is counted: it grows by the rate every nanosecond.
const TOKEN: u128 = 1_000_000_000;
/// So much before its turn a message is back from the timeline, in messages that fire meanwhile
/// and in time, whichever is less.
const EARLY_MESSAGES: u32 = 2048;
const EARLY: Duration = Duration::from_secs(1);

/// How many messages may fire at once after a quiet time: a tenth of a second's, and one at least.
#[must_use]
pub const fn burst(rate: u32) -> u32 {
    if rate < 10 { 1 } else { rate / 10 }
}

/// Credit that grows with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: u32,
    credit: u128,
    /// On the monotonic clock.
    at: Duration,
}

impl Bucket {
    /// A full one. A rate of nothing counts as one message a second.
    pub(crate) fn new(rate: u32, now: Duration) -> Self {
        let rate = rate.max(1);
        Self { rate, credit: u128::from(burst(rate)) * TOKEN, at: now }
    }

    /// Changes the rate from now on.
    pub(crate) fn set_rate(&mut self, rate: u32, now: Duration) {
        self.refill(now);
        self.rate = rate.max(1);
        self.credit = self.credit.min(u128::from(burst(self.rate)) * TOKEN);
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.refill(now);
        match self.credit.checked_sub(TOKEN) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }

    /// How long until the token after `ahead` others is there.
    pub(crate) fn wait(&self, now: Duration, ahead: usize) -> Duration {
        let rate = u128::from(self.rate);
        let credit = self.credit + now.saturating_sub(self.at).as_nanos() * rate;
        let missing = (ahead as u128 + 1).saturating_mul(TOKEN).saturating_sub(credit);
        Duration::from_nanos(u64::try_from(missing.div_ceil(rate)).unwrap_or(u64::MAX))
    }

    /// The time from one turn to the next.
    fn interval(&self) -> Duration {
        let nanos = TOKEN.div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_nanos();
        let full = u128::from(burst(self.rate)) * TOKEN;
        self.credit = full.min(self.credit + passed * u128::from(self.rate));
        self.at = self.at.max(now);
    }
}

/// The messages of a topic that wait for their turn.
#[derive(Debug)]
pub(crate) struct Line {
    bucket: Bucket,
    waiting: BTreeMap<Key, Armed>,
    bytes: usize,
    away: Option<Away>,
}

/// What was sent back to the timeline.
#[derive(Clone, Copy, Debug)]
struct Away {
    /// The place of the last one.
    last: Key,
    /// The turn of the last one, on the broker clock.
    turn: Duration,
    /// When the last one is back.
    back: Timestamp,
}

impl Line {
    pub(crate) fn new(rate: u32, now: Now) -> Self {
        let bucket = Bucket::new(rate, now.monotonic);
        Self { bucket, waiting: BTreeMap::new(), bytes: 0, away: None }
    }

    pub(crate) fn set_rate(&mut self, rate: u32, now: Now) {
        if self.bucket.rate != rate.max(1) {
            self.bucket.set_rate(rate, now.monotonic);
        }
    }

    /// Messages that wait here, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.waiting.len(), self.bytes)
    }

    /// When the first one that waits was due.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.waiting.first_key_value().map(|(key, _)| key.due)
    }

    pub(crate) fn join(&mut self, armed: Armed) {
        self.bytes += armed.message.weight();
        if let Some(before) = self.waiting.insert(place(&armed), armed) {
            // A change of the message has brought it here a second time; the older entry is void.
            self.bytes = self.bytes.saturating_sub(before.message.weight());
        }
    }

    /// The next one, if its turn has come.
    pub(crate) fn next(&mut self, now: Now) -> Option<Armed> {
        let first = *self.waiting.first_key_value()?.0;
        if self.blocked(first, now).is_some() || !self.bucket.take(now.monotonic) {
            return None;
        }
        self.remove_first()
    }

    /// Everything that waits here, in order.
    pub(crate) fn clear(&mut self) -> Vec<Armed> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// When to ask again for the next one, on the broker clock.
    pub(crate) fn next_turn(&self, now: Now) -> Option<Duration> {
        let first = *self.waiting.first_key_value()?.0;
        let token = now.broker + self.bucket.wait(now.monotonic, 0);
        let back = self.blocked(first, now).map(|back| Duration::from_millis(back.as_millis()));
        Some(back.map_or(token, |back| back.max(token)))
    }

    /// Sends the last ones away until `messages` and `bytes` are left, in order and each with the
    /// time at which it should be back.
    pub(crate) fn shed(
        &mut self,
        messages: usize,
        bytes: usize,
        now: Now,
    ) -> Vec<(Armed, Timestamp)> {
        let mut gone = Vec::new();
        while self.waiting.len() > messages || self.bytes > bytes {
            let Some((_, last)) = self.waiting.pop_last() else { break };
            self.bytes = self.bytes.saturating_sub(last.message.weight());
            gone.push(last);
        }
        gone.reverse();
        let interval = self.bucket.interval();
        let early = EARLY.min(interval.saturating_mul(EARLY_MESSAGES));
        let first = now.broker + self.bucket.wait(now.monotonic, self.waiting.len());
        let mut turn = match self.away {
            Some(away) => first.max(away.turn + interval),
            None => first,
        };
        let mut sent = Vec::with_capacity(gone.len());
        for armed in gone {
            // Not now, or it would be here again before anything has moved.
            let soon = now.timestamp().as_millis() + 1;
            let back = u64::try_from(turn.saturating_sub(early).as_millis()).unwrap_or(u64::MAX);
            let back = Timestamp::from_millis_saturating(back.max(soon));
            let last = self.away.map_or_else(|| place(&armed), |away| away.last.max(place(&armed)));
            self.away = Some(Away { last, turn, back });
            turn = turn.saturating_add(interval);
            sent.push((armed, back));
        }
        sent
    }

    /// Until when one that stands at `key` has to let others pass that are away.
    fn blocked(&self, key: Key, now: Now) -> Option<Timestamp> {
        let away = self.away.filter(|away| away.last < key && away.back >= now.timestamp())?;
        Some(Timestamp::from_millis_saturating(away.back.as_millis() + 1))
    }

    fn remove_first(&mut self) -> Option<Armed> {
        let (_, armed) = self.waiting.pop_first()?;
        self.bytes = self.bytes.saturating_sub(armed.message.weight());
        Some(armed)
    }
}

/// Where a message stands in the line of its topic: by its due time, then by acceptance. What the
/// broker itself has moved keeps the place it was accepted with; a change that somebody asked for
/// gives it another.
pub(crate) fn place(armed: &Armed) -> Key {
    let changed = armed.extra.as_ref().and_then(|extra| extra.changed);
    match changed {
        Some(changed) if changed.version == 1 && !changed.first.due.is_parked() => changed.first,
        _ => armed.key,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_full_bucket_gives_a_burst_and_then_one_token_after_the_other() {
        let mut bucket = Bucket::new(100, millis(5));
        let at_once = (0..50).filter(|_| bucket.take(millis(5))).count();
        assert_eq!(at_once, 10);
        assert_eq!(bucket.wait(millis(5), 0), millis(10));
        assert_eq!(bucket.wait(millis(8), 1), millis(17));
        assert!(!bucket.take(millis(14)));
        assert!(bucket.take(millis(15)) && !bucket.take(millis(15)));
    }

    #[test]
    fn the_slowest_rate_lets_one_pass_at_a_time() {
        let mut bucket = Bucket::new(1, Duration::ZERO);
        assert!(bucket.take(Duration::ZERO) && !bucket.take(millis(999)));
        assert!(bucket.take(millis(1000)) && !bucket.take(millis(1000)));
        assert!(bucket.take(millis(10_000)) && !bucket.take(millis(10_000)), "no more than one");
    }

    #[test]
    fn a_new_rate_counts_from_the_change_on() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        bucket.set_rate(10, Duration::ZERO);
        assert_eq!((0..10).filter(|_| bucket.take(Duration::ZERO)).count(), 1);
        assert_eq!(bucket.wait(Duration::ZERO, 0), millis(100));
    }

    proptest! {
        /// In any stretch of time: the rate times its length, and one burst.
        #[test]
        fn no_stretch_of_time_has_more_than_its_share(
            rate in 1..2000u32,
            pauses in prop::collection::vec(0..100_000u64, 1..50),
        ) {
            let mut bucket = Bucket::new(rate, Duration::ZERO);
            let mut now = Duration::ZERO;
            let mut taken: Vec<Duration> = Vec::new();
            for pause in pauses {
                now += Duration::from_micros(pause);
                while bucket.take(now) {
                    taken.push(now);
                }
                prop_assert!(!bucket.wait(now, 0).is_zero());
                let next = now + bucket.wait(now, 0);
                prop_assert!({ bucket }.take(next), "it is there when it was said to be");
            }
            // What each one is ahead of the rate; no two may be further apart than the burst.
            let ahead = taken.iter().enumerate().map(|(nth, at)| {
                i128::try_from(nth as u128 * TOKEN).unwrap()
                    - i128::try_from(at.as_nanos() * u128::from(rate)).unwrap()
            });
            let mut least = i128::MAX;
            for ahead in ahead {
                least = least.min(ahead);
                let over = ahead - least + i128::try_from(TOKEN).unwrap();
                prop_assert!(over <= i128::try_from(u128::from(burst(rate)) * TOKEN).unwrap());
            }
        }
    }
}
