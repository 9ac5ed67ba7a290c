//! The stored form of one message: the same bytes in the journal, in a run and in memory.
//!
//! ```text
//! flags u8 · topic varint · partition varint · key (length + 1, or 0 for none) ·
//! extra, if the flags say so · header count varint · (name, value)… · body to the end
//! ```
//!
//! The extra is in `record/extra.rs`.
//!
//! Due time and sequence are not part of it: they order the records and are kept by whoever holds
//! them. Checksums are over whole groups and blocks, one level up.

mod extra;

use crate::limits::{HEADERS_MAX, OWN_HEADERS_MAX};
use crate::message::{Basis, Entry, Extra, Header, Message};
use crate::stored::codec::{self, Malformed};
use crate::topic::{Partition, TopicId};
use bytes::Bytes;

pub use extra::{LINK_BYTES, Patch, get_id, put_id};

const FLAG_DATE: u8 = 1;
const FLAG_EXTRA: u8 = 2;
const FLAGS_KNOWN: u8 = FLAG_DATE | FLAG_EXTRA;

/// What a stored record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// Which clock must show the due time.
    pub basis: Basis,
    /// What to deliver.
    pub message: Message,
    /// What few records have beside that.
    pub extra: Option<Box<Extra>>,
}

/// Appends the stored form of `entry`. Answers the places where ids are still to be put in.
pub fn encode(out: &mut Vec<u8>, entry: &Entry) -> Vec<Patch> {
    let message = &entry.message;
    let date = match entry.basis {
        Basis::Delay => 0,
        Basis::Date => FLAG_DATE,
    };
    out.push(date | if entry.extra.is_some() { FLAG_EXTRA } else { 0 });
    codec::put_varint(out, u64::from(entry.topic.get()));
    codec::put_varint(out, u64::from(entry.partition.get()));
    match &message.key {
        None => out.push(0),
        Some(key) => {
            codec::put_varint(out, key.len() as u64 + 1);
            out.extend_from_slice(key);
        }
    }
    let patches = entry.extra.as_ref().map_or_else(Vec::new, |extra| extra::encode(out, extra));
    codec::put_varint(out, message.headers.len() as u64);
    for header in &message.headers {
        codec::put_bytes(out, header.name.as_bytes());
        codec::put_bytes(out, &header.value);
    }
    out.extend_from_slice(&message.body);
    patches
}

/// Reads a stored record; the message shares the memory of `content`.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub fn decode(content: &Bytes) -> Result<Record, Malformed> {
    let mut rest: &[u8] = content;
    let front = decode_front(&mut rest)?;
    let key = decode_key(&mut rest)?.map(|key| codec::share(content, key));
    let extra = decode_extra(&front, &mut rest)?;
    let count = codec::get_length(&mut rest)?;
    // Records of producers may have more headers than other messages, and move on like those.
    let mut headers = Vec::with_capacity(count.min(HEADERS_MAX + OWN_HEADERS_MAX));
    for _ in 0..count {
        let length = codec::get_length(&mut rest)?;
        let name = std::str::from_utf8(codec::take(&mut rest, length)?).map_err(|_e| Malformed)?;
        let length = codec::get_length(&mut rest)?;
        let value = codec::share(content, codec::take(&mut rest, length)?);
        headers.push(Header { name: name.to_owned(), value });
    }
    let message = Message { key, headers, body: codec::share(content, rest) };
    let Front { topic, partition, basis, .. } = front;
    Ok(Record { topic, partition, basis, message, extra })
}

/// The front of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked<'a> {
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// The key of the message.
    pub key: Option<&'a [u8]>,
    /// Whether it has an extra.
    pub has_extra: bool,
}

/// Where a stored record goes and its key, without reading the rest.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub fn peek(content: &[u8]) -> Result<Peeked<'_>, Malformed> {
    let mut rest = content;
    let Front { topic, partition, has_extra, .. } = decode_front(&mut rest)?;
    Ok(Peeked { topic, partition, key: decode_key(&mut rest)?, has_extra })
}

/// The extra of a stored record, without reading the rest.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub fn peek_extra(content: &[u8]) -> Result<Option<Box<Extra>>, Malformed> {
    let mut rest = content;
    let front = decode_front(&mut rest)?;
    if !front.has_extra {
        return Ok(None);
    }
    decode_key(&mut rest)?;
    decode_extra(&front, &mut rest)
}

struct Front {
    topic: TopicId,
    partition: Partition,
    basis: Basis,
    has_extra: bool,
}

fn decode_front(rest: &mut &[u8]) -> Result<Front, Malformed> {
    let flags = codec::get_u8(rest)?;
    if flags & !FLAGS_KNOWN != 0 {
        return Err(Malformed);
    }
    let basis = if flags & FLAG_DATE == 0 { Basis::Delay } else { Basis::Date };
    let topic = u32::try_from(codec::get_varint(rest)?).map_err(|_e| Malformed)?;
    let partition = u16::try_from(codec::get_varint(rest)?).map_err(|_e| Malformed)?;
    let topic = TopicId::new(topic).ok_or(Malformed)?;
    let partition = Partition::new(partition).ok_or(Malformed)?;
    Ok(Front { topic, partition, basis, has_extra: flags & FLAG_EXTRA != 0 })
}

fn decode_extra(front: &Front, rest: &mut &[u8]) -> Result<Option<Box<Extra>>, Malformed> {
    front.has_extra.then(|| extra::decode(rest).map(Box::new)).transpose()
}

fn decode_key<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let length = codec::get_varint(rest)?;
    let Some(length) = length.checked_sub(1) else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_e| Malformed)?;
    codec::take(rest, length).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = Entry> {
        let header = (".{0,8}", any::<Vec<u8>>())
            .prop_map(|(name, value)| Header { name, value: value.into() });
        let key = proptest::option::of(any::<Vec<u8>>().prop_map(Bytes::from));
        let headers = proptest::collection::vec(header, 0..4);
        (0..1u32 << 24, 0..1024u16, any::<bool>(), key, headers, any::<Vec<u8>>()).prop_map(
            |(topic, partition, date, key, headers, body)| Entry {
                topic: TopicId::new(topic).unwrap(),
                partition: Partition::new(partition).unwrap(),
                due: Timestamp::MIN,
                basis: if date { Basis::Date } else { Basis::Delay },
                message: Message { key, headers, body: body.into() },
                extra: None,
            },
        )
    }

    proptest! {
        #[test]
        fn a_record_survives(entry in any_entry()) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &entry);
            let record = decode(&Bytes::from(bytes)).unwrap();
            prop_assert_eq!(record.topic, entry.topic);
            prop_assert_eq!(record.partition, entry.partition);
            prop_assert_eq!(record.basis, entry.basis);
            prop_assert_eq!(record.message, entry.message);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let peeked = peek(&bytes).is_ok();
            let decoded = decode(&Bytes::from(bytes)).is_ok();
            prop_assert!(peeked || !decoded);
        }
    }
}
