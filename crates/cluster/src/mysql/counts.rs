//! How much is pending, as owners have written it down, and what of an hour is to come.
//!
//! Whole hours are counted already; of the hour in which a bound lies the entries themselves are
//! counted, in the slots where the topic may have some, up to a limit. Past it the rest of the hour
//! is taken to be even, as it always is in the retry lane, where series stand among the messages.
//! So the work never grows with what is pending.

use std::collections::BTreeMap;
use std::ops::Range;

use punctual_model::ports::Forecast;
use punctual_model::{Lane, Timestamp, TopicId};

use super::MysqlStore;
use super::hours::HOUR_MS;
use super::line::{Call, Line, Rows, Trouble};
use super::row::{ENDED, column, lane_number, topic};
use super::script::{Script, numbers};
use super::slots::kind_number;
use crate::store::{Failure, Kind};

/// Rows looked at one by one for a bound, of whatever topic.
const LOOKED_AT_MAX: i64 = 4000;

/// An hour that has the topic in more slots is taken to be even: the server treats longer lists
/// differently.
const SLOTS_TOGETHER: usize = 500;

impl MysqlStore {
    pub(super) async fn read_forecast(
        &self,
        topic: TopicId,
        bounds: &[Timestamp],
    ) -> Result<Forecast, Failure> {
        let bounds: Vec<_> = bounds.iter().map(|bound| Bound::of(*bound)).collect();
        self.run(Outlook { topic, bounds, packet_bytes: self.packet_bytes }).await
    }

    pub(super) async fn read_counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        self.run(Totals { lane }).await
    }
}

/// A time, as the hour in which it lies and how much of that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    hour: u64,
    passed_ms: u64,
}

impl Bound {
    /// The next whole second is what counts, and nothing that is parked is due.
    pub(super) fn of(time: Timestamp) -> Self {
        let time = time.min(Timestamp::PREPARED).as_millis().div_ceil(1000) * 1000;
        Self { hour: time / HOUR_MS, passed_ms: time % HOUR_MS }
    }
}

struct Outlook {
    topic: TopicId,
    bounds: Vec<Bound>,
    packet_bytes: usize,
}

/// The part of an hour that is looked at for a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    slots: Vec<u64>,
    /// Everything before has ended, since the hour began.
    ended_ms: u64,
}

/// What was seen in a part of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    counted: u64,
    is_all: bool,
}

/// Counts of all hours, then for each bound the slots to look at.
fn hours_script(topic: TopicId, bounds: &[Bound]) -> Script {
    let mut script = Script::new(usize::MAX);
    let (topic, lane) = (topic.get(), lane_number(Lane::Message));
    script.statement(&format!(
        "SELECT lane, kind, hour, CAST(SUM(number) AS SIGNED) FROM punctual_counts \
         FORCE INDEX (PRIMARY) WHERE topic = {topic} GROUP BY lane, kind, hour"
    ));
    let most = SLOTS_TOGETHER + 1;
    for Bound { hour, .. } in bounds {
        script.statement(&format!(
            "SELECT h.slot, m.message_ended_before \
             FROM punctual_hours h FORCE INDEX (PRIMARY) \
             LEFT JOIN punctual_marks m FORCE INDEX (PRIMARY) ON m.slot = h.slot \
             WHERE h.topic = {topic} AND h.lane = {lane} AND h.hour = {hour} LIMIT {most}"
        ));
    }
    script
}

impl Part {
    fn read(rows: &Rows, bound: Bound) -> Result<Self, Trouble> {
        let (mut slots, mut ended_ms) = (Vec::new(), bound.passed_ms);
        for row in rows {
            let (slot, ended_before): (u16, Option<u64>) = (column(row, 0)?, column(row, 1)?);
            let ended = ended_before.unwrap_or(0).saturating_sub(bound.hour * HOUR_MS);
            if ended < bound.passed_ms {
                slots.push(u64::from(slot));
                ended_ms = ended_ms.min(ended);
            }
        }
        Ok(Self { slots, ended_ms })
    }

    fn is_even(&self) -> bool {
        self.slots.len() > SLOTS_TOGETHER
    }

    /// Looks at what is due before the bound; nothing where there is nothing to see.
    fn statement(&self, topic: TopicId, bound: Bound) -> Option<String> {
        if self.slots.is_empty() || self.is_even() {
            return None;
        }
        let (topic, lane) = (topic.get(), lane_number(Lane::Message));
        let slots = numbers(self.slots.iter().copied());
        let from = bound.hour * HOUR_MS;
        let (from, to) = (from + self.ended_ms, from + bound.passed_ms);
        Some(format!(
            "SELECT COUNT(*), CAST(COALESCE(SUM(topic = {topic} AND state < {ENDED}), 0) AS SIGNED) \
             FROM (SELECT topic, state FROM punctual_entries FORCE INDEX (PRIMARY) \
             WHERE slot IN ({slots}) AND lane = {lane} AND due >= {from} AND due < {to} \
             LIMIT {LOOKED_AT_MAX}) AS some"
        ))
    }
}

impl Outlook {
    /// What is due in the hour of each bound before it.
    async fn look(&self, line: &mut Line<'_>, parts: &[Part]) -> Result<Vec<Seen>, Trouble> {
        let mut script = Script::new(self.packet_bytes);
        for (part, bound) in parts.iter().zip(&self.bounds) {
            if let Some(statement) = part.statement(self.topic, *bound) {
                script.statement(&statement);
            }
        }
        let mut sets = line.ask(script).await?.into_iter();
        let mut seen = Vec::with_capacity(parts.len());
        for (part, bound) in parts.iter().zip(&self.bounds) {
            if part.statement(self.topic, *bound).is_none() {
                seen.push(Seen { counted: 0, is_all: !part.is_even() });
                continue;
            }
            let rows = sets.next().unwrap_or_default();
            let (mut looked_at, mut counted) = (0_i64, 0_i64);
            if let Some(row) = rows.first() {
                (looked_at, counted) = (column(row, 0)?, column(row, 1)?);
            }
            let counted = u64::try_from(counted).unwrap_or(0);
            seen.push(Seen { counted, is_all: looked_at < LOOKED_AT_MAX });
        }
        Ok(seen)
    }
}

impl Call for Outlook {
    type Answer = Forecast;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Forecast, Trouble> {
        let sets = line.ask(hours_script(self.topic, &self.bounds)).await?;
        let mut sets = sets.iter();
        let mut forecast = Forecast::default();
        let mut lanes = [const { BTreeMap::new() }; Lane::ALL.len()];
        for row in sets.next().into_iter().flatten() {
            let (lane, kind, hour): (u8, u8, u32) =
                (column(row, 0)?, column(row, 1)?, column(row, 2)?);
            let number = u64::try_from(column::<i64>(row, 3)?).unwrap_or(0);
            match (kind, lanes.get_mut(usize::from(lane))) {
                (SCHEDULED, Some(hours)) => {
                    forecast.scheduled += number;
                    hours.insert(u64::from(hour), number);
                }
                (PAUSED, _) => forecast.paused += number,
                (PREPARED, _) => forecast.prepared += number,
                _ => {}
            }
        }
        let read = |(rows, bound): (&Rows, &Bound)| Part::read(rows, *bound);
        let parts = sets.zip(&self.bounds).map(read).collect::<Result<Vec<_>, _>>()?;
        let seen = self.look(line, &parts).await?;
        let [message, retry] = lanes;
        for ((Bound { hour, passed_ms }, part), seen) in self.bounds.iter().zip(&parts).zip(seen) {
            let whole = [&message, &retry]
                .map(|hours| hours.range(..hour).map(|(_, number)| number).sum::<u64>());
            let [message, retry] =
                [&message, &retry].map(|hours| hours.get(hour).copied().unwrap_or(0));
            let part =
                in_part(message, part.ended_ms..*passed_ms, seen) + even(retry, 0..*passed_ms);
            forecast.before.push(whole.iter().sum::<u64>() + part);
        }
        Ok(forecast)
    }
}

const SCHEDULED: u8 = kind_number(Kind::Scheduled);
const PAUSED: u8 = kind_number(Kind::Paused);
const PREPARED: u8 = kind_number(Kind::Prepared);

/// How much of an hour is due in a part of it, of which so much was seen.
fn in_part(in_hour: u64, part_ms: Range<u64>, seen: Seen) -> u64 {
    if seen.is_all {
        return seen.counted;
    }
    even(in_hour, part_ms).max(seen.counted)
}

/// How much of an hour is due in a part of it, if all is even from where that begins.
fn even(in_hour: u64, part_ms: Range<u64>) -> u64 {
    let Range { start, end } = part_ms;
    let (part, rest) = (end.saturating_sub(start), HOUR_MS.saturating_sub(start).max(1));
    let even = u128::from(in_hour) * u128::from(part) / u128::from(rest);
    u64::try_from(even).unwrap_or(u64::MAX)
}

struct Totals {
    lane: Lane,
}

/// The sums of all topics in a lane.
pub(super) fn counts_statement(lane: Lane) -> String {
    let lane = lane_number(lane);
    format!(
        "SELECT topic, CAST(SUM(number) AS SIGNED) FROM punctual_totals FORCE INDEX (PRIMARY) \
         WHERE lane = {lane} GROUP BY topic"
    )
}

impl Call for Totals {
    type Answer = Vec<(TopicId, u64)>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Self::Answer, Trouble> {
        let sets = line.ask(Script::of(counts_statement(self.lane))).await?;
        let mut counts = Vec::new();
        for row in sets.iter().flatten() {
            let number = u64::try_from(column::<i64>(row, 1)?).unwrap_or(0);
            if number > 0 {
                counts.push((topic(column(row, 0)?)?, number));
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_whole_second() {
        let bound = |ms| Bound::of(Timestamp::from_millis(ms).unwrap());
        assert_eq!(bound(HOUR_MS), Bound { hour: 1, passed_ms: 0 });
        assert_eq!(bound(HOUR_MS + 1), Bound { hour: 1, passed_ms: 1000 });
        assert_eq!(bound(2 * HOUR_MS - 1), Bound { hour: 2, passed_ms: 0 });
    }

    #[test]
    fn an_hour_with_much_in_it_is_taken_to_be_even() {
        let seen = |counted, is_all| Seen { counted, is_all };
        assert_eq!(in_part(10, 0..HOUR_MS / 2, seen(7, true)), 7, "few are counted");
        assert_eq!(in_part(40_000, 0..HOUR_MS / 2, seen(4000, false)), 20_000);
        assert_eq!(in_part(40_000, 0..1, seen(4000, false)), 4000, "what was seen is there");
        let half = HOUR_MS / 2;
        let last = in_part(40_000, half..half + half / 4, seen(9, false));
        assert_eq!(last, 10_000, "all of it is in the half that is left");
    }
}
