//! A batch in the making.

use bytes::Bytes;

use super::{
    Attributes, BatchError, BatchHeader, Compression, HEADER_BYTES, NO_PRODUCER, NO_TIMESTAMP,
    varint,
};

/// What is known of a batch before its first record.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Offset of the first record.
    pub base_offset: u64,
    /// What the timestamps of records count from, in milliseconds.
    pub base_timestamp: i64,
    /// How it is written.
    pub attributes: Attributes,
    /// Who sends it.
    pub producer_id: i64,
    /// The term of the producer.
    pub producer_epoch: i16,
    /// The number of the first record, counted by the producer.
    pub base_sequence: i32,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            base_offset: 0,
            base_timestamp: NO_TIMESTAMP,
            attributes: Attributes::default(),
            producer_id: NO_PRODUCER,
            producer_epoch: -1,
            base_sequence: -1,
        }
    }
}

/// A record to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// How far its offset is from the first; farther than that of the record before.
    pub offset_delta: u32,
    /// How far its time is from the base timestamp, in milliseconds.
    pub timestamp_delta: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Names and values of its headers.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl NewRecord<'_> {
    /// Bytes behind the length.
    fn size(&self) -> usize {
        let part = |part: Option<&[u8]>| part.map_or(1, |part| varint::sized(part.len()));
        let headers: usize =
            self.headers.iter().map(|(name, value)| varint::sized(name.len()) + part(*value)).sum();
        1 + varint::size(varint::zigzag(self.timestamp_delta))
            + varint::size(varint::zigzag(self.offset_delta.into()))
            + part(self.key)
            + part(self.value)
            + varint::size((self.headers.len() as u64) << 1)
            + headers
    }

    fn write(&self, out: &mut Vec<u8>) {
        varint::put(out, (self.size() as u64) << 1);
        out.push(0);
        varint::put(out, varint::zigzag(self.timestamp_delta));
        varint::put(out, varint::zigzag(self.offset_delta.into()));
        put_nullable(out, self.key);
        put_nullable(out, self.value);
        varint::put(out, (self.headers.len() as u64) << 1);
        for (name, value) in self.headers {
            varint::put_bytes(out, name);
            put_nullable(out, *value);
        }
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => varint::put_bytes(out, bytes),
        None => varint::put(out, varint::NULL),
    }
}

/// A batch in the making.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    opening: Opening,
    bytes: Vec<u8>,
    count: u32,
    last: u32,
    latest: i64,
}

impl BatchWriter {
    /// A batch without records.
    #[must_use]
    pub fn new(opening: Opening) -> Self {
        let bytes = vec![0; HEADER_BYTES];
        Self { opening, bytes, count: 0, last: 0, latest: NO_TIMESTAMP }
    }

    /// Adds a record.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        debug_assert!(self.count == 0 || record.offset_delta > self.last, "offsets ascend");
        record.write(&mut self.bytes);
        self.count += 1;
        self.last = record.offset_delta;
        let millis = self.opening.base_timestamp.wrapping_add(record.timestamp_delta);
        self.latest = self.latest.max(millis);
    }

    /// Number of records.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the batch as it is now, not compressed.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The whole batch, up to its last record.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] past 2 GiB; [`BatchError::Compressed`] for an unknown compression.
    pub fn finish(self) -> Result<Bytes, BatchError> {
        let last = self.last;
        self.finish_spanning(last)
    }

    /// The whole batch; it takes offsets up to this far from the first, which is not before its last
    /// record.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_spanning(mut self, last_offset_delta: u32) -> Result<Bytes, BatchError> {
        let compression = self.opening.attributes.compression().ok_or(BatchError::Compressed)?;
        if compression != Compression::None {
            let packed = compression.pack(self.bytes.get(HEADER_BYTES..).unwrap_or_default())?;
            self.bytes.truncate(HEADER_BYTES);
            self.bytes.extend_from_slice(&packed);
        }
        let Opening { base_offset, base_timestamp, attributes, .. } = self.opening;
        let header = BatchHeader {
            base_offset,
            bytes: self.bytes.len(),
            leader_epoch: 0,
            crc: 0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp: self.latest,
            producer_id: self.opening.producer_id,
            producer_epoch: self.opening.producer_epoch,
            base_sequence: self.opening.base_sequence,
            count: self.count,
        };
        header.seal(&mut self.bytes)?;
        Ok(self.bytes.into())
    }
}
