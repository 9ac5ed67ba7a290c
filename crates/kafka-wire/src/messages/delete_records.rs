//! DeleteRecords (21): the records before an offset go.

use crate::message::{request, wire};

request!(DeleteRecordsRequest => DeleteRecordsResponse, "DeleteRecords", 21, 0..=2, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct DeleteRecordsRequest {
        topics: Vec<DeleteRecordsTopic> => 0..;
        timeout_ms: i32 => 0..;
    }

    /// An element of [`DeleteRecordsRequest`]'s `topics`.
    struct DeleteRecordsTopic {
        name: String => 0..;
        partitions: Vec<DeleteRecordsPartition> => 0..;
    }

    /// An element of [`DeleteRecordsTopic`]'s `partitions`.
    struct DeleteRecordsPartition {
        partition_index: i32 => 0..;
        offset: i64 => 0..;
    }

    /// What the broker answers.
    struct DeleteRecordsResponse {
        throttle_time_ms: i32 => 0..;
        topics: Vec<DeleteRecordsTopicResult> => 0..;
    }

    /// An element of [`DeleteRecordsResponse`]'s `topics`.
    struct DeleteRecordsTopicResult {
        name: String => 0..;
        partitions: Vec<DeleteRecordsPartitionResult> => 0..;
    }

    /// An element of [`DeleteRecordsTopicResult`]'s `partitions`.
    struct DeleteRecordsPartitionResult {
        partition_index: i32 => 0..;
        low_watermark: i64 => 0..;
        error_code: i16 => 0..;
    }
}
