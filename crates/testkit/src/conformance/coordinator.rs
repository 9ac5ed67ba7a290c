//! The contract of [`Coordinator`].

use std::collections::BTreeSet;

use punctual_model::ports::Coordinator;

/// Holds a coordinator to its contract.
///
/// # Panics
/// Where the coordinator breaks it.
pub fn coordinator<C: Coordinator>(make: impl Fn() -> C) {
    terms_only_grow(&make());
    a_slot_is_held_once(&make());
}

fn terms_only_grow<C: Coordinator>(coordinator: &C) {
    let mut last = coordinator.holding();
    for _ in 0..1000 {
        let next = coordinator.holding();
        assert!(last.term <= next.term, "the term went back from {} to {}", last.term, next.term);
        last = next;
    }
}

fn a_slot_is_held_once<C: Coordinator>(coordinator: &C) {
    let slots = coordinator.holding().slots;
    let distinct: BTreeSet<u32> = slots.iter().copied().collect();
    assert_eq!(distinct.len(), slots.len(), "a slot is listed twice in {slots:?}");
}
