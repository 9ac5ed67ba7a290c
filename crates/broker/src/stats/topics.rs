//! What is counted of each topic by itself.
//!
//! Only messages that were sent to the topic count here, and what its groups did with them: retries
//! and dead letters stand in topics of their groups, and count where they came from. At most
//! [`TOPICS_MAX`] topics are counted; the counters of the whole broker know of all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use punctual_model::TopicId;

/// Topics that are counted by themselves.
const TOPICS_MAX: usize = 10_000;

/// Counters of one topic, which only grow.
#[derive(Debug, Default)]
pub struct TopicCounters {
    pub(crate) scheduled: AtomicU64,
    pub(crate) fired: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) dead: AtomicU64,
}

/// What was counted of one topic since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicCounts {
    /// Messages accepted.
    pub scheduled: u64,
    /// Messages whose moment came.
    pub fired: u64,
    /// Messages the outlet took.
    pub delivered: u64,
    /// Messages that groups were done with.
    pub acked: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Failed messages that come again.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

impl TopicCounters {
    fn read(&self) -> TopicCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TopicCounts {
            scheduled: of(&self.scheduled),
            fired: of(&self.fired),
            delivered: of(&self.delivered),
            acked: of(&self.acked),
            cancelled: of(&self.cancelled),
            retried: of(&self.retried),
            dead: of(&self.dead),
        }
    }
}

/// One of the counters of a topic.
type Which = fn(&TopicCounters) -> &AtomicU64;

/// The counters of all topics.
#[derive(Debug, Default)]
pub struct ByTopic {
    topics: RwLock<HashMap<TopicId, Arc<TopicCounters>>>,
}

impl ByTopic {
    /// So many more of one topic.
    pub(crate) fn note(&self, topic: TopicId, which: Which, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(counters) = self.of(topic) {
            which(&counters).fetch_add(count, Ordering::Relaxed);
        }
    }

    /// One more of each of these topics. They are added up first: a batch is mostly of one topic.
    pub(crate) fn note_each(&self, topics: impl Iterator<Item = TopicId>, which: Which) {
        let mut counts: Vec<(TopicId, u64)> = Vec::new();
        for topic in topics {
            match counts.last_mut() {
                Some((last, count)) if *last == topic => *count += 1,
                _ => counts.push((topic, 1)),
            }
        }
        if counts.len() > 1 {
            counts.sort_unstable();
        }
        for same in counts.chunk_by(|(one, _), (other, _)| one == other) {
            let count = same.iter().map(|(_, count)| *count).sum();
            same.first().into_iter().for_each(|(topic, _)| self.note(*topic, which, count));
        }
    }

    fn of(&self, topic: TopicId) -> Option<Arc<TopicCounters>> {
        if let Some(counters) = self.topics.read().get(&topic) {
            return Some(Arc::clone(counters));
        }
        let mut topics = self.topics.write();
        let has_room = topics.len() < TOPICS_MAX || topics.contains_key(&topic);
        has_room.then(|| Arc::clone(topics.entry(topic).or_default()))
    }

    /// What was counted, without the topics that are no more: those are forgotten by it.
    pub(crate) fn read(&self, exists: impl Fn(TopicId) -> bool) -> Vec<(TopicId, TopicCounts)> {
        let read = |(topic, counters): (&TopicId, &Arc<TopicCounters>)| (*topic, counters.read());
        let mut counts: Vec<_> = self.topics.read().iter().map(read).collect();
        let gone: HashSet<TopicId> =
            counts.iter().map(|(topic, _)| *topic).filter(|topic| !exists(*topic)).collect();
        if !gone.is_empty() {
            let mut topics = self.topics.write();
            gone.iter().for_each(|topic| drop(topics.remove(topic)));
            counts.retain(|(topic, _)| !gone.contains(topic));
        }
        counts
    }

    /// What was counted of one topic.
    pub(crate) fn read_one(&self, topic: TopicId) -> TopicCounts {
        self.topics.read().get(&topic).map(|counters| counters.read()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(number: u32) -> TopicId {
        TopicId::new(number).unwrap()
    }

    #[test]
    fn batches_count_for_the_topics_of_their_messages() {
        let counts = ByTopic::default();
        counts.note_each([1, 1, 2, 1, 3, 2].into_iter().map(topic), |of| &of.fired);
        counts.note_each(std::iter::empty(), |of| &of.fired);
        counts.note(topic(2), |of| &of.dead, 5);
        counts.note(topic(9), |of| &of.dead, 0);
        let fired = |number| counts.read_one(topic(number)).fired;
        assert_eq!([fired(1), fired(2), fired(3), fired(4)], [3, 2, 1, 0]);
        assert_eq!(counts.read_one(topic(2)).dead, 5);
        assert_eq!(counts.read(|_| true).len(), 3, "nothing is kept of what counted nothing");
    }

    #[test]
    fn so_many_topics_are_counted_and_those_that_go_make_room() {
        let counts = ByTopic::default();
        let most = u32::try_from(TOPICS_MAX).unwrap();
        for number in 1..=most + 1 {
            counts.note(topic(number), |of| &of.scheduled, 1);
        }
        assert_eq!(counts.read(|_| true).len(), TOPICS_MAX);
        assert_eq!(counts.read_one(topic(most + 1)).scheduled, 0);
        assert_eq!(counts.read(|of| of != topic(1)).len(), TOPICS_MAX - 1);
        counts.note(topic(most + 1), |of| &of.scheduled, 1);
        assert_eq!(counts.read_one(topic(most + 1)).scheduled, 1);
    }
}
