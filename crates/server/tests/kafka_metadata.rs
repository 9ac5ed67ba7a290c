//! What are Kafka clients told about the broker, its topics and its versions?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use kafka::Client;
use punctual_kafka_wire::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use punctual_kafka_wire::messages::describe_cluster::DescribeClusterRequest;
use punctual_kafka_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, TopicRequest,
};
use punctual_kafka_wire::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use punctual_kafka_wire::{Message as _, Reader, Request as _};
use serde_json::json;
use support::Server;

const UNKNOWN_TOPIC: i16 = 3;
const INVALID_TOPIC: i16 = 17;
const UNSUPPORTED_VERSION: i16 = 35;
const UNKNOWN_TOPIC_ID: i16 = 100;

fn named(names: &[&str], may_make: bool) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic {
        name: Some((*name).to_owned()),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: Some(names.iter().map(topic).collect()),
        allow_auto_topic_creation: may_make,
        ..MetadataRequest::default()
    }
}

fn everything() -> MetadataRequest {
    MetadataRequest { topics: None, ..MetadataRequest::default() }
}

fn names(answer: &MetadataResponse) -> Vec<&str> {
    answer.topics.iter().filter_map(|topic| topic.name.as_deref()).collect()
}

fn one(answer: MetadataResponse) -> MetadataResponseTopic {
    let mut topics = answer.topics;
    assert_eq!(topics.len(), 1);
    topics.remove(0)
}

#[test]
fn what_is_offered_is_told_in_every_version() {
    let server = Server::start();
    for version in ApiVersionsRequest::VERSIONS {
        let answer = Client::connect(&server).call(version, &ApiVersionsRequest::default());
        assert_eq!(answer.error_code, 0);
        let keys: Vec<i16> = answer.api_keys.iter().map(|api| api.api_key).collect();
        assert!(keys.is_sorted() && keys.contains(&3) && keys.contains(&18), "{keys:?}");
        assert!(answer.api_keys.iter().all(|api| api.min_version <= api.max_version));
    }
}

#[test]
fn a_version_from_the_future_is_told_what_there_is() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    // Key 18, version 999, number 7, no client id, and a body that nobody here can read.
    client.sized(&[0, 18, 3, 231, 0, 0, 0, 7, 255, 255, 0, 42, 42]);
    let mut answer = Reader::new(client.frame().unwrap());
    assert_eq!(answer.i32(), Ok(7));
    let answer = ApiVersionsResponse::decode(&mut answer, 0).unwrap();
    assert_eq!(answer.error_code, UNSUPPORTED_VERSION);
    let own = answer.api_keys.iter().find(|api| api.api_key == 18).unwrap();
    assert_eq!((own.min_version, own.max_version), (0, 4));
    let again = client.call(own.max_version, &ApiVersionsRequest::default());
    assert_eq!(again.error_code, 0, "the connection goes on");
}

#[test]
fn topics_are_listed_and_found_in_every_version() {
    let server = Server::start();
    server.put("/v1/topics/orders", r#"{"partitions":3}"#);
    server.put("/v1/topics/other", "{}");
    let mut client = Client::connect(&server);
    for version in MetadataRequest::VERSIONS {
        let all = if version == 0 { named(&[], false) } else { everything() };
        let answer = client.call(version, &all);
        assert_eq!(names(&answer), ["orders", "other"], "version {version}");
        let broker = &answer.brokers[0];
        let address = server.kafka.unwrap();
        assert_eq!((broker.node_id, broker.host.as_str()), (1, "127.0.0.1"));
        assert_eq!(broker.port, i32::from(address.port()));
        let answer = client.call(version, &named(&["orders"], false));
        if version >= 2 {
            assert_eq!(answer.cluster_id.as_ref().unwrap().len(), 22);
            assert_eq!(answer.controller_id, 1);
        }
        let orders = one(answer);
        assert_eq!((orders.error_code, orders.partitions.len()), (0, 3));
        for (index, partition) in (0..).zip(&orders.partitions) {
            assert_eq!((partition.partition_index, partition.leader_id), (index, 1));
            assert_eq!((&*partition.replica_nodes, &*partition.isr_nodes), (&[1][..], &[1][..]));
        }
        if version >= 1 {
            assert!(client.call(version, &named(&[], false)).topics.is_empty());
        }
    }
}

#[test]
fn a_topic_has_an_id_that_leads_back_to_it_and_outlives_a_restart() {
    let server = Server::start();
    server.put("/v1/topics/orders", "{}");
    let ask = |client: &mut Client, id| {
        let topic = MetadataRequestTopic { topic_id: id, name: None };
        one(client.call(12, &MetadataRequest { topics: Some(vec![topic]), ..everything() }))
    };
    let mut client = Client::connect(&server);
    let answer = client.call(12, &named(&["orders"], false));
    let (cluster, id) = (answer.cluster_id.clone(), one(answer).topic_id);
    assert_ne!(id, [0; 16]);
    assert_eq!(ask(&mut client, id).name.as_deref(), Some("orders"));
    let mut other = id;
    other[15] ^= 1;
    assert_eq!(ask(&mut client, other).error_code, UNKNOWN_TOPIC_ID);
    drop(client);
    let server = server.restarted(&[]);
    let mut client = Client::connect(&server);
    let answer = client.call(12, &named(&["orders"], false));
    assert_eq!((answer.cluster_id.clone(), one(answer).topic_id), (cluster, id));
    server.delete("/v1/topics/orders");
    assert_eq!(ask(&mut client, id).error_code, UNKNOWN_TOPIC_ID);
    server.put("/v1/topics/orders", "{}");
    assert_ne!(one(client.call(12, &named(&["orders"], false))).topic_id, id, "another topic");
}

#[test]
fn a_topic_is_made_only_where_that_is_wanted() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    assert_eq!(one(client.call(12, &named(&["new"], false))).error_code, UNKNOWN_TOPIC);
    assert_eq!(server.get("/v1/topics/new").status, 404);
    let made = one(client.call(12, &named(&["new"], true)));
    assert_eq!((made.error_code, made.partitions.len()), (0, 4));
    assert_eq!(server.get("/v1/topics/new").status, 200);
    for name in ["", ".", "a b", "ä", &"x".repeat(250)] {
        assert_eq!(one(client.call(12, &named(&[name], true))).error_code, INVALID_TOPIC);
    }
    let server = server.restarted(&[("topics.auto_create", "false")]);
    let mut client = Client::connect(&server);
    assert_eq!(one(client.call(12, &named(&["newer"], true))).error_code, UNKNOWN_TOPIC);
    assert_eq!(server.get("/v1/topics/newer").status, 404);
}

#[test]
fn topics_of_groups_are_hidden_until_there_is_something_to_read() {
    let server = Server::start();
    server.put("/v1/topics/orders/groups/billing", "{}");
    let mut client = Client::connect(&server);
    assert_eq!(names(&client.call(12, &everything())), ["orders"]);
    let retry = client.call(12, &named(&["orders.billing.retry"], true));
    assert!([UNKNOWN_TOPIC, INVALID_TOPIC].contains(&one(retry).error_code));
    let dead = "orders.billing.dead";
    assert_eq!(one(client.call(12, &named(&[dead], false))).error_code, 0, "readable by name");
    server.send("orders", &json!({"body": "x"}));
    let group = "/v1/topics/orders/groups/billing";
    let message = &server.receive(group, &json!({"wait": "20s"}))[0];
    let ask = json!({"receipts": [message["receipt"]], "reject": true});
    server.settle(group, "nack", &ask);
    let deadline = std::time::Instant::now() + support::PATIENCE;
    while !names(&client.call(12, &everything())).contains(&dead) {
        assert!(std::time::Instant::now() < deadline, "the dead letter is never listed");
    }
}

#[test]
fn an_advertised_address_is_what_clients_are_told() {
    let server = Server::with(&[("kafka.advertised", "broker.example:19092")]);
    let mut client = Client::connect(&server);
    let broker = client.call(12, &named(&[], false)).brokers.remove(0);
    assert_eq!((broker.host.as_str(), broker.port), ("broker.example", 19092));
    for version in DescribeClusterRequest::VERSIONS {
        let answer = client.call(version, &DescribeClusterRequest::default());
        assert_eq!((answer.error_code, answer.controller_id), (0, 1));
        assert_eq!(answer.brokers[0].host, "broker.example");
    }
}

#[test]
fn partitions_are_described_page_by_page() {
    let server = Server::start();
    for (name, partitions) in [("a", 3), ("b", 4), ("c", 1)] {
        server.put(&format!("/v1/topics/{name}"), json!({"partitions": partitions}).to_string());
    }
    let mut client = Client::connect(&server);
    let mut request =
        DescribeTopicPartitionsRequest { response_partition_limit: 2, ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = client.call(0, &request);
        for topic in page.topics {
            let name = topic.name.unwrap();
            seen.extend(
                topic.partitions.iter().map(|one| format!("{name}{}", one.partition_index)),
            );
        }
        match page.next_cursor {
            Some(cursor) => request.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!(seen, ["a0", "a1", "a2", "b0", "b1", "b2", "b3", "c0"]);
    let topics = ["nowhere", "c"].map(|name| TopicRequest { name: name.to_owned() });
    let request = DescribeTopicPartitionsRequest { topics: topics.to_vec(), ..Default::default() };
    let answer = client.call(0, &request);
    let codes: Vec<_> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, UNKNOWN_TOPIC]);
}
