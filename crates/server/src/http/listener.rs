//! Accepts connections: never more than the cap, each with its deadlines, all ended at shutdown.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use crate::http::flow;
use crate::http::shared::Shared;
use crate::http::socket::{Activity, Patience, Socket};

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
/// Pause after the operating system refused a connection, mostly for want of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// What somebody over the cap is told; never waited for.
const OVER_CAP: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nconnection: close\r\nretry-after: 1\r\n\
    content-length: 165\r\n\r\n\
    {\"type\":\"urn:punctual:error:unavailable\",\
    \"title\":\"The broker does not take requests now\",\"status\":503,\
    \"detail\":\"there are too many connections\",\"code\":\"unavailable\"}";

/// Accepts until the tasks are asked to stop.
pub(crate) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.http.connections_max));
    let server = Arc::new(server());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.tasks.stopped() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // Stopped meanwhile or not: the loop looks.
                let _stopped = tokio::time::timeout(REFUSED_PAUSE, shared.tasks.stopped()).await;
                continue;
            }
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let server = Arc::clone(&server);
                let task = connection((stream, from), Arc::clone(&shared), server, place);
                shared.tasks.spawn(task);
            }
            Err(_over_the_cap) => {
                // Whether the peer gets to read it does not matter.
                let _written = stream.try_write(OVER_CAP);
                debug!("a connection over the cap was closed");
            }
        }
    }
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

async fn connection(
    (stream, from): (TcpStream, SocketAddr),
    shared: Arc<Shared>,
    server: Arc<auto::Builder<TokioExecutor>>,
    place: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection was lost at once");
        return;
    }
    let patience = Patience {
        head: shared.http.header_timeout,
        idle: shared.http.idle_timeout,
        write: shared.http.body_idle_timeout,
    };
    let activity = Arc::new(Activity::default());
    let socket = Socket::new(stream, Arc::clone(&activity), patience);
    let peer = socket.peer();
    let socket = TokioIo::new(socket);
    let service = service_fn(|request: Request<Incoming>| {
        let under_way = activity.start();
        let shared = Arc::clone(&shared);
        // In HTTP/2 the library sees that the peer is gone, and drops the request.
        let peer = (request.version() < Version::HTTP_2).then(|| peer.clone());
        async move {
            let answer = flow::answer(shared, request, (peer, from)).await;
            Ok::<_, Infallible>(answer.map(|body| body.during(under_way)))
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
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_over_the_cap_is_whole() {
        let text = std::str::from_utf8(OVER_CAP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["code"], "unavailable");
    }
}
