//! Housekeeping of a partition: sealing segments, and removing what is too old or too much.
//!
//! Whole segments go, oldest first, and never one with records that no checkpoint knows: recovery
//! tells from the log what was delivered, so such a record would be delivered once more. Nor one
//! with records that somebody still needs, as the caller says with a floor. One removal is certain
//! before the next begins, so a crash never leaves a gap.

use std::sync::Arc;

use punctual_model::ports::StoreError;
use punctual_model::{Timestamp, TopicSettings};

use crate::disk::Open;

use super::Unsynced;
use super::ids::{self, IdEntry};
use super::partition::{PartitionLog, State};
use super::scan::Scanner;
use super::segment::{self, Kind, Segment, damage, read_error, write_error};

impl PartitionLog {
    /// One round of housekeeping. Nothing from offset `floor` on is removed.
    pub(super) fn maintain(
        &self,
        settings: &TopicSettings,
        now: Timestamp,
        floor: Option<u64>,
    ) -> Result<(), StoreError> {
        while let Some(base) = self.next_unsealed() {
            if !self.seal(base)? {
                break;
            }
        }
        self.retain(settings, now, floor)?;
        self.rest();
        Ok(())
    }

    fn next_unsealed(&self) -> Option<u64> {
        let state = self.state.lock();
        let (_, rolled) = state.segments.split_last()?;
        rolled.iter().find(|segment| !segment.sealed).map(|segment| segment.base)
    }

    /// Writes the `.ids` file and completes the index files. False when it can not be done now.
    fn seal(&self, base: u64) -> Result<bool, StoreError> {
        let dir = self.dir();
        let log = segment::path(&dir, base, Kind::Log);
        let path = segment::path(&dir, base, Kind::Ids);
        let (file, ids, bytes, end, times) = {
            let mut state = self.state.lock();
            let Some(segment) = find(&mut state, base) else {
                return Ok(true);
            };
            let file = segment.open(&*self.disk, &dir).map_err(|error| read_error(&log, &error))?;
            let Some(times) = segment.times else {
                segment.sealed = true;
                return Ok(true);
            };
            // Made under the lock, so that no file appears in a directory that is being removed.
            let ids = self.disk.open(&path, Open::Create);
            (file, ids, segment.bytes, segment.end, times)
        };
        let mut entries = Vec::new();
        let mut scanner = Scanner::new(&*file, 0, bytes);
        while let Some(header) = scanner.peek().map_err(|error| read_error(&log, &error))? {
            let header = header.map_err(|bad| damage(&log, bad.position, bad.error))?;
            if !header.fired {
                // Where those stand is in their ids.
                scanner.skip(&header);
                continue;
            }
            let position = scanner.position();
            let batch = scanner.take(&header).map_err(|error| read_error(&log, &error))?;
            let batch = batch.map_err(|bad| damage(&log, bad.position, bad.error))?;
            let opened = batch.open(self.topic, self.partition);
            for record in opened.records() {
                let entry = record.and_then(|record| Ok((opened.id(&record)?, record.offset)));
                let (id, offset) = entry.map_err(|error| damage(&log, position, error))?;
                let relative =
                    u32::try_from(offset - base).map_err(|error| damage(&log, position, error))?;
                entries.push(IdEntry { sequence: id.key.sequence, relative });
            }
        }
        let written = ids.and_then(|ids| ids::write(&*ids, entries, (end, bytes), times));
        let mut state = self.state.lock();
        let Some(segment) = find(&mut state, base) else {
            return Ok(true);
        };
        match written.and_then(|()| segment.flush_index(&*self.disk, &dir)) {
            Ok(_) => {
                segment.sealed = true;
                Ok(true)
            }
            // The file only makes looking up faster; it is tried again in the next round.
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "segment not sealed");
                Ok(false)
            }
        }
    }

    fn retain(
        &self,
        settings: &TopicSettings,
        now: Timestamp,
        floor: Option<u64>,
    ) -> Result<(), StoreError> {
        let dir = self.dir();
        loop {
            let base = {
                let mut state = self.state.lock();
                if is_held(&state, floor) || !is_excess(&state, settings, now) {
                    return Ok(());
                }
                if state.segments.len() == 1 {
                    self.roll(&mut state)?;
                }
                state.segments.remove(0).base
            };
            // The name of the segment behind must be certain first: it keeps the next offset.
            let names = Unsynced::Dir(Arc::clone(&self.disk), dir.clone());
            names.sync().map_err(|error| write_error(&dir, &error))?;
            segment::remove_files(&*self.disk, &dir, base)?;
            names.sync().map_err(|error| write_error(&dir, &error))?;
        }
    }

    /// Closes files that are not in use, so that quiet partitions cost no open files.
    fn rest(&self) {
        let mut state = self.state.lock();
        let busy = std::mem::take(&mut state.busy);
        let (active, rolled) = match state.segments.split_last_mut() {
            Some((active, rolled)) => (Some(active).filter(|_| !busy), rolled),
            None => return,
        };
        for segment in rolled.iter_mut().chain(active) {
            if !segment.unsynced {
                segment.file = None;
            }
        }
    }
}

fn find(state: &mut State, base: u64) -> Option<&mut Segment> {
    state.segments.iter_mut().find(|segment| segment.base == base)
}

/// Whether the oldest segment must stay, whatever the settings say.
fn is_held(state: &State, floor: Option<u64>) -> bool {
    let Some(oldest) = state.segments.first() else { return false };
    // Nobody can ask for what was trimmed.
    let floor = floor.filter(|_| !is_trimmed(state, oldest));
    oldest.end > floor.map_or(state.checkpointed, |floor| floor.min(state.checkpointed))
}

/// Whether all of a segment was taken off the log.
const fn is_trimmed(state: &State, segment: &Segment) -> bool {
    segment.bytes > 0 && segment.end <= state.start
}

/// Whether the settings want the oldest segment to go.
fn is_excess(state: &State, settings: &TopicSettings, now: Timestamp) -> bool {
    let Some(oldest) = state.segments.first() else {
        return false;
    };
    if oldest.bytes == 0 {
        return false;
    }
    // A segment without any time is as old as the one behind it.
    let last = state.segments.iter().find_map(Segment::last);
    let is_old = |span| last.is_some_and(|last| now.since(last) > span);
    let expired = settings.retention.is_some_and(is_old);
    let total: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
    // The active segment is not removed for its size: it is at most one segment too much.
    let too_much = state.segments.len() > 1
        && settings.retention_bytes.is_some_and(|most| total - oldest.bytes >= most);
    expired || too_much || is_trimmed(state, oldest)
}
