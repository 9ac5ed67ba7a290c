//! The files of the apps in the data directory, one for each, and that of the administrator's token.
//!
//! A file is written beside the old one, synced, and put in its place by its name, so after a crash
//! each app is what it was before or after a change, never anything else. A file that cannot be read
//! ends the start: an app that is not known would be locked out, and one whose file is an older one
//! might have a right that was taken from it. After a name could not be made certain nothing more is
//! changed until the next start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_engine::disk::{Disk, Open, read_exact};

use crate::access::record::{self, AppKey, AppRecord};

const DIR: &str = "apps";
const SUFFIX: &str = ".json";
/// A file that is not in its place yet.
const NEW_SUFFIX: &str = ".new";
/// Largest file of an app; more is never written.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Holds the administrator's token, for whoever may read the data directory.
pub(crate) const TOKEN: &str = "admin-token";
const TOKEN_NEW: &str = "admin-token.new";

/// The files.
#[derive(Debug)]
pub(crate) struct AppFiles {
    disk: Arc<dyn Disk>,
    /// A name could not be made certain: what is on disk is not known any more.
    broken: bool,
}

impl AppFiles {
    /// Reads what is there. Blocks on the disk.
    ///
    /// # Errors
    /// As the disk says; `InvalidData` for a file that is damaged or newer.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> io::Result<(Self, Vec<AppRecord>)> {
        let dir = Path::new(DIR);
        disk.create_dir(dir)?;
        disk.sync_dir(Path::new(""))?;
        let mut records = Vec::new();
        for name in disk.list(dir)? {
            let path = dir.join(&name);
            if name.ends_with(NEW_SUFFIX) {
                // A crash came before it was in its place.
                disk.remove(&path)?;
            } else if let Some(key) = name.strip_suffix(SUFFIX) {
                records.push(read(&*disk, &path, key)?);
            }
        }
        disk.sync_dir(dir)?;
        Ok((Self { disk, broken: false }, records))
    }

    /// Writes an app. `Ok` means it survives a crash; after an error it is what it was, or nothing
    /// more is changed.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn put(&mut self, record: &AppRecord) -> io::Result<()> {
        self.check()?;
        let new = Path::new(DIR).join(format!("{}{NEW_SUFFIX}", record.key));
        self.write(&new, &record::encode(record))?;
        self.settle(|disk| {
            disk.rename(&new, &path_of(&record.key))?;
            disk.sync_dir(Path::new(DIR))
        })
    }

    /// Removes an app. As [`put`](Self::put).
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn remove(&mut self, key: &AppKey) -> io::Result<()> {
        self.check()?;
        self.settle(|disk| {
            disk.remove(&path_of(key))?;
            disk.sync_dir(Path::new(DIR))
        })
    }

    /// Whether the administrator's token stands in its file.
    pub(crate) fn has_token(&self) -> io::Result<bool> {
        Ok(self.disk.list(Path::new(""))?.iter().any(|name| name == TOKEN))
    }

    /// Puts the administrator's new token down beside the old one. It counts once the app itself is
    /// written; then comes [`place_token`](Self::place_token).
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn prepare_token(&mut self, token: &str) -> io::Result<()> {
        self.check()?;
        self.write(Path::new(TOKEN_NEW), format!("{token}\n").as_bytes())?;
        self.disk.sync_dir(Path::new(""))
    }

    /// Puts the token in its place.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn place_token(&self) -> io::Result<()> {
        self.disk.rename(Path::new(TOKEN_NEW), Path::new(TOKEN))?;
        self.disk.sync_dir(Path::new(""))
    }

    /// After a crash: a token that counts is put in its place, another one is removed.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn finish_token(&self, counts: impl FnOnce(&str) -> bool) -> io::Result<()> {
        let file = match self.disk.open(Path::new(TOKEN_NEW), Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let length = usize::try_from(file.len()?.min(FILE_BYTES_MAX)).unwrap_or(0);
        let text = String::from_utf8(read_exact(&*file, 0, length)?).unwrap_or_default();
        match text.strip_suffix('\n') {
            Some(token) if counts(token) => self.place_token(),
            _ => {
                self.disk.remove(Path::new(TOKEN_NEW))?;
                self.disk.sync_dir(Path::new(""))
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        match self.broken {
            true => {
                Err(io::Error::other("the files of the apps could not be made certain earlier"))
            }
            false => Ok(()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.disk.open(path, Open::Create)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync()
    }

    /// Changes names; whether one holds is not known after an error.
    fn settle(&mut self, change: impl FnOnce(&dyn Disk) -> io::Result<()>) -> io::Result<()> {
        let outcome = change(&*self.disk);
        self.broken = outcome.is_err();
        outcome
    }
}

fn path_of(key: &AppKey) -> PathBuf {
    Path::new(DIR).join(format!("{key}{SUFFIX}"))
}

fn read(disk: &dyn Disk, path: &Path, key: &str) -> io::Result<AppRecord> {
    let refused = |reason: String| {
        let text = format!("the app in {}: {reason}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let file = disk.open(path, Open::Existing)?;
    let length = file.len()?;
    if length > FILE_BYTES_MAX {
        return Err(refused("it is damaged".to_owned()));
    }
    let bytes = read_exact(&*file, 0, usize::try_from(length).unwrap_or(usize::MAX))?;
    let record = record::decode(&bytes).map_err(|error| refused(error.to_string()))?;
    match record.key.as_str() == key {
        true => Ok(record),
        false => Err(refused("it is that of another app".to_owned())),
    }
}

#[cfg(test)]
mod tests;
