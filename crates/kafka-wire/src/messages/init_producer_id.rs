//! InitProducerId (22): an id for an idempotent producer.

use crate::message::{request, wire};

request!(InitProducerIdRequest => InitProducerIdResponse, "InitProducerId", 22, 0..=5, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct InitProducerIdRequest {
        transactional_id: Option<String> => 0.., null 0..;
        transaction_timeout_ms: i32 => 0..;
        producer_id: i64 => 3.., or -1;
        producer_epoch: i16 => 3.., or -1;
    }

    /// What the broker answers.
    struct InitProducerIdResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        producer_id: i64 => 0.., or -1;
        producer_epoch: i16 => 0..;
    }
}
