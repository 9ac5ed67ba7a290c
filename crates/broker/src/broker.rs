//! The handle everybody calls, and the threads that fire.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use futures_channel::oneshot;
use parking_lot::Mutex;
use punctual_model::ports::{Groups, Outlet, Records, StoreError, Timeline, Topics};
use punctual_model::{Clock, Lane, Span, Timestamp, TopicId, TopicKind, TopicName, limits};

use crate::audit::{Silent, Sink};
use crate::bounds::{Bounds, InForce};
use crate::bulk::BulkJobs;
use crate::control::Controls;
use crate::deliver::Delivery;
use crate::errands::Errands;
use crate::fire::{self, Firing, Signal};
use crate::group::{ConsumerParts, Consumers};
use crate::pace::Pace;
use crate::place::Placing;
use crate::resume::Resume;
use crate::rules::Rules;
use crate::series::{self, Keeper};
use crate::stats::{Counters, Stats, TopicCounts};
use crate::time::BrokerTime;
use crate::transaction::{self, DeskParts};
use crate::watch::Watch;

/// What can be set for a broker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest body.
    pub body_bytes_max: usize,
    /// Longest delay.
    pub delay_max: Span,
    /// Whether a topic is made when it is first used.
    pub auto_create: bool,
    /// What random choices start from, for whoever wants the same ones again.
    pub seed: Option<u64>,
    /// Where it is taken down who changed what.
    pub audit: Arc<dyn Sink>,
    /// Who follows messages on their way, if somebody does.
    pub watch: Option<Arc<dyn Watch>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_bytes_max: limits::BODY_BYTES_MAX,
            delay_max: limits::DELAY_MAX,
            auto_create: true,
            seed: None,
            audit: Arc::new(Silent),
            watch: None,
        }
    }
}

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
    pub(crate) bounds: Arc<InForce>,
    pub(crate) timeline: Arc<T>,
    pub(crate) topics: Arc<dyn Topics>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) errands: Errands,
    pub(crate) placing: Arc<Placing>,
    pub(crate) bulk: BulkJobs,
    pub(crate) consumers: Consumers,
    pub(crate) records: Option<Arc<dyn Records>>,
    keeper: Keeper<T>,
    series: series::Desk,
    transactions: transaction::Desk<T>,
    /// One for each lane.
    pub(crate) signals: [Arc<Signal>; Lane::ALL.len()],
    /// What firing has to know of topics.
    rules: Arc<Rules>,
    resume: Resume,
    /// Held while time is moved by hand.
    pub(crate) moving: Mutex<()>,
    firing: Mutex<Vec<JoinHandle<()>>>,
    /// One for each thread; whoever waits for failures takes them all.
    failures: Mutex<Vec<oneshot::Receiver<StoreError>>>,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
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
    /// The logs of the topics, where they are here.
    pub records: Option<Arc<dyn Records>>,
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
        let Parts { timeline, outlet, topics, groups, records, clock } = parts;
        let time = Arc::new(BrokerTime::new(clock));
        let counters = Arc::new(Counters::default());
        let bounds = Arc::new(InForce::new(&options));
        let placing = Placing::new(Arc::clone(&bounds), Arc::clone(&topics), options.seed);
        let placing = Arc::new(placing);
        let signals = Lane::ALL.map(|_| Arc::new(Signal::new(&time)));
        let errands = Errands::start()?;
        let wakers = signals.clone();
        timeline.listen(Arc::new(move |lane| wakers[lane.index()].wake()));
        let mut base = Base { timeline, topics, time, counters, failures: Vec::new() };
        let consumers = base.start_consumers(groups, &bounds, options.watch.clone())?;
        let keeper = base.keeper();
        let series = series::Desk::start(keeper.clone(), base.watched())?;
        let transactions = base.start_transactions()?;
        let controls = Controls { repeat: series.handler(), check: transactions.handler() };
        let rules = Arc::new(Rules::new(Arc::clone(&base.topics)));
        let (timeline, topics) = (Arc::clone(&base.timeline), Arc::clone(&base.topics));
        let resume = Resume::start(timeline, topics, Arc::clone(&base.time))?;
        let mut firing = Vec::new();
        for lane in Lane::ALL {
            let delivery = base.delivery(&outlet, &consumers);
            let delivery = delivery.watched_by(options.watch.clone(), Arc::clone(&base.topics));
            let signal = Arc::clone(&signals[lane.index()]);
            let fires = Firing::new(lane, delivery).with_series(keeper.clone());
            let fires = match lane {
                Lane::Message => fires.paced_by(pace(&rules, &resume, &base.time)),
                Lane::Retry => fires.controlled_by(controls.clone()),
            };
            firing.push(start_firing(lane, fires, signal, base.watched())?);
        }
        let Base { timeline, topics, time, counters, failures } = base;
        let shared = Shared {
            options,
            bounds,
            timeline,
            topics,
            time,
            counters,
            errands,
            placing,
            bulk: BulkJobs::default(),
            consumers,
            records,
            keeper,
            series,
            transactions,
            signals,
            rules,
            resume,
            moving: Mutex::default(),
            firing: Mutex::new(firing),
            failures: Mutex::new(failures),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The topics. Calls may block on the disk.
    #[must_use]
    pub fn topics(&self) -> &Arc<dyn Topics> {
        &self.shared.topics
    }

    /// The logs of the topics, where they are here. Calls may block on the disk.
    #[must_use]
    pub fn local_records(&self) -> Option<&Arc<dyn Records>> {
        self.shared.records.as_ref()
    }

    /// Settings of topics were changed, or topics deleted. Does not block on the disk.
    pub fn topics_changed(&self) {
        self.shared.consumers.topics_changed();
        if self.shared.rules.refresh() {
            self.shared.signals[Lane::Message.index()].wake();
        }
    }

    /// From now on messages and topics are held to these.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.shared.bounds.set(bounds);
    }

    /// The groups that consume the topics.
    #[must_use]
    pub fn consumers(&self) -> &Consumers {
        &self.shared.consumers
    }

    /// The series: messages that come round.
    #[must_use]
    pub fn series(&self) -> &Keeper<T> {
        &self.shared.keeper
    }

    /// The transactions.
    #[must_use]
    pub fn transactions(&self) -> &transaction::Desk<T> {
        &self.shared.transactions
    }

    /// The broker clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.time.read().timestamp()
    }

    /// What is pending for each topic: of plain ones the messages, of those of groups the retries.
    fn pending_counts(&self) -> HashMap<TopicId, u64> {
        let is_plain = |topic: TopicId| {
            let topic = self.shared.topics.by_id(topic);
            topic.is_some_and(|topic| topic.kind == TopicKind::Plain)
        };
        let of = |lane: Lane| {
            let counts = self.shared.timeline.counts(lane).into_iter();
            counts.filter(move |(topic, _)| is_plain(*topic) == (lane == Lane::Message))
        };
        Lane::ALL.into_iter().flat_map(of).collect()
    }

    /// A look at the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counts: HashMap<_, _> = self.pending_counts();
        let topics = self.shared.topics.list();
        let pending = topics
            .iter()
            .map(|topic| (topic.name.clone(), counts.get(&topic.id).copied().unwrap_or(0)))
            .collect();
        let mut stats = self.shared.counters.read(pending, self.shared.time.steps());
        stats.refused = self.refused_counts();
        stats
    }

    /// What was counted of each topic that there is, since the start.
    #[must_use]
    pub fn topic_counts(&self) -> Vec<(TopicId, TopicCounts)> {
        self.shared.counters.topics.read(|topic| self.shared.topics.by_id(topic).is_some())
    }

    /// What was counted of one topic since the start.
    #[must_use]
    pub fn counts_of(&self, topic: TopicId) -> TopicCounts {
        self.shared.counters.topics.read_one(topic)
    }

    /// How often the outlet has refused messages, by topic.
    fn refused_counts(&self) -> Vec<(Option<TopicName>, u64)> {
        let (topics, others) = self.shared.counters.refused.read();
        let mut counts = Vec::with_capacity(topics.len());
        for (id, count) in topics {
            // Added to the others it would look as if they had been refused just now.
            if let Some(topic) = self.shared.topics.by_id(id) {
                counts.push((Some(topic.name.clone()), count));
            }
        }
        if others > 0 {
            counts.push((None, others));
        }
        counts
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
        self.shared.bulk.stop();
        self.shared.consumers.stop();
        self.shared.signals.iter().for_each(|signal| signal.stop());
        for thread in std::mem::take(&mut *self.shared.firing.lock()) {
            if thread.join().is_err() {
                tracing::error!("firing ended by a panic");
            }
        }
        self.shared.series.stop();
        self.shared.transactions.stop();
        self.shared.resume.stop();
        self.shared.errands.close();
    }
}

/// What the parts of a broker share, while it is put together.
struct Base<T> {
    timeline: Arc<T>,
    topics: Arc<dyn Topics>,
    time: Arc<BrokerTime>,
    counters: Arc<Counters>,
    /// One for each thread that was started.
    failures: Vec<oneshot::Receiver<StoreError>>,
}

impl<T: Timeline> Base<T> {
    /// Where a thread says why it ends, if it has to.
    fn watched(&mut self) -> oneshot::Sender<StoreError> {
        let (failed, failure) = oneshot::channel();
        self.failures.push(failure);
        failed
    }

    fn start_consumers(
        &mut self,
        groups: Arc<dyn Groups>,
        bounds: &Arc<InForce>,
        watch: Option<Arc<dyn Watch>>,
    ) -> io::Result<Consumers> {
        let counted = Arc::clone(&self.timeline);
        let parts = ConsumerParts {
            groups,
            topics: Arc::clone(&self.topics),
            time: Arc::clone(&self.time),
            counters: Arc::clone(&self.counters),
            pending: Arc::new(move |topic| pending_of(&*counted, topic)),
            bounds: Arc::clone(bounds),
            watch,
        };
        Consumers::start(parts, self.watched())
    }

    fn keeper(&self) -> Keeper<T> {
        Keeper::new(
            Arc::clone(&self.timeline),
            Arc::clone(&self.topics),
            Arc::clone(&self.time),
            Arc::clone(&self.counters),
        )
    }

    fn start_transactions(&mut self) -> io::Result<transaction::Desk<T>> {
        let parts = DeskParts {
            timeline: Arc::clone(&self.timeline),
            topics: Arc::clone(&self.topics),
            time: Arc::clone(&self.time),
            counters: Arc::clone(&self.counters),
        };
        transaction::Desk::start(parts, self.watched())
    }

    fn delivery<O: Outlet>(&self, outlet: &Arc<O>, consumers: &Consumers) -> Delivery<T, O> {
        let (timeline, outlet) = (Arc::clone(&self.timeline), Arc::clone(outlet));
        let (time, counters) = (Arc::clone(&self.time), Arc::clone(&self.counters));
        Delivery::new(timeline, outlet, time, counters).heard_by(consumers.clone())
    }
}

/// What holds back due messages of topics with such settings.
fn pace(rules: &Arc<Rules>, resume: &Resume, time: &Arc<BrokerTime>) -> Pace {
    let (resume, activity) = (resume.clone(), time.activity().clone());
    let resumed = move |topic| resume.ask(topic, activity.begin());
    Pace::new(Arc::clone(rules), time.read(), Arc::new(resumed))
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
    let counts = timeline.counts(Lane::Retry);
    counts.into_iter().find(|(of, _)| *of == topic).map_or(0, |(_, count)| count)
}
