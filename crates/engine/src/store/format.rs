//! The file `FORMAT`: the version of the data directory, and what was settled when it was made.
//!
//! Format 1 had no groups and one lane, format 2 no table of ids, format 3 no batches of producers. They
//! are read, and become the present one at the first start: the file is changed before anything is written that an older program would not understand.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;

use crate::disk::{self, Disk, Open};
use crate::ids;
use crate::store::OpenError;
use crate::store::recovery::LOCK_PATH;
use crate::timeline::run;

/// The version of the data directory as a whole.
pub(super) const FORMAT_VERSION: u32 = 4;
const OLDEST_VERSION: u32 = 1;
const FORMAT_PATH: &str = "FORMAT";
const DRAFT_PATH: &str = "FORMAT.new";

/// What the file says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    version: u32,
    /// The salt of the journal's checksums.
    pub(super) salt: u32,
    /// Bytes of one journal file.
    pub(super) journal_file_bytes: u64,
}

/// Checks the version, or makes a new store.
pub(super) fn open(disk: &dyn Disk, journal_file_bytes: u64) -> Result<Format, OpenError> {
    let path = Path::new(FORMAT_PATH);
    let wrap = |error| OpenError::Disk(FORMAT_PATH, error);
    match disk.open(path, Open::Existing) {
        Ok(file) => {
            let len = usize::try_from(file.len().map_err(wrap)?).unwrap_or(usize::MAX).min(4096);
            let bytes = disk::read_exact(&*file, 0, len).map_err(wrap)?;
            let format = read(&String::from_utf8_lossy(&bytes))?;
            if format.version < FORMAT_VERSION {
                tracing::info!(from = format.version, to = FORMAT_VERSION, "format brought up");
                disk.create_dir(Path::new(ids::DIR)).map_err(wrap)?;
                draft(disk, Format { version: FORMAT_VERSION, ..format }).map_err(wrap)?;
                install(disk).map_err(wrap)?;
            }
            Ok(format)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(disk, journal_file_bytes).map_err(wrap)?
        }
        Err(error) => Err(wrap(error)),
    }
}

fn read(text: &str) -> Result<Format, OpenError> {
    let value = |name: &str| {
        text.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == name)
    };
    let number = |name: &str| value(name).and_then(|(_, value)| value.parse::<u64>().ok());
    let version = match number("punctual").map(u32::try_from) {
        Some(Ok(version @ OLDEST_VERSION..=FORMAT_VERSION)) => version,
        Some(Ok(version)) if version > FORMAT_VERSION => {
            return Err(OpenError::NewerFormat(version));
        }
        _ => return Err(unreadable()),
    };
    let salt = number("salt").and_then(|salt| u32::try_from(salt).ok());
    let file_bytes = number("journal_file_bytes").filter(|bytes| *bytes > 0);
    let (Some(salt), Some(journal_file_bytes)) = (salt, file_bytes) else {
        return Err(unreadable());
    };
    let format = Format { version, salt, journal_file_bytes };
    // With another salt the journal would seem empty, so nothing in here may have changed.
    if text == format.text() { Ok(format) } else { Err(unreadable()) }
}

fn unreadable() -> OpenError {
    OpenError::NotAStore("FORMAT cannot be read".to_owned())
}

impl Format {
    fn text(self) -> String {
        let Self { version, salt, journal_file_bytes } = self;
        let text =
            format!("punctual={version}\nsalt={salt}\njournal_file_bytes={journal_file_bytes}\n");
        let check = crc32c::crc32c(text.as_bytes());
        format!("{text}check={check}\n")
    }
}

fn make(disk: &dyn Disk, journal_file_bytes: u64) -> io::Result<Result<Format, OpenError>> {
    let strangers: Vec<String> = disk
        .list(Path::new(""))?
        .into_iter()
        .filter(|name| name != LOCK_PATH && name != DRAFT_PATH && name != "lost+found")
        .collect();
    if !strangers.is_empty() {
        return Ok(Err(OpenError::NotAStore(strangers.join(", "))));
    }
    let salt = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(1);
    let format = Format { version: FORMAT_VERSION, salt, journal_file_bytes };
    draft(disk, format)?;
    for dir in [crate::journal::DIR, run::DIR, ids::DIR, "topics"] {
        disk.create_dir(Path::new(dir))?;
    }
    install(disk)?;
    Ok(Ok(format))
}

fn draft(disk: &dyn Disk, format: Format) -> io::Result<()> {
    let file = disk.open(Path::new(DRAFT_PATH), Open::Create)?;
    file.set_len(0)?;
    file.write_at(format.text().as_bytes(), 0)?;
    file.sync()
}

fn install(disk: &dyn Disk) -> io::Result<()> {
    disk.rename(Path::new(DRAFT_PATH), Path::new(FORMAT_PATH))?;
    disk.sync_dir(Path::new(""))
}
