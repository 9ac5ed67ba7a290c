//! The names of the simulated disk: paths, directories, and the operations that change them.
//!
//! A file is reached only through directories that are there themselves, so a synced name in a
//! directory whose own name was lost is lost with it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use super::change::{Change, Child, Names, NodeId, Pending, ROOT};
use super::content::Content;
use super::state::{Dir, File, State, Twin};

impl State {
    pub(super) fn dir_at(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for name in parts(path)? {
            match self.child(at, name) {
                Some(Child::Dir(node)) => at = node,
                Some(Child::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        Ok(at)
    }

    /// The directory of a path and the last part of it.
    fn place<'path>(&self, path: &'path Path) -> io::Result<(NodeId, &'path str)> {
        let name = parts(path)?.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.dir_at(parent)?, name))
    }

    fn child(&self, dir: NodeId, name: &str) -> Option<Child> {
        self.dirs.get(&dir)?.names.visible.get(name).copied()
    }

    pub(super) fn file_at(&self, path: &Path) -> io::Result<NodeId> {
        let (dir, name) = self.place(path)?;
        match self.child(dir, name) {
            Some(Child::File(node)) => Ok(node),
            Some(Child::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The visible files, sorted.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self
            .files
            .values()
            .filter(|file| file.linked)
            .map(|file| file.path.to_string())
            .collect();
        paths.sort();
        paths
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<NodeId> {
        let (dir, name) = self.place(path)?;
        self.begin_whole()?;
        let node = self.fresh();
        let path = self.path_of(dir, name);
        let content = Twin::both(Content::default());
        self.files.insert(node, File { content, path, linked: true, opens: 0 });
        self.rename_entry(dir, Change::Link { name: name.into(), child: Child::File(node) });
        Ok(node)
    }

    pub(super) fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in parts(path)? {
            at = match self.child(at, name) {
                Some(Child::Dir(node)) => node,
                Some(Child::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => {
                    self.begin_whole()?;
                    let node = self.fresh();
                    let path = self.path_of(at, name);
                    self.dirs.insert(node, Dir { names: Twin::both(Names::default()), path });
                    self.rename_entry(
                        at,
                        Change::Link { name: name.into(), child: Child::Dir(node) },
                    );
                    node
                }
            };
        }
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let node = self.file_at(path)?;
        let (dir, name) = self.place(path)?;
        self.begin_freeing()?;
        self.unlink(dir, name, node);
        Ok(())
    }

    /// Removes what is below first, one operation each, as the real thing does.
    pub(super) fn remove_tree(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let node = self.dir_at(path)?;
        let children = Arc::clone(&self.dirs[&node].names.visible);
        for (below, child) in children.iter() {
            match child {
                Child::Dir(_) => self.remove_tree(&path.join(below))?,
                Child::File(_) => self.remove_file(&path.join(below))?,
            }
        }
        self.begin_freeing()?;
        self.unlink(dir, name, node);
        Ok(())
    }

    fn unlink(&mut self, dir: NodeId, name: &str, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.linked = false;
        }
        self.rename_entry(dir, Change::Unlink { name: name.into() });
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (dir, old) = self.place(from)?;
        let (target, new) = self.place(to)?;
        let child = self.child(dir, old).ok_or(io::ErrorKind::NotFound)?;
        if dir != target {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let replaced = self.child(dir, new);
        if matches!(replaced, Some(Child::Dir(_))) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.begin_whole()?;
        if old == new {
            return Ok(());
        }
        if let Some(file) = replaced.and_then(|child| self.files.get_mut(&child.node())) {
            file.linked = false;
        }
        let path = self.path_of(dir, new);
        if let Some(file) = self.files.get_mut(&child.node()) {
            file.path = path;
        }
        self.rename_entry(dir, Change::Rename { from: old.into(), to: new.into(), child });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let node = self.dir_at(path)?;
        if let Some(fault) = self.begin()? {
            self.give_up(node);
            return Err(fault.error());
        }
        let dir = self.dirs.get_mut(&node).expect("found above");
        let durable = &mut dir.names.durable;
        for pending in self.pending.iter().filter(|pending| pending.node == node) {
            if !pending.given_up {
                pending.change.apply_names(Arc::make_mut(durable));
            }
        }
        self.pending.retain(|pending| pending.node != node);
        self.forget_unreachable();
        Ok(())
    }

    fn rename_entry(&mut self, dir: NodeId, change: Change) {
        let entry = self.dirs.get_mut(&dir).expect("callers found the directory");
        change.apply_names(Arc::make_mut(&mut entry.names.visible));
        let path = Arc::clone(&entry.path);
        self.pending.push(Pending { node: dir, path, change, given_up: false });
    }

    /// Everything that has, had or may get a name back.
    pub(super) fn referenced(&self) -> BTreeSet<NodeId> {
        let mut known = BTreeSet::from([ROOT]);
        for dir in self.dirs.values() {
            let both = dir.names.visible.values().chain(dir.names.durable.values());
            known.extend(both.map(|child| child.node()));
        }
        for pending in &self.pending {
            if let Change::Link { child, .. } | Change::Rename { child, .. } = &pending.change {
                known.insert(child.node());
            }
        }
        known
    }

    fn forget_unreachable(&mut self) {
        let known = self.referenced();
        self.dirs.retain(|node, _| known.contains(node));
        self.files.retain(|node, file| file.opens > 0 || known.contains(node));
        let (files, dirs) = (&self.files, &self.dirs);
        self.pending.retain(|pending| {
            files.contains_key(&pending.node) || dirs.contains_key(&pending.node)
        });
    }

    fn fresh(&mut self) -> NodeId {
        let node = NodeId(self.next);
        self.next += 1;
        node
    }

    fn path_of(&self, dir: NodeId, name: &str) -> Arc<str> {
        join(&self.dirs[&dir].path, name).into()
    }
}

pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The parts of a relative path.
fn parts(path: &Path) -> io::Result<Vec<&str>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => {
                parts.push(name.to_str().ok_or(io::ErrorKind::InvalidInput)?);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(parts)
}
