//! Transactions through a whole broker: what is refused, what consumers see, and when.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use market::{Market, bodies, receive, receive_all, take, within_a_minute};
use punctual_broker::transaction::{
    Check, DelayFrom, HalfRequest, InvalidCheck, Preparation, PrepareError, TransactionState,
};
use punctual_broker::{Filter, Invalid, Request, ScheduleError, When};
use punctual_model::ports::{Timeline, Topics};
use punctual_model::{
    CheckPolicy, GroupName, GroupSettings, Lane, Message, Span, State, TopicName, TopicSettings,
    limits,
};

const SECOND: Span = Span::from_secs(1);

fn half(topic: &str, body: &str, when: When) -> HalfRequest {
    let message = Message { body: body.to_owned().into(), ..Message::default() };
    let topic = TopicName::new(topic).unwrap();
    HalfRequest { topic, request: Request::new(message, when), delay_from: DelayFrom::Commit }
}

fn preparation(messages: Vec<HalfRequest>) -> Preparation {
    let producer_group = GroupName::new("billing").unwrap();
    Preparation { producer_group, messages, check: None, url: None }
}

/// Waits for checks as a producer does.
fn checks(market: &Market) -> Vec<Check> {
    let desk = market.broker.transactions();
    let group = GroupName::new("billing").unwrap();
    loop {
        let available = desk.available(&group);
        let checks = within_a_minute(desk.checks(&group, 10)).unwrap();
        if !checks.is_empty() {
            return checks;
        }
        within_a_minute(available);
    }
}

fn pending(market: &Market) -> u64 {
    let counts = Lane::ALL.into_iter().flat_map(|lane| market.store.counts(lane));
    counts.map(|(_, count)| count).sum()
}

#[test]
fn g29_a_half_message_is_neither_received_nor_listed_nor_forecast_before_the_commit() {
    let market = Market::new(1);
    let group = market.put("workers", GroupSettings::default());
    let halves = vec![half("orders", "a", When::Now), half("orders", "b", When::After(SECOND))];
    let prepared = within_a_minute(market.broker.prepare(preparation(halves))).unwrap();
    market.clock.advance(Span::from_secs(5));
    market.deliver(&["plain"]);
    assert_eq!(bodies(&receive_all(&group, 1)), ["plain"]);
    let topic = market.store.by_name(&market.topic).unwrap();
    let all = Filter::default();
    let listed = market.broker.scheduled(&topic, &all, None, 10);
    assert_eq!(within_a_minute(listed).unwrap().entries, []);
    let outlook = within_a_minute(market.broker.forecast(topic.id, None)).unwrap();
    assert_eq!((outlook.prepared, outlook.later), (2, 0));
    assert!(outlook.due.iter().all(|(_, count)| *count == 0));
    for id in &prepared.messages {
        let report = within_a_minute(market.broker.get(*id)).unwrap().unwrap();
        assert_eq!((report.state, report.transaction), (State::Prepared, Some(prepared.id)));
    }

    within_a_minute(market.broker.transactions().commit(prepared.id)).unwrap();
    assert_eq!(bodies(&receive(&group, 10)), ["a"]);
    assert_eq!(bodies(&take(&group)), [""; 0], "the other has a delay from the commit on");
    market.pass(SECOND);
    assert_eq!(bodies(&receive(&group, 10)), ["b"]);
}

#[test]
fn a_lost_decision_is_asked_for() {
    let market = Market::new(1);
    let group = market.put("workers", GroupSettings::default());
    let halves = vec![half("orders", "a", When::Now)];
    let prepared = within_a_minute(market.broker.prepare(preparation(halves))).unwrap();
    for (attempt, wait) in [(1, 6), (2, 30), (3, 30)] {
        market.clock.advance(Span::from_secs(wait));
        let checks = checks(&market);
        assert_eq!((checks[0].transaction, checks[0].attempt), (prepared.id, attempt));
        assert_eq!(checks[0].messages[0].message.body, "a");
    }
    within_a_minute(market.broker.transactions().commit(prepared.id)).unwrap();
    assert_eq!(bodies(&receive(&group, 10)), ["a"]);
}

#[test]
fn the_topic_says_when_to_check_if_nobody_else_does() {
    let market = Market::new(1);
    let check = CheckPolicy { first: SECOND, interval: Span::from_secs(2), max: 1 };
    let settings = TopicSettings { check: Some(check), ..TopicSettings::default() };
    Topics::put(&market.store, &TopicName::new("bills").unwrap(), settings).unwrap();
    let policy = |check| {
        let halves = vec![half("orders", "a", When::Now), half("bills", "a", When::Now)];
        let preparation = Preparation { check, ..preparation(halves) };
        let id = within_a_minute(market.broker.prepare(preparation)).unwrap().id;
        within_a_minute(market.broker.transactions().get(id)).unwrap().unwrap().policy
    };
    assert_eq!(policy(None), check);
    assert_eq!(policy(Some(CheckPolicy::default())), CheckPolicy::default());
}

#[test]
fn delays_count_from_the_commit_unless_asked_otherwise() {
    let market = Market::new(1);
    let start = market.clock.now();
    let in_ten = When::After(Span::from_secs(10));
    let from_send = HalfRequest { delay_from: DelayFrom::Send, ..half("orders", "send", in_ten) };
    let date = When::At(start.saturating_add(Span::from_secs(20)));
    let halves = vec![
        half("orders", "commit", in_ten),
        from_send,
        half("orders", "level", When::Level(3)),
        half("orders", "date", date),
    ];
    let prepared = within_a_minute(market.broker.prepare(preparation(halves))).unwrap();
    market.clock.advance(Span::from_secs(7));
    within_a_minute(market.broker.transactions().commit(prepared.id)).unwrap();
    let due = |id| {
        let report = within_a_minute(market.broker.get(id)).unwrap().unwrap();
        report.due.unwrap().since(start).as_millis() / 1000
    };
    let dues: Vec<u64> = prepared.messages.iter().map(|id| due(*id)).collect();
    assert_eq!(dues, [17, 10, 17, 20]);
}

#[test]
fn a_refused_message_refuses_the_whole_and_names_itself() {
    let market = Market::new(1);
    market.put("workers", GroupSettings::default());
    let too_late = When::After(Span::from_days(41));
    let large = "x".repeat(limits::BODY_BYTES_MAX + 1);
    let refused = |message: HalfRequest| {
        let halves = vec![half("orders", "a", When::Now), message];
        match within_a_minute(market.broker.prepare(preparation(halves))) {
            Err(PrepareError::Refused { index: 1, error }) => error,
            other => panic!("{other:?}"),
        }
    };
    let invalid = |reason| ScheduleError::Invalid { index: 1, reason };
    let max = limits::DELAY_MAX;
    assert_eq!(refused(half("orders", "b", too_late)), invalid(Invalid::DelayTooLong { max }));
    let max = limits::BODY_BYTES_MAX;
    assert_eq!(refused(half("new", &large, When::Now)), invalid(Invalid::BodyTooLarge { max }));
    assert_eq!(refused(half("new", "b", When::Level(99))), invalid(Invalid::UnknownLevel));
    assert_eq!(refused(half("orders.workers.dead", "b", When::Now)), ScheduleError::Reserved);
    assert!(market.store.by_name(&TopicName::new("new").unwrap()).is_none(), "it was not made");

    let empty = within_a_minute(market.broker.prepare(preparation(Vec::new())));
    let error = ScheduleError::Invalid { index: 0, reason: Invalid::EmptyBatch };
    assert_eq!(empty, Err(PrepareError::Refused { index: 0, error }));
    let check = Some(CheckPolicy { max: 0, ..CheckPolicy::default() });
    let halves = vec![half("orders", "a", When::Now)];
    let preparation = Preparation { check, ..preparation(halves) };
    let refused = within_a_minute(market.broker.prepare(preparation));
    assert_eq!(refused, Err(PrepareError::Check(InvalidCheck::Max)));
    assert_eq!(pending(&market), 0);
}

#[test]
fn the_same_request_later_is_told_the_first_answer() {
    let market = Market::new(1);
    let named = |body: &str, own_id: &str| {
        let mut message = half("orders", body, When::After(SECOND));
        message.request.own_id = Some(own_id.into());
        message
    };
    let request = || preparation(vec![named("a", "one"), named("b", "two")]);
    let first = within_a_minute(market.broker.prepare(request())).unwrap();
    market.clock.advance(SECOND);
    let again = within_a_minute(market.broker.prepare(request())).unwrap();
    assert_eq!((again.id, again.duplicate), (first.id, true));
    assert_eq!(again.messages, first.messages);
    let other = preparation(vec![named("a", "one"), named("c", "two")]);
    let refused = within_a_minute(market.broker.prepare(other));
    let id = Some(first.messages[0]);
    assert_eq!(refused, Err(PrepareError::OwnIdTaken { index: 0, id }));
    // A plain message that says the same is another one.
    let plain =
        within_a_minute(market.broker.schedule(&market.topic, vec![named("a", "one").request]));
    assert_eq!(plain, Err(ScheduleError::OwnIdTaken { index: 0, id }));
    within_a_minute(market.broker.transactions().rollback(first.id)).unwrap();
    let state = within_a_minute(market.broker.prepare(request())).unwrap().state;
    assert_eq!(state, TransactionState::RolledBack);
}
