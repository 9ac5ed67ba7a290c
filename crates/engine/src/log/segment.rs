//! One segment of a partition's log: its files, and what is known of it without reading them.
//!
//! The last segment of a partition is the active one and the only one that grows. A segment that
//! no longer grows is sealed once its `.ids` file is written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_model::ports::StoreError;
use punctual_model::{Partition, Timestamp, TopicId};

use crate::disk::{Disk, DiskFile, Open, is_full};

use super::batch::BatchHeader;
use super::ids::Trailer;
use super::index::IndexTail;

/// The directory of all topic logs.
pub(super) const TOPICS_DIR: &str = "topics";
/// Positions and relative offsets of an index are 31 bits wide.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Offsets of one segment, so that the relative ones fit 31 bits.
pub(super) const SEGMENT_OFFSETS_MAX: u64 = 1 << 30;

/// The kinds of files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The batches.
    Log,
    /// Offset to position.
    Index,
    /// Time to offset.
    TimeIndex,
    /// Sequence to offset.
    Ids,
}

impl Kind {
    /// Every kind; the log comes first, so that removing in this order leaves no log without name.
    pub(super) const ALL: [Self; 4] = [Self::Log, Self::Index, Self::TimeIndex, Self::Ids];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Index => "index",
            Self::TimeIndex => "timeindex",
            Self::Ids => "ids",
        }
    }
}

/// The directory of a topic.
pub(super) fn topic_dir(topic: TopicId) -> PathBuf {
    Path::new(TOPICS_DIR).join(topic.get().to_string())
}

/// The directory of a partition, below that of the data.
#[must_use]
pub fn partition_dir(topic: TopicId, partition: Partition) -> PathBuf {
    topic_dir(topic).join(partition.get().to_string())
}

/// A file of the segment that starts at `base`.
pub(super) fn path(dir: &Path, base: u64, kind: Kind) -> PathBuf {
    dir.join(format!("{base:020}.{}", kind.suffix()))
}

/// Reads a file name of a segment; `None` for any other file.
pub(super) fn parse_name(name: &str) -> Option<(u64, Kind)> {
    let (digits, suffix) = name.split_once('.')?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let base = digits.parse().ok().filter(|_| plain)?;
    Some((base, kind))
}

/// What is known of a segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its first offset.
    pub(super) base: u64,
    /// The offset behind it.
    pub(super) end: u64,
    /// Bytes of whole batches; what lies behind them in the file is not part of the log.
    pub(super) bytes: u64,
    /// The time of its first batch that has one, and the largest.
    pub(super) times: Option<(Timestamp, Timestamp)>,
    /// When its first batch was appended, as far as that is known.
    pub(super) born: Option<Timestamp>,
    /// The time of its last batch that is ours, as far as that is known.
    pub(super) fired: Option<Timestamp>,
    /// Whether its `.ids` file is there.
    pub(super) sealed: bool,
    /// The trailer of the `.ids` file, once all of that file was found intact.
    pub(super) ids: Option<Trailer>,
    /// Whether the log file has bytes that were never synced.
    pub(super) unsynced: bool,
    /// Whether the index files have entries that were never synced.
    pub(super) index_unsynced: bool,
    /// The log file, while it is in use.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    /// What the index files lack.
    pub(super) index: IndexTail,
}

impl Segment {
    /// An empty segment.
    pub(super) fn new(base: u64) -> Self {
        Self {
            base,
            end: base,
            bytes: 0,
            times: None,
            born: None,
            fired: None,
            sealed: false,
            ids: None,
            unsynced: false,
            index_unsynced: false,
            file: None,
            index: IndexTail::default(),
        }
    }

    /// The largest time.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.times.map(|(_, last)| last)
    }

    /// Notes a batch that lies at the end.
    pub(super) fn note(&mut self, header: &BatchHeader, interval: u64) {
        self.index.note(self.base, self.bytes, header, interval);
        self.note_known(header);
    }

    /// Notes a batch that lies at the end and that the index files know of.
    pub(super) fn note_known(&mut self, header: &BatchHeader) {
        if header.fired {
            // What a producer says of its times tells nothing about ours.
            self.born = self.born.or(header.timestamp.filter(|_| self.bytes == 0));
            self.fired = header.timestamp;
        }
        self.bytes += header.bytes;
        self.end = header.last_offset + 1;
        self.note_time(header.timestamp);
    }

    /// Notes a time that is in it.
    pub(super) fn note_time(&mut self, time: Option<Timestamp>) {
        if let Some(time) = time {
            let (first, largest) = self.times.unwrap_or((time, time));
            self.times = Some((first, largest.max(time)));
        }
    }

    /// The log file, opened when it is not open yet.
    pub(super) fn open(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = disk.open(&path(dir, self.base, Kind::Log), Open::Existing)?;
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Writes what the index files lack and returns them.
    pub(super) fn flush_index(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
    ) -> io::Result<[Arc<dyn DiskFile>; 2]> {
        let offsets = disk.open(&path(dir, self.base, Kind::Index), Open::Create)?;
        let times = disk.open(&path(dir, self.base, Kind::TimeIndex), Open::Create)?;
        self.index_unsynced = true;
        self.index.flush(&*offsets, &*times)?;
        Ok([offsets, times])
    }
}

/// What a failed write means for the store.
pub(super) fn write_error(path: &Path, error: &io::Error) -> StoreError {
    if is_full(error) {
        StoreError::Full
    } else {
        StoreError::Poisoned(format!("{}: {error}", path.display()).into())
    }
}

/// What a failed read means for the store.
pub(super) fn read_error(path: &Path, error: &io::Error) -> StoreError {
    StoreError::damaged(format_args!("{}: {error}", path.display()))
}

/// Damage at a place of a file.
pub(super) fn damage(path: &Path, position: u64, what: impl std::fmt::Display) -> StoreError {
    StoreError::damaged(format_args!("{} at byte {position}: {what}", path.display()))
}

/// Removes a file; fine when it is not there.
pub(super) fn remove_file(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path, &error)),
        _ => Ok(()),
    }
}

/// Removes all files of a segment, the log first.
pub(super) fn remove_files(disk: &dyn Disk, dir: &Path, base: u64) -> Result<(), StoreError> {
    Kind::ALL.into_iter().try_for_each(|kind| remove_file(disk, &path(dir, base, kind)))
}
