//! Firing with topics that are paused or capped, and after a time in which the broker was down,
//! over the reference store and a clock moved by hand.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_executor::block_on;
use parking_lot::Mutex;
use punctual_model::ports::{
    CancelOutcome, Delivered, LogPosition, Order, Revised, Timeline, Topics,
};
use punctual_model::{
    Basis, Changed, Entry, Header, Lane, Message, MessageId, Parked, Partition, Span, State,
    TopicName, TopicSettings,
};
use punctual_testkit::{ManualClock, Reference};

use super::*;
use crate::deliver::Delivery;
use crate::fire::Firing;
use crate::place::CATCH_UP_HEADER;
use crate::rate::burst;
use crate::stats::Counters;
use crate::time::BrokerTime;

const START: u64 = 1_800_000_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START + millis).unwrap()
}

/// A store, a clock and what fires; the store outlives a restart of the rest.
struct House {
    clock: ManualClock,
    store: Arc<Reference>,
    rules: Arc<Rules>,
    counters: Arc<Counters>,
    firing: Firing<Reference, Reference>,
    resumed: Arc<Mutex<Vec<TopicId>>>,
    /// The most messages and bytes that were held back at one time.
    held_max: (usize, usize),
}

impl House {
    fn new(store: Arc<Reference>, now: Timestamp) -> Self {
        let clock = ManualClock::new(now);
        let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
        let rules = Arc::new(Rules::new(Arc::clone(&store) as Arc<dyn Topics>));
        let counters = Arc::new(Counters::default());
        let delivery = Delivery::new(
            Arc::clone(&store),
            Arc::clone(&store),
            Arc::clone(&time),
            Arc::clone(&counters),
        );
        let resumed: Arc<Mutex<Vec<TopicId>>> = Arc::default();
        let told = Arc::clone(&resumed);
        let pace = Pace::new(
            Arc::clone(&rules),
            time.read(),
            Arc::new(move |topic| told.lock().push(topic)),
        );
        let firing = Firing::new(Lane::Message, delivery).paced_by(pace);
        Self { clock, store, rules, counters, firing, resumed, held_max: (0, 0) }
    }

    /// Begins with an empty store.
    fn open() -> Self {
        Self::new(Arc::new(Reference::new()), at(0))
    }

    /// The store again after a restart, at another time.
    fn reopen(self, now: Timestamp) -> Self {
        let Self { store, rules, firing, .. } = self;
        drop((rules, firing));
        let store = Arc::into_inner(store).expect("nobody else has the store");
        Self::new(Arc::new(store.restarted()), now)
    }

    fn topic(&self, name: &str, settings: TopicSettings) -> TopicId {
        let settings = TopicSettings { partitions: 1, ..settings };
        let topic = self.store.put(&TopicName::new(name).unwrap(), settings).unwrap().id;
        self.rules.refresh();
        topic
    }

    fn send(&self, topic: TopicId, due: Timestamp, message: Message) -> MessageId {
        let partition = Partition::new(0).unwrap();
        let entry = Entry { topic, partition, due, basis: Basis::Date, message, extra: None };
        block_on(self.store.schedule(vec![entry])).unwrap()[0]
    }

    fn step(&mut self) -> Duration {
        loop {
            let wait = block_on(self.firing.step()).unwrap();
            let held = self.firing.pace().size();
            self.held_max = (self.held_max.0.max(held.0), self.held_max.1.max(held.1));
            if !wait.is_zero() {
                return wait;
            }
        }
    }

    /// Lets time pass as the firing thread would.
    fn run(&mut self, span: Span) {
        let end = self.clock.now().saturating_add(span);
        loop {
            let wait = self.step();
            let left = end.since(self.clock.now()).as_millis();
            if left == 0 {
                return;
            }
            let wait = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap();
            self.clock.advance(Span::from_millis(wait.min(left)));
        }
    }

    fn log(&self, topic: TopicId) -> Vec<Delivered> {
        let from = LogPosition { topic, partition: Partition::new(0).unwrap(), offset: 0 };
        self.store.read(from, usize::MAX).unwrap()
    }

    fn ids(&self, topic: TopicId) -> Vec<MessageId> {
        self.log(topic).into_iter().map(|delivered| delivered.id).collect()
    }

    /// When each message was delivered, in milliseconds since the start.
    fn times(&self, topic: TopicId) -> Vec<u64> {
        let since = |delivered: Delivered| delivered.delivered_at.as_millis() - START;
        self.log(topic).into_iter().map(since).collect()
    }

    fn state(&self, id: MessageId) -> State {
        block_on(self.store.find(vec![id])).unwrap()[0].as_ref().unwrap().state
    }
}

fn capped(rate: u32) -> TopicSettings {
    TopicSettings { rate_cap: Some(rate), ..TopicSettings::default() }
}

fn catching_up(catch_up: CatchUp) -> TopicSettings {
    TopicSettings { catch_up, ..TopicSettings::default() }
}

fn keyed(key: &'static str) -> Message {
    Message { key: Some(Bytes::from_static(key.as_bytes())), ..Message::default() }
}

fn asking(text: &'static str) -> Message {
    let header =
        Header { name: CATCH_UP_HEADER.to_owned(), value: Bytes::from_static(text.as_bytes()) };
    Message { headers: vec![header], ..Message::default() }
}

/// In any stretch of time at most the rate times its length, and one burst; the clock of the log
/// counts whole milliseconds, so a stretch may be one longer than it looks.
fn check_rate(times: &[u64], rate: u32) {
    for (first, from) in times.iter().enumerate() {
        for (last, to) in times.iter().enumerate().skip(first) {
            let share = (to - from + 1) * u64::from(rate) / 1000 + u64::from(burst(rate));
            assert!((last - first) as u64 <= share, "{} from {from} to {to}", last - first + 1);
        }
    }
}

#[test]
fn a_capped_topic_fires_at_its_rate_in_order_and_others_are_not_delayed() {
    let mut house = House::open();
    let slow = house.topic("slow", capped(20));
    let free = house.topic("free", TopicSettings::default());
    let ids: Vec<_> = (0..60).map(|_| house.send(slow, at(100), Message::default())).collect();
    let others: Vec<_> = (0..60).map(|_| house.send(free, at(100), Message::default())).collect();
    house.run(Span::from_secs(4));
    assert_eq!(house.ids(slow), ids);
    assert_eq!(house.ids(free), others);
    assert!(house.times(free).iter().all(|time| *time == 100));
    let times = house.times(slow);
    check_rate(&times, 20);
    assert_eq!((times[0], times[1], *times.last().unwrap()), (100, 100, 100 + 58 * 50));
}

#[test]
fn who_waits_for_a_turn_can_be_cancelled_and_changed() {
    let mut house = House::open();
    let slow = house.topic("slow", capped(1));
    let ids: Vec<_> = (0..4).map(|_| house.send(slow, at(10), Message::default())).collect();
    house.run(Span::from_millis(500));
    assert_eq!(house.ids(slow), ids[..1]);
    assert_eq!(house.state(ids[1]), State::Scheduled);
    let outcome = block_on(house.store.cancel(vec![ids[1]])).unwrap();
    assert_eq!(outcome, [CancelOutcome::Cancelled]);
    let entry = Entry {
        topic: slow,
        partition: ids[2].partition,
        due: at(60_000),
        basis: Basis::Date,
        message: Message::default(),
        extra: None,
    };
    let entry = entry.with_extra(|extra| {
        extra.changed = Some(Changed { first: ids[2].key, version: 2 });
    });
    let order = Order::Replace { id: ids[2], expected: ids[2].key, entry };
    assert!(matches!(block_on(house.store.revise(vec![order])).unwrap(), Revised::Done(_)));
    house.run(Span::from_secs(20));
    assert_eq!(house.ids(slow), [ids[0], ids[3]]);
    house.run(Span::from_secs(60));
    assert_eq!(house.ids(slow), [ids[0], ids[3], ids[2]]);
    assert_eq!(house.times(slow)[2], 60_000);
}

#[test]
fn memory_is_bounded_and_those_sent_away_keep_their_place_and_version() {
    let mut house = House::open();
    let slow = house.topic("slow", capped(2000));
    let count = 12_000_u64;
    let ids: Vec<_> = (0..count).map(|_| house.send(slow, at(100), Message::default())).collect();
    // These fall due while those before them are still away.
    let later: Vec<_> =
        (0..200).map(|n| house.send(slow, at(1000 + n * 10), Message::default())).collect();
    house.run(Span::from_secs(2));
    let away = *ids.last().unwrap();
    let found = block_on(house.store.find(vec![away])).unwrap()[0].clone().unwrap();
    let entry = found.entry.unwrap();
    assert!(entry.key.due > at(4000) && entry.id == away, "{entry:?}");
    assert_eq!((found.state, entry.version()), (State::Scheduled, 1));
    house.run(Span::from_secs(9));
    assert!(house.held_max.0 <= LINE_MAX, "{:?}", house.held_max);
    let all: Vec<_> = ids.into_iter().chain(later).collect();
    assert_eq!(house.ids(slow), all);
    let times = house.times(slow);
    let picked: Vec<u64> = times.iter().step_by(500).copied().collect();
    for (nth, time) in picked.iter().enumerate() {
        let share = (time - 100) * 2 + u64::from(burst(2000));
        assert!(nth as u64 * 500 <= share, "{nth} at {time}");
    }
    let ideal = 100 + (count + 200) / 2;
    assert!(*times.last().unwrap() < ideal + 200, "the rate is used: {:?}", times.last());
}

#[test]
fn bytes_in_memory_are_bounded_too() {
    let mut house = House::open();
    let slow = house.topic("slow", capped(10));
    let body = Bytes::from(vec![0; 1 << 20]);
    for _ in 0..40 {
        house.send(slow, at(50), Message { body: body.clone(), ..Message::default() });
    }
    house.run(Span::from_secs(5));
    assert!(house.held_max.1 <= LINE_BYTES_MAX, "{:?}", house.held_max);
    assert_eq!(house.ids(slow).len(), 40);
    check_rate(&house.times(slow), 10);
}

#[test]
fn a_cap_can_be_changed_and_lifted() {
    let mut house = House::open();
    let topic = house.topic("t", capped(1));
    let ids: Vec<_> = (0..100).map(|_| house.send(topic, at(0), Message::default())).collect();
    house.run(Span::from_secs(3));
    assert_eq!(house.ids(topic).len(), 4);
    house.topic("t", capped(10));
    house.run(Span::from_secs(1));
    assert!((13..=15).contains(&house.ids(topic).len()), "{}", house.ids(topic).len());
    house.topic("t", TopicSettings::default());
    house.step();
    assert_eq!(house.ids(topic), ids);
}

#[test]
fn a_paused_topic_parks_what_falls_due_and_its_resumption_is_told() {
    let mut house = House::open();
    let paused = TopicSettings { paused: true, ..TopicSettings::default() };
    let topic = house.topic("t", paused);
    let other = house.topic("other", TopicSettings::default());
    let id = house.send(topic, at(1000), Message::default());
    let free = house.send(other, at(1000), Message::default());
    house.run(Span::from_secs(5));
    assert!(house.ids(topic).is_empty());
    assert_eq!(house.ids(other), [free]);
    let found = block_on(house.store.find(vec![id])).unwrap()[0].clone().unwrap();
    let entry = found.entry.unwrap();
    assert_eq!((found.state, entry.version()), (State::Paused, 1));
    let parked = entry.extra.unwrap().parked;
    assert_eq!(parked, Some(Parked::Paused { remaining: Span::ZERO, due: at(1000) }));
    house.topic("t", TopicSettings::default());
    house.step();
    assert_eq!(*house.resumed.lock(), [topic]);
}

#[test]
fn a_pause_takes_in_those_who_wait_for_their_turn() {
    let mut house = House::open();
    let topic = house.topic("t", capped(1));
    let ids: Vec<_> = (0..3).map(|_| house.send(topic, at(0), Message::default())).collect();
    house.step();
    house.topic("t", TopicSettings { paused: true, ..capped(1) });
    house.run(Span::from_secs(5));
    assert_eq!(house.ids(topic), ids[..1]);
    assert!(ids[1..].iter().all(|id| house.state(*id) == State::Paused));
}

#[test]
fn without_a_policy_all_missed_messages_come_at_once_in_order() {
    let house = House::open();
    let topic = house.topic("t", TopicSettings::default());
    let ids: Vec<_> = (0..20).map(|n| house.send(topic, at(1000 + n), asking("all"))).collect();
    let mut house = house.reopen(at(3_600_000));
    house.step();
    assert_eq!(house.ids(topic), ids);
}

#[test]
fn missed_messages_are_spread_over_the_time_asked_for() {
    let house = House::open();
    let topic = house.topic("t", catching_up(CatchUp::Spread(Span::from_secs(100))));
    let ids: Vec<_> =
        (0..50).map(|n| house.send(topic, at(1000 + n), Message::default())).collect();
    let fresh = house.send(topic, at(3_600_000), Message::default());
    let mut house = house.reopen(at(3_600_000));
    house.run(Span::from_secs(101));
    let mut delivered = house.ids(topic);
    assert_eq!(delivered.remove(1), fresh, "what was not missed does not wait");
    assert_eq!(delivered, ids);
    let mut times = house.times(topic);
    times.remove(1);
    // The forecast counts whole seconds, so the one that falls due just now may count as missed.
    for (nth, time) in times.iter().enumerate() {
        let (nth, since) = (nth as u64, time - 3_600_000);
        assert!((nth * 1950..=nth * 2000).contains(&since), "{nth} at {since}");
    }
}

#[test]
fn missed_messages_that_are_too_old_are_withdrawn() {
    let house = House::open();
    let topic = house.topic("t", catching_up(CatchUp::SkipOlder(Span::from_secs(60))));
    let old = house.send(topic, at(1000), Message::default());
    let insists = house.send(topic, at(1000), asking("all"));
    let recent = house.send(topic, at(3_550_000), Message::default());
    let limit = house.send(topic, at(3_540_000), Message::default());
    let strict = house.send(topic, at(3_599_000), asking("skip_older:500"));
    let mut house = house.reopen(at(3_600_000));
    house.step();
    assert_eq!(house.ids(topic), [insists, limit, recent]);
    assert_eq!(house.state(old), State::Cancelled);
    assert_eq!(house.state(strict), State::Cancelled);
    assert_eq!(house.counters.skipped.load(std::sync::atomic::Ordering::Relaxed), 2);
    // What is accepted with a date in the past was not missed.
    let past = house.send(topic, at(1000), Message::default());
    house.step();
    assert_eq!(house.state(past), State::Delivered);
}

#[test]
fn of_each_key_only_the_latest_missed_message_comes() {
    let house = House::open();
    let topic = house.topic("t", catching_up(CatchUp::Latest));
    let other = house.topic("other", TopicSettings::default());
    let mut sent: BTreeMap<&str, Vec<MessageId>> = BTreeMap::new();
    for n in 0..9000 {
        let key = ["a", "b", ""][n % 3];
        let message = if key.is_empty() { Message::default() } else { keyed(key) };
        let due = at(1000 + n as u64);
        sent.entry(key).or_default().push(house.send(topic, due, message));
    }
    let untouched = house.send(other, at(1000), keyed("a"));
    let now = at(3_600_000);
    let next = house.send(topic, now, keyed("a"));
    let mut house = house.reopen(now);
    house.run(Span::from_secs(1));
    let mut latest: Vec<_> = sent.values().map(|ids| *ids.last().unwrap()).collect();
    latest.sort_by_key(|id| id.key);
    let mut delivered = house.ids(topic);
    delivered.sort_by_key(|id| id.key);
    latest.push(next);
    assert_eq!(delivered, latest);
    assert_eq!(house.ids(other), [untouched]);
    assert_eq!(house.state(sent["a"][0]), State::Cancelled);
    assert_eq!(house.counters.skipped.load(std::sync::atomic::Ordering::Relaxed), 9000 - 3);
}

#[test]
fn a_machine_that_slept_catches_up_like_one_that_was_down() {
    let mut house = House::open();
    let topic = house.topic("t", catching_up(CatchUp::Latest));
    let ids: Vec<_> = (0..5).map(|n| house.send(topic, at(60_000 + n), keyed("a"))).collect();
    house.run(Span::from_secs(1));
    house.clock.advance(Span::from_secs(3600));
    house.step();
    assert_eq!(house.ids(topic), ids[4..]);
}

#[test]
fn catching_up_respects_the_cap() {
    let house = House::open();
    let settings = TopicSettings { rate_cap: Some(10), ..catching_up(CatchUp::All) };
    let topic = house.topic("t", settings);
    let ids: Vec<_> =
        (0..30).map(|n| house.send(topic, at(1000 + n), Message::default())).collect();
    let mut house = house.reopen(at(60_000));
    house.run(Span::from_secs(5));
    assert_eq!(house.ids(topic), ids);
    check_rate(&house.times(topic), 10);
}
