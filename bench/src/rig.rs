//! A broker over a store in a directory of its own, with somebody watching what comes out.
//!
//! The watcher stands where the outlet stands, hands everything on to the store's own logs, and
//! reads the wall clock after they have taken it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::{Condvar, Mutex};
use punctual_broker::{Broker, Options as BrokerOptions, Parts};
use punctual_engine::disk::RealDisk;
use punctual_engine::{Engine, Options};
use punctual_model::ports::{Armed, Groups, Outlet, Records, StoreError, Topics, Untaken};
use punctual_model::{Clock, SystemClock, Timestamp, TopicId};
use tempfile::TempDir;

use crate::args::Common;
use crate::measure::{self, Latency};
use crate::report::say;

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Place {
    /// A fresh directory where `needed` bytes are free.
    pub(crate) fn fresh(common: &Common, needed: u64) -> Result<Self> {
        let base = common.data.clone().unwrap_or_else(std::env::temp_dir);
        std::fs::create_dir_all(&base).with_context(|| format!("{}", base.display()))?;
        measure::require_free(&base, needed)?;
        let temporary = tempfile::Builder::new().prefix("punctual-bench-").tempdir_in(&base)?;
        let path = temporary.path().to_path_buf();
        if common.keep {
            say(&format!("data stays in {}", path.display()));
            return Ok(Self { path: temporary.keep(), temporary: None });
        }
        Ok(Self { path, temporary: Some(temporary) })
    }

    /// A directory that is there already, and stays.
    pub(crate) fn existing(path: &Path) -> Self {
        Self { path: path.to_path_buf(), temporary: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory, unless it is to stay.
    pub(crate) fn clear(self) -> Result<()> {
        self.temporary.map_or(Ok(()), TempDir::close).context("the data could not be removed")
    }
}

/// Bytes of disk that `count` messages with bodies of `body` bytes need at most.
pub(crate) fn disk_needed(count: u64, body: usize) -> u64 {
    // Runs while they are merged, the journal, the logs and the reserve.
    count * (body as u64 + 64) * 2 + (1 << 30)
}

/// A running broker.
pub(crate) struct Rig {
    pub(crate) broker: Broker<Engine>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) engine: Arc<Engine>,
}

impl Rig {
    pub(crate) fn open(dir: &Path, common: &Common) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = Options { durability: common.durability.into(), ..Options::default() };
        let disk = Arc::new(RealDisk::new(dir)?);
        let engine = Arc::new(Engine::open(disk, options, Arc::clone(&clock))?);
        let watch = Arc::new(Watch::new(Arc::clone(&engine)));
        let topics: Arc<dyn Topics> = Arc::<Engine>::clone(&engine);
        let groups: Arc<dyn Groups> = Arc::<Engine>::clone(&engine);
        let records: Arc<dyn Records> = Arc::<Engine>::clone(&engine);
        let (timeline, outlet) = (Arc::clone(&engine), Arc::clone(&watch));
        let parts = Parts { timeline, outlet, topics, groups, records: Some(records), clock };
        let broker = Broker::start(BrokerOptions::default(), parts)?;
        Ok(Self { broker, watch, engine })
    }

    /// Stops as the server does.
    pub(crate) fn close(self) -> Result<()> {
        self.broker.stop();
        self.engine.close();
        self.engine.check()?;
        let damaged = self.engine.store().damaged_blocks();
        ensure!(damaged == 0, "{damaged} blocks could not be read");
        Ok(())
    }
}

/// Sees what comes out, and when.
#[derive(Debug)]
pub(crate) struct Watch {
    engine: Arc<Engine>,
    clock: SystemClock,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// Only what comes out in this topic is looked at, if one is named.
    only: Mutex<Option<TopicId>>,
}

/// What came out since the last look.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) count: u64,
    /// What came out in topics that are not looked at, and the wall clock after the last of it.
    pub(crate) others: (u64, Duration),
    pub(crate) lateness: Latency,
    /// The least lateness, in milliseconds; below zero something was early.
    pub(crate) least_ms: f64,
    /// The wall clock after the first and after the last append.
    pub(crate) first: Option<Duration>,
    pub(crate) last: Duration,
    /// The greatest lateness in milliseconds by the second, counted from the first append.
    pub(crate) worst_ms: Vec<f64>,
}

impl Seen {
    fn nothing() -> Self {
        Self {
            count: 0,
            others: (0, Duration::ZERO),
            lateness: Latency::new(),
            least_ms: f64::INFINITY,
            first: None,
            last: Duration::ZERO,
            worst_ms: Vec::new(),
        }
    }

    fn note<'a>(&mut self, batch: impl Iterator<Item = &'a Armed>, wall: Duration) {
        let (mut worst, before) = (0f64, self.count);
        for armed in batch {
            self.count += 1;
            let due = Duration::from_millis(armed.key.due.as_millis());
            let late_ms = (wall.as_secs_f64() - due.as_secs_f64()) * 1e3;
            self.least_ms = self.least_ms.min(late_ms);
            worst = worst.max(late_ms);
            self.lateness.note(wall.saturating_sub(due));
        }
        if self.count == before {
            return;
        }
        let first = *self.first.get_or_insert(wall);
        let second = usize::try_from(wall.saturating_sub(first).as_secs()).unwrap_or_default();
        if self.worst_ms.len() <= second {
            self.worst_ms.resize(second + 1, 0.0);
        }
        self.worst_ms[second] = self.worst_ms[second].max(worst);
        self.last = wall;
    }
}

impl Watch {
    fn new(engine: Arc<Engine>) -> Self {
        let seen = Mutex::new(Seen::nothing());
        let (clock, changed, only) = (SystemClock::new(), Condvar::new(), Mutex::default());
        Self { engine, clock, seen, changed, only }
    }

    /// From now on only this topic is looked at; what was seen so far is forgotten.
    pub(crate) fn look_at(&self, topic: TopicId) {
        *self.only.lock() = Some(topic);
        *self.seen.lock() = Seen::nothing();
    }

    /// Waits until `count` have come out. False when that takes longer than `wait_max`.
    pub(crate) fn wait_for(&self, count: u64, wait_max: Duration) -> bool {
        let mut seen = self.seen.lock();
        let enough = |seen: &mut Seen| seen.count < count;
        !self.changed.wait_while_for(&mut seen, enough, wait_max).timed_out()
    }

    /// The same for what comes out in topics that are not looked at.
    pub(crate) fn wait_for_others(&self, count: u64, wait_max: Duration) -> bool {
        let mut seen = self.seen.lock();
        let enough = |seen: &mut Seen| seen.others.0 < count;
        !self.changed.wait_while_for(&mut seen, enough, wait_max).timed_out()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Outlet for Watch {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        let untaken = self.engine.deliver(batch, now).await?;
        let wall = self.clock.read().wall;
        let only = *self.only.lock();
        let counts = |armed: &&Armed| only.is_none_or(|topic| armed.topic == topic);
        let others = batch.iter().filter(|armed| !counts(armed)).count() as u64;
        let mut seen = self.seen.lock();
        seen.note(batch.iter().filter(counts), wall);
        if others > 0 {
            seen.others = (seen.others.0 + others, wall);
        }
        drop(seen);
        self.changed.notify_all();
        Ok(untaken)
    }
}

/// Lets `time` pass.
pub(crate) fn pause(time: Duration) {
    let never = Mutex::new(());
    Condvar::new().wait_for(&mut never.lock(), time);
}
