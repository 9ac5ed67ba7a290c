//! Builds answers.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

/// An answer, complete.
pub(crate) type Reply = Response<Full<Bytes>>;

/// A value as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // Large enough for the answer to one message.
    let mut text = Vec::with_capacity(256);
    serde_json::to_writer(&mut text, value).expect("our own shapes have string keys and no faults");
    typed(status, HeaderValue::from_static("application/json"), text)
}

/// Bytes of a given type.
pub(crate) fn typed(status: StatusCode, media_type: HeaderValue, bytes: Vec<u8>) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(bytes)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}
