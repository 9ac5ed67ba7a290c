//! Answers of gRPC: one message, or as many as a stream has, and how it ended.
//!
//! A stream is worked on only while its peer takes what it is sent: the work runs inside the answer,
//! which the listener asks for more when there is room. So a peer that reads nothing stops the work,
//! and with it the reading of its own messages.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame};
use punctual_api::Problem;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::grpc::status;
use crate::grpc::wire::ENCODINGS;
use crate::http::reply::{self, Cut, Reply};
use crate::receiving::Taken;

/// Answers that wait to be sent, at most.
const WAITING_MAX: usize = 16;
/// Small answers leave together, up to about so many bytes.
const TOGETHER_BYTES: usize = 32 << 10;

/// An answer of a stream on its way.
#[derive(Debug)]
pub(crate) struct Item {
    frame: Bytes,
    /// What goes back if it never leaves.
    unsent: Option<Taken>,
    /// What it takes until it leaves.
    _held: Vec<OwnedSemaphorePermit>,
}

/// Where the work of a stream puts its answers.
#[derive(Clone, Debug)]
pub(crate) struct Out(mpsc::Sender<Item>);

impl Out {
    /// Puts a frame out, as soon as there is room.
    pub(crate) async fn send(&self, frame: Bytes) {
        self.put(Item { frame, unsent: None, _held: Vec::new() }).await;
    }

    /// Puts out a frame with messages of a group, which holds something until it leaves.
    pub(crate) async fn send_taken(
        &self,
        frame: Bytes,
        taken: Taken,
        held: Vec<OwnedSemaphorePermit>,
    ) {
        self.put(Item { frame, unsent: Some(taken), _held: held }).await;
    }

    async fn put(&self, item: Item) {
        // The other end is dropped together with the work itself.
        let _kept = self.0.send(item).await;
    }
}

/// The work of a stream.
type Work = Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>>;

/// The body of the answer to a stream.
struct Answers {
    items: mpsc::Receiver<Item>,
    work: Option<Work>,
    trailers: Option<HeaderMap>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl Answers {
    /// The next frame that waits, with small ones behind it.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Poll::Ready(first) = self.items.poll_recv(cx) else {
            return Poll::Pending;
        };
        let Some(first) = first.map(Item::leave) else {
            return Poll::Ready(None);
        };
        let mut joined = BytesMut::new();
        while joined.len().max(first.len()) < TOGETHER_BYTES
            && let Ok(next) = self.items.try_recv()
        {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&next.leave());
        }
        Poll::Ready(Some(if joined.is_empty() { first } else { joined.freeze() }))
    }
}

impl Item {
    /// It leaves now.
    fn leave(self) -> Bytes {
        if let Some(taken) = self.unsent {
            taken.sent();
        }
        self.frame
    }
}

impl Body for Answers {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        // First it goes on with the work, so that there is something to send.
        if let Some(work) = &mut this.work
            && let Poll::Ready(outcome) = work.as_mut().poll(cx)
        {
            this.work = None;
            let mut trailers = HeaderMap::new();
            status::write(outcome.as_ref().copied(), &mut trailers);
            this.trailers = Some(trailers);
        }
        match this.poll_waiting(cx) {
            Poll::Ready(Some(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Poll::Ready(None) => {
                Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The answer to a stream: whatever the work puts out, then how it ended.
pub(crate) fn stream<F>(work: impl FnOnce(Out) -> F) -> Reply
where
    F: Future<Output = Result<(), Problem>> + Send + 'static,
{
    let (sender, items) = mpsc::channel(WAITING_MAX);
    let work: Work = Box::pin(work(Out(sender)));
    with_head(reply::flowing(Answers { items, work: Some(work), trailers: None }))
}

/// The answer to a call that was refused before it began.
pub(crate) fn refusal(problem: &Problem) -> Reply {
    let mut reply = with_head(reply::Body::empty());
    status::write(Err(problem), reply.headers_mut());
    reply
}

/// One message, and that all is well.
struct One {
    frame: Option<Bytes>,
    ended: bool,
}

impl Body for One {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(frame) = self.frame.take() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::new();
        status::write(Ok(()), &mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// The answer to a call that has one.
pub(crate) fn one(frame: Bytes) -> Reply {
    with_head(reply::flowing(One { frame: Some(frame), ended: false }))
}

fn with_head(body: reply::Body) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static(ENCODINGS));
    reply
}
