//! Counts that can be added up and told apart: of messages, of what apps sent, and of how long
//! things took.

use std::collections::{BTreeMap, HashSet};

use punctual_broker::{Stats, TopicCounts};
use punctual_model::Buckets;
use serde::{Deserialize, Serialize};

use crate::access::{AppCounts, AppIdentity};

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident: $length:literal = $series:expr;) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name([u64; $length]);

        impl $name {
            /// What each number counts, in their order.
            pub(crate) const SERIES: [&'static str; $length] = $series;

            pub(crate) fn plus(self, other: Self) -> Self {
                let mut sum = self;
                for (number, more) in sum.0.iter_mut().zip(other.0) {
                    *number = number.saturating_add(more);
                }
                sum
            }

            pub(crate) fn minus(self, earlier: Self) -> Self {
                let mut rest = self;
                for (number, less) in rest.0.iter_mut().zip(earlier.0) {
                    *number = number.saturating_sub(less);
                }
                rest
            }

            /// How much there was of anything.
            pub(crate) fn activity(self) -> u64 {
                self.0.into_iter().fold(0, u64::saturating_add)
            }

            /// One of the numbers; nothing for another name.
            pub(crate) fn get(self, series: &str) -> u64 {
                let named = Self::SERIES.iter().zip(self.0).find(|(name, _)| **name == series);
                named.map_or(0, |(_, number)| number)
            }
        }
    };
}

counts! {
    /// What became of messages.
    MessageCounts: 9 = [
        "scheduled", "fired", "delivered", "received", "acked", "cancelled", "skipped", "retried",
        "dead",
    ];
}

counts! {
    /// What an app has sent.
    SentCounts: 3 = ["scheduled", "bytes", "refused"];
}

impl From<&Stats> for MessageCounts {
    fn from(stats: &Stats) -> Self {
        let dead = stats.dead.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
        Self([
            stats.scheduled,
            stats.fired,
            stats.delivered,
            stats.received,
            stats.acked,
            stats.cancelled,
            stats.skipped,
            stats.retries,
            dead,
        ])
    }
}

impl From<TopicCounts> for MessageCounts {
    fn from(of: TopicCounts) -> Self {
        Self([
            of.scheduled,
            of.fired,
            of.delivered,
            0,
            of.acked,
            of.cancelled,
            0,
            of.retried,
            of.dead,
        ])
    }
}

impl From<AppCounts> for SentCounts {
    fn from(of: AppCounts) -> Self {
        Self([of.scheduled, of.bytes, of.refused])
    }
}

/// All that is counted. Topics go by number: one that is made anew under its name is another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) whole: MessageCounts,
    pub(crate) topics: BTreeMap<u32, MessageCounts>,
    pub(crate) apps: BTreeMap<AppIdentity, SentCounts>,
}

impl Tally {
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.whole = sum.whole.plus(other.whole);
        for (topic, counts) in &other.topics {
            let known = sum.topics.entry(*topic).or_default();
            *known = known.plus(*counts);
        }
        for (app, counts) in &other.apps {
            let known = sum.apps.entry(app.clone()).or_default();
            *known = known.plus(*counts);
        }
        sum
    }

    /// Forgets topics and apps that are no more.
    pub(crate) fn keep(&mut self, topics: impl Fn(u32) -> bool, apps: &HashSet<AppIdentity>) {
        self.topics.retain(|topic, _| topics(*topic));
        // The built-in app need not have been used yet.
        self.apps.retain(|app, _| app.made == 0 || apps.contains(app));
    }
}

/// How long things took: how many took no longer than so many microseconds, and longer than the
/// bound before; the last bound is `u64::MAX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Spread(Vec<(u64, u64)>);

impl From<&Buckets> for Spread {
    fn from(buckets: &Buckets) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounds are positive and far below the largest number"
        )]
        let micros = |seconds: f64| (seconds * 1e6).round() as u64;
        let bounds = buckets.bounds.iter().map(|(bound, count)| (micros(*bound), *count));
        let mut before = 0;
        let in_bucket = |(bound, upto): (u64, u64)| {
            let count = upto.saturating_sub(before);
            before = upto.max(before);
            (bound, count)
        };
        let all = bounds.chain([(u64::MAX, buckets.count)]);
        Self(all.map(in_bucket).filter(|(_, count)| *count > 0).collect())
    }
}

impl Spread {
    fn combined(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        let mut sums: BTreeMap<u64, u64> = self.0.iter().copied().collect();
        for (bound, count) in &other.0 {
            let known = sums.entry(*bound).or_default();
            *known = combine(*known, *count);
        }
        Self(sums.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.combined(other, u64::saturating_add)
    }

    pub(crate) fn minus(&self, earlier: &Self) -> Self {
        self.combined(earlier, u64::saturating_sub)
    }

    /// What 99 of 100 took at most, in milliseconds; nothing where there was none, or where it is
    /// more than the bounds know.
    pub(crate) fn p99_ms(&self) -> Option<f64> {
        let all: u128 = self.0.iter().map(|(_, count)| u128::from(*count)).sum();
        let mut upto = 0;
        let (bound, _) = self.0.iter().find(|(_, count)| {
            upto += u128::from(*count) * 100;
            upto >= all * 99
        })?;
        let micros = u32::try_from(*bound).ok()?;
        Some(f64::from(micros) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_model::Histogram;

    use super::*;

    #[test]
    fn counts_are_added_up_and_told_apart() {
        let one = MessageCounts([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(one.plus(one).minus(one), one);
        assert_eq!(MessageCounts::default().minus(one), MessageCounts::default());
        assert_eq!((one.get("acked"), one.get("dead"), one.get("bytes")), (5, 9, 0));
        assert_eq!(one.activity(), 45);
        assert_eq!(SentCounts([1, 2, 3]).get("bytes"), 2);
    }

    #[test]
    fn a_spread_knows_what_was_slow_between_two_looks() {
        let histogram = Histogram::new(&[1_000, 2_500, 60_000_000]);
        histogram.note(Duration::from_secs(1));
        let before = Spread::from(&histogram.read());
        for _ in 0..99 {
            histogram.note(Duration::from_millis(1));
        }
        histogram.note(Duration::from_millis(2));
        let between = Spread::from(&histogram.read()).minus(&before);
        assert_eq!(between.p99_ms(), Some(1.0));
        assert_eq!(between.plus(&before), Spread::from(&histogram.read()));
        assert_eq!(before.p99_ms(), Some(60_000.0));
        assert_eq!(Spread::default().p99_ms(), None);
        histogram.note(Duration::from_secs(100));
        histogram.note(Duration::from_secs(100));
        let beyond = Spread::from(&histogram.read()).minus(&before);
        assert_eq!(beyond.p99_ms(), None, "past the last bound nobody knows");
    }
}
