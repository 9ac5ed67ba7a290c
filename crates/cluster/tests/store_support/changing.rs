//! Putting, moving and ending entries, and reading them again.

use bytes::Bytes;
use punctual_cluster::store::{Change, Group, Outcome, Slot, SlotStore};
use punctual_model::{
    Action, Basis, Entry, Extra, Header, Key, Lane, Link, Message, MessageId, OwnId, Parked,
    Partition, Span, State, Timestamp,
};

use super::{
    FIRST, PLENTY, after, apply, changed, done, end, entry, get, id, key, key_in, keys, name, page,
    put, state, take, tenure, topic,
};

pub(super) async fn what_was_put_is_read_again<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    assert!(page(store, 1, Lane::Message).await.is_empty());
    assert_eq!(store.get(Vec::new()).await.unwrap().len(), 0);
    assert_eq!(store.apply(Vec::new()).await.unwrap(), []);
    done(store, owner, Vec::new()).await;
    let sent: Vec<(Key, Entry)> = [(300, 1), (100, 2), (200, 3), (100, 4)]
        .map(|(due, counter)| (key(1, due, counter), entry(topic(1), after(due), "x")))
        .into();
    done(store, owner, sent.iter().map(|(key, entry)| put(*key, entry)).collect()).await;
    let mut expected: Vec<Key> = sent.iter().map(|(key, _)| *key).collect();
    expected.sort();
    let found = page(store, 1, Lane::Message).await;
    assert_eq!(keys(&found), expected, "in key order");
    for stored in found {
        assert_eq!((stored.id.key, stored.state), (stored.key, State::Scheduled));
        let (_, entry) = sent.iter().find(|(key, _)| *key == stored.key).unwrap();
        assert_eq!(stored.entry.as_ref(), Some(entry));
        let got = get(store, stored.id).await.unwrap();
        assert_eq!((got.id, got.key, got.entry), (stored.id, stored.key, stored.entry));
    }
    let known = id(sent[0].0, &sent[0].1);
    let strangers = [
        MessageId { key: key(1, 300, 9), ..known },
        MessageId { key: key(2, 300, 1), ..known },
        MessageId { topic: topic(2), ..known },
        MessageId { partition: Partition::new(1).unwrap(), ..known },
    ];
    let asked = [&strangers[..2], &[known], &strangers[2..]].concat();
    let answers = store.get(asked).await.unwrap();
    let found: Vec<bool> = answers.iter().map(Option::is_some).collect();
    assert_eq!(found, [false, false, true, false, false], "the whole id counts");
}

pub(super) async fn content_is_kept_byte_for_byte<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let every_byte: Bytes = (0..=u8::MAX).collect();
    let header = |name: &str, value: &Bytes| Header { name: name.into(), value: value.clone() };
    let far = Link::Id(id(key(1, 5, 5), &entry(topic(3), after(5), "")));
    let parked =
        Some(Parked::Half { transaction: far, delay: Some(Span::from_secs(5)), due: after(7) });
    let own_id = Some(OwnId { text: "ö".repeat(128).as_str().into(), print: u64::MAX });
    let message = |body: &Bytes| Message { body: body.clone(), ..Message::default() };
    let large: Bytes = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let plain = |message| Entry { message, ..entry(topic(1), after(9), "") };
    let sent = [
        plain(Message::default()),
        plain(Message { key: Some(Bytes::new()), ..Message::default() }),
        plain(Message {
            key: Some(every_byte.clone()),
            headers: vec![
                header("a", &every_byte),
                header("a", &Bytes::new()),
                header("", &every_byte),
            ],
            body: every_byte.clone(),
        }),
        plain(message(&large)),
        Entry {
            basis: Basis::Date,
            partition: Partition::new(1023).unwrap(),
            ..plain(message(&every_byte))
        },
        plain(message(&every_byte)).with_extra(|extra: &mut Extra| {
            (extra.action, extra.own_id, extra.parked) = (Action::Check, own_id, parked);
            (extra.series, extra.links) = (Some(far), vec![far; 300]);
        }),
    ];
    for (counter, sent) in (1..).zip(&sent) {
        let place = key(1, 9, counter);
        done(store, owner, vec![put(place, sent)]).await;
        let got = get(store, id(place, sent)).await.unwrap();
        assert!(got.entry.as_ref() == Some(sent), "get changed {counter}");
    }
    let found = page(store, 1, Lane::Message).await;
    assert_eq!(found.len(), sent.len());
    for (stored, sent) in found.iter().zip(&sent) {
        assert!(stored.entry.as_ref() == Some(sent), "page changed {:?}", stored.key);
    }
}

pub(super) async fn a_moved_message_is_found_by_its_id<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "moved");
    let mut place = key(1, 100, 1);
    let message = id(place, &sent);
    done(store, owner, vec![put(place, &sent)]).await;
    let mut entry = sent;
    for (due, counter) in [(5000, 2), (50, 3), (50, 4), (9_000_000, 5), (100, 6)] {
        let (from, to) = (place, key(1, due, counter));
        entry = changed(message, &entry, after(due));
        let step = Change::Move { id: message, from, to, entry: entry.clone() };
        done(store, owner, vec![step]).await;
        place = to;
        let got = get(store, message).await.unwrap();
        assert_eq!((got.id, got.key, got.state), (message, to, State::Scheduled));
        assert_eq!(got.entry.as_ref(), Some(&entry));
        let found = page(store, 1, Lane::Message).await;
        assert_eq!(keys(&found), [to], "it stands in one place");
        assert_eq!(found[0].id, message);
        let by_place = MessageId { key: to, ..message };
        assert!(get(store, by_place).await.is_none(), "a place is no id");
    }
    done(store, owner, vec![end(message, place, State::Delivered, 200)]).await;
    let got = get(store, message).await.unwrap();
    assert_eq!((got.state, got.entry), (State::Delivered, None));
    assert!(page(store, 1, Lane::Message).await.is_empty());
}

pub(super) async fn an_ended_message_is_known_and_not_pending<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let places = [1, 2, 3].map(|counter| key(1, 100, counter));
    let ids = places.map(|place| id(place, &sent));
    done(store, owner, places.iter().map(|place| put(*place, &sent)).collect()).await;
    let changes = vec![
        end(ids[0], places[0], State::Delivered, 100),
        end(ids[2], places[2], State::Cancelled, 101),
    ];
    done(store, owner, changes).await;
    let got = store.get(ids.to_vec()).await.unwrap();
    let states: Vec<Option<State>> =
        got.iter().map(|stored| stored.as_ref().map(|stored| stored.state)).collect();
    let expected = [State::Delivered, State::Scheduled, State::Cancelled].map(Some);
    assert_eq!(states, expected);
    assert_eq!(keys(&page(store, 1, Lane::Message).await), places[1..2]);
}

pub(super) async fn the_first_end_counts<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let place = key(1, 100, 1);
    done(store, owner, vec![put(place, &sent)]).await;
    let message = id(place, &sent);
    done(store, owner, vec![end(message, place, State::Delivered, 100)]).await;
    // What was not heard of is said again.
    done(store, owner, vec![end(message, place, State::Delivered, 150)]).await;
    assert_eq!(state(store, message).await, Some(State::Delivered));
    assert!(store.is_empty(Slot(1)).await.unwrap());
}

pub(super) async fn a_group_is_carried_out_whole_or_not_at_all<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let (first, second) = (key(1, 100, 1), key(1, 100, 2));
    let (one, other) = (id(first, &sent), id(second, &sent));
    let named = vec![put(first, &sent), put(second, &sent), name(one, "taken", 1, None)];
    done(store, owner, named).await;
    let third = key(1, 100, 3);
    let new = id(third, &sent);
    let moved = changed(one, &sent, after(500));
    let changes = vec![
        put(third, &sent),
        Change::Move { id: one, from: first, to: key(1, 500, 4), entry: moved },
        end(other, second, State::Cancelled, 5),
        name(new, "free", 2, None),
        name(new, "taken", 2, None),
    ];
    assert_eq!(apply(store, owner, changes).await, Outcome::NameTaken { index: 4 });
    assert_eq!(keys(&page(store, 1, Lane::Message).await), [first, second]);
    assert_eq!(state(store, other).await, Some(State::Scheduled));
    assert!(get(store, new).await.is_none());
    assert_eq!(store.names(topic(1), vec!["free".into()]).await.unwrap(), [None]);
}

pub(super) async fn groups_of_one_call_are_answered_one_by_one<S: SlotStore>(store: &S) {
    for slot in [1, 2, 3] {
        take(store, tenure(slot, 5)).await;
    }
    take(store, tenure(2, 6)).await;
    let sent = entry(topic(1), after(100), "x");
    let places = [1, 2, 3].map(|slot| key(slot, 100, 1));
    let ids = places.map(|place| id(place, &sent));
    done(store, tenure(1, 5), vec![name(ids[0], "taken", 1, None)]).await;
    let group = |slot: u16, changes| Group { tenure: tenure(slot, 5), changes };
    let outcomes = store.apply(vec![
        group(1, vec![put(places[0], &sent), name(ids[0], "taken", 1, None)]),
        group(2, vec![put(places[1], &sent)]),
        group(3, vec![put(places[2], &sent), name(ids[2], "free", 1, None)]),
    ]);
    let expected = [Outcome::NameTaken { index: 1 }, Outcome::Fenced, Outcome::Done];
    assert_eq!(outcomes.await.unwrap(), expected);
    for (slot, count) in [(1, 0), (2, 0), (3, 1)] {
        assert_eq!(page(store, slot, Lane::Message).await.len(), count, "slot {slot}");
    }
}

pub(super) async fn many_changes_fit_one_group<S: SlotStore>(store: &S) {
    const MANY: u64 = 3000;
    let owner = tenure(1, 1);
    take(store, owner).await;
    let place = |counter: u64| key(1, counter * 7919 % 100_000, counter);
    let sent = |counter: u64| entry(topic(1), place(counter).due, &counter.to_string());
    let message = |counter: u64| id(place(counter), &sent(counter));
    done(store, owner, (1..=MANY).map(|counter| put(place(counter), &sent(counter))).collect())
        .await;
    let changes = (1..=MANY).map(|counter| match counter % 3 {
        0 => end(message(counter), place(counter), State::Delivered, counter),
        1 => end(message(counter), place(counter), State::Cancelled, counter),
        _ => {
            let to = Key { due: after(200_000), ..key(1, 0, MANY + counter) };
            let entry = changed(message(counter), &sent(counter), to.due);
            Change::Move { id: message(counter), from: place(counter), to, entry }
        }
    });
    done(store, owner, changes.collect()).await;
    let states = store.get((1..=MANY).map(message).collect()).await.unwrap();
    for (counter, stored) in (1..=MANY).zip(states) {
        let expected = [State::Delivered, State::Cancelled, State::Scheduled];
        let expected = expected[usize::try_from(counter % 3).unwrap()];
        assert_eq!(stored.map(|stored| stored.state), Some(expected), "{counter}");
    }
    assert_eq!(page(store, 1, Lane::Message).await.len(), 1000);
}

pub(super) async fn what_is_parked_is_never_due<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let parked = Parked::Paused { remaining: Span::from_secs(1), due: after(1) };
    let half = Parked::Half { transaction: Link::Order(0), delay: None, due: after(1) };
    let other = Link::Id(id(key(1, 1, 77), &entry(topic(1), after(1), "")));
    let half = match half {
        Parked::Half { delay, due, .. } => Parked::Half { transaction: other, delay, due },
        paused @ Parked::Paused { .. } => paused,
    };
    let cases =
        [(Timestamp::PAUSED, parked, State::Paused), (Timestamp::PREPARED, half, State::Prepared)];
    for (counter, (due, parked, expected)) in (1..).zip(cases) {
        let place = key_in(Lane::Message, 1, due, counter);
        let sent = entry(topic(1), due, "x").with_extra(|extra| extra.parked = Some(parked));
        done(store, owner, vec![put(place, &sent)]).await;
        let got = get(store, id(place, &sent)).await.unwrap();
        assert_eq!((got.state, got.entry), (expected, Some(sent)));
    }
    assert!(page(store, 1, Lane::Message).await.is_empty());
    assert!(!store.is_empty(Slot(1)).await.unwrap(), "it is pending all the same");
}

pub(super) async fn pages_are_limited_and_go_on<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let body = "k".repeat(1024);
    let places: Vec<Key> = (1..=40).map(|counter| key(1, counter / 3 * 10, counter)).collect();
    let changes = places.iter().map(|place| put(*place, &entry(topic(1), place.due, &body)));
    done(store, owner, changes.collect()).await;
    for limit in [(1, PLENTY.1), (7, PLENTY.1), (1000, 5000), (1000, 1), PLENTY] {
        let (mut all, mut after_key) = (Vec::new(), FIRST);
        loop {
            let page = store.page(Slot(1), Lane::Message, after_key, after(1000), limit);
            let page = page.await.unwrap();
            assert!(page.len() <= limit.0);
            let Some(last) = page.last() else { break };
            after_key = last.key;
            all.extend(keys(&page));
        }
        assert_eq!(all, places, "in pages of {limit:?}");
    }
    let until = store.page(Slot(1), Lane::Message, FIRST, after(20), PLENTY).await.unwrap();
    assert_eq!(keys(&until), places[..5], "the end is outside");
    let past = store.page(Slot(1), Lane::Message, places[10], after(1000), PLENTY).await.unwrap();
    assert_eq!(keys(&past), places[11..], "the key itself is outside");
    done(
        store,
        owner,
        vec![end(
            id(places[3], &entry(topic(1), places[3].due, "")),
            places[3],
            State::Cancelled,
            1,
        )],
    )
    .await;
    let some = store.page(Slot(1), Lane::Message, FIRST, after(1000), (4, PLENTY.1)).await.unwrap();
    assert_eq!(
        keys(&some),
        [places[0], places[1], places[2], places[4]],
        "a full page of pending ones"
    );
}

pub(super) async fn lanes_and_slots_are_apart_in_pages<S: SlotStore>(store: &S) {
    for slot in [1, 2] {
        let owner = tenure(slot, 1);
        take(store, owner).await;
        for lane in Lane::ALL {
            let place = key_in(lane, slot, after(10), 1);
            done(store, owner, vec![put(place, &entry(topic(1), after(10), "x"))]).await;
        }
    }
    for slot in [1, 2] {
        for lane in Lane::ALL {
            let found = page(store, slot, lane).await;
            assert_eq!(keys(&found), [key_in(lane, slot, after(10), 1)]);
        }
    }
}
