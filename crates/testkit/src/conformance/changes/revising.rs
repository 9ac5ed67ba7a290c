//! Revising: all orders or none, each answered, and nobody's change is lost.

use std::thread;

use punctual_model::ports::{Done, OnConflict, Order, PendingEntry, Refusal, Revised};
use punctual_model::{Basis, Entry, Key, Lane, MessageId, State, Timestamp};

use super::{
    Stage, Store, after, cancel, changed, done, entry, everything, find, fire, list, listed,
    message, named, named_order, order, order_in, partition, put_in_place, refused, replace,
    reschedule, revise, schedule_at, shown, state, stored, stranger, told, with_name,
};

pub(super) fn no_orders_are_nothing<T: Store>(stage: &Stage<T>) {
    assert_eq!(revise(&stage.subject, Vec::new()), Revised::Done(Vec::new()));
    assert_eq!(named(&stage.subject, stage.topics[0], &[]), []);
}

pub(super) fn each_order_is_answered<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let given = schedule_at(stage, &[10, 20, 30]);
    let second = shown(timeline, given[1]);
    let elsewhere = Entry { partition: partition(3), ..entry(other, after(50), message("new")) };
    let orders = vec![
        order(elsewhere),
        Order::Cancel { id: given[0], expected: None },
        replace(&second, changed(&second, after(25))),
        order_in(Lane::Retry, entry(topic, after(5), message("in the other lane"))),
        Order::Cancel { id: given[2], expected: Some(given[2].key) },
    ];
    let answers = done(timeline, orders);
    let (new, retry) = (stored(answers[0]), stored(answers[3]));
    assert_eq!((new.key.due, new.topic, new.partition), (after(50), other, partition(3)));
    assert_eq!(new.key.sequence.lane(), Lane::Message);
    assert_eq!((retry.key.due, retry.key.sequence.lane()), (after(5), Lane::Retry));
    let place = shown(timeline, given[1]).key;
    assert_eq!(place.due, after(25));
    assert_eq!((answers[1], answers[4]), (Done::Cancelled, Done::Cancelled));
    assert_eq!(answers[2], Done::Moved(place));
    assert_eq!(state(timeline, given[0]), Some(State::Cancelled));
    assert_eq!(fire(timeline, Lane::Message, 100), [(given[1], after(25)), (new, after(50))]);
    assert_eq!(fire(timeline, Lane::Retry, 100), [(retry, after(5))]);
}

pub(super) fn a_refused_order_leaves_nothing<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let taken = stored(done(timeline, vec![named_order(topic, 9000, "taken", 1)])[0]);
    let given = schedule_at(stage, &[10, 2000, 3000, 4000, 5000, 6000]);
    fire(timeline, Lane::Message, 11);
    cancel(timeline, &given[1..2]);
    reschedule(timeline, given[2], 3500);
    let (third, fourth) = (shown(timeline, given[3]), shown(timeline, given[4]));
    let moved = shown(timeline, given[2]);
    let nobody = stranger(topic, after(4000));
    let place = |id: MessageId| Order::Cancel { id, expected: Some(id.key) };
    let again = |id: MessageId, expected: Key| {
        let entry = changed(&imagined(id), after(7000));
        Order::Replace { id, expected, entry }
    };
    let wrong = vec![
        (named_order(topic, 100, "taken", 2), Refusal::OwnIdTaken(taken)),
        (again(given[2], given[2].key), Refusal::Changed),
        (place(given[2]), Refusal::Changed),
        (again(given[0], given[0].key), Refusal::Ended(State::Delivered)),
        (again(given[1], given[1].key), Refusal::Ended(State::Cancelled)),
        (place(given[0]), Refusal::Ended(State::Delivered)),
        (place(given[1]), Refusal::Ended(State::Cancelled)),
        (again(nobody, nobody.key), Refusal::NotFound),
        (place(nobody), Refusal::NotFound),
    ];
    let before = (told(timeline, topic), told(timeline, other));
    for (number, (order_refused, reason)) in wrong.into_iter().enumerate() {
        let orders = vec![
            named_order(other, 50, "new", 1),
            Order::Schedule {
                lane: Lane::Message,
                entry: with_name(entry(topic, after(60), message("n")), "taken", 3),
                conflict: OnConflict::Replace,
            },
            replace(&third, changed(&third, after(70))),
            Order::Cancel { id: given[4], expected: Some(fourth.key) },
            Order::Cancel { id: given[5], expected: None },
            order_refused.clone(),
            order(entry(topic, after(80), message("behind"))),
        ];
        let orders = if number == 0 { without_the_taken_one(orders) } else { orders };
        let index = orders.len() - 2;
        assert_eq!(revise(timeline, orders), Revised::Refused { index, reason }, "case {number}");
        assert_eq!(refused(timeline, order_refused), reason, "alone: case {number}");
        assert_eq!((told(timeline, topic), told(timeline, other)), before, "case {number}");
        assert_eq!(named(timeline, topic, &["taken"]), [Some(taken)]);
        assert_eq!(named(timeline, other, &["new"]), [None]);
        assert_eq!(shown(timeline, given[2]), moved);
        assert_eq!(shown(timeline, given[3]), third);
    }
    let rest = [taken, given[2], given[3], given[4], given[5]].map(|id| shown(timeline, id));
    let rest = rest.map(|shown| (shown.id, shown.key.due));
    assert_eq!(sorted_by_due(fire(timeline, Lane::Message, 20_000)), sorted_by_due(rest.to_vec()));
}

/// Its name would be free for the order behind it.
fn without_the_taken_one(mut orders: Vec<Order>) -> Vec<Order> {
    orders.remove(1);
    orders
}

fn sorted_by_due(mut fired: Vec<(MessageId, Timestamp)>) -> Vec<(MessageId, Timestamp)> {
    fired.sort_by_key(|(id, due)| (*due, *id));
    fired
}

/// As somebody imagines it who knows only its id.
fn imagined(id: MessageId) -> PendingEntry {
    let message = message("changed");
    PendingEntry { id, key: id.key, basis: Basis::Delay, message, extra: None }
}

pub(super) fn a_replaced_message_keeps_its_id<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let given = schedule_at(stage, &[1000, 2000, 3000]);
    let mut places = vec![given[0].key];
    // To and fro, to the same time again, and past others.
    for (version, due) in (2..).zip([2500, 500, 500, 1000, 9000]) {
        let key = reschedule(timeline, given[0], due);
        assert!(!places.contains(&key), "a place is taken once");
        places.push(key);
        let now = shown(timeline, given[0]);
        assert_eq!((now.key, now.version(), now.state()), (key, version, State::Scheduled));
        assert_eq!(now.message, message("due 1000"));
        let entries = list(timeline, everything(topic));
        let listed: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
        let mut expected = [(key, given[0]), (given[1].key, given[1]), (given[2].key, given[2])];
        expected.sort();
        assert_eq!(listed, expected.iter().map(|(_, id)| *id).collect::<Vec<_>>());
        assert!(entries.contains(&now), "listed as it is found");
    }
    for place in &places[1..] {
        let id = MessageId { key: *place, ..given[0] };
        let shown = find(timeline, id).and_then(|found| found.entry);
        assert_eq!(shown, None, "a place is no id");
    }
    let before = shown(timeline, given[0]);
    let other =
        Entry { message: message("other"), basis: Basis::Date, ..changed(&before, after(4)) };
    put_in_place(timeline, &before, other);
    let now = shown(timeline, given[0]);
    assert_eq!((now.message, now.basis, now.key.due), (message("other"), Basis::Date, after(4)));
    assert_eq!(listed(timeline, everything(topic)), [given[0], given[1], given[2]]);
    assert_eq!(fire(timeline, Lane::Message, 5), [(given[0], after(4))]);
    assert_eq!(state(timeline, given[0]), Some(State::Delivered));
}

pub(super) fn replacing_needs_the_place_where_it_stands<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[1000, 2000]);
    let first = shown(timeline, given[0]);
    let order = |due: u64| replace(&first, changed(&first, after(due)));
    let key = reschedule(timeline, given[0], 1500);
    assert_eq!(refused(timeline, order(3000)), Refusal::Changed);
    // Back at the time it had: still another place.
    reschedule(timeline, given[0], 1000);
    assert_eq!(refused(timeline, order(3000)), Refusal::Changed);
    let stale = Order::Cancel { id: given[0], expected: Some(key) };
    assert_eq!(refused(timeline, stale), Refusal::Changed);
    let elsewhere = MessageId { topic: stage.topics[1], ..given[1] };
    let not_there = Order::Cancel { id: elsewhere, expected: Some(given[1].key) };
    assert_eq!(refused(timeline, not_there), Refusal::NotFound);
    assert_eq!(
        fire(timeline, Lane::Message, 5000),
        [(given[0], after(1000)), (given[1], after(2000))]
    );
    assert_eq!(refused(timeline, order(3000)), Refusal::Ended(State::Delivered));
}

pub(super) fn a_cancel_may_name_the_place<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 2000, 3000, 4000, 5000]);
    fire(timeline, Lane::Message, 11);
    let place = reschedule(timeline, given[1], 2500);
    reschedule(timeline, given[2], 3500);
    let cancel_at = |id, expected| Order::Cancel { id, expected };
    assert_eq!(refused(timeline, cancel_at(given[1], Some(given[1].key))), Refusal::Changed);
    let orders = vec![
        cancel_at(given[1], Some(place)),
        cancel_at(given[2], None),
        cancel_at(given[3], Some(given[3].key)),
        cancel_at(given[0], None),
    ];
    let answers = done(timeline, orders);
    assert_eq!(answers, [Done::Cancelled, Done::Cancelled, Done::Cancelled, Done::Nothing]);
    for id in &given[1..4] {
        assert_eq!(state(timeline, *id), Some(State::Cancelled));
        assert_eq!(done(timeline, vec![cancel_at(*id, None)]), [Done::Nothing]);
    }
    let ended = Refusal::Ended(State::Cancelled);
    assert_eq!(refused(timeline, cancel_at(given[1], Some(place))), ended);
    assert_eq!(fire(timeline, Lane::Message, 9000), [(given[4], after(5000))]);
}

pub(super) fn of_concurrent_changes_one_wins<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &(0..40).map(|number| 100 + number).collect::<Vec<_>>());
    let first: Vec<_> = given.iter().map(|id| shown(timeline, *id)).collect();
    let answers: Vec<Vec<Revised>> = thread::scope(|scope| {
        let first = &first;
        let start = |due: u64| {
            let change_all = move || {
                let change = |shown| vec![replace(shown, changed(shown, after(due)))];
                first.iter().map(|shown| revise(timeline, change(shown))).collect()
            };
            let builder = thread::Builder::new().name(due.to_string());
            builder.spawn_scoped(scope, change_all).expect("a test may start a thread")
        };
        let threads = [start(1000), start(2000), start(3000)];
        threads.map(|thread| thread.join().expect("a changer ends well")).into()
    });
    for (index, id) in given.iter().enumerate() {
        let place = shown(timeline, *id).key;
        let won = Revised::Done(vec![Done::Moved(place)]);
        let lost = Revised::Refused { index: 0, reason: Refusal::Changed };
        let of_this: Vec<&Revised> = answers.iter().map(|answers| &answers[index]).collect();
        assert_eq!(of_this.iter().filter(|answer| ***answer == won).count(), 1, "{of_this:?}");
        assert_eq!(of_this.iter().filter(|answer| ***answer == lost).count(), 2, "{of_this:?}");
    }
    assert_eq!(fire(timeline, Lane::Message, 5000).len(), given.len(), "each is delivered once");
}
