//! Is HTTP/2 answered like HTTP/1, and bounded like it? (G50)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use support::{PATIENCE, Server};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A connection that starts with HTTP/2; the task ends with the connection.
struct Peer {
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

async fn connect(server: &Server) -> Peer {
    let stream = TcpStream::connect(server.address).await.expect("it listens");
    let (send, connection) = h2::client::handshake(stream).await.expect("it takes HTTP/2");
    Peer { send, connection: tokio::spawn(connection) }
}

impl Peer {
    async fn ask(&mut self, request: Request<()>, body: &'static str) -> Answer {
        let mut send = self.send.clone().ready().await.expect("it is open");
        let (answer, mut stream) = send.send_request(request, body.is_empty()).expect("it is open");
        if !body.is_empty() {
            stream.send_data(Bytes::from_static(body.as_bytes()), true).expect("it is open");
        }
        let (parts, mut content) = answer.await.expect("an answer").into_parts();
        let mut body = Vec::new();
        while let Some(piece) = content.data().await {
            let piece = piece.expect("a whole answer");
            content.flow_control().release_capacity(piece.len()).expect("it was taken");
            body.extend_from_slice(&piece);
        }
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.ask(request("GET", path), "").await
    }
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(format!("http://localhost{path}"))
        .header("content-type", "application/json")
        .body(())
        .expect("a request")
}

fn run(test: impl Future<Output = ()>) {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("nothing waits so long") });
}

#[test]
fn a_message_goes_in_and_comes_out() {
    let server = Server::start();
    run(async {
        let mut peer = connect(&server).await;
        let message = r#"{"body":"over two","delay":"1h"}"#;
        let made = peer.ask(request("POST", "/v1/topics/two/messages"), message).await;
        assert_eq!(made.status, StatusCode::CREATED);
        let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
        let path = format!("/v1/messages/{}", made["id"].as_str().unwrap());
        let shown = peer.get(&path).await;
        let found: serde_json::Value = serde_json::from_slice(&shown.body).unwrap();
        assert_eq!(found["body"], "over two");

        let head = peer.ask(request("HEAD", &path), "").await;
        assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
        assert_eq!(head.headers["content-length"], shown.body.len().to_string());
        let refused = peer.ask(request("POST", "/v1/topics/two/messages"), "{").await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    });
    let head = server.request("HEAD", "/health/live", "", b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let length = format!("content-length: {}", server.get("/health/live").body.len());
    assert!(head.head.contains(&length), "{}", head.head);
}

#[test]
fn who_has_given_up_waiting_takes_nothing() {
    let server = Server::start();
    let group = "/v1/topics/two/groups/g";
    server.put(group, "");
    run(async {
        let mut peer = connect(&server).await;
        for _ in 0..10 {
            let mut send = peer.send.clone().ready().await.expect("it is open");
            let receive = request("POST", &format!("{group}/receive"));
            let (answer, mut stream) = send.send_request(receive, false).expect("it is open");
            let ask = Bytes::from_static(br#"{"wait":"60s","lease":"12h"}"#);
            stream.send_data(ask, true).expect("it is open");
            assert_eq!(peer.get("/health/live").await.status, StatusCode::OK, "the server has it");
            stream.send_reset(h2::Reason::CANCEL);
            drop(answer);
        }
        assert_eq!(peer.get("/health/live").await.status, StatusCode::OK, "the server knows");
        let sent = peer.ask(request("POST", "/v1/topics/two/messages"), r#"{"body":"x"}"#).await;
        assert_eq!(sent.status, StatusCode::CREATED);
        let ask = r#"{"wait":"20s"}"#;
        let received = peer.ask(request("POST", &format!("{group}/receive")), ask).await;
        let received: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
        assert_eq!(received["messages"][0]["attempt"], 1, "{received}");
    });
}

#[test]
fn a_name_that_was_made_to_point_here_is_not_answered() {
    let server = Server::start();
    run(async {
        let mut peer = connect(&server).await;
        let foreign = Request::get("http://evil.test/v1/topics").body(()).unwrap();
        assert_eq!(peer.ask(foreign, "").await.status, StatusCode::MISDIRECTED_REQUEST);
    });
}

#[test]
fn g50_an_idle_connection_is_kept_for_a_while_and_then_closed() {
    let server = Server::with(&[("http.header_timeout", "1s"), ("http.idle_timeout", "3s")]);
    run(async {
        let mut peer = connect(&server).await;
        for _ in 0..3 {
            assert_eq!(peer.get("/v1/topics").await.status, StatusCode::OK);
        }
        let start = Instant::now();
        let _reason = peer.connection.await.expect("no panic");
        assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());

        let silent = connect(&server).await;
        let _reason = silent.connection.await.expect("no panic");
    });
}

#[test]
fn g50_a_body_that_stops_is_answered() {
    let server = Server::with(&[("http.body_idle_timeout", "200ms")]);
    run(async {
        let mut peer = connect(&server).await;
        let (answer, mut stream) =
            peer.send.send_request(request("POST", "/v1/topics/t/publish"), false).unwrap();
        stream.send_data(Bytes::from_static(b"half"), false).unwrap();
        assert_eq!(answer.await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(peer.get("/health/live").await.status, StatusCode::OK);
    });
    assert_eq!(server.footprint().0, "punctual_scheduled_total 0");
}

#[test]
fn g50_the_number_of_connections_is_bounded() {
    let server = Server::with(&[("http.connections_max", "2")]);
    run(async {
        let mut places = [connect(&server).await, connect(&server).await];
        for peer in &mut places {
            assert_eq!(peer.get("/v1/topics").await.status, StatusCode::OK);
        }
        let over = connect(&server).await;
        assert!(over.connection.await.expect("no panic").is_err());
        for peer in &mut places {
            assert_eq!(peer.get("/v1/topics").await.status, StatusCode::OK);
        }
    });
}

#[test]
fn g40_heads_and_resets_are_bounded() {
    let server = Server::start();
    run(async {
        let mut peer = connect(&server).await;
        let mut huge = request("GET", "/health/live");
        huge.headers_mut().insert("x-huge", "x".repeat(20 << 10).parse().unwrap());
        let status = peer.ask(huge, "").await.status;
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);

        // Opened and given up at once, again and again, until the server has had enough.
        let mut given_up = 0;
        while let Ok(mut send) = peer.send.clone().ready().await {
            let Ok((_, mut stream)) =
                send.send_request(request("POST", "/v1/topics/t/publish"), false)
            else {
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
            given_up += 1;
            assert!(given_up < 1_000_000, "nobody minds");
        }
    });
    assert_eq!(server.get("/health/live").status, 200);
}

#[test]
fn an_answer_under_way_leaves_whole_at_the_end() {
    let mut server = Server::start();
    let json = format!(r#"{{"body":"{}","delay":"1h"}}"#, "x".repeat(1 << 20));
    let id = server.post("/v1/topics/t/messages", json).json()["id"].as_str().unwrap().to_owned();
    run(async {
        let mut peer = connect(&server).await;
        let path = format!("/v1/messages/{id}");
        let (answer, _) = peer.send.send_request(request("GET", &path), true).unwrap();
        // More than a peer takes without reading, so most of it still waits.
        let mut content = answer.await.unwrap().into_body();
        server.stop();
        while TcpStream::connect(server.address).await.is_ok() {}
        let mut bytes = 0;
        while let Some(piece) = content.data().await {
            let piece = piece.expect("a whole answer");
            content.flow_control().release_capacity(piece.len()).unwrap();
            bytes += piece.len();
        }
        assert!(bytes > 1 << 20, "{bytes}");
    });
    server.join().expect("it ends well");
}

#[test]
fn an_idle_connection_is_not_waited_for_at_the_end() {
    let mut server = Server::with(&[("http.drain_timeout", "50s")]);
    let runtime = Runtime::new().unwrap();
    let mut peer = runtime.block_on(connect(&server));
    assert_eq!(runtime.block_on(peer.get("/health/live")).status, StatusCode::OK);
    let start = Instant::now();
    server.join().expect("it ends well");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
