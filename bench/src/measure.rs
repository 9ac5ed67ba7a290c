//! What the operating system says of this process and of the disk.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use punctual_model::{Clock as _, SystemClock};
use rustix::time::{ClockId, clock_gettime};

use crate::random::Random;

/// CPU time of this process so far, user and system together.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// User and system time out of a `stat` file below `/proc`.
fn stat_times(path: &Path) -> Result<(String, Duration, Duration)> {
    let text = fs::read_to_string(path)?;
    let (front, rest) = text.rsplit_once(')').context("no name in stat")?;
    let name = front.split_once('(').context("no name in stat")?.1.to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |index: usize| -> Result<Duration> {
        let ticks: u64 = fields.get(index).context("a short stat")?.parse()?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Ok(Duration::from_millis(ticks * 1000 / per_second))
    };
    Ok((name, ticks(11)?, ticks(12)?))
}

/// User and system time of a process so far; in steps of about 10 ms.
pub(crate) fn cpu_of(pid: u32) -> Result<(Duration, Duration)> {
    let (_, user, system) = stat_times(Path::new(&format!("/proc/{pid}/stat")))?;
    Ok((user, system))
}

/// CPU time of each thread of this process that is alive, by name.
pub(crate) fn threads() -> Vec<(String, f64)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let stats = tasks.filter_map(|task| stat_times(&task.ok()?.path().join("stat")).ok());
    let mut threads: Vec<(String, f64)> =
        stats.map(|(name, user, system)| (name, (user + system).as_secs_f64())).collect();
    threads.sort_by(|a, b| a.0.cmp(&b.0));
    threads
}

/// How much CPU time the machine and this program had used at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    clock: Arc<SystemClock>,
    machine: f64,
    ours: f64,
}

impl Default for Surroundings {
    fn default() -> Self {
        let (machine, ours) = (machine_seconds(), our_seconds());
        Self { clock: Arc::new(SystemClock::new()), machine, ours }
    }
}

impl Surroundings {
    /// How many cores other programs have kept busy since then.
    pub(crate) fn cores_used_by_others(&self) -> f64 {
        let others = (machine_seconds() - self.machine) - (our_seconds() - self.ours);
        others.max(0.0) / self.clock.read().monotonic.as_secs_f64().max(1e-3)
    }
}

fn machine_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let fields: Vec<f64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    // The fourth is idle, the fifth idle while waiting for the disk.
    let idle: f64 = fields.iter().skip(3).take(2).sum();
    (fields.iter().sum::<f64>() - idle) / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// This process and its children that have ended.
fn our_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let ticks: f64 = fields.skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

pub(crate) fn memory_of(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Memory {
        now: field("VmRSS:").unwrap_or_default() * 1024,
        peak: field("VmHWM:").unwrap_or_default() * 1024,
    }
}

/// Bytes this process caused to be sent to the disk.
pub(crate) fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
}

/// Allocated bytes of everything below `dir`.
pub(crate) fn allocated(dir: &Path) -> u64 {
    // Files come and go while a store runs; one that is gone takes no room.
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok()?;
        let below = if metadata.is_dir() { allocated(&entry.path()) } else { 0 };
        Some(metadata.blocks() * 512 + below)
    });
    sizes.sum()
}

/// Refuses when there are fewer than `needed` bytes free at `dir`.
pub(crate) fn require_free(dir: &Path, needed: u64) -> Result<()> {
    let space = rustix::fs::statvfs(dir).with_context(|| format!("{}", dir.display()))?;
    let free = space.f_bavail * space.f_frsize;
    ensure!(
        free >= needed,
        "this needs about {} MB of free disk at {} and there are {} MB; \
         ask for less, or name another directory with --data",
        needed >> 20,
        dir.display(),
        free >> 20
    );
    Ok(())
}

/// Sequential write bandwidth at `dir`, in bytes a second: 1 MiB written and synced at a time, for
/// two seconds.
pub(crate) fn bandwidth(dir: &Path) -> Result<f64> {
    let path = dir.join("bandwidth.probe");
    let mut file = fs::File::create(&path)?;
    let piece = Random::new(7).bytes(1 << 20);
    let clock = SystemClock::new();
    let mut bytes = 0.0;
    while clock.read().monotonic < Duration::from_secs(2) {
        file.write_all(&piece)?;
        file.sync_data()?;
        bytes += (1 << 20) as f64;
    }
    let seconds = clock.read().monotonic.as_secs_f64();
    drop(file);
    fs::remove_file(&path)?;
    Ok(bytes / seconds)
}

/// How long things took, to the microsecond.
#[derive(Clone, Debug)]
pub(crate) struct Latency(Histogram<u64>);

/// The points of a distribution that are shown.
pub(crate) const POINTS: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

impl Latency {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Self(histogram.expect("the bounds of an hour are legal"))
    }

    pub(crate) fn note(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many were noted.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The values at [`POINTS`], in milliseconds.
    pub(crate) fn millis(&self) -> Vec<f64> {
        let at = |(_, quantile): (&str, f64)| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        POINTS.into_iter().map(at).collect()
    }
}
