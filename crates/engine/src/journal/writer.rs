//! The one writer of the journal.
//!
//! After any error the writer must not be used again: what reached the disk is unknown, and a
//! second sync that succeeds would prove nothing. [`Writer::make_room`] is the exception: it only
//! prepares, so a full disk there has harmed nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Open};
use crate::journal::group::{self, HEADER_BYTES, Header};
use crate::journal::{DIR, Position, path};
use crate::options::Durability;

/// How many used-up files are kept for later use; more are deleted.
const SPARES_MAX: usize = 3;

/// Writes groups at the end of the journal.
#[derive(Debug)]
pub struct Writer {
    disk: Arc<dyn Disk>,
    salt: u32,
    file_bytes: u64,
    durability: Durability,
    file: Arc<dyn DiskFile>,
    number: u64,
    offset: u64,
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
    /// Starts a new file behind what is there.
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
        let file = create(&*disk, start.number, file_bytes)?;
        Ok(Self {
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
        if self.offset + group::padded(payload_bytes) as u64 <= self.file_bytes {
            return Ok(());
        }
        if self.dirty && self.durability != Durability::Os {
            self.sync()?;
        }
        let number = self.number + 1;
        let file = match self.spares.pop() {
            Some(spare) => {
                self.disk.rename(&path(spare), &path(number))?;
                self.disk.sync_dir(Path::new(DIR))?;
                self.disk.open(&path(number), Open::Existing)?
            }
            None => create(&*self.disk, number, self.file_bytes)?,
        };
        self.full.push(self.number);
        self.file = file;
        self.number = number;
        self.offset = 0;
        Ok(())
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
        self.file.write_at(&self.buffer, self.offset)?;
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
        if self.dirty {
            self.file.sync()?;
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

fn create(disk: &dyn Disk, number: u64, file_bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(&path(number), Open::CreateNew)?;
    let prepared = file
        .allocate(file_bytes)
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
