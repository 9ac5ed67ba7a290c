//! The wall clock of one process, set by libfaketime, and what follows from it for each message.
//!
//! Only the wall clock is faked; the monotonic clock of the process goes on. [`Course`] keeps which
//! wall clock held when, and tells from that, and from the promises alone, when a message may and
//! when it must be delivered. Times are microseconds of the machine's true clock since the epoch.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::process::Launch;

/// Where distributions put the library.
const LIBRARIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
];
/// How much later than it must a message may be seen on a busy machine.
const SLACK_MICROS: i64 = 2_000_000;
/// How much a backward step may delay a message beyond that.
const BACKWARD_MICROS: i64 = 1_000_000;
/// A state of the clock that lasts shorter than this may go unnoticed.
const NOTICED_MICROS: i64 = 1_000_000;

/// The library, where it is installed.
pub fn library() -> Option<&'static str> {
    LIBRARIES.iter().copied().find(|path| Path::new(path).exists())
}

/// The machine's true clock, carried by its monotonic one.
#[derive(Clone, Copy, Debug)]
pub struct TrueClock {
    epoch: Duration,
    started: Instant,
}

impl TrueClock {
    pub fn new() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self { epoch, started: Instant::now() }
    }

    pub fn now(&self) -> i64 {
        i64::try_from((self.epoch + self.started.elapsed()).as_micros()).unwrap()
    }
}

/// The faked wall clock: the true one and an offset that a file holds.
#[derive(Debug)]
pub struct FakedClock {
    file: PathBuf,
}

impl FakedClock {
    pub fn new(directory: &Path) -> Self {
        Self { file: directory.join("faketime") }
    }

    /// Sets the offset, at once and as a whole.
    pub fn set(&self, offset: i64) {
        let sign = if offset < 0 { '-' } else { '+' };
        let (whole, part) = (offset.unsigned_abs() / 1_000_000, offset.unsigned_abs() % 1_000_000);
        let draft = self.file.with_extension("new");
        std::fs::write(&draft, format!("{sign}{whole}.{part:06}\n")).unwrap();
        std::fs::rename(&draft, &self.file).unwrap();
    }

    /// The launch of a process that goes by this clock.
    pub fn rule(&self, launch: Launch) -> Launch {
        launch
            .with("LD_PRELOAD", library().unwrap())
            .with("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap())
            .with("FAKETIME_NO_CACHE", "1")
            .with("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .with("NO_FAKE_STAT", "1")
    }
}

/// From when on one state held.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// It may have held from here on, and from `sure` on it did.
    from: i64,
    sure: i64,
    offset: i64,
    /// The broker clock at `from`, if it never stands still.
    broker: i64,
    /// Whether the process ran.
    runs: bool,
    /// Whether the wall clock has ever been stepped back before.
    after_backward: bool,
}

/// What a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So much time from its acceptance on.
    Delay(i64),
    /// The wall clock to show this.
    Date(i64),
}

/// A message in its course: when it was sent, and when the answer came.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub wait: Wait,
    pub sent: i64,
    pub answered: i64,
}

/// The states in the order in which they held.
#[derive(Debug)]
pub struct History(Vec<Stretch>);

impl History {
    pub fn new(now: i64, offset: i64) -> Self {
        let broker = now + offset;
        let (from, sure) = (now, now);
        Self(vec![Stretch { from, sure, offset, broker, runs: false, after_backward: false }])
    }

    fn last(&self) -> Stretch {
        *self.0.last().unwrap()
    }

    pub fn offset(&self) -> i64 {
        self.last().offset
    }

    /// The wall clock is stepped between the times `from` and `sure`.
    pub fn step(&mut self, from: i64, sure: i64, offset: i64) {
        let last = self.last();
        let broker = (last.broker + from - last.from).max(from + offset);
        let after_backward = last.after_backward || offset < last.offset;
        self.0.push(Stretch { from, sure, offset, broker, after_backward, ..last });
    }

    /// The process stops to run, or runs on as it was.
    pub fn run(&mut self, from: i64, sure: i64, runs: bool) {
        let last = self.last();
        let broker = last.broker + from - last.from;
        self.0.push(Stretch { from, sure, broker, runs, ..last });
    }

    /// A new process starts, whose clock knows nothing of the one before.
    pub fn start(&mut self, from: i64, sure: i64) {
        let last = self.last();
        self.0.push(Stretch { from, sure, broker: from + last.offset, runs: true, ..last });
    }

    /// Before this time the message must not be seen; `None` while it never may.
    pub fn earliest(&self, course: &Course) -> Option<i64> {
        let target = self.target(course.wait, course.sent);
        self.reached(target, course.sent, |stretch| stretch.from, 0).map(|(time, _)| time)
    }

    /// By this time the message must be seen; `None` while it need not.
    pub fn latest(&self, course: &Course) -> Option<i64> {
        // A delay counts from the next whole millisecond.
        let target = self.target(course.wait, course.answered + 1000);
        let (time, stretch) =
            self.reached(target, course.answered, |stretch| stretch.sure, NOTICED_MICROS)?;
        let backward = if stretch.after_backward { BACKWARD_MICROS } else { 0 };
        Some(time + SLACK_MICROS + backward)
    }

    /// What the broker clock, or else the wall clock, has to show.
    fn target(&self, wait: Wait, accepted: i64) -> Wait {
        let at = |stretch: &&Stretch| stretch.from <= accepted;
        let stretch = self.0.iter().rev().find(at).unwrap();
        match wait {
            Wait::Delay(delay) => Wait::Delay(stretch.broker + accepted - stretch.from + delay),
            date @ Wait::Date(_) => date,
        }
    }

    /// The first time not before `since` at which a running process shows the target, in a stretch
    /// that goes on for `lasting` behind it.
    fn reached(
        &self,
        target: Wait,
        since: i64,
        begin: impl Fn(&Stretch) -> i64,
        lasting: i64,
    ) -> Option<(i64, Stretch)> {
        for (place, stretch) in self.0.iter().enumerate().filter(|(_, stretch)| stretch.runs) {
            let end = self.0.get(place + 1).map_or(i64::MAX, |next| next.from);
            let shows = match target {
                Wait::Delay(broker) => stretch.from + broker - stretch.broker,
                Wait::Date(wall) => wall - stretch.offset,
            };
            let time = shows.max(begin(stretch)).max(since);
            if time.saturating_add(lasting) < end {
                return Some((time, *stretch));
            }
        }
        None
    }
}
