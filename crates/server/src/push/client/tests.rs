//! Does a request end, in time and within bounds, whatever the endpoint does?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;
use crate::config::PushConfig;
use crate::push::connect::Stream;
use crate::push::endpoint::Allowed;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

/// An endpoint that treats every connection in one way. Stops when it is dropped.
struct Host {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

async fn host<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Host
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _peer) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            open.spawn(serve(stream));
        }
    });
    Host { address, connections, _serving: serving }
}

impl Host {
    fn client(&self, timeout: Duration) -> Client {
        client(&format!("http://{}/in", self.address), None, timeout)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn client(url: &str, ca_file: Option<PathBuf>, timeout: Duration) -> Client {
    let allowed = Allowed::read("127.0.0.0/8, [::1]:*, localhost:*").unwrap();
    let endpoint = Endpoint::read(url, &allowed).unwrap();
    let connector =
        Connector::new(&PushConfig { allow: allowed, ca_file, check_secret: None }).unwrap();
    Client::new(Arc::new(connector), endpoint, timeout)
}

fn request() -> Request<Full<Bytes>> {
    let request = Request::post("/in").header("host", "x").body(Full::new("hello".into()));
    request.unwrap()
}

/// Reads one request with the body `hello`. False at the end of the connection.
async fn read_request(stream: &mut dyn Stream) -> bool {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\nhello") {
        match stream.read_u8().await {
            Ok(byte) => text.push(byte),
            Err(_ended) => return false,
        }
    }
    true
}

/// Answers every request of a connection alike.
async fn answer_all(mut stream: impl Stream, answer: &'static str) {
    while read_request(&mut stream).await {
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn an_answer_is_read_and_its_connection_used_again() {
    let host = host(|stream| {
        answer_all(stream, "HTTP/1.1 500 Oh\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy")
    })
    .await;
    let client = host.client(LONG);
    for _ in 0..5 {
        let answer = client.send(request()).await.unwrap();
        assert_eq!(answer.status, 500);
        assert_eq!(answer.retry_after.unwrap(), "7");
        assert_eq!(answer.excerpt, b"busy");
        assert!(answer.whole);
    }
    assert_eq!(host.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_nobody_needs_is_closed() {
    let (closed, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let host = host(move |stream| {
        let closed = closed.clone();
        async move {
            answer_all(stream, "HTTP/1.1 204 Done\r\n\r\n").await;
            closed.send(()).unwrap();
        }
    })
    .await;
    let client = host.client(LONG);
    client.send(request()).await.unwrap();
    client.close_idle();
    assert_eq!(client.idle.lock().len(), 1, "it is fresh");
    client.idle.lock()[0].used -= IDLE_MAX;
    client.close_idle();
    tokio::time::timeout(LONG, ended.recv()).await.expect("it is closed");
    client.send(request()).await.unwrap();
    assert_eq!(host.connections(), 2);
}

#[tokio::test]
async fn requests_at_the_same_time_have_connections_of_their_own() {
    let host = host(|stream| answer_all(stream, "HTTP/1.1 204 Done\r\n\r\n")).await;
    let client = Arc::new(host.client(LONG));
    let mut sending = JoinSet::new();
    for _ in 0..8 {
        let client = Arc::clone(&client);
        sending.spawn(async move { client.send(request()).await.unwrap().status });
    }
    assert!(sending.join_all().await.iter().all(|status| status.is_success()));
    assert!(host.connections() <= 8);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_waited_does_no_harm() {
    // Closes after one answer without having said so.
    let host = host(|mut stream| async move {
        if read_request(&mut stream).await {
            stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let client = host.client(LONG);
    for _ in 0..5 {
        assert_eq!(client.send(request()).await.unwrap().status, 204);
    }
    assert_eq!(host.connections(), 5);
}

#[tokio::test]
async fn g46_a_redirect_is_not_followed() {
    let target = host(|stream| answer_all(stream, "HTTP/1.1 204 Done\r\n\r\n")).await;
    let address = target.address;
    for status in [301, 302, 303, 307, 308] {
        let host = host(move |mut stream| async move {
            if read_request(&mut stream).await {
                let answer = format!(
                    "HTTP/1.1 {status} There\r\nlocation: http://{address}/\r\ncontent-length: 0\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        assert_eq!(host.client(LONG).send(request()).await.unwrap().status, status);
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_is_given_up() {
    let silent = host(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let outcome = silent.client(SHORT).send(request()).await;
    assert!(matches!(outcome, Err(SendError::Late(_))), "{outcome:?}");
}

#[tokio::test]
async fn an_endpoint_that_trickles_is_given_up() {
    for start in ["HTTP/1.1 200 OK\r\nx: ", "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"] {
        let host = host(move |mut stream| async move {
            read_request(&mut stream).await;
            let mut text = start;
            while stream.write_all(text.as_bytes()).await.is_ok() {
                text = "x";
                let mut beat = tokio::time::interval(Duration::from_millis(20));
                beat.tick().await;
                beat.tick().await;
            }
        })
        .await;
        let outcome = host.client(SHORT).send(request()).await;
        assert!(matches!(outcome, Err(SendError::Late(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2540BE400\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
    ] {
        let count = Arc::clone(&sent);
        count.store(0, Ordering::SeqCst);
        let (closed, hung_up) = tokio::sync::mpsc::unbounded_channel();
        let mut hung_up = hung_up;
        let host = host(move |mut stream| {
            let (count, closed) = (Arc::clone(&count), closed.clone());
            async move {
                read_request(&mut stream).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                while stream.write_all(&[b'x'; 16 << 10]).await.is_ok() {
                    count.fetch_add(16 << 10, Ordering::SeqCst);
                }
                closed.send(()).unwrap();
            }
        })
        .await;
        let answer = host.client(LONG).send(request()).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(!answer.whole);
        assert_eq!(answer.excerpt.len(), EXCERPT_BYTES_MAX);
        tokio::time::timeout(LONG, hung_up.recv()).await.expect("the connection is closed");
        // What fits the buffers of two sockets may have left the endpoint, no more.
        assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{sent:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_no_answer() {
    let many: String = (0..200).map(|number| format!("x{number}: y\r\n")).collect();
    for fields in [format!("x: {}\r\n", "y".repeat(20 << 10)), many] {
        let answer: &'static str =
            format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n").leak();
        let host = host(move |stream| answer_all(stream, answer)).await;
        let outcome = host.client(LONG).send(request()).await;
        assert!(matches!(outcome, Err(SendError::Http(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    for nonsense in [
        "",
        "hello\r\n\r\n",
        "HTTP/1.1 999999 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ] {
        let host = host(move |mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(nonsense.as_bytes()).await.unwrap();
        })
        .await;
        let outcome = host.client(LONG).send(request()).await;
        let done = outcome.as_ref().is_ok_and(|answer| answer.status.is_success());
        assert!(!done, "{nonsense:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn nobody_listening_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let outcome = client(&format!("http://{address}/"), None, LONG).send(request()).await;
    assert!(matches!(outcome, Err(SendError::Connect(ConnectError::Unreached(_)))), "{outcome:?}");
}

/// An endpoint with TLS for `name`, signed by an authority of its own, and that authority's file.
async fn secure_host(name: &str, directory: &tempfile::TempDir) -> (Host, PathBuf) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let host = host(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                answer_all(stream, "HTTP/1.1 204 Done\r\n\r\n").await;
            }
        }
    })
    .await;
    (host, path)
}

#[tokio::test]
async fn tls_works_with_an_authority_of_ones_own() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["localhost", "127.0.0.1"] {
        let (host, path) = secure_host(name, &directory).await;
        let url = format!("https://{name}:{}/", host.address.port());
        let client = client(&url, Some(path), LONG);
        for _ in 0..2 {
            assert_eq!(client.send(request()).await.unwrap().status, 204, "{name}");
        }
        assert_eq!(host.connections(), 1);
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_a_stranger_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (host, path) = secure_host("hooks.example", &directory).await;
    let url = format!("https://localhost:{}/", host.address.port());
    let refused = |outcome: Result<Answer, SendError>| {
        assert!(matches!(outcome, Err(SendError::Connect(ConnectError::Tls(_)))), "{outcome:?}");
    };
    refused(client(&url, Some(path), LONG).send(request()).await);
    let (host, _path) = secure_host("localhost", &directory).await;
    let url = format!("https://localhost:{}/", host.address.port());
    refused(client(&url, None, LONG).send(request()).await);
}

#[tokio::test]
async fn an_endpoint_that_never_answers_the_handshake_is_given_up() {
    let silent = host(|stream| async move {
        let _open = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let url = format!("https://{}/", silent.address);
    let outcome = client(&url, None, SHORT).send(request()).await;
    assert!(matches!(outcome, Err(SendError::Late(_))), "{outcome:?}");
}
