//! Producers: threads that keep several batches on their way at once.
//!
//! All bodies are slices of one random buffer shared by reference, so that making messages costs
//! next to nothing and the figures are the broker's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Condvar, Mutex};
use punctual_broker::{Request, Scheduled, When};
use punctual_model::{Clock as _, Message, MessageId, Span, SystemClock, TopicName};

use crate::args::LoadOptions;
use crate::measure::Latency;
use crate::random::Random;
use crate::rig::Rig;

/// Where all messages go.
pub(crate) fn topic() -> TopicName {
    TopicName::new("bench").expect("a legal name")
}

/// A due time at random between ten minutes and forty days from now.
pub(crate) fn far(random: &mut Random) -> When {
    const NEAR_MS: u64 = 600_000;
    const FAR_MS: u64 = 40 * 86_400_000 - 3_600_000;
    When::After(Span::from_millis(NEAR_MS + random.below(FAR_MS - NEAR_MS)))
}

/// How much has been taken on and how much was acknowledged.
#[derive(Debug)]
pub(crate) struct Progress {
    left: AtomicU64,
    has_failed: AtomicBool,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    pub(crate) fn of(count: u64) -> Self {
        Self {
            left: AtomicU64::new(count),
            has_failed: AtomicBool::new(false),
            done: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn take(&self, batch: usize) -> usize {
        let most = batch as u64;
        let less = |left: u64| (left > 0).then(|| left - left.min(most));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        usize::try_from(before.unwrap_or(0).min(most)).expect("at most a batch")
    }

    /// No more batches are started.
    pub(crate) fn stop(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    /// Something went wrong: nobody need wait for the rest.
    fn fail(&self) {
        self.stop();
        self.has_failed.store(true, Ordering::Relaxed);
        // Whoever is about to wait has looked at it, or sleeps already.
        drop(self.done.lock());
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn add(&self, count: u64) {
        *self.done.lock() += count;
        self.changed.notify_all();
    }

    /// Waits until `count` are acknowledged; answers how many are. Fewer than asked for means that
    /// the time was up, or that sending has failed.
    pub(crate) fn wait_for(&self, count: u64, wait_max: Duration) -> u64 {
        let mut done = self.done.lock();
        let goes_on = |done: &mut u64| *done < count && !self.has_failed.load(Ordering::Relaxed);
        self.changed.wait_while_for(&mut done, goes_on, wait_max);
        *done
    }
}

/// What the producers saw.
#[derive(Debug)]
pub(crate) struct Sent {
    /// From handing a batch over to its acknowledgement.
    pub(crate) latency: Latency,
    /// Every n-th id, where that was asked for.
    pub(crate) ids: Vec<MessageId>,
}

/// Producers and what they send.
pub(crate) struct Load<'a, W> {
    pub(crate) rig: &'a Rig,
    pub(crate) options: LoadOptions,
    pub(crate) when: W,
    /// Of how many ids one is kept; zero for none.
    pub(crate) keep_one_of: usize,
    pub(crate) topic: TopicName,
    /// The number of the next message, where its body is to be its number.
    pub(crate) next_number: Option<AtomicU64>,
}

impl<'a, W: Fn(&mut Random) -> When + Sync> Load<'a, W> {
    /// Random bodies to the usual topic.
    pub(crate) fn new(rig: &'a Rig, options: LoadOptions, when: W) -> Self {
        Self { rig, options, when, keep_one_of: 0, topic: topic(), next_number: None }
    }

    /// Keeps one of so many ids.
    pub(crate) fn keeping(self, keep_one_of: usize) -> Self {
        Self { keep_one_of, ..self }
    }

    /// The body of each message is its number, counted from zero.
    pub(crate) fn numbered(self) -> Self {
        Self { next_number: Some(AtomicU64::new(0)), ..self }
    }

    /// To another topic.
    pub(crate) fn to(self, topic: TopicName) -> Self {
        Self { topic, ..self }
    }
}

impl<W: Fn(&mut Random) -> When + Sync> Load<'_, W> {
    /// Sends `count` messages and waits for all acknowledgements.
    pub(crate) fn send(&self, count: u64) -> Result<Sent> {
        let progress = Progress::of(count);
        self.send_watched(&progress, |_| Ok(())).map(|(sent, ())| sent)
    }

    /// Sends what `progress` has left, with `watch` running beside.
    pub(crate) fn send_watched<R>(
        &self,
        progress: &Progress,
        watch: impl FnOnce(&Progress) -> Result<R>,
    ) -> Result<(Sent, R)> {
        std::thread::scope(|scope| {
            let mut producers = Vec::new();
            for number in 0..self.options.producers {
                let thread = std::thread::Builder::new().name(format!("bench-send-{number}"));
                let produce = move || {
                    let outcome = self.produce(number as u64 + 1, progress);
                    if outcome.is_err() {
                        progress.fail();
                    }
                    outcome
                };
                producers.push(thread.spawn_scoped(scope, produce)?);
            }
            let watched = watch(progress);
            progress_must_end(progress, &watched);
            let mut all = Sent { latency: Latency::new(), ids: Vec::new() };
            for producer in producers {
                let sent = producer.join().ok().context("a producer ended by a panic")??;
                all.latency.add(&sent.latency);
                all.ids.extend(sent.ids);
            }
            Ok((all, watched?))
        })
    }

    fn produce(&self, seed: u64, progress: &Progress) -> Result<Sent> {
        let mut random = Random::new(seed);
        let pool = Bytes::from(random.bytes(self.options.body + 4096));
        let mut sent = Sent { latency: Latency::new(), ids: Vec::new() };
        let clock = SystemClock::new();
        let mut waiting = FuturesUnordered::new();
        futures_executor::block_on(async {
            loop {
                while waiting.len() < self.options.in_flight {
                    let size = progress.take(self.options.batch);
                    if size == 0 {
                        break;
                    }
                    let batch = self.batch(size, &pool, &mut random);
                    waiting.push(async {
                        let started = clock.read().monotonic;
                        let answer = self.rig.broker.schedule(&self.topic, batch).await;
                        (answer, clock.read().monotonic.saturating_sub(started))
                    });
                }
                let Some((answer, took)) = waiting.next().await else { return Ok(()) };
                let answer = answer?;
                sent.latency.note(took);
                progress.add(answer.len() as u64);
                self.keep_some(&mut sent.ids, &answer);
            }
        })
        .map(|()| sent)
        .map_err(|error: punctual_broker::ScheduleError| error.into())
    }

    fn batch(&self, size: usize, pool: &Bytes, random: &mut Random) -> Vec<Request> {
        let count = size as u64;
        let first = self.next_number.as_ref().map(|next| next.fetch_add(count, Ordering::Relaxed));
        let mut numbers = first.map(|first| first..first + count).into_iter().flatten();
        let make = || {
            let body = match numbers.next() {
                Some(number) => Bytes::copy_from_slice(&number.to_le_bytes()),
                None => {
                    let at = usize::try_from(random.below(4096)).expect("below 4096");
                    pool.slice(at..at + self.options.body)
                }
            };
            let message = Message { key: None, headers: Vec::new(), body };
            Request::new(message, (self.when)(random))
        };
        std::iter::repeat_with(make).take(size).collect()
    }

    fn keep_some(&self, ids: &mut Vec<MessageId>, answer: &[Scheduled]) {
        if self.keep_one_of > 0 {
            ids.extend(answer.iter().step_by(self.keep_one_of).map(|scheduled| scheduled.id));
        }
    }
}

/// Without a watcher nobody is left to say that the time is up.
fn progress_must_end<R>(progress: &Progress, watched: &Result<R>) {
    if watched.is_err() && !progress.is_stopped() {
        progress.stop();
    }
}
