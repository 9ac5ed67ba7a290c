//! Names that senders give their messages, and what a topic says about time: over the reference
//! store, on a clock moved by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use market::{Market, request, within_a_minute};
use punctual_broker::series::{Repeat, Rule};
use punctual_broker::{CATCH_UP_HEADER, Invalid, Options, Request, ScheduleError, Scheduled, When};
use punctual_model::ports::{OnConflict, Topics};
use punctual_model::{
    CatchUp, DelayLevels, Header, Lane, Span, State, Timestamp, TopicName, TopicSettings, limits,
};

const HOUR: Span = Span::from_secs(3600);

fn named(own_id: &str, body: &str) -> Request {
    let when = When::After(HOUR);
    Request { own_id: Some(Arc::from(own_id)), when, ..request(body) }
}

fn try_send(market: &Market, requests: Vec<Request>) -> Result<Vec<Scheduled>, ScheduleError> {
    within_a_minute(market.broker.schedule(&market.topic, requests))
}

fn send(market: &Market, request: Request) -> Scheduled {
    try_send(market, vec![request]).unwrap()[0]
}

fn pending(market: &Market) -> u64 {
    market.broker.stats().pending.iter().map(|(_, count)| count).sum()
}

#[test]
fn g3_the_same_request_again_is_told_the_first_answer() {
    let market = Market::new(4);
    let first = send(&market, named("order-1", "a"));
    assert!(!first.duplicate);
    market.clock.advance(Span::from_secs(5));
    let again = send(&market, named("order-1", "a"));
    assert_eq!(again, Scheduled { duplicate: true, ..first }, "the delay counts as it was asked");
    assert_eq!((pending(&market), market.broker.stats().scheduled), (1, 1));
}

#[test]
fn a_duplicate_tells_where_the_first_one_is_in_its_life() {
    let market = Market::new(4);
    let first = send(&market, named("order-1", "a"));
    within_a_minute(market.broker.cancel(vec![first.id])).unwrap();
    let again = send(&market, named("order-1", "a"));
    assert_eq!((again.id, again.duplicate, again.state), (first.id, true, State::Cancelled));
}

#[test]
fn anything_else_under_the_same_name_is_a_conflict() {
    let market = Market::new(4);
    let first = send(&market, named("order-1", "k:a"));
    let with = |change: fn(&mut Request)| {
        let mut request = named("order-1", "k:a");
        change(&mut request);
        request
    };
    let others = [
        with(|request| request.message.body = Bytes::from_static(b"b")),
        with(|request| request.message.key = None),
        with(|request| request.message.key = Some(Bytes::new())),
        with(|request| {
            let header = Header { name: "a".to_owned(), value: Bytes::new() };
            request.message.headers.push(header);
        }),
        with(|request| request.when = When::Now),
        with(|request| request.when = When::Level(17)),
        with(|request| request.when = When::After(Span::from_millis(1))),
        with(|request| request.partition = Some(0)),
        with(|request| request.ttl = Some(HOUR)),
        with(|request| request.max_attempts = Some(3)),
        with(|request| request.catch_up = Some(CatchUp::Latest)),
    ];
    for other in others {
        let refused = try_send(&market, vec![other]).unwrap_err();
        assert_eq!(refused, ScheduleError::OwnIdTaken { index: 0, id: Some(first.id) });
    }
    assert_eq!(pending(&market), 1);
    // A name is unique in its topic only.
    let elsewhere = TopicName::new("elsewhere").unwrap();
    let other = vec![named("order-1", "b")];
    within_a_minute(market.broker.schedule(&elsewhere, other)).unwrap();
}

#[test]
fn the_order_of_different_headers_is_no_difference() {
    let market = Market::new(4);
    let with_headers = |names: [&str; 2]| {
        let mut request = named("order-1", "a");
        let header = |name: &str| Header { name: name.to_owned(), value: Bytes::new() };
        request.message.headers = names.map(header).to_vec();
        request
    };
    let first = send(&market, with_headers(["a", "b"]));
    assert_eq!(send(&market, with_headers(["b", "a"])).id, first.id);
}

#[test]
fn a_batch_with_a_conflict_is_refused_whole() {
    let market = Market::new(4);
    let first = send(&market, named("order-1", "a"));
    let batch = vec![request("x"), named("order-2", "b"), named("order-1", "c")];
    let refused = try_send(&market, batch).unwrap_err();
    assert_eq!(refused, ScheduleError::OwnIdTaken { index: 2, id: Some(first.id) });
    assert_eq!(pending(&market), 1);
}

#[test]
fn names_may_repeat_in_a_batch_if_the_request_does() {
    let market = Market::new(4);
    let known = send(&market, named("known", "k"));
    let later = Request { when: When::After(HOUR), ..request("x") };
    let batch = vec![
        named("a", "1"),
        later.clone(),
        named("a", "1"),
        named("known", "k"),
        named("b", "2"),
        named("a", "1"),
    ];
    let sent = try_send(&market, batch).unwrap();
    let duplicates: Vec<bool> = sent.iter().map(|one| one.duplicate).collect();
    assert_eq!(duplicates, [false, false, true, true, false, true]);
    assert_eq!((sent[2].id, sent[5].id, sent[3].id), (sent[0].id, sent[0].id, known.id));
    let different: BTreeSet<_> = sent.iter().map(|one| one.id).collect();
    assert_eq!((different.len(), pending(&market)), (4, 4));

    let batch = vec![named("c", "1"), later, named("c", "2")];
    let refused = try_send(&market, batch).unwrap_err();
    assert_eq!(refused, ScheduleError::OwnIdTaken { index: 2, id: None });
    assert_eq!(pending(&market), 4);
}

#[test]
fn a_replacement_takes_the_name_and_ends_what_was_pending() {
    let market = Market::new(4);
    let replacing =
        |body: &str| Request { on_conflict: OnConflict::Replace, ..named("order-1", body) };
    let first = send(&market, replacing("a"));
    let second = send(&market, replacing("b"));
    assert!(!second.duplicate && second.id != first.id);
    let state = |id| within_a_minute(market.broker.get(id)).unwrap().unwrap().state;
    assert_eq!((state(first.id), state(second.id)), (State::Cancelled, State::Scheduled));
    assert_eq!(pending(&market), 1);
    let resolve = |text: &str| within_a_minute(market.broker.resolve(&market.topic, text)).unwrap();
    assert_eq!(resolve("order-1"), Some(second.id));
    assert_eq!(resolve(&first.id.to_string()), Some(first.id));
    assert_eq!(resolve("order-2"), None);
}

#[test]
fn a_message_is_found_by_its_name_in_its_topic() {
    let market = Market::new(4);
    let sent = send(&market, named("käse/42 ☂", "a"));
    let resolve = |topic: &str, text: &str| {
        let topic = TopicName::new(topic).unwrap();
        within_a_minute(market.broker.resolve(&topic, text)).unwrap()
    };
    assert_eq!(resolve("orders", "käse/42 ☂"), Some(sent.id));
    assert_eq!(resolve("elsewhere", "käse/42 ☂"), None);
    assert_eq!(resolve("elsewhere", &sent.id.to_string()), None);
    let report = within_a_minute(market.broker.get(sent.id)).unwrap().unwrap();
    assert_eq!(report.own_id.as_deref(), Some("käse/42 ☂"));
}

#[test]
fn only_some_texts_can_be_names() {
    let market = Market::new(4);
    let ours = send(&market, request("a")).id.to_string();
    let refusal = |own_id: &str| {
        let refused = try_send(&market, vec![request("x"), named(own_id, "a")]).unwrap_err();
        let ScheduleError::Invalid { index: 1, reason } = refused else {
            unreachable!("{refused}")
        };
        reason
    };
    assert_eq!(refusal(""), Invalid::OwnIdEmpty);
    assert_eq!(refusal(&"x".repeat(limits::OWN_ID_BYTES_MAX + 1)), Invalid::OwnIdTooLong);
    assert_eq!(refusal("a\nb"), Invalid::OwnIdControl);
    assert_eq!(refusal(&ours), Invalid::OwnIdLikeOurs);
    for fine in ["x".repeat(limits::OWN_ID_BYTES_MAX), "a b".to_owned(), ours[1..].to_owned()] {
        send(&market, named(&fine, "a"));
    }
}

fn every(own_id: &str, span: Span) -> Request {
    let repeat = Some(Repeat::new(Rule::every(span).unwrap()));
    Request { when: When::Now, repeat, ..named(own_id, "a") }
}

fn occurrences(market: &Market) -> u64 {
    let topic = Topics::by_name(&market.store, &market.topic).unwrap();
    within_a_minute(market.broker.forecast(topic.id, None)).unwrap().total
}

#[test]
fn a_series_has_a_name_too() {
    let market = Market::new(4);
    let first = send(&market, every("daily", HOUR));
    assert_eq!(first.due, market.clock.now().saturating_add(HOUR));
    market.clock.advance(Span::from_secs(5));
    let again = send(&market, every("daily", HOUR));
    assert_eq!(again, Scheduled { duplicate: true, ..first });
    assert_eq!((occurrences(&market), market.broker.stats().scheduled), (1, 1));
    let others = [every("daily", Span::from_secs(5)), named("daily", "a")];
    for other in others {
        let refused = try_send(&market, vec![other]).unwrap_err();
        assert_eq!(refused, ScheduleError::OwnIdTaken { index: 0, id: Some(first.id) });
    }
    assert_eq!(occurrences(&market), 1);
}

#[test]
fn a_series_gives_way_with_its_occurrence() {
    let market = Market::new(4);
    let replacing = |request: Request| Request { on_conflict: OnConflict::Replace, ..request };
    let state = |id| within_a_minute(market.broker.get(id)).unwrap().unwrap().state;
    let first = send(&market, every("daily", HOUR));
    let second = send(&market, replacing(every("daily", Span::from_secs(60))));
    assert_eq!((state(first.id), state(second.id)), (State::Cancelled, State::Scheduled));
    assert_eq!(occurrences(&market), 1);
    let third = send(&market, replacing(named("daily", "x")));
    assert_eq!((state(second.id), state(third.id)), (State::Cancelled, State::Scheduled));
    assert_eq!(occurrences(&market), 1);
    let fourth = send(&market, replacing(every("daily", HOUR)));
    assert_eq!((state(third.id), state(fourth.id)), (State::Cancelled, State::Scheduled));
    assert_eq!(occurrences(&market), 1);
}

#[test]
fn series_and_messages_go_together_in_a_batch() {
    let market = Market::new(4);
    let hour = || Request { own_id: None, ..named("", "x") };
    let unnamed = Request { own_id: None, ..every("", HOUR) };
    let batch = vec![hour(), every("a", HOUR), hour(), unnamed, every("a", HOUR), named("b", "x")];
    let sent = try_send(&market, batch).unwrap();
    let lanes: Vec<Lane> = sent.iter().map(|one| one.id.key.sequence.lane()).collect();
    use Lane::{Message, Retry};
    assert_eq!(lanes, [Message, Retry, Message, Retry, Retry, Message]);
    assert_eq!((sent[4].id, sent[4].duplicate), (sent[1].id, true));
    assert_eq!(occurrences(&market), 5);
    let until = market.clock.now().saturating_sub(HOUR);
    let mut over = every("c", HOUR);
    over.repeat.as_mut().unwrap().until = Some(until);
    let refused = try_send(&market, vec![hour(), over]).unwrap_err();
    assert_eq!(refused, ScheduleError::Invalid { index: 1, reason: Invalid::EndsBeforeFirst });
    assert_eq!(occurrences(&market), 5);
}

fn with_settings(market: &Market, settings: TopicSettings) {
    let settings = TopicSettings { partitions: 1, ..settings };
    Topics::put(&market.store, &market.topic, settings).unwrap();
}

fn asked(when: When) -> Request {
    Request { when, ..request("a") }
}

#[test]
fn the_shorter_of_two_longest_delays_counts() {
    let market = Market::new(1);
    let refusal = |when: When| match try_send(&market, vec![asked(when)]) {
        Ok(_) => None,
        Err(ScheduleError::Invalid { reason, .. }) => Some(reason),
        Err(other) => unreachable!("{other}"),
    };
    let too_long = |max| Some(Invalid::DelayTooLong { max });
    let max_delay = Some(HOUR);
    with_settings(&market, TopicSettings { max_delay, ..TopicSettings::default() });
    let past_hour = Span::from_millis(HOUR.as_millis() + 1);
    assert_eq!(refusal(When::After(HOUR)), None);
    assert_eq!(refusal(When::After(past_hour)), too_long(HOUR));
    assert_eq!(refusal(When::At(market.clock.now().saturating_add(past_hour))), too_long(HOUR));
    assert_eq!(refusal(When::Level(18)), too_long(HOUR));
    let max_delay = Some(Span::from_days(100));
    with_settings(&market, TopicSettings { max_delay, ..TopicSettings::default() });
    let broker_max = Options::default().delay_max;
    assert_eq!(refusal(When::After(Span::from_days(41))), too_long(broker_max));
}

#[test]
fn a_topic_may_have_levels_of_its_own() {
    let market = Market::new(1);
    let wait = || send(&market, asked(When::Level(2))).due.since(market.clock.now());
    assert_eq!(wait(), Span::from_secs(5));
    let mut delays = *DelayLevels::default().delays();
    delays[1] = Span::from_secs(7);
    Topics::put_levels(&market.store, DelayLevels::new(delays)).unwrap();
    assert_eq!(wait(), Span::from_secs(7));
    delays[1] = Span::from_secs(9);
    let levels = Some(DelayLevels::new(delays));
    with_settings(&market, TopicSettings { levels, ..TopicSettings::default() });
    assert_eq!(wait(), Span::from_secs(9));
    assert_eq!(
        send(&market, asked(When::Level(1))).due.since(market.clock.now()).as_millis(),
        1000
    );
}

#[test]
fn jitter_spreads_what_waits_and_nothing_else() {
    let market = Market::new(1);
    let jitter = Span::from_millis(10);
    with_settings(&market, TopicSettings { jitter: Some(jitter), ..TopicSettings::default() });
    let now = market.clock.now();
    let later = |when| send(&market, asked(when)).due.since(now.saturating_add(HOUR)).as_millis();
    let seen: BTreeSet<u64> = (0..400).map(|_| later(When::After(HOUR))).collect();
    assert_eq!(seen, (0..=10).collect());
    let dates = (0..400).map(|_| later(When::At(now.saturating_add(HOUR))));
    assert_eq!(dates.collect::<BTreeSet<u64>>(), (0..=10).collect());
    for _ in 0..20 {
        assert_eq!(send(&market, asked(When::Now)).due, now);
        let past = now.saturating_sub(HOUR);
        assert_eq!(send(&market, asked(When::At(past))).due, past);
    }
}

#[test]
fn what_a_message_wants_after_an_outage_goes_with_it() {
    let market = Market::new(1);
    let texts = [
        (CatchUp::All, "all"),
        (CatchUp::Spread(Span::from_secs(60)), "spread:60000"),
        (CatchUp::SkipOlder(HOUR), "skip_older:3600000"),
        (CatchUp::Latest, "latest"),
    ];
    for (catch_up, text) in texts {
        let id = send(&market, Request { catch_up: Some(catch_up), ..named(text, "a") }).id;
        let report = within_a_minute(market.broker.get(id)).unwrap().unwrap();
        let headers = report.message.unwrap().headers;
        let value = Bytes::copy_from_slice(text.as_bytes());
        assert_eq!(headers, [Header { name: CATCH_UP_HEADER.to_owned(), value }]);
    }
}

#[test]
fn nothing_is_due_where_parked_messages_stand() {
    let market = Market::new(1);
    for (date, refused) in [
        (Timestamp::PREPARED.saturating_sub(Span::from_millis(1)), false),
        (Timestamp::PREPARED, true),
        (Timestamp::MAX, true),
    ] {
        market.clock.set_wall(date.saturating_sub(HOUR));
        let answer = try_send(&market, vec![asked(When::At(date))]);
        let out_of_range = ScheduleError::Invalid { index: 0, reason: Invalid::DueOutOfRange };
        assert_eq!(answer.err(), refused.then_some(out_of_range), "{date}");
    }
}
