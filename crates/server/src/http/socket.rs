//! A connection that ends itself when its peer is silent, slow or gone.
//!
//! The HTTP library times only part of a connection's life: not the bytes by which it tells HTTP/1
//! from HTTP/2, not a keep-alive pause apart from a slow head, not a peer that never reads. So all
//! of that is timed here, below it. No request under way means a deadline is running: for the
//! first head from the moment of accepting, for later ones from their first byte, and between two
//! requests the idle timeout. While a request is under way its body is timed by `body.rs`.

use std::future::{Future, pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// What the requests of a connection tell its socket.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    under_way: AtomicUsize,
    started: AtomicU64,
    closing: AtomicBool,
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
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    pub(crate) write: Duration,
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
pub(crate) struct Peer(Arc<Mutex<TcpStream>>);

impl Peer {
    /// Ends when the other side has sent its last byte. Never for one that has sent more already.
    pub(crate) async fn gone(&self) {
        let look = poll_fn(|cx| {
            let mut byte = [0];
            self.0.lock().poll_peek(cx, &mut ReadBuf::new(&mut byte))
        });
        if let Ok(1..) = look.await {
            pending::<()>().await;
        }
    }
}

/// See the head of this file.
pub(crate) struct Socket {
    stream: Arc<Mutex<TcpStream>>,
    activity: Arc<Activity>,
    patience: Patience,
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
    pub(crate) fn new(stream: TcpStream, activity: Arc<Activity>, patience: Patience) -> Self {
        let deadline = Instant::now() + patience.head;
        Self {
            stream: Arc::new(Mutex::new(stream)),
            activity,
            patience,
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
    fn heard(&mut self, bytes: &[u8]) {
        if self.first_bytes {
            self.first_bytes = false;
            self.http2 = bytes.starts_with(HTTP2_PREFACE);
        }
        self.look();
        if self.phase == Phase::Idle && !self.http2 {
            self.phase = Phase::Head;
            self.deadline = Instant::now() + self.patience.head;
        }
    }

    /// Brings the phase up to what the requests did since the last look.
    fn look(&mut self) {
        let started = self.activity.started.load(Ordering::Relaxed);
        if self.activity.under_way.load(Ordering::Relaxed) > 0 {
            self.phase = Phase::Busy;
        } else if self.phase == Phase::Busy || started != self.started_seen {
            self.phase = Phase::Idle;
            self.deadline = Instant::now() + self.patience.idle;
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
            if self.deadline < self.timer.deadline() {
                self.timer.as_mut().reset(self.deadline);
            }
        }
        // The timer is left to run into the past and set anew then: a busy connection would
        // otherwise set it with every request.
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if self.phase == Phase::Busy {
                self.timer.as_mut().reset(now + self.patience.idle);
            } else if now < self.deadline {
                self.timer.as_mut().reset(self.deadline);
            } else {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
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
        let patience = self.patience.write;
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
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
            Poll::Ready(outcome) => {
                this.heard(&buffer.filled()[before..]);
                Poll::Ready(outcome)
            }
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
        self.stream.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_shutdown(cx)
    }
}
