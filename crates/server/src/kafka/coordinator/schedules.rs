//! Random histories of a group, with clients that behave as clients do, and crash as they do.
//!
//! What must hold in all of them: every call is answered once; a member's share is the one that its
//! leader gave it in that generation; a generation has one leader; when the clients that are left
//! behave, all of them end up in one generation, which has everything shared out; and when they are
//! gone nothing is left of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::{GroupName, Span, Timestamp};

use super::machine::{Bounds, Machine};
use super::terms::{
    Effect, Identity, JoinAnswer, Joining, Protocol, Refusal, SyncAnswer, Syncing, Ticket,
};

const CLIENTS: usize = 5;
const PARTITIONS: u8 = 12;
const STEPS: usize = 250;
const SEEDS: u64 = 400;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

#[derive(Clone, Debug, PartialEq)]
enum At {
    Off,
    Out,
    Joining(Ticket),
    Joined { generation: i32, leader: bool, members: Vec<Arc<str>> },
    Syncing { ticket: Ticket, generation: i32 },
    Member { generation: i32, share: Vec<u8> },
}

struct Client {
    at: At,
    member: Option<Arc<str>>,
    instance: Option<Arc<str>>,
    twice: bool,
    said: u8,
}

struct World {
    seed: u64,
    machine: Machine,
    now: u64,
    tickets: u64,
    dice: Dice,
    clients: Vec<Client>,
    /// Whose answer is awaited.
    waiting: BTreeMap<Ticket, usize>,
    /// What the leader of a generation gave to whom.
    given: BTreeMap<i32, BTreeMap<Arc<str>, Vec<u8>>>,
    leaders: BTreeMap<i32, Arc<str>>,
    generations: u32,
}

fn share_out(members: &[Arc<str>]) -> BTreeMap<Arc<str>, Vec<u8>> {
    let mut shares: BTreeMap<Arc<str>, Vec<u8>> = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let member = &members[usize::from(partition) % members.len()];
        shares.entry(Arc::clone(member)).or_default().push(partition);
    }
    shares
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let clients = (0..CLIENTS).map(|number| Client {
            at: At::Off,
            member: None,
            instance: (number % 3 == 2).then(|| format!("instance-{number}").into()),
            twice: number % 2 == 0,
            said: 0,
        });
        Self {
            seed,
            machine: Machine::new(Bounds::default(), Timestamp::MIN),
            now: 0,
            tickets: 0,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            clients: clients.collect(),
            waiting: BTreeMap::new(),
            given: BTreeMap::new(),
            leaders: BTreeMap::new(),
            generations: 0,
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now).unwrap()
    }

    fn who(&self, client: usize) -> Identity {
        let Client { member, instance, .. } = &self.clients[client];
        Identity { member: member.clone().unwrap_or_default(), instance: instance.clone() }
    }

    fn ticket(&mut self, client: usize) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.insert(ticket, client);
        ticket
    }

    fn join(&mut self, client: usize) {
        let ticket = self.ticket(client);
        let Client { member, instance, twice, said, .. } = &self.clients[client];
        let names: &[&str] = if client == 0 { &["range", "sticky"] } else { &["sticky", "range"] };
        let protocol = |name: &&str| Protocol {
            name: (*name).into(),
            metadata: Bytes::copy_from_slice(&[*said]),
        };
        let joining = Joining {
            group: group(),
            member: member.clone(),
            instance: instance.clone(),
            client_id: format!("c{client}").into(),
            client_host: "/127.0.0.1".into(),
            session: Span::from_millis(6000 + 1000 * client as u64),
            rebalance: Span::from_millis(20_000),
            protocol_type: "consumer".into(),
            protocols: names.iter().map(protocol).collect(),
            twice: *twice,
            can_skip: client.is_multiple_of(2),
            fresh: u128::from(ticket.0),
        };
        self.clients[client].at = At::Joining(ticket);
        let (now, mut out) = (self.time(), Vec::new());
        self.machine.join(now, ticket, joining, &mut out);
        self.heed(out);
    }

    fn sync(&mut self, client: usize, generation: i32, shares: BTreeMap<Arc<str>, Vec<u8>>) {
        let ticket = self.ticket(client);
        let share = |(member, share): (&Arc<str>, &Vec<u8>)| {
            (Arc::clone(member), Bytes::copy_from_slice(share))
        };
        let syncing = Syncing {
            group: group(),
            who: self.who(client),
            generation,
            protocol_type: Some("consumer".into()),
            protocol: None,
            shares: shares.iter().map(share).collect(),
        };
        self.clients[client].at = At::Syncing { ticket, generation };
        let (now, mut out) = (self.time(), Vec::new());
        self.machine.sync(now, ticket, syncing, &mut out);
        let taken = |effect: &Effect| matches!(effect, Effect::Synced(of, Ok(_)) if *of == ticket);
        if !shares.is_empty() && out.iter().any(taken) {
            // Only the first to share out in a generation counts.
            self.given.entry(generation).or_insert(shares);
        }
        self.heed(out);
    }

    fn heed(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let (Effect::Joined(ticket, _) | Effect::Synced(ticket, _)) = &effect;
            let Some(client) = self.waiting.remove(ticket) else {
                panic!("seed {}: {effect:?} answers nobody", self.seed);
            };
            let at = self.clients[client].at.clone();
            match effect {
                Effect::Joined(ticket, answer) => {
                    assert_eq!(at, At::Joining(ticket), "seed {}", self.seed);
                    self.joined(client, answer);
                }
                Effect::Synced(ticket, answer) => {
                    let At::Syncing { ticket: awaited, generation } = at else {
                        panic!("seed {}: a share nobody asked for", self.seed);
                    };
                    assert_eq!(awaited, ticket, "seed {}", self.seed);
                    self.synced(client, generation, answer);
                }
            }
        }
    }

    fn joined(&mut self, client: usize, answer: JoinAnswer) {
        match answer {
            Ok(joined) => {
                let leader = joined.leader == joined.member;
                assert_eq!(leader, !joined.members.is_empty(), "seed {}", self.seed);
                if leader {
                    let before = self.leaders.insert(joined.generation, joined.member.clone());
                    let same = |before: Arc<str>| joined.skip || before == joined.member;
                    assert!(before.is_none_or(same), "seed {}: two leaders", self.seed);
                }
                self.generations += 1;
                let members = joined.members.into_iter().map(|peer| peer.member).collect();
                self.clients[client].member = Some(joined.member);
                let leader = leader && !joined.skip;
                self.clients[client].at =
                    At::Joined { generation: joined.generation, leader, members };
            }
            Err((Refusal::ComeBack, member)) => {
                self.clients[client].member = Some(member);
                self.clients[client].at = At::Out;
            }
            Err((Refusal::UnknownMember | Refusal::Fenced, _)) => {
                self.clients[client].member = None;
                self.clients[client].at = At::Out;
            }
            Err((Refusal::Rebalancing, _)) => self.clients[client].at = At::Out,
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn synced(&mut self, client: usize, generation: i32, answer: SyncAnswer) {
        match answer {
            Ok(synced) => {
                let given = &self.given[&generation];
                let share = synced.share.to_vec();
                let expected = self.clients[client].member.as_ref().and_then(|id| given.get(id));
                // An instance that came back has the share of its old self, whose id nobody knows.
                if self.clients[client].instance.is_none() {
                    let expected = expected.cloned().unwrap_or_default();
                    assert_eq!(share, expected, "seed {}, generation {generation}", self.seed);
                } else {
                    let one = given.values().any(|given| *given == share);
                    assert!(one || share.is_empty(), "seed {}", self.seed);
                }
                self.clients[client].at = At::Member { generation, share };
            }
            Err(Refusal::UnknownMember | Refusal::Fenced) => {
                self.clients[client].member = None;
                self.clients[client].at = At::Out;
            }
            Err(Refusal::Rebalancing | Refusal::IllegalGeneration) => {
                self.clients[client].at = At::Out;
            }
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// The client does what it would do next.
    fn go_on(&mut self, client: usize) {
        match self.clients[client].at.clone() {
            At::Off | At::Joining(_) | At::Syncing { .. } => {}
            At::Out => self.join(client),
            At::Joined { generation, leader, members } => {
                let shares = if leader { share_out(&members) } else { BTreeMap::new() };
                self.sync(client, generation, shares);
            }
            At::Member { generation, .. } => self.beat(client, generation),
        }
    }

    fn beat(&mut self, client: usize, generation: i32) {
        let (now, who) = (self.time(), self.who(client));
        match self.machine.heartbeat(now, &group(), (&who, generation)) {
            Ok(()) => {}
            Err(Refusal::UnknownMember | Refusal::Fenced) => {
                self.clients[client].member = None;
                self.clients[client].at = At::Out;
            }
            Err(_) => self.clients[client].at = At::Out,
        }
    }

    /// The process ends; the connection with it, or nobody hears of it.
    fn crash(&mut self, client: usize) {
        let at = std::mem::replace(&mut self.clients[client].at, At::Off);
        self.clients[client].member = None;
        if let At::Joining(ticket) | At::Syncing { ticket, .. } = at {
            self.waiting.remove(&ticket);
            let (now, mut out) = (self.time(), Vec::new());
            self.machine.abandon(now, &group(), ticket, &mut out);
            self.heed(out);
        }
    }

    fn leave(&mut self, client: usize) {
        if matches!(self.clients[client].at, At::Joining(_) | At::Syncing { .. }) {
            return;
        }
        let (now, who, mut out) = (self.time(), self.who(client), Vec::new());
        let _left = self.machine.leave(now, &group(), &who, &mut out);
        self.heed(out);
        self.clients[client].member = None;
        self.clients[client].at = At::Off;
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some(due) = self.machine.next_due().filter(|due| due.as_millis() <= end) {
            self.now = self.now.max(due.as_millis());
            let (now, mut out) = (self.time(), Vec::new());
            self.machine.advance(now, &mut out);
            self.heed(out);
        }
        self.now = end;
    }

    /// A group that comes after this one is gone counts its generations anew.
    fn look(&mut self) {
        if self.machine.shown(&group()).is_none() {
            self.given.clear();
            self.leaders.clear();
        }
    }

    fn step(&mut self) {
        let client = self.dice.below(CLIENTS as u64);
        let client = usize::try_from(client).unwrap();
        match self.dice.below(20) {
            0 => self.crash(client),
            1 => self.leave(client),
            2 | 3 => self.clients[client].said = self.clients[client].said.wrapping_add(1),
            4..=7 => {
                let most = if self.dice.percent(10) { 25_000 } else { 900 };
                let millis = self.dice.below(most);
                self.pass(millis);
            }
            _ if self.clients[client].at == At::Off => self.clients[client].at = At::Out,
            8 => {
                // It wants to share anew, or has new subscriptions.
                if matches!(self.clients[client].at, At::Member { .. }) {
                    self.join(client);
                }
            }
            _ => self.go_on(client),
        }
    }

    /// From now on everybody behaves; sooner or later all are in one generation.
    fn settle(&mut self) {
        for _ in 0..100 {
            for client in 0..CLIENTS {
                for _ in 0..3 {
                    self.go_on(client);
                }
            }
            self.pass(1000);
        }
        let on = self.clients.iter().filter(|client| client.at != At::Off);
        let mut generations = BTreeSet::new();
        let mut partitions = Vec::new();
        for client in on {
            let At::Member { generation, share } = &client.at else {
                panic!("seed {}: stuck as {:?}", self.seed, client.at);
            };
            generations.insert(*generation);
            partitions.extend_from_slice(share);
        }
        assert!(self.waiting.is_empty(), "seed {}", self.seed);
        assert!(generations.len() <= 1, "seed {}: {generations:?}", self.seed);
        if !generations.is_empty() {
            partitions.sort_unstable();
            let all: Vec<u8> = (0..PARTITIONS).collect();
            assert_eq!(partitions, all, "seed {}: everything, and nothing twice", self.seed);
        }
    }
}

#[test]
fn whatever_happens_everybody_is_answered_and_everything_is_shared_out_once() {
    let mut generations = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            world.look();
        }
        world.settle();
        generations += world.generations;
        for client in 0..CLIENTS {
            if world.dice.percent(50) { world.leave(client) } else { world.crash(client) }
        }
        world.pass(10 * 60_000);
        assert_eq!(world.machine.bytes(), 0, "seed {seed}: memory is left");
        assert_eq!(world.machine.next_due(), None, "seed {seed}: an alarm is left");
        assert!(world.machine.list().is_empty(), "seed {seed}: a group is left");
    }
    assert!(generations > 1000, "the histories must be worth it: {generations}");
}
