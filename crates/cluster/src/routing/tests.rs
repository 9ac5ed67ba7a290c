//! Requests find their owner, however slots move, nodes vanish and answers get lost.

mod world;

use punctual_model::ports::{
    CancelOutcome, Done, OnConflict, Order, Refusal, Revised, StoreError, Timeline as _,
};
use punctual_model::{Lane, State};

use self::world::{Fault, World, entry, named};

fn schedule_named(name: &str) -> Order {
    Order::Schedule { lane: Lane::Message, entry: named(name), conflict: OnConflict::Replace }
}

#[tokio::test]
async fn new_messages_go_to_the_own_slots_and_cost_no_call() {
    let world = World::new(3, 6);
    let ids = world.node(1).schedule(vec![entry(), entry()]).await.unwrap();
    assert_eq!(ids.iter().map(|id| world.owner(*id)).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert_eq!(world.node(1).figures().calls, 0);
}

#[tokio::test]
async fn a_node_without_slots_sends_new_messages_to_others_in_turn() {
    let world = World::new(3, 2);
    world.give(0, 0);
    world.give(1, 1);
    let mut owners = Vec::new();
    for _ in 0..4 {
        let ids = world.node(2).schedule(vec![entry()]).await.unwrap();
        owners.push(world.owner(ids[0]).unwrap());
    }
    owners.sort_unstable();
    assert_eq!(owners, [0, 0, 1, 1]);
}

#[tokio::test]
async fn answers_come_back_in_the_order_of_the_ids() {
    let world = World::new(3, 6);
    let mut ids = Vec::new();
    for node in [0, 1, 2, 1, 0] {
        ids.extend(world.node(node).schedule(vec![entry()]).await.unwrap());
    }
    world.end(ids[3], State::Delivered);
    let outcomes = world.node(2).cancel(ids.clone()).await.unwrap();
    let expected = [
        CancelOutcome::Cancelled,
        CancelOutcome::Cancelled,
        CancelOutcome::Cancelled,
        CancelOutcome::AlreadyDelivered,
        CancelOutcome::Cancelled,
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(world.node(0).cancel(vec![ids[1]]).await, Ok(vec![CancelOutcome::AlreadyCancelled]));
}

#[tokio::test]
async fn a_slot_that_moved_is_found_where_it_is_now() {
    let world = World::new(3, 3);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    // Node 0 believes that it is where it was until it has asked there in vain.
    world.move_unseen(1, 2);
    world.at_next_call(World::see_all);
    assert_eq!(world.node(0).cancel(vec![id]).await, Ok(vec![CancelOutcome::Cancelled]));
    assert!(world.node(0).figures().retried >= 1);
}

#[tokio::test]
async fn the_slots_of_a_node_that_is_gone_are_waited_for() {
    let world = World::new(2, 2);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.down(1);
    world.at_next_call(|world| world.give(1, 0));
    assert_eq!(world.node(0).cancel(vec![id]).await, Ok(vec![CancelOutcome::Cancelled]));
}

#[tokio::test]
async fn patience_has_an_end() {
    let world = World::impatient(2, 2);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.take_away(1);
    let refused = world.node(0).cancel(vec![id]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    world.take_away(0);
    let refused = world.node(0).schedule(vec![entry()]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
}

#[tokio::test]
async fn a_schedule_whose_answer_was_lost_is_not_repeated() {
    let world = World::new(2, 1);
    world.give(0, 1);
    world.fault(Fault::LoseAnswer);
    let refused = world.node(0).schedule(vec![entry()]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    assert_eq!(world.stored(), 1, "it may have been done, and it was, once");
}

#[tokio::test]
async fn a_schedule_that_was_never_sent_is_tried_again() {
    let world = World::new(2, 1);
    world.give(0, 1);
    world.fault(Fault::NotSent);
    assert_eq!(world.node(0).schedule(vec![entry()]).await.map(|ids| ids.len()), Ok(1));
    assert_eq!(world.stored(), 1);
}

#[tokio::test]
async fn a_cancel_whose_answer_was_lost_is_a_cancel() {
    let world = World::new(2, 2);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.fault(Fault::LoseAnswer);
    assert_eq!(world.node(0).cancel(vec![id]).await, Ok(vec![CancelOutcome::Cancelled]));
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_known_again() {
    let world = World::new(2, 2);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.fault(Fault::LoseAnswer);
    let order = world.replace(id, "changed");
    let done = world.node(0).revise(vec![order.clone()]).await.unwrap();
    assert!(matches!(done, Revised::Done(ref all) if matches!(all[..], [Done::Moved(_)])));
    let other = world.replace(id, "again");
    let stale = Order::Replace { id, expected: id.key, entry: world.entry_of(&other) };
    let refused = world.node(0).revise(vec![stale]).await.unwrap();
    assert_eq!(refused, Revised::Refused { index: 0, reason: Refusal::Changed });
}

#[tokio::test]
async fn new_entries_beside_a_lost_answer_are_not_stored_twice() {
    let world = World::new(2, 2);
    let id = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.fault(Fault::LoseAnswer);
    let schedule =
        Order::Schedule { lane: Lane::Message, entry: entry(), conflict: OnConflict::Reject };
    let orders = vec![world.replace(id, "changed"), schedule];
    assert!(matches!(world.node(0).revise(orders).await, Err(StoreError::Unavailable(_))));
    assert_eq!(world.stored(), 2);
}

#[tokio::test]
async fn orders_of_several_slots_are_carried_out_and_what_was_done_is_known_again() {
    let world = World::new(2, 2);
    let first = world.node(0).schedule(vec![entry()]).await.unwrap()[0];
    let second = world.node(1).schedule(vec![entry()]).await.unwrap()[0];
    world.end(second, State::Cancelled);
    let orders = vec![world.replace(first, "one"), world.replace(second, "two")];
    let refused = world.node(0).revise(orders.clone()).await.unwrap();
    let reason = Refusal::Ended(State::Cancelled);
    assert_eq!(refused, Revised::Refused { index: 1, reason });
    // Whoever leaves the refused one out and asks again is told that the rest is done.
    let done = world.node(0).revise(vec![orders[0].clone()]).await.unwrap();
    assert!(matches!(done, Revised::Done(ref all) if matches!(all[..], [Done::Moved(_)])));
}

#[tokio::test]
async fn who_takes_a_name_over_is_sent_to_who_has_it() {
    let world = World::new(2, 2);
    let had = world.node(1).revise(vec![schedule_named("a")]).await.unwrap();
    let Revised::Done(had) = had else { panic!("{had:?}") };
    let Done::Stored(had) = had[0] else { panic!("{had:?}") };
    let has = world.node(0).revise(vec![schedule_named("a")]).await.unwrap();
    let Revised::Done(has) = has else { panic!("{has:?}") };
    let Done::Stored(has) = has[0] else { panic!("{has:?}") };
    assert_eq!((world.owner(has), world.state(had)), (Some(1), Some(State::Cancelled)));
}

#[test]
fn it_works_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let world = runtime.block_on(async { World::new(2, 2) });
    let id = futures_executor::block_on(world.node(1).schedule(vec![entry()])).unwrap()[0];
    let cancelled = futures_executor::block_on(world.node(0).cancel(vec![id]));
    assert_eq!(cancelled, Ok(vec![CancelOutcome::Cancelled]));
}
