//! A whole batch, and its records once they are unpacked.

use bytes::Bytes;

use super::record::Records;
use super::{BatchError, BatchHeader, Compression, HEADER_BYTES};

/// A batch whose checksum was found right.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// Takes the batch that fills `bytes` exactly.
    ///
    /// # Errors
    /// Those of [`BatchHeader::checked`]; more bytes than it has are [`BatchError::Header`].
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::checked(&bytes)?;
        if header.bytes == bytes.len() {
            Ok(Self { header, bytes })
        } else {
            Err(BatchError::Header)
        }
    }

    /// Its header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The whole batch.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Its records, decompressed into at most `budget` bytes; what is not compressed is not copied,
    /// and held to the budget too.
    ///
    /// # Errors
    /// [`BatchError::Compressed`] and [`BatchError::TooLarge`].
    pub fn unpack(&self, budget: usize) -> Result<Unpacked, BatchError> {
        let packed = self.bytes.slice(HEADER_BYTES..);
        let compression = self.header.attributes.compression().ok_or(BatchError::Compressed)?;
        let records = match compression {
            Compression::None if packed.len() > budget => return Err(BatchError::TooLarge),
            Compression::None => packed,
            compression => compression.unpack(&packed, budget)?.into(),
        };
        Ok(Unpacked { header: self.header, records })
    }
}

/// The records of a batch, not compressed.
#[derive(Clone, Debug)]
pub struct Unpacked {
    pub(super) header: BatchHeader,
    pub(super) records: Bytes,
}

impl Unpacked {
    /// The header of the batch, as it stood in front of them.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records, in order. After an error there are no more.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::new(&self.header, &self.records)
    }

    /// The records from a distance to the base offset on, in order. Those before are passed over with
    /// no more than a glance.
    #[must_use]
    pub fn records_from(&self, offset_delta: u32) -> Records<'_> {
        let mut records = self.records();
        records.skip_before(offset_delta);
        records
    }

    /// A part of a record that shares this memory.
    ///
    /// # Panics
    /// If it is not a part of one of these records.
    #[must_use]
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.records.slice_ref(part)
    }

    /// Bytes of all records.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.records.len()
    }
}
