//! Do topics and settings follow what Kafka's administrators ask for, and only that?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use std::collections::BTreeMap;

use kafka::Client;
use punctual_kafka_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterableConfig,
};
use punctual_kafka_wire::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use punctual_kafka_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicResult,
    CreateTopicsRequest,
};
use punctual_kafka_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use punctual_kafka_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use punctual_kafka_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
};
use punctual_kafka_wire::messages::describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsRequest,
};
use punctual_kafka_wire::messages::incremental_alter_configs as incremental;
use punctual_kafka_wire::{ErrorCode, Request as _};
use serde_json::{Value, json};
use support::Server;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn topic(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 1,
        ..CreatableTopic::default()
    }
}

fn with(mut topic: CreatableTopic, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let config = |(name, value): &(&str, Option<&str>)| CreatableTopicConfig {
        name: (*name).to_owned(),
        value: value.map(str::to_owned),
    };
    topic.configs = configs.iter().map(config).collect();
    topic
}

fn create(client: &mut Client, topics: Vec<CreatableTopic>) -> Vec<CreatableTopicResult> {
    client.call(7, &CreateTopicsRequest { topics, ..CreateTopicsRequest::default() }).topics
}

fn codes(results: &[CreatableTopicResult]) -> Vec<ErrorCode> {
    results.iter().map(|one| ErrorCode(one.error_code)).collect()
}

type Settings = BTreeMap<String, DescribeConfigsResourceResult>;

fn described(client: &mut Client, kind: i8, name: &str) -> Result<Settings, ErrorCode> {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.to_owned(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource],
        include_synonyms: true,
        ..DescribeConfigsRequest::default()
    };
    let result = client.call(4, &request).results.remove(0);
    match result.error_code {
        0 => Ok(result.configs.into_iter().map(|one| (one.name.clone(), one)).collect()),
        code => Err(ErrorCode(code)),
    }
}

fn value(settings: &Settings, name: &str) -> (String, i8) {
    let one = &settings[name];
    (one.value.clone().expect("a value"), one.config_source)
}

#[test]
fn topics_are_made_as_they_were_asked_for_in_every_version() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    for version in CreateTopicsRequest::VERSIONS {
        let name = format!("made-{version}");
        let asked = with(topic(&name, 3), &[("retention.ms", Some("1000"))]);
        let request = CreateTopicsRequest { topics: vec![asked], ..Default::default() };
        let result = client.call(version, &request).topics.remove(0);
        assert_eq!((result.error_code, result.name.as_str()), (0, name.as_str()));
        if version >= 5 {
            assert_eq!((result.num_partitions, result.replication_factor), (3, 1));
            assert!(result.configs.unwrap().iter().any(|one| one.name == "retention.ms"));
        }
        if version >= 7 {
            assert_ne!(result.topic_id, [0; 16]);
        }
        let shown = server.get(&format!("/v1/topics/{name}")).json();
        assert_eq!((&shown["partitions"], &shown["retention"]), (&json!(3), &json!("1s")));
    }
    let usual = CreatableTopic { replication_factor: -1, ..topic("usual", -1) };
    assert_eq!(codes(&create(&mut client, vec![usual])), [ErrorCode::NONE]);
    assert_eq!(server.get("/v1/topics/usual").json()["partitions"], 4);
}

#[test]
fn a_topic_that_cannot_be_is_refused_and_the_others_are_made() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    create(&mut client, vec![topic("there", 1)]);
    let on = |brokers: &[i32], index| CreatableReplicaAssignment {
        partition_index: index,
        broker_ids: brokers.to_vec(),
    };
    let placed = |assignments: Vec<CreatableReplicaAssignment>| CreatableTopic {
        num_partitions: -1,
        replication_factor: -1,
        assignments,
        ..topic("placed", -1)
    };
    let cases = [
        (topic("there", 1), ErrorCode::TOPIC_ALREADY_EXISTS),
        (topic("a b", 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (topic("..", 1), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (topic("none", 0), ErrorCode::INVALID_PARTITIONS),
        (topic("many", 1025), ErrorCode::INVALID_PARTITIONS),
        (topic("less", -2), ErrorCode::INVALID_PARTITIONS),
        (
            CreatableTopic { replication_factor: 3, ..topic("copies", 1) },
            ErrorCode::INVALID_REPLICATION_FACTOR,
        ),
        (with(topic("odd", 1), &[("no.such", Some("1"))]), ErrorCode::INVALID_CONFIG),
        (with(topic("null", 1), &[("retention.ms", None)]), ErrorCode::INVALID_CONFIG),
        (
            with(topic("compact", 1), &[("cleanup.policy", Some("compact"))]),
            ErrorCode::INVALID_CONFIG,
        ),
        (placed(vec![on(&[1], 0), on(&[2], 1)]), ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (placed(vec![on(&[1], 1)]), ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic { num_partitions: 1, ..placed(vec![on(&[1], 0)]) },
            ErrorCode::INVALID_REQUEST,
        ),
    ];
    for (asked, code) in cases {
        let name = asked.name.clone();
        let results = create(&mut client, vec![asked, topic("good", 1)]);
        assert_eq!(results[0].error_code, code.code(), "{name}: {:?}", results[0].error_message);
        assert!(results[0].error_message.as_ref().is_some_and(|text| !text.is_empty()), "{name}");
        assert_eq!(results[1].error_code, 0, "{name}");
        server.delete("/v1/topics/good");
        assert!(name == "there" || server.get(&format!("/v1/topics/{name}")).status != 200);
    }
    let twice = create(&mut client, vec![topic("twice", 1), topic("twice", 1)]);
    assert_eq!(codes(&twice), [ErrorCode::INVALID_REQUEST; 2]);
    let good = placed(vec![on(&[1], 1), on(&[1], 0)]);
    assert_eq!(create(&mut client, vec![good])[0].num_partitions, 2);
}

#[test]
fn what_is_only_tried_changes_nothing() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let try_out = |topics| CreateTopicsRequest {
        topics,
        validate_only: true,
        ..CreateTopicsRequest::default()
    };
    let results = client.call(7, &try_out(vec![topic("new", 2), topic("bad", 0)])).topics;
    assert_eq!(codes(&results), [ErrorCode::NONE, ErrorCode::INVALID_PARTITIONS]);
    assert_eq!(results[0].num_partitions, 2);
    assert_eq!(server.get("/v1/topics/new").status, 404);
    create(&mut client, vec![topic("new", 2)]);
    let more = CreatePartitionsTopic { name: "new".to_owned(), count: 5, assignments: None };
    let request = CreatePartitionsRequest {
        topics: vec![more],
        validate_only: true,
        ..CreatePartitionsRequest::default()
    };
    assert_eq!(client.call(3, &request).results[0].error_code, 0);
    assert_eq!(server.get("/v1/topics/new").json()["partitions"], 2);
    let change = AlterConfigsRequest { validate_only: true, ..alter("new", "retention.ms", "5") };
    assert_eq!(client.call(2, &change).responses[0].error_code, 0);
    assert_eq!(server.get("/v1/topics/new").json()["retention"], "7d");
}

#[test]
fn topics_are_removed_by_name_and_by_id() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    for version in DeleteTopicsRequest::VERSIONS {
        let made = create(&mut client, vec![topic("gone", 1)]).remove(0);
        let by_name =
            |name: &str| DeleteTopicState { name: Some(name.to_owned()), topic_id: [0; 16] };
        let by_id = |topic_id| DeleteTopicState { name: None, topic_id };
        let states = match version {
            6 => vec![by_id(made.topic_id), by_name("nowhere"), by_id([7; 16])],
            _ => Vec::new(),
        };
        let request = DeleteTopicsRequest {
            topics: states,
            topic_names: vec!["gone".to_owned(), "nowhere".to_owned()],
            ..DeleteTopicsRequest::default()
        };
        let results = client.call(version, &request).responses;
        let codes: Vec<_> = results.iter().map(|one| ErrorCode(one.error_code)).collect();
        let missing = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        match version {
            6 => assert_eq!(codes, [ErrorCode::NONE, missing, ErrorCode::UNKNOWN_TOPIC_ID]),
            _ => assert_eq!(codes, [ErrorCode::NONE, missing]),
        }
        assert_eq!(results[0].name.as_deref(), Some("gone"));
        assert_eq!(server.get("/v1/topics/gone").status, 404);
    }
    server.put("/v1/topics/orders/groups/billing", "{}");
    let dead = vec!["orders.billing.dead".to_owned(), "orders.billing.retry".to_owned()];
    let request = DeleteTopicsRequest { topic_names: dead, ..DeleteTopicsRequest::default() };
    let results = client.call(5, &request).responses;
    assert_eq!(results[0].error_code, ErrorCode::POLICY_VIOLATION.code());
    assert_eq!(results[1].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code());
}

#[test]
fn a_topic_gains_partitions_and_never_loses_any() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    create(&mut client, vec![topic("orders", 2)]);
    let mut widen = |name: &str, count, brokers: Option<Vec<Vec<i32>>>| {
        let assignments = brokers.map(|all| {
            all.into_iter().map(|broker_ids| CreatePartitionsAssignment { broker_ids }).collect()
        });
        let asked = CreatePartitionsTopic { name: name.to_owned(), count, assignments };
        let request = CreatePartitionsRequest { topics: vec![asked], ..Default::default() };
        let mut codes: Vec<ErrorCode> = Vec::new();
        for version in CreatePartitionsRequest::VERSIONS {
            let result = client.call(version, &request).results.remove(0);
            codes.push(ErrorCode(result.error_code));
        }
        codes[0]
    };
    for count in [-1, 0, 1, 2, 1025] {
        assert_eq!(widen("orders", count, None), ErrorCode::INVALID_PARTITIONS, "{count}");
    }
    assert_eq!(widen("nowhere", 3, None), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let wrong = [vec![vec![2]], vec![vec![1], vec![1]], vec![vec![]]];
    for brokers in wrong {
        let code = widen("orders", 3, Some(brokers));
        assert_eq!(code, ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    }
    assert_eq!(widen("orders", 3, Some(vec![vec![1]])), ErrorCode::NONE);
    assert_eq!(widen("orders", 5, None), ErrorCode::NONE);
    assert_eq!(server.get("/v1/topics/orders").json()["partitions"], 5);
}

fn alter(name: &str, key: &str, value: &str) -> AlterConfigsRequest {
    let config = AlterableConfig { name: key.to_owned(), value: Some(value.to_owned()) };
    let resource = AlterConfigsResource {
        resource_type: TOPIC,
        resource_name: name.to_owned(),
        configs: vec![config],
    };
    AlterConfigsRequest { resources: vec![resource], ..AlterConfigsRequest::default() }
}

fn step(
    client: &mut Client,
    kind: i8,
    name: &str,
    steps: &[(i8, &str, Option<&str>)],
) -> ErrorCode {
    let config =
        |(operation, key, value): &(i8, &str, Option<&str>)| incremental::AlterableConfig {
            name: (*key).to_owned(),
            config_operation: *operation,
            value: value.map(str::to_owned),
        };
    let resource = incremental::AlterConfigsResource {
        resource_type: kind,
        resource_name: name.to_owned(),
        configs: steps.iter().map(config).collect(),
    };
    let request = incremental::IncrementalAlterConfigsRequest {
        resources: vec![resource],
        ..Default::default()
    };
    ErrorCode(client.call(1, &request).responses[0].error_code)
}

#[test]
fn settings_are_shown_with_who_said_so_and_outlive_a_restart() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let asked = [
        ("retention.ms", Some("3600000")),
        ("message.timestamp.type", Some("LogAppendTime")),
        ("max.message.bytes", Some("100000")),
        ("compression.type", Some("lz4")),
        ("punctual.max_delay", Some("1h")),
    ];
    create(&mut client, vec![with(topic("orders", 1), &asked)]);
    drop(client);
    let server = server.restarted(&[]);
    let mut client = Client::connect(&server);
    let settings = described(&mut client, TOPIC, "orders").unwrap();
    for (name, set) in asked {
        assert_eq!(value(&settings, name), (set.unwrap().to_owned(), 1), "{name}");
    }
    assert_eq!(value(&settings, "cleanup.policy"), ("delete".to_owned(), 5));
    assert_eq!(value(&settings, "retention.bytes"), ("-1".to_owned(), 5));
    let retention = &settings["retention.ms"];
    assert_eq!(retention.config_type, 5);
    let synonyms: Vec<_> = retention.synonyms.iter().map(|one| (&*one.name, one.source)).collect();
    assert_eq!(synonyms, [("retention.ms", 1), ("log.retention.ms", 5)]);
    let shown = server.get("/v1/topics/orders").json();
    assert_eq!((&shown["retention"], &shown["max_delay"]), (&json!("1h"), &json!("1h")));
    server.patch("/v1/topics/orders", r#"{"retention":"2h"}"#);
    let settings = described(&mut client, TOPIC, "orders").unwrap();
    assert_eq!(value(&settings, "retention.ms").0, "7200000");
    assert_eq!(value(&settings, "message.timestamp.type").0, "LogAppendTime", "it stays");
    let unknown = described(&mut client, TOPIC, "nowhere").unwrap_err();
    assert_eq!(unknown, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn single_settings_are_changed_and_the_rest_stays() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    create(&mut client, vec![with(topic("orders", 1), &[("flush.ms", Some("1"))])]);
    let set = [(0, "retention.ms", Some("1000")), (0, "compression.type", Some("gzip"))];
    assert_eq!(step(&mut client, TOPIC, "orders", &set), ErrorCode::NONE);
    let settings = described(&mut client, TOPIC, "orders").unwrap();
    assert_eq!(value(&settings, "retention.ms"), ("1000".to_owned(), 1));
    assert_eq!(value(&settings, "compression.type"), ("gzip".to_owned(), 1));
    assert_eq!(value(&settings, "flush.ms"), ("1".to_owned(), 1));
    let reset = [(1, "retention.ms", None), (2, "cleanup.policy", Some("delete"))];
    assert_eq!(step(&mut client, TOPIC, "orders", &reset), ErrorCode::NONE);
    let settings = described(&mut client, TOPIC, "orders").unwrap();
    assert_eq!(value(&settings, "retention.ms"), ("604800000".to_owned(), 5));
    for (steps, code) in [
        (vec![(0, "retention.ms", Some("5")), (0, "x", Some("1"))], ErrorCode::INVALID_CONFIG),
        (vec![(0, "retention.ms", None)], ErrorCode::INVALID_CONFIG),
        (vec![(2, "cleanup.policy", Some("compact"))], ErrorCode::INVALID_CONFIG),
        (vec![(3, "cleanup.policy", Some("delete"))], ErrorCode::INVALID_CONFIG),
        (vec![(2, "retention.ms", Some("5"))], ErrorCode::INVALID_REQUEST),
        (vec![(9, "retention.ms", Some("5"))], ErrorCode::INVALID_REQUEST),
        (vec![(0, "flush.ms", Some("5")), (1, "flush.ms", None)], ErrorCode::INVALID_REQUEST),
    ] {
        assert_eq!(step(&mut client, TOPIC, "orders", &steps), code, "{steps:?}");
    }
    assert_eq!(described(&mut client, TOPIC, "orders").unwrap(), settings, "nothing has changed");
    let unknown = step(&mut client, TOPIC, "nowhere", &set);
    assert_eq!(unknown, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    // The older call says everything at once.
    let all = alter("orders", "max.message.bytes", "5000");
    assert_eq!(client.call(2, &all).responses[0].error_code, 0);
    let settings = described(&mut client, TOPIC, "orders").unwrap();
    assert_eq!(value(&settings, "max.message.bytes"), ("5000".to_owned(), 1));
    assert_eq!(value(&settings, "flush.ms").1, 5);
    assert_eq!(value(&settings, "compression.type"), ("producer".to_owned(), 5));
}

#[test]
fn g49_the_broker_is_described_and_not_changed() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let settings = described(&mut client, BROKER, "1").unwrap();
    assert_eq!(value(&settings, "broker.id").0, "1");
    assert_eq!(value(&settings, "auto.create.topics.enable").0, "true");
    assert_eq!(value(&settings, "num.partitions").0, "4");
    assert!(settings.values().all(|one| one.read_only && !one.is_sensitive));
    assert_eq!(described(&mut client, BROKER, "2").unwrap_err(), ErrorCode::INVALID_REQUEST);
    assert_eq!(described(&mut client, 32, "g").unwrap_err(), ErrorCode::INVALID_REQUEST);
    let set = [(0, "auto.create.topics.enable", Some("false"))];
    assert_eq!(step(&mut client, BROKER, "1", &set), ErrorCode::POLICY_VIOLATION);
}

#[test]
fn every_change_is_on_record_before_it_is_answered() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    create(&mut client, vec![with(topic("orders", 2), &[("retention.ms", Some("1000"))])]);
    step(&mut client, TOPIC, "orders", &[(0, "retention.ms", Some("2000"))]);
    let more = CreatePartitionsTopic { name: "orders".to_owned(), count: 3, assignments: None };
    let more = CreatePartitionsRequest { topics: vec![more], ..Default::default() };
    client.call(3, &more);
    let gone = DeleteTopicsRequest { topic_names: vec!["orders".to_owned()], ..Default::default() };
    client.call(5, &gone);
    let record = server.get("/v1/audit?topic=orders").json();
    let entries: Vec<Value> = record["entries"].as_array().unwrap().clone();
    let what: Vec<&str> = entries.iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["topic_delete", "topic_patch", "topic_patch", "topic_put"]);
    assert!(entries.iter().all(|one| one["who"] == "local@127.0.0.1"));
    let text = entries[3].to_string();
    assert!(text.contains("partitions=2 retention.ms=1000"), "{text}");
}

#[test]
fn records_before_an_offset_are_taken_away() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":1}"#);
    for number in 0..5 {
        server.send("orders", &json!({"body": number}));
    }
    let read = |from: u64| {
        let path = format!("/v1/topics/orders/partitions/0/messages?offset={from}");
        server.get(&path).json()["messages"].as_array().unwrap().clone()
    };
    let deadline = std::time::Instant::now() + support::PATIENCE;
    while read(0).len() < 5 {
        assert!(std::time::Instant::now() < deadline, "the messages are not delivered");
    }
    let mut client = Client::connect(&server);
    let mut trim = |name: &str, partition_index, offset| {
        let partition = DeleteRecordsPartition { partition_index, offset };
        let topic = DeleteRecordsTopic { name: name.to_owned(), partitions: vec![partition] };
        let request = DeleteRecordsRequest { topics: vec![topic], ..Default::default() };
        let result = client.call(2, &request).topics.remove(0).partitions.remove(0);
        (ErrorCode(result.error_code), result.low_watermark)
    };
    assert_eq!(trim("orders", 0, 2), (ErrorCode::NONE, 2));
    assert_eq!(read(0)[0]["offset"], 2);
    assert_eq!(trim("orders", 0, 1), (ErrorCode::NONE, 2), "it never goes back");
    assert_eq!(trim("orders", 0, 99), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    assert_eq!(trim("orders", 0, -5), (ErrorCode::OFFSET_OUT_OF_RANGE, -1));
    let unknown = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, -1);
    assert_eq!(trim("orders", 1, 0), unknown);
    assert_eq!(trim("orders", -1, 0), unknown);
    assert_eq!(trim("nowhere", 0, 0), unknown);
    assert_eq!(trim("orders", 0, -1), (ErrorCode::NONE, 5), "everything");
    assert!(read(0).is_empty());
}

#[test]
fn the_room_that_logs_take_is_told() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":2}"#);
    server.send("orders", &json!({"body": "x".repeat(10_000), "partition": 1}));
    let mut client = Client::connect(&server);
    let deadline = std::time::Instant::now() + support::PATIENCE;
    loop {
        let result = client.call(4, &DescribeLogDirsRequest { topics: None }).results.remove(0);
        assert_eq!(result.error_code, 0);
        assert!(result.total_bytes >= result.usable_bytes && result.usable_bytes >= 0);
        assert_eq!(result.topics[0].name, "orders");
        let sizes: Vec<i64> =
            result.topics[0].partitions.iter().map(|one| one.partition_size).collect();
        assert_eq!(sizes.len(), 2);
        if sizes[1] >= 10_000 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{sizes:?}");
    }
    let one = DescribableLogDirTopic { topic: "orders".to_owned(), partitions: vec![1, 7, -1] };
    let request = DescribeLogDirsRequest { topics: Some(vec![one]) };
    for version in DescribeLogDirsRequest::VERSIONS {
        let result = client.call(version, &request).results.remove(0);
        let shown: Vec<_> = result.topics[0].partitions.iter().map(|p| p.partition_index).collect();
        assert_eq!(shown, [1], "version {version}");
    }
}
