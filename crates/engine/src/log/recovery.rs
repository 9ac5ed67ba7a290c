//! Opening the log of a partition after any end of the process.
//!
//! What a checkpoint vouches for was synced and is trusted: if it is not there, that is damage.
//! Behind it every batch is checked. Bytes there that were never synced may be missing in any
//! pattern after a loss of power, and cutting them off loses nothing, because whatever is not found
//! here is delivered again, or appended again from the journal, where it stood. So a tail that is cut short, or that holds places which were never
//! written, is cut. A batch that was written and then changed, with intact batches behind it, is
//! damage, and is never cut silently.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use punctual_model::ports::StoreError;
use punctual_model::{MessageId, Partition, TopicId};

use crate::disk::{Disk, DiskFile, Open, read_exact};

use super::batch::{BatchError, BatchHeader, HEADER_BYTES, checked_header};
use super::index::{self, OffsetEntry};
use super::producers::Producers;
use super::scan::{Bad, Scanner};
use super::segment::{
    self, Kind, SEGMENT_OFFSETS_MAX, Segment, damage, read_error, remove_file, write_error,
};
use super::{LogEnd, LogOptions, ids};

/// The smallest unit that a disk writes whole.
const SECTOR_BYTES: usize = 512;
/// Looking for intact batches behind a bad one checks at most this many times the bytes there, so
/// that hostile bodies full of look-alikes can not hold up a start.
const SEARCH_FACTOR: usize = 16;

/// Opens one partition.
#[derive(Debug)]
pub(super) struct Recovery<'a> {
    /// Where the files are.
    pub(super) disk: &'a dyn Disk,
    /// How they are written.
    pub(super) options: &'a LogOptions,
    /// The directory of the partition.
    pub(super) dir: &'a Path,
    /// The partition.
    pub(super) place: (TopicId, Partition),
    /// What the checkpoint says.
    pub(super) saved: Option<LogEnd>,
    /// Batches of producers from this offset on have not come into the journal.
    pub(super) known: u64,
    /// Receives id and offset of every record of ours that the checkpoint does not know.
    pub(super) delivered: &'a mut Vec<(MessageId, u64)>,
    /// Learns of every batch of a producer that the checkpoint does not know.
    pub(super) producers: &'a mut Producers,
}

impl Recovery<'_> {
    /// The segments of the partition, oldest first; the last one is active.
    pub(super) fn run(mut self) -> Result<Vec<Segment>, StoreError> {
        let names = self.disk.list(self.dir).map_err(|error| read_error(self.dir, &error))?;
        let files: BTreeSet<(u64, Kind)> =
            names.iter().filter_map(|name| segment::parse_name(name)).collect();
        let bases: Vec<u64> =
            files.iter().filter(|(_, kind)| *kind == Kind::Log).map(|(base, _)| *base).collect();
        for (base, kind) in &files {
            if bases.binary_search(base).is_err() {
                remove_file(self.disk, &segment::path(self.dir, *base, *kind))?;
            }
        }
        self.check_saved(&bases)?;
        let mut segments: Vec<Segment> = Vec::new();
        for (slot, &base) in bases.iter().enumerate() {
            let end = segments.last().map_or_else(|| self.first(base), |before| before.end);
            if self.is_new(base) && end < base {
                self.drop_from(bases.get(slot..).unwrap_or_default())?;
                break;
            }
            if end != base {
                let log = segment::path(self.dir, base, Kind::Log);
                return Err(damage(
                    &log,
                    0,
                    format_args!("the segment before it ends at offset {end}"),
                ));
            }
            let next = bases.get(slot + 1).copied();
            let opened = match next {
                Some(next) if self.saved.is_some_and(|saved| base < saved.segment) => {
                    let indexed = [Kind::Index, Kind::TimeIndex]
                        .into_iter()
                        .all(|kind| files.contains(&(base, kind)));
                    self.open_trusted(base, next, indexed)?
                }
                _ => self.open_checked(base, next.is_some())?,
            };
            segments.push(opened);
        }
        Ok(segments)
    }

    /// Where the log has to begin, if its oldest file begins at `base`. Retention takes nothing that
    /// no checkpoint knows, so without one the front is there, or its name was lost with the power.
    fn first(&self, base: u64) -> u64 {
        self.saved.map_or(0, |_| base)
    }

    /// Whether no byte of that segment is known to the checkpoint.
    fn is_new(&self, base: u64) -> bool {
        self.saved.is_none_or(|saved| base > saved.segment)
    }

    /// Retention removes the oldest segments, so the saved one is there or all older ones are gone.
    fn check_saved(&self, bases: &[u64]) -> Result<(), StoreError> {
        let Some(saved) = self.saved else {
            return Ok(());
        };
        let log = segment::path(self.dir, saved.segment, Kind::Log);
        match bases.first() {
            None => Err(damage(&log, 0, "the checkpoint knows this file, and it is gone")),
            Some(&first)
                if first <= saved.segment && bases.binary_search(&saved.segment).is_err() =>
            {
                Err(damage(&log, 0, "the checkpoint knows this file, and it is gone"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Removes segments that lie behind a place which was lost with the power.
    fn drop_from(&self, bases: &[u64]) -> Result<(), StoreError> {
        // The last one first: a crash half way leaves the same gap to be found again.
        for &base in bases.iter().rev() {
            let log = segment::path(self.dir, base, Kind::Log);
            tracing::warn!(file = %log.display(), "segment behind a lost one removed; what was in it comes again");
            segment::remove_files(self.disk, self.dir, base)?;
        }
        self.disk.sync_dir(self.dir).map_err(|error| write_error(self.dir, &error))
    }

    /// Opens a segment that the checkpoint vouches for and that no longer grows.
    fn open_trusted(&self, base: u64, end: u64, indexed: bool) -> Result<Segment, StoreError> {
        let log = segment::path(self.dir, base, Kind::Log);
        let failed = |error: io::Error| read_error(&log, &error);
        let file = self.disk.open(&log, Open::Existing).map_err(failed)?;
        let mut segment = Segment::new(base);
        let bytes = file.len().map_err(failed)?;
        let trailer = match self
            .disk
            .open(&segment::path(self.dir, base, Kind::Ids), Open::Existing)
        {
            Ok(ids) => ids::trailer(&*ids).map_err(failed)?.filter(|trailer| trailer.end == end),
            Err(_) => None,
        };
        if let Some(trailer) = trailer.filter(|trailer| trailer.bytes != bytes) {
            return Err(damage(&log, bytes, format_args!("it had {} bytes", trailer.bytes)));
        }
        if let Some(trailer) = trailer.filter(|_| indexed) {
            segment.times = Some((trailer.first, trailer.last));
            (segment.end, segment.bytes, segment.sealed) = (end, bytes, true);
        } else {
            self.read_headers(&*file, &mut segment, bytes, indexed)?;
            segment.index.close();
            segment.sealed = trailer.is_some();
        }
        if indexed {
            // Their length is looked at when they are used.
            segment.index = index::IndexTail::complete();
        }
        Ok(segment)
    }

    /// Opens a segment of which at most a front part is known to the checkpoint.
    fn open_checked(&mut self, base: u64, more_follow: bool) -> Result<Segment, StoreError> {
        let log = segment::path(self.dir, base, Kind::Log);
        let file =
            self.disk.open(&log, Open::Existing).map_err(|error| read_error(&log, &error))?;
        let bytes = file.len().map_err(|error| read_error(&log, &error))?;
        remove_file(self.disk, &segment::path(self.dir, base, Kind::Ids))?;
        let mut segment = Segment::new(base);
        match self.saved.filter(|saved| saved.segment == base) {
            Some(saved) if bytes < saved.bytes => {
                let what = format_args!("the checkpoint knows {} bytes", saved.bytes);
                return Err(damage(&log, bytes, what));
            }
            Some(saved) => {
                self.resume(&*file, &mut segment, saved.bytes)?;
                // Resuming does not look at all batches, and times may be in any order.
                segment.note_time(saved.largest);
                if segment.end != saved.offset {
                    let what = format_args!(
                        "offset {} where the checkpoint has {}",
                        segment.end, saved.offset
                    );
                    return Err(damage(&log, saved.bytes, what));
                }
            }
            None => {}
        }
        let known = segment.bytes;
        if let Some(end) = self.check(&*file, &mut segment, bytes)? {
            let (from, why) = match end {
                End::Bad(bad) => {
                    self.judge(&*file, bad, &segment, Tail { bytes, more_follow })?;
                    (bad.position, "torn")
                }
                End::Unknown(position) => (position, "nobody was told of it"),
            };
            tracing::warn!(file = %log.display(), from, until = bytes, why, "tail cut");
            file.set_len(from).map_err(|error| write_error(&log, &error))?;
            file.sync().map_err(|error| write_error(&log, &error))?;
        }
        self.trim_index(&segment)?;
        if more_follow {
            segment.index.close();
        }
        segment.unsynced = segment.bytes > known;
        segment.file = Some(Arc::clone(&file)).filter(|_| segment.unsynced);
        Ok(segment)
    }

    /// Checks the batches behind what the segment holds already, and takes them in.
    fn check(
        &mut self,
        file: &dyn DiskFile,
        segment: &mut Segment,
        bytes: u64,
    ) -> Result<Option<End>, StoreError> {
        let log = segment::path(self.dir, segment.base, Kind::Log);
        let failed = |error: io::Error| read_error(&log, &error);
        let mut scanner = Scanner::new(file, segment.bytes, bytes);
        while let Some(header) = scanner.peek().map_err(failed)? {
            let position = scanner.position();
            let header = match header {
                Ok(header) if header.follows(segment.end) => header,
                Ok(_) => {
                    return Ok(Some(End::Bad(Bad { position, error: BatchError::Header })));
                }
                Err(bad) => return Ok(Some(End::Bad(bad))),
            };
            let batch = match scanner.take(&header).map_err(failed)? {
                Ok(batch) => batch,
                Err(bad) => return Ok(Some(End::Bad(bad))),
            };
            if !header.fired && header.base_offset >= self.known {
                return Ok(Some(End::Unknown(position)));
            }
            if header.fired {
                let (topic, partition) = self.place;
                let opened = batch.open(topic, partition);
                for record in opened.records() {
                    let found = record.and_then(|record| Ok((opened.id(&record)?, record.offset)));
                    self.delivered.push(found.map_err(|error| damage(&log, position, error))?);
                }
            } else {
                self.producers.note(self.place, &header, None);
            }
            segment.note(&header, self.options.index_interval_bytes);
        }
        Ok(None)
    }

    /// Takes in the part of the segment that the checkpoint vouches for.
    fn resume(
        &self,
        file: &dyn DiskFile,
        segment: &mut Segment,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (offsets, times) = self.read_indexes(segment.base, bytes).unwrap_or_default();
        let log = segment::path(self.dir, segment.base, Kind::Log);
        let failed = |error: io::Error| read_error(&log, &error);
        let Some(last) = offsets.last() else {
            return self.read_headers(file, segment, bytes, false);
        };
        let first = Scanner::new(file, 0, bytes).peek().map_err(failed)?;
        let mut scanner = Scanner::new(file, u64::from(last.position), bytes);
        let entered = scanner.peek().map_err(failed)?;
        let (Some(Ok(first)), Some(Ok(entered))) = (first, entered) else {
            return self.read_headers(file, segment, bytes, false);
        };
        let until = entered.last_offset - segment.base.min(entered.last_offset);
        if until != u64::from(last.relative) {
            return self.read_headers(file, segment, bytes, false);
        }
        let sound = index::sane_times(&times, until + 1);
        segment.index.resume(&offsets, times.get(..sound).unwrap_or_default(), bytes);
        segment.note_time(first.timestamp);
        segment.born = first.timestamp.filter(|_| first.fired);
        (segment.bytes, segment.end) = (u64::from(last.position), entered.base_offset);
        while let Some(header) = scanner.peek().map_err(failed)? {
            let header = header.map_err(|bad| damage(&log, bad.position, bad.error))?;
            segment.index.note_largest(segment.base, &header);
            segment.note_known(&header);
            scanner.skip(&header);
        }
        Ok(())
    }

    /// Goes through all batches by their headers alone, making index entries unless there are some.
    fn read_headers(
        &self,
        file: &dyn DiskFile,
        segment: &mut Segment,
        bytes: u64,
        indexed: bool,
    ) -> Result<(), StoreError> {
        let log = segment::path(self.dir, segment.base, Kind::Log);
        let mut scanner = Scanner::new(file, 0, bytes);
        while let Some(header) = scanner.peek().map_err(|error| read_error(&log, &error))? {
            let header = header.map_err(|bad| damage(&log, bad.position, bad.error))?;
            if !header.follows(segment.end) {
                return Err(damage(&log, scanner.position(), BatchError::Header));
            }
            if indexed {
                segment.note_known(&header);
            } else {
                segment.note(&header, self.options.index_interval_bytes);
            }
            scanner.skip(&header);
        }
        Ok(())
    }

    /// The entries of the index files that can belong to the first `bytes` of the log.
    fn read_indexes(&self, base: u64, bytes: u64) -> io::Result<Indexes> {
        let open = |kind| self.disk.open(&segment::path(self.dir, base, kind), Open::Existing);
        let (offsets, times) = (open(Kind::Index)?, open(Kind::TimeIndex)?);
        let mut entries = index::read_offsets(&*offsets, offsets.len()?)?;
        entries.truncate(index::sane_offsets(&entries, bytes));
        Ok((entries, index::read_times(&*times, times.len()?)?))
    }

    /// Cuts the index files to what is valid, so that nothing stale follows.
    fn trim_index(&self, segment: &Segment) -> Result<(), StoreError> {
        let valid = [
            (Kind::Index, segment.index.offset_bytes),
            (Kind::TimeIndex, segment.index.time_bytes),
        ];
        for (kind, bytes) in valid {
            let path = segment::path(self.dir, segment.base, kind);
            let Ok(file) = self.disk.open(&path, Open::Existing) else {
                continue;
            };
            let trimmed = file
                .len()
                .and_then(|length| if length > bytes { file.set_len(bytes) } else { Ok(()) });
            trimmed.map_err(|error| write_error(&path, &error))?;
        }
        Ok(())
    }

    /// Decides whether a bad batch is a torn tail, which is fine, or damage.
    fn judge(
        &self,
        file: &dyn DiskFile,
        bad: Bad,
        segment: &Segment,
        tail: Tail,
    ) -> Result<(), StoreError> {
        let log = segment::path(self.dir, segment.base, Kind::Log);
        let length = usize::try_from(tail.bytes - bad.position).unwrap_or(usize::MAX);
        let rest =
            read_exact(file, bad.position, length).map_err(|error| read_error(&log, &error))?;
        let intact = intact_behind(&rest, segment.end);
        let region = rest.get(..intact.unwrap_or(length)).unwrap_or(&rest);
        if was_never_written(region, bad.position) {
            return Ok(());
        }
        let changed = bad.error != BatchError::Torn;
        if intact.is_some() || (changed && tail.more_follow) {
            return Err(damage(
                &log,
                bad.position,
                format_args!("{}, and intact batches follow", bad.error),
            ));
        }
        Ok(())
    }
}

/// Why a log ends before its file does.
enum End {
    /// There is a batch that is not whole.
    Bad(Bad),
    /// There is a batch of a producer that never came into the journal: the process ended in between.
    /// Nothing from there on was ever seen, and the producer will send it again.
    Unknown(u64),
}

type Indexes = (Vec<OffsetEntry>, Vec<index::TimeEntry>);

/// What lies behind the last intact batch.
#[derive(Clone, Copy)]
struct Tail {
    bytes: u64,
    more_follow: bool,
}

/// Where behind a bad batch intact ones go on to the very end of `rest`, if they do.
fn intact_behind(rest: &[u8], expected: u64) -> Option<usize> {
    let mut budget = rest.len().saturating_mul(SEARCH_FACTOR);
    // A batch may take more offsets than it has bytes, so this only keeps out what is absurd.
    let highest = expected.saturating_add(SEGMENT_OFFSETS_MAX);
    (1..rest.len().saturating_sub(HEADER_BYTES)).find(|&from| {
        let base =
            rest.get(from..).and_then(|at| at.first_chunk()).map(|raw| u64::from_be_bytes(*raw));
        if !base.is_some_and(|base| base > expected && base <= highest) {
            return false;
        }
        reaches_end(rest.get(from..).unwrap_or_default(), &mut budget)
    })
}

fn reaches_end(mut rest: &[u8], budget: &mut usize) -> bool {
    let mut next = None;
    while !rest.is_empty() {
        let Ok(header) = BatchHeader::parse(rest) else {
            return false;
        };
        let length = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let Some(left) = budget.checked_sub(length) else {
            return false;
        };
        *budget = left;
        if next.is_some_and(|next| !header.follows(next)) || checked_header(rest).is_err() {
            return false;
        }
        next = Some(header.last_offset + 1);
        rest = rest.get(length..).unwrap_or_default();
    }
    true
}

/// Whether a bad batch has a place that was never written: its first fields, what it has of its
/// first sector, its end, or a whole sector. What was never written reads as zeros; every batch has a
/// length, and those of ours end in a digit.
fn was_never_written(region: &[u8], position: u64) -> bool {
    let zero = |part: Option<&[u8]>| part.is_some_and(|part| part.iter().all(|&byte| byte == 0));
    let first = zero(region.get(8..21)) || (region.len() <= 21 && zero(Some(region)));
    let end = zero(region.last_chunk::<4>().map(<[u8; 4]>::as_slice));
    let aligned = usize::try_from(position % SECTOR_BYTES as u64).unwrap_or(0);
    let lead = (SECTOR_BYTES - aligned) % SECTOR_BYTES;
    let sectors = region.get(lead..).unwrap_or_default().as_chunks::<SECTOR_BYTES>().0;
    // The rest of a sector may have come with a later write; shorter fronts are zeros anyway.
    let front = lead >= 8 && zero(region.get(..lead));
    first || front || end || sectors.iter().any(|sector| zero(Some(sector)))
}
