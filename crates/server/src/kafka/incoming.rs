//! Requests as they arrive: cut out of the stream, in time and within their size.
//!
//! A length is checked before anything is set aside for it, and memory grows with what has arrived,
//! not with what was claimed. A request must be whole in its time once it has begun; between two of
//! them, and before a client has shown who it is, other times hold.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::kafka::held::{Held, Room};
use crate::net::{Place, ReadHalf};

/// Longest pause within a request: its first bytes are no reason to wait for the rest for long.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The length before each request.
const LENGTH_BYTES: usize = 4;
/// Read at one go, where nothing larger is known to come.
const READ_BYTES: usize = 4 << 10;
/// Set aside for a request when it begins, and how much more whenever that is full.
const FIRST_BYTES: usize = 64 << 10;
const GROWTH: usize = 4;
/// Largest request of somebody who has not shown who it is, where everybody must.
pub(crate) const STRANGER_BYTES_MAX: usize = 64 << 10;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Between two requests.
    pub(crate) idle: Duration,
    /// For a request to arrive.
    pub(crate) request: Duration,
}

/// Why no further request came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The other side has said its last.
    #[error("the client closed the connection")]
    Closed,
    /// It stopped in the middle of a request.
    #[error("the client closed the connection within a request")]
    Torn,
    /// It said nothing for too long, or too slowly.
    #[error("the client took too long")]
    Late,
    /// A length that no request has.
    #[error("a request of {0} bytes")]
    Length(i32),
    /// The connection is gone.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// The stream of requests of one connection.
pub(crate) struct Incoming {
    stream: ReadHalf,
    buffer: BytesMut,
    held: Held,
    place: Arc<Place>,
    /// When it ends if nobody has shown who it is.
    strange_until: Instant,
    patience: Patience,
    /// How many requests are being answered; whoever waits for an answer is not idle.
    under_way: Arc<AtomicUsize>,
}

impl Incoming {
    pub(crate) fn new(
        stream: ReadHalf,
        (held, place): (Held, Arc<Place>),
        strange_until: Instant,
        patience: Patience,
        under_way: Arc<AtomicUsize>,
    ) -> Self {
        let buffer = BytesMut::new();
        Self { stream, buffer, held, place, strange_until, patience, under_way }
    }

    /// The next request, without its length. After an error there is none.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> Result<Bytes, Ended> {
        if self.buffer.is_empty() {
            self.begin().await?;
        }
        let deadline = self.bounded(Instant::now() + self.patience.request);
        while self.buffer.len() < LENGTH_BYTES {
            self.more(READ_BYTES, deadline).await?;
        }
        let length = (&*self.buffer).get_i32();
        let fits = usize::try_from(length).ok().filter(|length| *length <= bytes_max);
        let total = fits.ok_or(Ended::Length(length))? + LENGTH_BYTES;
        let mut room = Room::default();
        let first = total.min(FIRST_BYTES);
        let mut allowed = first;
        while self.buffer.len() < total {
            // More than was asked for may have arrived at one go.
            while self.buffer.len() >= allowed {
                let more = total.min(allowed.saturating_mul(GROWTH)) - allowed;
                let widened = timeout_at(deadline, self.held.widen(&mut room, more)).await;
                widened.map_err(|_elapsed| Ended::Late)?;
                allowed += more;
            }
            let soon = deadline.min(Instant::now() + PAUSE_MAX);
            self.more(allowed - self.buffer.len(), soon).await?;
        }
        self.held.settle(&mut room, first).await;
        let mut frame = self.buffer.split_to(total).freeze();
        frame.advance(LENGTH_BYTES);
        Ok(room.around(frame))
    }

    /// Waits for the first byte of the next request.
    async fn begin(&mut self) -> Result<(), Ended> {
        let mut since = Instant::now();
        loop {
            let deadline = self.bounded(since + self.patience.idle);
            match self.more(READ_BYTES, deadline).await {
                Ok(()) => return Ok(()),
                Err(Ended::Torn) => return Err(Ended::Closed),
                Err(Ended::Late) if self.is_awaited() => since = Instant::now(),
                // Who has shown meanwhile who it is has more time.
                Err(Ended::Late) if deadline < self.bounded(since + self.patience.idle) => {}
                Err(ended) => return Err(ended),
            }
        }
    }

    fn is_awaited(&self) -> bool {
        !self.place.is_strange() && self.under_way.load(Ordering::Relaxed) > 0
    }

    fn bounded(&self, deadline: Instant) -> Instant {
        if self.place.is_strange() { deadline.min(self.strange_until) } else { deadline }
    }

    /// Reads once, at most about `bytes`.
    async fn more(&mut self, bytes: usize, deadline: Instant) -> Result<(), Ended> {
        self.buffer.reserve(bytes.max(1));
        let read = timeout_at(deadline, self.stream.read(&mut self.buffer)).await;
        match read.map_err(|_elapsed| Ended::Late)?? {
            0 => Err(Ended::Torn),
            _ => Ok(()),
        }
    }
}
