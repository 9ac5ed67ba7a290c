//! Are transactions prepared, decided, asked about and listed over HTTP? (G29-G32)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod push_support;
mod support;

use push_support::{Endpoint, reply};
use serde_json::{Value, json};
use support::{Answer, Server, wait_for};

const GROUP: &str = "/v1/topics/orders/groups/g";
const CHECKS: &str = "/v1/producer-groups/shop/checks";

fn prepare(server: &Server, more: &Value) -> Answer {
    let mut ask = json!({"producer_group": "shop", "messages": [
        {"topic": "orders", "body": "a", "key": "k"}, {"topic": "bills", "body": "b", "delay": "1h"}]});
    let fields = more.as_object().expect("an object").clone();
    ask.as_object_mut().expect("an object").extend(fields);
    server.post("/v1/transactions", ask.to_string())
}

fn id_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

fn decide(server: &Server, id: &str, verb: &str) -> Answer {
    server.post(&format!("/v1/transactions/{id}/{verb}"), "")
}

#[test]
fn g29_g30_half_messages_are_seen_after_the_commit_only() {
    let server = Server::start();
    let prepared = prepare(&server, &json!({}));
    let id = id_of(&prepared);
    let view = prepared.json();
    assert_eq!(
        (&view["state"], &view["messages"][1]["topic"]),
        (&json!("prepared"), &json!("bills"))
    );
    let half = format!("/v1/messages/{}", view["messages"][0]["id"].as_str().unwrap());
    let message = server.get(&half).json();
    assert_eq!((&message["state"], &message["transaction"]), (&json!("prepared"), &json!(id)));
    for (path, field) in [("scheduled", "messages"), ("scheduled?state=paused", "messages")] {
        assert_eq!(server.get(&format!("/v1/topics/orders/{path}")).json()[field], json!([]));
    }
    assert_eq!(server.get("/v1/topics/orders/forecast").json()["prepared"], 1);
    assert_eq!(server.receive(GROUP, &json!({"wait": "300ms"})), Vec::<Value>::new());
    let changed = server.patch(&half, r#"{"delay":"1s"}"#);
    assert_eq!((changed.status, changed.code().as_str()), (409, "transaction_undecided"));

    let committed = decide(&server, &id, "commit");
    assert_eq!((committed.status, &committed.json()["state"]), (200, &json!("committed")));
    assert_eq!(decide(&server, &id, "commit").json()["state"], "committed", "again is the same");
    let refused = decide(&server, &id, "rollback");
    assert_eq!((refused.status, refused.code().as_str()), (409, "already_decided"));
    assert_eq!(server.receive_all(GROUP, 1)[0]["body"], "a");
    let delayed = server.get("/v1/topics/bills/scheduled").json();
    assert_eq!(delayed["messages"][0]["body"], "b");
    assert_eq!(server.get(&format!("/v1/transactions/{id}")).json()["state"], "committed");
}

#[test]
fn g30_rolled_back_is_never_delivered() {
    let server = Server::start();
    let prepared = prepare(&server, &json!({}));
    let id = id_of(&prepared);
    assert_eq!(decide(&server, &id, "rollback").json()["state"], "rolled_back");
    assert_eq!(decide(&server, &id, "commit").code(), "already_decided");
    assert_eq!(decide(&server, &id, "resume").code(), "already_decided");
    let half = prepared.json()["messages"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.get(&format!("/v1/messages/{half}")).json()["state"], "cancelled");
    assert_eq!(server.receive(GROUP, &json!({"wait": "300ms"})), Vec::<Value>::new());
}

#[test]
fn the_same_prepare_again_is_a_duplicate() {
    let server = Server::start();
    let named = json!({"messages": [{"topic": "orders", "body": "a", "id": "own"}]});
    let first = id_of(&prepare(&server, &named));
    let again = prepare(&server, &named);
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &json!(true)), "{}", again.body);
    assert_eq!(again.json()["id"], first.as_str());
    let other = json!({"messages": [
        {"topic": "orders", "body": "x"}, {"topic": "orders", "body": "b", "id": "own"}]});
    let refused = prepare(&server, &other);
    assert_eq!((refused.status, refused.code().as_str()), (409, "id_conflict"));
    assert_eq!(refused.json()["index"], 1);
}

#[test]
fn g32_producers_are_asked_until_checks_are_spent_and_again_after_a_resume() {
    let server = Server::start();
    let check = json!({"check": {"first": "0s", "interval": "1s", "max": 2}});
    let id = id_of(&prepare(&server, &check));
    for attempt in 1..=2 {
        let asked = server.post(CHECKS, r#"{"wait":"30s","max":1}"#).json();
        assert_eq!(asked["checks"][0]["transaction"], id.as_str(), "{asked}");
        assert_eq!(asked["checks"][0]["attempt"], attempt);
        let messages = asked["checks"][0]["messages"].as_array().unwrap();
        assert_eq!((messages.len(), &messages[0]["body"]), (2, &json!("a")));
        assert_eq!((&messages[0]["key"], &messages[0]["topic"]), (&json!("k"), &json!("orders")));
    }
    let path = format!("/v1/transactions/{id}");
    let spent = wait_for("the last check to be spent", || {
        Some(server.get(&path).json()).filter(|one| one["state"] == "unresolved")
    });
    assert_eq!(spent["checks_sent"], 2);
    let listed = server.get("/v1/transactions?state=unresolved&producer_group=shop").json();
    assert_eq!(listed["transactions"][0]["id"], id.as_str());
    let resumed = server.post(&format!("{path}/resume"), r#"{"reason":"the shop is back"}"#);
    assert_eq!((resumed.status, &resumed.json()["state"]), (200, &json!("prepared")));
    let asked = server.post(CHECKS, r#"{"wait":"30s"}"#).json();
    assert_eq!(asked["checks"][0]["attempt"], 1, "{asked}");
    assert_eq!(decide(&server, &id, "commit").status, 200);
    let audit = server.get("/v1/audit").json();
    let entry = &audit["entries"][0];
    assert_eq!(
        (&entry["what"], &entry["details"]["reason"]),
        (&json!("transaction_resume"), &json!("the shop is back"))
    );
}

#[test]
fn a_poll_waits_for_the_first_check() {
    let server = Server::start();
    assert_eq!(server.post(CHECKS, r#"{"wait":"200ms"}"#).json(), json!({"checks": []}));
    assert_eq!(server.post(CHECKS, "").json(), json!({"checks": []}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post(CHECKS, r#"{"wait":"60s"}"#).json());
        let id = id_of(&prepare(&server, &json!({"check": {"first": "0s"}})));
        let asked = waiting.join().expect("an answer");
        assert_eq!(asked["checks"][0]["transaction"], id.as_str());
    });
}

#[test]
fn transactions_are_listed_in_pages() {
    let server = Server::start();
    let mut made: Vec<String> = (0..5).map(|_| id_of(&prepare(&server, &json!({})))).collect();
    decide(&server, &made[0], "commit");
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/transactions?limit=2{cursor}")).json();
        let ids = page["transactions"].as_array().unwrap().iter();
        listed.extend(ids.map(|one| one["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    made.sort();
    listed.sort();
    assert_eq!(listed, made);
    let prepared = server.get("/v1/transactions?state=prepared").json();
    assert_eq!(prepared["transactions"].as_array().unwrap().len(), 4);
    assert_eq!(server.get("/v1/transactions?producer_group=x").json()["transactions"], json!([]));
}

#[test]
fn a_delay_counts_from_the_commit_or_from_the_send() {
    let server = Server::start();
    let id = id_of(&prepare(
        &server,
        &json!({"messages": [
        {"topic": "orders", "body": "send", "delay": "1h", "delay_from": "send"},
        {"topic": "orders", "body": "commit", "delay": "1h"}]}),
    ));
    let half = server.get(&format!("/v1/transactions/{id}")).json()["messages"][0]["id"].clone();
    let due = server.get(&format!("/v1/messages/{}", half.as_str().unwrap())).json()["due"].clone();
    decide(&server, &id, "commit");
    let listed = server.get("/v1/topics/orders/scheduled").json()["messages"].clone();
    assert_eq!((&listed[0]["body"], &listed[0]["due"]), (&json!("send"), &due));
    assert!(listed[1]["due"].as_str() > due.as_str());
}

#[test]
fn a_url_is_asked_and_decides() {
    let server = Server::with(&[("push.allow", "127.0.0.0/8"), ("push.check_secret", "secret")]);
    let endpoint = Endpoint::start(|seen| {
        let asked: Value = serde_json::from_slice(&seen.body).expect("JSON");
        match asked["attempt"].as_u64() {
            Some(1) => reply(200, "", r#"{"decision":"unknown"}"#),
            Some(2) => reply(500, "", r#"{"decision":"commit"}"#),
            _ => reply(200, "", r#"{"decision":"commit"}"#),
        }
    });
    let check = json!({"check": {"first": "0s", "interval": "1s", "url": endpoint.url()}});
    let id = id_of(&prepare(&server, &check));
    for attempt in 1..=3 {
        let seen = endpoint.next();
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!((&asked["transaction"], &asked["attempt"]), (&json!(id), &json!(attempt)));
        assert_eq!(
            (&asked["producer_group"], &asked["messages"][0]["body"]),
            (&json!("shop"), &json!("a"))
        );
        assert_eq!(seen.headers["webhook-id"], id);
        assert!(seen.headers["webhook-signature"].starts_with("v1,"));
    }
    wait_for("the decision", || {
        let one = server.get(&format!("/v1/transactions/{id}")).json();
        (one["state"] == "committed").then_some(())
    });
    assert_eq!(server.receive_all(GROUP, 1)[0]["body"], "a");
    assert_eq!(server.post(CHECKS, "").json(), json!({"checks": []}), "nobody else is asked");
    let rolling = Endpoint::start(|_| reply(200, "", r#"{"decision":"rollback"}"#));
    let id = id_of(&prepare(&server, &json!({"check": {"first": "0s", "url": rolling.url()}})));
    wait_for("the decision", || {
        let one = server.get(&format!("/v1/transactions/{id}")).json();
        (one["state"] == "rolled_back").then_some(())
    });
}

#[test]
fn g46_a_url_that_leads_inside_is_refused() {
    let server = Server::start();
    for url in ["http://127.0.0.1:9/", "http://localhost/", "ftp://example.test/", "x"] {
        let refused = prepare(&server, &json!({"check": {"url": url}}));
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_url"), "{url}");
    }
}
