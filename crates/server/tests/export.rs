//! Does an export hold everything that an import needs, and does a repeated import change nothing?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Answer, Server, wait_for};

/// The lines of an export, and the last one.
fn export(server: &Server, query: &str) -> (Vec<Value>, Value) {
    // Without pieces in the answer, which the raw reader would show.
    let path = format!("/v1/topics/orders/export{query}");
    let answer = server.raw(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("application/x-ndjson"), "{}", answer.head);
    let mut lines: Vec<Value> =
        answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("a last line");
    assert!(last.get("exported").is_some(), "{last}");
    (lines, last)
}

fn import(server: &Server, topic: &str, lines: &[u8]) -> Answer {
    let headers = "content-type: application/x-ndjson\r\n";
    server.request("POST", &format!("/v1/topics/{topic}/import"), headers, lines)
}

fn text(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn sent(server: &Server, message: &Value) -> String {
    let answer = server.post("/v1/topics/orders/messages", message.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// A topic with one of each kind.
fn filled(server: &Server) -> usize {
    sent(server, &json!({"body": "plain", "delay": "1h", "partition": 3}));
    sent(
        server,
        &json!({"body_base64": "AP8=", "delay": "2h", "key_base64": "/w==",
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value_base64": "/w=="}]}),
    );
    sent(
        server,
        &json!({"body": {"n": 1}, "delay": "3h", "id": "own", "ttl": "1m", "max_attempts": 7,
        "catch_up": {"skip_older_than": "5m"}}),
    );
    let paused = sent(server, &json!({"body": "paused", "delay": "4h", "key": "k"}));
    server.patch(&format!("/v1/messages/{paused}"), r#"{"paused":true}"#);
    sent(
        server,
        &json!({"body": "round", "key": "k", "id": "series",
        "repeat": {"cron": "0 9 * * 1-5", "zone": "Asia/Shanghai", "count": 5}}),
    );
    5
}

#[test]
fn what_leaves_one_broker_waits_in_another_as_it_did() {
    let (from, to) = (Server::start(), Server::start());
    let count = filled(&from);
    let (lines, last) = export(&from, "");
    assert_eq!((lines.len(), &last), (count, &json!({"next": null, "exported": count})));
    let first = import(&to, "orders", &text(&lines));
    assert_eq!(first.status, 200, "{}", first.body);
    let all = json!({"imported": count, "duplicates": 0, "failed_count": 0, "failed": []});
    assert_eq!(first.json(), all);
    let (there, _) = export(&to, "");
    assert_eq!(there.len(), count);
    for line in &lines {
        let own = match line["own_id"].as_str() {
            Some(own) => own.to_owned(),
            None => format!("import:{}", line["id"].as_str().unwrap()),
        };
        let other = there.iter().find(|other| other["own_id"] == own.as_str());
        let mut other = other.unwrap_or_else(|| panic!("{own} is not there")).clone();
        let mut line = line.clone();
        // What is told for people, and of a paused one the time it does not wait for.
        let dropped: &[&str] = match line.get("paused") {
            Some(_) => &["id", "own_id", "version", "deliver_at"],
            None => &["id", "own_id", "version"],
        };
        for field in dropped {
            line.as_object_mut().unwrap().remove(*field);
            other.as_object_mut().unwrap().remove(*field);
        }
        assert_eq!(other, line);
    }
}

#[test]
fn a_repeated_import_changes_nothing() {
    let (from, to) = (Server::start(), Server::start());
    let count = filled(&from);
    let (lines, last) = export(&from, "");
    let mut whole = text(&lines);
    whole.extend_from_slice(format!("{last}\n").as_bytes());
    assert_eq!(import(&to, "orders", &whole).json()["imported"], count);
    let (before, _) = export(&to, "");
    let again = import(&to, "orders", &whole).json();
    assert_eq!((&again["imported"], &again["duplicates"]), (&json!(0), &json!(count)), "{again}");
    let (after, _) = export(&to, "");
    assert_eq!(after, before);
    // What was resumed meanwhile stays so.
    let paused = before.iter().find(|line| line.get("paused").is_some()).unwrap();
    let path = format!("/v1/messages/{}", paused["id"].as_str().unwrap());
    server_resumes(&to, &path);
    assert_eq!(import(&to, "orders", &whole).json()["duplicates"], count);
    assert_eq!(to.get(&path).json()["state"], "scheduled");
}

fn server_resumes(server: &Server, path: &str) {
    assert_eq!(server.patch(path, r#"{"paused":false}"#).json()["state"], "scheduled");
}

#[test]
fn an_export_goes_on_where_it_stopped() {
    let server = Server::start();
    let count = filled(&server);
    let (whole, _) = export(&server, "");
    let (mut parts, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let (lines, last) = export(&server, &query);
        assert!(lines.len() <= 2);
        parts.extend(lines);
        match last["next"].as_str() {
            Some(next) => query = format!("?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((parts.len(), parts), (count, whole));
}

#[test]
fn an_occurrence_that_its_series_has_left_behind_is_exported_for_itself() {
    let server = Server::start();
    let series = sent(&server, &json!({"body": "tick", "repeat": {"every": "5s"}}));
    let path = format!("/v1/messages/{series}");
    let first = server.get(&path).json()["occurrence"].as_str().unwrap().to_owned();
    let moved = server.patch(&format!("/v1/messages/{first}"), r#"{"delay":"1h"}"#);
    assert_eq!(moved.status, 200, "{}", moved.body);
    wait_for("the series to move on", || {
        server.get(&path).json()["number"].as_u64().filter(|number| *number > 1)
    });
    let (lines, _) = export(&server, "");
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [first.as_str(), series.as_str()], "{lines:?}");
    assert_eq!((lines[0].get("repeat"), &lines[0]["body"]), (None, &json!("tick")));
}

#[test]
fn many_messages_are_written_while_they_leave() {
    let (from, to) = (Server::start(), Server::start());
    for part in 0..3 {
        let message = |number: usize| json!({"body": "x".repeat(100), "delay": "1h", "key": number.to_string()});
        let batch: Vec<Value> = (part * 1000..(part + 1) * 1000).map(message).collect();
        let answer =
            from.post("/v1/topics/orders/messages", json!({"messages": batch}).to_string());
        assert_eq!(answer.status, 201);
    }
    let (lines, last) = export(&from, "");
    assert_eq!((lines.len(), &last["exported"]), (3000, &json!(3000)));
    assert_eq!(import(&to, "orders", &text(&lines)).json()["imported"], 3000);
    assert_eq!(to.get("/v1/topics/orders/forecast").json()["total"], 3000);
    let again = import(&to, "orders", &text(&lines)).json();
    assert_eq!((&again["imported"], &again["duplicates"]), (&json!(0), &json!(3000)));
}

#[test]
fn what_is_past_due_is_delivered_at_once_and_a_missing_partition_is_chosen_anew() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":1}"#);
    let line = json!({"id": "source", "deliver_at": "2001-01-01T00:00:00Z", "body": "late", "partition": 9});
    let answer = import(&server, "orders", &text(&[line]));
    assert_eq!(answer.json()["imported"], 1, "{}", answer.body);
    let received = server.receive_all("/v1/topics/orders/groups/g", 1);
    assert_eq!((&received[0]["body"], &received[0]["partition"]), (&json!("late"), &json!(0)));
    assert_eq!(received[0]["headers"]["punctual-own-id"], "import:source");
}

#[test]
fn lines_that_cannot_be_taken_are_told_and_the_others_taken() {
    let server = Server::start();
    sent(&server, &json!({"body": "there", "id": "taken", "delay": "1h"}));
    let good = json!({"id": "a", "deliver_at": "2001-01-01T00:00:00Z", "body": "x"});
    let long = "x".repeat(5 << 20);
    let mut lines = text(&[good]);
    let bad = [
        ("{\"id\":", "invalid_json"),
        ("5", "invalid_request"),
        (r#"{"id":"b","body":"x"}"#, "missing_time"),
        (r#"{"id":"c","deliver_at":1}"#, "missing_body"),
        (r#"{"id":"d","deliver_at":"soon","body":1}"#, "invalid_time"),
        (r#"{"id":"e","deliver_at":1,"body":1,"colour":1}"#, "unknown_field"),
        (r#"{"id":"f","deliver_at":"2999-01-01T00:00:00Z","body":1}"#, "delay_too_long"),
        (r#"{"id":"g","own_id":"taken","deliver_at":1,"body":1}"#, "id_conflict"),
        (r#"{"id":"h","deliver_at":1,"body":1,"on_conflict":"replace"}"#, "conflicting_fields"),
        (&format!(r#"{{"id":"i","deliver_at":1,"body":"{long}"}}"#), "body_too_large"),
        (r#"{"id":"j","deliver_at":1,"body":1,"paused":true}"#, "invalid_field"),
        ("\u{0}", "invalid_json"),
    ];
    for (line, _) in bad {
        lines.extend_from_slice(format!("{line}\n\n").as_bytes());
    }
    let answer = import(&server, "orders", &lines).json();
    assert_eq!((&answer["imported"], &answer["failed_count"]), (&json!(1), &json!(bad.len())));
    let failed = answer["failed"].as_array().unwrap();
    for (number, ((line, code), told)) in bad.into_iter().zip(failed).enumerate() {
        let line = line.get(..60).unwrap_or(line);
        assert_eq!(
            (&told["line"], &told["code"]),
            (&json!(number * 2 + 2), &json!(code)),
            "{line}"
        );
    }
}

#[test]
fn a_line_without_end_is_not_kept() {
    let server = Server::start();
    let long = format!("{{\"body\":\"{}\"}}\n", "x".repeat(25 << 20));
    let mut lines = long.into_bytes();
    lines.extend_from_slice(b"{\"id\":\"a\",\"deliver_at\":1,\"body\":1}");
    let answer = import(&server, "orders", &lines);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(
        (&answer["imported"], &answer["failed"][0]["code"]),
        (&json!(1), &json!("line_too_large"))
    );
}

#[test]
fn bad_exports_and_imports() {
    let server = Server::start();
    server.put("/v1/topics/orders", "");
    for (path, status, code) in [
        ("/v1/topics/absent/export", 404, "topic_not_found"),
        ("/v1/topics/a%20b/export", 400, "invalid_topic_name"),
        ("/v1/topics/orders/export?cursor=x", 400, "invalid_cursor"),
        ("/v1/topics/orders/export?cursor=s5", 400, "invalid_cursor"),
        ("/v1/topics/orders/export?limit=0", 400, "invalid_parameter"),
        ("/v1/topics/orders/export?colour=red", 400, "unknown_field"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}");
    }
    let json = server.post("/v1/topics/orders/import", "{}");
    assert_eq!((json.status, json.code().as_str()), (415, "unsupported_media_type"));
    let empty = import(&server, "orders", b"");
    assert_eq!((empty.status, &empty.json()["imported"]), (200, &json!(0)));
    assert_eq!(import(&server, "a%20b", b"").code(), "invalid_topic_name");
    let reserved = {
        server.put("/v1/topics/orders/groups/g", "");
        import(&server, "orders.g.dead", b"{\"id\":\"a\",\"deliver_at\":1,\"body\":1}\n")
    };
    assert_eq!((reserved.status, reserved.code().as_str()), (409, "reserved_topic"));
}
