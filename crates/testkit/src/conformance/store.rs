//! What a timeline, its topics and their outlet promise together when one store is all three.

use futures_executor::block_on;
use punctual_engine::log::batch::{OWN_ID_HEADER, SERIES_HEADER};
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Done, LogPosition, OnConflict, Order, Outlet, PendingQuery,
    Revised, Timeline, Topics,
};
use punctual_model::{
    Basis, Changed, Entry, Key, Lane, Link, MessageId, OwnId, State, Timestamp, TopicId, TopicName,
    TopicSettings,
};

use super::{after, delicate_messages, message, partition};

/// Holds a store to what its three sides promise together. `make` gives a fresh one each time.
///
/// # Panics
/// Where the store breaks it.
pub fn store<S: Timeline + Topics + Outlet>(make: impl Fn() -> S) {
    a_message_goes_from_schedule_to_the_log(&make());
    a_moved_message_is_in_the_log_under_its_id(&make());
    what_a_message_is_called_travels_with_it(&make());
    deleting_a_topic_withdraws_what_is_pending(&make());
    a_deleted_topic_takes_its_own_ids_along(&make());
}

fn put<S: Topics>(store: &S, text: &str) -> TopicId {
    let name = TopicName::new(text).expect("suites use legal names");
    let settings = TopicSettings { retention: None, ..TopicSettings::default() };
    store.put(&name, settings).expect("a working store makes topics").id
}

fn entry(topic: TopicId, due: u64) -> Entry {
    let message = message(&format!("due {due}"));
    let (partition, due) = (partition(1), after(due));
    Entry { topic, partition, due, basis: Basis::Date, message, extra: None }
}

/// Everything due before `until` that nobody has withdrawn.
fn claim<S: Timeline>(store: &S, until: Timestamp) -> Vec<Armed> {
    let mut batch = arm(store, until);
    block_on(store.claim(&mut batch)).expect("a working store lets claim");
    batch
}

fn arm<S: Timeline>(store: &S, until: Timestamp) -> Vec<Armed> {
    let limit = ArmLimit { entries: 1000, bytes: 64 << 20 };
    let mut all = Vec::new();
    loop {
        let armed = block_on(store.arm(Lane::Message, until, limit)).expect("a working store arms");
        if armed.is_empty() {
            return all;
        }
        all.extend(armed);
        assert!(all.len() < 100_000, "a store that never runs dry hands out entries again");
    }
}

fn a_message_goes_from_schedule_to_the_log<S: Timeline + Topics + Outlet>(store: &S) {
    let topic = put(store, "orders");
    let sent = delicate_messages();
    let batch = sent.iter().map(|message| Entry { message: message.clone(), ..entry(topic, 10) });
    let ids = block_on(store.schedule(batch.collect())).expect("a working store takes a batch");
    let batch = claim(store, after(11));
    block_on(store.deliver(&batch, after(12))).expect("a working outlet takes a batch");
    block_on(store.settle(&batch)).expect("a working store settles");

    let start = LogPosition { topic, partition: partition(1), offset: 0 };
    for (index, id) in ids.iter().enumerate() {
        let delivered = store.locate(*id).expect("the log is whole").expect("it was delivered");
        assert!(delivered.message == sent[index], "message {index} was changed on the way");
        assert_eq!((delivered.id, delivered.delivered_at), (*id, after(12)));
        let place = LogPosition { offset: delivered.offset, ..start };
        let read = store.read(place, 1).expect("the partition is there");
        assert!(read == [delivered], "message {index} is not at its offset");
    }
    for found in block_on(store.find(ids)).expect("a working store finds") {
        assert_eq!(found.map(|found| found.state), Some(State::Delivered));
    }
    assert_eq!(store.counts(Lane::Message), []);
}

/// What moves a message from where it stands.
fn moved(id: MessageId, expected: Key, due: u64) -> Order {
    let changed = Changed { first: id.key, version: 2 };
    let entry = entry(id.topic, due).with_extra(|extra| extra.changed = Some(changed));
    Order::Replace { id, expected, entry }
}

fn a_moved_message_is_in_the_log_under_its_id<S: Timeline + Topics + Outlet>(store: &S) {
    let topic = put(store, "orders");
    let ids = block_on(store.schedule(vec![entry(topic, 1000), entry(topic, 20)]));
    let ids = ids.expect("a working store takes a batch");
    let orders = vec![moved(ids[0], ids[0].key, 10)];
    let revised = block_on(store.revise(orders)).expect("a working store revises");
    assert!(matches!(revised, Revised::Done(done) if matches!(done[..], [Done::Moved(_)])));
    let batch = claim(store, after(50));
    block_on(store.deliver(&batch, after(60))).expect("a working outlet takes a batch");
    block_on(store.settle(&batch)).expect("a working store settles");
    for (id, due) in [(ids[0], 10), (ids[1], 20)] {
        let delivered = store.locate(id).expect("the log is whole").expect("it was delivered");
        assert_eq!((delivered.id, delivered.due), (id, after(due)), "when it was due in the end");
        assert_eq!(delivered.message, message(&format!("due {due}")));
        let start = LogPosition { topic, partition: partition(1), offset: delivered.offset };
        assert_eq!(store.read(start, 1), Ok(vec![delivered]));
    }
    let found = block_on(store.find(ids.clone())).expect("a working store finds");
    let states: Vec<_> = found.into_iter().map(|found| found.map(|found| found.state)).collect();
    assert_eq!(states, [Some(State::Delivered); 2]);
    let outcomes = block_on(store.cancel(ids)).expect("a working store cancels");
    assert_eq!(outcomes, [CancelOutcome::AlreadyDelivered; 2]);
}

fn what_a_message_is_called_travels_with_it<S: Timeline + Topics + Outlet>(store: &S) {
    let topic = put(store, "orders");
    let plain = block_on(store.schedule(vec![entry(topic, 5)]));
    let series = plain.expect("a working store takes a batch")[0];
    let named = entry(topic, 10).with_extra(|extra| {
        extra.own_id = Some(OwnId { text: "größe-1".into(), print: 1 });
        extra.series = Some(Link::Id(series));
    });
    let order = Order::Schedule { lane: Lane::Message, entry: named, conflict: OnConflict::Reject };
    assert!(matches!(block_on(store.revise(vec![order])), Ok(Revised::Done(_))));
    let batch = claim(store, after(50));
    block_on(store.deliver(&batch, after(60))).expect("a working outlet takes a batch");
    block_on(store.settle(&batch)).expect("a working store settles");
    let start = LogPosition { topic, partition: partition(1), offset: 0 };
    let delivered = store.read(start, 10).expect("the log is whole");
    assert_eq!(delivered[0].message.headers, [], "nothing is added to others");
    let headers = &delivered[1].message.headers;
    let value =
        |name: &str| headers.iter().find(|header| header.name == name).map(|h| &h.value[..]);
    assert_eq!(headers.len(), 2);
    assert_eq!(value(OWN_ID_HEADER), Some("größe-1".as_bytes()));
    assert_eq!(value(SERIES_HEADER), Some(series.to_string().as_bytes()));
}

fn a_deleted_topic_takes_its_own_ids_along<S: Timeline + Topics + Outlet>(store: &S) {
    let first = put(store, "orders");
    let order = |topic| Order::Schedule {
        lane: Lane::Message,
        entry: entry(topic, 1000).with_extra(|extra| {
            extra.own_id = Some(OwnId { text: "mine".into(), print: 1 });
        }),
        conflict: OnConflict::Reject,
    };
    let send = |topic| match block_on(store.revise(vec![order(topic)])) {
        Ok(Revised::Done(done)) => done[0],
        other => unreachable!("a working store revises: {other:?}"),
    };
    let Done::Stored(id) = send(first) else { unreachable!("it is new") };
    let orders = vec![moved(id, id.key, 2000)];
    assert!(matches!(block_on(store.revise(orders)), Ok(Revised::Done(_))));
    assert_eq!(send(first), Done::Known(id));
    let name = store.by_id(first).expect("the topic is there").name.clone();
    assert_eq!(store.delete(&name), Ok(true));
    let found = block_on(store.find(vec![id])).expect("a working store finds");
    assert!(found[0].as_ref().is_none_or(|found| found.entry.is_none()), "nothing is pending");
    assert_eq!(block_on(store.named(first, vec!["mine".into()])), Ok(vec![None]));
    let again = put(store, "orders");
    assert_eq!(block_on(store.named(again, vec!["mine".into()])), Ok(vec![None]));
    assert!(matches!(send(again), Done::Stored(other) if other != id), "a new topic");
    assert_eq!(claim(store, after(5000)).len(), 1, "only what is pending in the new one");
}

fn deleting_a_topic_withdraws_what_is_pending<S: Timeline + Topics + Outlet>(store: &S) {
    let (gone, kept) = (put(store, "gone"), put(store, "kept"));
    let batch = vec![entry(gone, 10), entry(kept, 10), entry(gone, 1000), entry(kept, 1000)];
    let ids = block_on(store.schedule(batch)).expect("a working store takes a batch");
    let mut armed = arm(store, after(100));
    assert_eq!(armed.len(), 2);
    let name = store.by_id(gone).expect("the topic is there").name.clone();
    assert_eq!(store.delete(&name), Ok(true));

    assert_eq!(store.counts(Lane::Message), [(kept, 2)]);
    let query = PendingQuery::all_of(gone, Lane::Message, 10);
    let page = block_on(store.pending(query)).expect("a working store lists");
    assert!(page.entries.is_empty(), "nothing of a deleted topic is pending");
    for outcome in block_on(store.cancel(vec![ids[0], ids[2]])).expect("a working store cancels") {
        assert_ne!(outcome, CancelOutcome::Cancelled, "there was nothing left to withdraw");
        assert_ne!(outcome, CancelOutcome::AlreadyDelivered, "it was never delivered");
    }
    block_on(store.claim(&mut armed)).expect("a working store lets claim");
    assert_eq!(armed.iter().map(Armed::id).collect::<Vec<_>>(), [ids[1]], "armed before");
    block_on(store.settle(&armed)).expect("a working store settles");
    let again = put(store, "gone");
    assert_ne!(again, gone);
    let later = claim(store, after(2000));
    assert_eq!(later.iter().map(Armed::id).collect::<Vec<_>>(), [ids[3]], "armed after");
}
