//! Groups that are written down before they are carried out, so that nothing of them can be left
//! half done.
//!
//! A slot has one intent at a time, in the rows of its own partition: a later one takes its place.
//! It is complete once its part 0 is there, which is written last. Carrying it out again changes
//! nothing, for its writes bear the stamps that it had from the start; so whoever takes a slot does
//! just that. Of a group whose name is another's by then nothing is carried out: it was never
//! answered as done.

use std::collections::BTreeMap;

use bytes::Bytes;
use punctual_model::stored::codec::{self, Malformed};
use punctual_model::stored::record;
use punctual_model::{Key, MessageId, Sequence, State, Timestamp, TopicId};

use super::Inner;
use super::apply::Writes;
use super::calls::{Trouble, damaged, side_by_side};
use super::place::{self, millis, small};
use super::rows;
use super::tenure::Holder;
use crate::store::{Change, Outcome, Slot};

/// The first byte of an intent.
const VERSION: u8 = 1;

/// Bytes in one part; a commit log takes no row over half of its segment, 16 MB as it comes.
const PART_BYTES: usize = 4 << 20;

/// More parts than the largest batch needs.
const PARTS_MAX: usize = 100;

/// Names that are asked for at a time.
const NAMES_AT_ONCE: usize = 32;

/// A group with the stamp of its writes.
#[derive(Debug)]
pub(super) struct Intended {
    pub(super) stamp: i64,
    pub(super) changes: Vec<Change>,
}

/// What stands in the rows of a slot's intent.
#[derive(Debug, Default)]
pub(super) struct Intending {
    state: Standing,
}

#[derive(Debug, Default, Clone, Copy)]
enum Standing {
    /// Nothing.
    #[default]
    Empty,
    /// Something that was carried out, in so many parts.
    Done(i8),
    /// Something that may have been carried out in part.
    Open,
}

impl Intending {
    /// The parts that may be emptied.
    pub(super) fn done_parts(&self) -> i8 {
        if let Standing::Done(parts) = self.state { parts } else { 0 }
    }

    /// They were.
    pub(super) fn forgotten(&mut self) {
        self.state = Standing::Empty;
    }
}

/// What became of the names of a group.
pub(super) enum Claimed {
    All,
    Taken { index: usize },
}

impl Inner {
    /// Carries out groups that need an intent. `None` for a group: the slot is another's, and nothing
    /// of it was changed.
    pub(super) async fn apply_intended(
        &self,
        holder: &Holder,
        groups: Vec<(usize, Intended)>,
        outcomes: &mut [Outcome],
    ) -> Result<(), Trouble> {
        let mut intending = holder.intending.lock().await;
        if matches!(intending.state, Standing::Open)
            && !self.resolve_locked(holder, &mut intending).await?
        {
            fence(&groups, outcomes);
            return Ok(());
        }
        let mut open = Vec::new();
        for (place, group) in groups {
            // Most names that are taken are seen here, before anything is written.
            match self.look_at_names(&group.changes).await? {
                Claimed::All => open.push((place, group)),
                Claimed::Taken { index } => outcomes[place] = Outcome::NameTaken { index },
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        intending.state = Standing::Open;
        let Some(count) = self.write_down(holder, &open).await? else {
            fence(&open, outcomes);
            return Ok(());
        };
        // From here on the outcome is the store's to know, whatever fails.
        let taken = self.carry_out(holder, &open, outcomes).await.map_err(unsure)?;
        intending.state = Standing::Done(count);
        if !taken.is_empty() {
            // The next owner must not carry out what is answered as refused.
            if !self.empty(holder, count).await.map_err(unsure)? {
                return Err(Trouble::Unsure("the slot was taken meanwhile".into()));
            }
            intending.state = Standing::Empty;
            for place in taken {
                if let Some((_, group)) = open.iter().find(|(of, _)| *of == place) {
                    self.give_back(&group.changes).await;
                }
            }
        }
        Ok(())
    }

    /// Writes an intent down; the number of its parts, or `None` when the slot is another's.
    pub(super) async fn write_down(
        &self,
        holder: &Holder,
        groups: &[(usize, Intended)],
    ) -> Result<Option<i8>, Trouble> {
        let generation = groups.first().map_or(0, |(_, group)| group.stamp);
        let parts = split(&encode(groups.iter().map(|(_, group)| group)), generation)?;
        let count = i8::try_from(parts.len()).unwrap_or(i8::MAX);
        for (part, content) in parts.into_iter().enumerate().rev() {
            let part = i8::try_from(part).unwrap_or(i8::MAX);
            if !self.intend(holder, part, content).await? {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }

    /// Carries out the intent that is found in a slot. False when the slot is another's by now.
    pub(super) async fn resolve(&self, holder: &Holder) -> Result<bool, Trouble> {
        let mut intending = holder.intending.lock().await;
        self.resolve_locked(holder, &mut intending).await
    }

    async fn resolve_locked(
        &self,
        holder: &Holder,
        intending: &mut Intending,
    ) -> Result<bool, Trouble> {
        let Some((groups, count)) = self.intent_of(holder.tenure.slot).await? else {
            intending.state = Standing::Empty;
            return Ok(true);
        };
        intending.state = Standing::Open;
        let groups: Vec<_> = groups.into_iter().enumerate().collect();
        let mut outcomes = vec![Outcome::Done; groups.len()];
        self.carry_out(holder, &groups, &mut outcomes).await.map_err(unsure)?;
        if !self.empty(holder, count).await.map_err(unsure)? {
            return Ok(false);
        }
        intending.state = Standing::Empty;
        Ok(true)
    }

    /// Names, then entries. Answers the places of groups of which nothing was carried out.
    pub(super) async fn carry_out(
        &self,
        holder: &Holder,
        groups: &[(usize, Intended)],
        outcomes: &mut [Outcome],
    ) -> Result<Vec<usize>, Trouble> {
        let mut writes = Writes::new(self, holder);
        let mut taken = Vec::new();
        for (place, group) in groups {
            match self.claim_names(&group.changes).await? {
                Claimed::All => {
                    let ended = self.already_ended(&group.changes).await?;
                    for change in &group.changes {
                        writes.add(change, group.stamp, &ended);
                    }
                    outcomes[*place] = Outcome::Done;
                }
                Claimed::Taken { index } => {
                    outcomes[*place] = Outcome::NameTaken { index };
                    taken.push(*place);
                }
            }
        }
        writes.run().await?;
        Ok(taken)
    }

    async fn intend(&self, holder: &Holder, part: i8, content: Vec<u8>) -> Result<bool, Trouble> {
        let slot = i32::from(holder.tenure.slot.0);
        let values = (content, slot, part, small(holder.tenure.term));
        self.decide_again(&self.statements.intend, values).await
    }

    async fn empty(&self, holder: &Holder, parts: i8) -> Result<bool, Trouble> {
        for part in 0..parts {
            if !self.intend(holder, part, Vec::new()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The complete intent of a slot and the number of its parts.
    pub(super) async fn intent_of(
        &self,
        slot: Slot,
    ) -> Result<Option<(Vec<Intended>, i8)>, Trouble> {
        let rows = self.calls.rows(&self.statements.intents, (i32::from(slot.0),)).await?;
        let mut parts = BTreeMap::new();
        for row in rows.rows::<(Option<i8>, Option<Bytes>)>().map_err(damaged)? {
            if let (Some(part), Some(content)) = row.map_err(damaged)? {
                parts.insert(part, content);
            }
        }
        let Some(whole) = join(&parts).map_err(|_e| damaged("an intent cannot be read"))? else {
            return Ok(None);
        };
        let groups = decode(&whole.0).map_err(|_e| damaged("an intent cannot be read"))?;
        Ok(Some((groups, whole.1)))
    }

    async fn look_at_names(&self, changes: &[Change]) -> Result<Claimed, Trouble> {
        let names = changes.iter().enumerate().filter_map(|(index, change)| match change {
            Change::Name { topic, text, expected, .. } => Some((index, *topic, text, *expected)),
            _ => None,
        });
        let names = names.map(|(index, topic, text, expected)| async move {
            let holds = self.name_of(topic, text, false).await?.map(|(holds, _)| holds);
            Ok::<_, Trouble>((holds != expected).then_some(index))
        });
        first_taken(side_by_side(NAMES_AT_ONCE, names).await)
    }

    pub(super) async fn claim_names(&self, changes: &[Change]) -> Result<Claimed, Trouble> {
        let names = changes.iter().enumerate().map(|(index, change)| async move {
            let Change::Name { topic, text, print, id, expected } = change else {
                return Ok(None);
            };
            let claimed = self.claim(*topic, text, *print, *id, *expected).await?;
            Ok::<_, Trouble>((!claimed).then_some(index))
        });
        first_taken(side_by_side(NAMES_AT_ONCE, names).await)
    }

    /// Claims a name for a message; whether it is its name now.
    async fn claim(
        &self,
        topic: TopicId,
        text: &str,
        print: u64,
        id: MessageId,
        expected: Option<MessageId>,
    ) -> Result<bool, Trouble> {
        let (due, sequence) = (millis(id.key.due), place::sequence(id.key.sequence));
        let part = place::partition(id.partition);
        let print = print.cast_signed();
        let number = place::topic(topic);
        // An answer that was lost is found out about by looking, and asked for again.
        for _ in 0..4 {
            let answer = match expected {
                None => {
                    let values = (number, text, due, sequence, part, print);
                    self.calls.decide(&self.statements.name_new, values).await
                }
                Some(old) => {
                    let (old_due, old_sequence) =
                        (millis(old.key.due), place::sequence(old.key.sequence));
                    let values = (due, sequence, part, print, number, text, old_due, old_sequence);
                    self.calls.decide(&self.statements.name_from, values).await
                }
            };
            match answer {
                Ok(true) => return Ok(true),
                Ok(false) | Err(Trouble::Unsure(_)) => {}
                Err(other) => return Err(other),
            }
            let found = self.name_of(topic, text, true).await?.map(|(holds, _)| holds);
            if found == Some(id) {
                return Ok(true);
            }
            if found != expected {
                return Ok(false);
            }
        }
        Err(Trouble::Unsure("a name could not be decided about".into()))
    }

    /// Lets go of the names of a group of which nothing was carried out. What fails here is found
    /// later: a name of a message that nobody knows is nobody's.
    async fn give_back(&self, changes: &[Change]) {
        for change in changes {
            let Change::Name { topic, text, id, expected, .. } = change else { continue };
            if let Err(trouble) = self.give_back_one(*topic, text, *id, *expected).await {
                tracing::debug!(?trouble, "a name was not given back");
            }
        }
    }

    async fn give_back_one(
        &self,
        topic: TopicId,
        text: &str,
        id: MessageId,
        before: Option<MessageId>,
    ) -> Result<(), Trouble> {
        let (due, sequence) = (millis(id.key.due), place::sequence(id.key.sequence));
        let number = place::topic(topic);
        if let Some(old) = before {
            let stored = self.find(old).await?.and_then(|row| row.stored.entry);
            let own = stored.and_then(|entry| entry.extra).and_then(|extra| extra.own_id);
            if let Some(own) = own {
                let (old_due, old_sequence) =
                    (millis(old.key.due), place::sequence(old.key.sequence));
                let part = place::partition(old.partition);
                let print = own.print.cast_signed();
                let values = (old_due, old_sequence, part, print, number, text, due, sequence);
                return self.calls.decide(&self.statements.name_from, values).await.map(drop);
            }
        }
        let values = (number, text, due, sequence);
        self.calls.decide(&self.statements.name_drop, values).await.map(drop)
    }
}

/// After an intent is there, a refusal says nothing about the outcome of the whole.
fn unsure(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Refused(text) => Trouble::Unsure(text),
        other => other,
    }
}

/// The first name that was taken.
fn first_taken(names: Vec<Result<Option<usize>, Trouble>>) -> Result<Claimed, Trouble> {
    let names: Vec<Option<usize>> = names.into_iter().collect::<Result<_, _>>()?;
    let first = names.into_iter().flatten().next();
    Ok(first.map_or(Claimed::All, |index| Claimed::Taken { index }))
}

fn fence(groups: &[(usize, Intended)], outcomes: &mut [Outcome]) {
    for (place, _) in groups {
        outcomes[*place] = Outcome::Fenced;
    }
}

/// Cuts an intent into parts, each of which says to which intent it belongs.
fn split(whole: &[u8], generation: i64) -> Result<Vec<Vec<u8>>, Trouble> {
    let pieces: Vec<&[u8]> = whole.chunks(PART_BYTES).collect();
    if pieces.len() > PARTS_MAX {
        return Err(Trouble::Refused("the group is too large".into()));
    }
    let count = u8::try_from(pieces.len()).unwrap_or(u8::MAX);
    let part = |piece: &[u8]| {
        let mut part = Vec::with_capacity(piece.len() + 9);
        part.extend_from_slice(&generation.to_le_bytes());
        part.push(count);
        part.extend_from_slice(piece);
        part
    };
    Ok(pieces.into_iter().map(part).collect())
}

/// The whole of an intent, if it is complete.
fn join(parts: &BTreeMap<i8, Bytes>) -> Result<Option<(Bytes, i8)>, Malformed> {
    let Some(first) = parts.get(&0).filter(|part| !part.is_empty()) else { return Ok(None) };
    let mut rest: &[u8] = first;
    let generation = codec::get_u64(&mut rest)?;
    let count = i8::try_from(codec::get_u8(&mut rest)?).map_err(|_e| Malformed)?;
    let mut whole = rest.to_vec();
    for part in 1..count {
        let Some(part) = parts.get(&part).filter(|part| !part.is_empty()) else { return Ok(None) };
        let mut rest: &[u8] = part;
        if codec::get_u64(&mut rest)? != generation {
            return Ok(None);
        }
        codec::get_u8(&mut rest)?;
        whole.extend_from_slice(rest);
    }
    Ok(Some((whole.into(), count)))
}

const PUT: u8 = 1;
const MOVE: u8 = 2;
const END: u8 = 3;
const NAME: u8 = 4;

fn encode<'a>(groups: impl Iterator<Item = &'a Intended>) -> Vec<u8> {
    let mut out = vec![VERSION];
    for group in groups {
        out.extend_from_slice(&group.stamp.to_le_bytes());
        codec::put_varint(&mut out, group.changes.len() as u64);
        for change in &group.changes {
            encode_change(&mut out, change);
        }
    }
    out
}

fn encode_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Put { key, entry } => {
            out.push(PUT);
            put_key(out, *key);
            codec::put_bytes(out, &rows::content(entry));
        }
        Change::Move { id, from, to, entry } => {
            out.push(MOVE);
            record::put_id(out, *id);
            put_key(out, *from);
            put_key(out, *to);
            codec::put_bytes(out, &rows::content(entry));
        }
        Change::End { id, key, state, at } => {
            out.push(END);
            record::put_id(out, *id);
            put_key(out, *key);
            out.push(u8::from(*state == State::Cancelled));
            codec::put_varint(out, at.as_millis());
        }
        Change::Name { topic, text, print, id, expected } => {
            out.push(NAME);
            codec::put_varint(out, u64::from(topic.get()));
            codec::put_bytes(out, text.as_bytes());
            out.extend_from_slice(&print.to_le_bytes());
            record::put_id(out, *id);
            out.push(u8::from(expected.is_some()));
            if let Some(expected) = expected {
                record::put_id(out, *expected);
            }
        }
    }
}

fn decode(whole: &Bytes) -> Result<Vec<Intended>, Malformed> {
    let mut rest: &[u8] = whole;
    if codec::get_u8(&mut rest)? != VERSION {
        return Err(Malformed);
    }
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let stamp = codec::get_u64(&mut rest)?.cast_signed();
        let count = codec::get_varint(&mut rest)?;
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(decode_change(whole, &mut rest)?);
        }
        groups.push(Intended { stamp, changes });
    }
    Ok(groups)
}

fn decode_change(whole: &Bytes, rest: &mut &[u8]) -> Result<Change, Malformed> {
    Ok(match codec::get_u8(rest)? {
        PUT => {
            let key = get_key(rest)?;
            Change::Put { key, entry: get_entry(whole, rest, key)? }
        }
        MOVE => {
            let id = record::get_id(rest)?;
            let from = get_key(rest)?;
            let to = get_key(rest)?;
            Change::Move { id, from, to, entry: get_entry(whole, rest, to)? }
        }
        END => {
            let id = record::get_id(rest)?;
            let key = get_key(rest)?;
            let cancelled = codec::get_u8(rest)? == 1;
            let state = if cancelled { State::Cancelled } else { State::Delivered };
            let at = Timestamp::from_millis(codec::get_varint(rest)?).ok_or(Malformed)?;
            Change::End { id, key, state, at }
        }
        NAME => {
            let topic = u32::try_from(codec::get_varint(rest)?).map_err(|_e| Malformed)?;
            let topic = TopicId::new(topic).ok_or(Malformed)?;
            let text = codec::get_text(rest)?.into();
            let print = codec::get_u64(rest)?;
            let id = record::get_id(rest)?;
            let expected = match codec::get_u8(rest)? {
                0 => None,
                _ => Some(record::get_id(rest)?),
            };
            Change::Name { topic, text, print, id, expected }
        }
        _ => return Err(Malformed),
    })
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    codec::put_varint(out, key.due.as_millis());
    codec::put_varint(out, key.sequence.get());
}

fn get_key(rest: &mut &[u8]) -> Result<Key, Malformed> {
    let due = Timestamp::from_millis(codec::get_varint(rest)?).ok_or(Malformed)?;
    let sequence = Sequence::new(codec::get_varint(rest)?).ok_or(Malformed)?;
    Ok(Key { due, sequence })
}

fn get_entry(
    whole: &Bytes,
    rest: &mut &[u8],
    key: Key,
) -> Result<punctual_model::Entry, Malformed> {
    let length = codec::get_length(rest)?;
    let content = codec::share(whole, codec::take(rest, length)?);
    rows::entry(key, &content).map_err(|_e| Malformed)
}
