//! ListOffsets (2): the offset that belongs to a time, and the first and last ones.

use crate::message::{request, wire};

request!(ListOffsetsRequest => ListOffsetsResponse, "ListOffsets", 2, 1..=11, 6);

wire! {
    flexible 6;

    /// What the client sends.
    struct ListOffsetsRequest {
        replica_id: i32 => 0..;
        isolation_level: i8 => 2..;
        topics: Vec<ListOffsetsTopic> => 0..;
        timeout_ms: i32 => 10..;
    }

    /// An element of [`ListOffsetsRequest`]'s `topics`.
    struct ListOffsetsTopic {
        name: String => 0..;
        partitions: Vec<ListOffsetsPartition> => 0..;
    }

    /// An element of [`ListOffsetsTopic`]'s `partitions`.
    struct ListOffsetsPartition {
        partition_index: i32 => 0..;
        current_leader_epoch: i32 => 4.., or -1;
        timestamp: i64 => 0..;
    }

    /// What the broker answers.
    struct ListOffsetsResponse {
        throttle_time_ms: i32 => 2..;
        topics: Vec<ListOffsetsTopicResponse> => 0..;
    }

    /// An element of [`ListOffsetsResponse`]'s `topics`.
    struct ListOffsetsTopicResponse {
        name: String => 0..;
        partitions: Vec<ListOffsetsPartitionResponse> => 0..;
    }

    /// An element of [`ListOffsetsTopicResponse`]'s `partitions`.
    struct ListOffsetsPartitionResponse {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
        timestamp: i64 => 0.., or -1;
        offset: i64 => 0.., or -1;
        leader_epoch: i32 => 4.., or -1;
    }
}
