//! ShareGroupDescribe (77): the members of share groups and what they are assigned.

use crate::message::{request, wire};

request!(
    ShareGroupDescribeRequest => ShareGroupDescribeResponse,
    "ShareGroupDescribe", 77, 1..=1, 0
);

wire! {
    flexible 0;

    /// What the client sends.
    struct ShareGroupDescribeRequest {
        group_ids: Vec<String> => 0..;
        include_authorized_operations: bool => 0..;
    }

    /// What the broker answers.
    struct ShareGroupDescribeResponse {
        throttle_time_ms: i32 => 0..;
        groups: Vec<DescribedGroup> => 0..;
    }

    /// An element of [`ShareGroupDescribeResponse`]'s `groups`.
    struct DescribedGroup {
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        group_id: String => 0..;
        group_state: String => 0..;
        group_epoch: i32 => 0..;
        assignment_epoch: i32 => 0..;
        assignor_name: String => 0..;
        members: Vec<Member> => 0..;
        authorized_operations: i32 => 0.., or i32::MIN;
    }

    /// An element of [`DescribedGroup`]'s `members`.
    struct Member {
        member_id: String => 0..;
        rack_id: Option<String> => 0.., null 0..;
        member_epoch: i32 => 0..;
        client_id: String => 0..;
        client_host: String => 0..;
        subscribed_topic_names: Vec<String> => 0..;
        assignment: Assignment => 0..;
    }

    /// The `assignment` of a [`Member`].
    struct Assignment {
        topic_partitions: Vec<TopicPartitions> => 0..;
    }

    /// An element of [`Assignment`]'s `topic_partitions`.
    struct TopicPartitions {
        topic_id: [u8; 16] => 0..;
        topic_name: String => 0..;
        partitions: Vec<i32> => 0..;
    }
}
