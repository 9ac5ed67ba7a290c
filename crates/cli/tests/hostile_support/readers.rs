//! Attacks by those who ask and do not read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::process_support::PATIENCE;
use super::{Attack, Victim, flood, is_end};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "large answers that nobody reads", run: unread },
    Attack { name: "large answers read byte by byte", run: sipping },
    Attack { name: "waiting receivers that hang up", run: hanging_up },
    Attack { name: "exports that nobody reads", run: exports },
];

/// A topic with a page of large messages.
fn prepare(victim: &Victim) {
    let mut client = victim.process.client();
    let message = json!({"body": "x".repeat(1 << 20), "delay": "10h"});
    for _ in 0..8 {
        client.post("/v1/topics/large/messages", &message).unwrap().expect(201);
    }
}

const PAGE: &str = "GET /v1/topics/large/scheduled HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// More answers than sockets hold, so that the server has to wait, and gives up.
fn unread(victim: &Victim) -> Vec<TcpStream> {
    prepare(victim);
    let ask = |_| {
        let mut stream = victim.connect();
        stream.write_all(PAGE.repeat(16).as_bytes()).unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..12).map(ask).collect();
    // Refusals are answers too: those who get only them are told more often than they can take.
    for mut stream in streams {
        flood(&mut stream, PAGE.repeat(256).as_bytes());
    }
    Vec::new()
}

/// Always some progress, never enough: there is an end to that too.
fn sipping(victim: &Victim) -> Vec<TcpStream> {
    prepare(victim);
    let started = Instant::now();
    let ask = |_| {
        let mut stream = victim.connect();
        stream.write_all(PAGE.repeat(16).as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..4).map(ask).collect();
    while !streams.is_empty() {
        streams.retain_mut(|stream| {
            let mut sip = [0; 16 << 10];
            match stream.read(&mut sip) {
                Ok(count) => count > 0,
                Err(error) => !is_end(&error),
            }
        });
        assert!(started.elapsed() < PATIENCE, "{} still open", streams.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    Vec::new()
}

fn hanging_up(victim: &Victim) -> Vec<TcpStream> {
    let mut client = victim.process.client();
    client.put("/v1/topics/wait/groups/g", &json!({})).unwrap();
    let ask = r#"{"wait":"60s","lease":"5s"}"#;
    let request = format!(
        "POST /v1/topics/wait/groups/g/receive HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{ask}",
        ask.len()
    );
    for _ in 0..20 {
        let waiting: Vec<TcpStream> = (0..60)
            .map(|_| {
                let mut stream = victim.connect();
                stream.write_all(request.as_bytes()).unwrap();
                stream
            })
            .collect();
        drop(waiting);
    }
    // Whoever is answered before its hang-up is noticed holds the message for its lease. One or two
    // of the twelve hundred may; if many did, it would not come in time.
    let started = Instant::now();
    while client.get("/v1/stats").unwrap().expect(200)["connections"]["open"].as_u64() > Some(10) {
        assert!(started.elapsed() < PATIENCE, "those who hung up are still waited for");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.post("/v1/topics/wait/messages", &json!({"body": "x"})).unwrap().expect(201);
    let received =
        client.post("/v1/topics/wait/groups/g/receive", &json!({"wait": "20s"})).unwrap();
    assert_eq!(received.expect(200)["messages"][0]["body"], "x");
    Vec::new()
}

fn exports(victim: &Victim) -> Vec<TcpStream> {
    prepare(victim);
    let request =
        "GET /v1/topics/large/export HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let ask = |_| {
        let mut stream = victim.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..20).map(ask).collect();
    // Only so many at one time; all of them come to an end.
    let started = Instant::now();
    while !streams.iter_mut().all(|stream| stream.write_all(b"x").is_err()) {
        assert!(started.elapsed() < PATIENCE, "still open");
        std::thread::sleep(Duration::from_millis(50));
    }
    Vec::new()
}
