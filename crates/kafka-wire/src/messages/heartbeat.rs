//! Heartbeat (12): a member of a classic group is alive.

use crate::message::{request, wire};

request!(HeartbeatRequest => HeartbeatResponse, "Heartbeat", 12, 0..=4, 4);

wire! {
    flexible 4;

    /// What the client sends.
    struct HeartbeatRequest {
        group_id: String => 0..;
        generation_id: i32 => 0..;
        member_id: String => 0..;
        group_instance_id: Option<String> => 3.., null 3..;
    }

    /// What the broker answers.
    struct HeartbeatResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
    }
}
