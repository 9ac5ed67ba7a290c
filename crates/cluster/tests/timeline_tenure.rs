//! Slots that come and go: nothing is lost, nothing is delivered twice unless it was on its way, and
//! what was cancelled is never delivered.

mod timeline_support;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use punctual_cluster::catalogue::KnownTopics;
use punctual_cluster::store::memory::{Call, Fault, Memory, Moment};
use punctual_cluster::store::{Marks, Slot, SlotStore, Tenure};
use punctual_model::ports::{
    CancelOutcome, Done, Held, OnConflict, Order, PendingQuery, Refusal, Revised, StoreError,
    Timeline,
};
use punctual_model::{Entry, Lane, MessageId, State, Timestamp, TopicId};
use tokio::runtime::Handle;

use timeline_support::{
    Script, after, arm, claim, entry, ids, is_unavailable, options, ready, schedule, sorted, within,
};

async fn state<T: Timeline>(timeline: &T, id: MessageId) -> Option<State> {
    timeline.find(vec![id]).await.expect("a working store finds").remove(0).map(|found| found.state)
}

async fn cancel<T: Timeline>(timeline: &T, id: MessageId) -> CancelOutcome {
    timeline.cancel(vec![id]).await.expect("a working store cancels")[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn without_slots_everything_is_elsewhere() {
    let (store, script) = (Memory::default(), Script::new(&[]));
    let timeline = ready(&store, &script).await;
    let elsewhere = Err(StoreError::Elsewhere);
    assert_eq!(timeline.schedule(vec![entry(1, "x")]).await, elsewhere);
    let other = ready(&store, &Script::new(&[(3, 1)])).await;
    let id = schedule(&other, &[1000]).await[0];
    assert_eq!(timeline.cancel(vec![id]).await, Err(StoreError::Elsewhere));
    let order = Order::Cancel { id, expected: None };
    assert_eq!(timeline.revise(vec![order]).await, Err(StoreError::Elsewhere));
    assert_eq!(state(&timeline, id).await, Some(State::Scheduled), "it is read from the store");
    assert!(arm(&timeline, 5000).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_to_leave_is_brought_to_rest_first() {
    let (store, script) = (Memory::default(), Script::new(&[(1, 1), (2, 1)]));
    let timeline = ready(&store, &script).await;
    let mut given = Vec::new();
    for due in [10, 20, 5000] {
        given.extend(schedule(&timeline, &[due]).await);
    }
    let claimed = claim(&timeline, arm(&timeline, 100).await).await;
    assert_eq!(ids(&claimed), given[..2]);
    let held = |slot, leaving| Held { slot, term: 1, leaving, retired: false };
    script.say(vec![held(1, true), held(2, true)]);
    within(async {
        while timeline.schedule(vec![entry(1, "x")]).await != Err(StoreError::Elsewhere) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let busy: Vec<u32> =
        claimed.iter().map(|armed| u32::from(Slot::of(armed.key.sequence).0)).collect();
    let released = script.released_slots();
    assert!(
        busy.iter().all(|slot| !released.contains(&(*slot, 1))),
        "it waits for what is claimed"
    );
    timeline.settle(&claimed).await.unwrap();
    for slot in [1, 2] {
        script.until_released(slot, 1).await;
    }
    let next = ready(&store, &Script::new(&[(1, 2), (2, 2)])).await;
    assert_eq!(state(&next, given[0]).await, Some(State::Delivered));
    let rest = arm(&next, 10_000).await;
    assert!(ids(&rest).contains(&given[2]));
    assert!(!ids(&rest).contains(&given[0]) && !ids(&rest).contains(&given[1]));
}

/// Counters are the node's: taking a slot over whose counters are far ahead must not stop the slots
/// whose own are behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_counters_are_behind_settles_and_cancels() {
    let store = Memory::default();
    let behind = schedule(&ready(&store, &Script::new(&[(1, 1)])).await, &[10, 90_000]).await;
    let tenure = Tenure { slot: Slot(2), term: 1 };
    let marks = store.take(tenure).await.unwrap().unwrap();
    let ahead = Marks { counters_until: 1 << 32, ..marks };
    assert_eq!(store.keep(vec![(tenure, ahead, Vec::new())]).await, Ok(vec![true]));

    let next = ready(&store, &Script::new(&[(1, 2), (2, 2)])).await;
    let claimed = claim(&next, arm(&next, 100).await).await;
    assert_eq!(ids(&claimed), behind[..1]);
    within(next.settle(&claimed)).await.unwrap();
    assert_eq!(state(&next, behind[0]).await, Some(State::Delivered));
    assert_eq!(within(cancel(&next, behind[1])).await, CancelOutcome::Cancelled);
}

/// The tenure is lost at each point of a delivery; the next owner has what was not settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenure_is_lost_at_every_point() {
    for point in ["before the claim", "after the claim", "after it was settled"] {
        let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
        let zombie = ready(&store, &script).await;
        let given = schedule(&zombie, &[10_000, 20_000, 90_000]).await;
        let armed = arm(&zombie, 30_000).await;
        let mut claimed = Vec::new();
        if point != "before the claim" {
            claimed = claim(&zombie, armed.clone()).await;
            assert_eq!(claimed.len(), 2, "{point}");
        }
        if point == "after it was settled" {
            zombie.settle(&claimed).await.unwrap();
        }
        // Nobody tells the old owner.
        let next = ready(&store, &Script::new(&[(4, 2)])).await;
        if point == "before the claim" {
            // Its marks are what it has to write first: there it finds out.
            assert!(claim(&zombie, armed).await.is_empty());
        } else {
            // It has sent them; what it cannot settle is the next owner's.
            assert_eq!(zombie.settle(&claimed).await, Ok(()), "{point}");
        }
        assert_eq!(zombie.schedule(vec![entry(5, "x")]).await, Err(StoreError::Elsewhere));
        let expected = if point == "after it was settled" { vec![] } else { given[..2].to_vec() };
        assert_eq!(ids(&arm(&next, 30_000).await), expected, "{point}");
        assert_eq!(ids(&arm(&next, 100_000).await), given[2..], "{point}");
    }
}

/// A zombie may have sent what it said it would claim: that is not withdrawn any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_before_may_have_sent_is_not_cancelled() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let zombie = ready(&store, &script).await;
    let given = schedule(&zombie, &[10, 20, 90_000]).await;
    let claimed = claim(&zombie, arm(&zombie, 15).await).await;
    assert_eq!(ids(&claimed), given[..1]);
    let next = ready(&store, &Script::new(&[(4, 2)])).await;
    assert_eq!(cancel(&next, given[0]).await, CancelOutcome::AlreadyDelivered);
    assert_eq!(cancel(&next, given[1]).await, CancelOutcome::AlreadyDelivered, "it may have been");
    assert_eq!(
        cancel(&next, given[2]).await,
        CancelOutcome::Cancelled,
        "it was too early for that"
    );
    let new = schedule(&next, &[12]).await[0];
    assert_eq!(cancel(&next, new).await, CancelOutcome::Cancelled, "it was not there yet");
    let again = claim(&next, arm(&next, 100_000).await).await;
    assert_eq!(ids(&again), given[..2], "both are delivered, perhaps again");
    next.settle(&again).await.unwrap();
    assert_eq!(state(&next, given[1]).await, Some(State::Delivered));
}

/// What the broker moves by itself stays in doubt; what somebody asks for is too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_doubt_is_moved_by_the_broker_alone() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let zombie = ready(&store, &script).await;
    let given = schedule(&zombie, &[10, 20]).await;
    claim(&zombie, arm(&zombie, 15).await).await;
    let next = ready(&store, &Script::new(&[(4, 2)])).await;
    let armed = arm(&next, 100).await;
    let later = armed[1].deferred(after(700));
    let asked = later.clone().with_extra(|extra| {
        let changed = extra.changed.as_mut().unwrap();
        changed.version += 1;
    });
    let order = |entry| Order::Replace { id: given[1], expected: given[1].key, entry };
    let answer = next.revise(vec![order(asked)]).await.unwrap();
    assert!(matches!(answer, Revised::Refused { .. }), "{answer:?}");
    let answer = next.revise(vec![order(later)]).await.unwrap();
    assert!(matches!(&answer, Revised::Done(done) if matches!(done[0], Done::Moved(_))));
    assert_eq!(cancel(&next, given[1]).await, CancelOutcome::AlreadyDelivered);
    assert_eq!(ids(&arm(&next, 1000).await), given[1..]);
    // Whoever takes over from that owner, as suddenly, knows of it too.
    let last = ready(&store, &Script::new(&[(4, 3)])).await;
    assert_eq!(cancel(&last, given[1]).await, CancelOutcome::AlreadyDelivered);
    let again = claim(&last, arm(&last, 1000).await).await;
    assert_eq!(ids(&again), given);
    last.settle(&again).await.unwrap();
    assert_eq!(state(&last, given[1]).await, Some(State::Delivered));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_without_certainty() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let timeline = ready(&store, &script).await;
    let given = schedule(&timeline, &[10]).await;
    let mut armed = arm(&timeline, 100).await;
    script.be_certain(false);
    assert!(is_unavailable(timeline.claim(&mut armed).await));
    assert_eq!(armed.len(), 1, "it is offered again");
    assert_eq!(cancel(&timeline, given[0]).await, CancelOutcome::Cancelled);
    script.be_certain(true);
    timeline.claim(&mut armed).await.unwrap();
    assert!(armed.is_empty());
}

/// What is being delivered is passed over: whoever lists is not told to look again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_does_not_end_at_what_is_being_delivered() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let timeline = ready(&store, &script).await;
    let given = schedule(&timeline, &[10, 20, 30, 70_000]).await;
    let claimed = claim(&timeline, arm(&timeline, 100).await).await;
    assert_eq!(ids(&claimed), given[..3]);
    let query = PendingQuery::all_of(given[0].topic, Lane::Message, 1);
    let page = timeline.pending(query).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), given[3..]);
    timeline.settle(&claimed).await.unwrap();
}

/// A claim is announced in the store before it is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_announced_first() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let timeline = ready(&store, &script).await;
    schedule(&timeline, &[50_000]).await;
    let armed = arm(&timeline, 60_000).await;
    let claimed = claim(&timeline, armed).await;
    assert_eq!(claimed.len(), 1);
    assert!(store.marks(Slot(4)).unwrap().claimed_until >= after(50_000));
    // The rounds of the keeper go on until it is gone.
    timeline.settle(&claimed).await.unwrap();
    timeline.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_tried_again() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let timeline = ready(&store, &script).await;
    let given = schedule(&timeline, &[10, 20, 30]).await;
    store.fail_next(Call::Apply, Fault::Unavailable, 1);
    assert!(is_unavailable(timeline.cancel(given[..1].to_vec()).await));
    let armed = arm(&timeline, 100).await;
    assert_eq!(ids(&armed), given, "nothing was withdrawn");
    let claimed = claim(&timeline, armed).await;
    store.fail_next(Call::Apply, Fault::Unavailable, 2);
    assert!(is_unavailable(timeline.settle(&claimed).await));
    assert!(is_unavailable(timeline.settle(&claimed).await));
    assert_eq!(cancel(&timeline, given[0]).await, CancelOutcome::AlreadyDelivered);
    timeline.settle(&claimed).await.unwrap();
    assert!(store.is_empty(Slot(4)).await.unwrap());
    timeline.settle(&claimed).await.unwrap();
}

/// Nobody knows whether the store has done it: the slot is read again, and tells.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_unsure_answer_the_slot_is_read_again() {
    for fault in [Fault::UnsureDone, Fault::UnsureNotDone, Fault::Panics] {
        let done = fault != Fault::UnsureNotDone;
        let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
        let timeline = ready(&store, &script).await;
        let given = schedule(&timeline, &[10, 20, 30, 40, 70_000]).await;
        let on_the_wheel = arm(&timeline, 35).await;
        let claimed = claim(&timeline, on_the_wheel[..1].to_vec()).await;
        store.fail_next(Call::Apply, fault, 1);
        assert!(is_unavailable(timeline.cancel(vec![given[1], given[4]]).await));
        let outcome = within(async {
            loop {
                match timeline.cancel(vec![given[1], given[4]]).await {
                    Ok(outcome) => break outcome,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        let expected =
            if done { CancelOutcome::AlreadyCancelled } else { CancelOutcome::Cancelled };
        assert_eq!(outcome, [expected; 2], "{fault:?}");
        assert_eq!(cancel(&timeline, given[0]).await, CancelOutcome::AlreadyDelivered);
        assert!(claim(&timeline, on_the_wheel[1..].to_vec()).await.is_empty(), "of before");
        let again = arm(&timeline, 100_000).await;
        assert_eq!(ids(&again), [given[2], given[3]], "{fault:?}");
        timeline.settle(&claimed).await.unwrap();
        timeline.settle(&claim(&timeline, again).await).await.unwrap();
        assert!(store.is_empty(Slot(4)).await.unwrap(), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsure_settle_is_settled_in_the_end() {
    for fault in [Fault::UnsureDone, Fault::UnsureNotDone, Fault::Panics] {
        let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
        let timeline = ready(&store, &script).await;
        let given = schedule(&timeline, &[10, 20]).await;
        let claimed = claim(&timeline, arm(&timeline, 100).await).await;
        store.fail_next(Call::Apply, fault, 1);
        assert!(is_unavailable(timeline.settle(&claimed).await));
        within(async {
            while timeline.settle(&claimed).await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        for id in given {
            assert_eq!(state(&timeline, id).await, Some(State::Delivered), "{fault:?}");
        }
        assert!(arm(&timeline, 1000).await.is_empty(), "{fault:?}");
        assert_eq!(timeline.stats().claimed, 0, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_on_its_way_keeps_a_message_from_being_claimed() {
    for fails in [false, true] {
        let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
        let timeline = ready(&store, &script).await;
        let given = schedule(&timeline, &[10]).await;
        let armed = arm(&timeline, 100).await;
        let gate = store.gate(Call::Apply, Moment::Before);
        if fails {
            store.fail_next(Call::Apply, Fault::Unavailable, 1);
        }
        let cancelling = Handle::current().spawn({
            let (timeline, ids) = (timeline.clone(), given.clone());
            async move { timeline.cancel(ids).await }
        });
        within(gate.reached()).await;
        assert!(claim(&timeline, armed).await.is_empty(), "it may be cancelled any moment");
        assert!(arm(&timeline, 100).await.is_empty(), "nor is it handed out again");
        drop(gate);
        let outcome = cancelling.await.unwrap();
        if fails {
            assert!(is_unavailable(outcome));
            let again = claim(&timeline, arm(&timeline, 100).await).await;
            assert_eq!(ids(&again), given, "it is delivered after all");
        } else {
            assert_eq!(outcome, Ok(vec![CancelOutcome::Cancelled]));
            assert!(arm(&timeline, 100).await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_long_ago_is_read_by_the_next_owner() {
    let (store, script) = (Memory::default(), Script::new(&[(4, 1)]));
    let timeline = ready(&store, &script).await;
    timeline.close().await;
    let lower = Script::new(&[(4, 2)]);
    let timeline = ready(&store, &lower).await;
    let long_ago = Timestamp::from_millis_saturating(5);
    assert!(store.marks(Slot(4)).unwrap().ended_before[0] > long_ago, "the marks went on");
    let old = Entry { due: long_ago, ..entry(0, "long ago") };
    let id = timeline.schedule(vec![old]).await.unwrap();
    let next = ready(&store, &Script::new(&[(4, 3)])).await;
    assert_eq!(ids(&arm(&next, 1).await), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_slot_takes_nothing_new_and_ends() {
    let (store, script) = (Memory::default(), Script::new(&[(1, 1), (2, 1)]));
    let timeline = ready(&store, &script).await;
    let held = |slot, retired| Held { slot, term: 1, leaving: false, retired };
    script.say(vec![held(1, true), held(2, false)]);
    within(async {
        while !timeline.tenures().iter().any(|view| view.retired) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..8 {
        let id = schedule(&timeline, &[1000]).await[0];
        assert_eq!(Slot::of(id.key.sequence), Slot(2));
    }
    script.until_drained(1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_the_bounds_of_memory_stays_in_the_store() {
    let (store, script) = (Memory::default(), Script::new(&[(1, 1), (2, 1)]));
    let small = punctual_cluster::timeline::TimelineOptions { memory_entries: 100, ..options() };
    let handle = Handle::current();
    let timeline = timeline_support::open_with(&store, &script, &handle, small);
    within(timeline.ready()).await;
    let mut given = Vec::new();
    for batch in 0..20 {
        let dues: Vec<u64> =
            (0..50).map(|number| 10_000 + (batch * 50 + number) % 137 * 300).collect();
        given.extend(schedule(&timeline, &dues).await);
    }
    assert!(timeline.stats().entries <= 100, "{:?}", timeline.stats());
    let mut fired = Vec::new();
    for until in (0..60).map(|step| step * 1000) {
        loop {
            let armed = timeline.arm(Lane::Message, after(until), timeline_support::PLENTY).await;
            let claimed = claim(&timeline, armed.unwrap()).await;
            if claimed.is_empty() {
                break;
            }
            assert!(claimed.iter().all(|armed| armed.key.due < after(until)));
            timeline.settle(&claimed).await.unwrap();
            fired.extend(ids(&claimed));
        }
    }
    assert_eq!(sorted(fired), sorted(given), "each once");
}

/// Two nodes over one store; slots move between them while messages come and go.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_lose_nothing_while_slots_move() {
    let store = Memory::default();
    let scripts = [Script::new(&[(1, 1), (2, 1)]), Script::new(&[(3, 1), (4, 1)])];
    let nodes = [ready(&store, &scripts[0]).await, ready(&store, &scripts[1]).await];
    let mut delivered: BTreeMap<MessageId, usize> = BTreeMap::new();
    let mut given = Vec::new();
    let mut cancelled = Vec::new();
    for round in 1..=8u64 {
        for node in &nodes {
            for due in [round * 100, round * 100 + 50, 50_000] {
                given.extend(schedule(node, &[due]).await);
            }
        }
        let victim = given[given.len() - 1];
        for node in &nodes {
            if let Ok(outcome) = node.cancel(vec![victim]).await {
                assert_eq!(outcome, [CancelOutcome::Cancelled]);
                cancelled.push(victim);
            }
        }
        let until = if round == 8 { 90_000 } else { round * 100 + 60 };
        for node in &nodes {
            let claimed = claim(node, arm(node, until).await).await;
            ids(&claimed).into_iter().for_each(|id| *delivered.entry(id).or_default() += 1);
            node.settle(&claimed).await.unwrap();
        }
        // Everything changes hands, in an orderly way.
        for script in &scripts {
            let leaving = script_slots(script).into_iter();
            let leaving =
                leaving.map(|(slot, term)| Held { slot, term, leaving: true, retired: false });
            script.say(leaving.collect());
        }
        let now = usize::from(round % 2 == 0);
        for (owner, slots) in [(now, [1, 2]), (1 - now, [3, 4])] {
            for slot in slots {
                scripts[owner].until_released(slot, round).await;
            }
        }
        scripts[1 - now].assign(&[(1, round + 1), (2, round + 1)]);
        scripts[now].assign(&[(3, round + 1), (4, round + 1)]);
        for node in &nodes {
            within(node.ready()).await;
        }
    }
    for id in &cancelled {
        assert!(!delivered.contains_key(id), "what was cancelled is never delivered");
    }
    let expected: Vec<MessageId> = given.into_iter().filter(|id| !cancelled.contains(id)).collect();
    for node in &nodes {
        let claimed = claim(node, arm(node, 90_000).await).await;
        ids(&claimed).into_iter().for_each(|id| *delivered.entry(id).or_default() += 1);
    }
    assert!(delivered.values().all(|times| *times == 1), "nothing was on its way: {delivered:?}");
    assert_eq!(delivered.into_keys().collect::<Vec<_>>(), sorted(expected));
}

fn script_slots(script: &Script) -> Vec<(u32, u64)> {
    use punctual_model::ports::Coordinator;
    script.holding().slots.iter().map(|held| (held.slot, held.term)).collect()
}

struct Without(TopicId);

impl KnownTopics for Without {
    fn is_known(&self, id: TopicId) -> bool {
        id != self.0
    }

    fn known(
        &self,
        ids: Vec<TopicId>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, StoreError>> + Send>> {
        let known = ids.into_iter().map(|id| self.is_known(id)).collect();
        Box::pin(std::future::ready(Ok(known)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_topic_any_more_is_withdrawn_when_it_is_due() {
    let (store, script) = (Memory::default(), Script::new(&[(1, 1), (2, 1)]));
    let gone = TopicId::new(9).unwrap();
    let timeline = ready(&store, &script).await.knowing(Arc::new(Without(gone)));
    let given = schedule(&timeline, &[10, 20]).await;
    let homeless = Entry { topic: gone, ..entry(15, "nobody's") };
    let homeless = timeline.schedule(vec![homeless]).await.unwrap()[0];
    let armed = arm(&timeline, 100).await;
    assert_eq!(armed.len(), 3);
    assert_eq!(ids(&claim(&timeline, armed).await), given);
    assert_eq!(state(&timeline, homeless).await, Some(State::Cancelled));
}

/// Orders of several slots are looked at in all of them before any is carried out.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_leaves_other_slots_alone() {
    let (store, script) = (Memory::default(), Script::new(&[(1, 1), (2, 1), (3, 1)]));
    let timeline = ready(&store, &script).await;
    let mut given = Vec::new();
    for due in 0..9 {
        given.extend(schedule(&timeline, &[1000 + due]).await);
    }
    let slots: std::collections::BTreeSet<Slot> =
        given.iter().map(|id| Slot::of(id.key.sequence)).collect();
    assert_eq!(slots.len(), 3, "new messages go round");
    cancel(&timeline, given[7]).await;
    let order = |id: &MessageId| Order::Cancel { id: *id, expected: Some(id.key) };
    let orders: Vec<Order> = given.iter().map(order).collect();
    let answer = timeline.revise(orders.clone()).await.unwrap();
    let reason = Refusal::Ended(State::Cancelled);
    assert_eq!(answer, Revised::Refused { index: 7, reason });
    for id in given.iter().filter(|id| **id != given[7]) {
        assert_eq!(state(&timeline, *id).await, Some(State::Scheduled));
    }
    let mut rest = orders;
    rest.remove(7);
    let new = Order::Schedule {
        lane: Lane::Message,
        entry: entry(5, "new"),
        conflict: OnConflict::Reject,
    };
    rest.push(new);
    let Revised::Done(done) = timeline.revise(rest).await.unwrap() else { unreachable!() };
    assert_eq!(done[..8], [Done::Cancelled; 8]);
    let Done::Stored(id) = done[8] else { unreachable!("{done:?}") };
    assert_eq!(ids(&arm(&timeline, 10_000).await), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_term_in_the_store_keeps_a_node_out() {
    let store = Memory::default();
    store.take(Tenure { slot: Slot(1), term: 9 }).await.unwrap();
    let script = Script::new(&[(1, 3)]);
    let handle = Handle::current();
    let timeline = timeline_support::open(&store, &script, &handle);
    assert_eq!(timeline.schedule(vec![entry(1, "x")]).await, Err(StoreError::Elsewhere));
    script.assign(&[(1, 10)]);
    within(timeline.ready()).await;
    schedule(&timeline, &[1]).await;
}
