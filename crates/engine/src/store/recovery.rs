//! From what is on disk to an open store.
//!
//! The work depends on what happened since the last checkpoint, never on how much is pending: the
//! checkpoint, the footers of the runs, the journal behind the checkpoint, the tails of the logs.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Condvar, Mutex, RwLock};
use punctual_model::ports::StoreError;
use punctual_model::{MessageId, Sequence};

use crate::catalogue::Catalogue;
use crate::checkpoint::{self, Checkpoint};
use crate::disk::{self, Disk, Open};
use crate::journal::change::Change;
use crate::journal::reader::{self, Tail};
use crate::journal::writer::{Start, Writer};
use crate::log::{LogEnd, Logs};
use crate::options::Options;
use crate::reserve::Reserve;
use crate::store::Store;
use crate::store::upkeep::{Kept, Refs};
use crate::timeline::merge::{Reader, ShelfChange};
use crate::timeline::run::{self, Run};
use crate::timeline::shelf::Shelved;
use crate::timeline::{State, Tabled};
use crate::trust::Trust;

/// The version of the data directory as a whole.
const FORMAT_VERSION: u32 = 1;
const FORMAT_PATH: &str = "FORMAT";
const LOCK_PATH: &str = "LOCK";

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
        let Format { salt, journal_file_bytes } = open_format(&*disk, options.journal_file_bytes)?;
        // Positions count in files of this size, so that of the first start stays.
        let options = Options { journal_file_bytes, ..options };
        // A process that was killed may have left names that are visible and not certain. What is
        // removed below must not be needed again by what a loss of power would bring back.
        disk.sync_dir(Path::new("")).map_err(|error| OpenError::Disk("directory", error))?;
        let saved = checkpoint::read(&*disk)?.unwrap_or_default();
        let mut rebuilt = Rebuilt::new(&*disk, &saved)?;
        let shape = (salt, options.journal_file_bytes);
        let apply = |change| rebuilt.apply(change);
        let tail = reader::replay(&*disk, shape, saved.journal, apply)?;
        if tail.end < saved.journal_end {
            return Err(reader::damage(tail.end).into());
        }
        if tail.torn {
            tracing::warn!(end = tail.end.0, "cut an unfinished group off the journal");
        }
        rebuilt.finish(&saved);
        let logs = Logs::new(Arc::clone(&disk), options.log);
        rebuilt.match_logs(&logs, &saved.log_ends)?;
        remove_orphans(&*disk, &rebuilt).map_err(|error| OpenError::Disk("clean-up", error))?;
        let writer = start_writer(&disk, shape, &options, &saved, tail)?;
        let reserve = Reserve::open(Arc::clone(&disk), options.reserve_bytes)
            .map_err(|error| OpenError::Disk("reserve", error))?;
        let refs = Refs {
            journal: saved.journal,
            runs: saved.runs.iter().map(|run| (run.number, 0)).collect(),
            log_ends: saved.log_ends,
        };
        let kept = Kept {
            generation: saved.generation,
            period_start: saved.period_start,
            newest: refs.clone(),
            older: refs,
        };
        Ok(Self {
            options,
            trust: Trust::default(),
            logs,
            disk,
            writer: Mutex::new(writer),
            checkpoints: Mutex::new(kept),
            reader: Mutex::new(Reader::default()),
            state: Mutex::new(rebuilt.state),
            room: Condvar::new(),
            catalogue: RwLock::new(rebuilt.catalogue),
            reserve,
            listener: RwLock::new(None),
            damaged_blocks: AtomicU64::new(0),
            _lock: lock,
        })
    }
}

/// The state as it comes back.
struct Rebuilt {
    state: State,
    catalogue: Catalogue,
}

impl Rebuilt {
    fn new(disk: &dyn Disk, saved: &Checkpoint) -> Result<Self, OpenError> {
        let catalogue = Catalogue::new(saved.topics.clone(), saved.next_topic);
        let mut state = State::new(saved.next, saved.journal);
        state.topics = saved.topics.iter().map(|topic| topic.id).collect();
        state.cancelled = saved.cancelled.clone();
        state.next_run = saved.next_run.max(1);
        for known in &saved.runs {
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
        Ok(Self { state, catalogue })
    }

    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Schedule { first, bytes, slots } => {
                if self.state.active.table.is_empty() {
                    let start = self.state.active.table.journal_start;
                    self.state.active = Tabled::new(first, start);
                    self.state.next = first;
                }
                self.state.skip_to(first)?;
                self.state.admit(bytes, &slots);
            }
            Change::Cancel(messages) => {
                for (key, topic) in messages {
                    self.state.cancel(key, topic);
                }
            }
            Change::PutTopic(topic) => {
                self.state.topics.insert(topic.id);
                self.catalogue.put(topic);
            }
            Change::DeleteTopic(topic) => {
                self.catalogue.delete(topic);
                self.state.drop_topic(topic);
            }
        }
        Ok(())
    }

    /// Applies what the checkpoint knows about entries that the journal brought back.
    fn finish(&mut self, saved: &Checkpoint) {
        for number in &saved.ended {
            if let Some(sequence) = Sequence::new(number)
                && let Some(index) = self.state.active.table.index(sequence)
                && let Some(slot) = self.state.active.table.slot(index)
            {
                let (key, topic) = (slot.key(sequence), slot.topic);
                self.state.end_unread(key, topic);
            }
        }
        self.state.counts.retain(|topic, _| self.catalogue.by_id(*topic).is_some());
        if self.state.active.table.is_empty() {
            let start = self.state.active.table.journal_start;
            self.state.next = self.state.next.max(saved.next);
            self.state.active = Tabled::new(self.state.next, start);
        } else if let Err(error) = self.state.skip_to(saved.next.max(self.state.next)) {
            tracing::error!(%error, "sequences of the checkpoint are not those of the journal");
        }
    }

    /// Opens the logs, and ends what they already have.
    fn match_logs(&mut self, logs: &Logs, ends: &[LogEnd]) -> Result<(), StoreError> {
        let mut delivered: Vec<MessageId> = Vec::new();
        for topic in self.catalogue.list() {
            logs.open(topic.id, topic.settings.partitions, ends, &mut delivered)?;
        }
        let highest = delivered.iter().map(|id| id.key.sequence.get()).max();
        for id in delivered {
            self.state.end_unread(id.key, id.topic);
        }
        // Where nobody waited for the disk, a log may know messages that the journal lost. Their
        // numbers must not be given again, or the log would end the new messages at the next start.
        match highest.and_then(|highest| Sequence::new(highest + 1)) {
            Some(after) if after > self.state.next => self.state.skip_to(after),
            _ => Ok(()),
        }
    }
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
        let known = |number: &u64| rebuilt.state.runs.contains_key(number);
        if let Some(number) = run::number(&name).filter(|number| !known(number)) {
            disk.remove(&run::path(number))?;
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

/// What the file `FORMAT` says besides the version.
#[derive(Clone, Copy, Debug)]
struct Format {
    /// The salt of the journal's checksums.
    salt: u32,
    /// Bytes of one journal file.
    journal_file_bytes: u64,
}

/// Checks the version, or makes a new store.
fn open_format(disk: &dyn Disk, journal_file_bytes: u64) -> Result<Format, OpenError> {
    let path = Path::new(FORMAT_PATH);
    let wrap = |error| OpenError::Disk(FORMAT_PATH, error);
    match disk.open(path, Open::Existing) {
        Ok(file) => {
            let len = usize::try_from(file.len().map_err(wrap)?).unwrap_or(usize::MAX).min(4096);
            let bytes = disk::read_exact(&*file, 0, len).map_err(wrap)?;
            read_format(&String::from_utf8_lossy(&bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_format(disk, journal_file_bytes).map_err(wrap)?
        }
        Err(error) => Err(wrap(error)),
    }
}

fn read_format(text: &str) -> Result<Format, OpenError> {
    let value = |name: &str| {
        text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name)
    };
    let number = |name: &str| value(name).and_then(|(_, value)| value.parse::<u64>().ok());
    match number("punctual").map(u32::try_from) {
        Some(Ok(FORMAT_VERSION)) => {}
        Some(Ok(version)) if version > FORMAT_VERSION => {
            return Err(OpenError::NewerFormat(version));
        }
        _ => return Err(unreadable_format()),
    }
    let salt = number("salt").and_then(|salt| u32::try_from(salt).ok());
    let file_bytes = number("journal_file_bytes").filter(|bytes| *bytes > 0);
    let (Some(salt), Some(journal_file_bytes)) = (salt, file_bytes) else {
        return Err(unreadable_format());
    };
    let format = Format { salt, journal_file_bytes };
    // With another salt the journal would seem empty, so nothing in here may have changed.
    if text == format_text(format) { Ok(format) } else { Err(unreadable_format()) }
}

fn unreadable_format() -> OpenError {
    OpenError::NotAStore("FORMAT cannot be read".to_owned())
}

fn format_text(Format { salt, journal_file_bytes }: Format) -> String {
    let text = format!(
        "punctual={FORMAT_VERSION}\nsalt={salt}\njournal_file_bytes={journal_file_bytes}\n"
    );
    let check = crc32c::crc32c(text.as_bytes());
    format!("{text}check={check}\n")
}

fn make_format(disk: &dyn Disk, journal_file_bytes: u64) -> io::Result<Result<Format, OpenError>> {
    let strangers: Vec<String> = disk
        .list(Path::new(""))?
        .into_iter()
        .filter(|name| name != LOCK_PATH && name != "FORMAT.new" && name != "lost+found")
        .collect();
    if !strangers.is_empty() {
        return Ok(Err(OpenError::NotAStore(strangers.join(", "))));
    }
    let salt = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(1);
    let format = Format { salt, journal_file_bytes };
    let draft = Path::new("FORMAT.new");
    let file = disk.open(draft, Open::Create)?;
    file.set_len(0)?;
    file.write_at(format_text(format).as_bytes(), 0)?;
    file.sync()?;
    for dir in [crate::journal::DIR, run::DIR, "topics"] {
        disk.create_dir(Path::new(dir))?;
    }
    disk.rename(draft, Path::new(FORMAT_PATH))?;
    disk.sync_dir(Path::new(""))?;
    Ok(Ok(format))
}
