//! Entries that know each other, and all that an entry may have beside its message.

use punctual_model::ports::{CancelOutcome, Done, OnConflict, Order, PendingQuery, Refusal};
use punctual_model::{
    Action, Basis, Changed, Entry, Extra, Key, Lane, Link, MessageId, OwnId, Parked, Sequence,
    Span, State, Timestamp, TopicId,
};

use super::{
    PLENTY, Stage, Store, after, arm_lane, cancel, changed, done, entry, everything, list, message,
    order, order_in, partition, refused, replace, shown, stored, stranger,
};

fn series(topic: TopicId, due: u64) -> Entry {
    entry(topic, after(due), message("series")).with_extra(|extra| {
        extra.action = Action::Repeat;
        extra.links = vec![Link::Order(1)];
    })
}

fn occurrence(topic: TopicId, due: u64, series: Link) -> Entry {
    entry(topic, after(due), message("occurrence")).with_extra(|extra| extra.series = Some(series))
}

fn half(topic: TopicId, transaction: Link) -> Entry {
    let (delay, due) = (Some(Span::from_secs(5)), after(77));
    entry(topic, Timestamp::PREPARED, message("half"))
        .with_extra(|extra| extra.parked = Some(Parked::Half { transaction, delay, due }))
}

fn extra<T: Store>(timeline: &T, id: MessageId) -> Extra {
    *shown(timeline, id).extra.expect("it has more than a message")
}

/// Only the transaction decides about its half messages.
pub(super) fn a_half_message_is_nobody_elses_to_end<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let own_id = || Some(OwnId { text: "half".into(), print: 1 });
    let named = half(topic, Link::Id(stranger(topic, after(1))));
    let id = stored(done(timeline, vec![order(named.with_extra(|e| e.own_id = own_id()))])[0]);
    assert_eq!(cancel(timeline, &[id]), [CancelOutcome::Undecided]);
    let other = entry(topic, after(5), message("other")).with_extra(|e| e.own_id = own_id());
    let conflict = OnConflict::Replace;
    let other = Order::Schedule { lane: Lane::Message, entry: other, conflict };
    assert_eq!(refused(timeline, other), Refusal::OwnIdTaken(id));
    assert_eq!(shown(timeline, id).state(), State::Prepared, "it is as it was");
    let expected = Some(shown(timeline, id).key);
    assert_eq!(done(timeline, vec![Order::Cancel { id, expected }]), [Done::Cancelled]);
    assert_eq!(cancel(timeline, &[id]), [CancelOutcome::AlreadyCancelled]);
}

pub(super) fn entries_of_one_call_know_each_other<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let orders = vec![
        order_in(Lane::Retry, series(topic, 100)),
        order(occurrence(topic, 100, Link::Order(0))),
    ];
    let answers: Vec<MessageId> = done(timeline, orders).into_iter().map(stored).collect();
    assert_eq!(extra(timeline, answers[0]).links, [Link::Id(answers[1])]);
    assert_eq!(extra(timeline, answers[1]).series, Some(Link::Id(answers[0])));
    let armed = arm_lane(timeline, Lane::Retry, after(200), PLENTY);
    assert_eq!(armed[0].extra.as_deref(), Some(&extra(timeline, answers[0])));

    // On it goes: the entry that replaces points ahead, and at nothing behind.
    let first = shown(timeline, answers[0]);
    let next = changed(&first, after(300));
    let orders = vec![
        replace(&first, next.with_extra(|extra| extra.links = vec![Link::Order(1)])),
        order(occurrence(topic, 300, Link::Order(0))),
    ];
    let later = done(timeline, orders);
    assert!(matches!(later[0], Done::Moved(key) if key.due == after(300)));
    let second = stored(later[1]);
    assert_eq!(extra(timeline, answers[0]).links, [Link::Id(second)]);
    assert_eq!(extra(timeline, second).series, Some(Link::Id(answers[0])), "the id, not the place");

    let group = Entry { topic: TopicId::TRANSACTIONS, ..entry(topic, after(900), message("both")) };
    let links = vec![Link::Order(1), Link::Order(2)];
    let orders = vec![
        order_in(
            Lane::Retry,
            group.with_extra(|extra| (extra.action, extra.links) = (Action::Check, links)),
        ),
        order(half(topic, Link::Order(0))),
        order(Entry { partition: partition(2), ..half(other, Link::Order(0)) }),
    ];
    let both: Vec<MessageId> = done(timeline, orders).into_iter().map(stored).collect();
    assert_eq!(extra(timeline, both[0]).links, [Link::Id(both[1]), Link::Id(both[2])]);
    for id in &both[1..] {
        let parked = extra(timeline, *id).parked;
        let Some(Parked::Half { transaction, delay, due }) = parked else {
            unreachable!("a half message, and not {parked:?}")
        };
        assert_eq!(transaction, Link::Id(both[0]));
        assert_eq!((delay, due), (Some(Span::from_secs(5)), after(77)));
        assert_eq!(shown(timeline, *id).state(), State::Prepared);
    }
    let query = PendingQuery { lane: Lane::Retry, ..everything(TopicId::TRANSACTIONS) };
    assert_eq!(list(timeline, query), [shown(timeline, both[0])]);
    let decided: Vec<Order> =
        both.iter().map(|id| Order::Cancel { id: *id, expected: Some(id.key) }).collect();
    assert_eq!(done(timeline, decided), [Done::Cancelled; 3]);
}

pub(super) fn what_an_entry_has_beside_its_message_is_kept<T: Store>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let topic = stage.topics[0];
    let far = |number: u64| Link::Id(stranger(topic, after(number)));
    let longest = "ö".repeat(128);
    let changed =
        Changed { first: Key { due: Timestamp::MAX, sequence: Sequence::MAX }, version: u32::MAX };
    let own_id = Some(OwnId { text: longest.as_str().into(), print: u64::MAX });
    let parked = |delay, due| Some(Parked::Half { transaction: far(1), delay, due });
    let extras = [
        Extra::default(),
        Extra { own_id, ..Extra::default() },
        Extra { own_id: Some(OwnId { text: "a".into(), print: 0 }), ..Extra::default() },
        Extra { action: Action::Check, ..Extra::default() },
        Extra { series: Some(far(5)), ..Extra::default() },
        Extra { links: (0..3000).map(far).collect(), ..Extra::default() },
        Extra { parked: parked(None, Timestamp::MAX), ..Extra::default() },
        Extra { parked: parked(Some(Span::from_days(3653)), Timestamp::MIN), ..Extra::default() },
    ];
    for (number, extra) in (0..).zip(extras) {
        let entry = Entry {
            extra: Some(Box::new(extra.clone())),
            ..entry(topic, after(number), message("with more"))
        };
        let id = stored(done(timeline, vec![order_in(Lane::Retry, entry)])[0]);
        let kept = shown(timeline, id).extra.map_or_else(Extra::default, |kept| *kept);
        assert!(kept == extra, "find changed {number}");
        let armed = arm_lane(timeline, Lane::Retry, after(number + 1), PLENTY);
        let kept = armed[0].extra.clone().map_or_else(Extra::default, |kept| *kept);
        assert!(kept == extra, "arm changed {number}");
        let again = Changed { first: id.key, ..changed };
        let entry = Entry {
            topic,
            partition: partition(0),
            due: after(10_000 - number),
            basis: Basis::Date,
            message: message("changed"),
            extra: Some(Box::new(Extra { changed: Some(again), ..extra.clone() })),
        };
        done(timeline, vec![Order::Replace { id, expected: id.key, entry }]);
        let kept = self::extra(timeline, id);
        assert!(kept == Extra { changed: Some(again), ..extra }, "a change changed {number}");
    }
}
