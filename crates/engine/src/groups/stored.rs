//! The stored form of changes to the progress of groups, in the journal and the checkpoint.
//!
//! ```text
//! source     group u32 · topic u32 · partition u16
//! settle     source · count · (offset, sequence) as steps from the one before, zig-zag varints
//! note       source · offset u64 · sequence u64 · failed u16 · not before u64 · first error · last error
//! seek       source · offset u64 · by u8 (0 commit, 1 reset, 2 commit with what was said, 3 forget) ·
//!            for 2: committed
//! committed  offset u64 · leader epoch u32 (plus 1, or 0 for none) · text
//! ```

use std::sync::Arc;

use punctual_model::group::{Committed, GroupChange, GroupId, Mark, SeekBy, Source};
use punctual_model::{Partition, Sequence, TopicId};

use crate::codec::{self, Malformed};
use crate::groups::progress::{decode_committed, decode_note, encode_committed, encode_note};

const BY_COMMIT: u8 = 0;
const BY_RESET: u8 = 1;
const BY_COMMIT_SAID: u8 = 2;
const FORGET: u8 = 3;

/// Bytes of a source and of whatever else comes before the messages of a change.
pub(crate) const CHANGE_FRONT: usize = 32;

/// Appends the stored form of a source.
pub(crate) fn put_source(out: &mut Vec<u8>, source: Source) {
    out.extend_from_slice(&source.group.0.to_le_bytes());
    out.extend_from_slice(&source.topic.get().to_le_bytes());
    out.extend_from_slice(&source.partition.get().to_le_bytes());
}

/// Reads what [`put_source`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn get_source(rest: &mut &[u8]) -> Result<Source, Malformed> {
    let group = GroupId(codec::get_u32(rest)?);
    let topic = get_topic(rest)?;
    let partition = Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?;
    Ok(Source { group, topic, partition })
}

/// Appends the content of a settle.
pub(crate) fn encode_settle(out: &mut Vec<u8>, source: Source, marks: &[Mark]) {
    put_source(out, source);
    codec::put_varint(out, marks.len() as u64);
    let (mut offset, mut sequence) = (0u64, 0u64);
    for mark in marks {
        put_step(out, offset, mark.offset);
        put_step(out, sequence, mark.sequence.get());
        (offset, sequence) = (mark.offset, mark.sequence.get());
    }
}

/// Reads what [`encode_settle`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_settle(rest: &mut &[u8]) -> Result<GroupChange, Malformed> {
    let source = get_source(rest)?;
    let count = codec::get_length(rest)?;
    let mut marks = Vec::with_capacity(count);
    let (mut offset, mut sequence) = (0u64, 0u64);
    for _ in 0..count {
        offset = get_step(rest, offset)?;
        sequence = get_step(rest, sequence)?;
        marks.push(Mark { offset, sequence: Sequence::new(sequence).ok_or(Malformed)? });
    }
    Ok(GroupChange::Settle(source, marks))
}

/// Appends the content of a note.
pub(crate) fn encode_note_change(
    out: &mut Vec<u8>,
    source: Source,
    mark: Mark,
    note: &punctual_model::group::Note,
) {
    put_source(out, source);
    out.extend_from_slice(&mark.offset.to_le_bytes());
    out.extend_from_slice(&mark.sequence.get().to_le_bytes());
    encode_note(out, note);
}

/// Reads what [`encode_note_change`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_note_change(rest: &mut &[u8]) -> Result<GroupChange, Malformed> {
    let source = get_source(rest)?;
    let offset = codec::get_u64(rest)?;
    let sequence = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
    Ok(GroupChange::Note(source, Mark { offset, sequence }, decode_note(rest)?))
}

/// Appends the content of a seek.
pub(crate) fn encode_seek(out: &mut Vec<u8>, source: Source, offset: u64, by: SeekBy) {
    put_source(out, source);
    out.extend_from_slice(&offset.to_le_bytes());
    out.push(match by {
        SeekBy::Commit => BY_COMMIT,
        SeekBy::Reset => BY_RESET,
    });
}

/// Appends the content of a commit.
pub(crate) fn encode_commit(out: &mut Vec<u8>, source: Source, cursor: u64, said: &Committed) {
    put_source(out, source);
    out.extend_from_slice(&cursor.to_le_bytes());
    out.push(BY_COMMIT_SAID);
    encode_committed(out, said);
}

/// Appends that a group was never in a source.
pub(crate) fn encode_forget(out: &mut Vec<u8>, source: Source) {
    put_source(out, source);
    out.extend_from_slice(&0u64.to_le_bytes());
    out.push(FORGET);
}

/// Reads what [`encode_seek`], [`encode_commit`] or [`encode_forget`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_seek(rest: &mut &[u8]) -> Result<GroupChange, Malformed> {
    let source = get_source(rest)?;
    let offset = codec::get_u64(rest)?;
    let by = match codec::get_u8(rest)? {
        BY_COMMIT => SeekBy::Commit,
        BY_RESET => SeekBy::Reset,
        BY_COMMIT_SAID => return Ok(GroupChange::Commit(source, offset, decode_committed(rest)?)),
        FORGET => return Ok(GroupChange::Forget(source)),
        _ => return Err(Malformed),
    };
    Ok(GroupChange::Seek(source, offset, by))
}

/// Bytes that a change takes at most.
pub(crate) fn change_size(change: &GroupChange) -> usize {
    // A step of 64 bits takes ten bytes.
    let content = match change {
        GroupChange::Settle(_, marks) => marks.len() * 20,
        GroupChange::Note(_, _, note) => {
            let text = |error: &Option<Arc<str>>| error.as_ref().map_or(0, |text| text.len());
            48 + text(&note.first_error) + text(&note.last_error)
        }
        GroupChange::Seek(..) | GroupChange::Forget(_) => 16,
        GroupChange::Commit(_, _, said) => 48 + said.text.len(),
    };
    CHANGE_FRONT + content
}

fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from).cast_signed();
    codec::put_varint(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
}

fn get_step(rest: &mut &[u8], from: u64) -> Result<u64, Malformed> {
    let raw = codec::get_varint(rest)?;
    let step = (raw >> 1).cast_signed() ^ -((raw & 1).cast_signed());
    Ok(from.wrapping_add(step.cast_unsigned()))
}

fn get_topic(rest: &mut &[u8]) -> Result<TopicId, Malformed> {
    TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_model::Timestamp;
    use punctual_model::group::Note;

    use super::*;

    fn source() -> Source {
        Source {
            group: GroupId(7),
            topic: TopicId::new(9).unwrap(),
            partition: Partition::new(3).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn changes_survive(marks in proptest::collection::vec((any::<u64>(), 0u64..1 << 56), 0..50)) {
            let mark = |(offset, sequence)| Mark { offset, sequence: Sequence::new(sequence).unwrap() };
            let marks: Vec<Mark> = marks.into_iter().map(mark).collect();
            let mut bytes = Vec::new();
            encode_settle(&mut bytes, source(), &marks);
            let change = GroupChange::Settle(source(), marks);
            prop_assert!(bytes.len() <= change_size(&change));
            prop_assert_eq!(decode_settle(&mut bytes.as_slice()).unwrap(), change);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _settle = decode_settle(&mut bytes.as_slice());
            let _note = decode_note_change(&mut bytes.as_slice());
            let _seek = decode_seek(&mut bytes.as_slice());
        }
    }

    #[test]
    fn a_note_and_a_seek_survive() {
        let mark = Mark { offset: 4, sequence: Sequence::MAX };
        let note = Note {
            failed: 3,
            not_before: Timestamp::from_millis(99).unwrap(),
            first_error: None,
            last_error: Some("last".into()),
        };
        let mut bytes = Vec::new();
        encode_note_change(&mut bytes, source(), mark, &note);
        let change = GroupChange::Note(source(), mark, note);
        assert!(bytes.len() <= change_size(&change));
        assert_eq!(decode_note_change(&mut bytes.as_slice()), Ok(change));
        for by in [SeekBy::Commit, SeekBy::Reset] {
            let mut bytes = Vec::new();
            encode_seek(&mut bytes, source(), 17, by);
            let change = GroupChange::Seek(source(), 17, by);
            assert_eq!(decode_seek(&mut bytes.as_slice()), Ok(change));
        }
    }

    #[test]
    fn a_commit_and_its_end_survive() {
        for leader_epoch in [None, Some(0), Some(i32::MAX.cast_unsigned())] {
            for text in ["", "what I did"] {
                let said = Committed { offset: u64::MAX, text: text.into(), leader_epoch };
                let mut bytes = Vec::new();
                encode_commit(&mut bytes, source(), 17, &said);
                let change = GroupChange::Commit(source(), 17, said);
                assert!(bytes.len() <= change_size(&change));
                assert_eq!(decode_seek(&mut bytes.as_slice()), Ok(change));
            }
        }
        let mut bytes = Vec::new();
        encode_forget(&mut bytes, source());
        assert_eq!(decode_seek(&mut bytes.as_slice()), Ok(GroupChange::Forget(source())));
    }
}
