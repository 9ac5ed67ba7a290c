//! May a Kafka client only send what its app may, and as much?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod kafka;
mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use access_support::{Client as Http, admin_token};
use bytes::Bytes;
use kafka::Client;
use kafka::batches::{Draft, PRODUCE, batch, opening, record, records, request};
use punctual_kafka_wire::messages::init_producer_id::InitProducerIdRequest;
use punctual_kafka_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use punctual_kafka_wire::messages::sasl_handshake::SaslHandshakeRequest;
use punctual_kafka_wire::records::Compression;
use serde_json::{Value, json};
use support::Server;

const NOT_NOW: i16 = 19;
const TOPIC_FORBIDDEN: i16 = 29;
const CLUSTER_FORBIDDEN: i16 = 31;

fn server() -> Server {
    Server::with(&[("auth.enabled", "true"), ("store.durability", "os")])
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

fn grant(topics: &str, verbs: &[&str]) -> Value {
    json!([{"topics": topics, "groups": "*", "verbs": verbs}])
}

fn plain(records: &[Draft]) -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis();
    batch(opening(i64::try_from(now).expect("a time"), Compression::None), records)
}

#[test]
fn an_app_sends_where_it_may_and_cancels_where_it_may() {
    let server = server();
    let mut admin = Http::new(&server, &admin_token(&server));
    let both = admin.create("both", &grant("mine*", &["send", "cancel", "read"]), &json!({}));
    let sender = admin.create("sender", &grant("mine*", &["send"]), &json!({}));
    let reader = admin.create("reader", &grant("mine*", &["read"]), &json!({}));
    let mut sends = connect(&server, &sender);
    assert_eq!(sends.produce("mine", 0, plain(&[record("x")])).error_code, 0);
    assert_eq!(sends.produce("theirs", 0, plain(&[record("x")])).error_code, TOPIC_FORBIDDEN);
    let delayed = record("later").header("punctual-delay", "1h");
    let answer = sends.produce("mine", 0, plain(&[delayed]));
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
    let cancel = Draft::default().header("punctual-cancel", "0:1");
    let refused = sends.produce("mine", 0, plain(&[record("with"), cancel.clone()]));
    assert_eq!(refused.error_code, TOPIC_FORBIDDEN);
    let pending = |admin: &mut Http<'_>| {
        let page = admin.ask("GET", "/v1/topics/mine/scheduled", "", "").json();
        page["messages"].as_array().expect("messages").len()
    };
    assert_eq!(pending(&mut admin), 1);
    let mut cancels = connect(&server, &both);
    assert_eq!(cancels.produce("mine", 0, plain(&[cancel])).error_code, 0);
    assert_eq!(pending(&mut admin), 0);
    assert_eq!(records(&cancels.fetch("mine", 0, 0)).len(), 1, "of what was refused nothing stays");
    let mut reads = connect(&server, &reader);
    assert_eq!(reads.produce("mine", 0, plain(&[record("x")])).error_code, TOPIC_FORBIDDEN);
    let id = reads.call(4, &InitProducerIdRequest::default());
    assert_eq!((id.error_code, id.producer_id), (CLUSTER_FORBIDDEN, -1));
    assert_eq!(sends.call(4, &InitProducerIdRequest::default()).error_code, 0);
    // Where somebody may send, a topic comes into being; elsewhere it does not.
    assert_eq!(sends.produce("mine.new", 0, plain(&[record("x")])).error_code, 0);
    assert_eq!(admin.ask("GET", "/v1/topics/theirs", "", "").status, 404);
}

#[test]
fn who_sends_too_much_is_asked_to_pause() {
    let server = server();
    let mut admin = Http::new(&server, &admin_token(&server));
    let quotas = json!({"messages_per_second": 10});
    let token = admin.create("slow", &grant("*", &["send"]), &quotas);
    let mut client = connect(&server, &token);
    let many = plain(&vec![record("x"); 25]);
    let before = Instant::now();
    let response = client.call(PRODUCE, &request("t", 0, many));
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0, "it is let in");
    let pause = response.throttle_time_ms;
    assert!((1000..=1500).contains(&pause), "{pause}");
    // The next request of the connection is not looked at before that.
    let next = client.call(PRODUCE, &request("t", 0, plain(&[record("y")])));
    assert_eq!(next.responses[0].partition_responses[0].error_code, 0);
    assert!(before.elapsed() >= Duration::from_millis(1000));
}

#[test]
fn who_has_too_much_pending_is_refused_until_there_is_room() {
    let server = server();
    let mut admin = Http::new(&server, &admin_token(&server));
    let token = admin.create("few", &grant("t", &["send", "cancel"]), &json!({"pending": 3}));
    let mut client = connect(&server, &token);
    let later = record("x").header("punctual-delay", "1h");
    let two = plain(&[later.clone(), later, record("now")]);
    assert_eq!(client.produce("t", 0, two.clone()).error_code, 0);
    let refused = client.produce("t", 0, two.clone());
    assert_eq!((refused.error_code, refused.base_offset), (NOT_NOW, -1));
    assert!(refused.error_message.is_some_and(|text| text.contains("3 messages pending")));
    // What does not wait is not counted.
    assert_eq!(client.produce("t", 0, plain(&vec![record("now"); 10])).error_code, 0);
    let cancel = Draft::default().header("punctual-cancel", "0:0");
    assert_eq!(client.produce("t", 0, plain(&[cancel])).error_code, 0);
    support::wait_for("room", || {
        (client.produce("t", 0, two.clone()).error_code == 0).then_some(())
    });
}
