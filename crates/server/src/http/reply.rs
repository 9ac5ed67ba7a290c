//! Builds answers.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body as _;
use punctual_api::Problem;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::http::body::{Held, hold};
use crate::http::shared::Shared;

/// An answer, complete.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Answers up to this size are not counted; the number of connections, and of requests under way
/// on each, bounds them.
const UNCOUNTED_BYTES_MAX: usize = 4 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A value as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    typed(status, JSON, rendered(value))
}

/// A value as JSON that may be large. It counts as held until its last byte has left, so that
/// peers who ask for much and read nothing get a refusal and not all of the memory.
pub(crate) fn large_json(shared: &Shared, value: &impl Serialize) -> Result<Reply, Problem> {
    large_json_text(shared, rendered(value))
}

/// The same for JSON that was written already.
pub(crate) fn large_json_text(shared: &Shared, text: Vec<u8>) -> Result<Reply, Problem> {
    if text.len() <= UNCOUNTED_BYTES_MAX {
        return Ok(typed(StatusCode::OK, JSON, text));
    }
    let permit = hold(shared, text.len())?;
    Ok(typed(StatusCode::OK, JSON, Bytes::from_owner(Counted { text, _permit: permit })))
}

fn rendered(value: &impl Serialize) -> Vec<u8> {
    // Large enough for the answer to one message.
    let mut text = Vec::with_capacity(256);
    serde_json::to_writer(&mut text, value).expect("our own shapes have string keys and no faults");
    text
}

struct Counted {
    text: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A value as JSON that goes on holding what its request held, so that it need not be refused.
pub(crate) fn json_holding(status: StatusCode, value: &impl Serialize, held: Held) -> Reply {
    json_text_holding(status, rendered(value), held)
}

/// The same for JSON that was written already.
pub(crate) fn json_text_holding(status: StatusCode, text: Vec<u8>, held: Held) -> Reply {
    let counted = Counted { text, _permit: held.into_permit() };
    typed(status, JSON, Bytes::from_owner(counted))
}

/// The answer to a HEAD. The library leaves the body away in HTTP/1 only.
pub(crate) fn without_body(reply: Reply) -> Reply {
    let (mut parts, body) = reply.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, Full::default())
}

/// Bytes of a given type.
pub(crate) fn typed(status: StatusCode, media_type: HeaderValue, bytes: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(bytes.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}
