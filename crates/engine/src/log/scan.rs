//! Walking a log file batch by batch.
//!
//! Headers are read through a small window, so skipping a batch costs one short read however large
//! the batch is. A scanner never looks past the end it was given.

use std::io;

use bytes::Bytes;

use crate::disk::DiskFile;

use super::batch::{Batch, BatchError, BatchHeader, HEADER_BYTES};

const WINDOW_BYTES: usize = 4096;

/// A place in a log file, moving forward.
#[derive(Debug)]
pub(super) struct Scanner<'f> {
    file: &'f dyn DiskFile,
    position: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// A batch that can not be read, and where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    /// Where it starts in the file.
    pub(super) position: u64,
    /// What is wrong with it.
    pub(super) error: BatchError,
}

impl<'f> Scanner<'f> {
    /// Starts at `position`; batches end at `end` at the latest.
    pub(super) fn new(file: &'f dyn DiskFile, position: u64, end: u64) -> Self {
        Self { file, position, end, window: Vec::new(), window_at: 0 }
    }

    /// Where the next batch starts.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// The header of the next batch, without moving; `None` at the end.
    pub(super) fn peek(&mut self) -> io::Result<Option<Result<BatchHeader, Bad>>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let left = self.end - self.position;
        let parsed = BatchHeader::parse(self.bytes(HEADER_BYTES)?).and_then(|header| {
            if header.bytes <= left { Ok(header) } else { Err(BatchError::Torn) }
        });
        Ok(Some(parsed.map_err(|error| Bad { position: self.position, error })))
    }

    /// Moves past the batch of that header.
    pub(super) const fn skip(&mut self, header: &BatchHeader) {
        self.position += header.bytes;
    }

    /// Reads, checks and moves past the batch whose header was peeked at.
    pub(super) fn take(&mut self, header: &BatchHeader) -> io::Result<Result<Batch, Bad>> {
        let length = usize::try_from(header.bytes).map_err(io::Error::other)?;
        let bytes = if length <= WINDOW_BYTES {
            Bytes::copy_from_slice(self.bytes(length)?)
        } else {
            let mut buffer = vec![0; length];
            let count = self.file.read_at(&mut buffer, self.position)?;
            buffer.truncate(count);
            Bytes::from(buffer)
        };
        let position = self.position;
        self.skip(header);
        Ok(Batch::check(bytes).map_err(|error| Bad { position, error }))
    }

    /// Up to `count` bytes at the position, fewer only at the end.
    fn bytes(&mut self, count: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let count = count.min(left);
        let inside = self.position.checked_sub(self.window_at);
        let held = self.window.len() as u64;
        let start = match inside {
            Some(start) if start + count as u64 <= held => start,
            _ => {
                self.window.resize(WINDOW_BYTES.min(left), 0);
                let read = self.file.read_at(&mut self.window, self.position)?;
                self.window.truncate(read);
                self.window_at = self.position;
                0
            }
        };
        let start = usize::try_from(start).map_err(io::Error::other)?;
        let rest = self.window.get(start..).unwrap_or_default();
        Ok(rest.get(..count).unwrap_or(rest))
    }
}
