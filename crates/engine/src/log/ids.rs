//! The `.ids` file of a segment that no longer grows: which messages it holds, and where.
//!
//! ```text
//! entry    sequence u64 · offset from the base offset u32          sorted by sequence
//! trailer  crc of the entries u32 · count u64 · end offset u64 · bytes of log u64
//!          · first time u64 · last time u64 · magic (8 bytes) · crc of the trailer before it u32
//! ```
//!
//! Big-endian, CRC-32C. The file is derived from the log and is never synced: one that is missing
//! or fails its checks is made again. Looking up keeps nothing in memory.

use std::io;

use punctual_model::{Sequence, Timestamp};

use crate::disk::{DiskFile, read_exact};

const ENTRY_BYTES: usize = 12;
const TRAILER_BYTES: usize = 56;
const MAGIC: &[u8; 8] = b"PUNCTID1";
const CHECK_BYTES: usize = ENTRY_BYTES * 8192;

/// What the trailer of an `.ids` file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// Number of entries.
    pub(super) count: u64,
    /// The offset behind the segment.
    pub(super) end: u64,
    /// Bytes of its log.
    pub(super) bytes: u64,
    /// When its first batch was appended.
    pub(super) first: Timestamp,
    /// When its last batch was appended.
    pub(super) last: Timestamp,
    crc: u32,
}

/// One message of the segment: its sequence, and its offset counted from the base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdEntry {
    /// The sequence of the message.
    pub(super) sequence: Sequence,
    /// Its offset, counted from the base offset of the segment.
    pub(super) relative: u32,
}

/// Writes the whole file from entries in any order.
pub(super) fn write(
    file: &dyn DiskFile,
    mut entries: Vec<IdEntry>,
    (end, bytes_of_log): (u64, u64),
    times: (Timestamp, Timestamp),
) -> io::Result<()> {
    entries.sort_unstable();
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES + TRAILER_BYTES);
    for entry in &entries {
        bytes.extend_from_slice(&entry.sequence.get().to_be_bytes());
        bytes.extend_from_slice(&entry.relative.to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    let mut trailer = Vec::with_capacity(TRAILER_BYTES);
    trailer.extend_from_slice(&crc.to_be_bytes());
    trailer.extend_from_slice(&(entries.len() as u64).to_be_bytes());
    trailer.extend_from_slice(&end.to_be_bytes());
    trailer.extend_from_slice(&bytes_of_log.to_be_bytes());
    trailer.extend_from_slice(&times.0.as_millis().to_be_bytes());
    trailer.extend_from_slice(&times.1.as_millis().to_be_bytes());
    trailer.extend_from_slice(MAGIC);
    trailer.extend_from_slice(&crc32c::crc32c(&trailer).to_be_bytes());
    bytes.extend_from_slice(&trailer);
    file.set_len(0)?;
    file.write_at(&bytes, 0)
}

/// Reads and checks the trailer; `None` when it is not that of a whole file.
pub(super) fn trailer(file: &dyn DiskFile) -> io::Result<Option<Trailer>> {
    let length = file.len()?;
    let Some(at) = length.checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let raw = read_exact(file, at, TRAILER_BYTES)?;
    Ok(parse_trailer(&raw).filter(|trailer| {
        trailer.count.checked_mul(ENTRY_BYTES as u64).is_some_and(|bytes| bytes == at)
    }))
}

fn parse_trailer(raw: &[u8]) -> Option<Trailer> {
    let (body, crc) = raw.split_last_chunk::<4>()?;
    if crc32c::crc32c(body) != u32::from_be_bytes(*crc) {
        return None;
    }
    let (entries_crc, rest) = body.split_first_chunk::<4>()?;
    let (numbers, magic) = rest.split_last_chunk::<8>()?;
    let [count, end, bytes, first, last] = numbers.as_chunks::<8>().0 else {
        return None;
    };
    (magic == MAGIC).then_some(Trailer {
        count: u64::from_be_bytes(*count),
        end: u64::from_be_bytes(*end),
        bytes: u64::from_be_bytes(*bytes),
        first: Timestamp::from_millis(u64::from_be_bytes(*first))?,
        last: Timestamp::from_millis(u64::from_be_bytes(*last))?,
        crc: u32::from_be_bytes(*entries_crc),
    })
}

/// Whether the entries are those that the trailer was written for.
pub(super) fn intact(file: &dyn DiskFile, trailer: &Trailer) -> io::Result<bool> {
    let mut left = trailer.count.saturating_mul(ENTRY_BYTES as u64);
    let (mut crc, mut at) = (0, 0);
    let mut buffer = vec![0; CHECK_BYTES];
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHECK_BYTES);
        let part = buffer.get_mut(..want).unwrap_or_default();
        if file.read_at(part, at)? < want {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, part);
        at += want as u64;
        left -= want as u64;
    }
    Ok(crc == trailer.crc)
}

/// The offset of the message, counted from the base offset of the segment.
pub(super) fn find(file: &dyn DiskFile, count: u64, sequence: Sequence) -> io::Result<Option<u32>> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        let raw = read_exact(file, middle * ENTRY_BYTES as u64, ENTRY_BYTES)?;
        let Some((found, relative)) = entry(&raw) else {
            return Ok(None);
        };
        match found.cmp(&sequence.get()) {
            std::cmp::Ordering::Equal => return Ok(Some(relative)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Ok(None)
}

fn entry(raw: &[u8]) -> Option<(u64, u32)> {
    let (sequence, relative) = raw.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*sequence), u32::from_be_bytes(*relative.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, Open, RealDisk};

    fn id(sequence: u64, relative: u32) -> IdEntry {
        IdEntry { sequence: Sequence::new(sequence).unwrap(), relative }
    }

    #[test]
    fn what_was_written_is_found_and_a_changed_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path()).unwrap();
        let file = disk.open(Path::new("x.ids"), Open::CreateNew).unwrap();
        let entries = vec![id(9, 0), id(3, 1), id(700, 2)];
        let times = (Timestamp::from_millis(5).unwrap(), Timestamp::from_millis(6).unwrap());
        write(&*file, entries, (3, 99), times).unwrap();
        let found = trailer(&*file).unwrap().unwrap();
        assert_eq!((found.count, found.end, found.bytes), (3, 3, 99));
        assert_eq!((found.first, found.last), times);
        assert!(intact(&*file, &found).unwrap());
        for (sequence, expected) in [(3, Some(1)), (9, Some(0)), (700, Some(2)), (4, None)] {
            assert_eq!(find(&*file, 3, Sequence::new(sequence).unwrap()).unwrap(), expected);
        }
        let length = file.len().unwrap();
        for at in 0..length {
            let byte = read_exact(&*file, at, 1).unwrap();
            let changed: Vec<u8> = byte.iter().map(|byte| byte ^ 4).collect();
            file.write_at(&changed, at).unwrap();
            let sound = trailer(&*file).unwrap().is_some_and(|t| intact(&*file, &t).unwrap());
            assert!(!sound, "a change of byte {at} went unnoticed");
            file.write_at(&byte, at).unwrap();
        }
    }
}
