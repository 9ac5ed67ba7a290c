//! The record of who changed what, as files in the data directory: one JSON object a line, numbered.
//!
//! An entry is on disk when it is acknowledged. The record is bounded: past a size a new file is
//! begun, and past a number of files the oldest goes. A line that a crash cut off was never
//! acknowledged, and is cut away at the next start. After a failed write nothing more is taken down,
//! and so nothing is changed any more that would have to be.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_broker::audit::{Entry, Sink};
use punctual_engine::disk::{Disk, DiskFile, Open, read_exact};
use punctual_model::TopicName;
use serde_json::{Value, json};

const DIR: &str = "audit";
/// Past this size a new file is begun.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// More files than this are never kept.
const FILES_MAX: usize = 16;
/// Most bytes of entries in one answer; the last one may pass it.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The record.
#[derive(Debug)]
pub(crate) struct AuditRecord {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The numbers of the first entries of all files, in order; the last file is written to.
    files: Vec<u64>,
    last: Arc<dyn DiskFile>,
    last_bytes: u64,
    /// The number of the next entry.
    next: u64,
    /// A write failed: what is on disk is not known any more.
    broken: bool,
}

/// A part of the record.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The newest first.
    pub(crate) entries: Vec<Entry>,
    /// What to ask for the next part with; `None` when there is none.
    pub(crate) next: Option<u64>,
}

impl AuditRecord {
    /// Opens the record, or begins one. Blocks on the disk.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> io::Result<Self> {
        disk.create_dir(Path::new(DIR))?;
        disk.sync_dir(Path::new(""))?;
        let mut files: Vec<u64> =
            disk.list(Path::new(DIR))?.iter().filter_map(|name| number_of(name)).collect();
        files.sort_unstable();
        let first = match files.last() {
            Some(first) => *first,
            None => {
                files.push(0);
                0
            }
        };
        let last = disk.open(&path_of(first), Open::Create)?;
        let bytes = whole(&*last)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let lines = bytes.iter().take(end).filter(|byte| **byte == b'\n').count();
        let last_bytes = end as u64;
        if end < bytes.len() {
            last.set_len(last_bytes)?;
        }
        last.sync()?;
        disk.sync_dir(Path::new(DIR))?;
        let next = first.saturating_add(lines as u64);
        let state = State { files, last, last_bytes, next, broken: false };
        Ok(Self { disk, state: Mutex::new(state) })
    }

    /// Entries older than the number `before`, of one topic or of all. Blocks on the disk.
    pub(crate) fn read(
        &self,
        before: Option<u64>,
        limit: usize,
        topic: Option<&TopicName>,
    ) -> io::Result<Page> {
        let (files, next) = {
            let state = self.state.lock();
            (state.files.clone(), state.next)
        };
        let mut before = before.unwrap_or(next).min(next);
        let mut page = Page::default();
        let mut page_bytes = 0;
        for first in files.into_iter().rev().filter(|first| *first < next) {
            if first >= before {
                continue;
            }
            let bytes = match self.disk.open(&path_of(first), Open::Existing) {
                Ok(file) => whole(&*file)?,
                // The oldest file went meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let wanted = usize::try_from(before - first).unwrap_or(usize::MAX);
            for (place, line) in lines.iter().enumerate().take(wanted).rev() {
                before = first + place as u64;
                // A line that cannot be read hides nothing but itself.
                let Some(entry) = decode(line) else { continue };
                if topic.is_some() && entry.topic.as_ref() != topic {
                    continue;
                }
                page_bytes += line.len();
                page.entries.push(entry);
                if page.entries.len() == limit || page_bytes >= PAGE_BYTES_MAX {
                    page.next = Some(before).filter(|before| *before > self.oldest());
                    return Ok(page);
                }
            }
            before = first;
        }
        Ok(page)
    }

    fn oldest(&self) -> u64 {
        self.state.lock().files.first().copied().unwrap_or(0)
    }

    /// Begins a new file, and lets the oldest go.
    fn roll(&self, state: &mut State) -> io::Result<()> {
        let dir = Path::new(DIR);
        state.last = self.disk.open(&path_of(state.next), Open::Create)?;
        state.last.set_len(0)?;
        self.disk.sync_dir(dir)?;
        state.last_bytes = 0;
        state.files.push(state.next);
        while state.files.len() > FILES_MAX {
            self.disk.remove(&path_of(state.files.remove(0)))?;
        }
        Ok(())
    }
}

impl Sink for AuditRecord {
    fn append(&self, entry: &Entry) -> io::Result<()> {
        let line = encode(entry);
        let mut state = self.state.lock();
        if state.broken {
            return Err(io::Error::other("a write to the record failed earlier"));
        }
        // Cleared when everything has worked; a file that could not be synced is not trusted.
        state.broken = true;
        if state.last_bytes >= FILE_BYTES_MAX {
            self.roll(&mut state)?;
        }
        state.last.write_at(line.as_bytes(), state.last_bytes)?;
        state.last.sync()?;
        state.last_bytes += line.len() as u64;
        state.next += 1;
        state.broken = false;
        Ok(())
    }
}

fn path_of(first: u64) -> PathBuf {
    let mut name = String::new();
    write!(name, "{first:020}.ndjson").expect("writing to a string cannot fail");
    Path::new(DIR).join(name)
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".ndjson")?.parse().ok()
}

fn whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    read_exact(file, 0, length)
}

fn encode(entry: &Entry) -> String {
    let details: Vec<[&str; 2]> =
        entry.details.iter().map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    let line = json!({
        "at": entry.at.as_millis(),
        "who": &*entry.who,
        "what": entry.what,
        "topic": entry.topic.as_ref().map(TopicName::as_str),
        "details": details,
    });
    format!("{line}\n")
}

fn decode(line: &[u8]) -> Option<Entry> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let detail = |pair: &Value| Some((text(pair.get(0)?)?, text(pair.get(1)?)?));
    Some(Entry {
        at: punctual_model::Timestamp::from_millis(value.get("at")?.as_u64()?)?,
        who: value.get("who")?.as_str()?.into(),
        what: text(value.get("what")?)?,
        topic: value.get("topic")?.as_str().and_then(|name| TopicName::new(name).ok()),
        details: value.get("details")?.as_array()?.iter().filter_map(detail).collect(),
    })
}

#[cfg(test)]
mod tests {
    use punctual_engine::disk::RealDisk;
    use punctual_model::Timestamp;

    use super::*;

    fn entry(number: u64, topic: Option<&str>) -> Entry {
        Entry {
            at: Timestamp::from_millis(number).unwrap(),
            who: "local".into(),
            what: format!("change {number}"),
            topic: topic.map(|name| TopicName::new(name).unwrap()),
            details: vec![("a \"b\"\n".to_owned(), "x".repeat(100_000))],
        }
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.entries.iter().map(|entry| entry.at.as_millis()).collect()
    }

    fn all(record: &AuditRecord, limit: usize) -> Vec<u64> {
        let (mut read, mut before) = (Vec::new(), None);
        loop {
            let page = record.read(before, limit, None).unwrap();
            read.extend(numbers(&page));
            before = page.next;
            if before.is_none() {
                return read;
            }
        }
    }

    #[test]
    fn g48_what_was_taken_down_is_there_after_a_restart_newest_first() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(directory.path()).unwrap());
        let record = AuditRecord::open(disk.clone()).unwrap();
        assert!(record.read(None, 10, None).unwrap().entries.is_empty());
        for number in 0..100 {
            let topic = if number % 2 == 0 { "even" } else { "odd" };
            record.append(&entry(number, Some(topic))).unwrap();
        }
        let newest_first: Vec<u64> = (0..100).rev().collect();
        assert_eq!(all(&record, 7), newest_first);
        drop(record);
        let record = AuditRecord::open(disk).unwrap();
        record.append(&entry(100, None)).unwrap();
        assert_eq!(all(&record, 1000).len(), 101);
        let even = TopicName::new("even").unwrap();
        let page = record.read(None, 3, Some(&even)).unwrap();
        assert_eq!(numbers(&page), [98, 96, 94]);
        let page = record.read(page.next, 3, Some(&even)).unwrap();
        assert_eq!(numbers(&page), [92, 90, 88]);
        assert_eq!(record.read(None, 1, None).unwrap().entries[0].details, entry(1, None).details);
    }

    #[test]
    fn a_line_that_was_cut_off_is_cut_away() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(directory.path()).unwrap());
        let record = AuditRecord::open(disk.clone()).unwrap();
        record.append(&entry(0, None)).unwrap();
        let file = disk.open(&path_of(0), Open::Existing).unwrap();
        file.write_at(b"{\"at\":", file.len().unwrap()).unwrap();
        let record = AuditRecord::open(disk).unwrap();
        record.append(&entry(1, None)).unwrap();
        assert_eq!(all(&record, 1), [1, 0]);
    }

    #[test]
    fn the_record_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(directory.path()).unwrap());
        let record = AuditRecord::open(disk.clone()).unwrap();
        let mut large = entry(0, None);
        large.details[0].1 = "x".repeat(2 << 20);
        for _ in 0..50 {
            record.append(&large).unwrap();
        }
        let files = disk.list(Path::new(DIR)).unwrap();
        assert!(files.len() <= FILES_MAX, "{files:?}");
        assert!(all(&record, 1000).len() >= FILES_MAX);
    }
}
