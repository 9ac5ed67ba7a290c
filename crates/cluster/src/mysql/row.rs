//! A message as a row: its state as a number, and back.

use bytes::Bytes;
use punctual_model::message::Parked;
use punctual_model::stored::record::{self, Record};
use punctual_model::{Entry, Key, Lane, MessageId, Partition, Sequence, State, Timestamp, TopicId};
use sqlx::mysql::MySqlRow;
use sqlx::{Decode, Row as _, Type};

use super::line::Trouble;
use crate::store::Slot;

/// States below this one are pending.
pub(super) const ENDED: u8 = 3;

/// The state of a row that tells where its message stands now.
pub(super) const MOVED: u8 = 5;

/// What is added to the state of a message that ended in another row than that of its id.
pub(super) const ELSEWHERE: u8 = 3;

/// The number of a state.
pub(super) const fn number(state: State) -> u8 {
    match state {
        State::Scheduled => 0,
        State::Paused => 1,
        State::Prepared => 2,
        State::Delivered => ENDED,
        State::Cancelled => 4,
    }
}

/// The state of a number.
pub(super) fn state(number: u8) -> Result<State, Trouble> {
    Ok(match number {
        0 => State::Scheduled,
        1 => State::Paused,
        2 => State::Prepared,
        3 => State::Delivered,
        4 => State::Cancelled,
        other => return Err(damaged(&format!("{other} is no state"))),
    })
}

/// Where a pending entry is in its life.
pub(super) fn state_of(entry: &Entry) -> State {
    match entry.extra.as_ref().and_then(|extra| extra.parked) {
        None => State::Scheduled,
        Some(Parked::Paused { .. }) => State::Paused,
        Some(Parked::Half { .. }) => State::Prepared,
    }
}

/// The number of a lane.
pub(super) const fn lane_number(lane: Lane) -> u8 {
    match lane {
        Lane::Message => 0,
        Lane::Retry => 1,
    }
}

/// The four columns of a key, as they are compared.
pub(super) fn at_key(table: &str, key: Key) -> String {
    let (slot, lane) = (Slot::of(key.sequence).0, lane_number(key.sequence.lane()));
    let (due, sequence) = (key.due.as_millis(), key.sequence.get());
    format!(
        "{table}slot={slot} AND {table}lane={lane} AND {table}due={due} AND {table}sequence={sequence}"
    )
}

/// A column of a row.
pub(super) fn column<'r, T>(row: &'r MySqlRow, index: usize) -> Result<T, Trouble>
where
    T: Decode<'r, sqlx::MySql> + Type<sqlx::MySql>,
{
    row.try_get(index).map_err(Trouble::from)
}

/// A key of two columns.
pub(super) fn key(due: u64, sequence: u64) -> Result<Key, Trouble> {
    let due = Timestamp::from_millis(due).ok_or_else(|| damaged("a time past year 9999"))?;
    let sequence = Sequence::new(sequence).ok_or_else(|| damaged("a sequence above 56 bits"))?;
    Ok(Key { due, sequence })
}

/// A topic of a column.
pub(super) fn topic(number: u32) -> Result<TopicId, Trouble> {
    TopicId::new(number).ok_or_else(|| damaged("a topic above 24 bits"))
}

/// A partition of a column.
pub(super) fn partition(number: u16) -> Result<Partition, Trouble> {
    Partition::new(number).ok_or_else(|| damaged("no such partition"))
}

/// A pending message that stands at `key`.
pub(super) fn decode(key: Key, content: Vec<u8>) -> Result<(MessageId, Entry), Trouble> {
    let record = record::decode(&Bytes::from(content))
        .map_err(|_malformed| damaged(&format!("the message at {key:?} cannot be read")))?;
    let Record { topic, partition, basis, message, extra } = record;
    let changed = extra.as_ref().and_then(|extra| extra.changed);
    let first = changed.map_or(key, |changed| changed.first);
    let id = MessageId { key: first, topic, partition };
    Ok((id, Entry { topic, partition, due: key.due, basis, message, extra }))
}

/// Bytes that nobody of ours has written.
pub(super) fn damaged(text: &str) -> Trouble {
    Trouble::Damaged(text.into())
}
