//! Groups of changes: all of one call in one transaction, since its commit is what takes time.
//!
//! Everything is sent at once, in the hope that every term holds and every name is free; when that
//! was in vain the transaction is taken back and done again without the groups in question.

use std::collections::HashSet;
use std::sync::Arc;

use punctual_model::stored::record;
use punctual_model::{Entry, Key, MessageId, State, Timestamp, TopicId};

use super::line::{Call, Line, Rows, Trouble};
use super::row::{ELSEWHERE, ENDED, MOVED, at_key, column, key, lane_number, number, state_of};
use super::script::{Script, bytes, put, put_bytes};
use super::slots::{Terms, lock};
use super::{Finished, MysqlStore};
use crate::store::{Change, Failure, Group, Outcome, Slot};

/// Names looked up in one statement: the server treats longer lists differently.
const NAMES_TOGETHER: usize = 200;

/// Of what is pending; the other columns have nothing in them.
const INSERT: &str = "INSERT INTO punctual_entries (slot, lane, due, sequence, topic, \
    topic_partition, state, content) VALUES";

/// Of rows that may be there already, with all their columns.
const WRITE: &str = "INSERT INTO punctual_entries (slot, lane, due, sequence, topic, \
    topic_partition, state, content, ended_at, moved_due, moved_sequence) VALUES";

const REPLACE: &str = " ON DUPLICATE KEY UPDATE state = VALUES(state), \
    ended_at = VALUES(ended_at), moved_due = VALUES(moved_due), \
    moved_sequence = VALUES(moved_sequence), content = VALUES(content)";

/// The first end of a message is the one that counts. The state comes last, since the other asks it.
const END: &str = " ON DUPLICATE KEY UPDATE \
    ended_at = IF(state IN (3, 4, 6, 7), ended_at, VALUES(ended_at)), \
    state = IF(state IN (3, 4, 6, 7), state, VALUES(state))";

/// The same, and its content is no longer needed.
const END_WITHOUT_CONTENT: &str = " ON DUPLICATE KEY UPDATE content = '', \
    ended_at = IF(state IN (3, 4, 6, 7), ended_at, VALUES(ended_at)), \
    state = IF(state IN (3, 4, 6, 7), state, VALUES(state))";

/// What is told twice is there once.
const ENDED_AT: (&str, &str) = (
    "INSERT INTO punctual_ended (slot, ended_at, due, sequence) VALUES",
    " ON DUPLICATE KEY UPDATE due = VALUES(due)",
);

impl MysqlStore {
    pub(super) async fn apply_groups(&self, groups: &[Group]) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::with_capacity(groups.len());
        while outcomes.len() < groups.len() {
            let groups = wave(&groups[outcomes.len()..]);
            match self.run(Apply { store: self, groups }).await {
                Ok(wave) => outcomes.extend(wave),
                // What came before is done.
                Err(Failure::Unavailable(text)) if !outcomes.is_empty() => {
                    return Err(Failure::Unsure(text));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(outcomes)
    }
}

/// The first of these groups, no two of which change the same message or take the same name: those
/// can be carried out in any order.
fn wave(groups: &[Group]) -> &[Group] {
    let (mut messages, mut names) = (HashSet::new(), HashSet::new());
    let mut is_new = |change: &Change| match change {
        Change::Put { .. } => true,
        Change::Move { id, .. } | Change::End { id, .. } => messages.insert(*id),
        Change::Name { topic, text, .. } => names.insert((*topic, Arc::clone(text))),
    };
    let end = groups.iter().position(|group| !group.changes.iter().all(&mut is_new));
    // A group that meets itself is the caller's doing, and goes alone.
    &groups[..end.unwrap_or(groups.len()).max(1)]
}

struct Apply<'a> {
    store: &'a MysqlStore,
    groups: &'a [Group],
}

impl Call for Apply<'_> {
    type Answer = Vec<Outcome>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Vec<Outcome>, Trouble> {
        let mut outcomes = vec![Outcome::Done; self.groups.len()];
        while outcomes.contains(&Outcome::Done) {
            let mut script = line.transaction(self.store.packet_bytes);
            let place = lock(&mut script, self.live(&outcomes).map(|(_, group)| group.tenure.slot));
            let plan = Plan::of(self.live(&outcomes));
            let checks = plan.write(&mut script, self.store.finished);
            let wanted = self.store.hours.wanted(plan.pending());
            wanted.write(&mut script);
            let mut sets = Vec::new();
            let result = line.ask_into(script, &mut sets).await;
            // The answer of the statement that failed is the last one, and is no answer.
            let is_locked = result.is_ok() || sets.len() > place + 1;
            if !is_locked || matches!(result, Err(Trouble::Again(_) | Trouble::Lost(_))) {
                return result.map(|()| outcomes);
            }
            let terms = Terms::read(&sets, place)?;
            let before = outcomes.clone();
            for (outcome, group) in outcomes.iter_mut().zip(self.groups) {
                if *outcome == Outcome::Done && !terms.hold(group.tenure) {
                    *outcome = Outcome::Fenced;
                }
            }
            if outcomes != before || !self.store.hours.are_as_thought(&wanted, &terms) {
                line.roll_back().await?;
                continue;
            }
            match result {
                Ok(()) => checks.mark_lost(&sets, &mut outcomes)?,
                Err(Trouble::Duplicate(place, _)) if checks.new_names.contains(&place) => {
                    line.roll_back().await?;
                    plan.mark_taken(line, &mut outcomes).await?;
                    continue;
                }
                Err(trouble) => return Err(trouble),
            }
            if outcomes == before {
                line.commit().await?;
                self.store.hours.remember(wanted, &terms);
                break;
            }
            line.roll_back().await?;
        }
        Ok(outcomes)
    }
}

impl<'a> Apply<'a> {
    fn live<'b>(
        &'b self,
        outcomes: &'b [Outcome],
    ) -> impl Iterator<Item = (usize, &'a Group)> + 'b {
        let groups = self.groups.iter().enumerate();
        groups.filter(|(index, _)| outcomes[*index] == Outcome::Done)
    }
}

/// A row that is to be there.
struct Row {
    key: Key,
    topic: TopicId,
    partition: u16,
    state: u8,
    content: Vec<u8>,
    ended_at: Option<Timestamp>,
    moved: Option<Key>,
}

impl Row {
    fn pending(key: Key, entry: &Entry) -> Self {
        let mut content = Vec::with_capacity(entry.message.weight() + 64);
        let patches = record::encode(&mut content, entry);
        debug_assert!(patches.is_empty(), "links of what is stored are ids");
        Self {
            key,
            topic: entry.topic,
            partition: entry.partition.get(),
            state: number(state_of(entry)),
            content,
            ended_at: None,
            moved: None,
        }
    }

    fn ended(key: Key, id: MessageId, state: State, at: Timestamp) -> Self {
        let state = number(state) + if key == id.key { 0 } else { ELSEWHERE };
        Self {
            key,
            topic: id.topic,
            partition: id.partition.get(),
            state,
            content: Vec::new(),
            ended_at: Some(at),
            moved: None,
        }
    }

    fn moved(id: MessageId, to: Key) -> Self {
        let MessageId { key, topic, partition } = id;
        Self {
            key,
            topic,
            partition: partition.get(),
            state: MOVED,
            content: Vec::new(),
            ended_at: None,
            moved: Some(to),
        }
    }

    fn slot(&self) -> Slot {
        Slot::of(self.key.sequence)
    }

    /// What [`INSERT`] wants.
    fn write(&self, out: &mut String) {
        let Self { key, topic, partition, state, content, .. } = self;
        let lane = lane_number(key.sequence.lane());
        let (due, sequence) = (key.due.as_millis(), key.sequence.get());
        let (slot, topic) = (self.slot().0, topic.get());
        put(out, format_args!("{slot},{lane},{due},{sequence},{topic},{partition},{state},"));
        put_bytes(out, content);
    }

    /// What [`WRITE`] wants.
    fn write_whole(&self, out: &mut String) {
        self.write(out);
        match self.ended_at {
            Some(at) => put(out, format_args!(",{}", at.as_millis())),
            None => out.push_str(",NULL"),
        }
        match self.moved {
            Some(to) => put(out, format_args!(",{},{}", to.due.as_millis(), to.sequence.get())),
            None => out.push_str(",NULL,NULL"),
        }
    }

    /// What [`ENDED_AT`] wants.
    fn write_end(&self, out: &mut String) {
        let (due, sequence) = (self.key.due.as_millis(), self.key.sequence.get());
        let (slot, at) = (self.slot().0, self.ended_at.unwrap_or_default().as_millis());
        put(out, format_args!("{slot},{at},{due},{sequence}"));
    }
}

/// A name that is to be a message's.
struct NewName<'a> {
    group: usize,
    index: usize,
    topic: TopicId,
    text: &'a str,
    print: u64,
    id: MessageId,
    expected: Option<MessageId>,
}

impl NewName<'_> {
    fn write(&self, out: &mut String) {
        let Self { topic, text, print, id, .. } = self;
        out.push_str(&format!("{},", topic.get()));
        put_bytes(out, text.as_bytes());
        let (due, sequence) = (id.key.due.as_millis(), id.key.sequence.get());
        let (topic, partition) = (id.topic.get(), id.partition.get());
        out.push_str(&format!(",{print},{due},{sequence},{topic},{partition}"));
    }

    fn place(&self) -> String {
        format!("topic={} AND name={}", self.topic.get(), bytes(self.text.as_bytes()))
    }
}

/// What is to be written, by kind and in the order of keys.
#[derive(Default)]
struct Plan<'a> {
    new: Vec<Row>,
    replaced: Vec<Row>,
    left: Vec<Key>,
    ended: Vec<Row>,
    free_names: Vec<NewName<'a>>,
    other_names: Vec<NewName<'a>>,
}

/// Statements whose answers tell whether a group may stay.
#[derive(Default)]
struct Checks {
    new_names: Vec<usize>,
    /// Of a name that was another's: the statement, the group, the change and who should have it now.
    other_names: Vec<(usize, usize, usize, Key)>,
}

impl<'a> Plan<'a> {
    fn of(groups: impl Iterator<Item = (usize, &'a Group)>) -> Self {
        let mut plan = Self::default();
        for (group, Group { changes, .. }) in groups {
            for (index, change) in changes.iter().enumerate() {
                match change {
                    Change::Put { key, entry } => plan.new.push(Row::pending(*key, entry)),
                    Change::Move { id, from, to, entry } => plan.add_move(*id, *from, *to, entry),
                    Change::End { id, key, state, at } => plan.add_end(*id, *key, *state, *at),
                    Change::Name { topic, text, print, id, expected } => {
                        let (topic, print, id, expected) = (*topic, *print, *id, *expected);
                        let name = NewName { group, index, topic, text, print, id, expected };
                        let names = match expected {
                            None => &mut plan.free_names,
                            Some(_) => &mut plan.other_names,
                        };
                        names.push(name);
                    }
                }
            }
        }
        for rows in [&mut plan.new, &mut plan.ended] {
            rows.sort_unstable_by_key(|row| (row.slot(), row.key));
        }
        // By name, so that two nodes that want the same names do not wait in a circle.
        plan.free_names.sort_unstable_by_key(|name| (name.topic, name.text));
        plan
    }

    fn add_move(&mut self, id: MessageId, from: Key, to: Key, entry: &Entry) {
        let row = Row::pending(to, entry);
        if to == from || to == id.key { &mut self.replaced } else { &mut self.new }.push(row);
        if to != id.key {
            self.replaced.push(Row::moved(id, to));
        }
        if from != to && from != id.key {
            self.left.push(from);
        }
    }

    fn add_end(&mut self, id: MessageId, key: Key, state: State, at: Timestamp) {
        self.ended.push(Row::ended(key, id, state, at));
        if key != id.key {
            self.ended.push(Row::ended(id.key, id, state, at));
        }
    }

    /// What will be pending: where, and of which topic.
    fn pending(&self) -> impl Iterator<Item = (Key, TopicId)> {
        let rows = self.new.iter().chain(&self.replaced);
        rows.filter(|row| row.state < ENDED).map(|row| (row.key, row.topic))
    }

    fn write(&self, script: &mut Script, finished: Finished) -> Checks {
        let weigh = |row: &Row| row.content.len();
        script.rows((INSERT, ""), &self.new, weigh, |out, row| row.write(out));
        script.rows((WRITE, REPLACE), &self.replaced, weigh, |out, row| row.write_whole(out));
        for key in &self.left {
            script.statement(&format!("DELETE FROM punctual_entries WHERE {}", at_key("", *key)));
        }
        let end = match finished {
            Finished::Delete => END_WITHOUT_CONTENT,
            Finished::Archive => END,
        };
        script.rows((WRITE, end), &self.ended, weigh, |out, row| row.write_whole(out));
        script.rows(ENDED_AT, &self.ended, |_row| 0, |out, row| row.write_end(out));
        let mut checks = Checks::default();
        let first = script.statements();
        script.rows(
            (NAME, ""),
            &self.free_names,
            |name| name.text.len(),
            |out, name| name.write(out),
        );
        checks.new_names.extend(first..script.statements());
        for name in &self.other_names {
            checks.other_names.extend(write_other_name(script, name));
        }
        checks
    }

    /// Tells which of the names that were thought to be free are not.
    async fn mark_taken(
        &self,
        line: &mut Line<'_>,
        outcomes: &mut [Outcome],
    ) -> Result<(), Trouble> {
        for names in self.free_names.chunks(NAMES_TOGETHER) {
            let places: Vec<_> = names.iter().map(|name| format!("({})", name.place())).collect();
            let places = places.join(" OR ");
            let question = format!("SELECT topic, name FROM punctual_names WHERE {places}");
            let sets = line.ask(Script::of(question)).await?;
            for row in sets.iter().flatten() {
                let (topic, text): (u32, Vec<u8>) = (column(row, 0)?, column(row, 1)?);
                let is_it = |name: &&NewName<'_>| {
                    (name.topic.get(), name.text.as_bytes()) == (topic, &text[..])
                };
                for name in names.iter().filter(is_it) {
                    take_out(outcomes, name.group, name.index);
                }
            }
        }
        Ok(())
    }
}

const NAME: &str = "INSERT INTO punctual_names (topic, name, print, due, sequence, message_topic, \
    topic_partition) VALUES";

/// Gives a name from one message to another. Nothing is written over a third one's; whose it is in
/// the end tells whether it went well.
fn write_other_name(script: &mut Script, name: &NewName<'_>) -> Option<(usize, usize, usize, Key)> {
    let NewName { group, index, print, id, .. } = name;
    let expected = name.expected?;
    let (due, sequence) = (id.key.due.as_millis(), id.key.sequence.get());
    let (topic, partition) = (id.topic.get(), id.partition.get());
    script.statement(&format!(
        "UPDATE punctual_names SET print={print}, due={due}, sequence={sequence}, \
         message_topic={topic}, topic_partition={partition} \
         WHERE {} AND due={} AND sequence={}",
        name.place(),
        expected.key.due.as_millis(),
        expected.key.sequence.get(),
    ));
    let statement = script.statements();
    script.statement(&format!("SELECT due, sequence FROM punctual_names WHERE {}", name.place()));
    Some((statement, *group, *index, id.key))
}

impl Checks {
    /// Tells which of the names that were another's are a third one's by now.
    fn mark_lost(&self, sets: &[Rows], outcomes: &mut [Outcome]) -> Result<(), Trouble> {
        for (statement, group, index, wanted) in &self.other_names {
            let row = sets.get(*statement).and_then(|rows| rows.first());
            let holder = row.map(|row| key(column(row, 0)?, column(row, 1)?)).transpose()?;
            if holder != Some(*wanted) {
                take_out(outcomes, *group, *index);
            }
        }
        Ok(())
    }
}

/// The first change of a group whose name is taken is the one that is told.
fn take_out(outcomes: &mut [Outcome], group: usize, index: usize) {
    let outcome = &mut outcomes[group];
    let index = match *outcome {
        Outcome::NameTaken { index: other } => index.min(other),
        Outcome::Done | Outcome::Fenced => index,
    };
    *outcome = Outcome::NameTaken { index };
}
