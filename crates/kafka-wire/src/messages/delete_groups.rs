//! DeleteGroups (42): groups go, with their offsets.

use crate::message::{request, wire};

request!(DeleteGroupsRequest => DeleteGroupsResponse, "DeleteGroups", 42, 0..=2, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct DeleteGroupsRequest {
        groups_names: Vec<String> => 0..;
    }

    /// What the broker answers.
    struct DeleteGroupsResponse {
        throttle_time_ms: i32 => 0..;
        results: Vec<DeletableGroupResult> => 0..;
    }

    /// An element of [`DeleteGroupsResponse`]'s `results`.
    struct DeletableGroupResult {
        group_id: String => 0..;
        error_code: i16 => 0..;
    }
}
