//! A run: entries sorted by key, written once, read from the front, searched by id.
//!
//! ```text
//! header   magic 8 · version u32 · 0 u32 · number u64 · first sequence u64
//! blocks   (length u32 · crc32c u32 · first due u64 · entries)…
//!          entry: due step varint · (sequence - first sequence) varint · length varint · record
//! ids      stamp u64 … for every sequence of each span, all ones where there is no entry; or
//!          (offset u32 · stamp u64)… sorted, where most are missing; in pages of 504 bytes, each
//!          followed by its crc32c u32 and its number u32
//! cells    how many entries each topic has in each second, in pages; see `cells.rs`
//! index    per block: first due u64 · first sequence u64 · offset u64
//! spans    per span: first sequence u64 · sequences u32 · kind u32 · offset u64 · entries u32
//! counts   per topic: topic u32 · entries u64
//! pages    per page of cells: topic u32 · length u32 · first cell u64 · entries before it u64
//! footer   see `Footer`, 96 bytes with a checksum over index, spans, counts, pages and itself
//! ```
//!
//! Runs of version 1 have no cells, and are still read.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::StoreError;
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::codec::{self, Malformed};
use crate::disk::{self, Disk, DiskFile, Open};
use crate::timeline::cells::{Cell, Cells};

pub(crate) const MAGIC: &[u8; 8] = b"PUNCTRUN";
pub(crate) const VERSION: u32 = 2;
/// The version without cells.
const OLD_VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: u64 = 32;
pub(crate) const FOOTER_BYTES: usize = 96;
pub(crate) const BLOCK_FRONT: usize = 16;
/// Bytes of ids in one page, and of the page with its checksum.
pub(crate) const ID_PAGE_DATA: usize = 504;
pub(crate) const ID_PAGE_BYTES: usize = 512;
pub(crate) const STAMP_BYTES: usize = 8;
pub(crate) const SPARSE_BYTES: usize = 12;
pub(crate) const ABSENT: u64 = u64::MAX;
/// Pages of ids read at once where most of them are wanted.
const PAGES_AT_ONCE: u64 = 64;
/// Ids searched one by one in a list; more are looked for by reading all of it.
const SEARCHES_MAX: usize = 64;

/// The directory of the runs.
pub const DIR: &str = "timeline";

/// The path of run `number`.
#[must_use]
pub fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("{DIR}/{number:020}.run"))
}

/// The number of the run called `name`, or `None` when it is not a run.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".run")?.parse().ok()
}

/// What a run keeps to recognise an id: the due time, and a mix of topic and partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// The stamp of a message.
    #[must_use]
    pub fn new(due: Timestamp, topic: TopicId, partition: Partition) -> Self {
        Self((u64::from(Self::mix_of(topic, partition)) << Self::DUE_BITS) | due.as_millis())
    }

    /// What is left of topic and partition in a stamp: 15 bits.
    pub(crate) fn mix_of(topic: TopicId, partition: Partition) -> u16 {
        let place = (u64::from(topic.get()) << 16) | u64::from(partition.get());
        let mixed = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::MIX_BITS);
        u16::try_from(mixed).expect("15 bits")
    }

    /// The mix of topic and partition in it.
    pub(crate) fn mix(self) -> u16 {
        let mixed = (self.0 >> Self::DUE_BITS) & ((1 << Self::MIX_BITS) - 1);
        u16::try_from(mixed).expect("masked to 15 bits")
    }

    /// The due time in it.
    pub(crate) const fn due(self) -> Timestamp {
        Timestamp::from_millis_saturating(self.0 & ((1 << Self::DUE_BITS) - 1))
    }

    const DUE_BITS: u32 = 48;
    /// Bits of the mix of topic and partition.
    pub(crate) const MIX_BITS: u32 = 15;
}

/// A finished run, open for reading.
#[derive(Debug)]
pub struct Run {
    /// Its number; unique for ever.
    pub number: u64,
    /// Its blocks, in key order.
    pub blocks: Vec<BlockAt>,
    /// Which sequences it may hold, in order.
    pub spans: Vec<SpanAt>,
    /// How many entries each topic had when it was written.
    pub counts: HashMap<TopicId, u64>,
    /// The number of entries when it was written.
    pub entries: u64,
    /// The key of its last entry.
    pub last: Key,
    pub(crate) first_sequence: u64,
    pub(crate) data_end: u64,
    /// `None` in a run of version 1.
    pub(crate) cells: Option<Cells>,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// Where a block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// The key of its first entry.
    pub first: Key,
    /// Its place in the file.
    pub offset: u64,
}

/// Where the ids of a range of sequences are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanAt {
    /// The first sequence.
    pub first: u64,
    /// How many sequences, present or not.
    pub sequences: u32,
    /// Whether only the present ones are listed.
    pub sparse: bool,
    /// The place of the list in the file.
    pub offset: u64,
    /// How many entries are present.
    pub entries: u32,
}

/// The fixed end of a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) number: u64,
    pub(crate) first_sequence: u64,
    pub(crate) entries: u64,
    pub(crate) last: Key,
    pub(crate) data_end: u64,
    pub(crate) tail_offset: u64,
    pub(crate) blocks: u32,
    pub(crate) spans: u32,
    pub(crate) topics: u32,
    pub(crate) cell_pages: u32,
    pub(crate) cells_offset: u64,
}

impl Footer {
    /// The footer for a tail section with these bytes.
    pub(crate) fn encode(&self, tail: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for value in [
            self.number,
            self.first_sequence,
            self.entries,
            self.last.due.as_millis(),
            self.last.sequence.get(),
            self.data_end,
            self.tail_offset,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.blocks, self.spans, self.topics, self.cell_pages] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.cells_offset.to_le_bytes());
        out.resize(FOOTER_BYTES - 12, 0);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(tail), &out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u32), Malformed> {
        let mut rest = bytes;
        let rest = &mut rest;
        let footer = Self {
            number: codec::get_u64(rest)?,
            first_sequence: codec::get_u64(rest)?,
            entries: codec::get_u64(rest)?,
            last: get_key(rest)?,
            data_end: codec::get_u64(rest)?,
            tail_offset: codec::get_u64(rest)?,
            blocks: codec::get_u32(rest)?,
            spans: codec::get_u32(rest)?,
            topics: codec::get_u32(rest)?,
            cell_pages: codec::get_u32(rest)?,
            cells_offset: codec::get_u64(rest)?,
        };
        let mut end = bytes.get(FOOTER_BYTES - 12..).ok_or(Malformed)?;
        let checksum = codec::get_u32(&mut end)?;
        if end == MAGIC { Ok((footer, checksum)) } else { Err(Malformed) }
    }
}

fn get_key(rest: &mut &[u8]) -> Result<Key, Malformed> {
    let due = Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?;
    let sequence = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
    Ok(Key { due, sequence })
}

impl Run {
    /// Opens run `number` and reads its footer, index and spans; the blocks stay on disk.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is missing, of another version or not whole.
    pub fn open(disk: &dyn Disk, number: u64) -> Result<Self, StoreError> {
        let file = disk.open(&path(number), Open::Existing).map_err(|e| unreadable(number, &e))?;
        Self::read(file, number).map_err(|error| unreadable(number, &error))
    }

    fn read(file: Arc<dyn DiskFile>, number: u64) -> io::Result<Self> {
        let len = file.len()?;
        let header_bytes = usize::try_from(HEADER_BYTES).map_err(io::Error::other)?;
        let header = disk::read_exact(&*file, 0, header_bytes)?;
        let (version, first_sequence) = read_header(&header, number).map_err(io::Error::other)?;
        let footer_at = len.checked_sub(FOOTER_BYTES as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        let footer_bytes = disk::read_exact(&*file, footer_at, FOOTER_BYTES)?;
        let (footer, checksum) = Footer::decode(&footer_bytes).map_err(io::Error::other)?;
        let tail_bytes = footer_at.checked_sub(footer.tail_offset).ok_or_else(not_whole)?;
        let tail_bytes = usize::try_from(tail_bytes).map_err(io::Error::other)?;
        let tail = disk::read_exact(&*file, footer.tail_offset, tail_bytes)?;
        let checked = footer_bytes.get(..FOOTER_BYTES - 12).ok_or_else(not_whole)?;
        let whole = crc32c::crc32c_append(crc32c::crc32c(&tail), checked) == checksum;
        if !whole || (footer.number, footer.first_sequence) != (number, first_sequence) {
            return Err(not_whole());
        }
        let Tail { blocks, spans, counts, cells } =
            read_tail(&tail, &footer).map_err(io::Error::other)?;
        Ok(Self {
            number,
            blocks,
            spans,
            counts,
            entries: footer.entries,
            last: footer.last,
            first_sequence,
            data_end: footer.data_end,
            cells: (version == VERSION).then_some(cells),
            file,
        })
    }

    /// The key of its first entry.
    #[must_use]
    pub fn first(&self) -> Key {
        self.blocks.first().map_or(self.last, |block| block.first)
    }

    /// How many entries `topic` had before each of `bounds`, which grow, when the run was written;
    /// `None` when only reading them all would tell.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn ranks(&self, topic: TopicId, bounds: &[Cell]) -> Result<Option<Vec<u64>>, StoreError> {
        let ranks = self.cells.as_ref().map(|cells| cells.ranks(&*self.file, topic, bounds));
        ranks.transpose().map_err(|error| unreadable(self.number, &error))
    }

    /// Tells the disk that [`ranks`](Self::ranks) will be asked.
    pub fn expect_ranks(&self, topic: TopicId, bounds: &[Cell]) {
        if let Some(cells) = &self.cells {
            cells.expect(&*self.file, topic, bounds);
        }
    }

    /// Tells the disk that the block in which `key` would be will be read.
    pub fn expect_block(&self, key: Key) {
        let after = self.blocks.partition_point(|block| block.first <= key);
        if let Some(block) = self.blocks.get(after.saturating_sub(1)) {
            let end = self.blocks.get(after.max(1)).map_or(self.data_end, |next| next.offset);
            self.file.expect(block.offset, end.saturating_sub(block.offset));
        }
    }

    /// The first cell from `from` on in which `topic` had entries when the run was written; `None`
    /// when only reading would tell.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn next_cell(
        &self,
        topic: TopicId,
        from: Cell,
    ) -> Result<Option<Option<Cell>>, StoreError> {
        let next = self.cells.as_ref().map(|cells| cells.next(&*self.file, topic, from));
        next.transpose().map_err(|error| unreadable(self.number, &error))
    }

    /// The stamp of `sequence`, or `None` when it is not in this run.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn stamp_of(&self, sequence: Sequence) -> Result<Option<Stamp>, StoreError> {
        self.search(sequence.get()).map_err(|error| unreadable(self.number, &error))
    }

    fn search(&self, sequence: u64) -> io::Result<Option<Stamp>> {
        let Some(span) = self.span(sequence) else { return Ok(None) };
        let relative = sequence - span.first;
        if span.sparse {
            return self.search_sparse(span, relative);
        }
        let per_page = (ID_PAGE_DATA / STAMP_BYTES) as u64;
        let page = self.id_page(span, relative / per_page)?;
        let slot = usize::try_from(relative % per_page).map_err(io::Error::other)?;
        let mut stamp = page.get(slot * STAMP_BYTES..).ok_or_else(not_whole)?;
        let stamp = codec::get_u64(&mut stamp).map_err(io::Error::other)?;
        Ok((stamp != ABSENT).then_some(Stamp(stamp)))
    }

    fn search_sparse(&self, span: &SpanAt, relative: u64) -> io::Result<Option<Stamp>> {
        let per_page = (ID_PAGE_DATA / SPARSE_BYTES) as u64;
        let (mut low, mut high) = (0, u64::from(span.entries).div_ceil(per_page));
        while low < high {
            let middle = low.midpoint(high);
            let page = self.id_page(span, middle)?;
            let mut last = 0;
            for entry in page.as_chunks::<SPARSE_BYTES>().0 {
                let mut rest = entry.as_slice();
                let found = u64::from(codec::get_u32(&mut rest).map_err(io::Error::other)?);
                let stamp = codec::get_u64(&mut rest).map_err(io::Error::other)?;
                if found == relative && stamp != ABSENT {
                    return Ok(Some(Stamp(stamp)));
                }
                last = found;
            }
            if last < relative {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(None)
    }

    /// Calls `each` with those of `sequences` that are in this run, in order, and their stamps.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn stamps_among(
        &self,
        sequences: &RoaringTreemap,
        mut each: impl FnMut(Sequence, Stamp),
    ) -> Result<(), StoreError> {
        let mut note = |sequence: u64, stamp: Stamp| {
            if let Some(sequence) = Sequence::new(sequence) {
                each(sequence, stamp);
            }
        };
        let stamps = self.spans.iter().try_for_each(|span| {
            let end = span.first + u64::from(span.sequences);
            let mut wanted = sequences.iter();
            wanted.advance_to(span.first);
            let mut wanted = wanted.take_while(|sequence| *sequence < end);
            // Where many are wanted, reading all pages in turn beats searching.
            let in_turn = wanted.clone().take(SEARCHES_MAX).count() == SEARCHES_MAX;
            if !in_turn {
                return wanted.try_for_each(|sequence| {
                    let found = self.search(sequence)?;
                    found.into_iter().for_each(|stamp| note(sequence, stamp));
                    Ok(())
                });
            }
            if span.sparse {
                let keep = |sequence: u64| sequences.contains(sequence);
                return self.walk_sparse(span, keep, &mut note);
            }
            self.walk_dense(span, wanted, &mut note)
        });
        stamps.map_err(|error: io::Error| unreadable(self.number, &error))
    }

    fn walk_dense(
        &self,
        span: &SpanAt,
        wanted: impl Iterator<Item = u64>,
        note: &mut impl FnMut(u64, Stamp),
    ) -> io::Result<()> {
        let per_page = (ID_PAGE_DATA / STAMP_BYTES) as u64;
        let pages = u64::from(span.sequences).div_ceil(per_page);
        // Most pages are wanted, so that reading many at once costs less than what it reads in vain.
        let (mut first, mut held) = (0, Vec::new());
        let mut read: Option<(u64, [u8; ID_PAGE_DATA])> = None;
        for sequence in wanted {
            let relative = sequence - span.first;
            let (number, slot) = (relative / per_page, relative % per_page);
            let page = match read {
                Some((known, page)) if known == number => page,
                _ => {
                    let in_held = |number: u64| usize::try_from(number - first).ok();
                    let place = in_held(number).filter(|place| *place < held.len());
                    let place = match place {
                        Some(place) => place,
                        None => {
                            first = number;
                            held =
                                self.id_pages(span, number, PAGES_AT_ONCE.min(pages - number))?;
                            0
                        }
                    };
                    checked_ids(held.get(place).ok_or_else(not_whole)?, number)?
                }
            };
            let slot = usize::try_from(slot).map_err(io::Error::other)?;
            let mut stamp = page.get(slot * STAMP_BYTES..).ok_or_else(not_whole)?;
            let stamp = codec::get_u64(&mut stamp).map_err(io::Error::other)?;
            if stamp != ABSENT {
                note(sequence, Stamp(stamp));
            }
            read = Some((number, page));
        }
        Ok(())
    }

    /// The pages of a span from `number` on, unchecked.
    fn id_pages(
        &self,
        span: &SpanAt,
        number: u64,
        count: u64,
    ) -> io::Result<Vec<[u8; ID_PAGE_BYTES]>> {
        let bytes = usize::try_from(count).map_err(io::Error::other)? * ID_PAGE_BYTES;
        let offset = span.offset + number * ID_PAGE_BYTES as u64;
        Ok(disk::read_exact(&*self.file, offset, bytes)?.as_chunks::<ID_PAGE_BYTES>().0.to_vec())
    }

    fn walk_sparse(
        &self,
        span: &SpanAt,
        keep: impl Fn(u64) -> bool,
        note: &mut impl FnMut(u64, Stamp),
    ) -> io::Result<()> {
        let per_page = (ID_PAGE_DATA / SPARSE_BYTES) as u64;
        for number in 0..u64::from(span.entries).div_ceil(per_page) {
            for entry in self.id_page(span, number)?.as_chunks::<SPARSE_BYTES>().0 {
                let mut rest = entry.as_slice();
                let relative = codec::get_u32(&mut rest).map_err(io::Error::other)?;
                let stamp = codec::get_u64(&mut rest).map_err(io::Error::other)?;
                let sequence = span.first + u64::from(relative);
                if stamp != ABSENT && keep(sequence) {
                    note(sequence, Stamp(stamp));
                }
            }
        }
        Ok(())
    }

    /// The checked ids of page `number` of a span.
    fn id_page(&self, span: &SpanAt, number: u64) -> io::Result<[u8; ID_PAGE_DATA]> {
        let mut page = [0; ID_PAGE_BYTES];
        self.file.read_at(&mut page, span.offset + number * ID_PAGE_BYTES as u64)?;
        checked_ids(&page, number)
    }

    fn span(&self, sequence: u64) -> Option<&SpanAt> {
        let after = self.spans.partition_point(|span| span.first <= sequence);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (sequence - span.first < u64::from(span.sequences)).then_some(span)
    }

    /// The checked bytes of the entries of block `index`, and the due time its steps start from.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it cannot be read or its checksum is wrong.
    pub fn block(&self, index: usize) -> Result<Option<(Bytes, Timestamp)>, StoreError> {
        let Some(block) = self.blocks.get(index) else { return Ok(None) };
        let end = self.blocks.get(index + 1).map_or(self.data_end, |next| next.offset);
        self.read_block(block.offset, end).map(Some).map_err(|error| {
            StoreError::damaged(format_args!(
                "block {index} at {} of {}: {error}",
                block.offset,
                path(self.number).display()
            ))
        })
    }

    fn read_block(&self, offset: u64, end: u64) -> io::Result<(Bytes, Timestamp)> {
        let len = end.checked_sub(offset).ok_or_else(not_whole)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let bytes = disk::read_exact(&*self.file, offset, len)?;
        let mut front = bytes.as_slice();
        let stored_len = codec::get_u32(&mut front).map_err(io::Error::other)?;
        let checksum = codec::get_u32(&mut front).map_err(io::Error::other)?;
        if stored_len as usize != front.len() || crc32c::crc32c(front) != checksum {
            return Err(not_whole());
        }
        let due = codec::get_u64(&mut front).map_err(io::Error::other)?;
        let due = Timestamp::from_millis(due).ok_or_else(not_whole)?;
        Ok((Bytes::from(bytes).slice(BLOCK_FRONT..), due))
    }
}

/// The ids of page `number`, if that is what it is.
fn checked_ids(page: &[u8; ID_PAGE_BYTES], number: u64) -> io::Result<[u8; ID_PAGE_DATA]> {
    let (data, mut check) = page.split_at(ID_PAGE_DATA);
    let checksum = codec::get_u32(&mut check).map_err(io::Error::other)?;
    let stored = codec::get_u32(&mut check).map_err(io::Error::other)?;
    if u64::from(stored) != number || id_checksum(data, stored) != checksum {
        return Err(not_whole());
    }
    data.try_into().map_err(io::Error::other)
}

/// The checksum of a page of ids: over the ids and the number of the page.
pub(crate) fn id_checksum(data: &[u8], number: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(data), &number.to_le_bytes())
}

fn read_header(mut header: &[u8], number: u64) -> Result<(u32, u64), Malformed> {
    let magic = codec::take(&mut header, 8)?;
    let version = codec::get_u32(&mut header)?;
    codec::get_u32(&mut header)?;
    let stored = codec::get_u64(&mut header)?;
    if magic == MAGIC && matches!(version, VERSION | OLD_VERSION) && stored == number {
        Ok((version, codec::get_u64(&mut header)?))
    } else {
        Err(Malformed)
    }
}

/// What stands between the ids and the footer.
struct Tail {
    blocks: Vec<BlockAt>,
    spans: Vec<SpanAt>,
    counts: HashMap<TopicId, u64>,
    cells: Cells,
}

fn read_tail(tail: &[u8], footer: &Footer) -> Result<Tail, Malformed> {
    let mut rest = tail;
    let rest = &mut rest;
    let mut blocks = Vec::new();
    for _ in 0..footer.blocks {
        blocks.push(BlockAt { first: get_key(rest)?, offset: codec::get_u64(rest)? });
    }
    let mut spans = Vec::new();
    for _ in 0..footer.spans {
        spans.push(SpanAt {
            first: codec::get_u64(rest)?,
            sequences: codec::get_u32(rest)?,
            sparse: codec::get_u32(rest)? != 0,
            offset: codec::get_u64(rest)?,
            entries: codec::get_u32(rest)?,
        });
    }
    let mut counts = HashMap::new();
    for _ in 0..footer.topics {
        let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
        counts.insert(topic, codec::get_u64(rest)?);
    }
    let cells = Cells::decode(rest, footer.cell_pages, footer.cells_offset)?;
    Ok(Tail { blocks, spans, counts, cells })
}

fn not_whole() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes are not those that were written")
}

fn unreadable(number: u64, error: &io::Error) -> StoreError {
    StoreError::damaged(format_args!("{}: {error}", path(number).display()))
}
