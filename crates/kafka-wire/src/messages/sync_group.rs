//! SyncGroup (14): the leader hands out the assignment, every member gets its part.

use bytes::Bytes;

use crate::message::{request, wire};

request!(SyncGroupRequest => SyncGroupResponse, "SyncGroup", 14, 0..=5, 4);

wire! {
    flexible 4;

    /// What the client sends.
    struct SyncGroupRequest {
        group_id: String => 0..;
        generation_id: i32 => 0..;
        member_id: String => 0..;
        group_instance_id: Option<String> => 3.., null 3..;
        protocol_type: Option<String> => 5.., null 5..;
        protocol_name: Option<String> => 5.., null 5..;
        assignments: Vec<SyncGroupRequestAssignment> => 0..;
    }

    /// An element of [`SyncGroupRequest`]'s `assignments`.
    struct SyncGroupRequestAssignment {
        member_id: String => 0..;
        assignment: Bytes => 0..;
    }

    /// What the broker answers.
    struct SyncGroupResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        protocol_type: Option<String> => 5.., null 5..;
        protocol_name: Option<String> => 5.., null 5..;
        assignment: Bytes => 0..;
    }
}
