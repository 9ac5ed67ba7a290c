//! Does the server bound what slow, silent, greedy and broken peers can take? (G40, G41, G50)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use support::{PATIENCE, Server, read_answer, until_closed};

/// Timeouts short enough for a test, long enough for whoever is honest on a busy machine, and
/// different enough to tell them apart.
const SHORT: [(&str, &str); 4] = [
    ("http.header_timeout", "1s"),
    ("http.idle_timeout", "3s"),
    ("http.body_idle_timeout", "1s"),
    ("http.body_timeout", "3s"),
];
const LIMIT: Duration = Duration::from_secs(1);
/// A busy machine is late, never early.
const LATE: Duration = Duration::from_secs(20);

fn still_serves(server: &Server) {
    assert_eq!(server.get("/health/live").status, 200);
}

/// Sends a byte at a time until the other side has closed; how long it stayed open.
fn drip(stream: &mut TcpStream, bytes: &[u8]) -> Duration {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    let mut sink = [0; 1024];
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        // The read is the pause between two bytes, and sees the end.
        match stream.read(&mut sink) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            _ => {}
        }
        assert!(start.elapsed() < PATIENCE, "still open");
    }
    start.elapsed()
}

#[test]
fn g50_a_silent_connection_is_closed() {
    let server = Server::with(&SHORT);
    let (open, bytes) = until_closed(&mut server.connect());
    assert!(open < LATE && bytes.is_empty(), "{open:?} {bytes:?}");
    still_serves(&server);
}

#[test]
fn g50_the_first_line_has_its_time_too() {
    let server = Server::with(&SHORT);
    // Each start keeps the choice between HTTP/1 and HTTP/2 open, or is the start of a head.
    for start in ["P", "PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET", "GET / HTTP/1.1\r\nhost"] {
        let mut stream = server.connect();
        stream.write_all(start.as_bytes()).expect("it is open");
        let (open, _) = until_closed(&mut stream);
        assert!(open < LATE, "{start}: {open:?}");
    }
    still_serves(&server);
}

#[test]
fn g50_a_head_that_drips_is_closed() {
    let server = Server::with(&SHORT);
    let start = Instant::now();
    let mut stream = server.connect();
    stream.write_all(b"GET /health/live HTTP/1.1\r\n").expect("it is open");
    drip(&mut stream, b"x-slow: loris\r\n");
    let open = start.elapsed();
    assert!(open >= LIMIT / 2 && open < LATE, "{open:?}");
    still_serves(&server);
}

#[test]
fn g50_the_head_of_a_later_request_has_its_time_from_its_first_byte() {
    // With the idle timeout alone it would stay open for half a minute.
    let server = Server::with(&[("http.header_timeout", "1s"), ("http.idle_timeout", "30s")]);
    let mut stream = server.connect();
    let request = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).expect("it is open");
    assert_eq!(read_answer(&mut stream).status, 200);
    let open = drip(&mut stream, b"GET /health/live HTTP/1.1\r\n");
    assert!(open < LATE, "{open:?}");
}

#[test]
fn g50_an_idle_connection_is_kept_for_a_while_and_then_closed() {
    let server = Server::with(&SHORT);
    let mut stream = server.connect();
    let request = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for _ in 0..3 {
        stream.write_all(request).expect("it is open");
        assert_eq!(read_answer(&mut stream).status, 200);
    }
    let (open, bytes) = until_closed(&mut stream);
    assert!(bytes.is_empty());
    assert!(open > 2 * LIMIT, "longer than a head may take: {open:?}");
    assert!(open < LATE, "{open:?}");
}

#[test]
fn g50_a_body_that_stops_is_answered_and_closed() {
    let server = Server::with(&SHORT);
    let mut stream = server.connect();
    let head =
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    stream.write_all(b"half").expect("it is open");
    let answer = read_answer(&mut stream);
    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
    until_closed(&mut stream);
    assert_eq!(server.footprint().0, "punctual_scheduled_total 0");
}

#[test]
fn g50_a_body_that_drips_has_an_end() {
    let server = Server::with(&SHORT);
    let mut stream = server.connect();
    let head =
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    let open = drip(&mut stream, b"x");
    assert!(open < LATE, "{open:?}");
    assert_eq!(server.footprint().0, "punctual_scheduled_total 0");
}

#[test]
fn a_peer_that_never_reads_is_closed() {
    let server = Server::with(&SHORT);
    let body = "x".repeat(1 << 20);
    let json = format!(r#"{{"body":"{body}","delay":"1h"}}"#);
    let id = server.post("/v1/topics/t/messages", json).json()["id"].as_str().unwrap().to_owned();
    let mut stream = server.connect();
    let request = format!("GET /v1/messages/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let start = Instant::now();
    // Answers pile up until the socket is full; then the server must give up.
    while stream.write_all(request.repeat(64).as_bytes()).is_ok() {
        assert!(start.elapsed() < PATIENCE, "still open");
    }
    still_serves(&server);
}

#[test]
fn a_peer_may_close_its_half_and_read_the_answer() {
    let server = Server::start();
    let mut stream = server.connect();
    let head =
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx";
    stream.write_all(head.as_bytes()).expect("it is open");
    stream.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(read_answer(&mut stream).status, 201);
    until_closed(&mut stream);
}

#[test]
fn g50_the_number_of_connections_is_bounded() {
    let server = Server::with(&[("http.connections_max", "4")]);
    let mut places: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    let request = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for stream in &mut places {
        stream.write_all(request).expect("it is open");
        assert_eq!(read_answer(stream).status, 200);
    }
    let (_, bytes) = until_closed(&mut server.connect());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("\"unavailable\""), "{text}");
    drop(places);
    let start = Instant::now();
    while server.get("/health/live").status != 200 {
        assert!(start.elapsed() < PATIENCE, "a place is free again once somebody has left");
    }
}

#[test]
fn g40_a_declared_size_over_the_limit_is_refused_at_once() {
    let server = Server::start();
    for (path, code) in [("publish", "body_too_large"), ("messages", "request_too_large")] {
        let request = format!(
            "POST /v1/topics/t/{path} HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: 1000000000000\r\n\r\n"
        );
        let answer = server.raw(request.as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (413, code));
    }
}

#[test]
fn g40_an_undeclared_size_is_cut_at_the_limit() {
    let server = Server::start();
    let mut stream = server.connect();
    let head = "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    // 4 MiB are 64 chunks; the refusal comes at the next one, whatever would follow.
    for _ in 0..65 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let answer = read_answer(&mut stream);
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    assert_eq!(server.footprint().0, "punctual_scheduled_total 0");
}

#[test]
fn g41_requests_hold_only_so_much_memory() {
    let server = Server::with(&[("http.held_bytes_max", "64MiB")]);
    let head = format!(
        "POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        40 << 20
    );
    // The half of the first request is in when the server asks for the rest.
    let mut first = server.connect();
    let patient = head.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    first.write_all(patient.as_bytes()).expect("it is open");
    let mut line = [0; 25];
    first.read_exact(&mut line).expect("the server wants the body");
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    let answer = server.raw(head.as_bytes());
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_busy"));
    assert!(answer.head.contains("retry-after: "));
    drop(first);
    let start = Instant::now();
    while server
        .post("/v1/topics/t/messages", format!(r#"{{"body":"{}"}}"#, "x".repeat(1 << 20)))
        .status
        != 201
    {
        assert!(start.elapsed() < PATIENCE, "what was held is given back");
    }
}

#[test]
fn g40_answers_that_nobody_reads_hold_only_so_much_memory() {
    let server = Server::with(&[
        ("http.held_bytes_max", "64MiB"),
        // Nobody is to be closed before all of them wait.
        ("http.body_idle_timeout", "5m"),
        ("http.drain_timeout", "100ms"),
    ]);
    let json = format!(r#"{{"body":"{}","delay":"1h"}}"#, "x".repeat((4 << 20) - 1));
    for _ in 0..3 {
        assert_eq!(server.post("/v1/topics/t/messages", &json).status, 201);
    }
    let page = server.get("/v1/topics/t/scheduled").json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 2, "a page is bounded in bytes too");
    let cursor = page["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/topics/t/scheduled?cursor={cursor}")).json();
    assert_eq!(rest["messages"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], serde_json::Value::Null);

    let request = "GET /v1/topics/t/scheduled HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut unread = Vec::new();
    let start = Instant::now();
    // Some of those who do not read may be refused themselves, and then hold nothing: so there is
    // one more of them as long as there is room for another answer.
    loop {
        let answer = server.get("/v1/topics/t/scheduled");
        if answer.status != 200 {
            assert_eq!((answer.status, answer.code().as_str()), (429, "too_busy"));
            break;
        }
        assert!(start.elapsed() < PATIENCE, "nothing bounds the answers");
        let mut stream = server.connect();
        // More answers than the sockets themselves can hold.
        stream.write_all(request.repeat(8).as_bytes()).expect("it is open");
        unread.push(stream);
    }
    still_serves(&server);
}

#[test]
fn garbage_behind_a_request_ends_the_connection() {
    let server = Server::start();
    let mut stream = server.connect();
    stream
        .write_all(
            b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n\x00\x01\x02 garbage\r\n\r\n",
        )
        .expect("it is open");
    let (_, bytes) = until_closed(&mut stream);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    assert!(text.contains("HTTP/1.1 400 "), "{text}");
    still_serves(&server);
}

#[test]
fn requests_may_come_before_the_answers() {
    let server = Server::start();
    let mut stream = server.connect();
    let request = "GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let pipeline = request.repeat(99) + last;
    stream.write_all(pipeline.as_bytes()).expect("it is open");
    let (_, bytes) = until_closed(&mut stream);
    let answers = String::from_utf8_lossy(&bytes).matches("HTTP/1.1 200 OK").count();
    assert_eq!(answers, 100);
}

#[test]
fn heads_that_are_too_large_or_broken() {
    let server = Server::start();
    let huge = format!("x-huge: {}\r\n", "x".repeat(1 << 20));
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(1 << 20));
    for request in [
        format!("GET /health/live HTTP/1.1\r\nhost: localhost\r\n{huge}\r\n"),
        format!("GET /health/live HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        path,
        "GET /health/live HTTP/9.9\r\nhost: localhost\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01\x00\x01\x00".to_owned(),
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx"
            .to_owned(),
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            .to_owned(),
    ] {
        let answer = server.raw(request.as_bytes());
        let shown: String = request.chars().take(60).collect();
        assert!(answer.status == 0 || (400..500).contains(&answer.status), "{shown}: {}", answer.head);
    }
    assert_eq!(server.footprint().0, "punctual_scheduled_total 0");
}

#[test]
fn g50_strangers_give_way_and_known_connections_stay() {
    let server = Server::with(&[("http.connections_max", "4")]);
    let request = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut known = server.connect();
    known.write_all(request).expect("it is open");
    assert_eq!(read_answer(&mut known).status, 200);
    // Whoever only asks whether the server lives has shown nothing.
    let mut checker = server.connect();
    let check = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    checker.write_all(check).expect("it is open");
    assert_eq!(read_answer(&mut checker).status, 200);
    let mut silent: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    until_closed(&mut checker);
    for stream in &mut silent[..17] {
        until_closed(stream);
    }
    known.write_all(request).expect("it is open");
    assert_eq!(read_answer(&mut known).status, 200);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("punctual_connections_gave_way_total"), "{metrics}");
    assert!(!metrics.contains("punctual_connections_gave_way_total 0"), "{metrics}");
}

#[test]
fn g50_a_stranger_has_an_end_whatever_it_asks() {
    let server = Server::with(&[("http.stranger_timeout", "2s")]);
    let mut stream = server.connect();
    let check = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let start = Instant::now();
    while stream.write_all(check).is_ok() && read_answer(&mut stream).status == 200 {
        assert!(start.elapsed() < PATIENCE, "still open");
    }
    let mut known = server.connect();
    let request = b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        known.write_all(request).expect("it is open");
        assert_eq!(read_answer(&mut known).status, 200);
    }
}

#[test]
fn an_answer_that_is_read_too_slowly_is_cut_off() {
    let server = Server::with(&[("http.body_timeout", "3s")]);
    let body = "x".repeat(4 << 20);
    let json = format!(r#"{{"body":"{body}","delay":"1h"}}"#);
    let id = server.post("/v1/topics/t/messages", json).json()["id"].as_str().unwrap().to_owned();
    let mut stream = server.connect();
    // Some machines let the buffer of a socket grow until the whole answer fits.
    set_socket_recv_buffer_size(&stream, 64 << 10).expect("a socket");
    let request = format!("GET /v1/messages/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.repeat(8).as_bytes()).expect("it is open");
    let start = Instant::now();
    let mut bytes = 0;
    // Always some progress, so that the time for the next byte is never over.
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let mut sip = [0; 64 << 10];
    while let Ok(1..) = stream.read(&mut sip).inspect(|count| bytes += count) {
        std::thread::sleep(Duration::from_millis(60));
        assert!(start.elapsed() < PATIENCE, "still open");
    }
    assert!(bytes < 8 * body.len(), "all of it was read");
}
