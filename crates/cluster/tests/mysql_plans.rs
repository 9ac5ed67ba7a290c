//! No statement costs more because more is pending.
//!
//! The server writes down every statement that the store sends; each is explained, and what all of
//! them read is counted with little and with much in the tables.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a failed case panics")]

mod mysql_support;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use mysql_support::{Server, connect, entry, id};
use punctual_cluster::mysql::{Finished, MysqlStore};
use punctual_cluster::store::{
    Change, Counted, Documents, Group, Kind, Marks, Outcome, Slot, SlotStore, Tenure,
};
use punctual_model::ports::PendingQuery;
use punctual_model::{Changed, Entry, Key, Lane, MessageId, State, Timestamp, TopicId};
use punctual_testkit::services::{Private, Service};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor, Row};

const OWNER: Tenure = Tenure { slot: Slot(3), term: 1 };
const START: u64 = 1_800_000_000_000;

/// What is there at first, which is more than any statement may read, and how many times as much later.
const LITTLE: u64 = 30_000;
const TIMES: u64 = 4;

/// How much of a page or a list is asked for.
const ASKED: usize = 50;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START + millis).unwrap()
}

/// All in one hour, many at the same time.
fn key(counter: u64) -> Key {
    Key { due: at(counter % 7 * 1000), sequence: Slot(3).sequence(Lane::Message, counter) }
}

/// A topic with one message, at the end of the hour in which the first topic has all of its own.
const RARE: TopicId = match TopicId::new(2) {
    Some(topic) => topic,
    None => TopicId::MAX,
};

async fn put_rare(store: &MysqlStore) -> MessageId {
    let key = Key { due: at(3_000_000), sequence: Slot(3).sequence(Lane::Message, 1 << 30) };
    apply(store, vec![Change::Put { key, entry: Entry { topic: RARE, ..entry(key.due) } }]).await;
    MessageId { topic: RARE, ..id(key) }
}

fn everything(topic: TopicId) -> PendingQuery {
    PendingQuery::all_of(topic, Lane::Message, ASKED)
}

/// Lists the topic to its end, and counts the calls that takes.
async fn list(store: &MysqlStore, topic: TopicId) -> (Vec<MessageId>, u64) {
    let (mut found, mut query) = (Vec::new(), everything(topic));
    for calls in 1.. {
        let page = store.pending(query.clone()).await.unwrap();
        found.extend(page.entries.iter().map(|entry| entry.id));
        assert!(page.next.is_none() || page.next > query.after, "it goes on");
        query.after = page.next;
        if query.after.is_none() {
            return (found, calls);
        }
    }
    unreachable!("a listing has an end")
}

fn name(counter: u64) -> Arc<str> {
    format!("name {counter}").into()
}

async fn apply(store: &MysqlStore, changes: Vec<Change>) {
    let outcome = store.apply(vec![Group { tenure: OWNER, changes }]).await.unwrap();
    assert_eq!(outcome, [Outcome::Done]);
}

/// Makes entries, every tenth with a name, and ends every hundredth.
async fn fill(store: &MysqlStore, counters: std::ops::Range<u64>) {
    let counters: Vec<u64> = counters.collect();
    for counters in counters.chunks(1000) {
        let put =
            |counter: &u64| Change::Put { key: key(*counter), entry: entry(key(*counter).due) };
        let mut changes: Vec<Change> = counters.iter().map(put).collect();
        for counter in counters.iter().filter(|counter| *counter % 10 == 0) {
            let (id, text) = (id(key(*counter)), name(*counter));
            changes.push(Change::Name { topic: id.topic, text, print: 1, id, expected: None });
        }
        apply(store, changes).await;
        let ended = counters.iter().filter(|counter| *counter % 100 == 0);
        let end = |counter: &u64| {
            let (key, state) = (key(*counter), State::Delivered);
            Change::End { id: id(key), key, state, at: at(1_000_000) }
        };
        apply(store, ended.map(end).collect()).await;
    }
}

/// Everything that a store can be asked, once. The numbers of what is made begin at `from`.
async fn ask_everything(store: &MysqlStore, from: u64) {
    let one = key(from);
    store.take(OWNER).await.unwrap().unwrap();
    let (topic, lane) = (TopicId::new(1).unwrap(), Lane::Message);
    let counted = |hour| Counted { topic, lane, kind: Kind::Scheduled, hour, difference: 1 };
    let hour = u32::try_from(START / 3_600_000).unwrap();
    let marks = Marks { ended_before: [at(0), at(0)], ..Marks::default() };
    let counted = vec![counted(hour), counted(hour - 5)];
    assert_eq!(store.keep(vec![(OWNER, marks, counted)]).await.unwrap(), [true]);
    change_everything(store, from).await;

    // In the midst of many that are due at the same time.
    let after = key(700);
    for after in [Key::default(), after] {
        let page = store.page(Slot(3), lane, after, Timestamp::MAX, (ASKED, 1 << 20)).await;
        assert_eq!(page.unwrap().len(), ASKED);
        let query = PendingQuery { after: Some(after), ..everything(topic) };
        assert_eq!(store.pending(query.clone()).await.unwrap().entries.len(), ASKED);
        let none = PendingQuery { key: Some(Bytes::from_static(b"no such key")), ..query };
        assert!(store.pending(none).await.unwrap().entries.is_empty());
    }
    let page = store.pending(everything(RARE)).await.unwrap();
    assert!(page.entries.is_empty() && page.next.is_some(), "it has not come to the end: {page:?}");
    let ids = (0..ASKED as u64).map(|number| id(key(number * 3 + 1)));
    let known = store.get(ids.chain([id(one)]).collect()).await.unwrap();
    assert!(known.iter().all(Option::is_some));
    let names = (1..=ASKED as u64).map(|number| name(number * 10));
    store.names(topic, names.collect()).await.unwrap();
    store.forecast(topic, vec![at(1), at(3000), at(4_000_000)]).await.unwrap();
    store.counts(lane).await.unwrap();
    assert!(!store.is_empty(Slot(3)).await.unwrap());
    store.purge(OWNER, at(900_000)).await.unwrap();

    let document = format!("document {from}");
    let put = store.put("topic", document.as_str().into(), 0, Some(Bytes::from_static(b"x")));
    let revision = put.await.unwrap().unwrap();
    let (changed, _) = store.changed_since("topic", revision - 1).await.unwrap();
    assert_eq!(changed.len(), 1);
}

/// Every kind of change, some of them of a message that was moved twice.
async fn change_everything(store: &MysqlStore, from: u64) {
    let (one, two, three) = (key(from), key(from + 1), key(from + 2));
    let moved = |to: Key| {
        entry(to.due).with_extra(|extra| extra.changed = Some(Changed { first: one, version: 2 }))
    };
    let named = |text: &str, key, expected| {
        let id = id(key);
        Change::Name { topic: id.topic, text: text.into(), print: 1, id, expected }
    };
    let own = format!("own {from}");
    apply(store, vec![Change::Put { key: one, entry: entry(one.due) }, named(&own, one, None)])
        .await;
    for (from, to) in [(one, two), (two, three)] {
        apply(store, vec![Change::Move { id: id(one), from, to, entry: moved(to) }]).await;
    }
    apply(store, vec![named(&own, three, Some(id(one)))]).await;
    let taken = Group { tenure: OWNER, changes: vec![named(&own, two, None)] };
    let outcome = store.apply(vec![taken]).await.unwrap();
    assert_eq!(outcome, [Outcome::NameTaken { index: 0 }]);
    let end = Change::End { id: id(one), key: three, state: State::Cancelled, at: at(800_000) };
    apply(store, vec![end]).await;
    // In an hour that is long over.
    let due = Timestamp::from_millis(START - 7_200_000).unwrap();
    let old = Key { due, sequence: Slot(3).sequence(Lane::Message, from + 3) };
    apply(store, vec![Change::Put { key: old, entry: entry(due) }]).await;
    let end = Change::End { id: id(old), key: old, state: State::Delivered, at: due };
    apply(store, vec![end]).await;
}

async fn set(connection: &mut MySqlConnection, text: &str) {
    connection.execute(AssertSqlSafe(text.to_owned())).await.unwrap();
}

/// Rows that the server has read so far.
async fn rows_read(connection: &mut MySqlConnection) -> u64 {
    let rows = connection.fetch_all("SHOW GLOBAL STATUS LIKE 'Handler_read%'").await.unwrap();
    let count = |name: &str| {
        let row = rows.iter().find(|row| row.get::<String, _>(0) == name);
        row.map_or(0, |row| row.get::<String, _>(1).parse::<u64>().unwrap())
    };
    // Not those of the tables in memory that answer this question: they are read to their end.
    ["Handler_read_key", "Handler_read_next", "Handler_read_prev", "Handler_read_first"]
        .map(count)
        .iter()
        .sum()
}

/// The statements that were written down, each form of them once.
async fn statements(connection: &mut MySqlConnection, database: &str) -> Vec<String> {
    let question = "SELECT CAST(argument AS CHAR) FROM mysql.general_log \
        WHERE command_type IN ('Query', 'Execute') ORDER BY event_time";
    let rows = connection.fetch_all(question).await.unwrap();
    let (mut forms, mut statements) = (BTreeSet::new(), Vec::new());
    let packets = rows.iter().map(|row| row.get::<String, _>(0));
    for packet in packets.filter(|packet| !packet.contains(database)) {
        // Values are numbers and digits, so nothing else has a semicolon.
        for text in packet.split(';').filter(|text| text.contains("punctual_")) {
            let letters = text.chars().filter(|letter| !letter.is_ascii_digit());
            if forms.insert(letters.take(400).collect::<String>()) {
                statements.push(text.to_owned());
            }
        }
    }
    statements
}

/// What the server would do walks along an index, and sorts nothing.
async fn check_plan(connection: &mut MySqlConnection, statement: &str) {
    let rows = connection.fetch_all(AssertSqlSafe(format!("EXPLAIN {statement}"))).await;
    let rows = rows.unwrap_or_else(|error| panic!("{error}: {statement}"));
    for row in rows {
        let text = |column: &str| row.get::<Option<String>, _>(column).unwrap_or_default();
        let (table, access, extra) = (text("table"), text("type"), text("Extra"));
        // Rows that are given, or no table at all, or the bounded result of an inner statement.
        let is_given = statement.contains(" VALUES") && !statement.contains(" SELECT ");
        if is_given || table.is_empty() || table.starts_with('<') {
            continue;
        }
        assert!(!matches!(&*access, "ALL" | "index"), "{access} of {table}: {statement}");
        assert!(!extra.contains("filesort"), "{extra}: {statement}");
        assert!(!extra.contains("temporary"), "{extra}: {statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_costs_more_because_more_is_pending() {
    let directory = tempfile::tempdir().unwrap();
    let Some(private) = Private::start(Service::MariaDb, directory.path()) else { return };
    let server = Server::at(private.address());
    let mut options = server.database().await;
    options.finished = Finished::Archive;
    let store = MysqlStore::open(options.clone()).await.unwrap();
    store.take(OWNER).await.unwrap().unwrap();
    let mut connection = connect(&options).await;
    fill(&store, 1..LITTLE).await;
    let rare = put_rare(&store).await;
    set(&mut connection, "ANALYZE TABLE punctual_entries, punctual_names").await;

    set(&mut connection, "SET GLOBAL log_output = 'TABLE'").await;
    set(&mut connection, "SET GLOBAL general_log = ON").await;
    ask_everything(&store, 10_000_000).await;
    set(&mut connection, "SET GLOBAL general_log = OFF").await;
    let before = rows_read(&mut connection).await;
    ask_everything(&store, 20_000_000).await;
    let with_little = rows_read(&mut connection).await - before;

    fill(&store, LITTLE..LITTLE * TIMES).await;
    set(&mut connection, "ANALYZE TABLE punctual_entries, punctual_names").await;
    let before = rows_read(&mut connection).await;
    ask_everything(&store, 30_000_000).await;
    let with_much = rows_read(&mut connection).await - before;
    println!(
        "{with_little} rows read with {LITTLE} pending, {with_much} with {TIMES} times as many"
    );
    assert!(with_little > 0, "the server counts");
    assert!(
        with_much < with_little + with_little / 10,
        "{with_little} rows read with {LITTLE} pending, {with_much} with {TIMES} times as many"
    );
    let (found, calls) = list(&store, RARE).await;
    assert_eq!(found, [rare], "it is found in the end");
    assert!(calls > LITTLE * TIMES / 20_000, "no call looks at more than 20,000 rows: {calls}");
    let database = options.url.rsplit('/').next().unwrap();
    let statements = statements(&mut connection, database).await;
    for begins in [
        "SELECT due, sequence, state",
        "DELETE n",
        "DELETE e",
        "DELETE x",
        "DELETE FROM punctual_hours",
        "INSERT INTO punctual_archive",
        "SELECT h.hour",
        "SELECT due, sequence, topic",
    ] {
        let is_there = statements.iter().any(|statement| statement.starts_with(begins));
        assert!(is_there, "{begins} was not written down: {statements:#?}");
    }
    for statement in &statements {
        check_plan(&mut connection, statement).await;
    }
}
