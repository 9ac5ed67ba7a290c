//! Does a stream of messages get an answer for each line, whatever is in it and whoever sends it?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use std::io::Write;
use std::net::Shutdown;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use support::{PATIENCE, Server, wait_for};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use wire::{Wire, ask};

const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");
/// Whoever looks at the memory of the process has nobody beside it who takes much.
static MEMORY: Mutex<()> = Mutex::new(());

/// A stream that is open for messages.
fn open(server: &Server, topic: &str, headers: &str) -> Wire {
    let mut wire = Wire::open(server);
    wire.send(format!(
        "POST /v1/topics/{topic}/messages HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n{headers}\r\n"
    ));
    wire
}

fn line(message: &Value) -> String {
    format!("{message}\n")
}

fn pending(server: &Server, topic: &str) -> u64 {
    server.get(&format!("/v1/topics/{topic}")).json()["pending"].as_u64().unwrap_or(0)
}

#[test]
fn each_line_is_answered_while_the_stream_stays_open() {
    let server = Server::start();
    let mut wire = open(&server, "t", "");
    for n in 0..20 {
        wire.send_chunk(line(&json!({"body": n, "delay": "1h"})));
        if n == 0 {
            let head = wire.head();
            assert_eq!(head.status, 200, "{}", head.text);
            assert_eq!(head.get("content-type"), Some("application/x-ndjson"));
            assert!(head.get("x-request-id").is_some());
        }
        // Answered before anything more is sent.
        let answer = wire.json_line();
        assert_eq!((&answer["topic"], &answer["state"]), (&json!("t"), &json!("scheduled")));
        let sent = server.get(&format!("/v1/messages/{}", answer["id"].as_str().expect("an id")));
        assert_eq!(sent.json()["body"], n.to_string());
    }
    wire.send_chunk(b"");
    assert_eq!(wire.line(), None);
}

#[test]
fn answers_come_in_the_order_of_the_lines() {
    let server = Server::with(&[("store.durability", "os")]);
    const COUNT: usize = 20_000;
    let lines: String = (0..COUNT)
        .map(|n| line(&json!({"body": n, "delay": "1h", "id": format!("m{n}")})))
        .collect();
    let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], lines.as_bytes());
    assert_eq!(head.status, 200);
    let answers: Vec<Value> = String::from_utf8(body)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), COUNT);
    assert!(answers.iter().all(|answer| answer["state"] == "scheduled"));
    for n in [0, 1, 999, 1000, COUNT - 1] {
        let by_name = server.get(&format!("/v1/topics/t/messages/m{n}")).json();
        assert_eq!(by_name["id"], answers[n]["id"], "{n}");
    }
    assert_eq!(pending(&server, "t"), COUNT as u64);
}

#[test]
fn a_bad_line_is_answered_and_the_stream_goes_on() {
    let server = Server::start();
    let lines = [
        json!({"body": "a", "delay": "1h", "id": "a"}).to_string(),
        "{\"body\":".to_owned(),
        json!({"body": "b", "delay": "soon"}).to_string(),
        json!({"messages": [{"body": "c"}]}).to_string(),
        String::new(),
        json!({"body": "d", "delay": "99999d"}).to_string(),
        json!({"body": "a", "delay": "1h", "id": "a"}).to_string(),
        json!({"body": "other", "delay": "1h", "id": "a"}).to_string(),
        "[".repeat(10_000),
        json!({"body": "e", "delay": "1h", "unknown": 1}).to_string(),
        json!({"body": "f", "delay": "1h"}).to_string(),
    ];
    let (head, body) =
        ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], lines.join("\n").as_bytes());
    assert_eq!(head.status, 200);
    let answers: Vec<Value> = String::from_utf8(body)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let code = |place: usize| answers[place]["code"].as_str().unwrap_or("fine").to_owned();
    let codes: Vec<String> = (0..answers.len()).map(code).collect();
    let wanted = [
        "fine",
        "invalid_json",
        "invalid_delay",
        "invalid_request",
        "delay_too_long",
        "fine",
        "id_conflict",
        "invalid_json",
        "unknown_field",
        "fine",
    ];
    assert_eq!(codes, wanted);
    for (place, answer) in answers.iter().enumerate() {
        if answer.get("code").is_some() {
            assert_eq!(answer["index"], place, "an empty line is none: {answer}");
        }
    }
    assert_eq!(answers[5]["duplicate"], true, "the same request again");
    assert_eq!(pending(&server, "t"), 2);
}

#[test]
fn many_bad_lines_among_good_ones_cost_none_of_them() {
    let server = Server::with(&[("store.durability", "os")]);
    let lines: String = (0..3000)
        .map(|n| match n % 7 {
            3 => line(&json!({"body": n, "delay": "9999d"})),
            5 => line(&json!({"body": n, "partition": 9999})),
            _ => line(&json!({"body": n, "delay": "1h"})),
        })
        .collect();
    let (_, body) = ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], lines.as_bytes());
    let answers: Vec<Value> = String::from_utf8(body)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), 3000);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.get("code").is_some(), [3, 5].contains(&(n % 7)), "{n} {answer}");
    }
    let good = answers.iter().filter(|answer| answer.get("id").is_some()).count();
    assert_eq!(pending(&server, "t"), good as u64);
}

#[test]
fn g40_a_line_that_never_ends_ends_the_stream() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::with(&[("store.durability", "os")]);
    let before = server.get("/v1/stats").json()["memory_bytes"].as_u64().expect("a figure");
    let mut wire = open(&server, "t", "");
    wire.send_chunk(line(&json!({"body": "first", "delay": "1h"})));
    assert_eq!(wire.head().status, 200);
    assert_eq!(wire.json_line()["state"], "scheduled");
    wire.send_chunk(b"{\"body\":\"");
    let piece = vec![b'x'; 1 << 20];
    let mut sent = 0_u64;
    // Until the other side has enough; nobody sends that much.
    while sent < 1 << 30 {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(&piece);
        chunk.extend_from_slice(b"\r\n");
        if wire.stream.write_all(&chunk).is_err() {
            break;
        }
        sent += 1 << 20;
    }
    assert!(sent < 1 << 30, "it is still reading");
    let after = server.get("/v1/stats").json()["memory_bytes"].as_u64().expect("a figure");
    assert!(after < before + (256 << 20), "{before} became {after}");
    assert_eq!(pending(&server, "t"), 1);
}

#[test]
fn a_line_that_is_too_long_is_told() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::with(&[("store.durability", "os")]);
    let mut wire = open(&server, "t", "");
    wire.send_chunk(line(&json!({"body": "first", "delay": "1h"})));
    let long = format!("{{\"body\":\"{}\"}}\n", "x".repeat(60 << 20));
    // Whoever sends it may find that nobody reads it to its end.
    let mut chunk = format!("{:x}\r\n", long.len()).into_bytes();
    chunk.extend_from_slice(long.as_bytes());
    let mut other = wire.stream.try_clone().expect("a socket");
    let sending = std::thread::spawn(move || other.write_all(&chunk).is_err());
    assert_eq!(wire.head().status, 200);
    assert_eq!(wire.json_line()["state"], "scheduled");
    let last = wire.json_line();
    assert_eq!((&last["code"], &last["index"]), (&json!("line_too_large"), &json!(1)));
    assert_eq!(wire.line(), None);
    let _broken = sending.join().expect("it ends");
}

#[test]
fn who_does_not_read_the_answers_is_not_read_either() {
    let settings = [("store.durability", "os"), ("http.body_idle_timeout", "2s")];
    let server = Server::with(&settings);
    let mut wire = open(&server, "t", "");
    let piece: String = (0..500)
        .map(|n| line(&json!({"body": "x".repeat(100), "delay": "1h", "id": format!("{n}")})))
        .collect();
    let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
    chunk.extend_from_slice(piece.as_bytes());
    chunk.extend_from_slice(b"\r\n");
    let mut sent = 0_usize;
    // The answers are as large as the questions; nobody reads any of them.
    while sent < 1 << 30 && wire.stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 1 << 30, "everything was taken in though nobody read the answers");
    assert_eq!(server.get("/health/ready").status, 200);
    assert_eq!(pending(&server, "t"), 500);
}

#[test]
fn who_is_gone_in_the_middle_has_sent_what_was_answered() {
    let server = Server::start();
    let mut wire = open(&server, "t", "");
    wire.send_chunk(line(&json!({"body": "whole", "delay": "1h"})));
    assert_eq!(wire.head().status, 200);
    assert_eq!(wire.json_line()["state"], "scheduled");
    wire.send_chunk(b"{\"body\":\"half");
    wire.stream.shutdown(Shutdown::Both).expect("a socket");
    drop(wire);
    assert_eq!(pending(&server, "t"), 1);
    let (head, _) =
        ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], b"{\"body\":1,\"delay\":\"1h\"}");
    assert_eq!(head.status, 200, "others go on");
    assert_eq!(pending(&server, "t"), 2);
}

#[test]
fn a_stream_may_be_silent_between_lines_but_not_within_one() {
    let settings = [("http.body_idle_timeout", "300ms"), ("http.body_timeout", "600ms")];
    let server = Server::with(&settings);
    let mut wire = open(&server, "t", "");
    wire.send_chunk(line(&json!({"body": 1, "delay": "1h"})));
    assert_eq!(wire.head().status, 200);
    wire.json_line();
    // Longer than a body may pause elsewhere.
    let mut slow = open(&server, "t", "");
    slow.send_chunk(b"{\"body\":");
    assert_eq!(slow.head().status, 200);
    let last = slow.json_line();
    assert_eq!(last["code"], "request_timeout");
    wire.send_chunk(line(&json!({"body": 2, "delay": "1h"})));
    assert_eq!(wire.json_line()["state"], "scheduled");
}

#[test]
fn at_the_end_of_the_server_the_stream_ends_too() {
    let mut server = Server::start();
    let mut wire = open(&server, "t", "");
    wire.send_chunk(line(&json!({"body": 1, "delay": "1h"})));
    assert_eq!(wire.head().status, 200);
    wire.json_line();
    server.stop();
    let last = wire.json_line();
    assert_eq!(last["code"], "unavailable");
    assert_eq!(wire.line(), None);
    server.join().expect("it ends well");
}

#[test]
fn a_stream_may_be_made_smaller_on_both_ways() {
    let server = Server::start();
    let lines: String = (0..1000).map(|n| line(&json!({"body": n, "delay": "1h"}))).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(lines.as_bytes()).expect("memory");
    let packed = encoder.finish().expect("memory");
    let headers = [NDJSON, ("content-encoding", "gzip"), ("accept-encoding", "zstd")];
    let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &headers, &packed);
    assert_eq!((head.status, head.get("content-encoding")), (200, Some("zstd")));
    let answers = zstd::stream::decode_all(&body[..]).expect("zstd");
    assert_eq!(String::from_utf8(answers).expect("text").lines().count(), 1000);
    assert_eq!(pending(&server, "t"), 1000);
    let headers = [NDJSON, ("content-encoding", "br")];
    let (head, _) = ask(&server, "POST", "/v1/topics/t/messages", &headers, &packed);
    assert_eq!(head.status, 415);
}

#[test]
fn each_piece_of_a_small_answer_can_be_read_at_once() {
    let server = Server::start();
    let mut wire = open(&server, "t", "accept-encoding: gzip\r\n");
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    for n in 1..=3 {
        wire.send_chunk(line(&json!({"body": n, "delay": "1h"})));
        if n == 1 {
            assert_eq!(wire.head().get("content-encoding"), Some("gzip"));
        }
        // The answer is there before anything more is sent.
        wait_for("the answer", || {
            let piece = wire.piece();
            decoder.write_all(&piece).expect("gzip");
            decoder.flush().expect("gzip");
            let lines = decoder.get_ref().iter().filter(|byte| **byte == b'\n').count();
            (lines == n).then_some(())
        });
    }
}

#[test]
fn what_is_wrong_with_the_request_is_told_by_its_status() {
    let server = Server::with(&[("topics.auto_create", "false")]);
    let (head, body) = ask(&server, "POST", "/v1/topics/a%20b/messages", &[NDJSON], b"{}\n");
    assert_eq!(head.status, 400, "{}", String::from_utf8_lossy(&body));
    let (head, _) = ask(&server, "POST", "/v1/topics/t/messages?delay=1s", &[NDJSON], b"{}\n");
    assert_eq!(head.status, 400);
    let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], b"{\"body\":1}\n");
    assert_eq!(head.status, 200);
    let answer: Value = serde_json::from_slice(body.trim_ascii()).expect("one line");
    assert_eq!((&answer["code"], &answer["index"]), (&json!("topic_not_found"), &json!(0)));
    let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &[NDJSON], b"\n\r\n  \n");
    assert_eq!((head.status, body.len()), (200, 0), "nothing sent, nothing answered");
}

#[test]
fn who_asks_for_leave_to_send_is_given_it() {
    let server = Server::start();
    let mut wire = open(&server, "t", "expect: 100-continue\r\n");
    // As careful senders do: not a byte before the leave.
    assert_eq!(wire.first_line(), "HTTP/1.1 100 Continue");
    wire.send_chunk(line(&json!({"body": 1, "delay": "1h"})));
    assert_eq!(wire.head().status, 200);
    assert_eq!(wire.json_line()["state"], "scheduled");
    wire.send_chunk(b"");
    assert_eq!(wire.line(), None);
}

#[test]
fn the_same_goes_over_http2() {
    let server = Server::start();
    let test = async {
        let stream = TcpStream::connect(server.address).await.expect("it listens");
        let (send, connection) = h2::client::handshake(stream).await.expect("it takes HTTP/2");
        let connection = tokio::spawn(connection);
        let request = http::Request::builder()
            .method("POST")
            .uri("http://localhost/v1/topics/t/messages")
            .header("content-type", "application/x-ndjson")
            .body(())
            .expect("a request");
        let mut send = send.ready().await.expect("it is open");
        let (answer, mut body) = send.send_request(request, false).expect("it is open");
        let mut text = Vec::new();
        let message = line(&json!({"body": 1, "delay": "1h"}));
        body.send_data(Bytes::from(message.clone()), false).expect("it is open");
        let mut content = answer.await.expect("an answer").into_body();
        for n in 1..=10 {
            while text.iter().filter(|byte| **byte == b'\n').count() < n {
                let piece = content.data().await.expect("more").expect("a piece");
                content.flow_control().release_capacity(piece.len()).expect("it was taken");
                text.extend_from_slice(&piece);
            }
            body.send_data(Bytes::from(message.clone()), n == 10).expect("it is open");
        }
        while let Some(piece) = content.data().await {
            text.extend_from_slice(&piece.expect("a piece"));
        }
        assert_eq!(String::from_utf8(text).expect("text").lines().count(), 11);
        connection.abort();
    };
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("nothing waits so long") });
    assert_eq!(pending(&server, "t"), 11);
}
