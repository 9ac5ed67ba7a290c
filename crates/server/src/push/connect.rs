//! Opens connections to endpoints: a name is resolved once, every address it has is checked, and
//! exactly one of the checked addresses is connected to.
//!
//! So neither a name that means something inside nor one that changes its meaning between check
//! and use leads anywhere else. Everything is over within [`CONNECT_TIMEOUT`].

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tracing::warn;
use url::Host;

use crate::config::PushConfig;
use crate::push::endpoint::{Allowed, Endpoint, EndpointError};

/// Longest time from the wish for a connection to its readiness, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of several addresses of one name, at most this many are tried.
const ADDRESSES_TRIED_MAX: usize = 3;
/// Time for all addresses; the rest is for TLS.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);
/// Most names resolved at one time. Each takes a thread, for as long as the resolver likes.
const LOOKUPS_MAX: usize = 16;

/// What a connection runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why there is no connection. The texts are kept with the message; they name no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("the endpoint is refused: {0}")]
    Refused(#[from] EndpointError),
    #[error("the name of the endpoint cannot be resolved")]
    Unresolved,
    #[error("cannot connect: {0}")]
    Unreached(io::ErrorKind),
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    Late,
}

/// Why the certificates to trust could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot read certificates from {}: {reason}", path.display())]
pub struct TrustError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Opens connections for all groups.
pub(crate) struct Connector {
    /// What may be reached though it is not public.
    allowed: watch::Sender<Allowed>,
    /// Trusted besides those of the system.
    authorities: Vec<CertificateDer<'static>>,
    tls: OnceCell<TlsConnector>,
    lookups: Arc<Semaphore>,
    resolve: Arc<Resolve>,
}

impl Connector {
    /// A connector that trusts the system's certificates and those in the configured file, which
    /// it reads.
    pub(crate) fn new(config: &PushConfig) -> Result<Self, TrustError> {
        let read = |path: &PathBuf| {
            read_authorities(path).map_err(|reason| TrustError { path: path.clone(), reason })
        };
        let authorities = config.ca_file.as_ref().map(read).transpose()?.unwrap_or_default();
        Ok(Self {
            allowed: watch::Sender::new(config.allow.clone()),
            authorities,
            tls: OnceCell::new(),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            resolve: Arc::new(|name, port| Ok((name, port).to_socket_addrs()?.collect())),
        })
    }

    /// The endpoint at this address, if it may be one.
    pub(crate) fn endpoint(&self, url: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::read(url, &self.allowed.borrow())
    }

    /// From now on this may be reached, and nothing else that is not public.
    pub(crate) fn allow(&self, allowed: &Allowed) {
        self.allowed.send_if_modified(|present| {
            let changed = present != allowed;
            if changed {
                present.clone_from(allowed);
            }
            changed
        });
    }

    /// Tells when what may be reached has changed.
    pub(crate) fn allowed(&self) -> watch::Receiver<Allowed> {
        self.allowed.subscribe()
    }

    /// A connection to the endpoint, ready for a request.
    pub(crate) async fn connect(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let opening = tokio::time::timeout(CONNECT_TIMEOUT, self.open(endpoint));
        opening.await.unwrap_or(Err(ConnectError::Late))
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Box<dyn Stream>, ConnectError> {
        let addresses = self.addresses(endpoint).await?;
        for address in &addresses {
            endpoint.check(address.ip(), &self.allowed.borrow())?;
        }
        let stream = reach(&addresses).await?;
        // Without it answers come later, no more.
        let _slower = stream.set_nodelay(true).is_err();
        if !endpoint.secure {
            return Ok(Box::new(stream));
        }
        let name = server_name(&endpoint.host).ok_or(ConnectError::Unresolved)?;
        let tls = self.tls().await?;
        let stream = tls.connect(name, stream).await.map_err(ConnectError::Tls)?;
        Ok(Box::new(stream))
    }

    async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ConnectError> {
        let port = endpoint.port;
        let name = match &endpoint.host {
            Host::Ipv4(address) => return Ok(vec![SocketAddr::new((*address).into(), port)]),
            Host::Ipv6(address) => return Ok(vec![SocketAddr::new((*address).into(), port)]),
            Host::Domain(name) => name.clone(),
        };
        let place = Arc::clone(&self.lookups).acquire_owned().await;
        let resolve = Arc::clone(&self.resolve);
        // Not waited for at shutdown: a resolver may take its time, and nothing depends on it.
        let looked_up = tokio::task::spawn_blocking(move || {
            let addresses = resolve(&name, port);
            drop(place);
            addresses
        });
        match looked_up.await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            _ => Err(ConnectError::Unresolved),
        }
    }

    /// Reads the system's certificates at the first use: not everybody pushes.
    async fn tls(&self) -> Result<TlsConnector, ConnectError> {
        let make = || async {
            let authorities = self.authorities.clone();
            let made = tokio::task::spawn_blocking(move || client_tls(authorities)).await;
            made.unwrap_or_else(|broken| Err(rustls::Error::General(broken.to_string())))
        };
        let tls = self.tls.get_or_try_init(make).await;
        tls.cloned().map_err(|error| ConnectError::Tls(io::Error::other(error)))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

fn server_name(host: &Host<String>) -> Option<ServerName<'static>> {
    match host {
        // A final dot is for the resolver; certificates are written without it.
        Host::Domain(name) => ServerName::try_from(name.trim_end_matches('.').to_owned()).ok(),
        Host::Ipv4(address) => {
            Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V4(*address))))
        }
        Host::Ipv6(address) => {
            Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V6(*address))))
        }
    }
}

/// Connects to the first address that answers.
async fn reach(addresses: &[SocketAddr]) -> Result<TcpStream, ConnectError> {
    let tried = &addresses[..addresses.len().min(ADDRESSES_TRIED_MAX)];
    let share = REACH_TIMEOUT / u32::try_from(tried.len().max(1)).unwrap_or(1);
    let mut failed = ConnectError::Unresolved;
    for address in tried {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = ConnectError::Unreached(error.kind()),
            Err(_late) => failed = ConnectError::Unreached(io::ErrorKind::TimedOut),
        }
    }
    Err(failed)
}

/// The certificates in a file, each of which can be trusted.
pub(crate) fn read_authorities(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let authorities = read.map_err(|error| error.to_string())?;
    if authorities.is_empty() {
        return Err("there is none in it".to_owned());
    }
    // Refused now rather than at the first push.
    roots(authorities.clone()).map_err(|error| error.to_string())?;
    Ok(authorities)
}

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority)?;
    }
    Ok(roots)
}

/// Trusts the system's certificates, which it reads, and these; blocks on the disk.
pub(crate) fn client_tls(
    authorities: Vec<CertificateDer<'static>>,
) -> Result<TlsConnector, rustls::Error> {
    let mut roots = roots(authorities)?;
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        warn!(%error, "some of the system's certificates could not be read");
    }
    let (_usable, unusable) = roots.add_parsable_certificates(system.certs);
    if unusable > 0 {
        warn!(unusable, "some of the system's certificates are of no use");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::*;

    fn resolving(
        allow: &str,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Connector {
        let config =
            PushConfig { allow: Allowed::read(allow).unwrap(), ca_file: None, check_secret: None };
        let mut connector = Connector::new(&config).unwrap();
        connector.resolve = Arc::new(resolve);
        connector
    }

    async fn connect(connector: &Connector, url: &str) -> Result<(), ConnectError> {
        let endpoint = connector.endpoint(url).unwrap();
        connector.connect(&endpoint).await.map(drop)
    }

    #[tokio::test]
    async fn g46_a_name_that_leads_inside_is_never_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for inside in [
            vec!["127.0.0.1"],
            vec!["::ffff:127.0.0.1"],
            vec!["8.8.8.8", "127.0.0.1"],
            vec!["127.0.0.1", "8.8.8.8"],
            vec!["0.0.0.0"],
        ] {
            let addresses = inside.clone();
            let connector = resolving("", move |_name, port| {
                Ok(addresses
                    .iter()
                    .map(|address| SocketAddr::new(address.parse().unwrap(), port))
                    .collect())
            });
            let outcome = connect(&connector, &format!("http://hooks.example:{port}/")).await;
            assert!(matches!(outcome, Err(ConnectError::Refused(_))), "{inside:?} {outcome:?}");
        }
        let knocked = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(knocked.is_err(), "somebody connected");
    }

    #[tokio::test]
    async fn g46_a_name_is_resolved_once_and_what_was_checked_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // Allowed the first time it is asked, something else every time after.
        let connector = resolving("127.0.0.1/32", move |_name, port| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let address = if first { "127.0.0.1" } else { "127.0.0.2" };
            Ok(vec![SocketAddr::new(address.parse().unwrap(), port)])
        });
        let url = format!("http://hooks.example:{port}/");
        connect(&connector, &url).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let again = connect(&connector, &url).await;
        assert!(matches!(again, Err(ConnectError::Refused(_))), "{again:?}");
    }

    #[tokio::test]
    async fn another_address_of_the_name_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connector = resolving("127.0.0.0/8", |_name, port| {
            let addresses = ["127.0.0.9", "127.0.0.1"];
            Ok(addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect())
        });
        connect(&connector, &format!("http://hooks.example:{port}/")).await.unwrap();
    }

    #[tokio::test]
    async fn a_name_without_address_is_an_error() {
        for answer in [true, false] {
            let connector = resolving("", move |_name, _port| {
                if answer { Ok(Vec::new()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
            let outcome = connect(&connector, "http://hooks.example/").await;
            assert!(matches!(outcome, Err(ConnectError::Unresolved)), "{outcome:?}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let config = PushConfig {
            allow: Allowed::default(),
            ca_file: Some(path.clone()),
            check_secret: None,
        };
        assert!(Connector::new(&config).is_err());
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&path, text).unwrap();
            let error = Connector::new(&config).unwrap_err();
            assert!(error.to_string().contains("ca.pem"), "{error}");
        }
    }
}
