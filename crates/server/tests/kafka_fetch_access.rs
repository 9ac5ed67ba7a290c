//! Does a fetch keep its promises over TLS, and to somebody who loses a right while it waits?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod kafka;
mod support;
mod tls_support;

use std::io::{Read, Write};

use access_support::{Client as Http, admin_token};
use bytes::Bytes;
use kafka::Client;
use kafka::batches::{batch, opening, record};
use kafka::fetches::{fetch, only, patient, texts, topic};
use punctual_kafka_wire::messages::fetch::FetchRequest;
use punctual_kafka_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use punctual_kafka_wire::messages::sasl_handshake::SaslHandshakeRequest;
use punctual_kafka_wire::records::Compression;
use serde_json::json;
use support::Server;
use tls_support::{Authority, Client as Encrypting, Files, Kind};

const VERSION: i16 = 11;
const TOPIC_FORBIDDEN: i16 = 29;

fn append(client: &mut Client<impl Read + Write>, value: &str) {
    let batch = batch(opening(1_700_000_000_000, Compression::None), &[record(value)]);
    assert_eq!(client.produce("t", 0, batch).error_code, 0);
}

/// A connection on which an app has shown its secret.
fn connect(server: &Server, token: &str) -> Client {
    let mut client = Client::connect(server);
    let (key, secret) = token.split_once('.').expect("key and secret");
    let choice = SaslHandshakeRequest { mechanism: "PLAIN".to_owned() };
    assert_eq!(client.call(1, &choice).error_code, 0);
    let auth_bytes = Bytes::from(format!("\0{key}\0{secret}"));
    assert_eq!(client.call(2, &SaslAuthenticateRequest { auth_bytes }).error_code, 0);
    client
}

#[test]
fn over_tls_a_large_answer_arrives_to_the_byte() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign(Kind::Server));
    let server = files.serve(&[]);
    let tls = Encrypting::trusting(&authority).connect(server.kafka.unwrap()).unwrap();
    let mut client = Client::over(tls);
    let values: Vec<String> = (10..20).map(|number| number.to_string().repeat(150_000)).collect();
    for value in &values {
        append(&mut client, value);
    }
    for _ in 0..2 {
        let answer = client.call(VERSION, &fetch(vec![topic("t", &[(0, 0)])]));
        assert_eq!(texts(&only(answer)), values);
    }
}

#[test]
fn whoever_loses_the_right_while_waiting_gets_nothing() {
    let server = Server::with(&[("auth.enabled", "true"), ("store.durability", "os")]);
    let mut admin = Http::new(&server, &admin_token(&server));
    let grant =
        |topics: &str| json!([{"topics": topics, "groups": "*", "verbs": ["send", "read"]}]);
    let sender = admin.create("sender", &grant("t"), &json!({}));
    let reader = admin.create("reader", &grant("t"), &json!({}));
    let (mut sends, mut reads) = (connect(&server, &sender), connect(&server, &reader));
    append(&mut sends, "first");
    let first = reads.call(VERSION, &patient(vec![topic("t", &[(0, 0)])]));
    assert_eq!(texts(&only(first)), ["first"]);
    reads.send(VERSION, &patient(vec![topic("t", &[(0, 1)])]));
    admin.done("PATCH", "/v1/apps/reader", &json!({"permissions": grant("other")}));
    append(&mut sends, "second");
    let (_, answer) = reads.receive::<FetchRequest>(VERSION);
    let answer = only(answer);
    assert_eq!((answer.error_code, texts(&answer).len()), (TOPIC_FORBIDDEN, 0));
}
