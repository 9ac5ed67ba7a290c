//! Does the server finish what is under way, and not wait for those who do nothing?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use support::{Server, read_answer, until_closed};

/// Far less than what would be waited for, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_request_under_way_is_answered() {
    let mut server = Server::start();
    let mut stream = server.connect();
    let head = "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\
                expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    let mut line = [0; 25];
    stream.read_exact(&mut line).expect("the server waits for the body");
    server.stop();
    stream.write_all(b"last").expect("it is open");
    assert_eq!(read_answer(&mut stream).status, 201);
    until_closed(&mut stream);
    server.join().expect("it ends well");
}

#[test]
fn connections_that_do_nothing_are_not_waited_for() {
    let settings = [("http.drain_timeout", "50s"), ("http.header_timeout", "50s")];
    let mut server = Server::with(&settings);
    let mut silent = server.connect();
    let mut started = server.connect();
    started.write_all(b"GET /health").expect("it is open");
    let mut idle = server.connect();
    let request = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    idle.write_all(request).expect("it is open");
    assert_eq!(read_answer(&mut idle).status, 200);
    let start = Instant::now();
    server.join().expect("it ends well");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    for stream in [&mut silent, &mut started, &mut idle] {
        until_closed(stream);
    }
}

#[test]
fn a_request_that_never_ends_is_broken_off() {
    let settings = [("http.drain_timeout", "100ms"), ("http.body_idle_timeout", "50s")];
    let mut server = Server::with(&settings);
    let mut stream = server.connect();
    let head = "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\
                expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it is open");
    let mut line = [0; 25];
    stream.read_exact(&mut line).expect("the server waits for the body");
    let start = Instant::now();
    server.join().expect("it ends well");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
