//! Long work on a group: redriving its dead letters, draining its backlog.
//!
//! Each job has a thread of its own, and only few run at once. What a job has done is durable step
//! by step; the job itself and its report live in memory and end with the process. Reports are
//! bounded: how many are remembered, and how much each of them remembers.

mod redrive;
mod drain;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{GroupError, StoreError};
use punctual_model::{GroupId, MessageId, Timestamp};

use super::Consumer;
use crate::schedule::Invalid;

pub use drain::Drain;
pub use redrive::{Edit, Redrive};

/// Jobs that run at once.
const RUNNING_MAX: usize = 4;
/// Finished jobs of one group that are remembered.
const FINISHED_PER_GROUP_MAX: usize = 16;
/// Finished jobs of all groups that are remembered.
const FINISHED_MAX: usize = 1024;
/// Results that one job remembers: those of its first messages.
const RESULTS_PER_JOB_MAX: usize = 100_000;
/// Results that finished jobs remember together; the oldest lose theirs first.
const RESULTS_MAX: usize = 500_000;
/// Locks of groups that are kept before those that nobody needs are looked for.
const DECIDING_MIN: usize = 1024;
/// How often a job asks again when the store is busy, and how long it waits each time.
const BUSY_TRIES: usize = 1200;
const BUSY_WAIT: Duration = Duration::from_millis(50);

/// The name of a job, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not the name of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a job id")]
pub struct JobIdError;

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(legal) {
            return Err(JobIdError);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_error| JobIdError)
    }
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Sends dead letters again.
    Redrive,
    /// Moves a backlog to another topic.
    Drain,
}

impl JobKind {
    /// The one word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Drain => "drain",
        }
    }
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// At work.
    Running,
    /// Through with everything.
    Done,
    /// Ended early; what it had done stays done.
    Failed(Arc<str>),
}

impl JobState {
    /// The one word for it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed(_) => "failed",
        }
    }
}

/// What became of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The id its sender knows it by.
    pub id: MessageId,
    /// What became of it.
    pub result: MoveResult,
    /// When it is due now, if it was moved.
    pub due: Option<Timestamp>,
}

/// What can become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveResult {
    /// It starts again at attempt 1.
    Redriven,
    /// It is in the other topic.
    Drained,
    /// It was not there, or somebody else was faster.
    Gone,
}

impl MoveResult {
    /// The one word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Redriven => "redriven",
            Self::Drained => "drained",
            Self::Gone => "gone",
        }
    }
}

/// A look at a job.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Its name.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// When it was started.
    pub started: Timestamp,
    /// Messages it has come across so far.
    pub matched: u64,
    /// Messages it has moved.
    pub done: u64,
    /// What became of each message, from the place on that was asked for.
    pub results: Vec<Moved>,
    /// Where the results go on; `None` when there are no more for now.
    pub next: Option<usize>,
    /// Whether there were more results than are remembered.
    pub cut: bool,
}

/// Why a job was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// As many jobs run as may.
    #[error("{RUNNING_MAX} jobs run already; try again when one is done")]
    TooMany,
    /// Only a single message can be edited.
    #[error("an edit needs the id of one message")]
    EditWithoutId,
    /// The edited message would not be accepted.
    #[error("the edited message is refused: {0}")]
    Edit(Invalid),
    /// The time asked for lies too far ahead.
    #[error("{0}")]
    At(Invalid),
    /// Nothing would ever be sent.
    #[error("a rate is at least 1 message a second")]
    NoRate,
    /// The topic to move to is missing, the same, or not one that producers send to.
    #[error("the target must be another topic that exists and that producers may send to")]
    NoTarget,
    /// The group cannot be used.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Group(GroupError::Store(error))
    }
}

impl Consumer {
    /// Sends dead letters again, as a job. Does not block.
    ///
    /// # Errors
    /// See [`JobError`].
    pub fn redrive(&self, order: Redrive) -> Result<JobId, JobError> {
        let core = &self.running.core;
        let now = core.time.read();
        order.check(now.wall_timestamp(), &core.bounds)?;
        let (list, now) = (self.dead_list(), now.timestamp_up());
        let kind = (self.running.id, JobKind::Redrive);
        let work = core.time.activity().begin();
        core.jobs.start(kind, now, move |worker| {
            let _work = work;
            redrive::run(worker, &list, &order, now)
        })
    }

    /// Moves what waits for the group to another topic, as a job. Messages that are with a consumer
    /// or wait for another attempt stay. In the other topic they are new messages, due at once:
    /// key, headers and body are the same, the ids and due times they had are lost.
    ///
    /// # Errors
    /// See [`JobError`].
    pub fn drain(&self, order: &Drain) -> Result<JobId, JobError> {
        let running = Arc::clone(&self.running);
        let (target, max) = (order.target(&running)?, order.max);
        let now = running.core.time.read().timestamp();
        let kind = (running.id, JobKind::Drain);
        let jobs = running.core.jobs.clone();
        let work = running.core.time.activity().begin();
        jobs.start(kind, now, move |worker| {
            let _work = work;
            drain::run(worker, &running, target, max)
        })
    }

    /// A job of this group, with at most `limit` of its results from `after` on.
    #[must_use]
    pub fn job(&self, id: JobId, after: usize, limit: usize) -> Option<JobReport> {
        self.running.core.jobs.report(self.running.id, id, after, limit)
    }

    /// The jobs of this group, the newest first, without their results.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobReport> {
        self.running.core.jobs.list(self.running.id)
    }
}

/// All jobs of a broker.
#[derive(Clone, Default)]
pub(crate) struct Jobs {
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    stopping: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    last_id: u64,
    jobs: BTreeMap<JobId, Arc<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// What is held while it is decided about the dead letters of a group.
    deciding: HashMap<GroupId, Arc<Mutex<()>>>,
}

/// One job, seen from its thread and from outside.
struct Job {
    id: JobId,
    group: GroupId,
    kind: JobKind,
    started: Timestamp,
    progress: Mutex<Progress>,
}

struct Progress {
    state: JobState,
    matched: u64,
    done: u64,
    results: Vec<Moved>,
    cut: bool,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl Jobs {
    /// The lock under which it is decided about the dead letters of a group.
    pub(super) fn deciding(&self, group: GroupId) -> Arc<Mutex<()>> {
        let deciding = &mut self.desk.state.lock().deciding;
        if deciding.len() >= DECIDING_MIN && deciding.len().is_power_of_two() {
            // Nobody holds what nobody else knows.
            deciding.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(deciding.entry(group).or_default())
    }

    /// Runs `work` on a thread of its own.
    fn start(
        &self,
        (group, kind): (GroupId, JobKind),
        now: Timestamp,
        work: impl FnOnce(&Worker) -> Result<(), JobError> + Send + 'static,
    ) -> Result<JobId, JobError> {
        let mut state = self.desk.state.lock();
        if state.stopped {
            return Err(StoreError::Closed.into());
        }
        if state.jobs.values().filter(|job| job.runs()).count() >= RUNNING_MAX {
            return Err(JobError::TooMany);
        }
        state.threads.retain(|thread| !thread.is_finished());
        // Names grow with time, so that one of an earlier process names no job of this one.
        state.last_id = (state.last_id + 1).max(now.as_millis() << 16);
        let id = JobId(state.last_id);
        let job = Arc::new(Job::new(id, group, kind, now));
        let worker = Worker { desk: Arc::clone(&self.desk), job: Arc::clone(&job) };
        let thread = std::thread::Builder::new().name("punctual-job".to_owned());
        let thread = thread.spawn(move || worker.run(work)).map_err(|error| {
            tracing::warn!(%error, "no thread for a job");
            JobError::TooMany
        })?;
        state.threads.push(thread);
        state.jobs.insert(id, job);
        state.forget_old(group);
        Ok(id)
    }

    /// The job, with at most `limit` results from `after` on.
    fn report(&self, group: GroupId, id: JobId, after: usize, limit: usize) -> Option<JobReport> {
        let job = Arc::clone(self.desk.state.lock().jobs.get(&id)?);
        (job.group == group).then(|| job.report(after, limit))
    }

    /// The jobs of a group, the newest first, without their results.
    fn list(&self, group: GroupId) -> Vec<JobReport> {
        let state = self.desk.state.lock();
        let jobs = state.jobs.values().rev().filter(|job| job.group == group);
        jobs.map(|job| job.report(0, 0)).collect()
    }

    /// The group is no more.
    pub(crate) fn forget(&self, group: GroupId) {
        let mut state = self.desk.state.lock();
        state.jobs.retain(|_, job| job.group != group || job.runs());
        state.deciding.remove(&group);
    }

    /// Ends all jobs after the step they are at, and waits for that. No more are started.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut state = self.desk.state.lock();
            state.stopped = true;
            self.desk.stopping.notify_all();
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a job ended by a panic");
            }
        }
    }
}

impl State {
    fn forget_old(&mut self, group: GroupId) {
        let finished = self.jobs.values().rev().filter(|job| !job.runs());
        let all: Vec<JobId> = finished.clone().map(|job| job.id).skip(FINISHED_MAX).collect();
        let own = finished.clone().filter(|job| job.group == group);
        let own: Vec<JobId> = own.map(|job| job.id).skip(FINISHED_PER_GROUP_MAX).collect();
        let mut remembered = 0;
        for job in finished {
            let mut progress = job.progress.lock();
            remembered += progress.results.len();
            if remembered > RESULTS_MAX {
                progress.cut = !progress.results.is_empty() || progress.cut;
                progress.results = Vec::new();
            }
        }
        for id in all.into_iter().chain(own) {
            self.jobs.remove(&id);
        }
    }
}

impl Job {
    fn new(id: JobId, group: GroupId, kind: JobKind, started: Timestamp) -> Self {
        let progress = Progress {
            state: JobState::Running,
            matched: 0,
            done: 0,
            results: Vec::new(),
            cut: false,
        };
        Self { id, group, kind, started, progress: Mutex::new(progress) }
    }

    fn runs(&self) -> bool {
        self.progress.lock().state == JobState::Running
    }

    fn report(&self, after: usize, limit: usize) -> JobReport {
        let progress = self.progress.lock();
        let from = after.min(progress.results.len());
        let until = from.saturating_add(limit).min(progress.results.len());
        JobReport {
            id: self.id,
            kind: self.kind,
            state: progress.state.clone(),
            started: self.started,
            matched: progress.matched,
            done: progress.done,
            results: progress.results[from..until].to_vec(),
            next: (until < progress.results.len()).then_some(until),
            cut: progress.cut,
        }
    }
}

/// What the thread of a job works with.
struct Worker {
    desk: Arc<Desk>,
    job: Arc<Job>,
}

impl Worker {
    fn run(self, work: impl FnOnce(&Self) -> Result<(), JobError>) {
        // A panic must not leave a job that runs for ever.
        let ending = Ending(&self.job);
        let state = match work(&self) {
            Ok(()) => JobState::Done,
            Err(error) => {
                let (job, kind) = (self.job.id, self.job.kind.word());
                tracing::warn!(%job, kind, %error, "a job ended early");
                JobState::Failed(error.to_string().into())
            }
        };
        self.job.progress.lock().state = state;
        drop(ending);
        self.desk.state.lock().forget_old(self.job.group);
    }

    /// Takes down what became of messages.
    fn note(&self, moved: impl IntoIterator<Item = Moved>) {
        let mut progress = self.job.progress.lock();
        for moved in moved {
            progress.matched += 1;
            progress.done += u64::from(moved.result != MoveResult::Gone);
            if progress.results.len() < RESULTS_PER_JOB_MAX {
                progress.results.push(moved);
            } else {
                progress.cut = true;
            }
        }
    }

    /// Does one step; a busy store is asked again for a while.
    fn step<R>(&self, mut step: impl FnMut() -> Result<R, GroupError>) -> Result<R, JobError> {
        for _ in 0..BUSY_TRIES {
            if self.desk.state.lock().stopped {
                return Err(StoreError::Closed.into());
            }
            match step() {
                Err(GroupError::Store(
                    StoreError::Busy | StoreError::Unavailable(_) | StoreError::Elsewhere,
                )) => self.pause(),
                answer => return Ok(answer?),
            }
        }
        Err(StoreError::Busy.into())
    }

    fn pause(&self) {
        let mut state = self.desk.state.lock();
        if !state.stopped {
            self.desk.stopping.wait_for(&mut state, BUSY_WAIT);
        }
    }
}

/// Marks a job that ends without a word as failed.
struct Ending<'a>(&'a Job);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        if progress.state == JobState::Running {
            progress.state = JobState::Failed("the job broke off".into());
        }
    }
}

#[cfg(test)]
mod tests;
