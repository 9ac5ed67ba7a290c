//! A broker in one thread on a clock moved by hand: what fires is compared with what may fire.
//!
//! Every delivery is held to the same rules: nothing before its due time on the clock it was
//! measured with, nothing twice, and in one go in the order of (due, sequence) within a partition.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use punctual_broker::deliver::Delivery;
use punctual_broker::fire::Firing;
use punctual_broker::time::{BrokerTime, Now};
use punctual_model::ports::{CancelOutcome, LogPosition, Outlet, Timeline, Topics};
use punctual_model::{
    Basis, Entry, Lane, Message, MessageId, Partition, Span, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::ManualClock;

/// A small generator of numbers that are the same everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Steps in which everything due at one moment must have fired.
const STEPS_MAX: usize = 1000;

/// A store, a clock and what brings messages to their moment.
pub(crate) struct Stage<S> {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<S>,
    pub(crate) time: Arc<BrokerTime>,
    firing: Firing<S, S>,
    topic: TopicId,
    partitions: u16,
    /// Accepted, neither delivered nor cancelled.
    pub(crate) waiting: BTreeMap<MessageId, Basis>,
    /// How much of each partition's log was looked at.
    seen: Vec<u64>,
}

impl<S: Timeline + Outlet + Topics> Stage<S> {
    /// Sets the stage on a store, which may hold messages already.
    pub(crate) fn new(store: Arc<S>, clock: ManualClock, partitions: u16) -> Self {
        let name = TopicName::new("stage").expect("a legal name");
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        let topic = store.put(&name, settings).expect("a working store makes topics").id;
        let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
        let delivery = Delivery::new(
            Arc::clone(&store),
            Arc::clone(&store),
            Arc::clone(&time),
            Arc::default(),
        );
        let firing = Firing::new(Lane::Message, delivery);
        let waiting = BTreeMap::new();
        let mut stage =
            Self { clock, store, time, firing, topic, partitions, waiting, seen: Vec::new() };
        stage.seen = (0..partitions).map(|number| stage.log_end(number)).collect();
        stage
    }

    /// Leaves the stage: the store is closed, if nobody else has it. Answers what waits in it.
    pub(crate) fn leave(self) -> (ManualClock, BTreeMap<MessageId, Basis>) {
        (self.clock, self.waiting)
    }

    pub(crate) fn now(&self) -> Now {
        self.time.read()
    }

    /// Schedules a message after a delay.
    pub(crate) fn delay(&mut self, delay: Span) -> MessageId {
        let due = self.now().timestamp_up().saturating_add(delay);
        self.accept(due, Basis::Delay)
    }

    /// Schedules a message for a date.
    pub(crate) fn date(&mut self, due: Timestamp) -> MessageId {
        self.accept(due, Basis::Date)
    }

    fn accept(&mut self, due: Timestamp, basis: Basis) -> MessageId {
        let number = u16::try_from(self.waiting.len() % usize::from(self.partitions));
        let partition = number.ok().and_then(Partition::new).expect("one of the partitions");
        let entry = Entry {
            topic: self.topic,
            partition,
            due,
            basis,
            message: Message::default(),
            extra: None,
        };
        let ids = block_on(self.store.schedule(vec![entry])).expect("a working store accepts");
        let id = ids[0];
        assert_eq!(id.key.due, due);
        assert!(self.waiting.insert(id, basis).is_none(), "{id} was given before");
        id
    }

    pub(crate) fn cancel(&mut self, id: MessageId) -> CancelOutcome {
        let outcomes = block_on(self.store.cancel(vec![id])).expect("a working store cancels");
        if outcomes[0] == CancelOutcome::Cancelled {
            assert!(self.waiting.remove(&id).is_some(), "{id} was cancelled after its end");
        }
        outcomes[0]
    }

    /// Fires what is due now. Answers it in the order of the logs, and how long nothing is to do.
    pub(crate) fn fire(&mut self) -> (Vec<MessageId>, Duration) {
        let (fired, wait) = self.step();
        (fired.into_iter().map(|(id, _)| id).collect(), wait)
    }

    fn step(&mut self) -> (Vec<(MessageId, Basis)>, Duration) {
        let mut steps = 0;
        let wait = loop {
            let wait = block_on(self.firing.step()).expect("a working store fires");
            if !wait.is_zero() {
                break wait;
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "there is always more to do at {:?}", self.now());
        };
        let fired = self.look();
        (fired, wait)
    }

    /// Lets `span` pass as the firing thread would, and answers what fired: each message in the
    /// very millisecond in which it may, because the thread is told how long to wait.
    pub(crate) fn run(&mut self, span: Span) -> Vec<MessageId> {
        let mut left = span.as_millis();
        let mut all = Vec::new();
        let mut before = None;
        loop {
            let (fired, wait) = self.step();
            for (id, basis) in fired {
                let last = before.map(|before| reached(basis, before));
                let now = reached(basis, self.now());
                let prompt = last.is_none_or(|last| id.key.due <= last) || id.key.due == now;
                assert!(prompt, "due {} fired at {now}", id.key.due);
                all.push(id);
            }
            before = before.or_else(|| Some(self.now()));
            if left == 0 {
                return all;
            }
            let wait = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            let pass = wait.min(left);
            self.clock.advance(Span::from_millis(pass));
            left -= pass;
        }
    }

    /// Reads what is new in the logs and holds it to the rules.
    fn look(&mut self) -> Vec<(MessageId, Basis)> {
        let now = self.now();
        let mut all = Vec::new();
        for number in 0..self.partitions {
            let new = self.read_log(number);
            assert!(new.is_sorted_by_key(|id| id.key), "out of order: {new:?}");
            all.extend(new);
        }
        all.sort_by_key(|id| id.key);
        let check = |id: MessageId| {
            let basis = self.waiting.remove(&id).expect("delivered once, and only what waits");
            let reached = reached(basis, now);
            assert!(id.key.due <= reached, "{basis:?} due {} at {reached}", id.key.due);
            (id, basis)
        };
        all.into_iter().map(check).collect()
    }

    fn read_log(&mut self, number: u16) -> Vec<MessageId> {
        let partition = Partition::new(number).expect("one of the partitions");
        let seen = &mut self.seen[usize::from(number)];
        let mut all = Vec::new();
        loop {
            let from = LogPosition { topic: self.topic, partition, offset: *seen };
            let page = self.store.read(from, 1000).expect("a working store reads");
            let Some(last) = page.last() else { return all };
            *seen = last.offset + 1;
            all.extend(page.iter().map(|delivered| delivered.id));
        }
    }

    fn log_end(&self, number: u16) -> u64 {
        let partition = Partition::new(number).expect("one of the partitions");
        self.store.bounds(self.topic, partition).expect("the partition is there").end
    }
}

/// What the clock that a due time was measured with shows.
pub(crate) fn reached(basis: Basis, now: Now) -> Timestamp {
    match basis {
        Basis::Delay => now.timestamp(),
        Basis::Date => now.wall_timestamp(),
    }
}
