//! Accepts Kafka clients: never more than there are places, each with its deadlines, all ended at
//! shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use crate::config::KafkaConfig;
use crate::kafka::connection;
use crate::kafka::shared::Kafka;
use crate::net::{Limits, Seat, Stream, accept};
use crate::tls::{Acceptor, HandshakeError};

/// Accepts until the tasks are asked to stop.
pub(crate) async fn run(listener: TcpListener, tls: Option<Arc<Acceptor>>, kafka: Arc<Kafka>) {
    while let Some((stream, from)) = accept(&listener, &kafka.places, &kafka.tasks).await {
        let limits = limits(&kafka.live().config.kafka);
        match kafka.places.take(from.ip(), limits) {
            Some(seat) => {
                let (tls, kafka) = (tls.clone(), Arc::clone(&kafka));
                let tasks = kafka.tasks.clone();
                tasks.spawn(admitted((stream, from), tls, kafka, seat));
            }
            None => debug!(%from, "there was no place for a Kafka client"),
        }
    }
}

const fn limits(kafka: &KafkaConfig) -> Limits {
    Limits { all: kafka.connections_max, per_address: kafka.connections_per_address_max }
}

/// Whoever has to give its place to somebody else ends at once: nothing of it was let in.
async fn admitted(
    (stream, from): (TcpStream, SocketAddr),
    tls: Option<Arc<Acceptor>>,
    kafka: Arc<Kafka>,
    seat: Seat,
) {
    let local = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let local = match local {
        Ok(local) => local,
        Err(error) => {
            debug!(%error, "a connection was lost at once");
            return;
        }
    };
    let place = Arc::clone(seat.place());
    let served = async {
        let stream = match &tls {
            None => Stream::Plain(stream),
            Some(tls) => match encrypted(stream, tls, &kafka).await {
                Some(stream) => stream,
                None => return,
            },
        };
        connection::serve(stream, (from, local), kafka, &seat).await;
    };
    tokio::select! {
        biased;
        () = place.gives_way() => debug!(%from, "a silent Kafka client gave way"),
        () = served => {}
    }
}

/// The same connection, encrypted; `None` when that did not come about.
async fn encrypted(stream: TcpStream, tls: &Acceptor, kafka: &Kafka) -> Option<Stream> {
    let patience = kafka.live().config.tls.as_ref().map(|tls| tls.handshake_timeout);
    let agreed = tokio::select! {
        agreed = tls.accept(stream, patience.unwrap_or_default()) => agreed,
        () = kafka.tasks.stopped() => return None,
    };
    match agreed {
        Ok(stream) => Some(Stream::Tls(Box::new(stream))),
        Err(HandshakeError::Plain(_)) => {
            debug!("a Kafka client does not speak TLS, which this port does");
            None
        }
        Err(HandshakeError::Late) => {
            debug!("a handshake took too long");
            None
        }
        Err(HandshakeError::Failed(error)) => {
            debug!(%error, "a handshake failed");
            None
        }
    }
}
