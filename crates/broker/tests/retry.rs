//! Retries and dead letters: attempt n+1 comes not before its back-off, after the last one the
//! message is a dead letter, and in between it is in one place (G22).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use bytes::Bytes;
use market::{
    LEASE, Market, ack, bodies, fail, ladder, receipts, receive, receive_all, request, take,
    wait_until,
};
use punctual_broker::group::{
    Consumer, FailedMessage, Failure, History, Leased, NackOutcome, Reason, RetryOutcome,
};
use punctual_broker::{Request, ScheduleError};
use punctual_model::limits::ERROR_BYTES_MAX;
use punctual_model::ports::Topics;
use punctual_model::{GroupSettings, Header, Message, Span, TopicSettings};

const SECOND: Span = Span::from_secs(1);
const MINUTE: Span = Span::from_secs(60);
const MILLISECOND: Span = Span::from_millis(1);

/// The dead letters of a group once there are that many.
fn dead(market: &Market, consumer: &Consumer, count: usize) -> Vec<(History, Message)> {
    let topic = consumer.group().dead;
    wait_until("dead letters", || market.log(topic).len() >= count);
    let log = market.log(topic);
    let open = |mut message: Message| (History::detach(&mut message).unwrap(), message);
    log.into_iter().map(|letter| open(letter.message)).collect()
}

fn header(name: &str, value: &str) -> Header {
    Header { name: name.to_owned(), value: value.to_owned().into() }
}

#[test]
fn g22_each_attempt_comes_at_its_rung_and_then_it_is_dead() {
    let market = Market::new(1);
    let waits = [Span::from_millis(1500), Span::from_secs(20), Span::from_secs(3600)];
    let consumer = market.put("workers", ladder(&waits));
    let mut sent = request("k:a");
    sent.message.headers = vec![header("punctual-attempts", "mine"), header("x", "")];
    let id = market.schedule(vec![sent.clone()])[0];
    let mut last: Option<Leased> = None;
    for (attempt, wait) in (1..).zip(waits) {
        let leased = receive(&consumer, 1).remove(0);
        assert_eq!((leased.attempt, leased.id, &leased.message), (attempt, id, &sent.message));
        if let Some(last) = last {
            let same = Leased { receipt: last.receipt, attempt: last.attempt, ..leased.clone() };
            assert_eq!(same, last, "always the first offset, due and delivery");
        }
        let error = format!("attempt {attempt}");
        assert_eq!(fail(&consumer, leased.receipt, &error), NackOutcome::Requeued);
        assert!(take(&consumer).is_empty());
        // The attempt before may count as waiting for a moment longer.
        wait_until("single retry", || consumer.standing().unwrap().retrying == 1);
        // The outlet of these tests refuses to be handed anything early.
        market.clock.advance(Span::from_millis(wait.as_millis() - 1));
        assert!(take(&consumer).is_empty());
        market.clock.advance(MILLISECOND);
        last = Some(leased);
    }
    let leased = receive(&consumer, 1).remove(0);
    assert_eq!(leased.attempt, 4);
    assert_eq!(fail(&consumer, leased.receipt, "attempt 4"), NackOutcome::Dead);
    let (history, message) = dead(&market, &consumer, 1).remove(0);
    assert_eq!(message, sent.message);
    assert_eq!((history.id, history.failed, history.offset), (id, 4, 0));
    assert_eq!(history.topic, market.topic);
    assert_eq!(history.first_error.as_deref(), Some("attempt 1"));
    assert_eq!(history.last_error.as_deref(), Some("attempt 4"));
    assert_eq!(history.reason, Some(Reason::AttemptsExhausted));
    let standing = consumer.standing().unwrap();
    assert_eq!((standing.lag, standing.retrying, standing.dead), (0, 0, 1));
    let stats = market.broker.stats();
    assert_eq!((stats.retries, stats.received), (3, 4));
    assert!(stats.dead.contains(&(Reason::AttemptsExhausted, 1)));
}

#[test]
fn a_delay_of_the_consumers_own_replaces_the_rung() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[Span::from_secs(3600)]));
    market.send(&["a"]);
    let first = receive(&consumer, 1).remove(0);
    let failure = Failure { delay: Some(Span::ZERO), ..Failure::default() };
    assert_eq!(consumer.nack(&[first.receipt], &failure).unwrap(), [NackOutcome::Requeued]);
    let second = receive(&consumer, 1).remove(0);
    assert_eq!(second.attempt, 2);
}

#[test]
fn a_retry_survives_a_restart_with_its_attempts() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[MINUTE, MINUTE]));
    let id = market.send(&["a"])[0];
    let first = receive(&consumer, 1).remove(0);
    fail(&consumer, first.receipt, "no");
    let market = market.restart();
    let consumer = market.group("workers");
    assert!(take(&consumer).is_empty());
    market.clock.advance(MINUTE);
    let second = receive(&consumer, 1).remove(0);
    assert_eq!((second.id, second.attempt), (id, 2));
    // A lease that ran out on the way counts too, and is known after a restart.
    market.pass(LEASE);
    let market = market.restart();
    let consumer = market.group("workers");
    let third = receive(&consumer, 1).remove(0);
    assert_eq!((third.id, third.attempt), (id, 3));
    assert_eq!(fail(&consumer, third.receipt, "no"), NackOutcome::Dead);
    let (history, _) = dead(&market, &consumer, 1).remove(0);
    assert_eq!((history.id, history.failed), (id, 3));
}

#[test]
fn a_rejected_message_is_dead_at_once() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a", "b"]);
    let leased = receive_all(&consumer, 2);
    let long = "\u{e9}".repeat(ERROR_BYTES_MAX);
    let failure = Failure { reject: true, error: Some(long), delay: Some(SECOND) };
    let outcomes = consumer.nack(&receipts(&leased), &failure).unwrap();
    assert_eq!(outcomes, [NackOutcome::Dead; 2]);
    let letters = dead(&market, &consumer, 2);
    assert_eq!(letters[0].0.reason, Some(Reason::Rejected));
    assert_eq!(letters[0].0.failed, 1);
    let error = letters[0].0.last_error.as_deref().unwrap();
    assert!(error.len() <= ERROR_BYTES_MAX && error.chars().all(|letter| letter == '\u{e9}'));
    assert_eq!(consumer.standing().unwrap().lag, 0);
}

#[test]
fn a_message_may_be_worth_fewer_attempts_than_the_group_allows() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.schedule(vec![Request { max_attempts: Some(1), ..request("a") }]);
    let leased = receive(&consumer, 1).remove(0);
    assert_eq!(fail(&consumer, leased.receipt, "no"), NackOutcome::Dead);
    let settings = GroupSettings { attempts_max: Some(1), ..GroupSettings::default() };
    let strict = market.put("strict", settings);
    market.schedule(vec![Request { max_attempts: Some(9), ..request("b") }]);
    for leased in receive_all(&strict, 2) {
        assert_eq!(fail(&strict, leased.receipt, "no"), NackOutcome::Dead);
    }
}

#[test]
fn what_is_past_its_time_to_live_is_dead_and_not_given_out() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[Span::from_secs(60); 4]));
    let with_ttl = |text, ttl| Request { ttl: Some(ttl), ..request(text) };
    market.schedule(vec![with_ttl("a", SECOND), with_ttl("b", Span::from_secs(90)), request("c")]);
    let all = receive_all(&consumer, 3);
    assert_eq!(bodies(&all), ["a", "b", "c"]);
    let (a, b) = (&all[0], &all[1]);
    assert_eq!(ack(&consumer, &[all[2].receipt]), [true]);
    assert_eq!(fail(&consumer, b.receipt, "no"), NackOutcome::Requeued);
    assert_eq!(consumer.release(&[a.receipt]), [true]);
    market.clock.advance(Span::from_millis(999));
    let again = take(&consumer);
    assert_eq!(bodies(&again), ["a"], "up to its last moment");
    assert_eq!(consumer.release(&[again[0].receipt]), [true]);
    market.clock.advance(MILLISECOND);
    assert!(take(&consumer).is_empty());
    let (history, _) = dead(&market, &consumer, 1).remove(0);
    assert_eq!((history.id, history.reason), (a.id, Some(Reason::Expired)));
    assert_eq!(history.failed, 0);
    // The time counts from the first due time, not from the retry.
    market.clock.advance(Span::from_secs(60));
    let again = receive(&consumer, 1).remove(0);
    assert_eq!(again.id, b.id);
    market.pass(LEASE);
    // Whoever takes while the lease is being ended finds nothing to bury yet.
    wait_until("second dead letter", || {
        assert!(take(&consumer).is_empty());
        market.log(consumer.group().dead).len() == 2
    });
    let (history, _) = dead(&market, &consumer, 2).remove(1);
    assert_eq!((history.id, history.reason, history.failed), (b.id, Some(Reason::Expired), 2));
}

#[test]
fn a_topic_has_a_time_to_live_for_messages_that_say_nothing() {
    let market = Market::new(1);
    let default_ttl = Some(SECOND);
    let settings = TopicSettings { partitions: 1, default_ttl, ..TopicSettings::default() };
    market.broker.topics().put(&market.topic, settings).unwrap();
    let mut own = request("own");
    own.message.headers.push(header("punctual-ttl", "60000"));
    let asked = Request { ttl: Some(Span::from_secs(60)), ..request("asked") };
    let both = Request { ttl: Some(SECOND), ..own.clone() };
    market.schedule(vec![request("plain"), own, asked, both]);
    let consumer = market.group("workers");
    assert_eq!(receive_all(&market.group("others"), 4).len(), 4);
    market.clock.advance(SECOND);
    assert_eq!(bodies(&receive_all(&consumer, 2)), ["own", "asked"]);
    assert!(take(&consumer).is_empty());
    assert_eq!(dead(&market, &consumer, 2).len(), 2);
}

#[test]
fn many_expired_messages_are_in_nobodys_way() {
    let market = Market::new(2);
    let consumer = market.group("workers");
    let old = |number: usize| Request { ttl: Some(SECOND), ..request(&number.to_string()) };
    market.schedule((0..2500).map(old).collect());
    let scout = market.group("scout");
    wait_until("lag", || scout.standing().unwrap().lag >= 2500);
    market.clock.advance(SECOND);
    market.send(&["live"]);
    assert_eq!(bodies(&receive(&consumer, 1)), ["live"]);
    assert!(take(&consumer).is_empty());
    assert_eq!(dead(&market, &consumer, 2500).len(), 2500);
}

#[test]
fn refused_dead_letters_stay_with_the_group() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.schedule(vec![Request { ttl: Some(SECOND), ..request("a") }]);
    let leased = receive(&consumer, 1).remove(0);
    consumer.release(&[leased.receipt]);
    market.clock.advance(SECOND);
    market.valve.refuse();
    assert!(consumer.take(1, LEASE).is_err());
    assert_eq!(consumer.standing().unwrap().lag, 1);
    market.valve.open();
    assert!(take(&consumer).is_empty());
    assert_eq!(dead(&market, &consumer, 1)[0].0.reason, Some(Reason::Expired));
}

#[test]
fn nobody_sends_to_the_topics_of_a_group() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    for topic in [consumer.group().dead, consumer.group().retry] {
        let name = market.store.by_id(topic).unwrap().name.clone();
        let sent = market::within_a_minute(market.broker.schedule(&name, vec![request("a")]));
        assert_eq!(sent.unwrap_err(), ScheduleError::Reserved);
    }
}

#[test]
fn a_message_that_failed_elsewhere_goes_on_the_ladder() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[SECOND, Span::from_secs(5)]));
    let body = Bytes::from_static(b"from afar");
    let message = Message { body, ..Message::default() };
    let failed = |attempt, delay| FailedMessage {
        message: message.clone(),
        id: None,
        partition: None,
        offset: None,
        attempt,
        delay,
        error: Some("far away".to_owned()),
    };
    let due = market.clock.now().saturating_add(Span::from_secs(5));
    assert_eq!(consumer.retry(failed(2, None)).unwrap(), RetryOutcome::Requeued(due));
    market.clock.advance(Span::from_secs(5));
    let leased = receive(&consumer, 1).remove(0);
    assert_eq!((leased.attempt, &leased.message), (3, &message));
    let at_once = market.clock.now();
    let outcome = consumer.retry(failed(1, Some(Span::ZERO))).unwrap();
    assert_eq!(outcome, RetryOutcome::Requeued(at_once));
    assert_eq!(consumer.retry(failed(3, None)).unwrap(), RetryOutcome::Dead);
    let (history, dead) = dead(&market, &consumer, 1).remove(0);
    assert_eq!((history.failed, history.last_error.as_deref()), (3, Some("far away")));
    assert_eq!(dead, message);
}
