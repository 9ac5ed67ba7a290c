//! Forgets what ended long ago, a slot and some thousand rows at a time.

use std::collections::BTreeMap;

use punctual_model::{Lane, Timestamp};

use super::hours::{hour_of, old_hours_statement};
use super::line::{Call, Line, Rows, Trouble};
use super::row::{ELSEWHERE, MOVED, column, lane_number};
use super::script::Script;
use super::slots::{Terms, lock, marks_of, put_totals, read_marks, term_of};
use super::{Finished, MysqlStore};
use crate::store::{Failure, Marks, Slot, Tenure};

/// Rows that one call forgets at most, so that nobody waits long for it.
const ROWS: usize = 2000;

impl MysqlStore {
    pub(super) async fn purge_slot(
        &self,
        tenure: Tenure,
        before: Timestamp,
    ) -> Result<bool, Failure> {
        self.run(Purge { store: self, tenure, before }).await
    }
}

struct Purge<'a> {
    store: &'a MysqlStore,
    tenure: Tenure,
    before: Timestamp,
}

impl Call for Purge<'_> {
    type Answer = bool;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<bool, Trouble> {
        let slot = self.tenure.slot;
        let mut script = line.transaction(self.store.packet_bytes);
        let place = lock(&mut script, [slot].into_iter());
        script.statement(&marks_of(slot));
        script.statement(&ended_statement(slot, self.before));
        let sets = line.ask(script).await?;
        if !Terms::read(&sets, place)?.hold(self.tenure) {
            line.roll_back().await?;
            return Ok(false);
        }
        let marks = sets.get(place + 1).and_then(|rows| rows.first());
        let marks = marks.map_or(Ok(Marks::default()), read_marks)?;
        let ended = sets.get(place + 2).map_or(&[][..], Vec::as_slice);
        let old = self.old(line, &marks).await?;
        let mut script = Script::new(self.store.packet_bytes);
        if let Some(last) = ended.last() {
            let last =
                Last { at: column(last, 0)?, due: column(last, 1)?, sequence: column(last, 2)? };
            for statement in last.statements(slot, self.store.finished) {
                script.statement(&statement);
            }
        }
        forget_counts(&mut script, slot, &old.counts)?;
        if script.statements() == 0 {
            line.roll_back().await?;
        } else {
            line.ask(script).await?;
            line.commit().await?;
        }
        let is_held = old.hours.is_empty() || self.sweep(line, &old.hours).await?;
        let most = ended.len().max(old.counts.len()).max(old.hours.len());
        Ok(is_held && most >= ROWS)
    }
}

/// What is kept of hours that are over.
#[derive(Default)]
struct Old {
    counts: Rows,
    hours: Rows,
}

impl Purge<'_> {
    /// Counts of hours in which nothing is pending any more, which are off if an owner went down before
    /// it wrote its last ones; and those hours themselves, when they are long past.
    async fn old(&self, line: &mut Line<'_>, marks: &Marks) -> Result<Old, Trouble> {
        let slot = self.tenure.slot;
        let mut script = Script::new(self.store.packet_bytes);
        for (lane, ended_before) in Lane::ALL.into_iter().zip(marks.ended_before) {
            script.statement(&old_counts_statement(slot, lane, ended_before));
            let before = self.before.min(ended_before);
            script.statement(&old_hours_statement(slot, lane, before, ROWS));
        }
        let mut old = Old::default();
        let mut sets = line.ask(script).await?.into_iter();
        while let (Some(counts), Some(hours)) = (sets.next(), sets.next()) {
            old.counts.extend(counts);
            old.hours.extend(hours);
        }
        Ok(old)
    }

    /// Forgets hours, in a transaction of its own, because nobody else may write to the slot
    /// meanwhile. Answers whether the term still holds.
    async fn sweep(&self, line: &mut Line<'_>, hours: &Rows) -> Result<bool, Trouble> {
        let Tenure { slot, term } = self.tenure;
        let mut script = line.transaction(self.store.packet_bytes);
        let number = slot.0;
        script.statement(&format!(
            "UPDATE punctual_slots SET swept = swept + 1 WHERE slot = {number} AND term = {term}"
        ));
        let place = script.statements();
        script.statement(&term_of(slot));
        for row in hours {
            let (topic, lane, hour): (u32, u8, u32) =
                (column(row, 0)?, column(row, 1)?, column(row, 2)?);
            script.statement(&format!(
                "DELETE FROM punctual_hours WHERE topic = {topic} AND lane = {lane} \
                 AND hour = {hour} AND slot = {number}"
            ));
        }
        let sets = line.ask(script).await?;
        if !Terms::read(&sets, place)?.hold(self.tenure) {
            line.roll_back().await?;
            return Ok(false);
        }
        line.commit().await?;
        Ok(true)
    }
}

/// The rows that ended first.
pub(super) fn ended_statement(slot: Slot, before: Timestamp) -> String {
    let (slot, before) = (slot.0, before.as_millis());
    format!(
        "SELECT ended_at, due, sequence FROM punctual_ended FORCE INDEX (PRIMARY) \
         WHERE slot = {slot} AND ended_at < {before} \
         ORDER BY ended_at, due, sequence LIMIT {ROWS}"
    )
}

/// The counts of a lane's hours before that time.
pub(super) fn old_counts_statement(slot: Slot, lane: Lane, ended_before: Timestamp) -> String {
    let (slot, lane) = (slot.0, lane_number(lane));
    let hour = hour_of(ended_before);
    format!(
        "SELECT topic, lane, kind, hour, number FROM punctual_counts FORCE INDEX (old) \
         WHERE slot = {slot} AND lane = {lane} AND hour > 0 AND hour < {hour} \
         LIMIT {ROWS} FOR UPDATE"
    )
}

fn forget_counts(script: &mut Script, slot: Slot, counts: &Rows) -> Result<(), Trouble> {
    let mut totals = BTreeMap::new();
    for row in counts {
        let (topic, lane, kind): (u32, u8, u8) =
            (column(row, 0)?, column(row, 1)?, column(row, 2)?);
        let (hour, number): (u32, i64) = (column(row, 3)?, column(row, 4)?);
        let slot = slot.0;
        *totals.entry((lane, topic, slot)).or_insert(0) -= number;
        script.statement(&format!(
            "DELETE FROM punctual_counts WHERE topic = {topic} AND lane = {lane} \
             AND kind = {kind} AND hour = {hour} AND slot = {slot}"
        ));
    }
    put_totals(script, totals);
    Ok(())
}

/// The last row that is to be forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) at: u64,
    pub(super) due: u64,
    pub(super) sequence: u64,
}

impl Last {
    /// Forgets the names of messages up to this one, and then those. One that was told to have ended
    /// twice goes with its first end.
    pub(super) fn statements(self, slot: Slot, finished: Finished) -> Vec<String> {
        let Self { at, due, sequence } = self;
        let slot = slot.0;
        let rows = format!(
            "x.slot = {slot} AND (x.ended_at < {at} OR (x.ended_at = {at} AND x.due < {due}) \
             OR (x.ended_at = {at} AND x.due = {due} AND x.sequence <= {sequence}))"
        );
        let entries = "punctual_ended x FORCE INDEX (PRIMARY) \
             STRAIGHT_JOIN punctual_entries e FORCE INDEX (PRIMARY) \
             ON e.slot = x.slot AND e.lane = x.sequence >> 55 AND e.due = x.due \
             AND e.sequence = x.sequence AND e.ended_at = x.ended_at";
        let mut statements = vec![format!(
            "DELETE n FROM {entries} STRAIGHT_JOIN punctual_names n FORCE INDEX (message) \
             ON n.sequence = e.sequence AND n.due = e.due WHERE {rows}"
        )];
        if finished == Finished::Archive {
            // A row that only told where its message stood is not the message.
            statements.push(format!(
                "INSERT INTO punctual_archive (slot, lane, due, sequence, topic, \
                 topic_partition, state, ended_at, content) \
                 SELECT e.slot, e.lane, e.due, e.sequence, e.topic, e.topic_partition, \
                 IF(e.state > {MOVED}, e.state - {ELSEWHERE}, e.state), e.ended_at, e.content \
                 FROM {entries} WHERE {rows} AND e.moved_due IS NULL \
                 ON DUPLICATE KEY UPDATE ended_at = VALUES(ended_at)"
            ));
        }
        statements.push(format!("DELETE e FROM {entries} WHERE {rows}"));
        statements.push(format!("DELETE x FROM punctual_ended x WHERE {rows}"));
        statements
    }
}
