//! A disk in memory that forgets what was not synced.
//!
//! It models what a loss of power may do. Synced bytes and synced names are never harmed. Of what
//! was not synced any part may be missing, whatever the order in which it was issued: whole writes,
//! single sectors of a write, names (also of files whose bytes were synced), and a rename is done or
//! undone. A write inside one sector is atomic. After a failed sync the changes stay visible but no
//! later sync makes them certain. Everything is deterministic, and copies are cheap.

mod content;
mod change;
mod state;
mod names;
mod images;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_engine::disk::{Disk, DiskFile, Open};

use self::change::NodeId;
use self::state::State;

/// The largest write that a disk does as a whole, and the unit in which it tears.
pub const SECTOR_BYTES: usize = 512;

/// A handle to the simulated disk; clones share it.
#[derive(Clone)]
pub struct ForgetfulDisk {
    state: Arc<Mutex<State>>,
}

/// What a planned fault does to the operation it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error; nothing is changed.
    Eio,
    /// No space left; nothing is changed. Operations that give space back are spared.
    NoSpace,
    /// The first half of a write is done before it fails; other operations fail as with `Eio`.
    ShortWrite,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Eio => io::Error::from_raw_os_error(5),
            Self::NoSpace => io::ErrorKind::StorageFull.into(),
            Self::ShortWrite => io::ErrorKind::WriteZero.into(),
        }
    }
}

/// What becomes of an unsynced change when the power goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It never reached the disk.
    Lost,
    /// It reached the disk.
    Kept,
    /// Of a write only some sectors reached the disk. Any other change is kept.
    Torn {
        /// Whether each sector of the write survived.
        sectors: Vec<bool>,
        /// Whether the length of the file grew as if all had.
        length: bool,
    },
}

/// An unsynced change, for whoever decides its [`Fate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// Its position among the unsynced changes, in order of issue.
    pub index: usize,
    /// The file whose bytes, or the directory whose names, it changes.
    pub path: String,
    /// Whether it changes names.
    pub is_name: bool,
    /// Sectors that can survive on their own.
    pub sectors: usize,
}

impl ForgetfulDisk {
    /// An empty disk without limits or faults.
    #[must_use]
    pub fn new() -> Self {
        Self::holding(State::new())
    }

    /// Mutating operations so far: writes, syncs of files and directories, names made, renamed and
    /// removed, lengths, reservations and holes. One that a fault struck counts too.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Lets the `n`-th mutating operation fail, counted from 1 since the disk was made; with
    /// `persistent` every later one too.
    pub fn fail_at(&self, n: u64, fault: Fault, persistent: bool) {
        self.state().plan(n, fault, persistent);
    }

    /// Takes all planned faults back.
    pub fn heal(&self) {
        self.state().heal();
    }

    /// Cuts the power just before the `n`-th mutating operation: from there on every call of the
    /// disk and its files fails and changes nothing.
    pub fn crash_at(&self, n: u64) {
        self.state().crash_at = Some(n);
    }

    /// Limits the space of all files together, counted in blocks of 4 KiB. Reserved space counts; a
    /// removed file counts while somebody has it open.
    pub fn capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Space taken, as [`capacity`](Self::capacity) counts it.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// From now on remembers the state before each mutating operation.
    pub fn keep_history(&self) {
        self.state().history = Some(Vec::new());
    }

    /// The remembered states with the number of operations done before each, oldest first, and the
    /// present one last. A crash at operation `n + 1` finds the state numbered `n`.
    #[must_use]
    pub fn history(&self) -> Vec<(u64, Self)> {
        let state = self.state();
        let past = state.history.iter().flatten();
        let first = state.ops - past.clone().count() as u64;
        let forks = past.map(|state| State::clone(state)).chain([state.fork()]);
        (first..).zip(forks.map(Self::holding)).collect()
    }

    /// What a new process finds after this one was killed: everything written, no locks, no planned
    /// faults. What was not synced still is not, and what the old handles do is not seen here.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self::holding(self.state().fork())
    }

    /// What is found when power returns, where `choose` decides about each unsynced change.
    #[must_use]
    pub fn crash_image(&self, mut choose: impl FnMut(&Unsynced) -> Fate) -> Self {
        let state = self.state();
        let fates: Vec<Fate> = unsynced(&state).iter().map(&mut choose).collect();
        Self::holding(state.after_crash(&state.unsynced(), &fates))
    }

    /// The unsynced changes that a crash would put at risk, in order of issue.
    #[must_use]
    pub fn unsynced(&self) -> Vec<Unsynced> {
        unsynced(&self.state())
    }

    /// What may be found when power returns, described, at most `budget` of them. First the
    /// complete list of simple cases: nothing survives, everything, only names, only bytes, each
    /// prefix, each single omission, each write torn at each sector boundary; then random ones. It
    /// ends early when nothing new turns up.
    pub fn images(&self, budget: usize, seed: u64) -> impl Iterator<Item = (String, Self)> + use<> {
        let state = self.state().fork();
        let positions = state.unsynced();
        images::plans(&state, seed).take(budget).map(move |plan| {
            let image = Self::holding(state.after_crash(&positions, &plan.fates));
            (plan.name, image)
        })
    }

    /// Damages the medium: turns one bit of a file over, both what is seen and what is durable.
    ///
    /// # Errors
    /// `NotFound` without such a file; `UnexpectedEof` when it is shorter.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state();
        let node = state.file_at(path)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let content = &mut state.file(node).content;
        content.durable.flip(offset, bit);
        if content.visible.flip(offset, bit) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// The whole visible content of a file. Works without power.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let node = state.file_at(path)?;
        Ok(state.file(node).content.visible.slice(0..usize::MAX))
    }

    /// The paths of all visible files, sorted. Works without power.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.state().paths()
    }

    fn holding(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The state, if there is power.
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        state.powered()?;
        Ok(state)
    }
}

impl Default for ForgetfulDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ForgetfulDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("ForgetfulDisk")
            .field("ops", &state.ops)
            .field("files", &state.files.len())
            .field("unsynced", &state.pending.len())
            .finish_non_exhaustive()
    }
}

impl Disk for ForgetfulDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.powered()?;
        let node = match (state.file_at(path), how) {
            (Ok(_), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(node), _) => node,
            (Err(error), Open::Create | Open::CreateNew)
                if error.kind() == io::ErrorKind::NotFound =>
            {
                state.create_file(path)?
            }
            (Err(error), _) => return Err(error),
        };
        state.file(node).opens += 1;
        Ok(Arc::new(ForgetfulFile { state: Arc::clone(&self.state), node }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.powered()?;
        match state.dir_at(dir) {
            Ok(node) => Ok(state.dirs[&node].names.visible.keys().cloned().collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.powered()?.create_dirs(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.powered()?.remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.powered()?.remove_tree(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.powered()?.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.powered()?.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.powered()?;
        match state.file_at(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                state.create_file(path)?;
            }
            found => {
                found?;
            }
        }
        if state.locked.insert(path.to_path_buf()) {
            let state = Arc::clone(&self.state);
            Ok(Box::new(Lock { state, path: path.to_path_buf() }))
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

/// Held until dropped.
struct Lock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        locked(&self.state).locked.remove(&self.path);
    }
}

struct ForgetfulFile {
    state: Arc<Mutex<State>>,
    node: NodeId,
}

impl ForgetfulFile {
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = locked(&self.state);
        state.powered()?;
        Ok(state)
    }
}

impl fmt::Debug for ForgetfulFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForgetfulFile").field(&self.node).finish()
    }
}

impl Drop for ForgetfulFile {
    fn drop(&mut self) {
        locked(&self.state).file(self.node).opens -= 1;
    }
}

impl DiskFile for ForgetfulFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(self.powered()?.file(self.node).content.visible.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.powered()?.write(self.node, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.powered()?.sync(self.node)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.powered()?.file(self.node).content.visible.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.powered()?.set_len(self.node, len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.powered()?.allocate(self.node, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.powered()?.punch(self.node, offset, len)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unsynced(state: &State) -> Vec<Unsynced> {
    let describe = |(index, at): (usize, usize)| {
        let pending = &state.pending[at];
        let (path, change) = (pending.path.to_string(), &pending.change);
        Unsynced { index, path, is_name: change.is_name(), sectors: change.sectors() }
    };
    state.unsynced().into_iter().enumerate().map(describe).collect()
}
