//! Check-back: who prepared a transaction and said nothing more is asked, a known number of times.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod transaction_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use punctual_broker::transaction::{
    CallbackAnswer, DecideError, Draft, TransactionQuery, TransactionState,
};
use punctual_model::ports::{OnConflict, Order, Timeline};
use punctual_model::{
    Action, Basis, CheckPolicy, Entry, Extra, GroupName, Header, Lane, Message, MessageId,
    Partition, Span, TopicId,
};

use transaction_support::{
    HOUR, Office, SECOND, Store, THREE, draft, group, named, office, start, within_a_minute,
};

const PREPARED: TransactionState = TransactionState::Prepared;
const COMMITTED: TransactionState = TransactionState::Committed;
const UNRESOLVED: TransactionState = TransactionState::Unresolved;

fn seconds<S: Store>(office: &Office<S>) -> u64 {
    office.clock.now().since(start()).as_millis() / 1000
}

/// Lets that many seconds pass, with somebody who asks for checks in each; answers when checks came,
/// and their numbers.
fn listen<S: Store>(office: &Office<S>, id: MessageId, for_seconds: u64) -> Vec<(u64, u16)> {
    let mut heard = Vec::new();
    for _ in 0..for_seconds {
        office.pass(SECOND);
        for check in office.checks() {
            assert_eq!(check.transaction, id);
            heard.push((seconds(office), check.attempt));
        }
    }
    heard
}

#[test]
fn g32_an_undecided_transaction_is_checked_as_often_as_its_policy_says_and_then_unresolved() {
    let office = office();
    let id = office.prepare_one("a").id;
    assert_eq!(listen(&office, id, 95), [(6, 1), (36, 2), (66, 3)]);
    assert_eq!(office.state(id), Some(PREPARED));
    assert_eq!(listen(&office, id, 10_000), []);
    let shown = office.get(id).unwrap();
    assert_eq!((shown.state, shown.checks_sent, shown.next_check), (UNRESOLVED, 3, None));
    assert_eq!(office.log("orders"), []);
}

#[test]
fn g32_restarts_neither_reset_nor_skip_the_count() {
    let mut office = office();
    let id = office.prepare_one("a").id;
    let mut heard = Vec::new();
    for _ in 0..40 {
        office = office.restart();
        // A restart between the moment at which a check is ready and the one at which it is taken.
        office.pass(Span::from_secs(3));
        office = office.restart();
        let checks = office.checks();
        heard.extend(checks.iter().map(|check| (seconds(&office), check.attempt)));
    }
    assert_eq!(heard, [(6, 1), (36, 2), (66, 3)]);
    assert_eq!(office.state(id), Some(UNRESOLVED));
}

#[test]
fn g32_only_a_check_that_somebody_took_counts() {
    let office = office();
    let id = office.prepare_one("a").id;
    office.pass(HOUR);
    let shown = office.get(id).unwrap();
    assert_eq!((shown.state, shown.checks_sent), (PREPARED, 0));
    assert_eq!(shown.next_check, Some(office.clock.now()), "it has been ready since it fell due");
    let office = office.restart();
    assert_eq!(office.checks()[0].attempt, 1);
    assert_eq!(office.checks(), []);
    let shown = office.get(id).unwrap();
    let next = office.clock.now().checked_add(THREE.interval);
    assert_eq!((shown.checks_sent, shown.next_check), (1, next));
    assert_eq!(listen(&office, id, 1000).len(), 2);
}

#[test]
fn a_check_that_is_ready_in_memory_alone_is_not_handed_out() {
    let office = office();
    let id = office.prepare_one("a").id;
    office.pass(THREE.first);
    // Another desk has read that the check is ready, and does not hear what becomes of it.
    let stale = Office::on(Arc::clone(&office.store), office.clock.clone());
    assert_eq!(office.checks()[0].attempt, 1);
    assert_eq!(stale.checks(), []);
    assert_eq!(office.get(id).unwrap().checks_sent, 1);
    assert_eq!(listen(&office, id, 1000), [(36, 2), (66, 3)]);
}

#[test]
fn a_transaction_that_nobody_asks_about_for_twelve_hours_is_unresolved() {
    let mut office = office();
    let id = office.prepare_one("a").id;
    office.pass(THREE.first);
    for hour in 0..12 {
        assert_eq!(office.state(id), Some(PREPARED), "after {hour} hours");
        // A restart does not begin the wait anew.
        office = office.restart();
        office.pass(HOUR);
    }
    let shown = office.get(id).unwrap();
    assert_eq!((shown.state, shown.checks_sent), (UNRESOLVED, 0));
    assert_eq!(office.checks(), []);
}

#[test]
fn an_unresolved_transaction_is_checked_again_once_it_is_resumed() {
    let office = office();
    let id = office.prepare_one("a").id;
    listen(&office, id, 100);
    let office = office.restart();
    let resumed = within_a_minute(office.desk.resume(id)).unwrap();
    assert_eq!((resumed.state, resumed.checks_sent), (PREPARED, 0));
    assert_eq!(resumed.next_check, Some(office.clock.now()));
    office.fire();
    assert_eq!(office.checks()[0].attempt, 1);
    // Said again it changes nothing.
    assert_eq!(within_a_minute(office.desk.resume(id)).unwrap().checks_sent, 1);
    assert_eq!(listen(&office, id, 1000), [(130, 2), (160, 3)]);
    assert_eq!(office.state(id), Some(UNRESOLVED));
}

#[test]
fn an_unresolved_transaction_can_be_decided() {
    let office = office();
    let id = office.prepare_one("a").id;
    listen(&office, id, 100);
    office.commit(id).unwrap();
    office.fire();
    assert_eq!(office.log("orders").len(), 1);
    let refused = within_a_minute(office.desk.resume(id));
    assert_eq!(refused.unwrap_err(), DecideError::AlreadyDecided(COMMITTED));
}

#[test]
fn a_decided_transaction_is_not_checked() {
    let office = office();
    let (first, second) = (office.prepare_one("a").id, office.prepare_one("b").id);
    office.commit(first).unwrap();
    office.pass(THREE.first);
    office.rollback(second).unwrap();
    assert_eq!(office.checks(), []);
    assert_eq!(listen(&office, first, 200), []);
}

#[test]
fn a_check_tells_what_was_sent() {
    let office = office();
    let (orders, bills) = (office.topic("orders"), office.topic("bills"));
    let mut first = named(office.half(&orders, "1"), "mine", 5);
    first.entry.message.key = Some(Bytes::from_static(b"key"));
    let header = Header { name: "name".to_owned(), value: Bytes::from_static(b"\xff") };
    first.entry.message.headers.push(header);
    let message = first.entry.message.clone();
    let prepared = office.prepare(vec![first, office.half(&bills, "2")]);
    office.pass(THREE.first);
    let checks = office.checks();
    let [check] = &checks[..] else { panic!("one check, not {checks:?}") };
    assert_eq!((check.transaction, check.attempt), (prepared.id, 1));
    let [one, two] = &check.messages[..] else { panic!("two messages, not {check:?}") };
    assert_eq!((&one.topic, one.id), (&orders.name, prepared.messages[0]));
    assert_eq!((one.own_id.as_deref(), &one.message), (Some("mine"), &message));
    assert_eq!((&two.topic, two.id, &two.own_id), (&bills.name, prepared.messages[1], &None));
}

#[test]
fn who_waits_for_checks_is_woken_by_one() {
    let office = office();
    let id = office.prepare_one("a").id;
    let checks = thread::scope(|scope| {
        let wait = || {
            loop {
                let available = office.desk.available(&group());
                let checks = office.checks();
                if !checks.is_empty() {
                    return checks;
                }
                within_a_minute(available);
            }
        };
        let waiting = scope.spawn(wait);
        office.pass(THREE.first);
        waiting.join().unwrap()
    });
    assert_eq!((checks.len(), checks[0].transaction), (1, id));
}

#[test]
fn each_check_is_given_to_one_of_many_who_ask() {
    let office = office();
    let ids: BTreeSet<MessageId> = (0..100).map(|_| office.prepare_one("a").id).collect();
    office.pass(THREE.first);
    let given: Vec<MessageId> = thread::scope(|scope| {
        let take = || {
            let mut all = Vec::new();
            loop {
                let checks = within_a_minute(office.desk.checks(&group(), 3)).unwrap();
                if checks.is_empty() {
                    return all;
                }
                all.extend(checks.into_iter().map(|check| check.transaction));
            }
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(given.len(), 100);
    assert_eq!(given.into_iter().collect::<BTreeSet<_>>(), ids);
}

#[test]
fn groups_hear_only_of_their_own() {
    let office = office();
    let topic = office.topic("orders");
    let other = GroupName::new("shipping").unwrap();
    let halves = vec![office.half(&topic, "b")];
    let theirs = Draft { producer_group: other.clone(), ..draft(halves) };
    let theirs = within_a_minute(office.desk.prepare(theirs)).unwrap().id;
    let ours = office.prepare_one("a").id;
    office.pass(THREE.first);
    assert_eq!(office.checks()[0].transaction, ours);
    let checks = within_a_minute(office.desk.checks(&other, 10)).unwrap();
    assert_eq!((checks.len(), checks[0].transaction), (1, theirs));
}

#[test]
fn a_transaction_with_a_url_is_checked_through_it() {
    let office = office();
    let topic = office.topic("orders");
    let url = "https://example.com/check";
    let prepare = |body| {
        let draft = draft(vec![office.half(&topic, body)]);
        let draft = Draft { url: Some(url.to_owned()), ..draft };
        within_a_minute(office.desk.prepare(draft)).unwrap().id
    };
    let (kept, dropped, unknown) = (prepare("kept"), prepare("dropped"), prepare("unknown"));
    let mut available = Some(office.desk.callback_available());
    for attempt in 1..=3 {
        office.pass(if attempt == 1 { THREE.first } else { THREE.interval });
        if let Some(available) = available.take() {
            within_a_minute(available);
        }
        assert_eq!(office.checks(), []);
        for callback in within_a_minute(office.desk.take_callbacks(10)).unwrap() {
            assert_eq!((&*callback.url, callback.check.attempt), (url, attempt));
            assert_eq!(callback.producer_group, group());
            let id = callback.check.transaction;
            let answer = match id {
                _ if id == kept => CallbackAnswer::Committed,
                _ if id == dropped => CallbackAnswer::RolledBack,
                _ => CallbackAnswer::Unknown,
            };
            within_a_minute(office.desk.callback_answered(id, answer)).unwrap();
        }
        assert_eq!(office.get(unknown).unwrap().checks_sent, attempt);
    }
    office.pass(THREE.interval);
    let states = [kept, dropped, unknown].map(|id| office.state(id).unwrap());
    assert_eq!(states, [COMMITTED, TransactionState::RolledBack, UNRESOLVED]);
    assert_eq!(office.get(kept).unwrap().checks_sent, 1);
    assert_eq!(office.log("orders").len(), 1);
}

#[test]
fn an_entry_that_is_no_transaction_is_set_aside() {
    let office = office();
    let foreign = |body: &'static [u8]| {
        let extra = Extra { action: Action::Check, ..Extra::default() };
        let entry = Entry {
            topic: TopicId::TRANSACTIONS,
            partition: Partition::new(0).unwrap(),
            due: office.clock.now(),
            basis: Basis::Delay,
            message: Message { body: Bytes::from_static(body), ..Message::default() },
            extra: Some(Box::new(extra)),
        };
        Order::Schedule { lane: Lane::Retry, entry, conflict: OnConflict::Reject }
    };
    let orders = vec![foreign(b""), foreign(b"\x01\x02"), foreign(b"anything at all")];
    within_a_minute(office.store.revise(orders)).unwrap();
    let id = office.prepare_one("a").id;
    office.pass(THREE.first);
    assert_eq!(office.checks()[0].transaction, id);
    assert_eq!(office.pending(), 5, "nothing is dropped");
    let all = TransactionQuery { limit: 100, ..TransactionQuery::default() };
    assert_eq!(within_a_minute(office.desk.list(all)).unwrap().transactions.len(), 1);
}

#[test]
fn transactions_are_listed_by_state_and_group() {
    let office = office();
    let topic = office.topic("orders");
    let other = GroupName::new("shipping").unwrap();
    let mut by_state = Vec::new();
    for state in TransactionState::ALL {
        for number in 0..30 {
            let draft = draft(vec![office.half(&topic, "b")]);
            let producer_group = if number % 3 == 0 { other.clone() } else { group() };
            let check = match state {
                TransactionState::Unresolved => CheckPolicy { max: 1, ..THREE },
                _ => CheckPolicy { first: Span::from_days(3), ..THREE },
            };
            let draft = Draft { producer_group, check: Some(check), ..draft };
            by_state.push((state, within_a_minute(office.desk.prepare(draft)).unwrap().id));
        }
    }
    office.pass(THREE.first);
    for group in [group(), other.clone()] {
        within_a_minute(office.desk.checks(&group, 100)).unwrap();
    }
    office.pass(THREE.interval);
    for (state, id) in &by_state {
        match state {
            TransactionState::Committed => drop(office.commit(*id).unwrap()),
            TransactionState::RolledBack => drop(office.rollback(*id).unwrap()),
            _ => {}
        }
    }
    for state in TransactionState::ALL.into_iter().map(Some).chain([None]) {
        for producer_group in [None, Some(group()), Some(other.clone())] {
            for limit in [1, 7, 20, 30, 1000] {
                let query = TransactionQuery {
                    state,
                    producer_group: producer_group.clone(),
                    after: None,
                    limit,
                };
                let listed = pages(&office, query);
                let part =
                    producer_group.as_ref().map_or(30, |name| if *name == other { 10 } else { 20 });
                assert_eq!(listed.len(), part * if state.is_some() { 1 } else { 4 });
                for (id, shown) in &listed {
                    assert!(state.is_none_or(|state| *shown == state));
                    assert!(by_state.contains(&(*shown, *id)));
                }
            }
        }
    }
}

/// All that a query finds, page by page; each once.
fn pages<S: Store>(
    office: &Office<S>,
    mut query: TransactionQuery,
) -> Vec<(MessageId, TransactionState)> {
    let mut all = Vec::new();
    loop {
        let page = within_a_minute(office.desk.list(query.clone())).unwrap();
        assert!(page.transactions.len() <= query.limit);
        all.extend(page.transactions.iter().map(|shown| (shown.id, shown.state)));
        query.after = page.next;
        if page.next.is_none() {
            let ids: BTreeSet<_> = all.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids.len(), all.len(), "something came twice");
            return all;
        }
    }
}

#[test]
fn g32_each_of_many_is_checked_exactly_three_times_through_random_restarts() {
    let mut office = office();
    let ids: Vec<MessageId> = (0..200).map(|_| office.prepare_one("a").id).collect();
    let mut counts = BTreeMap::<MessageId, u16>::new();
    let mut dice: u64 = 3;
    let mut below = |bound: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % bound
    };
    for _ in 0..400 {
        office.pass(Span::from_millis(below(3000)));
        if below(5) == 0 {
            office = office.restart();
        }
        let max = usize::try_from(below(100)).unwrap();
        for check in within_a_minute(office.desk.checks(&group(), max)).unwrap() {
            let count = counts.entry(check.transaction).or_default();
            *count += 1;
            assert_eq!(*count, check.attempt, "one after the other");
        }
    }
    for id in ids {
        let shown = office.get(id).unwrap();
        assert_eq!((shown.state, shown.checks_sent, counts[&id]), (UNRESOLVED, 3, 3));
    }
}
