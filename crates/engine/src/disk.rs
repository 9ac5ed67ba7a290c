//! The disk seam: the only way the engine touches files.
//!
//! Paths are relative to the data directory. What the operating system promises is all that is
//! assumed: written bytes survive a crash of the process, synced bytes survive a loss of power, and
//! a created, renamed or removed name is certain only after its directory was synced. The test kit
//! has a second disk that forgets everything else.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags};

/// A directory tree that holds one store.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As the operating system says: `NotFound`, or `AlreadyExists` for [`Open::CreateNew`].
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;

    /// Names of the files and directories in `dir`, sorted; empty when there is no such directory.
    ///
    /// # Errors
    /// As the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes a directory and those above it; fine when it exists. The caller syncs the parent.
    ///
    /// # Errors
    /// As the operating system says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and everything below it.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file within one directory, replacing the target.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in `dir` certain.
    ///
    /// # Errors
    /// As the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock of the store, kept until the answer is dropped.
    ///
    /// # Errors
    /// `WouldBlock` when somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// It must not exist yet.
    CreateNew,
    /// Either is fine; what is there stays.
    Create,
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
/// One open file. All access is by position, so no two users disturb each other.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As the operating system says; then any part of it may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes written bytes and the length certain.
    ///
    /// # Errors
    /// As the operating system says; then nothing is known about what was written since the last
    /// success, and asking again proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// As the operating system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for the first `len` bytes and makes the file at least that long.
    ///
    /// # Errors
    /// `StorageFull` when there is not enough.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Gives the bytes from `offset` on back to the file system; they read as zeros afterwards.
    ///
    /// # Errors
    /// As the operating system says; a file system that cannot do it says `Unsupported`.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Synced bytes that will not be read for long need not stay in memory. A hint, nothing more.
    fn forget(&self, offset: u64, len: u64) {
        let _hint = (offset, len);
    }

    /// Bytes that will be read in a moment. A hint, nothing more.
    fn expect(&self, offset: u64, len: u64) {
        let _hint = (offset, len);
    }

    /// The file to the operating system, where it has one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Reads exactly `len` bytes.
///
/// # Errors
/// `UnexpectedEof` when the file ends before that; otherwise as the disk says.
pub fn read_exact(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    if file.read_at(&mut buffer, offset)? == len {
        Ok(buffer)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Whether an error means that the disk has no room left.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The real disk, below one directory.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// The tree below `root`, which is made when it is missing, for nobody else to look into.
    ///
    /// # Errors
    /// As the operating system says.
    #[expect(clippy::disallowed_methods, reason = "this is the seam that opens files")]
    pub fn new(root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        if let Some(parent) = root.canonicalize()?.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(Self { root: root.to_path_buf() })
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(how == Open::Create)
            .create_new(how == Open::CreateNew)
            .mode(0o600)
            .open(self.root.join(path))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.root.join(dir)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(self.root.join(dir))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(self.root.join(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam that opens files")]
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(self.root.join(dir))?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.root.join(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct RealFile(fs::File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self.0.as_fd(), FallocateFlags::empty(), 0, len)?)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(self.0.as_fd(), flags, offset, len)?)
    }

    fn forget(&self, offset: u64, len: u64) {
        self.advise(offset, len, Advice::DontNeed);
    }

    fn expect(&self, offset: u64, len: u64) {
        self.advise(offset, len, Advice::WillNeed);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl RealFile {
    fn advise(&self, offset: u64, len: u64, advice: Advice) {
        let len = std::num::NonZeroU64::new(len);
        if let Err(error) = rustix::fs::fadvise(self.0.as_fd(), offset, len, advice) {
            tracing::debug!(%error, "the hint was not taken");
        }
    }
}
