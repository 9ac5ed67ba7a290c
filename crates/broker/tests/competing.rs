//! Many consumers of one group at once, with real threads: every message is with one of them.

mod market;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use market::{LEASE, Market, ack, receipts, request, wait_until, within_a_minute};
use parking_lot::Mutex;
use punctual_broker::group::{Failure, Leased, NackOutcome};
use punctual_model::{MessageId, Span};

const THREADS: usize = 64;
const MESSAGES: usize = 4000;

/// Runs `work` in many threads until all messages were handled. It gets what was taken and answers
/// how many of them are done with.
fn compete(market: &Market, work: impl Fn(&[Leased]) -> usize + Sync) {
    let left = AtomicUsize::new(MESSAGES);
    let consumer = market.group("workers");
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (consumer, left, work) = (consumer.clone(), &left, &work);
            scope.spawn(move || {
                while left.load(Ordering::SeqCst) > 0 {
                    let available = consumer.available();
                    let taken = consumer.take(1 + number % 7, LEASE).expect("a working store");
                    if taken.is_empty() {
                        if left.load(Ordering::SeqCst) > 0 {
                            within_a_minute(available);
                        }
                        continue;
                    }
                    let done = work(&taken);
                    if left.fetch_sub(done, Ordering::SeqCst) == done {
                        // The last one sends the others home.
                        consumer.reset(&punctual_broker::group::ResetTo::Latest).expect("a reset");
                    }
                }
            });
        }
        let requests = (0..MESSAGES).map(|number| request(&number.to_string())).collect();
        market.schedule(requests);
    });
}

#[test]
fn g21_of_many_consumers_one_has_the_message() {
    let market = Market::new(4);
    let seen: Mutex<HashSet<MessageId>> = Mutex::default();
    let consumer = market.group("workers");
    compete(&market, |taken| {
        for leased in taken {
            assert!(seen.lock().insert(leased.id), "{} was leased twice", leased.id);
            assert_eq!(leased.attempt, 1);
        }
        assert_eq!(ack(&consumer, &receipts(taken)), vec![true; taken.len()]);
        taken.len()
    });
    assert_eq!(seen.lock().len(), MESSAGES);
    assert_eq!(consumer.standing().expect("a working store").lag, 0);
}

#[test]
fn g21_with_failures_too_each_attempt_has_one_holder() {
    let market = Market::new(4);
    let seen: Mutex<HashSet<(MessageId, u16)>> = Mutex::default();
    let consumer = market.group("workers");
    let at_once = Failure { delay: Some(Span::ZERO), ..Failure::default() };
    compete(&market, |taken| {
        let mut done = 0;
        for leased in taken {
            let attempt = (leased.id, leased.attempt);
            assert!(seen.lock().insert(attempt), "{attempt:?} was leased twice");
            if leased.attempt == 1 && leased.offset % 3 == 0 {
                let outcomes = consumer.nack(&[leased.receipt], &at_once).expect("a working store");
                assert_eq!(outcomes, [NackOutcome::Requeued]);
            } else {
                assert_eq!(ack(&consumer, &[leased.receipt]), [true]);
                done += 1;
            }
        }
        done
    });
    // What was just given out may count as waiting for a moment longer.
    wait_until("end of the retries", || consumer.standing().unwrap().retrying == 0);
    let standing = consumer.standing().expect("a working store");
    assert_eq!((standing.lag, standing.dead), (0, 0));
}
