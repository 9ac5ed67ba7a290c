//! Can dead letters be found, sent again and thrown away over HTTP?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Server, wait_for};

const GROUP: &str = "/v1/topics/orders/groups/billing";

/// Sends messages that the group rejects at once; their ids.
fn rejected(server: &Server, count: usize) -> Vec<String> {
    let ids = (0..count)
        .map(|n| server.send("orders", &json!({"body": n.to_string(), "key": format!("k{n}")})))
        .collect();
    let received = server.receive_all(GROUP, count);
    let receipts: Vec<&Value> = received.iter().map(|message| &message["receipt"]).collect();
    let nack = json!({"receipts": receipts, "reject": true, "error": "not wanted"});
    let words = server.settle(GROUP, "nack", &nack);
    assert!(words.iter().all(|word| word == "dead"), "{words:?}");
    ids
}

/// Asks until so many letters are listed.
fn letters(server: &Server, query: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} dead letters"), || {
        let page = server.get(&format!("{GROUP}/dead{query}"));
        assert_eq!(page.status, 200, "{}", page.body);
        let messages = page.json()["messages"].as_array().expect("a list").clone();
        Some(messages).filter(|messages| messages.len() == count)
    })
}

/// The report of a job once it has ended.
fn ended(server: &Server, path: &str) -> Value {
    wait_for("the end of the job", || {
        Some(server.get(path).json()).filter(|report| report["state"] != "running")
    })
}

#[test]
fn a_dead_letter_tells_what_happened() {
    let server = Server::start();
    server.put(GROUP, r#"{"retry":{"ladder":["1ms"]}}"#);
    let id = server.send("orders", &json!({"body": "x", "key": "k", "headers": {"a": "1"}}));
    for error in ["first", "second"] {
        let received = server.receive(GROUP, &json!({"wait": "20s"}));
        let nack = json!({"receipts": [received[0]["receipt"]], "error": error});
        server.settle(GROUP, "nack", &nack);
    }
    let letter = &letters(&server, "", 1)[0];
    assert_eq!((&letter["id"], &letter["topic"]), (&json!(id), &json!("orders")));
    assert_eq!((&letter["body"], &letter["key"]), (&json!("x"), &json!("k")));
    assert_eq!(letter["headers"], json!({"a": "1"}), "headers are as sent");
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("attempts_exhausted"), &json!(2)));
    assert_eq!(letter["first_error"], "first");
    assert_eq!(letter["last_error"], "second");
    for field in ["due", "delivered_at", "died_at"] {
        assert!(letter[field].is_string(), "{field}: {letter}");
    }
}

#[test]
fn dead_letters_are_counted_by_day_and_reason() {
    // The clock stands at a morning, and is moved over midnight.
    let server = Server::on_virtual_time("2030-01-31T09:00:00Z");
    let summary = || server.get(&format!("{GROUP}/dead/summary"));
    server.put(GROUP, "");
    assert_eq!(summary().json(), json!({"total": 0, "days": [], "complete": true}));
    rejected(&server, 3);
    letters(&server, "", 3);
    let advance = |by: &str| {
        let moved = server.post("/v1/time/advance", json!({"by": by}).to_string());
        assert_eq!(moved.status, 200, "{}", moved.body);
    };
    advance("20h");
    for n in 3..5 {
        server.send("orders", &json!({"body": n.to_string()}));
    }
    advance("1s");
    let receipts = server.receive_all(GROUP, 2);
    let receipts: Vec<&Value> = receipts.iter().map(|message| &message["receipt"]).collect();
    server.settle(GROUP, "nack", &json!({"receipts": receipts, "reject": true}));
    advance("1s");
    letters(&server, "", 5);
    let days = |first: u64, second: u64| {
        json!([
            {"day": "2030-02-01", "reason": "rejected", "count": first},
            {"day": "2030-01-31", "reason": "rejected", "count": second},
        ])
    };
    assert_eq!(summary().json(), json!({"total": 5, "days": days(2, 3), "complete": true}));
    // What has left the list is not counted.
    let gone = letters(&server, "", 5)[1]["id"].clone();
    let purge = json!({"filter": {"id": gone}}).to_string();
    assert_eq!(server.post(&format!("{GROUP}/dead/purge"), purge).json()["purged"], 1);
    assert_eq!(summary().json(), json!({"total": 4, "days": days(2, 2), "complete": true}));
    assert_eq!(server.get(&format!("{GROUP}/dead/summary?day=x")).code(), "unknown_field");
    let missing = server.get("/v1/topics/orders/groups/nobody/dead/summary");
    assert_eq!(missing.code(), "group_not_found");
}

#[test]
fn dead_letters_are_found_by_reason_time_key_and_id() {
    let server = Server::start();
    server.put(GROUP, "");
    let ids = rejected(&server, 5);
    let all = letters(&server, "", 5);
    assert_eq!(letters(&server, "?reason=rejected", 5).len(), 5);
    assert_eq!(letters(&server, "?reason=expired", 0).len(), 0);
    assert_eq!(letters(&server, "?key=k3", 1)[0]["key"], "k3");
    assert_eq!(letters(&server, &format!("?id={}", ids[2]), 1)[0]["id"], ids[2].as_str());
    let died_at = all[0]["died_at"].as_str().unwrap();
    assert_eq!(letters(&server, &format!("?from={died_at}"), 5).len(), 5);
    assert_eq!(letters(&server, &format!("?to={died_at}"), 0).len(), 0);
    let day = &died_at[..10];
    let last_day = all[4]["died_at"].as_str().unwrap();
    if last_day.starts_with(day) {
        assert_eq!(letters(&server, &format!("?day={day}"), 5).len(), 5);
    }
    assert_eq!(letters(&server, "?day=2001-01-01", 0).len(), 0);

    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let page = server.get(&format!("{GROUP}/dead?limit=2{cursor}")).json();
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 2);
        seen.extend(messages.iter().map(|one| one["id"].clone()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all.iter().map(|one| one["id"].clone()).collect::<Vec<_>>());
    let log = server.get("/v1/topics/orders.billing.dead/partitions/0/messages").json();
    assert_eq!(log["messages"].as_array().unwrap().len(), 5, "it is a topic like any other");
}

#[test]
fn a_redriven_message_starts_again_and_leaves_the_list() {
    let server = Server::start();
    server.put(GROUP, "");
    let ids = rejected(&server, 4);
    letters(&server, "", 4);
    let redrive = |ask: Value| server.post(&format!("{GROUP}/dead/redrive"), ask.to_string());
    let dry = redrive(json!({"filter": {"reason": "rejected"}, "dry_run": true}));
    assert_eq!((dry.status, dry.json()), (200, json!({"matched": 4})));

    let one = redrive(json!({"filter": {"id": ids[1]}, "edit": {"body": "mended", "key": "new"}}));
    assert_eq!(one.status, 202, "{}", one.body);
    let job = one.json()["job"].as_str().unwrap().to_owned();
    let report = ended(&server, &format!("{GROUP}/dead/redrive/{job}"));
    assert_eq!((&report["state"], &report["done"]), (&json!("done"), &json!(1)), "{report}");
    assert_eq!(report["results"][0]["id"], ids[1].as_str());
    assert_eq!(report["results"][0]["result"], "redriven");
    assert!(report["results"][0]["due"].is_string());
    let again = server.receive(GROUP, &json!({"wait": "20s"}));
    assert_eq!((&again[0]["id"], &again[0]["attempt"]), (&json!(ids[1]), &json!(1)));
    assert_eq!((&again[0]["body"], &again[0]["key"]), (&json!("mended"), &json!("new")));
    letters(&server, "", 3);

    let all = redrive(json!({"rate": 1000}));
    let job = all.json()["job"].as_str().unwrap().to_owned();
    let report = ended(&server, &format!("{GROUP}/dead/redrive/{job}?limit=2"));
    assert_eq!((&report["matched"], &report["done"]), (&json!(3), &json!(3)), "{report}");
    assert_eq!(report["results"].as_array().unwrap().len(), 2);
    let next = report["next"].as_str().unwrap();
    let rest = server.get(&format!("{GROUP}/dead/redrive/{job}?cursor={next}")).json();
    assert_eq!((rest["results"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    assert_eq!(server.receive_all(GROUP, 3).len(), 3);
    letters(&server, "", 0);
    let other = server.put("/v1/topics/orders/groups/other", "");
    assert_eq!(other.status, 201);
    let foreign = server.get(&format!("/v1/topics/orders/groups/other/dead/redrive/{job}"));
    assert_eq!(foreign.code(), "job_not_found", "G43");
    assert_eq!(server.get(&format!("{GROUP}/drain/{job}")).code(), "job_not_found");
}

#[test]
fn bad_redrives() {
    let server = Server::start();
    server.put(GROUP, "");
    rejected(&server, 1);
    letters(&server, "", 1);
    let large = json!({"filter": {"id": "x"}, "edit": {"body": "x".repeat(5 << 20)}}).to_string();
    for (json, code) in [
        (r#"{"rate":0}"#, "invalid_field"),
        (r#"{"rate":-1}"#, "invalid_field"),
        (r#"{"rate":1000001}"#, "invalid_field"),
        (r#"{"at":"soon"}"#, "invalid_time"),
        (r#"{"filter":{"reason":"bored"}}"#, "invalid_field"),
        (r#"{"filter":{"colour":1}}"#, "unknown_field"),
        (r#"{"filter":[]}"#, "invalid_field"),
        (r#"{"edit":{"body":"x"}}"#, "invalid_field"),
        (r#"{"edit":{"colour":"x"}}"#, "unknown_field"),
        (r#"{"dry_run":"yes"}"#, "invalid_field"),
        (&large, "invalid_field"),
    ] {
        let answer = server.post(&format!("{GROUP}/dead/redrive"), json);
        let what = json.get(..60).unwrap_or(json);
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{what}");
    }
    for (json, code) in [
        ("", "invalid_field"),
        ("{}", "invalid_field"),
        (r#"{"filter":{}}"#, "invalid_field"),
        (r#"{"all":true,"filter":{"key":"k"}}"#, "conflicting_fields"),
        (r#"{"all":1}"#, "invalid_field"),
    ] {
        let answer = server.post(&format!("{GROUP}/dead/purge"), json);
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{json}");
    }
    for (json, code) in [
        ("{}", "invalid_field"),
        (r#"{"to":"a b"}"#, "invalid_topic_name"),
        (r#"{"to":"absent"}"#, "invalid_field"),
        (r#"{"to":"orders"}"#, "invalid_field"),
        (r#"{"to":"orders.billing.dead"}"#, "invalid_field"),
    ] {
        let answer = server.post(&format!("{GROUP}/drain"), json);
        assert_eq!((answer.status, answer.code().as_str()), (400, code), "{json}");
    }
    letters(&server, "", 1);
}

#[test]
fn what_is_thrown_away_is_gone() {
    let server = Server::start();
    server.put(GROUP, "");
    rejected(&server, 3);
    letters(&server, "", 3);
    let purge = |ask: Value| server.post(&format!("{GROUP}/dead/purge"), ask.to_string()).json();
    let filter = json!({"key": "k1"});
    assert_eq!(
        purge(json!({"filter": filter, "dry_run": true})),
        json!({"matched": 1, "purged": 0})
    );
    letters(&server, "", 3);
    assert_eq!(purge(json!({"filter": filter})), json!({"matched": 1, "purged": 1}));
    assert_eq!(letters(&server, "", 2).iter().filter(|one| one["key"] == "k1").count(), 0);
    assert_eq!(purge(json!({"all": true})), json!({"matched": 2, "purged": 2}));
    letters(&server, "", 0);
    assert_eq!(server.get(GROUP).json()["dead"], 0);
}

#[test]
fn a_backlog_moves_to_another_topic() {
    let server = Server::start();
    server.put(GROUP, r#"{"paused":true}"#);
    server.put("/v1/topics/elsewhere", r#"{"partitions":1}"#);
    for number in 0..10 {
        server.send("orders", &json!({"body": number.to_string()}));
    }
    // Everything is delivered once another group has got it.
    server.receive_all("/v1/topics/orders/groups/watcher", 10);
    let drain = server.post(&format!("{GROUP}/drain"), r#"{"to":"elsewhere","max":4}"#);
    assert_eq!(drain.status, 202, "{}", drain.body);
    let job = drain.json()["job"].as_str().unwrap().to_owned();
    let report = ended(&server, &format!("{GROUP}/drain/{job}"));
    assert_eq!((&report["kind"], &report["done"]), (&json!("drain"), &json!(4)), "{report}");
    let moved = server.receive_all("/v1/topics/elsewhere/groups/mover", 4);
    assert_eq!(moved.len(), 4);
    assert_eq!(server.get(GROUP).json()["lag"], 6);
}
