//! Groups told step by step, at given moments.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::{GroupName, Span, Timestamp};

use super::machine::{Bounds, Machine};
use super::terms::{
    Effect, Identity, JoinAnswer, Joined, Joining, Phase, Protocol, Refusal, SyncAnswer, Syncing,
    Ticket,
};

pub(super) const SESSION: u64 = 10_000;
pub(super) const REBALANCE: u64 = 60_000;

/// A coordinator, the time, and what it has answered.
pub(super) struct House {
    pub(super) machine: Machine,
    now: u64,
    tickets: u64,
    answers: Vec<Effect>,
}

pub(super) fn name() -> GroupName {
    GroupName::new("billing").unwrap()
}

fn protocols(names: &[&str], said: &str) -> Vec<Protocol> {
    let said = Bytes::copy_from_slice(said.as_bytes());
    let one = |name: &&str| Protocol { name: (*name).into(), metadata: said.clone() };
    names.iter().map(one).collect()
}

pub(super) fn somebody(client: &str) -> Joining {
    Joining {
        group: name(),
        member: None,
        instance: None,
        client_id: client.into(),
        client_host: "/127.0.0.1".into(),
        session: Span::from_millis(SESSION),
        rebalance: Span::from_millis(REBALANCE),
        protocol_type: "consumer".into(),
        protocols: protocols(&["range"], client),
        twice: false,
        can_skip: false,
        fresh: 0,
    }
}

pub(super) fn instance(client: &str) -> Joining {
    Joining { instance: Some(client.into()), ..somebody(client) }
}

pub(super) fn id(member: &Arc<str>) -> Identity {
    Identity { member: Arc::clone(member), instance: None }
}

impl House {
    fn new(bounds: Bounds) -> Self {
        let machine = Machine::new(bounds, Timestamp::MIN);
        Self { machine, now: 0, tickets: 0, answers: Vec::new() }
    }

    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now).unwrap()
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(super) fn join(&mut self, mut joining: Joining) -> Ticket {
        let (ticket, now) = (self.ticket(), self.at());
        joining.fresh = u128::from(ticket.0);
        self.machine.join(now, ticket, joining, &mut self.answers);
        ticket
    }

    pub(super) fn again(&mut self, member: &Arc<str>, joining: Joining) -> Ticket {
        self.join(Joining { member: Some(Arc::clone(member)), ..joining })
    }

    pub(super) fn sync(
        &mut self,
        member: &Arc<str>,
        generation: i32,
        shares: &[(&Arc<str>, &str)],
    ) -> Ticket {
        let (ticket, now) = (self.ticket(), self.at());
        let share = |(member, share): &(&Arc<str>, &str)| {
            (Arc::clone(member), Bytes::copy_from_slice(share.as_bytes()))
        };
        let syncing = Syncing {
            group: name(),
            who: id(member),
            generation,
            protocol_type: None,
            protocol: None,
            shares: shares.iter().map(share).collect(),
        };
        self.machine.sync(now, ticket, syncing, &mut self.answers);
        ticket
    }

    pub(super) fn beat(&mut self, member: &Arc<str>, generation: i32) -> Result<(), Refusal> {
        let now = self.at();
        self.machine.heartbeat(now, &name(), (&id(member), generation))
    }

    pub(super) fn leave(&mut self, who: &Identity) -> Result<(), Refusal> {
        let now = self.at();
        self.machine.leave(now, &name(), who, &mut self.answers)
    }

    fn commit(&mut self, member: &str, generation: i32) -> Result<(), Refusal> {
        let now = self.at();
        self.machine.commit(now, &name(), (&id(&member.into()), generation))
    }

    pub(super) fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some(due) = self.machine.next_due().filter(|due| due.as_millis() <= end) {
            self.now = self.now.max(due.as_millis());
            let now = self.at();
            self.machine.advance(now, &mut self.answers);
        }
        self.now = end;
    }

    /// The answer to a join, if it has come.
    pub(super) fn joined(&mut self, ticket: Ticket) -> Option<JoinAnswer> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Joined(of, _) if *of == ticket);
        let place = self.answers.iter().position(is_it)?;
        match self.answers.remove(place) {
            Effect::Joined(_, answer) => Some(answer),
            Effect::Synced(..) => None,
        }
    }

    pub(super) fn member(&mut self, ticket: Ticket) -> Joined {
        self.joined(ticket).expect("the join is answered").expect("it is a member")
    }

    pub(super) fn refused(&mut self, ticket: Ticket) -> Refusal {
        self.joined(ticket).expect("the join is answered").expect_err("it is refused").0
    }

    pub(super) fn synced(&mut self, ticket: Ticket) -> Option<SyncAnswer> {
        let is_it = |effect: &Effect| matches!(effect, Effect::Synced(of, _) if *of == ticket);
        let place = self.answers.iter().position(is_it)?;
        match self.answers.remove(place) {
            Effect::Synced(_, answer) => Some(answer),
            Effect::Joined(..) => None,
        }
    }

    pub(super) fn share(&mut self, ticket: Ticket) -> Bytes {
        self.synced(ticket).expect("the sync is answered").expect("it has a share").share
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        self.machine.shown(&name()).map(|shown| shown.phase)
    }

    /// A group of these members, complete and with shares; the leader first.
    pub(super) fn stable(&mut self, members: Vec<Joining>) -> Vec<Joined> {
        let tickets: Vec<Ticket> = members.into_iter().map(|one| self.join(one)).collect();
        self.pass(5000);
        let mut joined: Vec<Joined> = tickets.into_iter().map(|one| self.member(one)).collect();
        joined.sort_by_key(|one| one.member != one.leader);
        self.share_out(&joined);
        joined
    }

    fn share_out(&mut self, joined: &[Joined]) {
        let texts: Vec<String> = (0..joined.len()).map(|number| format!("part {number}")).collect();
        let shares: Vec<(&Arc<str>, &str)> =
            joined.iter().zip(&texts).map(|(one, text)| (&one.member, text.as_str())).collect();
        for (number, one) in joined.iter().enumerate() {
            let shares = if number == 0 { &shares[..] } else { &[] };
            let ticket = self.sync(&one.member, one.generation, shares);
            assert_eq!(self.share(ticket), texts[number].as_bytes());
        }
        assert_eq!(self.phase(), Some(Phase::Stable));
        assert!(self.answers.is_empty(), "{:?}", self.answers);
    }

    /// Nobody is left, and nothing of them.
    pub(super) fn is_vacant(&self) {
        assert_eq!((self.phase(), self.machine.bytes()), (None, 0));
        assert_eq!(self.machine.next_due(), None, "no alarm is left");
    }
}

pub(super) fn house() -> House {
    House::new(Bounds::default())
}

#[test]
fn a_single_member_leads_after_a_short_wait() {
    let mut house = house();
    let ticket = house.join(somebody("a"));
    house.pass(99);
    assert_eq!(house.joined(ticket), None, "others may come");
    house.pass(1);
    let joined = house.member(ticket);
    assert_eq!((joined.generation, &joined.leader), (1, &joined.member));
    assert_eq!(joined.protocol.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(house.phase(), Some(Phase::Completing));
    house.share_out(&[joined]);
}

#[test]
fn those_who_start_together_share_from_the_first_generation_on() {
    let mut house = house();
    let mut tickets = Vec::new();
    for client in ["a", "b", "c", "d"] {
        tickets.push(house.join(somebody(client)));
        house.pass(80);
    }
    house.pass(200);
    let joined: Vec<Joined> = tickets.into_iter().map(|one| house.member(one)).collect();
    assert!(joined.iter().all(|one| one.generation == 1), "{joined:?}");
    let told: Vec<usize> = joined.iter().map(|one| one.members.len()).collect();
    assert_eq!(told, [4, 0, 0, 0], "the leader alone is told who is there");
}

#[test]
fn a_second_member_makes_the_first_join_again() {
    let mut house = house();
    let first = house.stable(vec![somebody("a")]).remove(0);
    let second = house.join(somebody("b"));
    house.pass(1000);
    assert_eq!(house.joined(second), None, "it waits for the first");
    assert_eq!(house.beat(&first.member, 1), Err(Refusal::Rebalancing));
    assert_eq!(house.commit(&first.member, 1), Ok(()), "what it did before counts");
    let again = house.again(&first.member, somebody("a"));
    let (first, second) = (house.member(again), house.member(second));
    assert_eq!((first.generation, second.generation), (2, 2));
    assert_eq!((&first.leader, first.members.len()), (&first.member, 2));
    assert_eq!((&second.leader, second.members.len()), (&first.member, 0));
    assert_eq!(house.beat(&first.member, 1), Err(Refusal::IllegalGeneration));
    let waits = house.sync(&second.member, 2, &[]);
    assert_eq!(house.synced(waits), None, "it waits for the leader");
    house.sync(&first.member, 2, &[(&second.member, "all")]);
    assert_eq!(house.share(waits), "all");
    house.answers.clear();
    assert_eq!(house.beat(&second.member, 2), Ok(()));
}

#[test]
fn a_new_member_is_told_its_id_first_and_forgotten_if_it_does_not_come_back() {
    let mut house = house();
    let twice = || Joining { twice: true, ..somebody("a") };
    let ticket = house.join(twice());
    let (refusal, member) = house.joined(ticket).unwrap().unwrap_err();
    assert_eq!(refusal, Refusal::ComeBack);
    assert!(member.starts_with("a-"), "{member}");
    assert!(!house.machine.has_members(&name()));
    house.pass(SESSION - 1);
    let again = house.again(&member, twice());
    house.pass(100);
    assert_eq!(house.member(again).member, member);
    let other = house.join(Joining { twice: true, ..somebody("b") });
    let (_, other) = house.joined(other).unwrap().unwrap_err();
    house.leave(&id(&member)).unwrap();
    house.pass(SESSION);
    house.is_vacant();
    let late = house.again(&other, twice());
    assert_eq!(house.refused(late), Refusal::UnknownMember);
    house.is_vacant();
}

#[test]
fn a_generation_waits_for_those_who_were_told_to_come_back() {
    let mut house = house();
    let first = house.stable(vec![somebody("a")]).remove(0);
    let told = house.join(Joining { twice: true, ..somebody("b") });
    let (_, told) = house.joined(told).unwrap().unwrap_err();
    let again = house.again(&first.member, somebody("a"));
    assert_eq!(house.joined(again), None);
    let second = house.again(&told, somebody("b"));
    assert_eq!(house.member(again).generation, 2);
    assert_eq!(house.member(second).generation, 2);
}

#[test]
fn who_gives_no_sign_of_life_is_out() {
    let mut house = house();
    let joined = house.stable(vec![somebody("a"), somebody("b")]);
    let [leader, follower] = [&joined[0].member, &joined[1].member];
    for _ in 0..5 {
        house.pass(SESSION / 2);
        assert_ne!(house.beat(leader, 1), Err(Refusal::UnknownMember));
    }
    assert_eq!(house.beat(follower, 1), Err(Refusal::UnknownMember));
    assert_eq!(house.beat(leader, 1), Err(Refusal::Rebalancing));
    let again = house.again(leader, somebody("a"));
    let alone = house.member(again);
    assert_eq!((alone.generation, alone.members.len()), (2, 1));
    house.pass(SESSION);
    house.is_vacant();
}

#[test]
fn who_does_not_join_again_in_time_is_out() {
    let mut house = house();
    let joined = house.stable(vec![somebody("a"), somebody("b")]);
    let (stays, late) = (&joined[1].member, &joined[0].member);
    let third = house.join(somebody("c"));
    let again = house.again(stays, somebody("b"));
    for _ in 0..REBALANCE / 5000 {
        assert_eq!((house.joined(third), house.joined(again)), (None, None));
        assert_eq!(house.beat(late, 1), Err(Refusal::Rebalancing), "it lives");
        house.pass(5000);
    }
    assert_eq!(house.beat(late, 1), Err(Refusal::UnknownMember));
    let (stays, third) = (house.member(again), house.member(third));
    assert_eq!((stays.generation, &stays.leader), (2, &stays.member), "the oldest leads");
    assert_eq!(third.leader, stays.member);
}

#[test]
fn a_leader_that_is_lost_while_others_wait_for_their_shares_is_replaced() {
    let mut house = house();
    let tickets = [house.join(somebody("a")), house.join(somebody("b"))];
    house.pass(5000);
    let [_lost, follower] = tickets.map(|one| house.member(one));
    let waits = house.sync(&follower.member, 1, &[]);
    house.pass(SESSION);
    assert_eq!(house.synced(waits), Some(Err(Refusal::Rebalancing)));
    let again = house.again(&follower.member, somebody("b"));
    let alone = house.member(again);
    assert_eq!((alone.generation, &alone.leader), (2, &follower.member));
    house.share_out(&[alone]);
}

#[test]
fn who_does_not_ask_for_its_share_in_time_is_out() {
    let mut house = house();
    let tickets = [house.join(somebody("a")), house.join(somebody("b"))];
    house.pass(5000);
    let [leader, follower] = tickets.map(|one| house.member(one));
    house.sync(&leader.member, 1, &[]);
    for _ in 0..REBALANCE / 5000 {
        assert_eq!(house.beat(&leader.member, 1), Ok(()));
        assert_eq!(house.beat(&follower.member, 1), Ok(()));
        house.pass(5000);
    }
    assert_eq!(house.beat(&follower.member, 1), Err(Refusal::UnknownMember));
    assert_eq!(house.beat(&leader.member, 1), Err(Refusal::Rebalancing));
}

#[test]
fn the_way_to_share_is_one_that_all_know_and_most_like_best() {
    let mut house = house();
    let knows = |client: &str, names: &[&str]| Joining {
        protocols: protocols(names, client),
        ..somebody(client)
    };
    let joined = house.stable(vec![
        knows("a", &["only", "range", "sticky"]),
        knows("b", &["sticky", "range"]),
        knows("c", &["sticky", "other", "range"]),
    ]);
    for one in &joined {
        assert_eq!(one.protocol.as_deref(), Some("sticky"));
    }
    let said: Vec<&[u8]> = joined[0].members.iter().map(|one| &one.metadata[..]).collect();
    assert_eq!(said, [b"a", b"b", b"c"], "what they said for it");
    for (client, names, kind) in
        [("d", &["other"][..], "consumer"), ("e", &["range"], "connect"), ("f", &[], "consumer")]
    {
        let ticket = house.join(Joining { protocol_type: kind.into(), ..knows(client, names) });
        assert_eq!(house.refused(ticket), Refusal::InconsistentProtocol);
    }
    assert_eq!(house.phase(), Some(Phase::Stable), "nobody was disturbed");
}

#[test]
fn joining_again_without_news_disturbs_nobody_unless_the_leader_does() {
    let mut house = house();
    let joined = house.stable(vec![somebody("a"), somebody("b")]);
    let [leader, follower] = [&joined[0], &joined[1]];
    let again = house.again(&follower.member, somebody("b"));
    let same = house.member(again);
    assert_eq!((same.generation, same.members.len()), (1, 0));
    assert_eq!(house.phase(), Some(Phase::Stable));
    let ticket = house.sync(&follower.member, 1, &[]);
    assert_eq!(house.share(ticket), "part 1");
    let news = Joining { protocols: protocols(&["range"], "news"), ..somebody("b") };
    house.again(&follower.member, news);
    assert_eq!(house.phase(), Some(Phase::Preparing), "a changed subscription does");
    let again = house.again(&leader.member, somebody("a"));
    let next = house.member(again);
    assert_eq!((next.generation, next.members.len()), (2, 2));
    house.answers.clear();
    house.sync(&leader.member, 2, &[]);
    let ticket = house.sync(&follower.member, 2, &[]);
    assert_eq!(house.share(ticket), "", "it was given nothing");
    house.again(&leader.member, somebody("a"));
    assert_eq!(house.phase(), Some(Phase::Preparing), "the leader wants to share out anew");
}

#[test]
fn the_last_to_leave_takes_the_group_along() {
    let mut house = house();
    let joined = house.stable(vec![somebody("a"), somebody("b")]);
    house.leave(&id(&joined[0].member)).unwrap();
    assert_eq!(house.leave(&id(&joined[0].member)), Err(Refusal::UnknownMember));
    let waits = house.again(&joined[1].member, somebody("b"));
    assert_eq!(house.member(waits).leader, joined[1].member);
    house.leave(&id(&joined[1].member)).unwrap();
    house.is_vacant();
    assert_eq!(house.beat(&joined[1].member, 2), Err(Refusal::UnknownMember));
}

#[test]
fn whoever_hangs_up_while_waiting_is_missed_after_its_session() {
    let mut house = house();
    let leader = house.stable(vec![somebody("a")]).remove(0);
    let second = house.join(somebody("b"));
    let now = house.at();
    house.machine.abandon(now, &name(), second, &mut house.answers);
    let again = house.again(&leader.member, somebody("a"));
    assert_eq!(house.joined(again), None, "it may come back");
    house.pass(SESSION);
    assert_eq!(house.member(again).members.len(), 1);
    assert_eq!(house.joined(second), None, "nobody is there to be told");
}

#[test]
fn a_commit_counts_from_members_of_the_generation_and_from_loners() {
    let mut house = house();
    assert_eq!(house.commit("", -1), Ok(()), "somebody without a group");
    assert_eq!(house.commit("a-1", 3), Err(Refusal::IllegalGeneration), "after a restart");
    let ticket = house.join(somebody("a"));
    house.pass(5000);
    let joined = house.member(ticket);
    assert_eq!(house.commit(&joined.member, 1), Err(Refusal::Rebalancing), "before its share");
    house.share_out(std::slice::from_ref(&joined));
    assert_eq!(house.commit(&joined.member, 1), Ok(()));
    assert_eq!(house.commit(&joined.member, 2), Err(Refusal::IllegalGeneration));
    assert_eq!(house.commit("", -1), Err(Refusal::UnknownMember), "members are at it");
    house.pass(SESSION - 1);
    assert_eq!(house.commit(&joined.member, 1), Ok(()));
    house.pass(SESSION - 1);
    assert_eq!(house.beat(&joined.member, 1), Ok(()), "a commit is a sign of life");
}

#[test]
fn a_sync_must_fit_the_generation_and_what_was_chosen() {
    let mut house = house();
    let joined = house.stable(vec![somebody("a")]).remove(0);
    let mut ask = |who: &Arc<str>, generation, protocol: &str, kind: &str| {
        let (ticket, now) = (house.ticket(), house.at());
        let syncing = Syncing {
            group: name(),
            who: id(who),
            generation,
            protocol_type: Some(kind.into()),
            protocol: Some(protocol.into()),
            shares: Vec::new(),
        };
        house.machine.sync(now, ticket, syncing, &mut house.answers);
        house.synced(ticket).unwrap().map(|synced| synced.share)
    };
    let member = &joined.member;
    assert_eq!(ask(member, 1, "range", "consumer"), Ok("part 0".into()));
    for (generation, protocol, kind, refusal) in [
        (2, "range", "consumer", Refusal::IllegalGeneration),
        (0, "range", "consumer", Refusal::IllegalGeneration),
        (1, "sticky", "consumer", Refusal::InconsistentProtocol),
        (1, "range", "connect", Refusal::InconsistentProtocol),
    ] {
        assert_eq!(ask(member, generation, protocol, kind), Err(refusal));
    }
    assert_eq!(ask(&"x".into(), 1, "range", "consumer"), Err(Refusal::UnknownMember));
}

#[test]
fn nothing_is_let_in_past_the_bounds() {
    let bounds =
        Bounds { groups: 2, members: 2, group_bytes: 20_000, bytes: 30_000, ..Bounds::default() };
    let mut house = House::new(bounds);
    for session in [0, 999, 30 * 60_000 + 1] {
        let ticket = house.join(Joining { session: Span::from_millis(session), ..somebody("a") });
        assert_eq!(house.refused(ticket), Refusal::InvalidSession);
    }
    house.is_vacant();
    let big = |said: usize| Joining {
        protocols: protocols(&["range"], &"x".repeat(said)),
        ..somebody("a")
    };
    let ticket = house.join(big(40_000));
    assert_eq!(house.refused(ticket), Refusal::NotNow);
    let joined = house.stable(vec![somebody("a"), somebody("b")]);
    let third = house.join(somebody("c"));
    assert_eq!(house.refused(third), Refusal::Full);
    house.leave(&id(&joined[1].member)).unwrap();
    let ticket = house.join(big(20_000));
    assert_eq!(house.refused(ticket), Refusal::Full, "too much to say");
    let again = house.again(&joined[0].member, somebody("a"));
    let leader = house.member(again);
    let ticket = house.sync(&leader.member, 2, &[(&leader.member, &"x".repeat(20_000))]);
    assert_eq!(house.synced(ticket), Some(Err(Refusal::TooLarge)));
    for (group, refusal) in [("second", None), ("third", Some(Refusal::NotNow))] {
        let group = GroupName::new(group).unwrap();
        let ticket = house.join(Joining { group, ..somebody("a") });
        assert_eq!(house.joined(ticket).map(|answer| answer.unwrap_err().0), refusal, "{ticket:?}");
    }
    assert!(house.machine.bytes() < 10_000, "{}", house.machine.bytes());
}
