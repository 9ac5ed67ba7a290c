//! SaslHandshake (17): the SASL mechanism is chosen.

use crate::message::{NEVER_FLEXIBLE, request, wire};

request!(SaslHandshakeRequest => SaslHandshakeResponse, "SaslHandshake", 17, 0..=1, NEVER_FLEXIBLE);

wire! {
    flexible NEVER_FLEXIBLE;

    /// What the client sends.
    struct SaslHandshakeRequest {
        mechanism: String => 0..;
    }

    /// What the broker answers.
    struct SaslHandshakeResponse {
        error_code: i16 => 0..;
        mechanisms: Vec<String> => 0..;
    }
}
