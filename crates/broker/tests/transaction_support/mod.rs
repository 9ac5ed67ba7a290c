//! A desk of transactions over any store, on a clock moved by hand. What falls due is fired when a
//! test says so, and all that follows from it has happened by then.

#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test file uses its own part of it"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../patience/mod.rs"]
mod patience;

use std::sync::Arc;

use futures_channel::oneshot;
use punctual_broker::time::BrokerTime;
use punctual_broker::transaction::{
    Check, DecideError, Desk, DeskParts, Draft, Half, Prepared, Transaction, TransactionState,
};
use punctual_model::ports::{
    ArmLimit, Armed, Delivered, LogPosition, OnConflict, Outlet, PendingEntry, PendingQuery,
    StoreError, Timeline, Topic, Topics,
};
use punctual_model::{
    Action, Basis, CheckPolicy, Entry, Extra, GroupName, Lane, Message, MessageId, OwnId,
    Partition, Span, State, Timestamp, TopicName, TopicSettings,
};
use punctual_testkit::{ManualClock, Reference};

pub(crate) use patience::{wait_until, within_a_minute};

pub(crate) const SECOND: Span = Span::from_secs(1);
pub(crate) const HOUR: Span = Span::from_secs(3600);

/// Three checks: after 6, 36 and 66 seconds; unresolved after 96.
pub(crate) const THREE: CheckPolicy =
    CheckPolicy { first: Span::from_secs(6), interval: Span::from_secs(30), max: 3 };

pub(crate) trait Store: Timeline + Outlet + Topics {}
impl<S: Timeline + Outlet + Topics> Store for S {}

/// A desk and what is around it.
pub(crate) struct Office<S: Store> {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<S>,
    pub(crate) time: Arc<BrokerTime>,
    pub(crate) desk: Desk<S>,
    failed: oneshot::Receiver<StoreError>,
}

pub(crate) fn start() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).unwrap()
}

/// Over the reference store.
pub(crate) fn office() -> Office<Reference> {
    Office::on(Arc::new(Reference::new()), ManualClock::new(start()))
}

impl<S: Store> Office<S> {
    pub(crate) fn on(store: Arc<S>, clock: ManualClock) -> Self {
        let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
        let (sender, failed) = oneshot::channel();
        let parts = DeskParts {
            timeline: Arc::clone(&store),
            topics: Arc::clone(&store) as Arc<dyn Topics>,
            time: Arc::clone(&time),
            counters: Arc::default(),
        };
        let desk = Desk::start(parts, sender).unwrap();
        time.activity().wait_idle();
        Self { clock, store, time, desk, failed }
    }

    /// The same store under a new desk, as after a restart.
    pub(crate) fn restart(self) -> Self {
        self.desk.stop();
        Self::on(Arc::clone(&self.store), self.clock.clone())
    }

    pub(crate) fn topic(&self, name: &str) -> Arc<Topic> {
        let name = TopicName::new(name).unwrap();
        let settings = TopicSettings { partitions: 1, ..TopicSettings::default() };
        let known = self.store.by_name(&name);
        known.unwrap_or_else(|| Topics::put(&*self.store, &name, settings).unwrap())
    }

    /// A half with that body, for the moment of the commit.
    pub(crate) fn half(&self, topic: &Topic, body: &str) -> Half {
        let message = Message { body: body.to_owned().into(), ..Message::default() };
        let entry = Entry {
            topic: topic.id,
            partition: Partition::new(0).unwrap(),
            due: self.clock.now(),
            basis: Basis::Delay,
            message,
            extra: None,
        };
        Half { entry, delay: Some(Span::ZERO), conflict: OnConflict::Reject }
    }

    pub(crate) fn prepare(&self, halves: Vec<Half>) -> Prepared {
        within_a_minute(self.desk.prepare(draft(halves))).unwrap()
    }

    /// A transaction with one message for the topic `orders`.
    pub(crate) fn prepare_one(&self, body: &str) -> Prepared {
        let topic = self.topic("orders");
        self.prepare(vec![self.half(&topic, body)])
    }

    pub(crate) fn commit(&self, id: MessageId) -> Result<TransactionState, DecideError> {
        within_a_minute(self.desk.commit(id)).map(|transaction| transaction.state)
    }

    pub(crate) fn rollback(&self, id: MessageId) -> Result<TransactionState, DecideError> {
        within_a_minute(self.desk.rollback(id)).map(|transaction| transaction.state)
    }

    pub(crate) fn get(&self, id: MessageId) -> Option<Transaction> {
        within_a_minute(self.desk.get(id)).unwrap()
    }

    pub(crate) fn state(&self, id: MessageId) -> Option<TransactionState> {
        self.get(id).map(|transaction| transaction.state)
    }

    pub(crate) fn checks(&self) -> Vec<Check> {
        within_a_minute(self.desk.checks(&group(), 100)).unwrap()
    }

    /// Lets time pass, and fires what has fallen due.
    pub(crate) fn pass(&self, span: Span) {
        self.clock.advance(span);
        self.fire();
    }

    /// Fires what is due, and what follows from it.
    pub(crate) fn fire(&self) {
        loop {
            let due = self.arm(Lane::Retry);
            let mut messages = self.arm(Lane::Message);
            if due.is_empty() && messages.is_empty() {
                return;
            }
            assert!(due.iter().all(|armed| armed.action() == Action::Check));
            self.desk.fired(due);
            self.time.activity().wait_idle();
            within_a_minute(self.store.claim(&mut messages)).unwrap();
            within_a_minute(self.store.deliver(&messages, self.clock.now())).unwrap();
            within_a_minute(self.store.settle(&messages)).unwrap();
        }
    }

    fn arm(&self, lane: Lane) -> Vec<Armed> {
        let until = self.clock.now().saturating_add(Span::from_millis(1));
        let limit = ArmLimit { entries: 1000, bytes: usize::MAX };
        within_a_minute(self.store.arm(lane, until, limit)).unwrap()
    }

    /// The bodies that a topic has received, with the seconds since the start at which they were due.
    pub(crate) fn log(&self, name: &str) -> Vec<(String, u64)> {
        let topic = self.store.by_name(&TopicName::new(name).unwrap()).unwrap();
        let from =
            LogPosition { topic: topic.id, partition: Partition::new(0).unwrap(), offset: 0 };
        let shown = |delivered: &Delivered| {
            assert!(delivered.due <= delivered.delivered_at);
            let body = String::from_utf8(delivered.message.body.to_vec()).unwrap();
            (body, delivered.due.since(start()).as_millis() / 1000)
        };
        self.store.read(from, 1000).unwrap().iter().map(shown).collect()
    }

    /// What is known of a message.
    pub(crate) fn message(&self, id: MessageId) -> Option<(State, Option<PendingEntry>)> {
        let found = within_a_minute(self.store.find(vec![id])).unwrap().pop().unwrap()?;
        Some((found.state, found.entry))
    }

    /// How many entries are pending.
    pub(crate) fn pending(&self) -> u64 {
        let counts = Lane::ALL.into_iter().flat_map(|lane| self.store.counts(lane));
        counts.map(|(_, count)| count).sum()
    }
}

impl<S: Store> Drop for Office<S> {
    fn drop(&mut self) {
        self.desk.stop();
        assert!(!matches!(self.failed.try_recv(), Ok(Some(_))), "the desk has failed");
    }
}

pub(crate) fn group() -> GroupName {
    GroupName::new("billing").unwrap()
}

pub(crate) fn draft(halves: Vec<Half>) -> Draft {
    Draft { producer_group: group(), halves, check: Some(THREE), url: None }
}

/// The same half with an own id.
pub(crate) fn named(mut half: Half, text: &str, print: u64) -> Half {
    let own_id = Some(OwnId { text: text.into(), print });
    half.entry.extra = Some(Box::new(Extra { own_id, ..Extra::default() }));
    half
}
