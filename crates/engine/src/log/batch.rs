//! Record batches of the logs: Kafka's format, version 2, as messages come out of it.
//!
//! There are two kinds. A *fired* batch is ours: its time is that of the append, it is not compressed,
//! and each record carries the id of its message. Any other is kept as its producer wrote it: its
//! records have the times they were given, or that of the append, and the id of each is derived from its offset. Reading trusts
//! nothing; see `punctual_kafka_wire::records`. What a producer wrote wrong in a record is not damage of the
//! log: such a batch ends at that record.

mod writer;

use bytes::Bytes;
use punctual_kafka_wire::records::{self as wire, Compression};
use punctual_model::ports::Delivered;
use punctual_model::{Header, Key, Message, MessageId, Partition, Sequence, Timestamp, TopicId};

pub use punctual_kafka_wire::records::{BatchError, HEADER_BYTES};
pub use punctual_model::headers::{
    DUE_HEADER, ID_HEADER, NULL_HEADER, OWN_ID_HEADER, SERIES_HEADER,
};
pub use writer::{BATCH_BYTES_TARGET, BATCH_RECORDS_MAX, BatchWriter};

/// Larger batches are not read: the largest message fits four times.
pub const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Set in batches of producers that got the time of their append. Readers of the format look at the low
/// bits only.
const PRODUCED: i16 = 1 << 8;
/// Offsets that a batch of a producer may take.
const OFFSETS_MAX: u32 = 1 << 24;

/// What the first bytes of a batch say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record, or of where it was.
    pub base_offset: u64,
    /// Offset of the last record, or of where it was.
    pub last_offset: u64,
    /// Bytes of the whole batch, this header included.
    pub bytes: u64,
    /// The largest time in it; none where all records were taken out.
    pub timestamp: Option<Timestamp>,
    /// Whether it is ours.
    pub fired: bool,
    /// Who sent it, if they said.
    pub producer: Option<Sent>,
}

/// By what a producer knows a batch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The producer.
    pub producer: u64,
    /// Its term.
    pub epoch: i16,
    /// The number of the first record.
    pub first: u32,
    /// The number of the last record.
    pub last: u32,
}

impl Sent {
    /// Numbers begin anew behind this one.
    pub const LAST: u32 = i32::MAX.cast_unsigned();

    fn of(header: &wire::BatchHeader) -> Option<Result<Self, BatchError>> {
        let producer = u64::try_from(header.producer_id).ok()?;
        let sent = || {
            let first = u32::try_from(header.base_sequence).ok()?;
            let last = first.checked_add(header.last_offset_delta)? & Self::LAST;
            let epoch = header.producer_epoch;
            (epoch >= 0).then_some(Self { producer, epoch, first, last })
        };
        Some(sent().ok_or(BatchError::Header))
    }
}

impl BatchHeader {
    /// Reads a header from the front of `bytes`.
    ///
    /// # Errors
    /// [`BatchError::Torn`] for too few bytes, [`BatchError::Header`] for values out of range.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::of(&wire::BatchHeader::parse(bytes)?)
    }

    fn of(header: &wire::BatchHeader) -> Result<Self, BatchError> {
        let bytes = header.bytes as u64;
        let compression = header.attributes.compression().ok_or(BatchError::Header)?;
        let fired = is_fired(header);
        let timestamp = match u64::try_from(header.max_timestamp) {
            Ok(millis) => Some(Timestamp::from_millis(millis).ok_or(BatchError::Header)?),
            Err(_) => None,
        };
        let ours = compression == Compression::None && timestamp.is_some();
        if bytes > BATCH_BYTES_MAX || (fired && !ours) {
            return Err(BatchError::Header);
        }
        Ok(Self {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            bytes,
            timestamp,
            fired,
            producer: Sent::of(header).transpose()?,
        })
    }

    /// Whether the batch may stand where the log went on at `expected`. What a producer was told of
    /// its offsets holds even if something before them was lost with the power, so a batch of a
    /// producer may leave a hole.
    #[must_use]
    pub const fn follows(&self, expected: u64) -> bool {
        self.base_offset == expected || (self.base_offset > expected && !self.fired)
    }
}

/// Checks a batch that a producer wants in the log: whole, intact, and nothing that is ours to say.
///
/// # Errors
/// Any [`BatchError`] but [`BatchError::Record`].
pub fn check_foreign(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = wire::BatchHeader::checked(bytes)?;
    let attributes = header.attributes;
    let ours = is_fired(&header) || attributes.transactional() || attributes.control();
    let whole = header.bytes == bytes.len();
    if ours || !whole || header.last_offset_delta >= OFFSETS_MAX {
        return Err(BatchError::Header);
    }
    BatchHeader::of(&header)
}

/// A batch whose checksum was found right.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    packed: wire::Batch,
}

impl Batch {
    /// Takes the batch that fills `bytes` exactly.
    ///
    /// # Errors
    /// Any [`BatchError`] but [`BatchError::Record`].
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        let packed = wire::Batch::check(bytes)?;
        Ok(Self { header: BatchHeader::of(packed.header())?, packed })
    }

    /// Its header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Its records, decompressed, as those of a partition.
    #[must_use]
    pub fn open(&self, topic: TopicId, partition: Partition) -> Opened {
        let records = self.packed.unpack(wire::UNPACKED_BYTES_MAX);
        if let Err(error) = &records {
            let offset = self.header.base_offset;
            tracing::error!(topic = topic.get(), offset, %error, "a batch that nobody can read");
        }
        let compressed = self.packed.header().attributes.compression() != Some(Compression::None);
        Opened { header: self.header, records: records.ok(), compressed, topic, partition }
    }
}

/// A batch whose records can be looked at.
#[derive(Clone, Debug)]
pub struct Opened {
    header: BatchHeader,
    /// Nothing where a producer has sent what can not be decompressed.
    records: Option<wire::Unpacked>,
    compressed: bool,
    topic: TopicId,
    partition: Partition,
}

impl Opened {
    /// Its records, in order. After an error there are no more.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, BatchError>> {
        self.records_from(self.header.base_offset)
    }

    /// Its records from an offset on, in order. After an error there are no more.
    pub fn records_from(&self, from: u64) -> impl Iterator<Item = Result<Record<'_>, BatchError>> {
        let BatchHeader { base_offset, fired, .. } = self.header;
        let distance = u32::try_from(from.saturating_sub(base_offset)).unwrap_or(u32::MAX);
        let records = self.records.iter().flat_map(move |records| {
            let header = records.header();
            records.records_from(distance).map(move |record| (record, header))
        });
        records.map_while(move |(record, header)| match record {
            Ok(parts) => {
                let offset = base_offset + u64::from(parts.offset_delta);
                Some(Ok(Record { offset, millis: parts.timestamp(header), parts }))
            }
            // Its checksum is right, so this is what the producer sent.
            Err(_) if !fired => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// The id of a record: the one it carries, or where it stands.
    ///
    /// # Errors
    /// [`BatchError::Record`] for a record of ours without an id.
    pub fn id(&self, record: &Record<'_>) -> Result<MessageId, BatchError> {
        if self.header.fired {
            let text = record.id_text().ok_or(BatchError::Record)?;
            return MessageId::try_from(text).ok().ok_or(BatchError::Record);
        }
        let sequence = Sequence::of_offset(record.offset).ok_or(BatchError::Record)?;
        let key = Key { due: record.time(), sequence };
        Ok(MessageId { key, topic: self.topic, partition: self.partition })
    }

    /// The record as a delivered message. It shares the memory of the batch unless that was
    /// decompressed, which may have made much of little.
    ///
    /// # Errors
    /// [`BatchError::Record`] for a record of ours that lacks an id or has a name that is not text.
    pub fn delivered(&self, record: &Record<'_>) -> Result<Delivered, BatchError> {
        let id = self.id(record)?;
        let mut due = id.key.due;
        let mut headers = Vec::new();
        for (name, value) in record.parts.headers() {
            let value = value.unwrap_or_default();
            if self.header.fired && name == DUE_HEADER.as_bytes() {
                due = parse_due(value).ok_or(BatchError::Record)?;
            } else if !self.header.fired {
                let name = String::from_utf8_lossy(name).into_owned();
                headers.push(Header { name, value: self.share(value) });
            } else if name != ID_HEADER.as_bytes() {
                let name = std::str::from_utf8(name).ok().ok_or(BatchError::Record)?;
                headers.push(Header { name: name.to_owned(), value: self.share(value) });
            }
        }
        let message = Message {
            key: record.parts.key.map(|key| self.share(key)),
            headers,
            body: self.share(record.parts.value.unwrap_or_default()),
        };
        Ok(Delivered { id, offset: record.offset, due, delivered_at: record.time(), message })
    }

    fn share(&self, part: &[u8]) -> Bytes {
        match &self.records {
            Some(records) if !self.compressed => records.share(part),
            _ => Bytes::copy_from_slice(part),
        }
    }
}

/// Reads the header at the front of `bytes` and checks the batch behind it; more may follow.
///
/// # Errors
/// Any [`BatchError`] but [`BatchError::Record`].
pub fn checked_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    BatchHeader::of(&wire::BatchHeader::checked(bytes)?)
}

/// One record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset in the partition.
    pub offset: u64,
    /// Its timestamp in milliseconds; below zero for none.
    pub millis: i64,
    parts: wire::Record<'a>,
}

impl<'a> Record<'a> {
    /// The text of the id it carries, unread.
    #[must_use]
    pub fn id_text(&self) -> Option<&'a [u8]> {
        self.parts.header(ID_HEADER.as_bytes()).flatten()
    }

    /// Its time, as near as we can tell it.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        let millis = u64::try_from(self.millis).unwrap_or_default();
        Timestamp::from_millis(millis).unwrap_or(Timestamp::MAX)
    }
}

fn is_fired(header: &wire::BatchHeader) -> bool {
    header.attributes.log_append_time() && header.attributes.bits() & PRODUCED == 0
}

fn parse_due(value: &[u8]) -> Option<Timestamp> {
    Timestamp::from_millis(std::str::from_utf8(value).ok()?.parse().ok()?)
}
