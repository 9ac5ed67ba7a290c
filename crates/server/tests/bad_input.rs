//! Is every bad request refused with its code, and does it change nothing? (G16)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use support::{Answer, Server};

const PATH: &str = "/v1/topics/bad/messages";

fn refused(server: &Server, what: &str, answer: &Answer, status: u16, code: &str) {
    let json = answer.json();
    assert_eq!((answer.status, json["code"].as_str()), (status, Some(code)), "{what}: {json}");
    assert_eq!(json["status"], status, "{what}");
    for field in ["type", "title", "detail"] {
        assert!(json[field].is_string(), "{what}: {field}");
    }
    assert!(answer.head.contains("application/problem+json"), "{what}: {}", answer.head);
    assert_eq!(server.footprint(), EMPTY.clone_pair(), "{what} changed something");
}

struct Footprint(&'static str, &'static str);

impl Footprint {
    fn clone_pair(&self) -> (String, String) {
        (self.0.to_owned(), self.1.to_owned())
    }
}

const EMPTY: Footprint = Footprint("punctual_scheduled_total 0", r#"{"topics":[],"next":null}"#);

#[test]
fn bad_messages() {
    let server = Server::start();
    for (json, code) in [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("{\"body\":\"\u{1}\"}", "invalid_json"),
        ("[]", "invalid_request"),
        ("{}", "missing_body"),
        (r#"{"body":null}"#, "missing_body"),
        (r#"{"body":"x","delay":-1}"#, "invalid_delay"),
        (r#"{"body":"x","delay":"-1s"}"#, "invalid_delay"),
        (r#"{"body":"x","delay":1.5}"#, "invalid_delay"),
        (r#"{"body":"x","delay":1e3}"#, "invalid_delay"),
        (r#"{"body":"x","delay":1e400}"#, "invalid_delay"),
        (r#"{"body":"x","delay":99999999999999999999}"#, "invalid_delay"),
        (r#"{"body":"x","delay":18446744073709551616}"#, "invalid_delay"),
        (r#"{"body":"x","delay":"99999999999999999999d"}"#, "invalid_delay"),
        (r#"{"body":"x","delay":18446744073709551615}"#, "delay_too_long"),
        (r#"{"body":"x","delay":"40d1ms"}"#, "delay_too_long"),
        (r#"{"body":"x","delay":"soon"}"#, "invalid_delay"),
        (r#"{"body":"x","delay":[]}"#, "invalid_delay"),
        (r#"{"body":"x","delay":true}"#, "invalid_delay"),
        (r#"{"body":"x","deliver_at":"2030-01-01"}"#, "invalid_time"),
        (r#"{"body":"x","deliver_at":"2030-01-01T00:00:00"}"#, "invalid_time"),
        (r#"{"body":"x","deliver_at":-5}"#, "invalid_time"),
        (r#"{"body":"x","deliver_at":1e12}"#, "invalid_time"),
        (r#"{"body":"x","deliver_at":1.5}"#, "invalid_time"),
        (r#"{"body":"x","deliver_at":99999999999999999999}"#, "due_out_of_range"),
        (r#"{"body":"x","deliver_at":"1950-01-01T00:00:00Z"}"#, "due_out_of_range"),
        (r#"{"body":"x","deliver_at":18446744073709551615}"#, "due_out_of_range"),
        (r#"{"body":"x","deliver_at":"9999-01-01T00:00:00Z"}"#, "delay_too_long"),
        (r#"{"body":"x","delay":"1s","deliver_at":1}"#, "conflicting_fields"),
        (r#"{"body":"x","delay":"1s","delay_level":1}"#, "conflicting_fields"),
        (r#"{"body":"x","deliver_at":1,"delay_level":1}"#, "conflicting_fields"),
        (r#"{"body":"x","delay_level":0}"#, "unknown_level"),
        (r#"{"body":"x","delay_level":19}"#, "unknown_level"),
        (r#"{"body":"x","delay_level":-1}"#, "unknown_level"),
        (r#"{"body":"x","colour":"red"}"#, "unknown_field"),
        (r#"{"body":"x","Delay":"1s"}"#, "unknown_field"),
        (r#"{"body":"x","delay":"1s","delay":"2s"}"#, "duplicate_field"),
        (r#"{"body_base64":"====" }"#, "invalid_base64"),
        (r#"{"body_base64":"aGk"}"#, "invalid_base64"),
        (r#"{"body":"x","partition":4}"#, "no_such_partition"),
        (r#"{"body":"x","id":""}"#, "invalid_id"),
        (r#"{"body":"x","on_conflict":"ask"}"#, "invalid_field"),
        (r#"{"body":"x","repeat":{"every":"1ms"}}"#, "interval_too_short"),
        (r#"{"body":"x","ttl":"-1h"}"#, "invalid_field"),
        (r#"{"body":"x","max_attempts":0}"#, "invalid_field"),
        (r#"{"messages":[]}"#, "empty_batch"),
    ] {
        refused(&server, json, &server.post(PATH, json), 400, code);
    }
    let not_utf8 = server.post(PATH, b"{\"body\":\"\xff\"}");
    refused(&server, "not UTF-8", &not_utf8, 400, "invalid_json");
}

#[test]
fn large_and_deep_messages() {
    let server = Server::start();
    let body = |bytes: usize| format!(r#"{{"body":"{}"}}"#, "x".repeat(bytes));
    let too_large = server.post(PATH, body((4 << 20) + 1));
    refused(&server, "body", &too_large, 413, "body_too_large");
    let deep = format!(r#"{{"body":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    refused(&server, "deep", &server.post(PATH, deep), 400, "invalid_json");
    let unclosed = format!(r#"{{"body":{}"#, "[".repeat(1_000_000));
    refused(&server, "unclosed", &server.post(PATH, unclosed), 400, "invalid_json");
    let many = format!(r#"{{"messages":[{}]}}"#, vec![r#"{"body":1}"#; 10_001].join(","));
    refused(&server, "batch", &server.post(PATH, many), 413, "batch_too_large");
    let key = format!(r#"{{"body":1,"key":"{}"}}"#, "k".repeat((32 << 10) + 1));
    refused(&server, "key", &server.post(PATH, key), 400, "key_too_large");
    let headers: Vec<String> = (0..257).map(|number| format!(r#""h{number}":"""#)).collect();
    let headers = format!(r#"{{"body":1,"headers":{{{}}}}}"#, headers.join(","));
    refused(&server, "headers", &server.post(PATH, headers), 400, "too_many_headers");
    let wide = format!(r#"{{"body":1,"headers":{{"h":"{}"}}}}"#, "v".repeat(64 << 10));
    refused(&server, "wide", &server.post(PATH, wide), 400, "headers_too_large");
    assert_eq!(server.post(PATH, body(4 << 20)).status, 201, "the largest legal body");
}

#[test]
fn a_batch_is_all_or_nothing() {
    let server = Server::start();
    let batch = r#"{"messages":[{"body":1},{"body":2},{"body":3,"delay":"41d"},{"body":4}]}"#;
    let answer = server.post(PATH, batch);
    refused(&server, "batch", &answer, 400, "delay_too_long");
    assert_eq!(answer.json()["index"], 2);
    let batch = r#"{"messages":[{"body":1},{"body":2,"delay":"x"}]}"#;
    assert_eq!(server.post(PATH, batch).json()["index"], 1);
    let batch = r#"{"messages":[{"body":1}],"topic":"x"}"#;
    refused(&server, "mixed", &server.post(PATH, batch), 400, "invalid_request");
}

#[test]
fn bad_topic_names() {
    let server = Server::start();
    let long = "x".repeat(250);
    for name in [
        ".", "..", "%2e%2e", "%2E", "a%2Fb", "a%00b", "a%0ab", "a%20b", "%c3%a9", "%ff", "%zz",
        "%", "", &long,
    ] {
        let answer = server.post(&format!("/v1/topics/{name}/messages"), r#"{"body":"x"}"#);
        refused(&server, name, &answer, 400, "invalid_topic_name");
        let answer = server.request("POST", &format!("/v1/topics/{name}/publish"), "", b"x");
        refused(&server, name, &answer, 400, "invalid_topic_name");
        let answer = server.request("PUT", &format!("/v1/topics/{name}"), "", b"");
        refused(&server, name, &answer, 400, "invalid_topic_name");
    }
    let longest =
        server.post(&format!("/v1/topics/{}/messages", "x".repeat(249)), r#"{"body":""}"#);
    assert_eq!(longest.status, 201);
}

#[test]
fn bad_parameters() {
    let server = Server::start();
    for (path, code) in [
        ("/v1/topics/t/publish?delay=-1s", "invalid_delay"),
        ("/v1/topics/t/publish?delay=", "invalid_delay"),
        ("/v1/topics/t/publish?deliver_at=now", "invalid_time"),
        ("/v1/topics/t/publish?delay=1s&delay=1s", "duplicate_field"),
        ("/v1/topics/t/publish?delay=1s&delay_level=1", "conflicting_fields"),
        ("/v1/topics/t/publish?delay_level=19", "unknown_level"),
        ("/v1/topics/t/publish?delay=41d", "delay_too_long"),
        ("/v1/topics/t/publish?colour=red", "unknown_field"),
        ("/v1/topics/t/publish?id=", "invalid_id"),
        ("/v1/topics/t/publish?delay=%f", "invalid_parameter"),
        ("/v1/topics/t/messages?delay=1s", "unknown_field"),
    ] {
        refused(&server, path, &server.post(path, r#"{"body":"x"}"#), 400, code);
    }
    for (query, code) in [
        ("limit=0", "invalid_parameter"),
        ("limit=1001", "invalid_parameter"),
        ("limit=-1", "invalid_parameter"),
        ("limit=x", "invalid_parameter"),
        ("from=yesterday", "invalid_time"),
        ("cursor=zzz", "invalid_cursor"),
        ("cursor=ffffffffffffffff-1", "invalid_cursor"),
        ("state=prepared", "invalid_state"),
        ("colour=red", "unknown_field"),
    ] {
        let answer = server.get(&format!("/v1/topics/t/scheduled?{query}"));
        refused(&server, query, &answer, 400, code);
    }
}

#[test]
fn bad_topics() {
    let server = Server::start();
    for (json, code) in [
        (r#"{"partitions":0}"#, "invalid_field"),
        (r#"{"partitions":1025}"#, "invalid_field"),
        (r#"{"partitions":"4"}"#, "invalid_field"),
        (r#"{"retention":"-1d"}"#, "invalid_field"),
        (r#"{"retention":1e3}"#, "invalid_field"),
        (r#"{"retention":true}"#, "invalid_field"),
        (r#"{"retention":18446744073709551616}"#, "invalid_field"),
        (r#"{"colour":1}"#, "unknown_field"),
        (r#"{"rate_cap":0}"#, "invalid_field"),
        (r#"{"partitions":1,"partitions":2}"#, "duplicate_field"),
        ("[]", "invalid_request"),
    ] {
        let headers = "content-type: application/json\r\n";
        let answer = server.request("PUT", "/v1/topics/t", headers, json.as_bytes());
        refused(&server, json, &answer, 400, code);
    }
}

#[test]
fn the_routers_own_refusals() {
    let server = Server::start();
    let json = br#"{"body":"x"}"#;
    for (method, path, headers, status, code) in [
        ("GET", "/nowhere", "", 404, "route_not_found"),
        ("POST", "/", "", 405, "method_not_allowed"),
        ("GET", "/v2/topics", "", 404, "route_not_found"),
        ("GET", "/v1/topics/t/messages/x/y", "", 404, "route_not_found"),
        ("GET", PATH, "", 405, "method_not_allowed"),
        ("POST", "/v1/topics/t", "", 405, "method_not_allowed"),
        ("BREW", "/v1/topics", "", 405, "method_not_allowed"),
        ("POST", PATH, "", 415, "unsupported_media_type"),
        ("POST", PATH, "content-type: text/plain\r\n", 415, "unsupported_media_type"),
        ("POST", PATH, "origin: http://evil.test\r\n", 403, "cross_origin"),
    ] {
        let answer = server.request(method, path, headers, json);
        refused(&server, path, &answer, status, code);
    }
    assert!(server.get(PATH).head.contains("allow: POST"));
    let charset = "content-type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(server.request("POST", PATH, charset, json).status, 201);
}

#[test]
fn a_name_that_was_made_to_point_here_is_not_answered() {
    let server = Server::start();
    for host in ["host: evil.test\r\n", "host: 127.0.0.1.evil.test:7070\r\n", "host: \r\n", ""] {
        let request = format!("GET /v1/topics HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        refused(&server, host, &server.raw(request.as_bytes()), 421, "host_not_allowed");
    }
}
