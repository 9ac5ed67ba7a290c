//! What is due in the near future, in memory: a hierarchical timing wheel.
//!
//! Pure: no clock, no I/O, no threads; time enters as a number. Inserting, cancelling and firing
//! take constant time (amortised) however many entries wait, and empty stretches of time cost
//! nothing, because each level knows by one word which of its slots hold anything.
//!
//! An entry lives on the level of the highest group of bits in which its due time differs from the
//! wheel's present. It follows that
//! - all entries of one level are due before all entries of the level above,
//! - entries with the same due time always share a slot, so appending keeps the order of insertion,
//! - no entry is due at or before the present, except those inserted late, which wait in a slot of
//!   their own for the next [`advance`](Wheel::advance).
//!
//! A slot is a plain row of tickets, not a chain through the entries: moving entries to a finer
//! level then reads memory in order and never waits for one entry to learn where the next one is.

mod level;
mod slab;

use std::fmt;

use punctual_model::Timestamp;

use self::level::{Level, SLOT_BITS, Slot};
use self::slab::Slab;
pub use self::slab::Ticket;

/// Levels of 64 slots each; the lowest has slots of one millisecond.
const LEVELS: usize = 8;
/// The bits of a due time that one level looks at.
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

const _: () = assert!(
    LEVELS == 8 && Timestamp::MAX.as_millis() >> (SLOT_BITS * 8) == 0,
    "the levels must cover every timestamp, or the furthest entries would have no slot"
);

/// Entries that wait for their due time.
pub struct Wheel<T> {
    /// Everything due at or before this has been handed out, except for what is in `late`.
    present: u64,
    levels: Box<[Level; LEVELS]>,
    /// Inserted when it was due already.
    late: Slot,
    entries: Slab<T>,
}

impl<T> Wheel<T> {
    /// An empty wheel at the time `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            present: now.as_millis(),
            levels: Box::new([const { Level::new() }; LEVELS]),
            late: Slot::new(),
            entries: Slab::new(),
        }
    }

    /// Adds an entry. One that is due already comes out at the next [`advance`](Self::advance).
    pub fn insert(&mut self, due: Timestamp, item: T) -> Ticket {
        let due = due.as_millis();
        let ticket = self.entries.insert(due, item);
        if due <= self.present {
            self.late.push(ticket);
        } else {
            let (level, slot) = place(self.present, due);
            self.levels[level].push(slot, ticket);
        }
        ticket
    }

    /// Takes an entry out again. `None` when it has fired or was cancelled.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let item = self.entries.take(ticket)?;
        if ticket.due() <= self.present {
            self.late.forget_one(&self.entries);
        } else {
            let (level, slot) = place(self.present, ticket.due());
            self.levels[level].forget_one(slot, &self.entries);
        }
        Some(item)
    }

    /// Moves the present to `now` and appends everything due by then to `out`, by due time and then
    /// in the order of insertion. A `now` before the present moves nothing; late entries that are
    /// due by then come out all the same.
    pub fn advance(&mut self, now: Timestamp, out: &mut Vec<(Timestamp, T)>) {
        let now = now.as_millis();
        self.fire_late(now, out);
        while let Some(next) = self.next_slot().filter(|next| next.start <= now) {
            self.present = next.start;
            let slot = self.levels[next.level].take(next.slot);
            if next.level == 0 {
                self.fire(slot.tickets(), out);
            } else {
                self.cascade(&slot);
            }
            self.levels[next.level].give_back(next.slot, slot);
        }
        self.present = self.present.max(now);
    }

    /// When to call [`advance`](Self::advance) next: never after the first due time. It is that due
    /// time itself once the entry is on the lowest level, and before that the moment at which the
    /// entry moves to a finer level. For a late entry it is the present.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let millis = if self.late.is_empty() { self.next_slot()?.start } else { self.present };
        Some(Timestamp::from_millis_saturating(millis))
    }

    /// The number of entries that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The occupied slot that starts first. There is none before it, so time may jump to it.
    fn next_slot(&self) -> Option<NextSlot> {
        let level = self.levels.iter().position(|level| !level.is_empty())?;
        let slot = self.levels[level].first()?;
        let shift = shift(level);
        let coarse = self.present >> shift >> SLOT_BITS << SLOT_BITS;
        Some(NextSlot { level, slot, start: (coarse | slot as u64) << shift })
    }

    fn fire(&mut self, tickets: &[Ticket], out: &mut Vec<(Timestamp, T)>) {
        for ticket in tickets {
            if let Some(item) = self.entries.take(*ticket) {
                out.push((Timestamp::from_millis_saturating(ticket.due()), item));
            }
        }
    }

    /// Moves the entries of a slot that the present has just entered to finer levels.
    fn cascade(&mut self, slot: &Slot) {
        for ticket in slot.live(&self.entries) {
            let (level, slot) = place(self.present, ticket.due());
            self.levels[level].push(slot, ticket);
        }
    }

    fn fire_late(&mut self, now: u64, out: &mut Vec<(Timestamp, T)>) {
        if self.late.is_empty() {
            return;
        }
        let mut due = std::mem::replace(&mut self.late, Slot::new());
        if now < self.present {
            for ticket in due.live(&self.entries).filter(|ticket| ticket.due() > now) {
                self.late.push(ticket);
            }
            due.retain(|ticket| ticket.due() <= now);
        }
        // A stable sort: entries with the same due time stay in the order of insertion.
        due.sort_by_due();
        self.fire(due.tickets(), out);
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("present", &Timestamp::from_millis_saturating(self.present))
            .field("entries", &self.len())
            .finish_non_exhaustive()
    }
}

struct NextSlot {
    level: usize,
    slot: usize,
    start: u64,
}

/// The level and slot of something due at `due`, seen from `present`, which is not after it.
fn place(present: u64, due: u64) -> (usize, usize) {
    debug_assert!(present <= due, "late entries have no slot");
    // What differs only within the lowest group belongs to the lowest level.
    let highest_bit = ((present ^ due) | SLOT_MASK).ilog2();
    let level = (highest_bit / SLOT_BITS) as usize;
    let slot = (due >> shift(level)) & SLOT_MASK;
    (level, usize::try_from(slot).expect("masked to six bits"))
}

/// The slots of a level are two to this power milliseconds wide.
fn shift(level: usize) -> u32 {
    SLOT_BITS * u32::try_from(level).expect("there are eight levels")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).expect("tests stay within year 9999")
    }

    /// Runs a timeline: `TIME arm NAME for DUE`, `TIME cancel NAME`, `TIME fires NAME…`.
    fn check(timeline: &str) {
        let mut wheel = Wheel::new(at(0));
        let mut tickets = HashMap::new();
        for line in timeline.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, "arm", name, "for", due] => {
                    let due = at(due.parse().expect("a due time"));
                    tickets.insert(*name, wheel.insert(due, *name));
                }
                [_, "cancel", name] => {
                    assert_eq!(wheel.cancel(tickets[name]), Some(*name), "{line}");
                    assert_eq!(wheel.cancel(tickets[name]), None, "{line}");
                }
                [now, "fires", names @ ..] => {
                    let mut out = Vec::new();
                    wheel.advance(at(now.parse().expect("a time")), &mut out);
                    let fired: Vec<&str> = out.iter().map(|(_, name)| *name).collect();
                    assert_eq!(fired, names, "{line}");
                }
                _ => panic!("not a line of a timeline: {line}"),
            }
        }
        assert!(wheel.is_empty(), "{wheel:?}");
    }

    #[test]
    fn fires_at_the_due_moment_and_not_before() {
        check(
            "
             0 arm 7 for 10
             9 fires
            10 fires 7
            11 fires
            ",
        );
    }

    #[test]
    fn fires_in_due_order_and_then_in_order_of_insertion() {
        check(
            "
              0 arm c for 5000
              0 arm a for 70
              0 arm d for 5000
             64 fires
             64 arm b for 70
             70 fires a b
             70 arm e for 5000
             70 arm f for 4999
           9000 fires f c d e
            ",
        );
    }

    #[test]
    fn late_entries_come_out_at_the_next_advance() {
        check(
            "
            100 fires
            100 arm b for 50
            100 arm d for 100
            100 arm a for 20
            100 arm c for 50
            100 arm e for 101
            100 arm x for 30
            100 cancel x
            101 fires a b c d e
            ",
        );
    }

    #[test]
    fn time_running_backwards_moves_nothing() {
        check(
            "
            100 fires
            100 arm late for 90
            100 arm later for 99
            100 arm next for 110
             95 fires late
             99 fires later
            109 fires
            110 fires next
            ",
        );
    }

    #[test]
    fn years_are_crossed_in_one_step() {
        check(
            "
                          0 arm end for 253402300799999
                          0 arm decade for 315360000000
                          0 arm gone for 315360000000
                          0 cancel gone
               315359999999 fires
               315360000000 fires decade
            253402300799998 fires
            253402300799999 fires end
            ",
        );
    }

    #[test]
    fn cancelled_entries_leave_no_memory_behind() {
        let due = 1_000_000;
        let mut wheel = Wheel::new(at(0));
        let kept: Vec<Ticket> = (0..10).map(|item| wheel.insert(at(due), item)).collect();
        for round in 0..10_000 {
            let gone = wheel.insert(at(due), round);
            assert_eq!(wheel.cancel(gone), Some(round));
        }
        let (level, slot) = place(0, due);
        let row = wheel.levels[level].slot(slot).tickets().len();
        assert!(row <= 2 * kept.len() + 1, "{row} tickets for {} entries", kept.len());
        for ticket in kept {
            assert!(wheel.cancel(ticket).is_some());
        }
        assert_eq!((wheel.len(), wheel.next_due()), (0, None));
        assert!(wheel.levels[level].slot(slot).is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { ahead: i64 },
        Cancel { nth: usize },
        Advance { by: i64 },
        Sleep,
    }

    /// Spans of every magnitude from nothing to years, so that every level is met.
    fn any_span() -> impl Strategy<Value = i64> {
        (0..38_u32, any::<u64>()).prop_map(|(bits, noise)| {
            i64::try_from(noise & ((1 << bits) - 1)).expect("fewer than 63 bits")
        })
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any_span().prop_map(|ahead| Step::Insert { ahead }),
            1 => any_span().prop_map(|behind| Step::Insert { ahead: -behind }),
            2 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
            2 => any_span().prop_map(|by| Step::Advance { by }),
            1 => (0..100_i64).prop_map(|back| Step::Advance { by: -back }),
            2 => Just(Step::Sleep),
        ]
    }

    /// The same promises, kept in the simplest way.
    struct Naive {
        present: u64,
        waiting: BTreeMap<(u64, u64), Ticket>,
    }

    struct Pair {
        wheel: Wheel<u64>,
        naive: Naive,
        tickets: Vec<((u64, u64), Ticket)>,
    }

    impl Pair {
        fn new() -> Self {
            let start = 1_794_736_800_000;
            Self {
                wheel: Wheel::new(at(start)),
                naive: Naive { present: start, waiting: BTreeMap::new() },
                tickets: Vec::new(),
            }
        }

        fn step(&mut self, step: &Step) {
            match *step {
                Step::Insert { ahead } => {
                    self.insert(self.naive.present.saturating_add_signed(ahead));
                }
                Step::Cancel { nth } if !self.tickets.is_empty() => {
                    let (key, ticket) = self.tickets[nth % self.tickets.len()];
                    let expected = self.naive.waiting.remove(&key).map(|_| key.1);
                    assert_eq!(self.wheel.cancel(ticket), expected);
                }
                Step::Cancel { .. } => {}
                Step::Advance { by } => self.advance(self.naive.present.saturating_add_signed(by)),
                Step::Sleep => {
                    if let Some(wake) = self.wheel.next_due() {
                        self.advance(wake.as_millis());
                    }
                }
            }
            self.compare();
        }

        fn insert(&mut self, due: u64) {
            let order = self.tickets.len() as u64;
            let ticket = self.wheel.insert(at(due), order);
            self.naive.waiting.insert((due, order), ticket);
            self.tickets.push(((due, order), ticket));
        }

        fn advance(&mut self, now: u64) {
            let mut out = Vec::new();
            self.wheel.advance(at(now), &mut out);
            let rest = self.naive.waiting.split_off(&(now + 1, 0));
            let due = std::mem::replace(&mut self.naive.waiting, rest);
            let expected: Vec<_> = due.into_keys().collect();
            let fired: Vec<_> = out.iter().map(|(due, order)| (due.as_millis(), *order)).collect();
            assert_eq!(fired, expected);
            self.naive.present = self.naive.present.max(now);
        }

        fn compare(&self) {
            assert_eq!(self.wheel.len(), self.naive.waiting.len());
            let first = self.naive.waiting.keys().next().map(|(due, _)| *due);
            match (self.wheel.next_due().map(Timestamp::as_millis), first) {
                (None, None) => {}
                (Some(wake), Some(due)) if due <= self.naive.present => {
                    assert_eq!(wake, self.naive.present, "a late entry is for now");
                }
                (Some(wake), Some(due)) => {
                    assert!(self.naive.present < wake && wake <= due, "{wake} for {due}");
                    let near = self.naive.present >> SLOT_BITS == due >> SLOT_BITS;
                    assert!(!near || wake == due, "exact on the lowest level");
                }
                (wake, due) => panic!("{wake:?} for {due:?}"),
            }
        }

        /// Sleeping on `next_due` alone reaches the end, and in few steps.
        fn drain(&mut self) {
            let steps_max = self.wheel.len() * LEVELS;
            for _ in 0..steps_max {
                self.step(&Step::Sleep);
            }
            assert!(self.wheel.is_empty(), "{:?}", self.wheel);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn does_what_the_simplest_structure_does(
            steps in proptest::collection::vec(any_step(), 0..300),
        ) {
            let mut pair = Pair::new();
            for step in &steps {
                pair.step(step);
            }
            pair.drain();
        }
    }
}
