//! Cancelling: the outcome is definite, and a cancel and a delivery exclude each other.

use std::thread;

use punctual_model::MessageId;
use punctual_model::ports::{CancelOutcome, Timeline};

use super::super::{Stage, after, partition};
use super::{PLENTY, arm_all, cancel, claim, ids, schedule_at, settle, stranger};

pub(super) fn claim_takes_out_what_was_cancelled<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(cancel(timeline, &given[..1]), [CancelOutcome::Cancelled]);
    let armed = arm_all(timeline, after(10), PLENTY);
    let outcomes = cancel(timeline, &[given[3], given[5]]);
    assert_eq!(outcomes, [CancelOutcome::Cancelled; 2], "what is armed can still be withdrawn");
    let claimed = claim(timeline, armed);
    assert_eq!(ids(&claimed), [given[1], given[2], given[4]], "the rest, in the same order");
    for id in [given[0], given[3], given[5]] {
        let outcome = cancel(timeline, &[id])[0];
        assert_ne!(outcome, CancelOutcome::Cancelled, "cancelled once");
        assert_ne!(outcome, CancelOutcome::AlreadyDelivered, "never delivered");
    }
    settle(timeline, &claimed);
    assert!(arm_all(timeline, after(10), PLENTY).is_empty());
}

pub(super) fn a_cancel_has_a_definite_outcome<T: Timeline>(stage: &Stage<T>) {
    use CancelOutcome::{AlreadyCancelled, AlreadyDelivered, Cancelled, NotFound};
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 10_000, 20_000]);
    let claimed = claim(timeline, arm_all(timeline, after(11), PLENTY));
    assert_eq!(cancel(timeline, &given[..1]), [AlreadyDelivered], "claimed is too late");
    settle(timeline, &claimed);
    assert_eq!(cancel(timeline, &given[..1]), [AlreadyDelivered], "settled is too late");

    let elsewhere = MessageId { partition: partition(1), ..given[1] };
    let asked = [stranger(stage.topics[0], after(10_000)), given[1], elsewhere, given[1]];
    assert_eq!(cancel(timeline, &asked), [NotFound, Cancelled, NotFound, AlreadyCancelled]);
    assert_eq!(cancel(timeline, &given[1..]), [AlreadyCancelled, Cancelled]);
    let left = claim(timeline, arm_all(timeline, after(100_000), PLENTY));
    assert!(left.is_empty(), "what was cancelled is never delivered");
}

pub(super) fn of_concurrent_cancels_one_wins<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &(0..50).collect::<Vec<_>>());
    let outcomes: Vec<Vec<CancelOutcome>> = thread::scope(|scope| {
        let cancel_all = || given.iter().map(|id| cancel(timeline, &[*id])[0]).collect();
        let start = |name: &str| {
            let builder = thread::Builder::new().name(name.into());
            builder.spawn_scoped(scope, cancel_all).expect("a test may start a thread")
        };
        let threads = [start("one"), start("other")];
        threads.map(|thread| thread.join().expect("a canceller ends well")).into()
    });
    for (index, pair) in outcomes[0].iter().zip(&outcomes[1]).enumerate() {
        let one_each = [CancelOutcome::Cancelled, CancelOutcome::AlreadyCancelled];
        let pair = [*pair.0, *pair.1];
        assert!(one_each.iter().all(|wanted| pair.contains(wanted)), "{index}: {pair:?}");
    }
}
