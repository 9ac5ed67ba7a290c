//! Do records of Kafka clients come when they ask for it, wherever they are looked at? And can they be
//! called off?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use bytes::Bytes;
use kafka::Client;
use kafka::batches::{Draft, Stored, batch, opening, record, records};
use punctual_kafka_wire::messages::init_producer_id::InitProducerIdRequest;
use punctual_kafka_wire::records::{Compression, Opening};
use serde_json::{Value, json};
use support::Server;

const START: &str = "2030-01-01T00:00:00Z";
const START_MS: i64 = 1_893_456_000_000;
const INVALID_RECORD: i16 = 87;

fn house() -> (Server, Client) {
    let server = Server::on_virtual_time(START);
    let client = Client::connect(&server);
    (server, client)
}

/// Moves time on; how much fired.
fn advance(server: &Server, by: &str) -> u64 {
    let answer = server.post("/v1/time/advance", json!({ "by": by }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["fired"].as_u64().expect("a number")
}

fn plain(records: &[Draft]) -> Bytes {
    batch(opening(START_MS, Compression::None), records)
}

/// Sends a batch that is taken; the offset of its first record.
fn send(client: &mut Client, topic: &str, records: &[Draft]) -> i64 {
    let answer = client.produce(topic, 0, plain(records));
    assert_eq!(answer.error_code, 0, "{answer:?}");
    answer.base_offset
}

fn log(client: &mut Client, topic: &str) -> Vec<Stored> {
    records(&client.fetch(topic, 0, 0))
}

fn seen(client: &mut Client, topic: &str) -> Vec<(u64, String)> {
    let stored = log(client, topic).into_iter();
    stored.map(|stored| (stored.offset, stored.record.text())).collect()
}

fn of<const N: usize>(expected: [(u64, &str); N]) -> Vec<(u64, String)> {
    expected.into_iter().map(|(offset, text)| (offset, text.to_owned())).collect()
}

fn scheduled(server: &Server, topic: &str) -> Vec<Value> {
    let page = server.get(&format!("/v1/topics/{topic}/scheduled?limit=100")).json();
    page["messages"].as_array().expect("messages").clone()
}

#[test]
fn a_delayed_record_keeps_an_offset_free_and_comes_at_a_new_one() {
    let (server, mut client) = house();
    let delayed = record("later").key("k").header("a", "1").header("punctual-delay", "30s");
    let delayed = delayed.header("b", "2").header("a", "3");
    assert_eq!(send(&mut client, "t", &[delayed]), 0);
    assert_eq!(send(&mut client, "t", &[record("now")]), 1);
    assert_eq!(seen(&mut client, "t"), of([(1, "now")]));
    // Seen over HTTP while it waits.
    let waiting = scheduled(&server, "t");
    assert_eq!((waiting.len(), &waiting[0]["body"]), (1, &json!("later")));
    assert_eq!(waiting[0]["due"], json!("2030-01-01T00:00:30.000Z"));
    assert_eq!(advance(&server, "29s"), 0);
    assert_eq!(advance(&server, "1s"), 1);
    let log = log(&mut client, "t");
    assert_eq!(seen(&mut client, "t"), of([(1, "now"), (2, "later")]));
    let came = &log[1];
    assert_eq!(came.timestamp, START_MS + 30_000);
    assert_eq!(came.record.key.as_deref(), Some(&b"k"[..]));
    let names: Vec<String> = came
        .record
        .headers
        .iter()
        .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
        .collect();
    assert_eq!(names, ["a", "b", "a", "punctual-id", "punctual-due"]);
    assert_eq!(came.record.said("punctual-due"), Some((START_MS + 30_000).to_string()));
    let id = came.record.said("punctual-id").expect("an id");
    assert_eq!(json!(id), waiting[0]["id"]);
    let shown = server.get(&format!("/v1/messages/{id}")).json();
    assert_eq!((&shown["state"], &shown["offset"]), (&json!("delivered"), &json!(2)));
}

#[test]
fn mixed_batches_are_thinned_in_every_compression() {
    for compression in Compression::ALL {
        let (server, mut client) = house();
        let sent = [
            record("later 1").header("x-delay", "2000"),
            record("now 1"),
            record("later 2").header("punctual-delay-level", "1"),
            record("now 2").header("DELAY", "not a level"),
        ];
        let bytes = batch(opening(START_MS, compression), &sent);
        let answer = client.produce("t", 0, bytes);
        assert_eq!((answer.error_code, answer.base_offset), (0, 0), "{compression:?}");
        assert_eq!(seen(&mut client, "t"), of([(1, "now 1"), (3, "now 2")]), "{compression:?}");
        assert_eq!(send(&mut client, "t", &[record("next")]), 4, "all offsets are taken");
        // A consumer that asks for a reserved offset gets what comes behind it.
        let behind = records(&client.fetch("t", 0, 2));
        assert!(behind.iter().any(|stored| stored.offset == 3));
        assert_eq!(advance(&server, "1s"), 1);
        assert_eq!(advance(&server, "1s"), 1);
        let after = &seen(&mut client, "t")[3..];
        assert_eq!(after, of([(5, "later 2"), (6, "later 1")]), "{compression:?}");
    }
}

#[test]
fn every_way_to_name_a_time_is_understood() {
    let (server, mut client) = house();
    let at = |seconds: i64| (START_MS + seconds * 1000).to_string();
    let headers = [
        ("punctual-delay", "1s".to_owned()),
        ("x-delay", "2000".to_owned()),
        ("TIMER_DELAY_MS", "3000".to_owned()),
        ("punctual-deliver-at", "2030-01-01T00:00:04Z".to_owned()),
        ("x-deliver-at", at(5)),
        ("TIMER_DELIVER_MS", at(6)),
        ("scheduler-epoch", (START_MS / 1000 + 7).to_string()),
        ("punctual-delay-level", "3".to_owned()),
        ("DELAY", "4".to_owned()),
        ("punctual-deliver-at", at(-5)),
    ];
    let drafts: Vec<Draft> = headers
        .iter()
        .map(|(name, value)| record(&format!("{name} {value}")).header(name, value))
        .collect();
    assert_eq!(send(&mut client, "t", &drafts), 0);
    let waits: Vec<String> = scheduled(&server, "t")
        .iter()
        .map(|message| message["due"].as_str().expect("a time")[17..19].to_owned())
        .collect();
    let past = waits.iter().filter(|due| *due == "55").count();
    let waits: Vec<&String> = waits.iter().filter(|due| *due != "55").collect();
    assert_eq!(waits, ["01", "02", "03", "04", "05", "06", "07", "10", "30"]);
    assert!(past <= 1, "what is due already fires by itself");
    advance(&server, "1m");
    assert_eq!(seen(&mut client, "t").len(), 10);
}

#[test]
fn what_can_not_be_asked_for_is_refused_with_its_place_and_a_reason() {
    let (server, mut client) = house();
    let before = server.footprint();
    assert_eq!(server.put("/v1/topics/t", r#"{"max_delay":"1h"}"#).status, 201);
    let cases: [(&str, &str, &str); 8] = [
        ("punctual-delay", "soon", "a duration such as 30s"),
        ("punctual-delay", "2h", "the delay is longer than 1h"),
        ("punctual-deliver-at", "2031-01-01T00:00:00Z", "the delay is longer than 1h"),
        ("punctual-delay-level", "19", "1 to 18"),
        ("x-delay", "1m", "milliseconds"),
        ("punctual-id", "", "at least one character"),
        ("punctual-ttl", "never", "a duration such as 1h"),
        ("punctual-delya", "1s", "punctual-delay,"),
    ];
    for (name, value, hint) in cases {
        let sent = [record("fine"), record("bad").header(name, value), record("fine")];
        let answer = client.produce("t", 0, plain(&sent));
        assert_eq!((answer.error_code, answer.base_offset), (INVALID_RECORD, -1), "{name} {value}");
        let [error] = &answer.record_errors[..] else { panic!("{answer:?}") };
        assert_eq!(error.batch_index, 1);
        let message = error.batch_index_error_message.as_deref().expect("a reason");
        assert!(message.contains(hint), "{name} {value}: {message}");
    }
    let both = record("x").header("punctual-delay", "1s").header("x-delay", "5");
    assert_eq!(client.produce("t", 0, plain(&[both])).error_code, INVALID_RECORD);
    assert!(seen(&mut client, "t").is_empty());
    assert_eq!(server.footprint().0, before.0, "nothing of them was stored");
}

#[test]
fn a_repeated_batch_with_delays_is_stored_once() {
    let (server, mut client) = house();
    let producer = client.call(4, &InitProducerIdRequest::default()).producer_id;
    let opening = Opening {
        producer_id: producer,
        producer_epoch: 0,
        base_sequence: 0,
        ..opening(START_MS, Compression::Gzip)
    };
    let sent = [record("a").header("punctual-delay", "1m"), record("b").header("x-delay", "1")];
    let bytes = batch(opening, &sent);
    for _ in 0..3 {
        let answer = client.produce("t", 0, bytes.clone());
        assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    }
    advance(&server, "1h");
    assert_eq!(seen(&mut client, "t"), of([(2, "b"), (3, "a")]));
}

#[test]
fn an_own_id_is_known_again_and_another_message_may_not_take_it() {
    let (server, mut client) = house();
    let order =
        |text: &str| record(text).header("punctual-id", "order-7").header("x-delay", "5000");
    assert_eq!(send(&mut client, "t", &[order("pay")]), 0);
    assert_eq!(send(&mut client, "t", &[order("pay")]), 1, "a repeat is fine, and nothing new");
    let refused = client.produce("t", 0, plain(&[record("x"), order("other")]));
    assert_eq!(refused.error_code, INVALID_RECORD);
    assert_eq!(refused.record_errors[0].batch_index, 1);
    // It is the same name as over HTTP.
    let shown = server.get("/v1/topics/t/messages/order-7").json();
    assert_eq!((&shown["state"], &shown["body"]), (&json!("scheduled"), &json!("pay")));
    let taken = server.post("/v1/topics/t/messages", r#"{"id":"order-7","body":"x","delay":"5s"}"#);
    assert_eq!(taken.code(), "id_conflict");
    advance(&server, "5s");
    let log = log(&mut client, "t");
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].record.said("punctual-own-id").as_deref(), Some("order-7"));
}

#[test]
fn a_record_calls_off_another_by_offset_by_own_id_and_by_ours() {
    let (server, mut client) = house();
    let later = |text: &str| record(text).header("punctual-delay", "1h");
    let cancel = |what: &str| Draft::default().header("punctual-cancel", what);
    assert_eq!(send(&mut client, "t", &[record("now"), later("by offset")]), 0);
    send(&mut client, "t", &[later("by own id").header("punctual-id", "mine")]);
    let third = send(&mut client, "t", &[later("by our id")]);
    send(&mut client, "t", &[later("stays")]);
    let waiting = scheduled(&server, "t");
    let ours = waiting.iter().find(|message| message["body"] == json!("by our id"));
    let ours = ours.and_then(|message| message["id"].as_str()).expect("an id").to_owned();
    assert_eq!((waiting.len(), third), (4, 3));
    // What is not there is silently nothing; what is called off takes an offset as well.
    let calls = [cancel("0:1"), cancel("mine"), cancel(&ours), cancel("0:99"), cancel("nobody")];
    assert_eq!(send(&mut client, "t", &calls), 5);
    assert_eq!(send(&mut client, "t", &[record("last")]), 10);
    let left: Vec<Value> =
        scheduled(&server, "t").iter().map(|message| message["body"].clone()).collect();
    assert_eq!(left, [json!("stays")]);
    assert_eq!(advance(&server, "1h"), 1);
    assert_eq!(seen(&mut client, "t"), of([(0, "now"), (10, "last"), (11, "stays")]));
    let state = server.get("/v1/topics/t/messages/mine").json()["state"].clone();
    assert_eq!(state, json!("cancelled"));
    // A cancel that comes too late changes nothing.
    assert_eq!(send(&mut client, "t", &[cancel("0:4")]), 12);
    assert_eq!(seen(&mut client, "t").len(), 3);
}

#[test]
fn one_topic_does_not_call_off_what_another_has() {
    let (server, mut client) = house();
    send(&mut client, "theirs", &[record("x").header("punctual-delay", "1h")]);
    let id = scheduled(&server, "theirs")[0]["id"].as_str().expect("an id").to_owned();
    send(&mut client, "mine", &[Draft::default().header("punctual-cancel", &id)]);
    assert_eq!(scheduled(&server, "theirs").len(), 1);
}

#[test]
fn nothing_at_all_and_empty_values_stay_different() {
    let (server, mut client) = house();
    let delayed = |draft: Draft| draft.header("punctual-delay", "1s");
    let tombstone = Draft { key: Some(b"k".to_vec()), ..Draft::default() };
    send(&mut client, "t", &[delayed(tombstone), delayed(record(""))]);
    advance(&server, "1s");
    let values: Vec<Option<Vec<u8>>> =
        log(&mut client, "t").into_iter().map(|stored| stored.record.value).collect();
    assert_eq!(values, [None, Some(Vec::new())]);
    let page = server.get("/v1/topics/t/partitions/0/messages?offset=0&limit=10").json();
    assert_eq!(page["messages"][0]["body"], json!(""));
    assert_eq!(page["messages"][0]["headers"], Value::Null);
}

#[test]
fn what_is_sent_over_http_reaches_kafka_clients_and_back() {
    let (server, mut client) = house();
    assert_eq!(server.put("/v1/topics/t", r#"{"partitions":1}"#).status, 201);
    let message = json!({"body": "hi", "key": "k", "delay": "10s", "headers": {"h": "v"}});
    let id = server.send("t", &message);
    advance(&server, "10s");
    let log = log(&mut client, "t");
    assert_eq!(log.len(), 1);
    let came = &log[0].record;
    assert_eq!((came.text(), came.said("h")), ("hi".to_owned(), Some("v".to_owned())));
    assert_eq!(came.said("punctual-id"), Some(id));
    // Sent on as it is, the stamps of the first delivery do not count for the second.
    send(&mut client, "t", std::slice::from_ref(came));
    advance(&server, "1ms");
    let again = records(&client.fetch("t", 0, 0));
    let again = again.last().expect("a record");
    assert_eq!(again.record.text(), "hi");
    assert_ne!(again.record.said("punctual-id"), came.said("punctual-id"));
    let ids = again.record.headers.iter().filter(|(name, _)| name == b"punctual-id").count();
    assert_eq!(ids, 1);
}

#[test]
fn a_group_over_http_gets_delayed_records_with_their_time_to_live() {
    let (server, mut client) = house();
    let group = "/v1/topics/t/groups/g";
    assert_eq!(server.put(group, "{}").status, 201);
    let short = record("short").header("punctual-delay", "1s").header("punctual-ttl", "1m");
    let long = record("long").header("punctual-delay", "1s").header("punctual-ttl", "1d");
    send(&mut client, "t", &[short, long]);
    advance(&server, "1h");
    let got = server.receive_all(group, 1);
    assert_eq!(got[0]["body"], json!("long"));
    let reason = support::wait_for("the dead letter", || {
        advance(&server, "1s");
        let dead = server.get(&format!("{group}/dead?limit=10")).json();
        dead["messages"].get(0).map(|message| message["reason"].clone())
    });
    assert_eq!(reason, json!("expired"));
}
