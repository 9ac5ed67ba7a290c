//! Drain: what waits for a group moves to another topic; what somebody holds stays.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;
mod dead_support;

use dead_support::{all, finished, texts, wait_for_dead, wait_for_lag};
use market::{
    Market, ack, bodies, fail, ladder, ordered, receipts, receive, receive_all, request, take,
};
use punctual_broker::group::{
    Consumer, DeadFilter, Drain, JobError, JobKind, JobReport, JobState, MoveResult, Reason,
};
use punctual_broker::{Request, When};
use punctual_model::group::Start;
use punctual_model::ports::Topics;
use punctual_model::{
    GroupName, GroupSettings, Header, Message, Partition, Span, TopicName, TopicSettings,
    partitioner,
};

const SECOND: Span = Span::from_secs(1);

/// Another topic with four partitions, and a group that consumes it.
fn elsewhere(market: &Market) -> (TopicName, Consumer) {
    let name = TopicName::new("elsewhere").unwrap();
    Topics::put(&market.store, &name, TopicSettings { partitions: 4, ..TopicSettings::default() })
        .unwrap();
    let group = GroupName::new("readers").unwrap();
    let settings = GroupSettings::default();
    let consumers = market.broker.consumers();
    let readers = consumers.put(&name, &group, settings, Start::Earliest).unwrap();
    (name, readers)
}

fn drain(consumer: &Consumer, to: &TopicName, max: Option<u64>) -> JobReport {
    let job = consumer.drain(&Drain { to: to.clone(), max }).unwrap();
    finished(consumer, job)
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

#[test]
fn the_backlog_moves_and_is_the_same_but_for_id_and_due() {
    let market = Market::new(2);
    let (to, readers) = elsewhere(&market);
    let consumer = market.group("workers");
    let message = Message {
        key: Some("k".into()),
        headers: vec![Header { name: "h".to_owned(), value: "v".into() }],
        body: "whole".into(),
    };
    let ids = market.schedule(vec![Request::new(message.clone(), When::Now)]);
    market.send(&["x:a", "b", "c", "d"]);
    wait_for_lag(&consumer, 5);
    market.clock.advance(SECOND);
    let report = drain(&consumer, &to, None);
    assert_eq!((report.kind, report.state), (JobKind::Drain, JobState::Done));
    assert_eq!((report.matched, report.done), (5, 5));
    assert!(report.results.iter().any(|moved| moved.id == ids[0]));
    assert!(report.results.iter().all(|moved| moved.result == MoveResult::Drained));
    assert!(take(&consumer).is_empty());
    assert_eq!(consumer.standing().unwrap().lag, 0);
    let read = receive_all(&readers, 5);
    assert_eq!(sorted(bodies(&read)), ["b", "c", "d", "whole", "x:a"]);
    for leased in &read {
        assert_eq!((leased.due, leased.attempt), (market.clock.now(), 1));
        if let Some(key) = &leased.message.key {
            assert_eq!(leased.partition, partitioner::by_key(key, 4));
        }
    }
    let whole = read.iter().find(|leased| leased.message.body == "whole").unwrap();
    assert_eq!(whole.message, message);
    assert_ne!(whole.id, ids[0]);
    let mut spread: Vec<Partition> = read.iter().map(|leased| leased.partition).collect();
    spread.sort();
    spread.dedup();
    assert!(spread.len() > 1, "those without a key take turns");
    let market = market.restart();
    assert!(take(&market.group("workers")).is_empty());
}

#[test]
fn what_is_leased_or_waits_for_another_attempt_stays() {
    let market = Market::new(1);
    let (to, readers) = elsewhere(&market);
    let consumer = market.put("workers", ladder(&[SECOND]));
    market.send(&["leased", "failed", "came back", "free"]);
    wait_for_lag(&consumer, 4);
    let held = receive_all(&consumer, 3);
    assert_eq!(bodies(&held), ["leased", "failed", "came back"]);
    fail(&consumer, held[2].receipt, "bad");
    market.pass(SECOND);
    // It is in the retry topic now, and ready; that is no backlog of the topic.
    let back = receive(&consumer, 1);
    assert!(["came back", "free"].contains(&bodies(&back)[0].as_str()));
    consumer.release(&receipts(&back));
    fail(&consumer, held[1].receipt, "bad");
    let report = drain(&consumer, &to, None);
    assert_eq!((report.state, report.done), (JobState::Done, 1));
    assert_eq!(bodies(&receive_all(&readers, 1)), ["free"]);
    assert_eq!(ack(&consumer, &[held[0].receipt]), [true]);
    market.pass(SECOND);
    assert_eq!(sorted(bodies(&receive_all(&consumer, 2))), ["came back", "failed"]);
    assert!(take(&consumer).is_empty() && take(&readers).is_empty());
}

#[test]
fn no_more_than_asked_for_moves_and_other_groups_keep_theirs() {
    let market = Market::new(1);
    let (to, readers) = elsewhere(&market);
    let (consumer, other) = (market.group("workers"), market.group("others"));
    market.send(&["a", "b", "c", "d", "e"]);
    wait_for_lag(&consumer, 5);
    assert_eq!(drain(&consumer, &to, Some(2)).done, 2);
    assert_eq!(sorted(bodies(&receive_all(&readers, 2))), ["a", "b"]);
    assert_eq!(bodies(&receive_all(&consumer, 3)), ["c", "d", "e"]);
    assert_eq!(receive_all(&other, 5).len(), 5);
    assert_eq!(drain(&consumer, &to, Some(0)).done, 0);
}

#[test]
fn an_ordered_group_that_is_paused_can_be_drained() {
    let market = Market::new(1);
    let (to, readers) = elsewhere(&market);
    let consumer = market.put("workers", GroupSettings { paused: true, ..ordered(&[SECOND]) });
    let sent: Vec<String> = (0..600).map(|number| format!("k{}:{number:04}", number % 3)).collect();
    let texts: Vec<&str> = sent.iter().map(String::as_str).collect();
    market.send(&texts);
    wait_for_lag(&consumer, 600);
    assert_eq!(drain(&consumer, &to, None).done, 600);
    let read = receive_all(&readers, 600);
    for key in ["k0", "k1", "k2"] {
        let of_key = bodies(&read).into_iter().filter(|body| body.starts_with(key));
        assert!(of_key.is_sorted(), "one key moves in order");
    }
    assert_eq!(consumer.standing().unwrap().lag, 0);
}

#[test]
fn an_expired_message_is_a_dead_letter_instead() {
    let market = Market::new(1);
    let (to, readers) = elsewhere(&market);
    let consumer = market.group("workers");
    market.schedule(vec![Request { ttl: Some(SECOND), ..request("short") }]);
    market.send(&["long"]);
    wait_for_lag(&consumer, 2);
    market.clock.advance(SECOND);
    assert_eq!(drain(&consumer, &to, None).done, 1);
    assert_eq!(bodies(&receive_all(&readers, 1)), ["long"]);
    wait_for_dead(&consumer, 1);
    let letters = all(&consumer, &DeadFilter::default());
    assert_eq!(
        (texts(&letters)[0].as_str(), letters[0].history.reason),
        ("short", Some(Reason::Expired))
    );
}

#[test]
fn the_target_is_another_topic_that_producers_may_send_to() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    for to in ["orders", "nowhere", "orders.workers.dead", "orders.workers.retry"] {
        let order = Drain { to: TopicName::new(to).unwrap(), max: None };
        assert_eq!(consumer.drain(&order), Err(JobError::NoTarget), "{to}");
    }
}

#[test]
fn what_the_store_refuses_to_move_is_still_there() {
    let market = Market::new(1);
    let (to, readers) = elsewhere(&market);
    let consumer = market.group("workers");
    market.send(&["a", "b"]);
    wait_for_lag(&consumer, 2);
    market.valve.refuse();
    let report = drain(&consumer, &to, None);
    assert_eq!(report.state, JobState::Failed("the disk is full".into()));
    market.valve.open();
    assert!(take(&readers).is_empty());
    let taken = receive_all(&consumer, 2);
    assert_eq!((sorted(bodies(&taken)), taken[0].attempt), (vec!["a".into(), "b".into()], 1));
}
