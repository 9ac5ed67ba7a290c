//! Record batches: Kafka's on-disk format, version 2, to bytes and back.
//!
//! Writing goes straight into one reused buffer. Reading trusts nothing: every length is checked
//! against what remains, counts never size an allocation, and a batch is looked into only after
//! its checksum was found right. Numbers are big-endian, as the format says.

use bytes::Bytes;
use punctual_model::id::ID_CHARS;
use punctual_model::ports::{Armed, Delivered};
use punctual_model::{Header, Link, Message, MessageId, Timestamp};

/// Bytes before the first record of a batch.
pub const HEADER_BYTES: usize = 61;
/// A batch is closed once another record would take it past this size.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;
/// A batch is closed at this number of records.
pub const BATCH_RECORDS_MAX: u32 = 10_000;
/// The header that carries the message id.
pub const ID_HEADER: &str = "punctual-id";
/// The header that carries the sender's own id of the message.
pub const OWN_ID_HEADER: &str = "punctual-own-id";
/// The header that carries the id of the series a message belongs to.
pub const SERIES_HEADER: &str = "punctual-series";
/// The header that carries the due time.
pub const DUE_HEADER: &str = "punctual-due";

/// Larger batches are not read: the largest message fits four times.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a batch that its length field does not count: the base offset and the field itself.
const LENGTH_OVERHEAD: usize = 12;
/// Where the bytes under the checksum start.
const CRC_FROM: usize = 21;
const MAGIC: u8 = 2;
/// Timestamps are those of the append, not those of the sender.
const LOG_APPEND_TIME: i16 = 1 << 3;
const COMPRESSION_MASK: i16 = 7;

/// Why bytes are not a whole, intact batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the batch is cut off")]
    Torn,
    /// A field has a value that it can not have.
    #[error("the batch header is not valid")]
    Header,
    /// The checksum is wrong.
    #[error("the checksum does not match")]
    Checksum,
    /// The checksum is right, but a record does not parse.
    #[error("a record is not valid")]
    Record,
}

/// What the first bytes of a batch say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: u64,
    /// Offset of the last record.
    pub last_offset: u64,
    /// Bytes of the whole batch, this header included.
    pub bytes: u64,
    /// When it was appended.
    pub timestamp: Timestamp,
    crc: u32,
    count: u32,
}

impl BatchHeader {
    /// Reads a header from the front of `bytes`.
    ///
    /// # Errors
    /// [`BatchError::Torn`] for too few bytes, [`BatchError::Header`] for values out of range.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let mut cursor = Cursor(bytes.get(..HEADER_BYTES).ok_or(BatchError::Torn)?);
        let base_offset = u64::try_from(cursor.i64()?).ok();
        let length = u64::try_from(cursor.i32()?).ok();
        let _leader_epoch = cursor.i32()?;
        let magic = cursor.u8()?;
        let crc = u32::from_be_bytes(cursor.array()?);
        let attributes = cursor.i16()?;
        let last_delta = u32::try_from(cursor.i32()?).ok();
        let _base_timestamp = cursor.i64()?;
        let millis = u64::try_from(cursor.i64()?).ok();
        let _producer = (cursor.i64()?, cursor.i16()?, cursor.i32()?);
        let count = u32::try_from(cursor.i32()?).ok();
        let header = || {
            let (base_offset, last_delta, count) = (base_offset?, last_delta?, count?);
            let bytes = length?.checked_add(LENGTH_OVERHEAD as u64)?;
            let fits = (HEADER_BYTES as u64..=BATCH_BYTES_MAX).contains(&bytes);
            let known = magic == MAGIC && attributes & COMPRESSION_MASK == 0;
            let counted = count <= last_delta.checked_add(1)?;
            let header = Self {
                base_offset,
                last_offset: base_offset.checked_add(u64::from(last_delta))?,
                bytes,
                timestamp: Timestamp::from_millis(millis?)?,
                crc,
                count,
            };
            (fits && known && counted).then_some(header)
        };
        header().ok_or(BatchError::Header)
    }
}

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
    /// Any [`BatchError`] but [`BatchError::Record`].
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        let header = checked_header(&bytes)?;
        if header.bytes == bytes.len() as u64 {
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

    /// Its records, in order. After an error there are no more.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>, BatchError>> {
        self.records_from(self.header.base_offset)
    }

    /// Its records from an offset on, in order. After an error there are no more.
    pub fn records_from(&self, from: u64) -> impl Iterator<Item = Result<Record<'_>, BatchError>> {
        let mut cursor = Cursor(self.bytes.get(HEADER_BYTES..).unwrap_or_default());
        let mut left = self.header.count;
        let mut next_offset = self.header.base_offset;
        while left > 0 && next_offset < from {
            let mut behind = Cursor(cursor.0);
            match Record::skim(&mut behind, &self.header) {
                Ok((offset, _)) if (next_offset..from).contains(&offset) => {
                    cursor = behind;
                    left -= 1;
                    next_offset = offset + 1;
                }
                // The first one wanted, or one that is not valid; parsing it tells.
                _ => break,
            }
        }
        std::iter::from_fn(move || {
            if left == 0 {
                // Bytes that no record owns must not pass for an intact batch.
                let stray = !std::mem::take(&mut cursor.0).is_empty();
                return stray.then_some(Err(BatchError::Record));
            }
            let record = Record::parse(&mut cursor, &self.header)
                .and_then(|record| {
                    (record.offset >= next_offset).then_some(record).ok_or(BatchError::Record)
                })
                .or(Err(BatchError::Record));
            match &record {
                Ok(record) => {
                    left -= 1;
                    next_offset = record.offset + 1;
                }
                Err(_) => {
                    left = 0;
                    cursor.0 = &[];
                }
            }
            Some(record)
        })
    }

    /// The record as a delivered message that shares this batch's memory.
    ///
    /// # Errors
    /// [`BatchError::Record`] when it lacks an id or has a header name that is not text.
    pub fn delivered(&self, record: &Record<'_>) -> Result<Delivered, BatchError> {
        let id = record.id()?;
        let mut due = id.key.due;
        let mut headers = Vec::new();
        for (name, value) in record.headers() {
            if name == DUE_HEADER.as_bytes() {
                due = parse_due(value).ok_or(BatchError::Record)?;
            } else if name != ID_HEADER.as_bytes() {
                let name = std::str::from_utf8(name).ok().ok_or(BatchError::Record)?;
                headers.push(Header { name: name.to_owned(), value: self.share(value) });
            }
        }
        let message = Message {
            key: record.key.map(|key| self.share(key)),
            headers,
            body: self.share(record.value),
        };
        let delivered_at = self.header.timestamp;
        Ok(Delivered { id, offset: record.offset, due, delivered_at, message })
    }

    fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

/// Reads the header at the front of `bytes` and checks the batch behind it; more may follow.
///
/// # Errors
/// Any [`BatchError`] but [`BatchError::Record`].
pub fn checked_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let length = usize::try_from(header.bytes).ok().ok_or(BatchError::Header)?;
    let covered = bytes.get(CRC_FROM..length).ok_or(BatchError::Torn)?;
    if crc32c::crc32c(covered) == header.crc { Ok(header) } else { Err(BatchError::Checksum) }
}

/// One record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its offset in the partition.
    pub offset: u64,
    key: Option<&'a [u8]>,
    value: &'a [u8],
    headers: &'a [u8],
    header_count: u32,
}

impl<'a> Record<'a> {
    /// Moves past a record; its offset, and what lies behind that.
    fn skim(cursor: &mut Cursor<'a>, batch: &BatchHeader) -> Result<(u64, Cursor<'a>), BatchError> {
        let length = cursor.varint()?;
        let mut inner =
            Cursor(cursor.take(usize::try_from(length).ok().ok_or(BatchError::Record)?)?);
        let _attributes = inner.u8()?;
        let _timestamp_delta = inner.varint()?;
        let delta = u32::try_from(inner.varint()?).ok().ok_or(BatchError::Record)?;
        let offset = batch.base_offset.checked_add(u64::from(delta)).ok_or(BatchError::Record)?;
        Ok((offset, inner))
    }

    fn parse(cursor: &mut Cursor<'a>, batch: &BatchHeader) -> Result<Self, BatchError> {
        let (offset, mut inner) = Self::skim(cursor, batch)?;
        let key = inner.nullable()?;
        let value = inner.nullable()?.unwrap_or_default();
        let header_count = u32::try_from(inner.varint()?).ok().ok_or(BatchError::Record)?;
        let record = Self { offset, key, value, headers: inner.0, header_count };
        for _ in 0..header_count {
            inner.header()?;
        }
        if inner.0.is_empty() && offset <= batch.last_offset {
            Ok(record)
        } else {
            Err(BatchError::Record)
        }
    }

    /// The id it carries.
    ///
    /// # Errors
    /// [`BatchError::Record`] when it carries none.
    pub fn id(&self) -> Result<MessageId, BatchError> {
        let text = self.id_text().ok_or(BatchError::Record)?;
        MessageId::try_from(text).ok().ok_or(BatchError::Record)
    }

    /// The text of the id it carries, unread.
    #[must_use]
    pub fn id_text(&self) -> Option<&'a [u8]> {
        let mut headers = self.headers();
        headers.find(|(name, _)| *name == ID_HEADER.as_bytes()).map(|(_, text)| text)
    }

    fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut cursor = Cursor(self.headers);
        // Walked once already in `parse`, so the errors can not happen here.
        (0..self.header_count).map_while(move |_| cursor.header().ok())
    }
}

/// Bytes not read yet.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BatchError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BatchError::Torn)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BatchError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(BatchError::Torn)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, BatchError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn i16(&mut self) -> Result<i16, BatchError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, BatchError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, BatchError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<i64, BatchError> {
        let mut raw: u64 = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(BatchError::Record);
            }
            raw |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
        }
        Err(BatchError::Record)
    }

    fn nullable(&mut self) -> Result<Option<&'a [u8]>, BatchError> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.take(usize::try_from(length).ok().ok_or(BatchError::Record)?).map(Some),
        }
    }

    fn header(&mut self) -> Result<(&'a [u8], &'a [u8]), BatchError> {
        let name = self.nullable()?.ok_or(BatchError::Record)?;
        Ok((name, self.nullable()?.unwrap_or_default()))
    }
}

/// A batch in the making, in memory that is used again for the next one.
#[derive(Debug, Default)]
pub struct BatchWriter {
    bytes: Vec<u8>,
    count: u32,
    latest_due: Timestamp,
}

impl BatchWriter {
    /// Forgets all records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.count = 0;
        self.latest_due = Timestamp::MIN;
    }

    /// Number of records.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The latest due time of its records.
    #[must_use]
    pub const fn latest_due(&self) -> Timestamp {
        self.latest_due
    }

    /// Adds a message, or answers false when the batch must be closed first.
    pub fn push(&mut self, armed: &Armed) -> bool {
        let due = Decimal::new(armed.key.due.as_millis());
        let delta = zigzag(self.count as usize);
        let added = Added::of(armed);
        let length = record_bytes(&armed.message, &added, delta, due.as_bytes().len());
        let total = self.bytes.len() + varint_bytes(zigzag(length)) + length;
        if self.count > 0 && (total > BATCH_BYTES_TARGET || self.count >= BATCH_RECORDS_MAX) {
            return false;
        }
        let out = &mut self.bytes;
        out.reserve(total - out.len());
        put_varint(out, zigzag(length));
        // Attributes, then a timestamp delta of zero.
        out.extend_from_slice(&[0, 0]);
        put_varint(out, delta);
        match &armed.message.key {
            Some(key) => put_bytes(out, key),
            None => put_varint(out, NULL),
        }
        put_bytes(out, &armed.message.body);
        let count = own_headers(&armed.message, &added).count() + added.headers().count() + 2;
        put_varint(out, zigzag(count));
        for header in own_headers(&armed.message, &added) {
            put_bytes(out, header.name.as_bytes());
            put_bytes(out, &header.value);
        }
        for (name, value) in added.headers() {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value);
        }
        put_bytes(out, ID_HEADER.as_bytes());
        put_bytes(out, &armed.id().encode());
        put_bytes(out, DUE_HEADER.as_bytes());
        put_bytes(out, due.as_bytes());
        debug_assert_eq!(out.len(), total, "the size was computed before the record was written");
        self.count += 1;
        self.latest_due = self.latest_due.max(armed.key.due);
        true
    }

    /// Bytes of the batch as it is now.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the header and hands out the whole batch. It must not be empty.
    pub fn finish(&mut self, base_offset: u64, timestamp: Timestamp) -> &[u8] {
        let length = i32::try_from(self.bytes.len() - LENGTH_OVERHEAD)
            .expect("admission caps messages far below 2 GiB");
        let count = i32::try_from(self.count).expect("BATCH_RECORDS_MAX is small");
        let mut covered = Vec::with_capacity(HEADER_BYTES);
        covered.extend_from_slice(&LOG_APPEND_TIME.to_be_bytes());
        covered.extend_from_slice(&(count - 1).to_be_bytes());
        covered.extend_from_slice(&timestamp.as_millis().to_be_bytes());
        covered.extend_from_slice(&timestamp.as_millis().to_be_bytes());
        // No producer id, no producer epoch, no sequence.
        covered.extend_from_slice(&[0xff; 14]);
        covered.extend_from_slice(&count.to_be_bytes());
        let (head, records) = self.bytes.split_at_mut(HEADER_BYTES);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&covered), records);
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        fields.extend_from_slice(&base_offset.to_be_bytes());
        fields.extend_from_slice(&length.to_be_bytes());
        fields.extend_from_slice(&0_i32.to_be_bytes());
        fields.push(MAGIC);
        fields.extend_from_slice(&crc.to_be_bytes());
        fields.extend_from_slice(&covered);
        head.copy_from_slice(&fields);
        &self.bytes
    }
}

/// The length of nothing at all, as the format writes it: minus one, zig-zagged.
const NULL: u64 = 1;

fn parse_due(value: &[u8]) -> Option<Timestamp> {
    Timestamp::from_millis(std::str::from_utf8(value).ok()?.parse().ok()?)
}

/// What the record tells of an entry beside its message.
#[derive(Default)]
struct Added<'a> {
    own_id: Option<&'a [u8]>,
    series: Option<[u8; ID_CHARS]>,
}

impl<'a> Added<'a> {
    fn of(armed: &'a Armed) -> Self {
        let Some(extra) = &armed.extra else { return Self::default() };
        Self {
            own_id: extra.own_id.as_ref().map(|own_id| own_id.text.as_bytes()),
            series: extra.series.and_then(Link::id).map(|series| series.encode()),
        }
    }

    fn headers(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let own_id = self.own_id.map(|value| (OWN_ID_HEADER, value));
        let series = self.series.as_ref().map(|value| (SERIES_HEADER, value.as_slice()));
        own_id.into_iter().chain(series)
    }
}

/// The sender's headers; our names are ours alone.
fn own_headers<'a>(
    message: &'a Message,
    added: &Added<'_>,
) -> impl Iterator<Item = &'a Header> + use<'a> {
    let (own_id, series) = (added.own_id.is_some(), added.series.is_some());
    message.headers.iter().filter(move |header| match header.name.as_str() {
        ID_HEADER | DUE_HEADER => false,
        OWN_ID_HEADER => !own_id,
        SERIES_HEADER => !series,
        _ => true,
    })
}

fn record_bytes(message: &Message, added: &Added<'_>, delta: u64, due_chars: usize) -> usize {
    let key = message.key.as_ref().map_or(1, |key| sized(key.len()));
    let mut count = 2;
    let mut headers =
        sized(ID_HEADER.len()) + sized(ID_CHARS) + sized(DUE_HEADER.len()) + sized(due_chars);
    for header in own_headers(message, added) {
        headers += sized(header.name.len()) + sized(header.value.len());
        count += 1;
    }
    for (name, value) in added.headers() {
        headers += sized(name.len()) + sized(value.len());
        count += 1;
    }
    2 + varint_bytes(delta)
        + key
        + sized(message.body.len())
        + varint_bytes(zigzag(count))
        + headers
}

fn sized(length: usize) -> usize {
    varint_bytes(zigzag(length)) + length
}

const fn zigzag(number: usize) -> u64 {
    (number as u64) << 1
}

const fn varint_bytes(raw: u64) -> usize {
    let bits = 64 - (raw | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn put_varint(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push(low_seven(raw) | 0x80);
        raw >>= 7;
    }
    out.push(low_seven(raw));
}

fn low_seven(raw: u64) -> u8 {
    u8::try_from(raw & 0x7f).expect("masked to seven bits")
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, zigzag(bytes.len()));
    out.extend_from_slice(bytes);
}

/// A number as decimal text, without an allocation.
struct Decimal {
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut from = digits.len();
        for slot in digits.iter_mut().rev() {
            *slot = b'0' + u8::try_from(number % 10).expect("a digit");
            from -= 1;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        Self { digits, from }
    }

    fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.from..).unwrap_or_default()
    }
}
