//! What the tests of the topic logs share: short ways to make messages and logs.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use punctual_engine::disk::{Disk, RealDisk};
use punctual_engine::log::{LogEnd, LogOptions, Logs};
use punctual_model::ports::{Armed, Delivered, LogPosition, Origin, StoreError, Topic};
use punctual_model::{
    Basis, Header, Key, Message, MessageId, Partition, Sequence, Span, Timestamp, TopicId,
    TopicKind, TopicName, TopicSettings,
};

pub use watched::{Seen, Watched};

pub const TOPIC: u32 = 7;

/// Tells the other threads of a test that they are done, also when it fails on the way.
pub struct Done<'a>(pub &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

pub fn topic(number: u32) -> TopicId {
    TopicId::new(number).unwrap()
}

pub fn partition(number: u16) -> Partition {
    Partition::new(number).unwrap()
}

pub fn body(text: impl AsRef<[u8]>) -> Message {
    Message { key: None, headers: Vec::new(), body: Bytes::copy_from_slice(text.as_ref()) }
}

pub fn header(name: &str, value: &[u8]) -> Header {
    Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) }
}

/// A message of topic 7, due at its sequence number in milliseconds.
pub fn armed(sequence: u64, to: u16, message: Message) -> Armed {
    Armed {
        key: Key { due: at(sequence), sequence: Sequence::new(sequence).unwrap() },
        topic: topic(TOPIC),
        partition: partition(to),
        basis: Basis::Delay,
        message,
        origin: Origin(0),
        extra: None,
    }
}

/// Messages with these sequences, all to partition 0, with bodies that tell them apart.
pub fn numbered(sequences: std::ops::Range<u64>, bytes: usize) -> Vec<Armed> {
    sequences.map(|sequence| armed(sequence, 0, body(format!("{sequence:0bytes$}")))).collect()
}

pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 20_000,
        segment_age: Span::from_days(1),
        index_interval_bytes: 4096,
    }
}

/// Messages and their offsets, as opening tells them.
pub type Found = Vec<(MessageId, u64)>;

/// A data directory and the logs in it.
pub struct Store {
    pub dir: tempfile::TempDir,
    pub logs: Logs,
    /// What opening told: everything that the checkpoint did not know.
    pub found: Found,
}

impl Store {
    pub fn new(options: LogOptions, partitions: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (logs, found) = open(dir.path(), options, partitions, &[]).unwrap();
        Self { dir, logs, found }
    }

    pub fn reopen(self, options: LogOptions, partitions: u16, saved: &[LogEnd]) -> Self {
        drop(self.logs);
        let (logs, found) = open(self.dir.path(), options, partitions, saved).unwrap();
        Self { dir: self.dir, logs, found }
    }

    /// A checkpoint after everything delivered has been settled.
    pub fn checkpoint(&self) -> Vec<LogEnd> {
        self.logs.settled(punctual_model::Lane::Message);
        let (ends, unsynced) = self.logs.prepare_checkpoint();
        for one in unsynced {
            one.sync().unwrap();
        }
        self.logs.confirm_checkpoint(&ends);
        ends
    }

    pub fn read_all(&self, from: u16) -> Vec<Delivered> {
        read_all(&self.logs, from)
    }

    pub fn files(&self, suffix: &str) -> Vec<PathBuf> {
        files(self.dir.path(), suffix)
    }
}

pub fn open(
    dir: &Path,
    options: LogOptions,
    partitions: u16,
    saved: &[LogEnd],
) -> Result<(Logs, Found), StoreError> {
    open_on(Arc::new(RealDisk::new(dir).unwrap()), options, partitions, saved)
}

pub fn open_on(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    partitions: u16,
    saved: &[LogEnd],
) -> Result<(Logs, Found), StoreError> {
    let logs = Logs::new(disk, options);
    let mut found = Vec::new();
    logs.open(topic(TOPIC), partitions, saved, &mut found)?;
    Ok((logs, found))
}

pub fn place(from: u16, offset: u64) -> LogPosition {
    LogPosition { topic: topic(TOPIC), partition: partition(from), offset }
}

pub fn read_all(logs: &Logs, from: u16) -> Vec<Delivered> {
    let mut all: Vec<Delivered> = Vec::new();
    let mut offset = 0;
    loop {
        let page = logs.read(place(from, offset), 50).unwrap();
        let Some(last) = page.last() else { return all };
        offset = last.offset + 1;
        all.extend(page);
    }
}

pub fn sequences(delivered: &[Delivered]) -> Vec<u64> {
    delivered.iter().map(|one| one.id.key.sequence.get()).collect()
}

pub fn partition_dir(root: &Path, number: u16) -> PathBuf {
    root.join(format!("topics/{TOPIC}/{number}"))
}

/// The files of partition 0 with that suffix, oldest first.
pub fn files(root: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(partition_dir(root, 0))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == suffix))
        .collect();
    found.sort();
    found
}

pub fn settings(retention: Option<Span>, retention_bytes: Option<u64>) -> Arc<Topic> {
    Arc::new(Topic {
        id: topic(TOPIC),
        name: TopicName::new("orders").unwrap(),
        kind: TopicKind::Plain,
        key_partitions: 1,
        settings: TopicSettings {
            partitions: 1,
            retention,
            retention_bytes,
            ..TopicSettings::default()
        },
    })
}

/// No partition is held back from retention.
pub fn keep_none(_: TopicId, _: Partition) -> Option<u64> {
    None
}

/// The sequences of what opening told.
pub fn told(found: &[(MessageId, u64)]) -> Vec<u64> {
    found.iter().map(|(id, _)| id.key.sequence.get()).collect()
}
