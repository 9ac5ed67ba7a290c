//! Where messages go to Kafka: do failed ones come round again by the ladder of their group, and is
//! whoever would consume here told where to read?
#![cfg(feature = "cluster")]
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod grpc_support;
mod kafka;
mod support;

use std::collections::BTreeMap;

use grpc_support::{Clients, refusal, talk};
use kafka::Client;
use kafka::batches::{FETCH, Stored};
use kafka::fetches::{fetch, only, stored, topic};
use punctual_kafka_wire::messages::fetch::FetchRequest;
use punctual_proto::v1;
use punctual_proto::v1::receive_stream_request::Request;
use punctual_server::rules::route_rules;
use punctual_testkit::services;
use serde_json::{Value, json};
use support::{Answer, Server, wait_for};
use tonic::Code;

/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";

/// What needs the messages themselves.
const CONSUMING: [&str; 17] = [
    "ReadPartition",
    "Receive",
    "ReceiveStream",
    "Ack",
    "Nack",
    "Extend",
    "PauseGroup",
    "ResumeGroup",
    "ResetGroup",
    "GetOffsets",
    "PutOffsets",
    "ListDead",
    "Redrive",
    "GetRedrive",
    "Purge",
    "Drain",
    "GetDrain",
];

fn delivering_to(brokers: &str) -> Server {
    Server::with(&[("outlet.kind", "kafka"), ("outlet.brokers", brokers), ("kafka.listen", "off")])
}

/// A name that no other test has in the Kafka that they share.
fn own_topic(what: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let chance = directory.path().file_name().expect("a name").to_string_lossy().replace('.', "");
    format!("{what}-{}-{chance}", std::process::id())
}

fn refused_with_kafka(what: &str, answer: &Answer, read: &str) {
    let json = answer.json();
    let told = (answer.status, json["code"].as_str().unwrap_or_default());
    assert_eq!(told, (409, "consume_with_kafka"), "{what}: {json}");
    let detail = json["detail"].as_str().expect("a detail");
    assert!(detail.contains(read), "{what}: {detail}");
}

#[test]
fn every_route_that_consumes_says_where_to_read() {
    let server = delivering_to(NOWHERE);
    let mut refused = 0;
    for rule in route_rules() {
        let path = rule.path.replace("{topic}", "orders").replace("{group}", "mail");
        let path = path.replace("{id}", "own-id").replace("{job}", "5").replace("{partition}", "0");
        let path =
            format!("{}?unknown-parameter=1", path.replace("{app}", "x").replace("{file}", "x"));
        if CONSUMING.contains(&rule.operation) {
            let headers = "content-type: application/json\r\n";
            let answer = server.request(rule.method, &path, headers, b"{}");
            refused_with_kafka(rule.operation, &answer, "orders");
            refused += 1;
        } else if rule.method == "GET" && !rule.path.contains("{file}") {
            let answer = server.get(&path);
            assert_ne!(answer.status, 409, "{}: {}", rule.operation, answer.body);
        }
    }
    assert_eq!(refused, CONSUMING.len());
}

#[test]
fn every_method_that_consumes_says_where_to_read() {
    let server = delivering_to(NOWHERE);
    for (method, request) in [
        ("MessageService/Read", json!({"topic": "orders", "partition": 0})),
        ("ConsumerService/Receive", json!({"topic": "orders", "group": "mail"})),
        ("ConsumerService/Ack", json!({"topic": "orders", "group": "mail", "receipts": ["x"]})),
        ("ConsumerService/Nack", json!({"topic": "orders", "group": "mail", "receipts": ["x"]})),
        ("ConsumerService/Extend", json!({"topic": "orders", "group": "mail", "receipts": ["x"]})),
    ] {
        let answer = server.post(&format!("/punctual.v1.{method}"), request.to_string());
        assert!(
            answer.head.contains("punctual-code: consume_with_kafka"),
            "{method}: {}",
            answer.head
        );
        assert!(answer.body.contains("orders"), "{method}: {}", answer.body);
    }
    talk(async {
        let mut clients = Clients::of(&server).await;
        let open = v1::OpenReceive {
            topic: "orders".into(),
            group: "mail".into(),
            credit: 1,
            ..Default::default()
        };
        let open = v1::ReceiveStreamRequest { request: Some(Request::Open(open)) };
        let answered = clients.consumers.receive_stream(tokio_stream::iter([open])).await;
        let outcome = match answered {
            Ok(stream) => stream.into_inner().message().await.map(drop),
            Err(status) => Err(status),
        };
        let told = refusal(outcome);
        assert_eq!(told, (Code::FailedPrecondition, "consume_with_kafka".to_owned()));
    });
}

/// Reads from the first partition of a topic in Kafka until there are so many.
fn read(client: &mut Client, name: &str, count: usize) -> Vec<Stored> {
    wait_for("records in Kafka", || {
        let asked =
            FetchRequest { max_wait_ms: 1000, min_bytes: 1, ..fetch(vec![topic(name, &[(0, 0)])]) };
        let partition = only(client.call(FETCH, &asked));
        if partition.error_code != 0 {
            // Its leader is not known everywhere yet.
            return None;
        }
        Some(stored(&partition)).filter(|records| records.len() >= count)
    })
}

/// The message as a consumer would send it back: headers in the order of a map.
fn sent_back(record: &Stored) -> Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a text");
    let headers: BTreeMap<String, String> = record
        .record
        .headers
        .iter()
        .map(|(name, value)| (text(name), text(value.as_deref().unwrap_or_default())))
        .collect();
    let key = record.record.key.as_deref().map(text);
    json!({"body": record.record.text(), "key": key, "headers": headers})
}

#[test]
fn a_failed_message_climbs_the_ladder_in_kafka_and_is_a_dead_letter_in_the_end() {
    let Some(address) = services::kafka() else { return };
    let server = delivering_to(&address.to_string());
    let orders = own_topic("retry");
    let group = format!("/v1/topics/{orders}/groups/mail");
    assert_eq!(server.put(&format!("/v1/topics/{orders}"), r#"{"partitions":1}"#).status, 201);
    let made = server.put(&group, r#"{"retry":{"ladder":["100ms","200ms"]}}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let mut client = Client::at(address);
    let (retry, dead) = (format!("{orders}.mail.retry"), format!("{orders}.mail.dead"));
    assert_eq!(read(&mut client, &retry, 0).len(), 0, "it can be read before anything failed");

    let id = server.send(&orders, &json!({"body": "pay", "key": "k", "headers": {"a": "1"}}));
    let record = read(&mut client, &orders, 1).remove(0);
    assert_eq!(
        (record.record.text(), record.record.said("punctual-id")),
        ("pay".to_owned(), Some(id.clone()))
    );

    let fail = |record: &Stored, attempt: u64, error: &str| {
        let asked = json!({
            "message": sent_back(record),
            "id": id,
            "offset": 0,
            "attempt": attempt,
            "error": error,
        });
        let answer = server.post(&format!("{group}/retry"), asked.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["result"].as_str().expect("a word").to_owned()
    };
    assert_eq!(fail(&record, 1, "first"), "requeued");
    let second = read(&mut client, &retry, 1).remove(0);
    let said = |record: &Stored, name: &str| record.record.said(name).unwrap_or_default();
    assert_eq!((second.record.text(), said(&second, "a")), ("pay".to_owned(), "1".to_owned()));
    assert_eq!(said(&second, "punctual-origin-id"), id);
    assert_eq!(said(&second, "punctual-origin-topic"), orders);
    assert_eq!(
        (said(&second, "punctual-attempts"), said(&second, "punctual-reason")),
        ("1".to_owned(), String::new())
    );
    // Somebody who does not count is counted for.
    assert_eq!(fail(&second, 1, "second"), "requeued");
    let third = read(&mut client, &retry, 2).remove(1);
    assert_eq!(said(&third, "punctual-attempts"), "2");
    let names = third.record.headers.iter().filter(|(name, _)| name == b"punctual-attempts");
    assert_eq!(names.count(), 1, "what it went through before is replaced");
    assert_eq!(fail(&third, 3, "third"), "dead");
    let letter = read(&mut client, &dead, 1).remove(0);
    assert_eq!((letter.record.text(), said(&letter, "a")), ("pay".to_owned(), "1".to_owned()));
    assert_eq!(said(&letter, "punctual-reason"), "attempts_exhausted");
    assert_eq!(said(&letter, "punctual-attempts"), "3");
    let errors = ["punctual-first-error", "punctual-last-error"].map(|name| said(&letter, name));
    assert_eq!(errors, ["first", "third"]);
    assert_eq!(said(&letter, "punctual-origin-id"), id);
    assert_eq!(read(&mut client, &retry, 2).len(), 2);

    settings_of_a_group(&server, &group, &orders);
}

/// Settings are kept and shown; what has no effect is refused.
fn settings_of_a_group(server: &Server, group: &str, orders: &str) {
    let shown = server.get(group).json();
    assert_eq!((&shown["max_attempts"], &shown["lag"]), (&json!(3), &Value::Null), "{shown}");
    assert_eq!(shown["dead_topic"], json!(format!("{orders}.mail.dead")));
    refused_with_kafka(
        "push",
        &server.patch(group, r#"{"push":{"url":"http://example.org"}}"#),
        "push",
    );
    refused_with_kafka("paused", &server.patch(group, r#"{"paused":true}"#), "paused");
    let patched = server.patch(group, r#"{"max_attempts":9}"#);
    assert_eq!((patched.status, &patched.json()["max_attempts"]), (200, &json!(9)));
    let metrics = server.get("/metrics").body;
    assert!(!metrics.contains("punctual_group_lag{"), "only Kafka knows it");
    assert_eq!(server.delete(group).status, 200);
    assert_eq!(server.get(group).status, 404);
    let unknown = server.post(&format!("{group}/retry"), r#"{"message":{"body":"x"},"attempt":1}"#);
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "group_not_found"));
}

#[test]
fn a_message_that_nobody_has_an_id_of_is_retried_too() {
    let Some(address) = services::kafka() else { return };
    let server = delivering_to(&address.to_string());
    let orders = own_topic("foreign");
    let group = format!("/v1/topics/{orders}/groups/mail");
    assert_eq!(server.put(&group, r#"{"retry":{"ladder":["1ms"]},"max_attempts":2}"#).status, 201);
    // It came from Kafka and was never here.
    let retry = |attempt: u64| {
        let asked = json!({"message": {"body": "x"}, "attempt": attempt});
        let answer = server.post(&format!("{group}/retry"), asked.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["result"].clone()
    };
    assert_eq!((retry(1), retry(2)), (json!("requeued"), json!("dead")));
    let mut client = Client::at(address);
    let again = read(&mut client, &format!("{orders}.mail.retry"), 1).remove(0);
    assert_eq!(again.record.said("punctual-attempts").as_deref(), Some("1"));
    let dead = read(&mut client, &format!("{orders}.mail.dead"), 1).remove(0);
    assert_eq!(dead.record.said("punctual-reason").as_deref(), Some("attempts_exhausted"));
}
