//! Spares an endpoint that fails: after a few failures in a row nothing is sent for a while, then
//! one message at a time until one gets through.
//!
//! A plain state machine over moments that callers pass in; it knows neither clocks nor requests.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which nothing is sent for a while.
const FAILURES_MAX: u32 = 5;
/// The first pause; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// As much as there is room for.
    Many,
    /// One message, as a trial.
    One,
    /// Nothing before this moment.
    NotBefore(Instant),
    /// Nothing before the outcome of the trial.
    AfterTrial,
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    None,
    /// The breaker opened: nothing is sent for this long.
    Opened(Duration),
    /// The trial failed too: nothing is sent for this long.
    StillOpen(Duration),
    /// The breaker closed.
    Closed,
}

/// The breaker of one endpoint.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, pause: Duration },
    Trial { pause: Duration },
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        Self { state: State::Closed { failures: 0 } }
    }

    /// What may be sent at this moment.
    pub(crate) fn leave(&self, now: Instant) -> Leave {
        match self.state {
            State::Closed { .. } => Leave::Many,
            State::Open { until, .. } if until > now => Leave::NotBefore(until),
            State::Open { .. } => Leave::One,
            State::Trial { .. } => Leave::AfterTrial,
        }
    }

    /// A message leaves. True when it is a trial; then its outcome must be told.
    pub(crate) fn start(&mut self) -> bool {
        match self.state {
            State::Open { pause, .. } => {
                self.state = State::Trial { pause };
                true
            }
            State::Closed { .. } | State::Trial { .. } => false,
        }
    }

    /// The endpoint answered, in whatever words: it works.
    pub(crate) fn succeed(&mut self) -> Turn {
        match self.state {
            State::Closed { .. } => {
                self.state = State::Closed { failures: 0 };
                Turn::None
            }
            State::Open { .. } | State::Trial { .. } => {
                self.state = State::Closed { failures: 0 };
                Turn::Closed
            }
        }
    }

    /// The endpoint could not be reached, or failed.
    pub(crate) fn fail(&mut self, trial: bool, now: Instant) -> Turn {
        match self.state {
            State::Closed { failures } if failures + 1 < FAILURES_MAX => {
                self.state = State::Closed { failures: failures + 1 };
                Turn::None
            }
            State::Closed { .. } => {
                self.state = State::Open { until: now + PAUSE_FIRST, pause: PAUSE_FIRST };
                Turn::Opened(PAUSE_FIRST)
            }
            State::Trial { pause } if trial => {
                let pause = (pause * 2).min(PAUSE_MAX);
                self.state = State::Open { until: now + pause, pause };
                Turn::StillOpen(pause)
            }
            // A request that was under way when the breaker opened says nothing new.
            State::Open { .. } | State::Trial { .. } => Turn::None,
        }
    }

    /// A trial ended without an outcome.
    pub(crate) fn forget(&mut self, trial: bool, now: Instant) {
        if let State::Trial { pause } = self.state
            && trial
        {
            self.state = State::Open { until: now, pause };
        }
    }

    /// Whether nothing but trials is sent.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 1..FAILURES_MAX {
            assert_eq!(breaker.fail(false, now), Turn::None);
            assert_eq!(breaker.leave(now), Leave::Many);
        }
        assert_eq!(breaker.fail(false, now), Turn::Opened(SECOND));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let now = Instant::now();
        let mut breaker = Breaker::new();
        for _ in 0..3 {
            for _ in 1..FAILURES_MAX {
                assert_eq!(breaker.fail(false, now), Turn::None);
            }
            assert_eq!(breaker.succeed(), Turn::None);
        }
        assert!(!breaker.is_open());
        assert!(opened(now).is_open());
    }

    #[test]
    fn one_trial_at_a_time_and_longer_pauses_up_to_a_minute() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut pause = SECOND;
        for expected in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(breaker.leave(now), Leave::NotBefore(now + pause));
            now += pause;
            assert_eq!(breaker.leave(now), Leave::One);
            assert_eq!(breaker.leave(now), Leave::One, "asking is not sending");
            assert!(breaker.start());
            assert_eq!(breaker.leave(now), Leave::AfterTrial);
            assert_eq!(breaker.fail(false, now), Turn::None, "an old request");
            assert_eq!(breaker.leave(now), Leave::AfterTrial);
            pause = Duration::from_secs(expected);
            assert_eq!(breaker.fail(true, now), Turn::StillOpen(pause));
        }
        now += pause;
        assert!(breaker.start());
        assert_eq!(breaker.succeed(), Turn::Closed);
        assert_eq!(breaker.leave(now), Leave::Many);
    }

    #[test]
    fn late_failures_do_not_lengthen_a_pause_and_a_late_success_ends_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert_eq!(breaker.fail(false, now + SECOND / 2), Turn::None);
        assert_eq!(breaker.leave(now), Leave::NotBefore(now + SECOND));
        assert_eq!(breaker.succeed(), Turn::Closed);
        assert_eq!(breaker.fail(false, now), Turn::None);
    }

    #[test]
    fn a_trial_without_outcome_is_tried_again() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert!(breaker.start());
        breaker.forget(false, now);
        assert_eq!(breaker.leave(now), Leave::AfterTrial);
        breaker.forget(true, now);
        assert_eq!(breaker.leave(now), Leave::One);
    }
}
