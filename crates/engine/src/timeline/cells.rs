//! How many entries of each topic a run has in each second, so that they are counted without being
//! read.
//!
//! A cell is a second in which a topic has entries. The cells of a topic stand in order, in pages;
//! an index of the pages, which is kept in memory, says how many entries come before each. To count
//! what is due before a moment takes one search in memory, one small read and one short decode,
//! however many entries there are.
//!
//! ```text
//! page   cells … · crc32c u32 of the cells and the place of the page in the file (u64)
//! cell   (step from the cell before << 1 | whether there are several) varint ·
//!        (entries - 2) varint, if there are several
//! ```

use std::collections::HashMap;
use std::io;

use punctual_model::{Timestamp, TopicId};

use crate::codec::{self, Malformed};
use crate::disk::{self, DiskFile};

/// A page is full when its cells take this many bytes.
const PAGE_BYTES: usize = 500;
const CHECK_BYTES: usize = 4;

/// A second of the timeline. Where nothing becomes due has cells of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cell(u64);

impl Cell {
    /// Where half messages wait.
    pub const PREPARED: Self = Self::of(Timestamp::PREPARED);
    /// Where paused messages wait.
    pub const PAUSED: Self = Self::of(Timestamp::PAUSED);

    /// The cell of what is due at `due`.
    #[must_use]
    pub const fn of(due: Timestamp) -> Self {
        let second = due.as_millis() / 1000;
        // One later, so that it is not the second of what becomes due just before.
        Self(if due.is_parked() { second + 1 } else { second })
    }

    /// The first cell that does not start before `bound`.
    #[must_use]
    pub const fn not_before(bound: Timestamp) -> Self {
        Self(bound.as_millis().div_ceil(1000))
    }

    /// The cell of this number.
    #[must_use]
    #[cfg(test)]
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The earliest due time in it.
    #[must_use]
    pub fn start(self) -> Timestamp {
        if self < Self::PREPARED {
            return Timestamp::from_millis_saturating(self.0.saturating_mul(1000));
        }
        let start = Timestamp::from_millis_saturating((self.0 - 1).saturating_mul(1000));
        start.max(Timestamp::PREPARED)
    }
}

const _: () = assert!(
    Cell::PREPARED.0 < Cell::PAUSED.0,
    "half messages and paused ones must be counted apart"
);

/// A page of cells, as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPage {
    topic: TopicId,
    /// Bytes with the checksum.
    length: u32,
    first: Cell,
    /// Entries of the topic in the pages before.
    before: u64,
    offset: u64,
}

/// The index of the cells of one run: by topic, then by cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    pages: Vec<CellPage>,
}

impl Cells {
    /// The number of pages.
    pub(crate) const fn len(&self) -> usize {
        self.pages.len()
    }

    /// Appends the index.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for page in &self.pages {
            out.extend_from_slice(&page.topic.get().to_le_bytes());
            out.extend_from_slice(&page.length.to_le_bytes());
            out.extend_from_slice(&page.first.0.to_le_bytes());
            out.extend_from_slice(&page.before.to_le_bytes());
        }
    }

    /// Takes an index of `count` pages that stand at `offset`.
    pub(crate) fn decode(rest: &mut &[u8], count: u32, offset: u64) -> Result<Self, Malformed> {
        let mut pages: Vec<CellPage> = Vec::new();
        let mut offset = offset;
        for _ in 0..count {
            let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
            let length = codec::get_u32(rest)?;
            let first = Cell(codec::get_u64(rest)?);
            let page = CellPage { topic, length, first, before: codec::get_u64(rest)?, offset };
            if pages.last().is_some_and(|last| (last.topic, last.first) >= (topic, first)) {
                return Err(Malformed);
            }
            pages.push(page);
            offset = offset.checked_add(u64::from(length)).ok_or(Malformed)?;
        }
        Ok(Self { pages })
    }

    /// How many entries `topic` has before each of `bounds`, which grow.
    pub(crate) fn ranks(
        &self,
        file: &dyn DiskFile,
        topic: TopicId,
        bounds: &[Cell],
    ) -> io::Result<Vec<u64>> {
        let mut ranks = Vec::with_capacity(bounds.len());
        let mut read: Option<(usize, Vec<u8>)> = None;
        for &bound in bounds {
            let Some((place, page)) = self.page_of(topic, bound) else {
                ranks.push(0);
                continue;
            };
            if page.first == bound {
                ranks.push(page.before);
                continue;
            }
            if read.as_ref().is_none_or(|(known, _)| *known != place) {
                read = Some((place, read_page(file, page)?));
            }
            let data = read.as_ref().map_or(&[][..], |(_, data)| data);
            let (inside, _) = walk(data, page.first, bound).map_err(io::Error::other)?;
            ranks.push(page.before + inside);
        }
        Ok(ranks)
    }

    /// Tells the disk which pages it takes to count `topic` up to each of `bounds`, which grow.
    pub(crate) fn expect(&self, file: &dyn DiskFile, topic: TopicId, bounds: &[Cell]) {
        let mut known = None;
        for &bound in bounds {
            if let Some((place, page)) = self.page_of(topic, bound)
                && known != Some(place)
            {
                file.expect(page.offset, u64::from(page.length));
                known = Some(place);
            }
        }
    }

    /// The first cell from `from` on in which `topic` has entries.
    pub(crate) fn next(
        &self,
        file: &dyn DiskFile,
        topic: TopicId,
        from: Cell,
    ) -> io::Result<Option<Cell>> {
        let mut following = 0;
        if let Some((place, page)) = self.page_of(topic, from) {
            let data = read_page(file, page)?;
            let (_, next) = walk(&data, page.first, from).map_err(io::Error::other)?;
            if next.is_some() {
                return Ok(next);
            }
            following = place + 1;
        } else {
            following += self.pages.partition_point(|page| page.topic < topic);
        }
        let page = self.pages.get(following).filter(|page| page.topic == topic);
        Ok(page.map(|page| page.first))
    }

    /// The page in which `cell` of `topic` would be, unless it comes before all of them.
    fn page_of(&self, topic: TopicId, cell: Cell) -> Option<(usize, &CellPage)> {
        let after = self.pages.partition_point(|page| (page.topic, page.first) <= (topic, cell));
        let place = after.checked_sub(1)?;
        self.pages.get(place).filter(|page| page.topic == topic).map(|page| (place, page))
    }
}

fn read_page(file: &dyn DiskFile, page: &CellPage) -> io::Result<Vec<u8>> {
    let mut bytes = disk::read_exact(file, page.offset, page.length as usize)?;
    let data_bytes = bytes.len().checked_sub(CHECK_BYTES).ok_or_else(not_whole)?;
    let mut check = bytes.get(data_bytes..).unwrap_or_default();
    let stored = codec::get_u32(&mut check).map_err(io::Error::other)?;
    bytes.truncate(data_bytes);
    if checksum(&bytes, page.offset) == stored { Ok(bytes) } else { Err(not_whole()) }
}

fn checksum(data: &[u8], offset: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(data), &offset.to_le_bytes())
}

fn not_whole() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the cells are not those that were written")
}

/// How many entries of a page lie before `bound`, and the first cell of it that does not.
fn walk(mut data: &[u8], first: Cell, bound: Cell) -> Result<(u64, Option<Cell>), Malformed> {
    let mut cell = first.0;
    let mut count = 0;
    while !data.is_empty() {
        let word = codec::get_varint(&mut data)?;
        cell = cell.checked_add(word >> 1).ok_or(Malformed)?;
        if cell >= bound.0 {
            return Ok((count, Some(Cell(cell))));
        }
        let more = if word & 1 == 0 { 0 } else { codec::get_varint(&mut data)?.saturating_add(1) };
        count += 1 + more;
    }
    Ok((count, None))
}

/// Counts the entries of a run while it is written.
#[derive(Debug, Default)]
pub(crate) struct CellsWriter {
    topics: HashMap<TopicId, Column>,
}

/// The cells of one topic.
#[derive(Debug, Default)]
struct Column {
    /// The cell that entries are added to, and how many there are.
    open: (Cell, u64),
    /// Entries of the cells before.
    closed: u64,
    /// The cell before the open one.
    previous: Cell,
    /// First cell, entries before it and end of each finished page in `data`, and of the open one.
    pages: Vec<(Cell, u64, usize)>,
    data: Vec<u8>,
}

impl CellsWriter {
    /// Adds an entry; due times come in growing order.
    pub(crate) fn push(&mut self, topic: TopicId, due: Timestamp) {
        let cell = Cell::of(due);
        let column = self.topics.entry(topic).or_default();
        if column.open.0 == cell {
            column.open.1 += 1;
        } else {
            column.close();
            column.open = (cell, 1);
        }
    }

    /// The number of entries of each topic.
    pub(crate) fn counts(&self) -> HashMap<TopicId, u64> {
        self.topics.iter().map(|(&topic, column)| (topic, column.closed + column.open.1)).collect()
    }

    /// The pages, one after the other as they are to stand from `offset` on, and their index.
    pub(crate) fn finish(self, offset: u64) -> io::Result<(Vec<Vec<u8>>, Cells)> {
        let mut topics: Vec<(TopicId, Column)> = self.topics.into_iter().collect();
        topics.sort_unstable_by_key(|(topic, _)| *topic);
        let mut offset = offset;
        let mut pages = Vec::new();
        let mut index = Vec::new();
        for (topic, mut column) in topics {
            column.close();
            let mut start = 0;
            for (first, before, end) in column.pages {
                let data = column.data.get(start..end).unwrap_or_default();
                let mut page = Vec::with_capacity(data.len() + CHECK_BYTES);
                page.extend_from_slice(data);
                page.extend_from_slice(&checksum(data, offset).to_le_bytes());
                let length = u32::try_from(page.len()).map_err(io::Error::other)?;
                index.push(CellPage { topic, length, first, before, offset });
                offset += u64::from(length);
                pages.push(page);
                start = end;
            }
        }
        Ok((pages, Cells { pages: index }))
    }
}

impl Column {
    fn close(&mut self) {
        let (cell, entries) = self.open;
        if entries == 0 {
            return;
        }
        let full = match self.pages.as_slice() {
            [.., (_, _, start), (_, _, end)] => end - start >= PAGE_BYTES,
            [(_, _, end)] => *end >= PAGE_BYTES,
            [] => true,
        };
        if full {
            self.pages.push((cell, self.closed, self.data.len()));
            self.previous = cell;
        }
        let step = (cell.0 - self.previous.0) << 1;
        if entries == 1 {
            codec::put_varint(&mut self.data, step);
        } else {
            codec::put_varint(&mut self.data, step | 1);
            codec::put_varint(&mut self.data, entries - 2);
        }
        if let Some((_, _, end)) = self.pages.last_mut() {
            *end = self.data.len();
        }
        self.previous = cell;
        self.closed += entries;
        self.open = (cell, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::disk::{Disk as _, Open, RealDisk};

    fn topic(number: u32) -> TopicId {
        TopicId::new(number).unwrap()
    }

    fn written(dir: &Path, dues: &[(u32, u64)]) -> (Arc<dyn DiskFile>, Cells) {
        let mut writer = CellsWriter::default();
        for &(number, due) in dues {
            writer.push(topic(number), Timestamp::from_millis_saturating(due));
        }
        let (pages, cells) = writer.finish(7).unwrap();
        let file = RealDisk::new(dir).unwrap().open(Path::new("cells"), Open::Create).unwrap();
        file.set_len(0).unwrap();
        file.write_at(&pages.concat(), 7).unwrap();
        let mut index = Vec::new();
        cells.encode(&mut index);
        let count = u32::try_from(cells.len()).unwrap();
        assert_eq!(Cells::decode(&mut index.as_slice(), count, 7).unwrap(), cells);
        (file, cells)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_rank_is_the_number_of_entries_before(
            mut dues in proptest::collection::vec((0..3u32, 0..5_000_000u64), 0..3000),
            parked in 0..4usize,
            mut bounds in proptest::collection::vec(0..5_100_000u64, 1..9),
        ) {
            dues.sort_by_key(|(_, due)| *due);
            dues.extend(std::iter::repeat_n((1, Timestamp::PREPARED.as_millis()), parked));
            dues.extend(std::iter::repeat_n((1, Timestamp::PAUSED.as_millis()), parked));
            bounds.sort_unstable();
            bounds.extend([Timestamp::PREPARED.as_millis(), Timestamp::PAUSED.as_millis()]);
            let bounds: Vec<Cell> = bounds
                .into_iter()
                .map(|bound| Cell::not_before(Timestamp::from_millis_saturating(bound)))
                .collect();
            let dir = tempfile::tempdir().unwrap();
            let (file, cells) = written(dir.path(), &dues);
            for number in 0..4 {
                let ranks = cells.ranks(&*file, topic(number), &bounds).unwrap();
                for (bound, rank) in bounds.iter().zip(ranks) {
                    let own = dues.iter().filter(|(of, _)| *of == number);
                    let own = own.map(|(_, due)| Cell::of(Timestamp::from_millis_saturating(*due)));
                    let next = own.filter(|cell| cell >= bound).min();
                    prop_assert_eq!(cells.next(&*file, topic(number), *bound).unwrap(), next);
                    let before = |&&(of, due): &&(u32, u64)| {
                        of == number && Timestamp::from_millis_saturating(due) < bound.start()
                    };
                    prop_assert_eq!(rank, dues.iter().filter(before).count() as u64);
                }
            }
        }
    }

    #[test]
    fn what_waits_without_a_due_time_is_counted_apart_from_what_is_due_last() {
        let last = Timestamp::from_millis_saturating(Timestamp::PREPARED.as_millis() - 1);
        assert!(Cell::of(last) < Cell::PREPARED && Cell::PREPARED < Cell::PAUSED);
        assert_eq!(Cell::not_before(Timestamp::PREPARED), Cell::PREPARED);
        assert_eq!(Cell::not_before(Timestamp::PAUSED), Cell::PAUSED);
        assert_eq!(Cell::PREPARED.start(), Timestamp::PREPARED);
    }

    #[test]
    fn every_flipped_bit_of_a_page_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let dues: Vec<(u32, u64)> = (0..100).map(|number| (1, number * number * 977)).collect();
        let (file, cells) = written(dir.path(), &dues);
        let bounds = [Cell::not_before(Timestamp::from_millis_saturating(90 * 90 * 977))];
        cells.ranks(&*file, topic(1), &bounds).unwrap();
        for byte in 7..file.len().unwrap() {
            for bit in 0..8 {
                let mut held = [0];
                file.read_at(&mut held, byte).unwrap();
                file.write_at(&[held[0] ^ (1 << bit)], byte).unwrap();
                assert!(cells.ranks(&*file, topic(1), &bounds).is_err(), "byte {byte} bit {bit}");
                file.write_at(&held, byte).unwrap();
            }
        }
    }
}
