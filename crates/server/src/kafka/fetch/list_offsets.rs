//! ListOffsets: where a log starts and ends, and from where on its records are of a time.
//!
//! OffsetForLeaderEpoch: where the log of an epoch ends. There is one broker, and so one epoch.

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse,
};
use punctual_kafka_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use punctual_model::ports::{Records, Stamped, Topic, TopicError};
use punctual_model::{Partition, TopicId};

use crate::kafka::call::Call;
use crate::kafka::fetch::place;

/// The one epoch of the one leader.
const LEADER_EPOCH: i32 = 0;
/// What stands for no offset, no time and no epoch.
const NOTHING: i32 = -1;

/// What a time of the request means where it is not one.
mod ask {
    /// Where the next record goes.
    pub(super) const END: i64 = -1;
    /// The oldest record.
    pub(super) const START: i64 = -2;
    /// The record with the largest timestamp.
    pub(super) const LATEST: i64 = -3;
    /// The oldest record on this broker, not counting what was moved elsewhere: nothing ever is.
    pub(super) const LOCAL_START: i64 = -4;
    /// The last record that was moved elsewhere.
    pub(super) const LAST_MOVED: i64 = -5;
    /// The first record that is to be moved elsewhere.
    pub(super) const FIRST_TO_MOVE: i64 = -6;

    /// The first version that knows it; none knows any other below zero.
    pub(super) const fn known_since(time: i64) -> Option<i16> {
        match time {
            END | START | 0.. => Some(1),
            LATEST => Some(7),
            LOCAL_START => Some(8),
            LAST_MOVED => Some(9),
            FIRST_TO_MOVE => Some(11),
            _ => None,
        }
    }
}

/// Answers where logs start, end, and reach a time.
pub(crate) async fn list_offsets(call: &Call, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let work = call.clone();
    // A time is looked up in the index, and that may lie on the disk.
    let answered = call.shared.tasks.blocking(move || {
        request.topics.into_iter().map(|topic| offsets_of(&work, topic)).collect()
    });
    let topics: Vec<_> = answered.await.unwrap_or_default();
    ListOffsetsResponse { topics, ..ListOffsetsResponse::default() }
}

fn offsets_of(call: &Call, asked: ListOffsetsTopic) -> ListOffsetsTopicResponse {
    let topic = place::named(call, &asked.name);
    let one = |asked: ListOffsetsPartition| {
        let index = asked.partition_index;
        let found = topic.as_deref().map_err(|code| *code).and_then(|topic: &Topic| {
            let partition = place::partition(index)?;
            if ask::known_since(asked.timestamp).is_none_or(|since| call.version < since) {
                return Err(ErrorCode::UNSUPPORTED_VERSION);
            }
            let records = place::records(call)?;
            let found = find(call, &**records, (topic.id, partition), asked.timestamp);
            found.map_err(|error| place::refusal(&error))
        });
        answer(index, found)
    };
    let partitions = asked.partitions.into_iter().map(one).collect();
    ListOffsetsTopicResponse { name: asked.name, partitions }
}

/// An offset, and the time of the record there if a record was asked for.
type Found = Option<(u64, Option<i64>)>;

fn find(
    call: &Call,
    records: &dyn Records,
    (topic, partition): (TopicId, Partition),
    time: i64,
) -> Result<Found, TopicError> {
    let bounds = call.shared.broker.topics().bounds(topic, partition)?;
    let stamped = |found: Stamped| (found.offset, Some(found.millis));
    match time {
        ask::END => Ok(Some((bounds.end, None))),
        ask::START | ask::LOCAL_START => Ok(Some((bounds.start, None))),
        ask::LATEST => Ok(records.latest(topic, partition)?.map(stamped)),
        ask::LAST_MOVED | ask::FIRST_TO_MOVE => Ok(None),
        time => Ok(records.first_since(topic, partition, time)?.map(stamped)),
    }
}

fn answer(index: i32, found: Result<Found, ErrorCode>) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse {
        partition_index: index,
        error_code: ErrorCode::NONE.code(),
        timestamp: NOTHING.into(),
        offset: NOTHING.into(),
        leader_epoch: NOTHING,
    };
    match found {
        Err(code) => ListOffsetsPartitionResponse { error_code: code.code(), ..nothing },
        Ok(None) => nothing,
        Ok(Some((offset, millis))) => ListOffsetsPartitionResponse {
            timestamp: millis.unwrap_or(NOTHING.into()),
            offset: wire(offset),
            leader_epoch: LEADER_EPOCH,
            ..nothing
        },
    }
}

/// Answers where epochs end.
pub(crate) async fn offset_for_leader_epoch(
    call: &Call,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|asked| {
        let topic = place::named(call, &asked.topic);
        let one = |asked: OffsetForLeaderPartition| {
            let end = topic.as_deref().map_err(|code| *code).and_then(|topic: &Topic| {
                let partition = place::partition(asked.partition)?;
                let bounds = call.shared.broker.topics().bounds(topic.id, partition);
                bounds.map(|bounds| bounds.end).map_err(|error| place::refusal(&error))
            });
            epoch_end(&asked, end)
        };
        let partitions = asked.partitions.into_iter().map(one).collect();
        OffsetForLeaderTopicResult { topic: asked.topic, partitions }
    });
    OffsetForLeaderEpochResponse {
        topics: topics.collect(),
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn epoch_end(asked: &OffsetForLeaderPartition, end: Result<u64, ErrorCode>) -> EpochEndOffset {
    let unknown = EpochEndOffset {
        error_code: ErrorCode::NONE.code(),
        partition: asked.partition,
        leader_epoch: NOTHING,
        end_offset: NOTHING.into(),
    };
    match end {
        Err(code) => EpochEndOffset { error_code: code.code(), ..unknown },
        Ok(_) if asked.leader_epoch != LEADER_EPOCH => unknown,
        Ok(end) => EpochEndOffset { leader_epoch: LEADER_EPOCH, end_offset: wire(end), ..unknown },
    }
}

/// An offset as clients have it.
fn wire(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_found_is_no_error() {
        let nothing = answer(3, Ok(None));
        assert_eq!((nothing.partition_index, nothing.error_code), (3, 0));
        assert_eq!((nothing.offset, nothing.timestamp, nothing.leader_epoch), (-1, -1, -1));
        let end = answer(3, Ok(Some((7, None))));
        assert_eq!((end.offset, end.timestamp, end.leader_epoch), (7, -1, 0));
        let found = answer(3, Ok(Some((7, Some(1234)))));
        assert_eq!((found.offset, found.timestamp), (7, 1234));
        let failed = answer(3, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        assert_eq!((failed.error_code, failed.offset), (3, -1));
    }

    #[test]
    fn later_versions_know_more_than_times() {
        assert_eq!([-1, -2, 0, i64::MAX].map(ask::known_since), [Some(1); 4]);
        assert_eq!([-3, -4, -5, -6].map(ask::known_since), [7, 8, 9, 11].map(Some));
        assert_eq!([-7, i64::MIN].map(ask::known_since), [None; 2]);
    }

    #[test]
    fn only_the_one_epoch_has_an_end() {
        let asked = |leader_epoch| OffsetForLeaderPartition {
            partition: 2,
            leader_epoch,
            ..OffsetForLeaderPartition::default()
        };
        let end = epoch_end(&asked(0), Ok(9));
        assert_eq!((end.partition, end.leader_epoch, end.end_offset), (2, 0, 9));
        for strange in [-1, 1, i32::MAX] {
            let end = epoch_end(&asked(strange), Ok(9));
            assert_eq!((end.error_code, end.leader_epoch, end.end_offset), (0, -1, -1));
        }
        assert_eq!(epoch_end(&asked(0), Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)).error_code, 29);
    }
}
