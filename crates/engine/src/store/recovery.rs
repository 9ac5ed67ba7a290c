//! From what is on disk to an open store.
//!
//! The work depends on what happened since the last checkpoint, never on how much is pending: the
//! checkpoint, the footers of the runs, the journal behind the checkpoint, the tails of the logs.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use punctual_model::catalogue::Catalogue;
use punctual_model::group::{GroupChange, Mark};
use punctual_model::ports::{LogPosition, StoreError};
use punctual_model::{Lane, MessageId, Partition, Sequence, Source, TopicId};

use crate::checkpoint::{self, Checkpoint, SavedLane};
use crate::disk::Disk;
use crate::groups::Groups;
use crate::groups::progress::Stray;
use crate::ids::{self, IdOptions, Ids, Name, Value};
use crate::journal::Position;
use crate::journal::change::{Change, Slot};
use crate::journal::reader::{self, Tail};
use crate::journal::writer::{Start, Writer};
use crate::lanes::PerLane;
use crate::log::{LogEnd, Logs};
use crate::options::Options;
use crate::record;
use crate::reserve::Reserve;
use crate::store::Store;
use crate::store::append::Journaled;
use crate::store::format::{self, FORMAT_VERSION, Format};
use crate::store::track::Track;
use crate::store::upkeep::{Kept, Refs};
use crate::timeline::merge::ShelfChange;
use crate::timeline::run::{self, Run};
use crate::timeline::shelf::Shelved;
use crate::timeline::{State, Tabled};
use crate::trust::Trust;

/// Locked while a process has the store open.
pub(super) const LOCK_PATH: &str = "LOCK";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the data directory is in use by another process")]
    InUse,
    /// It was written by a later version of this program.
    #[error("the data directory has format {0}; this program reads format {FORMAT_VERSION}")]
    NewerFormat(u32),
    /// There is something in it, but not a store.
    #[error("the directory is not empty and holds no store: {0}")]
    NotAStore(String),
    /// Something in it is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk does not work.
    #[error("{0}: {1}")]
    Disk(&'static str, #[source] io::Error),
}

impl Store {
    /// Opens the store on `disk`, making it where there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let lock = disk.lock(Path::new(LOCK_PATH)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse,
            _ => OpenError::Disk(LOCK_PATH, error),
        })?;
        let Format { salt, journal_file_bytes, .. } =
            format::open(&*disk, options.journal_file_bytes)?;
        // Positions count in files of this size, so that of the first start stays.
        let options = Options { journal_file_bytes, ..options };
        // A process that was killed may have left names that are visible and not certain. What is
        // removed below must not be needed again by what a loss of power would bring back.
        disk.sync_dir(Path::new("")).map_err(|error| OpenError::Disk("directory", error))?;
        let saved = checkpoint::read(&*disk)?.unwrap_or_default();
        let mut rebuilt = Rebuilt::new(&*disk, &saved)?;
        let shape = (salt, options.journal_file_bytes);
        let apply = |position, change| {
            // The checkpoint has it already, and its offsets may be of a log that was cut since.
            if position < saved.journal_end && matches!(change, Change::Progress(_)) {
                return Ok(());
            }
            rebuilt.position = position;
            rebuilt.apply(change)
        };
        let tail = reader::replay(&*disk, shape, saved.journal, apply)?;
        if tail.end < saved.journal_end {
            return Err(reader::damage(tail.end).into());
        }
        if tail.torn {
            tracing::warn!(end = tail.end.0, "cut an unfinished group off the journal");
        }
        rebuilt.finish(&saved);
        let logs = Logs::new(Arc::clone(&disk), options.log);
        logs.begin(saved.producers.clone(), rebuilt.journaled.last.clone());
        rebuilt.match_logs(&logs, &saved.log_ends)?;
        rebuilt.journaled.restore(&*disk, shape, &logs)?;
        remove_orphans(&*disk, &rebuilt).map_err(|error| OpenError::Disk("clean-up", error))?;
        let writer = start_writer(&disk, shape, &options, &saved, tail)?;
        let reserve = Reserve::open(Arc::clone(&disk), options.reserve_bytes)
            .map_err(|error| OpenError::Disk("reserve", error))?;
        let runs_of = |(lane, saved): (Lane, &SavedLane)| {
            saved.runs.iter().map(|run| (lane, run.number, 0)).collect::<Vec<_>>()
        };
        let refs = Refs {
            journal: saved.journal,
            runs: saved.lanes.iter().flat_map(runs_of).collect(),
            log_ends: saved.log_ends,
            ids: saved.ids,
        };
        let kept = Kept {
            generation: saved.generation,
            period_start: saved.period_start,
            newest: refs.clone(),
            older: refs,
        };
        let tracks = rebuilt.states.map(|lane, state| Track::new(lane, &options, state));
        Ok(Self {
            tracks,
            next_run: AtomicU64::new(rebuilt.next_run),
            frozen: AtomicUsize::new(0),
            options,
            trust: Trust::default(),
            logs,
            disk,
            writer: Mutex::new(writer),
            checkpoints: Mutex::new(kept),
            catalogue: RwLock::new(rebuilt.catalogue),
            groups: Mutex::new(rebuilt.groups),
            ids: RwLock::new(rebuilt.ids),
            changing: Mutex::default(),
            opened: OnceLock::new(),
            reserve,
            listener: RwLock::new(None),
            damaged_blocks: AtomicU64::new(0),
            _lock: lock,
        })
    }
}

/// What is pending and the topics, as they come back.
struct Rebuilt {
    states: PerLane<State>,
    /// What the checkpoint's runs hold, or what had ended by then, ends before these.
    firsts: PerLane<Sequence>,
    next_run: u64,
    catalogue: Catalogue,
    groups: Groups,
    ids: Ids,
    /// Where the change stands that is being applied.
    position: Position,
    /// What the journal says of messages whose place the checkpoint does not vouch for.
    unproven: HashMap<Source, Vec<(Mark, Stray)>>,
    /// How far the checkpoint vouches for each log.
    proven: HashMap<(TopicId, Partition), u64>,
    /// Batches of producers that the journal has.
    journaled: Journaled,
    /// Where the journal says that logs start.
    trims: Vec<LogPosition>,
}

impl Rebuilt {
    fn new(disk: &dyn Disk, saved: &Checkpoint) -> Result<Self, OpenError> {
        let levels = saved.levels.clone();
        let catalogue = Catalogue::new(saved.topics.clone(), saved.next_topic, levels);
        let states = PerLane::try_new(|lane| rebuild(disk, saved, lane))?;
        let runs = saved.lanes.iter().flat_map(|(_, saved)| &saved.runs).map(|run| run.number);
        let files = runs.chain(saved.ids.iter().copied());
        let next_run = files.map(|number| number + 1).max().unwrap_or(1).max(saved.next_run);
        let firsts = PerLane::new(|lane| saved.lanes.of(lane).first);
        let proven = saved.log_ends.iter().map(|end| ((end.topic, end.partition), end.offset));
        Ok(Self {
            states,
            firsts,
            next_run,
            catalogue,
            groups: saved.groups.clone(),
            ids: Ids::open(disk, &saved.ids, IdOptions::default())?,
            position: saved.journal,
            unproven: HashMap::new(),
            proven: proven.collect(),
            journaled: Journaled::default(),
            trims: Vec::new(),
        })
    }

    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Schedule { first, bytes, slots } => {
                self.learn(first, &bytes, &slots)?;
                // The journal is read from where one of the lanes needs it; the other may need
                // less of it.
                if first < *self.firsts.of(first.lane()) {
                    return Ok(());
                }
                let state = self.states.of_mut(first.lane());
                if state.active.table.is_empty() {
                    let start = state.active.table.journal_start;
                    state.active = Tabled::new(first, start);
                    state.next = first;
                }
                state.skip_to(first)?;
                state.admit(bytes, &slots);
            }
            Change::Supersede(entries) => {
                for (key, topic) in entries {
                    self.states.of_mut(key.sequence.lane()).withdraw(key, topic);
                }
            }
            Change::PutLevels(levels) => self.catalogue.levels = levels,
            Change::Cancel(messages) => {
                for (key, topic) in messages {
                    self.states.of_mut(key.sequence.lane()).cancel(key, topic);
                }
            }
            Change::PutTopic(topic) => {
                for (_, state) in self.states.iter_mut() {
                    state.topics.insert(topic.id);
                }
                self.catalogue.put(*topic);
            }
            Change::DeleteTopic(topic) => {
                self.catalogue.delete(topic);
                for (_, state) in self.states.iter_mut() {
                    state.drop_topic(topic);
                }
            }
            Change::PutGroup(group, starts) => {
                self.groups.put(group, &starts);
            }
            Change::DeleteGroup(group) => {
                self.groups.delete(group);
                self.unproven.retain(|source, _| source.group != group);
            }
            Change::Progress(change) => self.progress(change),
            Change::Append(place, batch) => self.journaled.note(self.position, place, &batch)?,
            Change::Names((topic, partition), names) => {
                self.ids.begin_at(self.position);
                for (offset, id) in names {
                    let name = Name::reserved(topic, partition, offset);
                    self.ids.put(name, Value::new(id, 0));
                }
            }
            Change::Trim(before) => self.trims.push(before),
        }
        Ok(())
    }

    /// Notes own ids, and where changed messages stand.
    fn learn(&mut self, first: Sequence, bytes: &Bytes, slots: &[Slot]) -> Result<(), StoreError> {
        for (sequence, slot) in (first.get()..).filter_map(Sequence::new).zip(slots) {
            let start = slot.offset as usize;
            let content = bytes.get(start..start + slot.length as usize).unwrap_or_default();
            let Some(extra) = record::peek_extra(content).map_err(StoreError::damaged)? else {
                continue;
            };
            let id =
                MessageId { key: slot.key(sequence), topic: slot.topic, partition: slot.partition };
            self.ids.begin_at(self.position);
            if let Some(changed) = extra.changed {
                self.ids.put(Name::moved(changed.first.sequence), Value::new(id, 0));
            } else if let Some(own_id) = extra.own_id {
                let name = Name::own(slot.topic, &own_id.text);
                self.ids.put(name, Value::new(id, own_id.print));
            }
        }
        Ok(())
    }

    /// Applies what is certain of a change. Whatever speaks of the tail of a log has to wait until
    /// that is known: a loss of power may have taken it, and what stands there now may be another
    /// message.
    fn progress(&mut self, change: GroupChange) {
        match change {
            GroupChange::Settle(source, marks) => {
                let (certain, open) = self.divide(source, marks);
                self.groups.apply(GroupChange::Settle(source, certain));
                let open = open.into_iter().map(|mark| (mark, Stray::Settled));
                self.unproven.entry(source).or_default().extend(open);
            }
            GroupChange::Note(source, mark, note) => {
                if self.is_proven(source, mark) {
                    self.groups.apply(GroupChange::Note(source, mark, note));
                } else {
                    self.unproven.entry(source).or_default().push((mark, Stray::Noted(note)));
                }
            }
            GroupChange::Seek(source, ..)
            | GroupChange::Commit(source, ..)
            | GroupChange::Forget(source) => {
                self.unproven.remove(&source);
                self.groups.apply(change);
            }
        }
    }

    fn is_proven(&self, source: Source, mark: Mark) -> bool {
        // What a producer appended stands where it stood, or comes back there from the journal.
        if mark.sequence.offset() == Some(mark.offset) {
            return true;
        }
        let proven = self.proven.get(&(source.topic, source.partition));
        proven.is_some_and(|proven| mark.offset < *proven)
    }

    fn divide(&self, source: Source, marks: Vec<Mark>) -> (Vec<Mark>, Vec<Mark>) {
        marks.into_iter().partition(|mark| self.is_proven(source, *mark))
    }

    /// Finds the messages of which the journal speaks in the tails of the logs. Those that are not
    /// there will be appended again.
    fn place_marks(&mut self, delivered: &[(MessageId, u64)]) {
        if self.unproven.is_empty() {
            return;
        }
        let places: HashMap<(TopicId, Partition, Sequence), u64> = delivered
            .iter()
            .map(|(id, offset)| ((id.topic, id.partition, id.key.sequence), *offset))
            .collect();
        for (source, marks) in std::mem::take(&mut self.unproven) {
            for (mark, stray) in marks {
                let place = places.get(&(source.topic, source.partition, mark.sequence));
                match (place, stray) {
                    (None, stray) => self.groups.lose(source, mark.sequence, stray),
                    (Some(&offset), Stray::Settled) => {
                        let mark = Mark { offset, ..mark };
                        self.groups.apply(GroupChange::Settle(source, vec![mark]));
                    }
                    (Some(&offset), Stray::Noted(note)) => {
                        let mark = Mark { offset, ..mark };
                        self.groups.apply(GroupChange::Note(source, mark, note));
                    }
                }
            }
        }
    }

    /// Applies what the checkpoint knows about entries that the journal brought back.
    fn finish(&mut self, saved: &Checkpoint) {
        for (lane, state) in self.states.iter_mut() {
            let saved = saved.lanes.of(lane);
            for number in &saved.ended {
                if let Some(sequence) = Sequence::new(number)
                    && let Some(index) = state.active.table.index(sequence)
                    && let Some(slot) = state.active.table.slot(index)
                {
                    let (key, topic) = (slot.key(sequence), slot.topic);
                    state.end_unread(key, topic);
                }
            }
            let is_known = |topic: TopicId| {
                topic == TopicId::TRANSACTIONS || self.catalogue.by_id(topic).is_some()
            };
            state.counts.retain(|topic, _| is_known(*topic));
            if state.active.table.is_empty() {
                let start = state.active.table.journal_start;
                state.next = state.next.max(saved.next);
                state.active = Tabled::new(state.next, start);
            } else if let Err(error) = state.skip_to(saved.next.max(state.next)) {
                tracing::error!(%error, "sequences of the checkpoint are not those of the journal");
            }
        }
    }

    /// Opens the logs, and ends what they already have.
    fn match_logs(&mut self, logs: &Logs, ends: &[LogEnd]) -> Result<(), StoreError> {
        let mut delivered: Vec<(MessageId, u64)> = Vec::new();
        for topic in self.catalogue.list() {
            logs.open(topic.id, topic.settings.partitions, ends, &mut delivered)?;
        }
        for before in std::mem::take(&mut self.trims) {
            logs.trim(before);
        }
        self.place_marks(&delivered);
        let mut highest: PerLane<Option<Sequence>> = PerLane::default();
        for (id, _) in delivered {
            let lane = id.key.sequence.lane();
            let state = self.states.of_mut(lane);
            let ended = state.end_unread(id.key, id.topic);
            if !ended
                && self.ids.entries() > 0
                && let Some(moved) = self.ids.get(Name::moved(id.key.sequence))?
            {
                state.end_unread(moved.key, id.topic);
            }
            let highest = highest.of_mut(lane);
            *highest = Some(id.key.sequence).max(*highest);
        }
        // Where nobody waited for the disk, a log may know messages that the journal lost. Their
        // numbers must not be given again, or the log would end the new messages at the next start.
        for (lane, state) in self.states.iter_mut() {
            let after = highest.of(lane).and_then(|highest| Sequence::new(highest.get() + 1));
            if let Some(after) = after.filter(|after| *after > state.next) {
                state.skip_to(after)?;
            }
        }
        Ok(())
    }
}

/// A lane as the checkpoint has it.
fn rebuild(disk: &dyn Disk, saved: &Checkpoint, lane: Lane) -> Result<State, StoreError> {
    let SavedLane { next, cancelled, runs, .. } = saved.lanes.of(lane);
    let mut state = State::new(*next, saved.journal);
    state.topics = saved.topics.iter().map(|topic| topic.id).collect();
    state.topics.insert(TopicId::TRANSACTIONS);
    state.cancelled = cancelled.clone();
    for known in runs {
        let run = Arc::new(Run::open(disk, known.number)?);
        let mut shelved = Shelved::new(Arc::clone(&run), known.watermark);
        shelved.floor = known.watermark;
        shelved.gone = known.ended.clone();
        shelved.counts.clone_from(&known.counts);
        for (&topic, &count) in &known.counts {
            *state.counts.entry(topic).or_default() += count;
        }
        state.shelve(shelved);
        state.changes.push(ShelfChange::Add(run, known.watermark));
    }
    Ok(state)
}

fn start_writer(
    disk: &Arc<dyn Disk>,
    shape: (u32, u64),
    options: &Options,
    saved: &Checkpoint,
    tail: Tail,
) -> Result<Writer, OpenError> {
    let used = tail.files.last().map_or(0, |last| last + 1);
    let start = Start {
        number: used.max(saved.journal.0 / options.journal_file_bytes),
        previous_end: tail.end,
        files: tail.files,
    };
    Writer::start(Arc::clone(disk), shape, options.durability, start)
        .map_err(|error| OpenError::Disk("journal", error))
}

/// Removes what a crash left behind and nothing refers to.
fn remove_orphans(disk: &dyn Disk, rebuilt: &Rebuilt) -> io::Result<()> {
    for name in disk.list(Path::new(run::DIR))? {
        let known =
            |number: &u64| rebuilt.states.iter().any(|(_, state)| state.runs.contains_key(number));
        if let Some(number) = run::number(&name).filter(|number| !known(number)) {
            disk.remove(&run::path(number))?;
        }
    }
    let ids = rebuilt.ids.files();
    for name in disk.list(Path::new(ids::DIR))? {
        if let Some(number) = ids::number(&name).filter(|number| !ids.contains(number)) {
            disk.remove(&ids::path(number))?;
        }
    }
    let known: BTreeSet<String> =
        rebuilt.catalogue.list().iter().map(|topic| topic.id.get().to_string()).collect();
    for name in disk.list(Path::new("topics"))? {
        if !known.contains(&name) {
            disk.remove_dir(&Path::new("topics").join(name))?;
        }
    }
    Ok(())
}
