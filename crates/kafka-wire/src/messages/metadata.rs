//! Metadata (3): the brokers, and the partitions of topics with their leaders.

use crate::message::{request, wire};

request!(MetadataRequest => MetadataResponse, "Metadata", 3, 0..=13, 9);

wire! {
    flexible 9;

    /// What the client sends.
    struct MetadataRequest {
        topics: Option<Vec<MetadataRequestTopic>> => 0.., null 1..;
        allow_auto_topic_creation: bool => 4.., or true;
        include_cluster_authorized_operations: bool => 8..=10;
        include_topic_authorized_operations: bool => 8..;
    }

    /// An element of [`MetadataRequest`]'s `topics`.
    struct MetadataRequestTopic {
        topic_id: [u8; 16] => 10..;
        name: Option<String> => 0.., null 10..;
    }

    /// What the broker answers.
    struct MetadataResponse {
        throttle_time_ms: i32 => 3..;
        brokers: Vec<MetadataResponseBroker> => 0..;
        cluster_id: Option<String> => 2.., null 2..;
        controller_id: i32 => 1.., or -1;
        topics: Vec<MetadataResponseTopic> => 0..;
        cluster_authorized_operations: i32 => 8..=10, or i32::MIN;
        error_code: i16 => 13..;
    }

    /// An element of [`MetadataResponse`]'s `brokers`.
    struct MetadataResponseBroker {
        node_id: i32 => 0..;
        host: String => 0..;
        port: i32 => 0..;
        rack: Option<String> => 1.., null 1..;
    }

    /// An element of [`MetadataResponse`]'s `topics`.
    struct MetadataResponseTopic {
        error_code: i16 => 0..;
        name: Option<String> => 0.., null 12..;
        topic_id: [u8; 16] => 10..;
        is_internal: bool => 1..;
        partitions: Vec<MetadataResponsePartition> => 0..;
        topic_authorized_operations: i32 => 8.., or i32::MIN;
    }

    /// An element of [`MetadataResponseTopic`]'s `partitions`.
    struct MetadataResponsePartition {
        error_code: i16 => 0..;
        partition_index: i32 => 0..;
        leader_id: i32 => 0..;
        leader_epoch: i32 => 7.., or -1;
        replica_nodes: Vec<i32> => 0..;
        isr_nodes: Vec<i32> => 0..;
        offline_replicas: Vec<i32> => 5..;
    }
}
