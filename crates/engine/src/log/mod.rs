//! The topic logs: delivered messages, in Kafka's on-disk format.
//!
//! ```text
//! topics/<topic number>/<partition>/<first offset, 20 digits>.log        record batches
//!                                                            .index      offset to position
//!                                                            .timeindex  time to offset
//!                                                            .ids        message to offset
//! ```
//!
//! Appending writes to the page cache and nothing more. A checkpoint names the end of every log and
//! has the files synced first; recovery trusts what lies before that end, checks what lies behind,
//! and tells which messages it found there. No memory is kept per message. There is no clock and no
//! thread here: time comes in, and housekeeping is called.

pub mod batch;
mod ids;
mod index;
mod partition;
mod producers;
mod produced;
mod read;
mod recovery;
mod retention;
mod scan;
mod seek;
mod slice;
mod segment;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use punctual_model::ports::{
    Armed, Delivered, LogBounds, LogPosition, StoreError, Topic, TopicError,
};
use punctual_model::{Lane, Message, MessageId, Partition, Sequence, Span, Timestamp, TopicId};

use crate::disk::{Disk, DiskFile};
use crate::lanes::PerLane;

use batch::BatchWriter;
pub use partition::Placed;
use partition::{PartitionLog, State};
pub use produced::Refused;
pub(crate) use producers::Producers;
pub use read::Wanted;
use recovery::Recovery;
pub use segment::partition_dir;
use segment::{Segment, TOPICS_DIR, read_error, topic_dir, write_error};

/// How logs are written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// A segment is closed before it grows past this; at most 1 GiB counts.
    pub segment_bytes: u64,
    /// A segment is closed when its first message is this old and another one arrives.
    pub segment_age: Span,
    /// There is an index entry for about every so many bytes.
    pub index_interval_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            segment_age: Span::from_days(1),
            index_interval_bytes: 4096,
        }
    }
}

/// Where a partition's log ended at a checkpoint: recovery trusts everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: Partition,
    /// First offset of the active segment.
    pub segment: u64,
    /// Bytes of that segment.
    pub bytes: u64,
    /// The offset the next message gets.
    pub offset: u64,
    /// The largest time in that segment, where it is known.
    pub largest: Option<Timestamp>,
    /// The time of the last batch that fired, where it is known.
    pub last: Option<Timestamp>,
    /// Everything before this was trimmed.
    pub start: u64,
    /// Batches of producers before this are not in doubt, also behind `offset`.
    pub known: u64,
}

impl LogEnd {
    /// The partition it is of.
    const fn place(&self) -> (TopicId, Partition) {
        (self.topic, self.partition)
    }

    /// The end of that log before anything was in it.
    const fn beginning(&self) -> Self {
        Self { segment: 0, bytes: 0, offset: 0, largest: None, last: None, ..*self }
    }

    /// What was true at an earlier end, with what no longer changes.
    const fn lowered_to(&self, before: &Self) -> Self {
        Self { start: self.start, known: self.known, ..*before }
    }
}

/// Something that must be synced before a checkpoint is valid.
#[derive(Clone, Debug)]
pub enum Unsynced {
    /// A file with new bytes.
    File(Arc<dyn DiskFile>),
    /// A directory with new names.
    Dir(Arc<dyn Disk>, PathBuf),
}

impl Unsynced {
    /// Makes it certain. A directory that was removed meanwhile needs nothing.
    ///
    /// # Errors
    /// As the disk says; then the store must not go on.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync(),
            Self::Dir(disk, dir) => match disk.sync_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                outcome => outcome,
            },
        }
    }
}

/// What was appended since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of log.
    pub bytes: u64,
}

/// The logs of all topics.
#[derive(Debug)]
pub struct Logs {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    topics: RwLock<HashMap<TopicId, Arc<[Arc<PartitionLog>]>>>,
    /// One for each lane, so that neither waits for the other.
    deliveries: PerLane<Mutex<Delivery>>,
    /// Who sent what; locked by whoever commits, and for a copy.
    producers: Mutex<Producers>,
    /// The last offset at which the journal has a batch of a producer, while logs are opened after a
    /// restart. Without a journal all batches count.
    journaled: Mutex<Option<HashMap<(TopicId, Partition), u64>>>,
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// What one delivery needs, kept for the next one.
#[derive(Debug, Default)]
struct Delivery {
    writer: BatchWriter,
    /// Topic, partition and place of each message of the batch.
    order: Vec<(TopicId, Partition, usize)>,
    /// What this call has appended so far.
    appended: Vec<Sequence>,
    /// What failed calls had appended before they failed, until it is offered again with success.
    taken: HashSet<Sequence>,
    /// Where each partition ended before it got messages that are not settled yet.
    unsettled: HashMap<(TopicId, Partition), Option<LogEnd>>,
}

impl Logs {
    /// No topic is open yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, options: LogOptions) -> Self {
        Self {
            disk,
            options,
            topics: RwLock::default(),
            deliveries: PerLane::default(),
            producers: Mutex::default(),
            journaled: Mutex::default(),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Opens or makes the partitions of a topic that are not open yet. `saved` is what the
    /// checkpoint has, in the order of [`prepare_checkpoint`](Self::prepare_checkpoint); other
    /// topics may be among it. `delivered` receives id and offset of every record that the
    /// checkpoint does not know; for a partition that `saved` does not name, that is every record.
    ///
    /// A tail that a crash left unfinished is cut, with a warning in the log of the process.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for what was written whole and is not whole any more.
    pub fn open(
        &self,
        topic: TopicId,
        partitions: u16,
        saved: &[LogEnd],
        delivered: &mut Vec<(MessageId, u64)>,
    ) -> Result<(), StoreError> {
        let mut logs: Vec<_> = self.partitions(topic).map_or_else(Vec::new, |open| open.to_vec());
        let numbers = (0..partitions).filter_map(Partition::new);
        let missing: Vec<Partition> = numbers.skip(logs.len()).collect();
        self.make_dirs(topic, &missing, saved)?;
        for partition in missing {
            let slot = saved.binary_search_by_key(&(topic, partition), LogEnd::place);
            let saved = slot.ok().and_then(|slot| saved.get(slot)).copied();
            let dir = partition_dir(topic, partition);
            let (disk, options) = (&*self.disk, &self.options);
            let mut producers = self.producers.lock();
            let (place, producers) = ((topic, partition), &mut *producers);
            let known = self.known(place, saved);
            let recovery =
                Recovery { disk, options, dir: &dir, place, saved, known, delivered, producers };
            let segments = recovery.run()?;
            // The process that made them may have been killed before their names were synced.
            let is_new = |segment: &Segment| saved.is_none_or(|saved| segment.base > saved.segment);
            let dir_unsynced = segments.iter().any(is_new);
            let state = State::new(segments, saved);
            logs.push(Arc::new(PartitionLog {
                disk: Arc::clone(&self.disk),
                options: self.options,
                topic,
                partition,
                state: Mutex::new(State { dir_unsynced, ..state }),
            }));
        }
        self.topics.write().insert(topic, logs.into());
        Ok(())
    }

    /// Closes the topic and removes its files; fine when there are none.
    ///
    /// # Errors
    /// As the disk says.
    pub fn remove(&self, topic: TopicId) -> Result<(), StoreError> {
        if let Some(logs) = self.topics.write().remove(&topic) {
            for log in logs.iter() {
                *log.state.lock() = State { removed: true, ..State::default() };
            }
        }
        self.producers.lock().forget_topic(topic);
        let dir = topic_dir(topic);
        match self.disk.remove_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            outcome => outcome.map_err(|error| write_error(&dir, &error))?,
        }
        let all = Path::new(TOPICS_DIR);
        self.disk.sync_dir(all).map_err(|error| write_error(all, &error))
    }

    /// Appends each message, all of one lane, to its partition, in the order given, and answers how many were
    /// appended. Messages of a topic that is not open are left out: it was deleted.
    ///
    /// After an error the same batch may be offered again; what had been appended is left out.
    /// `now` should not be before any due time; where it is, the due time is noted instead.
    ///
    /// # Errors
    /// [`StoreError::Full`] when the disk is full; [`StoreError::Poisoned`] for any other failure.
    pub fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<u64, StoreError> {
        let Some(first) = batch.first() else { return Ok(0) };
        let mut delivery = self.deliveries.of(first.key.sequence.lane()).lock();
        let delivery = &mut *delivery;
        delivery.appended.clear();
        delivery.sort(batch);
        match self.deliver_sorted(delivery, batch, now) {
            Ok(()) => {
                if !delivery.taken.is_empty() {
                    for armed in batch {
                        delivery.taken.remove(&armed.key.sequence);
                    }
                }
                Ok(delivery.appended.len() as u64)
            }
            Err(error) => {
                delivery.taken.extend(&delivery.appended);
                Err(error)
            }
        }
    }

    fn deliver_sorted(
        &self,
        delivery: &mut Delivery,
        batch: &[Armed],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Delivery { writer, order, appended, taken, unsettled } = delivery;
        for group in order.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let Some(&(topic, partition, _)) = group.first() else {
                continue;
            };
            let Ok(log) = self.partition(topic, partition) else {
                continue;
            };
            unsettled.entry((topic, partition)).or_insert_with(|| log.end());
            writer.clear();
            let mut waiting = appended.len();
            let mut flush = |writer: &mut BatchWriter, appended: &mut Vec<Sequence>| {
                let outcome = if writer.count() == 0 { Ok(0) } else { log.append(writer, now) };
                match &outcome {
                    Ok(bytes) if *bytes > 0 => {
                        self.messages.fetch_add(u64::from(writer.count()), Ordering::Relaxed);
                        self.bytes.fetch_add(*bytes, Ordering::Relaxed);
                    }
                    _ => appended.truncate(waiting),
                }
                waiting = appended.len();
                writer.clear();
                outcome.map(drop)
            };
            for armed in group.iter().filter_map(|&(_, _, place)| batch.get(place)) {
                if !taken.is_empty() && taken.contains(&armed.key.sequence) {
                    continue;
                }
                if !writer.push(armed) {
                    flush(writer, appended)?;
                    let pushed = writer.push(armed);
                    debug_assert!(pushed, "an empty batch takes any message");
                }
                appended.push(armed.key.sequence);
            }
            flush(writer, appended)?;
        }
        Ok(())
    }

    /// Everything of the lane delivered so far has ended in the state that checkpoints save.
    pub fn settled(&self, lane: Lane) {
        self.deliveries.of(lane).lock().unsettled.clear();
    }

    /// Delivered messages from `from.offset` on, at most `limit`; fewer when they are large.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition; [`StoreError::Damaged`] inside
    /// [`TopicError::Store`] when the log can not be read.
    pub fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        Ok(self.read_on(from, limit)?.0)
    }

    /// As [`read`](Self::read), with the offset up to which there is nothing else.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_on(
        &self,
        from: LogPosition,
        limit: usize,
    ) -> Result<(Vec<Delivered>, u64), TopicError> {
        self.partition(from.topic, from.partition)?.read(from.offset, limit)
    }

    /// The offsets at which the log of a partition starts and ends.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition.
    pub fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        self.partition(topic, partition)?.bounds()
    }

    /// The offset of the first record of `time` or later; the end of the log when there is none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        time: Timestamp,
    ) -> Result<u64, TopicError> {
        self.partition(topic, partition)?.offset_at(time)
    }

    /// Bytes of log from `offset` to the end. Within a batch all records count as equally large;
    /// otherwise it is exact.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn bytes_from(
        &self,
        topic: TopicId,
        partition: Partition,
        offset: u64,
    ) -> Result<u64, TopicError> {
        self.partition(topic, partition)?.bytes_from(offset)
    }

    /// The delivered message of that id, while the log still holds it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] inside [`TopicError::Store`] when the log can not be read.
    pub fn locate(&self, wanted: impl Into<Wanted>) -> Result<Option<Delivered>, TopicError> {
        let wanted = wanted.into();
        let Ok(log) = self.partition(wanted.id.topic, wanted.id.partition) else {
            return Ok(None);
        };
        let found = match wanted.id.key.sequence.offset() {
            Some(offset) => log.at(offset, wanted.id)?,
            None => log.locate(wanted, batch::Opened::delivered)?,
        };
        Ok(found.map(|delivered| Delivered { message: detach(delivered.message), ..delivered }))
    }

    /// Whether the log still holds the message.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the log can not be read.
    pub fn contains(&self, wanted: impl Into<Wanted>) -> Result<bool, StoreError> {
        let wanted = wanted.into();
        Ok(self.held_of(&[wanted])?.contains(&wanted.id))
    }

    /// Those of `ids` that the logs still hold. Each log is read once, however many there are.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a log can not be read.
    pub fn held_of(&self, wanted: &[Wanted]) -> Result<HashSet<MessageId>, StoreError> {
        let mut by_log: HashMap<(TopicId, Partition), Vec<Wanted>> = HashMap::new();
        for wanted in wanted {
            by_log.entry((wanted.id.topic, wanted.id.partition)).or_default().push(*wanted);
        }
        let mut held = HashSet::new();
        for ((topic, partition), all) in by_log {
            if let Ok(log) = self.partition(topic, partition) {
                held.extend(log.held_of(&all)?);
            }
        }
        Ok(held)
    }

    /// Makes everything that was appended to the partition so far certain. A topic that is not open
    /// needs nothing. Costs nothing when nothing was appended since the last call.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when the disk failed: the store must stop, because asking again
    /// proves nothing. [`StoreError::Damaged`] when a file can not be opened.
    pub fn sync_partition(&self, topic: TopicId, partition: Partition) -> Result<(), StoreError> {
        self.partition(topic, partition).map_or(Ok(()), |log| log.sync())
    }

    /// Where all logs end, and what must be synced before a checkpoint may say so. The caller
    /// syncs each, writes the checkpoint, and then calls
    /// [`confirm_checkpoint`](Self::confirm_checkpoint). If a sync fails, the store must stop.
    #[must_use]
    pub fn prepare_checkpoint(&self) -> (Vec<LogEnd>, Vec<Unsynced>) {
        let mut unsynced = Vec::new();
        let logs = self.all();
        let mut ends: Vec<LogEnd> = logs
            .iter()
            .flat_map(|logs| logs.iter())
            .filter_map(|log| log.prepare_checkpoint(&mut unsynced))
            .collect();
        // What is not settled yet is still pending for the checkpoint: it has to lie behind the
        // ends, so that recovery finds it. What was settled since the ends were taken need not.
        for (_, delivery) in self.deliveries.iter() {
            let delivery = delivery.lock();
            for end in &mut ends {
                match delivery.unsettled.get(&end.place()) {
                    Some(None) => *end = end.lowered_to(&end.beginning()),
                    Some(Some(before)) if before.offset < end.offset => {
                        *end = end.lowered_to(before);
                    }
                    _ => {}
                }
            }
        }
        ends.sort_unstable_by_key(LogEnd::place);
        (ends, unsynced)
    }

    /// A checkpoint with these ends is durable: retention may remove what lies before them.
    pub fn confirm_checkpoint(&self, ends: &[LogEnd]) {
        for end in ends {
            if let Ok(log) = self.partition(end.topic, end.partition) {
                let mut state = log.state.lock();
                state.checkpointed = state.checkpointed.max(end.offset);
            }
        }
    }

    /// Housekeeping, to be called about once a second: seals segments and applies retention. No
    /// segment goes that holds an offset from `floor` of its partition on; `None` holds nothing.
    ///
    /// # Errors
    /// As the disk says. [`StoreError::Full`] and [`StoreError::Damaged`] leave everything usable.
    pub fn maintain(
        &self,
        topics: &[Arc<Topic>],
        now: Timestamp,
        floor: impl Fn(TopicId, Partition) -> Option<u64>,
    ) -> Result<(), StoreError> {
        for topic in topics {
            for log in self.partitions(topic.id).iter().flat_map(|logs| logs.iter()) {
                log.maintain(&topic.settings, now, floor(topic.id, log.partition))?;
            }
        }
        Ok(())
    }

    /// What was appended since the start of the process.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        LogStats {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Makes the directories that are missing. Those of partitions without a saved end may have been
    /// made by a process that was killed, so they are synced as well.
    fn make_dirs(
        &self,
        topic: TopicId,
        missing: &[Partition],
        saved: &[LogEnd],
    ) -> Result<(), StoreError> {
        let dir = topic_dir(topic);
        let there = self.disk.list(&dir).map_err(|error| read_error(&dir, &error))?;
        let is_new = |partition: &&Partition| !there.contains(&partition.get().to_string());
        for partition in missing.iter().filter(is_new) {
            let dir = partition_dir(topic, *partition);
            self.disk.create_dir(&dir).map_err(|error| write_error(&dir, &error))?;
        }
        let is_saved = |partition: &Partition| {
            saved.binary_search_by_key(&(topic, *partition), LogEnd::place).is_ok()
        };
        if !missing.iter().all(is_saved) {
            for dir in [&dir, Path::new(TOPICS_DIR), Path::new("")] {
                self.disk.sync_dir(dir).map_err(|error| write_error(dir, &error))?;
            }
        }
        Ok(())
    }

    fn partitions(&self, topic: TopicId) -> Option<Arc<[Arc<PartitionLog>]>> {
        self.topics.read().get(&topic).cloned()
    }

    fn partition(
        &self,
        topic: TopicId,
        partition: Partition,
    ) -> Result<Arc<PartitionLog>, TopicError> {
        let topics = self.topics.read();
        let log = topics.get(&topic).and_then(|logs| logs.get(usize::from(partition.get())));
        log.cloned().ok_or(TopicError::NotFound)
    }

    fn all(&self) -> Vec<Arc<[Arc<PartitionLog>]>> {
        self.topics.read().values().cloned().collect()
    }
}

impl Delivery {
    /// Brings messages of one partition together, in the order given.
    fn sort(&mut self, batch: &[Armed]) {
        self.order.clear();
        let place = |(place, armed): (usize, &Armed)| (armed.topic, armed.partition, place);
        self.order.extend(batch.iter().enumerate().map(place));
        self.order.sort_unstable();
    }
}

/// The message in memory of its own, so that it does not keep a whole batch.
fn detach(message: Message) -> Message {
    let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
    let mut message = message;
    for header in &mut message.headers {
        header.value = copy(std::mem::take(&mut header.value));
    }
    Message { key: message.key.map(copy), headers: message.headers, body: copy(message.body) }
}
