//! ShareGroupHeartbeat (76): a member of a share group is alive, and learns its assignment.

use crate::message::{request, wire};

request!(
    ShareGroupHeartbeatRequest => ShareGroupHeartbeatResponse,
    "ShareGroupHeartbeat", 76, 1..=1, 0
);

wire! {
    flexible 0;

    /// What the client sends.
    struct ShareGroupHeartbeatRequest {
        group_id: String => 0..;
        member_id: String => 0..;
        member_epoch: i32 => 0..;
        rack_id: Option<String> => 0.., null 0..;
        subscribed_topic_names: Option<Vec<String>> => 0.., null 0..;
    }

    /// What the broker answers.
    struct ShareGroupHeartbeatResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        member_id: Option<String> => 0.., null 0..;
        member_epoch: i32 => 0..;
        heartbeat_interval_ms: i32 => 0..;
        assignment: Option<Assignment> => 0.., null 0..;
    }

    /// The `assignment` of a [`ShareGroupHeartbeatResponse`].
    struct Assignment {
        topic_partitions: Vec<TopicPartitions> => 0..;
    }

    /// An element of [`Assignment`]'s `topic_partitions`.
    struct TopicPartitions {
        topic_id: [u8; 16] => 0..;
        partitions: Vec<i32> => 0..;
    }
}
