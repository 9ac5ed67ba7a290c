//! What must not be said, and owners that come too late or die in the middle.
//!
//! These look inside: what an owner does is cut short at a chosen place, and another one comes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::LazyLock;

use punctual_model::{Basis, Changed, Entry, Extra, Message, OwnId, Partition, Span, State};
use punctual_testkit::services;
use tokio::sync::oneshot;

use super::apply::Writes;
use super::intent::Intended;
use super::place::Place;
use super::*;
use crate::store::Change;

/// Tells that an owner has come to the place, and lets it go on.
pub(super) type Pause = (oneshot::Sender<()>, oneshot::Receiver<()>);

impl Inner {
    pub(super) async fn pause(&self) {
        let pause = self.pauses.lock().take();
        if let Some((reached, go_on)) = pause {
            reached.send(()).unwrap();
            go_on.await.unwrap();
        }
    }
}

fn any_options() -> CassandraOptions {
    CassandraOptions::new(vec!["127.0.0.1:9042".into()], "punctual")
}

#[test]
fn an_answer_of_one_copy_has_to_be_allowed_by_name() {
    let mut options = any_options();
    options.consistency = Consistency::One;
    assert!(matches!(options.check(), Err(OpenError::Unsafe { setting: "consistency", .. })));
    options.allow_unsafe.push("consistency".into());
    assert!(options.check().is_ok());
    options.allow_unsafe.push("everything".into());
    assert!(matches!(options.check(), Err(OpenError::UnknownSetting(_))));
}

#[test]
fn what_goes_into_a_statement_as_it_is_cannot_carry_another() {
    for keyspace in ["", "a b", "x;", "X", "1a", &"a".repeat(49)] {
        let options = CassandraOptions { keyspace: keyspace.into(), ..any_options() };
        assert!(matches!(options.check(), Err(OpenError::Invalid(_))), "{keyspace}");
    }
    let datacenters = Replication::Datacenters(vec![("a': 1}; DROP".into(), 3)]);
    let options = CassandraOptions { replication: datacenters, ..any_options() };
    assert!(matches!(options.check(), Err(OpenError::Invalid(_))));
}

#[test]
fn a_password_is_not_shown() {
    let options = CassandraOptions { password: Some("secret word".into()), ..any_options() };
    assert!(!format!("{options:?}").contains("secret"));
}

const START: Timestamp = Timestamp::from_millis_saturating(1_800_000_000_000);

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// A keyspace of this process: what others have left there stays, so nobody has had it.
static KEYSPACE: LazyLock<String> =
    LazyLock::new(|| format!("inside_{:016x}", getrandom::u64().unwrap()));

async fn open(address: SocketAddr) -> CassandraStore {
    let options = CassandraOptions {
        replication: Replication::Simple(1),
        deadline: Duration::from_secs(60),
        allow_unsafe: vec!["replication".into()],
        ..CassandraOptions::new(vec![address.to_string()], KEYSPACE.as_str())
    };
    CassandraStore::open(options).await.unwrap()
}

/// Two nodes' stores, so that what one knows is not what the other knows.
async fn two() -> Option<(CassandraStore, CassandraStore)> {
    let address = services::cassandra()?;
    let one = open(address).await;
    Some((one, open(address).await))
}

fn tenure(slot: u16, term: u64) -> Tenure {
    Tenure { slot: Slot(slot), term }
}

fn key(slot: u16, due: u64, counter: u64) -> Key {
    let due = START.saturating_add(Span::from_millis(due));
    Key { due, sequence: Slot(slot).sequence(Lane::Message, counter) }
}

fn entry(key: Key, own: Option<&str>) -> Entry {
    let own_id = own.map(|text| OwnId { text: text.into(), print: 1 });
    Entry {
        topic: TopicId::new(7).unwrap(),
        partition: Partition::new(0).unwrap(),
        due: key.due,
        basis: Basis::Delay,
        message: Message { body: Bytes::from_static(b"x"), ..Message::default() },
        extra: own_id.map(|own_id| Box::new(Extra { own_id: Some(own_id), ..Extra::default() })),
    }
}

fn id(key: Key) -> MessageId {
    let entry = entry(key, None);
    MessageId { key, topic: entry.topic, partition: entry.partition }
}

fn put(key: Key) -> Change {
    Change::Put { key, entry: entry(key, None) }
}

fn name(of: Key, text: &str) -> Change {
    let (topic, id) = (TopicId::new(7).unwrap(), id(of));
    Change::Name { topic, text: text.into(), print: 1, id, expected: None }
}

fn end(of: Key, state: State) -> Change {
    Change::End { id: id(of), key: of, state, at: START }
}

fn step(first: Key, from: Key, to: Key) -> Change {
    let entry =
        entry(to, None).with_extra(|extra| extra.changed = Some(Changed { first, version: 2 }));
    Change::Move { id: id(first), from, to, entry }
}

async fn apply(
    store: &CassandraStore,
    tenure: Tenure,
    changes: Vec<Change>,
) -> Result<Outcome, Failure> {
    store.apply(vec![Group { tenure, changes }]).await.map(|outcomes| outcomes[0])
}

async fn done(store: &CassandraStore, tenure: Tenure, changes: Vec<Change>) {
    assert_eq!(apply(store, tenure, changes).await, Ok(Outcome::Done));
}

async fn take(store: &CassandraStore, tenure: Tenure) -> Marks {
    store.take(tenure).await.unwrap().expect("nobody has a higher term")
}

async fn state(store: &CassandraStore, key: Key) -> Option<State> {
    store.get(vec![id(key)]).await.unwrap().remove(0).map(|stored| stored.state)
}

async fn keys(store: &CassandraStore, slot: u16) -> Vec<Key> {
    let from = Key { due: Timestamp::MIN, sequence: Lane::Message.first() };
    let page = store.page(Slot(slot), Lane::Message, from, Timestamp::MAX, (100, 1 << 20)).await;
    page.unwrap().into_iter().map(|stored| stored.key).collect()
}

/// Writes an intent down as an owner does that dies right after.
async fn intend_and_die(store: &CassandraStore, tenure: Tenure, changes: Vec<Change>) -> i64 {
    let inner = &store.inner;
    let holder = inner.holder(tenure).await.unwrap().unwrap();
    let stamp = inner.stamp(&holder).await.unwrap().unwrap();
    assert!(
        inner.write_down(&holder, &[(0, Intended { stamp, changes })]).await.unwrap().is_some()
    );
    stamp
}

#[test]
fn every_kind_of_write_of_a_former_owner_is_refused() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let (first, second) = (tenure(1, 1), tenure(1, 2));
        take(&old, first).await;
        let there = key(1, 100, 1);
        done(&old, first, vec![put(there)]).await;
        take(&new, second).await;
        let forged: [Vec<Change>; 7] = [
            vec![put(key(1, 50, 2))],
            vec![put(key(1, 50, 3)), put(key(1, 900_000, 4))],
            vec![end(there, State::Delivered)],
            vec![end(there, State::Cancelled)],
            vec![step(there, there, key(1, 500, 5))],
            vec![name(there, "forged")],
            vec![
                put(key(1, 50, 6)),
                name(key(1, 50, 6), "forged too"),
                end(there, State::Cancelled),
            ],
        ];
        for changes in forged {
            let what = format!("{changes:?}");
            assert_eq!(apply(&old, first, changes).await, Ok(Outcome::Fenced), "{what}");
        }
        let far = Marks { counters_until: 99, ..Marks::default() };
        assert_eq!(old.keep(vec![(first, far, Vec::new())]).await, Ok(vec![false]));
        assert_eq!(old.purge(first, Timestamp::MAX).await, Ok(false));
        assert_eq!(old.take(first).await, Ok(None));
        assert_eq!(keys(&new, 1).await, [there]);
        assert_eq!(state(&new, there).await, Some(State::Scheduled));
        let texts = vec!["forged".into(), "forged too".into()];
        assert_eq!(new.names(TopicId::new(7).unwrap(), texts).await, Ok(vec![None, None]));
        assert_eq!(take(&new, second).await, Marks::default());
    });
}

#[test]
fn an_owner_that_pauses_between_its_write_and_its_look_never_says_done() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let groups: [fn(u16) -> Vec<Change>; 2] = [
            |slot| vec![put(key(slot, 100, 1)), put(key(slot, 200, 2))],
            |slot| vec![put(key(slot, 100, 1)), name(key(slot, 100, 1), "paused")],
        ];
        for (slot, changes) in (10..).zip(groups) {
            take(&old, tenure(slot, 1)).await;
            let (reached, was_reached) = oneshot::channel();
            let (go, go_on) = oneshot::channel();
            *old.inner.pauses.lock() = Some((reached, go_on));
            let writing = apply(&old, tenure(slot, 1), changes(slot));
            let taking = async {
                was_reached.await.unwrap();
                take(&new, tenure(slot, 2)).await;
                // The next owner sees whatever was written, and goes on with it.
                let there = key(slot, 100, 1);
                assert!(keys(&new, slot).await.contains(&there));
                done(&new, tenure(slot, 2), vec![end(there, State::Delivered)]).await;
                go.send(()).unwrap();
            };
            let (answer, ()) = tokio::join!(writing, taking);
            assert!(matches!(answer, Err(Failure::Unsure(_))), "{answer:?}");
            assert_eq!(state(&new, key(slot, 100, 1)).await, Some(State::Delivered));
            let late = apply(&old, tenure(slot, 1), vec![end(key(slot, 100, 1), State::Cancelled)]);
            assert_eq!(late.await, Ok(Outcome::Fenced));
        }
    });
}

#[test]
fn what_a_dead_owner_only_intended_is_carried_out_by_the_next() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let owner = tenure(20, 1);
        take(&old, owner).await;
        let places = [1, 2, 3].map(|counter| key(20, 100, counter));
        done(&old, owner, places[..2].iter().map(|place| put(*place)).collect()).await;
        let to = key(20, 7_000_000, 4);
        let changes = vec![
            step(places[0], places[0], to),
            end(places[1], State::Cancelled),
            put(places[2]),
            name(places[2], "intended"),
        ];
        let stamp = intend_and_die(&old, owner, changes.clone()).await;
        assert_eq!(keys(&new, 20).await, places[..2], "nothing was done yet");
        take(&new, tenure(20, 2)).await;
        assert_eq!(keys(&new, 20).await, [places[2], to]);
        assert_eq!(state(&new, places[0]).await, Some(State::Scheduled));
        assert_eq!(state(&new, places[1]).await, Some(State::Cancelled));
        let named = new.names(TopicId::new(7).unwrap(), vec!["intended".into()]).await.unwrap();
        assert_eq!(named[0].map(|named| named.id), Some(id(places[2])));
        // It was not dead: it carries all of it out once more, after the next owner went on.
        done(&new, tenure(20, 2), vec![end(places[2], State::Delivered)]).await;
        done(&new, tenure(20, 2), vec![step(places[0], to, key(20, 300, 5))]).await;
        let inner = &old.inner;
        let zombie = inner.holder(owner).await.unwrap().unwrap();
        let mut outcomes = [Outcome::Done];
        let again = [(0, Intended { stamp, changes })];
        inner.carry_out(&zombie, &again, &mut outcomes).await.unwrap();
        assert_eq!(keys(&new, 20).await, [key(20, 300, 5)], "the later owner has the last word");
        assert_eq!(state(&new, places[2]).await, Some(State::Delivered));
        take(&new, tenure(20, 3)).await;
        assert_eq!(keys(&new, 20).await, [key(20, 300, 5)]);
    });
}

#[test]
fn an_intent_whose_name_is_taken_by_then_is_dropped_whole() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let (owner, other) = (tenure(30, 1), tenure(31, 1));
        take(&old, owner).await;
        take(&new, other).await;
        let (ours, theirs) = (key(30, 100, 1), key(31, 100, 1));
        intend_and_die(&old, owner, vec![put(ours), name(ours, "contested")]).await;
        done(&new, other, vec![put(theirs), name(theirs, "contested")]).await;
        take(&new, tenure(30, 2)).await;
        assert!(keys(&new, 30).await.is_empty());
        assert_eq!(state(&new, ours).await, None);
        let named = new.names(TopicId::new(7).unwrap(), vec!["contested".into()]).await.unwrap();
        assert_eq!(named[0].map(|named| named.id), Some(id(theirs)));
    });
}

#[test]
fn a_name_whose_message_is_on_its_way_is_not_free() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let owner = tenure(40, 1);
        take(&old, owner).await;
        let place = key(40, 100, 1);
        let changes = vec![put(place), name(place, "coming")];
        intend_and_die(&old, owner, changes.clone()).await;
        old.inner.claim_names(&changes).await.unwrap();
        let topic = TopicId::new(7).unwrap();
        let named = new.names(topic, vec!["coming".into()]).await.unwrap()[0].unwrap();
        assert_eq!((named.id, named.state), (id(place), Some(State::Scheduled)));
        // The same owner goes on after trouble: what it intended comes first.
        take(&old, owner).await;
        assert_eq!(keys(&new, 40).await, [place]);
        let named = new.names(topic, vec!["coming".into()]).await.unwrap()[0].unwrap();
        assert_eq!((named.id, named.state), (id(place), Some(State::Scheduled)));
    });
}

#[test]
fn a_group_larger_than_a_row_may_be_is_intended_in_parts() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        let owner = tenure(50, 1);
        take(&old, owner).await;
        let large = |key: Key| {
            let message = Message { body: vec![7; 3 << 20].into(), ..Message::default() };
            Change::Put { key, entry: Entry { message, ..entry(key, None) } }
        };
        let places: Vec<Key> = (1..=4).map(|counter| key(50, counter * 400_000, counter)).collect();
        let mut changes: Vec<Change> = places.iter().map(|place| large(*place)).collect();
        changes.push(name(places[3], "large"));
        intend_and_die(&old, owner, changes).await;
        take(&new, tenure(50, 2)).await;
        for place in places {
            assert_eq!(state(&new, place).await, Some(State::Scheduled));
        }
    });
}

/// Whether the hour of a key is listed for its slot: by topic, and by slot.
async fn span_is_listed(inner: &Inner, key: Key) -> (bool, bool) {
    let Place { slot, lane, bucket } = Place::of(Slot::of(key.sequence), key);
    let span = place::span(bucket);
    let by_topic = (place::topic(TopicId::new(7).unwrap()), lane, span, span);
    let by_topic = inner.calls.rows(&inner.statements.topic_next, by_topic).await.unwrap();
    let slots = by_topic.rows::<(i64, i32)>().unwrap().map(|row| row.unwrap().1);
    let slots: Vec<i32> = slots.collect();
    let by_slot = (slot, lane, span);
    let by_slot = inner.calls.rows(&inner.statements.span_topics, by_slot).await.unwrap();
    (slots.contains(&slot), by_slot.rows_num() > 0)
}

#[test]
fn finished_partitions_are_dropped_and_what_comes_late_stays() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((store, _)) = two().await else { return };
        let owner = tenure(60, 1);
        take(&store, owner).await;
        let hour = |hours: u64, counter| key(60, hours * 3_600_000, counter);
        let places = [hour(0, 1), hour(0, 2), hour(1, 3), hour(2, 4)];
        let mut named = entry(places[0], Some("old"));
        named.due = places[0].due;
        let first = vec![Change::Put { key: places[0], entry: named }, name(places[0], "old")];
        done(&store, owner, first).await;
        done(&store, owner, places[1..].iter().map(|place| put(*place)).collect()).await;
        let moved = hour(1, 5);
        done(&store, owner, vec![step(places[1], places[1], moved)]).await;
        let ends = [places[0], places[2]].map(|place| end(place, State::Delivered));
        done(&store, owner, ends.into()).await;
        let message = id(places[1]);
        let ended = Change::End { id: message, key: moved, state: State::Delivered, at: START };
        done(&store, owner, vec![ended]).await;
        let marks = Marks { ended_before: [hour(2, 0).due; 2], ..Marks::default() };
        assert_eq!(store.keep(vec![(owner, marks, Vec::new())]).await, Ok(vec![true]));
        assert_eq!(state(&store, places[1]).await, Some(State::Delivered), "where it went");
        while store.purge(owner, hour(2, 0).due).await.unwrap() {}
        for place in &places[..3] {
            assert_eq!(state(&store, *place).await, None);
        }
        let topic = TopicId::new(7).unwrap();
        assert_eq!(store.names(topic, vec!["old".into()]).await, Ok(vec![None]));
        let inner = &store.inner;
        let left = inner.buckets((60, place::lane(Lane::Message)), 0..=i64::MAX, 10).await.unwrap();
        assert_eq!(left, [place::bucket(places[3])], "whole partitions went");
        for (hours, there) in [(0, false), (1, false), (2, true)] {
            assert_eq!(span_is_listed(inner, hour(hours, 0)).await, (there, there), "{hours}");
        }
        // What is scheduled for a time long past is listed again, and not covered by the removal.
        let late = hour(0, 9);
        done(&store, owner, vec![put(late)]).await;
        assert_eq!(keys(&store, 60).await, [late, places[3]]);
        assert_eq!(span_is_listed(inner, late).await, (true, true));
    });
}

#[test]
fn stamps_of_a_later_owner_are_later_whatever_the_clocks_show() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((old, new)) = two().await else { return };
        take(&old, tenure(70, 1)).await;
        let holder = old.inner.holder(tenure(70, 1)).await.unwrap().unwrap();
        holder.run_ahead(3_600_000_000);
        let last = old.inner.stamp(&holder).await.unwrap().unwrap();
        take(&new, tenure(70, 2)).await;
        let next = new.inner.holder(tenure(70, 2)).await.unwrap().unwrap();
        assert!(new.inner.stamp(&next).await.unwrap().unwrap() > last);
        assert!(!old.inner.renew(&holder).await.unwrap(), "its bound cannot be moved");
    });
}

#[test]
fn a_bucket_is_listed_once_for_all_topics_and_once_for_each() {
    let runtime = runtime();
    runtime.block_on(async {
        let Some((store, _)) = two().await else { return };
        take(&store, tenure(80, 1)).await;
        let holder = store.inner.holder(tenure(80, 1)).await.unwrap().unwrap();
        let of_topics = |topics: &[u32]| {
            let changes = (1..).zip(topics).map(|(counter, topic)| {
                let key = key(80, 100, counter);
                let topic = TopicId::new(*topic).unwrap();
                Change::Put { key, entry: Entry { topic, ..entry(key, None) } }
            });
            let mut writes = Writes::new(&store.inner, &holder);
            for change in changes {
                writes.add(&change, 1, &HashSet::new());
            }
            writes
        };
        let writes = of_topics(&[1, 2, 2]);
        assert_eq!(writes.listings(), (1, 2));
        writes.run().await.unwrap();
        assert_eq!(of_topics(&[2, 1]).listings(), (0, 0), "they are known");
        assert_eq!(of_topics(&[3]).listings(), (0, 1), "another topic in a bucket that is listed");
        let place = Place::of(Slot(80), key(80, 100, 1));
        holder.forget(place.lane, place.bucket);
        assert_eq!(of_topics(&[1, 2]).listings(), (1, 2), "the bucket was to go");
    });
}

#[test]
fn rows_of_many_partitions_all_arrive() {
    runtime().block_on(async {
        let Some((store, other)) = two().await else { return };
        let tenure = tenure(81, 1);
        store.take(tenure).await.unwrap();
        // Each in a bucket of its own; every tenth one too large to travel with others.
        let sized = |number: u64| if number.is_multiple_of(10) { 6000 } else { 100 };
        let keys: Vec<Key> =
            (0..300).map(|at| key(81, at * 2 * place::BUCKET_MS, at + 1)).collect();
        let changes = keys.iter().zip(0..).map(|(&key, number)| {
            let body = Bytes::from(vec![7; sized(number)]);
            let message = Message { body, ..Message::default() };
            Change::Put { key, entry: Entry { message, ..entry(key, None) } }
        });
        assert_eq!(apply(&store, tenure, changes.collect()).await.unwrap(), Outcome::Done);
        let first = Key { due: Timestamp::MIN, ..Key::default() };
        let limit = (1000, 64 << 20);
        let page = other.page(Slot(81), Lane::Message, first, Timestamp::MAX, limit).await.unwrap();
        let found: Vec<(Key, usize)> = page
            .iter()
            .map(|stored| (stored.key, stored.entry.as_ref().unwrap().message.body.len()))
            .collect();
        let wanted: Vec<(Key, usize)> = keys.into_iter().zip((0..).map(sized)).collect();
        assert_eq!(found, wanted);
    });
}
