//! What was counted lately: differences of counters, and the largest of some numbers.
//!
//! Pure: time enters as a number. Memory is bounded whatever the interval and the span: samples that
//! lie too close together are left out.

use std::collections::VecDeque;
use std::time::Duration;

/// Into so many steps a span is divided.
const STEPS: u32 = 120;

/// Samples of counters over a span of time.
#[derive(Debug)]
pub(crate) struct Window<T> {
    samples: VecDeque<(Duration, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { samples: VecDeque::new() }
    }
}

impl<T> Window<T> {
    /// Takes a sample, and answers the one at the beginning of the span: the last that is as old as
    /// it, or the oldest there is.
    pub(crate) fn take(&mut self, now: Duration, span: Duration, sample: T) -> &T {
        let age = |at: Duration| now.saturating_sub(at);
        let crowded = self.samples.back().is_some_and(|(at, _)| age(*at) < span / STEPS);
        if !crowded {
            self.samples.push_back((now, sample));
        }
        while self.samples.get(1).is_some_and(|(at, _)| age(*at) >= span) {
            self.samples.pop_front();
        }
        // One more than the steps, the beginning, and what a changed span has left behind.
        while self.samples.len() > STEPS as usize + 2 {
            self.samples.pop_front();
        }
        &self.samples.front().expect("one was taken when there was none").1
    }
}

/// The largest of numbers that came within a span of time, with what was said of it.
#[derive(Debug)]
pub(crate) struct Largest<T> {
    /// Each smaller than the one before, and later.
    known: VecDeque<(Duration, u16, T)>,
}

impl<T> Default for Largest<T> {
    fn default() -> Self {
        Self { known: VecDeque::new() }
    }
}

impl<T> Largest<T> {
    /// Takes a number, if one came, and answers the largest that is younger than the span.
    pub(crate) fn take(
        &mut self,
        now: Duration,
        span: Duration,
        came: Option<(u16, T)>,
    ) -> Option<(u16, &T)> {
        if let Some((number, about)) = came {
            while self.known.back().is_some_and(|(_, known, _)| *known <= number) {
                self.known.pop_back();
            }
            self.known.push_back((now, number, about));
        }
        while self.known.front().is_some_and(|(at, ..)| now.saturating_sub(*at) >= span) {
            self.known.pop_front();
        }
        self.known.front().map(|(_, number, about)| (*number, about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_base_is_the_sample_at_the_beginning_of_the_span() {
        let mut window = Window::default();
        let bases: Vec<u64> =
            (0..8).map(|at| *window.take(seconds(at * 10), seconds(30), at)).collect();
        assert_eq!(bases, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(*window.take(seconds(500), seconds(30), 50), 7, "nobody looked in between");
        assert_eq!(*window.take(seconds(531), seconds(30), 53), 50);
    }

    #[test]
    fn memory_is_bounded_however_often_it_is_looked() {
        let mut window = Window::default();
        for at in 0..100_000u64 {
            let base = *window.take(Duration::from_millis(at * 100), seconds(600), at);
            let oldest = at.saturating_sub(6000);
            assert!((oldest.saturating_sub(60)..=oldest).contains(&base), "{at} {base}");
            assert!(window.samples.len() <= STEPS as usize + 2);
        }
        window.take(seconds(20_000), seconds(24 * 3600), 7);
        assert!(window.samples.len() <= STEPS as usize + 2, "the span has grown");
    }

    #[test]
    fn the_largest_is_remembered_for_the_span() {
        let mut largest = Largest::default();
        let mut take = |at, came: Option<u16>| {
            let came = came.map(|number| (number, number));
            largest.take(seconds(at), seconds(10), came).map(|(number, _)| number)
        };
        assert_eq!(take(0, None), None);
        assert_eq!(take(1, Some(5)), Some(5));
        assert_eq!(take(2, Some(3)), Some(5));
        assert_eq!(take(3, Some(4)), Some(5));
        assert_eq!(take(10, None), Some(5));
        assert_eq!(take(11, None), Some(4));
        assert_eq!(take(12, Some(9)), Some(9));
        assert_eq!(take(21, None), Some(9));
        assert_eq!(take(22, None), None);
    }
}
