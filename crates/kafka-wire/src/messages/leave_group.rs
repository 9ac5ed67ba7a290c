//! LeaveGroup (13): members leave a classic group.

use crate::message::{request, wire};

request!(LeaveGroupRequest => LeaveGroupResponse, "LeaveGroup", 13, 0..=5, 4);

wire! {
    flexible 4;

    /// What the client sends.
    struct LeaveGroupRequest {
        group_id: String => 0..;
        member_id: String => 0..=2;
        members: Vec<MemberIdentity> => 3..;
    }

    /// An element of [`LeaveGroupRequest`]'s `members`.
    struct MemberIdentity {
        member_id: String => 3..;
        group_instance_id: Option<String> => 3.., null 3..;
        reason: Option<String> => 5.., null 5..;
    }

    /// What the broker answers.
    struct LeaveGroupResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        members: Vec<MemberResponse> => 3..;
    }

    /// An element of [`LeaveGroupResponse`]'s `members`.
    struct MemberResponse {
        member_id: String => 3..;
        group_instance_id: Option<String> => 3.., null 3..;
        error_code: i16 => 3..;
    }
}
