//! Changes of pending messages: over the reference store, on a clock moved by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use std::sync::Arc;

use bytes::Bytes;
use market::{Market, request, wait_until, within_a_minute};
use punctual_broker::{Change, ChangeError, Filter, Invalid, Report, Request, When};
use punctual_model::ports::{CancelOutcome, Done, OnConflict, Order, Revised, Timeline, Topics};
use punctual_model::{
    Action, Basis, Entry, Header, Lane, Link, Message, MessageId, Parked, Partition, Span, State,
    Timestamp, TopicId, TopicSettings,
};

const SECOND: Span = Span::from_secs(1);
const MINUTE: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);

fn send(market: &Market, when: When, body: &str) -> MessageId {
    market.schedule(vec![Request { when, ..request(body) }])[0]
}

fn change(market: &Market, id: MessageId, change: Change) -> Result<Report, ChangeError> {
    within_a_minute(market.broker.change(id, change))
}

fn get(market: &Market, id: MessageId) -> Report {
    within_a_minute(market.broker.get(id)).unwrap().unwrap()
}

fn to(when: When) -> Change {
    Change { when: Some(when), ..Change::default() }
}

fn paused(paused: bool) -> Change {
    Change { paused: Some(paused), ..Change::default() }
}

/// Lets time pass and lets the broker notice: something else falls due.
fn pass(market: &Market, span: Span) {
    market.clock.advance(span);
    market.send(&["tick"]);
}

fn delivered(market: &Market, id: MessageId) -> Option<Timestamp> {
    get(market, id).delivered.map(|delivered| delivered.due)
}

fn topic_id(market: &Market) -> TopicId {
    Topics::by_name(&market.store, &market.topic).unwrap().id
}

#[test]
fn g28_a_message_comes_at_its_new_time_only() {
    let market = Market::new(1);
    let id = send(&market, When::After(MINUTE), "k:a");
    let due = market.clock.now().saturating_add(HOUR);
    let report = change(&market, id, to(When::After(HOUR))).unwrap();
    assert_eq!((report.id, report.due, report.version), (id, Some(due), Some(2)));
    assert_eq!(report.state, State::Scheduled);
    pass(&market, MINUTE);
    let other = market.send(&["b"])[0];
    wait_until("delivery of another", || delivered(&market, other).is_some());
    assert_eq!(get(&market, id).state, State::Scheduled, "not for the old time");
    pass(&market, HOUR);
    wait_until("delivery", || delivered(&market, id).is_some());
    assert_eq!(delivered(&market, id), Some(due));
    let sooner = send(&market, When::After(HOUR), "k:b");
    let report = change(&market, sooner, to(When::After(SECOND))).unwrap();
    pass(&market, SECOND);
    wait_until("delivery", || delivered(&market, sooner).is_some());
    assert_eq!(delivered(&market, sooner), report.due);
}

#[test]
fn every_way_to_say_a_time_is_a_new_time() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    let now = market.clock.now();
    let date = now.saturating_add(Span::from_days(2));
    for (version, when, due) in [
        (2, When::Level(5), now.saturating_add(MINUTE)),
        (3, When::At(date), date),
        (4, When::After(SECOND), now.saturating_add(SECOND)),
    ] {
        let report = change(&market, id, to(when)).unwrap();
        assert_eq!((report.due, report.version), (Some(due), Some(version)));
        assert_eq!(get(&market, id).due, Some(due));
    }
    let max = Span::from_days(40);
    let refused = change(&market, id, to(When::After(Span::from_days(41)))).unwrap_err();
    assert_eq!(refused, ChangeError::Invalid(Invalid::DelayTooLong { max }));
    let refused = change(&market, id, to(When::Level(19))).unwrap_err();
    assert_eq!(refused, ChangeError::Invalid(Invalid::UnknownLevel));
    assert_eq!(get(&market, id).version, Some(4));
}

#[test]
fn a_pause_stops_the_countdown() {
    let market = Market::new(1);
    let start = market.clock.now();
    let id = send(&market, When::After(HOUR), "a");
    market.clock.advance(MINUTE);
    let left = Span::from_secs(59 * 60);
    let report = change(&market, id, paused(true)).unwrap();
    assert_eq!((report.state, report.remaining), (State::Paused, Some(left)));
    assert_eq!((report.due, report.version), (Some(start.saturating_add(HOUR)), Some(2)));
    pass(&market, Span::from_days(3));
    assert_eq!(get(&market, id).state, State::Paused, "nothing fires while it is paused");
    let report = change(&market, id, paused(false)).unwrap();
    let due = market.clock.now().saturating_add(left);
    assert_eq!((report.state, report.due), (State::Scheduled, Some(due)));
    assert_eq!((report.remaining, report.version), (None, Some(3)));
    pass(&market, left);
    wait_until("delivery", || delivered(&market, id).is_some());
}

#[test]
fn the_countdown_of_a_date_stops_too() {
    let market = Market::new(1);
    let date = market.clock.now().saturating_add(HOUR);
    let id = send(&market, When::At(date), "a");
    market.clock.advance(MINUTE);
    change(&market, id, paused(true)).unwrap();
    market.clock.advance(Span::from_days(1));
    let report = change(&market, id, paused(false)).unwrap();
    let left = Span::from_secs(59 * 60);
    assert_eq!(report.due, Some(market.clock.now().saturating_add(left)));
}

#[test]
fn what_is_as_asked_for_keeps_its_version() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    for (asked, version) in [(false, 1), (true, 2), (true, 2), (false, 3), (false, 3)] {
        let report = change(&market, id, paused(asked)).unwrap();
        assert_eq!(report.version, Some(version));
    }
    assert_eq!(change(&market, id, Change::default()).unwrap().version, Some(3));
}

#[test]
fn a_paused_message_that_gets_a_new_time_stays_paused() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    change(&market, id, paused(true)).unwrap();
    let report = change(&market, id, to(When::After(MINUTE))).unwrap();
    assert_eq!((report.state, report.remaining), (State::Paused, Some(MINUTE)));
    let date = market.clock.now().saturating_add(Span::from_secs(10));
    let report = change(&market, id, to(When::At(date))).unwrap();
    assert_eq!((report.remaining, report.due), (Some(Span::from_secs(10)), Some(date)));
    market.clock.advance(MINUTE);
    let both = Change { when: Some(When::After(SECOND)), paused: Some(false), ..Change::default() };
    let report = change(&market, id, both).unwrap();
    let due = market.clock.now().saturating_add(SECOND);
    assert_eq!((report.state, report.due), (State::Scheduled, Some(due)));
    let both = Change { when: Some(When::After(HOUR)), paused: Some(true), ..Change::default() };
    let report = change(&market, id, both).unwrap();
    assert_eq!((report.state, report.remaining), (State::Paused, Some(HOUR)));
}

#[test]
fn an_edit_keeps_the_time_and_what_the_message_asked_for() {
    let market = Market::new(1);
    let header = |name: &str, value: &str| Header {
        name: name.to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let mut asked = Request { when: When::After(HOUR), ..request("k:a") };
    asked.message.headers = vec![header("old", "1")];
    asked.ttl = Some(SECOND);
    asked.max_attempts = Some(3);
    let id = market.schedule(vec![asked])[0];
    let due = get(&market, id).due;
    let edit = Change {
        body: Some(Bytes::from_static(b"b")),
        headers: Some(vec![header("new", "2")]),
        ..Change::default()
    };
    let report = change(&market, id, edit).unwrap();
    assert_eq!((report.due, report.version), (due, Some(2)));
    let message = report.message.unwrap();
    assert_eq!((message.key.as_deref(), &*message.body), (Some(&b"k"[..]), &b"b"[..]));
    let attempts = header("punctual-max-attempts", "3");
    let kept = [header("new", "2"), header("punctual-ttl", "1000"), attempts.clone()];
    assert_eq!(message.headers, kept);
    let ttl = Change { ttl: Some(MINUTE), ..Change::default() };
    let message = change(&market, id, ttl).unwrap().message.unwrap();
    assert_eq!(message.headers, [header("new", "2"), attempts, header("punctual-ttl", "60000")]);
    pass(&market, HOUR);
    wait_until("delivery", || delivered(&market, id).is_some());
    assert_eq!(get(&market, id).delivered.unwrap().message, message);
}

#[test]
fn an_edit_is_held_to_the_limits() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    let body = |bytes: usize| Change { body: Some(vec![0; bytes].into()), ..Change::default() };
    let max = 4 << 20;
    let refused = change(&market, id, body(max + 1)).unwrap_err();
    assert_eq!(refused, ChangeError::Invalid(Invalid::BodyTooLarge { max }));
    change(&market, id, body(max)).unwrap();
    let header = Header { name: "a".to_owned(), value: Bytes::new() };
    let headers = Change { headers: Some(vec![header; 257]), ..Change::default() };
    let refused = change(&market, id, headers).unwrap_err();
    assert_eq!(refused, ChangeError::Invalid(Invalid::TooManyHeaders));
}

#[test]
fn a_version_that_is_no_more_is_refused() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    let with = |version| Change { version: Some(version), ..to(When::After(MINUTE)) };
    assert_eq!(change(&market, id, with(1)).unwrap().version, Some(2));
    let refused = change(&market, id, with(1)).unwrap_err();
    assert_eq!(refused, ChangeError::VersionConflict { current: 2 });
    assert_eq!(change(&market, id, with(2)).unwrap().version, Some(3));
}

#[test]
fn a_message_that_ended_is_not_changed() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    within_a_minute(market.broker.cancel(vec![id])).unwrap();
    assert_eq!(change(&market, id, paused(true)).unwrap_err(), ChangeError::AlreadyCancelled);
    let id = market.deliver(&["b"])[0];
    assert_eq!(change(&market, id, paused(true)).unwrap_err(), ChangeError::AlreadyDelivered);
    let sequence = market.send(&["c"])[0].key.sequence;
    let key = punctual_model::Key { sequence, due: Timestamp::MIN };
    let unknown = MessageId { key, ..id };
    assert_eq!(change(&market, unknown, paused(true)).unwrap_err(), ChangeError::NotFound);
}

#[test]
fn delivered_now_means_now_even_if_paused() {
    let market = Market::new(1);
    let ids = ["a", "b"].map(|body| send(&market, When::After(HOUR), body));
    change(&market, ids[1], paused(true)).unwrap();
    market.clock.advance(MINUTE);
    for id in ids {
        let report = within_a_minute(market.broker.deliver_now(id)).unwrap();
        assert_eq!(report.due, Some(market.clock.now()));
        wait_until("delivery", || delivered(&market, id).is_some());
        assert_eq!(delivered(&market, id), Some(market.clock.now()));
        let refused = within_a_minute(market.broker.deliver_now(id)).unwrap_err();
        assert_eq!(refused, ChangeError::AlreadyDelivered);
    }
}

#[test]
fn a_paused_message_can_be_cancelled() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    change(&market, id, paused(true)).unwrap();
    let outcomes = within_a_minute(market.broker.cancel(vec![id, id])).unwrap();
    assert_eq!(outcomes, [CancelOutcome::Cancelled, CancelOutcome::AlreadyCancelled]);
}

fn revise(market: &Market, orders: Vec<Order>) -> Vec<MessageId> {
    let Revised::Done(done) = within_a_minute(market.store.revise(orders)).unwrap() else {
        unreachable!("all of it can be done")
    };
    let stored = |done| match done {
        Done::Stored(id) => id,
        other => unreachable!("{other:?}"),
    };
    done.into_iter().map(stored).collect()
}

fn entry(market: &Market, due: Timestamp) -> Entry {
    Entry {
        topic: topic_id(market),
        partition: Partition::new(0).unwrap(),
        due,
        basis: Basis::Delay,
        message: Message::default(),
        extra: None,
    }
}

#[test]
fn a_cancel_meant_for_another_version_is_refused() {
    let market = Market::new(1);
    let id = send(&market, When::After(HOUR), "a");
    change(&market, id, paused(true)).unwrap();
    let cancel = |version| within_a_minute(market.broker.cancel_version(id, version));
    assert_eq!(cancel(1).unwrap_err(), ChangeError::VersionConflict { current: 2 });
    assert_eq!(get(&market, id).state, State::Paused);
    cancel(2).unwrap();
    assert_eq!(get(&market, id).state, State::Cancelled);
    assert_eq!(cancel(2).unwrap_err(), ChangeError::AlreadyCancelled);
}

fn schedule_order(lane: Lane, entry: Entry) -> Order {
    Order::Schedule { lane, entry, conflict: OnConflict::Reject }
}

#[test]
fn a_half_message_is_not_changed() {
    let market = Market::new(1);
    let due = market.clock.now().saturating_add(HOUR);
    let half = entry(&market, Timestamp::PREPARED).with_extra(|extra| {
        let transaction = Link::Order(1);
        extra.parked = Some(Parked::Half { transaction, delay: None, due });
    });
    let transaction = Entry { topic: TopicId::TRANSACTIONS, ..entry(&market, due) };
    let transaction = transaction.with_extra(|extra| extra.action = Action::Check);
    let orders =
        vec![schedule_order(Lane::Message, half), schedule_order(Lane::Retry, transaction)];
    let ids = revise(&market, orders);
    for change in [paused(true), paused(false), to(When::Now), Change::default()] {
        let refused = within_a_minute(market.broker.change(ids[0], change)).unwrap_err();
        assert_eq!(refused, ChangeError::Prepared);
    }
    let refused = within_a_minute(market.broker.cancel_version(ids[0], 1)).unwrap_err();
    assert_eq!(refused, ChangeError::Prepared);
    let report = get(&market, ids[0]);
    assert_eq!((report.state, report.due), (State::Prepared, Some(due)));
    assert_eq!(report.transaction, Some(ids[1]));
    assert_eq!(change(&market, ids[1], paused(true)).unwrap_err(), ChangeError::NotFound);
    let outcomes = within_a_minute(market.broker.cancel(vec![ids[1]])).unwrap();
    assert_eq!(outcomes, [CancelOutcome::NotFound], "a transaction is not anybody's message");
}

#[test]
fn a_series_is_cancelled_with_its_next_occurrence_and_not_changed() {
    let market = Market::new(1);
    let due = market.clock.now().saturating_add(HOUR);
    let series = entry(&market, due).with_extra(|extra| {
        extra.action = Action::Repeat;
        extra.links = vec![Link::Order(1)];
    });
    let occurrence = entry(&market, due).with_extra(|extra| extra.series = Some(Link::Order(0)));
    let orders =
        vec![schedule_order(Lane::Retry, series), schedule_order(Lane::Message, occurrence)];
    let ids = revise(&market, orders);
    assert_eq!(get(&market, ids[1]).series, Some(ids[0]));
    let report = get(&market, ids[0]);
    assert_eq!((report.action, report.message), (Action::Repeat, None));
    assert_eq!(change(&market, ids[0], paused(true)).unwrap_err(), ChangeError::Series);
    let other = send(&market, When::After(HOUR), "a");
    let outcomes = within_a_minute(market.broker.cancel(vec![other, ids[0], other])).unwrap();
    use CancelOutcome::{AlreadyCancelled, Cancelled};
    assert_eq!(outcomes, [Cancelled, Cancelled, AlreadyCancelled]);
    assert_eq!(get(&market, ids[1]).state, State::Cancelled);
    let again = within_a_minute(market.broker.cancel(vec![ids[0]])).unwrap();
    assert_eq!(again, [AlreadyCancelled]);
}

#[test]
fn an_occurrence_of_a_series_is_changed_like_any_message() {
    let market = Market::new(1);
    let due = market.clock.now().saturating_add(HOUR);
    let series = MessageId {
        key: punctual_model::Key { due, sequence: Lane::Retry.first() },
        topic: topic_id(&market),
        partition: Partition::new(0).unwrap(),
    };
    let entry = entry(&market, due).with_extra(|extra| extra.series = Some(Link::Id(series)));
    let id = revise(&market, vec![schedule_order(Lane::Message, entry)])[0];
    let report = change(&market, id, paused(true)).unwrap();
    assert_eq!((report.state, report.series), (State::Paused, Some(series)));
    let report = change(&market, id, paused(false)).unwrap();
    assert_eq!((report.state, report.series), (State::Scheduled, Some(series)));
}

#[test]
fn the_name_a_sender_gave_stays_with_what_is_changed() {
    let market = Market::new(1);
    let asked =
        || Request { when: When::After(HOUR), own_id: Some(Arc::from("order-1")), ..request("a") };
    let id = market.schedule(vec![asked()])[0];
    let edit = Change { body: Some(Bytes::from_static(b"b")), ..to(When::After(MINUTE)) };
    let report = change(&market, id, edit).unwrap();
    assert_eq!(report.own_id.as_deref(), Some("order-1"));
    // What counts as the same is the request as it was, not what became of it.
    let again = within_a_minute(market.broker.schedule(&market.topic, vec![asked()])).unwrap();
    assert!(again[0].duplicate);
    assert_eq!(again[0].id, id);
}

#[test]
fn paused_messages_are_listed_apart() {
    let market = Market::new(1);
    let ids: Vec<MessageId> =
        (1..=6).map(|hour| send(&market, When::After(Span::from_secs(3600 * hour)), "a")).collect();
    for id in &ids[3..] {
        change(&market, *id, paused(true)).unwrap();
    }
    let topic = Topics::by_name(&market.store, &market.topic).unwrap();
    let list = |filter: Filter| {
        let mut after = None;
        let mut all = Vec::new();
        loop {
            let page = market.broker.scheduled(&topic, &filter, after, 2);
            let page = within_a_minute(page).unwrap();
            all.extend(page.entries.into_iter().map(|entry| entry.id));
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    };
    let state = Some(State::Paused);
    assert_eq!(list(Filter::default()), ids[..3]);
    assert_eq!(list(Filter { state, ..Filter::default() }), ids[3..]);
    let from = Some(market.clock.now().saturating_add(Span::from_secs(3600 * 5)));
    assert_eq!(list(Filter { from, ..Filter::default() }), []);
    assert_eq!(list(Filter { from, state, ..Filter::default() }), ids[4..]);
    assert_eq!(list(Filter { to: from, state, ..Filter::default() }), ids[3..4]);
    assert_eq!(list(Filter { state: Some(State::Delivered), ..Filter::default() }), []);
}

#[test]
fn the_forecast_counts_what_is_due_within_each_time() {
    let market = Market::new(1);
    let topic = topic_id(&market);
    let outlook = || within_a_minute(market.broker.forecast(topic, None)).unwrap();
    assert_eq!(outlook().total, 0);
    let waits = [60, 61, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 7 * 86_400 + 1, 40 * 86_400];
    let ids = waits.map(|secs| send(&market, When::After(Span::from_secs(secs)), "a"));
    let paused_one = send(&market, When::After(SECOND), "b");
    change(&market, paused_one, paused(true)).unwrap();
    let now = outlook();
    assert_eq!((now.total, now.paused, now.prepared, now.later), (10, 1, 0, 0));
    let counts: Vec<u64> = now.due.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 3, 4, 5, 6, 7, 9]);
    change(&market, ids[0], to(When::After(Span::from_days(30)))).unwrap();
    let counts: Vec<u64> = outlook().due.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [0, 2, 3, 4, 5, 6, 9]);
}

#[test]
fn a_topic_may_shorten_delays_for_changes_too() {
    let market = Market::new(1);
    let id = send(&market, When::After(SECOND), "a");
    let settings =
        TopicSettings { partitions: 1, max_delay: Some(MINUTE), ..TopicSettings::default() };
    Topics::put(&market.store, &market.topic, settings).unwrap();
    let refused = change(&market, id, to(When::After(HOUR))).unwrap_err();
    assert_eq!(refused, ChangeError::Invalid(Invalid::DelayTooLong { max: MINUTE }));
}
