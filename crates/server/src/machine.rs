//! What the operating system knows about this process and its files.

use std::fs;
use std::path::Path;

/// Directories below the data that are looked into; there are none below them.
const DEPTH_MAX: usize = 6;
/// What one block is in the counts of the system.
const BLOCK_BYTES: u64 = 512;

/// Memory that the process has, in bytes, where the system tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Bytes that the files below a directory take on the disk. What goes away meanwhile counts
/// nothing. Blocks on the disk.
pub(crate) fn file_bytes(directory: &Path) -> u64 {
    below(directory, DEPTH_MAX)
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
}
