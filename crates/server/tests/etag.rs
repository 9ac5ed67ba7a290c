//! Do tags keep changes from getting lost, and readers from reading the same again?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use serde_json::{Value, json};
use support::Server;
use wire::{Head, ask};

const JSON: (&str, &str) = ("content-type", "application/json");

fn code(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).expect("a problem");
    problem["code"].as_str().unwrap_or_default().to_owned()
}

fn tag(head: &Head) -> String {
    head.get("etag").expect("a tag").to_owned()
}

#[test]
fn a_message_is_read_again_only_when_it_changed() {
    let server = Server::start();
    let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
    let path = format!("/v1/messages/{id}");
    let (head, _) = ask(&server, "GET", &path, &[], b"");
    assert_eq!(tag(&head), "\"1\"");
    let (head, body) = ask(&server, "GET", &path, &[("if-none-match", "\"1\"")], b"");
    assert_eq!((head.status, body.len(), tag(&head).as_str()), (304, 0, "\"1\""));
    assert!(head.get("x-request-id").is_some());
    let (head, _) = ask(&server, "HEAD", &path, &[("if-none-match", "W/\"1\", \"x\"")], b"");
    assert_eq!(head.status, 304);
    assert_eq!(server.patch(&path, r#"{"delay":"2h"}"#).status, 200);
    let (head, body) = ask(&server, "GET", &path, &[("if-none-match", "\"1\"")], b"");
    assert_eq!((head.status, tag(&head).as_str()), (200, "\"2\""));
    assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON")["version"], 2);
}

#[test]
fn a_change_meant_for_another_version_is_refused() {
    let server = Server::start();
    for (method, after, body) in
        [("PATCH", "", r#"{"delay":"2h"}"#), ("POST", "/deliver", ""), ("DELETE", "", "")]
    {
        let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
        let path = format!("/v1/topics/t/messages/{id}");
        assert_eq!(server.patch(&path, r#"{"paused":true}"#).status, 200);
        let before = server.get(&path).json();
        for stale in ["\"1\"", "\"3\"", "W/\"2\"", "\"x\""] {
            let headers = [JSON, ("if-match", stale)];
            let path = format!("{path}{after}");
            let (head, answer) = ask(&server, method, &path, &headers, body.as_bytes());
            assert_eq!((head.status, code(&answer).as_str()), (412, "precondition_failed"));
        }
        assert_eq!(server.get(&path).json(), before, "nothing was changed");
        for wrong in ["2", "\"1\" \"2\"", "\"1\", \"2\""] {
            let headers = [JSON, ("if-match", wrong)];
            let path = format!("{path}{after}");
            let (head, answer) = ask(&server, method, &path, &headers, body.as_bytes());
            assert_eq!((head.status, code(&answer).as_str()), (400, "invalid_request"), "{wrong}");
        }
        let headers = [JSON, ("if-match", "\"2\"")];
        let changed = format!("{path}{after}");
        let (head, _) = ask(&server, method, &changed, &headers, body.as_bytes());
        assert_eq!(head.status, 200, "{method}");
    }
}

#[test]
fn a_version_in_the_body_is_refused_in_its_own_words() {
    let server = Server::start();
    let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
    let path = format!("/v1/messages/{id}");
    let refused = server.patch(&path, r#"{"delay":"2h","version":5}"#);
    assert_eq!((refused.status, refused.code().as_str()), (409, "version_conflict"));
    let headers = [JSON, ("if-match", "\"1\"")];
    let (head, body) = ask(&server, "PATCH", &path, &headers, br#"{"delay":"2h","version":5}"#);
    assert_eq!((head.status, code(&body).as_str()), (400, "conflicting_fields"));
    let (head, _) = ask(&server, "PATCH", &path, &headers, br#"{"delay":"2h","version":1}"#);
    assert_eq!(head.status, 200);
}

#[test]
fn what_has_ended_says_so_whatever_the_tag() {
    let server = Server::start();
    let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
    let path = format!("/v1/messages/{id}");
    assert_eq!(server.delete(&path).status, 200);
    let (head, body) = ask(&server, "DELETE", &path, &[("if-match", "\"1\"")], b"");
    assert_eq!((head.status, code(&body).as_str()), (409, "already_cancelled"));
    let missing = format!("/v1/messages/{}", id.replace(char::is_numeric, "0"));
    let (head, body) = ask(&server, "DELETE", &missing, &[("if-match", "\"1\"")], b"");
    assert_eq!((head.status, code(&body).as_str()), (404, "not_found"));
    let (head, _) = ask(&server, "GET", &path, &[], b"");
    assert_eq!((head.status, head.get("etag")), (200, None), "it has no version any more");
}

#[test]
fn of_many_conditional_cancels_one_wins() {
    let server = Server::start();
    let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
    let path = format!("/v1/messages/{id}");
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || ask(&server, "DELETE", &path, &[("if-match", "\"1\"")], b"").0.status;
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
}

/// Settings: their path, two changes of them, and where they are made.
const SETTINGS: [(&str, &str, &str, &str); 3] = [
    ("/v1/topics/t", r#"{"retention":"1d"}"#, r#"{"retention":"2d"}"#, "PUT"),
    ("/v1/topics/t/groups/g", r#"{"max_attempts":3}"#, r#"{"max_attempts":4}"#, "PUT"),
    (
        "/v1/levels",
        r#"{"levels":["1s","5s","10s","30s","1m","2m","3m","4m","5m","6m","7m","8m","9m","10m","20m","30m","1h","3h"]}"#,
        r#"{"levels":["2s","5s","10s","30s","1m","2m","3m","4m","5m","6m","7m","8m","9m","10m","20m","30m","1h","3h"]}"#,
        "PUT",
    ),
];

#[test]
fn settings_are_changed_only_as_they_were_read() {
    let server = Server::start();
    for (path, first, second, method) in SETTINGS {
        let (head, body) = ask(&server, method, path, &[JSON], first.as_bytes());
        assert!(head.status < 300, "{path}: {}", String::from_utf8_lossy(&body));
        let made = tag(&head);
        if head.status == 201 {
            assert_eq!(head.get("location"), Some(path));
        }
        let (head, _) = ask(&server, "GET", path, &[], b"");
        assert_eq!(tag(&head), made, "{path}: a change answers the tag of what it made");
        let (head, body) = ask(&server, "GET", path, &[("if-none-match", &made)], b"");
        assert_eq!((head.status, body.len()), (304, 0), "{path}");
        let (head, _) = ask(&server, method, path, &[JSON, ("if-match", &made)], second.as_bytes());
        assert_eq!(head.status, 200, "{path}");
        let changed = tag(&head);
        assert_ne!(changed, made, "{path}");
        let stale = [JSON, ("if-match", made.as_str())];
        let (head, body) = ask(&server, method, path, &stale, first.as_bytes());
        assert_eq!((head.status, code(&body).as_str()), (412, "precondition_failed"), "{path}");
        let (head, _) = ask(&server, "GET", path, &[], b"");
        assert_eq!(tag(&head), changed, "{path}: nothing was changed");
    }
}

#[test]
fn figures_that_change_by_themselves_do_not_change_the_tag() {
    let server = Server::start();
    server.put("/v1/topics/t/groups/g", "{}");
    let tags = || {
        ["/v1/topics/t", "/v1/topics/t/groups/g"]
            .map(|path| tag(&ask(&server, "GET", path, &[], b"").0))
    };
    let before = tags();
    server.send("t", &json!({"body": "x"}));
    server.send("t", &json!({"body": "x", "delay": "1h"}));
    assert_eq!(server.receive_all("/v1/topics/t/groups/g", 1).len(), 1);
    assert_eq!(tags(), before);
}

#[test]
fn what_does_not_exist_has_no_tag_to_match() {
    let server = Server::start();
    for path in ["/v1/topics/new", "/v1/topics/new/groups/g"] {
        let (head, body) = ask(&server, "PUT", path, &[JSON, ("if-match", "*")], b"{}");
        assert_eq!((head.status, code(&body).as_str()), (412, "precondition_failed"), "{path}");
        assert_eq!(server.get(path).status, 404, "{path}");
        let (head, _) = ask(&server, "PUT", path, &[JSON, ("if-none-match", "*")], b"{}");
        assert_eq!(head.status, 201, "{path}");
        let (head, _) = ask(&server, "PUT", path, &[JSON, ("if-none-match", "*")], b"{}");
        assert_eq!(head.status, 412, "{path}");
        let (head, body) =
            ask(&server, "PATCH", &format!("{path}x"), &[JSON, ("if-match", "*")], b"{}");
        assert_eq!(head.status, 404, "{path}: {}", code(&body));
    }
    let (head, _) =
        ask(&server, "DELETE", "/v1/topics/new/groups/g", &[("if-match", "\"x\"")], b"");
    assert_eq!(head.status, 412);
    let (head, _) = ask(&server, "DELETE", "/v1/topics/new/groups/g", &[("if-match", "*")], b"");
    assert_eq!(head.status, 200);
}

#[test]
fn of_changes_at_the_same_time_none_gets_lost() {
    let server = Server::start();
    assert_eq!(server.put("/v1/topics/t", "{}").status, 201);
    // Each raises the number by one as it found it, until it was let.
    let raise = || {
        for _ in 0..5 {
            loop {
                let (head, body) = ask(&server, "GET", "/v1/topics/t", &[], b"");
                let found: Value = serde_json::from_slice(&body).expect("JSON");
                let rate = found["rate_cap"].as_u64().unwrap_or(0) + 1;
                let tag = tag(&head);
                let headers = [JSON, ("if-match", tag.as_str())];
                let change = json!({"rate_cap": rate}).to_string();
                let method = if rate.is_multiple_of(2) { "PUT" } else { "PATCH" };
                match ask(&server, method, "/v1/topics/t", &headers, change.as_bytes()).0.status {
                    200 => break,
                    status => assert_eq!(status, 412),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(raise);
        }
    });
    assert_eq!(server.get("/v1/topics/t").json()["rate_cap"], 20);
}

#[test]
fn changes_of_different_settings_are_both_kept() {
    let server = Server::start();
    assert_eq!(server.put("/v1/topics/t/groups/g", "{}").status, 201);
    let topic = ("/v1/topics/t", ["retention", "default_ttl"]);
    let group = ("/v1/topics/t/groups/g", ["lease", "max_attempts"]);
    for (path, fields) in [topic, group] {
        for round in 1..=10 {
            std::thread::scope(|scope| {
                for field in fields {
                    let value = match field {
                        "max_attempts" => json!(round),
                        _ => json!(format!("{round}m")),
                    };
                    let change = json!({field: value}).to_string();
                    let server = &server;
                    scope.spawn(move || assert_eq!(server.patch(path, change).status, 200));
                }
            });
            let now = server.get(path).json();
            for field in fields {
                let value = now[field].as_u64().map(|n| n.to_string());
                let value = value.or_else(|| now[field].as_str().map(str::to_owned));
                assert!(value.expect("a value").starts_with(&round.to_string()), "{path} {now}");
            }
        }
    }
}
