//! CreateTopics (19): new topics.

use crate::message::{request, wire};

request!(CreateTopicsRequest => CreateTopicsResponse, "CreateTopics", 19, 2..=7, 5);

wire! {
    flexible 5;

    /// What the client sends.
    struct CreateTopicsRequest {
        topics: Vec<CreatableTopic> => 0..;
        timeout_ms: i32 => 0.., or 60000;
        validate_only: bool => 0..;
    }

    /// An element of [`CreateTopicsRequest`]'s `topics`.
    struct CreatableTopic {
        name: String => 0..;
        num_partitions: i32 => 0..;
        replication_factor: i16 => 0..;
        assignments: Vec<CreatableReplicaAssignment> => 0..;
        configs: Vec<CreatableTopicConfig> => 0..;
    }

    /// An element of [`CreatableTopic`]'s `assignments`.
    struct CreatableReplicaAssignment {
        partition_index: i32 => 0..;
        broker_ids: Vec<i32> => 0..;
    }

    /// An element of [`CreatableTopic`]'s `configs`.
    struct CreatableTopicConfig {
        name: String => 0..;
        value: Option<String> => 0.., null 0..;
    }

    /// What the broker answers.
    struct CreateTopicsResponse {
        throttle_time_ms: i32 => 0..;
        topics: Vec<CreatableTopicResult> => 0..;
    }

    /// An element of [`CreateTopicsResponse`]'s `topics`.
    struct CreatableTopicResult {
        name: String => 0..;
        topic_id: [u8; 16] => 7..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        topic_config_error_code: i16 => 5.., tag 0;
        num_partitions: i32 => 5.., or -1;
        replication_factor: i16 => 5.., or -1;
        configs: Option<Vec<CreatableTopicConfigs>> => 5.., null 5..;
    }

    /// An element of [`CreatableTopicResult`]'s `configs`.
    struct CreatableTopicConfigs {
        name: String => 5..;
        value: Option<String> => 5.., null 5..;
        read_only: bool => 5..;
        config_source: i8 => 5.., or -1;
        is_sensitive: bool => 5..;
    }
}
