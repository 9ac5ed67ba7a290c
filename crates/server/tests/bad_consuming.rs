//! Is every bad request about groups refused with its code, and does it change nothing? (G16, G20)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Answer, Server};

const GROUP: &str = "/v1/topics/orders/groups/billing";

fn refused(what: &str, answer: &Answer, status: u16, code: &str) {
    let json = answer.json();
    assert_eq!((answer.status, json["code"].as_str()), (status, Some(code)), "{what}: {json}");
    assert!(answer.head.contains("application/problem+json"), "{what}: {}", answer.head);
}

/// A group with one message that was received.
fn held(server: &Server) -> Value {
    server.put(GROUP, "");
    server.send("orders", &json!({"body": "x"}));
    let received = server.receive(GROUP, &json!({"wait": "20s", "lease": "1h"}));
    received[0].clone()
}

/// The message is still with whoever received it, in its first attempt.
fn still_held(server: &Server, message: &Value) {
    let group = server.get(GROUP).json();
    assert_eq!((&group["in_flight"], &group["lag"]), (&json!(1), &json!(1)), "{group}");
    let ack = json!({"receipts": [message["receipt"]]});
    assert_eq!(server.settle(GROUP, "ack", &ack), ["acked"]);
}

#[test]
fn bad_receives() {
    let server = Server::start();
    let message = held(&server);
    let deep = format!(r#"{{"max":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let large = format!(r#"{{"max":1,"wait":"{}"}}"#, "0".repeat(20 << 10));
    for (json, status, code) in [
        ("[]", 400, "invalid_request"),
        ("{", 400, "invalid_json"),
        (r#"{"max":0}"#, 400, "invalid_field"),
        (r#"{"max":1001}"#, 400, "invalid_field"),
        (r#"{"max":-1}"#, 400, "invalid_field"),
        (r#"{"max":1e3}"#, 400, "invalid_field"),
        (r#"{"max":99999999999999999999}"#, 400, "invalid_field"),
        (r#"{"max":"10"}"#, 400, "invalid_field"),
        (r#"{"wait":"61s"}"#, 400, "invalid_field"),
        (r#"{"wait":-1}"#, 400, "invalid_field"),
        (r#"{"wait":"-1s"}"#, 400, "invalid_field"),
        (r#"{"wait":1.5}"#, 400, "invalid_field"),
        (r#"{"wait":true}"#, 400, "invalid_field"),
        (r#"{"lease":"999ms"}"#, 400, "invalid_field"),
        (r#"{"lease":0}"#, 400, "invalid_field"),
        (r#"{"lease":"-5s"}"#, 400, "invalid_field"),
        (r#"{"lease":"12h1ms"}"#, 400, "invalid_field"),
        (r#"{"lease":18446744073709551615}"#, 400, "invalid_field"),
        (r#"{"lease":99999999999999999999}"#, 400, "invalid_field"),
        (r#"{"lease":[]}"#, 400, "invalid_field"),
        (r#"{"limit":10}"#, 400, "unknown_field"),
        (r#"{"max":1,"max":1}"#, 400, "duplicate_field"),
        (deep.as_str(), 413, "request_too_large"),
        (large.as_str(), 413, "request_too_large"),
    ] {
        let answer = server.post(&format!("{GROUP}/receive"), json);
        refused(json.get(..60).unwrap_or(json), &answer, status, code);
    }
    let deep = format!(r#"{{"max":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000));
    refused("deep", &server.post(&format!("{GROUP}/receive"), deep), 400, "invalid_json");
    let typed = server.request("POST", &format!("{GROUP}/receive"), "", b"{}");
    refused("no type", &typed, 415, "unsupported_media_type");
    let query = server.post(&format!("{GROUP}/receive?max=1"), "{}");
    refused("a parameter", &query, 400, "unknown_field");
    still_held(&server, &message);
}

#[test]
fn g20_wrong_and_foreign_receipts_change_nothing() {
    let server = Server::start();
    let message = held(&server);
    let receipt = message["receipt"].as_str().unwrap();
    let other = "/v1/topics/orders/groups/other";
    server.put(other, r#"{"start":"latest"}"#);
    let changed: String = receipt
        .chars()
        .enumerate()
        .map(|(place, letter)| match (place, letter) {
            (20, '0') => '1',
            (20, _) => '0',
            (_, letter) => letter,
        })
        .collect();
    let long = "x".repeat(256);
    for wrong in ["", "x", &receipt[1..], &receipt.to_uppercase(), &changed, &long, "\u{0}", "é"] {
        for call in ["ack", "nack", "extend"] {
            let words = server.settle(GROUP, call, &json!({"receipts": [wrong]}));
            assert_eq!(words, ["not_held"], "{call} {wrong:?}");
        }
    }
    for call in ["ack", "nack", "extend"] {
        let words = server.settle(other, call, &json!({"receipts": [receipt]}));
        assert_eq!(words, ["not_held"], "the receipt of another group: {call}");
    }
    let twice = server.settle(GROUP, "extend", &json!({"receipts": [receipt, receipt, "x"]}));
    assert_eq!(twice, ["extended", "extended", "not_held"]);
    still_held(&server, &message);
}

#[test]
fn bad_acks_nacks_and_extends() {
    let server = Server::start();
    let message = held(&server);
    let receipt = message["receipt"].as_str().unwrap();
    let many = json!({"receipts": vec!["x"; 10_001]}).to_string();
    let long = json!({"receipts": ["x".repeat(257)]}).to_string();
    let huge = json!({"receipts": vec!["x".repeat(250); 20_000]}).to_string();
    for call in ["ack", "nack", "extend"] {
        for (json, status, code) in [
            ("", 400, "invalid_field"),
            ("{}", 400, "invalid_field"),
            ("[]", 400, "invalid_request"),
            (r#"{"receipts":[]}"#, 400, "invalid_field"),
            (r#"{"receipts":null}"#, 400, "invalid_field"),
            (r#"{"receipts":"x"}"#, 400, "invalid_field"),
            (r#"{"receipts":[1]}"#, 400, "invalid_field"),
            (r#"{"receipts":["x"],"colour":1}"#, 400, "unknown_field"),
            (r#"{"receipts":["x"],"receipts":["y"]}"#, 400, "duplicate_field"),
            (&many, 400, "invalid_field"),
            (&long, 400, "invalid_field"),
            (&huge, 413, "request_too_large"),
        ] {
            let answer = server.post(&format!("{GROUP}/{call}"), json);
            refused(&format!("{call} {}", json.get(..40).unwrap_or(json)), &answer, status, code);
        }
    }
    let deep = format!(r#"{{"receipts":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    refused("deep", &server.post(&format!("{GROUP}/ack"), deep), 400, "invalid_json");
    for (field, code) in [
        (r#""delay":"41d""#, "delay_too_long"),
        (r#""delay":-1"#, "invalid_delay"),
        (r#""delay":"soon""#, "invalid_delay"),
        (r#""delay":99999999999999999999"#, "invalid_delay"),
        (r#""reject":"yes""#, "invalid_field"),
        (r#""reject":true,"delay":"1s""#, "conflicting_fields"),
        (r#""error":5"#, "invalid_field"),
        (r#""lease":"1s""#, "unknown_field"),
    ] {
        let json = format!(r#"{{"receipts":["{receipt}"],{field}}}"#);
        refused(field, &server.post(&format!("{GROUP}/nack"), json), 400, code);
    }
    for lease in [r#""-1s""#, r#""0s""#, r#""13h""#, "true", "1e9", "18446744073709551616"] {
        let json = format!(r#"{{"receipts":["{receipt}"],"lease":{lease}}}"#);
        refused(lease, &server.post(&format!("{GROUP}/extend"), json), 400, "invalid_field");
    }
    still_held(&server, &message);
}

#[test]
fn what_is_missing_is_not_made() {
    let server = Server::start();
    server.put("/v1/topics/orders", "");
    let body = r#"{"receipts":["x"]}"#;
    for (method, call) in [
        ("POST", "/ack"),
        ("POST", "/nack"),
        ("POST", "/extend"),
        ("POST", "/retry"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/reset"),
        ("POST", "/dead/redrive"),
        ("POST", "/dead/purge"),
        ("POST", "/drain"),
        ("GET", "/dead"),
        ("GET", "/offsets"),
        ("PUT", "/offsets"),
        ("GET", "/dead/redrive/0000000000000000"),
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
    ] {
        for (topic, code) in [("orders", "group_not_found"), ("absent", "topic_not_found")] {
            let path = format!("/v1/topics/{topic}/groups/missing{call}");
            let body = if method == "PATCH" { "{}" } else { body };
            let headers = "content-type: application/json\r\n";
            let answer = server.request(method, &path, headers, body.as_bytes());
            // To delete what is not there is one answer, whatever is missing.
            let code = if method == "DELETE" { "group_not_found" } else { code };
            refused(&format!("{method} {path}"), &answer, 404, code);
        }
    }
    assert_eq!(server.get("/v1/groups").json()["groups"], json!([]));
    assert!(!server.get("/v1/topics").body.contains("absent"));
}

#[test]
fn without_auto_create_a_receive_makes_no_topic() {
    let server = Server::with(&[("topics.auto_create", "false")]);
    let answer = server.post(&format!("{GROUP}/receive"), "{}");
    refused("receive", &answer, 404, "topic_not_found");
    refused("put", &server.put(GROUP, "{}"), 404, "topic_not_found");
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]));
}

#[test]
fn bad_group_names() {
    let server = Server::start();
    let long = "x".repeat(250);
    for name in [".", "..", "%2e%2e", "a%2Fb", "a%00b", "a%20b", "%c3%a9", "%ff", "%zz", "", &long]
    {
        let path = format!("/v1/topics/orders/groups/{name}");
        refused(name, &server.put(&path, "{}"), 400, "invalid_group_name");
        let receive = server.post(&format!("{path}/receive"), "{}");
        refused(name, &receive, 400, "invalid_group_name");
    }
    let long = format!("/v1/topics/{}/groups/{}", "t".repeat(200), "g".repeat(200));
    refused("too long together", &server.put(&long, "{}"), 400, "invalid_group_name");
    refused("topic", &server.put("/v1/topics/a%20b/groups/x", "{}"), 400, "invalid_topic_name");
    assert_eq!(server.get("/v1/groups").json()["groups"], json!([]));
}

#[test]
fn bad_settings() {
    let server = Server::start();
    let rungs = format!(r#"{{"retry":{{"ladder":[{}"1s"]}}}}"#, r#""1s","#.repeat(100));
    for (json, code) in [
        ("[]", "invalid_request"),
        (r#"{"colour":1}"#, "unknown_field"),
        (r#"{"ordered":1}"#, "invalid_field"),
        (r#"{"lease":"0s"}"#, "invalid_field"),
        (r#"{"lease":"13h"}"#, "invalid_field"),
        (r#"{"max_attempts":0}"#, "invalid_field"),
        (r#"{"max_attempts":1001}"#, "invalid_field"),
        (r#"{"max_attempts":-1}"#, "invalid_field"),
        (r#"{"retry":{"ladder":["-1s"]}}"#, "invalid_field"),
        (r#"{"retry":{"ladder":["41d"]}}"#, "invalid_field"),
        (r#"{"retry":{"ladder":[]}}"#, "invalid_field"),
        (&rungs, "invalid_field"),
        (r#"{"retry":{"exponential":{"first":"0s"}}}"#, "invalid_field"),
        (r#"{"retry":{"exponential":{"first":"2s","max":"1s"}}}"#, "invalid_field"),
        (r#"{"retry":{"exponential":{"first":"1s","factor":0.5}}}"#, "invalid_field"),
        (r#"{"retry":{"exponential":{"first":"1s","factor":101}}}"#, "invalid_field"),
        (r#"{"retry":{"exponential":{"first":"1s","jitter":1.5}}}"#, "invalid_field"),
        (r#"{"push":{"secret":"x"}}"#, "invalid_field"),
        (r#"{"push":{"url":"ftp://example.test/"}}"#, "invalid_field"),
        (r#"{"push":{"url":"http://127.0.0.1:9/"}}"#, "invalid_field"),
        (r#"{"push":{"url":"https://example.test/","concurrency":0}}"#, "invalid_field"),
        (r#"{"push":{"url":"https://example.test/","concurrency":70000}}"#, "invalid_field"),
        (r#"{"push":{"url":"https://example.test/","timeout":"0s"}}"#, "invalid_field"),
        (r#"{"start":"middle"}"#, "invalid_field"),
    ] {
        refused(json.get(..70).unwrap_or(json), &server.put(GROUP, json), 400, code);
    }
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]), "nothing was made");
    for (json, code) in [
        (r#"{"max_backlog":-1}"#, "invalid_field"),
        (r#"{"max_backlog":{"messages":"1"}}"#, "invalid_field"),
        (r#"{"overflow":"explode"}"#, "invalid_field"),
        (r#"{"default_ttl":0}"#, "invalid_field"),
        (r#"{"default_ttl":true}"#, "invalid_field"),
        (r#"{"default_ttl":"-1s"}"#, "invalid_field"),
    ] {
        refused(json, &server.put("/v1/topics/orders", json), 400, code);
    }
    for (json, code) in [
        (r#"{"body":1,"ttl":0}"#, "invalid_field"),
        (r#"{"body":1,"ttl":"-1s"}"#, "invalid_field"),
        (r#"{"body":1,"ttl":true}"#, "invalid_delay"),
        (r#"{"body":1,"max_attempts":0}"#, "invalid_field"),
        (r#"{"body":1,"max_attempts":1001}"#, "invalid_field"),
    ] {
        refused(json, &server.post("/v1/topics/orders/messages", json), 400, code);
    }
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]), "nothing was made");
}

#[test]
fn bad_retries_and_resets() {
    let server = Server::start();
    server.put(GROUP, "");
    let large = json!({"message": {"body": "x".repeat((4 << 20) + 1)}, "attempt": 1}).to_string();
    for (json, status, code) in [
        ("{}", 400, "invalid_field"),
        (r#"{"message":{"body":1}}"#, 400, "invalid_field"),
        (r#"{"message":{},"attempt":1}"#, 400, "missing_body"),
        (r#"{"message":{"body":1},"attempt":0}"#, 400, "invalid_field"),
        (r#"{"message":{"body":1},"attempt":70000}"#, 400, "invalid_field"),
        (r#"{"message":{"body":1,"delay":"1s"},"attempt":1}"#, 400, "conflicting_fields"),
        (r#"{"message":{"body":1},"attempt":1,"delay":"41d"}"#, 400, "delay_too_long"),
        (r#"{"message":{"body":1},"attempt":1,"id":"mine"}"#, 400, "invalid_field"),
        (&large, 413, "body_too_large"),
    ] {
        let answer = server.post(&format!("{GROUP}/retry"), json);
        refused(json.get(..70).unwrap_or(json), &answer, status, code);
    }
    for (json, code) in [
        ("", "invalid_field"),
        (r#"{"to":"middle"}"#, "invalid_field"),
        (r#"{"to":{"time":"yesterday"}}"#, "invalid_time"),
        (r#"{"to":{"offsets":{"4":0}}}"#, "no_such_partition"),
        (r#"{"to":{"offsets":{"0":-1}}}"#, "invalid_field"),
        (r#"{"to":{"offsets":{"0":18446744073709551616}}}"#, "invalid_field"),
    ] {
        refused(json, &server.post(&format!("{GROUP}/reset"), json), 400, code);
    }
    for (json, code) in [
        ("{}", "invalid_field"),
        (r#"{"offsets":{}}"#, "invalid_field"),
        (r#"{"offsets":[1]}"#, "invalid_field"),
        (r#"{"offsets":{"1024":0}}"#, "no_such_partition"),
    ] {
        refused(json, &server.put(&format!("{GROUP}/offsets"), json), 400, code);
    }
    let group = server.get(GROUP).json();
    assert_eq!((&group["lag"], &group["retrying"]), (&json!(0), &json!(0)));
}

#[test]
fn bad_lists() {
    let server = Server::start();
    server.put(GROUP, "");
    for (path, code) in [
        ("/v1/groups?limit=0", "invalid_parameter"),
        ("/v1/groups?cursor=x", "invalid_cursor"),
        ("/v1/groups?cursor=a/b/c%20", "invalid_cursor"),
        ("/v1/groups?colour=red", "unknown_field"),
        ("/v1/topics/orders/groups/billing?x=1", "unknown_field"),
        ("/v1/topics/orders/groups/billing/dead?limit=1001", "invalid_parameter"),
        ("/v1/topics/orders/groups/billing/dead?cursor=x", "invalid_cursor"),
        ("/v1/topics/orders/groups/billing/dead?reason=bored", "invalid_field"),
        ("/v1/topics/orders/groups/billing/dead?day=today", "invalid_time"),
        ("/v1/topics/orders/groups/billing/dead?day=2030-01-01&from=1", "conflicting_fields"),
        ("/v1/topics/orders/groups/billing/dead?id=mine", "invalid_field"),
        ("/v1/topics/orders/groups/billing/dead?from=yesterday", "invalid_time"),
    ] {
        refused(path, &server.get(path), 400, code);
    }
    for job in ["x", "0000000000000000", "%ff"] {
        for kind in ["dead/redrive", "drain"] {
            let answer = server.get(&format!("{GROUP}/{kind}/{job}"));
            refused(job, &answer, 404, "job_not_found");
        }
    }
}
