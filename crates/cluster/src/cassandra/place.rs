//! Where things stand in Cassandra: which partition an entry is in, and numbers as its columns hold
//! them.
//!
//! Buckets grow with keys: of two keys of one lane the earlier one never stands in a later bucket,
//! whatever their slots. What is parked has one due time for all, so it is spread by the order of
//! acceptance instead. Nothing here talks to anybody.

use std::ops::RangeInclusive;

use punctual_model::{Key, Lane, MessageId, Partition, Sequence, Timestamp, TopicId};

use crate::store::{Failure, Slot};

/// How much time a partition of entries covers. At 500 entries a second and slot, a partition has
/// some 450,000 rows; more time for each would make messages that are all over share more of them.
pub(super) const BUCKET_MS: u64 = 900_000;

/// Buckets for which it is written down together that a topic has something in them: an hour.
const SPAN_BUCKETS: i64 = 4;

/// The first bucket of what is parked.
const PARKED: i64 = 1 << 32;

/// Parked buckets of one kind of parking: as many as there are upper halves of counters.
const PARKED_EACH: i64 = 1 << 24;

/// Bits of a sequence below those that tell the parked bucket: the slot, and 65,536 counters.
const PARKED_SHIFT: u32 = 32;

/// Partitions over which the counts of a topic are spread, so that the owners of many slots do not
/// all write to one.
pub(super) const COUNT_SHARDS: i8 = 8;

const _: () = assert!(
    Timestamp::MAX.as_millis() / BUCKET_MS < PARKED.cast_unsigned(),
    "what is due in year 9999 must stand before what is parked"
);

/// A partition of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// The slot, as a column.
    pub(super) slot: i32,
    /// The lane, as a column.
    pub(super) lane: i8,
    /// The bucket, as a column.
    pub(super) bucket: i64,
}

impl Place {
    /// Where an entry of that key stands.
    pub(super) fn of(slot: Slot, key: Key) -> Self {
        let lane = lane(key.sequence.lane());
        Self { slot: i32::from(slot.0), lane, bucket: bucket(key) }
    }
}

/// The bucket of a key.
pub(super) fn bucket(key: Key) -> i64 {
    if !key.due.is_parked() {
        return small(key.due.as_millis() / BUCKET_MS);
    }
    let kind = match key.due {
        Timestamp::PREPARED => 0,
        Timestamp::PAUSED => 2,
        _ => 1,
    };
    let counter = (key.sequence.get() - key.sequence.lane().first().get()) >> PARKED_SHIFT;
    PARKED + kind * PARKED_EACH + small(counter)
}

/// Whether a bucket is of what is parked.
pub(super) fn is_parked(bucket: i64) -> bool {
    bucket >= PARKED
}

/// The span of a bucket. Spans grow with buckets; what is parked has one for each.
pub(super) fn span(bucket: i64) -> i64 {
    if is_parked(bucket) { bucket } else { bucket / SPAN_BUCKETS }
}

/// The buckets of a span.
pub(super) fn buckets_of(span: i64) -> RangeInclusive<i64> {
    if is_parked(span) {
        return span..=span;
    }
    let first = span.saturating_mul(SPAN_BUCKETS);
    first..=first.saturating_add(SPAN_BUCKETS - 1)
}

/// When the last entry of a bucket may be due, and one millisecond more; the end of time for what is
/// parked.
pub(super) fn bucket_end(bucket: i64) -> Timestamp {
    if is_parked(bucket) {
        return Timestamp::MAX;
    }
    Timestamp::from_millis_saturating(
        u64::try_from(bucket + 1).unwrap_or_default().saturating_mul(BUCKET_MS),
    )
}

/// The first key that may stand in a bucket.
pub(super) fn bucket_start(bucket: i64, lane: Lane) -> Key {
    if is_parked(bucket) {
        let offset = bucket - PARKED;
        let due = match offset / PARKED_EACH {
            0 => Timestamp::PREPARED,
            1 => Timestamp::from_millis_saturating(Timestamp::PREPARED.as_millis() + 1),
            _ => Timestamp::PAUSED,
        };
        let counter = u64::try_from(offset % PARKED_EACH).unwrap_or_default() << PARKED_SHIFT;
        let number = lane.first().get() | counter;
        return Key { due, sequence: Sequence::new(number).unwrap_or(Sequence::MAX) };
    }
    let millis = u64::try_from(bucket).unwrap_or_default().saturating_mul(BUCKET_MS);
    Key { due: Timestamp::from_millis_saturating(millis), sequence: lane.first() }
}

/// A lane as a column.
pub(super) fn lane(lane: Lane) -> i8 {
    match lane {
        Lane::Message => 0,
        Lane::Retry => 1,
    }
}

/// A number as a column; all of ours are far below the sign.
pub(super) fn small(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number from a column.
pub(super) fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or_default()
}

/// A due time as a column.
pub(super) fn millis(time: Timestamp) -> i64 {
    small(time.as_millis())
}

/// A time from a column.
pub(super) fn time(column: i64) -> Result<Timestamp, Failure> {
    u64::try_from(column)
        .ok()
        .and_then(Timestamp::from_millis)
        .ok_or_else(|| Failure::Damaged("a time past year 9999".into()))
}

/// A sequence as a column.
pub(super) fn sequence(sequence: Sequence) -> i64 {
    small(sequence.get())
}

/// A key from its columns.
pub(super) fn key(due: i64, sequence: i64) -> Result<Key, Failure> {
    let sequence = u64::try_from(sequence).ok().and_then(Sequence::new);
    let sequence = sequence.ok_or_else(|| Failure::Damaged("a sequence of over 56 bits".into()))?;
    Ok(Key { due: time(due)?, sequence })
}

/// A topic as a column.
pub(super) fn topic(topic: TopicId) -> i32 {
    i32::try_from(topic.get()).unwrap_or(i32::MAX)
}

/// A topic from a column.
pub(super) fn topic_id(column: i32) -> Result<TopicId, Failure> {
    u32::try_from(column)
        .ok()
        .and_then(TopicId::new)
        .ok_or_else(|| Failure::Damaged("a topic of over 24 bits".into()))
}

/// A partition as a column.
pub(super) fn partition(partition: Partition) -> i16 {
    i16::try_from(partition.get()).unwrap_or(i16::MAX)
}

/// An id from its columns.
pub(super) fn id(key: Key, topic: i32, partition: i16) -> Result<MessageId, Failure> {
    let partition = u16::try_from(partition).ok().and_then(Partition::new);
    let partition = partition.ok_or_else(|| Failure::Damaged("not a partition".into()))?;
    Ok(MessageId { key, topic: topic_id(topic)?, partition })
}

/// The share of the counts that a slot writes to.
pub(super) fn shard(slot: Slot) -> i8 {
    i8::try_from(slot.0 % u16::from(COUNT_SHARDS.unsigned_abs())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_key() -> impl Strategy<Value = Key> {
        let due = prop_oneof![
            0..=Timestamp::MAX.as_millis(),
            Just(Timestamp::PAUSED.as_millis()),
            Just(Timestamp::PREPARED.as_millis()),
            Timestamp::PREPARED.as_millis()..=Timestamp::MAX.as_millis(),
        ];
        (due, any::<u16>(), 0..1u64 << 38).prop_map(|(due, slot, counter)| Key {
            due: Timestamp::from_millis(due).unwrap(),
            sequence: Slot(slot).sequence(Lane::Retry, counter),
        })
    }

    proptest! {
        #[test]
        fn buckets_grow_with_keys(a in any_key(), b in any_key()) {
            let between = |key: Key| {
                key.due > Timestamp::PREPARED && key.due < Timestamp::PAUSED
            };
            // Nothing is ever put there: it is neither of the two places for what is parked.
            prop_assume!(!between(a) && !between(b));
            if a <= b {
                prop_assert!(bucket(a) <= bucket(b));
                prop_assert!(span(bucket(a)) <= span(bucket(b)));
            }
        }

        #[test]
        fn a_key_stands_within_its_bucket(key in any_key()) {
            let bucket = bucket(key);
            prop_assert!(bucket_start(bucket, Lane::Retry) <= key);
            prop_assert!(key.due < bucket_end(bucket) || is_parked(bucket));
            prop_assert_eq!(is_parked(bucket), key.due.is_parked());
            prop_assert!(buckets_of(span(bucket)).contains(&bucket));
        }
    }
}
