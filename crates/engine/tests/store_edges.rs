//! Does the store hold at the edges that only threads and small disks reach: a checkpoint amid a
//! delivery, a journal that finds no room, a start on a full disk?

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step may stop the test")]

mod store_support;

use punctual_engine::Options;
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{CommitError, InLogs, Outcome, Request, Store};
use punctual_model::ports::{ArmLimit, Armed, CancelOutcome, LogPosition, StoreError};
use punctual_model::{
    Basis, Entry, Key, Lane, MessageId, Partition, Sequence, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;
use store_support::{at, message, open, small};

const PARTITION: Partition = Partition::new(0).unwrap();

fn topic(store: &Store) -> TopicId {
    let name = TopicName::new("edges").unwrap();
    let settings = TopicSettings { partitions: 1, ..TopicSettings::default() };
    match store.commit(vec![Request::PutTopic(name, settings)]).remove(0) {
        Ok(Outcome::Topic(topic)) => topic.id,
        other => panic!("{other:?}"),
    }
}

/// Schedules one message; answers its id.
fn schedule(store: &Store, topic: TopicId, number: usize, due: Timestamp) -> Option<MessageId> {
    let entry = Entry {
        topic,
        partition: PARTITION,
        due,
        basis: Basis::Delay,
        message: message(number),
        extra: None,
    };
    match store.commit(vec![Request::Schedule(Draft::new(&[entry], Lane::Message))]).remove(0) {
        Ok(Outcome::Scheduled(sequence)) => Some(id(topic, due, sequence)),
        Err(CommitError::Store(StoreError::Full)) => None,
        other => panic!("{other:?}"),
    }
}

fn id(topic: TopicId, due: Timestamp, sequence: Sequence) -> MessageId {
    MessageId { topic, partition: PARTITION, key: Key { due, sequence } }
}

fn cancel(store: &Store, id: MessageId) -> CancelOutcome {
    let in_logs = InLogs::Known(store.past_in_logs(&[id]).unwrap());
    match store.commit(vec![Request::Cancel(vec![id], in_logs)]).remove(0) {
        Ok(Outcome::Cancelled(outcomes)) => outcomes[0],
        other => panic!("{other:?}"),
    }
}

fn arm(store: &Store, until: Timestamp) -> Vec<Armed> {
    store.arm(Lane::Message, until, ArmLimit { entries: 1000, bytes: 1 << 20 }).unwrap()
}

fn delivered(store: &Store, topic: TopicId) -> usize {
    let from = LogPosition { topic, partition: PARTITION, offset: 0 };
    store.logs().read(from, 1000).unwrap().len()
}

#[test]
fn g18_a_checkpoint_amid_a_delivery_does_not_repeat_it() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let topic = topic(&store);
    for round in 0..3 {
        for number in 0..3 {
            schedule(&store, topic, number, at(round)).unwrap();
        }
        let mut batch = arm(&store, at(round + 1));
        assert_eq!(batch.len(), 3);
        store.claim(&mut batch).unwrap();
        store.deliver(&batch, at(round)).unwrap();
        store.checkpoint(at(round)).unwrap();
        let killed = open(&disk.reopen(), &small()).unwrap();
        assert_eq!(arm(&killed, at(1000)).len(), 0, "in the log and handed out again");
        assert_eq!(killed.counts(), []);
        store.settle(&batch).unwrap();
        store.checkpoint(at(round)).unwrap();
    }
    assert_eq!(delivered(&store, topic), 9);
}

/// What was handed out before a merge and ends before the merged run is read comes only once,
/// although another of the merged runs has not been read as far.
#[test]
fn g18_a_merge_amid_a_delivery_does_not_repeat_it() {
    let disk = ForgetfulDisk::new();
    let options = Options { runs_max: 2, table_bytes: 1 << 20, near_bytes: 1 << 20, ..small() };
    let store = open(&disk, &options).unwrap();
    let topic = topic(&store);
    let write_out = |dues: &[u64]| {
        for (number, &due) in dues.iter().enumerate() {
            schedule(&store, topic, number, at(due)).unwrap();
        }
        store.freeze();
        store.upkeep(at(0), true).unwrap()
    };
    // One run is read up to 300, the other stays where its only entry before that was.
    write_out(&[100, 9_000_000]);
    write_out(&[200, 300, 9_000_001]);
    let mut batch = arm(&store, at(301));
    assert_eq!(batch.len(), 3);
    store.claim(&mut batch).unwrap();
    assert!(write_out(&[9_000_002, 9_000_003, 9_000_004, 9_000_005]).merged);
    store.deliver(&batch, at(301)).unwrap();
    store.settle(&batch).unwrap();
    assert_eq!(arm(&store, at(1000)).len(), 0, "handed out again after the merge");
    assert_eq!(delivered(&store, topic), 3);
    store.checkpoint(at(1000)).unwrap();
    let killed = open(&disk.reopen(), &options).unwrap();
    assert_eq!(arm(&killed, at(1000)).len(), 0, "handed out again after a restart");
    assert_eq!(arm(&killed, at(10_000_000)).len(), 6);
}

/// A disk without room, on which the journal could not go on.
fn full(disk: &ForgetfulDisk, options: &Options) -> (Store, TopicId, Vec<MessageId>) {
    let store = open(disk, options).unwrap();
    let topic = topic(&store);
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(schedule(&store, topic, number, at(10)).unwrap());
    }
    disk.capacity(Some(disk.used()));
    let mut more = 0;
    while let Some(id) = schedule(&store, topic, more, at(3_600_000)) {
        ids.push(id);
        more += 1;
    }
    assert!(store.is_full());
    (store, topic, ids)
}

fn sizes() -> Options {
    // Nothing but the journal grows, and a file of it takes what is set aside.
    Options {
        table_bytes: 1 << 20,
        near_bytes: 1 << 20,
        journal_file_bytes: 256 << 10,
        reserve_bytes: 256 << 10,
        ..small()
    }
}

/// Delivers what is due and cancels what is not.
fn goes_on(store: &Store, topic: TopicId, ids: &[MessageId]) {
    for id in ids {
        assert_eq!(cancel(store, *id), CancelOutcome::Cancelled);
    }
    let mut batch = arm(store, at(11));
    store.claim(&mut batch).unwrap();
    store.deliver(&batch, at(10)).unwrap();
    store.settle(&batch).unwrap();
    assert_eq!(delivered(store, topic), 10);
    assert!(schedule(store, topic, 0, at(20)).is_none(), "still full");
}

#[test]
fn g6_a_journal_without_room_leaves_the_reserve_to_deliveries_and_cancels() {
    let disk = ForgetfulDisk::new();
    let (store, topic, ids) = full(&disk, &sizes());
    goes_on(&store, topic, &ids[10..]);
    disk.capacity(None);
    store.maintain(at(30)).unwrap();
    assert!(schedule(&store, topic, 0, at(3_600_000)).is_some(), "there is room again");
    drop(store);
    let again = open(&disk.reopen(), &sizes()).unwrap();
    assert_eq!(delivered(&again, topic), 10);
    assert_eq!(again.counts(), [(topic, 1)]);
}

#[test]
fn g6_g7_a_start_on_a_full_disk_goes_on_as_before() {
    let disk = ForgetfulDisk::new();
    let (store, _, _) = full(&disk, &sizes());
    drop(store);
    let disk = disk.reopen();
    disk.capacity(Some(disk.used() + (64 << 10)));
    for _ in 0..3 {
        // Every start would like a journal file of its own.
        drop(open(&disk, &sizes()).unwrap());
    }
    let store = open(&disk, &sizes()).unwrap();
    let topic = topic(&store);
    let first = id(topic, at(3_600_000), Sequence::new(10).unwrap());
    goes_on(&store, topic, &[first]);
}
