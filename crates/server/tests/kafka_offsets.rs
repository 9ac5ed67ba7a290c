//! Are committed offsets kept, told again, and the same that HTTP shows?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod kafka_members;
mod support;

use kafka::Client;
use kafka_members::Member;
use punctual_kafka_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use punctual_kafka_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use punctual_kafka_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use punctual_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use punctual_kafka_wire::{ErrorCode, Request as _};
use serde_json::json;
use support::Server;

const NONE: i16 = 0;
const GROUP: &str = "/v1/topics/orders/groups/billing";

/// What is told of a partition: offset, leader epoch, text, code.
type Told = (i64, i32, String, i16);

fn nowhere() -> Told {
    (-1, -1, String::new(), NONE)
}

/// A topic with two messages in each of its two partitions.
fn orders(server: &Server) {
    let made = server.put("/v1/topics/orders", r#"{"partitions":2}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    for partition in [0, 0, 1, 1] {
        server.send("orders", &json!({"body": "x", "partition": partition}));
    }
    // All of them are in the log once somebody else has received them.
    server.receive_all("/v1/topics/orders/groups/reader", 4);
}

fn topic_id(client: &mut Client, name: &str) -> [u8; 16] {
    let topic =
        MetadataRequestTopic { name: Some(name.to_owned()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
    client.call(12, &request).topics[0].topic_id
}

/// Commits (partition, offset, leader epoch, text) by somebody who is in no group.
fn commit(
    client: &mut Client,
    version: i16,
    topic: &str,
    commits: &[(i32, i64, i32, &str)],
) -> Vec<i16> {
    let request = loner("billing", topic, topic_id(client, topic), commits);
    let answer = client.call(version, &request);
    answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect()
}

fn loner(
    group: &str,
    topic: &str,
    topic_id: [u8; 16],
    commits: &[(i32, i64, i32, &str)],
) -> OffsetCommitRequest {
    let partition =
        |(index, offset, epoch, text): &(i32, i64, i32, &str)| OffsetCommitRequestPartition {
            partition_index: *index,
            committed_offset: *offset,
            committed_leader_epoch: *epoch,
            committed_metadata: Some((*text).to_owned()),
        };
    OffsetCommitRequest {
        group_id: group.to_owned(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            topic_id,
            partitions: commits.iter().map(partition).collect(),
        }],
        ..OffsetCommitRequest::default()
    }
}

fn fetch(client: &mut Client, version: i16, group: &str, topic: &str, count: i32) -> Vec<Told> {
    let indexes: Vec<i32> = (0..count).collect();
    let told = |offset, epoch, text: &Option<String>, code| {
        (offset, epoch, text.clone().unwrap_or_default(), code)
    };
    let topic_id = topic_id(client, topic);
    if version < 8 {
        let topics =
            vec![OffsetFetchRequestTopic { name: topic.to_owned(), partition_indexes: indexes }];
        let request = OffsetFetchRequest {
            group_id: group.to_owned(),
            topics: Some(topics),
            ..OffsetFetchRequest::default()
        };
        let answer = client.call(version, &request);
        assert_eq!(answer.error_code, NONE);
        let partitions = answer.topics[0].partitions.iter();
        return partitions
            .map(|one| {
                told(
                    one.committed_offset,
                    one.committed_leader_epoch,
                    &one.metadata,
                    one.error_code,
                )
            })
            .collect();
    }
    let topics = vec![OffsetFetchRequestTopics {
        name: topic.to_owned(),
        topic_id,
        partition_indexes: indexes,
    }];
    let asked = OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        topics: Some(topics),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest { groups: vec![asked], ..OffsetFetchRequest::default() };
    let answer = client.call(version, &request);
    assert_eq!((answer.groups.len(), answer.groups[0].error_code), (1, NONE));
    let partitions = answer.groups[0].topics[0].partitions.iter();
    partitions
        .map(|one| {
            told(one.committed_offset, one.committed_leader_epoch, &one.metadata, one.error_code)
        })
        .collect()
}

#[test]
fn what_was_committed_is_told_again_in_every_version() {
    let server = Server::start();
    orders(&server);
    let mut client = Client::connect(&server);
    for version in OffsetFetchRequest::VERSIONS {
        let unknown = fetch(&mut client, version, "nobody", "orders", 2);
        assert_eq!(unknown, [nowhere(), nowhere()], "v{version}");
    }
    for (version, offset) in OffsetCommitRequest::VERSIONS.zip([1, 2].into_iter().cycle()) {
        let text = format!("by v{version}");
        let commits = [(1, offset, 7, text.as_str())];
        assert_eq!(commit(&mut client, version, "orders", &commits), [NONE], "v{version}");
        for asked in OffsetFetchRequest::VERSIONS {
            let told = fetch(&mut client, asked, "billing", "orders", 3);
            let epoch = if version >= 6 && asked >= 5 { 7 } else { -1 };
            let here = (offset, epoch, text.clone(), NONE);
            assert_eq!(told, [nowhere(), here, nowhere()], "v{version}, asked in v{asked}");
        }
        let shown = server.get(&format!("{GROUP}/offsets")).json();
        assert_eq!(shown, json!({"offsets": {"0": 0, "1": offset}}), "the same over HTTP");
        let partitions = server.get(GROUP).json()["partitions"].clone();
        assert_eq!((&partitions[1]["cursor"], &partitions[1]["end"]), (&json!(offset), &json!(2)));
        assert_eq!(partitions[1]["lag"], json!(2 - offset));
    }
}

#[test]
fn everything_a_group_has_committed_is_told_at_once() {
    let server = Server::start();
    orders(&server);
    server.put("/v1/topics/stock", r#"{"partitions":1}"#);
    let mut client = Client::connect(&server);
    assert_eq!(commit(&mut client, 8, "orders", &[(0, 1, -1, ""), (1, 2, -1, "")]), [NONE; 2]);
    assert_eq!(commit(&mut client, 8, "stock", &[(0, 0, -1, "at its start")]), [NONE]);
    let id = topic_id(&mut client, "stock");
    for version in 2..=10 {
        let mut request = OffsetFetchRequest { topics: None, ..OffsetFetchRequest::default() };
        request.group_id = "billing".to_owned();
        request.groups = vec![OffsetFetchRequestGroup {
            group_id: "billing".to_owned(),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }];
        let answer = client.call(version, &request);
        let mut all: Vec<(String, Vec<i64>)> = if version < 8 {
            let offsets =
                |topic: &punctual_kafka_wire::messages::offset_fetch::OffsetFetchResponseTopic| {
                    topic.partitions.iter().map(|one| one.committed_offset).collect()
                };
            answer.topics.iter().map(|topic| (topic.name.clone(), offsets(topic))).collect()
        } else {
            let topics = &answer.groups[0].topics;
            topics
                .iter()
                .map(|topic| {
                    let stock = topic.name == "stock" || topic.topic_id == id;
                    let name = if stock { "stock" } else { "orders" };
                    let offsets = topic.partitions.iter().map(|one| one.committed_offset);
                    (name.to_owned(), offsets.collect())
                })
                .collect()
        };
        all.sort();
        let expected = [("orders".to_owned(), vec![1, 2]), ("stock".to_owned(), vec![0])];
        assert_eq!(all, expected, "v{version}");
    }
}

#[test]
fn commits_survive_a_restart_exactly() {
    let server = Server::start();
    orders(&server);
    let mut client = Client::connect(&server);
    let commits = [(0, 1, 3, "one of two"), (1, 4711, -1, "far beyond the end")];
    assert_eq!(commit(&mut client, 8, "orders", &commits), [NONE, NONE]);
    let told = [(1, 3, "one of two".to_owned(), NONE), {
        (4711, -1, "far beyond the end".to_owned(), NONE)
    }];
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), told);
    let shown = json!({"offsets": {"0": 1, "1": 2}});
    assert_eq!(server.get(&format!("{GROUP}/offsets")).json(), shown, "the near end of the log");
    drop(client);
    let server = server.restarted(&[]);
    let mut client = Client::connect(&server);
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), told);
    assert_eq!(server.get(&format!("{GROUP}/offsets")).json(), shown);
    let rest = server.receive_all(GROUP, 1);
    assert_eq!(rest[0]["offset"], 1, "whoever receives goes on there");
}

#[test]
fn what_is_done_over_http_moves_where_consumers_go_on() {
    let server = Server::start();
    orders(&server);
    let mut client = Client::connect(&server);
    commit(&mut client, 8, "orders", &[(0, 2, -1, "done"), (1, 2, -1, "done")]);
    let reset = server.post(&format!("{GROUP}/reset"), r#"{"to":"earliest"}"#);
    assert_eq!(reset.status, 200, "{}", reset.body);
    let start = (0, -1, String::new(), NONE);
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), [start.clone(), start.clone()]);
    let put = server.put(&format!("{GROUP}/offsets"), r#"{"offsets":{"1":1}}"#);
    assert_eq!(put.status, 200, "{}", put.body);
    let one = (1, -1, String::new(), NONE);
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), [start, one]);

    let taken = server.receive_all(GROUP, 3);
    for message in taken {
        let ask = json!({"receipts": [message["receipt"]]});
        server.settle(GROUP, "ack", &ask);
    }
    let end = (2, -1, String::new(), NONE);
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), [end.clone(), end]);
}

#[test]
fn a_commit_that_makes_no_sense_is_refused() {
    let server = Server::start();
    orders(&server);
    let mut client = Client::connect(&server);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code();
    let too_large = ErrorCode::OFFSET_METADATA_TOO_LARGE.code();
    let (most, more) = ("x".repeat(4096), "x".repeat(4097));
    let commits =
        [(0, 1, -1, ""), (2, 1, -1, ""), (-1, 1, -1, ""), (1, 2, -1, &*more), (1, 1, -1, &most)];
    let codes = commit(&mut client, 8, "orders", &commits);
    assert_eq!(codes, [NONE, unknown, unknown, too_large, NONE], "each for itself");
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2)[1].2, most);
    let request = loner("billing", "nothing", [0; 16], &[(0, 1, -1, "")]);
    assert_eq!(client.call(8, &request).topics[0].partitions[0].error_code, unknown);
    let request = loner("billing", "", [9; 16], &[(0, 1, -1, "")]);
    let code = client.call(10, &request).topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_ID.code());
    assert_eq!(server.get("/v1/topics/nothing").status, 404, "a commit makes no topic");
    for offset in [-1, -2] {
        assert_eq!(commit(&mut client, 8, "orders", &[(0, 1, -1, "")]), [NONE]);
        assert_eq!(commit(&mut client, 8, "orders", &[(0, offset, -1, "")]), [NONE]);
        let told = fetch(&mut client, 8, "billing", "orders", 1);
        assert_eq!(told, [nowhere()], "{offset} is no place");
    }
    let request = loner("a b", "orders", [0; 16], &[(0, 1, -1, "")]);
    let code = client.call(8, &request).topics[0].partitions[0].error_code;
    assert_eq!(code, ErrorCode::INVALID_GROUP_ID.code());
}

#[test]
fn only_members_of_the_generation_commit_while_there_are_members() {
    let server = Server::start();
    orders(&server);
    let mut member = Member::new(&server, "billing", 5);
    member.enter();
    member.join();
    let from = |member: &mut Member, id: &str, generation: i32| {
        let request = OffsetCommitRequest {
            member_id: id.to_owned(),
            generation_id_or_member_epoch: generation,
            ..loner("billing", "orders", [0; 16], &[(0, 1, -1, "")])
        };
        member.client.call(8, &request).topics[0].partitions[0].error_code
    };
    let id = member.id.clone();
    let rebalancing = ErrorCode::REBALANCE_IN_PROGRESS.code();
    assert_eq!(from(&mut member, &id, 1), rebalancing, "before it has its share");
    member.sync(&[(id.clone(), "all")]);
    assert_eq!(from(&mut member, &id, 2), ErrorCode::ILLEGAL_GENERATION.code());
    assert_eq!(from(&mut member, "other", 1), ErrorCode::UNKNOWN_MEMBER_ID.code());
    assert_eq!(from(&mut member, "", -1), ErrorCode::UNKNOWN_MEMBER_ID.code());
    assert_eq!(from(&mut member, &id, 1), NONE);
    member.leave();
    assert_eq!(from(&mut member, &id, 1), ErrorCode::ILLEGAL_GENERATION.code());
    assert_eq!(from(&mut member, "", -1), NONE, "a loner may again");
}

#[test]
fn a_group_spans_topics_and_goes_on_in_each_after_a_restart() {
    let server = Server::start();
    orders(&server);
    server.put("/v1/topics/stock", r#"{"partitions":1}"#);
    server.send("stock", &json!({"body": "x"}));
    server.receive_all("/v1/topics/stock/groups/reader", 1);
    let mut member = Member::new(&server, "billing", 7);
    member.enter();
    member.join();
    member.sync(&[(member.id.clone(), "all")]);
    let mut request = loner("billing", "orders", [0; 16], &[(0, 1, 0, ""), (1, 2, 0, "")]);
    request.topics.extend(loner("", "stock", [0; 16], &[(0, 1, 0, "all of it")]).topics);
    request.member_id = member.id.clone();
    request.generation_id_or_member_epoch = member.generation;
    let answer = member.client.call(8, &request);
    let codes = answer.topics.iter().flat_map(|topic| &topic.partitions);
    assert!(codes.map(|one| one.error_code).all(|code| code == NONE));
    drop(member);
    let server = server.restarted(&[]);
    let mut back = Member::new(&server, "billing", 7);
    back.enter();
    back.join();
    let here = |offset, text: &str| (offset, 0, text.to_owned(), NONE);
    let orders = fetch(&mut back.client, 8, "billing", "orders", 2);
    assert_eq!(orders, [here(1, ""), here(2, "")]);
    assert_eq!(fetch(&mut back.client, 8, "billing", "stock", 1), [here(1, "all of it")]);
}

fn delete(client: &mut Client, group: &str, topic: &str, partitions: &[i32]) -> (i16, Vec<i16>) {
    let partition = |index: &i32| OffsetDeleteRequestPartition { partition_index: *index };
    let request = OffsetDeleteRequest {
        group_id: group.to_owned(),
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.to_owned(),
            partitions: partitions.iter().map(partition).collect(),
        }],
    };
    let answer = client.call(0, &request);
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    (answer.error_code, partitions.map(|one| one.error_code).collect())
}

#[test]
fn a_commit_is_forgotten_unless_somebody_reads_the_topic() {
    let server = Server::start();
    orders(&server);
    let mut client = Client::connect(&server);
    let not_found = ErrorCode::GROUP_ID_NOT_FOUND.code();
    assert_eq!(delete(&mut client, "billing", "orders", &[0]), (not_found, vec![]));
    commit(&mut client, 8, "orders", &[(0, 1, -1, "x"), (1, 2, -1, "y")]);
    let mut member = Member::new(&server, "billing", 5);
    member.enter();
    member.join();
    let subscribed = ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC.code();
    assert_eq!(delete(&mut client, "billing", "orders", &[0]), (NONE, vec![subscribed]));
    member.leave();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code();
    assert_eq!(delete(&mut client, "billing", "orders", &[0, 7]), (NONE, vec![NONE, unknown]));
    let rest = (2, -1, "y".to_owned(), NONE);
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), [nowhere(), rest]);
    assert_eq!(delete(&mut client, "billing", "orders", &[1]), (NONE, vec![NONE]));
    assert_eq!(fetch(&mut client, 8, "billing", "orders", 2), [nowhere(), nowhere()]);
    assert_eq!(server.get(GROUP).status, 404, "with its last commit the group is gone");
}
