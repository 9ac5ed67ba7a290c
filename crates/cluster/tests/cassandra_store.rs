//! Cassandra as a store of slots and documents: the suite of all stores, refusals, and a server that
//! is killed under load.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a failed case panics")]

mod store_support;
mod cassandra_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cassandra_support::{Fresh, keyspace, options, runtime, store};
use punctual_cluster::cassandra::{CassandraOptions, CassandraStore, OpenError, Replication};
use punctual_cluster::store::{Change, Failure, Group, Outcome, Slot, SlotStore, Tenure};
use punctual_model::{
    Basis, Changed, Entry, Extra, Key, Lane, Message, MessageId, Partition, State, Timestamp,
    TopicId,
};
use punctual_testkit::services::{self, Private, Service};

/// The suite of slots uses slots up to 300, and the last one.
const SLOTS: u16 = 400;

#[test]
fn cassandra_keeps_slots_as_every_store_does() {
    let runtime = runtime();
    let Some(store) = runtime.block_on(store()) else { return };
    runtime.block_on(store_support::slot_store(async || Fresh::of(&store, SLOTS)));
}

#[test]
fn cassandra_keeps_documents_as_every_store_does() {
    let runtime = runtime();
    let Some(store) = runtime.block_on(store()) else { return };
    runtime.block_on(store_support::documents(async || Fresh::of(&store, SLOTS)));
}

#[test]
fn fewer_than_three_copies_are_refused_unless_allowed_by_name() {
    let runtime = runtime();
    let Some(address) = services::cassandra() else { return };
    runtime.block_on(async {
        let keyspace = keyspace("copies");
        let strict = |replication| CassandraOptions {
            allow_unsafe: Vec::new(),
            replication,
            ..options(address, &keyspace)
        };
        let made = CassandraStore::open(strict(Replication::Simple(1))).await;
        assert!(matches!(made, Err(OpenError::Unsafe { setting: "replication", .. })), "{made:?}");
        CassandraStore::open(options(address, &keyspace)).await.unwrap();
        // What is asked for does not count where the keyspace is there.
        let found = CassandraStore::open(strict(Replication::Simple(3))).await;
        assert!(
            matches!(found, Err(OpenError::Unsafe { setting: "replication", .. })),
            "{found:?}"
        );
    });
}

#[test]
fn nodes_that_start_at_once_make_the_tables_together() {
    let runtime = runtime();
    let Some(address) = services::cassandra() else { return };
    runtime.block_on(async {
        let keyspace = keyspace("together");
        let open = || CassandraStore::open(options(address, &keyspace));
        let (one, two, three) = tokio::join!(open(), open(), open());
        let (one, two, _three) = (one.unwrap(), two.unwrap(), three.unwrap());
        let tenure = Tenure { slot: Slot(1), term: 1 };
        assert!(one.take(tenure).await.unwrap().is_some());
        let key = place(1, 1);
        let group = Group { tenure, changes: vec![put(key)] };
        assert_eq!(one.apply(vec![group]).await.unwrap(), [Outcome::Done]);
        assert!(two.get(vec![id(key)]).await.unwrap()[0].is_some());
    });
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let runtime = runtime();
    runtime.block_on(async {
        // Nothing listens there, and nothing begins to.
        let closed = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let answer = CassandraStore::open(options(closed, "nowhere")).await;
        assert!(matches!(answer, Err(OpenError::Unavailable(_))), "{answer:?}");
    });
}

fn place(slot: u16, counter: u64) -> Key {
    let due = Timestamp::from_millis(1_800_000_000_000 + counter * 7919 % 4_000_000).unwrap();
    Key { due, sequence: Slot(slot).sequence(Lane::Message, counter) }
}

fn entry(key: Key) -> Entry {
    Entry {
        topic: TopicId::new(1).unwrap(),
        partition: Partition::new(0).unwrap(),
        due: key.due,
        basis: Basis::Delay,
        message: Message { body: Bytes::from_static(&[7; 200]), ..Message::default() },
        extra: None,
    }
}

fn id(key: Key) -> MessageId {
    let Entry { topic, partition, .. } = entry(key);
    MessageId { key, topic, partition }
}

fn put(key: Key) -> Change {
    Change::Put { key, entry: entry(key) }
}

/// What one writer was told of its messages: those that are pending, and those that moved.
#[derive(Default)]
struct Told {
    pending: BTreeSet<Key>,
    moved: Vec<(Key, Key)>,
    failures: usize,
}

/// Puts groups and moves every tenth message, until it is told to stop.
async fn write(
    store: CassandraStore,
    slot: u16,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
) -> Told {
    let tenure = Tenure { slot: Slot(slot), term: 3 };
    let mut told = Told::default();
    let mut counter = 0;
    while !stop.load(Ordering::Relaxed) {
        let keys: Vec<Key> = (0..20).map(|more| place(slot, counter + more + 1)).collect();
        counter += 20;
        let changes = keys.iter().map(|key| put(*key)).collect();
        match store.apply(vec![Group { tenure, changes }]).await {
            Ok(outcomes) => assert_eq!(outcomes, [Outcome::Done]),
            Err(Failure::Damaged(text)) => panic!("{text}"),
            Err(_) => {
                told.failures += 1;
                continue;
            }
        }
        told.pending.extend(&keys);
        counter += 1;
        let (from, to) = (keys[0], place(slot, counter));
        let extra =
            Extra { changed: Some(Changed { first: from, version: 2 }), ..Extra::default() };
        let entry = Entry { extra: Some(Box::new(extra)), ..entry(to) };
        let step = Change::Move { id: id(from), from, to, entry };
        // Whether it moved or not is not known otherwise.
        told.pending.remove(&from);
        match store.apply(vec![Group { tenure, changes: vec![step] }]).await {
            Ok(outcomes) => {
                assert_eq!(outcomes, [Outcome::Done]);
                told.moved.push((from, to));
            }
            Err(Failure::Damaged(text)) => panic!("{text}"),
            Err(_) => told.failures += 1,
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    told
}

#[test]
fn what_was_answered_survives_a_killed_server() {
    const WRITERS: u16 = 4;
    let runtime = runtime();
    let directory = tempfile::tempdir().unwrap();
    let Some(private) = Private::start(Service::Cassandra, directory.path()) else { return };
    let small = CassandraOptions {
        deadline: Duration::from_secs(20),
        ..options(private.address(), "killed")
    };
    let open = async || CassandraStore::open(options(private.address(), "killed")).await.unwrap();
    let first = runtime.block_on(open());
    drop(first);
    let store = runtime.block_on(CassandraStore::open(small)).unwrap();
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut writers = Vec::new();
    for slot in 1..=WRITERS {
        let tenure = Tenure { slot: Slot(slot), term: 3 };
        assert!(runtime.block_on(store.take(tenure)).unwrap().is_some());
        let writer = write(store.clone(), slot, Arc::clone(&stop), Arc::clone(&done));
        writers.push(runtime.spawn(writer));
    }
    runtime.block_on(async {
        // Enough is answered that something is under way when it is killed.
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while done.load(Ordering::Relaxed) < 100 {
            look.tick().await;
        }
    });
    private.signal("KILL");
    stop.store(true, Ordering::Relaxed);
    let told: Vec<Told> =
        writers.into_iter().map(|writer| runtime.block_on(writer).unwrap()).collect();
    private.again();
    runtime.block_on(async {
        let store = open().await;
        for (slot, told) in (1..).zip(told) {
            assert!(store.take(Tenure { slot: Slot(slot), term: 4 }).await.unwrap().is_some());
            let asked: Vec<MessageId> = told.pending.iter().map(|key| id(*key)).collect();
            for (key, stored) in told.pending.iter().zip(store.get(asked).await.unwrap()) {
                let stored = stored.expect("it was answered as done");
                assert_eq!((stored.key, stored.state), (*key, State::Scheduled));
            }
            let asked: Vec<MessageId> = told.moved.iter().map(|(first, _)| id(*first)).collect();
            for ((_, to), stored) in told.moved.iter().zip(store.get(asked).await.unwrap()) {
                assert_eq!(stored.expect("it was answered as moved").key, *to);
            }
            println!("slot {slot}: {} answered, {} failures", told.pending.len(), told.failures);
        }
    });
}
