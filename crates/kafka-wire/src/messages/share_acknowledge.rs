//! ShareAcknowledge (79): records acquired before are accepted, released or rejected.

use crate::message::{request, wire};

request!(ShareAcknowledgeRequest => ShareAcknowledgeResponse, "ShareAcknowledge", 79, 1..=2, 0);

wire! {
    flexible 0;

    /// What the client sends.
    struct ShareAcknowledgeRequest {
        group_id: Option<String> => 0.., null 0..;
        member_id: Option<String> => 0.., null 0..;
        share_session_epoch: i32 => 0..;
        is_renew_ack: bool => 2..;
        topics: Vec<AcknowledgeTopic> => 0..;
    }

    /// An element of [`ShareAcknowledgeRequest`]'s `topics`.
    struct AcknowledgeTopic {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<AcknowledgePartition> => 0..;
    }

    /// An element of [`AcknowledgeTopic`]'s `partitions`.
    struct AcknowledgePartition {
        partition_index: i32 => 0..;
        acknowledgement_batches: Vec<AcknowledgementBatch> => 0..;
    }

    /// An element of [`AcknowledgePartition`]'s `acknowledgement_batches`.
    struct AcknowledgementBatch {
        first_offset: i64 => 0..;
        last_offset: i64 => 0..;
        acknowledge_types: Vec<i8> => 0..;
    }

    /// What the broker answers.
    struct ShareAcknowledgeResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        acquisition_lock_timeout_ms: i32 => 2..;
        responses: Vec<ShareAcknowledgeTopicResponse> => 0..;
        node_endpoints: Vec<NodeEndpoint> => 0..;
    }

    /// An element of [`ShareAcknowledgeResponse`]'s `responses`.
    struct ShareAcknowledgeTopicResponse {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<PartitionData> => 0..;
    }

    /// An element of [`ShareAcknowledgeTopicResponse`]'s `partitions`.
    struct PartitionData {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        current_leader: LeaderIdAndEpoch => 0..;
    }

    /// The `current_leader` of a [`PartitionData`].
    struct LeaderIdAndEpoch {
        leader_id: i32 => 0..;
        leader_epoch: i32 => 0..;
    }

    /// An element of [`ShareAcknowledgeResponse`]'s `node_endpoints`.
    struct NodeEndpoint {
        node_id: i32 => 0..;
        host: String => 0..;
        port: i32 => 0..;
        rack: Option<String> => 0.., null 0..;
    }
}
