//! Can pending messages be named, changed, listed and foretold over HTTP?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Answer, Server, wait_for};

const MESSAGES: &str = "/v1/topics/orders/messages";

fn sent(server: &Server, message: &Value) -> Answer {
    server.post(MESSAGES, message.to_string())
}

fn ids(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().expect("messages");
    messages.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn g3_the_same_request_again_is_a_duplicate_and_another_a_conflict() {
    let server = Server::start();
    let message = json!({"body": "x", "id": "order 1/ü", "delay": "1h", "headers": {"a": "1"}});
    let first = sent(&server, &message);
    assert_eq!(first.status, 201, "{}", first.body);
    assert_eq!(first.json().get("duplicate"), None);
    // The same by value, written otherwise.
    let same = json!({"headers": {"a": "1"}, "delay": 3_600_000, "id": "order 1/ü", "body": "x"});
    let again = sent(&server, &same);
    assert_eq!(again.status, 200);
    let (first, again) = (first.json(), again.json());
    assert_eq!((&again["id"], &again["due"]), (&first["id"], &first["due"]));
    assert_eq!((&again["duplicate"], &again["state"]), (&json!(true), &json!("scheduled")));
    let other = sent(&server, &json!({"body": "y", "id": "order 1/ü", "delay": "1h"}));
    assert_eq!((other.status, other.code().as_str()), (409, "id_conflict"));
    let path = format!("{MESSAGES}/order%201%2F%C3%BC");
    let found = server.get(&path).json();
    assert_eq!((&found["id"], &found["own_id"]), (&first["id"], &json!("order 1/ü")));
    assert_eq!((&found["version"], &found["state"]), (&json!(1), &json!("scheduled")));
    assert_eq!(server.delete(&path).json(), json!({"result": "cancelled"}));
    assert_eq!(server.get(&path).json()["state"], "cancelled", "it is known for a while");
    assert_eq!(sent(&server, &message).json()["state"], "cancelled", "and so is its name");
    assert_eq!(server.get("/v1/messages/order%201%2F%C3%BC").status, 404, "only ours there");
}

#[test]
fn a_message_gives_way_to_one_that_replaces_it() {
    let server = Server::start();
    let first = sent(&server, &json!({"body": "x", "id": "a", "delay": "1h"})).json();
    let replace = json!({"body": "y", "id": "a", "delay": "2h", "on_conflict": "replace"});
    let second = sent(&server, &replace);
    assert_eq!(second.status, 201, "{}", second.body);
    assert_ne!(second.json()["id"], first["id"]);
    let listed = server.get("/v1/topics/orders/scheduled").json();
    assert_eq!(ids(&listed), [second.json()["id"].as_str().unwrap()]);
    let old = server.get(&format!("/v1/messages/{}", first["id"].as_str().unwrap())).json();
    assert_eq!(old["state"], "cancelled");
}

#[test]
fn a_batch_of_known_and_new_ones() {
    let server = Server::start();
    sent(&server, &json!({"body": "1", "id": "a", "delay": "1h"}));
    let one = json!({"body": "1", "id": "a", "delay": "1h"});
    let known = json!({"messages": [one, one]});
    let answer = sent(&server, &known);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mixed = sent(&server, &json!({"messages": [one, {"body": "2", "id": "b", "delay": "1h"}]}));
    assert_eq!(mixed.status, 201);
    let messages = mixed.json()["messages"].clone();
    assert_eq!(
        (&messages[0]["duplicate"], &messages[1]["duplicate"]),
        (&json!(true), &Value::Null)
    );
    let taken = json!({"messages": [
        {"body": "3", "id": "c", "delay": "1h"}, {"body": "4", "id": "b", "delay": "1h"}]});
    let refused = sent(&server, &taken);
    assert_eq!((refused.status, &refused.json()["index"]), (409, &json!(1)));
    assert_eq!(server.get(&format!("{MESSAGES}/c")).status, 404, "all or nothing");
}

#[test]
fn a_publish_takes_names_and_rules() {
    let server = Server::start();
    let path = "/v1/topics/orders/publish?id=p1&delay=1h&catch_up=skip_older_than:1h";
    let answer = server.request("POST", path, "", b"raw");
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(server.request("POST", path, "", b"raw").status, 200);
    assert_eq!(server.request("POST", path, "", b"other").code(), "id_conflict");
    let found = server.get(&format!("{MESSAGES}/p1")).json();
    assert_eq!(found["catch_up"], json!({"skip_older_than": "1h"}));
    let path = "/v1/topics/orders/publish?cron=0+9+*+*+1-5&zone=Asia/Shanghai&count=3";
    let series = server.request("POST", path, "", b"tick");
    assert_eq!(series.status, 201, "{}", series.body);
}

#[test]
fn g28_a_change_moves_pauses_and_edits_under_the_same_id() {
    let server = Server::start();
    let id = server.send("orders", &json!({"body": "x", "delay": "1h", "headers": {"a": "1"}}));
    let path = format!("{MESSAGES}/{id}");
    let moved = server.patch(&path, r#"{"delay":"2h","version":1}"#);
    assert_eq!(moved.status, 200, "{}", moved.body);
    assert_eq!((&moved.json()["id"], &moved.json()["version"]), (&json!(id), &json!(2)));
    let stale = server.patch(&path, r#"{"delay":"3h","version":1}"#);
    assert_eq!((stale.status, stale.code().as_str()), (409, "version_conflict"));
    let paused = server.patch(&path, r#"{"paused":true}"#).json();
    assert_eq!(paused["state"], "paused");
    // All of it, if both came within one millisecond.
    let remaining = paused["remaining"].as_str().unwrap();
    assert!(remaining.starts_with("1h59m") || remaining == "2h", "{paused}");
    assert_eq!(ids(&server.get("/v1/topics/orders/scheduled").json()), [""; 0]);
    let listed = server.get("/v1/topics/orders/scheduled?state=paused").json();
    assert_eq!(
        (ids(&listed), &listed["messages"][0]["state"]),
        (vec![id.clone()], &json!("paused"))
    );
    let edited = server.patch(&path, r#"{"body":{"n":2},"headers":{"b":"2"},"ttl":"1m"}"#).json();
    assert_eq!((&edited["body"], &edited["state"]), (&json!(r#"{"n":2}"#), &json!("paused")));
    assert_eq!((&edited["headers"], &edited["ttl"]), (&json!({"b": "2"}), &json!("1m")));
    let resumed = server.patch(&format!("/v1/messages/{id}"), r#"{"paused":false}"#).json();
    assert_eq!((&resumed["state"], resumed.get("remaining")), (&json!("scheduled"), None));
    let now = server.post(&format!("{path}/deliver"), "");
    assert_eq!(now.status, 200, "{}", now.body);
    // On its way to the log it counts as delivered already.
    let done = wait_for("the delivery", || {
        let message = server.get(&path).json();
        let is_there = message["state"] == "delivered" && message["offset"].is_u64();
        is_there.then_some(message)
    });
    assert_eq!((&done["body"], &done["due"]), (&json!(r#"{"n":2}"#), &now.json()["due"]));
    for (answer, code) in [
        (server.patch(&path, r#"{"delay":"1s"}"#), "already_delivered"),
        (server.post(&format!("/v1/messages/{id}/deliver"), ""), "already_delivered"),
        (server.delete(&path), "already_delivered"),
    ] {
        assert_eq!((answer.status, answer.code().as_str()), (409, code));
    }
}

#[test]
fn pending_messages_are_found_by_key() {
    let server = Server::start();
    for key in ["user-1", "user-2", "order-1"] {
        server.send("orders", &json!({"body": key, "key": key, "delay": "1h"}));
    }
    let count = |query: &str| {
        ids(&server.get(&format!("/v1/topics/orders/scheduled?{query}")).json()).len()
    };
    assert_eq!((count("key=user-1"), count("key_base64=dXNlci0y")), (1, 1));
    assert_eq!((count("key_prefix=user-"), count("key_prefix=x"), count("")), (2, 0, 3));
    let first = server.get("/v1/topics/orders/scheduled?key_prefix=user-&limit=1").json();
    let next = first["next"].as_str().unwrap();
    let path = format!("/v1/topics/orders/scheduled?key_prefix=user-&limit=1&cursor={next}");
    let second = server.get(&path).json();
    assert_eq!(ids(&second).len(), 1);
    assert_ne!(ids(&second), ids(&first));
}

#[test]
fn a_series_is_shown_listed_and_stopped() {
    let server = Server::start();
    let repeat = json!({"cron": "0 9 * * 1-5", "zone": "Asia/Shanghai", "count": 3});
    let made = sent(&server, &json!({"body": "tick", "id": "daily", "repeat": repeat, "key": "k"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let series = server.get(&format!("{MESSAGES}/daily")).json();
    assert_eq!((&series["id"], &series["repeat"]), (&json!(id), &repeat));
    assert_eq!((&series["body"], &series["number"]), (&json!("tick"), &json!(1)));
    assert_eq!((&series["due"], &series["own_id"]), (&made.json()["due"], &json!("daily")));
    let occurrence = series["occurrence"].as_str().unwrap();
    let next = server.get(&format!("/v1/messages/{occurrence}")).json();
    assert_eq!((&next["series"], &next["state"]), (&json!(id), &json!("scheduled")));
    assert_eq!(next["body"], "tick");
    sent(
        &server,
        &json!({"body": "x", "repeat": {"every": "10m", "until": "2099-01-01T00:00:00Z"}}),
    );
    let listed = server.get("/v1/topics/orders/series").json();
    assert_eq!(listed["series"].as_array().unwrap().len(), 2, "{listed}");
    let every = listed["series"].as_array().unwrap().iter().find(|one| one.get("own_id").is_none());
    let until = json!({"every": "10m", "until": "2099-01-01T00:00:00.000Z"});
    assert_eq!(every.unwrap()["repeat"], until);
    let page = server.get("/v1/topics/orders/series?limit=1").json();
    let cursor = page["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/topics/orders/series?limit=1&cursor={cursor}")).json();
    assert_ne!(rest["series"][0]["id"], page["series"][0]["id"]);
    for refused in [
        server.patch(&format!("{MESSAGES}/daily"), r#"{"delay":"1s"}"#),
        server.post(&format!("{MESSAGES}/daily/deliver"), ""),
    ] {
        assert_eq!((refused.status, refused.code().as_str()), (409, "series_not_changeable"));
    }
    assert_eq!(
        sent(&server, &json!({"body": "tick", "id": "daily", "repeat": repeat, "key": "k"})).status,
        200
    );
    assert_eq!(server.delete(&format!("{MESSAGES}/daily")).json(), json!({"result": "cancelled"}));
    assert_eq!(server.get(&format!("/v1/messages/{occurrence}")).json()["state"], "cancelled");
    assert_eq!(
        server.get("/v1/topics/orders/series").json()["series"].as_array().unwrap().len(),
        1
    );
    assert_eq!(server.delete(&format!("/v1/messages/{id}")).code(), "already_cancelled");
}

#[test]
fn what_a_series_delivers_names_it() {
    let server = Server::start();
    let every = json!({"body": "tick", "repeat": {"every": "1s", "count": 2}, "delay": 0});
    let id = sent(&server, &every).json()["id"].clone();
    let received = server.receive_all("/v1/topics/orders/groups/g", 2);
    for message in received {
        assert_eq!(
            (&message["body"], &message["headers"]["punctual-series"]),
            (&json!("tick"), &id)
        );
    }
}

#[test]
fn how_much_is_due_when() {
    let server = Server::start();
    for delay in ["30s", "5m", "30m", "5h", "20h", "6d", "39d"] {
        server.send("orders", &json!({"body": "x", "delay": delay}));
    }
    let paused = server.send("orders", &json!({"body": "x", "delay": "1h"}));
    server.patch(&format!("{MESSAGES}/{paused}"), r#"{"paused":true}"#);
    let forecast = server.get("/v1/topics/orders/forecast").json();
    assert_eq!((&forecast["total"], &forecast["paused"]), (&json!(8), &json!(1)), "{forecast}");
    let due: Vec<_> = ["1m", "10m", "1h", "6h", "1d", "7d", "40d"]
        .into_iter()
        .zip(1..)
        .map(|(within, count)| json!({"within": within, "count": count}))
        .collect();
    assert_eq!((&forecast["due"], &forecast["later"]), (&json!(due), &json!(0)));
    assert_eq!(server.get("/v1/topics/absent/forecast").code(), "topic_not_found");
}
