//! A connection that ends itself when its peer is silent, slow or gone.
//!
//! The HTTP library times only part of a connection's life: not the bytes by which it tells HTTP/1
//! from HTTP/2, not a keep-alive pause apart from a slow head, not a peer that never reads. So all
//! of that is timed here, below it. No request under way means a deadline is running: for the
//! first head from the moment of accepting, for later ones from their first byte, and between two
//! requests the idle timeout. While a request is under way its body is timed by `body.rs`. What
//! leaves is timed too: the next byte, and every piece of an answer as a whole. And as long as
//! nobody has shown who it is there is an end to all of it together.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead as _, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::net::{Place, Stream};

/// What the requests of a connection tell its socket.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    under_way: AtomicUsize,
    started: AtomicU64,
    closing: AtomicBool,
    departures: Mutex<Departures>,
}

/// Pieces of answers on their way out, and since when.
#[derive(Debug, Default)]
struct Departures {
    last: u64,
    since: BTreeMap<u64, Instant>,
}

impl Activity {
    /// A request is under way until the answer is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.started.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// From now on a pause between requests is the end of the connection.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Since when the piece is leaving that has been at it the longest.
    fn leaving_since(&self) -> Option<Instant> {
        self.departures.lock().since.first_key_value().map(|(_, since)| *since)
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Activity>);

impl UnderWay {
    /// The same bytes, and known to be on their way until the last of them has left.
    pub(crate) fn leaving(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(LeavingPiece { bytes, _leaving: self.leaves() })
    }

    /// Something is on its way until what this answers is dropped.
    pub(crate) fn leaves(&self) -> Leaving {
        let mut departures = self.0.departures.lock();
        departures.last += 1;
        let number = departures.last;
        departures.since.insert(number, Instant::now());
        Leaving { number, activity: Arc::clone(&self.0) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something that is on its way out.
#[derive(Debug)]
pub(crate) struct Leaving {
    number: u64,
    activity: Arc<Activity>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.activity.departures.lock().since.remove(&self.number);
    }
}

struct LeavingPiece {
    bytes: Bytes,
    _leaving: Leaving,
}

impl AsRef<[u8]> for LeavingPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the head of a request.
    pub(crate) head: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// To read the next byte of an answer.
    pub(crate) write: Duration,
    /// To read a piece of an answer, or all of one that is whole.
    pub(crate) answer: Duration,
    /// To show who it is.
    pub(crate) stranger: Duration,
}

/// What a request knows of the connection it came on.
#[derive(Clone, Debug)]
pub(crate) struct OtherSide {
    /// Where somebody has to look whether the other side is still there.
    pub(crate) peer: Option<Peer>,
    /// Its address.
    pub(crate) from: SocketAddr,
    /// The place of the connection.
    pub(crate) place: Arc<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Part of a head may have arrived; it must be complete by the deadline.
    Head,
    /// At least one request is under way.
    Busy,
    /// Waiting for the next request until the deadline.
    Idle,
}

/// The other side of an HTTP/1 connection, for a request that wants to know whether it is still
/// there: the library does not look while a request is under way. It must be asked by the task of
/// the connection, which is where requests of HTTP/1 are answered.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Mutex<Stream>>);

impl Peer {
    /// Ends when the other side has sent its last byte. Never for one that has sent more already.
    pub(crate) async fn gone(&self) {
        if let Ok(1..) = poll_fn(|cx| self.look(cx)).await {
            pending::<()>().await;
        }
    }

    /// How much there is to read, without reading it.
    fn look(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut *self.0.lock() {
            Stream::Plain(stream) => {
                let mut byte = [0];
                stream.poll_peek(cx, &mut ReadBuf::new(&mut byte))
            }
            // Bytes on the wire need not be part of a request: a farewell is no request, nor is a
            // new key. What they mean shows when they are decrypted, which takes nothing away.
            Stream::Tls(stream) => {
                let filled = ready!(Pin::new(&mut **stream).poll_fill_buf(cx));
                Poll::Ready(filled.map(<[u8]>::len))
            }
        }
    }
}

/// See the head of this file.
pub(crate) struct Socket {
    stream: Arc<Mutex<Stream>>,
    activity: Arc<Activity>,
    place: Arc<Place>,
    patience: Patience,
    /// When it ends if nobody has shown who it is.
    strange_until: Instant,
    phase: Phase,
    deadline: Instant,
    started_seen: u64,
    first_bytes: bool,
    http2: bool,
    timer: Pin<Box<Sleep>>,
    write_timer: Option<Pin<Box<Sleep>>>,
}

const HTTP2_PREFACE: &[u8] = b"PRI ";

impl Socket {
    pub(crate) fn new(
        stream: Stream,
        place: Arc<Place>,
        activity: Arc<Activity>,
        patience: Patience,
    ) -> Self {
        let now = Instant::now();
        let deadline = now + patience.head.min(patience.stranger);
        Self {
            stream: Arc::new(Mutex::new(stream)),
            activity,
            place,
            patience,
            strange_until: now + patience.stranger,
            phase: Phase::Head,
            deadline,
            started_seen: 0,
            first_bytes: true,
            http2: false,
            timer: Box::pin(sleep_until(deadline)),
            write_timer: None,
        }
    }

    /// Who is on the other side.
    pub(crate) fn peer(&self) -> Peer {
        Peer(Arc::clone(&self.stream))
    }

    /// Bytes arrived. In HTTP/2 they need not belong to a request, so there only idling is timed.
    /// Fails when they come too late: whoever never stops sending is never silent.
    fn heard(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.first_bytes {
            self.first_bytes = false;
            self.http2 = bytes.starts_with(HTTP2_PREFACE);
        }
        self.look();
        if self.phase == Phase::Busy {
            return Ok(());
        }
        let now = Instant::now();
        if self.phase == Phase::Idle && !self.http2 {
            self.phase = Phase::Head;
            self.deadline = now + self.patience.head;
        }
        self.in_time(now)
    }

    fn in_time(&self, now: Instant) -> io::Result<()> {
        if now < self.ends() { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// When it ends if nothing happens.
    fn ends(&self) -> Instant {
        if self.place.is_strange() { self.deadline.min(self.strange_until) } else { self.deadline }
    }

    /// Whether a piece of an answer has been leaving for too long.
    fn answers_late(&self, now: Instant) -> bool {
        self.activity.leaving_since().is_some_and(|since| now >= since + self.patience.answer)
    }

    /// Brings the phase up to what the requests did since the last look.
    fn look(&mut self) {
        let started = self.activity.started.load(Ordering::Relaxed);
        if self.activity.under_way.load(Ordering::Relaxed) > 0 {
            self.phase = Phase::Busy;
        } else if self.phase == Phase::Busy || started != self.started_seen {
            self.phase = Phase::Idle;
            let strange = self.place.is_strange();
            let patience = if strange { self.patience.head } else { self.patience.idle };
            self.deadline = Instant::now() + patience;
        }
        self.started_seen = started;
    }

    /// Nothing to read now: ready when the peer had its time.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look();
        if self.phase != Phase::Busy {
            // In HTTP/2 answers may still be leaving when no request is under way any more, and
            // the peer is told that it is the end; so there only who never asked is cut off.
            let may_cut = !self.http2 || self.phase == Phase::Head;
            if may_cut && self.activity.closing.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            if self.ends() < self.timer.deadline() {
                let ends = self.ends();
                self.timer.as_mut().reset(ends);
            }
        }
        // The timer is left to run into the past and set anew then: a busy connection would
        // otherwise set it with every request.
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if self.answers_late(now) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if self.phase == Phase::Busy {
                self.timer.as_mut().reset(now + self.patience.idle);
            } else {
                self.in_time(now)?;
                let ends = self.ends();
                self.timer.as_mut().reset(ends);
            }
        }
    }

    /// Passes on how a write went; one that waits too long fails.
    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.write_timer = None;
            return outcome;
        }
        let now = Instant::now();
        // Somebody that takes a byte now and then is not stopped by the timer.
        let strange = self.place.is_strange() && now >= self.strange_until;
        if strange || self.answers_late(now) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let patience = self.patience.write;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(sleep_until(now + patience)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut *this.stream.lock()).poll_read(cx, buffer);
        match polled {
            Poll::Ready(Ok(())) => Poll::Ready(this.heard(&buffer.filled()[before..])),
            Poll::Ready(failed) => Poll::Ready(failed),
            Poll::Pending => this.poll_silence(cx),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut *this.stream.lock()).poll_write(cx, bytes);
        this.timed(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut *this.stream.lock()).poll_write_vectored(cx, slices);
        this.timed(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        // Both kinds are.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Encrypted bytes may wait here for the peer to read.
        let outcome = Pin::new(&mut *this.stream.lock()).poll_flush(cx);
        this.timed(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut *this.stream.lock()).poll_shutdown(cx);
        this.timed(cx, outcome)
    }
}
