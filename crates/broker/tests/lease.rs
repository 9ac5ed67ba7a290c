//! Leases: one holder at a time, and what an ack, a nack or an extension is worth (G17 to G21).

mod market;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use market::{LEASE, Market, ack, bodies, fail, receipts, receive, receive_all, take, wait_until};
use punctual_broker::group::{Consumer, Failure, History, Leased, NackOutcome, Reason, Receipt};
use punctual_model::ports::{GroupError, StoreError};
use punctual_model::{GroupSettings, Span};

const MILLISECOND: Span = Span::from_millis(1);

fn all_but_a_moment() -> Span {
    Span::from_millis(LEASE.as_millis() - 1)
}

#[test]
fn g21_a_message_is_with_one_consumer() {
    let market = Market::new(3);
    let consumer = market.group("workers");
    let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    market.deliver(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = consumer.take(30, LEASE).unwrap();
    let second = take(&consumer);
    assert_eq!((first.len(), second.len(), take(&consumer).len()), (30, 70, 0));
    let mut seen = bodies(&first);
    seen.extend(bodies(&second));
    seen.sort_by_key(|name| name.parse::<u32>().unwrap());
    assert_eq!(seen, names);
    assert!(first.iter().chain(&second).all(|leased| leased.attempt == 1));
}

#[test]
fn g17_what_is_not_acked_comes_again_when_its_lease_ends() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let ids = market.deliver(&["k:a"]);
    let first = receive(&consumer, 1).remove(0);
    assert_eq!((first.id, first.attempt, first.due), (ids[0], 1, ids[0].key.due));
    market.pass(all_but_a_moment());
    assert!(take(&consumer).is_empty(), "not a moment before");
    market.pass(MILLISECOND);
    let second = receive(&consumer, 1).remove(0);
    assert_ne!(second.receipt, first.receipt);
    let again = Leased { receipt: first.receipt, attempt: 1, ..second };
    assert_eq!(again, first, "the same message in all but receipt and attempt");
    assert_eq!(second.attempt, 2);
}

#[test]
fn g20_a_receipt_that_ran_out_changes_nothing() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let old = receive(&consumer, 1)[0].receipt;
    // Before anybody noticed that the lease has ended.
    market.clock.advance(LEASE);
    let nothing = |old: Receipt| {
        assert_eq!(ack(&consumer, &[old]), [false]);
        let reject = Failure { reject: true, ..Failure::default() };
        assert_eq!(consumer.nack(&[old], &reject).unwrap(), [NackOutcome::NotHeld]);
        assert_eq!(consumer.extend(&[old], LEASE), [false]);
        assert_eq!(consumer.release(&[old]), [false]);
    };
    nothing(old);
    market.broker.consumers().tend();
    nothing(old);
    let new = receive(&consumer, 1)[0].receipt;
    nothing(old);
    assert_eq!(ack(&consumer, &[new]), [true]);
    nothing(old);
    nothing(new);
    let standing = consumer.standing().unwrap();
    assert_eq!((standing.lag, standing.dead, standing.retrying), (0, 0, 0));
}

#[test]
fn g19_what_was_acked_never_comes_again() {
    let market = Market::new(2);
    let consumer = market.group("workers");
    market.deliver(&["a", "b", "c", "d"]);
    let all = receive_all(&consumer, 4);
    assert_eq!(ack(&consumer, &receipts(&all[..3])), [true; 3]);
    market.pass(LEASE);
    let rest = receive(&consumer, 10);
    assert_eq!(bodies(&rest), bodies(&all[3..]));

    let market = market.restart();
    let consumer = market.group("workers");
    let rest = receive(&consumer, 10);
    assert_eq!(bodies(&rest), bodies(&all[3..]));
    assert_eq!(rest[0].attempt, 2, "attempts survive a restart");
    assert_eq!(ack(&consumer, &receipts(&rest)), [true]);
    let market = market.restart();
    assert!(take(&market.group("workers")).is_empty());
}

#[test]
fn a_receipt_of_another_process_or_group_is_not_held() {
    let market = Market::new(1);
    let (workers, others) = (market.group("workers"), market.group("others"));
    market.deliver(&["a"]);
    let receipt = receive(&workers, 1)[0].receipt;
    receive(&others, 1);
    assert_eq!(ack(&others, &[receipt]), [false]);
    assert_eq!(others.extend(&[receipt], LEASE), [false]);
    assert_eq!(ack(&workers, &[receipt, receipt]), [true, false], "the second is not held");
    let market = market.restart();
    let others = market.group("others");
    let old = receive(&others, 1)[0].receipt;
    let market = market.restart();
    let others = market.group("others");
    receive(&others, 1);
    assert_eq!(ack(&others, &[old]), [false]);
}

#[test]
fn an_extended_lease_is_counted_from_the_extension() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    market.pass(all_but_a_moment());
    assert_eq!(consumer.extend(&[receipt], LEASE), [true]);
    market.pass(all_but_a_moment());
    assert!(take(&consumer).is_empty());
    assert_eq!(consumer.extend(&[receipt], Span::from_secs(1)), [true], "shorter too");
    market.pass(Span::from_secs(1));
    assert_eq!(receive(&consumer, 1)[0].attempt, 2);
    assert_eq!(ack(&consumer, &[receipt]), [false]);
}

#[test]
fn what_is_given_back_unseen_is_no_failed_attempt() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    assert_eq!(consumer.release(&[receipt]), [true]);
    let again = take(&consumer).remove(0);
    assert_eq!(again.attempt, 1);
    assert_eq!(ack(&consumer, &[receipt, again.receipt]), [false, true]);
}

#[test]
fn a_step_of_the_wall_clock_ends_no_lease() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    market.clock.step_wall(3_600_000);
    market.broker.consumers().tend();
    assert!(take(&consumer).is_empty());
    market.clock.step_wall(-7_200_000);
    market.pass(all_but_a_moment());
    assert!(take(&consumer).is_empty());
    assert_eq!(ack(&consumer, &[receipt]), [true]);
}

#[test]
fn a_lease_never_runs_out_under_an_ack_that_has_begun() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    market.valve.shut();
    let mut acked = Box::pin(consumer.ack(std::slice::from_ref(&receipt)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(acked.as_mut().poll(&mut context).is_pending());
    market.pass(LEASE);
    assert!(take(&consumer).is_empty(), "it is being acked");
    assert_eq!(ack(&consumer, &[receipt]), [false], "by one caller only");
    market.valve.open();
    assert_eq!(market::within_a_minute(acked), Ok(vec![true]));
    market.pass(LEASE);
    assert!(take(&consumer).is_empty());
}

#[test]
fn an_ack_whose_caller_has_gone_is_seen_to_its_end() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    market.valve.shut();
    let receipts = [receipt];
    let mut acked = Box::pin(consumer.ack(&receipts));
    assert!(acked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(acked);
    market.valve.open();
    // The scout's, and this one.
    wait_until("second ack", || market.broker.stats().acked >= 2);
    market.pass(LEASE);
    assert!(take(&consumer).is_empty());
    assert_eq!(consumer.standing().unwrap().lag, 0);
}

#[test]
fn after_a_refused_ack_the_message_is_still_held() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipt = receive(&consumer, 1)[0].receipt;
    market.valve.refuse();
    let refused = market::within_a_minute(consumer.ack(&[receipt]));
    assert_eq!(refused, Err(GroupError::Store(StoreError::Full)));
    let failure = Failure::default();
    let refused = consumer.nack(&[receipt], &failure).unwrap_err();
    assert_eq!(refused, GroupError::Store(StoreError::Full));
    assert!(take(&consumer).is_empty());
    market.valve.open();
    assert_eq!(consumer.extend(&[receipt], LEASE), [true]);
    assert_eq!(ack(&consumer, &[receipt]), [true]);
}

#[test]
fn an_ack_refused_after_its_lease_has_ended_leaves_the_message_to_others() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a"]);
    let receipts = [receive(&consumer, 1)[0].receipt];
    market.valve.shut();
    let mut acked = Box::pin(consumer.ack(&receipts));
    assert!(acked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    market.pass(LEASE);
    assert!(take(&consumer).is_empty());
    market.valve.open_too_late();
    let refused = market::within_a_minute(acked);
    assert_eq!(refused, Err(GroupError::Store(StoreError::Full)));
    assert_eq!(ack(&consumer, &receipts), [false], "it has run out meanwhile");
    assert_eq!(receive(&consumer, 1)[0].attempt, 2);
}

#[test]
fn the_last_lease_to_run_out_makes_a_dead_letter() {
    let market = Market::new(1);
    let settings = GroupSettings { attempts_max: Some(2), ..GroupSettings::default() };
    let consumer = market.put("workers", settings);
    let ids = market.deliver(&["a"]);
    receive(&consumer, 1);
    market.pass(LEASE);
    assert_eq!(receive(&consumer, 1)[0].attempt, 2);
    market.valve.refuse();
    market.pass(LEASE);
    assert!(take(&consumer).is_empty(), "never a third time, even if the store refuses");
    market.valve.open();
    // The rest after the refusal may begin only now.
    wait_until("dead letter", || {
        market.pass(Span::from_secs(1));
        assert!(take(&consumer).is_empty());
        !market.log(consumer.group().dead).is_empty()
    });
    let dead = dead(&market, &consumer);
    assert_eq!((dead.id, dead.failed), (ids[0], 2));
    assert_eq!(dead.reason, Some(Reason::AttemptsExhausted));
    assert_eq!(dead.last_error.as_deref(), Some("lease ran out"));
}

/// The one dead letter of a group.
fn dead(market: &Market, consumer: &Consumer) -> History {
    let topic = consumer.group().dead;
    let mut message = market.log(topic).remove(0).message;
    History::detach(&mut message).expect("a dead letter has a history")
}

#[test]
fn waiters_are_woken_by_what_arrives_and_by_what_comes_back() {
    let market = Arc::new(Market::new(1));
    let consumer = market.group("workers");
    let available = consumer.available();
    assert!(take(&consumer).is_empty());
    market.send(&["a"]);
    market::within_a_minute(available);
    let receipt = receive(&consumer, 1)[0].receipt;

    let available = consumer.available();
    assert!(take(&consumer).is_empty());
    market.pass(LEASE);
    market::within_a_minute(available);
    assert_eq!(take(&consumer)[0].attempt, 2);
    assert_eq!(fail(&consumer, receipt, "late"), NackOutcome::NotHeld);

    let mut available = Box::pin(consumer.available());
    let poll = available.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll, Poll::Pending);
    market.broker.consumers().delete(&market.topic, &consumer.group().name).unwrap();
    market::within_a_minute(available);
    assert_eq!(consumer.take(1, LEASE).unwrap_err(), GroupError::NotFound);
}

#[test]
fn a_holder_is_told_when_something_may_be_held_no_more() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.deliver(&["a", "b", "c", "d"]);
    let mut held: Vec<Receipt> = receipts(&receive(&consumer, 4));
    let look = |held: &mut Vec<Receipt>| {
        consumer.held(held);
        held.len()
    };
    let is_told = |by: &dyn Fn()| {
        let mut settled = consumer.settled();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut settled).poll(&mut context), Poll::Pending);
        by();
        Pin::new(&mut settled).poll(&mut context).is_ready()
    };
    assert_eq!(look(&mut held), 4);
    let [a, b, c, _] = held[..] else { panic!("four are held") };
    assert!(is_told(&|| assert_eq!(ack(&consumer, &[a]), [true])));
    assert_eq!(look(&mut held), 3);
    let reject = Failure { reject: true, ..Failure::default() };
    assert!(is_told(&|| drop(consumer.nack(&[b], &reject).unwrap())));
    assert_eq!(look(&mut held), 2);
    assert!(is_told(&|| drop(consumer.release(&[c]))));
    assert_eq!(look(&mut held), 1);
    assert_eq!(consumer.extend(&held, LEASE), [true]);
    assert_eq!(look(&mut held), 1, "a longer lease is the same one");
    // The broker itself may notice the end of the lease first.
    let mut settled = consumer.settled();
    let poll = Pin::new(&mut settled).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll, Poll::Pending);
    market.pass(LEASE);
    market::within_a_minute(settled);
    assert_eq!(look(&mut held), 0);
}
