//! The life of a connection: its requests are read ahead a little, handled one after the other, and
//! answered in order.
//!
//! A request that waits for something (a long poll) holds up those behind it, as clients expect.
//! Only requests that were begun and have their answer yet to come ([`Reply::Later`]) let others of
//! their kind begin. When a client is gone, or the server is going, what has arrived whole is still
//! carried out; only what would merely wait is dropped.

use std::future::{pending, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use punctual_kafka_wire::codec::Reader;
use punctual_kafka_wire::frame::RequestHeader;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::kafka::call::{Call, ConnectionState};
use crate::kafka::dispatch::{self, Manner};
use crate::kafka::incoming::{Ended, Incoming, Patience, STRANGER_BYTES_MAX};
use crate::kafka::outgoing::Outgoing;
use crate::kafka::reply::{Part, Reply};
use crate::kafka::sasl;
use crate::kafka::shared::Kafka;
use crate::net::{Place, Seat, Stream};

/// Requests that may have arrived while another is handled.
const READ_AHEAD_MAX: usize = 8;
/// Requests that may have been begun without being answered.
const BEGUN_MAX: usize = 32;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    stream: Stream,
    (from, local): (SocketAddr, SocketAddr),
    kafka: Arc<Kafka>,
    seat: &Seat,
) {
    let caller = kafka.first_caller();
    let state = Arc::new(ConnectionState::new(local, caller));
    let (read, write) = stream.split();
    let (patience, strange_until) = {
        let live = kafka.live();
        let config = &live.config.kafka;
        let patience = Patience { idle: config.idle_timeout, request: config.request_timeout };
        (patience, Instant::now() + config.stranger_timeout)
    };
    let place = Arc::clone(seat.place());
    let incoming = Incoming::new(
        read,
        (kafka.held.clone(), Arc::clone(&place)),
        strange_until,
        patience,
        Arc::clone(&state.under_way),
    );
    let outgoing = Outgoing::new(write, patience.idle, kafka.tasks.clone());
    let (give, take) = mpsc::channel(READ_AHEAD_MAX);
    let over = state.over.clone();
    let reading = async {
        let ended = read_all(incoming, give, &kafka, &state).await;
        debug!(%from, %ended, "nothing more is read from a Kafka client");
        over.cancel();
        pending::<()>().await;
    };
    let begun = FuturesOrdered::new();
    let worker = Worker {
        kafka: Arc::clone(&kafka),
        from,
        place,
        state: Arc::clone(&state),
        outgoing,
        begun,
    };
    tokio::select! {
        biased;
        outcome = worker.run(take) => if let Err(error) = outcome {
            debug!(%from, %error, "a connection of a Kafka client ended early");
        },
        () = reading => {}
    }
    // Whoever follows the connection learns of its end, however it came.
    state.over.cancel();
}

/// Reads until the client has said its last, or the server is going.
async fn read_all(
    mut incoming: Incoming,
    give: mpsc::Sender<Bytes>,
    kafka: &Kafka,
    state: &ConnectionState,
) -> Ended {
    loop {
        let bytes_max = match state.is_stranger() {
            true => STRANGER_BYTES_MAX,
            false => kafka.live().config.kafka.request_bytes_max,
        };
        let next = tokio::select! {
            biased;
            () = kafka.tasks.stopped() => return Ended::Closed,
            next = incoming.next(bytes_max) => next,
        };
        match next {
            Ok(frame) => {
                state.under_way.fetch_add(1, Ordering::Relaxed);
                let given = tokio::select! {
                    biased;
                    given = give.send(frame) => given.is_ok(),
                    () = kafka.tasks.stopped() => false,
                };
                if !given {
                    return Ended::Closed;
                }
            }
            Err(ended) => return ended,
        }
    }
}

/// Handles the requests of a connection.
struct Worker {
    kafka: Arc<Kafka>,
    from: SocketAddr,
    place: Arc<Place>,
    state: Arc<ConnectionState>,
    outgoing: Outgoing,
    /// Requests whose answers are yet to come, in order.
    begun: FuturesOrdered<Pin<Box<dyn Future<Output = Reply> + Send>>>,
}

/// Whether the connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    GoOn,
    End,
}

impl Worker {
    async fn run(mut self, mut frames: mpsc::Receiver<Bytes>) -> io::Result<()> {
        let over = self.state.over.clone();
        loop {
            let muted = self.state.muted_until().filter(|_| !over.is_cancelled());
            let after = tokio::select! {
                biased;
                Some(reply) = self.begun.next(), if !self.begun.is_empty() => {
                    self.send(reply).await?
                }
                () = pause(muted, &over), if muted.is_some() => After::GoOn,
                frame = frames.recv(), if muted.is_none() && self.begun.len() < BEGUN_MAX => {
                    match frame {
                        Some(frame) => self.take(frame).await?,
                        None => self.finish().await?,
                    }
                }
            };
            if after == After::End {
                return self.outgoing.end().await;
            }
        }
    }

    /// Handles a request, as far as that goes before its answer.
    async fn take(&mut self, frame: Bytes) -> io::Result<After> {
        if self.state.sasl.lock().is_bare() {
            return self.take_bare(&frame).await;
        }
        let mut body = Reader::new(frame);
        let Ok(head) = RequestHeader::decode(&mut body) else {
            debug!(from = %self.from, "a request without a head");
            return self.finish().await;
        };
        let manner = dispatch::manner(head.api_key);
        if manner != Manner::Ordered && self.answer_begun().await? == After::End {
            return Ok(After::End);
        }
        let call = self.call(head.client_id.as_deref(), head.api_version);
        if call.caller.still_stands().is_err() {
            debug!(from = %self.from, "the app of a Kafka client was disabled");
            return self.finish().await;
        }
        self.greet(&head);
        let handled = dispatch::answer(call, head, body);
        let reply = match manner {
            Manner::Waiting => tokio::select! {
                reply = handled => reply,
                () = self.state.over.cancelled() => Reply::Close,
            },
            Manner::Plain => handled.await,
            Manner::Ordered => match self.beside_begun(handled).await? {
                Some(reply) => reply,
                None => return Ok(After::End),
            },
        };
        // It may have shown just now who it is.
        self.known();
        match reply {
            Reply::Later(later) => self.begun.push_back(later),
            reply if self.begun.is_empty() => return self.send(reply).await,
            reply => self.begun.push_back(Box::pin(ready(reply))),
        }
        Ok(After::GoOn)
    }

    /// Handles a frame without a head, by which a client shows who it is.
    async fn take_bare(&mut self, frame: &[u8]) -> io::Result<After> {
        let reply = sasl::bare(&self.call(None, 0), frame);
        self.known();
        self.send(reply).await
    }

    /// Whoever asks for something that is served, and need not show who it is, is no stranger.
    fn greet(&self, head: &RequestHeader) {
        let served = dispatch::served(head.api_key);
        if served.is_some_and(|served| served.versions.contains(&head.api_version)) {
            self.known();
        }
    }

    /// Keeps the place of whoever has shown who it is.
    fn known(&self) {
        if !self.state.is_stranger() {
            self.place.known();
        }
    }

    fn call(&self, client_id: Option<&str>, version: i16) -> Call {
        Call {
            shared: Arc::clone(&self.kafka),
            caller: self.state.caller(),
            client_id: client_id.map(Arc::from),
            from: self.from,
            version,
            connection: Arc::clone(&self.state),
        }
    }

    /// Handles a request while those begun before it are answered.
    async fn beside_begun(
        &mut self,
        mut handled: Pin<Box<dyn Future<Output = Reply> + Send>>,
    ) -> io::Result<Option<Reply>> {
        loop {
            let earlier = tokio::select! {
                biased;
                reply = &mut handled => return Ok(Some(reply)),
                Some(earlier) = self.begun.next(), if !self.begun.is_empty() => earlier,
            };
            if self.send(earlier).await? == After::End {
                return Ok(None);
            }
        }
    }

    /// Answers everything that was begun.
    async fn answer_begun(&mut self) -> io::Result<After> {
        while let Some(reply) = self.begun.next().await {
            if self.send(reply).await? == After::End {
                return Ok(After::End);
            }
        }
        Ok(After::GoOn)
    }

    /// Answers everything that was begun, and then ends.
    async fn finish(&mut self) -> io::Result<After> {
        self.answer_begun().await.map(|_| After::End)
    }

    async fn send(&mut self, reply: Reply) -> io::Result<After> {
        let after = match reply {
            Reply::Nothing => After::GoOn,
            Reply::Bytes(bytes) => {
                self.outgoing.send(&[Part::Bytes(bytes)]).await?;
                After::GoOn
            }
            Reply::Parts(parts) => {
                self.outgoing.send(&parts).await?;
                After::GoOn
            }
            Reply::Last(bytes) => {
                self.outgoing.send(&[Part::Bytes(bytes)]).await?;
                After::End
            }
            Reply::Later(later) => {
                let reply = later.await;
                return Box::pin(self.send(reply)).await;
            }
            Reply::Close => After::End,
        };
        self.state.under_way.fetch_sub(1, Ordering::Relaxed);
        Ok(after)
    }
}

/// Waits until something may be taken again; whoever is gone is not waited for.
async fn pause(until: Option<Instant>, over: &CancellationToken) {
    if let Some(until) = until {
        // Either is the end of the wait.
        let _over = tokio::time::timeout_at(until, over.cancelled()).await;
    }
}
