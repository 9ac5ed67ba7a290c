//! Counting durations by upper bound, from any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts by upper bound; the last bucket is unbounded.
#[derive(Debug)]
pub struct Histogram {
    bounds_micros: &'static [u64],
    buckets: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Nothing counted yet; `bounds_micros` grow.
    #[must_use]
    pub fn new(bounds_micros: &'static [u64]) -> Self {
        let buckets = (0..=bounds_micros.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_micros, buckets, sum_micros: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn note(&self, value: Duration) {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        let place = self.bounds_micros.partition_point(|&bound| bound < micros);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Buckets {
        let mut counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let mut count = 0;
        let mut bounds = Vec::with_capacity(self.bounds_micros.len());
        for (&bound, in_bucket) in self.bounds_micros.iter().zip(counts.by_ref()) {
            count += in_bucket;
            bounds.push((seconds(bound), count));
        }
        count += counts.sum::<u64>();
        Buckets { bounds, sum: seconds(self.sum_micros.load(Ordering::Relaxed)), count }
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
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
    /// What was counted after `earlier` was read, from the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |place: usize| earlier.bounds.get(place).map_or(0, |(_, count)| *count);
        let rest = |(place, (bound, count)): (usize, &(f64, u64))| {
            (*bound, count.saturating_sub(before(place)))
        };
        Self {
            bounds: self.bounds.iter().enumerate().map(rest).collect(),
            sum: (self.sum - earlier.sum).max(0.0),
            count: self.count.saturating_sub(earlier.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_at_their_bound_and_past_the_last() {
        let histogram = Histogram::new(&[10, 100]);
        for micros in [10, 11, 100, 5_000] {
            histogram.note(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!(read.bounds, [(0.000_01, 1), (0.000_1, 3)]);
        assert_eq!(read.count, 4);
        assert!((read.sum - 0.005_121).abs() < 1e-9);
    }

    #[test]
    fn the_difference_is_what_came_since() {
        let histogram = Histogram::new(&[10, 100]);
        histogram.note(Duration::from_micros(10));
        let earlier = histogram.read();
        histogram.note(Duration::from_micros(50));
        histogram.note(Duration::from_micros(500));
        let since = histogram.read().since(&earlier);
        assert_eq!((since.bounds, since.count), (vec![(0.000_01, 0), (0.000_1, 1)], 2));
        assert!((since.sum - 0.000_55).abs() < 1e-9);
        assert_eq!(earlier.since(&Buckets::default()), earlier);
    }
}
