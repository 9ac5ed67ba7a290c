//! Accepts Kafka clients: never more than there are places, each with its deadlines, all ended at
//! shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use crate::config::KafkaConfig;
use crate::kafka::connection;
use crate::kafka::shared::Kafka;
use crate::net::{Limits, Opened, Seat, accept, open};
use crate::tls::Acceptor;

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
        let patience = kafka.live().config.tls.as_ref().map(|tls| tls.handshake_timeout);
        let stream = match open(stream, tls.as_deref(), patience, &kafka.tasks).await {
            Opened::Ready(stream) => stream,
            Opened::Plain(_) => {
                debug!("a Kafka client does not speak TLS, which this port does");
                return;
            }
            Opened::Lost => return,
        };
        connection::serve(stream, (from, local), kafka, &seat).await;
    };
    tokio::select! {
        biased;
        () = place.gives_way() => debug!(%from, "a silent Kafka client gave way"),
        () = served => {}
    }
}
