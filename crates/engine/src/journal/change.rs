//! The changes a group carries, and their bytes.
//!
//! ```text
//! change     length u32 · kind u8 · …
//! schedule   first sequence u64 · count u32 · (due u64 · length u32 · record)…
//! cancel     count u32 · (due u64 · sequence u64 · topic u32)…
//! put topic  id u32 · partitions u16 · retention u64 · retention bytes u64 · name
//! delete     id u32
//! ```

use bytes::Bytes;
use punctual_model::limits::PARTITIONS_MAX;
use punctual_model::ports::Topic;
use punctual_model::{
    Entry, Key, Partition, Sequence, Span, Timestamp, TopicId, TopicName, TopicSettings,
};

use crate::codec::{self, Malformed};
use crate::record;

const SCHEDULE: u8 = 1;
const CANCEL: u8 = 2;
const PUT_TOPIC: u8 = 3;
const DELETE_TOPIC: u8 = 4;

/// Bytes before the first entry of a schedule: length, kind, first sequence, count.
const SCHEDULE_FRONT: usize = 4 + 1 + 8 + 4;
const FOREVER: u64 = u64::MAX;

/// Entries in their stored form, ready for the journal but for their sequence numbers.
#[derive(Debug, Default)]
pub struct Draft {
    /// The change as it will be written.
    pub bytes: Vec<u8>,
    /// Where each record lies in `bytes`.
    pub slots: Vec<Slot>,
}

/// Where a record lies in the bytes of its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it is due.
    pub due: Timestamp,
    /// The topic it goes to.
    pub topic: TopicId,
    /// The partition it goes to.
    pub partition: Partition,
    /// Where its bytes start.
    pub offset: u32,
    /// How many they are.
    pub length: u32,
}

impl Slot {
    /// The key of this entry when it has the number `sequence`.
    #[must_use]
    pub const fn key(&self, sequence: Sequence) -> Key {
        Key { due: self.due, sequence }
    }
}

impl Draft {
    /// The stored form of `entries`.
    #[must_use]
    pub fn new(entries: &[Entry]) -> Self {
        let weight: usize = entries.iter().map(|entry| entry.message.weight() + 24).sum();
        let mut bytes = Vec::with_capacity(SCHEDULE_FRONT + weight);
        bytes.resize(SCHEDULE_FRONT, 0);
        let mut slots = Vec::with_capacity(entries.len());
        for entry in entries {
            bytes.extend_from_slice(&entry.due.as_millis().to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            let offset = bytes.len();
            record::encode(&mut bytes, entry);
            let length = to_u32(bytes.len() - offset);
            if let Some(place) = bytes.get_mut(offset - 4..offset) {
                place.copy_from_slice(&length.to_le_bytes());
            }
            let offset = to_u32(offset);
            let Entry { due, topic, partition, .. } = *entry;
            slots.push(Slot { due, topic, partition, offset, length });
        }
        let mut front = Vec::with_capacity(SCHEDULE_FRONT);
        front.extend_from_slice(&to_u32(bytes.len() - 4).to_le_bytes());
        front.push(SCHEDULE);
        front.extend_from_slice(&[0; 8]);
        front.extend_from_slice(&to_u32(entries.len()).to_le_bytes());
        if let Some(place) = bytes.get_mut(..SCHEDULE_FRONT) {
            place.copy_from_slice(&front);
        }
        Self { bytes, slots }
    }

    /// Gives the entries their numbers, from `first` on.
    pub fn number(&mut self, first: Sequence) {
        if let Some(place) = self.bytes.get_mut(5..13) {
            place.copy_from_slice(&first.get().to_le_bytes());
        }
    }
}

fn to_u32(length: usize) -> u32 {
    u32::try_from(length).expect("admission caps a batch at BATCH_BYTES_MAX")
}

/// Appends a cancel of these messages.
pub fn put_cancel(out: &mut Vec<u8>, messages: &[(Key, TopicId)]) {
    put_change(out, CANCEL, |out| {
        out.extend_from_slice(&to_u32(messages.len()).to_le_bytes());
        for (key, topic) in messages {
            out.extend_from_slice(&key.due.as_millis().to_le_bytes());
            out.extend_from_slice(&key.sequence.get().to_le_bytes());
            out.extend_from_slice(&topic.get().to_le_bytes());
        }
    });
}

/// Appends the making or changing of a topic.
pub fn put_topic(out: &mut Vec<u8>, topic: &Topic) {
    put_change(out, PUT_TOPIC, |out| encode_topic(out, topic));
}

/// Appends the removal of a topic.
pub fn put_delete(out: &mut Vec<u8>, topic: TopicId) {
    put_change(out, DELETE_TOPIC, |out| out.extend_from_slice(&topic.get().to_le_bytes()));
}

fn put_change(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    fill(out);
    let length = to_u32(out.len() - start - 4).to_le_bytes();
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length);
    }
}

/// The stored form of a topic, also used by the checkpoint.
pub fn encode_topic(out: &mut Vec<u8>, topic: &Topic) {
    out.extend_from_slice(&topic.id.get().to_le_bytes());
    out.extend_from_slice(&topic.settings.partitions.to_le_bytes());
    let retention = topic.settings.retention.map_or(FOREVER, Span::as_millis);
    out.extend_from_slice(&retention.to_le_bytes());
    out.extend_from_slice(&topic.settings.retention_bytes.unwrap_or(FOREVER).to_le_bytes());
    codec::put_bytes(out, topic.name.as_str().as_bytes());
}

/// Reads what [`encode_topic`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_topic(rest: &mut &[u8]) -> Result<Topic, Malformed> {
    let id = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
    let partitions = codec::get_u16(rest)?;
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Malformed);
    }
    let retention = codec::get_u64(rest)?;
    let retention_bytes = codec::get_u64(rest)?;
    let length = codec::get_length(rest)?;
    let name = std::str::from_utf8(codec::take(rest, length)?).map_err(|_e| Malformed)?;
    let name = TopicName::new(name).map_err(|_e| Malformed)?;
    let settings = TopicSettings {
        partitions,
        retention: (retention != FOREVER).then(|| Span::from_millis(retention)),
        retention_bytes: (retention_bytes != FOREVER).then_some(retention_bytes),
    };
    Ok(Topic { id, name, settings })
}

/// A change read back.
#[derive(Debug)]
pub enum Change {
    /// Entries, numbered from `first` on; the slots point into `bytes`.
    Schedule {
        /// The number of the first entry.
        first: Sequence,
        /// The change as it was written.
        bytes: Bytes,
        /// Where each record lies.
        slots: Vec<Slot>,
    },
    /// Messages that were cancelled, with their topics.
    Cancel(Vec<(Key, TopicId)>),
    /// A topic that was made or changed.
    PutTopic(Topic),
    /// A topic that was removed.
    DeleteTopic(TopicId),
}

/// Reads the changes of one group.
///
/// # Errors
/// [`Malformed`] for bytes that were not written here.
pub fn decode(payload: &Bytes) -> Result<Vec<Change>, Malformed> {
    let mut changes = Vec::new();
    let mut rest: &[u8] = payload;
    while !rest.is_empty() {
        let whole = rest;
        let length = usize::try_from(codec::get_u32(&mut rest)?).map_err(|_e| Malformed)?;
        let mut body = codec::take(&mut rest, length)?;
        changes.push(match codec::get_u8(&mut body)? {
            SCHEDULE => {
                let bytes = whole.get(..4 + length).ok_or(Malformed)?;
                decode_schedule(body, codec::share(payload, bytes))?
            }
            CANCEL => decode_cancel(body)?,
            PUT_TOPIC => Change::PutTopic(decode_topic(&mut body)?),
            DELETE_TOPIC => {
                Change::DeleteTopic(TopicId::new(codec::get_u32(&mut body)?).ok_or(Malformed)?)
            }
            _ => return Err(Malformed),
        });
    }
    Ok(changes)
}

fn decode_schedule(mut body: &[u8], bytes: Bytes) -> Result<Change, Malformed> {
    let first = Sequence::new(codec::get_u64(&mut body)?).ok_or(Malformed)?;
    let count = usize::try_from(codec::get_u32(&mut body)?).map_err(|_e| Malformed)?;
    if count > body.len() {
        return Err(Malformed);
    }
    let mut slots = Vec::with_capacity(count);
    for _ in 0..count {
        let due = Timestamp::from_millis(codec::get_u64(&mut body)?).ok_or(Malformed)?;
        let length = codec::get_u32(&mut body)?;
        let offset = to_u32(bytes.len() - body.len());
        let content = codec::take(&mut body, usize::try_from(length).map_err(|_e| Malformed)?)?;
        let peeked = record::peek(content)?;
        let (topic, partition) = (peeked.topic, peeked.partition);
        slots.push(Slot { due, topic, partition, offset, length });
    }
    Ok(Change::Schedule { first, bytes, slots })
}

fn decode_cancel(mut body: &[u8]) -> Result<Change, Malformed> {
    let count = usize::try_from(codec::get_u32(&mut body)?).map_err(|_e| Malformed)?;
    if count > body.len() {
        return Err(Malformed);
    }
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        let due = Timestamp::from_millis(codec::get_u64(&mut body)?).ok_or(Malformed)?;
        let sequence = Sequence::new(codec::get_u64(&mut body)?).ok_or(Malformed)?;
        let topic = TopicId::new(codec::get_u32(&mut body)?).ok_or(Malformed)?;
        messages.push((Key { due, sequence }, topic));
    }
    Ok(Change::Cancel(messages))
}
