//! The listeners: their addresses are taken before anything else is done, and served once all of it
//! is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::app::ServeError;
use crate::config::{Config, TlsConfig};
use crate::http::listener;
use crate::http::shared::Shared;
use crate::kafka::{self, ClusterId, Kafka};
use crate::net;
use crate::tls::Acceptor;

/// The addresses of this server, taken.
pub(super) struct Listeners {
    http: Listener,
    kafka: Option<Listener>,
}

/// An address, taken.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    address: SocketAddr,
    pub(super) tls: Option<Arc<Acceptor>>,
}

impl Listeners {
    /// Takes the addresses and reads the certificates.
    pub(super) fn take(config: &Config) -> Result<Self, ServeError> {
        let address = config.http.listen;
        let http = Listener::take(address, config.tls.as_ref(), listener::PROTOCOLS)?
            .map_err(|error| ServeError::Listen { address, error })?;
        let kafka = match config.kafka.listen {
            None => None,
            Some(address) => {
                let taken = Listener::take(address, config.tls.as_ref(), &[])?;
                Some(taken.map_err(|error| ServeError::ListenKafka { address, error })?)
            }
        };
        Ok(Self { http, kafka })
    }

    /// Where HTTP is answered.
    pub(super) const fn http(&self) -> SocketAddr {
        self.http.address
    }

    /// The listener for HTTP.
    #[cfg(feature = "cluster")]
    pub(super) const fn http_listener(&self) -> &Listener {
        &self.http
    }

    /// Where Kafka clients are answered.
    pub(super) fn kafka(&self) -> Option<SocketAddr> {
        self.kafka.as_ref().map(|listener| listener.address)
    }

    /// Serves on all of them.
    pub(super) fn serve(self, shared: &Arc<Shared>, cluster: ClusterId) {
        let tasks = &shared.tasks;
        shared.address.get_or_init(|| self.http.address);
        self.http.follow_files(shared);
        tasks.spawn(listener::run(self.http.socket, self.http.tls, Arc::clone(shared)));
        let Some(listener) = self.kafka else { return };
        listener.follow_files(shared);
        let Listener { socket, address, tls } = listener;
        let kafka = Kafka::new(Arc::clone(shared), address, cluster, tls.is_some());
        tasks.spawn(kafka::run(socket, tls, Arc::new(kafka)));
    }
}

impl Listener {
    fn take(
        address: SocketAddr,
        tls: Option<&TlsConfig>,
        protocols: &[&[u8]],
    ) -> Result<io::Result<Self>, ServeError> {
        let tls = tls.map(|tls| Acceptor::open(tls, protocols)).transpose()?.map(Arc::new);
        let taken = net::bind(address);
        let taken = taken.and_then(|socket| Ok((socket.local_addr()?, socket)));
        Ok(taken.map(|(address, socket)| Self { socket, address, tls }))
    }

    /// Certificates change when somebody asks, and when their files do.
    fn follow_files(&self, shared: &Shared) {
        let Some(tls) = &self.tls else { return };
        shared.tasks.spawn(Arc::clone(tls).watch(shared.tasks.clone()));
        let tls = Arc::clone(tls);
        // What is wrong with the files is in the log.
        shared.live.follow(move |_| drop(tls.reload()));
    }
}
