//! What the broker counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_model::TopicName;

/// Upper bounds of the lateness buckets, in microseconds.
pub const LATENESS_BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// Counters that only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Messages accepted.
    pub scheduled: AtomicU64,
    /// Messages whose moment came.
    pub fired: AtomicU64,
    /// Messages the outlet took.
    pub delivered: AtomicU64,
    /// Messages cancelled.
    pub cancelled: AtomicU64,
    /// How late messages were delivered.
    pub lateness: Histogram,
}

/// Counts by upper bound; the last bucket is unbounded.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; LATENESS_BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts one value.
    pub fn note(&self, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        let place = LATENESS_BOUNDS_MICROS.partition_point(|&bound| bound < micros);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self) -> Buckets {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        Buckets::new(&LATENESS_BOUNDS_MICROS, &counts, self.micros.load(Ordering::Relaxed))
    }
}

/// A histogram as it is shown: cumulative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// Upper bound in seconds and how many values are not above it.
    pub bounds: Vec<(f64, u64)>,
    /// Sum of all values, in seconds.
    pub sum: f64,
    /// Number of values.
    pub count: u64,
}

impl Buckets {
    /// From counts per bucket, the last one unbounded, and a sum in microseconds.
    #[must_use]
    pub fn new(bounds_micros: &[u64], counts: &[u64], sum_micros: u64) -> Self {
        let mut below = 0;
        let mut bounds = Vec::with_capacity(bounds_micros.len());
        for (&bound, &count) in bounds_micros.iter().zip(counts) {
            below += count;
            bounds.push((seconds(bound), below));
        }
        Self { bounds, sum: seconds(sum_micros), count: counts.iter().sum() }
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

/// A look at the counters.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Messages accepted since the start.
    pub scheduled: u64,
    /// Messages whose moment came since the start.
    pub fired: u64,
    /// Messages the outlet took since the start.
    pub delivered: u64,
    /// Messages cancelled since the start.
    pub cancelled: u64,
    /// Pending messages of each topic that has any.
    pub pending: Vec<(TopicName, u64)>,
    /// How late messages were delivered.
    pub lateness: Buckets,
    /// Steps of the wall clock noticed since the start.
    pub clock_steps: u64,
}

impl Counters {
    pub(crate) fn read(&self, pending: Vec<(TopicName, u64)>, clock_steps: u64) -> Stats {
        Stats {
            scheduled: self.scheduled.load(Ordering::Relaxed),
            fired: self.fired.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            pending,
            lateness: self.lateness.read(),
            clock_steps,
        }
    }
}
