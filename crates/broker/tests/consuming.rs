//! The whole way with real clocks and threads, from a request to the ack: over the reference store
//! and the embedded one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use house::{
    House, Patience, Store, embedded, engine, reference, request, wall, with_key, within_a_minute,
};
use parking_lot::Mutex;
use punctual_broker::group::{Consumer, Failure, Leased, NackOutcome};
use punctual_broker::{Options, When};
use punctual_model::group::{RetryPolicy, Start};
use punctual_model::{GroupName, GroupSettings, MessageId, Span, TopicName};

const LEASE: Span = Span::from_secs(60);

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
    a_lease_ends_by_itself_and_wakes_who_waits,
    a_failed_message_comes_again_not_before_its_time,
    many_consumers_handle_each_message_once,
    an_ordered_group_handles_each_key_in_order,
);

fn group<S: Store>(house: &House<S>, topic: &TopicName, settings: GroupSettings) -> Consumer {
    let name = GroupName::new("workers").unwrap();
    house.broker.consumers().put(topic, &name, settings, Start::Earliest).unwrap()
}

fn receive(consumer: &Consumer, max: usize, lease: Span) -> Vec<Leased> {
    loop {
        let available = consumer.available();
        let taken = consumer.take(max, lease).unwrap();
        if !taken.is_empty() {
            return taken;
        }
        within_a_minute(available);
    }
}

fn a_lease_ends_by_itself_and_wakes_who_waits<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let consumer = group(house, &topic, GroupSettings::default());
    house.send(&topic, When::Now);
    let lease = Span::from_millis(150);
    let start = wall();
    let first = receive(&consumer, 10, lease).remove(0);
    let second = receive(&consumer, 10, LEASE).remove(0);
    assert!(wall().since(start) >= lease, "the lease was cut short");
    assert_eq!((second.id, second.attempt), (first.id, 2));
    assert_eq!(
        within_a_minute(consumer.ack(&[first.receipt, second.receipt])).unwrap(),
        [false, true]
    );
}

fn a_failed_message_comes_again_not_before_its_time<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let waits = [Span::from_millis(40), Span::from_millis(80), Span::ZERO];
    let retry = RetryPolicy::Ladder(waits.into());
    let consumer = group(house, &topic, GroupSettings { retry, ..GroupSettings::default() });
    let sent = house.send(&topic, When::Now);
    for (attempt, wait) in (1..).zip(waits) {
        let leased = receive(&consumer, 1, LEASE).remove(0);
        assert_eq!((leased.id, leased.attempt), (sent.id, attempt));
        let failed = wall();
        let outcome = consumer.nack(&[leased.receipt], &Failure::default()).unwrap();
        assert_eq!(outcome, [NackOutcome::Requeued]);
        let again = receive(&consumer, 1, LEASE).remove(0);
        assert!(wall().since(failed) >= wait, "attempt {} came early", attempt + 1);
        assert_eq!(again.due, sent.due);
        consumer.release(&[again.receipt]);
    }
    let last = receive(&consumer, 1, LEASE).remove(0);
    let outcome = consumer.nack(&[last.receipt], &Failure::default()).unwrap();
    assert_eq!(outcome, [NackOutcome::Dead]);
}

/// Handles messages with several threads until so many are done; `work` answers how many are.
fn work(consumer: &Consumer, count: usize, work: impl Fn(Vec<Leased>) -> usize + Sync) {
    let left = AtomicUsize::new(count);
    let patience = Patience::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (left, work, patience) = (&left, &work, &patience);
            scope.spawn(move || {
                while left.load(Ordering::SeqCst) > 0 {
                    // Spinning is fine here: what is looked for is who gets what.
                    patience.check("end of the messages");
                    let taken = consumer.take(1 + 20 * number, LEASE).unwrap();
                    left.fetch_sub(work(taken), Ordering::SeqCst);
                }
            });
        }
    });
}

fn many_consumers_handle_each_message_once<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 4);
    let consumer = group(house, &topic, GroupSettings::default());
    let seen: Mutex<BTreeSet<MessageId>> = Mutex::default();
    for _ in 0..2 {
        house.schedule(&topic, vec![request(When::Now); 1000]);
    }
    work(&consumer, 2000, |taken| {
        for leased in &taken {
            assert!(seen.lock().insert(leased.id), "{} was given out twice", leased.id);
        }
        let receipts: Vec<_> = taken.iter().map(|leased| leased.receipt).collect();
        let acked = within_a_minute(consumer.ack(&receipts)).unwrap();
        assert!(acked.into_iter().all(|acked| acked));
        taken.len()
    });
    let standing = consumer.standing().unwrap();
    assert_eq!((seen.lock().len(), standing.lag, standing.in_flight), (2000, 0, 0));
}

fn an_ordered_group_handles_each_key_in_order<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 4);
    let retry = RetryPolicy::Ladder([Span::from_millis(1); 50].into());
    let settings = GroupSettings { ordered: true, retry, ..GroupSettings::default() };
    let consumer = group(house, &topic, settings);
    let keys: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    for _ in 0..20 {
        let requests = keys.iter().map(|key| with_key(When::Now, key)).collect();
        house.schedule(&topic, requests);
    }
    let handled: Mutex<Vec<Leased>> = Mutex::default();
    let turns = AtomicUsize::new(0);
    work(&consumer, 800, |taken| {
        let mut done = 0;
        for leased in taken {
            if turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
                consumer.nack(&[leased.receipt], &Failure::default()).unwrap();
                continue;
            }
            // Noted before the ack, after which somebody else may have the next one.
            handled.lock().push(leased.clone());
            assert_eq!(within_a_minute(consumer.ack(&[leased.receipt])).unwrap(), [true]);
            done += 1;
        }
        done
    });
    for key in keys {
        let handled = handled.lock();
        let of_key =
            handled.iter().filter(|leased| leased.message.key.as_deref() == Some(key.as_bytes()));
        let ids: Vec<MessageId> = of_key.map(|leased| leased.id).collect();
        assert!(ids.len() == 20 && ids.is_sorted(), "{key}: {ids:?}");
    }
}

#[test]
fn g19_the_embedded_store_remembers_what_was_acked() {
    let dir = tempfile::tempdir().unwrap();
    let (mut acked, mut open) = (BTreeSet::new(), BTreeSet::new());
    let topic = TopicName::new("orders").unwrap();
    for round in 0..3 {
        let house = House::new(engine(dir.path()), Options::default());
        if round == 0 {
            house.topic("orders", 2);
            let sent = house.schedule(&topic, vec![request(When::Now); 300]);
            open.extend(sent.iter().map(|sent| sent.id));
        }
        let consumer = group(&house, &topic, GroupSettings::default());
        let mut taken = Vec::new();
        while taken.len() < open.len() {
            taken.extend(receive(&consumer, 1000, LEASE));
        }
        let ids: BTreeSet<MessageId> = taken.iter().map(|leased| leased.id).collect();
        assert_eq!(ids, open, "what was not acked, and nothing else");
        for leased in taken.into_iter().step_by(2) {
            assert_eq!(within_a_minute(consumer.ack(&[leased.receipt])).unwrap(), [true]);
            open.remove(&leased.id);
            acked.insert(leased.id);
        }
        assert!(consumer.take(1000, LEASE).unwrap().is_empty());
    }
    assert_eq!(acked.len() + open.len(), 300);
}
