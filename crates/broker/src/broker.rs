//! The handle everybody calls, and the threads that fire.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use punctual_model::ports::{CancelOutcome, Groups, Outlet, StoreError, Timeline, Topics};
use punctual_model::{Clock, DelayLevels, Lane, MessageId, Span, Timestamp, TopicId, limits};

use crate::deliver::Delivery;
use crate::errands::Errands;
use crate::fire::{self, Firing, Signal};
use crate::group::{ConsumerParts, Consumers, JobLimits};
use crate::stats::{Counters, Stats};
use crate::time::BrokerTime;

/// What can be set for a broker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest body.
    pub body_bytes_max: usize,
    /// Longest delay.
    pub delay_max: Span,
    /// The delay levels.
    pub levels: DelayLevels,
    /// Whether a topic is made when it is first used.
    pub auto_create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            delay_max: limits::DELAY_MAX,
            levels: DelayLevels::default(),
            auto_create: true,
        }
    }
}

/// Counters that place messages without a key. Topics share them by number, so that whoever sends
/// to two topics by turns still reaches every partition of both.
const TURNS: usize = 64;

/// A running broker. Clones are handles of the same one.
#[derive(Debug)]
pub struct Broker<T> {
    pub(crate) shared: Arc<Shared<T>>,
}

impl<T> Clone for Broker<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

pub(crate) struct Shared<T> {
    pub(crate) options: Options,
    pub(crate) timeline: Arc<T>,
    pub(crate) topics: Arc<dyn Topics>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) errands: Errands,
    pub(crate) turns: [AtomicU64; TURNS],
    pub(crate) consumers: Consumers,
    /// One for each lane.
    signals: [Arc<Signal>; Lane::ALL.len()],
    firing: Mutex<Vec<JoinHandle<()>>>,
    /// One for each thread; whoever waits for failures takes them all.
    failures: Mutex<Vec<oneshot::Receiver<StoreError>>>,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    /// The turn of the next message without a key.
    pub(crate) fn turn(&self, topic: TopicId) -> u64 {
        self.turns[topic.get() as usize % TURNS].fetch_add(1, Ordering::Relaxed)
    }
}

/// The parts a broker is made of.
pub struct Parts<T, O> {
    /// What is pending.
    pub timeline: Arc<T>,
    /// Where due messages go.
    pub outlet: Arc<O>,
    /// The topics.
    pub topics: Arc<dyn Topics>,
    /// The groups that consume them.
    pub groups: Arc<dyn Groups>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl<T, O> std::fmt::Debug for Parts<T, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl<T: Timeline> Broker<T> {
    /// Puts a broker together and starts to fire.
    ///
    /// # Errors
    /// As the operating system says when it has no thread left.
    pub fn start<O: Outlet>(options: Options, parts: Parts<T, O>) -> io::Result<Self> {
        let Parts { timeline, outlet, topics, groups, clock } = parts;
        let time = Arc::new(BrokerTime::new(clock));
        let counters = Arc::new(Counters::default());
        let signals = Lane::ALL.map(|_| Arc::new(Signal::default()));
        let errands = Errands::start()?;
        let wakers = signals.clone();
        timeline.listen(Arc::new(move |lane| wakers[lane.index()].wake()));
        let (failed, failure) = oneshot::channel();
        let mut failures = vec![failure];
        let counted = Arc::clone(&timeline);
        let consumer_parts = ConsumerParts {
            groups,
            topics: Arc::clone(&topics),
            time: Arc::clone(&time),
            counters: Arc::clone(&counters),
            pending: Arc::new(move |topic| pending_of(&*counted, topic)),
            auto_create: options.auto_create,
            limits: JobLimits {
                body_bytes_max: options.body_bytes_max,
                delay_max: options.delay_max,
            },
        };
        let consumers = Consumers::start(consumer_parts, failed)?;
        let mut firing = Vec::new();
        for lane in Lane::ALL {
            let (timeline, outlet) = (Arc::clone(&timeline), Arc::clone(&outlet));
            let delivery =
                Delivery::new(timeline, outlet, Arc::clone(&time), Arc::clone(&counters))
                    .heard_by(consumers.clone());
            let (failed, failure) = oneshot::channel();
            failures.push(failure);
            let signal = Arc::clone(&signals[lane.index()]);
            firing.push(start_firing(lane, Firing::new(lane, delivery), signal, failed)?);
        }
        let shared = Shared {
            options,
            timeline,
            topics,
            time,
            counters,
            errands,
            turns: [const { AtomicU64::new(0) }; TURNS],
            consumers,
            signals,
            firing: Mutex::new(firing),
            failures: Mutex::new(failures),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Withdraws messages that have not fired, each with a definite outcome. `Ok` means that the
    /// outcomes survive a crash.
    ///
    /// # Errors
    /// As the store says.
    pub async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        let outcomes = self.shared.timeline.cancel(ids).await?;
        let cancelled = outcomes.iter().filter(|o| **o == CancelOutcome::Cancelled).count();
        self.shared.counters.cancelled.fetch_add(cancelled as u64, Ordering::Relaxed);
        Ok(outcomes)
    }

    /// The topics. Calls may block on the disk.
    #[must_use]
    pub fn topics(&self) -> &Arc<dyn Topics> {
        &self.shared.topics
    }

    /// The groups that consume the topics.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.shared.consumers
    }

    /// The broker clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.time.read().timestamp()
    }

    /// A look at the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counts: HashMap<_, _> = self.shared.timeline.counts().into_iter().collect();
        let topics = self.shared.topics.list();
        let pending = topics
            .iter()
            .map(|topic| (topic.name.clone(), counts.get(&topic.id).copied().unwrap_or(0)))
            .collect();
        self.shared.counters.read(pending, self.shared.time.steps())
    }

    /// Waits until a thread stops because the store is out of order, or by a panic. Only the first
    /// caller waits; others, and those after a regular end, wait for ever.
    pub async fn failed(&self) -> StoreError {
        let mut failures = std::mem::take(&mut *self.shared.failures.lock());
        std::future::poll_fn(|context| {
            for failure in &mut failures {
                match Pin::new(failure).poll(context) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(error)) => return Poll::Ready(error),
                    Poll::Ready(Err(_ended)) if self.shared.consumers.is_stopped() => {}
                    Poll::Ready(Err(_panicked)) => {
                        let what = "a thread of the broker ended by a panic";
                        return Poll::Ready(StoreError::Poisoned(what.into()));
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Stops firing, and the end of leases. What was accepted stays in the timeline.
    pub fn stop(&self) {
        self.shared.consumers.stop();
        self.shared.signals.iter().for_each(|signal| signal.stop());
        for thread in std::mem::take(&mut *self.shared.firing.lock()) {
            if thread.join().is_err() {
                tracing::error!("firing ended by a panic");
            }
        }
        self.shared.errands.close();
    }
}

fn start_firing<T: Timeline, O: Outlet>(
    lane: Lane,
    firing: Firing<T, O>,
    signal: Arc<Signal>,
    failed: oneshot::Sender<StoreError>,
) -> io::Result<JoinHandle<()>> {
    let name = match lane {
        Lane::Message => "punctual-fire",
        // Fifteen characters are all that the system shows of a name.
        Lane::Retry => "punctual-retry",
    };
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        if let Err(error) = fire::run(firing, &signal) {
            tracing::error!(%error, ?lane, "firing has stopped");
            // Receiver gone: nobody waits for failures any more.
            drop(failed.send(error));
        }
    })
}

fn pending_of<T: Timeline>(timeline: &T, topic: TopicId) -> u64 {
    let counts = timeline.counts();
    counts.into_iter().find(|(of, _)| *of == topic).map_or(0, |(_, count)| count)
}
