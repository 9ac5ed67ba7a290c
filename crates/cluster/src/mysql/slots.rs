//! Who may write to a slot, and what its owner remembers of it.
//!
//! Every transaction that writes begins with [`lock`] and looks at what it answered before it
//! commits. Rows of slots are always locked by ascending number, so nobody waits in a circle.

use std::collections::{BTreeMap, HashMap};

use punctual_model::Timestamp;
use sqlx::mysql::MySqlRow;

use super::MysqlStore;
use super::line::{Call, Line, Rows, Trouble};
use super::row::{column, damaged, lane_number};
use super::script::{Script, numbers};
use crate::store::{Counted, Failure, Kind, Marks, Slot, Tenure};

/// Slots whose marks are written down in one transaction: the server treats longer lists differently.
const SLOTS_TOGETHER: usize = 500;

/// Locks the rows of these slots in share mode. Answers the place of the statement.
pub(super) fn lock(script: &mut Script, slots: impl Iterator<Item = Slot>) -> usize {
    let mut slots: Vec<u64> = slots.map(|slot| u64::from(slot.0)).collect();
    slots.sort_unstable();
    slots.dedup();
    let place = script.statements();
    let slots = numbers(slots);
    script.statement(&format!(
        "SELECT slot, term, swept FROM punctual_slots WHERE slot IN ({slots}) LOCK IN SHARE MODE"
    ));
    place
}

/// The terms that [`lock`] has read, and how often hours of each slot were forgotten.
#[derive(Debug, Default)]
pub(super) struct Terms(HashMap<u16, (u64, u64)>);

impl Terms {
    /// Reads them; before the statement was reached there are none, and nothing has been written.
    pub(super) fn read(sets: &[Rows], place: usize) -> Result<Self, Trouble> {
        let rows = sets.get(place).map_or(&[][..], Vec::as_slice);
        let read = |row| Ok::<_, Trouble>((column(row, 0)?, (column(row, 1)?, column(row, 2)?)));
        rows.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Those of slots that were all swept so often.
    #[cfg(test)]
    pub(super) fn of(slots: impl Iterator<Item = Slot>, swept: u64) -> Self {
        Self(slots.map(|slot| (slot.0, (1, swept))).collect())
    }

    /// Whether a tenure still holds.
    pub(super) fn hold(&self, tenure: Tenure) -> bool {
        self.0.get(&tenure.slot.0).is_some_and(|(term, _swept)| *term == tenure.term)
    }

    /// How often hours of a slot were forgotten.
    pub(super) fn swept(&self, slot: Slot) -> Option<u64> {
        self.0.get(&slot.0).map(|(_term, swept)| *swept)
    }
}

/// Reads one slot's row without a lock of its own.
pub(super) fn term_of(slot: Slot) -> String {
    let slot = slot.0;
    format!("SELECT slot, term, swept FROM punctual_slots WHERE slot = {slot}")
}

impl MysqlStore {
    pub(super) async fn take_slot(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        self.run(Take { store: self, tenure }).await
    }

    pub(super) async fn keep_slots(
        &self,
        slots: &[(Tenure, Marks, Vec<Counted>)],
    ) -> Result<Vec<bool>, Failure> {
        let mut answers = Vec::with_capacity(slots.len());
        for slots in slots.chunks(SLOTS_TOGETHER) {
            match self.run(Keep { store: self, slots }).await {
                Ok(held) => answers.extend(held),
                Err(Failure::Unavailable(text)) if !answers.is_empty() => {
                    return Err(Failure::Unsure(text));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(answers)
    }
}

struct Take<'a> {
    store: &'a MysqlStore,
    tenure: Tenure,
}

impl Call for Take<'_> {
    type Answer = Option<Marks>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Option<Marks>, Trouble> {
        let Tenure { slot: Slot(slot), term } = self.tenure;
        let mut script = line.transaction(self.store.packet_bytes);
        // Waits here for every transaction that has the row locked.
        script.statement(&format!(
            "INSERT INTO punctual_slots (slot, term) VALUES ({slot}, {term}) \
             ON DUPLICATE KEY UPDATE term = GREATEST(term, VALUES(term))"
        ));
        let place = script.statements();
        script.statement(&term_of(Slot(slot)));
        script.statement(&marks_of(Slot(slot)));
        let sets = line.ask(script).await?;
        if !Terms::read(&sets, place)?.hold(self.tenure) {
            line.roll_back().await?;
            return Ok(None);
        }
        let marks = sets.get(place + 1).and_then(|rows| rows.first());
        let marks = marks.map_or(Ok(Marks::default()), read_marks)?;
        line.commit().await?;
        Ok(Some(marks))
    }
}

/// Reads the marks of a slot.
pub(super) fn marks_of(slot: Slot) -> String {
    let slot = slot.0;
    format!(
        "SELECT claimed_until, message_ended_before, retry_ended_before, counters_until \
         FROM punctual_marks WHERE slot = {slot}"
    )
}

/// What [`marks_of`] answers.
pub(super) fn read_marks(row: &MySqlRow) -> Result<Marks, Trouble> {
    let time = |index| {
        let time = Timestamp::from_millis(column(row, index)?);
        time.ok_or_else(|| damaged("a time past year 9999"))
    };
    Ok(Marks {
        claimed_until: time(0)?,
        ended_before: [time(1)?, time(2)?],
        counters_until: column(row, 3)?,
    })
}

struct Keep<'a> {
    store: &'a MysqlStore,
    slots: &'a [(Tenure, Marks, Vec<Counted>)],
}

impl Call for Keep<'_> {
    type Answer = Vec<bool>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Vec<bool>, Trouble> {
        let mut held = vec![true; self.slots.len()];
        loop {
            if !held.contains(&true) {
                return Ok(held);
            }
            let mut script = line.transaction(self.store.packet_bytes);
            let place = lock(&mut script, self.slots.iter().map(|(tenure, ..)| tenure.slot));
            self.write(&mut script, &held);
            let sets = line.ask(script).await?;
            let terms = Terms::read(&sets, place)?;
            let before = held.clone();
            for (held, (tenure, ..)) in held.iter_mut().zip(self.slots) {
                *held &= terms.hold(*tenure);
            }
            if held == before {
                line.commit().await?;
                return Ok(held);
            }
            line.roll_back().await?;
        }
    }
}

impl Keep<'_> {
    /// What is claimed never goes back, but for an owner that says that nothing is on its way.
    fn write(&self, script: &mut Script, held: &[bool]) {
        let slots: Vec<_> =
            self.slots.iter().zip(held).filter_map(|(slot, held)| held.then_some(slot)).collect();
        script.rows(
            (
                "INSERT INTO punctual_marks (slot, claimed_until, message_ended_before, \
                 retry_ended_before, counters_until) VALUES",
                " ON DUPLICATE KEY UPDATE \
                 claimed_until = IF(VALUES(claimed_until) = 0, 0, \
                 GREATEST(claimed_until, VALUES(claimed_until))), \
                 message_ended_before = VALUES(message_ended_before), \
                 retry_ended_before = VALUES(retry_ended_before), \
                 counters_until = GREATEST(counters_until, VALUES(counters_until))",
            ),
            &slots,
            |_slot| 0,
            |out, (tenure, marks, _counted)| {
                let [message, retry] = marks.ended_before.map(Timestamp::as_millis);
                let claimed = marks.claimed_until.as_millis();
                out.push_str(&numbers([
                    u64::from(tenure.slot.0),
                    claimed,
                    message,
                    retry,
                    marks.counters_until,
                ]));
            },
        );
        let mut counts = BTreeMap::new();
        let mut totals = BTreeMap::new();
        for (tenure, _marks, counted) in slots {
            let slot = tenure.slot.0;
            for Counted { topic, lane, kind, hour, difference } in counted {
                let (topic, lane) = (topic.get(), lane_number(*lane));
                let place = (topic, lane, kind_number(*kind), *hour, slot);
                *counts.entry(place).or_insert(0) += difference;
                *totals.entry((lane, topic, slot)).or_insert(0) += difference;
            }
        }
        let counts: Vec<_> =
            counts.into_iter().filter(|(_, difference)| *difference != 0).collect();
        script.rows(
            ("INSERT INTO punctual_counts (topic, lane, kind, hour, slot, number) VALUES", ADD),
            &counts,
            |_row| 0,
            |out, ((topic, lane, kind, hour, slot), difference)| {
                out.push_str(&format!("{topic},{lane},{kind},{hour},{slot},{difference}"));
            },
        );
        put_totals(script, totals);
    }
}

/// Adds to numbers that are there already.
const ADD: &str = " ON DUPLICATE KEY UPDATE number = number + VALUES(number)";

/// Adds to the sums, by lane, topic and slot.
pub(super) fn put_totals(script: &mut Script, totals: BTreeMap<(u8, u32, u16), i64>) {
    let totals: Vec<_> = totals.into_iter().filter(|(_, difference)| *difference != 0).collect();
    script.rows(
        ("INSERT INTO punctual_totals (lane, topic, slot, number) VALUES", ADD),
        &totals,
        |_row| 0,
        |out, ((lane, topic, slot), difference)| {
            out.push_str(&format!("{lane},{topic},{slot},{difference}"));
        },
    );
}

/// The number of a kind.
pub(super) const fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Scheduled => 0,
        Kind::Paused => 1,
        Kind::Prepared => 2,
        Kind::Control => 3,
    }
}
