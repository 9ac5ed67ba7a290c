//! What is done to arbitrary bytes: the fuzzer's targets, and the ordinary test that replays them.
//!
//! A target may refuse its input, but not panic, not take more memory than the input warrants, and
//! not contradict itself: what was understood is written and understood again.

use bytes::Bytes;
use punctual_kafka_wire::api::api;
use punctual_kafka_wire::frame::RequestHeader;
use punctual_kafka_wire::records::{Batch, Unpacked};
use punctual_kafka_wire::{Reader, WireError};

/// What the records of a batch may take once unpacked, in bytes.
const BUDGET: usize = 1 << 20;

/// Bytes before the checksum of a batch.
const CHECKSUM_AT: usize = 17;

/// Bytes before what the checksum covers.
const COVERED_FROM: usize = 21;

/// A frame from a client, without its size: header and body of any API. Answers with the key of the
/// API when the frame is a request that would be handled.
pub fn requests(frame: &[u8]) -> Result<i16, WireError> {
    let mut reader = Reader::new(Bytes::copy_from_slice(frame));
    let header = RequestHeader::decode(&mut reader)?;
    let (key, version) = (header.api_key, header.api_version);
    let api = api(key).ok_or(WireError::Version { key, version })?;
    let body = api.reencode(&mut reader, version)?;
    let again = api.reencode(&mut Reader::new(body.clone()), version);
    assert_eq!(again, Ok(body), "{} in version {version} is not stable", api.name);
    Ok(key)
}

/// A record batch. Unless the first byte is odd, length, format and checksum are put right first:
/// behind a checksum no fuzzer finds anything. Answers how many records there are.
pub fn batches(input: &[u8]) -> Option<usize> {
    let (first, batch) = input.split_first()?;
    let mut batch = batch.to_vec();
    if first % 2 == 0 {
        repair(&mut batch)?;
    }
    let batch = Batch::check(batch.into()).ok()?;
    let unpacked = batch.unpack(BUDGET).ok()?;
    assert!(unpacked.size() <= BUDGET, "{} bytes are over the budget", unpacked.size());
    let deltas = walk(&unpacked)?;
    let every_other: Vec<_> = deltas.iter().copied().step_by(2).collect();
    let thinned = unpacked.thin(&every_other).expect("every record was read");
    let thinned = Batch::check(thinned).expect("it was just written");
    assert_eq!(thinned.header().last_offset_delta, batch.header().last_offset_delta);
    let left = walk(&thinned.unpack(BUDGET).ok()?).expect("every record was read before");
    assert_eq!(left.len(), deltas.len() / 2);
    Some(deltas.len())
}

/// The distances of the records to the base offset, when all of them can be read.
fn walk(unpacked: &Unpacked) -> Option<Vec<u32>> {
    let mut deltas = Vec::new();
    for record in unpacked.records() {
        let record = record.ok()?;
        assert_eq!(record.headers().count() as u64, u64::from(record.header_count()));
        deltas.push(record.offset_delta);
    }
    Some(deltas)
}

fn repair(batch: &mut [u8]) -> Option<()> {
    let length = u32::try_from(batch.len().checked_sub(12)?).ok()?;
    batch.get_mut(8..12)?.copy_from_slice(&length.to_be_bytes());
    *batch.get_mut(16)? = 2;
    let checksum = crc32c::crc32c(batch.get(COVERED_FROM..)?);
    batch.get_mut(CHECKSUM_AT..COVERED_FROM)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
