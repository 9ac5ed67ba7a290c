//! A point of the trends: what ten minutes brought on one node, and how they ended.
//!
//! A point is bounded: so many topics and apps stand in it by themselves, those with the most to say,
//! and the others are summed up. Who had nothing to say does not stand in it at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use punctual_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::trends::counts::{MessageCounts, SentCounts, Spread};

/// Topics, and apps, that stand in a point by themselves.
pub(crate) const NAMED_MAX: usize = 256;

/// What ten minutes brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// When they began, in milliseconds.
    pub(crate) at: u64,
    pub(crate) whole: MessageCounts,
    /// Messages that were pending in the end.
    pub(crate) pending: u64,
    pub(crate) topics: BTreeMap<Box<str>, TopicPoint>,
    /// All topics that do not stand there by themselves.
    pub(crate) other_topics: TopicPoint,
    pub(crate) apps: BTreeMap<Box<str>, SentCounts>,
    /// All apps that do not stand there by themselves.
    pub(crate) other_apps: SentCounts,
    pub(crate) gauges: Gauges,
    /// How late messages were delivered.
    pub(crate) lateness: Spread,
    /// How long flushes of the journal took.
    pub(crate) journal: Spread,
}

/// What ten minutes brought for a topic: counts, and what was pending in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicPoint(pub(crate) MessageCounts, pub(crate) u64);

/// How a node stood in the end, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gauges {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk_free_bytes: Option<u64>,
}

impl Point {
    pub(crate) fn start(&self) -> Timestamp {
        Timestamp::from_millis_saturating(self.at)
    }

    /// How much it has counted. Of two points of the same ten minutes, the one that goes on from the
    /// other has counted more.
    pub(crate) fn activity(&self) -> u64 {
        let apps = self.apps.values().fold(self.other_apps, |sum, counts| sum.plus(*counts));
        self.whole.activity().saturating_add(apps.activity())
    }

    /// Adds what was counted later in the same ten minutes.
    pub(crate) fn add(&mut self, later: Self) {
        self.whole = self.whole.plus(later.whole);
        self.pending = later.pending;
        for (name, TopicPoint(counts, pending)) in later.topics {
            let known = self.topics.entry(name).or_default();
            *known = TopicPoint(known.0.plus(counts), pending);
        }
        let TopicPoint(counts, pending) = later.other_topics;
        self.other_topics = TopicPoint(self.other_topics.0.plus(counts), pending);
        for (name, counts) in later.apps {
            let known = self.apps.entry(name).or_default();
            *known = known.plus(counts);
        }
        self.other_apps = self.other_apps.plus(later.other_apps);
        self.gauges = later.gauges;
        self.lateness = self.lateness.plus(&later.lateness);
        self.journal = self.journal.plus(&later.journal);
    }

    /// The same with no more names than may stand in it.
    pub(crate) fn bounded(mut self) -> Self {
        let quiet =
            surplus(&self.topics, |TopicPoint(counts, pending)| (counts.activity(), *pending));
        for name in quiet {
            if let Some(TopicPoint(counts, pending)) = self.topics.remove(&name) {
                let TopicPoint(others, others_pending) = self.other_topics;
                self.other_topics =
                    TopicPoint(others.plus(counts), others_pending.saturating_add(pending));
            }
        }
        for name in surplus(&self.apps, |counts| counts.activity()) {
            if let Some(counts) = self.apps.remove(&name) {
                self.other_apps = self.other_apps.plus(counts);
            }
        }
        self
    }
}

/// The names that are too many: those with the least to say.
fn surplus<T, O: Ord>(named: &BTreeMap<Box<str>, T>, says: impl Fn(&T) -> O) -> Vec<Box<str>> {
    if named.len() <= NAMED_MAX {
        return Vec::new();
    }
    let mut ranked: Vec<(Reverse<O>, &str)> =
        named.iter().map(|(name, of)| (Reverse(says(of)), &**name)).collect();
    ranked.sort_unstable();
    ranked.into_iter().skip(NAMED_MAX).map(|(_, name)| name.into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(scheduled: u64) -> MessageCounts {
        serde_json::from_str(&format!("[{scheduled},0,0,0,0,0,0,0,0]")).unwrap()
    }

    fn sent(scheduled: u64) -> SentCounts {
        serde_json::from_str(&format!("[{scheduled},0,0]")).unwrap()
    }

    #[test]
    fn the_most_active_stand_by_themselves_and_nothing_gets_lost() {
        let mut point = Point::default();
        for number in 0..1000_u64 {
            point.topics.insert(format!("t{number}").into(), TopicPoint(counts(number), 1));
            point.apps.insert(format!("a{number}").into(), sent(number));
        }
        let point = point.bounded();
        assert_eq!((point.topics.len(), point.apps.len()), (NAMED_MAX, NAMED_MAX));
        assert!(point.topics.contains_key("t999") && !point.topics.contains_key("t743"));
        let named: u64 = point.topics.values().map(|of| of.0.get("scheduled")).sum();
        assert_eq!(named + point.other_topics.0.get("scheduled"), (0..1000).sum::<u64>());
        assert_eq!(point.other_topics.1, 1000 - NAMED_MAX as u64);
        let named: u64 = point.apps.values().map(|of| of.get("scheduled")).sum();
        assert_eq!(named + point.other_apps.get("scheduled"), (0..1000).sum::<u64>());
    }

    #[test]
    fn a_point_that_goes_on_adds_up_and_ends_where_it_is() {
        let mut first = Point { at: 600_000, whole: counts(3), pending: 7, ..Point::default() };
        first.topics.insert("a".into(), TopicPoint(counts(3), 7));
        let mut later = Point { at: 600_000, whole: counts(2), pending: 1, ..Point::default() };
        later.topics.insert("a".into(), TopicPoint(counts(1), 0));
        later.topics.insert("b".into(), TopicPoint(counts(1), 1));
        later.apps.insert("x".into(), sent(2));
        first.add(later);
        assert_eq!((first.whole, first.pending), (counts(5), 1));
        assert_eq!(first.topics.get("a"), Some(&TopicPoint(counts(4), 0)));
        assert_eq!(first.topics.get("b"), Some(&TopicPoint(counts(1), 1)));
        assert_eq!(first.activity(), 7);
        let text = serde_json::to_vec(&first).unwrap();
        assert_eq!(serde_json::from_slice::<Point>(&text).unwrap(), first);
    }
}
