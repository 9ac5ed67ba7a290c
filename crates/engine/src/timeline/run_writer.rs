//! Writing a run, front to back, once.

use std::io;
use std::path::Path;
use std::sync::Arc;

use punctual_model::{Key, Timestamp, TopicId};

use crate::codec;
use crate::disk::{Disk, DiskFile, Open};
use crate::timeline::cells::CellsWriter;
use crate::timeline::run::{
    ABSENT, BLOCK_FRONT, BlockAt, DIR, Footer, HEADER_BYTES, ID_PAGE_BYTES, ID_PAGE_DATA, MAGIC,
    Run, SpanAt, Stamp, VERSION, id_checksum, path,
};

/// Bytes gathered before they are handed to the disk.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes written before they are synced, so that the final sync finds little to do.
const SYNC_BYTES: u64 = 16 << 20;

/// A run in the making. Dropped before [`finish`](Self::finish), it leaves a file that nobody
/// refers to, which the next start removes.
#[derive(Debug)]
pub struct RunWriter {
    number: u64,
    first_sequence: u64,
    file: Arc<dyn DiskFile>,
    block_bytes: usize,
    buffer: Vec<u8>,
    flushed: u64,
    synced: u64,
    /// Where in the buffer the open block starts.
    block_start: usize,
    block_first: Option<Key>,
    previous_due: Timestamp,
    last: Key,
    entries: u64,
    blocks: Vec<BlockAt>,
    cells: CellsWriter,
    far_from: Timestamp,
}

/// The ids of a range of sequences: the stamp of each that is in the run.
#[derive(Debug)]
pub struct Ids {
    /// The first sequence.
    pub first: u64,
    /// A stamp, or `None`, for each sequence from `first` on.
    pub stamps: Vec<Option<Stamp>>,
}

impl RunWriter {
    /// Starts run `number`; no sequence in it will be below `first_sequence`.
    ///
    /// # Errors
    /// As the disk says.
    pub fn create(
        disk: &dyn Disk,
        number: u64,
        first_sequence: u64,
        block_bytes: usize,
    ) -> io::Result<Self> {
        disk.create_dir(Path::new(DIR))?;
        let file = disk.open(&path(number), Open::CreateNew)?;
        let mut buffer = Vec::with_capacity(WRITE_BYTES + block_bytes);
        buffer.extend_from_slice(MAGIC);
        buffer.extend_from_slice(&VERSION.to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&number.to_le_bytes());
        buffer.extend_from_slice(&first_sequence.to_le_bytes());
        debug_assert_eq!(buffer.len() as u64, HEADER_BYTES, "the header has its fixed size");
        Ok(Self {
            number,
            first_sequence,
            file,
            block_bytes,
            buffer,
            flushed: 0,
            synced: 0,
            block_start: 0,
            block_first: None,
            previous_due: Timestamp::MIN,
            last: Key::default(),
            entries: 0,
            blocks: Vec::new(),
            cells: CellsWriter::default(),
            far_from: Timestamp::MAX,
        })
    }

    /// Entries due at `far_from` or later will not be read for long: they leave the page cache to
    /// what is.
    #[must_use]
    pub fn with_far_from(self, far_from: Timestamp) -> Self {
        Self { far_from, ..self }
    }

    /// Adds an entry; keys come in growing order.
    ///
    /// # Errors
    /// As the disk says.
    pub fn push(&mut self, key: Key, topic: TopicId, content: &[u8]) -> io::Result<()> {
        assert!(self.entries == 0 || key > self.last, "a run is written in key order");
        if self.block_first.is_none() {
            self.block_first = Some(key);
            self.previous_due = key.due;
            self.block_start = self.buffer.len();
            self.buffer.extend_from_slice(&[0; BLOCK_FRONT]);
        }
        codec::put_varint(&mut self.buffer, key.due.since(self.previous_due).as_millis());
        codec::put_varint(&mut self.buffer, key.sequence.get() - self.first_sequence);
        codec::put_bytes(&mut self.buffer, content);
        self.previous_due = key.due;
        self.last = key;
        self.entries += 1;
        self.cells.push(topic, key.due);
        if self.buffer.len() - self.block_start >= self.block_bytes {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Some(first) = self.block_first.take() else { return Ok(()) };
        let offset = self.flushed + self.block_start as u64;
        let block = self.buffer.get_mut(self.block_start..).unwrap_or_default();
        let length = u32::try_from(block.len() - 8).map_err(io::Error::other)?;
        if let Some(place) = block.get_mut(8..BLOCK_FRONT) {
            place.copy_from_slice(&first.due.as_millis().to_le_bytes());
        }
        let checksum = crc32c::crc32c(block.get(8..).unwrap_or_default());
        if let Some(place) = block.get_mut(..4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        if let Some(place) = block.get_mut(4..8) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
        self.blocks.push(BlockAt { first, offset });
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    const fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        if self.flushed - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            let synced = self.synced;
            let first = self.blocks.partition_point(|block| block.offset < synced);
            if self.blocks.get(first).is_some_and(|block| block.first.due >= self.far_from) {
                self.file.forget(synced, self.flushed - synced);
            }
            self.synced = self.flushed;
        }
        Ok(())
    }

    /// Writes the ids, the cells and the footer, syncs all of it and opens the run.
    ///
    /// # Errors
    /// As the disk says.
    pub fn finish(mut self, disk: &dyn Disk, ids: &[Ids]) -> io::Result<Run> {
        self.end_block()?;
        let data_end = self.offset();
        let mut spans = Vec::with_capacity(ids.len());
        for range in ids {
            spans.push(self.put_ids(range)?);
        }
        let counts = self.cells.counts();
        let cells_offset = self.offset();
        let (pages, cells) = std::mem::take(&mut self.cells).finish(cells_offset)?;
        for page in pages {
            self.put(&page)?;
        }
        let tail_offset = self.offset();
        let mut tail = Vec::new();
        put_blocks(&mut tail, &self.blocks);
        put_spans(&mut tail, &spans);
        for (topic, count) in &counts {
            tail.extend_from_slice(&topic.get().to_le_bytes());
            tail.extend_from_slice(&count.to_le_bytes());
        }
        cells.encode(&mut tail);
        let footer = Footer {
            number: self.number,
            first_sequence: self.first_sequence,
            entries: self.entries,
            last: self.last,
            data_end,
            tail_offset,
            blocks: u32::try_from(self.blocks.len()).map_err(io::Error::other)?,
            spans: u32::try_from(spans.len()).map_err(io::Error::other)?,
            topics: u32::try_from(counts.len()).map_err(io::Error::other)?,
            cell_pages: u32::try_from(cells.len()).map_err(io::Error::other)?,
            cells_offset,
        };
        self.buffer.extend_from_slice(&tail);
        self.buffer.extend_from_slice(&footer.encode(&tail));
        self.flush()?;
        self.file.sync()?;
        disk.sync_dir(Path::new(DIR))?;
        Ok(Run {
            number: self.number,
            blocks: self.blocks,
            spans,
            counts,
            entries: self.entries,
            last: self.last,
            first_sequence: self.first_sequence,
            data_end,
            cells: Some(cells),
            file: self.file,
        })
    }

    /// Adds bytes behind the blocks.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn put_ids(&mut self, range: &Ids) -> io::Result<SpanAt> {
        let present = range.stamps.iter().flatten().count();
        let sparse = present * 2 < range.stamps.len();
        let span = SpanAt {
            first: range.first,
            sequences: u32::try_from(range.stamps.len()).map_err(io::Error::other)?,
            sparse,
            offset: self.offset(),
            entries: u32::try_from(present).map_err(io::Error::other)?,
        };
        let mut page: Vec<u8> = Vec::with_capacity(ID_PAGE_BYTES);
        let mut number = 0;
        for (index, stamp) in (0u32..).zip(&range.stamps) {
            if sparse && stamp.is_none() {
                continue;
            }
            if sparse {
                page.extend_from_slice(&index.to_le_bytes());
            }
            let stamp = stamp.map_or(ABSENT, |stamp| stamp.0);
            page.extend_from_slice(&stamp.to_le_bytes());
            if page.len() == ID_PAGE_DATA {
                self.end_id_page(&mut page, number)?;
                number += 1;
            }
        }
        if !page.is_empty() {
            // All ones stand for no entry, and for an offset past every other.
            page.resize(ID_PAGE_DATA, u8::MAX);
            self.end_id_page(&mut page, number)?;
        }
        Ok(span)
    }

    fn end_id_page(&mut self, page: &mut Vec<u8>, number: u32) -> io::Result<()> {
        let checksum = id_checksum(page, number);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.extend_from_slice(&number.to_le_bytes());
        let outcome = self.put(page);
        page.clear();
        outcome
    }
}

fn put_blocks(out: &mut Vec<u8>, blocks: &[BlockAt]) {
    for block in blocks {
        out.extend_from_slice(&block.first.due.as_millis().to_le_bytes());
        out.extend_from_slice(&block.first.sequence.get().to_le_bytes());
        out.extend_from_slice(&block.offset.to_le_bytes());
    }
}

fn put_spans(out: &mut Vec<u8>, spans: &[SpanAt]) {
    for span in spans {
        out.extend_from_slice(&span.first.to_le_bytes());
        out.extend_from_slice(&span.sequences.to_le_bytes());
        out.extend_from_slice(&u32::from(span.sparse).to_le_bytes());
        out.extend_from_slice(&span.offset.to_le_bytes());
        out.extend_from_slice(&span.entries.to_le_bytes());
    }
}
