//! Deferring: what the outlet did not take is pending again, and nothing else changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_executor::block_on;
use punctual_model::ports::{Armed, CancelOutcome, Timeline};
use punctual_model::{Lane, State, Timestamp};

use super::super::{Stage, after};
use super::{
    PLENTY, arm_all, cancel, claim, everything, find, ids, list, schedule_at, settle, state,
};

fn defer<T: Timeline>(timeline: &T, batch: &[Armed], due: Timestamp) {
    let batch = batch.iter().map(|armed| (armed.clone(), due)).collect();
    block_on(timeline.defer(batch)).expect("a working store defers");
}

pub(super) fn what_is_deferred_comes_again_under_its_id<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1, 2, 3, 4]);
    let mut claimed = claim(timeline, arm_all(timeline, after(10), PLENTY));
    let sent: Vec<_> = claimed.iter().map(|armed| armed.message.clone()).collect();
    let deferred: Vec<Armed> = claimed.extract_if(1..3, |_| true).collect();
    defer(timeline, &deferred, after(500));
    settle(timeline, &claimed);
    for (id, message) in given[1..3].iter().zip(&sent[1..3]) {
        let found = find(timeline, *id).expect("it is pending");
        let entry = found.entry.expect("it is pending");
        assert_eq!((found.state, entry.key.due), (State::Scheduled, after(500)));
        assert_eq!((entry.id, entry.version()), (*id, 1), "nobody asked for a change");
        assert!(entry.message == *message, "the message is as it was");
    }
    for id in [given[0], given[3]] {
        assert_eq!(state(timeline, id), Some(State::Delivered));
    }
    assert_eq!(timeline.counts(Lane::Message), [(stage.topics[0], 2)]);
    assert_eq!(list(timeline, everything(stage.topics[0])).len(), 2);
    assert!(arm_all(timeline, after(500), PLENTY).is_empty(), "not before its new time");
    for time in [600, 700] {
        let again = claim(timeline, arm_all(timeline, after(501), PLENTY));
        assert_eq!(ids(&again), given[1..3], "in the order in which they were deferred");
        defer(timeline, &again, after(time));
        let again = claim(timeline, arm_all(timeline, after(time + 1), PLENTY));
        assert_eq!(ids(&again), given[1..3]);
        if time == 600 {
            defer(timeline, &again, after(300));
        } else {
            settle(timeline, &again);
        }
    }
    assert_eq!(state(timeline, given[1]), Some(State::Delivered));
    assert!(arm_all(timeline, after(10_000), PLENTY).is_empty());
}

pub(super) fn a_cancel_of_what_was_deferred_wins<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1, 2]);
    let claimed = claim(timeline, arm_all(timeline, after(10), PLENTY));
    assert_eq!(cancel(timeline, &given), [CancelOutcome::AlreadyDelivered; 2]);
    defer(timeline, &claimed, after(20));
    assert_eq!(cancel(timeline, &given[..1]), [CancelOutcome::Cancelled]);
    let armed = arm_all(timeline, after(21), PLENTY);
    assert_eq!(cancel(timeline, &given[1..]), [CancelOutcome::Cancelled]);
    assert!(claim(timeline, armed).is_empty());
}

pub(super) fn settling_some_leaves_the_others_claimed<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1, 2, 3]);
    let claimed = claim(timeline, arm_all(timeline, after(3), PLENTY));
    let more = claim(timeline, arm_all(timeline, after(10), PLENTY));
    settle(timeline, &claimed[..1]);
    settle(timeline, &more);
    assert_eq!(cancel(timeline, &given), [CancelOutcome::AlreadyDelivered; 3]);
    defer(timeline, &claimed[1..], after(20));
    let (delivered, cancelled) = (CancelOutcome::AlreadyDelivered, CancelOutcome::Cancelled);
    assert_eq!(cancel(timeline, &given), [delivered, cancelled, delivered]);
}

pub(super) fn what_is_not_claimed_is_not_deferred<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1, 2, 3]);
    let armed = arm_all(timeline, after(3), PLENTY);
    let claimed = claim(timeline, armed);
    settle(timeline, &claimed);
    let waiting = arm_all(timeline, after(10), PLENTY);
    assert_eq!(cancel(timeline, &given[2..]), [CancelOutcome::Cancelled]);
    defer(timeline, &claimed, after(20));
    defer(timeline, &waiting, after(20));
    assert!(arm_all(timeline, after(100), PLENTY).is_empty(), "delivered, or cancelled");
}

pub(super) fn the_listener_hears_of_what_was_deferred<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    schedule_at(stage, &[1]);
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    timeline.listen(Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let claimed = claim(timeline, arm_all(timeline, after(100), PLENTY));
    defer(timeline, &claimed, after(50));
    assert!(heard.load(Ordering::SeqCst) > 0, "it is due before what was asked for");
    assert_eq!(arm_all(timeline, after(100), PLENTY).len(), 1);
}
