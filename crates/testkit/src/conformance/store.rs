//! What a timeline, its topics and their outlet promise together when one store is all three.

use futures_executor::block_on;
use punctual_model::ports::{ArmLimit, Armed, CancelOutcome, LogPosition, Outlet};
use punctual_model::ports::{PendingQuery, Timeline, Topics};
use punctual_model::{Basis, Entry, Lane, State, Timestamp, TopicId, TopicName, TopicSettings};

use super::{after, delicate_messages, message, partition};

/// Holds a store to what its three sides promise together. `make` gives a fresh one each time.
///
/// # Panics
/// Where the store breaks it.
pub fn store<S: Timeline + Topics + Outlet>(make: impl Fn() -> S) {
    a_message_goes_from_schedule_to_the_log(&make());
    deleting_a_topic_withdraws_what_is_pending(&make());
}

fn put<S: Topics>(store: &S, text: &str) -> TopicId {
    let name = TopicName::new(text).expect("suites use legal names");
    let settings = TopicSettings { retention: None, ..TopicSettings::default() };
    store.put(&name, settings).expect("a working store makes topics").id
}

fn entry(topic: TopicId, due: u64) -> Entry {
    let message = message(&format!("due {due}"));
    Entry { topic, partition: partition(1), due: after(due), basis: Basis::Date, message }
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
    assert_eq!(store.counts(), []);
}

fn deleting_a_topic_withdraws_what_is_pending<S: Timeline + Topics + Outlet>(store: &S) {
    let (gone, kept) = (put(store, "gone"), put(store, "kept"));
    let batch = vec![entry(gone, 10), entry(kept, 10), entry(gone, 1000), entry(kept, 1000)];
    let ids = block_on(store.schedule(batch)).expect("a working store takes a batch");
    let mut armed = arm(store, after(100));
    assert_eq!(armed.len(), 2);
    let name = store.by_id(gone).expect("the topic is there").name.clone();
    assert_eq!(store.delete(&name), Ok(true));

    assert_eq!(store.counts(), [(kept, 2)]);
    let (from, to) = (Timestamp::MIN, Timestamp::MAX);
    let query = PendingQuery { topic: gone, from, to, after: None, key: None, limit: 10 };
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
