//! Changes that were answered are there after a restart: places, own ids, links, and what ended.

use punctual_model::ports::{CancelOutcome, Done, Refusal};
use punctual_model::{Action, Lane, Link, MessageId, State, TopicId};

use super::{
    PLENTY, Stage, Store, after, arm_all, cancel, changed, claim, done, entry, fire, message,
    named, named_order, order, order_in, pause, refused, replace, reschedule, schedule_at, settle,
    shown, state, store, stored, told,
};

/// Starts again, twice, and finds what both topics tell as it was.
fn restarted<T: Store>(stage: Stage<T>, reopen: &impl Fn(T) -> T, when: &str) -> Stage<T> {
    let Stage { mut subject, topics } = stage;
    let before = topics.map(|topic| told(&subject, topic));
    for time in ["one restart", "two restarts"] {
        subject = reopen(subject);
        let now = topics.map(|topic| told(&subject, topic));
        assert_eq!(now, before, "{when}, after {time}");
    }
    Stage { subject, topics }
}

pub(super) fn moves_survive_a_restart<T: Store>(stage: Stage<T>, reopen: &impl Fn(T) -> T) {
    let given = schedule_at(&stage, &[1000, 2000, 3000, 4000, 5000, 10]);
    let timeline = &stage.subject;
    reschedule(timeline, given[0], 2500);
    reschedule(timeline, given[1], 100);
    reschedule(timeline, given[1], 7000);
    pause(timeline, given[2]);
    reschedule(timeline, given[3], 100);
    cancel(timeline, &given[3..4]);
    reschedule(timeline, given[5], 20);
    assert_eq!(fire(timeline, Lane::Message, 50), [(given[5], after(20))]);
    let places: Vec<_> = [0, 1, 2, 4].map(|index| shown(timeline, given[index])).into();

    let stage = restarted(stage, reopen, "moves");
    let timeline = &stage.subject;
    for place in &places {
        assert_eq!(shown(timeline, place.id), *place, "by its id");
    }
    assert_eq!(state(timeline, given[3]), Some(State::Cancelled));
    assert_eq!(cancel(timeline, &given[3..4]), [CancelOutcome::AlreadyCancelled]);
    let stale = replace(&places[0], changed(&places[0], after(8000)));
    reschedule(timeline, given[0], 2600);
    assert_eq!(refused(timeline, stale), Refusal::Changed);
    reschedule(timeline, given[2], 3300);
    assert_eq!(cancel(timeline, &given[1..2]), [CancelOutcome::Cancelled]);

    let stage = restarted(stage, reopen, "more moves");
    let timeline = &stage.subject;
    assert_eq!(shown(timeline, given[0]).version(), 3);
    let expected = [(given[0], after(2600)), (given[2], after(3300)), (given[4], after(5000))];
    assert_eq!(fire(timeline, Lane::Message, 90_000), expected, "for the newest time only");
    let stage = restarted(stage, reopen, "all delivered");
    assert!(arm_all(&stage.subject, after(90_000), PLENTY).is_empty());
}

pub(super) fn own_ids_survive_a_restart<T: Store>(stage: Stage<T>, reopen: &impl Fn(T) -> T) {
    let [topic, other] = stage.topics;
    let timeline = &stage.subject;
    let texts = ["pending", "moved", "cancelled", "delivered", "replaced"];
    let given = texts.map(|text| store(timeline, named_order(topic, 1000, text, 1)));
    let there = store(timeline, named_order(other, 1000, "pending", 2));
    reschedule(timeline, given[1], 5000);
    cancel(timeline, &given[2..3]);
    reschedule(timeline, given[3], 10);
    fire(timeline, Lane::Message, 20);
    cancel(timeline, &given[4..]);
    let mut stage = stage;
    for round in 0..3 {
        stage = restarted(stage, reopen, "own ids");
        let timeline = &stage.subject;
        assert_eq!(named(timeline, topic, &texts), given.map(Some), "round {round}");
        assert_eq!(named(timeline, other, &texts[..2]), [Some(there), None]);
        for (text, id) in texts.iter().zip(given) {
            let again = done(timeline, vec![named_order(topic, 60, text, 1)]);
            assert_eq!(again, [Done::Known(id)], "{text}, round {round}");
            let other = named_order(topic, 60, text, 2);
            assert_eq!(refused(timeline, other), Refusal::OwnIdTaken(id), "{text}");
        }
    }
    let fired = fire(&stage.subject, Lane::Message, 9000);
    assert_eq!(fired, [(given[0], after(1000)), (there, after(1000)), (given[1], after(5000))]);
}

pub(super) fn links_survive_a_restart<T: Store>(stage: Stage<T>, reopen: &impl Fn(T) -> T) {
    let topic = stage.topics[0];
    let series = entry(topic, after(100), message("series")).with_extra(|extra| {
        extra.action = Action::Repeat;
        extra.links = vec![Link::Order(1)];
    });
    let occurrence = entry(topic, after(100), message("occurrence"))
        .with_extra(|extra| extra.series = Some(Link::Order(0)));
    let orders = vec![order_in(Lane::Retry, series), order(occurrence.clone())];
    let first: Vec<MessageId> = done(&stage.subject, orders).into_iter().map(stored).collect();
    let stage = restarted(stage, reopen, "a series");
    let timeline = &stage.subject;
    let links = |timeline: &T, id: MessageId| shown(timeline, id).extra.map(|extra| extra.links);
    assert_eq!(links(timeline, first[0]), Some(vec![Link::Id(first[1])]));
    let before = shown(timeline, first[0]);
    let next = changed(&before, after(200)).with_extra(|extra| extra.links = vec![Link::Order(1)]);
    let orders = vec![replace(&before, next), order(occurrence)];
    let second = stored(done(timeline, orders)[1]);
    let stage = restarted(stage, reopen, "its next occurrence");
    let timeline = &stage.subject;
    assert_eq!(links(timeline, first[0]), Some(vec![Link::Id(second)]));
    let of = shown(timeline, second).extra.and_then(|extra| extra.series);
    assert_eq!(of, Some(Link::Id(first[0])));
    let transactions = TopicId::TRANSACTIONS;
    let check = entry(transactions, after(9), message("t"));
    let check = check.with_extra(|extra| extra.action = Action::Check);
    let id = store(timeline, order_in(Lane::Retry, check));
    let stage = restarted(stage, reopen, "a transaction");
    assert_eq!(shown(&stage.subject, id).message, message("t"));
    assert_eq!(stage.subject.counts(Lane::Retry).len(), 2);
}

pub(super) fn a_moved_message_is_delivered_once_after_a_restart<T: Store>(
    stage: Stage<T>,
    reopen: &impl Fn(T) -> T,
) {
    let given = schedule_at(&stage, &[10, 20, 30, 40]);
    let timeline = &stage.subject;
    let armed = arm_all(timeline, after(100), PLENTY);
    reschedule(timeline, given[0], 60);
    reschedule(timeline, given[1], 5);
    // What was armed and not claimed is armed again after the restart.
    drop(armed);
    let stage = restarted(stage, reopen, "armed and moved");
    let timeline = &stage.subject;
    let armed = arm_all(timeline, after(50), PLENTY);
    let claimed = claim(timeline, armed);
    let fired: Vec<_> = claimed.iter().map(|armed| (armed.id(), armed.key.due)).collect();
    assert_eq!(fired, [(given[1], after(5)), (given[2], after(30)), (given[3], after(40))]);
    settle(timeline, &claimed);
    assert_eq!(fire(timeline, Lane::Message, 1000), [(given[0], after(60))]);
}

pub(super) fn many_changes_survive_many_restarts<T: Store>(
    stage: Stage<T>,
    reopen: &impl Fn(T) -> T,
) {
    let topic = stage.topics[0];
    let mut stage = stage;
    let mut given: Vec<MessageId> = Vec::new();
    for round in 0..6u64 {
        let timeline = &stage.subject;
        let orders = (0..60).map(|number| {
            let name = format!("{round}-{number}");
            named_order(topic, 1000 + (number * 331 + round * 97) % 15_000, &name, number)
        });
        given.extend(done(timeline, orders.collect()).into_iter().map(stored));
        for (number, id) in (0u64..).zip(&given) {
            match (number + round) % 7 {
                0 | 1 => drop(reschedule_if_pending(timeline, *id, 1000 + number * 613 % 17_000)),
                2 if state(timeline, *id) == Some(State::Scheduled) => drop(pause(timeline, *id)),
                3 if round > 3 => drop(cancel(timeline, &[*id])),
                _ => {}
            }
        }
        fire(timeline, Lane::Message, 1000 + round * 400);
        let before: Vec<_> = given.iter().map(|id| state(timeline, *id)).collect();
        stage = restarted(stage, reopen, &format!("round {round}"));
        let timeline = &stage.subject;
        let now: Vec<_> = given.iter().map(|id| state(timeline, *id)).collect();
        assert_eq!(now, before, "round {round}");
        let names: Vec<String> = (0..60).map(|number| format!("{round}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ids: Vec<_> = given[given.len() - 60..].iter().copied().map(Some).collect();
        assert_eq!(named(timeline, topic, &names), ids);
    }
    let mut expected: Vec<_> = given
        .iter()
        .filter(|id| state(&stage.subject, **id) == Some(State::Scheduled))
        .map(|id| (shown(&stage.subject, *id).key, *id))
        .collect();
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(key, id)| (id, key.due)).collect();
    assert_eq!(fire(&stage.subject, Lane::Message, 90_000), expected);
}

fn reschedule_if_pending<T: Store>(timeline: &T, id: MessageId, due: u64) -> bool {
    let pending = state(timeline, id).is_some_and(State::is_pending);
    if pending {
        reschedule(timeline, id, due);
    }
    pending
}
