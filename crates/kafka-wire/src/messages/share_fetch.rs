//! ShareFetch (78): records acquired for a member of a share group, and acknowledgements.

use crate::message::{Records, request, wire};

request!(ShareFetchRequest => ShareFetchResponse, "ShareFetch", 78, 1..=2, 0);

wire! {
    flexible 0;

    /// What the client sends.
    struct ShareFetchRequest {
        group_id: Option<String> => 0.., null 0..;
        member_id: Option<String> => 0.., null 0..;
        share_session_epoch: i32 => 0..;
        max_wait_ms: i32 => 0..;
        min_bytes: i32 => 0..;
        max_bytes: i32 => 0.., or i32::MAX;
        max_records: i32 => 0..;
        batch_size: i32 => 0..;
        share_acquire_mode: i8 => 2..;
        is_renew_ack: bool => 2..;
        topics: Vec<FetchTopic> => 0..;
        forgotten_topics_data: Vec<ForgottenTopic> => 0..;
    }

    /// An element of [`ShareFetchRequest`]'s `topics`.
    struct FetchTopic {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<FetchPartition> => 0..;
    }

    /// An element of [`FetchTopic`]'s `partitions`.
    struct FetchPartition {
        partition_index: i32 => 0..;
        acknowledgement_batches: Vec<AcknowledgementBatch> => 0..;
    }

    /// An element of [`FetchPartition`]'s `acknowledgement_batches`.
    struct AcknowledgementBatch {
        first_offset: i64 => 0..;
        last_offset: i64 => 0..;
        acknowledge_types: Vec<i8> => 0..;
    }

    /// An element of [`ShareFetchRequest`]'s `forgotten_topics_data`.
    struct ForgottenTopic {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<i32> => 0..;
    }

    /// What the broker answers.
    struct ShareFetchResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        acquisition_lock_timeout_ms: i32 => 0..;
        responses: Vec<ShareFetchableTopicResponse> => 0..;
        node_endpoints: Vec<NodeEndpoint> => 0..;
    }

    /// An element of [`ShareFetchResponse`]'s `responses`.
    struct ShareFetchableTopicResponse {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<PartitionData> => 0..;
    }

    /// An element of [`ShareFetchableTopicResponse`]'s `partitions`.
    struct PartitionData {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        acknowledge_error_code: i16 => 0..;
        acknowledge_error_message: Option<String> => 0.., null 0..;
        current_leader: LeaderIdAndEpoch => 0..;
        records: Option<Records> => 0..;
        acquired_records: Vec<AcquiredRecords> => 0..;
    }

    /// The `current_leader` of a [`PartitionData`].
    struct LeaderIdAndEpoch {
        leader_id: i32 => 0..;
        leader_epoch: i32 => 0..;
    }

    /// An element of [`PartitionData`]'s `acquired_records`.
    struct AcquiredRecords {
        first_offset: i64 => 0..;
        last_offset: i64 => 0..;
        delivery_count: i16 => 0..;
    }

    /// An element of [`ShareFetchResponse`]'s `node_endpoints`.
    struct NodeEndpoint {
        node_id: i32 => 0..;
        host: String => 0..;
        port: i32 => 0..;
        rack: Option<String> => 0.., null 0..;
    }
}
