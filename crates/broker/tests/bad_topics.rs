//! An outlet that does not take everything: one bad topic holds up no other, nothing is lost or
//! marked while all is down, and what is open stays claimed until somebody knows.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::sync::Arc;

use futures_executor::block_on;
use punctual_broker::deliver::Delivery;
use punctual_broker::fire::Firing;
use punctual_broker::stats::Counters;
use punctual_broker::time::BrokerTime;
use punctual_engine::{Engine, Options, OutletKind};
use punctual_model::ports::{CancelOutcome, StoreError, Timeline, Topics};
use punctual_model::{
    Basis, Entry, Lane, Message, MessageId, Partition, Span, State, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;
use punctual_testkit::moody::{Mood, Moody};
use punctual_testkit::{ManualClock, Reference};

const START: Timestamp = Timestamp::from_millis_saturating(1_900_000_000_000);
const SECOND: Span = Span::from_secs(1);

struct Scene<T> {
    store: Arc<T>,
    outlet: Arc<Moody>,
    clock: ManualClock,
    counters: Arc<Counters>,
    firing: Firing<T, Moody>,
    /// A good topic and a bad one.
    topics: [TopicId; 2],
}

impl<T: Timeline + Topics> Scene<T> {
    fn new(store: T) -> Self {
        let put = |name| store.put(&TopicName::new(name).unwrap(), TopicSettings::default());
        let topics = ["good", "bad"].map(|name| put(name).unwrap().id);
        let (store, outlet, counters) = (Arc::new(store), Arc::default(), Arc::default());
        let clock = ManualClock::new(START);
        let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
        let delivery =
            Delivery::new(Arc::clone(&store), Arc::clone(&outlet), time, Arc::clone(&counters));
        let firing = Firing::new(Lane::Message, delivery);
        Self { store, outlet, clock, counters, firing, topics }
    }

    /// Messages that are due now: for the good topic, the bad one, and so on.
    fn send(&self, count: usize) -> Vec<MessageId> {
        let entry = |number: usize| Entry {
            topic: self.topics[number % 2],
            partition: Partition::new(0).unwrap(),
            due: START,
            basis: Basis::Delay,
            message: Message { body: number.to_string().into(), ..Message::default() },
            extra: None,
        };
        block_on(self.store.schedule((0..count).map(entry).collect())).unwrap()
    }

    fn step(&mut self) -> Result<(), StoreError> {
        for _ in 0..100 {
            if !block_on(self.firing.step())?.is_zero() {
                return Ok(());
            }
        }
        unreachable!("it never comes to rest");
    }

    fn state(&self, id: MessageId) -> (Option<State>, Option<Timestamp>) {
        let found = block_on(self.store.find(vec![id])).unwrap().remove(0);
        let due = found.as_ref().and_then(|found| found.entry.as_ref()).map(|e| e.key.due);
        (found.map(|found| found.state), due)
    }

    fn cancel(&self, id: MessageId) -> CancelOutcome {
        block_on(self.store.cancel(vec![id])).unwrap()[0]
    }
}

fn every_other<T: Copy>(of: &[T], first: usize) -> Vec<T> {
    of.iter().skip(first).step_by(2).copied().collect()
}

fn one_bad_topic_holds_up_no_other<T: Timeline + Topics>(store: T) {
    let mut scene = Scene::new(store);
    let ids = scene.send(8);
    scene.outlet.set(scene.topics[1], Mood::Refuses(SECOND));
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken(), every_other(&ids, 0), "the good topic goes on");
    for id in every_other(&ids, 1) {
        let later = Some(START.saturating_add(SECOND));
        assert_eq!(scene.state(id), (Some(State::Scheduled), later));
    }
    assert_eq!(scene.counters.refused.read(), (vec![(scene.topics[1], 4)], 0));
    assert_eq!(scene.cancel(ids[3]), CancelOutcome::Cancelled, "it is pending again");
    // Not before its time, and put off again when that comes.
    let offers = scene.outlet.offers();
    scene.step().unwrap();
    assert_eq!(scene.outlet.offers(), offers);
    scene.clock.advance(SECOND);
    scene.step().unwrap();
    scene.outlet.set(scene.topics[1], Mood::Takes);
    scene.clock.advance(SECOND);
    scene.step().unwrap();
    let expected = [&every_other(&ids, 0)[..], &[ids[1], ids[5], ids[7]]].concat();
    assert_eq!(scene.outlet.taken(), expected, "each once, in order");
    assert_eq!(scene.state(ids[1]).0, Some(State::Delivered));
}

fn nothing_is_moved_while_all_is_down<T: Timeline + Topics>(store: T) {
    let mut scene = Scene::new(store);
    let ids = scene.send(6);
    scene.outlet.set_down(true);
    for _ in 0..3 {
        assert!(scene.step().unwrap_err().passes());
        scene.clock.advance(SECOND);
    }
    assert_eq!(scene.outlet.taken(), []);
    let counts: u64 = scene.store.counts(Lane::Message).iter().map(|(_, count)| count).sum();
    assert!(counts == 6 || counts == 0, "all of them are on their way, none is marked alone");
    scene.outlet.set_down(false);
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken(), ids, "each once, in order");
    assert_eq!(scene.counters.refused.read(), (Vec::new(), 0));
}

fn what_is_open_stays_claimed_until_somebody_knows<T: Timeline + Topics>(store: T) {
    let mut scene = Scene::new(store);
    let ids = scene.send(6);
    scene.outlet.set(scene.topics[1], Mood::Silent);
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken(), every_other(&ids, 0));
    assert_eq!(scene.outlet.open(), 3);
    assert_eq!(scene.cancel(ids[1]), CancelOutcome::AlreadyDelivered, "it may have been taken");
    // Others go on meanwhile.
    scene.outlet.set(scene.topics[1], Mood::Takes);
    let more = scene.send(2);
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken()[3..], more);
    scene.outlet.answer(Some(SECOND));
    scene.step().unwrap();
    assert_eq!(scene.cancel(ids[5]), CancelOutcome::Cancelled, "it was not taken after all");
    scene.outlet.set(scene.topics[1], Mood::Silent);
    scene.clock.advance(SECOND);
    scene.step().unwrap();
    assert_eq!(scene.outlet.open(), 2);
    scene.outlet.answer(None);
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken()[5..], [ids[1], ids[3]]);
    assert_eq!(scene.state(ids[1]).0, Some(State::Delivered));
    scene.clock.advance(Span::from_secs(100));
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken().len(), 7, "nothing comes again");
}

fn it_is_known_since_when_the_oldest_waits<T: Timeline + Topics>(store: T) {
    let mut scene = Scene::new(store);
    let waits = |scene: &Scene<T>| scene.counters.behind[Lane::Message.index()].since(false);
    let ids = scene.send(4);
    scene.outlet.set(scene.topics[1], Mood::Refuses(SECOND));
    // However often it is put off, it counts from its first due time.
    for _ in 0..3 {
        scene.step().unwrap();
        assert_eq!(waits(&scene), Some(START));
        scene.clock.advance(SECOND);
    }
    // Nobody knows whether it was taken.
    scene.outlet.set(scene.topics[1], Mood::Silent);
    scene.step().unwrap();
    assert_eq!((scene.outlet.open(), waits(&scene)), (2, Some(START)));
    scene.clock.advance(Span::from_secs(60));
    scene.step().unwrap();
    assert_eq!(waits(&scene), Some(START));
    scene.outlet.answer(Some(SECOND));
    scene.step().unwrap();
    assert_eq!(waits(&scene), Some(START));
    // What was cancelled is not waited for much longer, and what is out not at all.
    assert_eq!(scene.cancel(ids[1]), CancelOutcome::Cancelled);
    scene.outlet.set(scene.topics[1], Mood::Takes);
    scene.clock.advance(SECOND);
    scene.step().unwrap();
    assert_eq!(scene.outlet.taken().len(), 3);
    scene.clock.advance(Span::from_secs(11));
    scene.step().unwrap();
    assert_eq!(waits(&scene), None);
}

fn it_is_known_since_when_all_is_down<T: Timeline + Topics>(store: T) {
    let mut scene = Scene::new(store);
    let waits = |scene: &Scene<T>| scene.counters.behind[Lane::Message.index()].since(false);
    scene.step().unwrap();
    assert_eq!(waits(&scene), None);
    scene.send(2);
    scene.outlet.set_down(true);
    for _ in 0..3 {
        assert!(scene.step().unwrap_err().passes());
        assert_eq!(waits(&scene), Some(START));
        scene.clock.advance(SECOND);
    }
    scene.outlet.set_down(false);
    scene.step().unwrap();
    assert_eq!(waits(&scene), None);
}

fn engine() -> Engine {
    let options = Options { outlet: OutletKind::Foreign, ..Options::default() };
    let options = Options { journal_file_bytes: 8 << 20, reserve_bytes: 64 << 10, ..options };
    let clock = Arc::new(ManualClock::new(START));
    Engine::open(Arc::new(ForgetfulDisk::new()), options, clock).unwrap()
}

#[test]
fn one_bad_topic_holds_up_no_other_over_the_reference() {
    one_bad_topic_holds_up_no_other(Reference::new());
}

#[test]
fn one_bad_topic_holds_up_no_other_over_the_engine() {
    one_bad_topic_holds_up_no_other(engine());
}

#[test]
fn nothing_is_moved_while_all_is_down_over_the_reference() {
    nothing_is_moved_while_all_is_down(Reference::new());
}

#[test]
fn nothing_is_moved_while_all_is_down_over_the_engine() {
    nothing_is_moved_while_all_is_down(engine());
}

#[test]
fn what_is_open_stays_claimed_until_somebody_knows_over_the_reference() {
    what_is_open_stays_claimed_until_somebody_knows(Reference::new());
}

#[test]
fn what_is_open_stays_claimed_until_somebody_knows_over_the_engine() {
    what_is_open_stays_claimed_until_somebody_knows(engine());
}

#[test]
fn it_is_known_since_when_the_oldest_waits_over_the_reference() {
    it_is_known_since_when_the_oldest_waits(Reference::new());
    it_is_known_since_when_all_is_down(Reference::new());
}

#[test]
fn it_is_known_since_when_the_oldest_waits_over_the_engine() {
    it_is_known_since_when_the_oldest_waits(engine());
    it_is_known_since_when_all_is_down(engine());
}
