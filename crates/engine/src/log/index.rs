//! The sparse indexes of a segment: offset to position, and time to offset.
//!
//! Both follow Kafka's rules to the letter, so that its tools accept the files. An offset entry
//! holds the *last* offset of the batch at its position, and there is one whenever more than
//! `interval` bytes were appended since the one before. A time entry holds the largest time so far
//! and the last offset of the batch that brought it; times strictly increase, and a batch without a
//! time brings none. An index only ever
//! says where to start looking: an entry that is missing costs time, and what an entry says is
//! checked against the log before it is believed.

use std::io;

use punctual_model::Timestamp;

use crate::disk::{DiskFile, read_exact};

use super::batch::BatchHeader;

/// Bytes of one entry of an offset index.
pub(super) const OFFSET_ENTRY_BYTES: u64 = 8;
/// Bytes of one entry of a time index.
pub(super) const TIME_ENTRY_BYTES: u64 = 12;

/// An entry of an offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetEntry {
    /// Last offset of the batch, counted from the base offset of the segment.
    pub(super) relative: u32,
    /// Where the batch starts.
    pub(super) position: u32,
}

/// An entry of a time index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeEntry {
    /// The largest time up to and with that offset.
    pub(super) time: Timestamp,
    /// Last offset of the batch, counted from the base offset of the segment.
    pub(super) relative: u32,
}

/// The indexes of a segment that still grows, or whose last entries are not in the files yet.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexTail {
    /// Bytes appended since the last offset entry.
    since: u64,
    largest: Option<TimeEntry>,
    last_time: Option<Timestamp>,
    /// Entries that the files do not hold yet.
    pub(super) offsets: Vec<OffsetEntry>,
    /// Entries that the files do not hold yet.
    pub(super) times: Vec<TimeEntry>,
    /// Bytes of the offset index file that are valid; all there are, when larger than the file.
    pub(super) offset_bytes: u64,
    /// Bytes of the time index file that are valid; all there are, when larger than the file.
    pub(super) time_bytes: u64,
}

impl IndexTail {
    /// The indexes of a segment whose files hold all there is.
    pub(super) fn complete() -> Self {
        Self { offset_bytes: u64::MAX, time_bytes: u64::MAX, ..Self::default() }
    }

    /// Notes a batch that was appended at `position` of the segment that starts at `base`.
    pub(super) fn note(&mut self, base: u64, position: u64, batch: &BatchHeader, interval: u64) {
        let relative = u32::try_from(batch.last_offset - base)
            .expect("a segment is rolled before its offsets pass 31 bits");
        self.note_largest(base, batch);
        if self.since > interval {
            let position = u32::try_from(position)
                .expect("a segment is rolled before its positions pass 31 bits");
            self.offsets.push(OffsetEntry { relative, position });
            self.note_time();
            self.since = 0;
        }
        self.since += batch.bytes;
    }

    /// Adds what the last time entry must say once nothing more is appended.
    pub(super) fn close(&mut self) {
        self.note_time();
    }

    fn note_time(&mut self) {
        if let Some(largest) = self.largest
            && self.last_time.is_none_or(|last| largest.time > last)
        {
            self.times.push(largest);
            self.last_time = Some(largest.time);
        }
    }

    /// Whether there are entries that the files do not hold yet.
    pub(super) const fn is_pending(&self) -> bool {
        !self.offsets.is_empty() || !self.times.is_empty()
    }

    /// Goes on behind entries that were found in the files and pass [`sane_offsets`] and
    /// [`sane_times`]. The largest time so far is that of the last entry until batches tell more.
    pub(super) fn resume(&mut self, offsets: &[OffsetEntry], times: &[TimeEntry], log_bytes: u64) {
        self.offset_bytes = offsets.len() as u64 * OFFSET_ENTRY_BYTES;
        self.time_bytes = times.len() as u64 * TIME_ENTRY_BYTES;
        self.largest = times.last().copied();
        self.last_time = self.largest.map(|entry| entry.time);
        let last = offsets.last().map_or(0, |entry| u64::from(entry.position));
        self.since = log_bytes - last.min(log_bytes);
    }

    /// Notes a batch that the indexes know of as far as offsets go, but maybe not its time.
    pub(super) fn note_largest(&mut self, base: u64, batch: &BatchHeader) {
        if let Some(time) = batch.timestamp
            && self.largest.is_none_or(|largest| time > largest.time)
            && let Ok(relative) = u32::try_from(batch.last_offset - base)
        {
            self.largest = Some(TimeEntry { time, relative });
        }
    }

    /// Writes pending entries of both kinds; what was written is no longer pending.
    pub(super) fn flush(&mut self, offsets: &dyn DiskFile, times: &dyn DiskFile) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in &self.offsets {
            bytes.extend_from_slice(&entry.relative.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        if !bytes.is_empty() {
            offsets.write_at(&bytes, self.offset_bytes)?;
        }
        self.offset_bytes = self.offset_bytes.saturating_add(bytes.len() as u64);
        self.offsets.clear();
        bytes.clear();
        for entry in &self.times {
            bytes.extend_from_slice(&entry.time.as_millis().to_be_bytes());
            bytes.extend_from_slice(&entry.relative.to_be_bytes());
        }
        if !bytes.is_empty() {
            times.write_at(&bytes, self.time_bytes)?;
        }
        self.time_bytes = self.time_bytes.saturating_add(bytes.len() as u64);
        self.times.clear();
        Ok(())
    }
}

/// Reads all entries of an offset index of which `bytes` are valid; a part of one is left out.
pub(super) fn read_offsets(file: &dyn DiskFile, bytes: u64) -> io::Result<Vec<OffsetEntry>> {
    let raw = read_entries(file, bytes, OFFSET_ENTRY_BYTES)?;
    Ok(raw.as_chunks::<8>().0.iter().map(offset_entry).collect())
}

/// Reads all entries of a time index of which `bytes` are valid; a part of one is left out.
///
/// Times past year 9999 can not have been written and end the list.
pub(super) fn read_times(file: &dyn DiskFile, bytes: u64) -> io::Result<Vec<TimeEntry>> {
    let raw = read_entries(file, bytes, TIME_ENTRY_BYTES)?;
    Ok(raw.as_chunks::<12>().0.iter().map_while(time_entry).collect())
}

fn read_entries(file: &dyn DiskFile, bytes: u64, entry_bytes: u64) -> io::Result<Vec<u8>> {
    let whole = bytes - bytes % entry_bytes;
    read_exact(file, 0, usize::try_from(whole).map_err(io::Error::other)?)
}

fn offset_entry(raw: &[u8; 8]) -> OffsetEntry {
    let [a, b, c, d, e, f, g, h] = *raw;
    OffsetEntry {
        relative: u32::from_be_bytes([a, b, c, d]),
        position: u32::from_be_bytes([e, f, g, h]),
    }
}

fn time_entry(raw: &[u8; 12]) -> Option<TimeEntry> {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *raw;
    let time = Timestamp::from_millis(u64::from_be_bytes([a, b, c, d, e, f, g, h]))?;
    Some(TimeEntry { time, relative: u32::from_be_bytes([i, j, k, l]) })
}

/// How many entries from the front can be those of a log of that many bytes.
pub(super) fn sane_offsets(entries: &[OffsetEntry], log_bytes: u64) -> usize {
    let rising = |pair: &[OffsetEntry; 2]| {
        let [a, b] = pair;
        a.relative < b.relative && a.position < b.position
    };
    let ordered = entries.array_windows().take_while(|pair| rising(pair)).count() + 1;
    entries
        .iter()
        .take(ordered)
        .take_while(|entry| entry.position > 0 && u64::from(entry.position) < log_bytes)
        .count()
}

/// How many entries from the front can be those of a segment of that many offsets.
pub(super) fn sane_times(entries: &[TimeEntry], offsets: u64) -> usize {
    let rising = |pair: &[TimeEntry; 2]| {
        let [a, b] = pair;
        a.time < b.time && a.relative < b.relative
    };
    let ordered = entries.array_windows().take_while(|pair| rising(pair)).count() + 1;
    entries.iter().take(ordered).take_while(|entry| u64::from(entry.relative) < offsets).count()
}

/// The last offset entry at or before `relative`, by binary search in the file.
pub(super) fn find_offset(
    file: &dyn DiskFile,
    bytes: u64,
    relative: u32,
) -> io::Result<Option<OffsetEntry>> {
    let read = |slot: u64| {
        let raw = read_exact(file, slot * OFFSET_ENTRY_BYTES, 8)?;
        Ok(raw.first_chunk().map(offset_entry))
    };
    last_before(bytes / OFFSET_ENTRY_BYTES, read, |entry| entry.relative <= relative)
}

/// The last time entry before `time`, by binary search in the file.
pub(super) fn find_time(
    file: &dyn DiskFile,
    bytes: u64,
    time: Timestamp,
) -> io::Result<Option<TimeEntry>> {
    let read = |slot: u64| {
        let raw = read_exact(file, slot * TIME_ENTRY_BYTES, 12)?;
        Ok(raw.first_chunk().and_then(time_entry))
    };
    last_before(bytes / TIME_ENTRY_BYTES, read, |entry| entry.time < time)
}

fn last_before<T>(
    count: u64,
    read: impl Fn(u64) -> io::Result<Option<T>>,
    before: impl Fn(&T) -> bool,
) -> io::Result<Option<T>> {
    let (mut low, mut high) = (0, count);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match read(middle)? {
            Some(entry) if before(&entry) => {
                best = Some(entry);
                low = middle + 1;
            }
            _ => high = middle,
        }
    }
    Ok(best)
}
