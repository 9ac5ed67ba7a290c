//! The log of one partition: what it holds, and how it grows.
//!
//! Offsets have no gaps, times never run backwards, and no record's time is before its due time.
//! The state moves only after the bytes were written, so a failed write leaves the log as it was.
//! The lock is held while a batch is written to the page cache, never while anything is read or
//! synced.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_model::ports::{LogBounds, StoreError};
use punctual_model::{Partition, Timestamp, TopicId};

use crate::disk::{Disk, Open};

use super::batch::{BatchHeader, BatchWriter};
use super::segment::{
    self, Kind, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, Segment, read_error, write_error,
};
use super::{LogEnd, LogOptions, Unsynced};

/// The log of one partition.
#[derive(Debug)]
pub(super) struct PartitionLog {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: LogOptions,
    pub(super) topic: TopicId,
    pub(super) partition: Partition,
    pub(super) state: Mutex<State>,
}

/// What is known of a partition without reading its files.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Oldest first; the last one is active. Empty until the first append.
    pub(super) segments: Vec<Segment>,
    /// The offset the next record gets.
    pub(super) end: u64,
    /// The time of the last batch.
    pub(super) last: Timestamp,
    /// Every record before this offset is known to a checkpoint.
    pub(super) checkpointed: u64,
    /// Every record before this offset was synced by [`PartitionLog::sync`].
    pub(super) certain: u64,
    /// Whether a file was made whose name was never synced.
    pub(super) dir_unsynced: bool,
    /// Whether something was appended since the last housekeeping.
    pub(super) busy: bool,
    /// The topic was deleted; nothing is appended any more.
    pub(super) removed: bool,
}

impl State {
    /// The state of a log that holds these segments.
    pub(super) fn new(segments: Vec<Segment>, checkpointed: u64) -> Self {
        let end = segments.last().map_or(0, |segment| segment.end);
        let last = segments.iter().rev().find_map(Segment::last).unwrap_or_default();
        Self { segments, end, last, checkpointed, ..Self::default() }
    }

    /// The offsets it holds.
    pub(super) fn bounds(&self) -> LogBounds {
        LogBounds {
            start: self.segments.first().map_or(self.end, |first| first.base),
            end: self.end,
        }
    }

    fn must_roll(&self, batch_bytes: u64, time: Timestamp, options: &LogOptions) -> bool {
        let Some(active) = self.segments.last() else {
            return true;
        };
        let Some((first, _)) = active.times else {
            return false;
        };
        active.bytes + batch_bytes > options.segment_bytes.min(SEGMENT_BYTES_MAX)
            || time.since(first) >= options.segment_age
            || active.end - active.base >= SEGMENT_OFFSETS_MAX
    }
}

impl PartitionLog {
    /// The directory of its files.
    pub(super) fn dir(&self) -> PathBuf {
        segment::partition_dir(self.topic, self.partition)
    }

    /// Appends the batch. Answers its size in bytes, or nothing when the topic is gone.
    pub(super) fn append(
        &self,
        batch: &mut BatchWriter,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut state = self.state.lock();
        if state.removed {
            return Ok(0);
        }
        let time = now.max(state.last).max(batch.latest_due());
        if state.must_roll(batch.size() as u64, time, &self.options) {
            self.roll(&mut state)?;
        }
        let bytes = batch.finish(state.end, time);
        let header = BatchHeader::parse(bytes).expect("the header was written a moment ago");
        let active = state.segments.last_mut().expect("rolling left an active segment");
        let position = active.bytes;
        let written = active.open(&*self.disk, &self.dir()).and_then(|file| {
            file.write_at(bytes, position).inspect_err(|_| {
                // A part may have been written. It is not part of the log and must not be taken
                // for one after a crash; where cutting fails, recovery finds a torn tail.
                let _cut = file.set_len(position);
            })
        });
        if let Err(error) = written {
            return Err(write_error(&segment::path(&self.dir(), active.base, Kind::Log), &error));
        }
        active.note(&header, self.options.index_interval_bytes);
        active.unsynced = true;
        state.end = header.last_offset + 1;
        state.last = time;
        state.busy = true;
        Ok(header.bytes)
    }

    /// Starts a new active segment.
    pub(super) fn roll(&self, state: &mut State) -> Result<(), StoreError> {
        let dir = self.dir();
        let path = segment::path(&dir, state.end, Kind::Log);
        let file = self
            .disk
            .open(&path, Open::Create)
            .and_then(|file| {
                // Left behind by an attempt that failed.
                if file.len()? > 0 {
                    file.set_len(0)?;
                }
                Ok(file)
            })
            .map_err(|error| write_error(&path, &error))?;
        if let Some(active) = state.segments.last_mut() {
            active.index.close();
        }
        let mut segment = Segment::new(state.end);
        segment.file = Some(file);
        segment.unsynced = true;
        state.segments.push(segment);
        state.dir_unsynced = true;
        Ok(())
    }

    /// Where the log ends, and what must be synced before that end can be trusted.
    pub(super) fn prepare_checkpoint(&self, unsynced: &mut Vec<Unsynced>) -> Option<LogEnd> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let dir = self.dir();
        for segment in &mut state.segments {
            if segment.index.is_pending() || segment.index_unsynced {
                match segment.flush_index(&*self.disk, &dir) {
                    Ok(files) => {
                        unsynced.extend(files.map(Unsynced::File));
                        segment.index_unsynced = false;
                        state.dir_unsynced = true;
                    }
                    // Entries stay pending: an index without them is slower, not wrong.
                    Err(error) => tracing::warn!(dir = %dir.display(), %error, "index not written"),
                }
            }
            if let Some(file) = segment.file.as_ref().filter(|_| segment.unsynced) {
                unsynced.push(Unsynced::File(Arc::clone(file)));
                segment.unsynced = false;
            }
        }
        if std::mem::take(&mut state.dir_unsynced) {
            unsynced.push(Unsynced::Dir(Arc::clone(&self.disk), dir));
        }
        self.end_of(state)
    }

    /// Makes everything appended so far certain.
    ///
    /// Which bytes are not certain is told by offsets: the flags that a checkpoint goes by are
    /// lowered when it takes the files, and it syncs them later.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let dir = self.dir();
        let mut unsynced = Vec::new();
        let end = {
            let mut state = self.state.lock();
            let certain = state.certain.max(state.checkpointed);
            // A file with a certain record has a certain name.
            let named = |segment: &Segment| segment.base < certain;
            let slot = state.segments.partition_point(|segment| segment.end <= certain);
            let rest = state.segments.get_mut(slot..).unwrap_or_default();
            let unnamed = !rest.iter().all(named);
            for segment in rest.iter_mut().filter(|segment| segment.bytes > 0) {
                let path = segment::path(&dir, segment.base, Kind::Log);
                let file = segment.open(&*self.disk, &dir);
                unsynced.push(Unsynced::File(file.map_err(|error| read_error(&path, &error))?));
            }
            if unnamed && !unsynced.is_empty() {
                unsynced.push(Unsynced::Dir(Arc::clone(&self.disk), dir.clone()));
            }
            state.end
        };
        for one in unsynced {
            // Never reported as a full disk: what a failed sync leaves behind can not be trusted.
            one.sync().map_err(|error| {
                StoreError::Poisoned(format!("{}: {error}", dir.display()).into())
            })?;
        }
        let mut state = self.state.lock();
        state.certain = state.certain.max(end);
        Ok(())
    }

    /// Where the log ends now; nothing before the first append.
    pub(super) fn end(&self) -> Option<LogEnd> {
        self.end_of(&self.state.lock())
    }

    fn end_of(&self, state: &State) -> Option<LogEnd> {
        let active = state.segments.last()?;
        Some(LogEnd {
            topic: self.topic,
            partition: self.partition,
            segment: active.base,
            bytes: active.bytes,
            offset: state.end,
        })
    }
}
