//! What leaves through a connection: the body of an answer, watched until its last byte is gone.
//!
//! A request is under way until its answer has been handed over, and every piece of the answer
//! that is large, or one of many, is known to the socket until it has left. In HTTP/2 that is the
//! only way to see a peer that goes on asking and never makes room for the answers: its bytes do
//! not even try to leave. There the library asks for a piece only when the peer has room for it, so
//! the time until it asks counts too.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use hyper::body::{Frame, SizeHint};

use crate::http::reply::{Body, Cut};
use crate::http::socket::{Leaving, UnderWay};

/// Whole answers up to this size are not watched; there is a bound on their number.
const UNWATCHED_BYTES_MAX: usize = 4 << 10;

/// The body of an answer, and its request with it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    body: Body,
    under_way: UnderWay,
    /// In HTTP/2, while it is the peer's turn to make room.
    room: Room,
}

#[derive(Debug)]
enum Room {
    /// There always is, or the socket sees that there is not.
    Unwatched,
    /// We have nothing to send.
    Unasked,
    /// Not yet.
    Awaited(#[expect(dead_code, reason = "it tells the socket by being there")] Leaving),
}

impl Outgoing {
    pub(crate) fn new(body: Body, under_way: UnderWay, version: Version) -> Self {
        let watched = version == Version::HTTP_2;
        let room = if watched { Room::Awaited(under_way.leaves()) } else { Room::Unwatched };
        Self { body, under_way, room }
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        let is_whole = this.body.size_hint().exact().is_some();
        let watched = !matches!(this.room, Room::Unwatched);
        if watched {
            this.room = Room::Unasked;
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if watched && frame.is_some() {
            this.room = Room::Awaited(this.under_way.leaves());
        }
        let watched = |bytes: Bytes| {
            let watch = !bytes.is_empty() && (!is_whole || bytes.len() > UNWATCHED_BYTES_MAX);
            if watch { this.under_way.leaving(bytes) } else { bytes }
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(watched))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
