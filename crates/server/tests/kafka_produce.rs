//! Do batches of Kafka clients get where they should, in every version and compression, once?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use kafka::Client;
use kafka::batches::{Draft, PRODUCE, batch, batches, opening, record, records, request};
use punctual_kafka_wire::Request as _;
use punctual_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use punctual_kafka_wire::messages::init_producer_id::InitProducerIdRequest;
use punctual_kafka_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use punctual_kafka_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use punctual_kafka_wire::records::{Compression, Opening};
use serde_json::json;
use support::Server;

const OUT_OF_ORDER: i16 = 45;
const STALE_EPOCH: i16 = 47;

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    i64::try_from(since.as_millis()).expect("a time")
}

fn plain(records: &[Draft]) -> bytes::Bytes {
    batch(opening(now(), Compression::None), records)
}

fn texts(client: &mut Client, topic: &str, partition: i32) -> Vec<(u64, String)> {
    let stored = records(&client.fetch(topic, partition, 0));
    stored.into_iter().map(|stored| (stored.offset, stored.record.text())).collect()
}

#[test]
fn batches_are_kept_byte_for_byte_in_every_compression() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let value = "a value that is long enough to be worth it ".repeat(20);
    let rich = Draft {
        key: Some(b"key".to_vec()),
        headers: vec![
            (b"same".to_vec(), Some(b"1".to_vec())),
            (b"same".to_vec(), None),
            (b"\xff\xfe".to_vec(), Some(Vec::new())),
            (b"same".to_vec(), Some(b"1".to_vec())),
        ],
        ..record(&value)
    };
    let sent = [record("first"), rich, Draft::default(), record("")];
    let mut offset = 0;
    for compression in Compression::ALL {
        let bytes = batch(opening(now(), compression), &sent);
        let answer = client.produce("kept", 0, bytes.clone());
        assert_eq!((answer.error_code, answer.base_offset), (0, offset), "{answer:?}");
        assert_eq!((answer.log_append_time_ms, answer.log_start_offset), (-1, 0));
        let from = u64::try_from(offset).expect("an offset");
        let stored = client.fetch("kept", 0, from);
        assert_eq!(stored.len(), 1, "{compression:?}");
        // Only the base offset and the leader epoch are the broker's to set.
        assert_eq!(stored[0].bytes()[16..], bytes[16..], "{compression:?}");
        assert_eq!(stored[0].header().base_offset, from);
        let read: Vec<Draft> = records(&stored).into_iter().map(|stored| stored.record).collect();
        assert_eq!(read, sent);
        offset += 4;
    }
    // The same records, over HTTP.
    let page = server.get("/v1/topics/kept/partitions/0/messages?offset=0&limit=100").json();
    let messages = page["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 20);
    for (place, message) in messages.iter().enumerate() {
        assert_eq!(message["offset"], json!(place));
        let body = ["first", &value, "", ""][place % 4];
        assert_eq!(message["body"], json!(body));
    }
}

#[test]
fn every_version_is_answered() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    for (count, version) in (0..).zip(ProduceRequest::VERSIONS) {
        let mut request = request("versions", 0, plain(&[record("x")]));
        if version >= 13 {
            let topics = vec![MetadataRequestTopic {
                name: Some("versions".to_owned()),
                ..MetadataRequestTopic::default()
            }];
            let ask = MetadataRequest { topics: Some(topics), ..MetadataRequest::default() };
            request.topic_data[0].topic_id = client.call(12, &ask).topics[0].topic_id;
        }
        let response = client.call(version, &request);
        let topic = &response.responses[0];
        assert_eq!(
            topic.topic_id,
            if version >= 13 { request.topic_data[0].topic_id } else { [0; 16] }
        );
        let answer = &topic.partition_responses[0];
        assert_eq!((answer.index, answer.error_code, answer.base_offset), (0, 0, count));
    }
    for id in [[7; 16], [0xff; 16]] {
        let mut request = request("", 0, plain(&[record("x")]));
        request.topic_data[0].topic_id = id;
        let response = client.call(13, &request);
        assert_eq!(response.responses[0].partition_responses[0].error_code, 100);
    }
}

#[test]
fn many_partitions_of_many_topics_go_in_one_request() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let topic = |name: &str| TopicProduceData {
        name: name.to_owned(),
        partition_data: (0..5)
            .map(|index| {
                let records = Some(plain(&[record(&format!("{name} {index}"))]));
                PartitionProduceData { index, records }
            })
            .collect(),
        ..TopicProduceData::default()
    };
    let topic_data = vec![topic("one"), topic("two"), topic("not a name")];
    let request = ProduceRequest { acks: 1, topic_data, ..ProduceRequest::default() };
    let response = client.call(PRODUCE, &request);
    let codes: Vec<Vec<(i32, i16)>> = response
        .responses
        .iter()
        .map(|topic| {
            let answers = topic.partition_responses.iter();
            answers.map(|answer| (answer.index, answer.error_code)).collect()
        })
        .collect();
    // A topic has four partitions where nothing is said.
    let good = vec![(0, 0), (1, 0), (2, 0), (3, 0), (4, 3)];
    let bad: Vec<(i32, i16)> = (0..5).map(|index| (index, 17)).collect();
    assert_eq!(codes, [good.clone(), good, bad]);
    assert_eq!(texts(&mut client, "two", 3), [(0, "two 3".to_owned())]);
}

#[test]
fn requests_sent_ahead_are_answered_in_order_and_stored_in_order() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let producer = client.call(4, &InitProducerIdRequest::default());
    assert_eq!((producer.error_code, producer.producer_epoch), (0, 0));
    let ids: Vec<i32> = (0..100)
        .map(|number| {
            let opening = Opening {
                producer_id: producer.producer_id,
                producer_epoch: 0,
                base_sequence: number * 2,
                ..opening(now(), Compression::None)
            };
            let sent = [record(&format!("{number} a")), record(&format!("{number} b"))];
            client.send(PRODUCE, &request("ahead", 1, batch(opening, &sent)))
        })
        .collect();
    for (number, id) in (0..).zip(ids) {
        let (answered, response) = client.receive::<ProduceRequest>(PRODUCE);
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!((answered, answer.error_code, answer.base_offset), (id, 0, number * 2));
    }
    let texts = texts(&mut client, "ahead", 1);
    let expected = (0..200).map(|offset| {
        (offset, format!("{} {}", offset / 2, if offset % 2 == 0 { "a" } else { "b" }))
    });
    assert!(texts.into_iter().eq(expected));
}

#[test]
fn a_batch_that_is_sent_again_is_stored_once_also_after_a_restart() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let producer = client.call(4, &InitProducerIdRequest::default()).producer_id;
    let numbered = |epoch: i16, sequence: i32, texts: &[&str]| {
        let opening = Opening {
            producer_id: producer,
            producer_epoch: epoch,
            base_sequence: sequence,
            ..opening(now(), Compression::Lz4)
        };
        let drafts: Vec<Draft> = texts.iter().map(|text| record(text)).collect();
        batch(opening, &drafts)
    };
    let outcome = |client: &mut Client, bytes: bytes::Bytes| {
        let answer = client.produce("once", 0, bytes);
        (answer.error_code, answer.base_offset)
    };
    let first = numbered(0, 0, &["a", "b"]);
    let second = numbered(0, 2, &["c"]);
    assert_eq!(outcome(&mut client, first.clone()), (0, 0));
    assert_eq!(outcome(&mut client, second.clone()), (0, 2));
    assert_eq!(outcome(&mut client, first.clone()), (0, 0), "as it was answered before");
    assert_eq!(outcome(&mut client, second.clone()), (0, 2));
    assert_eq!(outcome(&mut client, numbered(0, 7, &["gap"])), (OUT_OF_ORDER, -1));
    drop(client);
    let server = server.restarted(&[]);
    let mut client = Client::connect(&server);
    assert_eq!(outcome(&mut client, first), (0, 0));
    assert_eq!(outcome(&mut client, second), (0, 2));
    assert_eq!(outcome(&mut client, numbered(0, 9, &["gap"])), (OUT_OF_ORDER, -1));
    assert_eq!(outcome(&mut client, numbered(0, 3, &["d"])), (0, 3));
    // A new epoch counts from zero, and ends the old one.
    let bump = InitProducerIdRequest {
        producer_id: producer,
        producer_epoch: 0,
        ..InitProducerIdRequest::default()
    };
    let bumped = client.call(4, &bump);
    assert_eq!((bumped.producer_id, bumped.producer_epoch), (producer, 1));
    assert_eq!(outcome(&mut client, numbered(1, 0, &["e"])), (0, 4));
    assert_eq!(outcome(&mut client, numbered(0, 4, &["old"])), (STALE_EPOCH, -1));
    let texts: Vec<String> =
        texts(&mut client, "once", 0).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["a", "b", "c", "d", "e"]);
}

#[test]
fn producers_get_ids_of_their_own_and_no_transactions() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let mut ids: Vec<i64> = InitProducerIdRequest::VERSIONS
        .map(|version| client.call(version, &InitProducerIdRequest::default()).producer_id)
        .collect();
    assert!(ids.iter().all(|id| (0..1 << 62).contains(id)), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    let transactional = Some("orders".to_owned());
    let ask = InitProducerIdRequest {
        transactional_id: transactional.clone(),
        ..InitProducerIdRequest::default()
    };
    let refused = client.call(4, &ask);
    assert_eq!((refused.error_code, refused.producer_id), (53, -1));
    let mut request = request("t", 0, plain(&[record("x")]));
    request.transactional_id = transactional;
    let response = client.call(PRODUCE, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 53);
}

#[test]
fn who_wants_no_answer_gets_none_and_errors_end_the_connection() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    for number in 0..3 {
        let mut unanswered = request("quiet", 0, plain(&[record(&format!("{number}"))]));
        unanswered.acks = 0;
        client.send(PRODUCE, &unanswered);
    }
    // The next answer is that to the next request that wants one, and it comes after them.
    let answer = client.produce("quiet", 0, plain(&[record("3")]));
    assert_eq!((answer.error_code, answer.base_offset), (0, 3));
    let mut bad = request("quiet", 99, plain(&[record("x")]));
    bad.acks = 0;
    client.send(PRODUCE, &bad);
    assert!(client.is_closed());
    let mut client = Client::connect(&server);
    for acks in [2, -2, i16::MAX] {
        let mut request = request("quiet", 0, plain(&[record("x")]));
        request.acks = acks;
        let response = client.call(PRODUCE, &request);
        assert_eq!(response.responses[0].partition_responses[0].error_code, 21);
    }
    assert_eq!(texts(&mut client, "quiet", 0).len(), 4);
}

#[test]
fn topics_come_into_being_at_their_first_use_unless_that_is_switched_off() {
    let server = Server::with(&[("topics.auto_create", "false")]);
    let mut client = Client::connect(&server);
    assert_eq!(client.produce("new", 0, plain(&[record("x")])).error_code, 3);
    assert_eq!(server.put("/v1/topics/new", "{}").status, 201);
    assert_eq!(client.produce("new", 0, plain(&[record("x")])).error_code, 0);
    for name in ["", ".", "a b", "ä"] {
        assert_eq!(client.produce(name, 0, plain(&[record("x")])).error_code, 17, "{name}");
    }
    // What belongs to a group is its own.
    assert_eq!(server.put("/v1/topics/new/groups/g", "{}").status, 201);
    for name in ["new.g.dead", "new.g.retry"] {
        assert_eq!(client.produce(name, 0, plain(&[record("x")])).error_code, 17, "{name}");
    }
}

#[test]
fn a_topic_has_a_largest_batch_and_may_count_the_time_of_the_append() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let config = |name: &str, value: &str| CreatableTopicConfig {
        name: name.to_owned(),
        value: Some(value.to_owned()),
    };
    let topic = CreatableTopic {
        name: "stamped".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![
            config("message.timestamp.type", "LogAppendTime"),
            config("max.message.bytes", "1000"),
        ],
        ..CreatableTopic::default()
    };
    let made = client.call(
        5,
        &CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        },
    );
    assert_eq!(made.topics[0].error_code, 0, "{made:?}");
    // Whatever the producer says, also the end of time.
    let before = now();
    for time in [0, now(), i64::MAX / 2] {
        let sent = [record("a"), record("b").header("punctual-delay", "1h")];
        let answer = client.produce("stamped", 0, batch(opening(time, Compression::Gzip), &sent));
        assert_eq!(answer.error_code, 0, "{answer:?}");
        assert!((before..=now()).contains(&answer.log_append_time_ms), "{answer:?}");
        let offset = u64::try_from(answer.base_offset).expect("an offset");
        let stored = records(&client.fetch("stamped", 0, offset));
        assert_eq!(stored[0].timestamp, answer.log_append_time_ms);
    }
    let page = server.get("/v1/topics/stamped/partitions/0/messages?offset=0&limit=10").json();
    assert_eq!(page["messages"].as_array().map(Vec::len), Some(3));
    let large = plain(&[record(&"x".repeat(1000))]);
    assert_eq!(client.produce("stamped", 0, large.clone()).error_code, 10);
    assert_eq!(client.produce("other", 0, large).error_code, 0);
}

#[test]
fn a_full_backlog_asks_for_another_try() {
    let server = Server::with(&[("store.durability", "os")]);
    let settings = json!({"partitions": 1, "max_backlog": {"messages": 2}, "overflow": "refuse"});
    assert_eq!(server.put("/v1/topics/full", settings.to_string()).status, 201);
    assert_eq!(server.put("/v1/topics/full/groups/g", "{}").status, 201);
    let mut client = Client::connect(&server);
    assert_eq!(client.produce("full", 0, plain(&[record("1"), record("2")])).error_code, 0);
    let refused = client.produce("full", 0, plain(&[record("3")]));
    assert_eq!((refused.error_code, refused.base_offset), (19, -1), "{refused:?}");
    let group = "/v1/topics/full/groups/g";
    for message in server.receive_all(group, 2) {
        server.settle(group, "ack", &json!({"receipts": [message["receipt"]]}));
    }
    support::wait_for("room", || {
        (client.produce("full", 0, plain(&[record("3")])).error_code == 0).then_some(())
    });
}

#[test]
fn a_queue_group_over_http_gets_what_kafka_clients_produce() {
    let server = Server::start();
    let group = "/v1/topics/shared/groups/workers";
    assert_eq!(server.put(group, r#"{"retry":{"ladder":["1ms"]}}"#).status, 201);
    let mut client = Client::connect(&server);
    let keyed = |text: &str| record(text).key("k").header("h", text);
    client.produce(
        "shared",
        2,
        batch(opening(now(), Compression::Zstd), &[keyed("a"), keyed("b")]),
    );
    let got = server.receive_all(group, 2);
    let bodies: Vec<&str> = got.iter().filter_map(|message| message["body"].as_str()).collect();
    assert_eq!(bodies, ["a", "b"]);
    assert_eq!((&got[0]["key"], &got[0]["headers"]["h"]), (&json!("k"), &json!("a")));
    assert_eq!(got[1]["offset"], json!(1));
    let id = got[0]["id"].as_str().expect("an id");
    let shown = server.get(&format!("/v1/messages/{id}"));
    assert_eq!((shown.status, shown.json()["state"].clone()), (200, json!("delivered")));
    server.settle(group, "ack", &json!({"receipts": [got[0]["receipt"]]}));
    server.settle(group, "nack", &json!({"receipts": [got[1]["receipt"]]}));
    let again = server.receive_all(group, 1);
    assert_eq!((&again[0]["body"], &again[0]["attempt"]), (&json!("b"), &json!(2)));
}

#[test]
fn batches_read_back_are_what_a_consumer_may_get() {
    // A cut batch at the end is legal, and the helper leaves it out.
    let whole = plain(&[record("x")]);
    let mut bytes = whole.to_vec();
    bytes.extend_from_slice(&whole[..whole.len() - 1]);
    assert_eq!(batches(bytes.into()).len(), 1);
}
