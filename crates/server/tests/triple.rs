//! Is the unary form of Dubbo's Triple protocol served over HTTP/1.1 and HTTP/2?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod grpc_support;
mod support;

use bytes::Bytes;
use grpc_support::{Raw, delayed, talk};
use prost::Message as _;
use punctual_proto::v1;
use serde_json::{Value, json};
use support::Server;

const SEND: &str = "/punctual.v1.MessageService/Send";
const TRIPLE: &str = "tri-protocol-version: 1.0.0\r\ntri-service-group: g\r\n";

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let headers = format!("content-type: application/json\r\n{TRIPLE}");
    let answer = server.request("POST", path, &headers, body.to_string().as_bytes());
    (answer.status, answer.json())
}

#[test]
fn json_is_taken_and_answered_over_http_1() {
    let server = Server::start();
    let message = json!({ "body": "aGVsbG8=", "delay": "60s", "headers": [{ "name": "a" }] });
    let (status, answer) =
        post(&server, SEND, &json!({ "topic": "orders", "messages": [message] }));
    assert_eq!(status, 200, "{answer}");
    let sent = &answer["messages"][0];
    assert_eq!(sent["state"], "STATE_SCHEDULED");
    let name = json!({ "name": { "id": sent["id"] } });
    let (status, got) = post(&server, "/punctual.v1.MessageService/Get", &name);
    assert_eq!((status, &got["body"], &got["topic"]), (200, &json!("aGVsbG8="), &json!("orders")));
}

#[test]
fn protobuf_is_taken_and_answered_over_both_versions() {
    let server = Server::start();
    let request = v1::SendRequest { topic: "t".to_owned(), messages: vec![delayed("a", 60)] };
    let bytes = Bytes::from(request.encode_to_vec());
    talk(async {
        let mut raw = Raw::of(&server).await;
        let answer = raw.call(&SEND[1..], "application/proto", bytes.clone()).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], "application/proto");
        assert!(answer.grpc_status().is_none());
        let sent = v1::SendResponse::decode(answer.body).expect("a bare message");
        assert_eq!(sent.messages.len(), 1);
    });
    let headers = format!("content-type: application/proto\r\n{TRIPLE}");
    let mut broken = bytes.to_vec();
    broken.truncate(4);
    let answer = server.request("POST", SEND, &headers, &broken);
    assert_eq!(answer.status, 400, "never a success: {}", answer.body);
}

#[test]
fn a_refusal_has_its_status_and_its_words() {
    let server = Server::start();
    let (status, answer) = post(&server, SEND, &json!({ "topic": "a/b", "messages": [{}] }));
    assert_eq!((status, &answer["code"]), (400, &json!("invalid_argument")));
    assert_eq!(
        (&answer["punctual_code"], &answer["status"]),
        (&json!("invalid_topic_name"), &json!(3))
    );
    assert!(answer["message"].is_string());
    let missing = json!({ "name": { "id": "x" } });
    let (status, answer) = post(&server, "/punctual.v1.MessageService/Cancel", &missing);
    assert_eq!((status, &answer["code"]), (404, &json!("not_found")));
    let (status, answer) = post(&server, "/punctual.v1.MessageService/Missing", &json!({}));
    assert_eq!((status, &answer["code"]), (404, &json!("unimplemented")));
    let (status, answer) = post(&server, "/punctual.v1.MessageService/SendStream", &json!({}));
    assert_eq!((status, &answer["code"]), (404, &json!("unimplemented")));
}

#[test]
fn json_that_is_none_is_refused() {
    let server = Server::start();
    let deep = "[".repeat(100_000);
    for body in ["{", "[]", "{\"topic\":1}", "{\"unknown\":1}", "{} {}", deep.as_str()] {
        let headers = "content-type: application/json\r\n";
        let answer = server.request("POST", SEND, headers, body.as_bytes());
        assert_eq!(answer.status, 400, "{:.20} {}", body, answer.body);
        assert_eq!(answer.json()["punctual_code"], "invalid_json");
    }
}
