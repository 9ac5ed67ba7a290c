//! Do consumers of a group come together, share out and come apart again, as Kafka clients do it?
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
use kafka_members::{Member, SESSION_SHORT, describe, subscribed};
use punctual_kafka_wire::messages::heartbeat::HeartbeatRequest;
use punctual_kafka_wire::messages::join_group::JoinGroupRequest;
use punctual_kafka_wire::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use punctual_kafka_wire::messages::sync_group::SyncGroupRequest;
use punctual_kafka_wire::{ErrorCode, Request as _};
use support::{Server, wait_for};

const NONE: i16 = 0;

#[test]
fn two_members_share_a_topic_in_every_version() {
    let server = Server::start();
    for version in JoinGroupRequest::VERSIONS {
        let group = format!("group-{version}");
        let mut first = Member::new(&server, &group, version);
        first.enter();
        first.join();
        assert_eq!((first.generation, first.leads()), (1, true), "v{version}");
        let shares = [(first.id.clone(), "0 1 2 3")];
        assert_eq!(first.sync(&shares), "0 1 2 3");
        assert_eq!(first.beat(), NONE);

        let mut second = Member::new(&server, &group, version);
        second.enter();
        second.ask();
        wait_for("the first to be told", || {
            (first.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
        });
        first.join();
        second.told();
        assert_eq!((first.generation, second.generation), (2, 2), "v{version}");
        assert!(first.leads() && !second.leads());
        assert_eq!((first.peers.len(), second.peers.len()), (2, 0));
        assert_eq!(first.protocol, "range");
        second.ask_share();
        let shares = [(first.id.clone(), "0 1"), (second.id.clone(), "2 3")];
        assert_eq!(first.sync(&shares), "0 1");
        assert_eq!(second.share(), "2 3");
        assert_eq!((first.beat(), second.beat()), (NONE, NONE));

        first.leave();
        wait_for("the second to be told", || {
            (second.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
        });
        second.join();
        assert_eq!((second.generation, second.leads()), (3, true), "v{version}");
        assert_eq!(first.beat(), ErrorCode::UNKNOWN_MEMBER_ID.code());
        second.leave();
        assert_eq!(second.beat(), ErrorCode::UNKNOWN_MEMBER_ID.code(), "v{version}");
    }
}

#[test]
fn a_member_that_crashes_is_missed_and_its_part_goes_to_the_others() {
    let server = Server::start();
    let mut members: Vec<Member> = (0..3).map(|_| Member::new(&server, "crash", 5)).collect();
    members[2].session_ms = SESSION_SHORT;
    for member in &mut members {
        member.enter();
    }
    for member in &mut members {
        member.ask();
    }
    for member in &mut members {
        member.told();
    }
    let leader = members.iter().position(Member::leads).expect("one leads");
    assert_eq!(members[leader].peers.len(), 3);
    let ids: Vec<String> = members.iter().map(|member| member.id.clone()).collect();
    for (number, member) in members.iter_mut().enumerate() {
        member.ask_share_of(if number == leader { &ids } else { &[] });
    }
    for (number, member) in members.iter_mut().enumerate() {
        assert_eq!(member.share(), format!("part {number}"));
    }
    // Its connection goes, and nothing more is heard of it.
    drop(members.pop());
    wait_for("it to be missed", || {
        (members[0].beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
    });
    for member in &mut members {
        member.ask();
    }
    for member in &mut members {
        member.told();
        assert_eq!(member.generation, 2);
    }
    let leader = members.iter().find(|member| member.leads()).expect("one leads");
    assert_eq!(leader.peers.len(), 2);
}

#[test]
fn a_connection_that_ends_takes_its_waiting_join_along() {
    let server = Server::start();
    let mut stays = Member::new(&server, "hangs-up", 5);
    stays.enter();
    stays.join();
    stays.sync(&[(stays.id.clone(), "all")]);
    let mut goes = Member::new(&server, "hangs-up", 5);
    goes.session_ms = SESSION_SHORT;
    goes.enter();
    goes.ask();
    wait_for("the first to be told", || {
        (stays.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
    });
    drop(goes);
    let mut client = Client::connect(&server);
    wait_for("it to be missed", || {
        (describe(&mut client, 5, "hangs-up").members.len() == 1).then_some(())
    });
    stays.join();
    assert_eq!(stays.peers.len(), 1, "whoever hung up is not waited for longer than its session");
}

#[test]
fn an_instance_comes_back_to_its_place_and_its_ghost_is_fenced() {
    let server = Server::start();
    for version in [5, 7, 9] {
        let group = format!("static-{version}");
        let mut leader = Member::instance(&server, &group, version, "one");
        leader.join();
        leader.sync(&[(leader.id.clone(), "0 1")]);
        let mut ghost = Member::instance(&server, &group, version, "two");
        ghost.ask();
        wait_for("the first to be told", || {
            (leader.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
        });
        leader.join();
        ghost.told();
        ghost.ask_share();
        leader.sync(&[(leader.id.clone(), "0"), (ghost.id.clone(), "1")]);
        assert_eq!(ghost.share(), "1");

        let mut back = Member::instance(&server, &group, version, "two");
        back.join();
        assert_ne!(back.id, ghost.id);
        assert_eq!(back.generation, 2, "nobody was disturbed");
        assert_eq!(back.sync(&[]), "1", "v{version}");
        assert_eq!(leader.beat(), NONE);
        assert_eq!(ghost.beat(), ErrorCode::FENCED_INSTANCE_ID.code());

        let mut again = Member::instance(&server, &group, version, "one");
        again.join();
        assert_eq!(again.skip, version >= 9, "the leader has nothing to share out");
        assert_eq!(again.leads(), version >= 9, "older clients are told of another leader");
        assert_eq!(again.sync(&[]), "0");
        // By its name alone, as tools do it.
        let named = MemberIdentity {
            group_instance_id: Some("two".to_owned()),
            ..MemberIdentity::default()
        };
        let nobody = MemberIdentity { group_instance_id: Some("x".to_owned()), ..named.clone() };
        let request = LeaveGroupRequest {
            group_id: group,
            members: vec![named, nobody],
            ..LeaveGroupRequest::default()
        };
        let left = again.client.call(4, &request);
        let codes: Vec<i16> = left.members.iter().map(|member| member.error_code).collect();
        assert_eq!(codes, [NONE, ErrorCode::UNKNOWN_MEMBER_ID.code()]);
        assert_eq!(back.beat(), ErrorCode::UNKNOWN_MEMBER_ID.code());
    }
}

/// A partition goes from one to the other in two generations: first it is given up, then it is
/// taken. What the members say to each other is handed on as it is.
#[test]
fn a_cooperative_rebalance_takes_two_generations() {
    let server = Server::start();
    let mut first = Member::new(&server, "cooperative", 7);
    first.protocol_asked = "cooperative-sticky".to_owned();
    first.enter();
    first.join();
    first.sync(&[(first.id.clone(), "0 1 2 3")]);
    let mut second = Member::new(&server, "cooperative", 7);
    second.protocol_asked = "cooperative-sticky".to_owned();
    second.enter();
    second.ask();
    wait_for("the first to be told", || {
        (first.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
    });
    // It keeps what it has while it joins again, and says so.
    first.said = subscribed(&["orders"], b"owns 0 1 2 3");
    first.join();
    second.told();
    let told = |first: &Member, id: &str| {
        let peer = first.peers.iter().find(|peer| peer.member_id == id);
        peer.expect("a peer").metadata.clone()
    };
    assert_eq!(told(&first, &first.id), first.said);
    second.ask_share();
    first.sync(&[(first.id.clone(), "0 1"), (second.id.clone(), "")]);
    assert_eq!(second.share(), "", "nothing is given to two");
    // It has given up two and says so, so that they can be given.
    first.said = subscribed(&["orders"], b"owns 0 1");
    first.ask();
    wait_for("the second to be told", || {
        (second.beat() == ErrorCode::REBALANCE_IN_PROGRESS.code()).then_some(())
    });
    second.join();
    first.told();
    assert_eq!((first.generation, second.generation), (3, 3));
    assert_eq!(told(&first, &first.id), first.said);
    second.ask_share();
    assert_eq!(first.sync(&[(first.id.clone(), "0 1"), (second.id.clone(), "2 3")]), "0 1");
    assert_eq!(second.share(), "2 3");
}

#[test]
fn a_new_member_is_told_its_id_first_where_it_understands_that() {
    let server = Server::start();
    for version in JoinGroupRequest::VERSIONS {
        let mut client = Client::connect(&server);
        let group = format!("first-{version}");
        let request = Member::new(&server, &group, version).request();
        let answer = client.call(version, &request);
        if version < 4 {
            assert_eq!(answer.error_code, NONE, "v{version}");
            continue;
        }
        assert_eq!(answer.error_code, ErrorCode::MEMBER_ID_REQUIRED.code(), "v{version}");
        assert!(!answer.member_id.is_empty());
        let again = JoinGroupRequest { member_id: answer.member_id.clone(), ..request };
        let answer = client.call(version, &again);
        assert_eq!((answer.error_code, &answer.member_id), (NONE, &again.member_id));
        assert_eq!(answer.leader, answer.member_id);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let usual = Member::new(&server, "usual", 3).request();
    let mut join = |change: &dyn Fn(&mut JoinGroupRequest)| {
        let mut request = usual.clone();
        change(&mut request);
        client.call(3, &request).error_code
    };
    let invalid_group = ErrorCode::INVALID_GROUP_ID.code();
    for name in ["", "a b", "..", "a/b"] {
        assert_eq!(join(&|one| one.group_id = name.to_owned()), invalid_group, "{name:?}");
    }
    let session = ErrorCode::INVALID_SESSION_TIMEOUT.code();
    for millis in [i32::MIN, -1, 0, 999, 30 * 60_000 + 1, i32::MAX] {
        assert_eq!(join(&|one| one.session_timeout_ms = millis), session, "{millis}");
    }
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID.code();
    assert_eq!(join(&|one| one.member_id = "somebody".to_owned()), unknown);
    let inconsistent = ErrorCode::INCONSISTENT_GROUP_PROTOCOL.code();
    assert_eq!(join(&|one| one.protocols.clear()), inconsistent);
    assert_eq!(join(&|one| one.protocol_type.clear()), inconsistent);

    let beat = HeartbeatRequest { group_id: "usual".to_owned(), ..Default::default() };
    assert_eq!(client.call(3, &beat).error_code, unknown);
    let sync = SyncGroupRequest { group_id: "usual".to_owned(), ..Default::default() };
    assert_eq!(client.call(3, &sync).error_code, unknown);
    let leave = LeaveGroupRequest { group_id: "usual".to_owned(), ..Default::default() };
    assert_eq!(client.call(2, &leave).error_code, unknown);
    let leave = LeaveGroupRequest { group_id: String::new(), ..leave };
    assert_eq!(client.call(2, &leave).error_code, invalid_group);
}

#[test]
fn members_of_before_a_restart_join_again() {
    let server = Server::start();
    let mut member = Member::new(&server, "restart", 5);
    member.enter();
    member.join();
    member.sync(&[(member.id.clone(), "all")]);
    let (id, generation) = (member.id.clone(), member.generation);
    drop(member);
    let server = server.restarted(&[]);
    let mut back = Member::new(&server, "restart", 5);
    (back.id, back.generation) = (id, generation);
    assert_eq!(back.beat(), ErrorCode::UNKNOWN_MEMBER_ID.code());
    back.id.clear();
    back.enter();
    back.join();
    assert_eq!(back.sync(&[(back.id.clone(), "all")]), "all");
}
