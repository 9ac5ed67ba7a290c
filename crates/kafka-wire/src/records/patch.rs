//! Changes to a batch where it stands. What lies under the checksum has it computed anew.
//!
//! Bytes that are no batch at all are left alone.

use bytes::BufMut;

use super::{Attributes, CRC_FROM, HEADER_BYTES};

const CRC_AT: usize = 17;
const LEADER_EPOCH_AT: usize = 12;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

/// Gives a batch its place in a log.
pub fn place(batch: &mut [u8], base_offset: u64, leader_epoch: i32) {
    if let Some(head) = batch.first_chunk_mut::<HEADER_BYTES>() {
        put(head, 0, &base_offset.to_be_bytes());
        put(head, LEADER_EPOCH_AT, &leader_epoch.to_be_bytes());
    }
}

/// Gives all records of a producer's batch the time of the append, in milliseconds.
pub fn restamp(batch: &mut [u8], millis: i64) {
    let Some(head) = batch.first_chunk_mut::<HEADER_BYTES>() else { return };
    let bits = head.get(ATTRIBUTES_AT..).and_then(|rest| rest.first_chunk().copied());
    let attributes = Attributes::from_bits(i16::from_be_bytes(bits.unwrap_or_default()));
    put(head, ATTRIBUTES_AT, &attributes.with_restamped().bits().to_be_bytes());
    set_max_timestamp(batch, millis);
}

/// Says what the largest timestamp is, in milliseconds.
pub fn set_max_timestamp(batch: &mut [u8], millis: i64) {
    let Some(head) = batch.first_chunk_mut::<HEADER_BYTES>() else { return };
    put(head, MAX_TIMESTAMP_AT, &millis.to_be_bytes());
    let crc = crc32c::crc32c(batch.get(CRC_FROM..).unwrap_or_default());
    put(batch, CRC_AT, &crc.to_be_bytes());
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(mut place) = batch.get_mut(at..) {
        place.put_slice(bytes);
    }
}
