//! What the simulated disk knows: for every file and directory what is visible and what is durable,
//! and the changes in between, in the order in which they were issued.
//!
//! Visible always equals durable with all unsynced changes applied, except for changes that a
//! failed sync gave up: they stay visible, and no later sync makes them durable. A surviving write
//! brings its whole sectors as they stood when it was issued, for a disk writes nothing smaller.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::change::{Change, Child, Names, NodeId, Pending, ROOT};
use super::content::Content;
use super::names::join;
use super::{Fate, Fault, SECTOR_BYTES};

/// Largest simulated file; a larger one is a mistake of the code under test.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(super) struct Twin<T> {
    pub(super) visible: T,
    pub(super) durable: T,
}

impl<T: Clone> Twin<T> {
    pub(super) fn both(value: T) -> Self {
        Self { visible: value.clone(), durable: value }
    }
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) content: Twin<Content>,
    pub(super) path: Arc<str>,
    pub(super) linked: bool,
    pub(super) opens: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Dir {
    pub(super) names: Twin<Names>,
    pub(super) path: Arc<str>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    at: u64,
    fault: Fault,
    persistent: bool,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) files: BTreeMap<NodeId, File>,
    pub(super) dirs: BTreeMap<NodeId, Dir>,
    pub(super) pending: Vec<Pending>,
    pub(super) next: u64,
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) capacity: Option<u64>,
    pub(super) ops: u64,
    rules: Vec<Rule>,
    pub(super) crash_at: Option<u64>,
    off: bool,
    /// The states before each mutating operation, while they are asked for.
    pub(super) history: Option<Vec<Arc<State>>>,
}

impl State {
    pub(super) fn new() -> Self {
        let root = Dir { names: Twin::both(Names::default()), path: "".into() };
        Self {
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, root)]),
            pending: Vec::new(),
            next: 1,
            locked: BTreeSet::new(),
            capacity: None,
            ops: 0,
            rules: Vec::new(),
            crash_at: None,
            off: false,
            history: None,
        }
    }

    /// The same disk for a new process: what is visible stays so, nobody has it open, and no fault
    /// is planned.
    pub(super) fn fork(&self) -> Self {
        let mut fork = Self { history: None, ..Self::new() };
        fork.files.clone_from(&self.files);
        fork.dirs.clone_from(&self.dirs);
        fork.pending.clone_from(&self.pending);
        fork.next = self.next;
        fork.capacity = self.capacity;
        for file in fork.files.values_mut() {
            file.opens = 0;
        }
        fork
    }

    pub(super) fn plan(&mut self, at: u64, fault: Fault, persistent: bool) {
        self.rules.push(Rule { at, fault, persistent });
    }

    pub(super) fn heal(&mut self) {
        self.rules.clear();
    }

    pub(super) fn powered(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("power is off")) } else { Ok(()) }
    }

    /// Counts a mutating operation. `Ok(Some)` is the fault that strikes it.
    pub(super) fn begin(&mut self) -> io::Result<Option<Fault>> {
        self.powered()?;
        if self.crash_at.is_some_and(|at| self.ops + 1 >= at) {
            self.off = true;
            return self.powered().map(|()| None);
        }
        if self.history.is_some() {
            let before = Arc::new(self.fork());
            self.history.get_or_insert_default().push(before);
        }
        self.ops += 1;
        let now = self.ops;
        let strikes = |rule: &&Rule| rule.at == now || (rule.persistent && rule.at <= now);
        Ok(self.rules.iter().find(strikes).map(|rule| rule.fault))
    }

    /// Counts an operation that a fault stops altogether.
    pub(super) fn begin_whole(&mut self) -> io::Result<()> {
        self.begin()?.map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// Counts an operation that gives space back, which a full disk does not stop.
    pub(super) fn begin_freeing(&mut self) -> io::Result<()> {
        match self.begin()? {
            None | Some(Fault::NoSpace) => Ok(()),
            Some(fault) => Err(fault.error()),
        }
    }

    pub(super) fn write(&mut self, node: NodeId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = bounded(offset, bytes.len() as u64)?;
        let (bytes, refusal) = match self.begin()? {
            Some(Fault::ShortWrite) => (&bytes[..bytes.len() / 2], Some(Fault::ShortWrite)),
            Some(fault) => return Err(fault.error()),
            None => self.affordable(node, bytes, offset),
        };
        if !bytes.is_empty() {
            let end = offset + bytes.len();
            let content = &mut self.file(node).content.visible;
            content.write(offset, bytes);
            let first = offset / SECTOR_BYTES * SECTOR_BYTES;
            let sectors = content.slice(first..end.next_multiple_of(SECTOR_BYTES));
            self.push(node, Change::Write { offset: first, bytes: sectors.into() });
        }
        refusal.map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// The front of `bytes` for which there is room.
    fn affordable<'a>(
        &self,
        node: NodeId,
        bytes: &'a [u8],
        offset: usize,
    ) -> (&'a [u8], Option<Fault>) {
        let Some(room) = self.room() else {
            return (bytes, None);
        };
        let content = &self.files[&node].content.visible;
        let fits = |len: usize| content.missing(offset..offset + len) <= room;
        if fits(bytes.len()) {
            return (bytes, None);
        }
        let mut len = 0;
        while len < bytes.len() && fits(len + SECTOR_BYTES) {
            len += SECTOR_BYTES;
        }
        (&bytes[..len.min(bytes.len())], Some(Fault::NoSpace))
    }

    pub(super) fn set_len(&mut self, node: NodeId, len: u64) -> io::Result<()> {
        let len = bounded(len, 0)?;
        if len < self.files[&node].content.visible.len() {
            self.begin_freeing()?;
        } else {
            self.begin_whole()?;
        }
        self.file(node).content.visible.set_len(len);
        self.push(node, Change::SetLen(len));
        Ok(())
    }

    pub(super) fn allocate(&mut self, node: NodeId, len: u64) -> io::Result<()> {
        let len = bounded(len, 0)?;
        self.begin_whole()?;
        let missing = self.files[&node].content.visible.missing(0..len);
        if self.room().is_some_and(|room| missing > room) {
            return Err(Fault::NoSpace.error());
        }
        self.file(node).content.visible.allocate(len);
        self.push(node, Change::Allocate(len));
        Ok(())
    }

    pub(super) fn punch(&mut self, node: NodeId, offset: u64, len: u64) -> io::Result<()> {
        let end = bounded(offset.saturating_add(len).min(FILE_BYTES_MAX), 0)?;
        let offset = bounded(offset.min(FILE_BYTES_MAX), 0)?;
        self.begin_freeing()?;
        self.file(node).content.visible.punch(offset..end);
        self.push(node, Change::Punch { offset, end });
        Ok(())
    }

    pub(super) fn sync(&mut self, node: NodeId) -> io::Result<()> {
        if let Some(fault) = self.begin()? {
            self.give_up(node);
            return Err(fault.error());
        }
        let mine = || self.pending.iter().filter(|pending| pending.node == node);
        let file = self.files.get_mut(&node).expect("open files stay");
        if mine().any(|pending| pending.given_up) {
            for pending in mine().filter(|pending| !pending.given_up) {
                pending.change.apply_bytes(&mut file.content.durable, &Fate::Kept);
            }
        } else {
            file.content.durable.clone_from(&file.content.visible);
        }
        self.pending.retain(|pending| pending.node != node);
        Ok(())
    }

    pub(super) fn file(&mut self, node: NodeId) -> &mut File {
        self.files.get_mut(&node).expect("open files stay")
    }

    fn push(&mut self, node: NodeId, change: Change) {
        let path = Arc::clone(&self.files[&node].path);
        self.pending.push(Pending { node, path, change, given_up: false });
    }

    /// A failed sync leaves the fate of the changes open, and no later one brings them back.
    pub(super) fn give_up(&mut self, node: NodeId) {
        for pending in self.pending.iter_mut().filter(|pending| pending.node == node) {
            pending.given_up = true;
        }
    }

    /// Space taken by files that have a name or are open.
    pub(super) fn used(&self) -> u64 {
        let counted = self.files.values().filter(|file| file.linked || file.opens > 0);
        counted.map(|file| file.content.visible.used()).sum()
    }

    fn room(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used()))
    }

    /// The unsynced changes that can still matter, by position.
    pub(super) fn unsynced(&self) -> Vec<usize> {
        let known = self.referenced();
        let matters = |&at: &usize| known.contains(&self.pending[at].node);
        (0..self.pending.len()).filter(matters).collect()
    }

    /// The disk as it is found when power returns. `fates` are those of the changes at `positions`,
    /// which [`unsynced`](Self::unsynced) answered; no other change can matter.
    pub(super) fn after_crash(&self, positions: &[usize], fates: &[Fate]) -> Self {
        let mut bytes: BTreeMap<NodeId, Content> =
            self.files.iter().map(|(node, file)| (*node, file.content.durable.clone())).collect();
        let mut names: BTreeMap<NodeId, Names> =
            self.dirs.iter().map(|(node, dir)| (*node, Arc::clone(&dir.names.durable))).collect();
        for (&at, fate) in positions.iter().zip(fates) {
            let Pending { node, change, .. } = &self.pending[at];
            if *fate == Fate::Lost {
                continue;
            }
            if let Some(content) = bytes.get_mut(node) {
                change.apply_bytes(content, fate);
            } else if let Some(names) = names.get_mut(node) {
                change.apply_names(Arc::make_mut(names));
            }
        }
        let mut found = Self { next: self.next, capacity: self.capacity, ..Self::new() };
        found.adopt(ROOT, "", &names, &bytes);
        found
    }

    fn adopt(
        &mut self,
        node: NodeId,
        path: &str,
        names: &BTreeMap<NodeId, Names>,
        bytes: &BTreeMap<NodeId, Content>,
    ) {
        let Some(entries) = names.get(&node) else {
            return;
        };
        let dir = Dir { names: Twin::both(Arc::clone(entries)), path: path.into() };
        self.dirs.insert(node, dir);
        for (name, child) in entries.iter() {
            let path = join(path, name);
            match child {
                Child::Dir(below) => self.adopt(*below, &path, names, bytes),
                Child::File(node) => {
                    let content = Twin::both(bytes.get(node).cloned().unwrap_or_default());
                    let file = File { content, path: path.into(), linked: true, opens: 0 };
                    self.files.insert(*node, file);
                }
            }
        }
    }
}

fn bounded(offset: u64, len: u64) -> io::Result<usize> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => {
            Ok(usize::try_from(offset).expect("FILE_BYTES_MAX fits a usize"))
        }
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}
