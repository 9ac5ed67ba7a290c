//! Finding places in a log: the offset of a moment, and how many bytes lie behind an offset.
//!
//! An index entry leads close by and headers of batches do the rest, so the reading does not grow
//! with the log. What memory answers alone is not read at all.

use punctual_model::Timestamp;
use punctual_model::ports::{Stamped, TopicError};

use super::batch::BatchHeader;
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
    /// The offset of the first record of `time` or later, or the end.
    pub(super) fn offset_at(&self, time: Timestamp) -> Result<u64, TopicError> {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match self.first_since(millis)? {
            Some(found) => Ok(found.offset),
            None => Ok(self.bounds()?.end),
        }
    }

    /// The first record with a timestamp of `millis` or later.
    pub(super) fn first_since(&self, millis: i64) -> Result<Option<Stamped>, TopicError> {
        self.bounds()?;
        let time = u64::try_from(millis).unwrap_or_default();
        let Some(time) = Timestamp::from_millis(time) else { return Ok(None) };
        let mut offset = 0;
        let mut vanished = 0;
        while let Some(view) = self.view_since(offset, time, false) {
            match view.first_since(time) {
                Ok(None) => offset = view.end,
                Ok(found) => return Ok(found),
                Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
                Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp, the first of them.
    pub(super) fn latest(&self) -> Result<Option<Stamped>, TopicError> {
        self.bounds()?;
        retry(|| {
            let (known, open) = self.largest();
            let mut largest = known;
            for view in &open {
                match view.largest() {
                    Ok(found) => largest = largest.max(found),
                    Err(trouble) => return Ok(Err(trouble)),
                }
            }
            let Some(largest) = largest else { return Ok(Ok(None)) };
            self.first_since(i64::try_from(largest.as_millis()).unwrap_or(i64::MAX)).map(Ok)
        })
    }

    /// The largest time of segments that are visible as a whole, and the others.
    fn largest(&self) -> (Option<Timestamp>, Vec<View<'_>>) {
        let state = self.state.lock();
        let mut largest = None;
        let mut open = Vec::new();
        for sight in state.visible().filter(|sight| sight.end > state.start) {
            if sight.is_whole() && sight.segment.base >= state.start {
                largest = largest.max(sight.segment.last());
            } else {
                open.push(self.view_of(&state, sight, Some(state.start)));
            }
        }
        (largest, open)
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

    /// How to find the bytes of the segment that holds `offset`, and the bytes of all behind it.
    fn step_to_offset(&self, offset: u64) -> Result<(Step<'_>, u64), TopicError> {
        let state = self.state.lock();
        if state.removed {
            return Err(TopicError::NotFound);
        }
        let mut rest = state.visible().skip_while(|sight| sight.end <= offset);
        let step = match rest.next() {
            None => Step::Known(0),
            Some(sight) if offset <= sight.segment.base => Step::Known(sight.bytes),
            Some(sight) => Step::Look(self.view_of(&state, sight, Some(offset))),
        };
        let behind = rest.map(|sight| sight.bytes).sum();
        Ok((step, behind))
    }
}

impl View<'_> {
    /// The first record with a time of `time` or later.
    fn first_since(&self, time: Timestamp) -> Result<Option<Stamped>, Trouble> {
        let file = self.log_file()?;
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let place = (self.start_at_time(&*file, time), self.start);
        let wanted = |header: &BatchHeader| {
            header.timestamp >= Some(time) && header.last_offset >= self.start
        };
        self.walk(&*file, place, wanted, |_, record| {
            let found = Stamped { offset: record.offset, millis: record.millis };
            Ok((record.millis >= millis).then_some(found))
        })
    }

    /// The largest time of what was not trimmed.
    fn largest(&self) -> Result<Option<Timestamp>, Trouble> {
        let file = self.log_file()?;
        let mut largest = None;
        let mut cut = false;
        let mut scanner = Scanner::new(&*file, self.start(&*file, self.start), self.bytes);
        while let Some(header) = scanner.peek().map_err(|error| self.failed(&error))? {
            let header = header.map_err(|bad| self.bad(bad))?;
            scanner.skip(&header);
            if header.base_offset >= self.start {
                largest = largest.max(header.timestamp);
            }
            cut |= (header.base_offset..=header.last_offset).contains(&self.start);
        }
        if cut {
            let place = (self.start(&*file, self.start), self.start);
            let holds = |header: &BatchHeader| {
                (header.base_offset..=header.last_offset).contains(&self.start)
            };
            self.walk(&*file, place, holds, |_, record| {
                largest = largest.max((record.millis >= 0).then(|| record.time()));
                Ok(None::<()>)
            })?;
        }
        Ok(largest)
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
fn retry<T>(
    mut look: impl FnMut() -> Result<Result<T, Trouble>, TopicError>,
) -> Result<T, TopicError> {
    let mut vanished = 0;
    loop {
        match look()? {
            Ok(answer) => return Ok(answer),
            Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
            Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error.into()),
        }
    }
}
