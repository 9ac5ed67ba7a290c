//! The contract of [`Timeline`], and the words in which its cases are told.

mod accepting;
mod arming;
mod cancelling;
mod deferring;
mod listing;

use futures_executor::block_on;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Found, PendingEntry, PendingQuery, Timeline,
};
use punctual_model::{
    Basis, Entry, Key, Lane, Message, MessageId, Sequence, State, Timestamp, TopicId,
};

use super::{Stage, after, message, partition};

/// Holds a timeline to its contract. `make` gives a fresh one each time.
///
/// # Panics
/// Where the timeline breaks it.
pub fn timeline<T: Timeline>(make: impl Fn() -> Stage<T>) {
    accepting::ids_come_in_the_order_of_the_batch(&make());
    accepting::an_empty_batch_is_nothing(&make());
    accepting::content_is_kept_byte_for_byte(&make());
    arming::each_entry_is_handed_out_once_in_key_order(&make());
    arming::nothing_is_handed_out_before_its_window(&make());
    arming::late_arrivals_are_handed_out(&make());
    arming::the_limits_of_arm_are_respected(&make());
    arming::nothing_is_lost_between_scheduling_and_arming(&make());
    arming::the_listener_hears_of_late_arrivals(&make());
    arming::what_producers_sent_is_not_in_the_retry_lane(&make());
    cancelling::claim_takes_out_what_was_cancelled(&make());
    cancelling::a_cancel_has_a_definite_outcome(&make());
    cancelling::of_concurrent_cancels_one_wins(&make());
    deferring::what_is_deferred_comes_again_under_its_id(&make());
    deferring::a_cancel_of_what_was_deferred_wins(&make());
    deferring::settling_some_leaves_the_others_claimed(&make());
    deferring::what_is_not_claimed_is_not_deferred(&make());
    deferring::the_listener_hears_of_what_was_deferred(&make());
    accepting::find_tells_the_state(&make());
    listing::pending_is_listed_by_due_time_and_paged(&make());
    listing::pending_is_filtered(&make());
    accepting::counts_are_exact(&make());
}

pub(super) const PLENTY: ArmLimit = ArmLimit { entries: 1000, bytes: 64 << 20 };

pub(super) fn entry(topic: TopicId, due: Timestamp, message: Message) -> Entry {
    Entry { topic, partition: partition(0), due, basis: Basis::Delay, message, extra: None }
}

pub(super) fn schedule<T: Timeline>(timeline: &T, batch: Vec<Entry>) -> Vec<MessageId> {
    block_on(timeline.schedule(batch)).expect("a working store takes a batch")
}

/// Schedules one small message for each due time, given in milliseconds after the start.
pub(super) fn schedule_at<T: Timeline>(stage: &Stage<T>, dues: &[u64]) -> Vec<MessageId> {
    let entry_at = |due: &u64| entry(stage.topics[0], after(*due), message(&format!("due {due}")));
    schedule(&stage.subject, dues.iter().map(entry_at).collect())
}

/// Arms what producers sent, until nothing is left before `until`.
pub(super) fn arm_all<T: Timeline>(timeline: &T, until: Timestamp, limit: ArmLimit) -> Vec<Armed> {
    arm_lane(timeline, Lane::Message, until, limit)
}

/// Arms a lane until nothing is left before `until`.
pub(super) fn arm_lane<T: Timeline>(
    timeline: &T,
    lane: Lane,
    until: Timestamp,
    limit: ArmLimit,
) -> Vec<Armed> {
    let mut all = Vec::new();
    loop {
        let armed = block_on(timeline.arm(lane, until, limit)).expect("a working store arms");
        if armed.is_empty() {
            return all;
        }
        assert!(armed.len() <= limit.entries, "{} entries of {}", armed.len(), limit.entries);
        let but_last =
            armed.iter().rev().skip(1).map(|entry| entry.message.weight()).sum::<usize>();
        assert!(but_last <= limit.bytes, "{but_last} bytes of {} without the last", limit.bytes);
        for entry in &armed {
            assert!(entry.key.due < until, "{} is not before {until}", entry.key.due);
        }
        all.extend(armed);
        assert!(all.len() < 100_000, "a store that never runs dry hands out entries again");
    }
}

pub(super) fn ids(armed: &[Armed]) -> Vec<MessageId> {
    armed.iter().map(Armed::id).collect()
}

fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort();
    ids
}

pub(super) fn claim<T: Timeline>(timeline: &T, mut batch: Vec<Armed>) -> Vec<Armed> {
    block_on(timeline.claim(&mut batch)).expect("a working store lets claim");
    batch
}

pub(super) fn settle<T: Timeline>(timeline: &T, batch: &[Armed]) {
    block_on(timeline.settle(batch)).expect("a working store settles");
}

pub(super) fn cancel<T: Timeline>(timeline: &T, ids: &[MessageId]) -> Vec<CancelOutcome> {
    block_on(timeline.cancel(ids.to_vec())).expect("a working store cancels")
}

pub(super) fn find<T: Timeline>(timeline: &T, id: MessageId) -> Option<Found> {
    let mut found = block_on(timeline.find(vec![id])).expect("a working store finds");
    assert_eq!(found.len(), 1, "one answer for each id");
    found.remove(0)
}

pub(super) fn state<T: Timeline>(timeline: &T, id: MessageId) -> Option<State> {
    find(timeline, id).map(|found| found.state)
}

pub(super) fn everything(topic: TopicId) -> PendingQuery {
    PendingQuery::all_of(topic, Lane::Message, 100)
}

/// All pages of a listing.
pub(super) fn list<T: Timeline>(timeline: &T, mut query: PendingQuery) -> Vec<PendingEntry> {
    let mut all: Vec<PendingEntry> = Vec::new();
    loop {
        let page = block_on(timeline.pending(query.clone())).expect("a working store lists");
        assert!(page.entries.len() <= query.limit, "a page of {}", page.entries.len());
        all.extend(page.entries);
        let Some(next) = page.next else { break };
        assert!(query.after < Some(next), "the next page starts further on");
        query.after = Some(next);
    }
    let in_order = all.windows(2).all(|pair| pair[0].key < pair[1].key);
    assert!(in_order, "a listing is in key order, without repeats");
    all
}

pub(super) fn listed<T: Timeline>(timeline: &T, query: PendingQuery) -> Vec<MessageId> {
    list(timeline, query).iter().map(|entry| entry.id).collect()
}

/// An id that no store has given out in these cases.
pub(super) fn stranger(topic: TopicId, due: Timestamp) -> MessageId {
    let sequence = Sequence::new(1 << 50).expect("fewer than 56 bits");
    MessageId { key: Key { due, sequence }, topic, partition: partition(0) }
}

const _: () = assert!(Stage::<()>::PARTITIONS > 3, "the cases use partitions 0 to 3");
