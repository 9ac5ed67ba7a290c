//! Takes addresses, and the connections that come to them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::{debug, warn};

use crate::net::{Places, Stream};
use crate::tasks::Tasks;
use crate::tls::{Acceptor, HandshakeError};

/// Connections that the operating system keeps for us until we accept them.
const BACKLOG: u32 = 4096;
/// Pause after the operating system refused a connection, mostly for want of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// What became of a connection that was accepted.
pub(crate) enum Opened {
    /// Bytes can be read, encrypted if the listener is.
    Ready(Stream),
    /// It does not speak TLS, which the listener does; what it has sent is still unread.
    Plain(TcpStream),
    /// It is gone, took too long or did not agree, or the tasks are asked to stop.
    Lost,
}

/// Encrypts the connection, if the listener does, within `patience`.
pub(crate) async fn open(
    stream: TcpStream,
    tls: Option<&Acceptor>,
    patience: Option<Duration>,
    tasks: &Tasks,
) -> Opened {
    let Some(tls) = tls else { return Opened::Ready(Stream::Plain(stream)) };
    let agreed = tokio::select! {
        agreed = tls.accept(stream, patience.unwrap_or_default()) => agreed,
        () = tasks.stopped() => return Opened::Lost,
    };
    match agreed {
        Ok(stream) => Opened::Ready(Stream::Tls(Box::new(stream))),
        Err(HandshakeError::Plain(stream)) => Opened::Plain(stream),
        Err(HandshakeError::Late) => {
            debug!("a handshake took too long");
            Opened::Lost
        }
        Err(HandshakeError::Failed(error)) => {
            debug!(%error, "a handshake failed");
            Opened::Lost
        }
    }
}

/// Takes the address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Or a server that was just stopped could not be started again.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection; `None` when the tasks are asked to stop.
pub(crate) async fn accept(
    listener: &TcpListener,
    places: &Places,
    tasks: &Tasks,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tasks.stopped() => return None,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => {
                let made_room = places.make_room();
                warn!(%error, made_room, "a connection could not be accepted");
                // Stopped meanwhile or not: the loop looks.
                let _stopped = tokio::time::timeout(REFUSED_PAUSE, tasks.stopped()).await;
            }
        }
    }
}
