//! Changes of entries: as rows, by partition, with the term looked at before and after.
//!
//! Before, so that a node which has lost a slot changes nothing any more; after, because only that
//! makes it certain that the next owner sees what is answered as done.

use std::collections::{HashMap, HashSet};

use punctual_model::{Entry, Key, MessageId, Parked, State};
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::MaybeUnset;

use super::batches::{Write, write_all};
use super::calls::{Trouble, side_by_side};
use super::intent::Intended;
use super::place::{self, Place, millis};
use super::rows::{self, EntryRow};
use super::tenure::{Holder, Listed, SLOTS_AT_ONCE};
use super::{Finished, Inner};
use crate::store::{Change, Failure, Group, Kind, Outcome, Tenure};

/// The groups of one slot, with their places in the call.
type Share = (Tenure, Vec<(usize, Vec<Change>)>);

impl Inner {
    pub(super) async fn apply(&self, groups: Vec<Group>) -> Result<Vec<Outcome>, Failure> {
        let count = groups.len();
        let mut shares: Vec<Share> = Vec::new();
        let mut places: HashMap<Tenure, usize> = HashMap::new();
        for (place, group) in groups.into_iter().enumerate() {
            let share = *places.entry(group.tenure).or_insert_with(|| {
                shares.push((group.tenure, Vec::new()));
                shares.len() - 1
            });
            shares[share].1.push((place, group.changes));
        }
        let shares = shares.into_iter().map(|(tenure, groups)| self.apply_share(tenure, groups));
        let done = side_by_side(SLOTS_AT_ONCE, shares).await;
        let mut outcomes = vec![Outcome::Fenced; count];
        // Some slots were changed: then what became of the call as a whole is not known.
        let some = done.iter().any(|share| !matches!(share, Err(Trouble::Refused(_))));
        for share in done {
            let share = share.map_err(|t| if some { t.later() } else { t.first() })?;
            for (place, outcome) in share {
                outcomes[place] = outcome;
            }
        }
        Ok(outcomes)
    }

    /// Which of the messages to be withdrawn have ended. Deliveries are not looked at: they are said
    /// again just as they were.
    pub(super) async fn already_ended(
        &self,
        changes: &[Change],
    ) -> Result<HashSet<MessageId>, Trouble> {
        let withdrawn: Vec<MessageId> = changes
            .iter()
            .filter_map(|change| match change {
                Change::End { id, state: State::Cancelled, .. } => Some(*id),
                _ => None,
            })
            .collect();
        let rows = self.find_all(&withdrawn).await?;
        let rows = withdrawn.into_iter().zip(rows);
        let ended = |row: &EntryRow| !row.stored.state.is_pending();
        Ok(rows.filter(|(_, row)| row.as_ref().is_some_and(ended)).map(|(id, _)| id).collect())
    }

    async fn apply_share(
        &self,
        tenure: Tenure,
        groups: Vec<(usize, Vec<Change>)>,
    ) -> Result<Vec<(usize, Outcome)>, Trouble> {
        let all = |outcome| groups.iter().map(|(place, _)| (*place, outcome)).collect();
        let Some(holder) = self.holder(tenure).await? else { return Ok(all(Outcome::Fenced)) };
        if !self.holds(tenure).await? {
            return Ok(all(Outcome::Fenced));
        }
        let places: Vec<usize> = groups.iter().map(|(place, _)| *place).collect();
        let mut outcomes = vec![Outcome::Done; groups.len()];
        let _gate = holder.gate.read().await;
        let mut plain = Writes::new(self, &holder);
        let mut intended = Vec::new();
        for (index, (_, changes)) in groups.into_iter().enumerate() {
            // Nothing is written yet, so a slot that is lost here is simply lost.
            let Some(stamp) = self.stamp(&holder).await? else {
                return Ok(places.into_iter().map(|place| (place, Outcome::Fenced)).collect());
            };
            if is_plain(&changes) {
                let ended = self.already_ended(&changes).await?;
                for change in &changes {
                    plain.add(change, stamp, &ended);
                }
            } else {
                intended.push((index, Intended { stamp, changes }));
            }
        }
        if !plain.is_empty() {
            plain.run().await?;
        }
        if !intended.is_empty() {
            let answer = self.apply_intended(&holder, intended, &mut outcomes).await;
            answer.map_err(|trouble| sure(trouble, &outcomes))?;
        }
        #[cfg(test)]
        self.pause().await;
        match self.holds(tenure).await {
            Ok(true) => Ok(places.into_iter().zip(outcomes).collect()),
            Ok(false) if outcomes.iter().all(|outcome| *outcome == Outcome::Fenced) => {
                Ok(places.into_iter().zip(outcomes).collect())
            }
            Ok(false) => Err(Trouble::Unsure("the slot was taken meanwhile".into())),
            Err(Trouble::Refused(text)) => Err(Trouble::Unsure(text)),
            Err(other) => Err(other),
        }
    }
}

/// A refusal after plain groups of the same call were written is none for the call.
fn sure(trouble: Trouble, outcomes: &[Outcome]) -> Trouble {
    match trouble {
        Trouble::Refused(text) if outcomes.len() > 1 => Trouble::Unsure(text),
        other => other,
    }
}

/// Whether a group may be carried out change by change: new entries that know nothing of each other,
/// deliveries, or one change that is one row.
fn is_plain(changes: &[Change]) -> bool {
    let new = |change: &Change| matches!(change, Change::Put { entry, .. } if !has_links(entry));
    let delivered = |change: &Change| matches!(change, Change::End { state: State::Delivered, .. });
    let one = matches!(changes, [Change::Put { .. } | Change::End { .. }]);
    one || changes.iter().all(new) || changes.iter().all(delivered)
}

fn has_links(entry: &Entry) -> bool {
    entry.extra.as_ref().is_some_and(|extra| {
        extra.series.is_some()
            || !extra.links.is_empty()
            || matches!(extra.parked, Some(Parked::Half { .. }))
    })
}

/// A table and a partition of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    Entry(Place),
    /// Rows that go once the others are there: a message that moves is never nowhere.
    Left(Place),
    Moved(Place),
    Bucket {
        lane: i8,
    },
    Span {
        lane: i8,
    },
    Topic {
        topic: i32,
        lane: i8,
    },
}

/// Rows of one slot to be written.
pub(super) struct Writes<'a> {
    inner: &'a Inner,
    holder: &'a Holder,
    rows: HashMap<Target, Vec<Write<'a>>>,
    listed: HashSet<Listed>,
}

impl<'a> Writes<'a> {
    pub(super) fn new(inner: &'a Inner, holder: &'a Holder) -> Self {
        Self { inner, holder, rows: HashMap::new(), listed: HashSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows that list a bucket, and rows that list a span for a topic.
    #[cfg(test)]
    pub(super) fn listings(&self) -> (usize, usize) {
        let count = |is: fn(&Target) -> bool| {
            self.rows.iter().filter(|(target, _)| is(target)).map(|(_, rows)| rows.len()).sum()
        };
        let bucket = count(|target| matches!(target, Target::Bucket { .. }));
        (bucket, count(|target| matches!(target, Target::Topic { .. })))
    }

    /// Adds the rows of a change; `ended` are messages whose end is not to be changed.
    pub(super) fn add(&mut self, change: &Change, stamp: i64, ended: &HashSet<MessageId>) {
        match change {
            Change::Put { key, entry } => self.put(*key, None, entry, stamp),
            Change::Move { id, from, to, entry } => {
                if from != to {
                    self.remove(*from, stamp);
                }
                self.point(id.key, *to, stamp);
                self.put(*to, Some(id.key), entry, stamp);
            }
            Change::End { id, key, state, at } => {
                if !ended.contains(id) {
                    self.end(*key, *state, millis(*at), stamp);
                }
            }
            // Names are claimed before.
            Change::Name { .. } => {}
        }
    }

    fn put(&mut self, key: Key, first: Option<Key>, entry: &Entry, stamp: i64) {
        let place = Place::of(self.holder.tenure.slot, key);
        let content = rows::content(entry);
        let topic = place::topic(entry.topic);
        let bytes = content.len() + 64;
        let fresh = first.is_none();
        let kind = rows::kind_of(entry);
        let own = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
        let target = Target::Entry(place);
        let (due, sequence) = (millis(key.due), place::sequence(key.sequence));
        let part = place::partition(entry.partition);
        self.list(place, topic, stamp);
        if fresh && kind == Kind::Scheduled && entry.message.key.is_none() && own.is_none() {
            // Nearly all are like this, and columns cost the server time even where nothing is set.
            let Place { slot, lane, bucket } = place;
            let values = (slot, lane, bucket, due, sequence, topic, part, content, stamp);
            return self.push(target, &self.inner.statements.put_new, bytes, values);
        }
        let first = first.filter(|first| *first != key);
        let values = (
            place.slot,
            place.lane,
            place.bucket,
            due,
            sequence,
            topic,
            part,
            optional(fresh, (kind != Kind::Scheduled).then(|| rows::kind(kind))),
            optional(fresh, entry.message.key.clone()),
            content,
            optional(fresh, own.map(|own| std::sync::Arc::clone(&own.text))),
            optional(fresh, first.map(|first| millis(first.due))),
            optional(fresh, first.map(|first| place::sequence(first.sequence))),
            stamp,
        );
        self.push(target, &self.inner.statements.put, bytes, values);
    }

    /// Lists the bucket of an entry, and that its topic has something in that span, unless they are.
    fn list(&mut self, place: Place, topic: i32, stamp: i64) {
        let (lane, bucket) = (place.lane, place.bucket);
        let statements = &self.inner.statements;
        if self.is_news((lane, bucket, None)) {
            let row = (place.slot, lane, bucket, stamp);
            self.push(Target::Bucket { lane }, &statements.bucket_put, 32, row);
        }
        let span = place::span(bucket);
        if self.is_news((lane, span, Some(topic))) {
            let row = (topic, lane, span, place.slot, stamp);
            self.push(Target::Topic { topic, lane }, &statements.topic_put, 32, row);
            let row = (place.slot, lane, span, topic, stamp);
            self.push(Target::Span { lane }, &statements.span_put, 32, row);
        }
    }

    fn is_news(&mut self, listed: Listed) -> bool {
        !self.holder.knows(listed) && self.listed.insert(listed)
    }

    fn end(&mut self, key: Key, state: State, at: i64, stamp: i64) {
        let place = Place::of(self.holder.tenure.slot, key);
        let statements = &self.inner.statements;
        let statement = match self.inner.finished {
            Finished::Delete => &statements.end,
            Finished::Archive => &statements.end_keeping,
        };
        let (due, sequence) = (millis(key.due), place::sequence(key.sequence));
        let row =
            (stamp, rows::state(state), at, place.slot, place.lane, place.bucket, due, sequence);
        self.push(Target::Entry(place), statement, 64, row);
    }

    fn remove(&mut self, key: Key, stamp: i64) {
        let place = Place::of(self.holder.tenure.slot, key);
        let (due, sequence) = (millis(key.due), place::sequence(key.sequence));
        let row = (stamp, place.slot, place.lane, place.bucket, due, sequence);
        self.push(Target::Left(place), &self.inner.statements.remove, 48, row);
    }

    /// From the key of an id to where its message stands.
    fn point(&mut self, first: Key, to: Key, stamp: i64) {
        let place = Place::of(self.holder.tenure.slot, first);
        let (first_due, first_sequence) = (millis(first.due), place::sequence(first.sequence));
        let (due, sequence) = (millis(to.due), place::sequence(to.sequence));
        let row =
            (place.slot, place.lane, place.bucket, first_due, first_sequence, due, sequence, stamp);
        self.push(Target::Moved(place), &self.inner.statements.moved_put, 64, row);
    }

    fn push(
        &mut self,
        target: Target,
        statement: &'a PreparedStatement,
        bytes: usize,
        values: impl SerializeRow + Send + Sync + 'static,
    ) {
        let write = Write { statement, values: Box::new(values), bytes };
        self.rows.entry(target).or_default().push(write);
    }

    /// Writes it all. Rows of one partition go together, partitions side by side.
    pub(super) async fn run(self) -> Result<(), Trouble> {
        let (left, rows): (Vec<_>, Vec<_>) =
            self.rows.into_iter().partition(|(target, _)| matches!(target, Target::Left(_)));
        write_all(self.inner, rows.into_iter().map(|(_, rows)| rows)).await?;
        self.holder.learn(self.listed);
        if left.is_empty() {
            return Ok(());
        }
        match write_all(self.inner, left.into_iter().map(|(_, rows)| rows)).await {
            Err(Trouble::Refused(text)) => Err(Trouble::Unsure(text)),
            answer => answer,
        }
    }
}

/// A column that is left alone in a new row, and emptied in one that may have been there.
fn optional<T>(fresh: bool, value: Option<T>) -> MaybeUnset<Option<T>> {
    match value {
        None if fresh => MaybeUnset::Unset,
        value => MaybeUnset::Set(value),
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::{Basis, Extra, Lane, Link, Message, Partition, Timestamp, TopicId};

    use super::*;
    use crate::store::Slot;

    fn put(extra: Option<Extra>) -> Change {
        let key = Key { due: Timestamp::MIN, sequence: Slot(1).sequence(Lane::Message, 1) };
        let topic = TopicId::new(1).unwrap();
        let partition = Partition::new(0).unwrap();
        let message = Message::default();
        let extra = extra.map(Box::new);
        let entry = Entry { topic, partition, due: key.due, basis: Basis::Delay, message, extra };
        Change::Put { key, entry }
    }

    fn end(state: State) -> Change {
        let key = Key::default();
        let id = MessageId {
            key,
            topic: TopicId::new(1).unwrap(),
            partition: Partition::new(0).unwrap(),
        };
        Change::End { id, key, state, at: Timestamp::MIN }
    }

    #[test]
    fn what_belongs_together_is_written_down_first() {
        let Change::End { id, .. } = end(State::Delivered) else { unreachable!() };
        let linked = Extra { series: Some(Link::Id(id)), ..Extra::default() };
        assert!(is_plain(&[put(None), put(None)]));
        assert!(is_plain(&[end(State::Delivered), end(State::Delivered)]));
        assert!(is_plain(&[end(State::Cancelled)]));
        assert!(!is_plain(&[end(State::Cancelled), end(State::Cancelled)]));
        assert!(!is_plain(&[put(None), end(State::Delivered)]));
        assert!(!is_plain(&[put(None), put(Some(linked))]));
        let topic = TopicId::new(1).unwrap();
        let name = Change::Name { topic, text: "a".into(), print: 0, id, expected: None };
        assert!(!is_plain(&[name]));
    }
}
