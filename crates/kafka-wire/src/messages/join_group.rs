//! JoinGroup (11): a member joins a classic group.

use bytes::Bytes;

use crate::message::{request, wire};

request!(JoinGroupRequest => JoinGroupResponse, "JoinGroup", 11, 0..=9, 6);

wire! {
    flexible 6;

    /// What the client sends.
    struct JoinGroupRequest {
        group_id: String => 0..;
        session_timeout_ms: i32 => 0..;
        rebalance_timeout_ms: i32 => 1.., or -1;
        member_id: String => 0..;
        group_instance_id: Option<String> => 5.., null 5..;
        protocol_type: String => 0..;
        protocols: Vec<JoinGroupRequestProtocol> => 0..;
        reason: Option<String> => 8.., null 8..;
    }

    /// An element of [`JoinGroupRequest`]'s `protocols`.
    struct JoinGroupRequestProtocol {
        name: String => 0..;
        metadata: Bytes => 0..;
    }

    /// What the broker answers.
    struct JoinGroupResponse {
        throttle_time_ms: i32 => 2..;
        error_code: i16 => 0..;
        generation_id: i32 => 0.., or -1;
        protocol_type: Option<String> => 7.., null 7..;
        protocol_name: Option<String> => 0.., null 7..;
        leader: String => 0..;
        skip_assignment: bool => 9..;
        member_id: String => 0..;
        members: Vec<JoinGroupResponseMember> => 0..;
    }

    /// An element of [`JoinGroupResponse`]'s `members`.
    struct JoinGroupResponseMember {
        member_id: String => 0..;
        group_instance_id: Option<String> => 5.., null 5..;
        metadata: Bytes => 0..;
    }
}
