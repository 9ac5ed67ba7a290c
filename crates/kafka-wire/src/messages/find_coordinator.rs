//! FindCoordinator (10): the broker that coordinates a group.

use crate::message::{request, wire};

request!(FindCoordinatorRequest => FindCoordinatorResponse, "FindCoordinator", 10, 0..=6, 3);

wire! {
    flexible 3;

    /// What the client sends.
    struct FindCoordinatorRequest {
        key: String => 0..=3;
        key_type: i8 => 1..;
        coordinator_keys: Vec<String> => 4..;
    }

    /// What the broker answers.
    struct FindCoordinatorResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..=3;
        error_message: Option<String> => 1..=3, null 1..=3;
        node_id: i32 => 0..=3;
        host: String => 0..=3;
        port: i32 => 0..=3;
        coordinators: Vec<Coordinator> => 4..;
    }

    /// An element of [`FindCoordinatorResponse`]'s `coordinators`.
    struct Coordinator {
        key: String => 4..;
        node_id: i32 => 4..;
        host: String => 4..;
        port: i32 => 4..;
        error_code: i16 => 4..;
        error_message: Option<String> => 4.., null 4..;
    }
}
