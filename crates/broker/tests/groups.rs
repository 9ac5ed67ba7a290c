//! Groups as a whole: independent of each other, paused and resumed, put elsewhere, deleted (G23).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use market::{LEASE, Market, ack, bodies, fail, ladder, receipts, receive, receive_all, take};
use punctual_broker::group::{Consumer, Failure, GroupLag, NackOutcome, ResetTo};
use punctual_model::group::Start;
use punctual_model::ports::GroupError;
use punctual_model::{GroupName, GroupSettings, Partition, Span, TopicName};

fn partition(number: u16) -> Partition {
    Partition::new(number).unwrap()
}

/// Takes everything and acks it.
fn drain(consumer: &Consumer) -> Vec<String> {
    let taken = take(consumer);
    ack(consumer, &receipts(&taken));
    bodies(&taken)
}

#[test]
fn g23_what_one_group_does_changes_nothing_for_another() {
    let market = Market::new(2);
    let (one, other) = (market.group("one"), market.put("other", ladder(&[Span::from_secs(5)])));
    market.deliver(&["a", "b", "c"]);
    assert_eq!(ack(&one, &receipts(&receive_all(&one, 3))), [true; 3]);
    let held = receive_all(&other, 3);
    assert_eq!(held.len(), 3);
    assert_eq!(fail(&other, held[0].receipt, "no"), NackOutcome::Requeued);
    assert!(take(&one).is_empty());
    let standing = other.standing().unwrap();
    assert_eq!((standing.lag, standing.in_flight, standing.retrying), (2, 2, 1));
    assert_eq!(standing.partitions.len(), 2);
    assert_eq!(one.standing().unwrap().lag, 0);
    assert!(market.broker.consumers().delete(&market.topic, &one.group().name).unwrap());
    assert_eq!(ack(&other, &receipts(&held[1..])), [true; 2]);
}

#[test]
fn a_paused_group_gives_nothing_out_and_a_resumed_one_wakes_its_waiters() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a", "b"]);
    let held = consumer.take(1, LEASE).unwrap();
    market.put("workers", GroupSettings { paused: true, ..GroupSettings::default() });
    let available = consumer.available();
    assert!(take(&consumer).is_empty());
    assert_eq!(ack(&consumer, &receipts(&held)), [true], "what is out can be acked");
    market.put("workers", GroupSettings::default());
    market::within_a_minute(available);
    assert_eq!(bodies(&take(&consumer)), ["b"]);
}

#[test]
fn a_group_may_begin_with_what_comes() {
    let market = Market::new(1);
    market.deliver(&["old"]);
    let name = GroupName::new("late").unwrap();
    let consumers = market.broker.consumers();
    let late = consumers.put(&market.topic, &name, GroupSettings::default(), Start::Latest);
    let late = late.unwrap();
    market.deliver(&["new"]);
    assert_eq!(bodies(&receive(&late, 9)), ["new"]);
    // A second put changes settings only.
    consumers.put(&market.topic, &name, ladder(&[]), Start::Earliest).unwrap();
    assert!(take(&late).is_empty());
}

#[test]
fn a_group_put_elsewhere_goes_on_there_and_nobody_holds_anything() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a", "b"]);
    market.clock.advance(Span::from_secs(60));
    let moment = market.clock.now();
    market.deliver(&["c", "d"]);
    let held = receive_all(&consumer, 4);
    assert_eq!(ack(&consumer, &receipts(&held[..1])), [true]);

    consumer.reset(&ResetTo::Earliest).unwrap();
    assert_eq!(ack(&consumer, &receipts(&held)), [false; 4]);
    assert_eq!(drain(&consumer), ["a", "b", "c", "d"]);
    consumer.reset(&ResetTo::Time(moment)).unwrap();
    assert_eq!(drain(&consumer), ["c", "d"]);
    consumer.reset(&ResetTo::Offsets(vec![(partition(0), 3)])).unwrap();
    assert_eq!(drain(&consumer), ["d"]);
    consumer.reset(&ResetTo::Offsets(vec![(partition(0), 99)])).unwrap();
    assert_eq!(consumer.standing().unwrap().partitions[0].cursor, 4, "not past the end");
    consumer.reset(&ResetTo::Earliest).unwrap();
    let available = consumer.available();
    consumer.reset(&ResetTo::Latest).unwrap();
    market::within_a_minute(available);
    assert!(take(&consumer).is_empty());
    market.deliver(&["e"]);
    assert_eq!(drain(&consumer), ["e"]);
    let missing = ResetTo::Offsets(vec![(partition(7), 0)]);
    assert_eq!(consumer.reset(&missing), Err(GroupError::TopicNotFound));
}

#[test]
fn a_group_that_commits_offsets_goes_on_from_them() {
    let market = Market::new(2);
    let consumer = market.group("stream");
    market.deliver(&["a", "b", "c", "d", "e", "f"]);
    consumer.commit(&[(partition(0), 2), (partition(1), 3)]).unwrap();
    let standing = consumer.standing().unwrap();
    assert_eq!(standing.partitions.iter().map(|p| p.cursor).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(standing.lag, 1);
    let market = market.restart();
    assert_eq!(take(&market.group("stream")).len(), 1);
    let consumer = market.group("stream");
    assert_eq!(consumer.commit(&[(partition(2), 0)]), Err(GroupError::TopicNotFound));
    consumer.commit(&[(partition(0), 99)]).unwrap();
    assert_eq!(consumer.standing().unwrap().partitions[0].cursor, 3, "not past the end");
}

#[test]
fn new_partitions_are_read_too() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    assert_eq!(drain(&consumer), ["a"]);
    market.partitions(3);
    market.deliver(&["b", "c", "d", "e", "f", "g"]);
    assert_eq!(receive_all(&consumer, 6).len(), 6);
    let market = market.restart();
    assert_eq!(receive_all(&market.group("workers"), 6).len(), 6);
}

#[test]
fn a_deleted_group_is_gone_and_a_new_one_of_its_name_begins_anew() {
    let market = Market::new(1);
    let consumers = market.broker.consumers();
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let held = receive(&consumer, 1);
    let name = consumer.group().name.clone();
    let changed = consumers.changed();
    assert_eq!(consumers.delete(&market.topic, &name), Ok(true));
    market::within_a_minute(changed);
    assert_eq!(consumers.delete(&market.topic, &name), Ok(false));
    assert_eq!(consumers.find(&market.topic, &name).unwrap_err(), GroupError::NotFound);
    assert_eq!(consumer.take(1, LEASE).unwrap_err(), GroupError::NotFound);
    let anew = market.group("workers");
    assert_eq!(ack(&anew, &receipts(&held)), [false]);
    let again = receive(&anew, 1);
    assert_eq!((bodies(&again), again[0].attempt), (vec!["a".to_owned()], 1));
}

#[test]
fn the_groups_of_a_deleted_topic_are_gone() {
    let market = Market::new(1);
    let consumers = market.broker.consumers();
    let consumer = market.group("workers");
    let available = consumer.available();
    assert!(market.broker.topics().delete(&market.topic).unwrap());
    consumers.topics_changed();
    market::within_a_minute(available);
    assert_eq!(consumer.take(1, LEASE).unwrap_err(), GroupError::NotFound);
    let found = consumers.find(&market.topic, &consumer.group().name);
    assert_eq!(found.unwrap_err(), GroupError::TopicNotFound);
    assert!(consumers.list().is_empty() && consumers.lags().is_empty());
    // Opened again, the topic is made as well.
    let anew = consumers.open(&market.topic, &consumer.group().name).unwrap();
    assert_ne!(anew.group().id, consumer.group().id);
    market.deliver(&["a"]);
    assert_eq!(bodies(&receive(&anew, 1)), ["a"]);
}

#[test]
fn retries_and_new_messages_take_turns() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[Span::from_secs(60)]));
    let names: Vec<String> = (0..600).map(|number| number.to_string()).collect();
    market.deliver(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for leased in receive_all(&consumer, 100) {
        fail(&consumer, leased.receipt, "no");
    }
    market.clock.advance(Span::from_secs(60));
    market.wait_for_delivered(700);
    let mut retried = 0;
    for _ in 0..100 {
        let leased = consumer.take(1, LEASE).unwrap().remove(0);
        retried += usize::from(leased.attempt == 2);
    }
    assert!((40..=60).contains(&retried), "{retried} of a hundred");
}

#[test]
fn large_messages_do_not_pile_up_in_memory_and_all_arrive() {
    let market = Market::new(2);
    let consumer = market.put("workers", market::ordered(&[Span::from_secs(60)]));
    let large = "x".repeat(300 << 10);
    let texts: Vec<String> =
        (0..80).map(|number| format!("{}:{number}{large}", number % 3)).collect();
    market.deliver(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let mut seen = Vec::new();
    while seen.len() < texts.len() {
        let taken = take(&consumer);
        assert!(!taken.is_empty());
        ack(&consumer, &receipts(&taken));
        seen.extend(bodies(&taken));
    }
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    assert!(sorted(seen) == sorted(texts), "each once, whole");
}

#[test]
fn what_is_read_again_is_what_was_sent_also_of_a_retry() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let large = "x".repeat(300 << 10);
    let texts: Vec<String> = (10..40).map(|number| format!("{number}{large}")).collect();
    market.send(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let at_once = Failure { delay: Some(Span::ZERO), ..Failure::default() };
    for attempt in 1..4 {
        let taken = receive_all(&consumer, texts.len());
        assert_eq!(consumer.release(&receipts(&taken)), vec![true; texts.len()]);
        // More than is kept in memory while it is out.
        let mut again = receive_all(&consumer, texts.len());
        again.sort_by_key(|leased| leased.offset);
        assert!(again.iter().all(|leased| leased.attempt == attempt));
        assert!(again.iter().all(|leased| leased.message.headers.is_empty()));
        assert!(bodies(&again) == texts, "whole and unchanged at attempt {attempt}");
        let outcomes = consumer.nack(&receipts(&again), &at_once).unwrap();
        assert_eq!(outcomes, vec![NackOutcome::Requeued; texts.len()]);
    }
}

#[test]
fn the_lag_of_each_group_is_told() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a", "b"]);
    receive(&consumer, 1);
    let lags = market.broker.consumers().lags();
    let (topic, group) = (market.topic.clone(), GroupName::new("workers").unwrap());
    let workers = GroupLag { topic, group, lag: 2, in_flight: 1, retrying: 0, dead: 0 };
    assert!(lags.contains(&workers), "{lags:?}");
    assert_eq!(lags.len(), 2, "the scout too");
    let names: Vec<TopicName> =
        market.broker.consumers().list().into_iter().map(|(topic, _)| topic).collect();
    assert_eq!(names, [market.topic.clone(), market.topic.clone()]);
}
