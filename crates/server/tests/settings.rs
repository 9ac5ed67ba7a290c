//! Do topics and levels take what says when messages fire?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::Server;

const TOPIC: &str = "/v1/topics/orders";

#[test]
fn settings_come_back_as_they_were_written() {
    let server = Server::start();
    let levels: Vec<String> = (1..=18).map(|level| format!("{level}s")).collect();
    let settings = json!({"max_delay": "1d", "rate_cap": 100, "jitter": "30s",
        "catch_up": {"spread": "10m"}, "levels": levels,
        "check": {"first": "1s", "interval": "2s", "max": 3}, "paused": true});
    let made = server.put(TOPIC, settings.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
    let shown = server.get(TOPIC).json();
    for (name, value) in settings.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    let plain = json!({"max_delay": "none", "rate_cap": "none", "jitter": "none",
        "catch_up": "all", "levels": "default", "check": "default", "paused": false});
    assert_eq!(server.patch(TOPIC, plain.to_string()).status, 200);
    let shown = server.get(TOPIC).json();
    for name in ["max_delay", "rate_cap", "jitter", "levels", "check"] {
        assert_eq!(shown.get(name), None, "{name}");
    }
    assert_eq!((&shown["catch_up"], &shown["paused"]), (&json!("all"), &json!(false)));
    for policy in [json!("latest"), json!({"skip_older_than": "1h"})] {
        server.patch(TOPIC, json!({"catch_up": policy}).to_string());
        assert_eq!(server.get(TOPIC).json()["catch_up"], policy);
    }
}

#[test]
fn the_longest_delay_of_a_topic_counts() {
    let server = Server::start();
    server.put(TOPIC, r#"{"max_delay":"1h"}"#);
    let send = |delay: &str| {
        server.post(&format!("{TOPIC}/messages"), json!({"body": 1, "delay": delay}).to_string())
    };
    assert_eq!(send("1h").status, 201);
    assert_eq!((send("61m").status, send("61m").code().as_str()), (400, "delay_too_long"));
}

#[test]
fn a_paused_topic_holds_back_what_falls_due() {
    let server = Server::start();
    server.put(TOPIC, r#"{"paused":true}"#);
    server.send("orders", &json!({"body": "x"}));
    let group = "/v1/topics/orders/groups/g";
    assert_eq!(server.receive(group, &json!({"wait": "300ms"})), Vec::<Value>::new());
    server.patch(TOPIC, r#"{"paused":false}"#);
    assert_eq!(server.receive_all(group, 1)[0]["body"], "x");
}

#[test]
fn levels_are_changed_for_all_and_for_one_topic() {
    let server = Server::start();
    let usual = server.get("/v1/levels").json();
    assert_eq!(usual["levels"].as_array().unwrap().len(), 18);
    assert_eq!((&usual["levels"][0], &usual["levels"][17]), (&json!("1s"), &json!("2h")));
    let hours: Vec<String> = (1..=18).map(|level| format!("{level}h")).collect();
    let put = server.put("/v1/levels", json!({"levels": hours}).to_string());
    assert_eq!((put.status, &put.json()["levels"]), (200, &json!(hours)), "{}", put.body);
    assert_eq!(server.get("/v1/levels").json()["levels"], json!(hours));
    let days: Vec<String> = (1..=18).map(|level| format!("{level}d")).collect();
    server.put("/v1/topics/slow", json!({"levels": days}).to_string());
    for (topic, within) in [("orders", "6h"), ("slow", "7d")] {
        server.send(topic, &json!({"body": "x", "delay_level": 3}));
        let forecast = server.get(&format!("/v1/topics/{topic}/forecast")).json();
        let due = forecast["due"].as_array().unwrap();
        let first = due.iter().find(|one| one["count"] == 1).unwrap();
        assert_eq!(first["within"], within, "{topic}");
    }
}
