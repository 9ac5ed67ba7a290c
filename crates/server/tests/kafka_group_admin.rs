//! Are groups found, listed, described and removed as Kafka's tools expect it?
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
use kafka_members::{Member, describe};
use punctual_kafka_wire::messages::delete_groups::DeleteGroupsRequest;
use punctual_kafka_wire::messages::describe_groups::DescribeGroupsRequest;
use punctual_kafka_wire::messages::find_coordinator::FindCoordinatorRequest;
use punctual_kafka_wire::messages::list_groups::ListGroupsRequest;
use punctual_kafka_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use punctual_kafka_wire::{ErrorCode, Request as _};
use serde_json::json;
use support::Server;

const NONE: i16 = 0;

/// `streams` by a commit, `queue` by somebody who receives and acks over HTTP.
fn two_groups(server: &Server, client: &mut Client) {
    server.put("/v1/topics/orders", r#"{"partitions":1}"#);
    server.send("orders", &json!({"body": "x"}));
    let queue = "/v1/topics/orders/groups/queue";
    let taken = server.receive_all(queue, 1);
    server.settle(queue, "ack", &json!({"receipts": [taken[0]["receipt"]]}));
    let request = OffsetCommitRequest {
        group_id: "streams".to_owned(),
        topics: vec![OffsetCommitRequestTopic {
            name: "orders".to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    assert_eq!(client.call(8, &request).topics[0].partitions[0].error_code, NONE);
}

fn listed(client: &mut Client, version: i16, states: &[&str], types: &[&str]) -> Vec<[String; 4]> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let request = ListGroupsRequest { states_filter: texts(states), types_filter: texts(types) };
    let answer = client.call(version, &request);
    assert_eq!(answer.error_code, NONE);
    let one = |group: punctual_kafka_wire::messages::list_groups::ListedGroup| {
        [group.group_id, group.protocol_type, group.group_state, group.group_type]
    };
    answer.groups.into_iter().map(one).collect()
}

#[test]
fn this_broker_coordinates_every_group() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let port = i32::from(server.kafka.expect("it listens").port());
    for version in FindCoordinatorRequest::VERSIONS {
        let mut find = |key: &str, key_type: i8| {
            let request = FindCoordinatorRequest {
                key: key.to_owned(),
                key_type,
                coordinator_keys: vec![key.to_owned()],
            };
            let mut answer = client.call(version, &request);
            if version < 4 {
                return (answer.error_code, answer.node_id, answer.host, answer.port);
            }
            assert_eq!(answer.coordinators.len(), 1);
            let one = answer.coordinators.remove(0);
            assert_eq!(one.key, key);
            (one.error_code, one.node_id, one.host, one.port)
        };
        assert_eq!(find("billing", 0), (NONE, 1, "127.0.0.1".to_owned(), port), "v{version}");
        assert_eq!(find("a b", 0).0, ErrorCode::INVALID_GROUP_ID.code());
        if version > 0 {
            let refused = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code();
            assert_eq!(find("transactions", 1).0, refused);
            assert_eq!(find("billing", 9).0, ErrorCode::INVALID_REQUEST.code());
        }
        if version >= 6 {
            assert_eq!(find("billing:AAAAAAAAAAAAAAAAAAAAAQ:0", 2).0, NONE);
        }
    }
}

#[test]
fn groups_are_listed_by_state_and_kind_wherever_they_come_from() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    two_groups(&server, &mut client);
    let mut member = Member::new(&server, "members", 5);
    member.enter();
    member.join();
    member.sync(&[(member.id.clone(), "all")]);
    let row = |parts: [&str; 4]| parts.map(str::to_owned);
    let members = row(["members", "consumer", "Stable", "classic"]);
    let queue = row(["queue", "share", "Empty", "share"]);
    let streams = row(["streams", "consumer", "Empty", "classic"]);
    let all = [members.clone(), queue.clone(), streams.clone()];
    assert_eq!(listed(&mut client, 5, &[], &[]), all);
    for version in ListGroupsRequest::VERSIONS {
        let names: Vec<String> =
            listed(&mut client, version, &[], &[]).into_iter().map(|[name, ..]| name).collect();
        assert_eq!(names, ["members", "queue", "streams"], "v{version}");
    }
    assert_eq!(listed(&mut client, 4, &["stable"], &[]), {
        [row(["members", "consumer", "Stable", ""])]
    });
    assert_eq!(listed(&mut client, 5, &["Empty"], &["Classic"]), [streams]);
    assert_eq!(listed(&mut client, 5, &[], &["share"]), [queue]);
    assert_eq!(listed(&mut client, 5, &["Stable", "Dead"], &[]), [members]);
    assert!(listed(&mut client, 5, &["Dead"], &[]).is_empty());
}

#[test]
fn a_group_is_described_with_its_members_and_their_shares() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    two_groups(&server, &mut client);
    let mut member = Member::instance(&server, "members", 7, "one");
    member.join();
    for version in DescribeGroupsRequest::VERSIONS {
        let groups = describe(&mut client, version, "members");
        assert_eq!(groups.group_state, "CompletingRebalance", "v{version}");
        assert_eq!((groups.members.len(), groups.protocol_data.as_str()), (1, ""));
    }
    member.sync(&[(member.id.clone(), "all")]);
    for version in DescribeGroupsRequest::VERSIONS {
        let group = describe(&mut client, version, "members");
        assert_eq!(group.error_code, NONE);
        assert_eq!(
            (group.group_state.as_str(), group.protocol_type.as_str()),
            ("Stable", "consumer")
        );
        assert_eq!(group.protocol_data, "range");
        let one = &group.members[0];
        assert_eq!((&one.member_id, one.client_id.as_str()), (&member.id, kafka::CLIENT_ID));
        assert_eq!((one.client_host.as_str(), &one.member_metadata), ("/127.0.0.1", &member.said));
        assert_eq!(&one.member_assignment[..], b"all");
        assert_eq!(one.group_instance_id.as_deref(), (version >= 4).then_some("one"));
        if version >= 3 {
            assert_eq!(group.authorized_operations, 1 << 3 | 1 << 6 | 1 << 8);
        }
        let stored = describe(&mut client, version, "streams");
        assert_eq!((stored.error_code, stored.group_state.as_str()), (NONE, "Empty"));
        let unknown = describe(&mut client, version, "nobody");
        assert_eq!(unknown.group_state, "Dead", "v{version}");
        let code = if version < 6 { NONE } else { ErrorCode::GROUP_ID_NOT_FOUND.code() };
        assert_eq!(unknown.error_code, code, "v{version}");
    }
    let illegal = describe(&mut client, 5, "a b");
    assert_eq!(illegal.error_code, ErrorCode::INVALID_GROUP_ID.code());
}

#[test]
fn a_group_is_removed_when_nobody_is_in_it() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    two_groups(&server, &mut client);
    let mut member = Member::new(&server, "streams", 5);
    member.enter();
    member.join();
    let remove = |client: &mut Client, version: i16| {
        let names = ["streams", "nobody", "a b"];
        let groups_names = names.iter().map(|&name| name.to_owned()).collect();
        let answer = client.call(version, &DeleteGroupsRequest { groups_names });
        answer.results.iter().map(|result| result.error_code).collect::<Vec<_>>()
    };
    let not_found = ErrorCode::GROUP_ID_NOT_FOUND.code();
    let invalid = ErrorCode::INVALID_GROUP_ID.code();
    for version in DeleteGroupsRequest::VERSIONS {
        let codes = remove(&mut client, version);
        assert_eq!(codes, [ErrorCode::NON_EMPTY_GROUP.code(), not_found, invalid], "v{version}");
    }
    member.leave();
    assert_eq!(remove(&mut client, 2), [NONE, not_found, invalid]);
    assert_eq!(remove(&mut client, 2), [not_found, not_found, invalid]);
    assert_eq!(server.get("/v1/topics/orders/groups/streams").status, 404);
    assert_eq!(server.get("/v1/topics/orders/groups/queue").status, 200);
    let noted = server.get("/v1/audit?limit=10").json().to_string();
    assert!(noted.contains("group_delete"), "{noted}");
}
