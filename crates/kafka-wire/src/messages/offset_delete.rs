//! OffsetDelete (47): committed offsets of a group go.

use crate::message::{NEVER_FLEXIBLE, request, wire};

request!(OffsetDeleteRequest => OffsetDeleteResponse, "OffsetDelete", 47, 0..=0, NEVER_FLEXIBLE);

wire! {
    flexible NEVER_FLEXIBLE;

    /// What the client sends.
    struct OffsetDeleteRequest {
        group_id: String => 0..;
        topics: Vec<OffsetDeleteRequestTopic> => 0..;
    }

    /// An element of [`OffsetDeleteRequest`]'s `topics`.
    struct OffsetDeleteRequestTopic {
        name: String => 0..;
        partitions: Vec<OffsetDeleteRequestPartition> => 0..;
    }

    /// An element of [`OffsetDeleteRequestTopic`]'s `partitions`.
    struct OffsetDeleteRequestPartition {
        partition_index: i32 => 0..;
    }

    /// What the broker answers.
    struct OffsetDeleteResponse {
        error_code: i16 => 0..;
        throttle_time_ms: i32 => 0..;
        topics: Vec<OffsetDeleteResponseTopic> => 0..;
    }

    /// An element of [`OffsetDeleteResponse`]'s `topics`.
    struct OffsetDeleteResponseTopic {
        name: String => 0..;
        partitions: Vec<OffsetDeleteResponsePartition> => 0..;
    }

    /// An element of [`OffsetDeleteResponseTopic`]'s `partitions`.
    struct OffsetDeleteResponsePartition {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
    }
}
