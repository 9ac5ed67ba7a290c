//! Figures in the data directory: one file for what was counted, and one for the points of each day,
//! a line a point.
//!
//! The first is written beside the old one and put in its place. Lines are appended; one that is to
//! be replaced is so with its whole file. Every line has a checksum: what is damaged, or was cut off
//! by a crash, is left out and hides nothing else, and never keeps a server from starting.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_engine::disk::{Disk, Open, is_full, read_exact};
use punctual_model::ports::{Keeping, StoreError, StoredPoint, Trends};
use punctual_model::{Span, Timestamp};
use sha2::{Digest as _, Sha256};
use tracing::warn;

const DIR: &str = "trends";
const TOTALS_PREFIX: &str = "totals.";
const DAY_SUFFIX: &str = ".ndjson";
/// A file that is not in its place yet.
const NEW_SUFFIX: &str = ".new";
/// Largest file that is read; none that is written comes near.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Hex digits of the checksum of a line.
const SUM_CHARS: usize = 16;

/// The files.
#[derive(Debug)]
pub(crate) struct TrendFiles {
    disk: Arc<dyn Disk>,
    /// Days that were written to.
    days: Mutex<HashMap<String, Day>>,
}

/// A file that is appended to.
#[derive(Debug, Default)]
struct Day {
    /// Where the next line begins: whatever is behind it was cut off by a crash.
    end: u64,
    /// The points that it has.
    points: Vec<(Timestamp, Arc<str>)>,
}

impl TrendFiles {
    /// Opens the directory. Blocks on the disk.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> io::Result<Self> {
        let dir = Path::new(DIR);
        disk.create_dir(dir)?;
        disk.sync_dir(Path::new(""))?;
        for name in disk.list(dir)?.iter().filter(|name| name.ends_with(NEW_SUFFIX)) {
            // A crash came before it was in its place.
            disk.remove(&dir.join(name))?;
        }
        Ok(Self { disk, days: Mutex::default() })
    }

    /// Puts a file in the place of another.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (new, path) = (Path::new(DIR).join(format!("{name}{NEW_SUFFIX}")), path_of(name));
        let file = self.disk.open(&new, Open::Create)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        self.disk.rename(&new, &path)?;
        self.disk.sync_dir(Path::new(DIR))
    }

    /// The bytes of a file; none where there is none.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = match self.disk.open(&path_of(name), Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let length = file.len()?;
        if length > FILE_BYTES_MAX {
            warn!(file = name, "a file of the trends is far too large; it is not read");
            return Ok(Vec::new());
        }
        read_exact(&*file, 0, usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn read_totals(&self) -> io::Result<Vec<(Arc<str>, Bytes)>> {
        let mut totals = Vec::new();
        for name in self.disk.list(Path::new(DIR))? {
            let Some(node) = name.strip_prefix(TOTALS_PREFIX) else { continue };
            match whole(&self.read(&name)?) {
                Some(content) => totals.push((node.into(), content)),
                None => warn!(file = name, "what was counted is damaged; counting begins anew"),
            }
        }
        Ok(totals)
    }

    fn put(&self, point: &StoredPoint) -> io::Result<()> {
        let name = day_of(point.at);
        let mut days = self.days.lock();
        // Only the day that is written to is kept in mind, and after an error not even that.
        let mut day = match days.remove(&name) {
            Some(day) => day,
            None => self.look_at(&name)?,
        };
        days.clear();
        let line = line_of(point);
        let key = (point.at, Arc::clone(&point.node));
        if day.points.contains(&key) {
            let bytes = self.read(&name)?;
            let others = lines(&bytes).filter(|known| (known.at, &known.node) != (key.0, &key.1));
            let mut text: String = others.map(|known| line_of(&known)).collect();
            text.push_str(&line);
            self.replace(&name, text.as_bytes())?;
            day.end = text.len() as u64;
        } else {
            let file = self.disk.open(&path_of(&name), Open::Create)?;
            file.set_len(day.end)?;
            file.write_at(line.as_bytes(), day.end)?;
            file.sync()?;
            if day.end == 0 {
                self.disk.sync_dir(Path::new(DIR))?;
            }
            day.end += line.len() as u64;
            day.points.push(key);
        }
        days.insert(name, day);
        Ok(())
    }

    fn look_at(&self, name: &str) -> io::Result<Day> {
        let bytes = self.read(name)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let points = lines(&bytes).map(|point| (point.at, point.node)).collect();
        Ok(Day { end: end as u64, points })
    }

    fn read_points(&self, from: Timestamp, until: Timestamp) -> io::Result<Vec<StoredPoint>> {
        let mut points = Vec::new();
        for name in self.disk.list(Path::new(DIR))? {
            let Some((start, end)) = span_of(&name) else { continue };
            if start < until && from < end {
                let bytes = self.read(&name)?;
                points.extend(lines(&bytes).filter(|point| (from..until).contains(&point.at)));
            }
        }
        points.sort_by(|a, b| (a.at, &a.node).cmp(&(b.at, &b.node)));
        Ok(points)
    }

    fn remove_before(&self, before: Timestamp) -> io::Result<()> {
        let names = self.disk.list(Path::new(DIR))?;
        for name in names.iter().filter(|name| span_of(name).is_some_and(|(_, end)| end <= before))
        {
            self.disk.remove(&path_of(name))?;
        }
        Ok(())
    }
}

impl Trends for TrendFiles {
    fn put_totals(&self, node: Arc<str>, content: Bytes) -> Keeping<'_, ()> {
        Box::pin(async move {
            let mut bytes = content.to_vec();
            let sum = hex(&Sha256::digest(&bytes));
            bytes.push(b'\n');
            bytes.extend_from_slice(sum.as_bytes());
            bytes.push(b'\n');
            self.replace(&format!("{TOTALS_PREFIX}{node}"), &bytes).map_err(refusal)
        })
    }

    fn totals(&self) -> Keeping<'_, Vec<(Arc<str>, Bytes)>> {
        Box::pin(async move { self.read_totals().map_err(refusal) })
    }

    fn put_point(&self, point: StoredPoint) -> Keeping<'_, ()> {
        Box::pin(async move { self.put(&point).map_err(refusal) })
    }

    fn points(&self, from: Timestamp, until: Timestamp) -> Keeping<'_, Vec<StoredPoint>> {
        Box::pin(async move { self.read_points(from, until).map_err(refusal) })
    }

    fn forget(&self, before: Timestamp) -> Keeping<'_, ()> {
        Box::pin(async move { self.remove_before(before).map_err(refusal) })
    }
}

fn refusal(error: io::Error) -> StoreError {
    match is_full(&error) {
        true => StoreError::Full,
        false => StoreError::Unavailable(format!("the files of the trends: {error}").into()),
    }
}

fn path_of(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The file of a day, by its date in UTC.
fn day_of(time: Timestamp) -> String {
    let text = time.to_string();
    let (day, _) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day}{DAY_SUFFIX}")
}

/// The day of a file.
fn span_of(name: &str) -> Option<(Timestamp, Timestamp)> {
    let day = name.strip_suffix(DAY_SUFFIX)?;
    let start: Timestamp = format!("{day}T00:00:00Z").parse().ok()?;
    Some((start, start.saturating_add(Span::from_days(1))))
}

fn line_of(StoredPoint { at, node, content }: &StoredPoint) -> String {
    let content = String::from_utf8_lossy(content);
    let rest = format!("\"at\":{},\"node\":\"{node}\",\"point\":{content}", at.as_millis());
    format!("{{\"sum\":\"{}\",{rest}}}\n", sum_of(&rest))
}

/// The lines that are whole.
fn lines(bytes: &[u8]) -> impl Iterator<Item = StoredPoint> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    whole.filter_map(|line| {
        let read = std::str::from_utf8(line).ok().and_then(read_line);
        if read.is_none() {
            warn!("a point of the trends is damaged, or was cut off; it is left out");
        }
        read
    })
}

fn read_line(line: &str) -> Option<StoredPoint> {
    let rest = line.strip_prefix("{\"sum\":\"")?.strip_suffix("}\n")?;
    let (sum, rest) = rest.split_at_checked(SUM_CHARS)?;
    let rest = rest.strip_prefix("\",")?;
    if sum != sum_of(rest) {
        return None;
    }
    let (at, rest) = rest.strip_prefix("\"at\":")?.split_once(",\"node\":\"")?;
    let (node, content) = rest.split_once("\",\"point\":")?;
    Some(StoredPoint {
        at: Timestamp::from_millis(at.parse().ok()?)?,
        node: node.into(),
        content: Bytes::copy_from_slice(content.as_bytes()),
    })
}

/// The content before its checksum, if that is right.
fn whole(bytes: &[u8]) -> Option<Bytes> {
    let end = bytes.strip_suffix(b"\n")?;
    let place = end.iter().rposition(|byte| *byte == b'\n')?;
    let (content, sum) = (end.get(..place)?, end.get(place + 1..)?);
    (hex(&Sha256::digest(content)).as_bytes() == sum).then(|| Bytes::copy_from_slice(content))
}

fn sum_of(text: &str) -> String {
    let mut sum = hex(&Sha256::digest(text));
    sum.truncate(SUM_CHARS);
    sum
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use punctual_engine::disk::RealDisk;

    use super::*;

    fn files(directory: &tempfile::TempDir) -> TrendFiles {
        TrendFiles::open(Arc::new(RealDisk::new(directory.path()).unwrap())).unwrap()
    }

    fn now<T>(work: Keeping<'_, T>) -> T {
        work.now_or_never().expect("files are there at once").unwrap()
    }

    fn point(time: &str, content: &str) -> StoredPoint {
        let at = format!("2030-01-{time}:00Z").parse().unwrap();
        StoredPoint {
            at,
            node: "single".into(),
            content: Bytes::copy_from_slice(content.as_bytes()),
        }
    }

    fn all(files: &TrendFiles) -> Vec<StoredPoint> {
        now(files.points(Timestamp::MIN, Timestamp::MAX))
    }

    #[test]
    fn files_keep_to_the_contract() {
        let made = std::cell::RefCell::new(Vec::new());
        punctual_testkit::conformance::trends(|| {
            let directory = tempfile::tempdir().unwrap();
            let files = files(&directory);
            made.borrow_mut().push(directory);
            files
        });
    }

    #[test]
    fn a_line_that_was_cut_off_is_skipped_and_cut_away() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (point("05T10:00", "{\"a\":1}"), point("05T10:10", "{\"a\":2}"));
        now(files(&directory).put_point(first.clone()));
        let path = directory.path().join("trends/2030-01-05.ndjson");
        let mut bytes = std::fs::read(&path).unwrap();
        for cut in 1..bytes.len() {
            let whole = bytes.len();
            bytes.extend_from_within(..cut);
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(all(&files(&directory)), std::slice::from_ref(&first), "cut at {cut}");
            bytes.truncate(whole);
        }
        let opened = files(&directory);
        now(opened.put_point(second.clone()));
        assert_eq!(all(&opened), [first, second]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    }

    #[test]
    fn a_damaged_line_hides_only_itself() {
        let directory = tempfile::tempdir().unwrap();
        let opened = files(&directory);
        let points: Vec<StoredPoint> =
            ["05T10:00", "05T10:10", "05T10:20"].map(|time| point(time, "{\"n\":123}")).into();
        points.iter().for_each(|point| now(opened.put_point(point.clone())));
        let path = directory.path().join("trends/2030-01-05.ndjson");
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().nth(1).unwrap();
        std::fs::write(&path, text.replace(line, &line.replace("123", "124"))).unwrap();
        let opened = files(&directory);
        assert_eq!(all(&opened), [points[0].clone(), points[2].clone()]);
        // It can be written again.
        now(opened.put_point(points[1].clone()));
        assert_eq!(all(&opened), points);
    }

    #[test]
    fn damaged_totals_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let opened = files(&directory);
        now(opened.put_totals("single".into(), Bytes::from_static(b"{\"x\":1}")));
        assert_eq!(now(opened.totals()).len(), 1);
        let path = directory.path().join("trends/totals.single");
        for bytes in [&b""[..], b"\n", b"{\"x\":2}\n0000\n", &[0xff; 100], b"no end"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(now(files(&directory).totals()).is_empty(), "{bytes:?}");
        }
        std::fs::write(directory.path().join("trends/totals.single.new"), b"half").unwrap();
        now(files(&directory).put_totals("single".into(), Bytes::from_static(b"{}")));
        assert_eq!(now(files(&directory).totals()), [("single".into(), Bytes::from_static(b"{}"))]);
    }

    #[test]
    fn old_days_go_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let opened = files(&directory);
        let points = ["04T23:50", "05T00:00", "06T12:00"].map(|time| point(time, "{}"));
        points.iter().for_each(|point| now(opened.put_point(point.clone())));
        std::fs::write(directory.path().join("trends/notes.txt"), b"mine").unwrap();
        now(opened.forget(points[1].at));
        assert_eq!(all(&opened), points[1..]);
        now(opened.forget(points[2].at));
        assert_eq!(all(&opened), points[2..]);
        assert!(directory.path().join("trends/notes.txt").exists());
        now(opened.put_point(points[0].clone()));
        assert_eq!(all(&opened).len(), 2, "a day that went may come again");
    }
}
