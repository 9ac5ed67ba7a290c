//! Series through a whole broker with its threads: asked for as messages are, fired by the lanes,
//! cancelled, and caught up with after down-time.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use std::num::NonZeroU32;

use punctual_broker::series::{Repeat, Rule};
use punctual_broker::{Request, When};
use punctual_model::ports::{CancelOutcome, Topics};
use punctual_model::{CatchUp, Message, MessageId, Span, Timestamp, TopicSettings};

use market::{Market, wait_until, within_a_minute};

const MINUTE: Span = Span::from_secs(60);

fn every(interval: Span) -> Request {
    let repeat = Repeat::new(Rule::every(interval).unwrap());
    Request { repeat: Some(repeat), ..Request::new(Message::default(), When::Now) }
}

fn counted(request: Request, count: u32) -> Request {
    let repeat = request.repeat.map(|repeat| Repeat { count: NonZeroU32::new(count), ..repeat });
    Request { repeat, ..request }
}

/// The due times of what was delivered, in minutes after `start`.
fn delivered(market: &Market, start: Timestamp) -> Vec<u64> {
    let topic = market.store.by_name(&market.topic).unwrap().id;
    let log = market.log(topic);
    log.iter().map(|one| one.due.since(start).as_millis() / MINUTE.as_millis()).collect()
}

/// The number of the occurrence that is to come, if the series is there.
fn number(market: &Market, id: MessageId) -> Option<u64> {
    let page = within_a_minute(market.broker.series().list(id.topic, None, 1000)).unwrap();
    let mut series = page.entries.iter().filter_map(punctual_broker::series::describe);
    series.find(|series| series.id == id).map(|series| series.number)
}

#[test]
fn a_series_comes_round_until_its_count() {
    let market = Market::new(1);
    let start = market.clock.now();
    let id = market.schedule(vec![counted(every(MINUTE), 5)])[0];
    for next in 2..=5 {
        market.clock.advance(MINUTE);
        wait_until("next occurrence", || number(&market, id) == Some(next));
    }
    market.clock.advance(MINUTE);
    wait_until("end of the series", || number(&market, id).is_none());
    market.wait_for_delivered(5);
    assert_eq!(delivered(&market, start), [1, 2, 3, 4, 5]);
}

#[test]
fn ten_thousand_occurrences_do_not_drift() {
    let market = Market::new(1);
    let start = market.clock.now();
    let interval = Span::from_millis(7_001);
    let id = market.schedule(vec![every(interval)])[0];
    for jump in 1..=10u64 {
        // The clock is never where an occurrence is due.
        market.clock.advance(Span::from_millis(7_001 * 1000 + 3));
        wait_until("thousand occurrences", || number(&market, id) == Some(jump * 1000 + 1));
    }
    market.wait_for_delivered(10_000);
    let log = market.log(id.topic);
    assert_eq!(log.len(), 10_000);
    for (number, one) in (1u64..).zip(&log) {
        assert_eq!(one.due.since(start).as_millis(), 7_001 * number);
    }
}

#[test]
fn a_cancelled_series_is_over() {
    let market = Market::new(1);
    let start = market.clock.now();
    let ids = market.schedule(vec![every(MINUTE), every(MINUTE)]);
    let outcomes = within_a_minute(market.broker.cancel(vec![ids[0]])).unwrap();
    assert_eq!(outcomes, [CancelOutcome::Cancelled]);
    market.clock.advance(MINUTE);
    wait_until("next occurrence", || number(&market, ids[1]) == Some(2));
    market.wait_for_delivered(1);
    assert_eq!((delivered(&market, start), number(&market, ids[0])), (vec![1], None));
    let outcomes = within_a_minute(market.broker.cancel(vec![ids[0]])).unwrap();
    assert_eq!(outcomes, [CancelOutcome::AlreadyCancelled]);
}

#[test]
fn the_same_request_again_is_the_same_series() {
    let market = Market::new(1);
    let request = Request { own_id: Some("daily".into()), ..every(MINUTE) };
    let first = market.schedule(vec![request.clone()])[0];
    let again = market.schedule(vec![request])[0];
    assert_eq!(first, again);
    market.clock.advance(MINUTE);
    wait_until("next occurrence", || number(&market, first) == Some(2));
    market.wait_for_delivered(1);
    assert_eq!(market.log(first.topic).len(), 1, "one series has one occurrence");
}

/// A series every minute whose broker was down from 1.5 to 7.5 minutes after the start.
fn after_down_time(catch_up: CatchUp) -> (Market, Timestamp, MessageId) {
    let market = Market::new(1);
    let start = market.clock.now();
    let settings = TopicSettings { partitions: 1, catch_up, ..TopicSettings::default() };
    Topics::put(&market.store, &market.topic, settings).unwrap();
    let id = market.schedule(vec![every(MINUTE)])[0];
    market.clock.advance(Span::from_secs(90));
    wait_until("next occurrence", || number(&market, id) == Some(2));
    market.wait_for_delivered(1);
    market.broker.stop();
    market.clock.advance(Span::from_secs(360));
    drop(market.store.clone().restarted());
    let market = market.restart();
    wait_until("the present", || number(&market, id) == Some(8));
    (market, start, id)
}

#[test]
fn after_down_time_all_come() {
    let (market, start, _) = after_down_time(CatchUp::All);
    market.wait_for_delivered(6);
    assert_eq!(delivered(&market, start), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn after_down_time_old_ones_are_skipped() {
    let (market, start, _) = after_down_time(CatchUp::SkipOlder(Span::from_secs(100)));
    market.wait_for_delivered(2);
    assert_eq!(delivered(&market, start), [1, 6, 7]);
}

#[test]
fn after_down_time_only_the_latest_comes() {
    for _ in 0..20 {
        let (market, start, id) = after_down_time(CatchUp::Latest);
        wait_until("latest", || delivered(&market, start).len() >= 2);
        market.clock.advance(MINUTE);
        wait_until("next occurrence", || number(&market, id) == Some(9));
        wait_until("next delivery", || delivered(&market, start).contains(&8));
        assert_eq!(delivered(&market, start), [1, 7, 8]);
    }
}
