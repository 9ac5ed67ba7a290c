//! Builds answers: whole ones, and those that are written while they leave.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Frame, SizeHint};
use punctual_api::Problem;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::http::body::{Held, hold};
use crate::http::shared::Shared;
use crate::http::socket::Peer;

/// An answer.
pub(crate) type Reply = Response<Body>;

/// What an answer says.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Whole(Full<Bytes>),
    /// Piece by piece, as somebody writes them.
    Written(Pieces),
    /// Frame by frame, with trailers, as it makes them itself.
    Flowing(Flowing),
}

/// A body that makes its own frames.
pub(crate) struct Flowing(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = Cut> + Send>>);

impl std::fmt::Debug for Flowing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Flowing").finish_non_exhaustive()
    }
}

/// A body that makes its own frames.
pub(crate) fn flowing(
    body: impl hyper::body::Body<Data = Bytes, Error = Cut> + Send + 'static,
) -> Body {
    Body::Flowing(Flowing(Box::pin(body)))
}

/// The pieces of an answer that is still being written.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) source: mpsc::Receiver<Result<Piece, Cut>>,
    /// Ends when nobody is there any more to read them, where somebody can tell.
    gone: Option<Gone>,
}

struct Gone(Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gone")
    }
}

impl Pieces {
    pub(crate) const fn new(source: mpsc::Receiver<Result<Piece, Cut>>) -> Self {
        Self { source, gone: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        if let Some(gone) = &mut self.gone
            && gone.0.as_mut().poll(cx).is_ready()
        {
            // Whatever waits was not handed over, and never will be.
            self.gone = None;
            self.source.close();
            return Poll::Ready(Some(Err(Cut)));
        }
        self.source.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Piece::hand_over)))
    }
}

/// A piece of an answer.
pub(crate) struct Piece {
    bytes: Bytes,
    /// Whoever wants to know whether it was handed over.
    on_the_way: Option<Box<dyn OnTheWay>>,
}

/// What depends on whether a piece is handed over. Dropped unasked it was not.
pub(crate) trait OnTheWay: Send {
    /// It was handed over to the connection.
    fn handed_over(self: Box<Self>);
}

impl Piece {
    /// A piece on which something depends.
    pub(crate) fn with(bytes: Bytes, on_the_way: Box<dyn OnTheWay>) -> Self {
        Self { bytes, on_the_way: Some(on_the_way) }
    }

    /// Its bytes, which are as good as sent now.
    pub(crate) fn hand_over(self) -> Bytes {
        if let Some(on_the_way) = self.on_the_way {
            on_the_way.handed_over();
        }
        self.bytes
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), on_the_way: None }
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Whoever wrote an answer could not go on; what has left is not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut off")]
pub(crate) struct Cut;

impl Body {
    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self::Whole(Full::default())
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
            Self::Flowing(Flowing(body)) => body.as_mut().poll_frame(cx),
            Self::Written(pieces) => {
                pieces.poll(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_end_stream(),
            Self::Written(_) => false,
            Self::Flowing(Flowing(body)) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => bytes.size_hint(),
            Self::Written(_) => SizeHint::default(),
            Self::Flowing(Flowing(body)) => body.size_hint(),
        }
    }
}

/// An answer of that type whose pieces come through the other end of `source`. Dropping that end
/// is its regular end.
pub(crate) fn written(
    media_type: HeaderValue,
    source: mpsc::Receiver<Result<Piece, Cut>>,
) -> Reply {
    with_head(StatusCode::OK, media_type, Body::Written(Pieces::new(source)))
}

/// The same, ended as soon as the other side is gone: long before that shows by a piece that cannot
/// leave.
pub(crate) fn written_for(
    peer: Option<Peer>,
    media_type: HeaderValue,
    source: mpsc::Receiver<Result<Piece, Cut>>,
) -> Reply {
    let mut pieces = Pieces::new(source);
    pieces.gone = peer.map(|peer| Gone(Box::pin(async move { peer.gone().await })));
    with_head(StatusCode::OK, media_type, Body::Written(pieces))
}

/// Answers up to this size are not counted; the number of connections, and of requests under way
/// on each, bounds them.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 4 << 10;

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
    Ok(typed(StatusCode::OK, JSON, counted(shared, text)?))
}

/// Bytes that count as held until they are dropped.
pub(crate) fn counted(shared: &Shared, text: Vec<u8>) -> Result<Bytes, Problem> {
    let permit = hold(shared, text.len())?;
    Ok(Bytes::from_owner(Counted { text, _permit: permit }))
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
    Response::from_parts(parts, Body::empty())
}

/// The answer that something new is there, and where.
pub(crate) fn located(mut reply: Reply, place: &str) -> Reply {
    if reply.status() == StatusCode::CREATED {
        let place = HeaderValue::from_str(place).expect("names and ids are visible");
        reply.headers_mut().insert(LOCATION, place);
    }
    reply
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
