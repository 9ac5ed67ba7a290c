//! What clients were told, and whether what Kafka has agrees with it.
//!
//! The oracle knows only what a client knows. A request without an answer, or answered with a 5xx, stays
//! open: it was carried out or it was not, once. All others are definite. A message that came twice is
//! wrong unless its slot moved meanwhile.

use std::collections::HashMap;
use std::fmt;

use super::moves::Moves;

/// A record that Kafka has.
#[derive(Clone, Debug)]
pub struct Received {
    /// When Kafka took it.
    pub taken_ms: u64,
    pub id: String,
    pub body: String,
}

/// What a client knows of one message.
#[derive(Clone, Debug)]
pub struct Sent {
    /// None when the answer did not come: it is there or it is not.
    pub id: Option<String>,
    /// The earliest time at which it may be due, by all that is known.
    pub due_ms: u64,
    /// When it is due for certain; none when a change of it stayed open.
    pub due_for_certain_ms: Option<u64>,
    pub cancel: Cancel,
}

/// What is known of the cancels of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cancel {
    #[default]
    Never,
    /// It must not be there.
    Done,
    /// It must be there.
    TooLate,
    /// It is there or it is not.
    Open,
}

/// Everything that was sent to one topic, by the number in the body.
#[derive(Debug, Default)]
pub struct Ledger {
    pub sent: HashMap<u64, Sent>,
}

/// What came of one run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub acknowledged: usize,
    pub unanswered: usize,
    pub unanswered_there: usize,
    pub delivered: usize,
    pub cancelled: usize,
    /// Each of them explained by a move.
    pub duplicates: usize,
    pub late_median_ms: u64,
    pub late_p99_ms: u64,
    pub late_most_ms: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} unanswered ({} of them there), {} delivered, {} cancelled, {} duplicates by moves, late by {} ms (median), {} ms (p99), {} ms (most)",
            self.acknowledged,
            self.unanswered,
            self.unanswered_there,
            self.delivered,
            self.cancelled,
            self.duplicates,
            self.late_median_ms,
            self.late_p99_ms,
            self.late_most_ms,
        )
    }
}

/// The content of a message follows from its number.
pub fn body(serial: u64) -> String {
    let length = usize::try_from(serial % 90).unwrap();
    let letter = char::from(b'a' + u8::try_from(serial % 26).unwrap());
    let filler: String = std::iter::repeat_n(letter, length).collect();
    format!("{serial}:{filler}")
}

fn serial_of(body: &str) -> u64 {
    let serial = body.split(':').next().unwrap().parse().unwrap();
    assert_eq!(body, self::body(serial), "a body came out altered");
    serial
}

impl Ledger {
    pub fn merge(&mut self, other: Self) {
        self.sent.extend(other.sent);
    }

    /// How many records there must be at least.
    pub fn certain(&self) -> usize {
        let is_certain = |sent: &&Sent| {
            sent.id.is_some() && matches!(sent.cancel, Cancel::Never | Cancel::TooLate)
        };
        self.sent.values().filter(is_certain).count()
    }

    /// Compares; everything that was due must have been delivered by now.
    pub fn check(&self, received: &[Received], moves: &Moves) -> Result<Figures, String> {
        let mut by_serial: HashMap<u64, Vec<&Received>> = HashMap::new();
        for record in received {
            by_serial.entry(serial_of(&record.body)).or_default().push(record);
        }
        let mut wrong = Wrong::default();
        let mut figures = Figures::default();
        let mut late = Vec::new();
        for (serial, records) in &by_serial {
            let Some(sent) = self.sent.get(serial) else {
                wrong.note("nobody sent", format!("{records:?}"));
                continue;
            };
            check_records(sent, records, &mut wrong);
            figures.duplicates += records.len() - 1;
            if records.len() > 1 && !moves.explain(sent, records) {
                let told = moves.tell(&records[0].id);
                wrong.note("twice without a move", format!("{sent:?} {records:?} {told}"));
            }
            let first = records.iter().map(|record| record.taken_ms).min();
            late.extend(sent.due_for_certain_ms.zip(first).map(|(due, at)| at.saturating_sub(due)));
        }
        for (serial, sent) in &self.sent {
            let is_there = by_serial.contains_key(serial);
            figures.count(sent, is_there);
            let must_be =
                sent.id.is_some() && matches!(sent.cancel, Cancel::Never | Cancel::TooLate);
            if must_be && !is_there {
                wrong.note("lost", format!("{serial}: {sent:?}"));
            }
        }
        late.sort_unstable();
        figures.late_median_ms = quantile(&late, 50);
        figures.late_p99_ms = quantile(&late, 99);
        figures.late_most_ms = late.last().copied().unwrap_or_default();
        wrong.into_result(figures)
    }
}

impl Figures {
    fn count(&mut self, sent: &Sent, is_there: bool) {
        self.acknowledged += usize::from(sent.id.is_some());
        self.unanswered += usize::from(sent.id.is_none());
        self.unanswered_there += usize::from(sent.id.is_none() && is_there);
        self.delivered += usize::from(is_there);
        self.cancelled += usize::from(sent.cancel == Cancel::Done);
    }
}

fn check_records(sent: &Sent, records: &[&Received], wrong: &mut Wrong) {
    let first = records[0];
    for record in records {
        if record.taken_ms < sent.due_ms {
            let early = sent.due_ms - record.taken_ms;
            wrong.note("early", format!("by {early} ms: {sent:?} {record:?}"));
        }
        // A duplicate is known by its id.
        if record.id != first.id || sent.id.as_ref().is_some_and(|id| *id != record.id) {
            wrong.note("under another id", format!("{sent:?} {records:?}"));
        }
    }
    if sent.cancel == Cancel::Done {
        wrong.note("delivered though cancelled", format!("{sent:?} {records:?}"));
    }
}

/// The value below which so many of a hundred are.
pub fn quantile(sorted: &[u64], percent: usize) -> u64 {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Everything that is wrong, by kind, with some examples of each.
#[derive(Debug, Default)]
struct Wrong {
    kinds: HashMap<&'static str, (usize, Vec<String>)>,
}

impl Wrong {
    const EXAMPLES: usize = 5;

    fn note(&mut self, kind: &'static str, what: String) {
        let (count, examples) = self.kinds.entry(kind).or_default();
        *count += 1;
        if examples.len() < Self::EXAMPLES {
            examples.push(what);
        }
    }

    fn into_result(self, figures: Figures) -> Result<Figures, String> {
        if self.kinds.is_empty() {
            return Ok(figures);
        }
        let tell = |(kind, (count, examples)): (&str, (usize, Vec<String>))| {
            format!("{count} {kind}:\n    {}", examples.join("\n    "))
        };
        let told: Vec<String> = self.kinds.into_iter().map(tell).collect();
        Err(format!("{}\n{figures}", told.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id, of slot 0, and another.
    const ONE: &str = "00000000000000000000000000000000";
    const OTHER: &str = "another";

    fn ledger(cancel: Cancel) -> Ledger {
        let sent = Sent {
            id: Some(ONE.to_owned()),
            due_ms: 1_000,
            due_for_certain_ms: Some(1_000),
            cancel,
        };
        Ledger { sent: HashMap::from([(7, sent)]) }
    }

    fn at(taken_ms: u64, id: &str) -> Received {
        Received { taken_ms, id: id.to_owned(), body: body(7) }
    }

    fn complaint(ledger: &Ledger, received: &[Received]) -> String {
        ledger.check(received, &Moves::default()).expect_err("something is wrong")
    }

    #[test]
    fn the_oracle_is_content_with_one_record_in_time() {
        let still = Moves::default();
        let once = [at(1_003, ONE)];
        let figures = ledger(Cancel::Never).check(&once, &still).expect("all is well");
        assert_eq!((figures.delivered, figures.duplicates, figures.late_most_ms), (1, 0, 3));
        let twice = [at(1_003, ONE), at(9_000, ONE)];
        let twice_wrong = complaint(&ledger(Cancel::TooLate), &twice);
        assert!(twice_wrong.starts_with("1 twice without a move"), "{twice_wrong}");
        let mut moved = Moves::default();
        moved.note(0, 1, "the first", 10..=20);
        moved.note(0, 2, "the second", 4_900..=5_000);
        let figures = ledger(Cancel::TooLate).check(&twice, &moved).expect("it is counted");
        assert_eq!((figures.delivered, figures.duplicates, figures.late_most_ms), (1, 1, 3));
    }

    #[test]
    fn the_oracle_notices_what_is_lost_early_revived_or_strange() {
        assert!(complaint(&ledger(Cancel::Never), &[]).starts_with("1 lost"));
        assert!(complaint(&ledger(Cancel::TooLate), &[]).starts_with("1 lost"));
        assert!(complaint(&ledger(Cancel::Open), &[at(999, ONE)]).starts_with("1 early"));
        let revived = complaint(&ledger(Cancel::Done), &[at(1_000, ONE)]);
        assert!(revived.starts_with("1 delivered though cancelled"), "{revived}");
        let other = complaint(&ledger(Cancel::Never), &[at(1_000, OTHER)]);
        assert!(other.starts_with("1 under another id"), "{other}");
        assert!(complaint(&Ledger::default(), &[at(1_000, ONE)]).starts_with("1 nobody sent"));
        for open in [Cancel::Open, Cancel::Done] {
            assert!(ledger(open).check(&[], &Moves::default()).is_ok());
        }
    }
}
