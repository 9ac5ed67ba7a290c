//! CreatePartitions (37): topics get more partitions.

use crate::message::{request, wire};

request!(CreatePartitionsRequest => CreatePartitionsResponse, "CreatePartitions", 37, 0..=3, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic> => 0..;
        timeout_ms: i32 => 0..;
        validate_only: bool => 0..;
    }

    /// An element of [`CreatePartitionsRequest`]'s `topics`.
    struct CreatePartitionsTopic {
        name: String => 0..;
        count: i32 => 0..;
        assignments: Option<Vec<CreatePartitionsAssignment>> => 0.., null 0..;
    }

    /// An element of [`CreatePartitionsTopic`]'s `assignments`.
    struct CreatePartitionsAssignment {
        broker_ids: Vec<i32> => 0..;
    }

    /// What the broker answers.
    struct CreatePartitionsResponse {
        throttle_time_ms: i32 => 0..;
        results: Vec<CreatePartitionsTopicResult> => 0..;
    }

    /// An element of [`CreatePartitionsResponse`]'s `results`.
    struct CreatePartitionsTopicResult {
        name: String => 0..;
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
    }
}
