//! Own ids: a request that comes again does nothing twice, and another one is not mistaken for it.

use std::collections::BTreeSet;
use std::thread;

use punctual_model::ports::{Done, OnConflict, Order, Refusal, Revised};
use punctual_model::{Action, Lane, Link, MessageId, State, TopicId};

use super::{
    Stage, Store, after, cancel, done, entry, everything, fire, listed, message, named,
    named_order, order, order_in, pause, refused, reschedule, revise, shown, state, store, stored,
    told, with_name,
};

/// As [`named_order`], taking the place of what has the name.
fn replacing(topic: TopicId, due: u64, text: &str, print: u64) -> Order {
    let entry = with_name(entry(topic, after(due), message(text)), text, print);
    Order::Schedule { lane: Lane::Message, entry, conflict: OnConflict::Replace }
}

pub(super) fn the_same_request_again_is_told_the_first_answer<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    assert_eq!(named(timeline, topic, &["invoice-1"]), [None]);
    let first = store(timeline, named_order(topic, 100, "invoice-1", 1));
    assert_eq!(
        shown(timeline, first).extra.and_then(|extra| extra.own_id).map(|own| own.print),
        Some(1)
    );
    let before = told(timeline, topic);
    // A relative time makes the second due time another one: the print alone counts.
    for due in [100, 101, 90_000] {
        let again = done(timeline, vec![named_order(topic, due, "invoice-1", 1)]);
        assert_eq!(again, [Done::Known(first)]);
    }
    assert_eq!(told(timeline, topic), before, "nothing was stored");
    assert_eq!(named(timeline, topic, &["x", "invoice-1", "x"]), [None, Some(first), None]);
    assert_eq!(fire(timeline, Lane::Message, 100_000), [(first, after(100))]);
}

pub(super) fn another_request_with_a_taken_own_id_is_refused<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let first = store(timeline, named_order(topic, 100, "invoice-1", 1));
    let taken = Refusal::OwnIdTaken(first);
    assert_eq!(refused(timeline, named_order(topic, 100, "invoice-1", 2)), taken);
    // Names that look alike are others.
    for text in ["invoice-", "invoice-10", "Invoice-1", "invoice-1 ", " invoice-1"] {
        store(timeline, named_order(topic, 200, text, 2));
    }
    assert_eq!(listed(timeline, everything(topic)).len(), 6);
    assert_eq!(named(timeline, topic, &["invoice-1"]), [Some(first)]);
}

pub(super) fn a_taken_own_id_may_replace<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let mut last = store(timeline, replacing(topic, 100, "reminder", 1));
    // With another request, with the same, sooner and later.
    for (due, print) in [(200, 2), (200, 2), (50, 3), (5000, 3)] {
        let next = store(timeline, replacing(topic, due, "reminder", print));
        assert_ne!(next, last);
        assert_eq!(state(timeline, last), Some(State::Cancelled));
        assert_eq!(listed(timeline, everything(topic)), [next], "one is pending");
        assert_eq!(named(timeline, topic, &["reminder"]), [Some(next)]);
        let again = done(timeline, vec![named_order(topic, 1, "reminder", print)]);
        assert_eq!(again, [Done::Known(next)]);
        let other = named_order(topic, 1, "reminder", 99);
        assert_eq!(refused(timeline, other), Refusal::OwnIdTaken(next));
        last = next;
    }
    pause(timeline, last);
    let next = store(timeline, replacing(topic, 300, "reminder", 9));
    assert_eq!(state(timeline, last), Some(State::Cancelled), "what is paused is replaced too");
    assert_eq!(fire(timeline, Lane::Message, 10_000), [(next, after(300))]);
}

pub(super) fn an_own_id_is_taken_after_its_message_ended<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let delivered = store(timeline, named_order(topic, 10, "delivered", 1));
    let cancelled = store(timeline, named_order(topic, 500, "cancelled", 1));
    fire(timeline, Lane::Message, 100);
    cancel(timeline, &[cancelled]);
    let ended =
        [(delivered, "delivered", State::Delivered), (cancelled, "cancelled", State::Cancelled)];
    for (id, text, was) in ended {
        assert_eq!(named(timeline, topic, &[text]), [Some(id)]);
        let again = done(timeline, vec![named_order(topic, 700, text, 1)]);
        assert_eq!(again, [Done::Known(id)], "{text}");
        let other = named_order(topic, 700, text, 2);
        assert_eq!(refused(timeline, other), Refusal::OwnIdTaken(id), "{text}");
        let new = store(timeline, replacing(topic, 700, text, 2));
        assert_eq!(state(timeline, id), Some(was), "what ended stays as it ended");
        assert_eq!(named(timeline, topic, &[text]), [Some(new)]);
    }
    assert_eq!(fire(timeline, Lane::Message, 10_000).len(), 2);
}

/// A caller should not give a name twice in one call; if it does, never do both have it.
pub(super) fn own_ids_of_one_call_meet<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let pairs = [
        ("same", named_order(topic, 10, "same", 1), named_order(topic, 20, "same", 1)),
        ("other", named_order(topic, 10, "other", 1), named_order(topic, 20, "other", 2)),
        ("replacing", replacing(topic, 10, "replacing", 1), replacing(topic, 20, "replacing", 2)),
    ];
    for (text, first, second) in pairs {
        let answer = revise(timeline, vec![first, second]);
        let pending = listed(timeline, everything(topic));
        let named = named(timeline, topic, &[text]);
        match answer {
            Revised::Refused { index, .. } => {
                assert_eq!((index, pending.len(), named), (1, 0, vec![None]), "{text}");
            }
            Revised::Done(_) => {
                assert_ne!(text, "other", "the second is another request");
                assert_eq!((pending.len(), named), (1, vec![Some(pending[0])]), "{text}");
            }
        }
        cancel(timeline, &pending);
    }
}

/// A series that comes again brings no second occurrence.
pub(super) fn what_belongs_to_a_known_message_is_not_stored_again<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let call = || {
        let series = entry(topic, after(100), message("series")).with_extra(|extra| {
            extra.action = Action::Repeat;
            extra.links = vec![Link::Order(1)];
        });
        let occurrence = entry(topic, after(100), message("occurrence"))
            .with_extra(|extra| extra.series = Some(Link::Order(0)));
        vec![order_in(Lane::Retry, with_name(series, "daily", 1)), order(occurrence)]
    };
    let first: Vec<MessageId> = done(timeline, call()).into_iter().map(stored).collect();
    let before = told(timeline, topic);
    assert_eq!(done(timeline, call()), [Done::Known(first[0]), Done::Nothing]);
    assert_eq!(told(timeline, topic), before, "nothing was stored");
    assert_eq!(fire(timeline, Lane::Message, 1000), [(first[1], after(100))]);
}

pub(super) fn own_ids_of_two_topics_are_independent<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let here = store(timeline, named_order(topic, 10, "a", 1));
    assert_eq!(named(timeline, other, &["a"]), [None]);
    let there = store(timeline, named_order(other, 10, "a", 2));
    assert_eq!(named(timeline, topic, &["a"]), [Some(here)]);
    assert_eq!(named(timeline, other, &["a"]), [Some(there)]);
    store(timeline, replacing(other, 20, "a", 3));
    assert_eq!(state(timeline, there), Some(State::Cancelled));
    assert_eq!(state(timeline, here), Some(State::Scheduled));
    assert_eq!(done(timeline, vec![named_order(topic, 10, "a", 1)]), [Done::Known(here)]);
}

pub(super) fn an_own_id_goes_with_its_message<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let id = store(timeline, named_order(topic, 100, "a", 1));
    for due in [5000, 50, 7000] {
        reschedule(timeline, id, due);
        assert_eq!(named(timeline, topic, &["a"]), [Some(id)]);
        assert_eq!(done(timeline, vec![named_order(topic, 100, "a", 1)]), [Done::Known(id)]);
        let other = named_order(topic, 100, "a", 2);
        assert_eq!(refused(timeline, other), Refusal::OwnIdTaken(id));
        let own = shown(timeline, id).extra.and_then(|extra| extra.own_id);
        assert!(own.is_some_and(|own| &*own.text == "a"), "it is shown with it");
    }
    let next = store(timeline, replacing(topic, 300, "a", 2));
    assert_eq!(state(timeline, id), Some(State::Cancelled), "withdrawn where it stood");
    assert_eq!(fire(timeline, Lane::Message, 10_000), [(next, after(300))]);
}

pub(super) fn many_own_ids_are_told_apart<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let text = |number: u64| format!("order-{number}-{}", "x".repeat((number % 60) as usize));
    let mut given: Vec<MessageId> = Vec::new();
    for batch in 0..30u64 {
        let numbers = batch * 50..(batch + 1) * 50;
        let orders =
            numbers.map(|number| named_order(topic, number * 7 % 1000, &text(number), number));
        given.extend(done(timeline, orders.collect()).into_iter().map(stored));
    }
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    fire(timeline, Lane::Message, 300);
    let texts: Vec<String> = (0..1500).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected: Vec<Option<MessageId>> = given.iter().copied().map(Some).collect();
    assert_eq!(named(timeline, topic, &texts), expected);
    for (batch, ids) in (0..).zip(given.chunks(50)) {
        let numbers = batch * 50..(batch + 1) * 50;
        let orders = numbers.map(|number| named_order(topic, 5, &text(number), number));
        let known: Vec<Done> = ids.iter().copied().map(Done::Known).collect();
        assert_eq!(done(timeline, orders.collect()), known);
    }
    assert_eq!(
        refused(timeline, named_order(topic, 5, &text(777), 1)),
        Refusal::OwnIdTaken(given[777])
    );
}

pub(super) fn of_concurrent_requests_one_is_stored<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let answers: Vec<Vec<Done>> = thread::scope(|scope| {
        let send = || {
            let text = |number: u64| format!("order-{number}");
            let order = |number| named_order(topic, 100 + number, &text(number), number);
            (0..60).map(|number| done(timeline, vec![order(number)])[0]).collect()
        };
        let start = |name: &str| {
            let builder = thread::Builder::new().name(name.into());
            builder.spawn_scoped(scope, send).expect("a test may start a thread")
        };
        let threads = [start("one"), start("two"), start("three")];
        threads.map(|thread| thread.join().expect("a sender ends well")).into()
    });
    for number in 0..60 {
        let of_this: Vec<Done> = answers.iter().map(|answers| answers[number]).collect();
        let first = of_this.iter().find_map(|done| match done {
            Done::Stored(id) => Some(*id),
            _ => None,
        });
        let first = first.expect("somebody was first");
        let known = of_this.iter().filter(|done| **done == Done::Known(first)).count();
        assert_eq!(known, 2, "{of_this:?}");
    }
    assert_eq!(fire(timeline, Lane::Message, 1000).len(), 60);
}
