//! Handing out what was moved: once, where it stands now, under the id it always had.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::ports::{Armed, CancelOutcome, Refusal};
use punctual_model::{Action, Lane, State, Timestamp};

use super::{
    PLENTY, Stage, Store, after, arm_all, arm_lane, cancel, changed, claim, entry, fire, ids,
    message, order_in, pause, refused, replace, reschedule, schedule_at, settle, shown, state,
    store,
};

pub(super) fn a_moved_message_is_handed_out_where_it_stands<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[100, 200, 300]);
    let later = reschedule(timeline, given[0], 250);
    let sooner = reschedule(timeline, given[2], 50);
    let armed = arm_all(timeline, after(220), PLENTY);
    assert_eq!(ids(&armed), [given[2], given[1]], "not where it was");
    assert_eq!(armed[0].key, sooner);
    assert_eq!(armed[0].message, message("due 300"));
    settle(timeline, &claim(timeline, armed));
    let armed = arm_all(timeline, after(400), PLENTY);
    assert_eq!(ids(&armed), given[..1], "once");
    assert_eq!(armed[0].key, later);
    let changed = armed[0].extra.as_ref().and_then(|extra| extra.changed);
    assert!(changed.is_some_and(|changed| changed.first == given[0].key && changed.version == 2));
    settle(timeline, &claim(timeline, armed));
    for id in given {
        assert_eq!(state(timeline, id), Some(State::Delivered));
    }
    assert!(arm_all(timeline, after(1000), PLENTY).is_empty());
    assert_eq!(timeline.counts(Lane::Message), []);
}

pub(super) fn a_message_moved_behind_what_was_armed_is_handed_out<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10_000, 20_000, 30_000]);
    assert!(arm_all(timeline, after(5000), PLENTY).is_empty());
    reschedule(timeline, given[1], 1000);
    let armed = arm_all(timeline, after(5000), PLENTY);
    assert_eq!(ids(&armed), given[1..2], "a late arrival");
    reschedule(timeline, given[2], 5000);
    assert!(arm_all(timeline, after(5000), PLENTY).is_empty(), "the end is outside");
    settle(timeline, &claim(timeline, armed));
    assert_eq!(
        fire(timeline, Lane::Message, 40_000),
        [(given[2], after(5000)), (given[0], after(10_000))]
    );
}

pub(super) fn claim_drops_what_was_moved_since_it_was_armed<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 20, 30, 40]);
    let mut armed = arm_all(timeline, after(100), PLENTY);
    assert_eq!(armed.len(), 4);
    reschedule(timeline, given[0], 5000);
    reschedule(timeline, given[1], 50);
    reschedule(timeline, given[2], 30);
    let again = arm_all(timeline, after(100), PLENTY);
    let mut moved = ids(&again);
    moved.sort();
    assert_eq!(moved, [given[1], given[2]], "handed out anew, where it stands now");
    armed.extend(again);
    let claimed = claim(timeline, armed);
    let mut fired: Vec<_> = claimed.iter().map(|armed| (armed.id(), armed.key.due)).collect();
    fired.sort();
    assert_eq!(
        fired,
        [(given[1], after(50)), (given[2], after(30)), (given[3], after(40))],
        "for the newest time only"
    );
    settle(timeline, &claimed);
    assert_eq!(shown(timeline, given[0]).key.due, after(5000), "it waits again");
    assert_eq!(fire(timeline, Lane::Message, 6000), [(given[0], after(5000))]);
}

pub(super) fn of_many_moves_only_the_last_is_delivered<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &(0..30).map(|number| 1000 + number).collect::<Vec<_>>());
    let mut armed: Vec<Armed> = Vec::new();
    for round in 0..8u64 {
        for (number, id) in (0..).zip(&given) {
            if (number + round) % 3 != 0 {
                reschedule(timeline, *id, (number * 37 + round * 211) % 1500);
            }
        }
        armed.extend(arm_all(timeline, after(200 * round), PLENTY));
    }
    let expected: Vec<_> = given.iter().map(|id| (*id, shown(timeline, *id).key)).collect();
    armed.extend(arm_all(timeline, after(2000), PLENTY));
    let claimed = claim(timeline, armed);
    let mut fired: Vec<_> = claimed.iter().map(|armed| (armed.id(), armed.key)).collect();
    fired.sort();
    assert_eq!(fired, expected, "each once, for the newest time");
    settle(timeline, &claimed);
    assert!(arm_all(timeline, after(9000), PLENTY).is_empty());
}

pub(super) fn what_is_claimed_cannot_be_changed<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 20]);
    reschedule(timeline, given[0], 15);
    let places = given.iter().map(|id| shown(timeline, *id)).collect::<Vec<_>>();
    let claimed = claim(timeline, arm_all(timeline, after(100), PLENTY));
    assert_eq!(claimed.len(), 2);
    for settled in [false, true] {
        for place in &places {
            let order = replace(place, changed(place, after(5000)));
            assert_eq!(refused(timeline, order), Refusal::Ended(State::Delivered));
            assert_eq!(cancel(timeline, &[place.id]), [CancelOutcome::AlreadyDelivered]);
            assert_eq!(state(timeline, place.id), Some(State::Delivered));
        }
        if !settled {
            settle(timeline, &claimed);
        }
    }
}

pub(super) fn a_moved_message_is_cancelled_by_its_id<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 20, 30, 40]);
    reschedule(timeline, given[0], 15);
    reschedule(timeline, given[1], 9000);
    reschedule(timeline, given[1], 25);
    reschedule(timeline, given[2], 9000);
    let armed = arm_all(timeline, after(100), PLENTY);
    assert_eq!(cancel(timeline, &given[..3]), [CancelOutcome::Cancelled; 3]);
    assert_eq!(cancel(timeline, &given[..3]), [CancelOutcome::AlreadyCancelled; 3]);
    for id in &given[..3] {
        assert_eq!(state(timeline, *id), Some(State::Cancelled));
    }
    let claimed = claim(timeline, armed);
    assert_eq!(ids(&claimed), given[3..], "what was cancelled is never delivered");
    settle(timeline, &claimed);
    assert!(arm_all(timeline, after(10_000), PLENTY).is_empty());
    assert_eq!(timeline.counts(Lane::Message), []);
}

pub(super) fn what_is_paused_is_not_delivered<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 20, 30, 40]);
    pause(timeline, given[0]);
    let armed = arm_all(timeline, after(100), PLENTY);
    assert_eq!(ids(&armed), given[1..], "nothing is due where it stands");
    pause(timeline, given[1]);
    pause(timeline, given[2]);
    assert_eq!(cancel(timeline, &given[2..3]), [CancelOutcome::Cancelled]);
    let claimed = claim(timeline, armed);
    assert_eq!(ids(&claimed), given[3..]);
    settle(timeline, &claimed);
    for id in &given[..2] {
        let paused = shown(timeline, *id);
        assert_eq!((paused.state(), paused.key.due), (State::Paused, Timestamp::PAUSED));
    }
    reschedule(timeline, given[0], 50);
    reschedule(timeline, given[1], 60);
    assert_eq!(fire(timeline, Lane::Message, 100), [(given[0], after(50)), (given[1], after(60))]);
}

pub(super) fn the_listener_hears_of_what_was_moved_near<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10_000, 20_000]);
    assert!(arm_all(timeline, after(5000), PLENTY).is_empty());
    let (tell, told) = mpsc::channel();
    timeline.listen(Arc::new(move |lane| {
        tell.send(lane).unwrap_or_default(); // The case may have ended.
    }));
    reschedule(timeline, given[0], 1000);
    let heard = told.recv_timeout(Duration::from_secs(60));
    assert_eq!(heard, Ok(Lane::Message), "of a move");
    arm_lane(timeline, Lane::Retry, after(5000), PLENTY);
    let entry = entry(stage.topics[0], after(1), message("new"));
    store(timeline, order_in(Lane::Retry, entry));
    loop {
        let heard = told.recv_timeout(Duration::from_secs(60));
        if heard.expect("it hears of a new entry in the other lane") == Lane::Retry {
            break;
        }
    }
}

pub(super) fn released_entries_come_again_where_they_stand<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let control = |due: u64| {
        let entry = entry(stage.topics[0], after(due), message("control"));
        let entry = entry.with_extra(|extra| extra.action = Action::Repeat);
        store(timeline, order_in(Lane::Retry, entry))
    };
    let (going, ending) = (control(100), control(150));
    let release = |batch: &[Armed]| {
        block_on(timeline.release(batch)).expect("a working store lets release");
    };
    release(&[]);
    for round in 1..6u64 {
        let armed = arm_lane(timeline, Lane::Retry, after(round * 1000), PLENTY);
        let expected = if round == 1 { vec![going, ending] } else { vec![going] };
        assert_eq!(ids(&armed), expected, "round {round}");
        assert_eq!(armed[0].action(), Action::Repeat);
        assert_eq!(state(timeline, going), Some(State::Scheduled));
        reschedule(timeline, going, round * 1000 + 100);
        if round == 1 {
            assert_eq!(cancel(timeline, &[ending]), [CancelOutcome::Cancelled]);
        }
        release(&armed);
        let early = arm_lane(timeline, Lane::Retry, after(round * 1000), PLENTY);
        assert!(early.is_empty(), "what was released does not come back: {:?}", ids(&early));
    }
    assert_eq!(shown(timeline, going).version(), 6);
    assert_eq!(timeline.counts(Lane::Retry), [(stage.topics[0], 1)]);
    assert_eq!(state(timeline, ending), Some(State::Cancelled));
}
