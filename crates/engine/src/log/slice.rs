//! Giving out stretches of log files, for whoever sends them on without looking into them.
//!
//! A stretch begins with the batch that holds the offset and never goes past what is visible. The
//! headers on the way are believed without their checksums: whoever gets the bytes checks them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use punctual_model::ports::{LogBounds, Slice, SliceError, SliceFile};

use crate::disk::DiskFile;

use super::partition::PartitionLog;
use super::read::{Trouble, VANISHED_MAX, View};
use super::scan::Scanner;

/// A log file as others see it.
#[derive(Debug)]
struct LogFile(Arc<dyn DiskFile>);

impl SliceFile for LogFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

impl PartitionLog {
    /// The batches from the one that holds `offset` on.
    pub(super) fn slice(&self, offset: u64, bytes_max: u64) -> Result<Slice, SliceError> {
        let mut vanished = 0;
        loop {
            let bounds = self.bounds()?;
            if !(bounds.start..=bounds.end).contains(&offset) {
                return Err(SliceError::OutOfRange(bounds));
            }
            let Some(view) = self.view(offset)? else {
                return Ok(Slice { file: None, position: 0, length: 0, bounds });
            };
            match view.slice(offset, bytes_max, bounds) {
                Ok(slice) => return Ok(slice),
                Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
                Err(Trouble::Vanished(error) | Trouble::Store(error)) => {
                    return Err(SliceError::Topic(error.into()));
                }
            }
        }
    }
}

impl View<'_> {
    fn slice(&self, offset: u64, bytes_max: u64, bounds: LogBounds) -> Result<Slice, Trouble> {
        let file = self.log_file()?;
        let mut scanner = Scanner::new(&*file, self.start(&*file, offset), self.bytes);
        while let Some(header) = scanner.peek().map_err(|error| self.failed(&error))? {
            let header = header.map_err(|bad| self.bad(bad))?;
            if header.last_offset >= offset {
                let position = scanner.position();
                let length = bytes_max.max(header.bytes).min(self.bytes - position);
                let file: Arc<dyn SliceFile> = Arc::new(LogFile(file));
                return Ok(Slice { file: Some(file), position, length, bounds });
            }
            scanner.skip(&header);
        }
        Ok(Slice { file: None, position: 0, length: 0, bounds })
    }
}
