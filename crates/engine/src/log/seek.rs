//! Finding places in a log: the offset of a moment, and how many bytes lie behind an offset.
//!
//! An index entry leads close by and headers of batches do the rest, so the reading does not grow
//! with the log. What memory answers alone is not read at all.

use punctual_model::Timestamp;
use punctual_model::ports::TopicError;

use super::partition::PartitionLog;
use super::read::{Trouble, VANISHED_MAX, View};
use super::scan::Scanner;

/// Where to look, or the answer.
enum Step<'p> {
    Look(View<'p>),
    /// The answer; no need to look.
    Known(u64),
}

impl PartitionLog {
    /// The offset of the first record appended at `time` or later, or the end.
    pub(super) fn offset_at(&self, time: Timestamp) -> Result<u64, TopicError> {
        retry(|| match self.step_to_time(time)? {
            Step::Known(offset) => Ok(Ok(offset)),
            Step::Look(view) => Ok(view.offset_at(time)),
        })
    }

    /// Bytes from `offset` to the end.
    pub(super) fn bytes_from(&self, offset: u64) -> Result<u64, TopicError> {
        retry(|| {
            let (step, behind) = self.step_to_offset(offset)?;
            Ok(match step {
                Step::Known(bytes) => Ok(bytes + behind),
                Step::Look(view) => view.bytes_from(offset).map(|bytes| bytes + behind),
            })
        })
    }

    fn step_to_time(&self, time: Timestamp) -> Result<Step<'_>, TopicError> {
        let state = self.state.lock();
        if state.removed {
            return Err(TopicError::NotFound);
        }
        // Times never run backwards, so this is the segment, or there is none.
        let found = state.segments.iter().find_map(|segment| {
            let (first, _) = segment.times.filter(|(_, last)| *last >= time)?;
            Some((segment, first))
        });
        Ok(match found {
            None => Step::Known(state.end),
            Some((segment, first)) if first >= time => Step::Known(segment.base),
            Some((segment, _)) => Step::Look(self.view_at(segment, time)),
        })
    }

    /// How to find the bytes of the segment that holds `offset`, and the bytes of all behind it.
    fn step_to_offset(&self, offset: u64) -> Result<(Step<'_>, u64), TopicError> {
        let state = self.state.lock();
        if state.removed {
            return Err(TopicError::NotFound);
        }
        let slot = state.segments.partition_point(|segment| segment.end <= offset);
        let mut rest = state.segments.iter().skip(slot);
        let step = match rest.next() {
            None => Step::Known(0),
            Some(segment) if offset <= segment.base => Step::Known(segment.bytes),
            Some(segment) => Step::Look(self.view_of(segment, Some(offset))),
        };
        Ok((step, rest.map(|segment| segment.bytes).sum()))
    }
}

impl View<'_> {
    fn offset_at(&self, time: Timestamp) -> Result<u64, Trouble> {
        let file = self.log_file()?;
        let mut scanner = Scanner::new(&*file, self.start_at_time(&*file, time), self.bytes);
        while let Some(header) = scanner.peek().map_err(|error| self.failed(&error))? {
            let header = header.map_err(|bad| self.bad(bad))?;
            if header.timestamp >= time {
                // A header is believed once the checksum that covers it was found right.
                let batch = scanner.take(&header).map_err(|error| self.failed(&error))?;
                return Ok(batch.map_err(|bad| self.bad(bad))?.header().base_offset);
            }
            scanner.skip(&header);
        }
        Ok(self.end)
    }

    fn bytes_from(&self, offset: u64) -> Result<u64, Trouble> {
        let file = self.log_file()?;
        let mut scanner = Scanner::new(&*file, self.start(&*file, offset), self.bytes);
        while let Some(header) = scanner.peek().map_err(|error| self.failed(&error))? {
            let header = header.map_err(|bad| self.bad(bad))?;
            let left = self.bytes - scanner.position();
            if header.last_offset >= offset {
                let records = header.last_offset - header.base_offset + 1;
                let before = offset.saturating_sub(header.base_offset);
                // Both are small: a batch has at most 64 MiB and its offsets 31 bits.
                return Ok(left - header.bytes * before / records);
            }
            scanner.skip(&header);
        }
        Ok(0)
    }
}

/// Tries again while the segment vanishes under the reader.
fn retry(
    mut look: impl FnMut() -> Result<Result<u64, Trouble>, TopicError>,
) -> Result<u64, TopicError> {
    let mut vanished = 0;
    loop {
        match look()? {
            Ok(answer) => return Ok(answer),
            Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
            Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error.into()),
        }
    }
}
