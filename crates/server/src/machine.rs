//! What the operating system knows about this process and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

/// What the system counts processor time in: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Directories below the data that are looked into; there are none below them.
const DEPTH_MAX: usize = 6;
/// What one block is in the counts of the system.
const BLOCK_BYTES: u64 = 512;
/// For how long it is remembered how large files are, at least, and how many times as long as it took
/// to look.
const REMEMBERED: Duration = Duration::from_secs(5);
const REMEMBERED_TIMES: u32 = 200;

/// Memory that the process has, in bytes, where the system tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What the process takes, as far as the system tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Memory, in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Processor time it has had, in seconds.
    pub(crate) cpu_seconds: Option<f64>,
    /// Files and connections that are open.
    pub(crate) open_files: Option<u64>,
    /// How many may be; none where there is no limit.
    pub(crate) open_files_max: Option<u64>,
}

impl Usage {
    /// As it is now.
    pub(crate) fn read() -> Self {
        Self {
            memory_bytes: memory_bytes(),
            cpu_seconds: cpu_seconds(),
            open_files: open_files(),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses, and may have any character.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok().map(f64::from);
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn open_files() -> Option<u64> {
    let directory = Path::new("/proc/self/fd");
    match fs::metadata(directory).ok()?.len() {
        // Older systems do not tell; then they are counted, and so is the one that it takes.
        0 => u64::try_from(fs::read_dir(directory).ok()?.count().checked_sub(1)?).ok(),
        known => Some(known),
    }
}

/// Bytes that the files below a directory take on the disk. What goes away meanwhile counts
/// nothing. Blocks on the disk.
pub(crate) fn file_bytes(directory: &Path) -> u64 {
    below(directory, DEPTH_MAX)
}

/// How large the files below a directory are, remembered for a while: with many topics there are many
/// files, and somebody asks every few seconds for ever.
#[derive(Debug)]
pub(crate) struct FileBytes {
    directory: PathBuf,
    known: Mutex<Option<(u64, Instant)>>,
}

impl FileBytes {
    pub(crate) fn below(directory: PathBuf) -> Self {
        Self { directory, known: Mutex::default() }
    }

    /// How large they are, or were a while ago. Blocks on the disk, but not for everybody who asks.
    pub(crate) fn read(&self) -> u64 {
        let mut known = self.known.lock();
        let begun = Instant::now();
        match *known {
            Some((bytes, until)) if begun < until => bytes,
            _ => {
                let bytes = file_bytes(&self.directory);
                let remembered = begun.elapsed().saturating_mul(REMEMBERED_TIMES).max(REMEMBERED);
                *known = Some((bytes, begun + remembered));
                bytes
            }
        }
    }
}

/// Room on the disk of a directory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Taken and free.
    pub(crate) total: u64,
    /// Free for this process.
    pub(crate) usable: u64,
}

/// How much room there is on the disk of a directory, where the system tells.
pub(crate) fn room(directory: &Path) -> Option<Room> {
    let known = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(known.f_frsize);
    Some(Room { total: bytes(known.f_blocks), usable: bytes(known.f_bavail) })
}

fn below(directory: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(known) if known.is_dir() && depth > 0 => below(&entry.path(), depth - 1),
        Ok(known) if known.is_file() => taken(&known),
        _ => 0,
    });
    bytes.fold(0, u64::saturating_add)
}

/// What the file takes: it may have holes, and it may have been given more than it has.
#[cfg(unix)]
fn taken(known: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(known).saturating_mul(BLOCK_BYTES)
}

#[cfg(not(unix))]
fn taken(known: &fs::Metadata) -> u64 {
    known.len().next_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let bytes = memory_bytes().unwrap();
        assert!(bytes > 1 << 20, "{bytes}");
    }

    #[test]
    fn this_process_takes_what_it_takes() {
        let usage = Usage::read();
        assert!(usage.cpu_seconds.unwrap() >= 0.0);
        let files = usage.open_files.unwrap();
        assert!(files >= 3 && usage.open_files_max.is_none_or(|most| files <= most), "{files}");
        let more: Vec<_> =
            (0..20).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        // Other tests open and close files meanwhile, but not that many.
        assert!(open_files().unwrap() + 10 >= files + more.len() as u64);
    }

    #[test]
    fn a_disk_has_room() {
        let directory = tempfile::TempDir::new().unwrap();
        let room = room(directory.path()).unwrap();
        assert!(room.total >= room.usable && room.total > 0);
        assert!(super::room(&directory.path().join("missing")).is_none());
    }

    #[test]
    fn files_count_wherever_they_are() {
        let directory = tempfile::TempDir::new().unwrap();
        assert_eq!(file_bytes(directory.path()), 0);
        fs::create_dir(directory.path().join("inner")).unwrap();
        fs::write(directory.path().join("a"), [1; 5000]).unwrap();
        fs::write(directory.path().join("inner/b"), [1; 5000]).unwrap();
        let bytes = file_bytes(directory.path());
        assert!((10_000..1 << 20).contains(&bytes), "{bytes}");
        assert_eq!(file_bytes(&directory.path().join("missing")), 0);
    }

    #[test]
    fn a_size_is_remembered_for_a_while() {
        let directory = tempfile::TempDir::new().unwrap();
        let size = FileBytes::below(directory.path().to_path_buf());
        assert_eq!(size.read(), 0);
        fs::write(directory.path().join("a"), [1; 5000]).unwrap();
        assert_eq!(size.read(), 0, "nobody looks again so soon");
        let long_ago = size.known.lock().take();
        assert!(long_ago.is_some() && size.read() >= 5000);
    }
}
