//! What happens when more waits for a group than its topic allows: refused, or dead letters; never
//! both given out and dead.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;
mod dead_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use dead_support::{all, texts, wait_for_dead, wait_for_lag};
use market::{
    Finally, LEASE, Market, ack, bodies, ordered, receipts, receive, receive_all, request, take,
    wait_until, within_a_minute,
};
use punctual_broker::group::{Consumer, DeadFilter, Reason};
use punctual_broker::{Request, ScheduleError, When};
use punctual_model::ports::Topics;
use punctual_model::{Backlog, GroupSettings, Message, Overflow, Span, TopicSettings};

/// A market whose topic allows that many messages to wait.
fn limited(partitions: u16, messages: u64, overflow: Overflow) -> Market {
    let market = Market::new(partitions);
    let limit = Backlog { messages: Some(messages), bytes: None };
    set(&market, partitions, limit, overflow);
    market
}

fn set(market: &Market, partitions: u16, max_backlog: Backlog, overflow: Overflow) {
    let settings = TopicSettings { partitions, max_backlog, overflow, ..TopicSettings::default() };
    Topics::put(&market.store, &market.topic, settings).unwrap();
}

fn try_send(market: &Market, texts: &[&str]) -> Result<usize, ScheduleError> {
    let requests = texts.iter().map(|text| request(text)).collect();
    within_a_minute(market.broker.schedule(&market.topic, requests)).map(|sent| sent.len())
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

/// The bodies of the dead letters of a group, all of them for the same reason.
fn overflowed(consumer: &Consumer) -> Vec<String> {
    let letters = all(consumer, &DeadFilter::default());
    for letter in &letters {
        assert_eq!((letter.history.reason, letter.history.failed), (Some(Reason::Overflow), 0));
    }
    texts(&letters)
}

#[test]
fn a_full_backlog_refuses_whole_batches_until_there_is_room() {
    let market = limited(2, 3, Overflow::Refuse);
    let consumer = market.group("workers");
    assert_eq!(try_send(&market, &["a", "b", "c", "d"]), Err(ScheduleError::BacklogFull));
    assert_eq!(try_send(&market, &["a", "b"]), Ok(2));
    wait_for_lag(&consumer, 2);
    assert_eq!(try_send(&market, &["c", "d"]), Err(ScheduleError::BacklogFull));
    assert_eq!(try_send(&market, &["c"]), Ok(1));
    wait_for_lag(&consumer, 3);
    assert_eq!(try_send(&market, &["d"]), Err(ScheduleError::BacklogFull));
    let held = receive_all(&consumer, 3);
    assert_eq!(sorted(bodies(&held)), ["a", "b", "c"]);
    assert_eq!(try_send(&market, &["d"]), Err(ScheduleError::BacklogFull), "what is held counts");
    ack(&consumer, &receipts(&held[..1]));
    assert_eq!(try_send(&market, &["d"]), Ok(1));
    assert_eq!(bodies(&receive(&consumer, 10)), ["d"]);
    assert!(overflowed(&consumer).is_empty());
}

#[test]
fn what_was_let_in_counts_before_it_is_measured() {
    let market = limited(1, 5, Overflow::Refuse);
    market.group("workers");
    // Time stands still, so what was measured at first is not too old.
    let sent: Vec<bool> = (0..10)
        .map(|_| {
            let later = Request { when: When::After(Span::from_secs(1)), ..request("a") };
            within_a_minute(market.broker.schedule(&market.topic, vec![later])).is_ok()
        })
        .collect();
    assert_eq!(sent, [true; 10], "they wait in the timeline, which is no backlog");
}

#[test]
fn the_group_that_is_furthest_behind_decides() {
    let market = limited(1, 2, Overflow::Refuse);
    let (fast, slow) = (market.group("fast"), market.group("slow"));
    assert_eq!(try_send(&market, &["a", "b"]), Ok(2));
    ack(&fast, &receipts(&receive_all(&fast, 2)));
    wait_for_lag(&slow, 2);
    assert_eq!(try_send(&market, &["c"]), Err(ScheduleError::BacklogFull));
    ack(&slow, &receipts(&receive_all(&slow, 2)));
    assert_eq!(try_send(&market, &["c"]), Ok(1));
}

#[test]
fn without_a_group_the_log_counts() {
    let market = limited(2, 3, Overflow::Refuse);
    assert_eq!(try_send(&market, &["a", "b", "c"]), Ok(3));
    let topic = Topics::by_name(&market.store, &market.topic).unwrap();
    let logged = || {
        let partitions = [0, 1].map(|number| punctual_model::Partition::new(number).unwrap());
        let ends =
            partitions.map(|partition| market.store.bounds(topic.id, partition).unwrap().end);
        ends.iter().sum::<u64>()
    };
    wait_until("three messages in the log", || logged() >= 3);
    assert_eq!(try_send(&market, &["d"]), Err(ScheduleError::BacklogFull));
    set(&market, 2, Backlog { messages: Some(4), bytes: None }, Overflow::Refuse);
    assert_eq!(try_send(&market, &["d"]), Ok(1));
    set(&market, 2, Backlog::default(), Overflow::Refuse);
    assert_eq!(try_send(&market, &["e"; 100]), Ok(100));
}

#[test]
fn bytes_are_limited_too() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    set(&market, 1, Backlog { messages: None, bytes: Some(1000) }, Overflow::Refuse);
    let large = "x".repeat(600);
    assert_eq!(try_send(&market, &[&large, &large]), Err(ScheduleError::BacklogFull));
    assert_eq!(try_send(&market, &[&large]), Ok(1));
    wait_for_lag(&consumer, 1);
    assert_eq!(try_send(&market, &[&large]), Err(ScheduleError::BacklogFull));
    assert_eq!(try_send(&market, &["x"; 300]), Ok(300));
    wait_for_lag(&consumer, 301);
    let large: Vec<_> = receive_all(&consumer, 301)
        .into_iter()
        .filter(|held| held.message.body.len() > 1)
        .collect();
    ack(&consumer, &receipts(&large));
    assert_eq!(try_send(&market, &[&"y".repeat(600)]), Ok(1));
}

#[test]
fn the_oldest_become_dead_letters() {
    let market = limited(1, 3, Overflow::DropOldest);
    let (consumer, other) = (market.group("workers"), market.group("others"));
    assert_eq!(try_send(&market, &["a", "b", "c", "d", "e"]), Ok(5));
    wait_for_dead(&consumer, 2);
    assert_eq!(overflowed(&consumer), ["a", "b"]);
    assert_eq!(consumer.standing().unwrap().lag, 3);
    assert_eq!(bodies(&receive_all(&consumer, 3)), ["c", "d", "e"]);
    assert!(take(&consumer).is_empty());
    wait_for_dead(&other, 2);
    assert_eq!(bodies(&receive_all(&other, 3)), ["c", "d", "e"], "each group has its own");
    assert_eq!(market.broker.stats().received, 6);
}

#[test]
fn what_a_consumer_holds_is_not_the_oldest() {
    let market = limited(1, 3, Overflow::DropOldest);
    let consumer = market.group("workers");
    market.send(&["a", "b"]);
    let held = receive_all(&consumer, 2);
    market.send(&["c", "d", "e"]);
    wait_for_dead(&consumer, 2);
    assert_eq!(overflowed(&consumer), ["c", "d"]);
    assert_eq!(ack(&consumer, &receipts(&held)), [true, true]);
    assert_eq!(bodies(&receive_all(&consumer, 1)), ["e"]);
}

#[test]
fn the_newest_become_dead_letters() {
    let market = limited(1, 3, Overflow::DeadLetterNewest);
    let consumer = market.group("workers");
    market.send(&["a", "b", "c"]);
    wait_for_lag(&consumer, 3);
    market.send(&["d", "e"]);
    wait_for_dead(&consumer, 2);
    assert_eq!(overflowed(&consumer), ["d", "e"]);
    assert_eq!(bodies(&receive_all(&consumer, 3)), ["a", "b", "c"]);
    assert!(take(&consumer).is_empty());
    let market = market.restart();
    let consumer = market.group("workers");
    assert_eq!(bodies(&receive_all(&consumer, 3)), ["a", "b", "c"]);
    assert!(take(&consumer).is_empty());
}

#[test]
fn the_newest_of_all_partitions_go_also_if_they_were_read_already() {
    let market = limited(4, 8, Overflow::DeadLetterNewest);
    let consumer = market.group("workers");
    let first: Vec<String> = (0..8).map(|number| format!("old {number}")).collect();
    market.send(&first.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for_lag(&consumer, 8);
    // One take reads ahead, so all of them are in memory.
    let held = consumer.take(1, LEASE).unwrap();
    market.clock.advance(Span::from_millis(1));
    set(&market, 4, Backlog { messages: Some(5), bytes: None }, Overflow::DeadLetterNewest);
    market.send(&["new"]);
    wait_for_dead(&consumer, 4);
    assert!(overflowed(&consumer).contains(&"new".to_owned()));
    assert_eq!(ack(&consumer, &receipts(&held)), [true]);
    let rest = receive_all(&consumer, 4);
    let mut given = bodies(&rest);
    given.extend(bodies(&held));
    given.extend(overflowed(&consumer));
    let mut sent = first;
    sent.push("new".to_owned());
    assert_eq!(sorted(given), sorted(sent), "each in one place");
    assert!(take(&consumer).is_empty());
}

#[test]
fn ordered_groups_overflow_at_either_end() {
    for policy in [Overflow::DropOldest, Overflow::DeadLetterNewest] {
        let market = limited(1, 4, policy);
        let consumer = market.put("workers", ordered(&[Span::from_secs(1)]));
        let sent = ["x:0", "y:1", "x:2", "y:3", "x:4", "y:5", "x:6"];
        market.send(&sent[..4]);
        wait_for_lag(&consumer, 4);
        let held = consumer.take(1, LEASE).unwrap();
        assert_eq!(bodies(&held), ["x:0"]);
        market.send(&sent[4..]);
        wait_for_dead(&consumer, 3);
        ack(&consumer, &receipts(&held));
        let mut given = Vec::new();
        while given.len() < 3 {
            let taken = receive(&consumer, 10);
            given.extend(bodies(&taken));
            ack(&consumer, &receipts(&taken));
        }
        let dead = overflowed(&consumer);
        let of_key = |key: &str| given.iter().filter(|text| text.starts_with(key)).is_sorted();
        assert!(of_key("x") && of_key("y"), "{given:?}");
        if policy == Overflow::DeadLetterNewest {
            assert_eq!(dead, ["x:4", "y:5", "x:6"]);
        } else {
            assert_eq!(dead[0], "y:1", "the oldest that nobody holds: {dead:?}");
        }
        let all = dead.into_iter().chain(given).chain(bodies(&held)).collect();
        assert_eq!(sorted(all), sorted(sent.map(str::to_owned).to_vec()));
        assert!(take(&consumer).is_empty());
    }
}

#[test]
fn a_paused_group_overflows_as_well() {
    let market = limited(1, 1, Overflow::DropOldest);
    let consumer =
        market.put("workers", GroupSettings { paused: true, ..GroupSettings::default() });
    market.send(&["a", "b", "c"]);
    wait_for_dead(&consumer, 2);
    assert_eq!(overflowed(&consumer), ["a", "b"]);
}

#[test]
fn bytes_can_overflow_too() {
    for policy in [Overflow::DropOldest, Overflow::DeadLetterNewest] {
        let market = Market::new(1);
        let consumer = market.group("workers");
        set(&market, 1, Backlog { messages: None, bytes: Some(1000) }, policy);
        for letter in ["a", "b", "c", "d", "e"] {
            market.send(&[&letter.repeat(300)]);
        }
        wait_for_dead(&consumer, 2);
        wait_for_lag(&consumer, 3);
        assert_eq!(receive_all(&consumer, 3).len(), 3);
        assert!(take(&consumer).is_empty());
        assert_eq!(overflowed(&consumer).len(), 2);
    }
}

#[test]
fn what_the_store_refuses_to_bury_is_buried_later() {
    for policy in [Overflow::DropOldest, Overflow::DeadLetterNewest] {
        let market = limited(1, 2, policy);
        let consumer = market.group("workers");
        market.valve.refuse();
        market.send(&["a", "b", "c", "d"]);
        wait_for_lag(&consumer, 4);
        market.valve.open();
        // What is delivered later is the reason to look again. Time stands still here, and the rest
        // after a refusal may begin only now.
        market.send(&["e"]);
        wait_until("three dead letters", || {
            market.clock.advance(Span::from_secs(1));
            consumer.count_dead(&DeadFilter::default()).unwrap() >= 3
        });
        wait_for_lag(&consumer, 2);
        assert_eq!(overflowed(&consumer).len(), 3);
        assert_eq!(receive_all(&consumer, 2).len(), 2);
    }
}

#[test]
fn every_message_is_given_out_or_dead_and_never_both() {
    const SENT: usize = 3000;
    for policy in [Overflow::DropOldest, Overflow::DeadLetterNewest] {
        let market = limited(3, 40, policy);
        let consumer = market.group("workers");
        let sending = AtomicBool::new(true);
        let taken: Vec<String> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut all = Vec::new();
                        loop {
                            // Looked at before the take: after the last send there is one more.
                            let more = sending.load(Ordering::SeqCst);
                            let taken = consumer.take(7, LEASE).unwrap();
                            ack(&consumer, &receipts(&taken));
                            if taken.is_empty() && !more {
                                return all;
                            }
                            all.extend(bodies(&taken));
                        }
                    })
                })
                .collect();
            let sent = Finally(|| sending.store(false, Ordering::SeqCst));
            for batch in (0..SENT).collect::<Vec<_>>().chunks(50) {
                let requests = batch.iter().map(|number| {
                    let body = number.to_string().into();
                    Request::new(Message { body, ..Message::default() }, When::Now)
                });
                market.schedule(requests.collect());
            }
            wait_until("delivery of all", || market.broker.stats().delivered >= SENT as u64);
            drop(sent);
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        let dead = SENT - taken.len();
        wait_for_dead(&consumer, dead as u64);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for text in taken.into_iter().chain(overflowed(&consumer)) {
            *seen.entry(text).or_default() += 1;
        }
        assert_eq!(seen.len(), SENT, "{policy:?}");
        assert!(seen.values().all(|count| *count == 1), "{policy:?}: {seen:?}");
    }
}
