//! Calls of other nodes, over HTTP: one request of bytes, one answer of bytes, with the secret of the
//! cluster on it.
//!
//! Whether a request that failed can have been read by the other side is always known: before its
//! first byte was handed to a connection it cannot, afterwards it may.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use punctual_cluster::routing::wire::BYTES_MAX;
use punctual_cluster::routing::{PeerError, Peers};
use punctual_model::{Buckets, Histogram};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use url::{Host, Url};

use crate::config::ClusterConfig;
use crate::push::{TrustError, client_tls, read_authorities};

/// Where nodes call each other.
pub(crate) const PATH: &str = "/internal/v1/timeline";
/// The header in which a node shows the secret of its cluster. It is there on every call, so that
/// no web page can make one.
pub(crate) const SECRET: HeaderName = HeaderName::from_static("punctual-cluster-secret");
/// What the bodies are.
pub(crate) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Longest time from the wish for a connection to its readiness.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections to one node that wait for their next call.
const IDLE_MAX: usize = 32;
/// A connection that waited longer is not used again; the other side closes it not much later.
const IDLE_FOR: Duration = Duration::from_secs(20);
/// Bounds of the histogram of how long calls took.
const BOUNDS_MICROS: &[u64] = &[
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    10_000_000,
];
/// Nodes whose connections are kept.
const NODES_MAX: usize = 2048;

/// Calls other nodes.
pub(crate) struct HttpPeers {
    inner: Arc<Inner>,
}

struct Inner {
    secret: HeaderValue,
    authorities: Vec<CertificateDer<'static>>,
    tls: OnceCell<TlsConnector>,
    idle: Mutex<HashMap<Arc<str>, Vec<Idle>>>,
    /// Where the bytes of connections are moved.
    tasks: Handle,
    latency: Histogram,
}

struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl HttpPeers {
    /// Reads the certificates that are trusted.
    ///
    /// # Errors
    /// [`TrustError`] when they cannot be read.
    pub(crate) fn new(config: &ClusterConfig, tasks: Handle) -> Result<Self, TrustError> {
        let read = |path: &PathBuf| {
            read_authorities(path).map_err(|reason| TrustError { path: path.clone(), reason })
        };
        let authorities = config.ca_file.as_ref().map(read).transpose()?.unwrap_or_default();
        let text = config.secret.as_ref().map_or("none", |secret| secret.text());
        let mut secret = HeaderValue::from_str(text).expect("its characters are visible ones");
        secret.set_sensitive(true);
        let (tls, idle, latency) =
            (OnceCell::new(), Mutex::default(), Histogram::new(BOUNDS_MICROS));
        let inner = Inner { secret, authorities, tls, idle, tasks, latency };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How long calls took.
    pub(crate) fn latency(&self) -> Buckets {
        self.inner.latency.read()
    }
}

impl fmt::Debug for HttpPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpPeers")
    }
}

impl Peers for HttpPeers {
    fn call(
        &self,
        address: Arc<str>,
        request: Bytes,
        within: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, PeerError>> + Send>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let begun = Instant::now();
            let answer = timeout(within, inner.exchange(address, request)).await;
            let answer = answer.unwrap_or_else(|_late| {
                Err(PeerError::Unanswered(format!("no answer within {within:?}").into()))
            });
            inner.latency.note(begun.elapsed());
            answer
        })
    }
}

fn not_sent(why: impl fmt::Display) -> PeerError {
    PeerError::NotSent(why.to_string().into())
}

fn unanswered(why: impl fmt::Display) -> PeerError {
    PeerError::Unanswered(why.to_string().into())
}

impl Inner {
    async fn exchange(&self, address: Arc<str>, body: Bytes) -> Result<Bytes, PeerError> {
        let url = Url::parse(&address).map_err(not_sent)?;
        let mut request = self.request(&url, body)?;
        while let Some(mut sender) = self.waiting(&address) {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return self.finish(address, sender, response).await,
                // It was closed while it waited, before anything of this was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(unanswered(error.error())),
                },
            }
        }
        let opening = timeout(CONNECT_TIMEOUT, self.connect(&url)).await;
        let mut sender = opening
            .map_err(|_late| not_sent("no connection in time"))?
            .map_err(|error| not_sent(format_args!("{address}: {error}")))?;
        match sender.try_send_request(request).await {
            Ok(response) => self.finish(address, sender, response).await,
            Err(mut error) => match error.take_message() {
                Some(_unsent) => Err(not_sent(error.error())),
                None => Err(unanswered(error.error())),
            },
        }
    }

    fn request(&self, url: &Url, body: Bytes) -> Result<Request<Full<Bytes>>, PeerError> {
        let host = url.host_str().ok_or_else(|| not_sent("no host"))?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(HOST, host)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .header(SECRET, self.secret.clone())
            .body(Full::new(body))
            .map_err(not_sent)
    }

    /// A connection that waited for its next call.
    fn waiting(&self, address: &str) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        let connections = idle.get_mut(address)?;
        while let Some(one) = connections.pop() {
            if one.since.elapsed() < IDLE_FOR && !one.sender.is_closed() {
                return Some(one.sender);
            }
        }
        None
    }

    async fn connect(&self, url: &Url) -> io::Result<SendRequest<Full<Bytes>>> {
        let missing = || io::Error::other("the address has no host or port");
        let port = url.port_or_known_default().ok_or_else(missing)?;
        let host = url.host().ok_or_else(missing)?;
        let stream = match &host {
            Host::Domain(name) => TcpStream::connect((*name, port)).await?,
            Host::Ipv4(address) => TcpStream::connect((*address, port)).await?,
            Host::Ipv6(address) => TcpStream::connect((*address, port)).await?,
        };
        stream.set_nodelay(true)?;
        if url.scheme() != "https" {
            return self.handshake(TokioIo::new(stream)).await;
        }
        let name = match host {
            Host::Domain(name) => {
                ServerName::try_from(name.to_owned()).map_err(io::Error::other)?
            }
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::V4(address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::V6(address)),
        };
        let make = || async {
            let authorities = self.authorities.clone();
            let made = tokio::task::spawn_blocking(move || client_tls(authorities)).await;
            made.map_err(io::Error::other)?.map_err(io::Error::other)
        };
        let tls = self.tls.get_or_try_init(make).await?;
        self.handshake(TokioIo::new(tls.connect(name, stream).await?)).await
    }

    async fn handshake<S>(&self, stream: S) -> io::Result<SendRequest<Full<Bytes>>>
    where
        S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        // It ends with its sender, which nobody keeps past the end of the server.
        self.tasks.spawn(async move {
            // How it ended is told to whoever waits for an answer on it.
            drop(connection.await);
        });
        Ok(sender)
    }

    async fn finish(
        &self,
        address: Arc<str>,
        sender: SendRequest<Full<Bytes>>,
        response: Response<Incoming>,
    ) -> Result<Bytes, PeerError> {
        let status = response.status();
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        let body = body.map_err(unanswered)?.to_bytes();
        self.keep(address, sender);
        match status {
            StatusCode::OK => Ok(body),
            // Whoever answers so has done nothing.
            StatusCode::UNAUTHORIZED => Err(not_sent("it has another cluster.secret")),
            status => Err(not_sent(format_args!("it answered {status}"))),
        }
    }

    fn keep(&self, address: Arc<str>, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        if idle.len() >= NODES_MAX && !idle.contains_key(&address) {
            // Nodes that are long gone; those that are not get new connections.
            idle.clear();
        }
        let connections = idle.entry(address).or_default();
        if connections.len() < IDLE_MAX {
            connections.push(Idle { sender, since: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{Config, ConfigFile, Source};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn peers() -> HttpPeers {
        let mut file = ConfigFile::default();
        let secret = "0123456789abcdef".to_owned();
        file.set("cluster.secret", secret, Source::Flag("test")).unwrap();
        let config = Config::try_from(&file).unwrap();
        HttpPeers::new(&config.cluster, Handle::current()).unwrap()
    }

    /// Another node that takes one call on each connection and says what is written here, if anything.
    async fn node(says: &'static [&'static str]) -> (Arc<str>, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).into();
        let serving = async move {
            let mut heard = String::new();
            for answer in says {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut piece = [0; 4096];
                while !heard.ends_with("hello") {
                    let count = stream.read(&mut piece).await.unwrap();
                    heard.push_str(&String::from_utf8_lossy(&piece[..count]));
                }
                heard.push('\n');
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            heard
        };
        (address, Handle::current().spawn(serving))
    }

    async fn call(peers: &HttpPeers, address: &Arc<str>) -> Result<Bytes, PeerError> {
        peers.call(Arc::clone(address), Bytes::from_static(b"hello"), PATIENCE).await
    }

    #[tokio::test]
    async fn a_call_shows_the_secret_and_brings_the_answer() {
        let (address, node) = node(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes"]).await;
        assert_eq!(call(&peers(), &address).await, Ok(Bytes::from_static(b"yes")));
        let heard = node.await.unwrap();
        assert!(heard.starts_with("POST /internal/v1/timeline HTTP/1.1\r\n"), "{heard}");
        assert!(heard.contains("punctual-cluster-secret: 0123456789abcdef\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn nobody_there_means_that_nothing_was_done() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
        drop(listener);
        let refused = call(&peers(), &address).await;
        assert!(matches!(refused, Err(PeerError::NotSent(_))), "{refused:?}");
        let nonsense = call(&peers(), &"nowhere".into()).await;
        assert!(matches!(nonsense, Err(PeerError::NotSent(_))), "{nonsense:?}");
    }

    #[tokio::test]
    async fn a_refusal_means_that_nothing_was_done() {
        const REFUSAL: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        let (address, _node) = node(&[REFUSAL]).await;
        let refused = call(&peers(), &address).await.unwrap_err();
        assert!(matches!(&refused, PeerError::NotSent(why) if why.contains("cluster.secret")));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_after_the_request_leaves_doubt() {
        let (address, _node) = node(&[""]).await;
        let broken = call(&peers(), &address).await;
        assert!(matches!(broken, Err(PeerError::Unanswered(_))), "{broken:?}");
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_while_it_waited_is_not_a_failure() {
        const YES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";
        let (address, node) = node(&[YES, YES]).await;
        let peers = peers();
        assert_eq!(call(&peers, &address).await, Ok(Bytes::from_static(b"yes")));
        let closed = || peers.inner.idle.lock()[&address].iter().all(|one| one.sender.is_closed());
        let seen = async {
            while !closed() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, seen).await.unwrap();
        assert_eq!(call(&peers, &address).await, Ok(Bytes::from_static(b"yes")));
        node.await.unwrap();
    }
}
