//! DeleteTopics (20): topics go.

use crate::message::{request, wire};

request!(DeleteTopicsRequest => DeleteTopicsResponse, "DeleteTopics", 20, 1..=6, 4);

wire! {
    flexible 4;

    /// What the client sends.
    struct DeleteTopicsRequest {
        topics: Vec<DeleteTopicState> => 6..;
        topic_names: Vec<String> => 0..=5;
        timeout_ms: i32 => 0..;
    }

    /// An element of [`DeleteTopicsRequest`]'s `topics`.
    struct DeleteTopicState {
        name: Option<String> => 6.., null 6..;
        topic_id: [u8; 16] => 6..;
    }

    /// What the broker answers.
    struct DeleteTopicsResponse {
        throttle_time_ms: i32 => 0..;
        responses: Vec<DeletableTopicResult> => 0..;
    }

    /// An element of [`DeleteTopicsResponse`]'s `responses`.
    struct DeletableTopicResult {
        name: Option<String> => 0.., null 6..;
        topic_id: [u8; 16] => 6..;
        error_code: i16 => 0..;
        error_message: Option<String> => 5.., null 5..;
    }
}
