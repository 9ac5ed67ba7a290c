//! OffsetCommit (8): a group has consumed up to here.

use crate::message::{request, wire};

request!(OffsetCommitRequest => OffsetCommitResponse, "OffsetCommit", 8, 2..=10, 8);

wire! {
    flexible 8;

    /// What the client sends.
    struct OffsetCommitRequest {
        group_id: String => 0..;
        generation_id_or_member_epoch: i32 => 0.., or -1;
        member_id: String => 0..;
        group_instance_id: Option<String> => 7.., null 7..;
        retention_time_ms: i64 => 0..=4, or -1;
        topics: Vec<OffsetCommitRequestTopic> => 0..;
    }

    /// An element of [`OffsetCommitRequest`]'s `topics`.
    struct OffsetCommitRequestTopic {
        name: String => 0..=9;
        topic_id: [u8; 16] => 10..;
        partitions: Vec<OffsetCommitRequestPartition> => 0..;
    }

    /// An element of [`OffsetCommitRequestTopic`]'s `partitions`.
    struct OffsetCommitRequestPartition {
        partition_index: i32 => 0..;
        committed_offset: i64 => 0..;
        committed_leader_epoch: i32 => 6.., or -1;
        committed_metadata: Option<String> => 0.., null 0..;
    }

    /// What the broker answers.
    struct OffsetCommitResponse {
        throttle_time_ms: i32 => 3..;
        topics: Vec<OffsetCommitResponseTopic> => 0..;
    }

    /// An element of [`OffsetCommitResponse`]'s `topics`.
    struct OffsetCommitResponseTopic {
        name: String => 0..=9;
        topic_id: [u8; 16] => 10..;
        partitions: Vec<OffsetCommitResponsePartition> => 0..;
    }

    /// An element of [`OffsetCommitResponseTopic`]'s `partitions`.
    struct OffsetCommitResponsePartition {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
    }
}
