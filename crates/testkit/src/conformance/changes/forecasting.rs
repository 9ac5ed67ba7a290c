//! How much is due when, how much waits in each lane, and the listing of what is parked.

use bytes::Bytes;
use punctual_model::ports::{Forecast, PendingQuery};
use punctual_model::{
    Action, Entry, Lane, Link, Message, MessageId, Parked, State, Timestamp, TopicId,
};

use super::{
    PLENTY, Stage, Store, after, arm_all, cancel, claim, done, entry, everything, fire, forecast,
    list, listed, message, order, order_in, pause, reschedule, schedule, schedule_at, settle,
    shown, store, stored, stranger,
};

/// How many of `dues`, in milliseconds after the start, are before each bound, rounded up to whole
/// seconds.
fn before(dues: &[u64], bounds: &[Timestamp]) -> Vec<u64> {
    let counted = |bound: &Timestamp| {
        let bound = bound.as_millis().next_multiple_of(1000);
        dues.iter().filter(|due| after(**due).as_millis() < bound).count() as u64
    };
    bounds.iter().map(counted).collect()
}

fn half(topic: TopicId) -> Entry {
    let transaction = Link::Id(stranger(TopicId::TRANSACTIONS, after(1)));
    let parked = Parked::Half { transaction, delay: None, due: after(5) };
    entry(topic, Timestamp::PREPARED, message("half"))
        .with_extra(|extra| extra.parked = Some(parked))
}

pub(super) fn the_forecast_is_exact<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let nothing = Forecast { before: vec![0, 0], ..Forecast::default() };
    let edges = [Timestamp::MIN, Timestamp::MAX];
    assert_eq!(forecast(timeline, topic, &edges), nothing);
    let near: Vec<u64> = (0..600).map(|number| number * 17).collect();
    let far: Vec<u64> = (0..200).map(|number| number * 3_600_000).collect();
    let dues = [near, far].concat();
    for batch in dues.chunks(100) {
        schedule_at(stage, batch);
    }
    schedule(timeline, vec![entry(other, after(1), message("of another topic"))]);
    let near = (0..30).map(|number| number * 499);
    let far = (0..30).map(|number| number * 86_400_000 + number);
    let mut bounds: Vec<Timestamp> = near.chain(far).map(after).collect();
    bounds.extend(edges);
    let told = forecast(timeline, topic, &bounds);
    assert_eq!((told.scheduled, told.paused, told.prepared), (800, 0, 0));
    assert_eq!(told.before, before(&dues, &bounds));
    bounds.reverse();
    let told = forecast(timeline, topic, &bounds);
    assert_eq!(told.before, before(&dues, &bounds), "in whatever order they are asked for");
    assert_eq!(forecast(timeline, topic, &[]).before, []);
}

pub(super) fn a_forecast_follows_every_change<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let bounds: Vec<Timestamp> = (0..30).map(|number| after(number * 1000)).collect();
    let mut dues: Vec<u64> = (0..200).map(|number| 100 + number * 100).collect();
    let given = schedule_at(stage, &dues);
    let (mut paused, mut prepared) = (0, 0);
    let check = |dues: &[u64], paused, prepared, when: &str| {
        let told = forecast(timeline, topic, &bounds);
        let scheduled = dues.len() as u64;
        let expected = Forecast { scheduled, paused, prepared, before: before(dues, &bounds) };
        assert_eq!(told, expected, "{when}");
    };
    for (index, due) in [(199, 50), (198, 29_000), (197, 19_800), (196, 1)] {
        reschedule(timeline, given[index], due);
        dues[index] = due;
        check(&dues, 0, 0, "moved");
    }
    for index in [195, 194] {
        pause(timeline, given[index]);
        dues.remove(index);
        paused += 1;
        check(&dues, paused, 0, "paused");
    }
    cancel(timeline, &[given[195], given[0], given[199]]);
    dues.retain(|due| ![100, 50].contains(due));
    paused -= 1;
    check(&dues, paused, 0, "cancelled");
    let halves = done(timeline, vec![order(half(topic)), order(half(topic))]);
    prepared += 2;
    check(&dues, paused, prepared, "prepared");
    reschedule(timeline, stored(halves[0]), 12_345);
    dues.push(12_345);
    prepared -= 1;
    check(&dues, paused, prepared, "committed");
    reschedule(timeline, given[194], 7777);
    dues.push(7777);
    check(&dues, 0, prepared, "resumed");
    let armed = arm_all(timeline, after(5000), PLENTY);
    check(&dues, 0, prepared, "armed is still to come");
    settle(timeline, &claim(timeline, armed));
    dues.retain(|due| *due >= 5000);
    check(&dues, 0, prepared, "delivered");
}

pub(super) fn only_messages_are_forecast<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    schedule_at(stage, &[1000]);
    for action in [Action::Repeat, Action::Check] {
        let control = entry(topic, after(500), message("control"));
        store(timeline, order_in(Lane::Retry, control.with_extra(|extra| extra.action = action)));
    }
    let told = forecast(timeline, topic, &[after(900), after(90_000)]);
    assert_eq!(told, Forecast { scheduled: 1, before: vec![0, 1], ..Forecast::default() });
}

pub(super) fn counts_are_kept_for_each_lane<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let counts = || {
        Lane::ALL.map(|lane| {
            let mut counts = timeline.counts(lane);
            counts.sort();
            counts
        })
    };
    let retry = |topic, due| order_in(Lane::Retry, entry(topic, after(due), message("retry")));
    let given = schedule_at(stage, &[10, 20, 30]);
    let transactions = TopicId::TRANSACTIONS;
    let moved = done(timeline, vec![retry(topic, 10), retry(other, 20), retry(transactions, 30)]);
    let moved: Vec<MessageId> = moved.into_iter().map(stored).collect();
    let all = [(topic, 1), (other, 1), (transactions, 1)];
    assert_eq!(counts(), [vec![(topic, 3)], all.to_vec()]);
    reschedule(timeline, given[0], 500);
    reschedule(timeline, moved[0], 500);
    pause(timeline, given[1]);
    assert_eq!(counts(), [vec![(topic, 3)], all.to_vec()], "a move changes no count");
    fire(timeline, Lane::Message, 100);
    cancel(timeline, &[moved[1], moved[2]]);
    assert_eq!(counts(), [vec![(topic, 2)], all[..1].to_vec()]);
    cancel(timeline, &given[1..2]);
    fire(timeline, Lane::Message, 1000);
    fire(timeline, Lane::Retry, 1000);
    assert_eq!(counts(), [vec![], vec![]]);
}

pub(super) fn what_is_parked_is_listed<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let given = schedule_at(stage, &[10, 20, 30, 40]);
    pause(timeline, given[2]);
    pause(timeline, given[0]);
    let half = store(timeline, order(half(topic)));
    let all = everything(topic);
    for limit in [1, 2, 100] {
        let query = PendingQuery { limit, ..all.clone() };
        assert_eq!(listed(timeline, query), [given[1], given[3], half, given[2], given[0]]);
    }
    let states: Vec<State> =
        list(timeline, all.clone()).iter().map(|entry| entry.state()).collect();
    let (scheduled, paused) = (State::Scheduled, State::Paused);
    assert_eq!(states, [scheduled, scheduled, State::Prepared, paused, paused]);
    let parked = PendingQuery { from: Timestamp::PAUSED, ..all.clone() };
    assert_eq!(listed(timeline, parked), [given[2], given[0]], "the end of time is listed");
    let prepared = PendingQuery { from: Timestamp::PREPARED, ..all.clone() };
    assert_eq!(listed(timeline, prepared)[0], half);
    let to_come = PendingQuery { to: Timestamp::PREPARED, ..all.clone() };
    assert_eq!(listed(timeline, to_come), [given[1], given[3]]);
    let page = PendingQuery { after: Some(shown(timeline, given[2]).key), ..all };
    assert_eq!(listed(timeline, page), given[..1]);
}

pub(super) fn a_listing_is_filtered_by_the_beginning_of_a_key<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let keyed = |key: &'static [u8]| Some(Bytes::from_static(key));
    let keys = [keyed(b"ab"), keyed(b"b"), None, keyed(b"a"), keyed(b"abc"), keyed(b"")];
    let with_key = |(due, key): (u64, &Option<Bytes>)| {
        entry(topic, after(due), Message { key: key.clone(), ..Message::default() })
    };
    let given = schedule(timeline, (0..).zip(&keys).map(with_key).collect());
    let begins = |prefix: &'static [u8]| PendingQuery {
        key_prefix: keyed(prefix),
        limit: 2,
        ..everything(topic)
    };
    assert_eq!(listed(timeline, begins(b"a")), [given[0], given[3], given[4]]);
    assert_eq!(listed(timeline, begins(b"abc")), given[4..5]);
    assert_eq!(listed(timeline, begins(b"abcd")), []);
    let with_any_key = [given[0], given[1], given[3], given[4], given[5]];
    assert_eq!(listed(timeline, begins(b"")), with_any_key, "every key begins with nothing");
    reschedule(timeline, given[0], 100);
    assert_eq!(listed(timeline, begins(b"ab")), [given[4], given[0]], "also what was moved");
    let window = PendingQuery { from: after(4), to: after(100), ..begins(b"ab") };
    assert_eq!(listed(timeline, window), given[4..5]);
}
