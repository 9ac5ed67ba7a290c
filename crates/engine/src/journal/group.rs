//! The frame around a group of changes: how it is sealed before the write and checked after a read.
//!
//! ```text
//! magic u32 · crc32c u32 · payload length u32 · 0 u32 · position u64 · previous end u64 ·
//! synced through u64 · 0 … (64 bytes) · payload · zeros up to the next page
//! ```
//!
//! The checksum covers everything behind it and starts from the store's secret salt, so bytes that
//! a producer chose can never pass for a group. `previous end` chains groups over the borders of
//! files; `synced through` tells a reader which older groups had to be whole when this one was
//! written, which separates a torn tail from damage.

use crate::codec::{self, Malformed};
use crate::journal::Position;

/// Bytes of a group header.
pub const HEADER_BYTES: usize = 64;
/// Groups start at multiples of this.
pub const PAGE_BYTES: usize = 4096;

const MAGIC: u32 = 0x4c4a_5550;

/// What a group header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where this group starts.
    pub position: Position,
    /// Where the group before it ended.
    pub previous_end: Position,
    /// Everything before this was known to be on disk.
    pub synced_through: Position,
    /// Bytes of changes behind the header.
    pub payload_bytes: usize,
}

impl Header {
    /// Bytes of the whole group on disk.
    #[must_use]
    pub const fn group_bytes(&self) -> usize {
        padded(self.payload_bytes)
    }
}

/// Bytes on disk of a group with that much payload.
#[must_use]
pub const fn padded(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(PAGE_BYTES)
}

/// Fills in the header of `group`, whose first [`HEADER_BYTES`] are free, and pads it.
pub fn seal(group: &mut Vec<u8>, salt: u32, header: &Header) {
    let payload = u32::try_from(header.payload_bytes).expect("a group is far below 4 GiB");
    let mut front = Vec::with_capacity(HEADER_BYTES);
    front.extend_from_slice(&MAGIC.to_le_bytes());
    front.extend_from_slice(&[0; 4]);
    front.extend_from_slice(&payload.to_le_bytes());
    front.extend_from_slice(&[0; 4]);
    for position in [header.position, header.previous_end, header.synced_through] {
        front.extend_from_slice(&position.0.to_le_bytes());
    }
    front.resize(HEADER_BYTES, 0);
    group.splice(..HEADER_BYTES, front).for_each(drop);
    let checksum = checksum(group, salt).to_le_bytes();
    if let Some(slot) = group.get_mut(4..8) {
        slot.copy_from_slice(&checksum);
    }
    group.resize(padded(header.payload_bytes), 0);
}

/// Reads a header; whether the group is whole is for [`verify`] to say.
///
/// # Errors
/// [`Malformed`] when there is no group of ours here.
pub fn parse(mut bytes: &[u8]) -> Result<Header, Malformed> {
    let bytes = &mut bytes;
    if codec::get_u32(bytes)? != MAGIC {
        return Err(Malformed);
    }
    codec::get_u32(bytes)?;
    let payload = codec::get_u32(bytes)?;
    codec::get_u32(bytes)?;
    Ok(Header {
        position: Position(codec::get_u64(bytes)?),
        previous_end: Position(codec::get_u64(bytes)?),
        synced_through: Position(codec::get_u64(bytes)?),
        payload_bytes: usize::try_from(payload).map_err(|_e| Malformed)?,
    })
}

/// Whether `group`, header and payload without padding, is as it was sealed.
#[must_use]
pub fn verify(group: &[u8], salt: u32) -> bool {
    let Some(mut stored) = group.get(4..8) else { return false };
    codec::get_u32(&mut stored).is_ok_and(|stored| stored == checksum(group, salt))
}

fn checksum(group: &[u8], salt: u32) -> u32 {
    crc32c::crc32c_append(salt, group.get(8..).unwrap_or_default())
}
