//! Does every change of an administrator leave its record, and is that there after a restart? (G48)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::Server;

fn entries(server: &Server, query: &str) -> Vec<Value> {
    let page = server.get(&format!("/v1/audit{query}"));
    assert_eq!(page.status, 200, "{}", page.body);
    page.json()["entries"].as_array().expect("entries").clone()
}

fn newest(server: &Server) -> String {
    entries(server, "?limit=1")[0]["what"].as_str().expect("a word").to_owned()
}

#[test]
fn g48_every_change_is_taken_down() {
    let server = Server::start();
    server.put("/v1/topics/other", "");
    let (topic, group) = ("/v1/topics/orders", "/v1/topics/orders/groups/g");
    let levels: Vec<&str> = vec!["1s"; 18];
    let levels = json!({"levels": levels}).to_string();
    let long = "x".repeat(10_000);
    let secret = r#"{"push":{"url":"https://example.test/","secret":"topsecret"}}"#;
    let changes: [(&str, &str, &str, &str); 18] = [
        ("PUT", topic, r#"{"partitions":2}"#, "topic_put"),
        ("PATCH", topic, r#"{"jitter":"1s"}"#, "topic_patch"),
        ("PUT", "/v1/levels", &levels, "levels_put"),
        ("PUT", group, "{}", "group_put"),
        ("PATCH", group, secret, "group_patch"),
        ("PATCH", group, r#"{"push":null}"#, "group_patch"),
        ("POST", &format!("{group}/pause"), "", "group_pause"),
        ("POST", &format!("{group}/resume"), "", "group_resume"),
        ("POST", &format!("{group}/reset"), r#"{"to":"earliest"}"#, "group_reset"),
        ("POST", &format!("{group}/dead/redrive"), "{}", "dead_redrive"),
        ("POST", &format!("{group}/dead/purge"), r#"{"all":true}"#, "dead_purge"),
        ("POST", &format!("{group}/drain"), r#"{"to":"other"}"#, "group_drain"),
        ("POST", "/v1/topics/orders/scheduled/cancel", r#"{"all":true,"wait":"20s"}"#, ""),
        ("POST", "/v1/topics/orders/scheduled/pause", r#"{"filter":{"key":"k"},"wait":"20s"}"#, ""),
        ("DELETE", group, "", "group_delete"),
        ("PUT", "/v1/topics/gone", "", "topic_put"),
        ("DELETE", "/v1/topics/gone", "", "topic_delete"),
        ("PUT", &format!("/v1/topics/{}", &long[..249]), "", "topic_put"),
    ];
    for (method, path, body, what) in changes {
        let before = entries(&server, "").len();
        let headers = "content-type: application/json\r\n";
        let answer = server.request(method, path, headers, body.as_bytes());
        assert!(answer.status < 300, "{method} {path}: {}", answer.body);
        assert!(entries(&server, "").len() > before, "{method} {path}");
        if !what.is_empty() {
            assert_eq!(newest(&server), what, "{method} {path}");
        }
    }
    let all = entries(&server, "");
    assert!(all.iter().all(|entry| entry["who"] == "local@127.0.0.1"), "{all:?}");
    assert!(!json!(all).to_string().contains("topsecret"), "no secret is taken down");
    let topic = entries(&server, "?topic=gone");
    assert_eq!(topic.len(), 2);
    assert_eq!(
        (&topic[0]["what"], &topic[1]["what"]),
        (&json!("topic_delete"), &json!("topic_put"))
    );
    let put = entries(&server, "?topic=orders");
    let put = put.iter().rfind(|entry| entry["what"] == "topic_put").unwrap();
    assert_eq!(put["details"]["settings"], r#"{"partitions":2}"#);
}

#[test]
fn what_is_refused_is_not_a_change() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":4}"#);
    let before = entries(&server, "").len();
    for answer in [
        server.put("/v1/topics/orders", r#"{"partitions":0}"#),
        server.put("/v1/levels", r#"{"levels":[]}"#),
        server.delete("/v1/topics/absent"),
        server.delete("/v1/topics/orders/groups/absent"),
        server.post("/v1/topics/orders/scheduled/cancel", "{}"),
    ] {
        assert!((400..500).contains(&answer.status), "{}", answer.body);
    }
    assert_eq!(entries(&server, "").len(), before);
    assert_eq!(server.put("/v1/topics/orders", r#"{"partitions":1}"#).status, 409);
    let last = &entries(&server, "")[0];
    assert_eq!(last["details"]["refused"], "partitions_cannot_shrink", "what failed says so");
}

#[test]
fn the_record_is_read_in_pages() {
    let server = Server::start();
    for number in 0..5 {
        server.put(&format!("/v1/topics/t{number}"), "");
    }
    let (mut topics, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = server.get(&format!("/v1/audit{query}")).json();
        let entries = page["entries"].as_array().unwrap().clone();
        topics.extend(entries.iter().map(|entry| entry["topic"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => query = format!("?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(topics, ["t4", "t3", "t2", "t1", "t0"]);
    for (query, code) in [
        ("?cursor=x", "invalid_cursor"),
        ("?limit=0", "invalid_parameter"),
        ("?topic=a%20b", "invalid_topic_name"),
        ("?colour=red", "unknown_field"),
    ] {
        assert_eq!(server.get(&format!("/v1/audit{query}")).code(), code, "{query}");
    }
}
