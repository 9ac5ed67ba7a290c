//! What the broker counts.

mod topics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use punctual_model::{Buckets, Histogram, Lane, TopicId, TopicName};

pub use self::topics::{ByTopic, TopicCounters, TopicCounts};
use crate::group::Reason;
use crate::pulse::{Behind, WorstSeen};

/// Upper bounds of the lateness buckets, in microseconds.
const LATENESS_BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// Counters that only grow.
#[derive(Debug)]
pub struct Counters {
    /// Messages accepted.
    pub scheduled: AtomicU64,
    /// Messages whose moment came.
    pub fired: AtomicU64,
    /// Messages the outlet took.
    pub delivered: AtomicU64,
    /// Messages cancelled.
    pub cancelled: AtomicU64,
    /// Missed messages withdrawn by a catch-up policy.
    pub skipped: AtomicU64,
    /// Messages given to consumers of groups, each attempt counted.
    pub received: AtomicU64,
    /// Messages that groups were done with.
    pub acked: AtomicU64,
    /// Failed messages that come again.
    pub retries: AtomicU64,
    /// Messages that became dead letters, by the place of the reason in [`Reason::ALL`].
    pub dead: [AtomicU64; Reason::ALL.len()],
    /// How often messages were refused by the outlet, by topic.
    pub refused: RefusedCounts,
    /// The same for each topic by itself.
    pub topics: ByTopic,
    /// How late messages were delivered.
    pub lateness: Histogram,
    /// How far firing is behind, for each lane.
    pub behind: [Behind; Lane::ALL.len()],
    /// The message that has failed most often.
    pub worst: WorstSeen,
}

/// Topics that are counted by themselves, the first that are refused; the others share one count. Few,
/// because each has a line among the metrics.
const REFUSED_TOPICS_MAX: usize = 100;

/// How often messages were refused, by topic.
#[derive(Debug, Default)]
pub struct RefusedCounts {
    topics: Mutex<BTreeMap<TopicId, u64>>,
    others: AtomicU64,
}

impl RefusedCounts {
    /// Adds so many for each topic.
    pub(crate) fn note_all(&self, refused: &[(TopicId, u64)]) {
        if refused.is_empty() {
            return;
        }
        let mut topics = self.topics.lock();
        for (topic, count) in refused {
            if topics.len() < REFUSED_TOPICS_MAX || topics.contains_key(topic) {
                *topics.entry(*topic).or_default() += count;
            } else {
                self.others.fetch_add(*count, Ordering::Relaxed);
            }
        }
    }

    /// Those of each topic, and those of all topics that are not counted by themselves.
    #[must_use]
    pub fn read(&self) -> (Vec<(TopicId, u64)>, u64) {
        let topics = self.topics.lock().iter().map(|(&topic, &count)| (topic, count)).collect();
        (topics, self.others.load(Ordering::Relaxed))
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            scheduled: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            received: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            dead: Default::default(),
            refused: RefusedCounts::default(),
            topics: ByTopic::default(),
            lateness: Histogram::new(&LATENESS_BOUNDS_MICROS),
            behind: Default::default(),
            worst: WorstSeen::default(),
        }
    }
}

/// A look at the counters.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Messages accepted since the start.
    pub scheduled: u64,
    /// Messages whose moment came since the start.
    pub fired: u64,
    /// Messages the outlet took since the start.
    pub delivered: u64,
    /// Messages cancelled since the start.
    pub cancelled: u64,
    /// Missed messages withdrawn by a catch-up policy since the start.
    pub skipped: u64,
    /// Messages given to consumers of groups since the start, each attempt counted.
    pub received: u64,
    /// Messages that groups were done with since the start.
    pub acked: u64,
    /// Failed messages that come again, since the start.
    pub retries: u64,
    /// Messages that became dead letters since the start, for each reason.
    pub dead: Vec<(Reason, u64)>,
    /// How often messages were refused by the outlet and put off, by topic since the start; without
    /// a name those beyond the topics that are counted by themselves. Of topics that are no more
    /// nothing is told.
    pub refused: Vec<(Option<TopicName>, u64)>,
    /// Pending messages of each topic that has any.
    pub pending: Vec<(TopicName, u64)>,
    /// How late messages were delivered.
    pub lateness: Buckets,
    /// Steps of the wall clock noticed since the start.
    pub clock_steps: u64,
}

impl Counters {
    /// So many messages of a topic were accepted.
    pub(crate) fn accepted(&self, topic: TopicId, count: u64) {
        self.scheduled.fetch_add(count, Ordering::Relaxed);
        self.topics.note(topic, |of| &of.scheduled, count);
    }

    /// So many messages of a topic were withdrawn.
    pub(crate) fn withdrawn(&self, topic: TopicId, count: u64) {
        self.cancelled.fetch_add(count, Ordering::Relaxed);
        self.topics.note(topic, |of| &of.cancelled, count);
    }

    /// So many failed messages of a topic come again.
    pub(crate) fn comes_again(&self, topic: TopicId, count: u64) {
        self.retries.fetch_add(count, Ordering::Relaxed);
        self.topics.note(topic, |of| &of.retried, count);
    }

    /// So many messages of a topic have become dead letters.
    pub(crate) fn died(&self, topic: TopicId, reason: Reason, count: u64) {
        self.topics.note(topic, |of| &of.dead, count);
        let mut counters = Reason::ALL.into_iter().zip(&self.dead);
        if let Some((_, counter)) = counters.find(|(of, _)| *of == reason) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self, pending: Vec<(TopicName, u64)>, clock_steps: u64) -> Stats {
        Stats {
            scheduled: self.scheduled.load(Ordering::Relaxed),
            fired: self.fired.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            acked: self.acked.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            dead: Reason::ALL
                .into_iter()
                .zip(&self.dead)
                .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
                .collect(),
            refused: Vec::new(),
            pending,
            lateness: self.lateness.read(),
            clock_steps,
        }
    }
}
