//! Does each rule fire when what it watches goes wrong for real, and is it over when that is?
//!
//! The wall clock, a full disk and a lost node take a process of their own, and are asked about in
//! the tests of the command line.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod alert_support;
mod push_support;
mod support;

use alert_support::{Watched, pairs, settings, shown, wait_for_state};
use push_support::{Endpoint, reply};
use serde_json::{Value, json};
use support::{Server, wait_for};

const GROUP: &str = "/v1/topics/t/groups/g";
/// Long enough to see a rule fire, and soon over.
const SHORT_WINDOW: (&str, &str) = ("alerts.window", "3s");

/// Sends so many messages with these fields, all at once; their ids.
fn send(server: &Server, topic: &str, count: usize, fields: &Value) -> Vec<String> {
    let messages = json!({"messages": vec![fields; count]});
    let answer = server.post(&format!("/v1/topics/{topic}/messages"), messages.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    let sent = answer.json()["messages"].as_array().expect("messages").clone();
    sent.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

/// Settles all of these with one call.
fn settle(server: &Server, call: &str, messages: &[Value], more: &Value) {
    let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
    let mut ask = json!({"receipts": receipts});
    let fields = more.as_object().expect("an object").clone();
    ask.as_object_mut().expect("an object").extend(fields);
    let results = server.settle(GROUP, call, &ask);
    assert!(results.iter().all(|result| result != "not_held"), "{results:?}");
}

/// Makes the group before anything is sent, so that it gets everything.
fn make_group(server: &Server, settings: &Value) {
    let made = server.put(GROUP, settings.to_string());
    assert_eq!(made.status, 201, "{}", made.body);
}

#[test]
fn pending_backlog_by_scheduling_and_cancelling() {
    let watched = Watched::with("pending_backlog", "3", &[]);
    let ids = send(&watched.server, "t", 2, &json!({"body": "x", "delay": "1h"}));
    let of_two =
        wait_for("two messages", || Some(watched.shown()).filter(|shown| shown["value"] == 2));
    assert_eq!((&of_two["state"], &of_two["since"]), (&json!("ok"), &Value::Null), "{of_two}");
    assert_eq!((&of_two["unit"], &of_two["enabled"]), (&json!("messages"), &json!(true)));
    send(&watched.server, "t", 1, &json!({"body": "x", "delay": "1h"}));
    let told = watched.fires();
    assert_eq!((&told["value"], &told["threshold"]), (&json!(3), &json!(3)), "{told}");
    assert_eq!((&told["node"], &told["unit"]), (&json!("single"), &json!("messages")), "{told}");
    let cancelled = watched.server.delete(&format!("/v1/messages/{}", ids[0]));
    assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    assert_eq!(watched.resolves()["value"], 2);
}

#[test]
fn a_rule_is_pending_for_as_long_as_it_is_told_to() {
    let watched = Watched::with("pending_backlog", "1", &[("alerts.pending_backlog_for", "1h")]);
    send(&watched.server, "t", 1, &json!({"body": "x", "delay": "2h"}));
    let pending = wait_for_state(&watched.server, "pending_backlog", "pending");
    assert!(pending["since"].is_string() && pending["for"] == "1h", "{pending}");
    watched.server.reload(&[("alerts.pending_backlog_for", "10ms")]);
    watched.fires();
    watched.server.reload(&[("alerts.pending_backlog", "0")]);
    let over: Value = serde_json::from_str(watched.next().text()).expect("JSON");
    assert_eq!(over["event"], "resolved", "{over}");
    assert_eq!(over["detail"], "the rule was switched off", "{over}");
    assert_eq!(watched.shown()["enabled"], false);
}

#[test]
fn oldest_overdue_by_a_topic_that_lets_few_pass() {
    let watched = Watched::with("oldest_overdue", "400ms", &[]);
    let server = &watched.server;
    assert_eq!(server.put("/v1/topics/slow", r#"{"rate_cap":1}"#).status, 201);
    send(server, "prompt", 100, &json!({"body": "x"}));
    send(server, "slow", 4, &json!({"body": "x"}));
    let told = watched.fires();
    assert!(told["value"].as_u64() >= Some(400), "{told}");
    let told = watched.resolves();
    assert_eq!(told["value"], Value::Null, "nothing waits any more: {told}");
    let pending = server.get("/v1/stats").json()["pending"].as_u64();
    assert_eq!(pending, Some(0));
}

#[test]
fn lateness_by_a_topic_that_lets_few_pass() {
    let watched = Watched::with("lateness_p99", "800ms", &[SHORT_WINDOW]);
    let server = &watched.server;
    assert_eq!(server.put("/v1/topics/slow", r#"{"rate_cap":1}"#).status, 201);
    send(server, "slow", 3, &json!({"body": "x"}));
    let told = watched.fires();
    assert!(told["value"].as_u64() >= Some(800), "{told}");
    assert_eq!(told["unit"], "ms");
    // A quiet time, or prompt deliveries.
    send(server, "prompt", 1000, &json!({"body": "x"}));
    watched.resolves();
}

#[test]
fn success_rate_by_nacking_and_acking() {
    let watched = Watched::with("success_rate", "0.9", &[]);
    let server = &watched.server;
    make_group(server, &json!({}));
    send(server, "t", 19, &json!({"body": "x"}));
    let first = server.receive_all(GROUP, 19);
    settle(server, "nack", &first, &json!({"delay": "1h"}));
    let few = wait_for("19 failures", || {
        (server.get("/v1/stats").json()["totals"]["retried"] == 19).then(|| watched.shown())
    });
    assert_eq!(few["state"], "ok", "so few say nothing: {few}");
    send(server, "t", 1, &json!({"body": "x"}));
    settle(server, "nack", &server.receive_all(GROUP, 1), &json!({"delay": "1h"}));
    let told = watched.fires();
    assert_eq!((&told["value"], &told["unit"]), (&json!(0), &json!("ratio")), "{told}");
    assert_eq!(told["detail"], "0 of 20 attempts ended in an ack");
    send(server, "t", 300, &json!({"body": "x"}));
    settle(server, "ack", &server.receive_all(GROUP, 300), &json!({}));
    let told = watched.resolves();
    assert_eq!(told["value"], 0.9375, "{told}");
}

#[test]
fn attempts_by_nacking_the_same_message() {
    let watched = Watched::with("attempts", "2", &[SHORT_WINDOW]);
    let server = &watched.server;
    make_group(server, &json!({"retry": {"ladder": ["1ms", "1ms", "1ms", "1ms"]}}));
    send(server, "t", 1, &json!({"body": "x"}));
    for attempt in 1..=2 {
        let again = server.receive_all(GROUP, 1);
        assert_eq!(again[0]["attempt"], attempt);
        settle(server, "nack", &again, &json!({}));
    }
    wait_for("two failures to be seen", || (watched.shown()["value"] == 2).then_some(()));
    assert_eq!(watched.shown()["state"], "ok", "two are allowed");
    settle(server, "nack", &server.receive_all(GROUP, 1), &json!({}));
    let told = watched.fires();
    assert_eq!((&told["value"], &told["unit"]), (&json!(3), &json!("attempts")), "{told}");
    assert_eq!(told["detail"], "a message of group g of t");
    settle(server, "ack", &server.receive_all(GROUP, 1), &json!({}));
    watched.resolves();
}

#[test]
fn attempts_by_leases_that_run_out() {
    let watched = Watched::with("attempts", "1", &[SHORT_WINDOW]);
    let server = &watched.server;
    make_group(server, &json!({}));
    send(server, "t", 1, &json!({"body": "x"}));
    for attempt in 1..=2 {
        let taken = server.receive(GROUP, &json!({"wait": "20s", "lease": "1s"}));
        assert_eq!(taken[0]["attempt"], attempt);
    }
    assert_eq!(watched.fires()["value"], 2);
    let left = server.receive(GROUP, &json!({"wait": "20s"}));
    settle(server, "ack", &left, &json!({}));
    watched.resolves();
}

#[test]
fn dead_letter_growth_by_rejecting() {
    let watched = Watched::with("dead_letter_growth", "3", &[SHORT_WINDOW]);
    let server = &watched.server;
    make_group(server, &json!({}));
    send(server, "t", 3, &json!({"body": "x"}));
    settle(server, "nack", &server.receive_all(GROUP, 3), &json!({"reject": true}));
    let told = watched.fires();
    assert_eq!((&told["value"], &told["unit"]), (&json!(3), &json!("messages")), "{told}");
    assert_eq!(watched.resolves()["value"], 0);
    assert_eq!(server.get(GROUP).json()["dead"], 3, "they are still there");
}

fn prepare(server: &Server) -> String {
    let ask = json!({"producer_group": "p", "messages": [{"topic": "t", "body": "x"}]});
    let answer = server.post("/v1/transactions", ask.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

fn decide(server: &Server, id: &str, decision: &str) {
    let answer = server.post(&format!("/v1/transactions/{id}/{decision}"), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn undecided_transactions_by_preparing_and_rolling_back() {
    let after = [("alerts.undecided_after", "300ms")];
    let watched = Watched::with("undecided_transactions", "2", &after);
    let server = &watched.server;
    let ids = [prepare(server), prepare(server), prepare(server)];
    decide(server, &ids[0], "commit");
    let told = watched.fires();
    assert_eq!((&told["value"], &told["unit"]), (&json!(2), &json!("transactions")), "{told}");
    assert!(told["detail"].as_str().is_some_and(|text| text.starts_with("the oldest is from 2")));
    decide(server, &ids[1], "rollback");
    assert_eq!(watched.resolves()["value"], 1);
}

#[test]
fn what_is_still_wrong_after_a_restart_fires_again() {
    let endpoint = Endpoint::start(|_| reply(204, "", ""));
    let after = [("alerts.undecided_after", "300ms")];
    let settings = settings(&endpoint.url(), "undecided_transactions", "1", &after);
    let server = Server::with(&pairs(&settings));
    let id = prepare(&server);
    wait_for_state(&server, "undecided_transactions", "firing");
    let server = server.restarted(&pairs(&settings));
    let alerts = wait_for("the alert again", || {
        let alerts = server.get("/v1/alerts").json();
        (alerts["history"][0]["event"] == "firing").then_some(alerts)
    });
    assert_eq!(alerts["history"].as_array().map(Vec::len), Some(1), "{alerts}");
    decide(&server, &id, "rollback");
    wait_for_state(&server, "undecided_transactions", "ok");
}

#[test]
fn disk_space_by_another_threshold() {
    let watched = Watched::with("disk_space", "100", &[]);
    let told = watched.fires();
    let percent = told["value"].as_f64().expect("a number");
    assert!((0.0..100.0).contains(&percent) && told["unit"] == "percent", "{told}");
    watched.server.reload(&[("alerts.disk_space", "0")]);
    wait_for_state(&watched.server, "disk_space", "ok");
}

#[test]
fn by_default_nothing_is_wrong_with_a_new_server() {
    let server = Server::start();
    let alerts = wait_for("the first look", || {
        let alerts = server.get("/v1/alerts").json();
        alerts["rules"][0]["value"].is_number().then_some(alerts)
    });
    let rules = alerts["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), 10);
    for rule in rules {
        // How much room there is on the disk is not up to the server.
        assert!(rule["state"] == "ok" || rule["name"] == "disk_space", "{rule}");
        assert_eq!(rule["enabled"], rule["name"] != "pending_backlog", "{rule}");
        assert!(rule["about"].is_string() && rule["unit"].is_string(), "{rule}");
    }
    assert_eq!(alerts["webhook"], json!({"configured": false, "last": null}));
    assert_eq!(shown(&server, "node_lost")["value"], Value::Null, "there are no nodes");
    assert_eq!(server.get("/v1/alerts?x=1").status, 400);
    assert_eq!(server.post("/v1/alerts", "").status, 405);
}
