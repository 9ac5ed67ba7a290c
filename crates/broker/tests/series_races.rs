//! Series that are cancelled while they fire, from other threads: after the answer nothing comes.

mod series_support;

use std::sync::Barrier;

use futures_executor::block_on;
use punctual_model::Span;
use punctual_model::ports::{CancelOutcome, Timeline};

use series_support::{Round, every, opening, secs, times};

const ROUNDS: u64 = 120;

/// Lets ten seconds pass while `meddle` runs in another thread.
fn fire_while(round: &Round, delay: u64, meddle: impl FnOnce() + Send) {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            (0..delay).for_each(|_| std::thread::yield_now());
            meddle();
        });
        start.wait();
        for _ in 0..10 {
            round.clock.advance(Span::from_secs(1));
            round.fire_messages();
            round.fire_series();
        }
    });
}

#[test]
fn of_a_cancelled_series_nothing_comes_after_the_answer() {
    for delay in 0..ROUNDS {
        let mut round = Round::new();
        let id = round.open(opening(every(1)));
        let mut seen = 0;
        fire_while(&round, delay, || {
            assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::Cancelled));
            seen = round.log().len();
        });
        round.run(5);
        let delivered = round.delivered();
        let in_order: Vec<u64> = (1..).take(delivered.len()).collect();
        assert_eq!(delivered, in_order, "each once, and none left out before the cancel");
        // One may have been on its way to the log when the answer was given.
        assert!(delivered.len() <= seen + 1, "{} after {seen} at the answer", delivered.len());
        assert!(round.pending().is_empty() && round.series().is_empty());
    }
}

#[test]
fn of_many_cancels_one_succeeds() {
    for delay in 0..ROUNDS / 3 {
        let mut round = Round::new();
        let id = round.open(opening(every(1)));
        let cancel = || block_on(round.keeper.cancel(id)).unwrap();
        let mut outcomes = Vec::new();
        fire_while(&round, delay, || {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(cancel)).collect();
                outcomes = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            });
        });
        outcomes.retain(|outcome| *outcome == CancelOutcome::Cancelled);
        assert_eq!(outcomes.len(), 1);
    }
}

#[test]
fn cancelled_occurrences_are_the_only_ones_left_out() {
    for delay in 0..ROUNDS {
        let mut round = Round::new();
        round.open(opening(times(every(1), 10)));
        let mut cancelled = Vec::new();
        fire_while(&round, delay, || {
            for entry in round.occurrences() {
                let outcomes = block_on(round.store.cancel(vec![entry.id])).unwrap();
                if outcomes[0] == CancelOutcome::Cancelled {
                    cancelled.push(secs(entry.key.due));
                }
            }
        });
        round.run(5);
        let mut all = round.delivered();
        all.extend(cancelled);
        all.sort_unstable();
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
        assert!(round.series().is_empty());
    }
}
