//! Whole batches, as producers bring them and as consumers fetch them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use punctual_model::ports::{LogPosition, Slice, SliceError, Stamped, StoreError, TopicError};
use punctual_model::{Partition, Timestamp, TopicId};

use super::batch::{BatchHeader, Sent};
use super::partition::Placed;
use super::producers::{Producers, Verdict};
use super::{LogEnd, Logs, partition::PartitionLog};

type Place = (TopicId, Partition);

/// Why a batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was appended before.
    Known(Placed),
    /// It was appended so long ago that its offset is forgotten.
    Old,
    /// Batches of its producer are missing before it.
    Gap,
    /// Its producer has a newer epoch.
    Stale,
    /// No such topic or partition.
    NotFound,
    /// The disk.
    Store(StoreError),
}

impl Logs {
    /// Appends a batch of a producer, which `header` describes, and writes its place into it. Nobody
    /// sees it before [`release`](Self::release).
    ///
    /// # Errors
    /// See [`Refused`]; then the log is as it was.
    pub fn append_held(
        &self,
        (topic, partition): (TopicId, Partition),
        header: &BatchHeader,
        batch: &mut [u8],
        now: Timestamp,
    ) -> Result<Placed, Refused> {
        let log = self.partition(topic, partition).map_err(|_gone| Refused::NotFound)?;
        let mut producers = self.producers.lock();
        if let Some(sent) = &header.producer {
            judge(&producers, &log, sent)?;
        }
        let appended = log.append_held(batch, now).map_err(Refused::Store)?;
        let (placed, header) = appended.ok_or(Refused::NotFound)?;
        producers.note((topic, partition), &header, Some(now));
        self.count(&header);
        Ok(placed)
    }

    /// Shows what is held of a partition: it is certain now.
    pub fn release(&self, topic: TopicId, partition: Partition) {
        if let Ok(log) = self.partition(topic, partition) {
            log.release();
        }
    }

    /// Appends a batch that the journal has and the log may have lost, at the offset it has. Answers
    /// whether it was lost.
    ///
    /// # Errors
    /// As the disk says; [`StoreError::Damaged`] for a batch that can not have stood there.
    pub fn restore(
        &self,
        (topic, partition): (TopicId, Partition),
        batch: &[u8],
    ) -> Result<bool, StoreError> {
        let Ok(log) = self.partition(topic, partition) else { return Ok(false) };
        let restored = log.restore(batch)?;
        if restored && let Ok(header) = BatchHeader::parse(batch) {
            self.producers.lock().note((topic, partition), &header, None);
            self.count(&header);
        }
        Ok(restored)
    }

    /// Whether the log of a partition ends before this offset, so that it lost what stood there.
    #[must_use]
    pub fn lacks(&self, (topic, partition): (TopicId, Partition), offset: u64) -> bool {
        let log = self.partition(topic, partition);
        log.is_ok_and(|log| log.state.lock().end <= offset)
    }

    /// Takes everything before `before.offset` off a log; the caller has made that certain.
    pub fn trim(&self, before: LogPosition) {
        if let Ok(log) = self.partition(before.topic, before.partition) {
            log.trim(before.offset);
        }
    }

    /// The batches from the one that holds `from.offset` on.
    ///
    /// # Errors
    /// See [`SliceError`].
    pub fn slice(&self, from: LogPosition, bytes_max: u64) -> Result<Slice, SliceError> {
        self.partition(from.topic, from.partition)?.slice(from.offset, bytes_max)
    }

    /// The first record with a timestamp of `millis` or later.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn first_since(
        &self,
        topic: TopicId,
        partition: Partition,
        millis: i64,
    ) -> Result<Option<Stamped>, TopicError> {
        self.partition(topic, partition)?.first_since(millis)
    }

    /// The record with the largest timestamp, the first of them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn latest(
        &self,
        topic: TopicId,
        partition: Partition,
    ) -> Result<Option<Stamped>, TopicError> {
        self.partition(topic, partition)?.latest()
    }

    /// A batch was refused for no fault of its producer, who will send it again.
    pub(crate) fn expect(&self, place: (TopicId, Partition), sent: &Sent) {
        self.producers.lock().expect(place, sent);
    }

    /// Who sent what.
    pub(crate) fn producers(&self) -> Producers {
        self.producers.lock().clone()
    }

    /// Begins with what a checkpoint knows of producers, and the journal of their batches.
    pub(crate) fn begin(&self, producers: Producers, journaled: HashMap<Place, u64>) {
        *self.producers.lock() = producers;
        *self.journaled.lock() = Some(journaled);
    }

    /// From which offset on batches of producers in a log have not come into the journal.
    pub(super) fn known(&self, place: Place, saved: Option<LogEnd>) -> u64 {
        let journaled = self.journaled.lock();
        let Some(journaled) = &*journaled else { return u64::MAX };
        let behind = journaled.get(&place).map_or(0, |last| last + 1);
        behind.max(saved.map_or(0, |saved| saved.known))
    }

    /// Forgets producers that were silent for long.
    pub(crate) fn forget_silent(&self, now: Timestamp) {
        self.producers.lock().forget_silent(now);
    }

    fn count(&self, header: &BatchHeader) {
        let records = header.last_offset - header.base_offset + 1;
        self.messages.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(header.bytes, Ordering::Relaxed);
    }
}

fn judge(producers: &Producers, log: &PartitionLog, sent: &Sent) -> Result<(), Refused> {
    match producers.judge((log.topic, log.partition), sent) {
        Verdict::Fresh => Ok(()),
        Verdict::Known(base_offset) => {
            let start = log.state.lock().bounds().start;
            Err(Refused::Known(Placed { base_offset, start }))
        }
        Verdict::Old => Err(Refused::Old),
        Verdict::Gap => Err(Refused::Gap),
        Verdict::Stale => Err(Refused::Stale),
    }
}
