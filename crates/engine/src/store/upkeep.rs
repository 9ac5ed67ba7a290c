//! What has to be done besides: writing tables out, checkpoints, giving space back.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use punctual_model::ports::StoreError;
use punctual_model::{Lane, Span, Timestamp};
use roaring::RoaringTreemap;

use crate::checkpoint::{self, Checkpoint, SavedLane, SavedRun};
use crate::disk;
use crate::ids;
use crate::journal::Position;
use crate::lanes::PerLane;
use crate::log::LogEnd;
use crate::store::Store;
use crate::timeline::merge::{ShelfChange, merge_runs};
use crate::timeline::shelf::Shelved;
use crate::timeline::table::Bits;
use crate::timeline::{State, flush, run};

/// For how long a cancel is remembered at least; it is forgotten after twice that.
const CANCEL_MEMORY: Span = Span::from_days(1);
/// The consumed front of a run is given back in pieces of at least this.
const PUNCH_BYTES: u64 = 4 << 20;
/// Bytes appended to the logs between two checkpoints at most: what a restart has to check.
const LOG_BYTES_MAX: u64 = 128 << 20;
/// What is due within this is worth its place in the page cache.
const SOON: Span = Span::from_secs(600);
/// How many runs are merged at once.
const MERGE_RUNS: usize = 64;

/// What the last two checkpoints refer to.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) generation: u64,
    pub(crate) period_start: Timestamp,
    pub(crate) newest: Refs,
    pub(crate) older: Refs,
}

/// What one checkpoint refers to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refs {
    pub(crate) journal: Position,
    /// Lane and number of each run, and the first byte it needs of it.
    pub(crate) runs: Vec<(Lane, u64, u64)>,
    /// How far it has the logs.
    pub(crate) log_ends: Vec<LogEnd>,
    /// The files of the table of ids.
    pub(crate) ids: Vec<u64>,
}

/// What one round of upkeep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// A table was written out.
    pub flushed: bool,
    /// Runs were merged.
    pub merged: bool,
}

/// How far journal and logs have come: what the next restart has to read grows with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    journal: Position,
    log_bytes: u64,
}

impl Store {
    /// How far journal and logs have come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let journal = self.writer.lock().end();
        Progress { journal, log_bytes: self.logs.stats().bytes }
    }

    /// Whether journal and logs have grown so much since then that a restart would take long.
    #[must_use]
    pub fn is_far_from(&self, earlier: Progress) -> bool {
        let Progress { journal, log_bytes } = self.progress();
        log_bytes - earlier.log_bytes >= LOG_BYTES_MAX
            || journal.0 - earlier.journal.0 >= self.journal_bytes_max()
    }

    /// Writes out the frozen tables there are, merges the runs of a lane if there are too many, and
    /// if either was done, or `checkpoint` asks for it, writes a checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Full`] on a full disk: nothing is harmed and it can be tried again.
    /// [`StoreError::Poisoned`] otherwise.
    pub fn upkeep(&self, now: Timestamp, checkpoint: bool) -> Result<Upkeep, StoreError> {
        self.trust.check()?;
        let far_from = now.saturating_add(SOON);
        let mut flushed = false;
        let mut merged = false;
        for lane in Lane::ALL {
            flushed |= self.flush(lane, far_from)?;
        }
        for lane in Lane::ALL {
            merged |= self.merge(lane, far_from)?;
        }
        flushed |= self.upkeep_ids(now)?;
        if flushed || merged || checkpoint {
            self.checkpoint(now)?;
        }
        Ok(Upkeep { flushed, merged })
    }

    /// Housekeeping of logs and the reserve.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when the disk failed.
    pub fn maintain(&self, now: Timestamp) -> Result<(), StoreError> {
        self.trust.check()?;
        self.reserve.restore().map_err(|error| self.trust.lose("reserve", error))?;
        self.logs.forget_silent(now);
        let topics = self.topics();
        let floors = self.groups.lock().floors();
        let floor = |topic, partition| floors.of(topic, partition);
        match self.logs.maintain(&topics, now, floor) {
            Err(StoreError::Poisoned(why)) => Err(self.trust.lose("log", why)),
            // Sealing can wait until there is room; damage was reported where it was found.
            Err(StoreError::Full) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "log housekeeping failed");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sets the active tables aside, so that the next upkeep writes them out.
    pub fn freeze(&self) {
        let writer = self.writer.lock();
        for (_, track) in self.tracks.iter() {
            let mut state = track.state.lock();
            if state.frozen.is_none() && !state.active.table.is_empty() {
                self.freeze_table(&mut state, writer.end());
            }
        }
        self.freeze_ids();
    }

    fn flush(&self, lane: Lane, far_from: Timestamp) -> Result<bool, StoreError> {
        let track = self.tracks.of(lane);
        let Some((table, gone)) = track.state.lock().frozen() else { return Ok(false) };
        let number = self.take_run_number();
        let shape = (self.options.block_bytes, far_from);
        match flush::write(&*self.disk, number, &table, gone, shape) {
            Ok(written) => {
                let frozen = track.state.lock().install(written);
                self.frozen.fetch_sub(1, Ordering::Release);
                // Freeing a whole table takes a while; nobody waits for it.
                drop((table, frozen));
                Ok(true)
            }
            Err(error) => Err(self.give_up("run", &run::path(number), error)),
        }
    }

    pub(super) fn take_run_number(&self) -> u64 {
        self.next_run.fetch_add(1, Ordering::Relaxed)
    }

    fn merge(&self, lane: Lane, far_from: Timestamp) -> Result<bool, StoreError> {
        let track = self.tracks.of(lane);
        let sources: Vec<_> = {
            let mut state = track.state.lock();
            if state.runs.len() <= self.options.runs_max {
                return Ok(false);
            }
            let chosen = smallest(&state, MERGE_RUNS.min(self.options.runs_max));
            let begin = |number: &u64| state.runs.get_mut(number).map(Shelved::begin_merge);
            chosen.iter().filter_map(begin).collect()
        };
        let number = self.take_run_number();
        let shape = (self.options.block_bytes, far_from);
        let merged = merge_runs(&*self.disk, number, &sources, shape);
        let numbers: Vec<u64> = sources.iter().map(|(run, _, _)| run.number).collect();
        let merged = match merged {
            Ok(merged) => merged,
            Err(error) => {
                let mut state = track.state.lock();
                for number in &numbers {
                    if let Some(shelved) = state.runs.get_mut(number) {
                        shelved.abandon_merge();
                    }
                }
                drop(state);
                if error.kind() == io::ErrorKind::InvalidData {
                    tracing::error!(?numbers, "runs with damage are not merged");
                    self.remove_remains("run", &run::path(number))?;
                    return Ok(false);
                }
                return Err(self.give_up("run", &run::path(number), error));
            }
        };
        let mut state = track.state.lock();
        let taken: Vec<Shelved> = numbers.iter().filter_map(|&n| state.unshelve(n)).collect();
        state.changes.extend(numbers.iter().map(|&number| ShelfChange::Remove(number)));
        if let Some(merged) = merged {
            let merged = Arc::new(merged);
            let start = taken.iter().map(|source| source.read_from).min().unwrap_or_default();
            let mut shelved = Shelved::new(Arc::clone(&merged), start);
            shelved.adopt(taken);
            state.changes.push(ShelfChange::Add(merged, shelved.read_from));
            state.shelve(shelved);
        }
        Ok(true)
    }

    /// Removes the remains of a file that could not be written, and says what that means.
    pub(super) fn give_up(&self, what: &'static str, path: &Path, error: io::Error) -> StoreError {
        if !disk::is_full(&error) {
            return self.trust.lose(what, error);
        }
        if let Err(error) = self.remove_remains(what, path) {
            return error;
        }
        match self.reserve.spend() {
            Ok(_) => StoreError::Full,
            Err(error) => self.trust.lose("reserve", error),
        }
    }

    /// Removes a file, if it is there.
    pub(super) fn remove_remains(&self, what: &'static str, path: &Path) -> Result<(), StoreError> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.trust.lose(what, error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a checkpoint and gives back what neither it nor the one before refers to.
    ///
    /// # Errors
    /// As [`upkeep`](Self::upkeep).
    pub fn checkpoint(&self, now: Timestamp) -> Result<(), StoreError> {
        self.trust.check()?;
        // Whatever stands before this end has come into the state; what comes later is behind it.
        // No commit may be half done: what it ends and what it stores must be seen together.
        let writer = self.writer.lock();
        let (synced_through, end) = (writer.synced_through(), writer.end());
        let mut kept = self.checkpoints.lock();
        // Logs first: whatever the state calls delivered is then in the logs, and synced below;
        // whatever the logs got later, or got and has not settled, is found again by recovery.
        let (log_ends, before) = self.logs.prepare_checkpoint();
        let mut saved = self.snapshot(&mut kept, now, end);
        drop(writer);
        saved.log_ends = log_ends;
        saved.journal_end = synced_through;
        let (_, after) = self.logs.prepare_checkpoint();
        for file in before.iter().chain(&after) {
            file.sync().map_err(|error| self.trust.lose("log", error))?;
        }
        let refs = self.refs(&saved);
        let write = || {
            checkpoint::write(&*self.disk, &saved).map_err(|error| {
                if disk::is_full(&error) {
                    StoreError::Full
                } else {
                    self.trust.lose("checkpoint", error)
                }
            })
        };
        self.with_reserve(write)?;
        kept.generation = saved.generation;
        kept.older = std::mem::replace(&mut kept.newest, refs);
        self.logs.confirm_checkpoint(&kept.older.log_ends);
        self.give_back(&kept).map_err(|error| self.trust.lose("upkeep", error))
    }

    /// What a checkpoint says, without the logs. `end` is where the journal ended before: what the
    /// checkpoint lacks stands behind it, or belongs to a table.
    fn snapshot(&self, kept: &mut Kept, now: Timestamp, end: Position) -> Checkpoint {
        let catalogue = self.catalogue.read();
        let topics = catalogue.list().iter().map(|topic| (**topic).clone()).collect();
        let next_topic = catalogue.next();
        let levels = catalogue.levels.clone();
        drop(catalogue);
        let forget = now.since(kept.period_start) > CANCEL_MEMORY;
        if forget {
            kept.period_start = now;
        }
        let mut journal = end;
        let lanes = PerLane::new(|lane| {
            let mut state = self.tracks.of(lane).state.lock();
            if forget {
                state.forget_cancels();
            }
            journal = journal.min(state.journal_start().unwrap_or(end));
            save_lane(state)
        });
        let table = self.ids.read();
        journal = journal.min(table.journal_start().unwrap_or(end));
        let ids = table.files();
        drop(table);
        Checkpoint {
            generation: kept.generation + 1,
            journal,
            journal_end: Position::default(),
            next_run: self.next_run.load(Ordering::Relaxed),
            next_topic,
            period_start: kept.period_start,
            topics,
            log_ends: Vec::new(),
            groups: self.groups.lock().clone(),
            lanes,
            ids,
            levels,
            producers: self.logs.producers(),
        }
    }

    fn refs(&self, saved: &Checkpoint) -> Refs {
        let mut runs = Vec::new();
        for (lane, saved) in saved.lanes.iter() {
            let state = self.tracks.of(lane).state.lock();
            runs.extend(saved.runs.iter().filter_map(|saved| {
                let blocks = &state.runs.get(&saved.number)?.run.blocks;
                let after = blocks.partition_point(|block| block.first <= saved.watermark);
                Some((lane, saved.number, blocks.get(after.saturating_sub(1))?.offset))
            }));
        }
        let (log_ends, ids) = (saved.log_ends.clone(), saved.ids.clone());
        Refs { journal: saved.journal, runs, log_ends, ids }
    }

    fn give_back(&self, kept: &Kept) -> io::Result<()> {
        let mut runs: BTreeSet<u64> = BTreeSet::new();
        let mut id_files: BTreeSet<u64> = BTreeSet::new();
        for refs in [&kept.newest, &kept.older] {
            runs.extend(refs.runs.iter().map(|(_, number, _)| *number));
            id_files.extend(&refs.ids);
        }
        // Before what is there now is looked at: what is made later has a higher number.
        let next = self.next_run.load(Ordering::Relaxed);
        for (_, track) in self.tracks.iter() {
            runs.extend(track.state.lock().runs.keys());
        }
        id_files.extend(self.ids.read().files());
        self.remove_unused(run::DIR, run::number, |number| {
            number >= next || runs.contains(&number)
        })?;
        self.remove_unused(ids::DIR, ids::number, |number| {
            number >= next || id_files.contains(&number)
        })?;
        self.punch(kept)?;
        self.writer.lock().recycle(kept.older.journal.min(kept.newest.journal))
    }

    /// Removes the numbered files of a directory that nothing needs.
    fn remove_unused(
        &self,
        dir: &str,
        number_of: fn(&str) -> Option<u64>,
        is_needed: impl Fn(u64) -> bool,
    ) -> io::Result<()> {
        let dir = Path::new(dir);
        let mut removed = false;
        for name in self.disk.list(dir)? {
            if number_of(&name).is_some_and(|number| !is_needed(number)) {
                self.disk.remove(&dir.join(name))?;
                removed = true;
            }
        }
        if removed { self.disk.sync_dir(dir) } else { Ok(()) }
    }

    fn punch(&self, kept: &Kept) -> io::Result<()> {
        for &(lane, number, first_byte) in &kept.older.runs {
            let run = {
                let mut state = self.tracks.of(lane).state.lock();
                let Some(shelved) = state.runs.get_mut(&number) else { continue };
                if first_byte < shelved.punched + PUNCH_BYTES {
                    continue;
                }
                shelved.punched = first_byte;
                Arc::clone(&shelved.run)
            };
            match run.file.punch(run::HEADER_BYTES, first_byte - run::HEADER_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// What a checkpoint says of a lane. Spent runs leave the shelf first.
fn save_lane(mut state: MutexGuard<'_, State>) -> SavedLane {
    let spent: Vec<u64> =
        state.runs.iter().filter(|(_, s)| s.is_spent()).map(|(&number, _)| number).collect();
    for number in spent {
        state.unshelve(number);
        state.changes.push(ShelfChange::Remove(number));
    }
    let tables = [state.frozen.as_ref(), Some(&state.active)].into_iter().flatten();
    let gone: Vec<(u64, Bits)> =
        tables.map(|tabled| (tabled.table.first(), tabled.gone.clone())).collect();
    let mut saved = SavedLane {
        first: state.tables_start(),
        next: state.next,
        ended: RoaringTreemap::new(),
        cancelled: state.cancelled.clone(),
        runs: state.runs.iter().map(|(&number, shelved)| save(number, shelved)).collect(),
    };
    drop(state);
    for (first, gone) in gone {
        saved.ended.extend(gone.added_since(&Bits::default()).map(|i| first + i as u64));
    }
    saved
}

fn save(number: u64, shelved: &Shelved) -> SavedRun {
    SavedRun {
        number,
        watermark: shelved.watermark(),
        ended: shelved.ended_above_watermark(),
        counts: shelved.counts.clone(),
    }
}

fn smallest(state: &State, count: usize) -> Vec<u64> {
    let healthy = state.runs.iter().filter(|(_, shelved)| shelved.damaged_from.is_none());
    let mut runs: Vec<(u64, u64)> = healthy.map(|(&n, s)| (s.run.entries, n)).collect();
    runs.sort_unstable();
    runs.into_iter().take(count).map(|(_, number)| number).collect()
}
