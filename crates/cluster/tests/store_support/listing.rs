//! Listing over all slots, counting, and forgetting what ended long ago.

use bytes::Bytes;
use punctual_cluster::store::{Counted, Kind, Marks, Slot, SlotStore};
use punctual_model::ports::{Forecast, PendingQuery};
use punctual_model::{Action, Entry, Key, Lane, Message, Parked, Span, State, Timestamp, TopicId};

use super::{
    START, after, changed, done, end, entry, get, id, key, key_in, name, put, state, take, tenure,
    text, topic,
};

fn everything(topic: TopicId) -> PendingQuery {
    let lane = Lane::Message;
    PendingQuery::all_of(topic, lane, 100)
}

/// All pages of a listing.
async fn listed<S: SlotStore>(store: &S, mut query: PendingQuery) -> Vec<Key> {
    let mut all = Vec::new();
    loop {
        let page = store.pending(query.clone()).await.unwrap();
        assert!(page.entries.len() <= query.limit);
        all.extend(page.entries.iter().map(|entry| entry.key));
        let Some(next) = page.next else { return all };
        assert!(query.after < Some(next), "the next page starts further on");
        query.after = Some(next);
    }
}

pub(super) async fn pending_is_listed_over_all_slots<S: SlotStore>(store: &S) {
    let mut places = Vec::new();
    for slot in [1, 2, 300] {
        let owner = tenure(slot, 1);
        take(store, owner).await;
        for counter in 1..=5 {
            let place = key(slot, counter * 37 * u64::from(slot) % 50, counter);
            done(store, owner, vec![put(place, &entry(topic(1), place.due, "x"))]).await;
            places.push(place);
        }
    }
    places.sort();
    for limit in [1, 4, 100] {
        let query = PendingQuery { limit, ..everything(topic(1)) };
        assert_eq!(listed(store, query).await, places, "in pages of {limit}");
    }
    let past = PendingQuery { after: Some(places[6]), ..everything(topic(1)) };
    assert_eq!(listed(store, past).await, places[7..]);
    let (first, owner) = (places[0], tenure(Slot::of(places[0].sequence).0, 1));
    let sent = entry(topic(1), first.due, "x");
    done(store, owner, vec![end(id(first, &sent), first, State::Cancelled, 1)]).await;
    let second = places[1];
    let (slot, sent) = (Slot::of(second.sequence).0, entry(topic(1), second.due, "x"));
    let (message, to) = (id(second, &sent), key(slot, 90, 77));
    let entry = changed(message, &sent, to.due);
    let step = punctual_cluster::store::Change::Move { id: message, from: second, to, entry };
    done(store, tenure(slot, 1), vec![step]).await;
    let rest = [&places[2..], &[to]].concat();
    assert_eq!(listed(store, everything(topic(1))).await, rest);
    let shown = store.pending(everything(topic(1))).await.unwrap();
    let last = shown.entries.last().unwrap();
    assert_eq!((last.id, last.version()), (message, 2), "under its id");
}

pub(super) async fn a_listing_is_filtered<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let keyed = |key: &'static [u8]| Some(Bytes::from_static(key));
    let keys = [keyed(b"a"), keyed(b"b"), None, keyed(b"a"), keyed(b"ab\xff"), keyed(b"")];
    let mut places = Vec::new();
    for (number, message_key) in (0..).zip(&keys) {
        let place = key(1, number, number + 1);
        let message = Message { key: message_key.clone(), ..Message::default() };
        let sent = Entry { message, ..entry(topic(1), place.due, "") };
        done(store, owner, vec![put(place, &sent)]).await;
        places.push(place);
    }
    let other = key(1, 2, 50);
    done(store, owner, vec![put(other, &entry(topic(2), other.due, "x"))]).await;
    let retry = key_in(Lane::Retry, 1, after(2), 51);
    done(store, owner, vec![put(retry, &entry(topic(1), retry.due, "x"))]).await;
    let parked = Parked::Paused { remaining: Span::ZERO, due: after(1) };
    let paused = key_in(Lane::Message, 1, Timestamp::PAUSED, 52);
    let sent = entry(topic(1), paused.due, "x").with_extra(|extra| extra.parked = Some(parked));
    done(store, owner, vec![put(paused, &sent)]).await;

    let all = everything(topic(1));
    assert_eq!(listed(store, all.clone()).await, [&places[..], &[paused]].concat());
    assert_eq!(listed(store, everything(topic(2))).await, [other]);
    let of_lane = PendingQuery { lane: Lane::Retry, ..all.clone() };
    assert_eq!(listed(store, of_lane).await, [retry]);
    let window = PendingQuery { from: after(1), to: after(4), ..all.clone() };
    assert_eq!(listed(store, window).await, places[1..4], "`from` is inside, `to` is not");
    for limit in [1, 100] {
        let of_key = PendingQuery { key: keyed(b"a"), limit, ..all.clone() };
        assert_eq!(listed(store, of_key).await, [places[0], places[3]]);
        let begins = PendingQuery { key_prefix: keyed(b"a"), limit, ..all.clone() };
        assert_eq!(listed(store, begins).await, [places[0], places[3], places[4]]);
    }
    let of_empty = PendingQuery { key: keyed(b""), ..all.clone() };
    assert_eq!(listed(store, of_empty).await, places[5..]);
    let with_key = PendingQuery { key_prefix: keyed(b""), ..all };
    let expected = [places[0], places[1], places[3], places[4], places[5]];
    assert_eq!(listed(store, with_key).await, expected, "every key begins with nothing");
}

/// Whole hours are told as they were counted, and within the hour of a bound the entries count.
pub(super) async fn what_was_counted_is_forecast<S: SlotStore>(store: &S) {
    const HOUR: u64 = 3_600_000;
    let (one, two) = (tenure(1, 1), tenure(2, 1));
    take(store, one).await;
    take(store, two).await;
    let first = u32::try_from(START.as_millis() / HOUR).unwrap();
    let counted = |kind, hour, difference| Counted {
        topic: topic(1),
        lane: Lane::Message,
        kind,
        hour,
        difference,
    };
    let marks = Marks::default();
    let scheduled = Kind::Scheduled;
    let here = vec![
        counted(scheduled, first, 3),
        counted(scheduled, first + 1, 5),
        counted(Kind::Paused, 0, 4),
        counted(Kind::Control, first, 7),
    ];
    let there = vec![
        counted(scheduled, first, 2),
        counted(Kind::Prepared, 0, 1),
        Counted { lane: Lane::Retry, ..counted(scheduled, first, 1) },
        Counted { topic: topic(2), ..counted(scheduled, first, 50) },
    ];
    assert_eq!(store.keep(vec![(one, marks, here), (two, marks, there)]).await.unwrap(), [true; 2]);
    let fewer = vec![counted(scheduled, first + 1, -2), counted(Kind::Paused, 0, -4)];
    assert_eq!(store.keep(vec![(two, marks, fewer)]).await.unwrap(), [true]);
    for (counter, due) in (1..).zip([2 * HOUR, 2 * HOUR + 1500, 2 * HOUR + 1999, 2 * HOUR + 2000]) {
        let place = key(1, due, counter);
        done(store, one, vec![put(place, &entry(topic(1), place.due, "x"))]).await;
    }
    let control = entry(topic(1), after(2 * HOUR), "x");
    let control = control.with_extra(|extra| extra.action = Action::Repeat);
    done(store, one, vec![put(key_in(Lane::Retry, 1, control.due, 9), &control)]).await;

    let bounds = [0, HOUR, HOUR + 1, 2 * HOUR, 2 * HOUR + 1, 2 * HOUR + 1001, 2 * HOUR + 2001];
    let mut asked: Vec<Timestamp> = bounds.map(after).into();
    asked.push(Timestamp::MAX);
    let told = store.forecast(topic(1), asked).await.unwrap();
    // The second hour has counts and no entries, the third entries and no counts.
    let before = vec![0, 6, 6, 9, 10, 12, 13, 9];
    assert_eq!(told, Forecast { scheduled: 9, paused: 0, prepared: 1, before });
    assert_eq!(store.forecast(topic(9), vec![START]).await.unwrap().before, [0]);
    let mut counts = store.counts(Lane::Message).await.unwrap();
    counts.sort();
    assert_eq!(counts, [(topic(1), 16), (topic(2), 50)], "everything pending counts");
    assert_eq!(store.counts(Lane::Retry).await.unwrap(), [(topic(1), 1)]);
}

pub(super) async fn purge_takes_what_ended_long_ago<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let ended_at = [Some(100), Some(1999), Some(2000), None];
    let mut ids = Vec::new();
    for (counter, at) in (1..).zip(ended_at) {
        let place = key(1, 100, counter);
        let message = id(place, &sent);
        let own = format!("name {counter}");
        done(store, owner, vec![put(place, &sent), name(message, &own, 1, None)]).await;
        if let Some(at) = at {
            done(store, owner, vec![end(message, place, State::Delivered, at)]).await;
        }
        ids.push(message);
    }
    let other = tenure(2, 1);
    take(store, other).await;
    let place = key(2, 100, 1);
    done(store, other, vec![put(place, &sent)]).await;
    done(store, other, vec![end(id(place, &sent), place, State::Cancelled, 1)]).await;
    for _ in 0..1000 {
        if !store.purge(owner, after(2000)).await.unwrap() {
            break;
        }
    }
    assert!(get(store, ids[0]).await.is_none() && get(store, ids[1]).await.is_none());
    assert_eq!(state(store, ids[2]).await, Some(State::Delivered), "not long ago");
    assert_eq!(state(store, ids[3]).await, Some(State::Scheduled), "it has not ended");
    assert_eq!(state(store, id(place, &sent)).await, Some(State::Cancelled), "another slot's");
    let names = (1..=4).map(|counter| text(&format!("name {counter}"))).collect();
    let names = store.names(topic(1), names).await.unwrap();
    let known = |named: &Option<punctual_cluster::store::Named>| {
        named.is_some_and(|named| named.state.is_some())
    };
    assert_eq!(names.iter().map(known).collect::<Vec<_>>(), [false, false, true, true]);
    // Whatever is left of a forgotten name, it can be given again by whom has read it.
    let (place, expected) = (key(1, 300, 9), names[0].map(|named| named.id));
    let again = entry(topic(1), after(300), "again");
    done(store, owner, vec![put(place, &again), name(id(place, &again), "name 1", 2, expected)])
        .await;
}

pub(super) async fn a_slot_is_empty_without_pending_entries<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    assert!(store.is_empty(Slot(1)).await.unwrap());
    take(store, owner).await;
    assert!(store.is_empty(Slot(1)).await.unwrap());
    for lane in Lane::ALL {
        let place = key_in(lane, 1, after(9_000_000_000), 1);
        let sent = entry(topic(1), place.due, "x");
        done(store, owner, vec![put(place, &sent)]).await;
        assert!(!store.is_empty(Slot(1)).await.unwrap());
        assert!(store.is_empty(Slot(2)).await.unwrap());
        done(store, owner, vec![end(id(place, &sent), place, State::Cancelled, 1)]).await;
        assert!(store.is_empty(Slot(1)).await.unwrap(), "what ended does not count");
    }
}
