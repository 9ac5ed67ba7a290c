//! What is known of slots and messages. Any node may read; nothing is locked.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_model::{Key, Lane, MessageId, State, Timestamp, TopicId};
use sqlx::mysql::MySqlRow;

use super::MysqlStore;
use super::line::{Call, Line, Rows, Trouble};
use super::row::{
    ENDED, MOVED, at_key, column, damaged, decode, key, lane_number, partition, state, topic,
};
use super::script::{Script, put_bytes};
use super::slots::{marks_of, read_marks};
use crate::store::{Failure, Marks, Named, Slot, Stored};

/// Messages or names looked up in one statement: the server treats longer lists differently.
const TOGETHER: usize = 200;

/// Which pending entries of a slot to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageQuery {
    pub(super) slot: Slot,
    pub(super) lane: Lane,
    pub(super) after: Key,
    pub(super) until: Timestamp,
    pub(super) limit: usize,
}

impl PageQuery {
    /// Walks along the primary key. The two ranges are written out, because a server that compares
    /// pairs walks over everything that is due at the same time.
    pub(super) fn statement(&self) -> String {
        let Self { slot, lane, after, until, limit } = *self;
        let (slot, lane) = (slot.0, lane_number(lane));
        let (due, sequence) = (after.due.as_millis(), after.sequence.get());
        let until = until.min(Timestamp::PREPARED).as_millis();
        format!(
            "SELECT due, sequence, state, content FROM punctual_entries FORCE INDEX (PRIMARY) \
             WHERE slot={slot} AND lane={lane} AND state < {ENDED} AND \
             ((due = {due} AND sequence > {sequence}) OR (due > {due} AND due < {until})) \
             AND due < {until} ORDER BY due, sequence LIMIT {limit}"
        )
    }
}

impl MysqlStore {
    pub(super) async fn read_page(
        &self,
        query: PageQuery,
        bytes: usize,
    ) -> Result<Vec<Stored>, Failure> {
        if query.limit == 0 || query.after.due >= query.until.min(Timestamp::PREPARED) {
            return Ok(Vec::new());
        }
        self.run(Page { query, bytes }).await
    }

    pub(super) async fn read_messages(
        &self,
        ids: &[MessageId],
    ) -> Result<Vec<Option<Stored>>, Failure> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(TOGETHER) {
            found.extend(self.run(Get { ids }).await?);
        }
        Ok(found)
    }

    pub(super) async fn read_names(
        &self,
        topic: TopicId,
        texts: &[Arc<str>],
    ) -> Result<Vec<Option<Named>>, Failure> {
        let mut found = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TOGETHER) {
            found.extend(self.run(Names { topic, texts }).await?);
        }
        Ok(found)
    }

    pub(super) async fn is_slot_empty(&self, slot: Slot) -> Result<bool, Failure> {
        self.run(IsEmpty { slot }).await
    }
}

struct Page {
    query: PageQuery,
    bytes: usize,
}

impl Call for Page {
    type Answer = Vec<Stored>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Vec<Stored>, Trouble> {
        let mut page = Vec::new();
        let mut bytes = 0;
        let each = |row: MySqlRow| {
            let at = key(column(&row, 0)?, column(&row, 1)?)?;
            let content: Vec<u8> = column(&row, 3)?;
            bytes += content.len();
            page.push(pending(at, column(&row, 2)?, content)?);
            Ok(bytes < self.bytes)
        };
        line.stream(self.query.statement(), each).await?;
        Ok(page)
    }
}

fn pending(at: Key, number: u8, content: Vec<u8>) -> Result<Stored, Trouble> {
    let (id, entry) = decode(at, content)?;
    Ok(Stored { id, key: at, state: state(number)?, entry: Some(entry) })
}

struct Get<'a> {
    ids: &'a [MessageId],
}

/// Reads messages by their first keys, and those that were moved where they stand.
pub(super) fn get_statement(ids: &[MessageId]) -> String {
    let places: Vec<_> = ids.iter().map(|id| format!("({})", at_key("e.", id.key))).collect();
    let places = places.join(" OR ");
    format!(
        "SELECT e.due, e.sequence, e.topic, e.topic_partition, e.state, e.moved_due, \
         e.moved_sequence, m.state, IF(e.state < {ENDED}, e.content, m.content) \
         FROM punctual_entries e FORCE INDEX (PRIMARY) \
         LEFT JOIN punctual_entries m FORCE INDEX (PRIMARY) \
         ON e.state = {MOVED} AND m.slot = e.slot AND m.lane = e.moved_sequence >> 55 \
         AND m.due = e.moved_due AND m.sequence = e.moved_sequence WHERE {places}"
    )
}

impl Call for Get<'_> {
    type Answer = Vec<Option<Stored>>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Self::Answer, Trouble> {
        let sets = line.ask(Script::of(get_statement(self.ids))).await?;
        let mut rows = HashMap::new();
        for row in sets.iter().flatten() {
            rows.insert(key(column(row, 0)?, column(row, 1)?)?, row);
        }
        let found = |id: &MessageId| match rows.get(&id.key) {
            None => Ok(None),
            Some(row) => read_message(*id, row),
        };
        self.ids.iter().map(found).collect()
    }
}

fn read_message(id: MessageId, row: &MySqlRow) -> Result<Option<Stored>, Trouble> {
    let (topic, partition): (u32, u16) = (column(row, 2)?, column(row, 3)?);
    if (topic, partition) != (id.topic.get(), id.partition.get()) {
        return Ok(None);
    }
    let moved: (Option<u64>, Option<u64>) = (column(row, 5)?, column(row, 6)?);
    let at = match moved {
        (Some(due), Some(sequence)) => key(due, sequence)?,
        _ => id.key,
    };
    let first: u8 = column(row, 4)?;
    if first < ENDED {
        let stored = pending(id.key, first, column(row, 8)?)?;
        return Ok(Some(stored).filter(|stored| stored.id == id));
    }
    if first > MOVED {
        return Ok(None);
    }
    if first != MOVED {
        return Ok(Some(Stored { id, key: at, state: state(first)?, entry: None }));
    }
    let lost = || damaged(&format!("{id} is not where it was moved to"));
    let second: Option<u8> = column(row, 7)?;
    let content: Option<Vec<u8>> = column(row, 8)?;
    let (second, content) = (second.ok_or_else(lost)?, content.ok_or_else(lost)?);
    Ok(Some(pending(at, second, content)?))
}

struct Names<'a> {
    topic: TopicId,
    texts: &'a [Arc<str>],
}

/// Reads names and what became of their messages.
pub(super) fn names_statement(topic: TopicId, texts: &[Arc<str>]) -> String {
    let mut list = String::new();
    for text in texts {
        if !list.is_empty() {
            list.push(',');
        }
        put_bytes(&mut list, text.as_bytes());
    }
    let topic = topic.get();
    format!(
        "SELECT n.name, n.print, n.due, n.sequence, n.message_topic, n.topic_partition, \
         e.state, e.ended_at, m.state FROM punctual_names n FORCE INDEX (PRIMARY) \
         LEFT JOIN punctual_entries e FORCE INDEX (PRIMARY) \
         ON e.slot = n.sequence & 65535 AND e.lane = n.sequence >> 55 \
         AND e.due = n.due AND e.sequence = n.sequence \
         LEFT JOIN punctual_entries m FORCE INDEX (PRIMARY) \
         ON e.state = {MOVED} AND m.slot = e.slot AND m.lane = e.moved_sequence >> 55 \
         AND m.due = e.moved_due AND m.sequence = e.moved_sequence \
         WHERE n.topic = {topic} AND n.name IN ({list})"
    )
}

impl Call for Names<'_> {
    type Answer = Vec<Option<Named>>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Self::Answer, Trouble> {
        let sets = line.ask(Script::of(names_statement(self.topic, self.texts))).await?;
        let mut found: HashMap<Vec<u8>, Named> = HashMap::new();
        for row in sets.iter().flatten() {
            found.insert(column(row, 0)?, read_name(row)?);
        }
        Ok(self.texts.iter().map(|text| found.get(text.as_bytes()).copied()).collect())
    }
}

fn read_name(row: &MySqlRow) -> Result<Named, Trouble> {
    let id = MessageId {
        key: key(column(row, 2)?, column(row, 3)?)?,
        topic: topic(column(row, 4)?)?,
        partition: partition(column(row, 5)?)?,
    };
    let (first, second): (Option<u8>, Option<u8>) = (column(row, 6)?, column(row, 8)?);
    let number = if first == Some(MOVED) { second } else { first };
    let state = number.map(state).transpose()?;
    let ended_at = match state {
        Some(State::Delivered | State::Cancelled) => {
            column::<Option<u64>>(row, 7)?.map(Timestamp::from_millis_saturating)
        }
        _ => None,
    };
    Ok(Named { id, print: column(row, 1)?, state, ended_at })
}

struct IsEmpty {
    slot: Slot,
}

/// Looks for something pending from the marks on: what is before them has ended.
pub(super) fn is_empty_script(slot: Slot, marks: &Marks) -> Script {
    let mut script = Script::new(usize::MAX);
    let slot = slot.0;
    for (lane, before) in Lane::ALL.into_iter().zip(marks.ended_before) {
        let (lane, before) = (lane_number(lane), before.as_millis());
        script.statement(&format!(
            "SELECT due FROM punctual_entries FORCE INDEX (PRIMARY) WHERE slot={slot} \
             AND lane={lane} AND due >= {before} AND state < {ENDED} \
             ORDER BY due, sequence LIMIT 1"
        ));
    }
    script
}

impl Call for IsEmpty {
    type Answer = bool;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<bool, Trouble> {
        let sets = line.ask(Script::of(marks_of(self.slot))).await?;
        let marks = sets.iter().flatten().next();
        let marks = marks.map_or(Ok(Marks::default()), read_marks)?;
        let sets = line.ask(is_empty_script(self.slot, &marks)).await?;
        Ok(sets.iter().all(Rows::is_empty))
    }
}
