//! May every Kafka client do exactly what its app was granted, with everything that is served? (G43)
//!
//! The list of APIs comes from the server itself, so a new one is asked about too: whoever adds it
//! says here what it takes. Every app asks each of them about what is its own and what is foreign.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod kafka;
mod support;

use std::collections::HashMap;

use access_support::{Visitor, admin_token, visitors, world};
use bytes::Bytes;
use kafka::Client;
use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::alter_configs::{AlterConfigsRequest, AlterConfigsResource};
use punctual_kafka_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsTopic,
};
use punctual_kafka_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use punctual_kafka_wire::messages::delete_groups::DeleteGroupsRequest;
use punctual_kafka_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use punctual_kafka_wire::messages::delete_topics::DeleteTopicsRequest;
use punctual_kafka_wire::messages::describe_cluster::DescribeClusterRequest;
use punctual_kafka_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use punctual_kafka_wire::messages::describe_groups::DescribeGroupsRequest;
use punctual_kafka_wire::messages::describe_log_dirs::DescribeLogDirsRequest;
use punctual_kafka_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, TopicRequest,
};
use punctual_kafka_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use punctual_kafka_wire::messages::find_coordinator::FindCoordinatorRequest;
use punctual_kafka_wire::messages::heartbeat::HeartbeatRequest;
use punctual_kafka_wire::messages::incremental_alter_configs as incremental;
use punctual_kafka_wire::messages::init_producer_id::InitProducerIdRequest;
use punctual_kafka_wire::messages::join_group::JoinGroupRequest;
use punctual_kafka_wire::messages::leave_group::LeaveGroupRequest;
use punctual_kafka_wire::messages::list_groups::ListGroupsRequest;
use punctual_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use punctual_kafka_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use punctual_kafka_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use punctual_kafka_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use punctual_kafka_wire::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic};
use punctual_kafka_wire::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use punctual_kafka_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use punctual_kafka_wire::messages::sasl_authenticate::SaslAuthenticateRequest;
use punctual_kafka_wire::messages::sasl_handshake::SaslHandshakeRequest;
use punctual_kafka_wire::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest,
};
use punctual_kafka_wire::messages::share_fetch as share;
use punctual_kafka_wire::messages::share_group_describe::ShareGroupDescribeRequest;
use punctual_kafka_wire::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;
use punctual_kafka_wire::messages::sync_group::SyncGroupRequest;
use punctual_server::rules::kafka_rules;
use serde_json::Value;
use support::Server;

/// What a right must cover.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Topic,
    /// A group, whatever it consumes.
    Group,
    /// A group of the topic.
    Both,
    Anything,
    Whole,
}

/// The verbs of which one is enough, and on what.
fn takes(api: &str) -> Option<(&'static [&'static str], On)> {
    Some(match api {
        "ApiVersions" | "SaslHandshake" | "SaslAuthenticate" => return None,
        "Produce" => (&["send"], On::Topic),
        "InitProducerId" => (&["send"], On::Anything),
        "Fetch" | "ListOffsets" | "OffsetForLeaderEpoch" => (&["read", "consume"], On::Topic),
        "Metadata" | "DescribeTopicPartitions" => {
            (&["see", "send", "read", "consume", "manage"], On::Topic)
        }
        "DescribeCluster" => (&["see"], On::Anything),
        "DescribeConfigs" => (&["see"], On::Topic),
        "CreateTopics"
        | "DeleteTopics"
        | "CreatePartitions"
        | "DeleteRecords"
        | "AlterConfigs"
        | "IncrementalAlterConfigs" => (&["manage"], On::Topic),
        "DescribeLogDirs" => (&["observe"], On::Whole),
        "OffsetCommit" | "OffsetDelete" => (&["consume"], On::Both),
        "OffsetFetch" => (&["consume", "see"], On::Both),
        "FindCoordinator" | "DescribeGroups" | "ListGroups" => (&["consume", "see"], On::Group),
        "JoinGroup" | "SyncGroup" | "Heartbeat" | "LeaveGroup" => (&["consume"], On::Group),
        "DeleteGroups" => (&["manage"], On::Group),
        "ShareGroupHeartbeat" | "ShareFetch" | "ShareAcknowledge" => (&["consume"], On::Both),
        "ShareGroupDescribe" => (&["consume", "see"], On::Group),
        other => panic!("nobody has said what {other} takes"),
    })
}

fn may(visitor: &Visitor, api: &str, topic_own: bool, group_own: bool) -> bool {
    let Some((verbs, on)) = takes(api) else { return true };
    if visitor.name == "admin" {
        return true;
    }
    let own = match on {
        On::Topic => topic_own,
        On::Group => group_own,
        On::Both => topic_own && group_own,
        On::Anything => true,
        On::Whole => false,
    };
    visitor.verb.is_some_and(|verb| verbs.contains(&verb)) && (visitor.everywhere || own)
}

/// What is asked about.
struct Asked<'a> {
    topic: &'a str,
    group: &'a str,
    /// A group that does not exist.
    missing: &'a str,
    topic_id: [u8; 16],
    /// A member that nobody else is.
    member: String,
}

/// Whether the codes of an answer say that it was let in.
fn let_in(codes: impl IntoIterator<Item = i16>) -> bool {
    let refusals = [
        ErrorCode::TOPIC_AUTHORIZATION_FAILED.code(),
        ErrorCode::GROUP_AUTHORIZATION_FAILED.code(),
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED.code(),
    ];
    !codes.into_iter().any(|code| refusals.contains(&code))
}

fn text(name: &str) -> String {
    name.to_owned()
}

/// Asks about a topic; whether it was let in.
fn asks_topic(client: &mut Client, api: &str, asked: &Asked<'_>) -> bool {
    let name = text(asked.topic);
    match api {
        "Produce" => {
            let partition = PartitionProduceData { index: 0, records: Some(Bytes::new()) };
            let topic = TopicProduceData {
                name,
                partition_data: vec![partition],
                ..TopicProduceData::default()
            };
            let request = ProduceRequest { acks: 1, topic_data: vec![topic], ..Default::default() };
            let answer = client.call(9, &request);
            let parts = answer.responses.iter().flat_map(|one| &one.partition_responses);
            let_in(parts.map(|one| one.error_code))
        }
        "Fetch" => {
            let partition = FetchPartition { partition_max_bytes: 1, ..Default::default() };
            let topic =
                FetchTopic { topic: name, partitions: vec![partition], ..FetchTopic::default() };
            let request = FetchRequest { topics: vec![topic], ..FetchRequest::default() };
            let answer = client.call(12, &request);
            let parts = answer.responses.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code).chain([answer.error_code]))
        }
        "ListOffsets" => {
            let partition = ListOffsetsPartition { timestamp: -1, ..Default::default() };
            let topic = ListOffsetsTopic { name, partitions: vec![partition] };
            let request = ListOffsetsRequest { topics: vec![topic], ..Default::default() };
            let answer = client.call(7, &request);
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code))
        }
        "OffsetForLeaderEpoch" => {
            let partitions = vec![OffsetForLeaderPartition::default()];
            let topic = OffsetForLeaderTopic { topic: name, partitions };
            let request = OffsetForLeaderEpochRequest { topics: vec![topic], ..Default::default() };
            let answer = client.call(4, &request);
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code))
        }
        "Metadata" => {
            let topic = MetadataRequestTopic { name: Some(name), ..Default::default() };
            let request = MetadataRequest {
                topics: Some(vec![topic]),
                allow_auto_topic_creation: false,
                ..MetadataRequest::default()
            };
            let_in(client.call(12, &request).topics.iter().map(|one| one.error_code))
        }
        "DescribeTopicPartitions" => {
            let topics = vec![TopicRequest { name }];
            let request = DescribeTopicPartitionsRequest { topics, ..Default::default() };
            let_in(client.call(0, &request).topics.iter().map(|one| one.error_code))
        }
        "DescribeConfigs" => {
            let resource = DescribeConfigsResource {
                resource_type: 2,
                resource_name: name,
                configuration_keys: None,
            };
            let request =
                DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
            let_in(client.call(4, &request).results.iter().map(|one| one.error_code))
        }
        _ => manages_topic(client, api, name),
    }
}

/// Asks for a change of a topic; whether it was let in.
fn manages_topic(client: &mut Client, api: &str, name: String) -> bool {
    match api {
        "CreateTopics" => {
            let topic = CreatableTopic {
                name,
                num_partitions: 1,
                replication_factor: 1,
                ..CreatableTopic::default()
            };
            let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
            let_in(client.call(7, &request).topics.iter().map(|one| one.error_code))
        }
        "DeleteTopics" => {
            let topic_names = vec![name.replace(".t", ".gone")];
            let request = DeleteTopicsRequest { topic_names, ..DeleteTopicsRequest::default() };
            let_in(client.call(5, &request).responses.iter().map(|one| one.error_code))
        }
        "CreatePartitions" => {
            let topic = CreatePartitionsTopic { name, count: 1, assignments: None };
            let request = CreatePartitionsRequest { topics: vec![topic], ..Default::default() };
            let_in(client.call(3, &request).results.iter().map(|one| one.error_code))
        }
        "DeleteRecords" => {
            let partitions = vec![DeleteRecordsPartition::default()];
            let topics = vec![DeleteRecordsTopic { name, partitions }];
            let request = DeleteRecordsRequest { topics, ..DeleteRecordsRequest::default() };
            let answer = client.call(2, &request);
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code))
        }
        "AlterConfigs" => {
            let resource =
                AlterConfigsResource { resource_type: 2, resource_name: name, configs: vec![] };
            let request = AlterConfigsRequest { resources: vec![resource], validate_only: true };
            let_in(client.call(2, &request).responses.iter().map(|one| one.error_code))
        }
        "IncrementalAlterConfigs" => {
            let resource = incremental::AlterConfigsResource {
                resource_type: 2,
                resource_name: name,
                configs: vec![],
            };
            let request = incremental::IncrementalAlterConfigsRequest {
                resources: vec![resource],
                validate_only: true,
            };
            let_in(client.call(1, &request).responses.iter().map(|one| one.error_code))
        }
        other => panic!("nobody asks for {other}"),
    }
}

/// Asks about a group; whether it was let in.
fn asks_group(client: &mut Client, api: &str, asked: &Asked<'_>) -> bool {
    let group_id = text(asked.group);
    match api {
        "FindCoordinator" => {
            let request = FindCoordinatorRequest { key: group_id, ..Default::default() };
            let_in([client.call(3, &request).error_code])
        }
        "JoinGroup" => {
            // Without a protocol nobody joins.
            let request = JoinGroupRequest {
                group_id,
                session_timeout_ms: 10_000,
                rebalance_timeout_ms: 10_000,
                protocol_type: text("consumer"),
                ..JoinGroupRequest::default()
            };
            let_in([client.call(3, &request).error_code])
        }
        "SyncGroup" => {
            let request =
                SyncGroupRequest { group_id, member_id: text("nobody"), ..Default::default() };
            let_in([client.call(3, &request).error_code])
        }
        "Heartbeat" => {
            let request =
                HeartbeatRequest { group_id, member_id: text("nobody"), ..Default::default() };
            let_in([client.call(3, &request).error_code])
        }
        "LeaveGroup" => {
            let request =
                LeaveGroupRequest { group_id, member_id: text("nobody"), ..Default::default() };
            let_in([client.call(2, &request).error_code])
        }
        "DescribeGroups" => {
            let request = DescribeGroupsRequest { groups: vec![group_id], ..Default::default() };
            let_in(client.call(5, &request).groups.iter().map(|one| one.error_code))
        }
        "ListGroups" => {
            let answer = client.call(4, &ListGroupsRequest::default());
            answer.error_code == 0 && answer.groups.iter().any(|one| one.group_id == group_id)
        }
        "DeleteGroups" => {
            let request = DeleteGroupsRequest { groups_names: vec![text(asked.missing)] };
            let_in(client.call(2, &request).results.iter().map(|one| one.error_code))
        }
        "ShareGroupDescribe" => {
            let request =
                ShareGroupDescribeRequest { group_ids: vec![group_id], ..Default::default() };
            let_in(client.call(1, &request).groups.iter().map(|one| one.error_code))
        }
        other => panic!("nobody asks for {other}"),
    }
}

/// Asks about a group of a topic; whether it was let in.
fn asks_both(client: &mut Client, api: &str, asked: &Asked<'_>) -> bool {
    let (name, group_id) = (text(asked.topic), text(asked.group));
    match api {
        "OffsetCommit" => {
            let partitions = vec![OffsetCommitRequestPartition::default()];
            let topic = OffsetCommitRequestTopic { name, partitions, ..Default::default() };
            let request =
                OffsetCommitRequest { group_id, topics: vec![topic], ..Default::default() };
            let answer = client.call(7, &request);
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code))
        }
        "OffsetFetch" => {
            let topic = OffsetFetchRequestTopic { name, partition_indexes: vec![0] };
            let topics = Some(vec![topic]);
            let answer =
                client.call(7, &OffsetFetchRequest { group_id, topics, ..Default::default() });
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code).chain([answer.error_code]))
        }
        "OffsetDelete" => {
            let partitions = vec![OffsetDeleteRequestPartition::default()];
            let topics = vec![OffsetDeleteRequestTopic { name, partitions }];
            let answer = client.call(0, &OffsetDeleteRequest { group_id, topics });
            let parts = answer.topics.iter().flat_map(|one| &one.partitions);
            let_in(parts.map(|one| one.error_code).chain([answer.error_code]))
        }
        _ => shares(client, api, asked),
    }
}

/// Asks as a member of a share group; whether it was let in.
fn shares(client: &mut Client, api: &str, asked: &Asked<'_>) -> bool {
    let (name, group_id) = (text(asked.topic), text(asked.group));
    match api {
        "ShareGroupHeartbeat" => {
            let member_id = asked.member.clone();
            let request = ShareGroupHeartbeatRequest {
                group_id,
                member_id,
                subscribed_topic_names: Some(vec![name]),
                ..ShareGroupHeartbeatRequest::default()
            };
            let_in([client.call(1, &request).error_code])
        }
        "ShareFetch" => {
            let partitions = vec![share::FetchPartition::default()];
            let topics = vec![share::FetchTopic { topic_id: asked.topic_id, partitions }];
            let request = share::ShareFetchRequest {
                group_id: Some(group_id),
                member_id: Some(asked.member.clone()),
                max_records: 1,
                topics,
                ..share::ShareFetchRequest::default()
            };
            let answer = client.call(1, &request);
            let parts = answer.responses.iter().flat_map(|one| &one.partitions);
            let foreign = ErrorCode::UNKNOWN_TOPIC_ID.code();
            let codes: Vec<i16> =
                parts.map(|one| one.error_code).chain([answer.error_code]).collect();
            let_in(codes.iter().copied()) && !codes.contains(&foreign)
        }
        "ShareAcknowledge" => {
            // One that goes on in a session which the request before has opened, if it was let in.
            let partitions = vec![AcknowledgePartition::default()];
            let topics = vec![AcknowledgeTopic { topic_id: asked.topic_id, partitions }];
            let request = ShareAcknowledgeRequest {
                group_id: Some(group_id),
                member_id: Some(asked.member.clone()),
                share_session_epoch: 1,
                topics,
                ..ShareAcknowledgeRequest::default()
            };
            let answer = client.call(1, &request);
            let parts = answer.responses.iter().flat_map(|one| &one.partitions);
            let codes: Vec<i16> =
                parts.map(|one| one.error_code).chain([answer.error_code]).collect();
            let refused = [ErrorCode::UNKNOWN_TOPIC_ID, ErrorCode::SHARE_SESSION_NOT_FOUND];
            let_in(codes.iter().copied())
                && !codes.iter().any(|code| refused.contains(&ErrorCode(*code)))
        }
        other => panic!("nobody asks for {other}"),
    }
}

fn asks(client: &mut Client, api: &str, asked: &Asked<'_>) -> bool {
    match takes(api).map(|(_, on)| on) {
        None => true,
        Some(On::Topic) => asks_topic(client, api, asked),
        Some(On::Group) => asks_group(client, api, asked),
        Some(On::Both) => asks_both(client, api, asked),
        Some(On::Anything | On::Whole) => match api {
            "InitProducerId" => {
                let_in([client.call(4, &InitProducerIdRequest::default()).error_code])
            }
            "DescribeCluster" => {
                let_in([client.call(1, &DescribeClusterRequest::default()).error_code])
            }
            "DescribeLogDirs" => {
                let_in([client.call(4, &DescribeLogDirsRequest::default()).error_code])
            }
            other => panic!("nobody asks for {other}"),
        },
    }
}

fn shown_in(server: &Server, token: &str) -> Client {
    let (key, secret) = token.split_once('.').expect("a token");
    let mut client = Client::connect(server);
    client.call(1, &SaslHandshakeRequest { mechanism: text("PLAIN") });
    let auth_bytes = format!("\0{key}\0{secret}").into();
    let answer = client.call(2, &SaslAuthenticateRequest { auth_bytes });
    assert_eq!(answer.error_code, 0, "{key}");
    client
}

/// The ids of topics, as Kafka clients see them.
fn topic_ids(server: &Server, token: &str) -> HashMap<String, [u8; 16]> {
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let answer = shown_in(server, token).call(12, &all);
    answer.topics.into_iter().map(|one| (one.name.expect("a name"), one.topic_id)).collect()
}

#[test]
fn g43_every_api_lets_in_exactly_those_who_have_the_right() {
    let server = world();
    let token = admin_token(&server);
    let mut admin = access_support::Client::new(&server, &token);
    let ids = topic_ids(&server, &token);
    let rules = kafka_rules();
    let (mut asked_about, mut refused) = (0, 0);
    for visitor in &visitors(&server) {
        let mut client = shown_in(&server, &visitor.token);
        for (topic, topic_own) in [("own.t", true), ("foreign.t", false)] {
            for (group, missing, group_own) in
                [("own-g", "own-x", true), ("foreign-g", "foreign-x", false)]
            {
                let member = format!("{}-{topic}-{group}", visitor.name);
                let asked = Asked { topic, group, missing, topic_id: ids[topic], member };
                for rule in &rules {
                    if rule.name == "DeleteTopics" {
                        let gone = topic.replace(".t", ".gone");
                        admin.done("PUT", &format!("/v1/topics/{gone}"), &Value::Null);
                    }
                    let expected = may(visitor, rule.name, topic_own, group_own);
                    let (name, api) = (&visitor.name, rule.name);
                    let found = asks(&mut client, api, &asked);
                    assert_eq!(found, expected, "{name} asks {api} about {topic} {group}");
                    asked_about += 1;
                    refused += u32::from(!expected);
                }
            }
        }
    }
    assert!(asked_about > 2000 && refused > 1000, "{asked_about} {refused}");
    println!("{asked_about} requests, {refused} of them refused");
}

#[test]
fn what_is_listed_is_what_the_app_may_know() {
    let server = world();
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    for visitor in &visitors(&server) {
        let answer = shown_in(&server, &visitor.token).call(12, &all);
        let mut names: Vec<String> = answer.topics.into_iter().filter_map(|one| one.name).collect();
        names.retain(|name| name.ends_with(".t"));
        let sees = |own| may(visitor, "Metadata", own, own);
        let expected: Vec<&str> = [("foreign.t", sees(false)), ("own.t", sees(true))]
            .into_iter()
            .filter_map(|(name, seen)| seen.then_some(name))
            .collect();
        assert_eq!(names, expected, "{}", visitor.name);
    }
}

#[test]
fn what_is_refused_does_not_tell_whether_it_exists() {
    let server = world();
    let verbs = ["own-send", "own-consume", "own-manage"];
    let visitors = visitors(&server);
    for visitor in visitors.iter().filter(|visitor| verbs.contains(&visitor.name.as_str())) {
        let mut client = shown_in(&server, &visitor.token);
        let mut code = |name: &str| {
            let topic = MetadataRequestTopic { name: Some(text(name)), ..Default::default() };
            let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
            client.call(12, &request).topics.remove(0).error_code
        };
        assert_eq!(code("foreign.t"), ErrorCode::TOPIC_AUTHORIZATION_FAILED.code());
        assert_eq!(code("foreign.nowhere"), code("foreign.t"));
    }
}
