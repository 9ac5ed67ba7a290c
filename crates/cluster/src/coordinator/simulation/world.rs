//! Nodes and a service in simulated time: every call, every answer and every moment at which a node
//! gets to run is chosen here, by dice that the seed decides.
//!
//! After each step it is checked that no two nodes believe that they hold a slot, that nobody
//! believes in a term after another node has had a higher one, and that terms grow.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::ports::Coordinator;
use punctual_model::{Timestamp, VirtualClock};
use tokio::sync::oneshot;

use super::super::assignment::Name;
use super::super::lease::{Moment, Timing};
use super::super::node::Life;
use super::super::registry::{Changes, Registry, Revision, Session, Snapshot, Trouble};
use super::super::seat::Seat;
use super::service::{Call, Changed, Reply, Service};

pub(super) const LEASE: Duration = Duration::from_secs(9);
pub(super) const DELAY: Duration = Duration::from_secs(1);

/// How long a node waits for an answer.
const CALL_TIMEOUT: Duration = Duration::from_millis(1500);

/// Numbers that a seed decides.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    /// Whether one of `sides` came up.
    pub(super) fn hits(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap()
    }
}

/// A call under way.
struct Request {
    node: usize,
    session: Option<u64>,
    call: Option<Call>,
    answer: Option<Result<Reply, Trouble>>,
    reply: Option<oneshot::Sender<Result<Reply, Trouble>>>,
    sent: Duration,
}

/// What nodes and world share.
struct Net {
    now: Duration,
    service: Service,
    requests: Vec<Request>,
    /// Every how many reads one comes from the past; 0 for none.
    stale: u64,
    dice: Dice,
}

type SharedNet = Arc<Mutex<Net>>;

/// A node's clock: it does not run quite as fast as those of others.
struct DriftingTiming {
    net: SharedNet,
    per_mille: u32,
}

fn drifted(now: Duration, per_mille: u32) -> Moment {
    Moment(now * per_mille / 1000)
}

impl Timing for DriftingTiming {
    fn now(&self) -> Moment {
        drifted(self.net.lock().now, self.per_mille)
    }

    fn wait_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (net, per_mille) = (self.net.clone(), self.per_mille);
        Box::pin(std::future::poll_fn(move |_| {
            if drifted(net.lock().now, per_mille) >= moment {
                std::task::Poll::Ready(())
            } else {
                // Every node is polled after every step.
                std::task::Poll::Pending
            }
        }))
    }
}

/// A node's way to the service.
struct Line {
    net: SharedNet,
    node: usize,
}

/// A node's session.
struct SimSession {
    line: Line,
    id: u64,
    changes: Changed,
}

impl Line {
    async fn call(&self, session: Option<u64>, call: Call) -> Result<Reply, Trouble> {
        let (reply, answer) = oneshot::channel();
        {
            let mut net = self.net.lock();
            let (sent, node) = (net.now, self.node);
            let (call, reply) = (Some(call), Some(reply));
            net.requests.push(Request { node, session, call, answer: None, reply, sent });
        }
        answer.await.unwrap_or_else(|_| Err(Trouble::Unavailable("lost".into())))
    }
}

impl Registry for Line {
    type Session = SimSession;

    async fn register(&self, name: Name, about: Bytes) -> Result<SimSession, Trouble> {
        let changes = Changed(Arc::new(Changes::default()));
        let call = Call::Register { name, about, changes: changes.clone() };
        let Reply::Registered(id) = self.call(None, call).await? else { unreachable!() };
        let line = Line { net: self.net.clone(), node: self.node };
        Ok(SimSession { line, id, changes })
    }
}

impl SimSession {
    async fn done(&self, call: Call) -> Result<(), Trouble> {
        self.line.call(Some(self.id), call).await.map(drop)
    }
}

impl Session for SimSession {
    fn lease(&self) -> Duration {
        LEASE
    }

    async fn renew(&self) -> Result<(), Trouble> {
        self.done(Call::Renew).await
    }

    async fn read(&self, known: Option<Revision>) -> Result<Snapshot, Trouble> {
        let age = {
            let mut net = self.line.net.lock();
            let stale = net.stale;
            if stale > 0 && net.dice.hits(stale) {
                [net.dice.pick(8), net.dice.pick(8)]
            } else {
                [0, 0]
            }
        };
        match self.line.call(Some(self.id), Call::Read { known, age }).await? {
            Reply::Read(snapshot) => Ok(snapshot),
            other => unreachable!("{other:?}"),
        }
    }

    async fn lead(&self) -> Result<(), Trouble> {
        self.done(Call::Lead).await
    }

    async fn write(&self, expected: Option<Revision>, document: Bytes) -> Result<bool, Trouble> {
        match self.line.call(Some(self.id), Call::Write { expected, document }).await? {
            Reply::Written(written) => Ok(written),
            other => unreachable!("{other:?}"),
        }
    }

    async fn say(&self, word: Bytes) -> Result<(), Trouble> {
        self.done(Call::Say(word)).await
    }

    async fn ask(&self, slots: u32) -> Result<(), Trouble> {
        self.done(Call::Ask(slots)).await
    }

    async fn changed(&self, leading: bool) {
        self.changes.0.wait(leading).await;
    }

    async fn end(&self) {
        let _ended = self.done(Call::End).await;
    }
}

/// A node.
pub(super) struct SimNode {
    pub(super) seat: Arc<Seat>,
    /// `None` once it was killed or has left.
    life: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) paused_until: Duration,
    /// Whether the service cannot be reached from it.
    pub(super) cut_off: bool,
    /// Whether it lets go of what it is to let go of.
    pub(super) obliging: bool,
}

impl SimNode {
    pub(super) fn lives(&self) -> bool {
        self.life.is_some()
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.seat.with_member(|member| member.name().clone())
    }

    /// The slots that the node believes to hold.
    pub(super) fn certain(&self) -> Vec<(u32, u64)> {
        if !self.lives() || !self.seat.is_certain() {
            return Vec::new();
        }
        self.seat.holding().slots.iter().map(|held| (held.slot, held.term)).collect()
    }
}

/// Everything.
pub(super) struct World {
    net: SharedNet,
    pub(super) nodes: Vec<SimNode>,
    pub(super) dice: Dice,
    /// Whether the service does not answer.
    pub(super) down: bool,
    /// Whether calls take their time and sessions end late.
    pub(super) rough: bool,
    slots: u32,
    /// The highest term that was seen of each slot, and whose it was.
    terms: BTreeMap<u32, (u64, Name)>,
    /// How often a slot was seen to change hands.
    pub(super) moves: usize,
}

impl World {
    pub(super) fn new(seed: u64, slots: u32) -> Self {
        let dice = Dice::new(seed);
        let (now, service) = (Duration::from_secs(1000), Service::new(LEASE));
        let net = Net { now, service, requests: Vec::new(), stale: 0, dice: dice.clone() };
        let net = Arc::new(Mutex::new(net));
        let (nodes, terms) = (Vec::new(), BTreeMap::new());
        Self { net, nodes, dice, down: false, rough: false, slots, terms, moves: 0 }
    }

    /// Makes calls slow, sessions end late and one in four reads come from the past.
    pub(super) fn roughen(&mut self, rough: bool) {
        self.rough = rough;
        self.net.lock().stale = if rough { 4 } else { 0 };
    }

    /// Starts one more node.
    pub(super) fn start(&mut self) -> usize {
        let node = self.nodes.len();
        let per_mille = 980 + u32::try_from(self.dice.roll(41)).unwrap();
        let timing = DriftingTiming { net: self.net.clone(), per_mille };
        let (seat, asks) = Seat::new(Arc::new(timing));
        let start = Timestamp::from_millis_saturating(1_800_000_000_000);
        let life = Life {
            seat: seat.clone(),
            registry: Line { net: self.net.clone(), node },
            clock: Arc::new(VirtualClock::new(start)),
            address: format!("http://node-{node}"),
            version: "1".into(),
            slots: self.slots,
            rebalance_delay: DELAY,
            asks,
        };
        let count = AtomicU64::new(0);
        let names = move || format!("n{node}-{}", count.fetch_add(1, Ordering::SeqCst)).into();
        self.nodes.push(SimNode {
            seat,
            life: Some(Box::pin(life.run(names))),
            paused_until: Duration::ZERO,
            cut_off: false,
            obliging: true,
        });
        node
    }

    pub(super) fn now(&self) -> Duration {
        self.net.lock().now
    }

    /// Ends a node without a word. What it has sent is still under way.
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].life = None;
    }

    /// Starts the service again.
    pub(super) fn restart_service(&mut self) {
        self.down = false;
        let mut net = self.net.lock();
        let now = net.now;
        net.service.restart(now);
    }

    /// The living node that leads.
    pub(super) fn leader(&self) -> Option<usize> {
        let leader = self.net.lock().service.leader()?;
        self.nodes.iter().position(|node| node.lives() && node.name().as_ref() == Some(&leader))
    }

    /// Lets time pass.
    pub(super) fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while self.now() < end {
            let most = if self.rough { 40 } else { 20 };
            let step = Duration::from_millis(1 + self.dice.roll(most));
            self.net.lock().now += step;
            self.step();
        }
    }

    /// Lets time pass until something is so; it has to be within the span.
    pub(super) fn run_until(&mut self, span: Duration, what: &str, so: impl Fn(&Self) -> bool) {
        let end = self.now() + span;
        while !so(self) {
            assert!(self.now() < end, "{what}: not within {span:?}");
            self.run_for(Duration::from_millis(1));
        }
    }

    fn step(&mut self) {
        self.carry_requests();
        let now = self.now();
        let mut context = Context::from_waker(std::task::Waker::noop());
        for node in &mut self.nodes {
            if node.paused_until > now {
                continue;
            }
            let over =
                node.life.as_mut().is_some_and(|life| life.as_mut().poll(&mut context).is_ready());
            if over {
                node.life = None;
            }
        }
        self.let_go();
        self.check();
    }

    /// Moves calls and answers along.
    fn carry_requests(&mut self) {
        let (rough, down) = (self.rough, self.down);
        let mut net = self.net.lock();
        let now = net.now;
        if !down {
            let dice = &mut self.dice;
            net.service.expire(now, || !rough || dice.hits(5));
        }
        let mut requests = std::mem::take(&mut net.requests);
        for _ in 0..requests.len() {
            // In any order.
            let last = requests.len() - 1;
            requests.swap(self.dice.pick(last + 1), last);
            let Some(mut request) = requests.pop() else { break };
            let reachable = !down && !self.nodes[request.node].cut_off;
            let moves = |dice: &mut Dice| reachable && (!rough || dice.hits(3));
            if request.call.is_some() && moves(&mut self.dice) {
                let call = request.call.take().unwrap();
                request.answer = Some(net.service.carry_out(now, request.session, call));
            }
            if request.answer.is_some() && moves(&mut self.dice) {
                let answer = request.answer.take().unwrap();
                // Nobody waits for it after a kill.
                let _sent = request.reply.take().map(|reply| reply.send(answer));
            }
            if request.reply.is_some() && now > request.sent + CALL_TIMEOUT {
                // The node gives up waiting; the call may be carried out all the same.
                request.reply = None;
                request.answer = None;
            }
            let lost = request.reply.is_none() && self.dice.hits(8);
            if request.call.is_some() && !lost || request.answer.is_some() {
                net.requests.push(request);
            }
        }
    }

    /// Nodes let go of what they are to let go of, sooner or later.
    fn let_go(&mut self) {
        let now = self.now();
        for node in &self.nodes {
            if !node.lives() || node.paused_until > now || !node.obliging {
                continue;
            }
            for held in &node.seat.holding().slots {
                if held.leaving && self.dice.hits(10) {
                    node.seat.released(held.slot, held.term);
                } else if held.retired && self.dice.hits(20) {
                    node.seat.drained(held.slot, held.term);
                }
            }
        }
    }

    fn check(&mut self) {
        let mut owners: BTreeMap<u32, Name> = BTreeMap::new();
        for node in &self.nodes {
            let Some(name) = node.name() else { continue };
            for (slot, term) in node.certain() {
                if let Some(other) = owners.insert(slot, name.clone()) {
                    panic!("{other} and {name} both hold slot {slot}");
                }
                let (last, owner) = self.terms.get(&slot).cloned().unwrap_or((0, name.clone()));
                assert!(term >= last, "{name} holds slot {slot} with {term} after {last}");
                assert!(term > last || owner == name, "{name} and {owner} had {slot} in {term}");
                if term > last {
                    self.moves += 1;
                    self.terms.insert(slot, (term, name.clone()));
                }
            }
        }
    }

    /// How many slots each living node is certain of.
    pub(super) fn shares(&self) -> Vec<usize> {
        self.nodes.iter().filter(|node| node.lives()).map(|node| node.certain().len()).collect()
    }

    /// Whether all slots are held, evenly, and nothing is on its way.
    pub(super) fn is_at_rest(&self, slots: usize) -> bool {
        let shares = self.shares();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        let even = most.zip(least).is_some_and(|(most, least)| most - least <= 1);
        let moving =
            self.nodes.iter().filter(|node| node.lives()).any(|node| {
                node.seat.holding().slots.iter().any(|held| held.leaving || held.retired)
            });
        even && !moving && shares.iter().sum::<usize>() == slots
    }
}
