//! What does a fetch give, how much of it, and when does it answer?
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
use kafka::fetches::{
    BY_ID, bytes, fetch, only, patient, stored, texts, told, topic, topic_by_id, topic_id,
};
use punctual_kafka_wire::Request as _;
use punctual_kafka_wire::messages::fetch::FetchRequest;
use punctual_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsTopic,
};
use punctual_kafka_wire::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use punctual_kafka_wire::records::Compression;
use serde_json::json;
use support::{Server, wait_for};

const OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC: i16 = 3;
const UNSUPPORTED_VERSION: i16 = 35;
const UNKNOWN_TOPIC_ID: i16 = 100;
/// When the batches of these tests were made.
const MADE: i64 = 1_700_000_000_000;

fn with_topic(name: &str, partitions: u16) -> Server {
    let server = Server::start();
    let made =
        server.put(&format!("/v1/topics/{name}"), json!({"partitions": partitions}).to_string());
    assert!(made.status < 300, "{}", made.body);
    server
}

/// Appends a batch of these values; how long it is.
fn append(client: &mut Client, topic: &str, partition: i32, values: &[&str]) -> usize {
    let records: Vec<_> = values.iter().map(|value| record(value)).collect();
    let batch = batch(opening(MADE, Compression::None), &records);
    let length = batch.len();
    let answer = client.produce(topic, partition, batch);
    assert_eq!(answer.error_code, 0, "{answer:?}");
    length
}

#[test]
fn records_come_as_they_were_sent_in_every_version() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    let sent = [record("one").header("a", "1").header("a", "2"), record("two").key("k")];
    let sent_bytes = batch(opening(MADE, Compression::Zstd), &sent);
    assert_eq!(client.produce("t", 0, sent_bytes.clone()).error_code, 0);
    let id = topic_id(&mut client, "t");
    for version in FetchRequest::VERSIONS {
        let topic = match version < BY_ID {
            true => topic("t", &[(0, 0)]),
            false => topic_by_id(id, &[(0, 0)]),
        };
        let answer = client.call(version, &fetch(vec![topic]));
        let named = &answer.responses[0];
        match version < BY_ID {
            true => assert_eq!(named.topic, "t"),
            false => assert_eq!(named.topic_id, id),
        }
        let answer = only(answer);
        assert_eq!((answer.error_code, answer.high_watermark), (0, 2), "{version}");
        assert_eq!(answer.last_stable_offset, 2);
        assert_eq!(answer.aborted_transactions, None);
        if version >= 5 {
            assert_eq!(answer.log_start_offset, 0);
        }
        // Offset and epoch are the broker's; everything behind is as it came.
        assert_eq!(bytes(&answer)[16..], sent_bytes[16..], "{version}");
        let stored = stored(&answer);
        assert_eq!(stored.iter().map(|one| one.offset).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(stored.iter().map(|one| one.timestamp).collect::<Vec<_>>(), [MADE, MADE + 1]);
        assert_eq!([&stored[0].record, &stored[1].record], [&sent[0], &sent[1]]);
    }
}

#[test]
fn the_batch_that_holds_the_offset_comes_whole() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    append(&mut client, "t", 0, &["a", "b", "c"]);
    append(&mut client, "t", 0, &["d", "e"]);
    for (offset, first) in [(0, "a"), (2, "a"), (3, "d"), (4, "d")] {
        let answer = only(client.call(11, &fetch(vec![topic("t", &[(0, offset)])])));
        assert_eq!(texts(&answer)[0], first, "from {offset}");
        assert_eq!(texts(&answer).last().unwrap(), "e");
    }
    let answer = only(client.call(11, &fetch(vec![topic("t", &[(0, 5)])])));
    assert_eq!((answer.error_code, bytes(&answer).len(), answer.high_watermark), (0, 0, 5));
}

#[test]
fn what_is_not_there_is_an_error_of_its_partition() {
    let server = with_topic("t", 2);
    let mut client = Client::connect(&server);
    append(&mut client, "t", 0, &["a"]);
    let asked = vec![
        topic("t", &[(0, 2), (0, -1), (0, i64::MAX), (7, 0), (-1, 0), (0, 0)]),
        topic("nowhere", &[(0, 0)]),
        topic("not a name", &[(0, 0)]),
    ];
    let answer = client.call(12, &patient(asked));
    assert_eq!(answer.error_code, 0);
    let codes: Vec<i16> = told(&answer).iter().map(|one| one.error_code).collect();
    let (far, unknown) = (OUT_OF_RANGE, UNKNOWN_TOPIC);
    assert_eq!(codes, [far, far, far, unknown, unknown, 0, unknown, unknown]);
    let ends: Vec<i64> = told(&answer).iter().map(|one| one.high_watermark).collect();
    assert_eq!(ends, [1, 1, 1, -1, -1, 1, -1, -1]);
    assert_eq!(texts(told(&answer)[5]), ["a"], "the others get theirs all the same");
    let strange = client.call(16, &patient(vec![topic_by_id([7; 16], &[(0, 0)])]));
    assert_eq!(only(strange).error_code, UNKNOWN_TOPIC_ID);
}

#[test]
fn a_fetch_that_waits_is_answered_by_what_arrives() {
    let server = with_topic("t", 1);
    let (mut waiting, mut sending) = (Client::connect(&server), Client::connect(&server));
    waiting.send(11, &patient(vec![topic("t", &[(0, 0)])]));
    append(&mut sending, "t", 0, &["a"]);
    let (_, answer) = waiting.receive::<FetchRequest>(11);
    assert_eq!(texts(&only(answer)), ["a"]);
    // A message that falls due is one, too.
    waiting.send(11, &patient(vec![topic("t", &[(0, 1)])]));
    server.send("t", &json!({"body": "b", "delay": "50ms"}));
    let (_, answer) = waiting.receive::<FetchRequest>(11);
    assert_eq!(texts(&only(answer)), ["b"]);
}

#[test]
fn a_fetch_waits_until_there_is_as_much_as_it_wants() {
    let server = with_topic("t", 2);
    let (mut waiting, mut sending) = (Client::connect(&server), Client::connect(&server));
    let long = "x".repeat(500);
    let wanted = FetchRequest { min_bytes: 1500, ..patient(vec![topic("t", &[(0, 0), (1, 0)])]) };
    waiting.send(11, &wanted);
    for (partition, value) in [(0, &long), (1, &long), (0, &long)] {
        append(&mut sending, "t", partition, &[value]);
    }
    let (_, answer) = waiting.receive::<FetchRequest>(11);
    let counts: Vec<usize> = told(&answer).iter().map(|one| texts(one).len()).collect();
    assert_eq!(counts, [2, 1], "only all three are enough");
}

#[test]
fn one_wait_is_for_any_of_its_topics() {
    let server = with_topic("a", 1);
    assert!(server.put("/v1/topics/b", "{}").status < 300);
    let (mut waiting, mut sending) = (Client::connect(&server), Client::connect(&server));
    for (arrives, read_of_b) in [("b", 0), ("a", 1)] {
        waiting.send(11, &patient(vec![topic("a", &[(0, 0)]), topic("b", &[(0, read_of_b)])]));
        append(&mut sending, arrives, 0, &["x"]);
        let (_, answer) = waiting.receive::<FetchRequest>(11);
        let here: Vec<bool> = told(&answer).iter().map(|one| !texts(one).is_empty()).collect();
        assert_eq!(here, [arrives == "a", arrives == "b"]);
    }
}

#[test]
fn a_fetch_ends_when_its_time_is_up() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    for wait in [0, 1, 30, -5] {
        let request = FetchRequest { max_wait_ms: wait, ..patient(vec![topic("t", &[(0, 0)])]) };
        let answer = only(client.call(11, &request));
        assert_eq!((answer.error_code, bytes(&answer).len()), (0, 0));
    }
    // Nothing asked for is nothing to wait for.
    let answer = client.call(11, &patient(Vec::new()));
    assert_eq!((answer.error_code, answer.responses.len()), (0, 0));
}

#[test]
fn a_topic_that_goes_ends_the_wait_for_it() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    client.send(11, &patient(vec![topic("t", &[(0, 0)])]));
    assert!(server.delete("/v1/topics/t").status < 300);
    let (_, answer) = client.receive::<FetchRequest>(11);
    assert_eq!(only(answer).error_code, UNKNOWN_TOPIC);
}

#[test]
fn whoever_waits_holds_up_neither_its_end_nor_that_of_the_server() {
    let mut server = with_topic("t", 1);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send(11, &patient(vec![topic("t", &[(0, 0)])]));
    }
    // Half of them are gone without a word.
    clients.truncate(4);
    let connected = || {
        let metrics = server.get("/metrics").body;
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with("punctual_kafka_connections "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    if connected().is_some() {
        wait_for("the connections to end", || connected().filter(|count| *count <= 4.0));
    }
    server.join().expect("it ends regularly");
    assert!(clients.iter_mut().all(|client| client.is_closed()));
}

#[test]
fn limits_are_kept_but_the_first_batch_always_comes() {
    let server = with_topic("t", 2);
    let mut client = Client::connect(&server);
    let long = "x".repeat(1000);
    let mut length = 0;
    for partition in [0, 0, 0, 1, 1] {
        length = append(&mut client, "t", partition, &[&long]);
    }
    let size = i32::try_from(length).unwrap();
    // (of the answer, of each partition) and how many whole batches come
    for (request, each, counts) in [
        (i32::MAX, i32::MAX, [3, 2]),
        (i32::MAX, size, [1, 1]),
        (i32::MAX, 2 * size, [2, 2]),
        (i32::MAX, 2 * size - 1, [1, 1]),
        (i32::MAX, 1, [1, 0]),
        (i32::MAX, 0, [1, 0]),
        (1, i32::MAX, [1, 0]),
        (0, 0, [1, 0]),
        (2 * size, i32::MAX, [2, 0]),
        (4 * size, i32::MAX, [3, 1]),
        (2 * size, size, [1, 1]),
    ] {
        let mut topic = topic("t", &[(0, 0), (1, 0)]);
        topic.partitions.iter_mut().for_each(|one| one.partition_max_bytes = each);
        let asked = FetchRequest { max_bytes: request, ..fetch(vec![topic]) };
        let answer = client.call(11, &asked);
        let came: Vec<usize> = told(&answer).iter().map(|one| texts(one).len()).collect();
        assert_eq!(came, counts, "{request} and {each}");
        let bytes: usize = told(&answer).iter().map(|one| bytes(one).len()).sum();
        assert!(bytes <= usize::try_from(request).unwrap().max(length), "{bytes} of {request}");
    }
}

#[test]
fn a_large_answer_arrives_to_the_byte_beside_a_reader_that_rests() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    let values: Vec<String> =
        (0..20).map(|number| number.to_string().repeat(700_000 / 2)).collect();
    for value in &values {
        append(&mut client, "t", 0, &[value]);
    }
    // This one asks, and does not read.
    let mut resting = Client::connect(&server);
    resting.send(11, &fetch(vec![topic("t", &[(0, 0)])]));
    for _ in 0..3 {
        let answer = only(client.call(11, &fetch(vec![topic("t", &[(0, 0)])])));
        assert_eq!(texts(&answer), values);
    }
    let (_, answer) = resting.receive::<FetchRequest>(11);
    assert_eq!(texts(&only(answer)), values);
}

#[test]
fn retries_are_hidden_and_dead_letters_can_be_read() {
    let server = with_topic("t", 1);
    let group = "/v1/topics/t/groups/g";
    assert!(server.put(group, "{}").status < 300);
    server.send("t", &json!({"body": "bad"}));
    let taken = server.receive_all(group, 1);
    let reject = json!({"receipts": [taken[0]["receipt"]], "reject": true});
    assert_eq!(server.settle(group, "nack", &reject).len(), 1);
    let mut client = Client::connect(&server);
    let dead = || {
        let answer = only(client.call(11, &fetch(vec![topic("t.g.dead", &[(0, 0)])])));
        assert_eq!(answer.error_code, 0);
        Some(texts(&answer)).filter(|texts| !texts.is_empty())
    };
    assert_eq!(wait_for("the dead letter", dead), ["bad"]);
    let mut client = Client::connect(&server);
    let hidden = only(client.call(11, &fetch(vec![topic("t.g.retry", &[(0, 0)])])));
    assert_eq!(hidden.error_code, UNKNOWN_TOPIC);
}

fn offsets(
    client: &mut Client,
    version: i16,
    name: &str,
    asked: &[(i32, i64)],
) -> Vec<ListOffsetsPartitionResponse> {
    let one = |&(partition_index, timestamp): &(i32, i64)| ListOffsetsPartition {
        partition_index,
        timestamp,
        ..ListOffsetsPartition::default()
    };
    let topic =
        ListOffsetsTopic { name: name.to_owned(), partitions: asked.iter().map(one).collect() };
    let request =
        ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
    let mut answer = client.call(version, &request);
    assert_eq!(answer.topics.len(), 1);
    assert_eq!(answer.topics[0].name, name);
    answer.topics.remove(0).partitions
}

#[test]
fn offsets_are_found_by_time_and_by_what_stands_for_one() {
    let server = with_topic("t", 2);
    let mut client = Client::connect(&server);
    // The times within a batch need not ascend, nor those of batches.
    for (base, count) in [(MADE + 1000, 3), (MADE, 2), (MADE + 5000, 2)] {
        let records: Vec<_> = (0..count).map(|number| record(&number.to_string())).collect();
        let batch = batch(opening(base, Compression::None), &records);
        assert_eq!(client.produce("t", 0, batch).error_code, 0);
    }
    for version in ListOffsetsRequest::VERSIONS {
        let asked = [-1, -2, MADE, MADE + 1001, MADE + 1003, MADE + 5001, MADE + 5002];
        let asked = asked.map(|time| (0, time));
        let found = offsets(&mut client, version, "t", &asked);
        assert!(found.iter().all(|one| one.error_code == 0), "{version}: {found:?}");
        let found: Vec<(i64, i64)> = found.iter().map(|one| (one.offset, one.timestamp)).collect();
        let times = [
            (7, -1),
            (0, -1),
            (0, MADE + 1000),
            (1, MADE + 1001),
            (5, MADE + 5000),
            (6, MADE + 5001),
            (-1, -1),
        ];
        assert_eq!(found, times, "{version}");
    }
    for (time, since, offset) in [(-3, 7, 6), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)] {
        let found = &offsets(&mut client, since, "t", &[(0, time)])[0];
        assert_eq!((found.error_code, found.offset), (0, offset), "{time}");
        let old = &offsets(&mut client, since - 1, "t", &[(0, time)])[0];
        assert_eq!((old.error_code, old.offset), (UNSUPPORTED_VERSION, -1), "{time}");
    }
    let empty = offsets(&mut client, 7, "t", &[(1, -1), (1, -2), (1, -3), (1, 0)]);
    let empty: Vec<i64> = empty.iter().map(|one| one.offset).collect();
    assert_eq!(empty, [0, 0, -1, -1]);
    let missing = offsets(&mut client, 7, "t", &[(2, -1), (-1, -1)]);
    assert!(missing.iter().all(|one| one.error_code == UNKNOWN_TOPIC));
    assert_eq!(offsets(&mut client, 7, "nowhere", &[(0, -1)])[0].error_code, UNKNOWN_TOPIC);
}

#[test]
fn the_one_epoch_ends_where_the_log_ends() {
    let server = with_topic("t", 1);
    let mut client = Client::connect(&server);
    append(&mut client, "t", 0, &["a", "b"]);
    for version in OffsetForLeaderEpochRequest::VERSIONS {
        let one = |partition, leader_epoch| OffsetForLeaderPartition {
            partition,
            leader_epoch,
            ..OffsetForLeaderPartition::default()
        };
        let partitions = vec![one(0, 0), one(0, 1), one(3, 0)];
        let topic = OffsetForLeaderTopic { topic: "t".to_owned(), partitions };
        let request = OffsetForLeaderEpochRequest {
            topics: vec![topic],
            ..OffsetForLeaderEpochRequest::default()
        };
        let answer = client.call(version, &request);
        let ends: Vec<(i16, i32, i64)> = answer.topics[0]
            .partitions
            .iter()
            .map(|one| (one.error_code, one.leader_epoch, one.end_offset))
            .collect();
        assert_eq!(ends, [(0, 0, 2), (0, -1, -1), (UNKNOWN_TOPIC, -1, -1)], "{version}");
    }
}
