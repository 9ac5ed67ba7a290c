//! A disk that tells somebody what is done to its files.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use punctual_engine::disk::{Disk, DiskFile, Open};

/// What was done, and has succeeded; of the journal, what is about to be done.
pub enum Seen {
    /// So many bytes were read.
    Read(usize),
    /// The journal is written to next.
    JournalNext,
    /// A file was synced.
    Synced,
}

/// The disk.
#[derive(Debug)]
pub struct Watched {
    disk: Arc<dyn Disk>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch(Arc<dyn Fn(Seen) + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watched {
    pub fn new(disk: impl Disk, watch: impl Fn(Seen) + Send + Sync + 'static) -> Self {
        Self { disk: Arc::new(disk), watch: Watch(Arc::new(watch)) }
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    is_journal: bool,
    watch: Watch,
}

impl Disk for Watched {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, how)?;
        let is_journal = path.starts_with("journal");
        Ok(Arc::new(WatchedFile { file, is_journal, watch: self.watch.clone() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        (self.watch.0)(Seen::Read(count));
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_journal {
            (self.watch.0)(Seen::JournalNext);
        }
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        (self.watch.0)(Seen::Synced);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch(offset, len)
    }
}
