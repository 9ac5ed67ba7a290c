//! When the assignment is changed, and to what: the part of the leader that decides.
//!
//! What nodes have agreed to is carried out at once. Everything else, nodes that came or went or
//! another number of slots, waits for the rebalance delay, so that a node that is started again or
//! ten that are started together do not make slots move back and forth. Nothing here does I/O; that
//! a second leader may be at work is left to the compare-and-set of the write.

use std::time::Duration;

use super::assignment::{Assignment, Present, balance, settle};
use super::lease::Moment;

/// A node while it leads.
#[derive(Debug)]
pub(crate) struct Leader {
    delay: Duration,
    /// When the nodes or the number of slots were first seen not to fit the assignment.
    unbalanced_since: Option<Moment>,
}

/// What a leader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this.
    Write(Assignment),
    /// Look again then.
    Wait(Moment),
    /// All is as it should be.
    Rest,
}

impl Leader {
    /// One that lets `delay` pass before slots move.
    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay, unbalanced_since: None }
    }

    /// What to do, with the assignment as it stands, who is there, and the number of slots that was
    /// asked for.
    pub(crate) fn step(
        &mut self,
        now: Moment,
        stands: &Assignment,
        present: &Present,
        wanted: u32,
    ) -> Step {
        let settled = settle(stands, present);
        let balanced = balance(&settled, present, wanted);
        if balanced == settled {
            self.unbalanced_since = None;
        } else {
            let due = self.unbalanced_since.get_or_insert(now).after(self.delay);
            if now >= due {
                // Stays due until it is seen to be done: the write may fail.
                return Step::Write(balanced);
            }
            if settled == *stands {
                return Step::Wait(due);
            }
        }
        if settled == *stands { Step::Rest } else { Step::Write(settled) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{Name, Tenancy, Word};
    use super::*;

    const DELAY: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment(Duration::from_millis(millis))
    }

    fn present(names: &[&str]) -> Present {
        names.iter().map(|name| (Name::from(*name), Word::default())).collect()
    }

    fn written(step: Step) -> Assignment {
        match step {
            Step::Write(assignment) => assignment,
            other => panic!("expected a write, not {other:?}"),
        }
    }

    #[test]
    fn slots_are_given_out_after_the_delay_and_moves_finish_without_one() {
        let mut leader = Leader::new(DELAY);
        let empty = Assignment::new(4, 100);
        let alone = present(&["a"]);
        assert_eq!(leader.step(at(0), &empty, &alone, 4), Step::Wait(at(1000)));
        assert_eq!(leader.step(at(999), &empty, &alone, 4), Step::Wait(at(1000)));
        let first = written(leader.step(at(1000), &empty, &alone, 4));
        assert_eq!(first.term, 101);
        assert_eq!(leader.step(at(1001), &first, &alone, 4), Step::Rest);

        let mut both = present(&["a", "b"]);
        assert_eq!(leader.step(at(5000), &first, &both, 4), Step::Wait(at(6000)));
        let moving = written(leader.step(at(6000), &first, &both, 4));
        assert_eq!(moving.term, 101, "nobody got a slot yet");
        assert_eq!(leader.step(at(6001), &moving, &both, 4), Step::Rest);
        let word = both.get_mut("a").unwrap();
        let (slot, _) = moving.slots().find(|(_, place)| place.next.is_some()).unwrap();
        word.released.insert(Tenancy { slot, term: 101 });
        let moved = written(leader.step(at(6002), &moving, &both, 4));
        let place = moved.place(slot).unwrap();
        assert_eq!((place.owner.as_deref(), place.term), (Some("b"), 102));
        assert_eq!(leader.step(at(6003), &moved, &both, 4), Step::Rest);
    }

    #[test]
    fn a_node_that_comes_back_within_the_delay_changes_nothing() {
        let mut leader = Leader::new(DELAY);
        let both = present(&["a", "b"]);
        let stands = balance(&Assignment::new(4, 1), &both, 4);
        let alone = present(&["a"]);
        assert_eq!(leader.step(at(0), &stands, &alone, 4), Step::Wait(at(1000)));
        assert_eq!(leader.step(at(500), &stands, &both, 4), Step::Rest);
        assert_eq!(leader.step(at(2000), &stands, &alone, 4), Step::Wait(at(3000)));
    }

    #[test]
    fn a_write_that_failed_is_tried_again_at_once() {
        let mut leader = Leader::new(DELAY);
        let stands = Assignment::new(4, 1);
        let alone = present(&["a"]);
        let _wait = leader.step(at(0), &stands, &alone, 4);
        let first = leader.step(at(1000), &stands, &alone, 4);
        assert_eq!(leader.step(at(1001), &stands, &alone, 4), first);
    }
}
