//! What few records have beside their message.
//!
//! ```text
//! extra    which u8 (in doubt: it is a series and a transaction both) · what is there, in this order:
//!          changed: first due u64 · first sequence u64 · version u32
//!          own id: text · print u64
//!          series: link
//!          links: count varint · link …
//!          paused: remaining u64 · due u64
//!          half: transaction link · delay u64, all ones for none · due u64
//! link     due u64 · sequence u64 · topic u32 · partition u16
//! ```
//!
//! A link has a fixed size, so that an id can be put in once it is given.

use std::sync::Arc;

use crate::{
    Action, Changed, Extra, Key, Link, MessageId, OwnId, Parked, Partition, Sequence, Span,
    Timestamp, TopicId,
};

use crate::stored::codec::{self, Malformed};

const REPEAT: u8 = 1;
const CHECK: u8 = 1 << 1;
/// Only what is delivered can be in doubt, so both of these together are free to say so.
const IN_DOUBT: u8 = REPEAT | CHECK;
const CHANGED: u8 = 1 << 2;
const OWN_ID: u8 = 1 << 3;
const SERIES: u8 = 1 << 4;
const LINKS: u8 = 1 << 5;
const PAUSED: u8 = 1 << 6;
const HALF: u8 = 1 << 7;
const NO_DELAY: u64 = u64::MAX;

/// Bytes of a link.
pub const LINK_BYTES: usize = 8 + 8 + 4 + 2;

/// A place where the id of what another order stores is to be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where the link starts.
    pub offset: usize,
    /// The order.
    pub order: u32,
}

/// Appends the stored form of `extra`; answers where ids are still to be put in.
pub(super) fn encode(out: &mut Vec<u8>, extra: &Extra) -> Vec<Patch> {
    let mut patches = Vec::new();
    out.push(which(extra));
    if let Some(Changed { first, version }) = extra.changed {
        put_key(out, first);
        out.extend_from_slice(&version.to_le_bytes());
    }
    if let Some(OwnId { text, print }) = &extra.own_id {
        codec::put_bytes(out, text.as_bytes());
        out.extend_from_slice(&print.to_le_bytes());
    }
    if let Some(series) = extra.series {
        put_link(out, series, &mut patches);
    }
    if !extra.links.is_empty() {
        codec::put_varint(out, extra.links.len() as u64);
        for link in &extra.links {
            put_link(out, *link, &mut patches);
        }
    }
    match extra.parked {
        None => {}
        Some(Parked::Paused { remaining, due }) => {
            out.extend_from_slice(&remaining.as_millis().to_le_bytes());
            out.extend_from_slice(&due.as_millis().to_le_bytes());
        }
        Some(Parked::Half { transaction, delay, due }) => {
            put_link(out, transaction, &mut patches);
            let delay = delay.map_or(NO_DELAY, Span::as_millis);
            out.extend_from_slice(&delay.to_le_bytes());
            out.extend_from_slice(&due.as_millis().to_le_bytes());
        }
    }
    patches
}

fn which(extra: &Extra) -> u8 {
    let mut which = match extra.action {
        Action::Deliver if extra.in_doubt => IN_DOUBT,
        Action::Deliver => 0,
        Action::Repeat => REPEAT,
        Action::Check => CHECK,
    };
    for (bit, there) in [
        (CHANGED, extra.changed.is_some()),
        (OWN_ID, extra.own_id.is_some()),
        (SERIES, extra.series.is_some()),
        (LINKS, !extra.links.is_empty()),
        (PAUSED, matches!(extra.parked, Some(Parked::Paused { .. }))),
        (HALF, matches!(extra.parked, Some(Parked::Half { .. }))),
    ] {
        if there {
            which |= bit;
        }
    }
    which
}

/// Takes an extra from the front.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub(super) fn decode(rest: &mut &[u8]) -> Result<Extra, Malformed> {
    let which = codec::get_u8(rest)?;
    let has = |bit: u8| which & bit != 0;
    let mut extra = Extra {
        action: match (has(REPEAT), has(CHECK)) {
            (false, false) | (true, true) => Action::Deliver,
            (true, false) => Action::Repeat,
            (false, true) => Action::Check,
        },
        in_doubt: which & IN_DOUBT == IN_DOUBT,
        ..Extra::default()
    };
    if has(CHANGED) {
        let first = get_key(rest)?;
        extra.changed = Some(Changed { first, version: codec::get_u32(rest)? });
    }
    if has(OWN_ID) {
        let text = Arc::from(codec::get_text(rest)?);
        extra.own_id = Some(OwnId { text, print: codec::get_u64(rest)? });
    }
    if has(SERIES) {
        extra.series = Some(get_link(rest)?);
    }
    if has(LINKS) {
        let count = codec::get_length(rest)?;
        if count.saturating_mul(LINK_BYTES) > rest.len() {
            return Err(Malformed);
        }
        extra.links = (0..count).map(|_| get_link(rest)).collect::<Result<_, _>>()?;
    }
    extra.parked = match (has(PAUSED), has(HALF)) {
        (false, false) => None,
        (true, false) => {
            let remaining = Span::from_millis(codec::get_u64(rest)?);
            Some(Parked::Paused { remaining, due: get_time(rest)? })
        }
        (false, true) => {
            let transaction = get_link(rest)?;
            let delay = Some(codec::get_u64(rest)?).filter(|delay| *delay != NO_DELAY);
            let delay = delay.map(Span::from_millis);
            Some(Parked::Half { transaction, delay, due: get_time(rest)? })
        }
        (true, true) => return Err(Malformed),
    };
    Ok(extra)
}

fn put_link(out: &mut Vec<u8>, link: Link, patches: &mut Vec<Patch>) {
    match link {
        Link::Id(id) => put_id(out, id),
        Link::Order(order) => {
            patches.push(Patch { offset: out.len(), order });
            out.extend_from_slice(&[0; LINK_BYTES]);
        }
    }
}

/// Appends the stored form of an id.
pub fn put_id(out: &mut Vec<u8>, id: MessageId) {
    put_key(out, id.key);
    out.extend_from_slice(&id.topic.get().to_le_bytes());
    out.extend_from_slice(&id.partition.get().to_le_bytes());
}

fn get_link(rest: &mut &[u8]) -> Result<Link, Malformed> {
    get_id(rest).map(Link::Id)
}

/// Reads what [`put_id`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn get_id(rest: &mut &[u8]) -> Result<MessageId, Malformed> {
    Ok(MessageId {
        key: get_key(rest)?,
        topic: TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?,
        partition: Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?,
    })
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    out.extend_from_slice(&key.due.as_millis().to_le_bytes());
    out.extend_from_slice(&key.sequence.get().to_le_bytes());
}

fn get_key(rest: &mut &[u8]) -> Result<Key, Malformed> {
    let due = get_time(rest)?;
    Ok(Key { due, sequence: Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)? })
}

fn get_time(rest: &mut &[u8]) -> Result<Timestamp, Malformed> {
    Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_id() -> impl Strategy<Value = MessageId> {
        (0..1u64 << 40, 0..1u64 << 56, 0..1u32 << 24, 0..1024u16).prop_map(
            |(due, sequence, topic, partition)| MessageId {
                key: Key {
                    due: Timestamp::from_millis(due).unwrap(),
                    sequence: Sequence::new(sequence).unwrap(),
                },
                topic: TopicId::new(topic).unwrap(),
                partition: Partition::new(partition).unwrap(),
            },
        )
    }

    fn any_parked() -> impl Strategy<Value = Option<Parked>> {
        let time = |ms: u64| Timestamp::from_millis(ms).unwrap();
        let paused = (0..1u64 << 40, 0..1u64 << 40).prop_map(move |(remaining, due)| {
            Some(Parked::Paused { remaining: Span::from_millis(remaining), due: time(due) })
        });
        let half = (any_id(), proptest::option::of(0..1u64 << 40), 0..1u64 << 40).prop_map(
            move |(id, delay, due)| {
                let delay = delay.map(Span::from_millis);
                Some(Parked::Half { transaction: Link::Id(id), delay, due: time(due) })
            },
        );
        prop_oneof![Just(None), paused, half]
    }

    fn any_extra() -> impl Strategy<Value = Extra> {
        let action = prop_oneof![Just(Action::Deliver), Just(Action::Repeat), Just(Action::Check)];
        let changed = proptest::option::of((any_id(), any::<u32>()));
        let own_id = proptest::option::of((".{0,300}", any::<u64>()));
        let series = proptest::option::of(any_id());
        let links = proptest::collection::vec(any_id(), 0..4);
        (action, changed, own_id, series, links, any_parked(), any::<bool>()).prop_map(
            |(action, changed, own_id, series, links, parked, doubt)| Extra {
                action,
                in_doubt: doubt && action == Action::Deliver,
                changed: changed.map(|(id, version)| Changed { first: id.key, version }),
                own_id: own_id.map(|(text, print)| OwnId { text: text.into(), print }),
                series: series.map(Link::Id),
                links: links.into_iter().map(Link::Id).collect(),
                parked,
            },
        )
    }

    proptest! {
        #[test]
        fn an_extra_survives(extra in any_extra()) {
            let mut bytes = Vec::new();
            prop_assert_eq!(encode(&mut bytes, &extra), []);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(decode(&mut rest), Ok(extra));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let mut rest = bytes.as_slice();
            let _outcome = decode(&mut rest);
        }

        #[test]
        fn an_id_is_put_in_where_it_is_missing(id in any_id()) {
            let links = vec![Link::Id(id), Link::Order(7)];
            let mut bytes = vec![1, 2, 3];
            let patches = encode(&mut bytes, &Extra { links, ..Extra::default() });
            let [patch] = patches[..] else { panic!("one link is open") };
            prop_assert_eq!(patch.order, 7);
            let mut put = Vec::new();
            put_id(&mut put, id);
            bytes.splice(patch.offset..patch.offset + LINK_BYTES, put);
            let extra = decode(&mut bytes.split_at(3).1).unwrap();
            prop_assert_eq!(extra.links, vec![Link::Id(id); 2]);
        }
    }
}
