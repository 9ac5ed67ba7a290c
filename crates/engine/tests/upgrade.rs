//! A directory of every format there was opens, with all that was in it.
//!
//! `fixtures/format-1` was written by the last program of that format: messages 0 to 19 in a run, of
//! which 0 to 7 are delivered and 8 and 9 cancelled, then a checkpoint, then 20 to 29, of which 20 is
//! cancelled and 21 delivered. `fixtures/format-3` likewise: messages 0 to 19 in a run, of which 0 to 7 are
//! delivered, and a group that has settled 0; then a checkpoint, then 20, which has an own id, to 29, of which
//! 8 and 9 are delivered.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use punctual_engine::Options;
use punctual_engine::disk::RealDisk;
use punctual_engine::store::{Appending, Outcome, Request, Store};
use punctual_kafka_wire::records::{BatchWriter, NewRecord, Opening};
use punctual_model::group::{GroupSettings, Source, Start};
use punctual_model::ports::{Append, ArmLimit, LogPosition};
use punctual_model::{GroupName, Lane, Partition, Timestamp, TopicKind, TopicName};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn open(dir: &Path) -> Store {
    let options = Options { reserve_bytes: 4096, ..Options::default() };
    Store::open(Arc::new(RealDisk::new(dir).unwrap()), options).unwrap()
}

/// The numbers that the messages were sent with.
fn numbers(store: &Store, partition: u16) -> Vec<u64> {
    let topic = store.topic_by_name(&TopicName::new("orders").unwrap()).unwrap().id;
    let partition = Partition::new(partition).unwrap();
    let page = store.logs().read(LogPosition { topic, partition, offset: 0 }, 100).unwrap();
    let number = |body: &[u8]| std::str::from_utf8(body).unwrap()[5..].parse().unwrap();
    page.iter().map(|delivered| number(&delivered.message.body)).collect()
}

fn deliver_all(store: &Store) -> usize {
    let now = Timestamp::from_millis(1 << 41).unwrap();
    let limit = ArmLimit { entries: 100, bytes: 1 << 20 };
    let mut batch = store.arm(Lane::Message, now, limit).unwrap();
    store.claim(&mut batch).unwrap();
    store.deliver(&batch, now).unwrap();
    store.settle(&batch).unwrap();
    batch.len()
}

#[test]
fn format_1_is_brought_up_with_all_that_was_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    copy(&fixture, dir.path());
    let store = open(dir.path());
    assert!(fs::read_to_string(dir.path().join("FORMAT")).unwrap().starts_with("punctual=4\n"));
    let topic = store.topic_by_name(&TopicName::new("orders").unwrap()).unwrap();
    assert_eq!(
        (topic.kind, topic.settings.partitions, topic.key_partitions),
        (TopicKind::Plain, 2, 2)
    );
    assert_eq!(numbers(&store, 0), [0, 2, 4, 6]);
    assert_eq!(numbers(&store, 1), [1, 3, 5, 7, 21]);
    assert_eq!(store.counts(), [(topic.id, 18)]);
    store.checkpoint(Timestamp::from_millis(3_000).unwrap()).unwrap();
    drop(store);

    let store = open(dir.path());
    assert_eq!(deliver_all(&store), 18);
    assert_eq!(deliver_all(&store), 0);
    let delivered: BTreeSet<u64> = [0, 1].into_iter().flat_map(|p| numbers(&store, p)).collect();
    let expected: BTreeSet<u64> = (0..8).chain(10..20).chain(21..30).collect();
    assert_eq!(delivered, expected);
    let name = GroupName::new("billing").unwrap();
    let put = Request::PutGroup(topic.id, name, GroupSettings::default(), Start::Earliest);
    let Some(Ok(Outcome::Group(group))) = store.commit(vec![put]).pop() else {
        panic!("a group can be made");
    };
    let source = Source { group: group.id, topic: topic.id, partition: Partition::new(0).unwrap() };
    assert_eq!(store.pull(source, 0, 100).unwrap().messages.len(), numbers(&store, 0).len());
}

#[test]
fn format_3_is_brought_up_and_takes_batches_of_producers() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-3");
    copy(&fixture, dir.path());
    let store = open(dir.path());
    assert!(fs::read_to_string(dir.path().join("FORMAT")).unwrap().starts_with("punctual=4\n"));
    let topic = store.topic_by_name(&TopicName::new("orders").unwrap()).unwrap();
    assert_eq!(numbers(&store, 0), [0, 2, 4, 6, 8]);
    assert_eq!(numbers(&store, 1), [1, 3, 5, 7, 9]);
    assert_eq!(store.counts(), [(topic.id, 20)]);
    let group = store.group_by_name(topic.id, &GroupName::new("billing").unwrap()).unwrap();
    let source = Source { group: group.id, topic: topic.id, partition: Partition::new(0).unwrap() };
    assert_eq!(store.pull(source, 0, 100).unwrap().messages.len(), 4);
    let now = Timestamp::from_millis(1_700_000_000_100).unwrap();
    assert!(store.named(topic.id, &["order-20"], now).unwrap()[0].is_some());
    let mut writer = BatchWriter::new(Opening::default());
    writer.push(&NewRecord { value: Some(b"body-100"), ..NewRecord::default() });
    let append = Append {
        topic: topic.id,
        partition: Partition::new(0).unwrap(),
        batch: writer.finish().unwrap(),
        entries: Vec::new(),
        aliases: Vec::new(),
    };
    let append = Request::Append(Box::new(Appending::new(append, now).unwrap()));
    store.commit(vec![append]).remove(0).unwrap();
    assert_eq!(numbers(&store, 0), [0, 2, 4, 6, 8, 100]);
    drop(store);
    let store = open(dir.path());
    assert_eq!(deliver_all(&store), 20);
    store.checkpoint(now).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(numbers(&store, 0)[..6], [0, 2, 4, 6, 8, 100]);
    let delivered: BTreeSet<u64> = [0, 1].into_iter().flat_map(|p| numbers(&store, p)).collect();
    assert_eq!(delivered, (0..30).chain([100]).collect());
}
