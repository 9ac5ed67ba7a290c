//! What was given to the consumers of a group, and whether each second time has a reason.
//!
//! A lease begins somewhere between the moment a receive was sent and the moment it was answered;
//! each judgement takes the end of that span which speaks for the server, so that none of them
//! depends on how fast anybody was.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use super::{Answered, Offer};

/// The server's clocks and ours run apart by less than this in the time a message waits.
const CLOCKS_APART: Duration = Duration::from_millis(1);

/// What was said of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Acked,
    Requeued,
    Dead,
    Extended,
    NotHeld,
    /// No answer came.
    Nothing,
}

impl Told {
    pub fn of(word: &str) -> Self {
        match word {
            "acked" => Self::Acked,
            "requeued" => Self::Requeued,
            "dead" => Self::Dead,
            "extended" => Self::Extended,
            "not_held" => Self::NotHeld,
            other => panic!("no such result: {other}"),
        }
    }
}

/// What a consumer wanted done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Ack,
    /// Another attempt, not sooner than that.
    Again(Duration),
    Reject,
}

/// How a consumer parted with a message.
#[derive(Clone, Copy, Debug)]
pub struct Parting {
    pub wish: Wish,
    pub sent: Instant,
    pub got: Option<Instant>,
    pub told: Told,
}

/// A message in the hands of a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The number of the message.
    pub message: u64,
    /// A hash of its id.
    pub id: u64,
    /// How often the server had been started before.
    pub life: u64,
    pub attempt: u64,
    /// When the receive was sent and when it was answered.
    pub sent: Instant,
    pub got: Instant,
    /// The lease was last counted from some moment between these.
    pub counted_from: (Instant, Instant),
    pub lease: Duration,
    /// Nothing if it was left to run out.
    pub parting: Option<Parting>,
}

impl Delivery {
    /// The lease does not end before this.
    pub fn lease_end_least(&self) -> Instant {
        self.counted_from.0 + self.lease
    }

    /// The lease has ended at this moment, if it was not extended.
    pub fn lease_end_most(&self) -> Instant {
        self.counted_from.1 + self.lease
    }

    pub fn is_acked(&self) -> bool {
        self.parting.is_some_and(|parting| parting.told == Told::Acked)
    }

    /// Whether an ack was sent that was not refused: it holds if it was answered, and may hold if
    /// the server was killed.
    pub fn may_be_acked(&self) -> bool {
        let undecided =
            |parting: Parting| parting.wish == Wish::Ack && parting.told == Told::Nothing;
        self.is_acked() || self.parting.is_some_and(undecided)
    }

    /// An answer that could not be given to somebody who holds the message, or who does not.
    fn check_answer(&self) {
        let Some(parting) = self.parting else { return };
        match (parting.told, parting.got) {
            (Told::Nothing, _) => {}
            (Told::NotHeld, Some(got)) => {
                assert!(got >= self.lease_end_least(), "refused in its lease: {self:?}");
            }
            _ => assert!(parting.sent < self.lease_end_most(), "settled after its lease: {self:?}"),
        }
    }

    /// Why the same message was given out again, if there is a reason for that.
    fn why_again(&self, next: &Self) -> Option<Again> {
        match self.parting {
            Some(Parting { told: Told::Acked | Told::Dead, .. }) => None,
            Some(Parting { wish: Wish::Again(delay), told: Told::Requeued, sent, .. }) => {
                (next.got + CLOCKS_APART >= sent + delay).then_some(Again::Nacked)
            }
            _ if next.life > self.life => Some(Again::Killed),
            _ => (next.got >= self.lease_end_least()).then_some(Again::RanOut),
        }
    }
}

/// Reasons for giving out a message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Nacked,
    RanOut,
    Killed,
}

/// Everything that was given to the consumers of one group.
#[derive(Clone, Debug)]
pub struct Book {
    hasher: RandomState,
    life: u64,
    pub deliveries: Vec<Delivery>,
}

impl Default for Book {
    fn default() -> Self {
        Self { hasher: RandomState::new(), life: 0, deliveries: Vec::new() }
    }
}

impl Book {
    /// An empty one in which ids look the same, for another consumer of the group.
    pub fn page(&self, life: u64) -> Self {
        Self { hasher: self.hasher.clone(), life, deliveries: Vec::new() }
    }

    pub fn id(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    /// Writes down one message of an answered receive; answers where.
    pub fn note(
        &mut self,
        received: &Answered<Vec<Offer>>,
        offer: &Offer,
        message: u64,
        lease: Duration,
    ) -> usize {
        let (sent, got) = (received.sent, received.got);
        self.deliveries.push(Delivery {
            message,
            id: self.id(&offer.id),
            life: self.life,
            attempt: offer.attempt,
            sent,
            got,
            counted_from: (sent, got),
            lease,
            parting: None,
        });
        self.deliveries.len() - 1
    }

    pub fn merge(&mut self, other: Self) {
        self.deliveries.extend(other.deliveries);
    }

    /// Checks every delivery against the one before it, and answers what came of each message.
    pub fn judge(&mut self) -> (HashMap<u64, Delivery>, Figures) {
        // Attempts are counted, so in one life they tell the order; in the next they go on.
        self.deliveries.sort_by_key(|one| (one.message, one.life, one.attempt, one.got));
        let mut figures = Figures::default();
        let mut last = HashMap::new();
        for all in self.deliveries.chunk_by(|a, b| a.message == b.message) {
            let (first, end) = (&all[0], &all[all.len() - 1]);
            assert_eq!(first.attempt, 1, "nobody has seen the first attempt: {all:#?}");
            all.iter().for_each(Delivery::check_answer);
            let mut before_that = None;
            for pair in all.windows(2) {
                let (before, next) = (&pair[0], &pair[1]);
                assert_eq!(before.id, next.id, "another id: {all:#?}");
                let Some(why) = before.why_again(next) else { panic!("without reason: {all:#?}") };
                let least = match (why, before_that) {
                    (Again::Nacked | Again::RanOut, _) => before.attempt + 1,
                    // That the lease before had run out was on its way to the disk.
                    (Again::Killed, Some(Again::RanOut)) => before.attempt - 1,
                    (Again::Killed, _) => before.attempt,
                };
                let most = before.attempt + 1;
                assert!((least..=most).contains(&next.attempt), "attempts: {all:#?}");
                figures.add(why);
                before_that = Some(why);
            }
            figures.deliveries += u64::try_from(all.len()).unwrap();
            figures.messages += 1;
            let count = |told| all.iter().filter(|one| one.has_been(told)).count();
            figures.acked += u64::try_from(count(Told::Acked)).unwrap();
            figures.refused += u64::try_from(count(Told::NotHeld)).unwrap();
            figures.told_dead += u64::try_from(count(Told::Dead)).unwrap();
            figures.in_doubt += u64::try_from(count(Told::Nothing)).unwrap();
            last.insert(end.message, end.clone());
        }
        (last, figures)
    }
}

impl Delivery {
    fn has_been(&self, told: Told) -> bool {
        self.parting.is_some_and(|parting| parting.told == told)
    }
}

/// Sums over one group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub messages: u64,
    pub deliveries: u64,
    pub acked: u64,
    /// Settled too late, and told so.
    pub refused: u64,
    pub told_dead: u64,
    /// Settled, without an answer.
    pub in_doubt: u64,
    /// Given out again, by reason.
    pub again_nacked: u64,
    pub again_ran_out: u64,
    pub again_killed: u64,
}

impl Figures {
    fn add(&mut self, why: Again) {
        match why {
            Again::Nacked => self.again_nacked += 1,
            Again::RanOut => self.again_ran_out += 1,
            Again::Killed => self.again_killed += 1,
        }
    }

    pub fn again(&self) -> u64 {
        self.again_nacked + self.again_ran_out + self.again_killed
    }
}
