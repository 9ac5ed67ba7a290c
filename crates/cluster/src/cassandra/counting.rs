//! How much is pending when, by counters that owners of slots add to about every second.
//!
//! Adding is not repeated when its outcome is unknown, so counts may be off after trouble; they are
//! for forecasts alone. Only the part of an hour is counted from the entries themselves, and beyond
//! a number of rows in proportion.

use std::collections::{BTreeMap, HashMap};

use punctual_model::ports::Forecast;
use punctual_model::{Key, Lane, Timestamp, TopicId};
use scylla::value::Counter;

use super::Inner;
use super::calls::{Trouble, damaged, side_by_side};
use super::listing::Buckets;
use super::place::{self, COUNT_SHARDS, Place, millis};
use super::rows;
use crate::store::{Counted, Failure, Kind, Slot};

/// Additions on their way at a time.
const ADDS_AT_ONCE: usize = 64;

const HOUR_MS: u64 = 3_600_000;

/// Rows that are counted one by one for one forecast.
const LOOK_MAX: usize = 20_000;

/// Rows of one partition that are looked at in one go.
const ROWS: usize = 1000;

/// What was counted of a topic: by hour what is scheduled, and the rest as sums.
#[derive(Default)]
struct Sums {
    scheduled: BTreeMap<i64, i64>,
    paused: i64,
    prepared: i64,
}

impl Inner {
    /// Adds differences up and writes them down.
    pub(super) async fn count(&self, slots: Vec<(Slot, &[Counted])>) {
        let mut hours: HashMap<(i32, i8, i8, i8, i64), i64> = HashMap::new();
        let mut totals: HashMap<(i8, i8, i32), i64> = HashMap::new();
        for (slot, counted) in slots {
            let shard = place::shard(slot);
            for one in counted {
                let (topic, lane) = (place::topic(one.topic), place::lane(one.lane));
                let kind = rows::kind(one.kind);
                let hour = i64::from(one.hour);
                *hours.entry((topic, shard, lane, kind, hour)).or_default() += one.difference;
                *totals.entry((lane, shard, topic)).or_default() += one.difference;
            }
        }
        let hours = hours.into_iter().filter(|(_, n)| *n != 0);
        let hours = hours.map(|((topic, shard, lane, kind, hour), n)| {
            self.calls.add(&self.statements.count, (Counter(n), topic, shard, lane, kind, hour))
        });
        let totals = totals.into_iter().filter(|(_, n)| *n != 0);
        let totals = totals.map(|((lane, shard, topic), n)| {
            self.calls.add(&self.statements.sum, (Counter(n), lane, shard, topic))
        });
        let mut added = side_by_side(ADDS_AT_ONCE, hours).await;
        added.extend(side_by_side(ADDS_AT_ONCE, totals).await);
        let lost = added.iter().filter(|add| add.is_err()).count();
        if lost > 0 {
            tracing::warn!(lost, "counts for forecasts could not be written down");
        }
    }

    pub(super) async fn forecast(
        &self,
        topic: TopicId,
        bounds: &[Timestamp],
    ) -> Result<Forecast, Failure> {
        let sums = self.sums(topic).await.map_err(Trouble::read)?;
        let mut before = Vec::with_capacity(bounds.len());
        let mut budget = LOOK_MAX;
        for bound in bounds {
            let bound = bound.as_millis().div_ceil(1000) * 1000;
            let hour = place::small(bound / HOUR_MS);
            let whole: i64 = sums.scheduled.range(..hour).map(|(_, n)| *n).sum();
            let part = if bound.is_multiple_of(HOUR_MS) {
                0
            } else {
                let counted = sums.scheduled.get(&hour).copied().unwrap_or(0);
                self.part_of_hour(topic, bound, counted, &mut budget)
                    .await
                    .map_err(Trouble::read)?
            };
            before.push(positive(whole) + part);
        }
        Ok(Forecast {
            scheduled: positive(sums.scheduled.values().sum()),
            paused: positive(sums.paused),
            prepared: positive(sums.prepared),
            before,
        })
    }

    async fn sums(&self, topic: TopicId) -> Result<Sums, Trouble> {
        let mut sums = Sums::default();
        for shard in 0..COUNT_SHARDS {
            let values = (place::topic(topic), shard);
            let found = self.calls.rows(&self.statements.counted, values).await?;
            for row in found.rows::<(i8, i8, i64, Counter)>().map_err(damaged)? {
                let (_, kind, hour, n) = row.map_err(damaged)?;
                if kind == rows::kind(Kind::Scheduled) {
                    *sums.scheduled.entry(hour).or_default() += n.0;
                } else if kind == rows::kind(Kind::Paused) {
                    sums.paused += n.0;
                } else if kind == rows::kind(Kind::Prepared) {
                    sums.prepared += n.0;
                }
            }
        }
        Ok(sums)
    }

    /// How much is scheduled from the start of an hour until `bound`, which lies in it.
    async fn part_of_hour(
        &self,
        topic: TopicId,
        bound: u64,
        counted: i64,
        budget: &mut usize,
    ) -> Result<u64, Trouble> {
        let start = bound / HOUR_MS * HOUR_MS;
        let end = Timestamp::from_millis_saturating(bound);
        let mut seen = 0;
        for lane in Lane::ALL {
            let from =
                Key { due: Timestamp::from_millis_saturating(start), sequence: lane.first() };
            let to = Key { due: end, sequence: lane.first() };
            let mut buckets = Buckets::new(topic, lane, place::bucket(from), place::bucket(to));
            while let Some((bucket, slots)) = self.next_bucket(&mut buckets).await? {
                for slot in slots {
                    let place = Place { slot: i32::from(slot.0), lane: place::lane(lane), bucket };
                    let range = ((millis(from.due), -1), (millis(end), -1));
                    match self.count_rows(topic, place, range, budget).await? {
                        Some(count) => seen += count,
                        None => {
                            // Too many to be counted: as if the hour were even.
                            let whole = positive(counted);
                            return Ok(whole * (bound - start) / HOUR_MS);
                        }
                    }
                }
            }
        }
        Ok(seen)
    }

    /// Counts what is scheduled of a topic in one partition; `None` when there is too much of it.
    async fn count_rows(
        &self,
        topic: TopicId,
        place: Place,
        (mut start, end): super::listing::Range,
        budget: &mut usize,
    ) -> Result<Option<u64>, Trouble> {
        let topic = place::topic(topic);
        let mut seen = 0;
        loop {
            let look = self.look(place, (start, end), ROWS).await?;
            if look.looked_at > *budget {
                return Ok(None);
            }
            *budget -= look.looked_at;
            let scheduled = |row: &&super::listing::Glimpse| {
                row.topic == topic && row.kind == rows::kind(Kind::Scheduled)
            };
            seen += look.pending.iter().filter(scheduled).count() as u64;
            let Some(last) = look.more_after else { return Ok(Some(seen)) };
            start = (millis(last.due), place::sequence(last.sequence));
        }
    }

    pub(super) async fn counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        let mut totals: BTreeMap<i32, i64> = BTreeMap::new();
        for shard in 0..COUNT_SHARDS {
            let values = (place::lane(lane), shard);
            let found = self.calls.rows(&self.statements.total, values).await;
            let found = found.map_err(Trouble::read)?;
            let found = found.rows::<(i32, Counter)>();
            for row in found.map_err(damaged).map_err(Trouble::read)? {
                let (topic, n) = row.map_err(damaged).map_err(Trouble::read)?;
                *totals.entry(topic).or_default() += n.0;
            }
        }
        let pending = totals.into_iter().filter(|(_, n)| *n > 0);
        pending.map(|(topic, n)| Ok((place::topic_id(topic)?, positive(n)))).collect()
    }
}

/// A sum of differences, some of which may have been lost.
fn positive(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
