//! The changes a group carries, and their bytes.
//!
//! ```text
//! change     length u32 · kind u8 · …
//! schedule   first sequence u64 · count u32 · (due u64 · length u32 · record)…
//! cancel     count u32 · (due u64 · sequence u64 · topic u32)…
//! supersede  as cancel: entries whose place others have taken
//! put topic  a topic
//! levels     delay u64 …
//! delete     id u32
//! put group  a group · count u16 · the offset at which each partition starts u64 …
//! delete     id u32
//! settle, note, seek   see `groups/stored.rs`
//! append     topic u32 · partition u16 · a record batch, or its header alone where nobody waits for the disk
//! names      topic u32 · partition u16 · count u32 · (offset u64 · due u64 · sequence u64 · topic u32 ·
//!            partition u16)…: messages that offsets of a log stand for
//! trim       topic u32 · partition u16 · the offset at which the log starts u64
//! ```

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use punctual_model::group::{Group, GroupChange, GroupId};
use punctual_model::ports::{LogPosition, Topic};
use punctual_model::stored::{group, topic};
use punctual_model::{
    DelayLevels, Entry, Key, Lane, MessageId, Partition, Sequence, Timestamp, TopicId,
};

use crate::codec::{self, Malformed};
use crate::groups::stored;
use crate::record::{self, Patch};

const SCHEDULE: u8 = 1;
const CANCEL: u8 = 2;
/// A topic as format 1 had it; still read.
const PUT_OLD_TOPIC: u8 = 3;
const DELETE_TOPIC: u8 = 4;
/// A topic as format 2 had it; still read.
const PUT_TOPIC_2: u8 = 5;
const PUT_GROUP: u8 = 6;
const DELETE_GROUP: u8 = 7;
const SETTLE: u8 = 8;
const NOTE: u8 = 9;
const SEEK: u8 = 10;
const SUPERSEDE: u8 = 11;
const PUT_TOPIC: u8 = 12;
const PUT_LEVELS: u8 = 13;
const APPEND: u8 = 14;
const NAMES: u8 = 15;
const TRIM: u8 = 16;

/// Bytes before the batch of an append: length, kind, topic, partition.
const APPEND_FRONT: usize = 4 + 1 + 4 + 2;
/// Bytes of a name.
pub const NAME_BYTES: usize = 8 + record::LINK_BYTES;
/// Bytes before the first entry of a schedule: length, kind, first sequence, count.
const SCHEDULE_FRONT: usize = 4 + 1 + 8 + 4;

/// Entries of one lane in their stored form, ready for the journal but for their sequence numbers.
#[derive(Debug)]
pub struct Draft {
    /// The lane the entries go to.
    pub lane: Lane,
    /// The change as it will be written.
    pub bytes: Vec<u8>,
    /// Where each record lies in `bytes`.
    pub slots: Vec<Slot>,
    /// Where ids of other orders are to be put in.
    pub(crate) patches: Vec<Patch>,
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
    /// The stored form of `entries`, which go to `lane`.
    #[must_use]
    pub fn new<'a>(
        entries: impl IntoIterator<Item = &'a Entry, IntoIter: Clone>,
        lane: Lane,
    ) -> Self {
        let entries = entries.into_iter();
        let weight: usize = entries.clone().map(|entry| entry.message.weight() + 24).sum();
        let mut bytes = Vec::with_capacity(SCHEDULE_FRONT + weight);
        bytes.resize(SCHEDULE_FRONT, 0);
        let mut slots = Vec::with_capacity(entries.size_hint().0);
        let mut patches = Vec::new();
        for entry in entries {
            bytes.extend_from_slice(&entry.due.as_millis().to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            let offset = bytes.len();
            patches.extend(record::encode(&mut bytes, entry));
            let length = to_u32(bytes.len() - offset);
            if let Some(place) = bytes.get_mut(offset - 4..offset) {
                place.copy_from_slice(&length.to_le_bytes());
            }
            let offset = to_u32(offset);
            let Entry { due, topic, partition, .. } = *entry;
            slots.push(Slot { due, topic, partition, offset, length });
        }
        put_front(&mut bytes, slots.len());
        Self { lane, bytes, slots, patches }
    }

    /// Gives the entries their numbers, from `first` on.
    pub fn number(&mut self, first: Sequence) {
        if let Some(place) = self.bytes.get_mut(5..13) {
            place.copy_from_slice(&first.get().to_le_bytes());
        }
    }

    /// The same without the entries at these places.
    #[must_use]
    pub fn without(&self, left_out: &HashSet<usize>) -> Self {
        let mut bytes = self.bytes.get(..SCHEDULE_FRONT).unwrap_or_default().to_vec();
        let mut slots = Vec::with_capacity(self.slots.len());
        let mut patches = Vec::new();
        for (_, slot) in self.slots.iter().enumerate().filter(|(n, _)| !left_out.contains(n)) {
            let start = slot.offset as usize;
            let end = start + slot.length as usize;
            let offset = bytes.len() + 12;
            bytes.extend_from_slice(self.bytes.get(start - 12..end).unwrap_or_default());
            let inside = self.patches.iter().filter(|patch| (start..end).contains(&patch.offset));
            patches.extend(
                inside.map(|patch| Patch { offset: patch.offset - start + offset, ..*patch }),
            );
            slots.push(Slot { offset: to_u32(offset), ..*slot });
        }
        put_front(&mut bytes, slots.len());
        Self { lane: self.lane, bytes, slots, patches }
    }

    /// Puts in the ids of what other orders store.
    pub fn link(&mut self, id_of: impl Fn(u32) -> Option<MessageId>) {
        let mut link = Vec::with_capacity(record::LINK_BYTES);
        for patch in &self.patches {
            link.clear();
            let Some(id) = id_of(patch.order) else { continue };
            record::put_id(&mut link, id);
            if let Some(place) = self.bytes.get_mut(patch.offset..patch.offset + link.len()) {
                place.copy_from_slice(&link);
            }
        }
    }
}

/// Fills in the front of a schedule, but for the number of its first entry.
fn put_front(bytes: &mut [u8], entries: usize) {
    let mut front = Vec::with_capacity(SCHEDULE_FRONT);
    front.extend_from_slice(&to_u32(bytes.len() - 4).to_le_bytes());
    front.push(SCHEDULE);
    front.extend_from_slice(&[0; 8]);
    front.extend_from_slice(&to_u32(entries).to_le_bytes());
    if let Some(place) = bytes.get_mut(..SCHEDULE_FRONT) {
        place.copy_from_slice(&front);
    }
}

fn to_u32(length: usize) -> u32 {
    u32::try_from(length).expect("admission caps a batch at BATCH_BYTES_MAX")
}

/// Appends a cancel of these messages.
pub fn put_cancel(out: &mut Vec<u8>, messages: &[(Key, TopicId)]) {
    put_ends(out, CANCEL, messages);
}

/// Appends that others have taken the place of these entries.
pub fn put_supersede(out: &mut Vec<u8>, entries: &[(Key, TopicId)]) {
    put_ends(out, SUPERSEDE, entries);
}

/// Appends the delay levels.
pub fn put_levels(out: &mut Vec<u8>, levels: &DelayLevels) {
    put_change(out, PUT_LEVELS, |out| topic::encode_levels(out, levels));
}

fn put_ends(out: &mut Vec<u8>, kind: u8, messages: &[(Key, TopicId)]) {
    put_change(out, kind, |out| {
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
    put_change(out, PUT_TOPIC, |out| topic::encode_topic(out, topic));
}

/// Appends the removal of a topic.
pub fn put_delete(out: &mut Vec<u8>, topic: TopicId) {
    put_change(out, DELETE_TOPIC, |out| out.extend_from_slice(&topic.get().to_le_bytes()));
}

/// Appends the making or changing of a group. `starts` are the offsets at which it begins.
pub fn put_group(out: &mut Vec<u8>, group: &Group, starts: &[u64]) {
    put_change(out, PUT_GROUP, |out| {
        group::encode_group(out, group);
        let count = u16::try_from(starts.len()).expect("a topic has at most PARTITIONS_MAX");
        out.extend_from_slice(&count.to_le_bytes());
        for start in starts {
            out.extend_from_slice(&start.to_le_bytes());
        }
    });
}

/// Appends the removal of a group.
pub fn put_delete_group(out: &mut Vec<u8>, group: GroupId) {
    put_change(out, DELETE_GROUP, |out| out.extend_from_slice(&group.0.to_le_bytes()));
}

/// Appends a change of a group's progress.
pub fn put_progress(out: &mut Vec<u8>, change: &GroupChange) {
    match change {
        GroupChange::Settle(source, marks) => {
            put_change(out, SETTLE, |out| stored::encode_settle(out, *source, marks));
        }
        GroupChange::Note(source, mark, note) => {
            put_change(out, NOTE, |out| stored::encode_note_change(out, *source, *mark, note));
        }
        GroupChange::Seek(source, offset, by) => {
            put_change(out, SEEK, |out| stored::encode_seek(out, *source, *offset, *by));
        }
        GroupChange::Commit(source, cursor, said) => {
            put_change(out, SEEK, |out| stored::encode_commit(out, *source, *cursor, said));
        }
        GroupChange::Forget(source) => {
            put_change(out, SEEK, |out| stored::encode_forget(out, *source));
        }
    }
}

/// Appends a batch to the log of a partition, for which the caller has yet to find a place. Answers
/// where its bytes are.
pub fn begin_append(
    out: &mut Vec<u8>,
    (topic, partition): (TopicId, Partition),
    batch: &[u8],
) -> Range<usize> {
    put_change(out, APPEND, |out| {
        put_partition(out, topic, partition);
        out.extend_from_slice(batch);
    });
    out.len() - batch.len()..out.len()
}

/// Leaves only the first bytes of a batch that [`begin_append`] put at the end.
pub fn cut_append(out: &mut Vec<u8>, batch: &Range<usize>, bytes: usize) {
    out.truncate(batch.start + bytes);
    let start = batch.start - APPEND_FRONT;
    let length = to_u32(out.len() - start - 4).to_le_bytes();
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length);
    }
}

/// Appends which messages offsets of a log stand for.
pub fn put_names(
    out: &mut Vec<u8>,
    (topic, partition): (TopicId, Partition),
    names: &[(u64, MessageId)],
) {
    put_change(out, NAMES, |out| {
        put_partition(out, topic, partition);
        out.extend_from_slice(&to_u32(names.len()).to_le_bytes());
        for (offset, id) in names {
            out.extend_from_slice(&offset.to_le_bytes());
            record::put_id(out, *id);
        }
    });
}

/// Appends that a log starts at an offset.
pub fn put_trim(out: &mut Vec<u8>, before: LogPosition) {
    put_change(out, TRIM, |out| {
        put_partition(out, before.topic, before.partition);
        out.extend_from_slice(&before.offset.to_le_bytes());
    });
}

fn put_partition(out: &mut Vec<u8>, topic: TopicId, partition: Partition) {
    out.extend_from_slice(&topic.get().to_le_bytes());
    out.extend_from_slice(&partition.get().to_le_bytes());
}

fn get_partition(rest: &mut &[u8]) -> Result<(TopicId, Partition), Malformed> {
    let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
    Ok((topic, Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?))
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
    /// Entries whose place others have taken, with their topics.
    Supersede(Vec<(Key, TopicId)>),
    /// The delay levels.
    PutLevels(DelayLevels),
    /// A topic that was made or changed.
    PutTopic(Box<Topic>),
    /// A topic that was removed.
    DeleteTopic(TopicId),
    /// A group that was made or changed, and the offsets at which a new one starts.
    PutGroup(Group, Vec<u64>),
    /// A group that was removed.
    DeleteGroup(GroupId),
    /// A change of a group's progress.
    Progress(GroupChange),
    /// A batch that was appended to a log, or its header alone.
    Append((TopicId, Partition), Bytes),
    /// Messages that offsets of a log stand for.
    Names((TopicId, Partition), Vec<(u64, MessageId)>),
    /// Where a log starts.
    Trim(LogPosition),
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
            CANCEL => Change::Cancel(decode_ends(body)?),
            SUPERSEDE => Change::Supersede(decode_ends(body)?),
            PUT_LEVELS => Change::PutLevels(topic::decode_levels(&mut body)?),
            PUT_OLD_TOPIC => Change::PutTopic(topic::decode_old_topic(&mut body)?.into()),
            PUT_TOPIC_2 => Change::PutTopic(topic::decode_topic_2(&mut body)?.into()),
            PUT_TOPIC => Change::PutTopic(topic::decode_topic(&mut body)?.into()),
            PUT_GROUP => decode_put_group(&mut body)?,
            DELETE_GROUP => Change::DeleteGroup(GroupId(codec::get_u32(&mut body)?)),
            SETTLE => Change::Progress(stored::decode_settle(&mut body)?),
            NOTE => Change::Progress(stored::decode_note_change(&mut body)?),
            SEEK => Change::Progress(stored::decode_seek(&mut body)?),
            APPEND => Change::Append(get_partition(&mut body)?, codec::share(payload, body)),
            NAMES => decode_names(body)?,
            TRIM => {
                let (topic, partition) = get_partition(&mut body)?;
                let offset = codec::get_u64(&mut body)?;
                Change::Trim(LogPosition { topic, partition, offset })
            }
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

fn decode_put_group(body: &mut &[u8]) -> Result<Change, Malformed> {
    let group = group::decode_group(body)?;
    let count = codec::get_u16(body)?;
    let starts: Result<Vec<u64>, Malformed> = (0..count).map(|_| codec::get_u64(body)).collect();
    Ok(Change::PutGroup(group, starts?))
}

fn decode_names(mut body: &[u8]) -> Result<Change, Malformed> {
    let place = get_partition(&mut body)?;
    let count = usize::try_from(codec::get_u32(&mut body)?).map_err(|_e| Malformed)?;
    if count > body.len() {
        return Err(Malformed);
    }
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = codec::get_u64(&mut body)?;
        names.push((offset, record::get_id(&mut body)?));
    }
    Ok(Change::Names(place, names))
}

fn decode_ends(mut body: &[u8]) -> Result<Vec<(Key, TopicId)>, Malformed> {
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
    Ok(messages)
}
