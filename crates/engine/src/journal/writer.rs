//! The one writer of the journal.
//!
//! After any error the writer must not be used again: what reached the disk is unknown, and a
//! second sync that succeeds would prove nothing. [`Writer::make_room`] is the exception: it only
//! prepares, so a full disk there has harmed nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{self, Disk, DiskFile, Open};
use crate::journal::group::{self, HEADER_BYTES, Header, PAGE_BYTES};
use crate::journal::{DIR, Position, path};
use crate::options::Durability;

/// How many used-up files are kept for later use; more are deleted.
const SPARES_MAX: usize = 3;
/// On a full disk space is taken for this part of a file only: enough for many cancels, and little
/// of what was set aside for deliveries.
const SCANT_PART: u64 = 64;

/// Writes groups at the end of the journal.
#[derive(Debug)]
pub struct Writer {
    disk: Arc<dyn Disk>,
    salt: u32,
    file_bytes: u64,
    durability: Durability,
    /// The current file; there is none after a start on a full disk.
    file: Option<Arc<dyn DiskFile>>,
    number: u64,
    offset: u64,
    /// Bytes of the current file for which there is space.
    limit: u64,
    previous_end: Position,
    synced_through: Position,
    dirty: bool,
    /// Files that hold changes, oldest first, without the current one.
    full: Vec<u64>,
    spares: Vec<u64>,
    buffer: Vec<u8>,
}

/// Where a new writer starts.
#[derive(Debug)]
pub struct Start {
    /// The number of its first file: one that was never used.
    pub number: u64,
    /// Where the journal ended before.
    pub previous_end: Position,
    /// Files that recovery has read or skipped, oldest first.
    pub files: Vec<u64>,
}

impl Writer {
    /// Starts a new file behind what is there; on a full disk that is left for later.
    ///
    /// # Errors
    /// As the disk says.
    pub fn start(
        disk: Arc<dyn Disk>,
        (salt, file_bytes): (u32, u64),
        durability: Durability,
        start: Start,
    ) -> io::Result<Self> {
        disk.create_dir(Path::new(DIR))?;
        let file = match create(&*disk, start.number, file_bytes, file_bytes) {
            Err(error) if disk::is_full(&error) => None,
            made => Some(made?),
        };
        Ok(Self {
            limit: file.as_ref().map_or(0, |_| file_bytes),
            disk,
            salt,
            file_bytes,
            durability,
            file,
            number: start.number,
            offset: 0,
            previous_end: start.previous_end,
            synced_through: start.previous_end,
            dirty: false,
            full: start.files,
            spares: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// The largest payload that one group can carry.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        usize::try_from(self.file_bytes).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES)
    }

    /// Makes sure that the next group fits the current file, going on to a fresh one if not.
    ///
    /// # Errors
    /// As the disk says; `StorageFull` leaves the writer usable.
    pub fn make_room(&mut self, payload_bytes: usize) -> io::Result<()> {
        self.advance(payload_bytes, self.file_bytes)
    }

    /// As [`make_room`](Self::make_room), taking as little space as makes sense.
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room).
    pub fn make_scant_room(&mut self, payload_bytes: usize) -> io::Result<()> {
        let least = group::padded(payload_bytes) as u64;
        let scant = (self.file_bytes / SCANT_PART).next_multiple_of(PAGE_BYTES as u64);
        self.advance(payload_bytes, least.max(scant).min(self.file_bytes))
    }

    /// Goes on to a fresh file with `space` in it, unless the next group fits the current one.
    fn advance(&mut self, payload_bytes: usize, space: u64) -> io::Result<()> {
        if self.offset + group::padded(payload_bytes) as u64 <= self.limit {
            return Ok(());
        }
        if self.dirty && self.durability != Durability::Os {
            self.sync()?;
        }
        let number = if self.file.is_some() { self.number + 1 } else { self.number };
        let (file, limit) = match self.reuse(number)? {
            Some(file) => (file, self.file_bytes),
            None => (create(&*self.disk, number, self.file_bytes, space)?, space),
        };
        if self.file.replace(file).is_some() {
            self.full.push(self.number);
        }
        (self.number, self.offset, self.limit) = (number, 0, limit);
        Ok(())
    }

    /// A used-up file under a new number, if there is one that has all its space.
    fn reuse(&mut self, number: u64) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let Some(&spare) = self.spares.last() else { return Ok(None) };
        let file = self.disk.open(&path(spare), Open::Existing)?;
        // One that was made on a full disk has only a part of its space.
        match file.allocate(self.file_bytes) {
            Err(error) if disk::is_full(&error) => return Ok(None),
            outcome => outcome?,
        }
        self.disk.rename(&path(spare), &path(number))?;
        self.disk.sync_dir(Path::new(DIR))?;
        self.spares.pop();
        Ok(Some(file))
    }

    /// The buffer for the payload of the next group; its contents are up to the caller.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES, 0);
        &mut self.buffer
    }

    /// Writes what was put into the buffer since [`begin`](Self::begin) and, unless told
    /// otherwise, waits until it is on disk. Answers where the journal ends now.
    ///
    /// # Errors
    /// As the disk says. The writer must not be used afterwards.
    pub fn write(&mut self) -> io::Result<Position> {
        let position = Position(self.number * self.file_bytes + self.offset);
        let header = Header {
            position,
            previous_end: self.previous_end,
            synced_through: self.synced_through,
            payload_bytes: self.buffer.len().saturating_sub(HEADER_BYTES),
        };
        group::seal(&mut self.buffer, self.salt, &header);
        let file = self.file.as_ref().expect("room was made before");
        debug_assert!(self.offset + self.buffer.len() as u64 <= self.limit, "and enough of it");
        file.write_at(&self.buffer, self.offset)?;
        self.dirty = true;
        self.offset += self.buffer.len() as u64;
        self.previous_end = Position(position.0 + self.buffer.len() as u64);
        if self.durability == Durability::Fsync {
            self.sync()?;
        }
        Ok(self.previous_end)
    }

    /// Waits until everything written is on disk.
    ///
    /// # Errors
    /// As the disk says. The writer must not be used afterwards.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.dirty) {
            file.sync()?;
            self.dirty = false;
            self.synced_through = self.previous_end;
        }
        Ok(())
    }

    /// Where the journal ends.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.previous_end
    }

    /// How far the journal is known to be on disk.
    #[must_use]
    pub const fn synced_through(&self) -> Position {
        self.synced_through
    }

    /// Takes back the files that end before `position`, which no checkpoint needs any more.
    ///
    /// # Errors
    /// As the disk says.
    pub fn recycle(&mut self, position: Position) -> io::Result<()> {
        let needed = position.0 / self.file_bytes;
        while let Some(&oldest) = self.full.first().filter(|&&number| number < needed) {
            if self.spares.len() < SPARES_MAX {
                self.spares.push(oldest);
            } else {
                self.disk.remove(&path(oldest))?;
            }
            self.full.remove(0);
        }
        Ok(())
    }
}

/// Makes a file of full length with space for its first bytes.
fn create(
    disk: &dyn Disk,
    number: u64,
    file_bytes: u64,
    space: u64,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(&path(number), Open::CreateNew)?;
    let prepared = file
        .allocate(space)
        .and_then(|()| if space < file_bytes { file.set_len(file_bytes) } else { Ok(()) })
        .and_then(|()| file.sync())
        .and_then(|()| disk.sync_dir(Path::new(DIR)));
    match prepared {
        Ok(()) => Ok(file),
        Err(error) => {
            // Nothing was written into it; the next try must be able to make it anew.
            disk.remove(&path(number))?;
            Err(error)
        }
    }
}
