//! Accepts connections: never more than there are places, each with its deadlines, all ended at
//! shutdown.
//!
//! A connection becomes one of HTTP in three steps: it gets a place, it is encrypted if the
//! listener is, and then the library speaks HTTP/1 or HTTP/2 on it, whichever the other side
//! began. Every step has its limit of time, and so has everything that follows (`socket.rs`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use crate::access::Connection;
use crate::config::HttpConfig;
use crate::http::flow;
use crate::http::leaving::Outgoing;
use crate::http::shared::Shared;
use crate::http::socket::{Activity, OtherSide, Patience, Socket};
use crate::net::{Limits, Opened, Seat, Stream, accept, open};
use crate::tls::Acceptor;

/// What is offered to clients that ask in the handshake.
pub(crate) const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Largest head of a request, in bytes; also how much is read ahead.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most header fields of a request.
const HEAD_FIELDS_MAX: usize = 100;
/// Most requests under way on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Largest head of an HTTP/2 request; smaller than that of HTTP/1, because a connection has many.
const STREAM_HEAD_BYTES_MAX: u32 = 16 << 10;
/// How much of all bodies of an HTTP/2 connection may arrive before a handler takes it.
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
/// How much of an answer is kept ready for each stream of an HTTP/2 connection.
const STREAM_SEND_BYTES_MAX: usize = 64 << 10;
/// Time for somebody who does not speak TLS to take the answer.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// What of its request is read before that at most.
const FAREWELL_BYTES_MAX: u64 = 64 << 10;

/// What somebody without a place is told; never waited for.
const OVER_CAP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nconnection: close\r\nretry-after: 1\r\n\
    content-length: 165\r\n\r\n\
    {\"type\":\"urn:punctual:error:unavailable\",\
    \"title\":\"The broker does not take requests now\",\"status\":503,\
    \"detail\":\"there are too many connections\",\"code\":\"unavailable\"}";

/// What somebody is told who does not encrypt.
const SPEAKS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: application/problem+json\r\nconnection: close\r\ncontent-length: 180\r\n\r\n\
    {\"type\":\"urn:punctual:error:invalid_request\",\
    \"title\":\"The request does not have the expected form\",\"status\":400,\
    \"detail\":\"this port speaks TLS: use https\",\"code\":\"invalid_request\"}";

/// Accepts until the tasks are asked to stop.
pub(crate) async fn run(listener: TcpListener, tls: Option<Arc<Acceptor>>, shared: Arc<Shared>) {
    let server = Arc::new(server());
    while let Some((stream, from)) = accept(&listener, &shared.places, &shared.tasks).await {
        let limits = limits(&shared.live().config.http);
        match shared.places.take(from.ip(), limits) {
            Some(seat) => {
                let (shared, server) = (Arc::clone(&shared), Arc::clone(&server));
                let tasks = shared.tasks.clone();
                tasks.spawn(connection((stream, from), tls.clone(), (shared, server), seat));
            }
            None => {
                if tls.is_none() {
                    // Whether the peer gets to read it does not matter.
                    let _written = stream.try_write(OVER_CAP);
                }
                debug!(%from, "there was no place for a connection");
            }
        }
    }
}

const fn limits(http: &HttpConfig) -> Limits {
    Limits { all: http.connections_max, per_address: http.connections_per_address_max }
}

fn server() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        // The socket times heads; the timer of the library would be set for every request.
        .header_read_timeout(None)
        .max_headers(HEAD_FIELDS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        // A peer that has sent its request may close its half and still read the answer.
        .half_close(true);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(STREAM_HEAD_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_SEND_BYTES_MAX)
        // How many streams a peer may have reset before it is cut off is left at the library's
        // own bounds, which follow what is known of such attacks.
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20));
    server
}

fn patience(http: &HttpConfig) -> Patience {
    Patience {
        head: http.header_timeout,
        idle: http.idle_timeout,
        write: http.body_idle_timeout,
        answer: http.body_timeout,
        stranger: http.stranger_timeout,
    }
}

/// Whoever has to give its place to somebody else ends at once: nothing of it was let in.
async fn connection(
    (stream, from): (TcpStream, SocketAddr),
    tls: Option<Arc<Acceptor>>,
    (shared, server): (Arc<Shared>, Arc<auto::Builder<TokioExecutor>>),
    seat: Seat,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection was lost at once");
        return;
    }
    let place = Arc::clone(seat.place());
    let served = async {
        let patience = shared.live().config.tls.as_ref().map(|tls| tls.handshake_timeout);
        let stream = match open(stream, tls.as_deref(), patience, &shared.tasks).await {
            Opened::Ready(stream) => stream,
            Opened::Plain(stream) => {
                let _slow = tokio::time::timeout(FAREWELL_TIMEOUT, turn_away(stream)).await;
                return;
            }
            Opened::Lost => return,
        };
        serve((stream, from), shared, server, &seat).await;
    };
    tokio::select! {
        biased;
        () = place.gives_way() => debug!(%from, "a silent connection gave way"),
        () = served => {}
    }
}

/// Tells somebody that this port speaks TLS. The request is read first: a connection that is
/// closed with bytes unread takes the answer with it.
async fn turn_away(mut stream: TcpStream) {
    // Whether the peer gets to read it does not matter.
    let _written = stream.write_all(SPEAKS_TLS).await.is_ok() && stream.shutdown().await.is_ok();
    let mut rest = stream.take(FAREWELL_BYTES_MAX);
    let _read = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.is_ok();
}

async fn serve(
    (stream, from): (Stream, SocketAddr),
    shared: Arc<Shared>,
    server: Arc<auto::Builder<TokioExecutor>>,
    seat: &Seat,
) {
    let patience = patience(&shared.live().config.http);
    let place = seat.place();
    let activity = Arc::new(Activity::default());
    let socket = Socket::new(stream, Arc::clone(place), Arc::clone(&activity), patience);
    let peer = socket.peer();
    let socket = TokioIo::new(socket);
    let apps = Arc::new(Connection::default());
    let service = service_fn(|mut request: Request<Incoming>| {
        let under_way = activity.start();
        request.extensions_mut().insert(Arc::clone(&apps));
        let shared = Arc::clone(&shared);
        // In HTTP/2 the library sees that the peer is gone, and drops the request.
        let version = request.version();
        let peer = (version < Version::HTTP_2).then(|| peer.clone());
        let other_side = OtherSide { peer, from, place: Arc::clone(place) };
        async move {
            let answer = flow::answer(shared, request, other_side).await;
            Ok::<_, Infallible>(answer.map(|body| Outgoing::new(body, under_way, version)))
        }
    });
    let mut connection = pin!(server.serve_connection(socket, service));
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shared.tasks.stopped() => {
            activity.close();
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_written_by_hand_are_whole() {
        for (text, code) in [(OVER_CAP, "unavailable"), (SPEAKS_TLS, "invalid_request")] {
            let text = std::str::from_utf8(text).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
            let problem: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(problem["code"], code);
        }
    }
}
