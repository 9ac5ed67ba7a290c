//! Figures of single topics and groups, as many as may have lines of their own.

use std::collections::HashSet;

use punctual_broker::Stats;
use punctual_broker::group::GroupLag;
use punctual_model::TopicName;

use super::chosen::OTHER;
use super::text::{Label, gauge, head, line};
use crate::consuming::Consuming;
use crate::http::shared::Shared;
use crate::http::topics::is_shown;

/// Figures of a group.
type Figure = fn(&GroupLag) -> u64;

const GROUP_GAUGES: [(&str, &str, Figure); 4] = [
    ("punctual_group_lag", "Delivered messages a group is not done with.", |of| of.lag),
    ("punctual_group_in_flight", "Messages that are with consumers.", |of| of.in_flight),
    ("punctual_group_retrying", "Messages that wait for another attempt.", |of| of.retrying),
    ("punctual_group_dead", "Dead letters.", |of| of.dead),
];

/// What was looked at.
pub(super) struct Named {
    /// How many topics and groups there are.
    topics: usize,
    groups: usize,
    /// What is pending for those topics that have a line of their own.
    pending: Vec<(TopicName, u64)>,
    /// And for the others, if there are any.
    pending_other: Option<u64>,
    lags: Vec<GroupLag>,
    lags_other: Vec<GroupLag>,
    /// How often the outlet put off messages of a topic.
    refused: Vec<(Option<TopicName>, u64)>,
}

impl Named {
    /// Blocks on the disk.
    pub(super) fn look(shared: &Shared, stats: &Stats) -> Self {
        let most = shared.live().config.metrics;
        let topics = shared.broker.topics().list();
        let hidden: HashSet<&TopicName> =
            topics.iter().filter(|topic| !is_shown(topic)).map(|topic| &topic.name).collect();
        let pending: Vec<&(TopicName, u64)> =
            stats.pending.iter().filter(|(name, _)| !hidden.contains(name)).collect();
        let topics = pending.len();
        let of = |pending: &&(TopicName, u64)| TopicName::clone(&pending.0);
        let (pending, other) =
            shared.chosen.topics(pending, most.topics_max, |one| (of(one), one.1));
        // How far groups are that read from Kafka is known there.
        let lags = match shared.consuming() {
            Consuming::Here => shared.broker.consumers().lags(),
            Consuming::Kafka => Vec::new(),
        };
        let groups = lags.len();
        let name = |one: &GroupLag| (one.topic.clone(), one.group.clone());
        let (lags, lags_other) =
            shared.chosen.groups(lags, most.groups_max, |one| (name(one), one.lag));
        Self {
            topics,
            groups,
            pending: pending.into_iter().cloned().collect(),
            pending_other: (!other.is_empty()).then(|| sum(other.iter().map(|one| one.1))),
            lags,
            lags_other,
            refused: stats.refused.clone(),
        }
    }

    /// Writes all of it.
    pub(super) fn write(&self, text: &mut String) {
        gauge(text, "punctual_topics", "Topics there are.", self.topics);
        gauge(text, "punctual_groups", "Groups there are.", self.groups);
        let name = "punctual_pending_messages";
        head(text, name, "gauge", "Messages that wait for their due time.");
        for (topic, count) in &self.pending {
            let topic = Label::from(("topic", topic.as_str()));
            line(text, format_args!("{name}{{{topic}}} {count}"));
        }
        if let Some(count) = self.pending_other {
            line(text, format_args!("{name}{{topic=\"{OTHER}\"}} {count}"));
        }
        let name = "punctual_deliveries_refused_total";
        head(text, name, "counter", "Deliveries that the outlet put off.");
        for (topic, count) in &self.refused {
            let topic = topic.as_ref().map_or(OTHER, TopicName::as_str);
            let topic = Label::from(("topic", topic));
            line(text, format_args!("{name}{{{topic}}} {count}"));
        }
        for (name, help, figure) in GROUP_GAUGES {
            head(text, name, "gauge", help);
            self.write_groups(text, name, figure);
        }
    }

    fn write_groups(&self, text: &mut String, name: &str, figure: Figure) {
        let mut write = |topic: &str, group: &str, count: u64| {
            let (topic, group) = (Label::from(("topic", topic)), Label::from(("group", group)));
            line(text, format_args!("{name}{{{topic},{group}}} {count}"));
        };
        for of in &self.lags {
            write(of.topic.as_str(), of.group.as_str(), figure(of));
        }
        if !self.lags_other.is_empty() {
            write(OTHER, OTHER, sum(self.lags_other.iter().map(figure)));
        }
    }
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}
