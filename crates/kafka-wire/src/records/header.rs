//! The 61 bytes in front of the records of a batch.

use bytes::{Buf, BufMut};

use super::{BatchError, CRC_FROM, Compression, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC};

/// How a batch is written, in bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes(i16);

impl Attributes {
    const COMPRESSION: i16 = 7;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;
    /// Kafka gives no meaning to this bit, and readers of the format mask it.
    const RESTAMPED: i16 = 1 << 8;

    /// These bits.
    #[must_use]
    pub const fn from_bits(bits: i16) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> i16 {
        self.0
    }

    /// How the records are compressed; `None` for a way nobody knows.
    #[must_use]
    pub const fn compression(self) -> Option<Compression> {
        Compression::from_bits(self.0 & Self::COMPRESSION)
    }

    /// Whether the time of all records is that of the append: the largest timestamp of the batch.
    #[must_use]
    pub const fn log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whether it is part of a transaction.
    #[must_use]
    pub const fn transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether its records are marks of a broker.
    #[must_use]
    pub const fn control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the time of the append was put on a batch that a producer wrote.
    #[must_use]
    pub const fn restamped(self) -> bool {
        self.0 & Self::RESTAMPED != 0
    }

    /// Whether the base timestamp says when deletions may be forgotten.
    #[must_use]
    pub const fn delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with records compressed in this way.
    #[must_use]
    pub const fn with_compression(self, compression: Compression) -> Self {
        Self(self.0 & !Self::COMPRESSION | compression.bits())
    }

    /// The same with the time of the append, put on what a producer wrote.
    #[must_use]
    pub const fn with_restamped(self) -> Self {
        Self(self.0 | Self::LOG_APPEND_TIME | Self::RESTAMPED)
    }
}

/// What the first bytes of a batch say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record, or of where it was.
    pub base_offset: u64,
    /// Bytes of the whole batch, this header included.
    pub bytes: usize,
    /// The term in which it was appended.
    pub leader_epoch: i32,
    /// The checksum.
    pub crc: u32,
    /// How it is written.
    pub attributes: Attributes,
    /// How far the last offset is from the first.
    pub last_offset_delta: u32,
    /// What the timestamps of records count from, in milliseconds.
    pub base_timestamp: i64,
    /// The largest timestamp.
    pub max_timestamp: i64,
    /// Who sent it.
    pub producer_id: i64,
    /// The term of the producer.
    pub producer_epoch: i16,
    /// The number of the first record, counted by the producer.
    pub base_sequence: i32,
    /// Number of records.
    pub count: u32,
}

impl BatchHeader {
    /// Reads a header from the front of `bytes`.
    ///
    /// # Errors
    /// [`BatchError::Torn`] for too few bytes, [`BatchError::Magic`] for another format,
    /// [`BatchError::Header`] for values out of range.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let mut head = bytes.get(..HEADER_BYTES).ok_or(BatchError::Torn)?;
        let base_offset = u64::try_from(head.get_i64()).ok();
        let length = usize::try_from(head.get_i32()).ok();
        let leader_epoch = head.get_i32();
        if head.get_u8() != MAGIC {
            return Err(BatchError::Magic);
        }
        let crc = head.get_u32();
        let attributes = Attributes(head.get_i16());
        let last_offset_delta = u32::try_from(head.get_i32()).ok();
        let (base_timestamp, max_timestamp) = (head.get_i64(), head.get_i64());
        let producer_id = head.get_i64();
        let producer_epoch = head.get_i16();
        let base_sequence = head.get_i32();
        let count = u32::try_from(head.get_i32()).ok();
        let header = || {
            let (base_offset, last_offset_delta) = (base_offset?, last_offset_delta?);
            let (bytes, count) = (length?.checked_add(LENGTH_OVERHEAD)?, count?);
            base_offset.checked_add(u64::from(last_offset_delta))?;
            let counted = count <= last_offset_delta.checked_add(1)?;
            let header = Self {
                base_offset,
                bytes,
                leader_epoch,
                crc,
                attributes,
                last_offset_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                count,
            };
            (counted && bytes >= HEADER_BYTES).then_some(header)
        };
        header().ok_or(BatchError::Header)
    }

    /// Reads the header at the front of `bytes` and checks the batch behind it; more may follow.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`BatchError::Torn`] or [`BatchError::Checksum`] for a batch
    /// that is not whole.
    pub fn checked(bytes: &[u8]) -> Result<Self, BatchError> {
        let header = Self::parse(bytes)?;
        let covered = bytes.get(CRC_FROM..header.bytes).ok_or(BatchError::Torn)?;
        if crc32c::crc32c(covered) == header.crc { Ok(header) } else { Err(BatchError::Checksum) }
    }

    /// The offset of its last record, or of where it was.
    #[must_use]
    pub const fn last_offset(&self) -> u64 {
        self.base_offset + self.last_offset_delta as u64
    }

    /// Puts this header in front of the records that stand behind [`HEADER_BYTES`] bytes of room:
    /// length and checksum are theirs.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] past 2 GiB.
    pub(super) fn seal(&self, batch: &mut [u8]) -> Result<(), BatchError> {
        let too_large = BatchError::TooLarge;
        let length = batch.len().checked_sub(LENGTH_OVERHEAD).ok_or(BatchError::Torn)?;
        let length = i32::try_from(length).ok().ok_or(too_large)?;
        let (head, records) =
            batch.split_first_chunk_mut::<HEADER_BYTES>().ok_or(BatchError::Torn)?;
        let mut covered = [0; HEADER_BYTES - CRC_FROM];
        let mut out = covered.as_mut_slice();
        out.put_i16(self.attributes.0);
        out.put_i32(i32::try_from(self.last_offset_delta).ok().ok_or(too_large)?);
        out.put_i64(self.base_timestamp);
        out.put_i64(self.max_timestamp);
        out.put_i64(self.producer_id);
        out.put_i16(self.producer_epoch);
        out.put_i32(self.base_sequence);
        out.put_i32(i32::try_from(self.count).ok().ok_or(too_large)?);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&covered), records);
        let mut out = head.as_mut_slice();
        out.put_u64(self.base_offset);
        out.put_i32(length);
        out.put_i32(self.leader_epoch);
        out.put_u8(MAGIC);
        out.put_u32(crc);
        out.put_slice(&covered);
        Ok(())
    }
}
