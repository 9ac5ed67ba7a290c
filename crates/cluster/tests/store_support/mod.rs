//! The contract of `SlotStore` and `Documents`, executable: every store runs these suites unchanged.
//!
//! Each case is a function whose name is the promise, and starts from a fresh, empty store.

#![expect(clippy::unwrap_used, reason = "a failed case panics")]

mod owning;
mod changing;
mod naming;
mod listing;
mod papers;

use std::sync::Arc;

use bytes::Bytes;
use punctual_cluster::store::{
    Change, Documents, Group, Marks, Outcome, Slot, SlotStore, Stored, Tenure,
};
use punctual_model::{
    Basis, Changed, Entry, Extra, Key, Lane, Message, MessageId, OwnId, Partition, Span, State,
    Timestamp, TopicId,
};

/// Holds a store to the contract of slots. `make` gives a fresh, empty one each time.
pub(crate) async fn slot_store<S: SlotStore>(make: impl AsyncFn() -> S) {
    owning::a_slot_is_taken_and_remembers_its_marks(&make().await).await;
    owning::claims_are_taken_back_by_saying_none(&make().await).await;
    owning::a_lower_term_is_refused(&make().await).await;
    owning::a_write_with_an_old_term_changes_nothing(&make().await).await;
    owning::keep_answers_for_each_slot(&make().await).await;
    owning::slots_are_independent(&make().await).await;
    changing::what_was_put_is_read_again(&make().await).await;
    changing::content_is_kept_byte_for_byte(&make().await).await;
    changing::a_moved_message_is_found_by_its_id(&make().await).await;
    changing::an_ended_message_is_known_and_not_pending(&make().await).await;
    changing::the_first_end_counts(&make().await).await;
    changing::a_group_is_carried_out_whole_or_not_at_all(&make().await).await;
    changing::groups_of_one_call_are_answered_one_by_one(&make().await).await;
    changing::many_changes_fit_one_group(&make().await).await;
    changing::what_is_parked_is_never_due(&make().await).await;
    changing::pages_are_limited_and_go_on(&make().await).await;
    changing::lanes_and_slots_are_apart_in_pages(&make().await).await;
    naming::a_name_is_given_once(&make().await).await;
    naming::a_name_passes_on_from_whom_it_was_read(&make().await).await;
    naming::a_name_tells_what_became_of_its_message(&make().await).await;
    naming::names_are_told_apart(&make().await).await;
    naming::of_concurrent_groups_one_gets_the_name(&make().await).await;
    listing::pending_is_listed_over_all_slots(&make().await).await;
    listing::a_listing_is_filtered(&make().await).await;
    listing::what_was_counted_is_forecast(&make().await).await;
    listing::purge_takes_what_ended_long_ago(&make().await).await;
    listing::a_slot_is_empty_without_pending_entries(&make().await).await;
}

/// Holds a store to the contract of documents. `make` gives a fresh, empty one each time.
pub(crate) async fn documents<D: Documents>(make: impl AsyncFn() -> D) {
    papers::a_document_is_changed_by_whom_has_read_it(&make().await).await;
    papers::changes_are_told_in_order_and_deletions_too(&make().await).await;
    papers::kinds_are_apart(&make().await).await;
    papers::of_concurrent_changes_one_wins(make().await).await;
}

/// The time at which every case starts: a whole hour in 2027.
const START: Timestamp = Timestamp::from_millis_saturating(1_800_000_000_000);

const PLENTY: (usize, usize) = (1000, 64 << 20);

/// Before everything.
const FIRST: Key = Key { due: Timestamp::MIN, sequence: Lane::Message.first() };

fn after(millis: u64) -> Timestamp {
    START.saturating_add(Span::from_millis(millis))
}

fn topic(number: u32) -> TopicId {
    TopicId::new(number).unwrap()
}

fn tenure(slot: u16, term: u64) -> Tenure {
    Tenure { slot: Slot(slot), term }
}

fn key(slot: u16, due: u64, counter: u64) -> Key {
    key_in(Lane::Message, slot, after(due), counter)
}

fn key_in(lane: Lane, slot: u16, due: Timestamp, counter: u64) -> Key {
    Key { due, sequence: Slot(slot).sequence(lane, counter) }
}

fn entry(topic: TopicId, due: Timestamp, body: &str) -> Entry {
    let message = Message { body: Bytes::copy_from_slice(body.as_bytes()), ..Message::default() };
    let partition = Partition::new(0).unwrap();
    Entry { topic, partition, due, basis: Basis::Delay, message, extra: None }
}

fn with_name(entry: Entry, text: &str, print: u64) -> Entry {
    entry.with_extra(|extra| extra.own_id = Some(OwnId { text: text.into(), print }))
}

/// What an entry that was put at `key` is called.
fn id(key: Key, entry: &Entry) -> MessageId {
    MessageId { key, topic: entry.topic, partition: entry.partition }
}

fn put(key: Key, entry: &Entry) -> Change {
    assert_eq!(key.due, entry.due, "an entry stands where it is due");
    Change::Put { key, entry: entry.clone() }
}

fn name(id: MessageId, text: &str, print: u64, expected: Option<MessageId>) -> Change {
    Change::Name { topic: id.topic, text: text.into(), print, id, expected }
}

fn end(id: MessageId, key: Key, state: State, at: u64) -> Change {
    Change::End { id, key, state, at: after(at) }
}

/// The entry as it is after a change, due at `due`.
fn changed(id: MessageId, entry: &Entry, due: Timestamp) -> Entry {
    Entry { due, ..entry.clone() }.with_extra(|extra: &mut Extra| {
        let version = extra.changed.map_or(1, |changed| changed.version) + 1;
        extra.changed = Some(Changed { first: id.key, version });
    })
}

async fn take<S: SlotStore>(store: &S, tenure: Tenure) -> Marks {
    store.take(tenure).await.unwrap().expect("nobody has a higher term")
}

/// Carries out one group.
async fn apply<S: SlotStore>(store: &S, tenure: Tenure, changes: Vec<Change>) -> Outcome {
    let outcomes = store.apply(vec![Group { tenure, changes }]).await.unwrap();
    assert_eq!(outcomes.len(), 1, "one answer for each group");
    outcomes[0]
}

async fn done<S: SlotStore>(store: &S, tenure: Tenure, changes: Vec<Change>) {
    assert_eq!(apply(store, tenure, changes).await, Outcome::Done);
}

async fn get<S: SlotStore>(store: &S, id: MessageId) -> Option<Stored> {
    let mut found = store.get(vec![id]).await.unwrap();
    assert_eq!(found.len(), 1, "one answer for each id");
    found.remove(0)
}

async fn state<S: SlotStore>(store: &S, id: MessageId) -> Option<State> {
    get(store, id).await.map(|stored| stored.state)
}

/// All that is pending of a slot and lane before the parked ones, in one page.
async fn page<S: SlotStore>(store: &S, slot: u16, lane: Lane) -> Vec<Stored> {
    store.page(Slot(slot), lane, FIRST, Timestamp::MAX, PLENTY).await.unwrap()
}

fn keys(page: &[Stored]) -> Vec<Key> {
    page.iter().map(|stored| stored.key).collect()
}

fn text(text: &str) -> Arc<str> {
    text.into()
}
