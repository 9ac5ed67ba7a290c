//! DescribeGroups (15): the members of groups and what they are assigned.

use bytes::Bytes;

use crate::message::{request, wire};

request!(DescribeGroupsRequest => DescribeGroupsResponse, "DescribeGroups", 15, 0..=6, 5);

wire! {
    flexible 5;

    /// What the client sends.
    struct DescribeGroupsRequest {
        groups: Vec<String> => 0..;
        include_authorized_operations: bool => 3..;
    }

    /// What the broker answers.
    struct DescribeGroupsResponse {
        throttle_time_ms: i32 => 1..;
        groups: Vec<DescribedGroup> => 0..;
    }

    /// An element of [`DescribeGroupsResponse`]'s `groups`.
    struct DescribedGroup {
        error_code: i16 => 0..;
        error_message: Option<String> => 6.., null 6..;
        group_id: String => 0..;
        group_state: String => 0..;
        protocol_type: String => 0..;
        protocol_data: String => 0..;
        members: Vec<DescribedGroupMember> => 0..;
        authorized_operations: i32 => 3.., or i32::MIN;
    }

    /// An element of [`DescribedGroup`]'s `members`.
    struct DescribedGroupMember {
        member_id: String => 0..;
        group_instance_id: Option<String> => 4.., null 4..;
        client_id: String => 0..;
        client_host: String => 0..;
        member_metadata: Bytes => 0..;
        member_assignment: Bytes => 0..;
    }
}
