//! Transactions over the embedded store, which is closed and opened again in between.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod transaction_support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::thread;

use punctual_broker::transaction::{DecideError, Draft, TransactionState};
use punctual_engine::disk::RealDisk;
use punctual_engine::{Durability, Engine};
use punctual_model::ports::{ArmLimit, Timeline};
use punctual_model::{CheckPolicy, Lane, MessageId, Span, State, Timestamp, limits};
use punctual_testkit::ManualClock;
use tempfile::TempDir;

use transaction_support::{
    HOUR, Office, SECOND, THREE, draft, group, named, start, wait_until, within_a_minute,
};

/// A store in a directory, with small tables, so that transactions move from memory to the disk.
struct Place {
    dir: TempDir,
    clock: ManualClock,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: ManualClock::new(start()) }
    }

    fn open(&self) -> Office<Engine> {
        let options = punctual_engine::Options {
            durability: Durability::Os,
            table_bytes: 256 << 10,
            reserve_bytes: 1 << 20,
            ..punctual_engine::Options::default()
        };
        let disk = Arc::new(RealDisk::new(self.dir.path()).unwrap());
        let engine = Engine::open(disk, options, Arc::new(self.clock.clone())).unwrap();
        Office::on(Arc::new(engine), self.clock.clone())
    }

    fn reopen(&self, office: Office<Engine>) -> Office<Engine> {
        drop(office);
        self.open()
    }
}

#[test]
fn decisions_and_half_messages_survive_a_restart() {
    let place = Place::new();
    let mut office = place.open();
    let [kept, dropped, open] = ["kept", "dropped", "open"].map(|body| office.prepare_one(body));
    for round in 0..3 {
        office = place.reopen(office);
        assert_eq!(office.message(open.messages[0]).unwrap().0, State::Prepared);
        assert_eq!(office.state(open.id), Some(TransactionState::Prepared));
        assert_eq!(office.commit(kept.id), Ok(TransactionState::Committed));
        assert_eq!(office.rollback(dropped.id), Ok(TransactionState::RolledBack));
        let decided = DecideError::AlreadyDecided;
        assert_eq!(office.rollback(kept.id), Err(decided(TransactionState::Committed)));
        assert_eq!(office.commit(dropped.id), Err(decided(TransactionState::RolledBack)));
        office.pass(SECOND);
        assert_eq!(office.log("orders"), [("kept".to_owned(), 0)], "round {round}");
    }
    office.pass(Span::from_days(1));
    assert_eq!(office.state(kept.id), None);
    let office = place.reopen(office);
    assert_eq!((office.state(kept.id), office.state(dropped.id)), (None, None));
    assert_eq!(office.log("orders").len(), 1);
}

#[test]
fn g32_each_of_many_is_checked_exactly_three_times_through_random_restarts() {
    let place = Place::new();
    let mut office = place.open();
    let ids: Vec<MessageId> = (0..100).map(|_| office.prepare_one("a").id).collect();
    let mut counts = BTreeMap::<MessageId, u16>::new();
    let mut dice: u64 = 3;
    let mut below = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    for _ in 0..300 {
        office.pass(Span::from_millis(below(3000)));
        if below(20) == 0 {
            if below(2) == 0 {
                arm_and_forget(&office);
            }
            office = place.reopen(office);
        }
        let max = usize::try_from(below(100)).unwrap();
        for check in within_a_minute(office.desk.checks(&group(), max)).unwrap() {
            let count = counts.entry(check.transaction).or_default();
            *count += 1;
            assert_eq!(*count, check.attempt, "one after the other");
        }
    }
    for id in ids {
        let shown = office.get(id).unwrap();
        let state = TransactionState::Unresolved;
        assert_eq!((shown.state, shown.checks_sent, counts[&id]), (state, 3, 3));
    }
}

/// Takes what falls due in the next seconds, as the firing does, and does nothing with it.
fn arm_and_forget(office: &Office<Engine>) {
    let until = office.clock.now().saturating_add(Span::from_secs(3));
    let limit = ArmLimit { entries: 1000, bytes: usize::MAX };
    drop(within_a_minute(office.store.arm(Lane::Retry, until, limit)).unwrap());
}

#[test]
fn nobody_listens_for_twelve_hours_with_restarts_in_between() {
    let place = Place::new();
    let mut office = place.open();
    let id = office.prepare_one("a").id;
    office.pass(THREE.first);
    for _ in 0..12 {
        assert_eq!(office.state(id), Some(TransactionState::Prepared));
        office = place.reopen(office);
        office.pass(HOUR);
    }
    let shown = office.get(id).unwrap();
    assert_eq!((shown.state, shown.checks_sent), (TransactionState::Unresolved, 0));
    let office = place.reopen(office);
    within_a_minute(office.desk.resume(id)).unwrap();
    let office = place.reopen(office);
    office.fire();
    assert_eq!(office.checks()[0].attempt, 1);
    office.commit(id).unwrap();
    office.fire();
    assert_eq!(office.log("orders").len(), 1);
}

#[test]
fn of_many_decisions_at_once_one_wins_also_after_a_restart() {
    let place = Place::new();
    let mut office = place.open();
    let mut winners = Vec::new();
    for round in 0..30 {
        let id = office.prepare_one("a").id;
        let decide = |commits: bool| {
            let decided = if commits { office.commit(id) } else { office.rollback(id) };
            match decided {
                Ok(state) | Err(DecideError::AlreadyDecided(state)) => state,
                Err(error) => panic!("{error}"),
            }
        };
        let states: Vec<TransactionState> = thread::scope(|scope| {
            let decide = &decide;
            let spawn = |number| scope.spawn(move || decide((number + round) % 2 == 0));
            let threads: Vec<_> = (0..8).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(states, [states[0]; 8]);
        winners.push((id, states[0]));
    }
    office = place.reopen(office);
    for (id, winner) in &winners {
        assert_eq!(office.state(*id), Some(*winner));
    }
    office.fire();
    let committed = winners.iter().filter(|(_, state)| *state == TransactionState::Committed);
    assert_eq!(office.log("orders").len(), committed.count());
}

#[test]
fn decisions_race_with_checks_and_with_falling_due() {
    let place = Place::new();
    let office = place.open();
    let check = CheckPolicy { first: Span::ZERO, interval: SECOND, max: 1000 };
    let topic = office.topic("orders");
    for round in 0..30u64 {
        let halves = vec![office.half(&topic, "a"), office.half(&topic, "b")];
        let draft = Draft { check: Some(check), ..draft(halves) };
        let id = within_a_minute(office.desk.prepare(draft)).unwrap().id;
        let before = office.log("orders").len();
        thread::scope(|scope| {
            scope.spawn(|| (0..round % 7).for_each(|_| office.pass(SECOND)));
            scope.spawn(|| (0..round % 5).for_each(|_| drop(office.checks())));
            scope.spawn(|| office.commit(id).unwrap());
        });
        office.fire();
        assert_eq!(office.log("orders").len(), before + 2);
        assert_eq!(office.state(id), Some(TransactionState::Committed));
    }
}

/// Counts how often a future was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls a future that often, drops it when it could go on, and answers whether it was done.
fn abandon<F: Future>(future: F, polls: usize) -> bool {
    let woken = Arc::new(Woken::default());
    let waker = Arc::clone(&woken).into();
    let mut future = pin!(future);
    for _ in 0..polls {
        let before = woken.0.load(Ordering::SeqCst);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        wait_until("wake", || woken.0.load(Ordering::SeqCst) > before);
    }
    false
}

#[test]
fn a_producer_that_goes_while_it_asks_neither_loses_nor_doubles_a_check() {
    let place = Place::new();
    let office = place.open();
    // Where it waits depends on how fast the store is, so each is tried a few times.
    for polls in [1, 2, 3, 4].repeat(5) {
        let id = office.prepare_one("a").id;
        office.pass(THREE.first);
        if !abandon(office.desk.checks(&group(), 1), polls) {
            office.checks();
        }
        assert_eq!(office.get(id).unwrap().checks_sent, 1, "gone after {polls} polls");
        office.pass(THREE.interval);
        assert_eq!(office.checks()[0].attempt, 2);
        office.rollback(id).unwrap();
    }
}

#[test]
fn a_transaction_may_be_as_large_as_a_batch() {
    let place = Place::new();
    let office = place.open();
    let topic = office.topic("orders");
    let body = "x".repeat(1000);
    let half = |number: usize| named(office.half(&topic, &body), &format!("n{number}"), 1);
    let halves: Vec<_> = (0..limits::BATCH_MESSAGES_MAX).map(half).collect();
    let prepared = within_a_minute(office.desk.prepare(draft(halves))).unwrap();
    let office = place.reopen(office);
    office.pass(THREE.first);
    let checks = office.checks();
    assert_eq!(checks[0].messages.len(), limits::BATCH_MESSAGES_MAX);
    assert_eq!(office.commit(prepared.id), Ok(TransactionState::Committed));
    let office = place.reopen(office);
    office.fire();
    let states = within_a_minute(office.store.find(prepared.messages)).unwrap();
    assert!(states.iter().all(|found| found.as_ref().unwrap().state == State::Delivered));
    let forecast = within_a_minute(office.store.forecast(topic.id, vec![Timestamp::MAX])).unwrap();
    assert_eq!((forecast.scheduled, forecast.prepared), (0, 0));
}
