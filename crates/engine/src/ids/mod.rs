//! Where a message is that is asked for by another name than its id: a table on disk.
//!
//! It maps the ids that senders chose to our messages, and the sequence of a message that was
//! changed to where it stands now. The last write of a name wins. Entries gather in a table in
//! memory, which is frozen when it is full and written as a sorted file; files are merged. The
//! journal brings the tables back after a crash, a checkpoint names the files.
//!
//! There is no lock and no thread in here, and nothing here knows what an entry is for: what is of no
//! more interest is dropped when files are merged, and who merges says what that is.

mod name;
mod table;
mod filter;
mod file;
mod writer;
mod merge;

use std::sync::Arc;

use punctual_model::ports::StoreError;
use punctual_model::{Key, Partition, TopicId};

use crate::disk::Disk;
use crate::ids::filter::Probe;
use crate::ids::table::Table;
use crate::journal::Position;

pub use file::{DIR, IdFile, number, path};
pub use merge::merge;
pub use name::Name;
pub use table::Frozen;
pub use writer::write;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The key of the message.
    pub key: Key,
    /// Its topic.
    pub topic: TopicId,
    /// Its partition.
    pub partition: Partition,
    /// A fingerprint of the request it came with.
    pub print: u64,
}

/// Settings of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdOptions {
    /// Entries of one memory table before it is written out. While one is written the next one
    /// fills.
    pub table_entries: usize,
    /// More files than this are merged, however different they are.
    pub files_max: usize,
}

impl Default for IdOptions {
    fn default() -> Self {
        // That is 64 MiB for a table at most.
        Self { table_entries: 850_000, files_max: 12 }
    }
}

/// The table.
#[derive(Debug)]
pub struct Ids {
    active: Table,
    frozen: Option<Arc<Frozen>>,
    /// Newest first.
    files: Vec<Arc<IdFile>>,
    options: IdOptions,
}

impl Ids {
    /// Opens the table with these files, newest first, as [`files`](Self::files) gave them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one of them is missing or not whole.
    pub fn open(disk: &dyn Disk, files: &[u64], options: IdOptions) -> Result<Self, StoreError> {
        let files = files.iter().map(|&number| IdFile::open(disk, number).map(Arc::new));
        let files = files.collect::<Result<_, _>>()?;
        Ok(Self { active: Table::default(), frozen: None, files, options })
    }

    /// Lets `name` stand for `value` from now on.
    pub fn put(&mut self, name: Name, value: Value) {
        self.active.put(name, value);
    }

    /// What `name` stands for.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a page that may have it cannot be read.
    pub fn get(&self, name: Name) -> Result<Option<Value>, StoreError> {
        if let Some(value) = self.active.get(name) {
            return Ok(Some(value));
        }
        if let Some(value) = self.frozen.as_ref().and_then(|frozen| frozen.table().get(name)) {
            return Ok(Some(value));
        }
        self.get_from_files(name)
    }

    fn get_from_files(&self, name: Name) -> Result<Option<Value>, StoreError> {
        let probe = Probe::new(name);
        for files in self.files.chunks(64) {
            // All filters are asked before any answer counts: the processor waits for all at once.
            let ask = |hits, file: &Arc<IdFile>| (hits << 1) | u64::from(file.may_hold(&probe));
            let mut hits = files.iter().rev().fold(0u64, ask);
            while hits != 0 {
                let file = files.get(hits.trailing_zeros() as usize);
                if let Some(value) = file.map_or(Ok(None), |file| file.get(name))? {
                    return Ok(Some(value));
                }
                hits &= hits - 1;
            }
        }
        Ok(None)
    }

    /// Says where the journal stands before the next put. The first since the active table was
    /// empty counts.
    pub const fn begin_at(&mut self, journal: Position) {
        self.active.begin_at(journal);
    }

    /// Where the journal has to be read from to get both tables back; `None` when both are empty.
    #[must_use]
    pub fn journal_start(&self) -> Option<Position> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.table().start());
        frozen.into_iter().chain(self.active.start()).min()
    }

    /// Whether it is time to [`freeze`](Self::freeze): the active table is full and none is frozen.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.active.len() >= self.options.table_entries && self.frozen.is_none()
    }

    /// Whether accepting has to wait: the active table is full and one is still being written.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        self.active.len() >= self.options.table_entries && self.frozen.is_some()
    }

    /// Sets the active table aside to be written, unless it is empty or one is aside already.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() && self.active.len() > 0 {
            let table = std::mem::take(&mut self.active);
            self.frozen = Some(Arc::new(Frozen::new(table)));
        }
    }

    /// The table to be written with [`write()`]. Whoever drops the answer last frees the table.
    #[must_use]
    pub fn frozen(&self) -> Option<Arc<Frozen>> {
        self.frozen.clone()
    }

    /// Replaces the frozen table by the file that was made of it.
    pub fn install(&mut self, file: IdFile) {
        self.frozen = None;
        self.files.insert(0, Arc::new(file));
    }

    /// The numbers of the files, newest first.
    #[must_use]
    pub fn files(&self) -> Vec<u64> {
        self.files.iter().map(|file| file.number()).collect()
    }

    /// Files to be merged with [`merge()`], neighbours in age, newest first; `None` when there is
    /// nothing to do.
    #[must_use]
    pub fn merge_plan(&self) -> Option<Vec<Arc<IdFile>>> {
        let entries = self.files.iter().map(|file| (!file.is_damaged()).then(|| file.entries()));
        let range = merge::plan(&entries.collect::<Vec<_>>(), self.options.files_max)?;
        self.files.get(range).map(<[_]>::to_vec)
    }

    /// Puts what was made of the files `old` in their place.
    pub fn replace(&mut self, old: &[u64], new: Option<IdFile>) {
        let is_old = |file: &Arc<IdFile>| old.contains(&file.number());
        let place = self.files.iter().position(is_old).unwrap_or(self.files.len());
        self.files.retain(|file| !is_old(file));
        if let Some(new) = new {
            self.files.insert(place, Arc::new(new));
        }
    }

    /// Bytes of memory taken, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.table().memory_bytes());
        let files: usize = self.files.iter().map(|file| file.memory_bytes()).sum();
        self.active.memory_bytes() + frozen + files
    }

    /// The number of entries, counting a name once for each place where it is.
    #[must_use]
    pub fn entries(&self) -> u64 {
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.table().len());
        let files: u64 = self.files.iter().map(|file| file.entries()).sum();
        (self.active.len() + frozen) as u64 + files
    }
}
