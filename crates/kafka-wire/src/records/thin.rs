//! Thinning: a batch without some of its records, which still takes all of its offsets.
//!
//! What stays is copied as it was written. Base offset, last offset, base timestamp and all that the
//! producer counts by stay too, so a producer that sends the batch again is recognised. A batch of
//! which nothing stays has no largest timestamp, and so never enters an index by time.

use bytes::Bytes;

use super::{BatchError, Compression, HEADER_BYTES, NO_TIMESTAMP, Unpacked};

impl Unpacked {
    /// The batch without the records at these distances to the base offset, which ascend. It is not
    /// compressed.
    ///
    /// # Errors
    /// [`BatchError::Record`] for records that do not parse, [`BatchError::TooLarge`] past 2 GiB.
    pub fn thin(&self, taken: &[u32]) -> Result<Bytes, BatchError> {
        if self.is_all(taken) {
            return self.sealed(vec![0; HEADER_BYTES], 0, NO_TIMESTAMP);
        }
        let room = self.records.len();
        let mut out = Vec::with_capacity(HEADER_BYTES + room);
        out.resize(HEADER_BYTES, 0);
        let (mut count, mut latest) = (0, NO_TIMESTAMP);
        let mut taken = taken.iter().copied().peekable();
        for record in self.records() {
            let record = record?;
            while taken.next_if(|delta| *delta < record.offset_delta).is_some() {}
            if taken.next_if_eq(&record.offset_delta).is_some() {
                continue;
            }
            out.extend_from_slice(record.span());
            count += 1;
            latest = latest.max(record.timestamp(&self.header));
        }
        self.sealed(out, count, latest)
    }

    /// Whether every record is among these, of a batch without gaps.
    fn is_all(&self, taken: &[u32]) -> bool {
        let (count, last) = (self.header.count, self.header.last_offset_delta);
        count > 0
            && count - 1 == last
            && usize::try_from(count).is_ok_and(|count| taken.len() == count)
            && (0..=last).eq(taken.iter().copied())
    }

    /// The records behind room for the header, with one that counts them.
    fn sealed(&self, mut out: Vec<u8>, count: u32, latest: i64) -> Result<Bytes, BatchError> {
        let mut header = self.header;
        header.count = count;
        header.max_timestamp = latest;
        header.attributes = header.attributes.with_compression(Compression::None);
        header.seal(&mut out)?;
        Ok(out.into())
    }
}
