//! OffsetForLeaderEpoch (23): where the log of a leader epoch ends.

use crate::message::{request, wire};

request!(
    OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse,
    "OffsetForLeaderEpoch", 23, 2..=4, 4
);

wire! {
    flexible 4;

    /// What the client sends.
    struct OffsetForLeaderEpochRequest {
        replica_id: i32 => 3.., or -2;
        topics: Vec<OffsetForLeaderTopic> => 0..;
    }

    /// An element of [`OffsetForLeaderEpochRequest`]'s `topics`.
    struct OffsetForLeaderTopic {
        topic: String => 0..;
        partitions: Vec<OffsetForLeaderPartition> => 0..;
    }

    /// An element of [`OffsetForLeaderTopic`]'s `partitions`.
    struct OffsetForLeaderPartition {
        partition: i32 => 0..;
        current_leader_epoch: i32 => 0.., or -1;
        leader_epoch: i32 => 0..;
    }

    /// What the broker answers.
    struct OffsetForLeaderEpochResponse {
        throttle_time_ms: i32 => 0..;
        topics: Vec<OffsetForLeaderTopicResult> => 0..;
    }

    /// An element of [`OffsetForLeaderEpochResponse`]'s `topics`.
    struct OffsetForLeaderTopicResult {
        topic: String => 0..;
        partitions: Vec<EpochEndOffset> => 0..;
    }

    /// An element of [`OffsetForLeaderTopicResult`]'s `partitions`.
    struct EpochEndOffset {
        error_code: i16 => 0..;
        partition: i32 => 0..;
        leader_epoch: i32 => 0.., or -1;
        end_offset: i64 => 0.., or -1;
    }
}
