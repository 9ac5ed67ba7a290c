//! How much more or less is pending than was written down.

use std::collections::HashMap;

use punctual_model::ports::Forecast;
use punctual_model::{Action, Entry, Lane, Parked, Timestamp, TopicId};

use crate::store::{Counted, Kind};

const HOUR_MS: u64 = 3_600_000;

/// What is counted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Class {
    topic: TopicId,
    lane: Lane,
    kind: Kind,
    hour: u32,
}

impl Class {
    pub(super) fn of(entry: &Entry, lane: Lane) -> Self {
        let extra = entry.extra.as_ref();
        let kind = match extra.map(|extra| (extra.action, extra.parked)) {
            Some((Action::Repeat | Action::Check, _)) => Kind::Control,
            Some((Action::Deliver, Some(Parked::Paused { .. }))) => Kind::Paused,
            Some((Action::Deliver, Some(Parked::Half { .. }))) => Kind::Prepared,
            Some((Action::Deliver, None)) | None => Kind::Scheduled,
        };
        let hour = if entry.due.is_parked() { 0 } else { hour(entry.due.as_millis()) };
        Self { topic: entry.topic, lane, kind, hour }
    }
}

fn hour(millis: u64) -> u32 {
    u32::try_from(millis / HOUR_MS).unwrap_or(u32::MAX)
}

/// Differences to what was written down.
#[derive(Clone, Debug, Default)]
pub(super) struct Differences(HashMap<Class, i64>);

impl Differences {
    pub(super) fn add(&mut self, class: Class, difference: i64) {
        let sum = self.0.entry(class).or_default();
        *sum += difference;
        if *sum == 0 {
            self.0.remove(&class);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn counted(&self) -> Vec<Counted> {
        let counted = self.0.iter().map(|(class, difference)| {
            let Class { topic, lane, kind, hour } = *class;
            Counted { topic, lane, kind, hour, difference: *difference }
        });
        counted.collect()
    }

    /// These were written down.
    pub(super) fn written(&mut self, counted: &[Counted]) {
        for Counted { topic, lane, kind, hour, difference } in counted {
            let class = Class { topic: *topic, lane: *lane, kind: *kind, hour: *hour };
            self.add(class, -difference);
        }
    }

    /// What a lane has more of each topic.
    pub(super) fn of_lane(&self, lane: Lane) -> impl Iterator<Item = (TopicId, i64)> {
        let here = self.0.iter().filter(move |(class, _)| class.lane == lane);
        here.map(|(class, difference)| (class.topic, *difference))
    }

    /// Corrects a forecast of what was written down. Within the hour of a bound the store has
    /// counted the entries themselves, and they are all there.
    pub(super) fn correct(&self, forecast: &mut Forecast, topic: TopicId, bounds: &[Timestamp]) {
        for (class, difference) in self.0.iter().filter(|(class, _)| class.topic == topic) {
            match class.kind {
                Kind::Paused => shift(&mut forecast.paused, *difference),
                Kind::Prepared => shift(&mut forecast.prepared, *difference),
                Kind::Control => {}
                Kind::Scheduled => {
                    shift(&mut forecast.scheduled, *difference);
                    for (before, bound) in forecast.before.iter_mut().zip(bounds) {
                        let bound = hour(bound.as_millis().next_multiple_of(1000));
                        if class.hour < bound {
                            shift(before, *difference);
                        }
                    }
                }
            }
        }
    }
}

fn shift(count: &mut u64, difference: i64) {
    *count = count.saturating_add_signed(difference);
}
