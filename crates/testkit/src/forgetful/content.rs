//! The bytes of one simulated file: sparse, and shared between copies until one of them changes.
//!
//! Bytes past the end of the file are always zero inside the last chunk, so a file that grows again
//! reads as zeros. A chunk is a hole (costs nothing), reserved (costs space, reads as zeros) or data.

use std::ops::Range;
use std::sync::Arc;

/// The unit in which bytes are shared and space is counted.
pub(super) const CHUNK_BYTES: usize = 4096;

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    chunks: Arc<Vec<Chunk>>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Chunk {
    Hole,
    Reserved,
    Data(Arc<[u8; CHUNK_BYTES]>),
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Space taken, in bytes.
    pub(super) fn used(&self) -> u64 {
        let taken = self.chunks.iter().filter(|chunk| !matches!(chunk, Chunk::Hole)).count();
        (taken * CHUNK_BYTES) as u64
    }

    /// Space that writing or reserving `range` would take beyond what is taken already.
    pub(super) fn missing(&self, range: Range<usize>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let chunks = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
        let holes = chunks.filter(|&at| matches!(self.chunks.get(at), None | Some(Chunk::Hole)));
        (holes.count() * CHUNK_BYTES) as u64
    }

    /// Fills `buffer` from `offset` on; answers how much there was.
    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let count = buffer.len().min(self.len.saturating_sub(offset));
        for piece in pieces(offset, count) {
            let part = &mut buffer[piece.outer];
            match self.chunks.get(piece.chunk) {
                Some(Chunk::Data(bytes)) => part.copy_from_slice(&bytes[piece.inner]),
                _ => part.fill(0),
            }
        }
        count
    }

    /// The bytes of `range`, as far as the file has them.
    pub(super) fn slice(&self, range: Range<usize>) -> Vec<u8> {
        let end = range.end.min(self.len);
        let mut bytes = vec![0; end.saturating_sub(range.start)];
        self.read(&mut bytes, range.start);
        bytes
    }

    /// Writes, growing the file where needed.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(offset + bytes.len());
        let chunks = Arc::make_mut(&mut self.chunks);
        for piece in pieces(offset, bytes.len()) {
            let from = &bytes[piece.outer];
            match &mut chunks[piece.chunk] {
                Chunk::Data(block) => Arc::make_mut(block)[piece.inner].copy_from_slice(from),
                empty => {
                    let mut block = [0; CHUNK_BYTES];
                    block[piece.inner].copy_from_slice(from);
                    *empty = Chunk::Data(Arc::new(block));
                }
            }
        }
    }

    /// Cuts or extends the file.
    pub(super) fn set_len(&mut self, len: usize) {
        if len >= self.len {
            self.grow(len);
            return;
        }
        self.zero(len..self.len);
        Arc::make_mut(&mut self.chunks).truncate(len.div_ceil(CHUNK_BYTES));
        self.len = len;
    }

    /// Takes space for the first `len` bytes.
    pub(super) fn allocate(&mut self, len: usize) {
        self.grow(len.max(self.len));
        let count = len.div_ceil(CHUNK_BYTES);
        for chunk in Arc::make_mut(&mut self.chunks).iter_mut().take(count) {
            if matches!(chunk, Chunk::Hole) {
                *chunk = Chunk::Reserved;
            }
        }
    }

    /// Gives whole chunks of `range` back and zeroes the rest of it.
    pub(super) fn punch(&mut self, range: Range<usize>) {
        let range = range.start..range.end.min(self.len);
        if range.is_empty() {
            return;
        }
        self.zero(range.clone());
        let at_end = range.end == self.len;
        let last = if at_end { range.end.div_ceil(CHUNK_BYTES) } else { range.end / CHUNK_BYTES };
        let first = range.start.div_ceil(CHUNK_BYTES);
        let chunks = Arc::make_mut(&mut self.chunks);
        for chunk in chunks.iter_mut().take(last).skip(first) {
            *chunk = Chunk::Hole;
        }
    }

    /// Turns one bit over. False when the file is shorter.
    pub(super) fn flip(&mut self, offset: usize, bit: u8) -> bool {
        let mut byte = [0];
        if self.read(&mut byte, offset) == 0 {
            return false;
        }
        self.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
        true
    }

    fn grow(&mut self, len: usize) {
        let count = len.div_ceil(CHUNK_BYTES);
        if count > self.chunks.len() {
            Arc::make_mut(&mut self.chunks).resize(count, Chunk::Hole);
        }
        self.len = self.len.max(len);
    }

    fn zero(&mut self, range: Range<usize>) {
        let chunks = Arc::make_mut(&mut self.chunks);
        for piece in pieces(range.start, range.len()) {
            if let Chunk::Data(block) = &mut chunks[piece.chunk] {
                if piece.inner.len() == CHUNK_BYTES {
                    chunks[piece.chunk] = Chunk::Reserved;
                } else {
                    Arc::make_mut(block)[piece.inner].fill(0);
                }
            }
        }
    }
}

/// The part of a transfer that falls into one chunk.
struct Piece {
    chunk: usize,
    inner: Range<usize>,
    outer: Range<usize>,
}

fn pieces(offset: usize, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done;
        let start = at % CHUNK_BYTES;
        let count = (CHUNK_BYTES - start).min(len - done);
        let outer = done..done + count;
        done += count;
        Some(Piece { chunk: at / CHUNK_BYTES, inner: start..start + count, outer })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_file_grows_again_with_zeros() {
        let mut content = Content::default();
        content.write(4000, &[7; 200]);
        content.set_len(4050);
        content.set_len(5000);
        assert_eq!(content.len(), 5000);
        assert_eq!(content.slice(4049..4052), [7, 0, 0]);
    }

    #[test]
    fn copies_do_not_see_each_other() {
        let mut one = Content::default();
        one.write(0, &[1; 9000]);
        let two = one.clone();
        one.write(5000, &[2; 10]);
        assert_eq!(two.slice(5000..5002), [1, 1]);
        assert_eq!(one.slice(4999..5001), [1, 2]);
    }

    #[test]
    fn space_is_counted_by_chunk_and_given_back_by_punching() {
        let mut content = Content::default();
        content.allocate(16_384);
        assert_eq!((content.len(), content.used()), (16_384, 16_384));
        content.write(0, &[9; 10_000]);
        assert_eq!(content.used(), 16_384);
        content.punch(100..8192);
        assert_eq!(content.used(), 12_288);
        assert_eq!(content.slice(99..101), [9, 0]);
        assert_eq!(content.slice(8191..8193), [0, 9]);
        assert_eq!(content.missing(0..16_384), 4096);
        content.set_len(20_000);
        assert_eq!(content.used(), 12_288, "a hole at the end costs nothing");
    }
}
