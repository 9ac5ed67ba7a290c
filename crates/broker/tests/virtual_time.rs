//! A whole broker, with all its threads, on a clock that is moved by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod patience;

use std::sync::Arc;

use futures_executor::block_on;
use patience::within_a_minute;
use punctual_broker::group::{Failure, NackOutcome};
use punctual_broker::{Broker, MoveError, Options, Parts, Request, When};
use punctual_engine::disk::RealDisk;
use punctual_engine::{Durability, Engine};
use punctual_model::ports::{Delivered, Groups, LogPosition, Outlet, Timeline, Topics};
use punctual_model::{
    Clock, GroupName, Message, Partition, Span, SystemClock, Timestamp, TopicName, TopicSettings,
    VirtualClock,
};
use punctual_testkit::Reference;

const START: u64 = 1_800_000_000_000;

fn at(since: Span) -> Timestamp {
    Timestamp::from_millis(START).unwrap().saturating_add(since)
}

fn start(clock: Arc<dyn Clock>) -> Broker<Reference> {
    start_over(Arc::new(Reference::new()), clock)
}

fn start_over<S>(store: Arc<S>, clock: Arc<dyn Clock>) -> Broker<S>
where
    S: Timeline + Outlet + Topics + Groups,
{
    let parts = Parts {
        timeline: Arc::clone(&store),
        outlet: Arc::clone(&store),
        topics: Arc::clone(&store) as Arc<dyn Topics>,
        groups: store as Arc<dyn Groups>,
        records: None,
        clock,
    };
    Broker::start(Options::default(), parts).unwrap()
}

fn by_hand() -> Broker<Reference> {
    start(Arc::new(VirtualClock::new(at(Span::ZERO))))
}

fn topic<S: Timeline>(broker: &Broker<S>, name: &str, settings: TopicSettings) -> TopicName {
    let name = TopicName::new(name).unwrap();
    broker.topics().put(&name, TopicSettings { partitions: 1, ..settings }).unwrap();
    broker.topics_changed();
    name
}

fn send(broker: &Broker<Reference>, topic: &TopicName, delay: Span) {
    let request = Request::new(Message::default(), When::After(delay));
    within_a_minute(broker.schedule(topic, vec![request])).unwrap();
}

fn log<S: Timeline>(broker: &Broker<S>, topic: &TopicName) -> Vec<Delivered> {
    let topic = broker.topics().by_name(topic).unwrap().id;
    let from = LogPosition { topic, partition: Partition::new(0).unwrap(), offset: 0 };
    broker.topics().read(from, usize::MAX).unwrap()
}

#[test]
fn time_stands_still_until_it_is_moved_and_every_message_has_its_very_moment() {
    let broker = by_hand();
    let topic = topic(&broker, "t", TopicSettings::default());
    let days = [30, 1, 7, 2, 29];
    for day in days {
        send(&broker, &topic, Span::from_days(day));
    }
    let moved = broker.move_time(at(Span::from_days(10))).unwrap();
    assert_eq!((moved.now, moved.fired), (at(Span::from_days(10)), 3));
    let moved = broker.move_time(at(Span::from_days(40))).unwrap();
    assert_eq!((moved.now, moved.fired), (at(Span::from_days(40)), 2));
    let delivered = log(&broker, &topic);
    assert!(delivered.iter().all(|delivered| delivered.delivered_at == delivered.due));
    assert_eq!(broker.move_time(at(Span::ZERO)).unwrap().now, at(Span::from_days(40)));
    assert_eq!(broker.stats().clock_steps, 0);
    broker.stop();
}

#[test]
fn retries_and_leases_that_run_out_come_in_their_order() {
    let broker = by_hand();
    let topic = topic(&broker, "t", TopicSettings::default());
    let group = GroupName::new("g").unwrap();
    let consumer = broker.consumers().open(&topic, &group).unwrap();
    let lease = Span::from_secs(30);
    send(&broker, &topic, Span::from_days(1));
    broker.move_time(at(Span::from_days(1))).unwrap();
    let mut attempts = Vec::new();
    let mut now = Span::from_days(1);
    for round in 0..8 {
        let taken = consumer.take(10, lease).unwrap();
        assert_eq!(taken.len(), 1, "in round {round}");
        attempts.push(taken[0].attempt);
        if round % 2 == 0 {
            let outcome = consumer.nack(&[taken[0].receipt], &Failure::default()).unwrap();
            assert_eq!(outcome, [NackOutcome::Requeued]);
        }
        // An hour is longer than a lease and any of the first waits.
        now = Span::from_millis(now.as_millis() + 3_600_000);
        broker.move_time(at(now)).unwrap();
    }
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6, 7, 8]);
    broker.stop();
}

#[test]
fn the_same_calls_have_the_same_results() {
    let story = || {
        let broker = by_hand();
        let capped = TopicSettings { rate_cap: Some(3), ..TopicSettings::default() };
        let capped = topic(&broker, "capped", capped);
        let free = topic(&broker, "free", TopicSettings::default());
        for number in 0..200 {
            send(&broker, &capped, Span::from_millis(number * 7919 % 5000));
            send(&broker, &free, Span::from_millis(number * 104_729 % 90_000_000));
        }
        broker.move_time(at(Span::from_secs(10))).unwrap();
        send(&broker, &capped, Span::ZERO);
        let fired = broker.move_time(at(Span::from_days(30))).unwrap().fired;
        let logs = (log(&broker, &capped), log(&broker, &free));
        broker.stop();
        (fired, logs)
    };
    let first = story();
    assert_eq!(first.1.0.len() + first.1.1.len(), 401);
    let times: Vec<u64> =
        first.1.0.iter().map(|delivered| delivered.delivered_at.as_millis() - START).collect();
    assert!(times.windows(4).all(|four| four[3] - four[0] >= 665), "{times:?}");
    assert_eq!(story(), first);
}

#[test]
fn the_end_of_a_pause_brings_what_fell_due_meanwhile() {
    let store = Arc::new(Reference::new());
    let clock = Arc::new(VirtualClock::new(at(Span::ZERO)));
    let broker = start_over(Arc::clone(&store), Arc::clone(&clock) as Arc<dyn Clock>);
    let paused = TopicSettings { paused: true, ..TopicSettings::default() };
    let name = topic(&broker, "t", paused.clone());
    for number in 0..600 {
        send(&broker, &name, Span::from_millis(number));
    }
    send(&broker, &name, Span::from_days(3));
    broker.move_time(at(Span::from_days(1))).unwrap();
    assert_eq!(log(&broker, &name).len(), 0);
    topic(&broker, "t", TopicSettings::default());
    broker.move_time(at(Span::from_days(1))).unwrap();
    let woken = log(&broker, &name);
    assert_eq!(woken.len(), 600);
    assert!(woken.is_sorted_by_key(|delivered| delivered.id.key), "in the order of due times");
    assert!(woken.iter().all(|delivered| delivered.delivered_at == at(Span::from_days(1))));

    // A pause that ends while the broker is down ends all the same.
    topic(&broker, "t", paused);
    broker.move_time(at(Span::from_days(4))).unwrap();
    broker.stop();
    drop(broker);
    let settings = TopicSettings { partitions: 1, ..TopicSettings::default() };
    Topics::put(&*store, &name, settings).unwrap();
    let broker = start_over(store, clock);
    broker.move_time(at(Span::from_days(4))).unwrap();
    assert_eq!(log(&broker, &name).len(), 601);
    broker.stop();
}

#[test]
fn the_clock_of_the_machine_is_not_moved() {
    let broker = start(Arc::new(SystemClock::new()));
    assert_eq!(broker.move_time(at(Span::ZERO)), Err(MoveError::NotVirtual));
    assert!(!broker.is_virtual());
    broker.stop();
}

#[test]
fn a_thousand_moments_are_walked_through_one_by_one() {
    walk(by_hand());
}

#[test]
fn the_embedded_store_knows_the_next_moment_too() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::new(at(Span::ZERO)));
    let options = punctual_engine::Options {
        durability: Durability::Os,
        // Small, so that most of what waits is on disk.
        table_bytes: 64 << 10,
        reserve_bytes: 1 << 20,
        ..punctual_engine::Options::default()
    };
    let disk = Arc::new(RealDisk::new(dir.path()).unwrap());
    let read = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = Arc::new(Engine::open(disk, options, read).unwrap());
    walk(start_over(store, clock));
}

fn walk<S: Timeline>(broker: Broker<S>) {
    let topic = topic(&broker, "t", TopicSettings::default());
    let requests = (1..=1000).map(|number| {
        Request::new(Message::default(), When::After(Span::from_millis(number * 2_592_000)))
    });
    block_on(broker.schedule(&topic, requests.collect())).unwrap();
    let moved = broker.move_time(at(Span::from_days(30))).unwrap();
    assert_eq!(moved.fired, 1000);
    assert!(log(&broker, &topic).iter().all(|one| one.delivered_at == one.due));
    broker.stop();
}
