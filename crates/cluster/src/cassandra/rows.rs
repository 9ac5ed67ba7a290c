//! Entries as rows, and rows as what they were.

use bytes::Bytes;
use punctual_model::stored::record;
use punctual_model::{Action, Entry, Extra, Key, Parked, State};

use super::calls::{Trouble, damaged};
use super::place;
use crate::store::{Kind, Stored};

/// The columns that `get` and `page` read.
pub(super) type EntryColumns = (
    i64,
    i64,
    Option<i32>,
    Option<i16>,
    Option<i8>,
    Option<Bytes>,
    Option<i8>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

/// A row of `entry`.
pub(super) struct EntryRow {
    /// What it says.
    pub(super) stored: Stored,
    /// When it ended.
    pub(super) ended_at: Option<punctual_model::Timestamp>,
    /// About how much memory it takes.
    pub(super) bytes: usize,
}

/// What a row says; `None` for what a former owner has left of a row that is gone.
pub(super) fn entry_row(columns: EntryColumns) -> Result<Option<EntryRow>, Trouble> {
    let (due, sequence, topic, part, _, content, state, ended_at, first_due, first_sequence) =
        columns;
    let (Some(topic), Some(part)) = (topic, part) else { return Ok(None) };
    let key = place::key(due, sequence).map_err(damaged)?;
    let first = first_key(key, first_due, first_sequence)?;
    let id = place::id(first, topic, part).map_err(damaged)?;
    if let Some(state) = state {
        let state = ended(state)?;
        let ended_at = ended_at.map(place::time).transpose().map_err(damaged)?;
        let stored = Stored { id, key, state, entry: None };
        return Ok(Some(EntryRow { stored, ended_at, bytes: 0 }));
    }
    let Some(content) = content else { return Ok(None) };
    let entry = entry(key, &content)?;
    let state = state_of(entry.extra.as_deref());
    let bytes = content.len();
    let stored = Stored { id, key, state, entry: Some(entry) };
    Ok(Some(EntryRow { stored, ended_at: None, bytes }))
}

/// The key of an id, given the key where the message stands.
pub(super) fn first_key(
    key: Key,
    first_due: Option<i64>,
    first_sequence: Option<i64>,
) -> Result<Key, Trouble> {
    match (first_due, first_sequence) {
        (Some(due), Some(sequence)) => place::key(due, sequence).map_err(damaged),
        _ => Ok(key),
    }
}

/// An entry from its stored form.
pub(super) fn entry(key: Key, content: &Bytes) -> Result<Entry, Trouble> {
    let record = record::decode(content)
        .map_err(|_e| damaged(format_args!("the entry at {:?} cannot be read", key.due)))?;
    let record::Record { topic, partition, basis, message, extra } = record;
    Ok(Entry { topic, partition, due: key.due, basis, message, extra })
}

/// The state of a pending entry.
fn state_of(extra: Option<&Extra>) -> State {
    match extra.and_then(|extra| extra.parked) {
        None => State::Scheduled,
        Some(Parked::Paused { .. }) => State::Paused,
        Some(Parked::Half { .. }) => State::Prepared,
    }
}

/// As what an entry is counted.
pub(super) fn kind_of(entry: &Entry) -> Kind {
    let Some(extra) = &entry.extra else { return Kind::Scheduled };
    match (extra.action, extra.parked) {
        (Action::Repeat | Action::Check, _) => Kind::Control,
        (Action::Deliver, None) => Kind::Scheduled,
        (Action::Deliver, Some(Parked::Paused { .. })) => Kind::Paused,
        (Action::Deliver, Some(Parked::Half { .. })) => Kind::Prepared,
    }
}

/// A kind as a column.
pub(super) fn kind(kind: Kind) -> i8 {
    match kind {
        Kind::Scheduled => 0,
        Kind::Paused => 1,
        Kind::Prepared => 2,
        Kind::Control => 3,
    }
}

/// The end of a message as a column.
pub(super) fn state(state: State) -> i8 {
    match state {
        State::Cancelled => 2,
        _ => 1,
    }
}

/// How a message ended, by its column.
pub(super) fn ended(column: i8) -> Result<State, Trouble> {
    match column {
        1 => Ok(State::Delivered),
        2 => Ok(State::Cancelled),
        _ => Err(damaged("an end that this version does not know")),
    }
}

/// The stored form of an entry.
pub(super) fn content(entry: &Entry) -> Vec<u8> {
    let mut content = Vec::with_capacity(entry.message.weight() + 64);
    record::encode(&mut content, entry);
    content
}
