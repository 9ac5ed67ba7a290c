//! Single records: their parts, and the walk over those of a batch.

use super::cursor::Cursor;
use super::{BatchError, BatchHeader};

/// One record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// How far its offset is from the first of the batch.
    pub offset_delta: u32,
    /// How far its time is from the base timestamp, in milliseconds.
    pub timestamp_delta: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    header_count: u32,
    headers: &'a [u8],
    span: &'a [u8],
}

impl<'a> Record<'a> {
    /// Names and values of its headers, in order; a name may repeat.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut cursor = Cursor(self.headers);
        // Walked once already in `parse`, so the errors can not happen here.
        (0..self.header_count).map_while(move |_| cursor.header().ok())
    }

    /// Number of its headers.
    #[must_use]
    pub const fn header_count(&self) -> u32 {
        self.header_count
    }

    /// The value of the first header of that name.
    #[must_use]
    pub fn header(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.headers().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The record as it was written, its length in front.
    #[must_use]
    pub const fn span(&self) -> &'a [u8] {
        self.span
    }

    /// When it was made, or appended where the batch says so; in milliseconds.
    #[must_use]
    pub const fn timestamp(&self, batch: &BatchHeader) -> i64 {
        if batch.attributes.log_append_time() {
            batch.max_timestamp
        } else {
            batch.base_timestamp.wrapping_add(self.timestamp_delta)
        }
    }

    fn parse(head: &Head<'a>) -> Result<Self, BatchError> {
        let mut inner = head.behind;
        let key = inner.nullable()?;
        let value = inner.nullable()?;
        let header_count = inner.unsigned()?;
        let headers = inner.0;
        for _ in 0..header_count {
            inner.header()?;
        }
        if !inner.0.is_empty() {
            return Err(BatchError::Record);
        }
        let Head { offset_delta, timestamp_delta, span, .. } = *head;
        Ok(Self { offset_delta, timestamp_delta, key, value, header_count, headers, span })
    }
}

/// What stands in front of the key of a record.
struct Head<'a> {
    offset_delta: u32,
    timestamp_delta: i64,
    behind: Cursor<'a>,
    span: &'a [u8],
}

impl<'a> Head<'a> {
    /// Moves the cursor past the record.
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, BatchError> {
        let from = cursor.0;
        let mut behind = Cursor(cursor.bytes()?);
        let _attributes = behind.byte()?;
        let timestamp_delta = behind.varlong()?;
        let offset_delta = behind.unsigned()?;
        let span = from.get(..from.len() - cursor.0.len()).ok_or(BatchError::Record)?;
        Ok(Self { offset_delta, timestamp_delta, behind, span })
    }
}

/// The records of a batch, in order. Offsets ascend up to the last of the batch, there are as many
/// as it says, and no byte is left over: anything else is an error, and the last item.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    left: u32,
    /// The smallest distance that the next record may have.
    next: u32,
    last: u32,
}

impl<'a> Records<'a> {
    pub(super) const fn new(header: &BatchHeader, records: &'a [u8]) -> Self {
        let (left, last) = (header.count, header.last_offset_delta);
        Self { cursor: Cursor(records), left, next: 0, last }
    }

    pub(super) fn skip_before(&mut self, offset_delta: u32) {
        while self.left > 0 && self.next < offset_delta {
            let mut cursor = self.cursor;
            match Head::parse(&mut cursor) {
                Ok(head) if (self.next..offset_delta).contains(&head.offset_delta) => {
                    self.cursor = cursor;
                    self.passed(head.offset_delta);
                }
                // The first one wanted, or one that is not valid; parsing it tells.
                _ => break,
            }
        }
    }

    fn passed(&mut self, offset_delta: u32) {
        self.left -= 1;
        self.next = offset_delta.saturating_add(1);
    }

    fn step(&mut self) -> Result<Record<'a>, BatchError> {
        let head = Head::parse(&mut self.cursor)?;
        if !(self.next..=self.last).contains(&head.offset_delta) {
            return Err(BatchError::Record);
        }
        let record = Record::parse(&head)?;
        self.passed(record.offset_delta);
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            // Bytes that no record owns must not pass for an intact batch.
            let stray = !std::mem::take(&mut self.cursor.0).is_empty();
            return stray.then_some(Err(BatchError::Record));
        }
        let record = self.step();
        if record.is_err() {
            self.left = 0;
            self.cursor.0 = &[];
        }
        Some(record)
    }
}
