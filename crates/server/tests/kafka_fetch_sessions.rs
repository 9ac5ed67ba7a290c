//! What is a fetch session told, and when does it end?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use kafka::Client;
use kafka::batches::{batch, opening, record};
use kafka::fetches::{fetch, patient, texts, told, topic, topic_by_id, topic_id};
use punctual_kafka_wire::messages::fetch::{FetchRequest, FetchResponse, ForgottenTopic};
use punctual_kafka_wire::records::Compression;
use serde_json::json;
use support::Server;

const NOT_FOUND: i16 = 70;
const WRONG_EPOCH: i16 = 71;
const OTHER_NAMES: i16 = 106;
const VERSION: i16 = 12;

fn with_topic(partitions: u16) -> Server {
    let server = Server::start();
    let made = server.put("/v1/topics/t", json!({"partitions": partitions}).to_string());
    assert!(made.status < 300, "{}", made.body);
    server
}

fn append(client: &mut Client, partition: i32, value: &str) {
    let batch = batch(opening(1_700_000_000_000, Compression::None), &[record(value)]);
    assert_eq!(client.produce("t", partition, batch).error_code, 0);
}

fn of(session_id: i32, session_epoch: i32, request: FetchRequest) -> FetchRequest {
    FetchRequest { session_id, session_epoch, ..request }
}

/// Begins a session of these partitions from their start.
fn begin(client: &mut Client, partitions: &[(i32, i64)]) -> i32 {
    let first = client.call(VERSION, &of(0, 0, fetch(vec![topic("t", partitions)])));
    assert_eq!((first.error_code, told(&first).len()), (0, partitions.len()));
    assert!(first.session_id > 0);
    first.session_id
}

fn partitions(response: &FetchResponse) -> Vec<i32> {
    told(response).iter().map(|one| one.partition_index).collect()
}

#[test]
fn a_session_is_told_only_of_what_is_new() {
    let server = with_topic(3);
    let mut client = Client::connect(&server);
    let id = begin(&mut client, &[(0, 0), (1, 0), (2, 0)]);
    let quiet = client.call(VERSION, &of(id, 1, fetch(Vec::new())));
    assert_eq!((quiet.error_code, quiet.session_id), (0, id));
    assert!(quiet.responses.is_empty(), "{quiet:?}");
    append(&mut client, 1, "a");
    let news = client.call(VERSION, &of(id, 2, fetch(Vec::new())));
    assert_eq!(partitions(&news), [1]);
    assert_eq!(texts(told(&news)[0]), ["a"]);
    // The consumer has read on, and wants one partition less.
    let mut next = of(id, 3, fetch(vec![topic("t", &[(1, 1)])]));
    next.forgotten_topics_data = vec![ForgottenTopic {
        topic: "t".to_owned(),
        partitions: vec![2],
        ..ForgottenTopic::default()
    }];
    append(&mut client, 2, "b");
    append(&mut client, 0, "c");
    let news = client.call(VERSION, &next);
    assert_eq!(partitions(&news), [0]);
    assert_eq!(texts(told(&news)[0]), ["c"]);
}

#[test]
fn a_session_waits_as_any_fetch_does() {
    let server = with_topic(2);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let id = begin(&mut client, &[(0, 0), (1, 0)]);
    client.send(VERSION, &of(id, 1, patient(Vec::new())));
    append(&mut other, 1, "a");
    let (_, news) = client.receive::<FetchRequest>(VERSION);
    assert_eq!(partitions(&news), [1]);
    assert_eq!(texts(told(&news)[0]), ["a"]);
}

#[test]
fn all_partitions_get_their_turn() {
    let server = with_topic(3);
    let mut client = Client::connect(&server);
    for partition in 0..3 {
        append(&mut client, partition, &"x".repeat(500));
    }
    let tight = |request: FetchRequest| FetchRequest { max_bytes: 1, ..request };
    let all = vec![topic("t", &[(0, 0), (1, 0), (2, 0)])];
    let first = client.call(VERSION, &of(0, 0, tight(fetch(all))));
    let mut gave = Vec::new();
    for epoch in 1..=6 {
        let next = client.call(VERSION, &of(first.session_id, epoch, tight(fetch(Vec::new()))));
        let with = told(&next).into_iter().filter(|one| !texts(one).is_empty());
        gave.extend(with.map(|one| one.partition_index));
    }
    assert_eq!(gave, [1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_wrong_session_is_refused_and_nothing_else_happens() {
    let server = with_topic(1);
    let mut client = Client::connect(&server);
    let id = begin(&mut client, &[(0, 0)]);
    let strange = if id == 5 { 6 } else { 5 };
    let refused = |answer: FetchResponse| {
        assert!(answer.responses.is_empty());
        assert_eq!(answer.session_id, 0);
        answer.error_code
    };
    let mut ask = |version, request: FetchRequest| client.call(version, &request);
    assert_eq!(refused(ask(VERSION, of(strange, 1, fetch(Vec::new())))), NOT_FOUND);
    assert_eq!(refused(ask(VERSION, of(0, 1, fetch(Vec::new())))), NOT_FOUND);
    assert_eq!(refused(ask(VERSION, of(id, 2, fetch(Vec::new())))), WRONG_EPOCH);
    assert_eq!(refused(ask(VERSION, of(id, -7, fetch(Vec::new())))), WRONG_EPOCH);
    assert_eq!(refused(ask(13, of(id, 1, fetch(Vec::new())))), OTHER_NAMES);
    assert_eq!(ask(VERSION, of(id, 1, fetch(Vec::new()))).error_code, 0);
    assert_eq!(refused(ask(VERSION, of(id, 1, fetch(Vec::new())))), WRONG_EPOCH);
}

#[test]
fn a_fetch_without_a_session_ends_the_one_it_names() {
    let server = with_topic(1);
    let mut client = Client::connect(&server);
    for last in [-1, 0] {
        let id = begin(&mut client, &[(0, 0)]);
        let answer = client.call(VERSION, &of(id, last, fetch(vec![topic("t", &[(0, 0)])])));
        assert_eq!((answer.error_code, partitions(&answer)), (0, vec![0]));
        assert_ne!(answer.session_id, id);
        assert_eq!(answer.session_id > 0, last == 0);
        let gone = client.call(VERSION, &of(id, 1, fetch(Vec::new())));
        assert_eq!(gone.error_code, NOT_FOUND);
    }
    let alone = client.call(VERSION, &of(0, -1, fetch(vec![topic("t", &[(0, 0)])])));
    assert_eq!((alone.error_code, alone.session_id), (0, 0));
}

#[test]
fn a_session_outlives_its_connection_and_works_with_ids() {
    let server = with_topic(1);
    let mut client = Client::connect(&server);
    let id = topic_id(&mut client, "t");
    let first = client.call(16, &of(0, 0, fetch(vec![topic_by_id(id, &[(0, 0)])])));
    drop(client);
    let mut client = Client::connect(&server);
    append(&mut client, 0, "a");
    let news = client.call(16, &of(first.session_id, 1, fetch(Vec::new())));
    assert_eq!(news.responses[0].topic_id, id);
    assert_eq!(texts(told(&news)[0]), ["a"]);
    // A topic that is no more is told of each time, until it is forgotten.
    assert!(server.delete("/v1/topics/t").status < 300);
    for epoch in [2, 3] {
        let gone = client.call(16, &of(first.session_id, epoch, fetch(Vec::new())));
        assert_eq!(told(&gone)[0].error_code, 100);
    }
}
