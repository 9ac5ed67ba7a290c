//! Owners come, go and do not notice; the store fails; calls cross. Whatever the order: what was
//! accepted is delivered, what was cancelled is not, and nothing is early.

#![expect(clippy::unwrap_used, reason = "a case that fails panics")]

mod timeline_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use punctual_cluster::store::memory::{Call, Fault, Memory};
use punctual_cluster::store::{Slot, SlotStore};
use punctual_cluster::timeline::SlotTimeline;
use punctual_model::ports::{Armed, CancelOutcome, Coordinator, Timeline};
use punctual_model::{Clock, Lane, MessageId, Span};
use punctual_testkit::ManualClock;
use tokio::runtime::{Handle, Runtime};

use timeline_support::{PLENTY, START, Script, entry, options, within};

const SLOT: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Schedule(u64),
    Cancel(usize),
    /// A node, an owner or not, arms, claims and sends what is due.
    Fire(usize),
    /// A node says what it has sent.
    Settle(usize),
    /// The next node has the slot; the one before is not told.
    TakeOver,
    /// Everybody learns who has the slot.
    Tell,
    Pass(u64),
    Fail(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4000u64).prop_map(Step::Schedule),
        3 => any::<usize>().prop_map(Step::Cancel),
        5 => (0..3usize).prop_map(Step::Fire),
        3 => (0..3usize).prop_map(Step::Settle),
        1 => Just(Step::TakeOver),
        1 => Just(Step::Tell),
        3 => (1..1500u64).prop_map(Step::Pass),
        1 => (0..3u8).prop_map(Step::Fail),
    ]
}

struct Node {
    timeline: SlotTimeline<Memory>,
    script: Arc<Script>,
    sent: Vec<Armed>,
}

struct World {
    store: Memory,
    clock: ManualClock,
    nodes: Vec<Node>,
    owner: usize,
    term: u64,
    given: Vec<MessageId>,
    cancelled: BTreeSet<MessageId>,
    /// Nobody knows whether these were cancelled.
    maybe: BTreeSet<MessageId>,
    delivered: BTreeMap<MessageId, usize>,
}

impl World {
    async fn new() -> Self {
        let (store, clock) = (Memory::default(), ManualClock::new(START));
        let mut nodes = Vec::new();
        for number in 0..3 {
            let slots: &[(u32, u64)] = if number == 0 { &[(SLOT, 1)] } else { &[] };
            nodes.push(node(&store, &clock, slots).await);
        }
        let (cancelled, maybe, delivered) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (owner, term, given) = (0, 1, Vec::new());
        Self { store, clock, nodes, owner, term, given, cancelled, maybe, delivered }
    }

    fn now(&self) -> u64 {
        self.clock.now().since(START).as_millis()
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Schedule(delay) => {
                let sent = vec![entry(self.now() + delay, "x")];
                // Refused may mean stored all the same; then nobody knows its id.
                if let Ok(ids) = self.nodes[self.owner].timeline.schedule(sent).await {
                    self.given.extend(ids);
                }
            }
            Step::Cancel(which) if !self.given.is_empty() => {
                let id = self.given[which % self.given.len()];
                let outcome = self.nodes[self.owner].timeline.cancel(vec![id]).await;
                let gone = [CancelOutcome::Cancelled, CancelOutcome::AlreadyCancelled];
                match outcome {
                    Ok(outcome) if gone.contains(&outcome[0]) => {
                        self.cancelled.insert(id);
                    }
                    Ok(_) => {}
                    Err(_) => {
                        self.maybe.insert(id);
                    }
                }
            }
            Step::Cancel(_) => {}
            Step::Fire(node) => self.fire(node).await,
            Step::Settle(node) => self.settle(node).await,
            Step::TakeOver => {
                self.owner = (self.owner + 1) % self.nodes.len();
                self.term += 1;
                let slots = [(SLOT, self.term)];
                self.nodes[self.owner] = node(&self.store, &self.clock, &slots).await;
            }
            Step::Tell => {
                for (number, node) in self.nodes.iter().enumerate() {
                    if number != self.owner {
                        node.script.assign(&[]);
                    }
                }
            }
            Step::Pass(millis) => self.clock.advance(Span::from_millis(millis)),
            Step::Fail(which) => {
                let faults = [Fault::Unavailable, Fault::UnsureDone, Fault::UnsureNotDone];
                self.store.fail_next(Call::Apply, faults[usize::from(which)], 1);
            }
        }
    }

    async fn fire(&mut self, number: usize) {
        let until = self.clock.now().saturating_add(Span::from_millis(1));
        let node = &mut self.nodes[number];
        let mut batch = node.timeline.arm(Lane::Message, until, PLENTY).await.unwrap();
        assert!(batch.iter().all(|armed| armed.key.due < until), "nothing is early");
        if node.timeline.claim(&mut batch).await.is_ok() {
            for armed in &batch {
                *self.delivered.entry(armed.id()).or_default() += 1;
            }
            node.sent.extend(batch);
        }
    }

    async fn settle(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.timeline.settle(&node.sent).await.is_ok() {
            node.sent.clear();
        }
    }

    /// Everything comes to its end.
    async fn end(&mut self) {
        self.step(Step::Tell).await;
        self.clock.advance(Span::from_secs(20));
        within(async {
            while !self.store.is_empty(Slot(3)).await.unwrap() {
                self.fire(self.owner).await;
                self.settle(self.owner).await;
            }
        })
        .await;
    }
}

async fn node(store: &Memory, clock: &ManualClock, slots: &[(u32, u64)]) -> Node {
    let script = Script::new(slots);
    let coordinator = Arc::clone(&script) as Arc<dyn Coordinator>;
    let clock = Arc::new(clock.clone()) as Arc<dyn Clock>;
    let store = Arc::new(store.clone());
    let timeline = SlotTimeline::new(store, coordinator, clock, Handle::current(), options());
    within(timeline.ready()).await;
    Node { timeline, script, sent: Vec::new() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_and_nothing_cancelled_is_delivered(
        steps in proptest::collection::vec(any_step(), 10..60),
    ) {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in steps {
                world.step(step).await;
            }
            world.end().await;
            for id in &world.given {
                let times = world.delivered.get(id).copied().unwrap_or(0);
                if world.cancelled.contains(id) {
                    prop_assert_eq!(times, 0, "a cancelled message was delivered");
                } else if !world.maybe.contains(id) {
                    prop_assert!(times > 0, "a message was lost");
                    prop_assert!(times == 1 || world.term > 1, "delivered twice by one owner");
                }
            }
            Ok(())
        })?;
    }
}
