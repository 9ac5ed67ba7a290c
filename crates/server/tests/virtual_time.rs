//! A flow of thirty days over HTTP, on a server whose time is moved by hand.

#![allow(dead_code, clippy::allow_attributes, reason = "the support is shared by all test files")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests, which measure real time"
)]

mod support;

use std::time::Instant;

use serde_json::{Value, json};
use support::Server;

const START: &str = "2030-01-01T00:00:00Z";

fn advance(server: &Server, by: &str) -> Value {
    let answer = server.post("/v1/time/advance", json!({ "by": by }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[test]
fn time_is_shown_and_moved() {
    let server = Server::on_virtual_time(START);
    let shown = server.get("/v1/time").json();
    assert_eq!(shown, json!({"now": "2030-01-01T00:00:00.000Z", "virtual": true}));
    server.send("t", &json!({"body": "x", "delay": "12h"}));
    let moved = advance(&server, "11h59m59s999ms");
    assert_eq!(moved, json!({"now": "2030-01-01T11:59:59.999Z", "fired": 0}));
    let to = json!({"to": "2030-01-02T00:00:00Z"});
    let moved = server.post("/v1/time/advance", to.to_string()).json();
    assert_eq!(moved, json!({"now": "2030-01-02T00:00:00.000Z", "fired": 1}));
    let back = server.post("/v1/time/advance", json!({"to": START}).to_string());
    assert_eq!((back.status, back.code()), (400, "invalid_field".to_owned()));
}

#[test]
fn real_time_is_not_moved() {
    let server = Server::start();
    assert_eq!(server.get("/v1/time").json()["virtual"], json!(false));
    let answer = server.post("/v1/time/advance", r#"{"by":"1s"}"#);
    assert_eq!((answer.status, answer.code()), (409, "not_virtual_time".to_owned()));
}

/// A message every day at nine, a reminder that fails and comes again, a transaction that nobody
/// decides: what they do is the same in every run.
fn story(server: &Server) -> Vec<Value> {
    let group = "/v1/topics/flow/groups/workers";
    assert!(server.put(group, r#"{"retry":{"ladder":["1h","1d","3d"]}}"#).status < 300);
    let daily = json!({"body": "daily", "repeat": {"cron": "0 9 * * *", "zone": "UTC"}});
    server.send("flow", &daily);
    server.send("flow", &json!({"body": "reminder", "delay": "2d"}));
    let half = json!({"producer_group": "p", "messages": [{"topic": "flow", "body": "half"}]});
    let prepared = server.post("/v1/transactions", half.to_string());
    assert_eq!(prepared.status, 201, "{}", prepared.body);
    let transaction = prepared.json()["id"].as_str().unwrap().to_owned();
    let mut seen = Vec::new();
    for day in 0..30 {
        advance(server, "1d");
        for message in server.receive(group, &json!({"max": 100, "lease": "1h"})) {
            let receipts = json!({"receipts": [message["receipt"]]});
            let failed = message["body"] == "reminder";
            server.settle(group, if failed { "nack" } else { "ack" }, &receipts);
            let facts = [&message["body"], &message["attempt"], &message["offset"], &message["id"]];
            seen.push(json!({"day": day, "message": facts}));
        }
    }
    let found = server.get(&format!("/v1/transactions/{transaction}")).json();
    assert_eq!(found["state"], json!("unresolved"), "{found}");
    seen
}

#[test]
fn thirty_days_of_series_retries_and_transactions_pass_in_a_moment_and_repeat() {
    let server = Server::on_virtual_time(START);
    let began = Instant::now();
    let first = story(&server);
    let took = began.elapsed();
    println!("thirty days took {took:?}");
    let bodies = |word: &str| first.iter().filter(|one| one["message"][0] == word).count();
    assert_eq!(bodies("daily"), 30, "{first:?}");
    assert!(bodies("reminder") >= 4, "{first:?}");
    assert_eq!(bodies("half"), 0);
    assert_eq!(story(&Server::on_virtual_time(START)), first);
}
