//! What the tests of batches of producers share: short ways to make them, send them and read them.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod life;

use std::sync::Arc;

use bytes::Bytes;
use punctual_engine::Options;
use punctual_engine::store::{Appending, CommitError, Outcome, Request, Store};
use punctual_kafka_wire::records::{
    Attributes, BatchWriter, Compression, NewRecord, Opening, Unpacked,
};
use punctual_model::ports::{
    Append, AppendError, Appended, ArmLimit, Delivered, LogPosition, StoreError, Topic,
};
use punctual_model::{
    Basis, Entry, Lane, Message, MessageId, Partition, Timestamp, TopicId, TopicName, TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

pub use crate::store_support::{Dice, START_MS, at, scaled, small};

pub fn partition(number: u16) -> Partition {
    Partition::new(number).unwrap()
}

pub fn open(disk: &ForgetfulDisk, options: &Options) -> Store {
    crate::store_support::open(disk, options).unwrap()
}

pub fn put_topic(store: &Store, name: &str, partitions: u16) -> Arc<Topic> {
    let settings = TopicSettings { partitions, retention: None, ..TopicSettings::default() };
    let put = Request::PutTopic(TopicName::new(name).unwrap(), settings);
    match store.commit(vec![put]).remove(0) {
        Ok(Outcome::Topic(topic)) => topic,
        other => panic!("{other:?}"),
    }
}

/// A producer of batches.
#[derive(Clone, Copy, Debug)]
pub struct From {
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
}

pub const NOBODY: From = From { producer: -1, epoch: -1, sequence: -1 };

/// A batch of these values, a millisecond apart from `millis` after the start on.
pub fn batch(values: &[&str], millis: u64, from: From, how: Compression) -> Bytes {
    let mut writer = BatchWriter::new(Opening {
        base_timestamp: i64::try_from(START_MS + millis).unwrap(),
        attributes: Attributes::default().with_compression(how),
        producer_id: from.producer,
        producer_epoch: from.epoch,
        base_sequence: from.sequence,
        ..Opening::default()
    });
    for (delta, value) in (0..).zip(values) {
        writer.push(&NewRecord {
            offset_delta: delta,
            timestamp_delta: delta.into(),
            value: Some(value.as_bytes()),
            ..NewRecord::default()
        });
    }
    writer.finish().unwrap()
}

/// A plain batch.
pub fn plain(values: &[&str], millis: u64) -> Bytes {
    batch(values, millis, NOBODY, Compression::None)
}

/// The batch without the records at these distances.
pub fn thinned(batch: &Bytes, taken: &[u32]) -> Bytes {
    let batch = punctual_kafka_wire::records::Batch::check(batch.clone()).unwrap();
    let unpacked: Unpacked = batch.unpack(1 << 20).unwrap();
    unpacked.thin(taken).unwrap()
}

pub fn append(topic: TopicId, batch: Bytes) -> Append {
    let partition = partition(0);
    Append { topic, partition, batch, entries: Vec::new(), aliases: Vec::new() }
}

pub fn request(append: Append, now: Timestamp) -> Request {
    Request::Append(Box::new(Appending::new(append, now).unwrap()))
}

/// Sends one batch.
pub fn send(store: &Store, append: Append) -> Result<Appended, AppendError> {
    sent(store.commit(vec![request(append, at(0))]).remove(0))
}

pub fn sent(outcome: Result<Outcome, CommitError>) -> Result<Appended, AppendError> {
    match outcome {
        Ok(Outcome::Appended(appended)) => Ok(appended),
        Err(CommitError::Append(error)) => Err(error),
        Err(CommitError::Store(error)) => Err(error.into()),
        other => panic!("{other:?}"),
    }
}

pub fn entry(topic: TopicId, due: Timestamp, body: &str) -> Entry {
    Entry {
        topic,
        partition: partition(0),
        due,
        basis: Basis::Date,
        message: Message {
            key: None,
            headers: Vec::new(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        },
        extra: None,
    }
}

pub fn place(topic: TopicId, offset: u64) -> LogPosition {
    LogPosition { topic, partition: partition(0), offset }
}

/// Everything that can be read of partition 0.
pub fn read_all(store: &Store, topic: TopicId) -> Vec<Delivered> {
    let mut all = Vec::new();
    let mut offset = 0;
    loop {
        let (page, next) = store.logs().read_on(place(topic, offset), 7).unwrap();
        all.extend(page);
        if next == offset {
            return all;
        }
        offset = next;
    }
}

/// Offset and body of everything that can be read of partition 0.
pub fn bodies(store: &Store, topic: TopicId) -> Vec<(u64, String)> {
    let text = |one: &Delivered| String::from_utf8(one.message.body.to_vec()).unwrap();
    read_all(store, topic).iter().map(|one| (one.offset, text(one))).collect()
}

/// Takes what is due by `now` on its way.
pub fn arm(store: &Store, now: Timestamp) -> Vec<punctual_model::ports::Armed> {
    let limit = ArmLimit { entries: 100, bytes: 1 << 20 };
    let mut batch = store.arm(Lane::Message, now, limit).unwrap();
    store.claim(&mut batch).unwrap();
    batch
}

/// Delivers what is due by `now`.
pub fn fire(store: &Store, now: Timestamp) -> Result<usize, StoreError> {
    let batch = arm(store, now);
    store.deliver(&batch, now)?;
    store.settle(&batch).unwrap();
    Ok(batch.len())
}

pub fn schedule(store: &Store, entry: Entry) -> MessageId {
    let (due, topic, partition) = (entry.due, entry.topic, entry.partition);
    let draft =
        punctual_engine::journal::change::Draft::new(std::slice::from_ref(&entry), Lane::Message);
    match store.commit(vec![Request::Schedule(draft)]).remove(0) {
        Ok(Outcome::Scheduled(sequence)) => {
            MessageId { key: punctual_model::Key { due, sequence }, topic, partition }
        }
        other => panic!("{other:?}"),
    }
}
