//! An old owner changes nothing, whatever it writes, and a new one waits for what is under way.

#![expect(clippy::unwrap_used, reason = "a failed case panics")]

mod mysql_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mysql_support::{Server, connect, entry, id};
use punctual_cluster::mysql::{MysqlOptions, MysqlStore};
use punctual_cluster::store::{
    Change, Counted, Failure, Group, Kind, Marks, Outcome, Slot, SlotStore, Tenure,
};
use punctual_model::{Changed, Key, Lane, MessageId, State, Timestamp, TopicId};
use sqlx::{AssertSqlSafe, Executor, Row};

const SLOT: Slot = Slot(5);
const OLD: Tenure = Tenure { slot: SLOT, term: 7 };
const NEW: Tenure = Tenure { slot: SLOT, term: 8 };

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn key(due: u64, counter: u64) -> Key {
    Key { due: at(due), sequence: SLOT.sequence(Lane::Message, counter) }
}

fn put(key: Key) -> Change {
    Change::Put { key, entry: entry(key.due) }
}

fn name(text: &str, id: MessageId, expected: Option<MessageId>) -> Change {
    Change::Name { topic: id.topic, text: text.into(), print: 1, id, expected }
}

/// Everything in every table but the terms.
async fn everything(options: &MysqlOptions) -> BTreeMap<&'static str, Vec<String>> {
    let mut connection = connect(options).await;
    let mut all = BTreeMap::new();
    for (table, columns) in [
        ("punctual_entries", "slot, lane, due, sequence, state, ended_at, HEX(content)"),
        ("punctual_hours", "topic, lane, hour, slot"),
        ("punctual_ended", "slot, ended_at, due, sequence"),
        ("punctual_names", "topic, HEX(name), print, due, sequence"),
        ("punctual_marks", "slot, claimed_until, message_ended_before, counters_until"),
        ("punctual_counts", "topic, lane, kind, hour, slot, number"),
        ("punctual_totals", "topic, lane, slot, number"),
        ("punctual_archive", "slot, due, sequence"),
    ] {
        let question = format!("SELECT CONCAT_WS(' ', {columns}) FROM {table} ORDER BY 1");
        let rows = connection.fetch_all(AssertSqlSafe(question)).await.unwrap();
        all.insert(table, rows.iter().map(|row| row.try_get(0).unwrap()).collect());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_term_is_refused_for_every_kind_of_write() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    store.take(OLD).await.unwrap().unwrap();
    let (there, ended) = (key(100, 1), key(100, 2));
    let changes = vec![
        put(there),
        put(ended),
        name("here", id(there), None),
        Change::End { id: id(ended), key: ended, state: State::Delivered, at: at(1) },
    ];
    let done = store.apply(vec![Group { tenure: OLD, changes }]).await.unwrap();
    assert_eq!(done, [Outcome::Done]);
    store.take(NEW).await.unwrap().unwrap();
    let before = everything(&options).await;

    let new = key(900, 9);
    let moved = entry(new.due)
        .with_extra(|extra| extra.changed = Some(Changed { first: there, version: 2 }));
    let writes = [
        put(new),
        Change::Move { id: id(there), from: there, to: new, entry: moved },
        Change::End { id: id(there), key: there, state: State::Delivered, at: at(2) },
        Change::End { id: id(there), key: there, state: State::Cancelled, at: at(2) },
        name("new", id(there), None),
        name("here", id(new), Some(id(there))),
    ];
    for tenure in [OLD, Tenure { term: 1, ..OLD }, Tenure { term: 0, ..OLD }] {
        for change in &writes {
            let group = Group { tenure, changes: vec![change.clone()] };
            let outcome = store.apply(vec![group]).await.unwrap();
            assert_eq!(outcome, [Outcome::Fenced], "{tenure:?} {change:?}");
        }
        let all = Group { tenure, changes: vec![writes[0].clone(), writes[2].clone()] };
        assert_eq!(store.apply(vec![all]).await.unwrap(), [Outcome::Fenced]);
        let counted = Counted {
            topic: TopicId::new(1).unwrap(),
            lane: Lane::Message,
            kind: Kind::Scheduled,
            hour: 500_000,
            difference: 5,
        };
        let marks = Marks { claimed_until: Timestamp::MAX, ..Marks::default() };
        assert_eq!(store.keep(vec![(tenure, marks, vec![counted])]).await.unwrap(), [false]);
        assert!(!store.purge(tenure, Timestamp::MAX).await.unwrap());
        assert_eq!(store.take(tenure).await.unwrap(), None);
    }
    assert_eq!(everything(&options).await, before, "nothing was changed");
    let group = Group { tenure: NEW, changes: vec![writes[2].clone()] };
    assert_eq!(store.apply(vec![group]).await.unwrap(), [Outcome::Done], "the owner may");
    server.tidy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_waits_for_a_transaction_under_way() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    store.take(OLD).await.unwrap().unwrap();
    // What an owner does that is about to commit.
    let mut owner = connect(&options).await;
    owner.execute("START TRANSACTION").await.unwrap();
    let lock = "SELECT term FROM punctual_slots WHERE slot = 5 LOCK IN SHARE MODE";
    owner.execute(lock).await.unwrap();

    let mut impatient = options.clone();
    // Long enough to connect on a machine under load.
    impatient.deadline = Duration::from_secs(10);
    let waiting = MysqlStore::open(impatient).await.unwrap().take(NEW).await;
    assert!(matches!(waiting, Err(Failure::Unavailable(_))), "{waiting:?}");
    let mut taking = tokio::task::JoinSet::new();
    let taker = store.clone();
    taking.spawn(async move { taker.take(NEW).await });
    // The old term still holds, so the transaction may end as it began.
    let group = Group { tenure: OLD, changes: vec![put(key(1, 1))] };
    let mut reader = connect(&options).await;
    let row = reader.fetch_one("SELECT term FROM punctual_slots").await.unwrap();
    assert_eq!(row.get::<u64, _>(0), 7);
    owner.execute("COMMIT").await.unwrap();
    let taken = taking.join_next().await.unwrap();
    assert!(taken.unwrap().unwrap().is_some());
    assert_eq!(store.apply(vec![group]).await.unwrap(), [Outcome::Fenced]);
    server.tidy().await;
}

/// A node that was stopped in the middle of a transaction must not keep its slots for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_left_open_ends_by_itself() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    store.take(OLD).await.unwrap().unwrap();
    let mut stopped = connect(&options).await;
    // As every connection of a store tells it, but for the time; in one packet, so that it is idle
    // only when it has the lock.
    let session = "SET SESSION idle_transaction_timeout = 1; START TRANSACTION; \
        SELECT term FROM punctual_slots WHERE slot = 5 LOCK IN SHARE MODE";
    stopped.execute(session).await.unwrap();
    let mut taken = store.take(NEW).await;
    for _ in 0..20 {
        if taken.is_ok() {
            break;
        }
        taken = store.take(NEW).await;
    }
    assert!(taken.unwrap().is_some());
    assert!(stopped.execute("COMMIT").await.is_err(), "its connection is gone");
    server.tidy().await;
}

/// Groups of many writers at once, while the slot changes hands: whoever was told that it is done is
/// there, and nobody else is.
#[tokio::test(flavor = "multi_thread")]
async fn of_writes_during_a_take_over_those_are_there_that_were_answered() {
    let Some(server) = Server::shared() else { return };
    let store = Arc::new(server.store().await);
    store.take(OLD).await.unwrap().unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let mut done = Vec::new();
            for number in 0..200 {
                let place = key(1000, writer * 1000 + number + 1);
                let group = Group { tenure: OLD, changes: vec![put(place)] };
                match store.apply(vec![group]).await.unwrap()[..] {
                    [Outcome::Done] => done.push(place),
                    [Outcome::Fenced] => return (done, true),
                    ref other => panic!("{other:?}"),
                }
            }
            (done, false)
        });
    }
    let taken = async {
        while store.get(vec![id(key(1000, 6))]).await.unwrap()[0].is_none() {}
        store.take(NEW).await.unwrap().unwrap();
        let limit = (10_000, usize::MAX);
        let first = Key { due: Timestamp::MIN, sequence: Lane::Message.first() };
        let page = store.page(SLOT, Lane::Message, first, Timestamp::MAX, limit).await.unwrap();
        page.into_iter().map(|stored| stored.key).collect::<Vec<_>>()
    };
    let found = taken.await;
    let mut expected = Vec::new();
    while let Some(answer) = writers.join_next().await {
        expected.extend(answer.unwrap().0);
    }
    expected.sort();
    assert_eq!(found, expected, "right after the take-over");
    server.tidy().await;
}
