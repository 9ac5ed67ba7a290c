//! Where a rule stands: the steps from ok over pending to firing, and back.
//!
//! ```text
//!   ok ── broken ──► pending ── broken for long enough ──► firing ── fine for an interval ──► ok
//!    ▲                  └──────────── fine ──────────────────┐
//!    └───────────────────────────────────────────────────────┘
//! ```
//!
//! Pure: time enters as a number, and it is somebody else who looks whether a rule is broken.

use std::time::Duration;

/// Where a rule stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is wrong.
    #[default]
    Fine,
    /// Something is wrong, but not for long enough.
    Pending { since: Duration },
    /// Something is wrong, and was told.
    Firing {
        /// Since when nothing is wrong any more, if that is so.
        fine_since: Option<Duration>,
    },
}

impl Phase {
    /// The word used for it everywhere.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Pending { .. } => "pending",
            Self::Firing { .. } => "firing",
        }
    }
}

/// How long things have to be as they are before they count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Broken, before it is told.
    pub(crate) hold: Duration,
    /// Fine again, before that is told.
    pub(crate) settle: Duration,
}

/// What everybody is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It fires from now on.
    Fires,
    /// It is over.
    Resolves,
}

impl Phase {
    /// What follows when a rule was found broken, or not, at this time.
    pub(crate) fn after(self, broken: bool, now: Duration, terms: Terms) -> (Self, Option<Turn>) {
        match (self, broken) {
            (Self::Fine | Self::Pending { .. }, false) => (Self::Fine, None),
            (Self::Fine, true) => Self::Pending { since: now }.after(true, now, terms),
            (Self::Pending { since }, true) if now.saturating_sub(since) >= terms.hold => {
                (Self::Firing { fine_since: None }, Some(Turn::Fires))
            }
            (Self::Pending { since }, true) => (Self::Pending { since }, None),
            (Self::Firing { .. }, true) => (Self::Firing { fine_since: None }, None),
            (Self::Firing { fine_since: None }, false) => {
                (Self::Firing { fine_since: Some(now) }, None)
            }
            (Self::Firing { fine_since: Some(since) }, false) => {
                match now.saturating_sub(since) >= terms.settle {
                    true => (Self::Fine, Some(Turn::Resolves)),
                    false => (self, None),
                }
            }
        }
    }

    /// What follows when the rule is switched off.
    pub(crate) const fn switched_off(self) -> (Self, Option<Turn>) {
        match self {
            Self::Firing { .. } => (Self::Fine, Some(Turn::Resolves)),
            Self::Fine | Self::Pending { .. } => (Self::Fine, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line: the time in seconds, what was found, and what is so afterwards; with an event
    /// where there is one. A rule fires after 30 s and is over after 10.
    fn check(timeline: &str) {
        let terms = Terms { hold: Duration::from_secs(30), settle: Duration::from_secs(10) };
        follow(timeline, terms);
    }

    fn follow(timeline: &str, terms: Terms) {
        let mut phase = Phase::default();
        for line in timeline.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let now = Duration::from_secs(words.next().unwrap().parse().unwrap());
            let (next, turn) = match words.next().unwrap() {
                "off" => phase.switched_off(),
                found => phase.after(found == "broken", now, terms),
            };
            phase = next;
            assert_eq!(phase.word(), words.next().unwrap(), "{line}");
            let told = match words.next() {
                None => None,
                Some("fires") => Some(Turn::Fires),
                Some("resolves") => Some(Turn::Resolves),
                Some(other) => panic!("{other}"),
            };
            assert_eq!(turn, told, "{line}");
        }
    }

    #[test]
    fn it_fires_once_it_was_broken_for_long_enough_and_is_told_once() {
        check(
            "
              0 fine   ok
             10 broken pending
             20 broken pending
             39 broken pending
             40 broken firing  fires
             50 broken firing
             60 fine   firing
             70 fine   ok      resolves
             80 fine   ok
        ",
        );
    }

    #[test]
    fn a_short_trouble_is_never_told() {
        check(
            "
              0 broken pending
             29 broken pending
             30 fine   ok
             31 broken pending
             60 broken pending
             61 broken firing  fires
        ",
        );
    }

    #[test]
    fn a_short_relief_is_no_end() {
        check(
            "
              0 broken pending
             30 broken firing  fires
             40 fine   firing
             49 fine   firing
             50 broken firing
             60 fine   firing
             69 fine   firing
             70 fine   ok      resolves
        ",
        );
    }

    #[test]
    fn switching_off_ends_it() {
        check(
            "
              0 broken pending
              5 off    ok
             10 broken pending
             40 broken firing  fires
             41 off    ok      resolves
             42 off    ok
        ",
        );
    }

    #[test]
    fn without_a_time_it_fires_at_once() {
        let terms = Terms { hold: Duration::ZERO, settle: Duration::from_secs(10) };
        follow(
            "
              0 broken firing fires
              1 fine   firing
             11 fine   ok     resolves
             12 broken firing fires
        ",
            terms,
        );
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_ends_nothing_early() {
        check(
            "
             50 broken pending
             20 broken pending
             79 broken pending
             80 broken firing  fires
             90 fine   firing
             60 fine   firing
            100 fine   ok      resolves
        ",
        );
    }
}
