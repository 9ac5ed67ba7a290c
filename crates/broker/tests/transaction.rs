//! What becomes of half messages: nobody sees them before the commit, and the first decision wins.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod transaction_support;

use std::thread;

use punctual_broker::transaction::{
    DecideError, Draft, InvalidCheck, PrepareError, TransactionState,
};
use punctual_model::ports::{CancelOutcome, Order, PendingQuery, Timeline, Topics};
use punctual_model::{
    Basis, CheckPolicy, Lane, MessageId, Span, State, Timestamp, TopicId, limits,
};

use transaction_support::{
    HOUR, Office, SECOND, Store, THREE, draft, group, named, office, start, within_a_minute,
};

const COMMITTED: TransactionState = TransactionState::Committed;
const ROLLED_BACK: TransactionState = TransactionState::RolledBack;

/// The messages of a topic that a listing shows, and those that a forecast counts.
fn visible<S: Store>(office: &Office<S>, topic: TopicId) -> (usize, u64) {
    let query =
        PendingQuery { to: Timestamp::PREPARED, ..PendingQuery::all_of(topic, Lane::Message, 100) };
    let listed = within_a_minute(office.store.pending(query)).unwrap().entries.len();
    let forecast = within_a_minute(office.store.forecast(topic, Vec::new())).unwrap();
    (listed, forecast.scheduled)
}

#[test]
fn g29_a_half_message_is_invisible_until_it_is_committed() {
    let office = office();
    let prepared = office.prepare_one("a");
    let [half] = prepared.messages[..] else { panic!("one message, not {prepared:?}") };
    assert_eq!(prepared.state, TransactionState::Prepared);
    office.pass(HOUR);
    assert_eq!(office.log("orders"), []);
    assert_eq!(visible(&office, half.topic), (0, 0));
    assert_eq!(office.message(half).unwrap().0, State::Prepared);

    assert_eq!(office.commit(prepared.id), Ok(COMMITTED));
    assert_eq!(visible(&office, half.topic), (1, 1));
    let (state, entry) = office.message(half).unwrap();
    assert_eq!((state, entry.unwrap().version()), (State::Scheduled, 1));
    office.fire();
    assert_eq!(office.log("orders"), [("a".to_owned(), 3600)]);
    assert_eq!(office.message(half).unwrap().0, State::Delivered);
}

#[test]
fn g30_what_was_rolled_back_is_never_delivered() {
    let office = office();
    let prepared = office.prepare_one("a");
    assert_eq!(office.rollback(prepared.id), Ok(ROLLED_BACK));
    let office = office.restart();
    office.pass(Span::from_days(3));
    assert_eq!(office.log("orders"), []);
    assert_eq!(office.message(prepared.messages[0]).unwrap().0, State::Cancelled);
    assert_eq!(office.pending(), 0);
}

#[test]
fn g31_a_decision_repeated_succeeds_and_the_opposite_is_refused_also_after_a_restart() {
    let mut office = office();
    let (kept, dropped) = (office.prepare_one("kept").id, office.prepare_one("dropped").id);
    for _ in 0..3 {
        assert_eq!(office.commit(kept), Ok(COMMITTED));
        assert_eq!(office.rollback(kept), Err(DecideError::AlreadyDecided(COMMITTED)));
        assert_eq!(office.rollback(dropped), Ok(ROLLED_BACK));
        assert_eq!(office.commit(dropped), Err(DecideError::AlreadyDecided(ROLLED_BACK)));
        office.pass(HOUR);
        office = office.restart();
    }
    assert_eq!(office.log("orders"), [("kept".to_owned(), 0)]);
}

#[test]
fn a_decision_is_remembered_for_a_day() {
    let office = office();
    let id = office.prepare_one("a").id;
    office.pass(SECOND);
    office.commit(id).unwrap();
    let office = office.restart();
    office.pass(Span::from_secs(24 * 3600 - 1));
    assert_eq!(Span::from_secs(24 * 3600), limits::REMEMBERED);
    assert_eq!(office.state(id), Some(COMMITTED));
    assert_eq!(office.get(id).unwrap().decided, start().checked_add(SECOND));
    office.pass(SECOND);
    assert_eq!(office.state(id), None);
    assert_eq!(office.commit(id), Err(DecideError::NotFound));
    assert_eq!(office.pending(), 0);
}

#[test]
fn g30_a_delay_counts_from_the_commit_or_from_the_send() {
    let office = office();
    let topic = office.topic("orders");
    let in_ten = start().saturating_add(Span::from_secs(10));
    let mut from_commit = office.half(&topic, "commit");
    from_commit.entry.due = in_ten;
    from_commit.delay = Some(Span::from_secs(10));
    let mut from_send = office.half(&topic, "send");
    from_send.entry.due = in_ten;
    from_send.delay = None;
    let mut date = office.half(&topic, "date");
    date.entry.due = start().saturating_add(Span::from_secs(12));
    date.entry.basis = Basis::Date;
    date.delay = None;
    let mut over = office.half(&topic, "over");
    over.entry.due = start().saturating_add(SECOND);
    over.delay = None;
    let id = office.prepare(vec![from_commit, from_send, date, over]).id;
    office.pass(Span::from_secs(5));
    office.commit(id).unwrap();
    office.fire();
    let mut expected = vec![("over".to_owned(), 1)];
    assert_eq!(office.log("orders"), expected);
    for (body, due) in [("send", 10), ("date", 12), ("commit", 15)] {
        let left = Span::from_secs(due - 1).as_millis();
        let passed = office.clock.now().since(start()).as_millis();
        office.pass(Span::from_millis(left - passed));
        assert_eq!(office.log("orders"), expected, "a second too early");
        office.pass(SECOND);
        expected.push((body.to_owned(), due));
        assert_eq!(office.log("orders"), expected);
    }
}

#[test]
fn messages_of_several_topics_are_decided_together() {
    let office = office();
    let (orders, bills) = (office.topic("orders"), office.topic("bills"));
    let both = |body: &str| vec![office.half(&orders, body), office.half(&bills, body)];
    let (first, second) = (office.prepare(both("1")), office.prepare(both("2")));
    office.commit(first.id).unwrap();
    office.rollback(second.id).unwrap();
    office.fire();
    assert_eq!(office.log("orders"), [("1".to_owned(), 0)]);
    assert_eq!(office.log("bills"), [("1".to_owned(), 0)]);
    let shown = office.get(first.id).unwrap();
    let names: Vec<_> = shown.messages.iter().map(|half| half.topic.clone()).collect();
    assert_eq!(names, [Some(orders.name.clone()), Some(bills.name.clone())]);
    let ids: Vec<MessageId> = shown.messages.iter().map(|half| half.id).collect();
    assert_eq!(ids, first.messages);
}

#[test]
fn messages_of_a_deleted_topic_are_left_out() {
    let office = office();
    let (orders, bills) = (office.topic("orders"), office.topic("bills"));
    let both = |body: &str| vec![office.half(&orders, body), office.half(&bills, body)];
    let (first, second) = (office.prepare(both("1")), office.prepare(both("2")));
    office.store.delete(&bills.name).unwrap();
    office.pass(THREE.first);
    assert_eq!(office.checks()[0].messages.len(), 1);
    assert_eq!(office.commit(first.id), Ok(COMMITTED));
    assert_eq!(office.rollback(second.id), Ok(ROLLED_BACK));
    office.fire();
    assert_eq!(office.log("orders").len(), 1);
    assert_eq!(office.get(first.id).unwrap().messages[1].topic, None);
}

#[test]
fn a_half_that_somebody_withdrew_is_left_out() {
    let office = office();
    let topic = office.topic("orders");
    let prepared = office.prepare(vec![office.half(&topic, "1"), office.half(&topic, "2")]);
    let id = prepared.messages[0];
    let outcomes = within_a_minute(office.store.cancel(vec![id])).unwrap();
    assert_eq!(outcomes, [CancelOutcome::Undecided], "not in the usual way");
    let orders = vec![Order::Cancel { id, expected: None }];
    within_a_minute(office.store.revise(orders)).unwrap();
    assert_eq!(office.commit(prepared.id), Ok(COMMITTED));
    office.fire();
    assert_eq!(office.log("orders"), [("2".to_owned(), 0)]);
}

#[test]
fn g31_of_many_decisions_at_once_one_wins_and_all_are_told_so() {
    let office = office();
    for round in 0..50 {
        let id = office.prepare_one("a").id;
        let decide = |commits: bool| {
            let desk = &office.desk;
            let decided = if commits {
                within_a_minute(desk.commit(id))
            } else {
                within_a_minute(desk.rollback(id))
            };
            match decided {
                Ok(transaction) => transaction.state,
                Err(DecideError::AlreadyDecided(state)) => state,
                Err(error) => panic!("{error}"),
            }
        };
        let states: Vec<TransactionState> = thread::scope(|scope| {
            let decide = &decide;
            let spawn = |number| scope.spawn(move || decide((number + round) % 2 == 0));
            let threads: Vec<_> = (0..8).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winner = office.state(id).unwrap();
        assert_eq!(states, [winner; 8]);
        let before = office.log("orders").len();
        office.fire();
        let delivered = office.log("orders").len() - before;
        assert_eq!(delivered, usize::from(winner == COMMITTED));
    }
}

#[test]
fn foreign_ids_are_not_found() {
    let office = office();
    let prepared = office.prepare_one("a");
    let half = prepared.messages[0];
    for id in [half, MessageId { topic: half.topic, ..prepared.id }] {
        assert_eq!(office.commit(id), Err(DecideError::NotFound));
        assert_eq!(office.rollback(id), Err(DecideError::NotFound));
        assert_eq!(office.get(id), None);
    }
    assert_eq!(office.state(prepared.id), Some(TransactionState::Prepared));
}

#[test]
fn nothing_is_stored_when_an_own_id_is_taken() {
    let office = office();
    let topic = office.topic("orders");
    let first = office.prepare(vec![named(office.half(&topic, "1"), "n1", 1)]);
    let pending = office.pending();
    let taken = Err(PrepareError::OwnIdTaken { index: 1, id: Some(first.messages[0]) });
    // With a message without an own id, or with own ids throughout.
    let plain = vec![office.half(&topic, "x"), named(office.half(&topic, "1"), "n1", 1)];
    let own =
        vec![named(office.half(&topic, "x"), "n0", 1), named(office.half(&topic, "1"), "n1", 1)];
    for halves in [plain, own] {
        assert_eq!(within_a_minute(office.desk.prepare(draft(halves))), taken);
        assert_eq!(office.pending(), pending);
    }
    let twice =
        vec![named(office.half(&topic, "x"), "n2", 1), named(office.half(&topic, "x"), "n2", 1)];
    let refused = within_a_minute(office.desk.prepare(draft(twice)));
    assert_eq!(refused, Err(PrepareError::OwnIdTaken { index: 1, id: None }));
    assert_eq!(office.pending(), pending);
}

#[test]
fn the_same_prepare_again_is_told_the_first_answer() {
    let office = office();
    let topic = office.topic("orders");
    let halves =
        || vec![named(office.half(&topic, "1"), "n1", 7), named(office.half(&topic, "2"), "n2", 8)];
    let first = office.prepare(halves());
    let pending = office.pending();
    for state in [TransactionState::Prepared, COMMITTED] {
        let again = office.prepare(halves());
        assert!(again.duplicate && !first.duplicate);
        assert_eq!((again.id, again.state, &again.messages), (first.id, state, &first.messages));
        assert_eq!(office.pending(), pending);
        office.commit(first.id).unwrap();
    }
    office.pass(SECOND);
    assert!(office.prepare(halves()).duplicate, "the messages were delivered, the name is known");

    // Anything that is not the same is a conflict.
    let other =
        vec![named(office.half(&topic, "1"), "n1", 7), named(office.half(&topic, "2"), "n2", 9)];
    let slow = CheckPolicy { max: 4, ..THREE };
    for draft in [draft(other), Draft { check: Some(slow), ..draft(halves()) }] {
        let refused = within_a_minute(office.desk.prepare(draft));
        let id = Some(first.messages[0]);
        assert_eq!(refused, Err(PrepareError::OwnIdTaken { index: 0, id }));
    }
}

#[test]
fn the_same_prepare_from_many_threads_is_stored_once() {
    let office = office();
    let topic = office.topic("orders");
    for round in 0..400 {
        let name = format!("n{round}");
        let before = office.pending();
        let answers: Vec<_> = thread::scope(|scope| {
            let prepare = || office.prepare(vec![named(office.half(&topic, "1"), &name, 7)]);
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(prepare)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
        assert!(answers.iter().all(|answer| answer.id == answers[0].id));
        assert_eq!(office.pending(), before + 2);
    }
}

#[test]
fn policies_and_urls_have_bounds() {
    let office = office();
    let topic = office.topic("orders");
    let refused = |check, url| {
        let halves = vec![office.half(&topic, "1")];
        let draft = Draft { producer_group: group(), halves, check: Some(check), url };
        within_a_minute(office.desk.prepare(draft)).unwrap_err()
    };
    let day = Span::from_days(41);
    let policies = [
        (CheckPolicy { first: day, ..THREE }, InvalidCheck::FirstTooLate),
        (CheckPolicy { interval: day, ..THREE }, InvalidCheck::Interval),
        (CheckPolicy { interval: Span::from_millis(999), ..THREE }, InvalidCheck::Interval),
        (CheckPolicy { max: 0, ..THREE }, InvalidCheck::Max),
        (CheckPolicy { max: 1001, ..THREE }, InvalidCheck::Max),
    ];
    for (policy, reason) in policies {
        assert_eq!(refused(policy, None), PrepareError::Check(reason));
    }
    assert_eq!(refused(THREE, Some("u".repeat(2049))), PrepareError::UrlTooLong);
    assert_eq!(office.pending(), 0);
}
