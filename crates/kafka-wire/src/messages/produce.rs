//! Produce (0): record batches for partitions.

use bytes::Bytes;

use crate::message::{request, wire};

request!(ProduceRequest => ProduceResponse, "Produce", 0, 3..=13, 9);

wire! {
    flexible 9;

    /// What the client sends.
    struct ProduceRequest {
        transactional_id: Option<String> => 0.., null 0..;
        acks: i16 => 0..;
        timeout_ms: i32 => 0..;
        topic_data: Vec<TopicProduceData> => 0..;
    }

    /// An element of [`ProduceRequest`]'s `topic_data`.
    struct TopicProduceData {
        name: String => 0..=12;
        topic_id: [u8; 16] => 13..;
        partition_data: Vec<PartitionProduceData> => 0..;
    }

    /// An element of [`TopicProduceData`]'s `partition_data`.
    struct PartitionProduceData {
        index: i32 => 0..;
        records: Option<Bytes> => 0.., null 0..;
    }

    /// What the broker answers.
    struct ProduceResponse {
        responses: Vec<TopicProduceResponse> => 0..;
        throttle_time_ms: i32 => 0..;
        node_endpoints: Vec<NodeEndpoint> => 10.., tag 0;
    }

    /// An element of [`ProduceResponse`]'s `responses`.
    struct TopicProduceResponse {
        name: String => 0..=12;
        topic_id: [u8; 16] => 13..;
        partition_responses: Vec<PartitionProduceResponse> => 0..;
    }

    /// An element of [`TopicProduceResponse`]'s `partition_responses`.
    struct PartitionProduceResponse {
        index: i32 => 0..;
        error_code: i16 => 0..;
        base_offset: i64 => 0..;
        log_append_time_ms: i64 => 0.., or -1;
        log_start_offset: i64 => 5.., or -1;
        record_errors: Vec<BatchIndexAndErrorMessage> => 8..;
        error_message: Option<String> => 8.., null 8..;
        current_leader: LeaderIdAndEpoch => 10.., tag 0;
    }

    /// An element of [`PartitionProduceResponse`]'s `record_errors`.
    struct BatchIndexAndErrorMessage {
        batch_index: i32 => 8..;
        batch_index_error_message: Option<String> => 8.., null 8..;
    }

    /// The `current_leader` of a [`PartitionProduceResponse`].
    struct LeaderIdAndEpoch {
        leader_id: i32 => 10.., or -1;
        leader_epoch: i32 => 10.., or -1;
    }

    /// An element of [`ProduceResponse`]'s `node_endpoints`.
    struct NodeEndpoint {
        node_id: i32 => 10..;
        host: String => 10..;
        port: i32 => 10..;
        rack: Option<String> => 10.., null 10..;
    }
}
