//! The store with its threads, behind the seams.
//!
//! Three threads: one commits, so that requests which arrive while a sync runs share the next; one
//! keeps up (tables to runs, checkpoints, retention); one answers questions that need the disk.
//! Whoever fires brings a thread of their own.

mod records;
mod seams;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{GroupError, StoreError, TopicError};
use punctual_model::{Buckets, Clock, Histogram, MessageId, Timestamp};

use crate::disk::Disk;
use crate::lanes::PerLane;
use crate::options::{Durability, Options};
use crate::queue::Queue;
use crate::store::{CommitError, InLogs, OpenError, Outcome, Request, Store, topic_refusal};

/// Bytes of one group, unless a single request is larger.
const GROUP_BYTES: usize = 4 << 20;
/// Questions that may wait for the reading thread.
const QUESTIONS_MAX: usize = 4096;
/// How often the upkeep thread looks around.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(200);
/// How often a lane without room is looked at again, if nobody tells that there is some.
const ROOM_INTERVAL: Duration = Duration::from_millis(10);
/// How long the upkeep thread waits after it found the disk full.
const FULL_INTERVAL: Duration = Duration::from_secs(1);

type Answer = oneshot::Sender<Result<Outcome, CommitError>>;
type Question = Box<dyn FnOnce(&Store) + Send>;

/// The embedded store. Dropping it ends its threads after what was asked for is done.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    store: Store,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue<Answer>>,
    /// Told when the queue has work or closes, or a lane may have room again.
    work: Condvar,
    /// Requests wait for room in their lane.
    held_back: AtomicBool,
    questions: Mutex<VecDeque<Question>>,
    asked: Condvar,
    upkeep: Mutex<()>,
    upkeep_due: Condvar,
    closed: AtomicBool,
    /// How long journal writes took.
    syncs: Histogram,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Upper bounds of the buckets for journal writes, in microseconds.
const SYNC_BOUNDS_MICROS: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];

impl Engine {
    /// Opens the store and starts its threads.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let store = Store::open(disk, options)?;
        let shared = Arc::new(Shared {
            store,
            clock,
            queue: Mutex::default(),
            work: Condvar::new(),
            held_back: AtomicBool::new(false),
            questions: Mutex::default(),
            asked: Condvar::new(),
            upkeep: Mutex::new(()),
            upkeep_due: Condvar::new(),
            closed: AtomicBool::new(false),
            syncs: Histogram::new(&SYNC_BOUNDS_MICROS),
        });
        let engine = Self { shared, threads: Mutex::default() };
        engine.start("punctual-commit", Shared::run_commits)?;
        engine.start("punctual-upkeep", Shared::run_upkeep)?;
        engine.start("punctual-lookup", Shared::run_questions)?;
        Ok(engine)
    }

    fn start(&self, name: &'static str, body: fn(&Arc<Shared>)) -> Result<(), OpenError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let handle =
            thread.spawn(move || body(&shared)).map_err(|error| OpenError::Disk(name, error))?;
        self.threads.lock().push(handle);
        Ok(())
    }

    /// The store itself, for what the seams do not cover.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// How long journal writes took.
    #[must_use]
    pub fn syncs(&self) -> Buckets {
        self.shared.syncs.read()
    }

    /// Whether the store has stopped after a failed write.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] if so.
    pub fn check(&self) -> Result<(), StoreError> {
        self.shared.store.trust.check()
    }

    /// Finishes what was asked for, writes a last checkpoint and ends the threads. What is asked
    /// later is refused.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        {
            // Taking each lock once makes sure that nobody is between looking and waiting.
            drop(self.shared.queue.lock());
            drop(self.shared.questions.lock());
            drop(self.shared.upkeep.lock());
        }
        self.shared.work.notify_all();
        self.shared.asked.notify_all();
        self.shared.upkeep_due.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended by a panic");
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.read().timestamp()
    }

    fn submit(&self, request: Request) -> oneshot::Receiver<Result<Outcome, CommitError>> {
        let (answer, receiver) = oneshot::channel();
        self.shared.enqueue(request, answer);
        receiver
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        let (answer, receiver) = oneshot::channel();
        let mut questions = self.shared.questions.lock();
        let refusal = if self.shared.is_closed() {
            Some(StoreError::Closed)
        } else if questions.len() >= QUESTIONS_MAX {
            Some(StoreError::Busy)
        } else {
            questions.push_back(Box::new(move |store| send(answer, question(store))));
            None
        };
        drop(questions);
        self.shared.asked.notify_one();
        async move {
            match refusal {
                Some(error) => Err(error),
                None => receiver.await.unwrap_or(Err(StoreError::Closed)),
            }
        }
    }

    fn submit_for_group(&self, request: Request) -> Result<Outcome, GroupError> {
        let answer = futures_executor::block_on(self.submit(request));
        answer.unwrap_or(Err(StoreError::Closed.into())).map_err(|error| match error {
            CommitError::Group(error) => error,
            CommitError::Store(error) => GroupError::Store(error),
            CommitError::Topic(_)
            | CommitError::Append(_)
            | CommitError::Slice(_)
            | CommitError::AskLogs(_)
            | CommitError::Later(_) => StoreError::Busy.into(),
        })
    }

    fn submit_and_wait(&self, request: Request) -> Result<Outcome, TopicError> {
        let answer = futures_executor::block_on(self.submit(request));
        answer.unwrap_or(Err(StoreError::Closed.into())).map_err(topic_refusal)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whoever asked may have gone; that changes nothing about what was done.
fn send<T>(answer: oneshot::Sender<T>, value: T) {
    drop(answer.send(value));
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn run_commits(self: &Arc<Self>) {
        let payload_max = self.store.payload_max();
        let mut synced = self.clock.read().monotonic;
        while let Some(group) = self.next_group(payload_max) {
            if let Durability::Interval(interval) = self.store.options.durability
                && self.clock.read().monotonic.saturating_sub(synced) >= interval
            {
                self.sync_journal();
                synced = self.clock.read().monotonic;
            }
            if group.is_empty() {
                continue;
            }
            let (requests, answers): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            let started = self.clock.read().monotonic;
            let outcomes = self.store.commit(requests);
            self.syncs.note(self.clock.read().monotonic.saturating_sub(started));
            for (answer, outcome) in answers.into_iter().zip(outcomes) {
                match outcome {
                    Err(CommitError::AskLogs(ids)) => self.ask_logs(ids, answer),
                    Err(CommitError::Later(request)) => self.enqueue(*request, answer),
                    outcome => send(answer, outcome),
                }
            }
            if self.store.needs_flush() {
                self.upkeep_due.notify_one();
            }
        }
        self.sync_journal();
    }

    fn sync_journal(&self) {
        if let Err(error) = self.store.sync_journal() {
            tracing::error!(%error, "the journal could not be synced");
        }
    }

    /// A lane may have room again.
    fn tell_room(&self) {
        if self.held_back.load(Ordering::Relaxed) {
            self.work.notify_one();
        }
    }

    fn enqueue(&self, request: Request, answer: Answer) {
        let sent = request.sent();
        let mut queue = self.queue.lock();
        let outcome = if self.is_closed() {
            Err((StoreError::Closed, answer))
        } else {
            queue.push(request, answer)
        };
        drop(queue);
        match outcome {
            Ok(()) => drop(self.work.notify_one()),
            Err((error, answer)) => {
                if let Some((place, sent)) = sent {
                    self.store.logs.expect(place, &sent);
                }
                send(answer, Err(error.into()));
            }
        }
    }

    /// Looks for messages that ended long ago where it holds nobody up, and comes back with the
    /// cancel.
    fn ask_logs(self: &Arc<Self>, ids: Vec<MessageId>, answer: Answer) {
        let mut questions = self.questions.lock();
        if questions.len() >= QUESTIONS_MAX {
            drop(questions);
            return send(answer, Err(StoreError::Busy.into()));
        }
        let shared = Arc::clone(self);
        questions.push_back(Box::new(move |store| match store.past_in_logs(&ids) {
            Ok(found) => shared.enqueue(Request::Cancel(ids, InLogs::Known(found)), answer),
            Err(error) => send(answer, Err(error.into())),
        }));
        drop(questions);
        self.asked.notify_one();
    }

    /// The next requests to commit together; empty when only a sync may be due; `None` at the end.
    fn next_group(&self, payload_max: usize) -> Option<Vec<(Request, Answer)>> {
        let mut queue = self.queue.lock();
        loop {
            let closed = self.is_closed();
            // At the end nobody makes room any more, and what was accepted is to be finished.
            let has_room = |lane| queue.is_waiting(lane) && (closed || self.store.has_room(lane));
            let room = PerLane::new(has_room);
            let group = queue.next_group(room, GROUP_BYTES.min(payload_max));
            if !group.is_empty() {
                return Some(group);
            }
            if closed {
                return None;
            }
            let held_back = !queue.is_empty();
            self.held_back.store(held_back, Ordering::Relaxed);
            let wait = match self.store.options.durability {
                _ if held_back => ROOM_INTERVAL,
                Durability::Interval(interval) => interval,
                Durability::Fsync | Durability::Os => {
                    self.work.wait(&mut queue);
                    continue;
                }
            };
            if self.work.wait_for(&mut queue, wait).timed_out() {
                return Some(Vec::new());
            }
        }
    }

    fn run_upkeep(self: &Arc<Self>) {
        let interval = self.store.options.checkpoint_interval;
        let mut last = self.clock.read().monotonic;
        let mut last_maintained = last;
        let mut saved = self.store.progress();
        let mut wait = UPKEEP_INTERVAL;
        while !self.is_closed() {
            let mut guard = self.upkeep.lock();
            if !self.is_closed() && !self.store.needs_flush() {
                self.upkeep_due.wait_for(&mut guard, wait);
            }
            drop(guard);
            let reading = self.clock.read();
            let now = reading.timestamp();
            let progress = self.store.progress();
            let due = self.store.is_far_from(saved)
                || (progress != saved && reading.monotonic.saturating_sub(last) >= interval);
            wait = match self.store.upkeep(now, due) {
                Ok(done) => {
                    if done.flushed {
                        self.tell_room();
                    }
                    if due || done.flushed || done.merged {
                        last = reading.monotonic;
                        saved = progress;
                    }
                    UPKEEP_INTERVAL
                }
                Err(StoreError::Full) => FULL_INTERVAL,
                Err(_poisoned) => return,
            };
            if reading.monotonic.saturating_sub(last_maintained) >= FULL_INTERVAL {
                last_maintained = reading.monotonic;
                if self.store.maintain(now).is_err() {
                    return;
                }
            }
        }
        let now = self.clock.read().timestamp();
        if let Err(error) = self.store.checkpoint(now) {
            tracing::error!(%error, "no checkpoint at the end; the next start reads more");
        }
    }

    fn run_questions(self: &Arc<Self>) {
        loop {
            let mut questions = self.questions.lock();
            let question = loop {
                if let Some(question) = questions.pop_front() {
                    break question;
                }
                if self.is_closed() {
                    return;
                }
                self.asked.wait(&mut questions);
            };
            drop(questions);
            question(&self.store);
        }
    }
}
