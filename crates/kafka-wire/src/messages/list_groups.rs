//! ListGroups (16): the groups there are.

use crate::message::{request, wire};

request!(ListGroupsRequest => ListGroupsResponse, "ListGroups", 16, 0..=5, 3);

wire! {
    flexible 3;

    /// What the client sends.
    struct ListGroupsRequest {
        states_filter: Vec<String> => 4..;
        types_filter: Vec<String> => 5..;
    }

    /// What the broker answers.
    struct ListGroupsResponse {
        throttle_time_ms: i32 => 1..;
        error_code: i16 => 0..;
        groups: Vec<ListedGroup> => 0..;
    }

    /// An element of [`ListGroupsResponse`]'s `groups`.
    struct ListedGroup {
        group_id: String => 0..;
        protocol_type: String => 0..;
        group_state: String => 4..;
        group_type: String => 5..;
    }
}
