//! Writing a file, front to back, once.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Open};
use crate::ids::Value;
use crate::ids::file::{
    self, DIR, FOOTER_BYTES, Footer, IdFile, MAGIC, PAGE_BYTES, PAGE_DATA, VERSION, not_whole, path,
};
use crate::ids::filter::Filter;
use crate::ids::name::Name;
use crate::ids::table::Frozen;

/// Bytes gathered before they are handed to the disk.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes written before they are synced, so that the final sync finds little to do.
const SYNC_BYTES: u64 = 16 << 20;

/// Writes a frozen table as file `number`. When this answers, the file survives a crash.
///
/// # Errors
/// As the disk says; then a part of the file may be there, for the caller to remove.
pub fn write(disk: &dyn Disk, number: u64, frozen: &Frozen) -> io::Result<IdFile> {
    let mut writer = IdWriter::create(disk, number, frozen.table().len() as u64)?;
    for (name, value) in frozen.sorted() {
        writer.push(name, &value)?;
    }
    writer.finish(disk)
}

/// A file in the making. Dropped before [`finish`](Self::finish), it leaves a file that nobody
/// refers to, which the next start removes.
#[derive(Debug)]
pub(crate) struct IdWriter {
    number: u64,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Where in the buffer the open page starts.
    page_start: usize,
    flushed: u64,
    synced: u64,
    firsts: Vec<u32>,
    filter: Filter,
    entries: u64,
    last: Option<Name>,
}

impl IdWriter {
    /// Starts file `number`, for up to `entries_max` entries.
    pub(crate) fn create(disk: &dyn Disk, number: u64, entries_max: u64) -> io::Result<Self> {
        if disk.list(Path::new(DIR))?.is_empty() {
            // A checkpoint will name the file: the directory must be as certain as that.
            disk.create_dir(Path::new(DIR))?;
            disk.sync_dir(Path::new(""))?;
        }
        let file = disk.open(&path(number), Open::CreateNew)?;
        let mut buffer = Vec::with_capacity(WRITE_BYTES + PAGE_BYTES);
        buffer.extend_from_slice(MAGIC);
        buffer.extend_from_slice(&VERSION.to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&number.to_le_bytes());
        buffer.resize(PAGE_BYTES, 0);
        Ok(Self {
            number,
            file,
            page_start: buffer.len(),
            buffer,
            flushed: 0,
            synced: 0,
            firsts: Vec::new(),
            filter: Filter::for_names(entries_max),
            entries: 0,
            last: None,
        })
    }

    /// Adds an entry; names come in growing order.
    ///
    /// # Errors
    /// As the disk says; `InvalidData` when the order is wrong.
    pub(crate) fn push(&mut self, name: Name, value: &Value) -> io::Result<()> {
        if self.last.is_some_and(|last| last >= name) {
            return Err(not_whole());
        }
        if self.buffer.len() == self.page_start {
            self.firsts.push(name.prefix());
        }
        file::encode(&mut self.buffer, name, value);
        self.filter.add(name);
        self.last = Some(name);
        self.entries += 1;
        if self.buffer.len() - self.page_start == PAGE_DATA { self.end_page() } else { Ok(()) }
    }

    fn end_page(&mut self) -> io::Result<()> {
        let Some(index) = self.firsts.len().checked_sub(1) else { return Ok(()) };
        self.buffer.resize(self.page_start + PAGE_DATA, 0);
        let page = u32::try_from(index).map_err(io::Error::other)?;
        let data = self.buffer.get(self.page_start..).unwrap_or_default();
        let end = file::page_end(data, self.number, page);
        self.buffer.extend_from_slice(&end);
        self.flush_if_long()?;
        self.page_start = self.buffer.len();
        Ok(())
    }

    fn flush_if_long(&mut self) -> io::Result<()> {
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        if self.flushed - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.flushed;
        }
        Ok(())
    }

    /// Writes what is held in memory and the footer, syncs all of it and opens the file.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn finish(mut self, disk: &dyn Disk) -> io::Result<IdFile> {
        if self.buffer.len() > self.page_start {
            self.end_page()?;
        }
        self.filter.shrink_to(self.entries);
        let firsts = std::mem::take(&mut self.firsts);
        let filter = std::mem::replace(&mut self.filter, Filter::with_room_for(0));
        let mut checksum = 0;
        for piece in firsts.chunks(PAGE_BYTES) {
            let bytes: Vec<u8> = piece.iter().flat_map(|first| first.to_le_bytes()).collect();
            checksum = self.put(&bytes, checksum)?;
        }
        for block in filter.bytes() {
            checksum = self.put(&block, checksum)?;
        }
        let footer = Footer {
            number: self.number,
            entries: self.entries,
            pages: u32::try_from(firsts.len()).map_err(io::Error::other)?,
            blocks: u32::try_from(filter.blocks()).map_err(io::Error::other)?,
        };
        self.buffer.extend_from_slice(&footer.encode(checksum));
        self.flush()?;
        self.file.sync()?;
        disk.sync_dir(Path::new(DIR))?;
        Ok(IdFile::new(footer, firsts, filter, self.file))
    }

    fn put(&mut self, bytes: &[u8], checksum: u32) -> io::Result<u32> {
        self.buffer.extend_from_slice(bytes);
        self.flush_if_long()?;
        Ok(crc32c::crc32c_append(checksum, bytes))
    }
}

const _: () = assert!(FOOTER_BYTES < WRITE_BYTES, "the footer fits the buffer");
