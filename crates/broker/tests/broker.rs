//! The whole broker, from a request to the log: over the reference store and the embedded one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use house::{
    House, Mood, Store, embedded, engine, reference, request, soon, wall, with_body, with_key,
    within_a_minute,
};
use punctual_broker::{Invalid, Options, Request, ScheduleError, When};
use punctual_model::ports::{ArmLimit, CancelOutcome, StoreError, Timeline};
use punctual_model::{
    Basis, Header, Lane, Message, MessageId, Span, State, Timestamp, TopicName, limits, partitioner,
};
use punctual_testkit::Reference;

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
    now_after_at_and_level_arrive,
    content_arrives_byte_for_byte,
    a_bad_message_refuses_its_whole_batch,
    a_batch_may_go_to_its_limits,
    a_topic_is_made_on_first_use,
    a_key_keeps_its_partition,
    messages_without_a_key_take_turns,
    a_partition_can_be_asked_for,
    each_partition_is_in_order,
    a_cancel_is_final,
);

fn now_after_at_and_level_arrive<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 1);
    let start = wall();
    let past = start.saturating_sub(Span::from_days(1));
    // Between the other two, which count from the send, also on a slow machine.
    let date = start.saturating_add(Span::from_millis(3000));
    let whens = [When::Level(2), When::At(date), soon(60), When::Now, When::At(past)];
    let sent = house.schedule(&topic, whens.map(request).to_vec());
    let [level, at, after, now, earlier] = sent[..] else { unreachable!("five were sent") };
    assert_eq!((at.due, earlier.due), (date, past));
    assert!(after.due >= start.saturating_add(Span::from_millis(60)));
    assert!(level.due.since(after.due) == Span::from_millis(4940), "counted from one moment");
    let report = within_a_minute(house.broker.get(level.id)).unwrap().unwrap();
    assert_eq!((report.state, report.delivered), (State::Scheduled, None));
    assert_eq!(report.message, Some(Message::default()));

    let taken = house.gate.wait_for(5);
    assert_eq!(taken, [earlier.id, now.id, after.id, at.id, level.id]);
    let log = &house.logs(&topic)[0];
    assert_eq!(log.iter().map(|delivered| delivered.id).collect::<Vec<_>>(), taken);
    for delivered in log {
        assert!(delivered.delivered_at >= delivered.id.key.due, "early");
    }
    let report = within_a_minute(house.broker.get(level.id)).unwrap().unwrap();
    assert_eq!((report.state, report.message), (State::Delivered, None));
    assert_eq!(report.delivered.as_ref(), log.last());
    assert_eq!(house.stop_and_count_pending(), 0);
    let stats = house.broker.stats();
    assert_eq!((stats.scheduled, stats.fired, stats.delivered), (5, 5, 5));
    assert_eq!(stats.lateness.count, 5);
}

fn content_arrives_byte_for_byte<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 1);
    let header = |name: &str, value: &[u8]| Header {
        name: name.to_owned(),
        value: Bytes::copy_from_slice(value),
    };
    let all: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let message = Message {
        key: Some(all.clone()),
        headers: vec![header("x", b""), header("x", &all), header("", b"\0")],
        body: all,
    };
    let sent = Request::new(message.clone(), When::Now);
    house.schedule(&topic, vec![sent, request(soon(1))]);
    house.gate.wait_for(2);
    let log = &house.logs(&topic)[0];
    assert_eq!(log[0].message, message);
    assert_eq!(log[1].message, Message::default());
}

fn large(bytes: usize) -> Bytes {
    vec![7; bytes].into()
}

fn headers(count: usize, value_bytes: usize) -> Vec<Header> {
    vec![Header { name: "name".to_owned(), value: large(value_bytes) }; count]
}

/// Every message that must be refused, and why.
fn refused() -> Vec<(Request, Invalid)> {
    let max = limits::DELAY_MAX;
    let longer = Span::from_millis(max.as_millis() + 1);
    let message = |message| Request::new(message, When::Now);
    let far = wall().saturating_add(longer).saturating_add(Span::from_secs(60));
    let too_long = Invalid::DelayTooLong { max };
    vec![
        (request(When::After(longer)), too_long),
        (request(When::After(Span::from_millis(u64::MAX))), too_long),
        (request(When::At(far)), too_long),
        (request(When::Level(0)), Invalid::UnknownLevel),
        (request(When::Level(19)), Invalid::UnknownLevel),
        (request(When::Level(u64::MAX)), Invalid::UnknownLevel),
        (
            with_body(When::Now, large(limits::BODY_BYTES_MAX + 1)),
            Invalid::BodyTooLarge { max: limits::BODY_BYTES_MAX },
        ),
        (
            message(Message {
                headers: headers(1, limits::HEADER_BYTES_MAX - 3),
                ..Message::default()
            }),
            Invalid::HeadersTooLarge,
        ),
        (
            message(Message { headers: headers(limits::HEADERS_MAX + 1, 0), ..Message::default() }),
            Invalid::TooManyHeaders,
        ),
        (
            message(Message { key: Some(large(limits::KEY_BYTES_MAX + 1)), ..Message::default() }),
            Invalid::KeyTooLarge,
        ),
        (
            Request { partition: Some(3), ..request(When::Now) },
            Invalid::NoSuchPartition { partitions: 3 },
        ),
        (
            Request { partition: Some(u16::MAX), ..with_key(When::Now, "a") },
            Invalid::NoSuchPartition { partitions: 3 },
        ),
    ]
}

fn a_bad_message_refuses_its_whole_batch<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 3);
    for (bad, reason) in refused() {
        for index in 0..3 {
            let mut batch = vec![request(When::Now); 3];
            batch[index] = bad.clone();
            let answer = within_a_minute(house.broker.schedule(&topic, batch));
            assert_eq!(answer, Err(ScheduleError::Invalid { index, reason }));
        }
    }
    let whole = [
        (Vec::new(), Invalid::EmptyBatch),
        (vec![request(When::Now); limits::BATCH_MESSAGES_MAX + 1], Invalid::TooManyMessages),
        (vec![with_body(When::Now, large(limits::BODY_BYTES_MAX)); 9], Invalid::BatchTooLarge),
    ];
    for (batch, reason) in whole {
        let answer = within_a_minute(house.broker.schedule(&topic, batch));
        assert_eq!(answer, Err(ScheduleError::Invalid { index: 0, reason }));
    }
    // One good message goes through behind all of them, and nothing else does.
    let sent = house.send(&topic, When::Now);
    house.gate.wait_for(1);
    assert_eq!((house.received(&topic), house.stop_and_count_pending()), (vec![sent.id], 0));
    assert_eq!(house.broker.stats().scheduled, 1);
}

fn a_batch_may_go_to_its_limits<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let message = Message {
        key: Some(large(limits::KEY_BYTES_MAX)),
        headers: headers(limits::HEADERS_MAX, limits::HEADER_BYTES_MAX / limits::HEADERS_MAX - 4),
        body: large(limits::BODY_BYTES_MAX),
    };
    let largest = Request::new(message, When::After(limits::DELAY_MAX));
    let sent = house.schedule(&topic, vec![largest.clone()])[0];
    let report = within_a_minute(house.broker.get(sent.id)).unwrap().unwrap();
    assert!(report.message == Some(largest.message.clone()), "pending as it was sent");
    let latest = wall().saturating_add(limits::DELAY_MAX);
    house.send(&topic, When::At(latest));
    assert_eq!(house.schedule(&topic, vec![largest; 7]).len(), 7);
    let many = house.schedule(&topic, vec![request(When::Now); limits::BATCH_MESSAGES_MAX]);
    house.gate.wait_for(limits::BATCH_MESSAGES_MAX);
    assert_eq!(house.received(&topic).len(), many.len());
    assert_eq!(house.stop_and_count_pending(), 9);
}

fn a_topic_is_made_on_first_use<S: Store>(house: &House<S>) {
    let name = TopicName::new("unheard-of").unwrap();
    house.send(&name, When::Now);
    house.send(&name, When::Now);
    house.gate.wait_for(2);
    let topic = house.broker.topics().by_name(&name).unwrap();
    assert_eq!(topic.settings.partitions, limits::PARTITIONS_DEFAULT);
    assert_eq!(house.received(&name).len(), 2);
}

#[test]
fn without_auto_create_an_unknown_topic_is_refused() {
    let options = Options { auto_create: false, ..Options::default() };
    let house = House::new(Reference::new(), options);
    let name = TopicName::new("unheard-of").unwrap();
    let answer = within_a_minute(house.broker.schedule(&name, vec![request(When::Now)]));
    assert_eq!(answer, Err(ScheduleError::TopicNotFound));
    assert_eq!(house.broker.topics().list(), []);
}

#[test]
fn a_date_is_measured_with_the_wall_clock_and_all_else_with_the_broker_clock() {
    let house = reference();
    let topic = house.topic("orders", 1);
    // Nothing fires any more, so the store can be asked for what it was given.
    house.broker.stop();
    let date = When::At(wall().saturating_add(Span::from_secs(5)));
    let past = When::At(wall().saturating_sub(Span::from_secs(5)));
    let cases = [
        (date, Basis::Date),
        (past, Basis::Date),
        (When::Now, Basis::Delay),
        (soon(10), Basis::Delay),
        (When::Level(1), Basis::Delay),
    ];
    for (when, basis) in cases {
        let sent = house.send(&topic, when);
        let limit = ArmLimit { entries: 10, bytes: 1 << 20 };
        let armed =
            within_a_minute(house.gate.inner.arm(Lane::Message, Timestamp::MAX, limit)).unwrap();
        let found: Vec<_> = armed.iter().map(|armed| (armed.id(), armed.basis)).collect();
        assert_eq!(found, [(sent.id, basis)], "{when:?}");
    }
}

#[test]
fn a_due_time_past_the_end_of_time_is_refused() {
    let options = Options { delay_max: Span::from_millis(u64::MAX), ..Options::default() };
    let house = House::new(Reference::new(), options);
    let topic = house.topic("orders", 1);
    for delay in [Span::from_days(3_000_000), Span::from_millis(u64::MAX)] {
        let batch = vec![request(When::Now), request(When::After(delay))];
        let answer = within_a_minute(house.broker.schedule(&topic, batch));
        let reason = Invalid::DueOutOfRange;
        assert_eq!(answer, Err(ScheduleError::Invalid { index: 1, reason }));
    }
    assert_eq!(house.stop_and_count_pending(), 0);
}

fn a_key_keeps_its_partition<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 7);
    let mut places: BTreeMap<String, u16> = BTreeMap::new();
    for round in 0..3 {
        let keys: Vec<String> = (0..50).map(|number| format!("key {number}")).collect();
        let batch = keys.iter().map(|key| with_key(soon(round), key)).collect();
        let sent = house.schedule(&topic, batch);
        for (key, scheduled) in keys.into_iter().zip(sent) {
            let partition = scheduled.id.partition;
            assert_eq!(partition, partitioner::by_key(key.as_bytes(), 7));
            assert_eq!(*places.entry(key).or_insert(partition.get()), partition.get());
        }
    }
    assert!(places.values().collect::<BTreeSet<_>>().len() == 7, "every partition is used");
    house.gate.wait_for(150);
    for (number, log) in (0..).zip(house.logs(&topic)) {
        for delivered in log {
            let key = String::from_utf8(delivered.message.key.unwrap().to_vec()).unwrap();
            assert_eq!(places[&key], number, "{key}");
        }
    }
}

fn messages_without_a_key_take_turns<S: Store>(house: &House<S>) {
    let topics = [house.topic("one", 4), house.topic("two", 2), house.topic("three", 3)];
    for _ in 0..24 {
        for topic in &topics {
            house.send(topic, When::Now);
        }
    }
    house.gate.wait_for(72);
    for topic in &topics {
        let logs = house.logs(topic);
        let sizes: Vec<usize> = logs.iter().map(Vec::len).collect();
        assert_eq!(sizes, vec![24 / logs.len(); logs.len()], "{topic}");
    }
}

fn a_partition_can_be_asked_for<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 3);
    for number in [2, 0, 2, 1, 2] {
        let asked = Request { partition: Some(number), ..with_key(When::Now, "one key") };
        assert_eq!(house.schedule(&topic, vec![asked])[0].id.partition.get(), number);
    }
    house.gate.wait_for(5);
    assert_eq!(house.logs(&topic).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 3]);
}

fn each_partition_is_in_order<S: Store>(house: &House<S>) {
    // A machine that is too slow for the first moment has more time before the next.
    let mut all = 0;
    let found = [2500, 10_000, 40_000].into_iter().find_map(|lead| {
        let topic = house.topic(&format!("orders-{lead}"), 3);
        let (count, in_time) = send_in_no_order(house, &topic, Span::from_millis(lead));
        all += count;
        in_time.then_some((topic, count))
    });
    let (topic, count) = found.expect("the machine is too slow for this test to say anything");
    house.gate.wait_for(all);
    for log in house.logs(&topic) {
        assert!(log.len() > 100);
        assert!(log.is_sorted_by_key(|delivered| delivered.id.key));
    }
    assert_eq!(house.received(&topic).len(), count);
}

/// Due times in no order, and many of the same. Answers how many were sent, and whether all were
/// accepted before the first was due.
fn send_in_no_order<S: Store>(house: &House<S>, topic: &TopicName, lead: Span) -> (usize, bool) {
    let start = wall().saturating_add(lead);
    let mut count = 0;
    for round in 0..20u64 {
        let when =
            |n: u64| When::At(start.saturating_add(Span::from_millis((n * 7919 + round) % 200)));
        let sent = house.schedule(topic, (0..100).map(|n| request(when(n))).collect());
        count += sent.len();
    }
    (count, wall() < start)
}

fn a_cancel_is_final<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let sent = house.schedule(&topic, vec![request(soon(6000)); 10]);
    let kept = house.send(&topic, When::Now);
    let ids: Vec<MessageId> = sent.iter().map(|scheduled| scheduled.id).collect();
    let outcomes = within_a_minute(house.broker.cancel(ids.clone())).unwrap();
    assert_eq!(outcomes, [CancelOutcome::Cancelled; 10]);
    let outcomes = within_a_minute(house.broker.cancel(ids.clone())).unwrap();
    assert_eq!(outcomes, [CancelOutcome::AlreadyCancelled; 10]);
    house.gate.wait_for(1);
    assert_eq!(
        within_a_minute(house.broker.cancel(vec![kept.id])).unwrap(),
        [CancelOutcome::AlreadyDelivered]
    );
    // What is due after them shows that their moment has gone by.
    let last = house.send(&topic, soon(6001));
    assert_eq!(house.gate.wait_for(2), [kept.id, last.id]);
    for id in ids {
        let report = within_a_minute(house.broker.get(id)).unwrap();
        assert!(report.is_none_or(|report| report.state == State::Cancelled));
    }
    assert_eq!(house.broker.stats().cancelled, 10);
}

#[test]
fn a_stop_and_a_new_start_keep_what_is_pending() {
    let dir = tempfile::tempdir().unwrap();
    let house = House::new(engine(dir.path()), Options::default());
    let topic = house.topic("orders", 2);
    let fired = house.schedule(&topic, vec![request(When::Now); 50]);
    house.gate.wait_for(50);
    // However slow the machine is, nothing more is delivered before the end.
    house.gate.set(Mood::Refuse(StoreError::Busy));
    let due = wall().saturating_add(Span::from_millis(600));
    let near = house.schedule(&topic, vec![with_body(When::At(due), "near"); 50]);
    let far = house.schedule(&topic, vec![with_body(When::After(Span::from_days(2)), "far"); 50]);
    let gone: Vec<MessageId> = far[..10].iter().map(|scheduled| scheduled.id).collect();
    within_a_minute(house.broker.cancel(gone.clone())).unwrap();
    house.broker.stop();
    house.broker.stop();
    let stopped = within_a_minute(house.broker.cancel(gone.clone()));
    assert_eq!(stopped, Ok(vec![CancelOutcome::AlreadyCancelled; 10]), "the store still answers");
    drop(house);

    let house = House::new(engine(dir.path()), Options::default());
    let taken = house.gate.wait_for(50);
    assert_eq!(taken.len(), 50, "what was delivered before is not delivered again");
    let mut expected: Vec<MessageId> =
        fired.iter().chain(&near).map(|scheduled| scheduled.id).collect();
    expected.sort();
    assert_eq!(house.received(&topic), expected);
    assert_eq!(house.stop_and_count_pending(), 40);
    for scheduled in &far[10..] {
        let report = within_a_minute(house.broker.get(scheduled.id)).unwrap().unwrap();
        assert_eq!(report.state, State::Scheduled);
        assert_eq!(report.message.unwrap().body, "far");
    }
    assert_eq!(
        within_a_minute(house.broker.cancel(gone)).unwrap(),
        [CancelOutcome::AlreadyCancelled; 10]
    );
    house.broker.stop();
}
