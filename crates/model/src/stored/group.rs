//! The stored form of groups.
//!
//! ```text
//! group      id u32 · topic u32 · retry topic u32 · dead topic u32 · name · flags u8 · attempts u16 ·
//!            lease u64 · retry policy · push
//! flags      bit 0 ordered, bit 1 paused, bit 2 has a number of attempts, bit 3 has a push
//! policy     0 · count · wait u64 …  or  1 · first u64 · max u64 · factor u32 · jitter u8
//! push       url · secret (length + 1, or 0 for none) · concurrency u16 · timeout u64
//! ```

use std::sync::Arc;

use crate::group::{Exponential, Group, GroupId, GroupName, GroupSettings, Push, RetryPolicy};
use crate::limits::LADDER_RUNGS_MAX;
use crate::stored::codec::{self, Malformed};
use crate::time::Span;
use crate::topic::TopicId;

const ORDERED: u8 = 1;
const PAUSED: u8 = 2;
const HAS_ATTEMPTS: u8 = 4;
const HAS_PUSH: u8 = 8;
const LADDER: u8 = 0;
const EXPONENTIAL: u8 = 1;

/// Appends the stored form of a group.
pub fn encode_group(out: &mut Vec<u8>, group: &Group) {
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
pub fn decode_group(rest: &mut &[u8]) -> Result<Group, Malformed> {
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

    use super::*;

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
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _group = decode_group(&mut bytes.as_slice());
        }
    }
}
