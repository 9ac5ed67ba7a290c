//! How long own ids and moves are remembered: as long as a message is pending, and a day after its
//! end, whatever is written out, merged or started again meanwhile (G3, G28).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic")]

mod change_support;
mod store_support;

use std::sync::Arc;

use punctual_engine::store::{Outcome, Request, Store};
use punctual_model::ports::{ArmLimit, Done, OnConflict, Order, Refusal, Revised};
use punctual_model::{
    Basis, Changed, Entry, Key, Lane, MessageId, OwnId, Parked, Partition, Span, State, Timestamp,
    TopicId, TopicName, TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use change_support::{runner, small};
use store_support::{at, message, open};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

struct Scene {
    disk: ForgetfulDisk,
    store: Store,
    topic: TopicId,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        let disk = ForgetfulDisk::new();
        let store = open(&disk, &small()).unwrap();
        let settings = TopicSettings { partitions: 1, retention: None, ..TopicSettings::default() };
        let request = Request::PutTopic(TopicName::new("a").unwrap(), settings);
        let Ok(Outcome::Topic(topic)) = store.commit(vec![request]).remove(0) else {
            panic!("a topic is made")
        };
        Self { disk, store, topic: topic.id, now: 0 }
    }

    fn entry(&self, due: Timestamp) -> Entry {
        Entry {
            topic: self.topic,
            partition: Partition::new(0).unwrap(),
            due,
            basis: Basis::Delay,
            message: message(1),
            extra: None,
        }
    }

    fn revise(&self, order: Order) -> Result<Done, Refusal> {
        match runner::revise(&self.store, &[order], at(self.now)).unwrap() {
            Revised::Done(done) => Ok(done[0]),
            Revised::Refused { reason, .. } => Err(reason),
        }
    }

    fn send(&self, name: &str, print: u64, due: u64) -> Result<Done, Refusal> {
        let own = OwnId { text: name.into(), print };
        let entry = self.entry(at(due)).with_extra(|extra| extra.own_id = Some(own));
        let conflict = OnConflict::Reject;
        self.revise(Order::Schedule { lane: Lane::Message, entry, conflict })
    }

    fn store(&self, name: &str, due: u64) -> MessageId {
        match self.send(name, 1, due) {
            Ok(Done::Stored(id)) => id,
            other => panic!("{name} is new, and answered with {other:?}"),
        }
    }

    fn place(&self, id: MessageId) -> Key {
        self.store.find(&[id]).unwrap()[0].as_ref().unwrap().entry.as_ref().unwrap().key
    }

    fn replace(&self, id: MessageId, due: Timestamp, parked: Option<Parked>) {
        let first = id.key;
        let entry = self.entry(due).with_extra(|extra| {
            extra.changed = Some(Changed { first, version: 2 });
            extra.parked = parked;
        });
        let moved = self.revise(Order::Replace { id, expected: self.place(id), entry });
        assert!(matches!(moved, Ok(Done::Moved(_))), "{moved:?}");
    }

    fn cancel(&self, id: MessageId) {
        assert_eq!(self.revise(Order::Cancel { id, expected: None }), Ok(Done::Cancelled));
    }

    fn state(&self, id: MessageId) -> Option<State> {
        self.store.find(&[id]).unwrap()[0].as_ref().map(|found| found.state)
    }

    /// Delivers what is due.
    fn fire(&self) {
        let limit = ArmLimit { entries: 100, bytes: 1 << 20 };
        loop {
            let mut batch = self.store.arm(Lane::Message, at(self.now + 1), limit).unwrap();
            if batch.is_empty() {
                return;
            }
            self.store.claim(&mut batch).unwrap();
            self.store.deliver(&batch, at(self.now)).unwrap();
            self.store.settle(&batch).unwrap();
        }
    }

    /// Time passes, with as much going on that everything is written out and merged.
    fn pass(&mut self, span: u64, label: &str) {
        let end = self.now + span;
        for round in 0..16 {
            self.now = (self.now + span / 16).min(end);
            for other in 0..3 {
                let id = self.store(&format!("{label} {round} {other}"), self.now + 2 * DAY);
                self.replace(id, at(self.now + 3 * DAY), None);
            }
            self.fire();
            self.store.freeze();
            self.store.upkeep(at(self.now), false).unwrap();
            self.store.maintain(at(self.now)).unwrap();
        }
        self.now = end;
        self.fire();
        self.store.checkpoint(at(self.now)).unwrap();
    }

    fn restart(&mut self) {
        self.disk = self.disk.reopen();
        self.store = open(&self.disk, &small()).unwrap();
    }

    fn named(&self, name: &str) -> Option<MessageId> {
        let names: [Arc<str>; 1] = [name.into()];
        self.store.named(self.topic, &names, at(self.now)).unwrap()[0]
    }

    fn assert_known(&self, name: &str, id: MessageId, when: &str) {
        assert_eq!(self.named(name), Some(id), "{name}, {when}");
        assert_eq!(self.send(name, 1, self.now + 5), Ok(Done::Known(id)), "{name}, {when}");
        let other = self.send(name, 2, self.now + 5);
        assert_eq!(other, Err(Refusal::OwnIdTaken(id)), "{name}, {when}");
    }
}

#[test]
fn g3_an_own_id_is_known_while_its_message_is_pending() {
    let mut scene = Scene::new();
    let far = scene.store("far", 90 * DAY);
    let moved = scene.store("moved", HOUR);
    scene.replace(moved, at(80 * DAY), None);
    let paused = scene.store("paused", HOUR);
    let parked = Parked::Paused { remaining: Span::from_secs(1), due: at(HOUR) };
    scene.replace(paused, Timestamp::PAUSED, Some(parked));
    let names = [("far", far), ("moved", moved), ("paused", paused)];
    for round in 0..4 {
        scene.pass(12 * DAY, &format!("round {round}"));
        for restarted in [false, true] {
            for (name, id) in names {
                scene.assert_known(name, id, &format!("round {round}, restarted {restarted}"));
            }
            if !restarted {
                scene.restart();
            }
        }
    }
    assert_eq!(scene.place(moved).due, at(80 * DAY));
    assert_eq!(scene.state(paused), Some(State::Paused));
    scene.replace(paused, at(scene.now + HOUR), None);
    scene.cancel(moved);
    assert_eq!(scene.state(moved), Some(State::Cancelled));
    scene.now += 2 * HOUR;
    scene.fire();
    assert_eq!(scene.state(paused), Some(State::Delivered), "by the id it always had");
}

#[test]
fn g3_an_own_id_is_known_for_a_day_after_the_end() {
    let mut scene = Scene::new();
    scene.pass(DAY, "before");
    let start = scene.now;
    let delivered = scene.store("delivered", start + HOUR);
    let late = scene.store("moved and delivered", start + 40 * DAY);
    scene.replace(late, at(start + HOUR), None);
    let cancelled = scene.store("cancelled", start + 50 * DAY);
    let gone = scene.store("moved and cancelled", start + HOUR);
    scene.replace(gone, at(start + 50 * DAY), None);
    scene.now += HOUR;
    scene.fire();
    scene.cancel(cancelled);
    scene.cancel(gone);
    let names = [
        ("delivered", delivered, State::Delivered),
        ("moved and delivered", late, State::Delivered),
        ("cancelled", cancelled, State::Cancelled),
        ("moved and cancelled", gone, State::Cancelled),
    ];
    for (round, hours) in [1, 11, 11].into_iter().enumerate() {
        scene.pass(hours * HOUR, &format!("round {round}"));
        for restarted in [false, true] {
            for (name, id, state) in names {
                let when = format!("round {round}, restarted {restarted}");
                scene.assert_known(name, id, &when);
                assert_eq!(scene.state(id), Some(state), "{name}, {when}");
            }
            if !restarted {
                scene.restart();
            }
        }
    }
    // Much later the delivered ones are forgotten, and their names can be given again.
    scene.pass(5 * DAY, "later");
    for name in ["delivered", "moved and delivered"] {
        assert_eq!(scene.named(name), None, "{name}");
        let again = scene.store(name, scene.now + HOUR);
        scene.assert_known(name, again, "given again");
    }
}
