//! Fetch (1): record batches of partitions from given offsets on.

use crate::message::{Records, request, wire};

request!(FetchRequest => FetchResponse, "Fetch", 1, 4..=18, 12);

wire! {
    flexible 12;

    /// What the client sends.
    struct FetchRequest {
        cluster_id: Option<String> => 12.., null 12.., tag 0;
        replica_id: i32 => 0..=14, or -1;
        replica_state: ReplicaState => 15.., tag 1;
        max_wait_ms: i32 => 0..;
        min_bytes: i32 => 0..;
        max_bytes: i32 => 0.., or i32::MAX;
        isolation_level: i8 => 0..;
        session_id: i32 => 7..;
        session_epoch: i32 => 7.., or -1;
        topics: Vec<FetchTopic> => 0..;
        forgotten_topics_data: Vec<ForgottenTopic> => 7..;
        rack_id: String => 11..;
    }

    /// The `replica_state` of a [`FetchRequest`].
    struct ReplicaState {
        replica_id: i32 => 15.., or -1;
        replica_epoch: i64 => 15.., or -1;
    }

    /// An element of [`FetchRequest`]'s `topics`.
    struct FetchTopic {
        topic: String => 0..=12;
        topic_id: [u8; 16] => 13..;
        partitions: Vec<FetchPartition> => 0..;
    }

    /// An element of [`FetchTopic`]'s `partitions`.
    struct FetchPartition {
        partition: i32 => 0..;
        current_leader_epoch: i32 => 9.., or -1;
        fetch_offset: i64 => 0..;
        last_fetched_epoch: i32 => 12.., or -1;
        log_start_offset: i64 => 5.., or -1;
        partition_max_bytes: i32 => 0..;
        replica_directory_id: [u8; 16] => 17.., tag 0;
        high_watermark: i64 => 18.., tag 1, or i64::MAX;
    }

    /// An element of [`FetchRequest`]'s `forgotten_topics_data`.
    struct ForgottenTopic {
        topic: String => 7..=12;
        topic_id: [u8; 16] => 13..;
        partitions: Vec<i32> => 7..;
    }

    /// What the broker answers.
    struct FetchResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 7..;
        session_id: i32 => 7..;
        responses: Vec<FetchableTopicResponse> => 0..;
        node_endpoints: Vec<NodeEndpoint> => 16.., tag 0;
    }

    /// An element of [`FetchResponse`]'s `responses`.
    struct FetchableTopicResponse {
        topic: String => 0..=12;
        topic_id: [u8; 16] => 13..;
        partitions: Vec<PartitionData> => 0..;
    }

    /// An element of [`FetchableTopicResponse`]'s `partitions`.
    struct PartitionData {
        partition_index: i32 => 0..;
        error_code: i16 => 0..;
        high_watermark: i64 => 0..;
        last_stable_offset: i64 => 0.., or -1;
        log_start_offset: i64 => 5.., or -1;
        diverging_epoch: EpochEndOffset => 12.., tag 0;
        current_leader: LeaderIdAndEpoch => 12.., tag 1;
        snapshot_id: SnapshotId => 12.., tag 2;
        aborted_transactions: Option<Vec<AbortedTransaction>> => 0.., null 0..;
        preferred_read_replica: i32 => 11.., or -1;
        records: Option<Records> => 0.., null 0..;
    }

    /// The `diverging_epoch` of a [`PartitionData`].
    struct EpochEndOffset {
        epoch: i32 => 12.., or -1;
        end_offset: i64 => 12.., or -1;
    }

    /// The `current_leader` of a [`PartitionData`].
    struct LeaderIdAndEpoch {
        leader_id: i32 => 12.., or -1;
        leader_epoch: i32 => 12.., or -1;
    }

    /// The `snapshot_id` of a [`PartitionData`].
    struct SnapshotId {
        end_offset: i64 => 0.., or -1;
        epoch: i32 => 0.., or -1;
    }

    /// An element of [`PartitionData`]'s `aborted_transactions`.
    struct AbortedTransaction {
        producer_id: i64 => 0..;
        first_offset: i64 => 0..;
    }

    /// An element of [`FetchResponse`]'s `node_endpoints`.
    struct NodeEndpoint {
        node_id: i32 => 16..;
        host: String => 16..;
        port: i32 => 16..;
        rack: Option<String> => 16.., null 16..;
    }
}
