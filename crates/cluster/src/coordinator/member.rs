//! What a registered node holds, by the assignment and by what it has let go of: the part of a
//! member that decides.
//!
//! What must hold: a slot that the node has let go of never comes back with the same term, whatever
//! is read later; and what the node says of its slots is bounded by the slots it holds. Nothing here
//! does I/O.

use std::collections::BTreeMap;

use punctual_model::ports::{ClusterView, Held, Holding, Node, SlotView};

use super::assignment::{Assignment, Name, Tenancy, Word};
use super::document::About;
use super::registry::Revision;

/// A registered node's slots.
#[derive(Debug)]
pub(crate) struct Member {
    name: Name,
    /// The assignment it knows, and in which state.
    known: Option<(Revision, Assignment)>,
    /// What it has to say of its slots.
    word: Word,
}

impl Member {
    /// A node that was registered under `name` a moment ago and holds nothing.
    pub(crate) fn new(name: Name) -> Self {
        Self { name, known: None, word: Word::default() }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// The state of the assignment it knows.
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.known.as_ref().map(|known| known.0)
    }

    /// The assignment it knows.
    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.known.as_ref().map(|known| &known.1)
    }

    /// What it has to say.
    pub(crate) fn word(&self) -> &Word {
        &self.word
    }

    /// The assignment was read. One that is older than what is known is left out.
    pub(crate) fn learn(&mut self, revision: Revision, assignment: Assignment) {
        if self.revision().is_some_and(|known| revision <= known) {
            return;
        }
        let holds = |tenancy: &Tenancy| holds(&assignment, &self.name, *tenancy);
        self.word.released.retain(holds);
        self.word.drained.retain(holds);
        self.known = Some((revision, assignment));
    }

    /// The node has let go of a slot. Answers whether it had it.
    pub(crate) fn release(&mut self, tenancy: Tenancy) -> bool {
        let Some((_, assignment)) = &self.known else { return false };
        holds(assignment, &self.name, tenancy) && self.word.released.insert(tenancy)
    }

    /// The node has let go of a retired slot in which nothing is left. Answers whether it had it. It
    /// is out of the node's hands like any other that it let go of: if the slot is wanted again
    /// before it has ended, somebody gets it with a new term.
    pub(crate) fn drain(&mut self, tenancy: Tenancy) -> bool {
        let Some((_, assignment)) = &self.known else { return false };
        holds(assignment, &self.name, tenancy)
            && assignment.is_retired(tenancy.slot)
            && !self.word.gives_up(&tenancy)
            && self.word.drained.insert(tenancy)
    }

    /// What the node holds.
    pub(crate) fn holding(&self) -> Holding {
        let Some((_, assignment)) = &self.known else { return Holding::default() };
        let held = assignment.slots().filter_map(|(slot, place)| {
            let tenancy = Tenancy { slot, term: place.term };
            let mine = place.owner.as_ref() == Some(&self.name);
            (mine && !self.word.gives_up(&tenancy)).then(|| Held {
                slot,
                term: place.term,
                leaving: place.next.is_some(),
                retired: assignment.is_retired(slot),
            })
        });
        Holding { slots: held.collect() }
    }

    /// The cluster as the node sees it.
    pub(crate) fn view(&self, nodes: &BTreeMap<Name, About>, leader: Option<Name>) -> ClusterView {
        let there = |name: &Name| nodes.contains_key(name);
        let slot = |(slot, place): (u32, &super::assignment::Place)| SlotView {
            slot,
            owner: place.owner.clone().filter(there),
            term: place.term,
            next: place.next.clone().filter(there),
        };
        let node = |(name, about): (&Name, &About)| Node {
            name: name.clone(),
            address: about.address.as_str().into(),
            version: about.version.as_str().into(),
            since: about.since(),
        };
        ClusterView {
            nodes: nodes.iter().map(node).collect(),
            leader,
            slots_wanted: self.assignment().map_or(0, |assignment| assignment.wanted),
            slots: self.assignment().into_iter().flat_map(Assignment::slots).map(slot).collect(),
        }
    }
}

/// Whether the node has the slot with that term.
fn holds(assignment: &Assignment, name: &Name, tenancy: Tenancy) -> bool {
    let place = assignment.place(tenancy.slot);
    place.is_some_and(|place| place.owner.as_ref() == Some(name) && place.term == tenancy.term)
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{Present, balance, settle};
    use super::*;

    fn present(names: &[&str]) -> Present {
        names.iter().map(|name| (Name::from(*name), Word::default())).collect()
    }

    fn numbers(holding: &Holding) -> Vec<u32> {
        holding.slots.iter().map(|held| held.slot).collect()
    }

    #[test]
    fn what_was_let_go_of_stays_so_even_if_an_older_assignment_is_read() {
        let mut member = Member::new("a".into());
        let alone = balance(&Assignment::new(2, 0), &present(&["a"]), 2);
        let moving = balance(&alone, &present(&["a", "b"]), 2);
        member.learn(Revision(1), alone.clone());
        assert_eq!(numbers(&member.holding()), [0, 1]);
        member.learn(Revision(2), moving.clone());
        let (leaving, staying): (Vec<Held>, Vec<Held>) =
            member.holding().slots.into_iter().partition(|held| held.leaving);
        let ([goes], [stays]) = (&leaving[..], &staying[..]) else { panic!("one of two goes") };
        let stays = stays.slot;

        let gone = Tenancy { slot: goes.slot, term: 1 };
        assert!(member.release(gone));
        assert!(!member.release(gone), "said twice");
        assert!(!member.release(Tenancy { slot: stays, term: 7 }), "not its term");
        assert_eq!(numbers(&member.holding()), [stays]);
        // The move is called off, but too late.
        member.learn(Revision(3), alone.clone());
        assert_eq!(numbers(&member.holding()), [stays]);

        let mut said = present(&["a", "b"]);
        said.insert("a".into(), member.word().clone());
        member.learn(Revision(4), settle(&moving, &said));
        assert!(member.word().released.is_empty(), "nothing more to say");
        member.learn(Revision(1), alone);
        assert_eq!(numbers(&member.holding()), [stays], "an answer that was late");
    }

    #[test]
    fn a_drained_slot_that_is_in_use_again_comes_back_with_a_new_term() {
        let mut member = Member::new("a".into());
        let nodes = present(&["a"]);
        let two = balance(&Assignment::new(2, 0), &nodes, 2);
        let one = balance(&two, &nodes, 1);
        let drained = Tenancy { slot: 1, term: 1 };
        member.learn(Revision(1), two);
        assert!(!member.drain(drained), "it is in use");
        member.learn(Revision(2), one.clone());
        assert!(member.drain(drained) && !member.drain(drained));
        assert_eq!(numbers(&member.holding()), [0], "let go of at once");
        let two = balance(&one, &nodes, 2);
        let mut said = nodes;
        said.insert("a".into(), member.word().clone());
        assert_eq!(settle(&one, &said).slots().count(), 1, "it has ended");
        member.learn(Revision(3), two.clone());
        assert_eq!(numbers(&member.holding()), [0], "not with the same term");
        let again = balance(&settle(&two, &said), &said, 2);
        assert!(again.place(1).is_some_and(|place| place.term > 1), "{again:?}");
        member.learn(Revision(4), again);
        assert!(member.word().drained.is_empty());
        assert_eq!(numbers(&member.holding()), [0, 1]);
    }
}
