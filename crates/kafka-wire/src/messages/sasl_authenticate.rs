//! SaslAuthenticate (36): the SASL exchange itself.

use bytes::Bytes;

use crate::message::{request, wire};

request!(SaslAuthenticateRequest => SaslAuthenticateResponse, "SaslAuthenticate", 36, 0..=2, 2);

wire! {
    flexible 2;

    /// What the client sends.
    struct SaslAuthenticateRequest {
        auth_bytes: Bytes => 0..;
    }

    /// What the broker answers.
    struct SaslAuthenticateResponse {
        error_code: i16 => 0..;
        error_message: Option<String> => 0.., null 0..;
        auth_bytes: Bytes => 0..;
        session_lifetime_ms: i64 => 1..;
    }
}
