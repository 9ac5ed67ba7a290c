//! Changes, cancels and deliveries of the same messages at the same time: G3, G27 and G28, with real
//! threads, over the reference store and the embedded one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Barrier};

use house::{House, Store, embedded, engine, reference, request, soon, within_a_minute};
use punctual_broker::series::{Repeat, Rule};
use punctual_broker::{Change, ChangeError, Options, Request, Scheduled, When};
use punctual_model::ports::{CancelOutcome, OnConflict};
use punctual_model::{MessageId, Span, State, Timestamp, TopicName};

const THREADS: usize = 4;
const DAY: When = When::After(Span::from_days(1));

macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod over_the_reference {
            $(#[test] fn $name() { super::$name(&super::reference()); })*
        }
        mod over_the_engine {
            $(#[test] fn $name() { super::$name(&super::embedded()); })*
        }
    };
}

on_both_stores!(
    g3_of_many_equal_requests_one_is_stored,
    of_many_replacements_one_is_left,
    of_many_changes_of_one_version_one_succeeds,
    no_change_gets_lost,
    a_series_is_stored_once_and_gives_way_whole,
    g28_what_was_put_off_is_not_delivered_and_what_was_delivered_is_not_put_off,
    g27_of_a_change_to_now_and_a_cancel_one_delivery_at_most_comes,
);

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

fn named(own_id: &str, when: When) -> Request {
    Request { own_id: Some(Arc::from(own_id)), ..request(when) }
}

fn send<S: Store>(house: &House<S>, topic: &TopicName, request: Request) -> Scheduled {
    house.schedule(topic, vec![request])[0]
}

fn state<S: Store>(house: &House<S>, id: MessageId) -> State {
    within_a_minute(house.broker.get(id)).unwrap().unwrap().state
}

fn g3_of_many_equal_requests_one_is_stored<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let answers = together(|_| {
        let send = |number| send(house, &topic, named(&format!("order-{number}"), DAY));
        (0..200).map(send).collect::<Vec<_>>()
    });
    for number in 0..200 {
        let of_number: Vec<Scheduled> = answers.iter().map(|of| of[number]).collect();
        let ids: BTreeSet<MessageId> = of_number.iter().map(|one| one.id).collect();
        let duplicates = of_number.iter().filter(|one| one.duplicate).count();
        assert_eq!((ids.len(), duplicates), (1, THREADS - 1), "order {number}");
    }
    assert_eq!(house.broker.stats().scheduled, 200);
    assert_eq!(house.stop_and_count_pending(), 200);
}

fn of_many_replacements_one_is_left<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let replacing = || Request { on_conflict: OnConflict::Replace, ..named("order", DAY) };
    let answers =
        together(|_| (0..50).map(|_| send(house, &topic, replacing())).collect::<Vec<_>>());
    let ids: BTreeSet<MessageId> = answers.iter().flatten().map(|one| one.id).collect();
    assert_eq!(ids.len(), THREADS * 50);
    let left: Vec<MessageId> =
        ids.into_iter().filter(|id| state(house, *id) == State::Scheduled).collect();
    let resolved = within_a_minute(house.broker.resolve(&topic, "order")).unwrap();
    assert_eq!(left, resolved.into_iter().collect::<Vec<_>>());
    assert_eq!(house.stop_and_count_pending(), 1);
}

fn of_many_changes_of_one_version_one_succeeds<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let sent = house.schedule(&topic, vec![request(DAY); 100]);
    let answers = together(|number| {
        let when = Some(When::After(Span::from_secs(3600 + number as u64)));
        let change = Change { when, version: Some(1), ..Change::default() };
        let change = |id| within_a_minute(house.broker.change(id, change.clone()));
        sent.iter().map(|one| change(one.id)).collect::<Vec<_>>()
    });
    for index in 0..sent.len() {
        let (won, lost): (Vec<_>, Vec<_>) =
            answers.iter().map(|of| &of[index]).partition(|a| a.is_ok());
        assert_eq!((won.len(), lost.len()), (1, THREADS - 1));
        let conflict = ChangeError::VersionConflict { current: 2 };
        assert!(lost.iter().all(|lost| lost.as_ref().unwrap_err() == &conflict));
        let report = within_a_minute(house.broker.get(sent[index].id)).unwrap().unwrap();
        assert_eq!(report.due, won[0].as_ref().unwrap().due);
    }
    assert_eq!(house.stop_and_count_pending(), 100);
}

fn no_change_gets_lost<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 1);
    let id = send(house, &topic, request(DAY)).id;
    together(|number| {
        for turn in 0..50u64 {
            let when = Some(When::After(Span::from_secs(3600 + turn)));
            let ttl = Some(Span::from_secs(turn + 1));
            let change = match number % 2 {
                0 => Change { when, ..Change::default() },
                _ => Change { ttl, ..Change::default() },
            };
            within_a_minute(house.broker.change(id, change)).unwrap();
        }
    });
    let report = within_a_minute(house.broker.get(id)).unwrap().unwrap();
    assert_eq!(report.version, Some(1 + u32::try_from(THREADS * 50).unwrap()));
    assert_eq!(house.stop_and_count_pending(), 1);
}

fn g28_what_was_put_off_is_not_delivered_and_what_was_delivered_is_not_put_off<S: Store>(
    house: &House<S>,
) {
    let topic = house.topic("orders", 2);
    // Due one after the other while they are put off.
    let requests = (0..1000).map(|number| request(soon(20 + number / 10))).collect();
    let sent = house.schedule(&topic, requests);
    let answers = together(|number| {
        let mine = sent.iter().skip(number).step_by(THREADS);
        let put_off = |id| {
            let change = Change { when: Some(DAY), ..Change::default() };
            within_a_minute(house.broker.change(id, change))
        };
        mine.map(|one| (one.id, put_off(one.id))).collect::<Vec<_>>()
    });
    let outcomes: BTreeMap<MessageId, Result<_, ChangeError>> =
        answers.into_iter().flatten().collect();
    let late: Vec<MessageId> = outcomes
        .iter()
        .filter(|(_, outcome)| outcome.as_ref().err() == Some(&ChangeError::AlreadyDelivered))
        .map(|(id, _)| *id)
        .collect();
    let put_off = outcomes.values().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(late.len() + put_off, sent.len(), "a definite answer for each");
    house.gate.wait_for(late.len());
    // Whatever else is due by now comes before this one.
    let last = send(house, &topic, request(soon(200))).id;
    house.gate.wait_for(late.len() + 1);
    let mut expected = [late, vec![last]].concat();
    expected.sort();
    assert_eq!(house.received(&topic), expected);
    assert_eq!(house.stop_and_count_pending(), put_off as u64);
}

fn g27_of_a_change_to_now_and_a_cancel_one_delivery_at_most_comes<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let sent = house.schedule(&topic, vec![request(DAY); 400]);
    let answers = together(|number| {
        let cancelled = |id| {
            let outcomes = within_a_minute(house.broker.cancel(vec![id])).unwrap();
            outcomes[0] == CancelOutcome::Cancelled
        };
        let delivered = |id| {
            let delivered = within_a_minute(house.broker.deliver_now(id));
            matches!(delivered, Ok(_) | Err(ChangeError::AlreadyDelivered))
        };
        let ids = sent.iter().map(|one| one.id);
        match number % 2 {
            0 => ids.map(cancelled).collect::<Vec<bool>>(),
            _ => ids.map(delivered).collect(),
        }
    });
    let mut expected = Vec::new();
    for (index, one) in sent.iter().enumerate() {
        let cancels = [0, 2].into_iter().filter(|number| answers[*number][index]).count();
        assert!(cancels <= 1, "cancelled twice");
        if cancels == 0 {
            expected.push(one.id);
        }
    }
    house.gate.wait_for(expected.len());
    expected.sort();
    assert_eq!(house.stop_and_count_pending(), 0);
    assert_eq!(house.received(&topic), expected);
}

fn a_series_is_stored_once_and_gives_way_whole<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let every = |secs| {
        let rule = Rule::every(Span::from_secs(secs)).unwrap();
        Request { repeat: Some(Repeat::new(rule)), ..named("daily", When::Now) }
    };
    let hourly = together(|_| send(house, &topic, every(3600)));
    let ids: BTreeSet<MessageId> = hourly.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), 1);
    let id = house.broker.topics().by_name(&topic).unwrap().id;
    let occurrences = || within_a_minute(house.broker.forecast(id, None)).unwrap().total;
    assert_eq!(occurrences(), 1);
    let replacing = Request { on_conflict: OnConflict::Replace, ..every(60) };
    let minutely = send(house, &topic, replacing);
    assert_eq!(state(house, hourly[0].id), State::Cancelled);
    assert_eq!((state(house, minutely.id), occurrences()), (State::Scheduled, 1));
    let outcomes = within_a_minute(house.broker.cancel(vec![minutely.id])).unwrap();
    assert_eq!((outcomes[0], occurrences()), (CancelOutcome::Cancelled, 0));
}

/// What was accepted, changed and named is so after a restart.
#[test]
fn g2_changes_and_names_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, dues) = {
        let house = House::new(engine(dir.path()), Options::default());
        let topic = house.topic("orders", 1);
        let ids: Vec<MessageId> =
            ["a", "b", "c", "d"].map(|name| send(&house, &topic, named(name, DAY)).id).into();
        let when = Some(When::After(Span::from_secs(7200)));
        let change = |id, change| within_a_minute(house.broker.change(id, change)).unwrap();
        change(ids[0], Change { when, ..Change::default() });
        change(ids[1], Change { paused: Some(true), ..Change::default() });
        within_a_minute(house.broker.cancel(vec![ids[2]])).unwrap();
        let get = |id: &MessageId| within_a_minute(house.broker.get(*id)).unwrap().unwrap().due;
        let dues: Vec<Option<Timestamp>> = ids.iter().map(get).collect();
        house.broker.stop();
        (ids, dues)
    };
    let house = House::new(engine(dir.path()), Options::default());
    let topic = TopicName::new("orders").unwrap();
    let states = [State::Scheduled, State::Paused, State::Cancelled, State::Scheduled];
    let versions = [Some(2), Some(2), None, Some(1)];
    for (index, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let again = send(&house, &topic, named(name, DAY));
        assert_eq!((again.id, again.duplicate), (ids[index], true), "{name}");
        assert_eq!(again.state, states[index], "{name}");
        let report = within_a_minute(house.broker.get(ids[index])).unwrap().unwrap();
        assert_eq!((report.due, report.version), (dues[index], versions[index]), "{name}");
    }
    let report = within_a_minute(house.broker.deliver_now(ids[1])).unwrap();
    assert_eq!(report.version, Some(3));
    assert_eq!(house.gate.wait_for(1), [ids[1]]);
}
