//! Is nobody let do more than their quota, and does nobody else notice? (G41)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use access_support::{Client, admin_token};
use serde_json::{Value, json};
use support::{Answer, Server};

fn server() -> Server {
    Server::with(&[("auth.enabled", "true"), ("store.durability", "os")])
}

fn grant(topics: &str) -> Value {
    json!([{"topics": topics, "groups": "*", "verbs": ["send", "read", "cancel"]}])
}

fn retry_after(answer: &Answer) -> u64 {
    assert_eq!((answer.status, &*answer.code()), (429, "quota_exceeded"), "{}", answer.body);
    let head = answer.head.to_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("retry-after: ").map(str::to_owned));
    line.expect("a time to wait").parse().expect("whole seconds")
}

fn batch(count: usize) -> Value {
    let message = json!({"body": "x", "delay": "1d"});
    json!({"messages": vec![message; count]})
}

#[test]
fn g41_a_rate_is_held_over_every_way_to_send() {
    let server = server();
    let mut admin = Client::new(&server, &admin_token(&server));
    // So slow that nothing comes back while the test runs, however slow the machine is.
    let quotas = json!({"bytes_per_second": 1});
    let large = "x".repeat(100_000);
    let one = json!({"body": large, "delay": "1d"});
    let ways: [(&str, &str, Value); 4] = [
        ("/v1/topics/slow/messages", "application/json", one.clone()),
        ("/v1/topics/slow/messages", "application/json", json!({"messages": [one]})),
        (
            "/v1/transactions",
            "application/json",
            json!({"producer_group": "p", "messages": [{"topic": "slow", "body": large}]}),
        ),
        ("/v1/topics/slow/publish?delay=1d", "application/octet-stream", json!(large)),
    ];
    for (number, (path, media_type, body)) in ways.iter().enumerate() {
        let token = admin.create(&format!("slow-{number}"), &grant("slow"), &quotas);
        let mut client = Client::new(&server, &token);
        let headers = format!("content-type: {media_type}\r\n");
        let mut send = || client.ask("POST", path, &headers, &body.to_string());
        let first = send();
        assert_eq!(first.status, 201, "more than a bucket is let in once: {}", first.body);
        let wait = retry_after(&send());
        assert!((90_000..=100_100).contains(&wait), "{path}: {wait}");
        assert!(retry_after(&send()) <= wait);
    }
    let token = admin.create("free", &grant("slow"), &json!({}));
    let mut client = Client::new(&server, &token);
    for _ in 0..50 {
        client.done("POST", "/v1/topics/slow/messages", &batch(1));
    }
}

#[test]
fn imports_and_streams_of_messages_are_charged_too() {
    let server = server();
    let mut admin = Client::new(&server, &admin_token(&server));
    admin.done("POST", "/v1/topics/from/messages", &batch(20));
    let lines = admin.ask("GET", "/v1/topics/from/export", "connection: close\r\n", "");
    assert_eq!(lines.status, 200);
    let lines = unchunked(&lines);
    let quotas = json!({"pending": 10});
    let token = admin.create("imports", &grant("to"), &quotas);
    let mut client = Client::new(&server, &token);
    let headers = "content-type: application/x-ndjson\r\n";
    let answer = client.ask("POST", "/v1/topics/to/import", headers, &lines);
    assert_eq!(answer.code(), "quota_exceeded", "{}", answer.body);
    assert!(retry_after(&answer) >= 1);
}

/// The body of an answer that came in pieces.
fn unchunked(answer: &Answer) -> String {
    if !answer.head.to_lowercase().contains("transfer-encoding: chunked") {
        return answer.body.clone();
    }
    let mut rest = answer.body.as_str();
    let mut whole = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            break;
        }
        whole.push_str(&after[..length]);
        rest = &after[length + 2..];
    }
    whole
}

#[test]
fn g41_what_is_pending_has_a_bound_and_others_have_theirs() {
    let server = server();
    let mut admin = Client::new(&server, &admin_token(&server));
    let bounded = admin.create("bounded", &grant("bounded.*"), &json!({"pending": 10}));
    let other = admin.create("other", &grant("other.*"), &json!({"pending": 10}));
    let mut client = Client::new(&server, &bounded);
    let mut ids = Vec::new();
    for topic in ["bounded.a", "bounded.b"] {
        let path = format!("/v1/topics/{topic}/messages");
        let sent = client.done("POST", &path, &batch(5));
        ids.extend(sent["messages"].as_array().unwrap().iter().map(|sent| sent["id"].clone()));
    }
    for count in [1, 10, 1000] {
        let answer = client.json("POST", "/v1/topics/bounded.a/messages", &batch(count));
        assert_eq!(retry_after(&answer), 1);
    }
    let mut other = Client::new(&server, &other);
    other.done("POST", "/v1/topics/other.a/messages", &batch(10));
    assert_eq!(other.json("POST", "/v1/topics/other.a/messages", &batch(1)).status, 429);
    // What was acknowledged is not affected, and what ends makes room.
    for id in &ids {
        let path = format!("/v1/messages/{}", id.as_str().unwrap());
        assert_eq!(client.done("GET", &path, &Value::Null)["state"], "scheduled");
    }
    for id in ids.iter().take(3) {
        client.done("DELETE", &format!("/v1/messages/{}", id.as_str().unwrap()), &Value::Null);
    }
    support::wait_for("room", || {
        let answer = client.json("POST", "/v1/topics/bounded.a/messages", &batch(3));
        (answer.status == 201).then_some(())
    });
    assert_eq!(client.json("POST", "/v1/topics/bounded.b/messages", &batch(1)).status, 429);
    admin.done("PATCH", "/v1/apps/bounded", &json!({"quotas": {"pending": 11}}));
    client.done("POST", "/v1/topics/bounded.b/messages", &batch(1));
}

#[test]
fn connections_have_a_bound_and_are_given_back() {
    let server = server();
    let mut admin = Client::new(&server, &admin_token(&server));
    let token = admin.create("few", &grant("few"), &json!({"connections": 2}));
    let mut first = Client::new(&server, &token);
    let mut second = Client::new(&server, &token);
    for _ in 0..5 {
        first.done("POST", "/v1/topics/few/messages", &batch(1));
        second.done("POST", "/v1/topics/few/messages", &batch(1));
    }
    let mut third = Client::new(&server, &token);
    let refused = third.json("POST", "/v1/topics/few/messages", &batch(1));
    assert_eq!(retry_after(&refused), 1);
    first.done("POST", "/v1/topics/few/messages", &batch(1));
    drop(second);
    support::wait_for("a place", || {
        let answer = third.json("POST", "/v1/topics/few/messages", &batch(1));
        (answer.status == 201).then_some(())
    });
    first.done("POST", "/v1/topics/few/messages", &batch(1));
}
