//! The server is killed under load: whatever was answered is there when it is back, and the store finds
//! its way by itself.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a failed case panics")]

mod mysql_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mysql_support::{Server, entry, id};
use punctual_cluster::mysql::MysqlStore;
use punctual_cluster::store::{Change, Failure, Group, Outcome, Slot, SlotStore, Tenure};
use punctual_model::{Key, Lane, State, Timestamp};
use punctual_testkit::services::{Private, Service};

const WRITERS: u16 = 4;
const GROUP: u64 = 20;

/// How often the server is killed at least, and how often at most until something was under way.
const KILLS: std::ops::RangeInclusive<usize> = 3..=20;

/// What all writers together were told.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
}

/// What one writer knows of its messages.
#[derive(Default)]
struct Told {
    done: BTreeSet<Key>,
    cancelled: BTreeSet<Key>,
    unsure: BTreeSet<Key>,
    failures: u64,
}

fn tenure(slot: u16) -> Tenure {
    Tenure { slot: Slot(slot), term: 3 }
}

/// Puts groups and cancels every third message, until it is told to stop.
async fn write(store: MysqlStore, slot: u16, stop: Arc<AtomicBool>, counts: Arc<Counts>) -> Told {
    let mut told = Told::default();
    let mut counter = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut keys = Vec::new();
        for _ in 0..GROUP {
            counter += 1;
            let due = Timestamp::from_millis(1_800_000_000_000 + counter * 7919 % 100_000).unwrap();
            keys.push(Key { due, sequence: Slot(slot).sequence(Lane::Message, counter) });
        }
        let puts = keys.iter().map(|key| Change::Put { key: *key, entry: entry(key.due) });
        let groups = vec![Group { tenure: tenure(slot), changes: puts.collect() }];
        match store.apply(groups).await {
            Ok(outcomes) => {
                assert_eq!(outcomes, [Outcome::Done]);
                told.done.extend(&keys);
                counts.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                fail(&mut told, &keys, failure);
                continue;
            }
        }
        let cancelled: Vec<Key> = keys.iter().copied().step_by(3).collect();
        let at = Timestamp::from_millis(1_700_000_000_000).unwrap();
        let ends = cancelled.iter().map(|key| Change::End {
            id: id(*key),
            key: *key,
            state: State::Cancelled,
            at,
        });
        let groups = vec![Group { tenure: tenure(slot), changes: ends.collect() }];
        match store.apply(groups).await {
            Ok(outcomes) => {
                assert_eq!(outcomes, [Outcome::Done]);
                told.cancelled.extend(cancelled);
            }
            Err(failure) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                fail(&mut told, &cancelled, failure);
            }
        }
    }
    told
}

fn fail(told: &mut Told, keys: &[Key], failure: Failure) {
    told.failures += 1;
    match failure {
        Failure::Unavailable(_) => {}
        Failure::Unsure(_) => told.unsure.extend(keys),
        Failure::Damaged(text) => panic!("{text}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_a_killed_server() {
    let directory = tempfile::tempdir().unwrap();
    let Some(private) = Private::start(Service::MariaDb, directory.path()) else { return };
    let private = Arc::new(private);
    let server = Server::at(private.address());
    let mut options = server.database().await;
    options.deadline = Duration::from_secs(20);
    let store = MysqlStore::open(options).await.unwrap();
    for slot in 0..WRITERS {
        store.take(tenure(slot)).await.unwrap().unwrap();
    }
    let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
    let mut writers = tokio::task::JoinSet::new();
    for slot in 0..WRITERS {
        let (store, stop, counts) = (store.clone(), Arc::clone(&stop), Arc::clone(&counts));
        writers.spawn(async move { (slot, write(store, slot, stop, counts).await) });
    }
    for kill in 1..=*KILLS.end() {
        wait_for_more(&counts.answered).await;
        if kill > *KILLS.start() && counts.failed.load(Ordering::Relaxed) > 0 {
            break;
        }
        let private = Arc::clone(&private);
        let again = move || {
            private.signal("KILL");
            private.again();
        };
        tokio::task::spawn_blocking(again).await.unwrap();
    }
    wait_for_more(&counts.answered).await;
    stop.store(true, Ordering::Relaxed);
    let mut failures = 0;
    while let Some(writer) = writers.join_next().await {
        let (slot, told) = writer.unwrap();
        failures += told.failures;
        check(&store, slot, &told).await;
    }
    assert!(failures > 0, "the server was killed while something was under way");
}

/// Waits until more groups were answered after this call.
async fn wait_for_more(answered: &AtomicU64) {
    let before = answered.load(Ordering::Relaxed);
    let more = async {
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while answered.load(Ordering::Relaxed) < before + 40 {
            look.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), more).await.unwrap();
}

async fn check(store: &MysqlStore, slot: u16, told: &Told) {
    let mut keys: Vec<Key> = told.done.iter().copied().collect();
    for key in &told.unsure {
        if !told.done.contains(key) {
            keys.push(*key);
        }
    }
    let found = store.get(keys.iter().map(|key| id(*key)).collect()).await.unwrap();
    for (key, found) in keys.iter().zip(found) {
        let state = found.map(|found| found.state);
        if told.cancelled.contains(key) {
            assert_eq!(state, Some(State::Cancelled), "slot {slot} {key:?}");
        } else if told.unsure.contains(key) {
            // Whether it is there, or was cancelled, nobody knows; one that was answered is known.
            assert!(state.is_some() || !told.done.contains(key), "slot {slot} {key:?}");
        } else {
            assert_eq!(state, Some(State::Scheduled), "slot {slot} {key:?}");
        }
    }
}
