//! DescribeTopicPartitions (75): the partitions of topics, page by page.

use crate::message::{request, wire};

request!(
    DescribeTopicPartitionsRequest => DescribeTopicPartitionsResponse,
    "DescribeTopicPartitions", 75, 0..=0, 0
);

wire! {
    flexible 0;

    /// What the client sends.
    struct DescribeTopicPartitionsRequest {
        topics: Vec<TopicRequest> => 0..;
        response_partition_limit: i32 => 0.., or 2000;
        cursor: Option<Cursor> => 0.., null 0..;
    }

    /// An element of [`DescribeTopicPartitionsRequest`]'s `topics`.
    struct TopicRequest {
        name: String => 0..;
    }

    /// The `cursor` of a [`DescribeTopicPartitionsRequest`].
    struct Cursor {
        topic_name: String => 0..;
        partition_index: i32 => 0..;
    }

    /// What the broker answers.
    struct DescribeTopicPartitionsResponse {
        throttle_time_ms: i32 => 0..;
        topics: Vec<DescribeTopicPartitionsResponseTopic> => 0..;
        next_cursor: Option<Cursor> => 0.., null 0..;
    }

    /// An element of [`DescribeTopicPartitionsResponse`]'s `topics`.
    struct DescribeTopicPartitionsResponseTopic {
        error_code: i16 => 0..;
        name: Option<String> => 0.., null 0..;
        topic_id: [u8; 16] => 0..;
        is_internal: bool => 0..;
        partitions: Vec<DescribeTopicPartitionsResponsePartition> => 0..;
        topic_authorized_operations: i32 => 0.., or i32::MIN;
    }

    /// An element of [`DescribeTopicPartitionsResponseTopic`]'s `partitions`.
    struct DescribeTopicPartitionsResponsePartition {
        error_code: i16 => 0..;
        partition_index: i32 => 0..;
        leader_id: i32 => 0..;
        leader_epoch: i32 => 0.., or -1;
        replica_nodes: Vec<i32> => 0..;
        isr_nodes: Vec<i32> => 0..;
        eligible_leader_replicas: Option<Vec<i32>> => 0.., null 0..;
        last_known_elr: Option<Vec<i32>> => 0.., null 0..;
        offline_replicas: Vec<i32> => 0..;
    }
}
