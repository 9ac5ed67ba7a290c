//! The stored form of groups and of changes to their progress, in the journal and the checkpoint.
//!
//! ```text
//! group      id u32 · topic u32 · retry topic u32 · dead topic u32 · name · flags u8 · attempts u16 ·
//!            lease u64 · retry policy · push
//! flags      bit 0 ordered, bit 1 paused, bit 2 has a number of attempts, bit 3 has a push
//! policy     0 · count · wait u64 …  or  1 · first u64 · max u64 · factor u32 · jitter u8
//! push       url · secret (length + 1, or 0 for none) · concurrency u16 · timeout u64
//! source     group u32 · topic u32 · partition u16
//! settle     source · count · (offset, sequence) as steps from the one before, zig-zag varints
//! note       source · offset u64 · sequence u64 · failed u16 · not before u64 · first error · last error
//! seek       source · offset u64 · by u8 (0 commit, 1 reset, 2 commit with what was said, 3 forget) ·
//!            for 2: committed
//! committed  offset u64 · leader epoch u32 (plus 1, or 0 for none) · text
//! ```

use std::sync::Arc;

use punctual_model::group::{
    Committed, Exponential, Group, GroupChange, GroupId, GroupName, GroupSettings, Mark, Push,
    RetryPolicy, SeekBy, Source,
};
use punctual_model::limits::LADDER_RUNGS_MAX;
use punctual_model::{Partition, Sequence, Span, TopicId};

use crate::codec::{self, Malformed};
use crate::groups::progress::{decode_committed, decode_note, encode_committed, encode_note};

const ORDERED: u8 = 1;
const PAUSED: u8 = 2;
const HAS_ATTEMPTS: u8 = 4;
const HAS_PUSH: u8 = 8;
const LADDER: u8 = 0;
const EXPONENTIAL: u8 = 1;
const BY_COMMIT: u8 = 0;
const BY_RESET: u8 = 1;
const BY_COMMIT_SAID: u8 = 2;
const FORGET: u8 = 3;

/// Bytes of a source and of whatever else comes before the messages of a change.
pub(crate) const CHANGE_FRONT: usize = 32;

/// Appends the stored form of a group.
pub(crate) fn encode_group(out: &mut Vec<u8>, group: &Group) {
    for number in [group.id.0, group.topic.get(), group.retry.get(), group.dead.get()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    codec::put_bytes(out, group.name.as_str().as_bytes());
    let settings = &group.settings;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(settings.ordered, ORDERED)
            | flag(settings.paused, PAUSED)
            | flag(settings.attempts_max.is_some(), HAS_ATTEMPTS)
            | flag(settings.push.is_some(), HAS_PUSH),
    );
    out.extend_from_slice(&settings.attempts_max.unwrap_or(0).to_le_bytes());
    put_span(out, settings.lease);
    match &settings.retry {
        RetryPolicy::Ladder(rungs) => {
            out.push(LADDER);
            codec::put_varint(out, rungs.len() as u64);
            for rung in rungs.iter() {
                put_span(out, *rung);
            }
        }
        RetryPolicy::Exponential(exponential) => {
            out.push(EXPONENTIAL);
            put_span(out, exponential.first);
            put_span(out, exponential.max);
            out.extend_from_slice(&exponential.factor_percent.to_le_bytes());
            out.push(exponential.jitter_percent);
        }
    }
    if let Some(push) = &settings.push {
        codec::put_bytes(out, push.url.as_bytes());
        codec::put_optional_text(out, push.secret.as_deref());
        out.extend_from_slice(&push.concurrency.to_le_bytes());
        put_span(out, push.timeout);
    }
}

/// Reads what [`encode_group`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_group(rest: &mut &[u8]) -> Result<Group, Malformed> {
    let id = GroupId(codec::get_u32(rest)?);
    let topic = get_topic(rest)?;
    let retry = get_topic(rest)?;
    let dead = get_topic(rest)?;
    let name = GroupName::new(codec::get_text(rest)?).map_err(|_e| Malformed)?;
    let flags = codec::get_u8(rest)?;
    if flags & !(ORDERED | PAUSED | HAS_ATTEMPTS | HAS_PUSH) != 0 {
        return Err(Malformed);
    }
    let attempts = codec::get_u16(rest)?;
    let lease = get_span(rest)?;
    let policy = decode_policy(rest)?;
    let push = if flags & HAS_PUSH == 0 { None } else { Some(decode_push(rest)?) };
    let settings = GroupSettings {
        ordered: flags & ORDERED != 0,
        retry: policy,
        attempts_max: (flags & HAS_ATTEMPTS != 0).then_some(attempts),
        lease,
        paused: flags & PAUSED != 0,
        push,
    };
    Ok(Group { id, topic, name, retry, dead, settings })
}

fn decode_policy(rest: &mut &[u8]) -> Result<RetryPolicy, Malformed> {
    match codec::get_u8(rest)? {
        LADDER => {
            let count = codec::get_length(rest)?;
            if count > LADDER_RUNGS_MAX {
                return Err(Malformed);
            }
            let rungs: Result<Vec<Span>, Malformed> = (0..count).map(|_| get_span(rest)).collect();
            Ok(RetryPolicy::Ladder(rungs?.into()))
        }
        EXPONENTIAL => Ok(RetryPolicy::Exponential(Exponential {
            first: get_span(rest)?,
            max: get_span(rest)?,
            factor_percent: codec::get_u32(rest)?,
            jitter_percent: codec::get_u8(rest)?,
        })),
        _ => Err(Malformed),
    }
}

fn decode_push(rest: &mut &[u8]) -> Result<Push, Malformed> {
    let url: Arc<str> = codec::get_text(rest)?.into();
    let secret = codec::get_optional_text(rest)?.map(Into::into);
    let concurrency = codec::get_u16(rest)?;
    let timeout = get_span(rest)?;
    Ok(Push { url, secret, concurrency, timeout })
}

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

fn put_span(out: &mut Vec<u8>, span: Span) {
    out.extend_from_slice(&span.as_millis().to_le_bytes());
}

fn get_span(rest: &mut &[u8]) -> Result<Span, Malformed> {
    codec::get_u64(rest).map(Span::from_millis)
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

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        prop_oneof![
            proptest::collection::vec(0u64..1 << 40, 0..20).prop_map(|waits| {
                RetryPolicy::Ladder(waits.into_iter().map(Span::from_millis).collect())
            }),
            (0u64..1 << 40, 0u64..1 << 40, any::<u32>(), 0u8..=100).prop_map(
                |(first, max, factor_percent, jitter_percent)| {
                    RetryPolicy::Exponential(Exponential {
                        first: Span::from_millis(first),
                        max: Span::from_millis(max),
                        factor_percent,
                        jitter_percent,
                    })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn a_group_survives(
            policy in any_policy(),
            attempts_max in proptest::option::of(any::<u16>()),
            flags in any::<[bool; 2]>(),
            push in proptest::option::of((".{1,40}", proptest::option::of(".{0,20}"))),
        ) {
            let push = push.map(|(url, secret)| Push {
                url: url.into(),
                secret: secret.map(Into::into),
                concurrency: 5,
                timeout: Span::from_secs(3),
            });
            let [ordered, paused] = flags;
            let lease = Span::from_secs(60);
            let settings =
                GroupSettings { ordered, retry: policy, attempts_max, lease, paused, push };
            let topic = |n| TopicId::new(n).unwrap();
            let name = GroupName::new("billing").unwrap();
            let group =
                Group { id: GroupId(1), topic: topic(2), name, retry: topic(3), dead: topic(4), settings };
            let mut bytes = Vec::new();
            encode_group(&mut bytes, &group);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(decode_group(&mut rest).unwrap(), group);
            prop_assert!(rest.is_empty());
        }

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
            let _group = decode_group(&mut bytes.as_slice());
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
