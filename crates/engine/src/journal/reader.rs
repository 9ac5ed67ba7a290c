//! Reading the journal back after a restart.
//!
//! A group that is not whole ends the journal if nothing says that it ever was on disk: that is a
//! torn tail, which nobody was told about. If a later group says so, it is damage, and the store
//! refuses to start rather than drop what was promised.

use std::io;
use std::path::Path;

use bytes::Bytes;
use punctual_model::ports::StoreError;

use crate::disk::{self, Disk, DiskFile, Open};
use crate::journal::change::{self, Change};
use crate::journal::group::{self, HEADER_BYTES, Header, PAGE_BYTES};
use crate::journal::{DIR, Position, number, path};

/// What reading found.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where the last whole group ends.
    pub end: Position,
    /// All files, oldest first.
    pub files: Vec<u64>,
    /// Whether an unfinished group was cut off.
    pub torn: bool,
}

/// Hands every change from `from` on to `apply`, in order, with the place of its group.
///
/// # Errors
/// [`StoreError::Damaged`] when something that was on disk is not whole, or cannot be read.
pub fn replay(
    disk: &dyn Disk,
    (salt, file_bytes): (u32, u64),
    from: Position,
    mut apply: impl FnMut(Position, Change) -> Result<(), StoreError>,
) -> Result<Tail, StoreError> {
    let names = disk.list(Path::new(DIR)).map_err(unreadable)?;
    let files: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
    let scan = Scan { disk, salt, file_bytes };
    let mut end = from;
    let mut last = None;
    let mut torn = false;
    let first = from.0 / file_bytes;
    for &file in files.iter().filter(|&&file| file >= first) {
        let start = Position(file * file_bytes);
        let handle = disk.open(&path(file), Open::Existing).map_err(unreadable)?;
        let mut position = end;
        if file > first || end < start {
            let Some(header) = scan.header(&*handle, start)? else {
                // Made and never used, or its first group is torn.
                torn |= scan.check_tail(&*handle, (start, start), end)?;
                continue;
            };
            if header.previous_end != end {
                // It follows something that is gone. Where nobody waited for the disk that is a
                // torn tail, which a loss of power may leave before a whole group.
                if header.synced_through > end {
                    return Err(damage(end));
                }
                torn = true;
                continue;
            }
            position = start;
        }
        while let Some((header, payload)) = scan.group(&*handle, position)? {
            for change in change::decode(&payload).map_err(|_e| damage(position))? {
                apply(position, change)?;
            }
            position = Position(position.0 + header.group_bytes() as u64);
        }
        // A file has its full length before it is used.
        if position > start && handle.len().map_err(unreadable)? < file_bytes {
            return Err(damage(position));
        }
        // The process that wrote this may have been killed before it was synced. From here on it is
        // shown and built upon, so it has to be certain.
        handle.sync().map_err(unreadable)?;
        end = position;
        last = Some((handle, start));
    }
    if let Some((handle, start)) = last {
        torn |= scan.check_tail(&*handle, (start, end), end)?;
    }
    Ok(Tail { end, files, torn })
}

struct Scan<'a> {
    disk: &'a dyn Disk,
    salt: u32,
    file_bytes: u64,
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.disk)
    }
}

impl Scan<'_> {
    /// The header at `position`, if a whole group is there.
    fn header(
        &self,
        file: &dyn DiskFile,
        position: Position,
    ) -> Result<Option<Header>, StoreError> {
        Ok(self.group(file, position)?.map(|(header, _)| header))
    }

    /// The whole group at `position`, if there is one.
    fn group(
        &self,
        file: &dyn DiskFile,
        position: Position,
    ) -> Result<Option<(Header, Bytes)>, StoreError> {
        let offset = position.0 % self.file_bytes;
        let Some(front) = read(file, offset, HEADER_BYTES)? else { return Ok(None) };
        let Ok(header) = group::parse(&front) else { return Ok(None) };
        let fits = offset + header.group_bytes() as u64 <= self.file_bytes;
        if header.position != position || !fits {
            return Ok(None);
        }
        let Some(bytes) = read(file, offset, HEADER_BYTES + header.payload_bytes)? else {
            return Ok(None);
        };
        if !group::verify(&bytes, self.salt) {
            return Ok(None);
        }
        Ok(Some((header, Bytes::from(bytes).slice(HEADER_BYTES..))))
    }

    /// Looks in the file that starts at `start`, from `from` on, for a group that proves that
    /// something behind `end` is missing. Answers whether there are remains of an unfinished group.
    fn check_tail(
        &self,
        file: &dyn DiskFile,
        (start, from): (Position, Position),
        end: Position,
    ) -> Result<bool, StoreError> {
        let mut torn = false;
        let mut position = from;
        while position.0 < start.0 + self.file_bytes {
            let Some(front) = read(file, position.0 - start.0, HEADER_BYTES)? else { break };
            if group::parse(&front).is_ok_and(|header| header.position == position) {
                torn = true;
                if let Some(header) = self.header(file, position)?
                    && header.synced_through > end
                {
                    return Err(damage(end));
                }
            }
            position = Position(position.0 + PAGE_BYTES as u64);
        }
        Ok(torn)
    }
}

fn read(file: &dyn DiskFile, offset: u64, len: usize) -> Result<Option<Vec<u8>>, StoreError> {
    match disk::read_exact(file, offset, len) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(unreadable(error)),
    }
}

/// What is missing at `position` was promised.
pub(crate) fn damage(position: Position) -> StoreError {
    StoreError::damaged(format_args!(
        "the journal is not whole at position {}, although it was written and synced; \
         restore the data directory from a copy",
        position.0
    ))
}

fn unreadable(error: io::Error) -> StoreError {
    StoreError::damaged(format_args!("the journal cannot be read: {error}"))
}
