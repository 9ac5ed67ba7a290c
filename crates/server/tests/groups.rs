//! Can groups be made, changed, looked at and put elsewhere over HTTP?
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

#[test]
fn groups_come_change_and_go() {
    let server = Server::start();
    let settings = r#"{"ordered":true,"retry":{"ladder":["1s","1m"]},"max_attempts":5,
        "lease":"30s","paused":false}"#;
    let made = server.put(GROUP, settings);
    assert_eq!(made.status, 201, "{}", made.body);
    let group = made.json();
    assert_eq!((&group["name"], &group["topic"]), (&json!("billing"), &json!("orders")));
    assert_eq!(group["retry"], json!({"ladder": ["1s", "1m"]}));
    assert_eq!((&group["max_attempts"], &group["lease"]), (&json!(5), &json!("30s")));
    assert_eq!((&group["push"], &group["ordered"]), (&Value::Null, &json!(true)));
    assert_eq!(group["dead_topic"], "orders.billing.dead");

    let changed = server.put(GROUP, r#"{"lease":"1m"}"#);
    assert_eq!((changed.status, &changed.json()["lease"]), (200, &json!("1m")));
    assert_eq!(changed.json()["ordered"], true, "what is not named stays");
    let growing = r#"{"retry":{"exponential":{"first":"1s","max":"1h","factor":1.5,"jitter":0}}}"#;
    let patched = server.patch(GROUP, growing);
    let shown = json!({"exponential": {"first": "1s", "max": "1h", "factor": 1.5, "jitter": 0.0}});
    assert_eq!((patched.status, &patched.json()["retry"]), (200, &shown));
    let got = server.get(GROUP).json();
    for field in ["ordered", "retry", "lease", "max_attempts", "paused", "dead_topic"] {
        assert_eq!(got[field], patched.json()[field], "{field}");
    }
    for figure in ["lag", "in_flight", "retrying", "dead"] {
        assert_eq!(got[figure], 0, "{figure}");
    }
    assert_eq!(got["partitions"].as_array().unwrap().len(), 4);

    assert_eq!(server.delete(GROUP).json(), json!({"result": "deleted"}));
    let gone = server.get(GROUP);
    assert_eq!((gone.status, gone.code().as_str()), (404, "group_not_found"));
    assert_eq!(server.delete(GROUP).code(), "group_not_found");
    assert_eq!(server.get("/v1/topics").json()["topics"][0]["name"], "orders", "the topic stays");
    assert_eq!(server.get("/v1/topics/orders.billing.dead").status, 404, "its letters do not");
}

#[test]
fn a_new_group_starts_where_it_says() {
    let server = Server::start();
    server.put(GROUP, "");
    server.send("orders", &json!({"body": "old"}));
    server.receive(GROUP, &json!({"wait": "20s"}));
    let latest = "/v1/topics/orders/groups/latest";
    assert_eq!(server.put(latest, r#"{"start":"latest"}"#).status, 201);
    server.send("orders", &json!({"body": "new"}));
    let received = server.receive(latest, &json!({"wait": "20s"}));
    assert_eq!((received.len(), &received[0]["body"]), (1, &json!("new")));
    let again = server.put(latest, r#"{"start":"latest"}"#);
    assert_eq!((again.status, again.code().as_str()), (400, "invalid_field"));
}

#[test]
fn a_list_says_how_far_groups_are_when_asked() {
    let server = Server::start();
    server.put(GROUP, "");
    server.put("/v1/topics/orders/groups/other", "");
    for _ in 0..3 {
        server.send("orders", &json!({"body": "x"}));
    }
    let taken = server.receive(GROUP, &json!({"max": 1, "wait": "20s"}));
    assert_eq!(taken.len(), 1);
    let alone = wait_for("all three to be delivered", || {
        Some(server.get(GROUP).json()).filter(|group| group["lag"] == 3)
    });
    assert_eq!(alone["in_flight"], 1);
    for topic in [
        server.get("/v1/topics/orders").json(),
        server.get("/v1/topics").json()["topics"][0].clone(),
    ] {
        assert_eq!(topic["backlog"], 3, "{topic}");
    }
    for list in ["/v1/groups", "/v1/topics/orders/groups"] {
        let plain = server.get(list).json();
        assert_eq!(plain["groups"][0]["lag"], Value::Null, "{list}");
        let page = server.get(&format!("{list}?standing=true")).json();
        for figure in ["lag", "in_flight", "retrying", "dead", "oldest_unacked", "partitions"] {
            assert_eq!(page["groups"][0][figure], alone[figure], "{list} {figure}");
        }
        assert_eq!(page["groups"][1]["in_flight"], 0, "{list}");
    }
    let refused = server.get("/v1/groups?standing=maybe");
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_parameter"));
}

#[test]
fn groups_are_listed_by_topic_and_name() {
    let server = Server::start();
    for (topic, group) in [("b", "y"), ("a", "z"), ("b", "x"), ("a", "w")] {
        server.put(&format!("/v1/topics/{topic}/groups/{group}"), "");
    }
    let names = |page: &Value| -> Vec<String> {
        let groups = page["groups"].as_array().unwrap();
        groups.iter().map(|one| format!("{}{}", one["topic"], one["name"])).collect()
    };
    let all = server.get("/v1/groups").json();
    assert_eq!(names(&all), [r#""a""w""#, r#""a""z""#, r#""b""x""#, r#""b""y""#]);
    let first = server.get("/v1/groups?limit=3").json();
    let next = first["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/groups?limit=3&cursor={next}")).json();
    assert_eq!((names(&rest), &rest["next"]), (vec![r#""b""y""#.to_owned()], &Value::Null));
    assert_eq!(names(&server.get("/v1/topics/b/groups").json()), [r#""b""x""#, r#""b""y""#]);
    let missing = server.get("/v1/topics/absent/groups");
    assert_eq!((missing.status, missing.code().as_str()), (404, "topic_not_found"));
}

#[test]
fn a_group_can_be_put_elsewhere() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":1}"#);
    server.put(GROUP, "");
    for number in 0..5 {
        server.send("orders", &json!({"body": number.to_string()}));
    }
    let received = server.receive_all(GROUP, 5);
    let ack: Vec<&Value> = received.iter().map(|message| &message["receipt"]).collect();
    server.settle(GROUP, "ack", &json!({"receipts": ack}));
    let offsets = || server.get(&format!("{GROUP}/offsets")).json();
    assert_eq!(offsets(), json!({"offsets": {"0": 5}}));

    let reset = |to: Value| server.post(&format!("{GROUP}/reset"), json!({"to": to}).to_string());
    assert_eq!(reset(json!({"offsets": {"0": 3}})).json(), json!({"result": "reset"}));
    let bodies = |count: usize| -> Vec<String> {
        let again = server.receive_all(GROUP, count);
        again.iter().map(|one| one["body"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(bodies(2), ["3", "4"]);
    assert_eq!(reset(json!("earliest")).status, 200);
    assert_eq!(bodies(5), ["0", "1", "2", "3", "4"]);
    assert_eq!(reset(json!("latest")).status, 200);
    assert_eq!(server.receive(GROUP, &json!({})).len(), 0);
    let time = received[0]["delivered_at"].clone();
    assert_eq!(reset(json!({"time": time})).status, 200);
    assert_eq!(bodies(5).len(), 5);
    let refused = reset(json!({"offsets": {"1": 0}}));
    assert_eq!((refused.status, refused.code().as_str()), (400, "no_such_partition"));

    let commit = server.put(&format!("{GROUP}/offsets"), r#"{"offsets":{"0":2}}"#);
    assert_eq!((commit.status, commit.json()), (200, json!({"result": "committed"})));
    assert_eq!(offsets(), json!({"offsets": {"0": 2}}));
}

#[test]
fn a_secret_is_never_shown() {
    let server = Server::with(&[("push.allow", "127.0.0.1")]);
    let push = r#"{"paused":true,"push":{"url":"http://127.0.0.1:9/in","secret":"c29tZXRoaW5nIHNlY3JldCBhbmQgbG9uZw","concurrency":3,"timeout":"5s"}}"#;
    let made = server.put(GROUP, push);
    assert_eq!(made.status, 201, "{}", made.body);
    for answer in [made.body, server.get(GROUP).body, server.get("/v1/groups").body] {
        assert!(!answer.contains("c29tZXRoaW5n"), "{answer}");
        assert!(answer.contains(r#""secret_set":true"#), "{answer}");
    }
    let shown = server.get(GROUP).json()["push"].clone();
    assert_eq!((&shown["concurrency"], &shown["timeout"]), (&json!(3), &json!("5s")));
    let changed = server.patch(GROUP, r#"{"push":{"concurrency":4}}"#).json()["push"].clone();
    assert_eq!((&changed["concurrency"], &changed["secret_set"]), (&json!(4), &json!(true)));
    let removed = server.patch(GROUP, r#"{"push":null}"#);
    assert_eq!((removed.status, &removed.json()["push"]), (200, &Value::Null));
}

#[test]
fn topics_of_groups_are_theirs_alone() {
    let server = Server::start();
    server.put(GROUP, "");
    let dead = "/v1/topics/orders.billing.dead";
    assert_eq!(server.get(dead).json()["kind"], "dead");
    assert_eq!(server.get("/v1/topics/orders").json()["kind"], "plain");
    let retry = "/v1/topics/orders.billing.retry";
    assert_eq!(server.get(retry).code(), "topic_not_found", "nobody sees it");
    assert_eq!(server.get(&format!("{retry}/scheduled")).code(), "topic_not_found");
    assert_eq!(server.get(&format!("{retry}/partitions/0/messages")).code(), "topic_not_found");
    let listed = server.get("/v1/topics").body;
    assert!(listed.contains("billing.dead") && !listed.contains("billing.retry"), "{listed}");
    for topic in [dead, retry] {
        let sent = server.post(&format!("{topic}/messages"), r#"{"body":"x"}"#);
        assert_eq!((sent.status, sent.code().as_str()), (409, "reserved_topic"), "{topic}");
        let deleted = server.delete(topic);
        assert_eq!((deleted.status, deleted.code().as_str()), (409, "reserved_topic"), "{topic}");
    }
    let taken = server.put("/v1/topics/a.b.dead", "");
    assert_eq!(taken.status, 201);
    let clash = server.put("/v1/topics/a/groups/b", "");
    assert_eq!((clash.status, clash.code().as_str()), (409, "group_name_taken"));
}

#[test]
fn a_topic_says_how_much_may_wait() {
    let server = Server::start();
    let made = server.put(
        "/v1/topics/orders",
        r#"{"partitions":1,"max_backlog":2,"overflow":"refuse","default_ttl":"1h"}"#,
    );
    assert_eq!(made.status, 201, "{}", made.body);
    let topic = server.get("/v1/topics/orders").json();
    assert_eq!(topic["max_backlog"], json!({"messages": 2}));
    assert_eq!((&topic["overflow"], &topic["default_ttl"]), (&json!("refuse"), &json!("1h")));
    let patched = server.patch("/v1/topics/orders", r#"{"max_backlog":{"bytes":1000000}}"#);
    assert_eq!(patched.json()["max_backlog"], json!({"bytes": 1_000_000}));
    let patched =
        server.patch("/v1/topics/orders", r#"{"max_backlog":"none","default_ttl":"forever"}"#);
    assert_eq!(patched.json()["max_backlog"], Value::Null);
    assert_eq!(patched.json()["default_ttl"], Value::Null);
    assert_eq!(server.patch("/v1/topics/absent", "{}").code(), "topic_not_found");
}

#[test]
fn a_full_backlog_refuses_and_says_when_to_come_again() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":1,"max_backlog":3}"#);
    server.put(GROUP, "");
    let mut refused = None;
    for number in 0..10_000 {
        let body = json!({"body": number}).to_string();
        let answer = server.post("/v1/topics/orders/messages", body);
        if answer.status != 201 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a backlog of 3 ends");
    assert_eq!((refused.status, refused.code().as_str()), (429, "backlog_full"));
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    let received = server.receive(GROUP, &json!({"max": 1000, "wait": "20s"}));
    let ack: Vec<&Value> = received.iter().map(|message| &message["receipt"]).collect();
    server.settle(GROUP, "ack", &json!({"receipts": ack}));
}
