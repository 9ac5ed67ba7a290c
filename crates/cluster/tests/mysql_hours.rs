//! Where a listing has to look is known for every message, also when hours were forgotten meanwhile and
//! whoever writes remembers them.

#![expect(clippy::unwrap_used, reason = "a failed case panics")]

mod mysql_support;

use mysql_support::{Server, connect, entry, id, number};
use punctual_cluster::mysql::MysqlStore;
use punctual_cluster::store::{Change, Group, Marks, Outcome, Slot, SlotStore, Tenure};
use punctual_model::ports::PendingQuery;
use punctual_model::{Key, Lane, State, Timestamp};

const OWNER: Tenure = Tenure { slot: Slot(3), term: 1 };
const START: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

fn at(hours: u64) -> Timestamp {
    Timestamp::from_millis(START + hours * HOUR).unwrap()
}

fn key(hour: u64, counter: u64) -> Key {
    Key { due: at(hour), sequence: Slot(3).sequence(Lane::Message, counter) }
}

async fn put(store: &MysqlStore, key: Key) {
    apply(store, Change::Put { key, entry: entry(key.due) }).await;
}

async fn end(store: &MysqlStore, key: Key, ended_at: Timestamp) {
    let state = State::Delivered;
    apply(store, Change::End { id: id(key), key, state, at: ended_at }).await;
}

async fn apply(store: &MysqlStore, change: Change) {
    let group = Group { tenure: OWNER, changes: vec![change] };
    assert_eq!(store.apply(vec![group]).await.unwrap(), [Outcome::Done]);
}

/// Says that everything before has ended.
async fn keep(store: &MysqlStore, ended_before: Timestamp) {
    let marks = Marks { ended_before: [ended_before; 2], ..Marks::default() };
    assert_eq!(store.keep(vec![(OWNER, marks, Vec::new())]).await.unwrap(), [true]);
}

async fn listed(store: &MysqlStore) -> Vec<Key> {
    let topic = entry(at(0)).topic;
    let mut query = PendingQuery::all_of(topic, Lane::Message, 2);
    let mut keys = Vec::new();
    loop {
        let page = store.pending(query.clone()).await.unwrap();
        keys.extend(page.entries.iter().map(|entry| entry.key));
        query.after = page.next;
        if query.after.is_none() {
            return keys;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_a_forgotten_hour_is_listed() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    let other = MysqlStore::open(options.clone()).await.unwrap();
    let mut connection = connect(&options).await;
    store.take(OWNER).await.unwrap().unwrap();
    let (old, far) = (key(1, 1), key(100, 2));
    for place in [old, far] {
        put(&store, place).await;
    }
    put(&other, key(1, 3)).await;
    put(&other, key(1, 4)).await;
    assert_eq!(listed(&store).await, [old, key(1, 3), key(1, 4), far]);
    let count = "SELECT COUNT(*) FROM punctual_hours";
    assert_eq!(number(&mut connection, count).await, 2, "once for each hour");

    for counter in [1, 3, 4] {
        end(&store, key(1, counter), at(2)).await;
    }
    keep(&store, at(5)).await;
    assert_eq!(listed(&store).await, [far]);
    store.purge(OWNER, at(2)).await.unwrap();
    assert_eq!(number(&mut connection, count).await, 1, "what is over and long past is forgotten");
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM punctual_entries").await, 4);
    store.purge(OWNER, at(3)).await.unwrap();
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM punctual_entries").await, 1);
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM punctual_ended").await, 0);

    // Both remember an hour that is not there any more.
    keep(&store, at(0)).await;
    put(&store, key(1, 5)).await;
    assert_eq!(listed(&store).await, [key(1, 5), far]);
    end(&store, key(1, 5), at(2)).await;
    keep(&store, at(5)).await;
    store.purge(OWNER, at(3)).await.unwrap();
    assert_eq!(number(&mut connection, count).await, 1);
    keep(&store, at(0)).await;
    put(&other, key(1, 6)).await;
    assert_eq!(listed(&store).await, [key(1, 6), far]);
    server.tidy().await;
}

/// What was told twice to have ended is forgotten by its first end.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_ended_long_ago_is_forgotten() {
    let Some(server) = Server::shared() else { return };
    let options = server.database().await;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    store.take(OWNER).await.unwrap().unwrap();
    let (early, late) = (key(9, 1), key(9, 2));
    for place in [early, late] {
        put(&store, place).await;
    }
    end(&store, early, at(1)).await;
    end(&store, early, at(6)).await;
    end(&store, late, at(6)).await;
    end(&store, late, at(1)).await;
    store.purge(OWNER, at(3)).await.unwrap();
    let known = store.get(vec![id(early), id(late)]).await.unwrap();
    assert!(known[0].is_none());
    assert_eq!(known[1].as_ref().unwrap().state, State::Delivered, "its first end counts");
    store.purge(OWNER, at(7)).await.unwrap();
    assert!(store.get(vec![id(late)]).await.unwrap()[0].is_none());
    let mut connection = connect(&options).await;
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM punctual_ended").await, 0);
    server.tidy().await;
}
