//! Does the server answer as the contract says?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Server, wait_for};

fn schedule(server: &Server, topic: &str, message: &Value) -> String {
    let answer = server.post(&format!("/v1/topics/{topic}/messages"), message.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Asks until the message is delivered and in its log: on its way there it cannot be called off any
/// more, and counts as delivered.
fn delivered(server: &Server, id: &str) -> Value {
    wait_for("the delivery", || {
        let message = server.get(&format!("/v1/messages/{id}")).json();
        let is_there = message["state"] == "delivered" && message["offset"].is_u64();
        is_there.then_some(message)
    })
}

#[test]
fn a_message_from_schedule_to_cancel() {
    let server = Server::start();
    let answer = server.post(
        "/v1/topics/orders/messages",
        r#"{"body":{"n": 1.0},"key":"k","headers":{"a":"1"},"delay":"1h","partition":2}"#,
    );
    assert_eq!(answer.status, 201);
    assert!(answer.head.contains("content-type: application/json"));
    let scheduled = answer.json();
    assert_eq!(scheduled["topic"], "orders");
    assert_eq!(scheduled["state"], "scheduled");
    let id = scheduled["id"].as_str().unwrap();

    let by_topic = server.get(&format!("/v1/topics/orders/messages/{id}"));
    assert_eq!(by_topic.status, 200);
    let message = by_topic.json();
    assert_eq!(message, server.get(&format!("/v1/messages/{id}")).json());
    assert_eq!(message["due"], scheduled["due"]);
    assert_eq!(message["body"], r#"{"n": 1.0}"#);
    assert_eq!(message["headers"], json!({"a": "1"}));
    assert_eq!((&message["key"], &message["partition"]), (&json!("k"), &json!(2)));

    let listed = server.get("/v1/topics/orders/scheduled").json();
    assert_eq!(listed["messages"][0]["id"], id);
    assert_eq!(listed["next"], Value::Null);

    let gone = server.request("DELETE", &format!("/v1/topics/orders/messages/{id}"), "", b"");
    assert_eq!((gone.status, gone.json()), (200, json!({"result": "cancelled"})));
    let again = server.request("DELETE", &format!("/v1/messages/{id}"), "", b"");
    assert_eq!((again.status, again.code().as_str()), (409, "already_cancelled"));
    assert_eq!(server.get(&format!("/v1/messages/{id}")).json()["state"], "cancelled");
    assert_eq!(server.get("/v1/topics/orders/scheduled").json()["messages"], json!([]));
}

#[test]
fn g14_due_in_the_past_or_now_is_delivered() {
    let server = Server::start();
    for when in [json!({}), json!({"deliver_at": "2001-01-01T00:00:00Z"}), json!({"delay": 0})] {
        let mut message = json!({"body": "", "partition": 1});
        message.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
        let id = schedule(&server, "now", &message);
        let message = delivered(&server, &id);
        assert_eq!((&message["body"], &message["partition"]), (&json!(""), &json!(1)));
        let refused = server.request("DELETE", &format!("/v1/messages/{id}"), "", b"");
        assert_eq!((refused.status, refused.code().as_str()), (409, "already_delivered"));
        let offset = message["offset"].as_u64().unwrap();
        let path = format!("/v1/topics/now/partitions/1/messages?offset={offset}&limit=1");
        let log = server.get(&path).json();
        assert_eq!(log["messages"][0]["id"], id.as_str());
        assert_eq!(log["next"], offset + 1);
    }
}

#[test]
fn a_batch_is_answered_in_order() {
    let server = Server::start();
    let batch = r#"{"messages":[{"body":"a","delay":"2h"},{"body":"b","delay":"1h"}]}"#;
    let answer = server.post("/v1/topics/batch/messages", batch);
    assert_eq!(answer.status, 201);
    let ids = answer.json();
    let first = server.get("/v1/topics/batch/scheduled?limit=1").json();
    assert_eq!(first["messages"][0]["id"], ids["messages"][1]["id"]);
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/v1/topics/batch/scheduled?limit=1&cursor={next}")).json();
    assert_eq!(second["messages"][0]["id"], ids["messages"][0]["id"]);
    let due = ids["messages"][0]["due"].as_str().unwrap();
    let window = server.get(&format!("/v1/topics/batch/scheduled?from={due}")).json();
    assert_eq!(window["messages"].as_array().unwrap().len(), 1, "from is inclusive");
    let window = server.get(&format!("/v1/topics/batch/scheduled?to={due}")).json();
    assert_eq!(window["messages"].as_array().unwrap().len(), 1, "to is exclusive");
}

#[test]
fn a_publish_takes_any_bytes() {
    let server = Server::start();
    let path = "/v1/topics/raw/publish?delay=1h&key=a%20b";
    let answer = server.request("POST", path, "", b"\x00\xff\r\n");
    assert_eq!(answer.status, 201, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let message = server.get(&format!("/v1/topics/raw/messages/{id}")).json();
    assert_eq!((&message["body_base64"], &message["key"]), (&json!("AP8NCg=="), &json!("a b")));
    let listed = server.get("/v1/topics/raw/scheduled?key=a+b").json();
    assert_eq!(listed["messages"].as_array().unwrap().len(), 1);
    let listed = server.get("/v1/topics/raw/scheduled?key=other").json();
    assert_eq!(listed["messages"].as_array().unwrap().len(), 0);
    let empty = server.request("POST", "/v1/topics/raw/publish", "", b"");
    assert_eq!(empty.status, 201, "nothing is a body too");
}

#[test]
fn topics_come_change_and_go() {
    let server = Server::start();
    let put = |json: &str| {
        let headers = "content-type: application/json\r\n";
        server.request("PUT", "/v1/topics/t", headers, json.as_bytes())
    };
    let made = put(r#"{"partitions":2,"retention":"1d"}"#);
    assert_eq!((made.status, made.json()["retention"].clone()), (201, json!("1d")));
    assert_eq!(put(r#"{"partitions":3}"#).status, 200);
    let shrunk = put(r#"{"partitions":1}"#);
    assert_eq!((shrunk.status, shrunk.code().as_str()), (409, "partitions_cannot_shrink"));
    schedule(&server, "t", &json!({"body": 1, "delay": "1h"}));
    let topic = server.get("/v1/topics/t").json();
    assert_eq!(topic["partitions"], 3);
    assert_eq!((&topic["retention"], &topic["pending"]), (&json!("1d"), &json!(1)));
    assert_eq!(server.get("/v1/topics").json()["topics"][0]["name"], "t");
    assert_eq!(server.request("DELETE", "/v1/topics/t", "", b"").status, 200);
    assert_eq!(server.get("/v1/topics/t").code(), "topic_not_found");
    assert_eq!(server.request("DELETE", "/v1/topics/t", "", b"").status, 404);
}

#[test]
fn without_auto_create_a_topic_must_be_made() {
    let server = Server::with(&[("topics.auto_create", "false")]);
    let refused = server.post("/v1/topics/t/messages", r#"{"body":"x"}"#);
    assert_eq!((refused.status, refused.code().as_str()), (404, "topic_not_found"));
    assert_eq!(server.request("PUT", "/v1/topics/t", "", b"").status, 201);
    assert_eq!(server.post("/v1/topics/t/messages", r#"{"body":"x"}"#).status, 201);
}

#[test]
fn g43_an_id_of_another_topic_is_no_message() {
    let server = Server::start();
    let id = schedule(&server, "mine", &json!({"body": 1, "delay": "1h"}));
    schedule(&server, "other", &json!({"body": 1, "delay": "1h"}));
    for method in ["GET", "DELETE"] {
        let foreign = server.request(method, &format!("/v1/topics/other/messages/{id}"), "", b"");
        let missing = server.request(method, "/v1/topics/other/messages/nonsense", "", b"");
        assert_eq!(foreign.status, 404);
        assert_eq!(foreign.body, missing.body, "a foreign id looks like a missing one");
    }
    assert_eq!(server.get(&format!("/v1/messages/{id}")).json()["state"], "scheduled");
}

#[test]
fn a_get_creates_nothing() {
    let server = Server::start();
    for path in ["", "/scheduled", "/messages/x", "/partitions/0/messages"] {
        let answer = server.get(&format!("/v1/topics/absent{path}"));
        assert_eq!((answer.status, answer.code().as_str()), (404, "topic_not_found"), "{path}");
    }
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]));
}

#[test]
fn health_and_metrics() {
    let server = Server::start();
    assert_eq!(server.get("/health/live").status, 200);
    assert_eq!(server.get("/health/ready").status, 200);
    schedule(&server, "m", &json!({"body": 1, "delay": "1h"}));
    let metrics = server.get("/metrics").body;
    for line in [
        "punctual_pending_messages{topic=\"m\"} 1",
        "punctual_scheduled_total 1",
        "punctual_cancelled_total 0",
        "# TYPE punctual_fire_lateness_seconds histogram",
        "# TYPE punctual_journal_sync_seconds histogram",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} is not in\n{metrics}");
    }
}
