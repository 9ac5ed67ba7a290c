//! Changes of many pending messages at once, as jobs with progress.
//!
//! A job works on what was there when it began: it looks once through everything to count it, and
//! then changes, page by page, what is not newer than that and what it has not stored itself. It
//! needs little more memory than a page. Steps are small, so that nobody else waits for long.
//!
//! What a job has done is durable step by step; the job itself lives in memory and ends with the
//! process. Jobs are audited when they begin and when they end.

mod run;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{StoreError, Timeline, Topic};
use punctual_model::{Span, State, Timestamp, TopicId, TopicKind, TopicName};

use crate::broker::Broker;
use crate::lookup::Filter;
use crate::schedule::{Invalid, When};

/// Jobs that run at once.
const RUNNING_MAX: usize = 4;
/// Finished jobs of one topic that are remembered.
const FINISHED_PER_TOPIC_MAX: usize = 16;
/// Finished jobs of all topics that are remembered.
const FINISHED_MAX: usize = 1024;

/// What to do with which pending messages.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Which ones. Where it says nothing of the state, paused ones are meant if they are to go on,
    /// and scheduled ones otherwise.
    pub filter: Filter,
    /// Really all, if the filter says nothing.
    pub all: bool,
    /// Only count them.
    pub dry_run: bool,
    /// What to do.
    pub work: BulkWork,
    /// Who asks for it.
    pub who: Arc<str>,
}

/// What to do with each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkWork {
    /// Withdraw it.
    Cancel,
    /// Give it another time; a delay counts from the begin of the job.
    Reschedule(When),
    /// Move its time.
    Shift(Shift),
    /// Make it due now.
    DeliverNow,
    /// Stop its countdown.
    Pause,
    /// Let its countdown go on.
    Resume,
}

/// Which way a time is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Into the future.
    Later(Span),
    /// Towards now, but not past it.
    Earlier(Span),
}

impl BulkWork {
    /// The one word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Shift(_) => "shift",
            Self::DeliverNow => "deliver",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// The name of a job, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkId(u64);

impl fmt::Display for BulkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not the name of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a job id")]
pub struct BulkIdError;

impl FromStr for BulkId {
    type Err = BulkIdError;

    fn from_str(text: &str) -> Result<Self, BulkIdError> {
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(legal) {
            return Err(BulkIdError);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_error| BulkIdError)
    }
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkState {
    /// At work.
    Running,
    /// Through with everything.
    Done,
    /// Somebody stopped it; what it had done stays done.
    Stopped,
    /// Ended early; what it had done stays done.
    Failed(Arc<str>),
}

impl BulkState {
    /// The one word for it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

/// A look at a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkReport {
    /// Its name.
    pub id: BulkId,
    /// What it does.
    pub work: BulkWork,
    /// Whether it only counts.
    pub dry_run: bool,
    /// How far it is.
    pub state: BulkState,
    /// When it was started.
    pub started: Timestamp,
    /// Messages that matched, as far as they are counted.
    pub matched: u64,
    /// Messages that it has changed.
    pub done: u64,
    /// Messages that it could not change: delivered, cancelled or changed meanwhile, or with a new
    /// time that is not accepted.
    pub failed: u64,
}

/// Why a job was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BulkError {
    /// No such topic, or one that belongs to a group.
    #[error("no such topic")]
    TopicNotFound,
    /// Nothing was said about which messages are meant.
    #[error("the filter is empty; say that all messages are meant if that is so")]
    EmptyFilter,
    /// Messages in that state cannot be changed so.
    #[error("messages in that state cannot be changed so")]
    BadState,
    /// As many jobs run as may.
    #[error("{RUNNING_MAX} jobs run already; try again when one is done")]
    TooMany,
    /// The new time is not accepted.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The job could not be taken down, so it was not begun.
    #[error("the audit record cannot be written: {0}")]
    Audit(Arc<str>),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Bulk {
    /// The same with a state, if it can be carried out.
    fn checked(mut self) -> Result<Self, BulkError> {
        let filter = &self.filter;
        let narrow = filter.from.is_some()
            || filter.to.is_some()
            || filter.key.is_some()
            || filter.key_prefix.is_some()
            || filter.sender.is_some()
            || filter.state == Some(State::Paused);
        if !narrow && !self.all {
            return Err(BulkError::EmptyFilter);
        }
        let usual = if self.work == BulkWork::Resume { State::Paused } else { State::Scheduled };
        let state = filter.state.unwrap_or(usual);
        let fits = match state {
            State::Scheduled => self.work != BulkWork::Resume,
            State::Paused => self.work != BulkWork::Pause,
            State::Prepared | State::Delivered | State::Cancelled => false,
        };
        if !fits {
            return Err(BulkError::BadState);
        }
        self.filter.state = Some(state);
        Ok(self)
    }
}

impl<T: Timeline> Broker<T> {
    /// Begins to change many messages of a topic. `Ok` means that it was taken down who asked for it.
    ///
    /// # Errors
    /// See [`BulkError`].
    pub async fn bulk(&self, topic: &TopicName, bulk: Bulk) -> Result<BulkId, BulkError> {
        let topic = self.plain_topic(topic).ok_or(BulkError::TopicNotFound)?;
        let bulk = bulk.checked()?;
        let now = self.shared.time.read();
        if let BulkWork::Reschedule(when) = bulk.work {
            self.shared.placing.due(when, &topic.settings, now)?;
        }
        let (audited, answer) = oneshot::channel();
        let broker = self.clone();
        let work = self.shared.time.activity().begin();
        let id = self.shared.bulk.start(topic, bulk, now.timestamp(), move |worker| {
            let result = run::run(&broker, &worker, now, audited);
            drop(work);
            result
        })?;
        match answer.await {
            Ok(Ok(())) => Ok(id),
            Ok(Err(error)) => Err(BulkError::Audit(error.to_string().into())),
            Err(_gone) => Err(StoreError::Closed.into()),
        }
    }

    /// A job of a topic.
    #[must_use]
    pub fn bulk_job(&self, topic: &TopicName, id: BulkId) -> Option<BulkReport> {
        Some(self.find_job(topic, id)?.report())
    }

    /// The jobs of a topic, the newest first.
    #[must_use]
    pub fn bulk_jobs(&self, topic: &TopicName) -> Vec<BulkReport> {
        let topic = self.plain_topic(topic);
        topic.map_or_else(Vec::new, |topic| self.shared.bulk.list(topic.id))
    }

    /// Waits for the end of a job.
    pub async fn bulk_ended(&self, topic: &TopicName, id: BulkId) -> Option<BulkReport> {
        let job = self.find_job(topic, id)?;
        if let Some(end) = job.end() {
            // Nothing is ever sent: the other side is dropped at the end.
            end.await.ok();
        }
        Some(job.report())
    }

    /// Ends a job after the step it is at.
    #[must_use]
    pub fn stop_bulk(&self, topic: &TopicName, id: BulkId) -> Option<BulkReport> {
        let job = self.find_job(topic, id)?;
        job.stop.store(true, Ordering::Relaxed);
        Some(job.report())
    }

    fn plain_topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.shared.topics.by_name(name).filter(|topic| topic.kind == TopicKind::Plain)
    }

    fn find_job(&self, topic: &TopicName, id: BulkId) -> Option<Arc<Job>> {
        let topic = self.plain_topic(topic)?;
        self.shared.bulk.find(topic.id, id)
    }
}

/// All jobs of a broker.
#[derive(Clone, Default)]
pub(crate) struct BulkJobs {
    desk: Arc<Desk>,
}

impl fmt::Debug for BulkJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkJobs").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Desk {
    jobs: Mutex<Jobs>,
    stopping: Condvar,
}

#[derive(Default)]
struct Jobs {
    stopped: bool,
    last_id: u64,
    known: BTreeMap<BulkId, Arc<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// One job, seen from its thread and from outside.
struct Job {
    id: BulkId,
    topic: Arc<Topic>,
    bulk: Bulk,
    started: Timestamp,
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    state: BulkState,
    matched: u64,
    done: u64,
    failed: u64,
    /// Dropped at the end.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What the thread of a job works with.
struct Worker {
    desk: Arc<Desk>,
    job: Arc<Job>,
}

/// Why a job ends early.
#[derive(Debug)]
enum Halt {
    Stopped,
    Store(StoreError),
    Audit(io::Error),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl BulkJobs {
    fn start(
        &self,
        topic: Arc<Topic>,
        bulk: Bulk,
        now: Timestamp,
        work: impl FnOnce(Worker) -> Result<(), Halt> + Send + 'static,
    ) -> Result<BulkId, BulkError> {
        let mut jobs = self.desk.jobs.lock();
        if jobs.stopped {
            return Err(StoreError::Closed.into());
        }
        if jobs.known.values().filter(|job| job.runs()).count() >= RUNNING_MAX {
            return Err(BulkError::TooMany);
        }
        jobs.threads.retain(|thread| !thread.is_finished());
        // Names grow with time, so that one of an earlier process names no job of this one.
        jobs.last_id = (jobs.last_id + 1).max(now.as_millis() << 16);
        let id = BulkId(jobs.last_id);
        let job = Arc::new(Job::new(id, topic, bulk, now));
        let worker = Worker { desk: Arc::clone(&self.desk), job: Arc::clone(&job) };
        let thread = std::thread::Builder::new().name("punctual-bulk".to_owned());
        let ending = Ending(Arc::clone(&job));
        let thread = thread.spawn(move || ending.end(work(worker)));
        let thread = thread.map_err(|error| {
            tracing::warn!(%error, "no thread for a job");
            BulkError::TooMany
        })?;
        jobs.threads.push(thread);
        jobs.forget_old(job.topic.id);
        jobs.known.insert(id, job);
        Ok(id)
    }

    fn find(&self, topic: TopicId, id: BulkId) -> Option<Arc<Job>> {
        let jobs = self.desk.jobs.lock();
        jobs.known.get(&id).filter(|job| job.topic.id == topic).cloned()
    }

    fn list(&self, topic: TopicId) -> Vec<BulkReport> {
        let jobs = self.desk.jobs.lock();
        let of_topic = jobs.known.values().rev().filter(|job| job.topic.id == topic);
        of_topic.map(|job| job.report()).collect()
    }

    /// Ends all jobs after the step they are at, and waits for that. No more are started.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut jobs = self.desk.jobs.lock();
            jobs.stopped = true;
            self.desk.stopping.notify_all();
            std::mem::take(&mut jobs.threads)
        };
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a job ended by a panic");
            }
        }
    }
}

impl Jobs {
    fn forget_old(&mut self, topic: TopicId) {
        let finished = self.known.values().rev().filter(|job| !job.runs());
        let all = finished.clone().map(|job| job.id).skip(FINISHED_MAX);
        let own = finished.filter(|job| job.topic.id == topic);
        let own = own.map(|job| job.id).skip(FINISHED_PER_TOPIC_MAX);
        let old: Vec<BulkId> = all.chain(own).collect();
        for id in old {
            self.known.remove(&id);
        }
    }
}

impl Job {
    fn new(id: BulkId, topic: Arc<Topic>, bulk: Bulk, started: Timestamp) -> Self {
        let progress = Progress {
            state: BulkState::Running,
            matched: 0,
            done: 0,
            failed: 0,
            waiting: Vec::new(),
        };
        let stop = AtomicBool::new(false);
        Self { id, topic, bulk, started, stop, progress: Mutex::new(progress) }
    }

    fn runs(&self) -> bool {
        self.progress.lock().state == BulkState::Running
    }

    /// Ends with the job; `None` if that was before.
    fn end(&self) -> Option<oneshot::Receiver<()>> {
        let mut progress = self.progress.lock();
        (progress.state == BulkState::Running).then(|| {
            let (sender, receiver) = oneshot::channel();
            progress.waiting.push(sender);
            receiver
        })
    }

    fn report(&self) -> BulkReport {
        let progress = self.progress.lock();
        BulkReport {
            id: self.id,
            work: self.bulk.work,
            dry_run: self.bulk.dry_run,
            state: progress.state.clone(),
            started: self.started,
            matched: progress.matched,
            done: progress.done,
            failed: progress.failed,
        }
    }
}

impl Worker {
    /// Ends a job that somebody stopped.
    fn check(&self) -> Result<(), Halt> {
        if self.job.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        if self.desk.jobs.lock().stopped { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    fn pause(&self, time: Duration) {
        let mut jobs = self.desk.jobs.lock();
        if !jobs.stopped {
            self.desk.stopping.wait_for(&mut jobs, time);
        }
    }

    fn note(&self, note: impl FnOnce(&mut Progress)) {
        note(&mut self.job.progress.lock());
    }
}

/// Tells how a job ended; one that ends without a word has failed.
struct Ending(Arc<Job>);

impl Ending {
    fn end(self, result: Result<(), Halt>) {
        let state = match result {
            Ok(()) => BulkState::Done,
            Err(Halt::Stopped) => BulkState::Stopped,
            Err(Halt::Store(error)) => BulkState::Failed(error.to_string().into()),
            Err(Halt::Audit(error)) => BulkState::Failed(error.to_string().into()),
        };
        if let BulkState::Failed(error) = &state {
            tracing::warn!(job = %self.0.id, %error, "a job ended early");
        }
        let mut progress = self.0.progress.lock();
        progress.state = state;
        progress.waiting.clear();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut progress = self.0.progress.lock();
        if progress.state == BulkState::Running {
            progress.state = BulkState::Failed("the job broke off".into());
            progress.waiting.clear();
        }
    }
}
