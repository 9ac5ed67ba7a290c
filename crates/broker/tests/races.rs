//! Of a successful cancel and a delivery exactly one happens: G26 and G27, with real threads.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod house;

use std::collections::BTreeSet;
use std::sync::Barrier;

use house::{House, Store, embedded, reference, request, soon, wall, within_a_minute};
use punctual_broker::When;
use punctual_model::ports::CancelOutcome;
use punctual_model::{MessageId, Span};

const THREADS: usize = 4;

/// Runs `work` on several threads that start together, and answers what each answered.
fn together<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let run = |number| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn g27_of_many_cancels_one_succeeds_over_the_reference() {
    of_many_cancels_one_succeeds(&reference());
}

#[test]
fn g27_of_many_cancels_one_succeeds_over_the_engine() {
    of_many_cancels_one_succeeds(&embedded());
}

fn of_many_cancels_one_succeeds<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    let day = When::After(Span::from_days(1));
    let sent = house.schedule(&topic, vec![request(day); 400]);
    let answers = together(|_| {
        let cancel = |id: MessageId| within_a_minute(house.broker.cancel(vec![id])).unwrap()[0];
        sent.iter().map(|scheduled| cancel(scheduled.id)).collect::<Vec<_>>()
    });
    for index in 0..sent.len() {
        let won = answers.iter().filter(|of| of[index] == CancelOutcome::Cancelled).count();
        let lost = answers.iter().filter(|of| of[index] == CancelOutcome::AlreadyCancelled).count();
        assert_eq!((won, lost), (1, THREADS - 1), "message {index}");
    }
    assert_eq!((house.broker.stats().cancelled, house.stop_and_count_pending()), (400, 0));
}

#[test]
fn g27_a_message_is_cancelled_or_delivered_over_the_reference() {
    a_message_is_cancelled_or_delivered(&reference());
}

#[test]
fn g27_a_message_is_cancelled_or_delivered_over_the_engine() {
    a_message_is_cancelled_or_delivered(&embedded());
}

/// Messages come due while four threads cancel them, near the moment at which each is due.
fn a_message_is_cancelled_or_delivered<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 3);
    let base = wall().saturating_add(Span::from_millis(100));
    let mut sent = Vec::new();
    for round in 0..40u64 {
        let due = |n: u64| When::At(base.saturating_add(Span::from_millis((round * 100 + n) / 10)));
        sent.extend(house.schedule(&topic, (0..100).map(|n| request(due(n))).collect()));
    }
    let outcomes = together(|number| {
        let mine = sent.iter().skip(number).step_by(THREADS).map(|scheduled| scheduled.id);
        let mine: Vec<MessageId> = mine.collect();
        let mut answers = Vec::new();
        for ids in mine.chunks(7) {
            // Not before the moment is near: a race is wanted. It is short, so it is spun away.
            while wall().saturating_add(Span::from_millis(1)) < ids[0].key.due {
                std::thread::yield_now();
            }
            let outcomes = within_a_minute(house.broker.cancel(ids.to_vec())).unwrap();
            answers.extend(ids.iter().copied().zip(outcomes));
        }
        answers
    });
    let mut cancelled = BTreeSet::new();
    for (id, outcome) in outcomes.into_iter().flatten() {
        match outcome {
            CancelOutcome::Cancelled => assert!(cancelled.insert(id)),
            CancelOutcome::AlreadyDelivered => {}
            other => unreachable!("{id} was neither: {other:?}"),
        }
    }
    house.gate.wait_for(sent.len() - cancelled.len());
    // One more behind all of them: whatever would have come too much has come by then.
    house.send(&topic, soon(10));
    house.gate.wait_for(sent.len() - cancelled.len() + 1);
    assert_eq!(house.stop_and_count_pending(), 0);
    let received: BTreeSet<MessageId> = house.received(&topic).into_iter().collect();
    for scheduled in &sent {
        let (was_cancelled, was_delivered) =
            (cancelled.contains(&scheduled.id), received.contains(&scheduled.id));
        assert!(was_cancelled != was_delivered, "{} {was_cancelled}", scheduled.id);
    }
    let stats = house.broker.stats();
    assert_eq!(stats.cancelled + stats.delivered, stats.scheduled);
}
