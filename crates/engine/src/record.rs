//! The stored form of one message: the same bytes in the journal, in a run and in memory.
//!
//! ```text
//! flags u8 · topic varint · partition varint · key (length + 1, or 0 for none) ·
//! header count varint · (name, value)… · body to the end
//! ```
//!
//! Due time and sequence are not part of it: they order the records and are kept by whoever holds
//! them. Checksums are over whole groups and blocks, one level up.

use bytes::Bytes;
use punctual_model::limits::{HEADERS_MAX, OWN_HEADERS_MAX};
use punctual_model::{Basis, Entry, Header, Message, Partition, TopicId};

use crate::codec::{self, Malformed};

const FLAG_DATE: u8 = 1;
const FLAGS_KNOWN: u8 = FLAG_DATE;

/// What a stored record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// Which clock must show the due time.
    pub basis: Basis,
    /// What to deliver.
    pub message: Message,
}

/// Appends the stored form of `entry`.
pub(crate) fn encode(out: &mut Vec<u8>, entry: &Entry) {
    let message = &entry.message;
    out.push(match entry.basis {
        Basis::Delay => 0,
        Basis::Date => FLAG_DATE,
    });
    codec::put_varint(out, u64::from(entry.topic.get()));
    codec::put_varint(out, u64::from(entry.partition.get()));
    match &message.key {
        None => out.push(0),
        Some(key) => {
            codec::put_varint(out, key.len() as u64 + 1);
            out.extend_from_slice(key);
        }
    }
    codec::put_varint(out, message.headers.len() as u64);
    for header in &message.headers {
        codec::put_bytes(out, header.name.as_bytes());
        codec::put_bytes(out, &header.value);
    }
    out.extend_from_slice(&message.body);
}

/// Reads a stored record; the message shares the memory of `content`.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub(crate) fn decode(content: &Bytes) -> Result<Record, Malformed> {
    let mut rest: &[u8] = content;
    let (basis, topic, partition) = decode_front(&mut rest)?;
    let key = decode_key(&mut rest)?.map(|key| codec::share(content, key));
    let count = codec::get_length(&mut rest)?;
    if count > HEADERS_MAX + OWN_HEADERS_MAX {
        return Err(Malformed);
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let length = codec::get_length(&mut rest)?;
        let name = std::str::from_utf8(codec::take(&mut rest, length)?).map_err(|_e| Malformed)?;
        let length = codec::get_length(&mut rest)?;
        let value = codec::share(content, codec::take(&mut rest, length)?);
        headers.push(Header { name: name.to_owned(), value });
    }
    let message = Message { key, headers, body: codec::share(content, rest) };
    Ok(Record { topic, partition, basis, message })
}

/// The front of a stored record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peeked<'a> {
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// The key of the message.
    pub key: Option<&'a [u8]>,
}

/// Where a stored record goes and its key, without reading the rest.
///
/// # Errors
/// [`Malformed`] for bytes that [`encode`] does not write.
pub(crate) fn peek(content: &[u8]) -> Result<Peeked<'_>, Malformed> {
    let mut rest = content;
    let (_, topic, partition) = decode_front(&mut rest)?;
    Ok(Peeked { topic, partition, key: decode_key(&mut rest)? })
}

fn decode_front(rest: &mut &[u8]) -> Result<(Basis, TopicId, Partition), Malformed> {
    let flags = codec::get_u8(rest)?;
    if flags & !FLAGS_KNOWN != 0 {
        return Err(Malformed);
    }
    let basis = if flags & FLAG_DATE == 0 { Basis::Delay } else { Basis::Date };
    let topic = u32::try_from(codec::get_varint(rest)?).map_err(|_e| Malformed)?;
    let partition = u16::try_from(codec::get_varint(rest)?).map_err(|_e| Malformed)?;
    let topic = TopicId::new(topic).ok_or(Malformed)?;
    let partition = Partition::new(partition).ok_or(Malformed)?;
    Ok((basis, topic, partition))
}

fn decode_key<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let length = codec::get_varint(rest)?;
    let Some(length) = length.checked_sub(1) else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_e| Malformed)?;
    codec::take(rest, length).map(Some)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_model::Timestamp;

    use super::*;

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
