//! OffsetFetch (9): how far a group has consumed.

use crate::message::{request, wire};

request!(OffsetFetchRequest => OffsetFetchResponse, "OffsetFetch", 9, 1..=10, 6);

wire! {
    flexible 6;

    /// What the client sends.
    struct OffsetFetchRequest {
        group_id: String => 0..=7;
        topics: Option<Vec<OffsetFetchRequestTopic>> => 0..=7, null 2..=7;
        groups: Vec<OffsetFetchRequestGroup> => 8..;
        require_stable: bool => 7..;
    }

    /// An element of [`OffsetFetchRequest`]'s `topics`.
    struct OffsetFetchRequestTopic {
        name: String => 0..=7;
        partition_indexes: Vec<i32> => 0..=7;
    }

    /// An element of [`OffsetFetchRequest`]'s `groups`.
    struct OffsetFetchRequestGroup {
        group_id: String => 8..;
        member_id: Option<String> => 9.., null 9..;
        member_epoch: i32 => 9.., or -1;
        topics: Option<Vec<OffsetFetchRequestTopics>> => 8.., null 8..;
    }

    /// An element of [`OffsetFetchRequestGroup`]'s `topics`.
    struct OffsetFetchRequestTopics {
        name: String => 8..=9;
        topic_id: [u8; 16] => 10..;
        partition_indexes: Vec<i32> => 8..;
    }

    /// What the broker answers.
    struct OffsetFetchResponse {
        throttle_time_ms: i32 => 3..;
        topics: Vec<OffsetFetchResponseTopic> => 0..=7;
        error_code: i16 => 2..=7;
        groups: Vec<OffsetFetchResponseGroup> => 8..;
    }

    /// An element of [`OffsetFetchResponse`]'s `topics`.
    struct OffsetFetchResponseTopic {
        name: String => 0..=7;
        partitions: Vec<OffsetFetchResponsePartition> => 0..=7;
    }

    /// An element of [`OffsetFetchResponseTopic`]'s `partitions`.
    struct OffsetFetchResponsePartition {
        partition_index: i32 => 0..=7;
        committed_offset: i64 => 0..=7;
        committed_leader_epoch: i32 => 5..=7, or -1;
        metadata: Option<String> => 0..=7, null 0..=7;
        error_code: i16 => 0..=7;
    }

    /// An element of [`OffsetFetchResponse`]'s `groups`.
    struct OffsetFetchResponseGroup {
        group_id: String => 8..;
        topics: Vec<OffsetFetchResponseTopics> => 8..;
        error_code: i16 => 8..;
    }

    /// An element of [`OffsetFetchResponseGroup`]'s `topics`.
    struct OffsetFetchResponseTopics {
        name: String => 8..=9;
        topic_id: [u8; 16] => 10..;
        partitions: Vec<OffsetFetchResponsePartitions> => 8..;
    }

    /// An element of [`OffsetFetchResponseTopics`]'s `partitions`.
    struct OffsetFetchResponsePartitions {
        partition_index: i32 => 8..;
        committed_offset: i64 => 8..;
        committed_leader_epoch: i32 => 8.., or -1;
        metadata: Option<String> => 8.., null 8..;
        error_code: i16 => 8..;
    }
}
