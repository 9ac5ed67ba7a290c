//! The log of one partition: what it holds, and how it grows.
//!
//! Offsets only grow. The times of what fires never run backwards, and none is before its due time;
//! the times that producers gave their records are theirs. The state moves only after the bytes were
//! written, so a failed write leaves the log as it was. The lock is held while a batch is written to the page cache,
//! never while anything is read or synced.
//!
//! What a producer appends is *held* until the journal has it: from the first such batch on nothing
//! is visible, whatever is appended behind it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_kafka_wire::records;
use punctual_model::ports::{LogBounds, StoreError};
use punctual_model::{Partition, Timestamp, TopicId};

use crate::disk::{Disk, Open};

use super::batch::{BatchHeader, BatchWriter};
use super::segment::{
    self, Kind, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, Segment, read_error, write_error,
};
use super::{LogEnd, LogOptions, Unsynced};

/// There is one broker, and it leads from the beginning.
const LEADER_EPOCH: i32 = 0;

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
    /// The time of the last batch that fired.
    pub(super) last: Timestamp,
    /// Everything before this was trimmed.
    pub(super) start: u64,
    /// The first batch that must not be seen yet.
    pub(super) held: Option<Held>,
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

/// Where the visible part of a log ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The offset behind it.
    offset: u64,
    /// The first offset of the segment of the first batch that is held.
    segment: u64,
    /// Where that batch starts.
    position: u64,
}

/// A segment as far as it may be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'s> {
    /// The segment.
    pub(super) segment: &'s Segment,
    /// The offset behind what may be seen.
    pub(super) end: u64,
    /// Bytes that may be seen.
    pub(super) bytes: u64,
}

impl<'s> Sight<'s> {
    /// All of a segment.
    pub(super) const fn whole(segment: &'s Segment) -> Self {
        Self { segment, end: segment.end, bytes: segment.bytes }
    }

    /// Whether that is all of it.
    pub(super) const fn is_whole(&self) -> bool {
        self.bytes == self.segment.bytes
    }
}

impl State {
    /// The state of a log that holds these segments.
    pub(super) fn new(segments: Vec<Segment>, saved: Option<LogEnd>) -> Self {
        let end = segments.last().map_or(0, |segment| segment.end);
        let known = |segment: &Segment| segment.fired.or_else(|| segment.last());
        let last = match saved.and_then(|saved| saved.last) {
            Some(last) => segments.iter().filter_map(|segment| segment.fired).fold(last, Ord::max),
            None => segments.iter().rev().find_map(known).unwrap_or_default(),
        };
        let checkpointed = saved.map_or(0, |saved| saved.offset);
        let start = saved.map_or(0, |saved| saved.start);
        Self { segments, end, last, start, checkpointed, ..Self::default() }
    }

    /// The offset behind what may be seen.
    pub(super) fn visible_end(&self) -> u64 {
        self.held.map_or(self.end, |held| held.offset)
    }

    /// What may be seen, oldest first.
    pub(super) fn visible(&self) -> impl DoubleEndedIterator<Item = Sight<'_>> {
        self.segments.iter().filter_map(|segment| self.sight(segment))
    }

    /// The segment that holds `offset` or has the first one behind it, if that may be seen.
    pub(super) fn sight_at(&self, offset: u64) -> Option<Sight<'_>> {
        let slot = self.segments.partition_point(|segment| segment.end <= offset);
        let sight = self.segments.get(slot).and_then(|segment| self.sight(segment));
        sight.filter(|sight| sight.end > offset)
    }

    fn sight<'s>(&self, segment: &'s Segment) -> Option<Sight<'s>> {
        match self.held {
            Some(held) if held.segment < segment.base => None,
            Some(held) if held.segment == segment.base => {
                Some(Sight { segment, end: held.offset, bytes: held.position })
            }
            _ => Some(Sight::whole(segment)),
        }
    }

    /// The offsets it shows.
    pub(super) fn bounds(&self) -> LogBounds {
        let end = self.visible_end();
        let first = self.segments.first().map_or(end, |first| first.base);
        LogBounds { start: first.max(self.start).min(end), end }
    }

    fn must_roll(&self, batch: &BatchHeader, now: Timestamp, options: &LogOptions) -> bool {
        let Some(active) = self.segments.last() else {
            return true;
        };
        if active.bytes == 0 {
            return false;
        }
        active.bytes + batch.bytes > options.segment_bytes.min(SEGMENT_BYTES_MAX)
            || active.born.is_some_and(|born| now.since(born) >= options.segment_age)
            || batch.last_offset - active.base >= SEGMENT_OFFSETS_MAX
    }
}

/// Where a batch of a producer went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The offset of its first record.
    pub base_offset: u64,
    /// Where the log starts.
    pub start: u64,
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
        let bytes = batch.finish(state.end, time);
        let header = BatchHeader::parse(bytes).expect("the header was written a moment ago");
        self.put(&mut state, bytes, &header, time)?;
        state.last = time;
        Ok(header.bytes)
    }

    /// Appends a batch of a producer, as it is but for its offset. Nobody sees it before
    /// [`release`](Self::release). Nothing when the topic is gone.
    pub(super) fn append_held(
        &self,
        batch: &mut [u8],
        now: Timestamp,
    ) -> Result<Option<(Placed, BatchHeader)>, StoreError> {
        let mut state = self.state.lock();
        if state.removed {
            return Ok(None);
        }
        let state = &mut *state;
        records::place(batch, state.end, LEADER_EPOCH);
        let header = BatchHeader::parse(batch).map_err(StoreError::damaged)?;
        let held = state.held;
        if held.is_none() {
            state.held = Some(self.held_from(state, &header, now));
        }
        if let Err(error) = self.put(state, batch, &header, now) {
            state.held = held;
            return Err(error);
        }
        let start = state.bounds().start;
        Ok(Some((Placed { base_offset: header.base_offset, start }, header)))
    }

    /// Where a batch will come to stand if it is appended now.
    fn held_from(&self, state: &State, batch: &BatchHeader, now: Timestamp) -> Held {
        let offset = state.end;
        let active = state.segments.last().filter(|_| !state.must_roll(batch, now, &self.options));
        let (segment, position) = active.map_or((offset, 0), |active| (active.base, active.bytes));
        Held { offset, segment, position }
    }

    /// Shows what was held: it is certain now.
    pub(super) fn release(&self) {
        self.state.lock().held = None;
    }

    /// Appends a batch that the journal has and the log has lost, where it stood. False when it is
    /// there.
    pub(super) fn restore(&self, batch: &[u8]) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let header = BatchHeader::parse(batch).map_err(StoreError::damaged)?;
        let Some(hole) = header.base_offset.checked_sub(state.end) else { return Ok(false) };
        if hole > SEGMENT_OFFSETS_MAX {
            let what = format_args!("offset {} follows {}", header.base_offset, state.end);
            return Err(segment::damage(&self.dir(), 0, what));
        }
        self.put(&mut state, batch, &header, Timestamp::MIN)?;
        Ok(true)
    }

    /// Takes everything before `start` off the log.
    pub(super) fn trim(&self, start: u64) {
        let mut state = self.state.lock();
        state.start = state.start.max(start);
    }

    /// Writes a batch at the end.
    fn put(
        &self,
        state: &mut State,
        bytes: &[u8],
        header: &BatchHeader,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if state.must_roll(header, now, &self.options) {
            self.roll(state)?;
        }
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
        active.note(header, self.options.index_interval_bytes);
        // At a restart nobody knows what time it is; the next batch will tell.
        active.born = active.born.or(Some(now).filter(|now| *now > Timestamp::MIN));
        active.unsynced = true;
        state.end = header.last_offset + 1;
        state.busy = true;
        Ok(())
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
            largest: active.last(),
            last: Some(state.last),
            start: state.start,
            known: state.end,
        })
    }
}
