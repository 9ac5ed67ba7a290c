//! A loss of power before every single operation of the disk while messages go to an outlet that is
//! not the store's own, with every kind of remains, and a kill at each of these moments.
//!
//! What was answered as settled does not come again. Everything else comes again, under its id and
//! at the time it was last deferred to; what was on its way comes again as well.
//!
//! `PUNCTUAL_CRASH_OUTLET_IMAGES` sets how many remains are looked at in all.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests may panic and tell"
)]

mod store_support;

use std::collections::{BTreeMap, VecDeque};

use punctual_engine::journal::change::Draft;
use punctual_engine::store::{InLogs, Outcome, Request, Store};
use punctual_engine::{Options, OutletKind};
use punctual_model::ports::{ArmLimit, Armed, CancelOutcome};
use punctual_model::{
    Basis, Entry, Lane, MessageId, Partition, Sequence, State, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use store_support::{Dice, at, message, open, scaled, small};

/// Remains looked at for one moment, at most.
const IMAGES_PER_MOMENT: usize = 6;
const PLENTY: ArmLimit = ArmLimit { entries: 10_000, bytes: 64 << 20 };

fn options() -> Options {
    Options { outlet: OutletKind::Foreign, ..small() }
}

/// What a client may expect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It comes, at this time.
    Comes(Timestamp),
    /// It was delivered.
    Delivered,
    /// It was cancelled.
    Cancelled,
}

type Book = BTreeMap<MessageId, Expected>;

/// One life of a store.
struct Life {
    disk: ForgetfulDisk,
    store: Store,
    topic: TopicId,
    book: Book,
    /// The number of operations after each answer, and what holds since.
    answered: Vec<(u64, Book)>,
    claimed: VecDeque<Armed>,
    time: u64,
    sent: usize,
}

impl Life {
    fn new() -> Self {
        let disk = ForgetfulDisk::new();
        disk.keep_history();
        let store = open(&disk, &options()).unwrap();
        let name = TopicName::new("orders").unwrap();
        let put = Request::PutTopic(name, TopicSettings::default());
        let Ok(Outcome::Topic(topic)) = store.commit(vec![put]).remove(0) else {
            panic!("a new store makes a topic");
        };
        let answered = vec![(disk.ops(), Book::new())];
        let (book, claimed) = (Book::new(), VecDeque::new());
        Self { disk, store, topic: topic.id, book, answered, claimed, time: 0, sent: 0 }
    }

    fn answered(&mut self) {
        self.answered.push((self.disk.ops(), self.book.clone()));
    }

    fn send(&mut self, lane: Lane, dues: &[u64]) {
        let entries: Vec<Entry> = dues
            .iter()
            .map(|due| {
                self.sent += 1;
                let partition = Partition::new(0).unwrap();
                let (topic, due, message) = (self.topic, at(*due), message(self.sent));
                Entry { topic, partition, due, basis: Basis::Date, message, extra: None }
            })
            .collect();
        let request = Request::Schedule(Draft::new(&entries, lane));
        let Ok(Outcome::Scheduled(first)) = self.store.commit(vec![request]).remove(0) else {
            panic!("a working store accepts");
        };
        for (number, entry) in (first.get()..).zip(entries) {
            let sequence = Sequence::new(number).unwrap();
            let key = punctual_model::Key { due: entry.due, sequence };
            let id = MessageId { key, topic: entry.topic, partition: entry.partition };
            self.book.insert(id, Expected::Comes(entry.due));
        }
        self.answered();
    }

    fn claim(&mut self, lane: Lane, until: u64) {
        self.time = self.time.max(until);
        let mut batch = self.store.arm(lane, at(until), PLENTY).unwrap();
        self.store.claim(&mut batch).unwrap();
        self.claimed.extend(batch);
    }

    /// Takes so many of the claimed ones, all of the lane of the first.
    fn take(&mut self, count: usize) -> Vec<Armed> {
        let Some(first) = self.claimed.front() else { return Vec::new() };
        let lane = first.key.sequence.lane();
        let mut taken = Vec::new();
        while taken.len() < count
            && self.claimed.front().is_some_and(|armed| armed.key.sequence.lane() == lane)
        {
            taken.extend(self.claimed.pop_front());
        }
        taken
    }

    fn settle(&mut self, count: usize) {
        let batch = self.take(count);
        self.store.settle(&batch).unwrap();
        for armed in &batch {
            self.book.insert(armed.id(), Expected::Delivered);
        }
        self.answered();
    }

    fn defer(&mut self, count: usize, wait: u64) {
        let due = at(self.time + wait);
        let batch: Vec<_> = self.take(count).into_iter().map(|armed| (armed, due)).collect();
        self.store.defer(&batch, at(self.time)).unwrap();
        for (armed, due) in &batch {
            self.book.insert(armed.id(), Expected::Comes(*due));
        }
        self.answered();
    }

    fn cancel(&mut self, place: usize) {
        let Some((&id, &expected)) = self.book.iter().nth(place) else { return };
        let claimed = self.claimed.iter().any(|armed| armed.id() == id);
        let request = Request::Cancel(vec![id], InLogs::Unknown);
        let Ok(Outcome::Cancelled(outcomes)) = self.store.commit(vec![request]).remove(0) else {
            return;
        };
        match (outcomes[0], expected) {
            (CancelOutcome::Cancelled, Expected::Comes(_)) if !claimed => {
                self.book.insert(id, Expected::Cancelled);
            }
            (CancelOutcome::AlreadyDelivered, Expected::Delivered) => {}
            (CancelOutcome::AlreadyDelivered, Expected::Comes(_)) if claimed => {}
            (CancelOutcome::AlreadyCancelled, Expected::Cancelled) => {}
            other => panic!("{id}: {other:?}, claimed: {claimed}"),
        }
        self.answered();
    }

    fn upkeep(&mut self, freeze: bool) {
        if freeze {
            self.store.freeze();
        }
        self.store.upkeep(at(self.time), true).unwrap();
        self.answered();
    }
}

/// Starts on what is left and holds it against what was answered before and after the moment.
fn examine(image: &ForgetfulDisk, before: &Book, after: &Book) -> Result<(), String> {
    let store = open(image, &options()).map_err(|error| format!("does not start: {error}"))?;
    let mut found: BTreeMap<MessageId, Timestamp> = BTreeMap::new();
    for lane in Lane::ALL {
        loop {
            let mut batch = store.arm(lane, at(1 << 40), PLENTY).map_err(|e| e.to_string())?;
            if batch.is_empty() {
                break;
            }
            store.claim(&mut batch).map_err(|error| error.to_string())?;
            for armed in batch {
                if found.insert(armed.id(), armed.key.due).is_some() {
                    return Err(format!("{} is handed out twice", armed.id()));
                }
            }
        }
    }
    for (id, later) in after {
        let expected = [before.get(id).copied(), Some(*later)];
        let fits = |expected: Option<Expected>| match expected {
            Some(Expected::Comes(due)) => found.get(id) == Some(&due),
            Some(Expected::Delivered | Expected::Cancelled) | None => !found.contains_key(id),
        };
        if !expected.into_iter().any(fits) {
            return Err(format!("{id}: expected one of {expected:?}, found {:?}", found.get(id)));
        }
    }
    if let Some(id) = found.keys().find(|id| !after.contains_key(*id)) {
        return Err(format!("{id} was never sent"));
    }
    Ok(())
}

fn crash_everywhere(life: Life, budget: u64) {
    let Life { disk, store, answered, .. } = life;
    let mut looked = 0;
    for (moment, state) in disk.history() {
        let next = answered.partition_point(|(ops, _)| *ops <= moment);
        let Some((_, before)) = next.checked_sub(1).and_then(|place| answered.get(place)) else {
            continue;
        };
        let after = answered.get(next).map_or(before, |(_, after)| after);
        let killed = state.reopen();
        let images = state.images(IMAGES_PER_MOMENT, moment);
        for (what, image) in [("a kill".to_owned(), killed)].into_iter().chain(images) {
            if looked >= budget {
                return;
            }
            looked += 1;
            if let Err(error) = examine(&image, before, after) {
                panic!("before operation {}, with {what}: {error}", moment + 1);
            }
        }
    }
    drop(store);
    println!("{looked} remains");
}

#[test]
fn what_was_settled_stays_settled_and_the_rest_comes_again() {
    let mut life = Life::new();
    life.send(Lane::Message, &[10, 20, 30, 40, 50, 60]);
    life.claim(Lane::Message, 35);
    life.settle(1);
    life.defer(1, 100);
    life.cancel(1);
    life.upkeep(true);
    life.claim(Lane::Message, 55);
    life.settle(2);
    life.upkeep(true);
    life.defer(10, 7);
    life.claim(Lane::Message, 200);
    life.settle(1);
    life.upkeep(false);
    life.settle(10);
    crash_everywhere(life, scaled("PUNCTUAL_CRASH_OUTLET_IMAGES", 4000));
}

#[test]
fn random_lives_lose_nothing_and_repeat_only_what_was_on_its_way() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let mut life = Life::new();
        for _ in 0..40 {
            let lane = if dice.percent(30) { Lane::Retry } else { Lane::Message };
            match dice.below(8) {
                0 | 1 => {
                    let dues: Vec<u64> =
                        (0..=dice.below(6)).map(|_| life.time + dice.below(300)).collect();
                    life.send(lane, &dues);
                }
                2 | 3 => life.claim(lane, life.time + dice.below(100)),
                4 => life.settle(dice.place(5)),
                5 => life.defer(dice.place(5), dice.below(200)),
                6 => life.cancel(dice.place(life.book.len())),
                _ => life.upkeep(dice.percent(60)),
            }
        }
        crash_everywhere(life, scaled("PUNCTUAL_CRASH_OUTLET_IMAGES", 1500));
    }
}

#[test]
fn of_what_was_settled_long_ago_it_is_known_that_it_was_delivered() {
    let mut life = Life::new();
    life.send(Lane::Message, &[10, 20, 1_000_000]);
    life.claim(Lane::Message, 100);
    life.settle(2);
    life.upkeep(true);
    life.upkeep(false);
    let ids: Vec<MessageId> = life.book.keys().copied().collect();
    let states = |store: &Store| -> Vec<Option<State>> {
        let found = store.find(&ids).unwrap();
        found.into_iter().map(|found| found.map(|found| found.state)).collect()
    };
    let known = [Some(State::Delivered), Some(State::Delivered), Some(State::Scheduled)];
    assert_eq!(states(&life.store), known);
    let again = open(&life.disk.reopen(), &options()).unwrap();
    again.arm(Lane::Message, at(101), PLENTY).unwrap();
    assert_eq!(states(&again), known);
}
