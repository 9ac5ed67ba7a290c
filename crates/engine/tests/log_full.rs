//! A disk that fills up in the middle of a delivery: nothing is lost, nothing is repeated.

mod log_support;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use log_support::*;
use punctual_engine::disk::{Disk, DiskFile, Open, RealDisk};
use punctual_model::ports::StoreError;

/// A disk on which one write, counted from now, fails half way.
#[derive(Debug)]
struct Failing {
    disk: RealDisk,
    fuse: Arc<Fuse>,
}

#[derive(Debug)]
struct Fuse {
    left: AtomicI64,
    kind: io::ErrorKind,
}

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn DiskFile>,
    fuse: Arc<Fuse>,
}

impl Fuse {
    fn blows(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl Disk for Failing {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        if how != Open::Existing && self.fuse.blows() {
            return Err(self.fuse.kind.into());
        }
        let file = self.disk.open(path, how)?;
        Ok(Arc::new(FailingFile { file, fuse: Arc::clone(&self.fuse) }))
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

impl DiskFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.fuse.blows() {
            self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(self.fuse.kind.into());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
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

const PARTITIONS: u16 = 4;

#[test]
fn whichever_write_finds_the_disk_full_nothing_is_lost_or_repeated() {
    let batch: Vec<_> =
        (1..=200).map(|n| armed(u64::from(n), n % 4, body(format!("{n:0200}")))).collect();
    let mut failures = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let fuse = Arc::new(Fuse { left: AtomicI64::new(nth), kind: io::ErrorKind::StorageFull });
        let disk = Failing { disk: RealDisk::new(dir.path()).unwrap(), fuse: Arc::clone(&fuse) };
        let (logs, _) = open_on(Arc::new(disk), small(), PARTITIONS, &[]).unwrap();
        let mut failed = false;
        for part in batch.chunks(50) {
            if let Err(error) = logs.deliver(part, at(1000)) {
                assert_eq!(error, StoreError::Full);
                failed = true;
                // Something else may be offered in between.
                logs.deliver(&[armed(9000, 0, body("other"))], at(1000)).unwrap();
                logs.deliver(part, at(1000)).unwrap();
            }
        }
        for reopened in [false, true] {
            let again = open(dir.path(), small(), PARTITIONS, &[]).unwrap().0;
            let logs = if reopened { &again } else { &logs };
            for to in 0..PARTITIONS {
                let mut read = sequences(&read_all(logs, to));
                read.retain(|&sequence| sequence != 9000);
                let expected: Vec<u64> = (1..=200).filter(|n| n % 4 == u64::from(to)).collect();
                assert_eq!(read, expected, "write {nth}, partition {to}");
            }
        }
        if !failed {
            break;
        }
        failures += 1;
    }
    assert!(failures >= 16, "four writes for each of four chunks, {failures} failed");
}

#[test]
fn any_other_failure_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let fuse = Arc::new(Fuse { left: AtomicI64::new(2), kind: io::ErrorKind::Other });
    let disk = Failing { disk: RealDisk::new(dir.path()).unwrap(), fuse };
    let (logs, _) = open_on(Arc::new(disk), small(), 1, &[]).unwrap();
    let error = logs.deliver(&numbered(0..3, 10), at(5)).unwrap_err();
    assert!(matches!(error, StoreError::Poisoned(text) if text.contains(".log")));
}
