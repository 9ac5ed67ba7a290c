//! A store, a clock moved by hand and a keeper of series, in one thread: what is due is handed to
//! the keeper or to the logs, lane by lane, as the firing threads do it.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of it")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_executor::block_on;
use punctual_broker::series::{Keeper, Opening, Repeat, Rule, Series, Unhandled, describe};
use punctual_broker::time::BrokerTime;
use punctual_model::ports::{
    ArmLimit, Armed, Delivered, Done, LogPosition, OnConflict, Order, Outlet, PendingEntry,
    PendingQuery, Revised, Timeline, Topic, Topics,
};
use punctual_model::{
    Action, Basis, CatchUp, Lane, Message, MessageId, Partition, Span, Timestamp, TopicName,
    TopicSettings,
};
use punctual_testkit::{ManualClock, Reference};

const LIMIT: ArmLimit = ArmLimit { entries: 10_000, bytes: usize::MAX };

/// A broker reduced to what series need.
pub(crate) struct Round {
    pub(crate) clock: ManualClock,
    pub(crate) store: Reference,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) keeper: Keeper<Reference>,
    started: Timestamp,
    turn: u64,
}

/// What is asked for, with nothing special.
pub(crate) fn opening(repeat: Repeat) -> Opening {
    Opening {
        message: Message { body: "tick".into(), ..Message::default() },
        repeat,
        first: None,
        partition: None,
        turn: 0,
        own_id: None,
        conflict: OnConflict::default(),
        catch_up: None,
    }
}

pub(crate) fn every(secs: u64) -> Repeat {
    Repeat::new(Rule::every(Span::from_secs(secs)).unwrap())
}

pub(crate) fn times(repeat: Repeat, count: u32) -> Repeat {
    Repeat { count: NonZeroU32::new(count), ..repeat }
}

impl Round {
    /// At 2027-01-15T08:00:00Z, with a topic `rounds` of one partition.
    pub(crate) fn new() -> Self {
        let round = Self::on(Reference::new(), ManualClock::new(at(0)));
        round.set(TopicSettings { partitions: 1, ..TopicSettings::default() });
        round
    }

    fn on(store: Reference, clock: ManualClock) -> Self {
        let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
        let started = time.read().timestamp();
        let keeper = Keeper::new(
            Arc::new(store.clone()),
            Arc::new(store.clone()),
            Arc::clone(&time),
            Arc::default(),
        );
        Self { clock, store, time, keeper, started, turn: 0 }
    }

    /// The same store after a while without a broker.
    pub(crate) fn down_for(self, span: Span) -> Self {
        self.clock.advance(span);
        Self::on(self.store.restarted(), self.clock)
    }

    pub(crate) fn set(&self, settings: TopicSettings) {
        Topics::put(&self.store, &TopicName::new("rounds").unwrap(), settings).unwrap();
    }

    pub(crate) fn topic(&self) -> Arc<Topic> {
        self.store.by_name(&TopicName::new("rounds").unwrap()).unwrap()
    }

    /// Stores a series and answers its id.
    pub(crate) fn open(&mut self, opening: Opening) -> MessageId {
        self.turn += 1;
        let opening = Opening { turn: self.turn, ..opening };
        let orders = opening.orders(&self.topic(), self.time.read(), 0).unwrap();
        match block_on(self.store.revise(orders.into())).unwrap() {
            Revised::Done(done) => match done[..] {
                [Done::Stored(series), Done::Stored(occurrence)] => {
                    assert_eq!(series.key.due, occurrence.key.due);
                    series
                }
                _ => panic!("stored: {done:?}"),
            },
            refused => panic!("{refused:?}"),
        }
    }

    /// Does all that is due now: first the messages, then the series, until nothing is left.
    pub(crate) fn fire(&self) {
        while self.fire_messages() | self.fire_series() {}
    }

    /// Hands what is due to the log. False when nothing was.
    pub(crate) fn fire_messages(&self) -> bool {
        let mut due = self.arm(Lane::Message);
        let any = !due.is_empty();
        due.retain(|armed| !self.overtaken(armed));
        block_on(self.store.claim(&mut due)).unwrap();
        let now = self.time.read().timestamp();
        block_on(self.store.deliver(&due, now)).unwrap();
        block_on(self.store.settle(&due)).unwrap();
        any
    }

    /// What the firing thread asks about missed messages under the policy `latest`.
    fn overtaken(&self, armed: &Armed) -> bool {
        let missed = armed.key.due < self.started;
        let latest = self.topic().settings.catch_up == CatchUp::Latest;
        let overtaken = missed && latest && block_on(self.keeper.overtaken(armed)).unwrap();
        if overtaken {
            block_on(self.store.cancel(vec![armed.id()])).unwrap();
            block_on(self.store.release(std::slice::from_ref(armed))).unwrap();
        }
        overtaken
    }

    /// Hands what is due to the keeper. False when nothing was.
    pub(crate) fn fire_series(&self) -> bool {
        let due = self.arm(Lane::Retry);
        assert!(due.iter().all(|armed| armed.action() == Action::Repeat));
        let any = !due.is_empty();
        if let Err(Unhandled { error, .. }) = block_on(self.keeper.handle(due)) {
            panic!("{error}");
        }
        any
    }

    pub(crate) fn arm(&self, lane: Lane) -> Vec<Armed> {
        let until = self.time.read().timestamp().saturating_add(Span::from_millis(1));
        block_on(self.store.arm(lane, until, LIMIT)).unwrap()
    }

    /// Lets seconds pass one by one, and does what is due in each.
    pub(crate) fn run(&self, secs: u64) {
        for _ in 0..secs {
            self.clock.advance(Span::from_secs(1));
            self.fire();
        }
    }

    /// Everything that was delivered, in order.
    pub(crate) fn log(&self) -> Vec<Delivered> {
        let topic = self.topic();
        let read = |number| {
            let partition = Partition::new(number).unwrap();
            let from = LogPosition { topic: topic.id, partition, offset: 0 };
            self.store.read(from, usize::MAX).unwrap()
        };
        (0..topic.settings.partitions).flat_map(read).collect()
    }

    /// The due times of what was delivered, in seconds after the start.
    pub(crate) fn delivered(&self) -> Vec<u64> {
        self.log().iter().map(|delivered| secs(delivered.due)).collect()
    }

    /// The pending occurrences.
    pub(crate) fn occurrences(&self) -> Vec<PendingEntry> {
        let query = PendingQuery::all_of(self.topic().id, Lane::Message, 1000);
        block_on(self.store.pending(query)).unwrap().entries
    }

    /// The due times of what is pending, in seconds after the start.
    pub(crate) fn pending(&self) -> Vec<u64> {
        self.occurrences().iter().map(|entry| secs(entry.key.due)).collect()
    }

    pub(crate) fn series(&self) -> Vec<Series> {
        let page = block_on(self.keeper.list(self.topic().id, None, 1000)).unwrap();
        page.entries.iter().map(|entry| describe(entry).unwrap()).collect()
    }

    /// Cancels something by hand, as if somebody had asked for it.
    pub(crate) fn revise(&self, orders: Vec<Order>) -> Revised {
        block_on(self.store.revise(orders)).unwrap()
    }
}

/// Seconds after the start of the tests.
pub(crate) fn at(secs: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + secs * 1000).unwrap()
}

pub(crate) fn secs(time: Timestamp) -> u64 {
    let millis = time.since(at(0)).as_millis();
    assert_eq!(millis % 1000, 0, "{time} is not a whole second");
    millis / 1000
}

pub(crate) fn dated(secs: u64) -> Option<(Timestamp, Basis)> {
    Some((at(secs), Basis::Date))
}
