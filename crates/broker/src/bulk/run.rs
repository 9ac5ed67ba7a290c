//! The work of a bulk job, on a thread that may block.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_executor::block_on;
use punctual_model::ports::{
    Done, Order, PendingEntry, PendingPage, Refusal, Revised, StoreError, Timeline,
};
use punctual_model::{Basis, Key, Sequence, Span, State, Timestamp};

use super::{BulkWork, Halt, Shift, Worker};
use crate::audit;
use crate::broker::Broker;
use crate::change::{Change, ChangeError, Wait, replacement};
use crate::schedule::Invalid;
use crate::time::Now;

/// Messages that are counted in one step.
const COUNT_PAGE: usize = 1000;
/// Messages that are changed in one step, so that whoever else wants to write waits for few.
const STEP: usize = 500;
/// How often a message is tried that others change at the same time.
const TRIES: usize = 100;
/// How often a busy store is asked again, and how long is waited each time.
const BUSY_TRIES: usize = 1200;
const BUSY_WAIT: Duration = Duration::from_millis(50);

type Audited = oneshot::Sender<std::io::Result<()>>;

/// The work of a job that was asked for at `now`.
pub(super) fn run<T: Timeline>(
    broker: &Broker<T>,
    worker: &Worker,
    now: Now,
    audited: Audited,
) -> Result<(), Halt> {
    let runner = Runner { broker, worker, now, own: RefCell::default() };
    if worker.job.bulk.dry_run {
        // Nobody is left to be told: the caller has given up.
        drop(audited.send(Ok(())));
        return runner.count().map(drop);
    }
    let begun = runner.audit(Vec::new());
    let failed = begun.as_ref().err().map(|error| Halt::Audit(copy(error)));
    drop(audited.send(begun));
    if let Some(halt) = failed {
        return Err(halt);
    }
    let result = runner.count().and_then(|newest| runner.change(newest));
    let report = worker.job.report();
    let state = match &result {
        Ok(()) => "done",
        Err(Halt::Stopped) => "stopped",
        Err(Halt::Store(_) | Halt::Audit(_)) => "failed",
    };
    let details = vec![
        ("state".to_owned(), state.to_owned()),
        ("matched".to_owned(), report.matched.to_string()),
        ("done".to_owned(), report.done.to_string()),
        ("failed".to_owned(), report.failed.to_string()),
    ];
    runner.audit(details).map_err(Halt::Audit)?;
    result
}

/// The same error again.
fn copy(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), error.to_string())
}

struct Runner<'a, T> {
    broker: &'a Broker<T>,
    worker: &'a Worker,
    now: Now,
    /// What the job itself has stored.
    own: RefCell<Stored>,
}

/// Sequences in the order in which they were given, as ranges: one step takes few.
#[derive(Debug, Default)]
struct Stored(Vec<RangeInclusive<u64>>);

impl Stored {
    fn add(&mut self, sequence: Sequence) {
        let number = sequence.get();
        match self.0.last_mut() {
            Some(last) if last.end() + 1 == number => *last = *last.start()..=number,
            _ => self.0.push(number..=number),
        }
    }

    fn contains(&self, sequence: Sequence) -> bool {
        let behind = self.0.partition_point(|range| *range.end() < sequence.get());
        self.0.get(behind).is_some_and(|range| range.contains(&sequence.get()))
    }
}

impl<T: Timeline> Runner<'_, T> {
    /// Takes down what is done, and for whom.
    fn audit(&self, mut more: Vec<(String, String)>) -> std::io::Result<()> {
        let job = &self.worker.job;
        let filter = &job.bulk.filter;
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        let asked = [
            ("job", Some(job.id.to_string())),
            ("from", filter.from.map(|from| from.to_string())),
            ("to", filter.to.map(|to| to.to_string())),
            ("key", filter.key.as_ref().map(text)),
            ("key_prefix", filter.key_prefix.as_ref().map(text)),
            ("app", filter.sender.as_deref().map(str::to_owned)),
            ("messages", filter.state.map(|state| state.word().to_owned())),
        ];
        let asked = asked.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let mut details: Vec<(String, String)> = asked.collect();
        details.append(&mut more);
        self.broker.shared.options.audit.append(&audit::Entry {
            at: self.broker.now(),
            who: Arc::clone(&job.bulk.who),
            what: format!("bulk_{}", job.bulk.work.word()),
            topic: Some(job.topic.name.clone()),
            details,
        })
    }

    /// Counts what matches. What is stored later has a larger sequence than the one answered.
    fn count(&self) -> Result<Option<Sequence>, Halt> {
        let mut newest = None;
        let mut after = None;
        loop {
            let page = self.page(after, COUNT_PAGE)?;
            let sequences = page.entries.iter().map(|entry| Some(entry.key.sequence));
            newest = sequences.fold(newest, Option::max);
            self.worker.note(|progress| progress.matched += page.entries.len() as u64);
            after = page.next;
            if after.is_none() {
                return Ok(newest);
            }
        }
    }

    /// Changes what matches, is not newer than `newest` and was not changed by this job.
    fn change(&self, newest: Option<Sequence>) -> Result<(), Halt> {
        let mut after = None;
        loop {
            let mut page = self.page(after, STEP)?;
            page.entries.retain(|entry| {
                let known = Some(entry.id.key.sequence) <= newest;
                known && !self.own.borrow().contains(entry.key.sequence)
            });
            self.change_all(page.entries)?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn page(&self, after: Option<Key>, limit: usize) -> Result<PendingPage, Halt> {
        let job = &self.worker.job;
        let broker = self.broker;
        self.patiently(|| block_on(broker.scheduled(&job.topic, &job.bulk.filter, after, limit)))
    }

    /// Changes all of them together; if one of them stands in the way, each half on its own.
    fn change_all(&self, mut entries: Vec<PendingEntry>) -> Result<(), Halt> {
        let now = self.broker.shared.time.read();
        let mut orders = Vec::with_capacity(entries.len());
        entries.retain(|entry| match self.plan(entry, now) {
            Ok(Some(order)) => {
                orders.push(order);
                true
            }
            Ok(None) => {
                self.worker.note(|progress| progress.done += 1);
                false
            }
            Err(_refused) => {
                self.worker.note(|progress| progress.failed += 1);
                false
            }
        });
        if entries.is_empty() {
            return Ok(());
        }
        match self.revise(&orders)? {
            Revised::Done(done) => {
                self.did(&done);
                Ok(())
            }
            Revised::Refused { .. } if entries.len() > 1 => {
                let behind = entries.split_off(entries.len() / 2);
                self.change_all(entries)?;
                self.change_all(behind)
            }
            Revised::Refused { reason, .. } => {
                entries.into_iter().try_for_each(|entry| self.change_one(&entry, reason))
            }
        }
    }

    /// Changes a message that was refused once.
    fn change_one(&self, entry: &PendingEntry, mut reason: Refusal) -> Result<(), Halt> {
        let timeline = &self.broker.shared.timeline;
        for _ in 0..TRIES {
            if reason != Refusal::Changed {
                break;
            }
            let found = self.patiently(|| block_on(timeline.find(vec![entry.id])))?;
            let found = found.into_iter().next().flatten().and_then(|found| found.entry);
            // What does not match any more was changed by somebody who meant that.
            let Some(entry) = found.filter(|entry| self.worker.job.bulk.filter.matches(entry))
            else {
                break;
            };
            let Ok(Some(order)) = self.plan(&entry, self.broker.shared.time.read()) else { break };
            match self.revise(&[order])? {
                Revised::Done(done) => {
                    self.did(&done);
                    return Ok(());
                }
                Revised::Refused { reason: again, .. } => reason = again,
            }
        }
        self.worker.note(|progress| progress.failed += 1);
        Ok(())
    }

    fn did(&self, done: &[Done]) {
        for done in done {
            if let Done::Moved(key) = done {
                self.own.borrow_mut().add(key.sequence);
            }
        }
        let count = done.len() as u64;
        self.worker.note(|progress| progress.done += count);
        if self.worker.job.bulk.work == BulkWork::Cancel {
            self.broker.shared.counters.withdrawn(self.worker.job.topic.id, count);
        }
    }

    /// What to do with a message; `None` when it is as it should be.
    fn plan(&self, entry: &PendingEntry, now: Now) -> Result<Option<Order>, ChangeError> {
        let (id, expected) = (entry.id, entry.key);
        let job = &self.worker.job;
        let apply = |change: &Change, now: Now| {
            change.apply(&self.broker.shared.placing, &job.topic, entry, now)
        };
        let changed = match job.bulk.work {
            BulkWork::Cancel => return Ok(Some(Order::Cancel { id, expected: Some(expected) })),
            BulkWork::Reschedule(when) => {
                // All count from one moment, however long the job takes.
                apply(&Change { when: Some(when), ..Change::default() }, self.now)?
            }
            BulkWork::DeliverNow => apply(&Change::deliver_now(), self.now)?,
            BulkWork::Pause => apply(&Change { paused: Some(true), ..Change::default() }, now)?,
            BulkWork::Resume => apply(&Change { paused: Some(false), ..Change::default() }, now)?,
            BulkWork::Shift(shift) => {
                let max = self.broker.shared.placing.delay_max(&job.topic.settings);
                let place = shifted(entry, shift, max, now)?.in_state(entry.state(), now)?;
                Some(replacement(entry, place, entry.message.clone()))
            }
        };
        Ok(changed.map(|entry| Order::Replace { id, expected, entry }))
    }

    fn revise(&self, orders: &[Order]) -> Result<Revised, Halt> {
        self.patiently(|| block_on(self.broker.shared.timeline.revise(orders.to_vec())))
    }

    /// Does one step; a busy store is asked again for a while.
    fn patiently<R>(&self, mut step: impl FnMut() -> Result<R, StoreError>) -> Result<R, Halt> {
        for _ in 0..BUSY_TRIES {
            self.worker.check()?;
            match step() {
                Err(StoreError::Busy | StoreError::Unavailable(_) | StoreError::Elsewhere) => {
                    self.worker.pause(BUSY_WAIT);
                }
                answer => return Ok(answer?),
            }
        }
        Err(StoreError::Busy.into())
    }
}

/// The wait of a message, moved, but not past now and not past the longest delay.
fn shifted(entry: &PendingEntry, shift: Shift, max: Span, now: Now) -> Result<Wait, Invalid> {
    let mut wait = Wait::of(entry, None, now);
    let paused = entry.state() == State::Paused;
    let remaining = wait.remaining.as_millis();
    match shift {
        Shift::Later(by) => {
            wait.remaining = Span::from_millis(remaining.saturating_add(by.as_millis()));
            wait.due = wait.due.checked_add(by).ok_or(Invalid::DueOutOfRange)?;
            let ahead = if paused { wait.remaining } else { ahead(wait.due, wait.basis, now) };
            if ahead > max {
                return Err(Invalid::DelayTooLong { max });
            }
        }
        Shift::Earlier(by) => {
            wait.remaining = Span::from_millis(remaining.saturating_sub(by.as_millis()));
            let earlier = wait.due.saturating_sub(by);
            // What is overdue already stays as it is.
            wait.due = earlier.max(wait.due.min(now.timestamp()));
        }
    }
    if wait.due.is_parked() { Err(Invalid::DueOutOfRange) } else { Ok(wait) }
}

fn ahead(due: Timestamp, basis: Basis, now: Now) -> Span {
    match basis {
        Basis::Delay => due.since(now.timestamp()),
        Basis::Date => due.since(now.wall_timestamp()),
    }
}
