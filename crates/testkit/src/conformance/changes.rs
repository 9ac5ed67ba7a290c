//! The contract of [`Timeline`] about messages that are changed while they wait, and the words in
//! which its cases are told.

mod revising;
mod moving;
mod linking;
mod naming;
mod forecasting;
mod lasting;

use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::ports::{
    Armed, Done, Forecast, OnConflict, Order, Outlet, PendingEntry, PendingQuery, Refusal, Revised,
    Timeline,
};
use punctual_model::{
    Changed, Entry, Key, Lane, MessageId, OwnId, Parked, Span, Timestamp, TopicId,
};

use super::timeline::settle as settle_claimed;
use super::timeline::{
    PLENTY, arm_all, arm_lane, cancel, claim, entry, everything, find, ids, list, listed, schedule,
    schedule_at, state, stranger,
};
use super::{Stage, after, message, partition};

/// A timeline that knows from its outlet what was delivered.
trait Store: Timeline + Outlet {}

impl<S: Timeline + Outlet> Store for S {}

/// Holds a timeline to what it promises about changes. `make` gives a fresh one each time.
///
/// # Panics
/// Where the timeline breaks it.
pub fn changes<T: Timeline + Outlet>(make: impl Fn() -> Stage<T>) {
    revising::no_orders_are_nothing(&make());
    revising::each_order_is_answered(&make());
    revising::a_refused_order_leaves_nothing(&make());
    revising::a_replaced_message_keeps_its_id(&make());
    revising::replacing_needs_the_place_where_it_stands(&make());
    revising::a_cancel_may_name_the_place(&make());
    revising::of_concurrent_changes_one_wins(&make());
    moving::a_moved_message_is_handed_out_where_it_stands(&make());
    moving::a_message_moved_behind_what_was_armed_is_handed_out(&make());
    moving::claim_drops_what_was_moved_since_it_was_armed(&make());
    moving::of_many_moves_only_the_last_is_delivered(&make());
    moving::what_is_claimed_cannot_be_changed(&make());
    moving::a_moved_message_is_cancelled_by_its_id(&make());
    moving::what_is_paused_is_not_delivered(&make());
    moving::the_listener_hears_of_what_was_moved_near(&make());
    moving::released_entries_come_again_where_they_stand(&make());
    linking::a_half_message_is_nobody_elses_to_end(&make());
    linking::entries_of_one_call_know_each_other(&make());
    linking::what_an_entry_has_beside_its_message_is_kept(&make());
    naming::the_same_request_again_is_told_the_first_answer(&make());
    naming::another_request_with_a_taken_own_id_is_refused(&make());
    naming::a_taken_own_id_may_replace(&make());
    naming::an_own_id_is_taken_after_its_message_ended(&make());
    naming::own_ids_of_one_call_meet(&make());
    naming::what_belongs_to_a_known_message_is_not_stored_again(&make());
    naming::own_ids_of_two_topics_are_independent(&make());
    naming::an_own_id_goes_with_its_message(&make());
    naming::many_own_ids_are_told_apart(&make());
    naming::of_concurrent_requests_one_is_stored(&make());
    forecasting::the_forecast_is_exact(&make());
    forecasting::a_forecast_follows_every_change(&make());
    forecasting::only_messages_are_forecast(&make());
    forecasting::counts_are_kept_for_each_lane(&make());
    forecasting::what_is_parked_is_listed(&make());
    forecasting::a_listing_is_filtered_by_the_beginning_of_a_key(&make());
}

/// Holds a timeline to keeping all that through restarts. `make` gives a fresh one each time;
/// `reopen` ends one and starts it again with what it has stored.
///
/// # Panics
/// Where the timeline breaks it.
pub fn lasting_changes<T: Timeline + Outlet>(make: impl Fn() -> Stage<T>, reopen: impl Fn(T) -> T) {
    lasting::moves_survive_a_restart(make(), &reopen);
    lasting::own_ids_survive_a_restart(make(), &reopen);
    lasting::links_survive_a_restart(make(), &reopen);
    lasting::a_moved_message_is_delivered_once_after_a_restart(make(), &reopen);
    lasting::many_changes_survive_many_restarts(make(), &reopen);
}

fn revise<T: Store>(timeline: &T, orders: Vec<Order>) -> Revised {
    block_on(timeline.revise(orders)).expect("a working store revises")
}

/// What became of orders that can be carried out.
fn done<T: Store>(timeline: &T, orders: Vec<Order>) -> Vec<Done> {
    let count = orders.len();
    match revise(timeline, orders) {
        Revised::Done(done) => {
            assert_eq!(done.len(), count, "one answer for each order");
            done
        }
        Revised::Refused { index, reason } => {
            unreachable!("order {index} of {count} was refused: {reason:?}")
        }
    }
}

/// The one order that is refused, alone.
fn refused<T: Store>(timeline: &T, order: Order) -> Refusal {
    match revise(timeline, vec![order]) {
        Revised::Refused { index: 0, reason } => reason,
        other => unreachable!("it should be refused, and was {other:?}"),
    }
}

/// Stores a new message through an order.
fn store<T: Store>(timeline: &T, order: Order) -> MessageId {
    stored(done(timeline, vec![order])[0])
}

fn stored(done: Done) -> MessageId {
    match done {
        Done::Stored(id) => id,
        other => unreachable!("a new message is stored, and not {other:?}"),
    }
}

fn order(entry: Entry) -> Order {
    order_in(Lane::Message, entry)
}

fn order_in(lane: Lane, entry: Entry) -> Order {
    Order::Schedule { lane, entry, conflict: OnConflict::Reject }
}

/// An entry with a name of its own.
fn with_name(entry: Entry, text: &str, print: u64) -> Entry {
    entry.with_extra(|extra| extra.own_id = Some(OwnId { text: text.into(), print }))
}

/// An order for a small message, due `due` milliseconds after the start, with a name of its own.
fn named_order(topic: TopicId, due: u64, text: &str, print: u64) -> Order {
    order(with_name(entry(topic, after(due), message(text)), text, print))
}

fn named<T: Store>(timeline: &T, topic: TopicId, texts: &[&str]) -> Vec<Option<MessageId>> {
    let texts: Vec<Arc<str>> = texts.iter().map(|text| (*text).into()).collect();
    block_on(timeline.named(topic, texts)).expect("a working store looks names up")
}

fn forecast<T: Store>(timeline: &T, topic: TopicId, bounds: &[Timestamp]) -> Forecast {
    block_on(timeline.forecast(topic, bounds.to_vec())).expect("a working store forecasts")
}

/// A pending message as it is shown.
fn shown<T: Store>(timeline: &T, id: MessageId) -> PendingEntry {
    let found = find(timeline, id).expect("a pending message is known");
    let entry = found.entry.expect("a pending message is shown");
    assert_eq!((entry.id, entry.state()), (id, found.state));
    entry
}

/// What somebody who changes a message makes of it.
fn changed(shown: &PendingEntry, due: Timestamp) -> Entry {
    let changed = Changed { first: shown.id.key, version: shown.version() + 1 };
    let entry = Entry {
        topic: shown.id.topic,
        partition: shown.id.partition,
        due,
        basis: shown.basis,
        message: shown.message.clone(),
        extra: shown.extra.clone(),
    };
    entry.with_extra(|extra| {
        extra.changed = Some(changed);
        extra.parked = None;
    })
}

fn replace(shown: &PendingEntry, entry: Entry) -> Order {
    Order::Replace { id: shown.id, expected: shown.key, entry }
}

/// Gives a pending message a new due time, in milliseconds after the start.
fn reschedule<T: Store>(timeline: &T, id: MessageId, due: u64) -> Key {
    let before = shown(timeline, id);
    put_in_place(timeline, &before, changed(&before, after(due)))
}

/// Stops a pending message.
fn pause<T: Store>(timeline: &T, id: MessageId) -> Key {
    let before = shown(timeline, id);
    let parked = Parked::Paused { remaining: Span::from_millis(7), due: before.key.due };
    let entry = changed(&before, Timestamp::PAUSED);
    put_in_place(timeline, &before, entry.with_extra(|extra| extra.parked = Some(parked)))
}

/// Puts an entry in the place of a message.
fn put_in_place<T: Store>(timeline: &T, before: &PendingEntry, entry: Entry) -> Key {
    let due = entry.due;
    let Done::Moved(key) = done(timeline, vec![replace(before, entry)])[0] else {
        unreachable!("a replaced message is moved")
    };
    assert_eq!(key.due, due, "it stands where it is due");
    assert!(key.sequence > before.key.sequence, "it comes behind what was accepted before");
    assert_eq!(key.sequence.lane(), before.key.sequence.lane(), "it stays in its lane");
    key
}

/// Delivers and settles what was claimed.
fn settle<T: Store>(timeline: &T, batch: &[Armed]) {
    let now = batch.iter().map(|armed| armed.key.due).max().unwrap_or(Timestamp::MIN);
    block_on(timeline.deliver(batch, now)).expect("a working outlet takes a batch");
    settle_claimed(timeline, batch);
}

/// Arms, claims, delivers and settles everything of a lane due before `until`, milliseconds after the start.
fn fire<T: Store>(timeline: &T, lane: Lane, until: u64) -> Vec<(MessageId, Timestamp)> {
    let claimed = claim(timeline, arm_lane(timeline, lane, after(until), PLENTY));
    settle(timeline, &claimed);
    claimed.iter().map(|armed| (armed.id(), armed.key.due)).collect()
}

/// All that a timeline tells of a topic.
#[derive(Debug, PartialEq)]
struct Told {
    listed: [Vec<PendingEntry>; 2],
    counts: [Option<u64>; 2],
    forecast: Forecast,
}

fn told<T: Store>(timeline: &T, topic: TopicId) -> Told {
    let listed =
        Lane::ALL.map(|lane| list(timeline, PendingQuery { lane, limit: 7, ..everything(topic) }));
    let counts = Lane::ALL.map(|lane| {
        let counts = timeline.counts(lane);
        counts.iter().find(|(of, _)| *of == topic).map(|(_, count)| *count)
    });
    for (listed, count) in listed.iter().zip(counts) {
        assert_eq!(listed.len() as u64, count.unwrap_or(0), "counted as it is listed");
    }
    let bounds: Vec<Timestamp> = (0..40).map(|number| after(number * 500)).collect();
    Told { listed, counts, forecast: forecast(timeline, topic, &bounds) }
}
