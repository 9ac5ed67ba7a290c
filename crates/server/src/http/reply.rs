//! Builds answers: whole ones, and those that are written while they leave.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, SizeHint};
use punctual_api::Problem;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::http::body::{Held, hold};
use crate::http::shared::Shared;
use crate::http::socket::UnderWay;

/// An answer.
pub(crate) type Reply = Response<Body>;

/// What an answer says.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Whole(Full<Bytes>),
    /// Piece by piece, as somebody writes them.
    Written(Pieces),
}

/// The pieces of an answer that is still being written.
#[derive(Debug)]
pub(crate) struct Pieces {
    source: mpsc::Receiver<Result<Bytes, Cut>>,
    /// The request goes on until the last piece has left.
    _under_way: Option<UnderWay>,
}

/// Whoever wrote an answer could not go on; what has left is not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut off")]
pub(crate) struct Cut;

impl Body {
    /// The same, with the request under way as long as it is being written.
    pub(crate) fn during(self, under_way: UnderWay) -> Self {
        match self {
            Self::Whole(bytes) => Self::Whole(bytes),
            Self::Written(Pieces { source, .. }) => {
                Self::Written(Pieces { source, _under_way: Some(under_way) })
            }
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => {
                let polled = Pin::new(bytes).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
            Self::Written(pieces) => {
                let polled = pieces.source.poll_recv(cx);
                polled.map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_end_stream(),
            Self::Written(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => bytes.size_hint(),
            Self::Written(_) => SizeHint::default(),
        }
    }
}

/// An answer of that type whose pieces come through the other end of `source`. Dropping that end
/// is its regular end.
pub(crate) fn written(
    media_type: HeaderValue,
    source: mpsc::Receiver<Result<Bytes, Cut>>,
) -> Reply {
    let body = Body::Written(Pieces { source, _under_way: None });
    with_head(StatusCode::OK, media_type, body)
}

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
    Response::from_parts(parts, Body::Whole(Full::default()))
}

/// Bytes of a given type.
pub(crate) fn typed(status: StatusCode, media_type: HeaderValue, bytes: impl Into<Bytes>) -> Reply {
    with_head(status, media_type, Body::Whole(Full::new(bytes.into())))
}

fn with_head(status: StatusCode, media_type: HeaderValue, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}
