//! A batch as a producer sent it: what Kafka holds it to, and what is taken out of it.
//!
//! Everything is checked here before anything is handed on: one whole batch of this format, its
//! checksum, records that count from zero without a gap, times that are not in the far future, and
//! the sizes that hold for every message. A batch of which nothing is taken out goes on as it came,
//! without a copy.

use bytes::{Bytes, BytesMut};
use punctual_broker::{Cancel, Request};
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::records::{
    Batch, BatchError, BatchHeader, Compression, NO_PRODUCER, NO_TIMESTAMP, Record,
    UNPACKED_BYTES_MAX, Unpacked, restamp, set_max_timestamp,
};
use punctual_model::limits::{HEADER_BYTES_MAX, KEY_BYTES_MAX, RECORD_HEADERS_MAX};

use super::headers::{Asked, asked, touches};
use super::refusal::Refusal;

/// How far ahead of the broker's clock a record may say it was made.
const AHEAD_MS_MAX: i64 = 60 * 60 * 1000;
/// Records that may be taken out of one batch.
const TAKEN_MAX: usize = 100_000;
/// Memory that a record takes that was taken out, beside its bytes.
const TAKEN_BYTES: usize = 512;
/// What is compressed and larger than this is unpacked on a thread that may be kept busy.
const INLINE_BYTES: usize = 4 << 10;
/// The first version of the request that knows Zstandard.
const ZSTD_FROM: i16 = 7;

/// What a batch is held to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The broker's clock, in milliseconds.
    pub(super) now: i64,
    /// Largest value.
    pub(super) body_bytes_max: usize,
    /// Largest batch, as it is sent.
    pub(super) batch_bytes_max: usize,
    /// Whether the time that counts is that of the append.
    pub(super) restamps: bool,
    /// Of the request.
    pub(super) version: i16,
}

/// A batch whose header is in order.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    batch: Batch,
    terms: Terms,
}

impl Sent {
    /// Looks at the header, and at the checksum.
    pub(super) fn check(records: Option<Bytes>, terms: Terms) -> Result<Self, Refusal> {
        let records = records.filter(|records| !records.is_empty());
        let records = records.ok_or_else(|| invalid("there is no batch"))?;
        let header = BatchHeader::parse(&records)?;
        if header.bytes < records.len() {
            return Err(invalid("a partition takes one batch in a request"));
        }
        if header.bytes > terms.batch_bytes_max {
            let message = format!("the batch is larger than {} bytes", terms.batch_bytes_max);
            return Err(Refusal::new(ErrorCode::MESSAGE_TOO_LARGE, message));
        }
        check_header(&header, &terms)?;
        Ok(Self { batch: Batch::check(records)?, terms })
    }

    pub(super) const fn header(&self) -> &BatchHeader {
        self.batch.header()
    }

    /// Whether memory has to be set aside before it is unpacked.
    pub(super) fn is_packed(&self) -> bool {
        self.header().attributes.compression() != Some(Compression::None)
    }

    /// Whether it is worth another thread to unpack it.
    pub(super) fn is_heavy(&self) -> bool {
        self.is_packed() && self.batch.bytes().len() > INLINE_BYTES
    }

    /// Looks at every record.
    pub(super) fn open(self) -> Result<Opened, Refusal> {
        let unpacked = self.batch.unpack(UNPACKED_BYTES_MAX)?;
        let walk = Walk::over(&unpacked, &self.terms)?;
        if !walk.touched.is_empty() {
            return Ok(Opened::Mixed(Mixed { unpacked, touched: walk.touched }));
        }
        let batch = self.batch.into_bytes();
        if self.terms.restamps || unpacked.header().max_timestamp == walk.latest {
            return Ok(Opened::Plain(batch));
        }
        let mut mended = BytesMut::from(&batch[..]);
        set_max_timestamp(&mut mended, walk.latest);
        Ok(Opened::Plain(mended.freeze()))
    }
}

fn invalid(message: &'static str) -> Refusal {
    Refusal::new(ErrorCode::INVALID_RECORD, message)
}

fn check_header(header: &BatchHeader, terms: &Terms) -> Result<(), Refusal> {
    let attributes = header.attributes;
    if attributes.control() {
        return Err(invalid("only a broker writes control records"));
    }
    if attributes.transactional() {
        return Err(invalid("there are no transactions here"));
    }
    if header.count == 0 || header.count != header.last_offset_delta + 1 {
        return Err(invalid("the count and the last offset of the batch do not match"));
    }
    if header.producer_id > NO_PRODUCER && header.base_sequence < 0 {
        return Err(invalid("a batch of an idempotent producer has a sequence"));
    }
    if attributes.log_append_time() {
        let message = "the time of the append is not for a producer to say";
        return Err(Refusal::new(ErrorCode::INVALID_TIMESTAMP, message));
    }
    let known = match attributes.compression() {
        Some(Compression::Zstd) => terms.version >= ZSTD_FROM,
        compression => compression.is_some(),
    };
    if !known {
        let (code, message) =
            (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, "this compression is not known here");
        return Err(Refusal::new(code, message));
    }
    Ok(())
}

/// A batch whose records are in order.
#[derive(Debug)]
pub(super) enum Opened {
    /// All of it stays.
    Plain(Bytes),
    /// Some of it is to be taken out.
    Mixed(Mixed),
}

/// What a walk over all records finds.
struct Walk {
    /// The largest timestamp.
    latest: i64,
    /// The records that ask for something.
    touched: Vec<u32>,
}

impl Walk {
    fn over(unpacked: &Unpacked, terms: &Terms) -> Result<Self, Refusal> {
        let mut walk = Self { latest: NO_TIMESTAMP, touched: Vec::new() };
        for (expected, record) in (0_u32..).zip(unpacked.records()) {
            let record = record.map_err(|error| of_record(error, expected))?;
            if record.offset_delta != expected {
                return Err(of_record(BatchError::Record, expected));
            }
            let millis = check_time(&record, unpacked.header(), terms)?;
            walk.latest = walk.latest.max(millis);
            check_sizes(&record, terms)?;
            if touches(&record) {
                walk.touched.push(expected);
            }
        }
        if walk.touched.len() > TAKEN_MAX {
            let message = format!("at most {TAKEN_MAX} records of a batch may ask for something");
            return Err(Refusal::new(ErrorCode::MESSAGE_TOO_LARGE, message));
        }
        Ok(walk)
    }
}

fn of_record(error: BatchError, record: u32) -> Refusal {
    Refusal { record: Some(record), ..Refusal::from(error) }
}

/// When it was made; what has no time is never too late.
fn check_time(record: &Record<'_>, header: &BatchHeader, terms: &Terms) -> Result<i64, Refusal> {
    let refused = |message: &'static str| {
        Err(Refusal::of_record(ErrorCode::INVALID_TIMESTAMP, record.offset_delta, message))
    };
    match header.base_timestamp.checked_add(record.timestamp_delta) {
        // What the producer says counts for nothing.
        Some(millis) if terms.restamps => Ok(millis),
        Some(millis) if millis > terms.now.saturating_add(AHEAD_MS_MAX) => {
            refused("the timestamp is more than an hour ahead of the broker's clock")
        }
        Some(millis) if millis >= NO_TIMESTAMP => Ok(millis),
        _ => refused("the timestamp is out of range"),
    }
}

/// What holds for records that stay as they are; what is taken out is held to what holds for every
/// message, where it is placed.
fn check_sizes(record: &Record<'_>, terms: &Terms) -> Result<(), Refusal> {
    let at = record.offset_delta;
    let too_large = |what: &str, most: usize| {
        let message = format!("the {what} is larger than {most} bytes");
        Err(Refusal::of_record(ErrorCode::MESSAGE_TOO_LARGE, at, message))
    };
    if record.value.is_some_and(|value| value.len() > terms.body_bytes_max) {
        return too_large("value", terms.body_bytes_max);
    }
    let record_bytes_max = terms.body_bytes_max + HEADER_BYTES_MAX + KEY_BYTES_MAX;
    if record.span().len() > record_bytes_max {
        return too_large("record", record_bytes_max);
    }
    if usize::try_from(record.header_count()).is_ok_and(|count| count > RECORD_HEADERS_MAX) {
        let message = format!("there are more than {RECORD_HEADERS_MAX} headers");
        return Err(Refusal::of_record(ErrorCode::INVALID_RECORD, at, message));
    }
    Ok(())
}

/// A batch of which some records ask for something.
#[derive(Debug)]
pub(super) struct Mixed {
    unpacked: Unpacked,
    touched: Vec<u32>,
}

/// What a batch comes to.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// What stays, which takes all offsets.
    pub(super) batch: Bytes,
    pub(super) stays: u64,
    pub(super) taken: Vec<(u32, Request)>,
    pub(super) cancels: Vec<Cancel>,
}

impl Mixed {
    /// Memory that is held while it is taken apart and stored, about.
    pub(super) fn weight(&self) -> usize {
        self.unpacked.size() + self.touched.len() * TAKEN_BYTES
    }

    /// Takes out what asks for something.
    pub(super) fn split(self) -> Result<Split, Refusal> {
        let Self { unpacked, touched } = self;
        let mut split = Split { taken: Vec::with_capacity(touched.len()), ..Split::default() };
        let mut next = touched.iter().copied().peekable();
        for record in unpacked.records() {
            let record = record?;
            let at = record.offset_delta;
            if next.next_if_eq(&at).is_none() {
                continue;
            }
            let refused = |message| Refusal::of_record(ErrorCode::INVALID_RECORD, at, message);
            match asked(&record).map_err(refused)? {
                Asked::Schedule(request) => split.taken.push((at, request)),
                Asked::Cancel(cancel) => split.cancels.push(cancel),
            }
        }
        split.batch = unpacked.thin(&touched)?;
        split.stays = u64::from(unpacked.header().count) - touched.len() as u64;
        Ok(split)
    }
}

impl Split {
    /// Gives what stays the time of the append; a batch without records keeps having none.
    pub(super) fn restamp(&mut self, millis: i64) {
        if self.stays > 0 {
            let mut stamped = BytesMut::from(&self.batch[..]);
            restamp(&mut stamped, millis);
            self.batch = stamped.freeze();
        }
    }

    /// A batch of which everything stays.
    pub(super) fn whole(batch: Bytes, count: u32) -> Self {
        Self { batch, stays: count.into(), ..Self::default() }
    }
}
