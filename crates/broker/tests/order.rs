//! Order by key: a message waits until the one before it with the same key is settled (G24).

mod market;

use std::collections::BTreeMap;

use market::{
    LEASE, Market, ack, bodies, fail, ordered, receipts, receive, receive_all, take, wait_until,
};
use punctual_broker::group::{Failure, NackOutcome};
use punctual_model::{GroupSettings, Span};

const SECOND: Span = Span::from_secs(1);

#[test]
fn g24_one_of_each_key_is_out_at_a_time() {
    let market = Market::new(2);
    let consumer = market.put("workers", ordered(&[SECOND]));
    market.deliver(&["a:1", "b:1", "a:2", "b:2", "a:3", "free", "loose"]);
    let mut first = receive_all(&consumer, 4);
    assert!(take(&consumer).is_empty(), "the rest is behind what is out");
    first.sort_by_key(|leased| leased.message.body.clone());
    assert_eq!(bodies(&first), ["a:1", "b:1", "free", "loose"]);
    assert_eq!(ack(&consumer, &[first[0].receipt]), [true]);
    let second = take(&consumer);
    assert_eq!(bodies(&second), ["a:2"]);
    assert_eq!(ack(&consumer, &receipts(&second)), [true]);
    assert_eq!(bodies(&take(&consumer)), ["a:3"]);
    assert_eq!(ack(&consumer, &[first[1].receipt]), [true]);
    assert_eq!(bodies(&take(&consumer)), ["b:2"]);
}

#[test]
fn g24_a_key_stays_in_order_through_failures_and_lost_leases() {
    let market = Market::new(1);
    let consumer = market.put("workers", ordered(&[Span::from_secs(10), Span::from_secs(100)]));
    market.deliver(&["a:1", "a:2", "b:1"]);
    let out = receive_all(&consumer, 2);
    assert_eq!(bodies(&out), ["a:1", "b:1"]);
    assert_eq!(fail(&consumer, out[0].receipt, "no"), NackOutcome::Requeued);
    market.pass(Span::from_millis(9_999));
    assert!(take(&consumer).is_empty(), "neither it nor what is behind it");
    market.pass(Span::from_millis(1));
    let again = take(&consumer);
    assert_eq!((bodies(&again), again[0].attempt), (vec!["a:1".to_owned()], 2));
    assert_eq!(again[0].id, out[0].id);
    market.pass(LEASE);
    // The lease of the other one has ended too.
    let third = receive_all(&consumer, 2);
    assert_eq!(bodies(&third), ["b:1", "a:1"]);
    assert_eq!(third[1].attempt, 3);
    assert_eq!(fail(&consumer, third[1].receipt, "no"), NackOutcome::Dead);
    let next = take(&consumer);
    assert_eq!((bodies(&next), next[0].attempt), (vec!["a:2".to_owned()], 1));
    assert_eq!(ack(&consumer, &receipts(&next)), [true]);
}

#[test]
fn g24_the_wait_of_a_key_survives_a_restart() {
    let market = Market::new(1);
    let consumer = market.put("workers", ordered(&[Span::from_secs(10), Span::from_secs(10)]));
    market.deliver(&["a:1", "a:2"]);
    let first = receive(&consumer, 2);
    assert_eq!(bodies(&first), ["a:1"]);
    fail(&consumer, first[0].receipt, "no");
    let market = market.restart();
    let consumer = market.group("workers");
    market.pass(Span::from_millis(9_999));
    assert!(take(&consumer).is_empty());
    let available = consumer.available();
    market.pass(Span::from_millis(1));
    market::within_a_minute(available);
    let again = take(&consumer);
    assert_eq!((bodies(&again), again[0].attempt), (vec!["a:1".to_owned()], 2));
    assert!(take(&consumer).is_empty());
}

#[test]
fn a_rejected_message_lets_the_next_of_its_key_go() {
    let market = Market::new(1);
    let consumer = market.put("workers", ordered(&[SECOND]));
    market.deliver(&["a:1", "a:2"]);
    let first = receive(&consumer, 1);
    let available = consumer.available();
    let reject = Failure { reject: true, ..Failure::default() };
    assert_eq!(consumer.nack(&receipts(&first), &reject).unwrap(), [NackOutcome::Dead]);
    market::within_a_minute(available);
    assert_eq!(bodies(&take(&consumer)), ["a:2"]);
}

#[test]
fn a_change_of_order_ends_all_leases() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a:1", "a:2", "a:3"]);
    let out = receive_all(&consumer, 3);
    assert_eq!(ack(&consumer, &[out[1].receipt]), [true]);
    market.put("workers", ordered(&[SECOND]));
    assert_eq!(ack(&consumer, &receipts(&out)), [false; 3]);
    assert_eq!(bodies(&take(&consumer)), ["a:1"]);
    market.put("workers", GroupSettings::default());
    assert_eq!(bodies(&take(&consumer)), ["a:1", "a:3"]);
}

#[test]
fn every_key_is_handled_in_order_whatever_fails() {
    let market = Market::new(3);
    let waits = [SECOND; 20];
    let consumer = market.put("workers", ordered(&waits));
    let texts: Vec<String> =
        (0..60).map(|number| format!("{}:{number:02}", ["a", "b", "c", "d"][number % 4])).collect();
    market.deliver(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let mut handled: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut dice: u64 = 7;
    let mut left = texts.len();
    // What comes again is brought back by another thread.
    wait_until("last message", || {
        for leased in take(&consumer) {
            let body = String::from_utf8(leased.message.body.to_vec()).unwrap();
            let key = body.split(':').next().unwrap().to_owned();
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            match (dice >> 33) % 4 {
                0 => assert_eq!(fail(&consumer, leased.receipt, "no"), NackOutcome::Requeued),
                1 => {}
                _ => {
                    assert_eq!(ack(&consumer, &[leased.receipt]), [true]);
                    handled.entry(key).or_default().push(body);
                    left -= 1;
                }
            }
        }
        market.pass(LEASE);
        left == 0
    });
    for (key, bodies) in handled {
        assert!(bodies.is_sorted() && bodies.len() == 15, "{key}: {bodies:?}");
    }
    assert_eq!(consumer.standing().unwrap().lag, 0);
}

#[test]
fn g24_a_key_keeps_its_partition_when_the_topic_grows() {
    let market = Market::new(2);
    let keyed: Vec<String> = (0..20).map(|number| format!("key{number}:body")).collect();
    let keyed: Vec<&str> = keyed.iter().map(String::as_str).collect();
    let partitions = |ids: Vec<punctual_model::MessageId>| -> Vec<u16> {
        ids.into_iter().map(|id| id.partition.get()).collect()
    };
    let before = partitions(market.send(&keyed));
    market.partitions(6);
    assert_eq!(partitions(market.send(&keyed)), before);
    let restarted = market.restart();
    assert_eq!(partitions(restarted.send(&keyed)), before);
    let mut free = partitions(restarted.send(&["free"; 12]));
    free.sort_unstable();
    free.dedup();
    assert_eq!(free, [0, 1, 2, 3, 4, 5], "what has no key uses all partitions");
}
