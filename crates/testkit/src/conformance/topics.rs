//! The contract of [`Topics`], with an [`Outlet`] that fills its logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_model::ports::{
    Armed, Delivered, LogBounds, LogPosition, Outlet, Topic, TopicError, Topics,
};
use punctual_model::topic::Stamps;
use punctual_model::{
    Backlog, CatchUp, CheckPolicy, DelayLevels, Overflow, Partition, Span, Timestamp, TopicId,
    TopicKind, TopicName, TopicSettings,
};

use super::outlet::{armed, deliver};
use super::{after, delicate_messages, message, partition};

/// Holds topic logs to their contract. `make` gives fresh ones each time.
///
/// # Panics
/// Where they break it.
pub fn topics<T: Topics + Outlet>(make: impl Fn() -> T) {
    catalogue(|| Arc::new(make()));
    a_topic_may_gain_partitions_and_never_lose_any(&make());
    a_deleted_topic_is_gone_and_its_number_too(&make());
    a_log_is_read_from_any_offset(&make());
    the_bounds_tell_where_a_log_starts_and_ends(&make());
    a_delivered_message_is_located(&make());
    a_message_is_found_by_the_time_it_was_delivered_at(&make());
}

/// Holds topics to that part of their contract that needs no logs. `make` gives fresh ones each time.
///
/// # Panics
/// Where they break it.
pub fn catalogue(make: impl Fn() -> Arc<dyn Topics>) {
    a_topic_is_found_by_name_and_by_number(&*make());
    topics_are_listed_by_name(&*make());
    settings_can_be_changed(&*make());
    what_becomes_of_late_messages_can_be_changed(&*make());
    the_number_of_partitions_only_grows(&*make());
    a_number_is_given_once(&*make());
    what_is_only_wanted_is_taken_as_it_is(&*make());
    a_missing_partition_is_refused(&*make());
    the_delay_levels_can_be_changed(&*make());
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).expect("suites use legal names")
}

fn settings(partitions: u16) -> TopicSettings {
    TopicSettings { partitions, retention: None, ..TopicSettings::default() }
}

/// Settings that differ from the default in everything.
pub(super) fn unusual() -> TopicSettings {
    TopicSettings {
        partitions: 2,
        retention: Some(Span::from_days(3)),
        retention_bytes: Some(1 << 40),
        default_ttl: Some(Span::from_secs(90)),
        max_backlog: Backlog { messages: Some(5), bytes: Some(1 << 60) },
        overflow: Overflow::DeadLetterNewest,
        max_delay: Some(Span::from_days(2)),
        rate_cap: Some(u32::MAX),
        jitter: Some(Span::from_millis(1)),
        catch_up: CatchUp::Spread(Span::from_secs(5)),
        levels: Some(DelayLevels::new(std::array::from_fn(|_| Span::from_millis(7)))),
        check: Some(CheckPolicy { max: 3, ..CheckPolicy::default() }),
        paused: true,
        stamps: Stamps::Log,
        batch_bytes_max: Some(70_000),
        kept: BTreeMap::from([("cleanup.policy".into(), "delete".into())]),
    }
}

fn put<T: Topics + ?Sized>(topics: &T, text: &str, partitions: u16) -> Arc<Topic> {
    topics.put(&name(text), settings(partitions)).expect("a working store makes topics")
}

/// Everything from `from` on, read in steps of `limit`.
fn read_all<T: Topics + ?Sized>(topics: &T, mut from: LogPosition, limit: usize) -> Vec<Delivered> {
    let mut all: Vec<Delivered> = Vec::new();
    loop {
        let page = topics.read(from, limit).expect("a working store reads");
        assert!(page.len() <= limit, "{} messages of {limit}", page.len());
        let Some(last) = page.last() else { break };
        assert!(page[0].offset >= from.offset, "nothing before the offset asked for");
        from.offset = last.offset + 1;
        all.extend(page);
    }
    let growing = all.windows(2).all(|pair| pair[0].offset < pair[1].offset);
    assert!(growing, "offsets grow");
    all
}

fn start_of(topic: TopicId, partition: Partition) -> LogPosition {
    LogPosition { topic, partition, offset: 0 }
}

fn numbered(topic: TopicId, place: Partition, count: u64) -> Vec<Armed> {
    (0..count).map(|number| armed(number, topic, place, message(&number.to_string()))).collect()
}

fn a_topic_is_found_by_name_and_by_number<T: Topics + ?Sized>(topics: &T) {
    assert_eq!(topics.by_name(&name("orders")), None);
    assert_eq!(topics.list(), []);
    let orders = put(topics, "orders", 3);
    let other = put(topics, "Orders", 1);
    assert_eq!((orders.name.as_str(), &orders.settings), ("orders", &settings(3)));
    assert_eq!(orders.kind, TopicKind::Plain);
    assert_ne!(orders.id, other.id, "names differ in case");
    assert_eq!(topics.by_name(&name("orders")), Some(Arc::clone(&orders)));
    assert_eq!(topics.by_id(orders.id), Some(orders));
    assert_eq!(topics.by_id(other.id), Some(other));
    assert_eq!(topics.by_id(TopicId::MAX), None);
}

fn topics_are_listed_by_name<T: Topics + ?Sized>(topics: &T) {
    let longest = "x".repeat(249);
    for text in ["b", "a.b", longest.as_str(), "a", "B", "a-b", "10", "9"] {
        put(topics, text, 1);
    }
    let listed: Vec<String> = topics.list().iter().map(|topic| topic.name.to_string()).collect();
    assert_eq!(listed, ["10", "9", "B", "a", "a-b", "a.b", "b", &longest]);
}

fn settings_can_be_changed<T: Topics + ?Sized>(topics: &T) {
    let before = put(topics, "orders", 2);
    let changed = unusual();
    let after = topics.put(&name("orders"), changed.clone()).expect("settings may change");
    assert_eq!((after.id, &after.settings), (before.id, &changed), "the topic stays the same one");
    assert_eq!(topics.by_id(before.id), Some(after));
    assert_eq!(topics.list().len(), 1);
}

fn what_becomes_of_late_messages_can_be_changed<T: Topics + ?Sized>(topics: &T) {
    let minute = Span::from_secs(60);
    let all = [CatchUp::All, CatchUp::Spread(minute), CatchUp::SkipOlder(minute), CatchUp::Latest];
    for catch_up in all {
        let changed = TopicSettings { catch_up, ..settings(2) };
        let after = topics.put(&name("orders"), changed.clone()).expect("settings may change");
        assert_eq!(after.settings, changed);
    }
}

fn the_number_of_partitions_only_grows<T: Topics + ?Sized>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    let more = put(topics, "orders", 4);
    assert_eq!((more.id, more.settings.partitions, more.key_partitions), (id, 4, 2));
    let fewer = topics.put(&name("orders"), settings(3));
    assert_eq!(fewer, Err(TopicError::CannotShrink(4)));
    assert_eq!(topics.by_id(id), Some(more), "a refusal changes nothing");
}

fn a_number_is_given_once<T: Topics + ?Sized>(topics: &T) {
    let kept = put(topics, "kept", 1);
    let mut numbers = vec![kept.id];
    for _ in 0..3 {
        let topic = put(topics, "orders", 1);
        assert!(!numbers.contains(&topic.id), "{:?} was given before", topic.id);
        numbers.push(topic.id);
        assert_eq!(topics.delete(&topic.name), Ok(true));
        assert_eq!(topics.delete(&topic.name), Ok(false), "there is none any more");
        assert_eq!((topics.by_name(&topic.name), topics.by_id(topic.id)), (None, None));
    }
    assert_eq!(topics.list(), [kept]);
}

fn what_is_only_wanted_is_taken_as_it_is<T: Topics + ?Sized>(topics: &T) {
    let known = topics.put(&name("orders"), unusual()).expect("a working store makes topics");
    assert_eq!(topics.make(&name("orders"), settings(9)), Ok(known));
    let made = topics.make(&name("stock"), settings(3)).expect("a working store makes topics");
    assert_eq!((made.settings.partitions, topics.by_name(&made.name)), (3, Some(made)));
}

fn a_topic_may_gain_partitions_and_never_lose_any<T: Topics + Outlet>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    deliver(topics, &numbered(id, partition(1), 5), after(10));
    let more = put(topics, "orders", 4);
    assert_eq!((more.id, more.settings.partitions), (id, 4));
    deliver(topics, &[armed(9, id, partition(3), message("in a new one"))], after(10));
    let fewer = topics.put(&name("orders"), settings(3));
    assert_eq!(fewer, Err(TopicError::CannotShrink(4)));
    let kept = topics.by_id(id).expect("a refusal changes nothing");
    assert_eq!(kept.settings.partitions, 4, "a refusal changes nothing");
    assert_eq!(read_all(topics, start_of(id, partition(1)), 10).len(), 5);
    assert_eq!(read_all(topics, start_of(id, partition(3)), 10).len(), 1);
}

fn a_deleted_topic_is_gone_and_its_number_too<T: Topics + Outlet>(topics: &T) {
    let kept = put(topics, "kept", 1);
    let mut numbers = vec![kept.id];
    for _ in 0..5 {
        let topic = put(topics, "orders", 1);
        assert!(!numbers.contains(&topic.id), "{:?} was given before", topic.id);
        numbers.push(topic.id);
        assert_eq!(read_all(topics, start_of(topic.id, partition(0)), 10), [], "a new log");
        let sent = numbered(topic.id, partition(0), 3);
        deliver(topics, &sent, after(10));
        assert_eq!(topics.delete(&topic.name), Ok(true));
        assert_eq!(topics.delete(&topic.name), Ok(false), "there is none any more");
        assert_eq!((topics.by_name(&topic.name), topics.by_id(topic.id)), (None, None));
        assert_eq!(topics.read(start_of(topic.id, partition(0)), 10), Err(TopicError::NotFound));
        assert_eq!(topics.locate(sent[0].id()), Ok(None));
    }
    assert_eq!(topics.list(), [kept]);
}

fn a_log_is_read_from_any_offset<T: Topics + Outlet>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    let place = partition(1);
    let sent = numbered(id, place, 50);
    deliver(topics, &sent[..20], after(100));
    deliver(topics, &sent[20..], after(200));
    let all = read_all(topics, start_of(id, place), 100);
    assert_eq!(all.len(), 50);
    for (index, (sent, read)) in sent.iter().zip(&all).enumerate() {
        assert_eq!((sent.id(), &sent.message), (read.id, &read.message));
        let delivered_at = if index < 20 { after(100) } else { after(200) };
        assert_eq!(read.delivered_at, delivered_at);
    }
    for limit in [1, 7, 50] {
        assert_eq!(read_all(topics, start_of(id, place), limit), all, "in steps of {limit}");
    }
    for index in [1, 19, 20, 21, 49] {
        let from = LogPosition { offset: all[index].offset, ..start_of(id, place) };
        assert_eq!(read_all(topics, from, 100), all[index..], "from message {index}");
    }
    let past = LogPosition { offset: all[49].offset + 1, ..start_of(id, place) };
    assert_eq!(topics.read(past, 10), Ok(Vec::new()), "empty at the end");
    assert_eq!(read_all(topics, start_of(id, partition(0)), 10), [], "a log of its own each");
}

fn the_bounds_tell_where_a_log_starts_and_ends<T: Topics + Outlet>(topics: &T) {
    let id = put(topics, "orders", 1).id;
    let place = partition(0);
    let bounds = || topics.bounds(id, place).expect("the partition is there");
    let LogBounds { start, end } = bounds();
    assert_eq!(start, end, "an empty log");
    deliver(topics, &numbered(id, place, 8), after(10));
    let all = read_all(topics, start_of(id, place), 100);
    let LogBounds { start, end } = bounds();
    assert!(start <= all[0].offset && all[7].offset < end, "{start} to {end}");
    deliver(topics, &[armed(100, id, place, message("next"))], after(200));
    let next = read_all(topics, LogPosition { offset: end, ..start_of(id, place) }, 10);
    assert_eq!(next.iter().map(|read| read.offset).collect::<Vec<_>>(), [end]);
}

fn a_delivered_message_is_located<T: Topics + Outlet>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    let place = partition(1);
    let messages = delicate_messages();
    let sent: Vec<Armed> =
        (1..).zip(messages).map(|(number, message)| armed(number, id, place, message)).collect();
    assert_eq!(topics.locate(sent[0].id()), Ok(None), "not delivered yet");
    deliver(topics, &sent, after(100));
    let all = read_all(topics, start_of(id, place), 100);
    for (sent, read) in sent.iter().zip(all) {
        let found = topics.locate(sent.id()).expect("the log is whole");
        assert!(found == Some(read), "{:?} was not found where it is", sent.id());
    }
    let never = armed(50, id, place, message("never delivered"));
    assert_eq!(topics.locate(never.id()), Ok(None));
    let elsewhere = armed(1, id, partition(0), message("in another partition"));
    assert_eq!(topics.locate(elsewhere.id()), Ok(None));
}

fn a_message_is_found_by_the_time_it_was_delivered_at<T: Topics + Outlet>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    let place = partition(1);
    let offset_at = |time| topics.offset_at(id, place, time).expect("the partition is there");
    let end = || topics.bounds(id, place).expect("the partition is there").end;
    assert_eq!(offset_at(Timestamp::MIN), end(), "an empty log");
    let sent = numbered(id, place, 300);
    let mut firsts = Vec::new();
    // Many small steps, some of them at the same time.
    for (step, batch) in (0..).zip(sent.chunks(7)) {
        if step % 3 != 1 {
            firsts.push((1000 + step, end()));
        }
        deliver(topics, batch, after(1000 + step - u64::from(step % 3 == 1)));
    }
    assert_eq!(offset_at(Timestamp::MIN), firsts[0].1, "everything is later");
    for pair in firsts.windows(2) {
        let ((time, offset), (next, next_offset)) = (pair[0], pair[1]);
        assert_eq!(offset_at(after(time)), offset, "the first of those at {time}");
        for between in time + 1..=next {
            assert_eq!(offset_at(after(between)), next_offset, "none is at {between}");
        }
    }
    assert_eq!(offset_at(after(2000)), end(), "none is as late");
    assert_eq!(offset_at(Timestamp::MAX), end());
    assert_eq!(topics.offset_at(id, partition(0), after(1000)), Ok(0), "a log of its own each");
}

fn a_missing_partition_is_refused<T: Topics + ?Sized>(topics: &T) {
    let id = put(topics, "orders", 2).id;
    let missing = [(id, partition(2)), (TopicId::MAX, partition(0))];
    for (topic, place) in missing {
        assert_eq!(topics.read(start_of(topic, place), 10), Err(TopicError::NotFound));
        assert_eq!(topics.bounds(topic, place), Err(TopicError::NotFound));
        assert_eq!(topics.offset_at(topic, place, after(0)), Err(TopicError::NotFound));
    }
}

fn the_delay_levels_can_be_changed<T: Topics + ?Sized>(topics: &T) {
    assert_eq!(topics.levels(), DelayLevels::default());
    put(topics, "orders", 1);
    let levels = DelayLevels::new(std::array::from_fn(|level| Span::from_millis(level as u64)));
    assert_eq!(topics.put_levels(levels.clone()), Ok(()));
    assert_eq!(topics.levels(), levels);
    let own = topics.by_name(&name("orders")).and_then(|topic| topic.settings.levels.clone());
    assert_eq!(own, None, "those of topics are their own");
}
