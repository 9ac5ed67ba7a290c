//! Writing the batches that fire, straight into one buffer that is used again for the next one.

use punctual_kafka_wire::records::{HEADER_BYTES, LENGTH_OVERHEAD, varint};
use punctual_model::id::ID_CHARS;
use punctual_model::ports::Armed;
use punctual_model::{Header, Link, Message, Timestamp};

use super::{DUE_HEADER, ID_HEADER, NULL_HEADER, OWN_ID_HEADER, SERIES_HEADER};

/// A batch is closed once another record would take it past this size.
pub const BATCH_BYTES_TARGET: usize = 1 << 20;
/// A batch is closed at this number of records.
pub const BATCH_RECORDS_MAX: u32 = 10_000;

const MAGIC: u8 = 2;
/// Timestamps are those of the append, not those of the sender.
const LOG_APPEND_TIME: i16 = 1 << 3;

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
        let delta = length_of(self.count as usize);
        let added = Added::of(armed);
        let length = record_bytes(&armed.message, &added, delta, due.as_bytes().len());
        let total = self.bytes.len() + varint::size(length_of(length)) + length;
        if self.count > 0 && (total > BATCH_BYTES_TARGET || self.count >= BATCH_RECORDS_MAX) {
            return false;
        }
        let out = &mut self.bytes;
        out.reserve(total - out.len());
        varint::put(out, length_of(length));
        // Attributes, then a timestamp delta of zero.
        out.extend_from_slice(&[0, 0]);
        varint::put(out, delta);
        match &armed.message.key {
            Some(key) => varint::put_bytes(out, key),
            None => varint::put(out, varint::NULL),
        }
        match body_of(&armed.message) {
            Some(body) => varint::put_bytes(out, body),
            None => varint::put(out, varint::NULL),
        }
        let count = own_headers(&armed.message, &added).count() + added.headers().count() + 2;
        varint::put(out, length_of(count));
        for header in own_headers(&armed.message, &added) {
            varint::put_bytes(out, header.name.as_bytes());
            varint::put_bytes(out, &header.value);
        }
        for (name, value) in added.headers() {
            varint::put_bytes(out, name.as_bytes());
            varint::put_bytes(out, value);
        }
        varint::put_bytes(out, ID_HEADER.as_bytes());
        varint::put_bytes(out, &armed.id().encode());
        varint::put_bytes(out, DUE_HEADER.as_bytes());
        varint::put_bytes(out, due.as_bytes());
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

/// The body, unless its sender gave none at all.
fn body_of(message: &Message) -> Option<&[u8]> {
    let is_null =
        message.body.is_empty() && message.headers.iter().any(|header| header.name == NULL_HEADER);
    (!is_null).then_some(&*message.body)
}

/// The sender's headers; our names are ours alone.
fn own_headers<'a>(
    message: &'a Message,
    added: &Added<'_>,
) -> impl Iterator<Item = &'a Header> + use<'a> {
    let (own_id, series) = (added.own_id.is_some(), added.series.is_some());
    message.headers.iter().filter(move |header| match header.name.as_str() {
        ID_HEADER | DUE_HEADER | NULL_HEADER => false,
        OWN_ID_HEADER => !own_id,
        SERIES_HEADER => !series,
        _ => true,
    })
}

fn record_bytes(message: &Message, added: &Added<'_>, delta: u64, due_chars: usize) -> usize {
    let key = message.key.as_ref().map_or(1, |key| varint::sized(key.len()));
    let mut count = 2;
    let mut headers = varint::sized(ID_HEADER.len())
        + varint::sized(ID_CHARS)
        + varint::sized(DUE_HEADER.len())
        + varint::sized(due_chars);
    for header in own_headers(message, added) {
        headers += varint::sized(header.name.len()) + varint::sized(header.value.len());
        count += 1;
    }
    for (name, value) in added.headers() {
        headers += varint::sized(name.len()) + varint::sized(value.len());
        count += 1;
    }
    2 + varint::size(delta)
        + key
        + body_of(message).map_or(1, |body| varint::sized(body.len()))
        + varint::size(length_of(count))
        + headers
}

/// A length or count as the format writes it.
const fn length_of(number: usize) -> u64 {
    (number as u64) << 1
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
