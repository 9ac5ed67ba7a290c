//! Dead letters, redrive, drain and overflow over the embedded store, with a restart in between.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use house::{Finally, House, engine, wait_until, with_body, within_a_minute};
use punctual_broker::group::{
    Consumer, DeadFilter, DeadQuery, Drain, Failure, JobId, JobReport, JobState, Leased, Reason,
    Redrive,
};
use punctual_broker::{Options, Request, When};
use punctual_engine::Engine;
use punctual_model::group::Start;
use punctual_model::limits::HEADERS_MAX;
use punctual_model::ports::Topics;
use punctual_model::{
    Backlog, GroupName, GroupSettings, Header, Message, Overflow, Span, TopicName, TopicSettings,
};

const LEASE: Span = Span::from_secs(60);

fn group(house: &House<Engine>, topic: &TopicName) -> Consumer {
    let name = GroupName::new("workers").unwrap();
    let settings = GroupSettings::default();
    house.broker.consumers().put(topic, &name, settings, Start::Earliest).unwrap()
}

/// Takes until there are that many.
fn receive(consumer: &Consumer, count: usize) -> Vec<Leased> {
    let mut all = Vec::new();
    while all.len() < count {
        let available = consumer.available();
        let taken = consumer.take(count - all.len(), LEASE).unwrap();
        if taken.is_empty() {
            within_a_minute(available);
        }
        all.extend(taken);
    }
    all
}

fn reject(consumer: &Consumer, leased: &[Leased]) {
    let receipts: Vec<_> = leased.iter().map(|leased| leased.receipt).collect();
    consumer.nack(&receipts, &Failure { reject: true, ..Failure::default() }).unwrap();
}

fn wait_for_dead(consumer: &Consumer, count: u64) {
    wait_until("dead letters", || consumer.count_dead(&DeadFilter::default()).unwrap() >= count);
}

fn finished(consumer: &Consumer, id: JobId) -> JobReport {
    wait_until("end of a job", || consumer.job(id, 0, 0).unwrap().state != JobState::Running);
    consumer.job(id, 0, usize::MAX).unwrap()
}

fn numbered(count: usize) -> Vec<Request> {
    (0..count).map(|number| with_body(When::Now, number.to_string())).collect()
}

fn different(leased: &[Leased]) -> usize {
    leased.iter().map(|leased| leased.message.body.clone()).collect::<BTreeSet<_>>().len()
}

#[test]
fn letters_survive_a_restart_and_are_redriven_once() {
    const SENT: usize = 1500;
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(engine(dir.path()), Options::default());
    let topic = house.topic("orders", 2);
    let consumer = group(&house, &topic);
    house.schedule(&topic, numbered(SENT));
    let taken = receive(&consumer, SENT);
    reject(&consumer, &taken);
    wait_for_dead(&consumer, SENT as u64);
    let (first, id) = (taken[0].clone(), taken[0].id);
    drop((consumer, house));

    let house = House::new(engine(dir.path()), Options::default());
    let consumer = group(&house, &topic);
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(SENT as u64));
    let rejected = DeadFilter { reason: Some(Reason::Rejected), ..DeadFilter::default() };
    assert_eq!(consumer.count_dead(&rejected), Ok(SENT as u64));
    let filter = DeadFilter { id: Some(id), ..DeadFilter::default() };
    let page =
        consumer.dead(&DeadQuery { filter: filter.clone(), after: None, limit: 10 }).unwrap();
    assert_eq!(page.letters.len(), 1);
    assert_eq!(
        (&page.letters[0].message, page.letters[0].history.due),
        (&first.message, first.due)
    );
    assert_eq!(consumer.purge(&filter), Ok(1));
    let jobs = [(); 2].map(|()| consumer.redrive(Redrive::default()).unwrap());
    let done: u64 = jobs.into_iter().map(|job| finished(&consumer, job).done).sum();
    assert_eq!(done, SENT as u64 - 1);
    let again = receive(&consumer, SENT - 1);
    assert_eq!(different(&again), SENT - 1);
    assert!(again.iter().all(|leased| leased.attempt == 1 && leased.id != id));
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(0));
    drop((consumer, house));

    let house = House::new(engine(dir.path()), Options::default());
    let consumer = group(&house, &topic);
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(0));
    let unacked = receive(&consumer, SENT - 1);
    assert_eq!(different(&unacked), SENT - 1);
}

#[test]
fn a_message_with_as_many_headers_as_may_be_dies_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(engine(dir.path()), Options::default());
    let topic = house.topic("orders", 1);
    let consumer = group(&house, &topic);
    let header = |number| Header { name: format!("h{number}"), value: "v".into() };
    let headers: Vec<Header> = (0..HEADERS_MAX).map(header).collect();
    let message = Message { headers, ..Message::default() };
    let request = Request::new(message.clone(), When::Now);
    house.schedule(&topic, vec![Request { ttl: Some(Span::from_days(1)), ..request }]);
    house.gate.wait_for(1);
    let taken = receive(&consumer, 1);
    assert_eq!(&taken[0].message.headers[..HEADERS_MAX], &message.headers[..]);
    reject(&consumer, &taken);
    house.gate.wait_for(2);
    wait_for_dead(&consumer, 1);
    drop((consumer, house));
    let house = House::new(engine(dir.path()), Options::default());
    let consumer = group(&house, &topic);
    assert_eq!(finished(&consumer, consumer.redrive(Redrive::default()).unwrap()).done, 1);
    house.gate.wait_for(1);
    assert_eq!(receive(&consumer, 1)[0].message, message);
}

#[test]
fn a_backlog_is_drained_across_a_restart() {
    const SENT: usize = 1200;
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(engine(dir.path()), Options::default());
    let (topic, to) = (house.topic("orders", 3), house.topic("elsewhere", 2));
    let consumer = group(&house, &topic);
    house.schedule(&topic, numbered(SENT));
    house.gate.wait_for(SENT);
    let order = Drain { to: to.clone(), max: Some(700) };
    assert_eq!(finished(&consumer, consumer.drain(&order).unwrap()).done, 700);
    drop((consumer, house));
    let house = House::new(engine(dir.path()), Options::default());
    let consumer = group(&house, &topic);
    assert_eq!(consumer.standing().unwrap().lag, (SENT - 700) as u64);
    let order = Drain { to: to.clone(), max: None };
    assert_eq!(finished(&consumer, consumer.drain(&order).unwrap()).done, (SENT - 700) as u64);
    let moved = receive(&group(&house, &to), SENT);
    assert_eq!(different(&moved), SENT);
    assert!(consumer.take(10, LEASE).unwrap().is_empty());
}

#[test]
fn over_the_limit_every_message_is_given_out_or_dead() {
    const SENT: usize = 4000;
    for policy in [Overflow::DropOldest, Overflow::DeadLetterNewest] {
        let dir = tempfile::tempdir().unwrap();
        let house = House::new(engine(dir.path()), Options::default());
        let topic = house.topic("orders", 3);
        let settings = TopicSettings {
            partitions: 3,
            max_backlog: Backlog { messages: Some(50), bytes: None },
            overflow: policy,
            ..TopicSettings::default()
        };
        Topics::put(&*house.gate.inner, &topic, settings).unwrap();
        let consumer = group(&house, &topic);
        let sending = AtomicBool::new(true);
        let taken = std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut all = Vec::new();
                loop {
                    let more = sending.load(Ordering::SeqCst);
                    let taken = consumer.take(9, LEASE).unwrap();
                    let receipts: Vec<_> = taken.iter().map(|leased| leased.receipt).collect();
                    assert!(
                        within_a_minute(consumer.ack(&receipts)).unwrap().iter().all(|held| *held)
                    );
                    if taken.is_empty() && !more {
                        return all;
                    }
                    all.extend(taken);
                }
            });
            let sent = Finally(|| sending.store(false, Ordering::SeqCst));
            for batch in numbered(SENT).chunks(100) {
                house.schedule(&topic, batch.to_vec());
            }
            wait_until("delivery of all", || house.broker.stats().delivered >= SENT as u64);
            drop(sent);
            taker.join().unwrap()
        });
        let dead = SENT - taken.len();
        wait_for_dead(&consumer, dead as u64);
        let mut seen: Vec<_> = taken.into_iter().map(|leased| leased.message.body).collect();
        let query = DeadQuery { limit: SENT, ..DeadQuery::default() };
        let letters = consumer.dead(&query).unwrap().letters;
        assert!(letters.iter().all(|letter| letter.history.reason == Some(Reason::Overflow)));
        seen.extend(letters.into_iter().map(|letter| letter.message.body));
        assert_eq!(seen.len(), SENT, "{policy:?}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), SENT, "{policy:?}");
    }
}
