//! Random schedules of clock steps, held to G9 to G12 and G14 by an oracle.
//!
//! The stage checks each delivery as it happens: not early, not twice, in order. Here is checked
//! what has to happen: whatever is due has fired, a delay is not stretched beyond its bound, and
//! in the end nothing is left.

mod stage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::ports::CancelOutcome;
use punctual_model::{Clock, MessageId, Span, Timestamp};
use punctual_testkit::{ManualClock, Reference};
use stage::{Dice, Stage, reached};

const STEPS: usize = 4000;
/// By how much one step of the wall clock may stretch a delay.
const STRETCH: Duration = Duration::from_secs(1);

/// The promise made for a delay, on the monotonic clock.
struct Promise {
    due: Duration,
    steps_before: u32,
}

struct Play {
    stage: Stage<Reference>,
    dice: Dice,
    promises: BTreeMap<MessageId, Promise>,
    steps: u32,
    accepted: usize,
    cancelled: usize,
    delivered: usize,
}

impl Play {
    fn new(seed: u64) -> Self {
        let start = Timestamp::from_millis_saturating(1_900_000_000_000);
        Self {
            stage: Stage::new(Arc::new(Reference::new()), ManualClock::new(start), 3),
            dice: Dice(seed),
            promises: BTreeMap::new(),
            steps: 0,
            accepted: 0,
            cancelled: 0,
            delivered: 0,
        }
    }

    fn monotonic(&self) -> Duration {
        self.stage.clock.read().monotonic
    }

    /// A size between nothing and about a year, small ones as likely as large ones.
    fn size(&mut self) -> u64 {
        let bits = self.dice.below(36);
        self.dice.below((1 << bits) + 1)
    }

    fn turn(&mut self) {
        match self.dice.below(20) {
            0..=4 => {
                let delay = Span::from_millis(self.size());
                let id = self.stage.delay(delay);
                let due = self.monotonic() + Duration::from_millis(delay.as_millis());
                self.promises.insert(id, Promise { due, steps_before: self.steps });
                self.accepted += 1;
            }
            5..=8 => {
                let (wall, away) =
                    (self.stage.now().wall_timestamp(), Span::from_millis(self.size()));
                let past = self.dice.below(4) == 0;
                let date = if past { wall.saturating_sub(away) } else { wall.saturating_add(away) };
                self.stage.date(date);
                self.accepted += 1;
            }
            9 => self.cancel(),
            10..=11 => {
                let size = i64::try_from(self.size()).unwrap_or(0);
                self.stage.clock.step_wall(if self.dice.below(2) == 0 { size } else { -size });
                self.steps += 1;
            }
            12 => self.stage.clock.advance(Span::from_millis(self.dice.below(60_000))),
            13 => {
                // Rarely, a long time in which nothing runs.
                let size = self.size();
                self.stage.clock.advance(Span::from_millis(size));
            }
            14..=16 => {
                let span = Span::from_millis(self.dice.below(1000));
                let fired = self.stage.run(span);
                self.ended(&fired);
            }
            _ => self.fire(),
        }
    }

    fn cancel(&mut self) {
        let count = self.stage.waiting.len() as u64;
        let place = usize::try_from(self.dice.below(count.max(1))).unwrap_or(0);
        let Some(id) = self.stage.waiting.keys().nth(place).copied() else { return };
        assert_eq!(self.stage.cancel(id), CancelOutcome::Cancelled, "it was waiting");
        assert_eq!(self.stage.cancel(id), CancelOutcome::AlreadyCancelled);
        self.promises.remove(&id);
        self.cancelled += 1;
    }

    fn fire(&mut self) {
        let (fired, _) = self.stage.fire();
        self.ended(&fired);
    }

    fn ended(&mut self, fired: &[MessageId]) {
        self.delivered += fired.len();
        for id in fired {
            self.promises.remove(id);
        }
        let now = self.stage.now();
        for (id, basis) in &self.stage.waiting {
            let reached = reached(*basis, now);
            assert!(id.key.due > reached, "{basis:?} due {} waits at {reached}", id.key.due);
        }
        let monotonic = self.monotonic();
        for (id, promise) in &self.promises {
            let bound = promise.due + STRETCH * (self.steps - promise.steps_before);
            assert!(monotonic < bound, "{id} is {:?} late", monotonic - promise.due);
        }
    }

    /// The clocks come right, and everything has to come out.
    fn end(mut self) {
        let waiting = self.stage.waiting.keys();
        let last = waiting.map(|id| id.key.due).max().unwrap_or(Timestamp::MIN);
        self.stage.clock.set_wall(last.max(self.stage.now().timestamp()));
        self.steps += 1;
        self.fire();
        assert!(self.stage.waiting.is_empty(), "left: {:?}", self.stage.waiting);
        assert_eq!(self.delivered + self.cancelled, self.accepted);
    }
}

#[test]
fn g9_to_g14_hold_under_random_steps_of_the_clock() {
    for seed in 1..=40 {
        let mut play = Play::new(seed);
        for _ in 0..STEPS {
            play.turn();
        }
        assert!(play.steps > 200 && play.cancelled > 50, "the dice are worth something");
        play.end();
    }
}
