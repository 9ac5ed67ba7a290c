//! From what was counted to one number for each rule.
//!
//! Pure: somebody else counts and reads the clock. Nothing here depends on how many messages or
//! topics there are.

use std::time::Duration;

use punctual_broker::pulse::{Pulse, Worst};
use punctual_broker::transaction::Undecided;
use punctual_model::Buckets;

use crate::alerts::book::Seen;
use crate::alerts::rules::{COUNT, Kind};
use crate::alerts::window::{Largest, Window};
use crate::machine::Room;

/// Fewer attempts say nothing about how many of them succeed.
const OUTCOMES_MIN: u64 = 20;
/// How far back lateness is looked at, unless the window of all is shorter.
const LATENESS_WINDOW: Duration = Duration::from_secs(60);

/// What was read at one moment.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// `None` when it could not be read.
    pub(crate) pulse: Option<Pulse>,
    /// The message that failed most often since the last time.
    pub(crate) worst: Option<Worst>,
    pub(crate) undecided: Option<Undecided>,
    pub(crate) room: Option<Room>,
    /// Who is missing in the cluster.
    pub(crate) nodes: Seen,
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    counts: Window<Counts>,
    lateness: Window<Buckets>,
    attempts: Largest<String>,
}

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acked: u64,
    failed: u64,
    dead: u64,
    steps: u64,
}

impl Lookout {
    /// What each rule has to judge.
    pub(crate) fn see(&mut self, read: Read, now: Duration, window: Duration) -> [Seen; COUNT] {
        let mut seen = [const { Seen::Unknown }; COUNT];
        let mut put = |kind: Kind, what: Seen| seen[kind as usize] = what;
        if let Some(pulse) = read.pulse {
            put(Kind::PendingBacklog, Seen::Number(number(pulse.pending), None));
            put(Kind::OldestOverdue, overdue(&pulse));
            let counts = Counts {
                acked: pulse.acked,
                failed: pulse.retries,
                dead: pulse.dead,
                steps: pulse.clock_steps,
            };
            let base = *self.counts.take(now, window, counts);
            let since = |now: u64, before: u64| now.saturating_sub(before);
            let dead = since(counts.dead, base.dead);
            let outcomes =
                (since(counts.acked, base.acked), since(counts.failed, base.failed) + dead);
            put(Kind::SuccessRate, success(outcomes));
            put(Kind::DeadLetterGrowth, Seen::Number(number(dead), None));
            put(Kind::ClockStep, Seen::Number(number(since(counts.steps, base.steps)), None));
            let lateness_window = LATENESS_WINDOW.min(window);
            let base = self.lateness.take(now, lateness_window, pulse.lateness.clone());
            put(Kind::LatenessHigh, lateness(base, &pulse.lateness));
        }
        put(Kind::Attempts, self.attempts(read.worst, now, window));
        if let Some(undecided) = read.undecided {
            put(Kind::UndecidedTransactions, transactions(&undecided));
        }
        if let Some(room) = read.room {
            put(Kind::DiskSpace, disk(room));
        }
        put(Kind::NodeLost, read.nodes);
        seen
    }

    fn attempts(&mut self, worst: Option<Worst>, now: Duration, window: Duration) -> Seen {
        let came = worst.map(|worst| {
            (worst.failed, format!("a message of group {} of {}", worst.group, worst.topic))
        });
        match self.attempts.take(now, window, came) {
            Some((failed, whose)) => Seen::Number(f64::from(failed), Some(whose.clone())),
            None => Seen::Nothing,
        }
    }
}

fn overdue(pulse: &Pulse) -> Seen {
    match pulse.overdue {
        Some(span) => Seen::Number(number(span.as_millis()), None),
        None => Seen::Nothing,
    }
}

fn success((acked, failed): (u64, u64)) -> Seen {
    let all = acked + failed;
    if all < OUTCOMES_MIN {
        return Seen::Nothing;
    }
    // As precise as anybody needs it.
    let rate = (number(acked) / number(all) * 10_000.0).round() / 10_000.0;
    Seen::Number(rate, Some(format!("{acked} of {all} attempts ended in an ack")))
}

fn transactions(undecided: &Undecided) -> Seen {
    let detail = undecided.oldest.map(|oldest| format!("the oldest is from {oldest}"));
    Seen::Number(number(undecided.count), detail)
}

fn disk(room: Room) -> Seen {
    if room.total == 0 {
        return Seen::Nothing;
    }
    let percent = (number(room.usable) / number(room.total) * 1000.0).round() / 10.0;
    let mebibytes = room.usable >> 20;
    Seen::Number(percent, Some(format!("{mebibytes} MiB are free")))
}

fn lateness(base: &Buckets, now: &Buckets) -> Seen {
    match slowest_hundredth_ms(base, now) {
        Some(millis) => {
            let count = now.count.saturating_sub(base.count);
            Seen::Number(millis, Some(format!("of {count} deliveries")))
        }
        None => Seen::Nothing,
    }
}

/// How late all but one in a hundred of what came between two readings were at most, about; past
/// the last bound that bound.
fn slowest_hundredth_ms(base: &Buckets, now: &Buckets) -> Option<f64> {
    let count = now.count.saturating_sub(base.count);
    if count == 0 {
        return None;
    }
    let wanted = number(count) * 0.99;
    let (mut lower, mut below) = (0.0, 0);
    for (place, (bound, so_far)) in now.bounds.iter().enumerate() {
        let before = base.bounds.get(place).map_or(0, |(_, before)| *before);
        let within = so_far.saturating_sub(before);
        if number(within) >= wanted && within > below {
            let share = (wanted - number(below)) / number(within - below);
            return Some(((lower + (bound - lower) * share) * 1000.0).round());
        }
        (lower, below) = (*bound, within);
    }
    Some((lower * 1000.0).round())
}

#[expect(clippy::cast_precision_loss, reason = "no count comes near the precision of numbers")]
const fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use punctual_model::{GroupName, Histogram, Span, Timestamp, TopicName};

    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn of(kind: Kind, seen: &[Seen; COUNT]) -> Option<f64> {
        match &seen[kind as usize] {
            Seen::Number(number, _) => Some(*number),
            _ => None,
        }
    }

    fn read(pulse: Pulse) -> Read {
        Read { pulse: Some(pulse), ..Read::default() }
    }

    #[test]
    fn what_was_not_read_is_unknown() {
        let seen = Lookout::default().see(Read::default(), at(0), WINDOW);
        let unknown = seen.iter().filter(|seen| **seen == Seen::Unknown).count();
        assert_eq!(unknown, COUNT - 1, "all but the attempts, of which there were none");
    }

    #[test]
    fn success_is_judged_by_what_happened_within_the_window() {
        let mut lookout = Lookout::default();
        let mut rate = |seconds, acked, retries, dead| {
            let pulse = Pulse { acked, retries, dead, ..Pulse::default() };
            let seen = lookout.see(read(pulse), at(seconds), WINDOW);
            (of(Kind::SuccessRate, &seen), of(Kind::DeadLetterGrowth, &seen))
        };
        assert_eq!(rate(0, 1000, 0, 0), (None, Some(0.0)), "that was before");
        assert_eq!(rate(10, 1010, 9, 0), (None, Some(0.0)), "too few");
        assert_eq!(rate(20, 1010, 20, 10), (Some(0.25), Some(10.0)));
        assert_eq!(rate(30, 1100, 20, 10).0, Some(0.7692));
        assert_eq!(rate(700, 1200, 20, 10), (Some(1.0), Some(0.0)), "long ago");
    }

    #[test]
    fn lateness_is_that_of_the_last_minute() {
        let histogram = Histogram::new(&[1_000, 1_000_000, 2_000_000]);
        let mut lookout = Lookout::default();
        let mut late = |seconds| {
            let pulse = Pulse { lateness: histogram.read(), ..Pulse::default() };
            of(Kind::LatenessHigh, &lookout.see(read(pulse), at(seconds), WINDOW))
        };
        let note = |millis, count| {
            (0..count).for_each(|_| histogram.note(Duration::from_millis(millis)));
        };
        note(1500, 10);
        assert_eq!(late(0), None, "that was before");
        note(1500, 10);
        assert_eq!(late(10), Some(1990.0));
        note(0, 989);
        assert_eq!(late(20), Some(1001.0), "a little more than one in a hundred");
        note(0, 100);
        assert_eq!(late(30), Some(1.0));
        note(5000, 1000);
        assert_eq!(late(100), Some(2000.0), "past the last bound");
        assert_eq!(late(170), None, "a quiet minute");
    }

    #[test]
    fn the_worst_message_is_remembered_for_the_window() {
        let mut lookout = Lookout::default();
        let mut attempts = |seconds, failed: Option<u16>| {
            let worst = failed.map(|failed| Worst {
                failed,
                topic: TopicName::new("t").unwrap(),
                group: GroupName::new("g").unwrap(),
            });
            let seen = lookout.see(Read { worst, ..Read::default() }, at(seconds), WINDOW);
            of(Kind::Attempts, &seen)
        };
        assert_eq!(attempts(0, None), None);
        assert_eq!(attempts(10, Some(11)), Some(11.0));
        assert_eq!(attempts(20, Some(2)), Some(11.0));
        assert_eq!(attempts(610, None), Some(2.0));
        assert_eq!(attempts(620, None), None);
    }

    #[test]
    fn the_rest_is_as_it_is_read() {
        let overdue = Some(Span::from_secs(61));
        let pulse = Pulse { pending: 7, overdue, clock_steps: 3, ..Pulse::default() };
        let undecided = Some(Undecided { count: 2, oldest: Some(Timestamp::MIN) });
        let room = Some(Room { total: 1000, usable: 47 });
        let nodes = Seen::Number(1.0, None);
        let read = Read { pulse: Some(pulse), worst: None, undecided, room, nodes };
        let seen = Lookout::default().see(read, at(0), WINDOW);
        let expected = [
            (Kind::PendingBacklog, 7.0),
            (Kind::OldestOverdue, 61_000.0),
            (Kind::ClockStep, 0.0),
            (Kind::UndecidedTransactions, 2.0),
            (Kind::DiskSpace, 4.7),
            (Kind::NodeLost, 1.0),
        ];
        for (kind, number) in expected {
            assert_eq!(of(kind, &seen), Some(number), "{kind:?}");
        }
    }
}
