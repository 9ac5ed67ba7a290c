//! A file of entries sorted by name, written once.
//!
//! ```text
//! header   magic 8 · version u32 · 0 u32 · number u64 · zeros to 1024
//! pages    24 entries of 42 bytes, the last page filled up with zeros · number of the file u64 ·
//!          number of the page u32 · crc32c u32 of all before it; 1024 bytes
//!          entry: name u64 and u64 · due and partition u64 · sequence and topic u64 · topic u16 ·
//!          print u64
//! firsts   per page: the first 32 bits of its first name u32
//! filter   blocks of 64 bytes, see `filter.rs`
//! footer   number u64 · entries u64 · pages u32 · blocks of the filter u32 · zeros to 52 ·
//!          crc32c u32 of firsts, filter and footer so far · magic 8; 64 bytes
//! ```
//!
//! Firsts and filter are held in memory, so that a name that is not there costs no read and one that
//! is there costs one. A page that is not what was written is an error, never an answer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_model::ports::StoreError;
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};

use crate::codec::{self, Malformed};
use crate::disk::{self, Disk, DiskFile, Open};
use crate::ids::Value;
use crate::ids::filter::{BLOCK_BYTES, Filter, Probe};
use crate::ids::name::Name;

pub(crate) const MAGIC: &[u8; 8] = b"PUNCTIDS";
pub(crate) const VERSION: u32 = 1;
pub(crate) const PAGE_BYTES: usize = 1024;
pub(crate) const PAGE_ENTRIES: usize = 24;
pub(crate) const ENTRY_BYTES: usize = 42;
/// Bytes of entries in a page; what follows says whose page it is.
pub(crate) const PAGE_DATA: usize = PAGE_ENTRIES * ENTRY_BYTES;
pub(crate) const FOOTER_BYTES: usize = 64;
pub(crate) const FIRST_BYTES: usize = 4;
/// Bytes of a footer that its checksum covers.
pub(crate) const FOOTER_CHECKED: usize = FOOTER_BYTES - 12;
/// Bytes of firsts and filter read at once; a multiple of what either consists of.
const READ_BYTES: usize = 64 << 10;

const _: () = assert!(PAGE_DATA + 16 == PAGE_BYTES, "a page ends with 16 bytes of its own");
const _: () = assert!(READ_BYTES.is_multiple_of(BLOCK_BYTES), "blocks are read whole");

/// The directory of the files.
pub const DIR: &str = "ids";

/// The path of file `number`.
#[must_use]
pub fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("{DIR}/{number:020}.ids"))
}

/// The number of the file called `name`, or `None` when it is not one of these.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".ids")?.parse().ok()
}

/// A finished file, open for reading.
#[derive(Debug)]
pub struct IdFile {
    number: u64,
    entries: u64,
    firsts: Vec<u32>,
    filter: Filter,
    file: Arc<dyn DiskFile>,
    /// A page of it could not be read.
    damaged: AtomicBool,
}

/// The fixed end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) number: u64,
    pub(crate) entries: u64,
    pub(crate) pages: u32,
    pub(crate) blocks: u32,
}

impl Footer {
    /// The bytes of the footer behind firsts and filter that have this checksum.
    pub(crate) fn encode(&self, checksum: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.resize(FOOTER_CHECKED, 0);
        let checksum = crc32c::crc32c_append(checksum, &out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out
    }

    fn decode(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let rest = &mut bytes;
        Ok(Self {
            number: codec::get_u64(rest)?,
            entries: codec::get_u64(rest)?,
            pages: codec::get_u32(rest)?,
            blocks: codec::get_u32(rest)?,
        })
    }

    /// Bytes of a file with this footer, and where in it the firsts start.
    fn layout(&self) -> (u64, u64) {
        let firsts_at = page_at(u64::from(self.pages));
        let firsts = u64::from(self.pages) * FIRST_BYTES as u64;
        let filter = u64::from(self.blocks) * BLOCK_BYTES as u64;
        (firsts_at + firsts + filter + FOOTER_BYTES as u64, firsts_at)
    }
}

impl IdFile {
    /// A file that was just written.
    pub(crate) const fn new(
        footer: Footer,
        firsts: Vec<u32>,
        filter: Filter,
        file: Arc<dyn DiskFile>,
    ) -> Self {
        let damaged = AtomicBool::new(false);
        Self { number: footer.number, entries: footer.entries, firsts, filter, file, damaged }
    }

    /// Opens file `number` and reads what is held in memory; the pages stay on disk.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is missing, of another version or not whole.
    pub fn open(disk: &dyn Disk, number: u64) -> Result<Self, StoreError> {
        disk.open(&path(number), Open::Existing)
            .and_then(|file| Self::read(file, number))
            .map_err(|error| unreadable(number, &error))
    }

    fn read(file: Arc<dyn DiskFile>, number: u64) -> io::Result<Self> {
        check_header(&disk::read_exact(&*file, 0, PAGE_BYTES)?, number)
            .map_err(io::Error::other)?;
        let len = file.len()?;
        let footer_at = len.checked_sub(FOOTER_BYTES as u64).ok_or_else(not_whole)?;
        let end = disk::read_exact(&*file, footer_at, FOOTER_BYTES)?;
        let footer = Footer::decode(&end).map_err(io::Error::other)?;
        let (expected_len, firsts_at) = footer.layout();
        let pages = footer.entries.div_ceil(PAGE_ENTRIES as u64);
        // The length is checked before anything is allocated, so no file asks for more than it has.
        if footer.number != number || expected_len != len || pages != u64::from(footer.pages) {
            return Err(not_whole());
        }
        let filter_at = firsts_at + u64::from(footer.pages) * FIRST_BYTES as u64;
        let room = |count: u32| usize::try_from(count).map_err(io::Error::other);
        let mut firsts = Vec::with_capacity(room(footer.pages)?);
        let checksum = for_each_piece(&*file, (firsts_at, filter_at), 0, |piece| {
            firsts.extend(piece.as_chunks().0.iter().map(|first| u32::from_le_bytes(*first)));
            Ok(())
        })?;
        let mut filter = Filter::with_room_for(room(footer.blocks)?);
        let checksum = for_each_piece(&*file, (filter_at, footer_at), checksum, |piece| {
            filter.read_more(piece).map_err(io::Error::other)
        })?;
        if footer.encode(checksum) != end {
            return Err(not_whole());
        }
        Ok(Self::new(footer, firsts, filter, file))
    }

    /// Its number; unique for ever.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The number of its entries.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of memory it takes, roughly.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.firsts.len() * FIRST_BYTES + self.filter.blocks() * BLOCK_BYTES
    }

    /// Whether a page of it could not be read since it was opened.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The number of its pages.
    pub(crate) const fn pages(&self) -> usize {
        self.firsts.len()
    }

    /// Whether a name may be in this file; `false` is certain.
    pub(crate) fn may_hold(&self, probe: &Probe) -> bool {
        self.filter.may_hold(probe)
    }

    /// What has the name in this file, of which it is known that it may be there.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the page cannot be read or its checksum is wrong.
    pub(crate) fn get(&self, name: Name) -> Result<Option<Value>, StoreError> {
        self.search(name).map_err(|error| self.damage(&error))
    }

    /// Nearly always one page is read; where pages start with the same 32
    /// bits as the name, the name may be in the one before as well.
    fn search(&self, name: Name) -> io::Result<Option<Value>> {
        let prefix = name.prefix();
        let after = self.firsts.partition_point(|&first| first <= prefix);
        let mut page = [0; PAGE_BYTES];
        for index in (0..after).rev() {
            self.file.read_at(&mut page, page_at(index as u64))?;
            let entries = self.check_page(&page, index)?;
            let found = entries.binary_search_by(|entry| name_of(entry).cmp(&name));
            match found.map(|place| entries.get(place)) {
                Ok(entry) => {
                    let (_, value) = decode(entry.ok_or_else(not_whole)?)?;
                    return Ok(Some(value));
                }
                Err(0) if self.firsts.get(index) == Some(&prefix) => {}
                Err(_) => break,
            }
        }
        Ok(None)
    }

    /// The checked bytes of up to `count` pages from page `first` on.
    pub(crate) fn read_pages(&self, first: usize, count: usize) -> io::Result<Vec<u8>> {
        let count = count.min(self.pages().saturating_sub(first));
        let bytes = disk::read_exact(&*self.file, page_at(first as u64), count * PAGE_BYTES)
            .inspect_err(|error| drop(self.damage(error)))?;
        for (index, page) in (first..).zip(bytes.as_chunks().0) {
            self.check_page(page, index).inspect_err(|error| drop(self.damage(error)))?;
        }
        Ok(bytes)
    }

    /// The entries of page `index` if its bytes are those that were written.
    pub(crate) fn check_page<'a>(
        &self,
        page: &'a [u8; PAGE_BYTES],
        index: usize,
    ) -> io::Result<&'a [[u8; ENTRY_BYTES]]> {
        let (data, end) = page.split_at(PAGE_DATA);
        let page_number = u32::try_from(index).map_err(io::Error::other)?;
        if end != page_end(data, self.number, page_number) {
            return Err(not_whole());
        }
        let before = index as u64 * PAGE_ENTRIES as u64;
        let left = usize::try_from(self.entries.saturating_sub(before)).unwrap_or(usize::MAX);
        data.as_chunks().0.get(..left.min(PAGE_ENTRIES)).ok_or_else(not_whole)
    }

    fn damage(&self, error: &io::Error) -> StoreError {
        self.damaged.store(true, Ordering::Relaxed);
        unreadable(self.number, error)
    }
}

/// What stands behind the entries of a page: whose it is, and the checksum.
pub(crate) fn page_end(data: &[u8], number: u64, page: u32) -> [u8; 16] {
    let mut end = [0; 16];
    let (whose, checksum) = end.split_at_mut(12);
    for (place, byte) in
        whose.iter_mut().zip(number.to_le_bytes().into_iter().chain(page.to_le_bytes()))
    {
        *place = byte;
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(data), whose);
    checksum.copy_from_slice(&sum.to_le_bytes());
    end
}

/// Appends an entry.
pub(crate) fn encode(out: &mut Vec<u8>, name: Name, value: &Value) {
    let topic = value.topic.get();
    let due = value.key.due.as_millis() | (u64::from(value.partition.get()) << 48);
    let sequence = value.key.sequence.get() | (u64::from(topic >> 16) << 56);
    let [low, high, ..] = topic.to_le_bytes();
    for word in [name.high, name.low, due, sequence] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&[low, high]);
    out.extend_from_slice(&value.print.to_le_bytes());
}

/// Reads an entry.
pub(crate) fn decode(entry: &[u8; ENTRY_BYTES]) -> io::Result<(Name, Value)> {
    decode_entry(entry).map_err(io::Error::other)
}

fn decode_entry(mut bytes: &[u8]) -> Result<(Name, Value), Malformed> {
    let rest = &mut bytes;
    let name = Name { high: codec::get_u64(rest)?, low: codec::get_u64(rest)? };
    let due = codec::get_u64(rest)?;
    let sequence = codec::get_u64(rest)?;
    let topic = u64::from(codec::get_u16(rest)?) | (sequence >> 56 << 16);
    let partition = u16::try_from(due >> 48).ok().and_then(Partition::new);
    let value = Value {
        key: Key {
            due: Timestamp::from_millis(due & ((1 << 48) - 1)).ok_or(Malformed)?,
            sequence: Sequence::new(sequence & Sequence::MAX.get()).ok_or(Malformed)?,
        },
        topic: u32::try_from(topic).ok().and_then(TopicId::new).ok_or(Malformed)?,
        partition: partition.ok_or(Malformed)?,
        print: codec::get_u64(rest)?,
    };
    Ok((name, value))
}

fn name_of(entry: &[u8; ENTRY_BYTES]) -> Name {
    match entry.as_chunks().0 {
        [high, low, ..] => Name { high: u64::from_le_bytes(*high), low: u64::from_le_bytes(*low) },
        _ => Name { high: 0, low: 0 },
    }
}

/// Where page `index` starts; the header takes the place of one.
const fn page_at(index: u64) -> u64 {
    (index + 1) * PAGE_BYTES as u64
}

fn check_header(mut header: &[u8], number: u64) -> Result<(), Malformed> {
    let magic = codec::take(&mut header, MAGIC.len())?;
    let version = codec::get_u32(&mut header)?;
    codec::get_u32(&mut header)?;
    let stored = codec::get_u64(&mut header)?;
    if magic == MAGIC && version == VERSION && stored == number { Ok(()) } else { Err(Malformed) }
}

/// Reads from the one place to the other in pieces, and answers the checksum so far.
fn for_each_piece(
    file: &dyn DiskFile,
    (mut from, until): (u64, u64),
    mut checksum: u32,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u32> {
    while from < until {
        let len = usize::try_from(until - from).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        let piece = disk::read_exact(file, from, len)?;
        checksum = crc32c::crc32c_append(checksum, &piece);
        each(&piece)?;
        from += len as u64;
    }
    Ok(checksum)
}

pub(crate) fn not_whole() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes are not those that were written")
}

fn unreadable(number: u64, error: &io::Error) -> StoreError {
    StoreError::damaged(format_args!("{}: {error}", path(number).display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::ids::writer::IdWriter;

    fn value(print: u64) -> Value {
        let partition = Partition::new(0).expect("there is always one");
        Value { key: Key::default(), topic: TopicId::MAX, partition, print }
    }

    #[test]
    fn names_with_the_same_front_are_found_on_whichever_page() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path()).unwrap();
        let count = 10 * PAGE_ENTRIES as u64 + 5;
        let fronts = [3, 5, 5, 5, 9].map(|front: u64| front << 32);
        let names = fronts.into_iter().flat_map(|high| (0..count).map(move |low| (high, low)));
        // The same front may come with another rest.
        let mut names: Vec<Name> =
            (0u64..).zip(names).map(|(n, (high, low))| Name { high: high + n, low }).collect();
        names.sort_unstable();
        let mut writer = IdWriter::create(&disk, 1, 10).unwrap();
        for (print, name) in (0..).zip(&names) {
            writer.push(*name, &value(print)).unwrap();
        }
        let written = writer.finish(&disk).unwrap();
        let opened = IdFile::open(&disk, 1).unwrap();
        for file in [&written, &opened] {
            for (print, name) in (0..).zip(&names) {
                assert_eq!(file.get(*name), Ok(Some(value(print))));
                assert!(file.may_hold(&Probe::new(*name)));
                assert_eq!(file.get(Name { low: name.low + count, ..*name }), Ok(None));
            }
            for high in [0, 4 << 32, 6 << 32, u64::MAX] {
                assert_eq!(file.get(Name { high, low: 0 }), Ok(None));
            }
        }
    }

    #[test]
    fn names_out_of_order_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path()).unwrap();
        let mut writer = IdWriter::create(&disk, 1, 10).unwrap();
        writer.push(Name { high: 2, low: 2 }, &value(0)).unwrap();
        for name in [Name { high: 2, low: 2 }, Name { high: 1, low: 3 }] {
            let refused = writer.push(name, &value(0)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}
