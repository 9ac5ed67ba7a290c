//! Do the same rules hold over gRPC as over HTTP? (G43)
//!
//! The list of methods comes from the server itself. They are called in the bare form of Triple, as
//! JSON, which goes the same way behind the frames.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use access_support::{Client, NOBODY, admin_token, comparable, visitors, world};
use punctual_server::rules::{RouteRule, method_rules};
use serde_json::{Value, json};
use support::Answer;

/// Streams are called with frames only; they look up what they are asked for like the others.
const STREAMS: [&str; 5] =
    ["SendStream", "ReceiveStream", "CheckStream", "Watch", "ServerReflectionInfo"];

/// A request that does no harm, about that topic and group.
fn request(method: &str, topic: &str, group: &str) -> Value {
    let name = json!({"topic": topic, "id": "absent"});
    let both = json!({"topic": topic, "group": group});
    match method {
        "MessageService/Send" => json!({"topic": topic, "messages": []}),
        "MessageService/Get" | "MessageService/Cancel" | "MessageService/Deliver" => {
            json!({"name": name})
        }
        "MessageService/Change" => json!({"name": name, "paused": true}),
        "MessageService/List" | "MessageService/ListSeries" | "MessageService/Forecast" => {
            json!({"topic": topic})
        }
        "MessageService/Read" => json!({"topic": topic, "partition": 0}),
        "ConsumerService/Receive" | "AdminService/GetGroup" | "AdminService/PutGroup" => both,
        "ConsumerService/Ack" | "ConsumerService/Nack" | "ConsumerService/Extend" => both,
        "ConsumerService/Retry" => both,
        "TransactionService/Prepare" => {
            let half = json!({"topic": topic, "message": {"body": ""}});
            json!({"producerGroup": group, "messages": [half]})
        }
        "TransactionService/Commit"
        | "TransactionService/Rollback"
        | "TransactionService/Resume"
        | "TransactionService/Get" => json!({"id": "absent"}),
        "TransactionService/Checks" => json!({"producerGroup": group}),
        "AdminService/GetTopic" | "AdminService/PutTopic" => json!({"topic": topic}),
        "AdminService/DeleteTopic" => json!({"topic": format!("{topic}.absent")}),
        "AdminService/DeleteGroup" => json!({"topic": topic, "group": format!("{group}-absent")}),
        "AdminService/ListGroups"
        | "AdminService/ListTopics"
        | "TransactionService/List"
        | "AdminService/GetLevels"
        | "AdminService/PutLevels"
        | "Health/Check" => json!({}),
        other => panic!("nobody asks for {other}"),
    }
}

/// The service without its package, and the method.
fn name(rule: &RouteRule) -> String {
    let path = rule.path.trim_start_matches('/');
    let (service, method) = path.split_once('/').expect("a service and a method");
    format!("{}/{method}", service.rsplit('.').next().expect("a service"))
}

fn unary() -> impl Iterator<Item = RouteRule> {
    let is_unary =
        |rule: &RouteRule| !STREAMS.iter().any(|stream| rule.path.ends_with(&format!("/{stream}")));
    method_rules().into_iter().filter(is_unary)
}

fn let_in(answer: &Answer) -> bool {
    match answer.status {
        401 => {
            assert_eq!(answer.json()["punctual_code"], "unauthenticated");
            false
        }
        403 => {
            assert_eq!(answer.json()["punctual_code"], "forbidden");
            false
        }
        _ => true,
    }
}

#[test]
fn g43_every_method_lets_in_exactly_those_who_have_the_right() {
    let server = world();
    let (mut asked, mut refused) = (0, 0);
    for visitor in visitors(&server) {
        let mut client = Client::new(&server, &visitor.token);
        for rule in unary() {
            for (topic, topic_own) in [("own.t", true), ("foreign.t", false)] {
                for (group, group_own) in [("own-g", true), ("foreign-g", false)] {
                    let request = request(&name(&rule), topic, group);
                    let answer = client.json("POST", rule.path, &request);
                    let operation = rule.operation;
                    let mut expected = visitor.may(&rule, topic_own, group_own);
                    let everything = visitor.everywhere || visitor.name == "admin";
                    if operation == "Prepare" && !everything {
                        expected &= topic_own && group_own;
                    }
                    if rule.scope == "found" && operation.ends_with("Message") && !everything {
                        expected &= topic_own;
                    }
                    let who = &visitor.name;
                    assert_eq!(
                        let_in(&answer),
                        expected,
                        "{who} asks for {operation} {topic} {group}: {}",
                        answer.body
                    );
                    assert!(answer.status != 500, "{}", answer.body);
                    asked += 1;
                    refused += u32::from(!expected);
                }
            }
        }
    }
    assert!(asked > 2000 && refused > 1000, "{asked} {refused}");
    println!("{asked} calls, {refused} of them refused");
}

#[test]
fn whoever_does_not_say_who_they_are_is_let_in_at_health_only() {
    let server = world();
    for token in [NOBODY, "admin.wrong"] {
        let mut client = Client::new(&server, token);
        for rule in method_rules() {
            let answer = client.json("POST", rule.path, &json!({}));
            if rule.scope == "open" {
                assert!(answer.status != 401 && answer.status != 403, "{}", rule.path);
            } else {
                assert_eq!(answer.status, 401, "{} {token}: {}", rule.path, answer.body);
            }
        }
    }
}

#[test]
fn g43_a_foreign_id_answers_exactly_like_a_missing_one() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    let send = |admin: &mut Client<'_>, topic: &str| {
        let message = json!({"body": "x", "delay": "1d"});
        let sent = admin.done("POST", &format!("/v1/topics/{topic}/messages"), &message);
        sent["id"].as_str().expect("an id").to_owned()
    };
    let missing = send(&mut admin, "own.gone");
    admin.done("DELETE", "/v1/topics/own.gone", &Value::Null);
    let (own, foreign) = (send(&mut admin, "own.t"), send(&mut admin, "foreign.t"));
    let half = json!([{"topic": "foreign.t", "body": "x"}]);
    let prepare = json!({"producer_group": "own-p", "messages": half});
    let prepared = admin.done("POST", "/v1/transactions", &prepare)["id"].clone();
    let prepared = prepared.as_str().unwrap();
    for visitor in visitors(&server).iter().filter(|visitor| !visitor.everywhere) {
        let mut client = Client::new(&server, &visitor.token);
        for rule in unary().filter(|rule| rule.scope == "found") {
            let is_message = rule.operation.ends_with("Message");
            let mut ask = |id: &str| match is_message {
                true => {
                    let request = json!({"name": {"id": id}, "paused": true});
                    let request = match rule.operation {
                        "PatchMessage" => request,
                        _ => json!({"name": {"id": id}}),
                    };
                    client.json("POST", rule.path, &request)
                }
                false => client.json("POST", rule.path, &json!({"id": id})),
            };
            let absent = ask(&missing);
            assert_eq!(let_in(&absent), visitor.verb == Some(rule.verb), "{}", rule.operation);
            let wrong = if is_message { foreign.as_str() } else { prepared };
            assert_eq!(comparable(&ask(wrong)), comparable(&absent), "{}", rule.operation);
            if rule.operation == "GetMessage" && visitor.verb == Some("read") {
                assert_eq!(ask(&own).status, 200);
            }
        }
    }
}
