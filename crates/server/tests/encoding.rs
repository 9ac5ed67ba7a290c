//! Are requests and answers made smaller where that was asked for, and at no risk? (G40)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use support::Server;
use wire::{Head, ask};

const JSON: (&str, &str) = ("content-type", "application/json");
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");
/// Whoever looks at the memory of the process has nobody beside it who takes much.
static MEMORY: Mutex<()> = Mutex::new(());

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, 3).expect("memory")
}

fn unpacked(head: &Head, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match head.get("content-encoding") {
        None => plain.extend_from_slice(body),
        Some("gzip") => {
            MultiGzDecoder::new(body).read_to_end(&mut plain).expect("gzip");
        }
        Some("zstd") => {
            zstd::stream::copy_decode(body, &mut plain).expect("zstd");
        }
        Some(other) => panic!("{other}"),
    }
    plain
}

/// A server with a list that is large.
fn filled(count: usize) -> Server {
    let server = Server::start();
    let messages: Vec<Value> =
        (0..count).map(|n| json!({"body": format!("message {n}"), "delay": "1h"})).collect();
    let answer = server.post("/v1/topics/t/messages", json!({"messages": messages}).to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    server
}

#[test]
fn a_large_answer_is_sent_as_the_caller_likes_it_best() {
    let server = filled(300);
    let path = "/v1/topics/t/scheduled?limit=300";
    let (plain_head, plain) = ask(&server, "GET", path, &[], b"");
    assert_eq!(plain_head.get("content-encoding"), None);
    assert_eq!(plain_head.get("vary"), Some("accept-encoding"));
    for (accept, coding) in [
        ("gzip", Some("gzip")),
        ("zstd", Some("zstd")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("zstd;q=0.1, gzip;q=0.9", Some("gzip")),
        ("gzip;q=0", None),
        ("br", None),
        ("identity, gzip;q=0.5", None),
    ] {
        let (head, body) = ask(&server, "GET", path, &[("accept-encoding", accept)], b"");
        assert_eq!((head.status, head.get("content-encoding")), (200, coding), "{accept}");
        assert_eq!(head.get("vary"), Some("accept-encoding"), "{accept}");
        assert!(coding.is_none() || body.len() * 3 < plain.len(), "{accept}: {}", body.len());
        assert!(unpacked(&head, &body) == plain, "{accept}");
        let length = head.get("content-length").map(str::to_owned);
        let (head, _) = ask(&server, "HEAD", path, &[("accept-encoding", accept)], b"");
        assert_eq!(head.get("content-encoding"), coding, "{accept}");
        assert_eq!(head.get("content-length").map(str::to_owned), length, "{accept}");
    }
}

#[test]
fn a_small_answer_is_sent_as_it_is() {
    let server = Server::start();
    let (head, body) = ask(&server, "GET", "/v1/topics", &[("accept-encoding", "gzip")], b"");
    assert_eq!((head.get("content-encoding"), head.get("vary")), (None, None));
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
}

#[test]
fn a_tag_belongs_to_what_was_sent_and_is_known_again() {
    let server = Server::start();
    let body = json!({"body": "x".repeat(5000), "delay": "1h"});
    let id = server.send("t", &body);
    let path = format!("/v1/messages/{id}");
    for (coding, tag) in [("gzip", "\"1-gzip\""), ("zstd", "\"1-zstd\"")] {
        let (head, _) = ask(&server, "GET", &path, &[("accept-encoding", coding)], b"");
        assert_eq!((head.status, head.get("etag")), (200, Some(tag)));
        let known = [("accept-encoding", coding), ("if-none-match", tag)];
        assert_eq!(ask(&server, "GET", &path, &known, b"").0.status, 304);
    }
    let change = [JSON, ("if-match", "\"1-gzip\"")];
    let (head, _) = ask(&server, "PATCH", &path, &change, br#"{"delay":"2h"}"#);
    assert_eq!((head.status, head.get("etag")), (200, Some("\"2\"")));
}

#[test]
fn an_export_is_made_smaller_while_it_leaves() {
    let server = filled(2000);
    let path = "/v1/topics/t/export";
    let (_, plain) = ask(&server, "GET", path, &[], b"");
    for coding in ["gzip", "zstd"] {
        let (head, body) = ask(&server, "GET", path, &[("accept-encoding", coding)], b"");
        assert_eq!(head.get("content-encoding"), Some(coding));
        assert_eq!(head.get("transfer-encoding"), Some("chunked"));
        assert!(body.len() * 3 < plain.len(), "{} of {}", body.len(), plain.len());
        assert!(unpacked(&head, &body) == plain, "{coding}");
    }
    let taken = Server::start();
    for (coding, packed) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
        let headers = [NDJSON, ("content-encoding", coding)];
        let (head, body) = ask(&taken, "POST", "/v1/topics/t/import", &headers, &packed);
        assert_eq!(head.status, 200, "{}", String::from_utf8_lossy(&body));
        let view: Value = serde_json::from_slice(&body).expect("JSON");
        let new = if coding == "gzip" { "imported" } else { "duplicates" };
        assert_eq!(view[new], 2000, "{view}");
    }
}

#[test]
fn what_was_sent_smaller_means_the_same() {
    let server = Server::start();
    let message = json!({"body": "hello", "delay": "1h"}).to_string().into_bytes();
    let many: Vec<Value> = (0..5000).map(|n| json!({"body": n, "delay": "1h"})).collect();
    let many = json!({"messages": many}).to_string().into_bytes();
    for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd), ("GZIP", gzip)] {
        let headers = [JSON, ("content-encoding", coding)];
        let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &headers, &pack(&message));
        assert_eq!(head.status, 201, "{coding}: {}", String::from_utf8_lossy(&body));
        let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &headers, &pack(&many));
        assert_eq!(head.status, 201, "{coding}: {}", String::from_utf8_lossy(&body));
        let (head, body) = ask(&server, "PUT", "/v1/topics/p", &headers, &pack(b"{}"));
        assert!(head.status < 300, "{coding}: {}", String::from_utf8_lossy(&body));
        let headers = [("content-encoding", coding)];
        let (head, body) =
            ask(&server, "POST", "/v1/topics/raw/publish?delay=1h", &headers, &pack(b"raw"));
        assert_eq!(head.status, 201, "{coding}: {}", String::from_utf8_lossy(&body));
        let view: Value = serde_json::from_slice(&body).expect("JSON");
        let sent = server.get(&format!("/v1/messages/{}", view["id"].as_str().expect("an id")));
        assert_eq!(sent.json()["body"], "raw");
    }
}

#[test]
fn a_coding_that_nobody_knows_is_refused() {
    let server = Server::start();
    let before = server.footprint();
    for coding in ["br", "deflate", "gzip, zstd", "x"] {
        let headers = [JSON, ("content-encoding", coding)];
        let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &headers, b"{}");
        let problem: Value = serde_json::from_slice(&body).expect("a problem");
        assert_eq!((head.status, &problem["code"]), (415, &json!("unsupported_encoding")));
    }
    for coding in ["gzip", "zstd"] {
        let headers = [JSON, ("content-encoding", coding)];
        let whole = if coding == "gzip" { gzip(b"{\"body\":1}") } else { zstd(b"{\"body\":1}") };
        for body in [&b"{\"body\":1}"[..], &whole[..whole.len() - 1], &[0xff; 64]] {
            let (head, body) = ask(&server, "POST", "/v1/topics/t/messages", &headers, body);
            let problem: Value = serde_json::from_slice(&body).expect("a problem");
            assert_eq!((head.status, &problem["code"]), (400, &json!("invalid_request")));
        }
    }
    assert_eq!(server.footprint(), before);
}

/// What the process has in memory, in bytes.
fn memory(server: &Server) -> u64 {
    server.get("/v1/stats").json()["memory_bytes"].as_u64().expect("a figure")
}

#[test]
fn g40_a_bomb_costs_no_more_than_the_limit() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::with(&[("limits.body_bytes_max", "1MiB"), ("store.durability", "os")]);
    let zeros = vec![b' '; 256 << 20];
    let bombs = [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))];
    drop(zeros);
    let before = memory(&server);
    for (coding, bomb) in &bombs {
        assert!(bomb.len() < 1 << 20, "{}", bomb.len());
        for (path, media, code) in [
            ("/v1/topics/t/messages", JSON, "request_too_large"),
            ("/v1/topics/t/publish", JSON, "body_too_large"),
            ("/v1/topics/t", JSON, "request_too_large"),
        ] {
            let headers = [media, ("content-encoding", *coding)];
            let method = if path == "/v1/topics/t" { "PUT" } else { "POST" };
            let (head, body) = ask(&server, method, path, &headers, bomb);
            let problem: Value = serde_json::from_slice(&body).expect("a problem");
            assert_eq!((head.status, &problem["code"]), (413, &json!(code)), "{coding} {path}");
        }
    }
    let after = memory(&server);
    // The largest request of JSON is 48 MiB, twice over while it grows; nothing near the bomb.
    assert!(after < before + (160 << 20), "{before} became {after}");
    assert_eq!(server.get("/health/ready").status, 200);
}

#[test]
fn g40_many_bombs_at_once_find_no_room() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::with(&[("http.held_bytes_max", "64MiB"), ("store.durability", "os")]);
    let bomb = zstd(&vec![b' '; 47 << 20]);
    let headers = [JSON, ("content-encoding", "zstd")];
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| {
                let ask = || ask(&server, "POST", "/v1/topics/t/messages", &headers, &bomb);
                scope.spawn(ask)
            })
            .collect();
        for answer in asking {
            let (head, body) = answer.join().expect("an answer");
            // Blanks are no JSON; whoever found room is told so.
            let text = String::from_utf8_lossy(&body);
            assert!([400, 429].contains(&head.status), "{} {text}", head.status);
        }
    });
    let (head, _) = ask(&server, "POST", "/v1/topics/t/messages", &headers, &zstd(b"{\"body\":1}"));
    assert_eq!(head.status, 201, "everything held was given back");
}
