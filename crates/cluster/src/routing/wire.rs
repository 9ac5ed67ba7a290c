//! What nodes say to each other, as bytes: a request for the timeline of one node, and its answer.
//!
//! ```text
//! request   version u8 · kind u8 · …
//!           schedule: entries · cancel: ids · revise: orders · ready: group text, max, wait ms
//! answer    version u8 · 0, then as the request has it · 1, then kind of error and text
//! entry     due u64 · links that are orders: (ordinal, order) … · record bytes
//! ```
//!
//! Whoever sends this has shown the secret of the cluster, and is not believed all the same: reading
//! never panics, never trusts a length, and holds a request to what one call may be.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX};
use punctual_model::ports::{CancelOutcome, Done, OnConflict, Order, Refusal, Revised, StoreError};
use punctual_model::stored::codec::{self, Malformed};
use punctual_model::stored::record;
use punctual_model::{
    Entry, Extra, GroupName, Key, Lane, Link, MessageId, Parked, Sequence, State, Timestamp,
};

/// The form that this version writes.
const VERSION: u8 = 1;

/// Most orders or ids in one request: a batch, and what comes with each of its messages.
const ITEMS_MAX: usize = 4 * BATCH_MESSAGES_MAX;
/// Longest name of a node, in bytes; none of ours is as long.
const NAME_BYTES_MAX: usize = 256;

/// Largest request and answer, in bytes: a full batch, and what stands around each message.
pub const BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// Where a message may be in its life.
const STATES: [State; 5] =
    [State::Scheduled, State::Paused, State::Prepared, State::Delivered, State::Cancelled];

/// What one node asks of another.
#[derive(Clone, Debug)]
pub enum Request {
    /// Store new entries in a slot of yours.
    Schedule(Vec<Entry>),
    /// Withdraw messages of your slots.
    Cancel(Vec<MessageId>),
    /// Carry out orders about messages of one slot of yours.
    Revise(Vec<Order>),
    /// Tell which transactions of a producer group have a check ready, as soon as one has.
    Ready {
        /// The group.
        group: GroupName,
        /// At most this many.
        max: usize,
        /// How long to wait for the first.
        wait_ms: u64,
    },
    /// The node of that name leaves the cluster, in order.
    Leaving(Arc<str>),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The ids of new entries.
    Scheduled(Vec<MessageId>),
    /// What became of each message.
    Cancelled(Vec<CancelOutcome>),
    /// What became of the orders.
    Revised(Revised),
    /// Transactions with a check, and since when.
    Ready(Vec<(Timestamp, MessageId)>),
    /// It is known now.
    Noted,
}

impl Request {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Schedule(entries) => {
                out.push(1);
                put_all(&mut out, entries, put_entry);
            }
            Self::Cancel(ids) => {
                out.push(2);
                put_all(&mut out, ids, |out, id| record::put_id(out, *id));
            }
            Self::Revise(orders) => {
                out.push(3);
                put_all(&mut out, orders, put_order);
            }
            Self::Ready { group, max, wait_ms } => {
                out.push(4);
                codec::put_bytes(&mut out, group.as_str().as_bytes());
                codec::put_varint(&mut out, *max as u64);
                codec::put_varint(&mut out, *wait_ms);
            }
            Self::Leaving(name) => {
                out.push(5);
                codec::put_bytes(&mut out, name.as_bytes());
            }
        }
        out.into()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`Malformed`] for anything that [`encode`](Self::encode) does not write.
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut rest: &[u8] = bytes;
        let rest = &mut rest;
        check_version(rest)?;
        let request = match codec::get_u8(rest)? {
            1 => Self::Schedule(get_all(rest, |rest| get_entry(bytes, rest))?),
            2 => Self::Cancel(get_all(rest, record::get_id)?),
            3 => Self::Revise(get_orders(bytes, rest)?),
            4 => Self::Ready {
                group: GroupName::new(codec::get_text(rest)?).map_err(|_illegal| Malformed)?,
                max: usize::try_from(codec::get_varint(rest)?).map_err(|_large| Malformed)?,
                wait_ms: codec::get_varint(rest)?,
            },
            5 => Self::Leaving(get_name(rest)?),
            _ => return Err(Malformed),
        };
        if rest.is_empty() { Ok(request) } else { Err(Malformed) }
    }
}

fn get_name(rest: &mut &[u8]) -> Result<Arc<str>, Malformed> {
    let name = codec::get_text(rest)?;
    if name.len() <= NAME_BYTES_MAX { Ok(name.into()) } else { Err(Malformed) }
}

/// An answer, or a refusal, as bytes.
#[must_use]
pub fn encode_answer(answer: &Result<Answer, StoreError>) -> Bytes {
    let mut out = vec![VERSION];
    match answer {
        Err(error) => {
            out.push(1);
            put_error(&mut out, error);
        }
        Ok(answer) => {
            out.push(0);
            put_answer(&mut out, answer);
        }
    }
    out.into()
}

/// What [`encode_answer`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_answer(bytes: &Bytes) -> Result<Result<Answer, StoreError>, Malformed> {
    let mut rest: &[u8] = bytes;
    let rest = &mut rest;
    check_version(rest)?;
    let answer = match codec::get_u8(rest)? {
        0 => Ok(get_answer(rest)?),
        1 => Err(get_error(rest)?),
        _ => return Err(Malformed),
    };
    if rest.is_empty() { Ok(answer) } else { Err(Malformed) }
}

fn check_version(rest: &mut &[u8]) -> Result<(), Malformed> {
    if codec::get_u8(rest)? == VERSION { Ok(()) } else { Err(Malformed) }
}

fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Scheduled(ids) => {
            out.push(1);
            put_all(out, ids, |out, id| record::put_id(out, *id));
        }
        Answer::Cancelled(outcomes) => {
            out.push(2);
            put_all(out, outcomes, |out, outcome| out.push(cancel_code(*outcome)));
        }
        Answer::Revised(Revised::Done(done)) => {
            out.push(3);
            put_all(out, done, |out, done| put_done(out, *done));
        }
        Answer::Revised(Revised::Refused { index, reason }) => {
            out.push(4);
            codec::put_varint(out, *index as u64);
            put_refusal(out, *reason);
        }
        Answer::Ready(waiting) => {
            out.push(5);
            put_all(out, waiting, |out, (since, id)| {
                put_time(out, *since);
                record::put_id(out, *id);
            });
        }
        Answer::Noted => out.push(6),
    }
}

fn get_answer(rest: &mut &[u8]) -> Result<Answer, Malformed> {
    Ok(match codec::get_u8(rest)? {
        1 => Answer::Scheduled(get_all(rest, record::get_id)?),
        2 => Answer::Cancelled(get_all(rest, get_cancelled)?),
        3 => Answer::Revised(Revised::Done(get_all(rest, get_done)?)),
        4 => {
            let index = usize::try_from(codec::get_varint(rest)?).map_err(|_large| Malformed)?;
            Answer::Revised(Revised::Refused { index, reason: get_refusal(rest)? })
        }
        5 => Answer::Ready(get_all(rest, |rest| Ok((get_time(rest)?, record::get_id(rest)?)))?),
        6 => Answer::Noted,
        _ => return Err(Malformed),
    })
}

fn put_all<T>(out: &mut Vec<u8>, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    codec::put_varint(out, items.len() as u64);
    for item in items {
        put(out, item);
    }
}

/// Every item takes a byte at least, so a count never announces more than bytes remain.
fn get_all<'a, T>(
    rest: &mut &'a [u8],
    mut get: impl FnMut(&mut &'a [u8]) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = codec::get_length(rest)?;
    if count > ITEMS_MAX {
        return Err(Malformed);
    }
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(get(rest)?);
    }
    Ok(items)
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_time(out, entry.due);
    let orders: Vec<(usize, u32)> =
        links(entry.extra.as_deref()).enumerate().filter_map(order_of).collect();
    put_all(out, &orders, |out, (ordinal, order)| {
        codec::put_varint(out, *ordinal as u64);
        codec::put_varint(out, u64::from(*order));
    });
    let mut content = Vec::new();
    record::encode(&mut content, entry);
    codec::put_bytes(out, &content);
}

fn order_of((ordinal, link): (usize, Link)) -> Option<(usize, u32)> {
    match link {
        Link::Order(order) => Some((ordinal, order)),
        Link::Id(_) => None,
    }
}

fn get_entry<'a>(whole: &Bytes, rest: &mut &'a [u8]) -> Result<Entry, Malformed> {
    let due = get_time(rest)?;
    let orders = get_all(rest, |rest| {
        let order = (codec::get_varint(rest)?, codec::get_varint(rest)?);
        Ok((order.0, u32::try_from(order.1).map_err(|_large| Malformed)?))
    })?;
    let length = codec::get_length(rest)?;
    let content: &'a [u8] = codec::take(rest, length)?;
    let record = record::decode(&codec::share(whole, content))?;
    let record::Record { topic, partition, basis, message, mut extra } = record;
    for (ordinal, order) in orders {
        let ordinal = usize::try_from(ordinal).map_err(|_large| Malformed)?;
        let extra = extra.as_deref_mut().ok_or(Malformed)?;
        *link_mut(extra, ordinal).ok_or(Malformed)? = Link::Order(order);
    }
    Ok(Entry { topic, partition, due, basis, message, extra })
}

/// Every link that an extra has, in the order in which they are numbered.
pub(super) fn links(extra: Option<&Extra>) -> impl Iterator<Item = Link> {
    extra.into_iter().flat_map(|extra| {
        let half = match extra.parked {
            Some(Parked::Half { transaction, .. }) => Some(transaction),
            _ => None,
        };
        extra.series.into_iter().chain(extra.links.iter().copied()).chain(half)
    })
}

fn link_mut(extra: &mut Extra, mut ordinal: usize) -> Option<&mut Link> {
    if let Some(series) = &mut extra.series {
        if ordinal == 0 {
            return Some(series);
        }
        ordinal -= 1;
    }
    if ordinal < extra.links.len() {
        return extra.links.get_mut(ordinal);
    }
    match &mut extra.parked {
        Some(Parked::Half { transaction, .. }) if ordinal == extra.links.len() => Some(transaction),
        _ => None,
    }
}

fn put_order(out: &mut Vec<u8>, order: &Order) {
    match order {
        Order::Schedule { lane, entry, conflict } => {
            out.push(match conflict {
                OnConflict::Reject => 1,
                OnConflict::Replace => 2,
            });
            out.push(match lane {
                Lane::Message => 0,
                Lane::Retry => 1,
            });
            put_entry(out, entry);
        }
        Order::Replace { id, expected, entry } => {
            out.push(3);
            record::put_id(out, *id);
            put_key(out, *expected);
            put_entry(out, entry);
        }
        Order::Cancel { id, expected: None } => {
            out.push(4);
            record::put_id(out, *id);
        }
        Order::Cancel { id, expected: Some(expected) } => {
            out.push(5);
            record::put_id(out, *id);
            put_key(out, *expected);
        }
    }
}

/// Orders that name orders only of their own call.
fn get_orders(whole: &Bytes, rest: &mut &[u8]) -> Result<Vec<Order>, Malformed> {
    let orders = get_all(rest, |rest| get_order(whole, rest))?;
    let names_others = |order: &Order| {
        let extra = match order {
            Order::Schedule { entry, .. } | Order::Replace { entry, .. } => entry.extra.as_deref(),
            Order::Cancel { .. } => None,
        };
        let known = |link: Link| match link {
            Link::Order(order) => usize::try_from(order).is_ok_and(|order| order < orders.len()),
            Link::Id(_) => true,
        };
        !links(extra).all(known)
    };
    if orders.iter().any(names_others) { Err(Malformed) } else { Ok(orders) }
}

fn get_order(whole: &Bytes, rest: &mut &[u8]) -> Result<Order, Malformed> {
    Ok(match codec::get_u8(rest)? {
        kind @ (1 | 2) => Order::Schedule {
            lane: match codec::get_u8(rest)? {
                0 => Lane::Message,
                1 => Lane::Retry,
                _ => return Err(Malformed),
            },
            entry: get_entry(whole, rest)?,
            conflict: if kind == 1 { OnConflict::Reject } else { OnConflict::Replace },
        },
        3 => Order::Replace {
            id: record::get_id(rest)?,
            expected: get_key(rest)?,
            entry: get_entry(whole, rest)?,
        },
        4 => Order::Cancel { id: record::get_id(rest)?, expected: None },
        5 => Order::Cancel { id: record::get_id(rest)?, expected: Some(get_key(rest)?) },
        _ => return Err(Malformed),
    })
}

fn put_done(out: &mut Vec<u8>, done: Done) {
    match done {
        Done::Stored(id) => {
            out.push(1);
            record::put_id(out, id);
        }
        Done::Known(id) => {
            out.push(2);
            record::put_id(out, id);
        }
        Done::Moved(key) => {
            out.push(3);
            put_key(out, key);
        }
        Done::Cancelled => out.push(4),
        Done::Nothing => out.push(5),
    }
}

fn get_done(rest: &mut &[u8]) -> Result<Done, Malformed> {
    Ok(match codec::get_u8(rest)? {
        1 => Done::Stored(record::get_id(rest)?),
        2 => Done::Known(record::get_id(rest)?),
        3 => Done::Moved(get_key(rest)?),
        4 => Done::Cancelled,
        5 => Done::Nothing,
        _ => return Err(Malformed),
    })
}

fn put_refusal(out: &mut Vec<u8>, refusal: Refusal) {
    match refusal {
        Refusal::OwnIdTaken(id) => {
            out.push(1);
            record::put_id(out, id);
        }
        Refusal::Changed => out.push(2),
        Refusal::Ended(state) => {
            out.push(3);
            codec::put_bytes(out, state.word().as_bytes());
        }
        Refusal::NotFound => out.push(4),
    }
}

fn get_refusal(rest: &mut &[u8]) -> Result<Refusal, Malformed> {
    Ok(match codec::get_u8(rest)? {
        1 => Refusal::OwnIdTaken(record::get_id(rest)?),
        2 => Refusal::Changed,
        3 => {
            let word = codec::get_text(rest)?;
            let state = STATES.into_iter().find(|state| state.word() == word);
            Refusal::Ended(state.ok_or(Malformed)?)
        }
        4 => Refusal::NotFound,
        _ => return Err(Malformed),
    })
}

const fn cancel_code(outcome: CancelOutcome) -> u8 {
    match outcome {
        CancelOutcome::Cancelled => 1,
        CancelOutcome::AlreadyDelivered => 2,
        CancelOutcome::AlreadyCancelled => 3,
        CancelOutcome::Undecided => 4,
        CancelOutcome::NotFound => 5,
    }
}

fn get_cancelled(rest: &mut &[u8]) -> Result<CancelOutcome, Malformed> {
    Ok(match codec::get_u8(rest)? {
        1 => CancelOutcome::Cancelled,
        2 => CancelOutcome::AlreadyDelivered,
        3 => CancelOutcome::AlreadyCancelled,
        4 => CancelOutcome::Undecided,
        5 => CancelOutcome::NotFound,
        _ => return Err(Malformed),
    })
}

fn put_error(out: &mut Vec<u8>, error: &StoreError) {
    let (kind, text): (u8, &str) = match error {
        StoreError::Poisoned(text) => (1, text),
        StoreError::Full => (2, ""),
        StoreError::Busy => (3, ""),
        StoreError::Damaged(text) => (4, text),
        StoreError::Closed => (5, ""),
        StoreError::Unavailable(text) => (6, text),
        StoreError::Elsewhere => (7, ""),
    };
    out.push(kind);
    codec::put_bytes(out, text.as_bytes());
}

fn get_error(rest: &mut &[u8]) -> Result<StoreError, Malformed> {
    let kind = codec::get_u8(rest)?;
    let text: Arc<str> = codec::get_text(rest)?.into();
    Ok(match kind {
        // What is wrong there is not wrong here.
        1 | 5 => StoreError::Unavailable(format!("the other node is out of order: {text}").into()),
        2 => StoreError::Full,
        3 => StoreError::Busy,
        4 => StoreError::Damaged(text),
        6 => StoreError::Unavailable(text),
        7 => StoreError::Elsewhere,
        _ => return Err(Malformed),
    })
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    put_time(out, key.due);
    out.extend_from_slice(&key.sequence.get().to_le_bytes());
}

fn get_key(rest: &mut &[u8]) -> Result<Key, Malformed> {
    let due = get_time(rest)?;
    Ok(Key { due, sequence: Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)? })
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.as_millis().to_le_bytes());
}

fn get_time(rest: &mut &[u8]) -> Result<Timestamp, Malformed> {
    Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)
}

#[cfg(test)]
mod tests;
