//! Are the lanes independent of each other: what is scheduled, handed out, settled and cancelled in
//! one, what a restart brings back of it, and what it costs the other?

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step may stop the test")]

mod store_support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_engine::Options;
use punctual_engine::disk::Disk;
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{InLogs, Outcome, Request, Store};
use punctual_model::ports::{ArmLimit, Armed, CancelOutcome, LogPosition, PendingQuery};
use punctual_model::{
    Basis, Entry, Key, Lane, Message, MessageId, Partition, Sequence, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::{Fate, ForgetfulDisk};
use store_support::{at, message, open, small};

const PARTITION: Partition = Partition::new(0).unwrap();
const LIMIT: ArmLimit = ArmLimit { entries: 1000, bytes: 1 << 20 };

fn topic(store: &Store, name: &str) -> TopicId {
    let settings = TopicSettings { partitions: 1, ..TopicSettings::default() };
    let request = Request::PutTopic(TopicName::new(name).unwrap(), settings);
    match store.commit(vec![request]).remove(0) {
        Ok(Outcome::Topic(topic)) => topic.id,
        other => panic!("{other:?}"),
    }
}

fn draft(topic: TopicId, lane: Lane, dues: &[u64]) -> Request {
    let entry = |(number, &due): (usize, &u64)| Entry {
        topic,
        partition: PARTITION,
        due: at(due),
        basis: Basis::Delay,
        message: message(number),
        extra: None,
    };
    Request::Schedule(Draft::new(&dues.iter().enumerate().map(entry).collect::<Vec<_>>(), lane))
}

fn schedule(store: &Store, topic: TopicId, lane: Lane, dues: &[u64]) -> Vec<MessageId> {
    match store.commit(vec![draft(topic, lane, dues)]).remove(0) {
        Ok(Outcome::Scheduled(first)) => ids(topic, first, dues),
        other => panic!("{other:?}"),
    }
}

fn ids(topic: TopicId, first: Sequence, dues: &[u64]) -> Vec<MessageId> {
    let id = |(sequence, &due): (u64, &u64)| {
        let key = Key { due: at(due), sequence: Sequence::new(sequence).unwrap() };
        MessageId { topic, partition: PARTITION, key }
    };
    (first.get()..).zip(dues).map(id).collect()
}

fn cancel(store: &Store, ids: &[MessageId]) -> Vec<CancelOutcome> {
    let in_logs = InLogs::Known(store.past_in_logs(ids).unwrap());
    match store.commit(vec![Request::Cancel(ids.to_vec(), in_logs)]).remove(0) {
        Ok(Outcome::Cancelled(outcomes)) => outcomes,
        other => panic!("{other:?}"),
    }
}

fn arm(store: &Store, lane: Lane, until: u64) -> Vec<Armed> {
    store.arm(lane, at(until), LIMIT).unwrap()
}

fn ids_of(batch: &[Armed]) -> Vec<MessageId> {
    batch.iter().map(Armed::id).collect()
}

/// Delivers what is due in a lane; answers the ids.
fn fire(store: &Store, lane: Lane, until: u64) -> Vec<MessageId> {
    let mut batch = arm(store, lane, until);
    store.claim(&mut batch).unwrap();
    store.deliver(&batch, at(until)).unwrap();
    store.settle(&batch).unwrap();
    ids_of(&batch)
}

fn delivered(store: &Store, topic: TopicId) -> Vec<MessageId> {
    let from = LogPosition { topic, partition: PARTITION, offset: 0 };
    store.logs().read(from, 1000).unwrap().into_iter().map(|delivered| delivered.id).collect()
}

/// All pending entries of both lanes, in key order.
fn pending(store: &Store, topic: TopicId, limit: usize) -> Vec<MessageId> {
    let mut found: Vec<MessageId> =
        Lane::ALL.into_iter().flat_map(|lane| pending_in(store, topic, lane, limit)).collect();
    found.sort_unstable();
    found
}

/// The pending entries of a lane as they are listed, in pages of `limit`.
fn pending_in(store: &Store, topic: TopicId, lane: Lane, limit: usize) -> Vec<MessageId> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .pending(PendingQuery { after, ..PendingQuery::all_of(topic, lane, limit) })
            .unwrap();
        assert!(page.entries.len() <= limit);
        found.extend(page.entries.iter().map(|entry| entry.id));
        let Some(next) = page.next else { return found };
        after = Some(next);
    }
}

fn files(disk: &ForgetfulDisk, dir: &str) -> BTreeSet<String> {
    disk.list(Path::new(dir)).unwrap().into_iter().collect()
}

#[test]
fn each_lane_hands_out_its_own() {
    let store = open(&ForgetfulDisk::new(), &small()).unwrap();
    let topic = topic(&store, "lanes");
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    store.listen(Arc::new(move |lane| heard.lock().push(lane)));
    let messages = schedule(&store, topic, Lane::Message, &[10, 30]);
    let retries = schedule(&store, topic, Lane::Retry, &[20, 5]);
    assert!(messages.iter().all(|id| id.key.sequence.lane() == Lane::Message));
    assert!(retries.iter().all(|id| id.key.sequence.lane() == Lane::Retry));
    assert_eq!(ids_of(&arm(&store, Lane::Retry, 100)), [retries[1], retries[0]]);
    assert_eq!(told.lock().as_slice(), [], "nobody had asked yet");
    schedule(&store, topic, Lane::Message, &[40]);
    assert_eq!(told.lock().as_slice(), [], "nobody has asked for this lane");
    schedule(&store, topic, Lane::Retry, &[40]);
    assert_eq!(told.lock().as_slice(), [Lane::Retry]);
    assert_eq!(fire(&store, Lane::Message, 31), messages);
    assert_eq!(store.counts(), [(topic, 4)]);
    assert_eq!(delivered(&store, topic), messages);
    // Both in one group.
    let requests = vec![draft(topic, Lane::Retry, &[50]), draft(topic, Lane::Message, &[50])];
    let answers = store.commit(requests);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(arm(&store, Lane::Message, 100).len(), 2);
    assert_eq!(arm(&store, Lane::Retry, 100).len(), 2);
}

#[test]
fn each_lane_is_listed_in_order() {
    let store = open(&ForgetfulDisk::new(), &small()).unwrap();
    let topic = topic(&store, "lanes");
    let mut all = schedule(&store, topic, Lane::Message, &[10, 20, 20, 30, 90, 91, 92, 93]);
    all.extend(schedule(&store, topic, Lane::Retry, &[5, 20, 21, 22, 23, 24, 25, 91]));
    store.freeze();
    store.upkeep(at(0), false).unwrap();
    all.extend(schedule(&store, topic, Lane::Message, &[1, 22, 100]));
    all.extend(schedule(&store, topic, Lane::Retry, &[2, 20, 22, 99]));
    all.sort_unstable();
    for limit in [1, 2, 3, 7, 100] {
        for lane in Lane::ALL {
            let mut wanted = all.clone();
            wanted.retain(|id| id.key.sequence.lane() == lane);
            assert_eq!(pending_in(&store, topic, lane, limit), wanted, "in pages of {limit}");
        }
    }
    assert_eq!(store.counts(), [(topic, all.len() as u64)]);
}

#[test]
fn a_cancel_may_name_messages_of_both_lanes() {
    use CancelOutcome::{AlreadyCancelled, AlreadyDelivered, Cancelled, NotFound};
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let topic = topic(&store, "lanes");
    let messages = schedule(&store, topic, Lane::Message, &[10, 5000, 9_000_000]);
    let retries = schedule(&store, topic, Lane::Retry, &[10, 5000, 9_000_000]);
    store.freeze();
    store.upkeep(at(0), false).unwrap();
    fire(&store, Lane::Message, 11);
    fire(&store, Lane::Retry, 11);
    let mut stranger = retries[2];
    stranger.key.sequence = Sequence::new(stranger.key.sequence.get() + 1).unwrap();
    let asked =
        [retries[1], messages[0], messages[1], retries[1], stranger, retries[0], messages[1]];
    let told =
        [Cancelled, AlreadyDelivered, Cancelled, AlreadyCancelled, NotFound, AlreadyDelivered];
    assert_eq!(cancel(&store, &asked)[..6], told);
    assert_eq!(cancel(&store, &asked)[..3], [AlreadyCancelled, AlreadyDelivered, AlreadyCancelled]);
    let left = [messages[2], retries[2]];
    assert_eq!(pending(&store, topic, 10), left);
    drop(store);
    let again = open(&disk.reopen(), &small()).unwrap();
    assert_eq!(pending(&again, topic, 10), left, "after a restart");
    assert_eq!(cancel(&again, &asked)[..3], [AlreadyCancelled, AlreadyDelivered, AlreadyCancelled]);
    assert_eq!(fire(&again, Lane::Message, 10_000_000), [messages[2]]);
    assert_eq!(fire(&again, Lane::Retry, 10_000_000), [retries[2]]);
}

#[test]
fn a_deleted_topic_is_gone_from_both_lanes() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let (gone, kept) = (topic(&store, "gone"), topic(&store, "kept"));
    let mut left = Vec::new();
    for lane in Lane::ALL {
        schedule(&store, gone, lane, &[10, 9_000_000]);
        left.extend(schedule(&store, kept, lane, &[20]));
    }
    store.freeze();
    store.upkeep(at(0), false).unwrap();
    let answer =
        store.commit(vec![Request::DeleteTopic(TopicName::new("gone").unwrap())]).remove(0);
    assert!(matches!(answer, Ok(Outcome::Deleted(true))));
    let look = |store: &Store| {
        assert_eq!(store.counts(), [(kept, 2)]);
        let found: Vec<_> =
            Lane::ALL.iter().flat_map(|&lane| arm(store, lane, 10_000_000)).collect();
        assert_eq!(ids_of(&found), left);
    };
    look(&store);
    drop(store);
    look(&open(&disk.reopen(), &small()).unwrap());
}

/// One lane has been written out and the other has not, in all combinations: the journal is read
/// from where the one needs it, and brings nothing of the other back.
#[test]
fn a_restart_brings_back_each_lane_from_where_it_was() {
    for ahead in Lane::ALL {
        let behind = if ahead == Lane::Message { Lane::Retry } else { Lane::Message };
        let disk = ForgetfulDisk::new();
        let options = Options { table_bytes: 4000, ..small() };
        let store = open(&disk, &options).unwrap();
        let topic = topic(&store, "lanes");
        let mut fired = Vec::new();
        let mut left = schedule(&store, topic, behind, &[9_000_000, 9_000_001]);
        let doomed = schedule(&store, topic, behind, &[9_000_002]);
        for round in 0..12 {
            let due = 100 + round;
            let batch = schedule(&store, topic, ahead, &[due, due, 8_000_000 + round, 7]);
            let soon = schedule(&store, topic, behind, &[due]);
            assert_eq!(cancel(&store, &batch[..1]), [CancelOutcome::Cancelled]);
            store.upkeep(at(due), round % 3 == 0).unwrap();
            fired.extend(fire(&store, ahead, due + 1));
            fired.extend(fire(&store, behind, due + 1));
            assert!(fired.contains(&soon[0]) && fired.contains(&batch[1]));
            left.push(batch[2]);
        }
        assert_eq!(cancel(&store, &doomed), [CancelOutcome::Cancelled]);
        assert!(!files(&disk, "timeline").is_empty(), "one lane has runs");
        left.sort_unstable();
        let killed = open(&disk.reopen(), &options).unwrap();
        assert_eq!(pending(&killed, topic, 7), left, "{ahead:?} is ahead");
        assert_eq!(killed.counts(), [(topic, left.len() as u64)]);
        let all: BTreeSet<MessageId> = fired.iter().chain(&left).copied().collect();
        // What was delivered and not synced is delivered again.
        for image in [disk.reopen(), disk.crash_image(|_| Fate::Lost)] {
            let again = open(&image, &options).unwrap();
            for lane in Lane::ALL {
                fire(&again, lane, 10_000_000);
            }
            let found = delivered(&again, topic);
            assert_eq!(found.len(), all.len(), "each once");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), all);
            let next = schedule(&again, topic, ahead, &[1]);
            assert!(all.iter().all(|id| id.key.sequence != next[0].key.sequence));
        }
    }
}

/// What one lane gave to the logs and has not settled stays pending for a checkpoint, although the
/// other lane settles.
#[test]
fn a_lane_that_settles_does_not_settle_for_the_other() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let topic = topic(&store, "lanes");
    let messages = schedule(&store, topic, Lane::Message, &[10]);
    let retries = schedule(&store, topic, Lane::Retry, &[10]);
    let mut batch = arm(&store, Lane::Message, 11);
    store.claim(&mut batch).unwrap();
    store.deliver(&batch, at(11)).unwrap();
    fire(&store, Lane::Retry, 11);
    store.checkpoint(at(11)).unwrap();
    let killed = open(&disk.reopen(), &small()).unwrap();
    for lane in Lane::ALL {
        assert_eq!(arm(&killed, lane, 1000).len(), 0, "in the log and handed out again");
    }
    assert_eq!(killed.counts(), []);
    assert_eq!(delivered(&killed, topic), [messages[0], retries[0]]);
    store.settle(&batch).unwrap();
    store.checkpoint(at(12)).unwrap();
}

/// Fills the journal through the message lane, whose tables are written out all the time.
fn fill(store: &Store, topic: TopicId, rounds: u64) {
    for round in 0..rounds {
        schedule(store, topic, Lane::Message, &[9_000_000 + round, 9_000_000, 9_000_001]);
        store.upkeep(at(0), false).unwrap();
    }
}

#[test]
fn an_empty_lane_does_not_keep_the_journal() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let topic = topic(&store, "lanes");
    fill(&store, topic, 200);
    let few = files(&disk, "journal").len();
    assert!(few <= 8, "{few} files for a journal of which little is needed");
    // One entry keeps it for a while, and then it is written out.
    let retries = schedule(&store, topic, Lane::Retry, &[5_000_000]);
    fill(&store, topic, 200);
    let files = files(&disk, "journal").len();
    assert!(files <= few + 4, "{files} files for a journal of which little is needed");
    drop(store);
    let again = open(&disk.reopen(), &small()).unwrap();
    assert_eq!(again.counts(), [(topic, 1201)]);
    assert_eq!(fire(&again, Lane::Retry, 6_000_000), retries);
}

/// A lane that was empty when a checkpoint was made gets its first entries afterwards.
#[test]
fn what_comes_into_an_empty_lane_after_a_checkpoint_survives() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small()).unwrap();
    let topic = topic(&store, "lanes");
    fill(&store, topic, 100);
    store.freeze();
    store.upkeep(at(0), true).unwrap();
    store.checkpoint(at(0)).unwrap();
    let mut retries = Vec::new();
    for round in 0..3 {
        retries.extend(schedule(&store, topic, Lane::Retry, &[10 + round]));
        for image in [disk.reopen(), disk.crash_image(|_| Fate::Lost)] {
            let again = open(&image, &small()).unwrap();
            assert_eq!(ids_of(&arm(&again, Lane::Retry, 100)), retries);
            assert_eq!(again.counts(), [(topic, 300 + retries.len() as u64)]);
        }
        store.checkpoint(at(0)).unwrap();
    }
}

#[test]
fn a_million_retries_do_not_keep_a_message_waiting() {
    let options = Options {
        table_bytes: 16 << 20,
        near_bytes: 8 << 20,
        journal_file_bytes: 16 << 20,
        ..Options::default()
    };
    let store = open(&ForgetfulDisk::new(), &options).unwrap();
    let topic = topic(&store, "lanes");
    let entry = Entry {
        topic,
        partition: PARTITION,
        due: at(0),
        basis: Basis::Delay,
        message: Message { body: Bytes::from_static(b"again"), ..Message::default() },
        extra: None,
    };
    let storm = vec![entry; 10_000];
    for _ in 0..100 {
        let answer =
            store.commit(vec![Request::Schedule(Draft::new(&storm, Lane::Retry))]).remove(0);
        assert!(answer.is_ok(), "{answer:?}");
        store.upkeep(at(0), false).unwrap();
    }
    let message = schedule(&store, topic, Lane::Message, &[0]);
    assert_eq!(store.counts(), [(topic, 1_000_001)]);
    assert!(store.has_room(Lane::Message));
    let first = ArmLimit { entries: 1, bytes: 1 << 20 };
    assert_eq!(ids_of(&store.arm(Lane::Message, at(1), first).unwrap()), message);
    let storm = store.arm(Lane::Retry, at(1), LIMIT).unwrap();
    assert_eq!(storm.len(), LIMIT.entries);
    assert!(store.arm(Lane::Message, at(1), first).unwrap().is_empty());
}
