//! The stored form of topics and delay levels.
//!
//! ```text
//! topic      id u32 · partitions u16 · retention u64 · retention bytes u64 · name · kind u8 · partitions for keys u16 ·
//!            default ttl u64 · backlog messages u64 · backlog bytes u64 · overflow u8 · settings
//! settings   length u32 · (tag u8 · length u32 · value)…
//! levels     delay u64 …
//! ```
//!
//! Topics of format 1 end behind the name, those of format 2 behind the overflow.

mod settings;

use crate::levels::{DelayLevels, LEVELS};
use crate::limits::PARTITIONS_MAX;
use crate::ports::Topic;
use crate::stored::codec::{self, Malformed};
use crate::time::Span;
use crate::topic::{Backlog, Overflow, TopicId, TopicKind, TopicName, TopicSettings};

const FOREVER: u64 = u64::MAX;

/// The stored form of a topic, also used by the checkpoint.
pub fn encode_topic(out: &mut Vec<u8>, topic: &Topic) {
    let settings = &topic.settings;
    out.extend_from_slice(&topic.id.get().to_le_bytes());
    out.extend_from_slice(&settings.partitions.to_le_bytes());
    put_limit(out, settings.retention.map(Span::as_millis));
    put_limit(out, settings.retention_bytes);
    codec::put_bytes(out, topic.name.as_str().as_bytes());
    out.push(match topic.kind {
        TopicKind::Plain => 0,
        TopicKind::Retry => 1,
        TopicKind::Dead => 2,
    });
    out.extend_from_slice(&topic.key_partitions.to_le_bytes());
    put_limit(out, settings.default_ttl.map(Span::as_millis));
    put_limit(out, settings.max_backlog.messages);
    put_limit(out, settings.max_backlog.bytes);
    out.push(match settings.overflow {
        Overflow::Refuse => 0,
        Overflow::DropOldest => 1,
        Overflow::DeadLetterNewest => 2,
    });
    settings::encode(out, settings);
}

/// The stored form of delay levels, also used by the checkpoint.
pub fn encode_levels(out: &mut Vec<u8>, levels: &DelayLevels) {
    for delay in levels.delays() {
        out.extend_from_slice(&delay.as_millis().to_le_bytes());
    }
}

/// Reads what [`encode_levels`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_levels(rest: &mut &[u8]) -> Result<DelayLevels, Malformed> {
    let mut delays = [Span::default(); LEVELS];
    for delay in &mut delays {
        *delay = Span::from_millis(codec::get_u64(rest)?);
    }
    Ok(DelayLevels::new(delays))
}

/// Reads what [`encode_topic`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_topic(rest: &mut &[u8]) -> Result<Topic, Malformed> {
    let mut topic = decode_topic_2(rest)?;
    settings::decode(rest, &mut topic.settings)?;
    Ok(topic)
}

/// Reads a topic as format 2 had it.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_topic_2(rest: &mut &[u8]) -> Result<Topic, Malformed> {
    let mut topic = decode_old_topic(rest)?;
    topic.kind = match codec::get_u8(rest)? {
        0 => TopicKind::Plain,
        1 => TopicKind::Retry,
        2 => TopicKind::Dead,
        _ => return Err(Malformed),
    };
    topic.key_partitions = codec::get_u16(rest)?;
    if !(1..=topic.settings.partitions).contains(&topic.key_partitions) {
        return Err(Malformed);
    }
    topic.settings.default_ttl = get_limit(rest)?.map(Span::from_millis);
    topic.settings.max_backlog = Backlog { messages: get_limit(rest)?, bytes: get_limit(rest)? };
    topic.settings.overflow = match codec::get_u8(rest)? {
        0 => Overflow::Refuse,
        1 => Overflow::DropOldest,
        2 => Overflow::DeadLetterNewest,
        _ => return Err(Malformed),
    };
    Ok(topic)
}

/// Reads a topic as format 1 had it.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn decode_old_topic(rest: &mut &[u8]) -> Result<Topic, Malformed> {
    let id = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
    let partitions = codec::get_u16(rest)?;
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Malformed);
    }
    let retention = get_limit(rest)?.map(Span::from_millis);
    let retention_bytes = get_limit(rest)?;
    let name = TopicName::new(codec::get_text(rest)?).map_err(|_e| Malformed)?;
    let settings =
        TopicSettings { partitions, retention, retention_bytes, ..TopicSettings::default() };
    Ok(Topic { id, name, kind: TopicKind::Plain, key_partitions: partitions, settings })
}

fn put_limit(out: &mut Vec<u8>, limit: Option<u64>) {
    out.extend_from_slice(&limit.unwrap_or(FOREVER).to_le_bytes());
}

fn get_limit(rest: &mut &[u8]) -> Result<Option<u64>, Malformed> {
    codec::get_u64(rest).map(|limit| Some(limit).filter(|limit| *limit != FOREVER))
}
