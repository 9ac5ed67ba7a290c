//! Reading delivered messages, by offset and by id.
//!
//! A view of a segment is taken under the partition's lock; all file access comes after. Segments
//! may be removed meanwhile: then a fresh view is taken. Every batch is checked before anything in
//! it is believed, whatever an index or an `.ids` file said. Whoever reads messages gets visible ones only; only
//! the question whether a message was delivered is asked of all that was written.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::id::ID_CHARS;
use punctual_model::ports::{Delivered, LogBounds, StoreError, TopicError};
use punctual_model::{MessageId, Timestamp};

use crate::disk::{DiskFile, Open};

use super::batch::{BatchError, BatchHeader, Opened, Record};
use super::ids::{self, Trailer};
use super::index::{self, OffsetEntry};
use super::partition::{PartitionLog, Sight, State};
use super::scan::{Bad, Scanner};
use super::segment::{self, Kind, damage, read_error};

/// Looking for so many messages or fewer, each is looked for on its own.
const FEW: usize = 2;
/// A page of messages is closed after this many bytes, so that no page fills the memory.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// How often a segment may vanish under a reader before that counts as damage.
pub(super) const VANISHED_MAX: usize = 64;

/// Ids that are looked for, by their text.
pub(super) type Missing = HashMap<[u8; ID_CHARS], Wanted>;

/// A message that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its id.
    pub id: MessageId,
    /// It was not delivered before this.
    pub since: Timestamp,
}

impl From<MessageId> for Wanted {
    /// A message that was delivered for the time in its id, or later.
    fn from(id: MessageId) -> Self {
        Self { id, since: id.key.due }
    }
}

/// What is needed to read one segment without any lock.
pub(super) struct View<'p> {
    log: &'p PartitionLog,
    /// Its first offset.
    pub(super) base: u64,
    /// The offset behind what may be seen.
    pub(super) end: u64,
    /// Bytes of whole batches that may be seen.
    pub(super) bytes: u64,
    /// The offset at which the log starts.
    pub(super) start: u64,
    /// The offset behind all of it.
    whole_end: u64,
    sealed: bool,
    ids: Option<Trailer>,
    file: Option<Arc<dyn DiskFile>>,
    /// The best offset entry that is still in memory.
    hint: Option<OffsetEntry>,
    offset_bytes: u64,
    time_bytes: u64,
}

/// Why a view could not be read.
pub(super) enum Trouble {
    /// The segment was removed meanwhile.
    Vanished(StoreError),
    /// Anything else.
    Store(StoreError),
}

impl PartitionLog {
    /// The offsets it holds.
    pub(super) fn bounds(&self) -> Result<LogBounds, TopicError> {
        let state = self.state.lock();
        if state.removed { Err(TopicError::NotFound) } else { Ok(state.bounds()) }
    }

    /// Delivered messages from `from` on, at most `limit`, and the offset up to which there is
    /// nothing else.
    pub(super) fn read(
        &self,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Delivered>, u64), TopicError> {
        let mut page = Vec::new();
        let mut weight = 0;
        let mut offset = from;
        let mut vanished = 0;
        while page.len() < limit && weight < PAGE_BYTES_MAX {
            let Some(view) = self.view(offset)? else {
                break;
            };
            offset = offset.max(view.base).max(view.start);
            match view.read(offset, limit, &mut page, &mut weight) {
                Ok(full) => offset = full.unwrap_or(view.end),
                Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
                // What was read is good; the next call starts at the trouble.
                Err(_) if !page.is_empty() => {
                    offset = page.last().map_or(offset, |last| last.offset + 1);
                    break;
                }
                Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error.into()),
            }
        }
        Ok((page, offset))
    }

    /// The message of that id, if it is the one at that offset.
    pub(super) fn at(&self, offset: u64, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        let (page, _) = self.read(offset, 1)?;
        Ok(page.into_iter().find(|delivered| delivered.offset == offset && delivered.id == id))
    }

    /// Those of the ids that the log holds.
    pub(super) fn held_of(&self, all: &[Wanted]) -> Result<Vec<MessageId>, StoreError> {
        let mut held = Vec::new();
        let mut missing = Missing::new();
        for wanted in all {
            match wanted.id.key.sequence.offset() {
                Some(offset) => match self.at(offset, wanted.id) {
                    Ok(found) => held.extend(found.map(|found| found.id)),
                    Err(TopicError::Store(error)) => return Err(error),
                    Err(_gone) => {}
                },
                None => drop(missing.insert(wanted.id.encode(), *wanted)),
            }
        }
        let looked_for: Vec<MessageId> = missing.values().map(|wanted| wanted.id).collect();
        self.strike(&mut missing)?;
        held.extend(looked_for.into_iter().filter(|id| !missing.contains_key(&id.encode())));
        Ok(held)
    }

    /// Looks for the message and hands its record to `found`.
    pub(super) fn locate<T>(
        &self,
        wanted: Wanted,
        found: impl Fn(&Opened, &Record<'_>) -> Result<T, BatchError>,
    ) -> Result<Option<T>, StoreError> {
        // No record's time is before its due time, so older segments can not hold it.
        let mut offset = 0;
        let mut vanished = 0;
        while let Some(view) = self.view_since(offset, wanted.since, false) {
            match view.locate(wanted, &found) {
                Ok(None) => offset = view.end,
                Ok(found) => return Ok(found),
                Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
                Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Takes out of `missing` what the log holds. A segment without a list of ids is read once,
    /// however many are looked for.
    pub(super) fn strike(&self, missing: &mut Missing) -> Result<(), StoreError> {
        let Some(earliest) = missing.values().map(|wanted| wanted.since).min() else {
            return Ok(());
        };
        let mut offset = 0;
        let mut vanished = 0;
        while !missing.is_empty()
            && let Some(view) = self.view_since(offset, earliest, true)
        {
            match view.strike(missing, earliest) {
                Ok(()) => offset = view.end,
                Err(Trouble::Vanished(_)) if vanished < VANISHED_MAX => vanished += 1,
                Err(Trouble::Vanished(error) | Trouble::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// The segment that holds `offset`, or the first one when that lies before it.
    pub(super) fn view(&self, offset: u64) -> Result<Option<View<'_>>, TopicError> {
        let state = self.state.lock();
        if state.removed {
            return Err(TopicError::NotFound);
        }
        Ok(state.sight_at(offset).map(|sight| self.view_of(&state, sight, Some(offset))))
    }

    /// The first segment that ends behind `offset` and has batches of `time` or later, also if they
    /// are `held`.
    pub(super) fn view_since(&self, offset: u64, time: Timestamp, held: bool) -> Option<View<'_>> {
        let state = self.state.lock();
        let fits = |sight: &Sight<'_>| {
            sight.end > offset && sight.segment.last().is_some_and(|last| last >= time)
        };
        let sight = if held {
            state.segments.iter().map(Sight::whole).find(fits)?
        } else {
            state.visible().find(fits)?
        };
        Some(self.view_at(&state, sight, time))
    }

    /// A view with the entry in memory that is best for `time`.
    pub(super) fn view_at(&self, state: &State, sight: Sight<'_>, time: Timestamp) -> View<'_> {
        let segment = sight.segment;
        let entry = segment.index.times.iter().rev().find(|entry| entry.time < time);
        self.view_of(state, sight, entry.map(|entry| segment.base + u64::from(entry.relative)))
    }

    /// A view with the entry in memory that is best for `offset`.
    pub(super) fn view_of(&self, state: &State, sight: Sight<'_>, offset: Option<u64>) -> View<'_> {
        let segment = sight.segment;
        // Entries are sorted, and many may wait to be written.
        let hint = offset.and_then(|offset| {
            let offsets = &segment.index.offsets;
            let behind = |entry: &OffsetEntry| segment.base + u64::from(entry.relative) <= offset;
            let slot = offsets.partition_point(behind).checked_sub(1)?;
            offsets.get(slot).copied()
        });
        View {
            log: self,
            base: segment.base,
            end: sight.end,
            bytes: sight.bytes,
            start: state.start,
            whole_end: segment.end,
            sealed: segment.sealed,
            ids: segment.ids,
            file: segment.file.clone(),
            hint,
            offset_bytes: segment.index.offset_bytes,
            time_bytes: segment.index.time_bytes,
        }
    }

    /// Notes that the `.ids` file of a segment was found intact, or that it must be made again.
    fn note_ids(&self, base: u64, found: Option<Trailer>) {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == base) {
            segment.ids = found;
            segment.sealed = found.is_some();
        }
    }
}

impl View<'_> {
    fn path(&self, kind: Kind) -> PathBuf {
        segment::path(&self.log.dir(), self.base, kind)
    }

    fn open(&self, kind: Kind) -> io::Result<Arc<dyn DiskFile>> {
        self.log.disk.open(&self.path(kind), Open::Existing)
    }

    /// The log file.
    pub(super) fn log_file(&self) -> Result<Arc<dyn DiskFile>, Trouble> {
        match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => self.open(Kind::Log).map_err(|error| self.lost(Kind::Log, &error)),
        }
    }

    fn lost(&self, kind: Kind, error: &io::Error) -> Trouble {
        let gone = error.kind() == io::ErrorKind::NotFound;
        let error = read_error(&self.path(kind), error);
        if gone { Trouble::Vanished(error) } else { Trouble::Store(error) }
    }

    /// The log file could not be read.
    pub(super) fn failed(&self, error: &io::Error) -> Trouble {
        Trouble::Store(read_error(&self.path(Kind::Log), error))
    }

    /// A batch is not intact.
    pub(super) fn bad(&self, bad: Bad) -> Trouble {
        Trouble::Store(damage(&self.path(Kind::Log), bad.position, bad.error))
    }

    /// Adds to the page. Answers where to go on, if the page is full.
    fn read(
        &self,
        from: u64,
        limit: usize,
        page: &mut Vec<Delivered>,
        weight: &mut usize,
    ) -> Result<Option<u64>, Trouble> {
        let file = self.log_file()?;
        let start = self.start(&*file, from);
        self.walk(
            &*file,
            (start, from),
            |header| header.last_offset >= from,
            |batch, record| {
                let delivered = batch.delivered(record)?;
                *weight += delivered.message.weight();
                page.push(delivered);
                let full = page.len() >= limit || *weight >= PAGE_BYTES_MAX;
                Ok(full.then_some(record.offset + 1))
            },
        )
    }

    fn locate<T>(
        &self,
        wanted: Wanted,
        found: &impl Fn(&Opened, &Record<'_>) -> Result<T, BatchError>,
    ) -> Result<Option<T>, Trouble> {
        let file = self.log_file()?;
        let Wanted { id, since } = wanted;
        let text = id.encode();
        let check = |batch: &Opened, record: &Record<'_>| {
            if has_id(record, &text) { found(batch, record).map(Some) } else { Ok(None) }
        };
        if let Some(trailer) = self.intact_ids() {
            let relative = self
                .open(Kind::Ids)
                .and_then(|ids| ids::find(&*ids, trailer.count, id.key.sequence))
                .map_err(|error| self.lost(Kind::Ids, &error))?;
            let Some(relative) = relative else {
                return Ok(None);
            };
            let offset = self.base + u64::from(relative);
            if offset < self.start {
                return Ok(None);
            }
            let start = self.start(&*file, offset);
            let holds = |header: &BatchHeader| {
                header.fired && (header.base_offset..=header.last_offset).contains(&offset)
            };
            return self.walk(&*file, (start, offset), holds, check);
        }
        let start = self.start_at_time(&*file, since);
        self.walk(&*file, (start, self.start), |header| fired_since(header, since), check)
    }

    fn strike(&self, missing: &mut Missing, earliest: Timestamp) -> Result<(), Trouble> {
        if missing.len() <= FEW || self.intact_ids().is_some() {
            let mut found = Vec::new();
            for (text, wanted) in &*missing {
                if self.locate(*wanted, &|_, _| Ok(()))?.is_some() {
                    found.push(*text);
                }
            }
            for text in found {
                missing.remove(&text);
            }
            return Ok(());
        }
        let file = self.log_file()?;
        let start = self.start_at_time(&*file, earliest);
        self.walk(
            &*file,
            (start, self.start),
            |header| fired_since(header, earliest),
            |_, record| {
                if let Some(text) = record.id_text() {
                    missing.remove(text);
                }
                Ok(missing.is_empty().then_some(()))
            },
        )
        .map(drop)
    }

    /// Goes through the records of the batches that `wanted` picks, until `visit` answers. Starts at
    /// a position, and leaves out records before an offset.
    pub(super) fn walk<T>(
        &self,
        file: &dyn DiskFile,
        (start, from): (u64, u64),
        wanted: impl Fn(&BatchHeader) -> bool,
        mut visit: impl FnMut(&Opened, &Record<'_>) -> Result<Option<T>, BatchError>,
    ) -> Result<Option<T>, Trouble> {
        let mut scanner = Scanner::new(file, start, self.bytes);
        while let Some(header) = scanner.peek().map_err(|error| self.failed(&error))? {
            let header = header.map_err(|bad| self.bad(bad))?;
            if !wanted(&header) {
                scanner.skip(&header);
                continue;
            }
            let position = scanner.position();
            let batch = scanner.take(&header).map_err(|error| self.failed(&error))?;
            let batch = batch.map_err(|bad| self.bad(bad))?;
            let opened = batch.open(self.log.topic, self.log.partition);
            for record in opened.records_from(from) {
                let answer = record.and_then(|record| visit(&opened, &record));
                if let Some(answer) = answer.map_err(|error| self.bad(Bad { position, error }))? {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    /// Where to start looking for an offset: the index says so and the log agrees, or the front.
    pub(super) fn start(&self, file: &dyn DiskFile, offset: u64) -> u64 {
        let Ok(relative) = u32::try_from(offset.saturating_sub(self.base)) else {
            return 0;
        };
        let entry = self.hint.filter(|hint| hint.relative <= relative).or_else(|| {
            let index = self.open(Kind::Index).ok()?;
            let bytes = self.offset_bytes.min(index.len().ok()?);
            index::find_offset(&*index, bytes, relative).ok()?
        });
        entry.filter(|entry| self.agrees(file, entry)).map_or(0, |entry| u64::from(entry.position))
    }

    /// Whether the batch that an entry points at is the one it was made for.
    fn agrees(&self, file: &dyn DiskFile, entry: &OffsetEntry) -> bool {
        let mut scanner = Scanner::new(file, u64::from(entry.position), self.bytes);
        let last = self.base + u64::from(entry.relative);
        matches!(scanner.peek(), Ok(Some(Ok(header))) if header.last_offset == last)
    }

    /// Where to start looking for records of `time` or later.
    pub(super) fn start_at_time(&self, file: &dyn DiskFile, time: Timestamp) -> u64 {
        if let Some(hint) = self.hint {
            return if self.agrees(file, &hint) { u64::from(hint.position) } else { 0 };
        }
        let entry = self.open(Kind::TimeIndex).ok().and_then(|index| {
            let bytes = self.time_bytes.min(index.len().ok()?);
            index::find_time(&*index, bytes, time).ok()?
        });
        let Some(entry) = entry else { return 0 };
        let last = self.base + u64::from(entry.relative);
        let start = self.start(file, last);
        // The batch of the entry must be there and be as old as the entry says; otherwise the
        // entry could lead past what is looked for.
        let mut scanner = Scanner::new(file, start, self.bytes);
        while let Ok(Some(Ok(header))) = scanner.peek() {
            if header.last_offset >= last {
                let sound = header.last_offset == last && header.timestamp == Some(entry.time);
                return if sound { start } else { 0 };
            }
            scanner.skip(&header);
        }
        0
    }

    /// The trailer of the `.ids` file, if that file is there and all of it is intact.
    fn intact_ids(&self) -> Option<Trailer> {
        if !self.sealed || self.ids.is_some() {
            return self.ids;
        }
        let found = self.open(Kind::Ids).and_then(|file| {
            let trailer = ids::trailer(&*file)?.filter(|trailer| trailer.end == self.whole_end);
            match trailer {
                Some(trailer) if ids::intact(&*file, &trailer)? => Ok(Some(trailer)),
                _ => Ok(None),
            }
        });
        let found = found.unwrap_or_default();
        if found.is_none() {
            let path = self.path(Kind::Ids);
            tracing::warn!(file = %path.display(), "unusable ids file; it will be made again");
        }
        self.log.note_ids(self.base, found);
        found
    }
}

/// Whether one of our batches was appended at that time or later.
fn fired_since(header: &BatchHeader, time: Timestamp) -> bool {
    header.fired && header.timestamp >= Some(time)
}

fn has_id(record: &Record<'_>, text: &[u8; ID_CHARS]) -> bool {
    record.id_text().is_some_and(|found| found == text)
}
