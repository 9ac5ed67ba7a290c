//! How the broker does, in a few numbers for whoever watches over it.
//!
//! Nothing here looks at a message: those who deliver and settle leave notes as they go, and a look
//! at them costs the same with ten messages and with ten million.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use parking_lot::Mutex;
use punctual_model::ports::Timeline;
use punctual_model::{Buckets, GroupName, Lane, Span, Timestamp, TopicId, TopicKind, TopicName};

use crate::broker::Broker;

/// How the broker does at one moment.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    /// Messages that wait for their due time.
    pub pending: u64,
    /// How long the oldest message that is due waits to be delivered, if one does.
    pub overdue: Option<Span>,
    /// Messages that groups were done with.
    pub acked: u64,
    /// Failed messages that come again.
    pub retries: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// How late messages were delivered.
    pub lateness: Buckets,
    /// Steps of the wall clock noticed.
    pub clock_steps: u64,
}

/// A message that has failed more often than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worst {
    /// How often.
    pub failed: u16,
    /// The topic of its group.
    pub topic: TopicName,
    /// The group with which it failed.
    pub group: GroupName,
}

impl<T: Timeline> Broker<T> {
    /// How the broker does. Does not wait for the store.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let shared = &self.shared;
        let is_plain = |topic: TopicId| {
            let topic = shared.topics.by_id(topic);
            topic.is_some_and(|topic| topic.kind == TopicKind::Plain)
        };
        let counts = Lane::ALL.map(|lane| shared.timeline.counts(lane));
        let waiting = counts[Lane::Message.index()].iter().filter(|(topic, _)| is_plain(*topic));
        let now = shared.time.read().timestamp();
        let behind = Lane::ALL.into_iter().zip(&counts).filter_map(|(lane, counts)| {
            let any = counts.iter().any(|(_, count)| *count > 0);
            shared.counters.behind[lane.index()].since(any)
        });
        let overdue = behind.min().filter(|since| *since < now);
        let stats = shared.counters.read(Vec::new(), shared.time.steps());
        Pulse {
            pending: waiting.map(|(_, count)| *count).fold(0, u64::saturating_add),
            overdue: overdue.map(|since| now.since(since)),
            acked: stats.acked,
            retries: stats.retries,
            dead: stats.dead.iter().map(|(_, count)| *count).fold(0, u64::saturating_add),
            lateness: stats.lateness,
            clock_steps: stats.clock_steps,
        }
    }
}

/// How far firing is behind in one lane.
#[derive(Debug)]
pub struct Behind {
    /// The due time of the oldest message that is known to wait; the end of time if none does.
    oldest: AtomicU64,
    /// Everything that was due before was handed over by the timeline.
    reached: AtomicU64,
}

impl Default for Behind {
    fn default() -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Self { oldest: never(), reached: never() }
    }
}

impl Behind {
    /// The oldest message that is due and not delivered was due then.
    pub(crate) fn note_oldest(&self, due: Option<Timestamp>) {
        self.oldest.store(due.map_or(u64::MAX, Timestamp::as_millis), Ordering::Relaxed);
    }

    /// Everything that is due before was handed over by the timeline.
    pub(crate) fn note_reached(&self, until: Timestamp) {
        self.reached.store(until.as_millis(), Ordering::Relaxed);
    }

    /// Since when something waits that is due. Where nothing is pending, nothing can wait in the
    /// timeline.
    #[must_use]
    pub fn since(&self, any_pending: bool) -> Option<Timestamp> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let reached = if any_pending { self.reached.load(Ordering::Relaxed) } else { u64::MAX };
        let since = oldest.min(reached);
        (since != u64::MAX).then(|| Timestamp::from_millis_saturating(since))
    }
}

/// Remembers the message that has failed most often, until somebody takes note of it.
#[derive(Debug, Default)]
pub struct WorstSeen {
    /// How often; so that nobody waits for others because of lesser ones.
    failed: AtomicU16,
    worst: Mutex<Option<Worst>>,
}

impl WorstSeen {
    /// A message has failed so often.
    pub(crate) fn note(&self, failed: u16, topic: &TopicName, group: &GroupName) {
        if failed <= self.failed.load(Ordering::Relaxed) {
            return;
        }
        let mut worst = self.worst.lock();
        if worst.as_ref().is_none_or(|worst| worst.failed < failed) {
            *worst = Some(Worst { failed, topic: topic.clone(), group: group.clone() });
            self.failed.store(failed, Ordering::Relaxed);
        }
    }

    /// The worst since this was last asked.
    pub(crate) fn take(&self) -> Option<Worst> {
        let mut worst = self.worst.lock();
        self.failed.store(0, Ordering::Relaxed);
        worst.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_told_once() {
        let seen = WorstSeen::default();
        let (topic, group) = (TopicName::new("t").unwrap(), GroupName::new("g").unwrap());
        assert_eq!(seen.take(), None);
        [1, 7, 3, 7].iter().for_each(|failed| seen.note(*failed, &topic, &group));
        assert_eq!(seen.take().map(|worst| worst.failed), Some(7));
        assert_eq!(seen.take(), None);
        seen.note(2, &topic, &group);
        assert_eq!(seen.take().map(|worst| worst.failed), Some(2), "it begins anew");
    }

    #[test]
    fn what_the_timeline_keeps_counts_only_where_something_is_pending() {
        let at = |millis| Timestamp::from_millis(millis).unwrap();
        let behind = Behind::default();
        assert_eq!(behind.since(true), None);
        behind.note_reached(at(50));
        assert_eq!([true, false].map(|any| behind.since(any)), [Some(at(50)), None]);
        behind.note_oldest(Some(at(20)));
        assert_eq!([true, false].map(|any| behind.since(any)), [Some(at(20)); 2]);
        behind.note_oldest(None);
        assert_eq!(behind.since(false), None);
    }
}
