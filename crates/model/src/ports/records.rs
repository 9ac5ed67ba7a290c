//! Records as their senders encoded them: how the local logs take and give whole batches.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::{LogBounds, LogPosition, StoreError, TopicError};
use crate::id::MessageId;
use crate::message::Entry;
use crate::topic::{Partition, TopicId};

/// The local logs, for those who write and read whole batches. Calls may block on the disk.
///
/// **Offsets.** A batch keeps the offsets it was answered, through any crash. An offset that an
/// entry was taken out of is *reserved*: no record ever has it, and it names the entry.
///
/// **Visible.** What is appended can be read, by whatever call, once it survives a crash.
///
/// **Producers.** A batch whose header names a producer has to follow the one before it; who is not
/// known may begin with any number.
pub trait Records: Send + Sync + 'static {
    /// Appends a batch and stores what was taken out of it, both or neither. `Ok` means it survives
    /// a crash. A batch whose producer and sequence are those of an earlier one changes nothing and
    /// is answered as that one was. An entry with an own id that a message has already, with the same
    /// print, is not stored again: its offset names that message. Batches are appended in the order
    /// of the calls; a future that is dropped, or never asked, changes nothing about the outcome.
    fn append(
        &self,
        append: Append,
    ) -> Pin<Box<dyn Future<Output = Result<Appended, AppendError>> + Send>>;

    /// The stored batches from the one that holds `from.offset` on, up to about `bytes_max`, but at
    /// least one whole batch; the last one may be cut. Empty at the end of the log.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`] before the start of the log and past its end.
    fn slice(&self, from: LogPosition, bytes_max: u64) -> Result<Slice, SliceError>;

    /// The first record with a timestamp of `millis` or later.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a partition; [`TopicError::Store`] for a damaged log.
    fn first_since(
        &self,
        topic: TopicId,
        partition: Partition,
        millis: i64,
    ) -> Result<Option<Stamped>, TopicError>;

    /// The record with the largest timestamp, the first of them.
    ///
    /// # Errors
    /// As [`first_since`](Self::first_since).
    fn latest(&self, topic: TopicId, partition: Partition) -> Result<Option<Stamped>, TopicError>;

    /// The message that a reserved offset names, while it is remembered.
    ///
    /// # Errors
    /// [`StoreError`] when the store is out of order.
    fn reserved(&self, at: LogPosition) -> Result<Option<MessageId>, StoreError>;

    /// Takes everything before `before.offset` off the front of the log, and answers where it starts
    /// now. `Ok` means it survives a crash. Never past what is visible.
    ///
    /// # Errors
    /// [`SliceError::OutOfRange`] past the end.
    fn trim(&self, before: LogPosition) -> Result<u64, SliceError>;
}

/// One batch to append.
#[derive(Clone, Debug)]
pub struct Append {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: Partition,
    /// The batch as it shall lie in the log, checksum and all; the log sets its base offset and
    /// leader epoch, which the checksum does not cover. It may lack records, or have none, and still
    /// takes as many offsets as its header says. Its times are those of the producer: a batch that
    /// says otherwise, or is part of a transaction, is malformed.
    pub batch: Bytes,
    /// What was taken out of it, each with the distance of its offset from the first.
    pub entries: Vec<(u32, Entry)>,
    /// Messages that are stored already, and that an offset of the batch is to name as well.
    pub aliases: Vec<(u32, MessageId)>,
}

/// Where a batch went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: u64,
    /// Where the log starts.
    pub start: u64,
    /// The ids of the entries, in their order; none for a duplicate.
    pub ids: Vec<MessageId>,
    /// Whether it had been appended before.
    pub duplicate: bool,
}

/// Why a batch was not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No such topic or partition.
    #[error("no such topic or partition")]
    NotFound,
    /// The topic belongs to a group, which alone may write to it.
    #[error("the topic belongs to a group")]
    Reserved,
    /// The bytes are not one whole, intact batch.
    #[error("not an intact batch")]
    Malformed,
    /// Batches of this producer are missing before it.
    #[error("the producer's sequence has a gap")]
    OutOfOrder,
    /// It was appended so long ago that its offset is forgotten.
    #[error("an old duplicate")]
    OldDuplicate,
    /// The producer has a newer epoch.
    #[error("the epoch of the producer is over")]
    StaleEpoch,
    /// The own id of an entry, the one at this place of the list, is taken by another message.
    #[error("an own id is taken")]
    OwnIdTaken {
        /// Which of the entries.
        index: usize,
        /// The message that has it; none if that is one of the same batch.
        id: Option<MessageId>,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A record by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Its offset.
    pub offset: u64,
    /// Its timestamp, in milliseconds.
    pub millis: i64,
}

/// A stretch of a log file.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The file; it can be read even if it is removed meanwhile. None for an empty slice.
    pub file: Option<Arc<dyn SliceFile>>,
    /// Where the stretch starts in it.
    pub position: u64,
    /// How long it is.
    pub length: u64,
    /// The offsets of the log.
    pub bounds: LogBounds,
}

/// A file of a log.
pub trait SliceFile: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// The file to the operating system, if it knows it.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Why there is no slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// The log does not hold that offset.
    #[error("the log holds offsets {} to {}", .0.start, .0.end)]
    OutOfRange(LogBounds),
    /// No such partition, or the store refused.
    #[error(transparent)]
    Topic(#[from] TopicError),
}
