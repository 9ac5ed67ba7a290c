//! Changes against firing, with real threads, at the seam of the store: of a successful cancel and a
//! delivery exactly one happens, and a message is delivered for the newest time it was given only
//! (G27, G28).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use house::{House, Store, embedded, reference, request, soon, wall, within_a_minute};
use punctual_broker::When;
use punctual_model::ports::{
    CancelOutcome, Done, OnConflict, Order, PendingEntry, Refusal, Revised,
};
use punctual_model::{
    Basis, Changed, Entry, Key, Lane, Message, MessageId, OwnId, Parked, Partition, Span, State,
    Timestamp, TopicId, TopicName,
};

const THREADS: usize = 4;

/// Runs `work` on several threads that start together, and answers what each answered.
fn together<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let run = |number| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn millis(count: u64) -> Span {
    Span::from_millis(count)
}

fn revise<S: Store>(house: &House<S>, order: Order) -> Result<Done, Refusal> {
    match within_a_minute(house.gate.inner.revise(vec![order])).unwrap() {
        Revised::Done(done) => Ok(done[0]),
        Revised::Refused { index, reason } => {
            assert_eq!(index, 0);
            Err(reason)
        }
    }
}

/// The message as it is now, while it is pending; else how it ended.
fn look<S: Store>(house: &House<S>, id: MessageId) -> Result<PendingEntry, State> {
    let found = within_a_minute(house.gate.inner.find(vec![id])).unwrap().remove(0).unwrap();
    found.entry.ok_or(found.state)
}

/// A message with a name of its own.
fn named(topic: TopicId, text: &str, print: u64, due: Timestamp, conflict: OnConflict) -> Order {
    let own = OwnId { text: text.into(), print };
    let entry = Entry {
        topic,
        partition: Partition::new(0).unwrap(),
        due,
        basis: Basis::Delay,
        message: Message::default(),
        extra: None,
    };
    let entry = entry.with_extra(|extra| extra.own_id = Some(own));
    Order::Schedule { lane: Lane::Message, entry, conflict }
}

/// What somebody who changes the message makes of it.
fn changed(shown: &PendingEntry, due: Timestamp, parked: Option<Parked>) -> Order {
    let version = shown.version() + 1;
    let entry = Entry {
        topic: shown.id.topic,
        partition: shown.id.partition,
        due,
        basis: Basis::Delay,
        message: shown.message.clone(),
        extra: shown.extra.clone(),
    };
    let entry = entry.with_extra(|extra| {
        extra.changed = Some(Changed { first: shown.id.key, version });
        extra.parked = parked;
    });
    Order::Replace { id: shown.id, expected: shown.key, entry }
}

/// Changes a message, as often as somebody else was first; `None` when it has ended.
fn change<S: Store>(
    house: &House<S>,
    id: MessageId,
    make: impl Fn(&PendingEntry) -> Order,
) -> Option<Key> {
    loop {
        let shown = look(house, id).ok()?;
        match revise(house, make(&shown)) {
            Ok(Done::Moved(key)) => return Some(key),
            Err(Refusal::Changed) => {}
            Err(Refusal::Ended(_)) => return None,
            other => unreachable!("a change was answered with {other:?}"),
        }
    }
}

fn reschedule<S: Store>(house: &House<S>, id: MessageId, due: Timestamp) -> Option<Key> {
    change(house, id, |shown| changed(shown, due, None))
}

fn pause<S: Store>(house: &House<S>, id: MessageId) -> Option<Key> {
    change(house, id, |shown| {
        let due = shown.key.due;
        let parked = Parked::Paused { remaining: due.since(wall()), due };
        changed(shown, Timestamp::PAUSED, Some(parked))
    })
}

fn cancel<S: Store>(house: &House<S>, id: MessageId) -> CancelOutcome {
    within_a_minute(house.broker.cancel(vec![id])).unwrap()[0]
}

#[test]
fn g28_of_many_orders_for_one_place_one_is_done_over_the_reference() {
    of_many_orders_for_one_place_one_is_done(&reference());
}

#[test]
fn g28_of_many_orders_for_one_place_one_is_done_over_the_engine() {
    of_many_orders_for_one_place_one_is_done(&embedded());
}

fn of_many_orders_for_one_place_one_is_done<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let day = When::After(Span::from_days(1));
    let sent = house.schedule(&topic, vec![request(day); 300]);
    let shown: Vec<PendingEntry> = sent.iter().map(|sent| look(house, sent.id).unwrap()).collect();
    let answers = together(|number| {
        let due = wall().saturating_add(Span::from_days(2 + number as u64));
        let change = |shown| revise(house, changed(shown, due, None));
        shown.iter().map(change).collect::<Vec<_>>()
    });
    for (index, first) in shown.iter().enumerate() {
        let now = look(house, first.id).unwrap();
        let of_this: Vec<_> = answers.iter().map(|answers| answers[index]).collect();
        let won = of_this.iter().filter(|answer| **answer == Ok(Done::Moved(now.key))).count();
        let lost = of_this.iter().filter(|answer| **answer == Err(Refusal::Changed)).count();
        assert_eq!((won, lost), (1, THREADS - 1), "message {index}: {of_this:?}");
        assert_eq!(now.version(), 2);
    }
    assert_eq!(house.stop_and_count_pending(), 300);
}

#[test]
fn g27_of_many_cancels_of_a_moved_message_one_succeeds_over_the_reference() {
    of_many_cancels_of_a_moved_message_one_succeeds(&reference());
}

#[test]
fn g27_of_many_cancels_of_a_moved_message_one_succeeds_over_the_engine() {
    of_many_cancels_of_a_moved_message_one_succeeds(&embedded());
}

/// Half of the threads cancel by an order and half without one, while the message is moved.
fn of_many_cancels_of_a_moved_message_one_succeeds<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let day = When::After(Span::from_days(1));
    let sent = house.schedule(&topic, vec![request(day); 200]);
    let answers = together(|number| {
        let withdraw = |id: MessageId| {
            if number == 0 {
                reschedule(house, id, wall().saturating_add(Span::from_days(3)));
            }
            let order = Order::Cancel { id, expected: None };
            if number % 2 == 0 {
                cancel(house, id) == CancelOutcome::Cancelled
            } else {
                revise(house, order) == Ok(Done::Cancelled)
            }
        };
        sent.iter().map(|scheduled| withdraw(scheduled.id)).collect::<Vec<_>>()
    });
    for index in 0..sent.len() {
        assert_eq!(answers.iter().filter(|won| won[index]).count(), 1, "message {index}");
        assert_eq!(look(house, sent[index].id), Err(State::Cancelled));
    }
    assert_eq!(house.stop_and_count_pending(), 0);
}

#[test]
fn a_message_that_is_moved_is_always_found_over_the_reference() {
    a_message_that_is_moved_is_always_found(&reference());
}

#[test]
fn a_message_that_is_moved_is_always_found_over_the_engine() {
    a_message_that_is_moved_is_always_found(&embedded());
}

/// Two threads move messages without end while two others look: by id, by name, by the same request
/// again, and by orders for a place where the message stands no more.
fn a_message_that_is_moved_is_always_found<S: Store>(house: &House<S>) {
    let name = house.topic("orders", 2);
    let topic = house.broker.topics().by_name(&name).unwrap().id;
    let far = wall().saturating_add(Span::from_days(1));
    let send = |number: usize| {
        revise(house, named(topic, &format!("name-{number}"), 1, far, OnConflict::Reject))
    };
    let stored = |done| match done {
        Ok(Done::Stored(id)) => id,
        other => unreachable!("a new message was answered with {other:?}"),
    };
    let ids: Vec<MessageId> = (0..20).map(send).map(stored).collect();
    together(|thread| {
        for round in 0..300usize {
            let number = round % ids.len();
            let id = ids[number];
            if thread < 2 {
                let due = far.saturating_add(millis((round * 1000 + thread) as u64));
                assert!(reschedule(house, id, due).is_some(), "nobody ends it");
                continue;
            }
            let shown = look(house, id).unwrap_or_else(|state| unreachable!("{id} is {state:?}"));
            assert_eq!((shown.id, shown.state()), (id, State::Scheduled));
            let text = format!("name-{number}").into();
            let found = within_a_minute(house.gate.inner.named(topic, vec![text])).unwrap();
            assert_eq!(found, [Some(id)]);
            assert_eq!(send(number), Ok(Done::Known(id)));
            if shown.version() > 1 {
                let stale = Order::Cancel { id, expected: Some(id.key) };
                assert_eq!(revise(house, stale), Err(Refusal::Changed));
            }
        }
    });
    assert_eq!(house.stop_and_count_pending(), 20);
}

/// What a thread was told about a message.
#[derive(Clone, Copy, Debug)]
enum Told {
    Moved(Key),
    Cancelled,
}

#[test]
fn g28_a_message_is_delivered_for_its_newest_time_over_the_reference() {
    a_message_is_delivered_for_its_newest_time(&reference());
}

#[test]
fn g28_a_message_is_delivered_for_its_newest_time_over_the_engine() {
    a_message_is_delivered_for_its_newest_time(&embedded());
}

/// Messages come due while every thread changes all of them, near the moment each is due.
fn a_message_is_delivered_for_its_newest_time<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 3);
    // Far enough that not all have fired before the first is changed, also on a slow machine.
    let base = wall().saturating_add(millis(2500));
    let due = |n: u64| When::At(base.saturating_add(millis(n * 2 / 3)));
    let sent = house.schedule(&topic, (0..900).map(|n| request(due(n))).collect());
    let told = together(|thread| {
        let mut told = Vec::new();
        while wall().saturating_add(millis(100)) < base {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        for (number, scheduled) in sent.iter().enumerate() {
            let id = scheduled.id;
            // Not before the moment is near: a race is wanted. It is short, so it is spun away.
            while wall().saturating_add(millis(1)) < id.key.due {
                std::thread::yield_now();
            }
            told.extend(act(house, id, number + thread * 3).into_iter().map(|told| (id, told)));
        }
        told
    });
    let mut of_each: BTreeMap<MessageId, Vec<Told>> = BTreeMap::new();
    for (id, told) in told.into_iter().flatten() {
        of_each.entry(id).or_default().push(told);
    }
    // What is still paused goes on, so that everything ends.
    for scheduled in &sent {
        let paused = look(house, scheduled.id).is_ok_and(|shown| shown.state() == State::Paused);
        if paused && let Some(key) = reschedule(house, scheduled.id, wall()) {
            of_each.entry(scheduled.id).or_default().push(Told::Moved(key));
        }
    }
    let is_cancelled = |told: &Vec<Told>| told.iter().any(|told| matches!(told, Told::Cancelled));
    let cancelled = of_each.values().filter(|told| is_cancelled(told)).count();
    finish(house, &topic, sent.len() - cancelled);
    check_each(house, &topic, &sent.iter().map(|sent| sent.id).collect::<Vec<_>>(), &of_each);
    let moved = of_each.values().flatten().filter(|told| matches!(told, Told::Moved(_))).count();
    assert!(moved > 0 && cancelled > 0 && cancelled < sent.len(), "{moved} {cancelled}: no race");
}

/// One of the things that can be done to a message.
fn act<S: Store>(house: &House<S>, id: MessageId, kind: usize) -> Vec<Told> {
    let later = |count| reschedule(house, id, wall().saturating_add(millis(count)));
    let moved = match kind % 12 {
        0 => vec![later(3)],
        1 => vec![later(40)],
        2 => vec![later(0)],
        3 => vec![later(500), later(2)],
        4 => vec![pause(house, id), later(1)],
        5 => vec![pause(house, id)],
        6 if cancel(house, id) == CancelOutcome::Cancelled => return vec![Told::Cancelled],
        7 => match revise(house, Order::Cancel { id, expected: Some(id.key) }) {
            Ok(Done::Cancelled) => return vec![Told::Cancelled],
            Err(Refusal::Changed | Refusal::Ended(_)) => Vec::new(),
            other => unreachable!("a cancel was answered with {other:?}"),
        },
        _ => Vec::new(),
    };
    moved.into_iter().flatten().map(Told::Moved).collect()
}

/// Waits until so many were delivered, and one more behind all of them: whatever would have come
/// too much has come by then.
fn finish<S: Store>(house: &House<S>, topic: &TopicName, count: usize) {
    house.gate.wait_for(count);
    house.send(topic, soon(10));
    house.gate.wait_for(count + 1);
    assert_eq!(house.stop_and_count_pending(), 0);
}

/// Each message was cancelled or delivered, once, and delivered for the newest time it was given.
fn check_each<S: Store>(
    house: &House<S>,
    topic: &TopicName,
    sent: &[MessageId],
    told: &BTreeMap<MessageId, Vec<Told>>,
) {
    house.received(topic);
    let logs = house.logs(topic).into_iter().flatten();
    let delivered: BTreeMap<MessageId, Timestamp> = logs.map(|one| (one.id, one.due)).collect();
    for id in sent {
        let told = told.get(id).map_or(&[][..], Vec::as_slice);
        let cancels = told.iter().filter(|told| matches!(told, Told::Cancelled)).count();
        let deliveries = usize::from(delivered.contains_key(id));
        assert_eq!(cancels + deliveries, 1, "{id}: {cancels} {deliveries} {told:?}");
        let keys = told.iter().filter_map(|told| match told {
            Told::Moved(key) => Some(*key),
            Told::Cancelled => None,
        });
        let newest = keys.chain([id.key]).max_by_key(|key| key.sequence).unwrap();
        if let Some(due) = delivered.get(id) {
            assert_eq!(*due, newest.due, "{id} {told:?}");
        }
    }
}

#[test]
fn g27_of_requests_with_one_name_each_is_cancelled_or_delivered_over_the_reference() {
    of_requests_with_one_name_each_is_cancelled_or_delivered(&reference());
}

#[test]
fn g27_of_requests_with_one_name_each_is_cancelled_or_delivered_over_the_engine() {
    of_requests_with_one_name_each_is_cancelled_or_delivered(&embedded());
}

/// Every thread goes on putting its own message in the place of what has the name; some fire first.
fn of_requests_with_one_name_each_is_cancelled_or_delivered<S: Store>(house: &House<S>) {
    let name = house.topic("orders", 1);
    let topic = house.broker.topics().by_name(&name).unwrap().id;
    let stored = together(|thread| {
        let mut stored = Vec::new();
        for number in 0..120u64 {
            let due = wall().saturating_add(millis((number + thread as u64) % 6));
            let text = format!("name-{}", number % 5);
            match revise(house, named(topic, &text, number, due, OnConflict::Replace)) {
                Ok(Done::Stored(id)) => stored.push(id),
                other => unreachable!("answered with {other:?}"),
            }
        }
        stored
    });
    let stored: Vec<MessageId> = stored.into_iter().flatten().collect();
    let is_cancelled = |id: &&MessageId| look(house, **id) == Err(State::Cancelled);
    let cancelled = stored.iter().filter(is_cancelled).count();
    finish(house, &name, stored.len() - cancelled);
    let received = house.received(&name);
    for id in &stored {
        let ended = if received.contains(id) { State::Delivered } else { State::Cancelled };
        assert_eq!(look(house, *id), Err(ended), "{id}");
    }
    assert_eq!(received.len(), stored.len() - cancelled + 1);
    assert!(cancelled > 0, "no race");
}
