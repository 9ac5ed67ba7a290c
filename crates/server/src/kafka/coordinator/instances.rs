//! Members that have given themselves a name, told step by step.

use std::sync::Arc;

use punctual_model::Span;

use super::steps::{House, REBALANCE, SESSION, house, id, instance, name, somebody};
use super::terms::{Identity, Joining, Phase, Refusal};

#[test]
fn an_instance_that_comes_back_keeps_its_share_and_its_old_self_is_fenced() {
    let mut house = house();
    let joined = house.stable(vec![instance("a"), instance("b")]);
    let old = &joined[1];
    house.pass(SESSION - 1);
    house.beat(&joined[0].member, 1).unwrap();
    let back = house.join(instance("b"));
    let back = house.member(back);
    assert_ne!(back.member, old.member);
    assert_eq!((back.generation, &back.leader), (1, &joined[0].member));
    assert_eq!(house.phase(), Some(Phase::Stable), "nobody was disturbed");
    let ticket = house.sync(&back.member, 1, &[]);
    assert_eq!(house.share(ticket), "part 1");
    let ghost = Identity { member: Arc::clone(&old.member), instance: Some("b".into()) };
    let now = house.at();
    let beat = |house: &mut House, who: &Identity| house.machine.heartbeat(now, &name(), (who, 1));
    assert_eq!(beat(&mut house, &ghost), Err(Refusal::Fenced));
    let stranger = Identity { instance: Some("z".into()), ..ghost.clone() };
    assert_eq!(beat(&mut house, &stranger), Err(Refusal::UnknownMember));
    assert_eq!(house.leave(&ghost), Err(Refusal::Fenced));
    let ghost = house.again(&old.member, instance("b"));
    assert_eq!(house.refused(ghost), Refusal::Fenced);
    house.pass(SESSION / 2);
    assert_eq!(house.beat(&back.member, 1), Ok(()));
    house.pass(SESSION / 2);
    assert_eq!(house.beat(&back.member, 1), Err(Refusal::Rebalancing), "the leader ran out");
}

#[test]
fn an_instance_that_led_comes_back_without_sharing_out_anew() {
    for can_skip in [false, true] {
        let mut house = house();
        let joined = house.stable(vec![instance("a"), somebody("b")]);
        let old = &joined[0].member;
        let back = house.join(Joining { can_skip, ..instance("a") });
        let back = house.member(back);
        assert_eq!(back.skip, can_skip);
        if can_skip {
            assert_eq!((&back.leader, back.members.len()), (&back.member, 2));
        } else {
            assert_eq!((&back.leader, back.members.len()), (old, 0), "it shall not share out");
        }
        let ticket = house.sync(&back.member, 1, &[]);
        assert_eq!(house.share(ticket), "part 0");
        house.again(&back.member, instance("a"));
        assert_eq!(house.phase(), Some(Phase::Preparing), "it leads all the same");
    }
}

#[test]
fn an_instance_that_is_replaced_while_it_waits_is_told_so() {
    let mut house = house();
    let first = house.join(instance("a"));
    let second = house.join(instance("a"));
    assert_eq!(house.refused(first), Refusal::Fenced);
    house.pass(5000);
    let leader = house.member(second);
    let other = house.join(instance("b"));
    assert_eq!(house.phase(), Some(Phase::Preparing));
    let again = house.again(&leader.member, instance("a"));
    let (leader, other) = (house.member(again), house.member(other));
    let waits = house.sync(&other.member, leader.generation, &[]);
    let back = house.join(instance("b"));
    assert_eq!(house.synced(waits), Some(Err(Refusal::Fenced)));
    assert_eq!(house.joined(back), None, "before it was shared out all join again");
}

#[test]
fn an_instance_keeps_its_place_until_its_session_ends() {
    let mut house = house();
    let long = Joining { session: Span::from_secs(300), ..instance("a") };
    let joined = house.stable(vec![long, somebody("b")]);
    let follower = &joined[1].member;
    house.join(somebody("c"));
    let again = house.again(follower, somebody("b"));
    house.pass(REBALANCE);
    let next = house.member(again);
    assert_eq!((&next.leader, next.members.len()), (follower, 3), "its place is kept");
    let who = Identity { member: "".into(), instance: Some("a".into()) };
    assert_eq!(house.leave(&who), Ok(()), "an instance can be made to leave by its name");
    assert_eq!(house.leave(&who), Err(Refusal::UnknownMember));
}

#[test]
fn when_all_who_are_left_have_names_they_are_waited_for() {
    let mut house = house();
    let long = |client| Joining { session: Span::from_secs(600), ..instance(client) };
    let joined = house.stable(vec![long("a"), somebody("b")]);
    house.leave(&id(&joined[1].member)).unwrap();
    house.pass(3 * REBALANCE);
    assert_eq!(house.phase(), Some(Phase::Preparing));
    let back = house.join(long("a"));
    assert_eq!(house.member(back).generation, 2);
    house.pass(600_000);
    house.is_vacant();
}
