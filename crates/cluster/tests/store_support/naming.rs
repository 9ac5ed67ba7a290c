//! Own ids: one message has a name at a time, and nobody takes it unseen.

use std::sync::Arc;

use punctual_cluster::store::{Group, Named, Outcome, SlotStore};
use punctual_model::{MessageId, State};

use super::{
    after, apply, done, end, entry, id, key, name, put, take, tenure, text, topic, with_name,
};

async fn named<S: SlotStore>(store: &S, topic_number: u32, of: &str) -> Option<Named> {
    let mut found = store.names(topic(topic_number), vec![text(of)]).await.unwrap();
    assert_eq!(found.len(), 1, "one answer for each name");
    found.remove(0)
}

fn pending(id: MessageId, print: u64) -> Option<Named> {
    Some(Named { id, print, state: Some(State::Scheduled), ended_at: None })
}

pub(super) async fn a_name_is_given_once<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    assert_eq!(store.names(topic(1), Vec::new()).await.unwrap(), []);
    assert_eq!(named(store, 1, "a").await, None);
    let sent = with_name(entry(topic(1), after(100), "x"), "a", 1);
    let places = [1, 2].map(|counter| key(1, 100, counter));
    let ids = places.map(|place| id(place, &sent));
    done(store, owner, vec![put(places[0], &sent), name(ids[0], "a", 1, None)]).await;
    assert_eq!(named(store, 1, "a").await, pending(ids[0], 1));
    let again = vec![put(places[1], &sent), name(ids[1], "a", 2, None)];
    assert_eq!(apply(store, owner, again).await, Outcome::NameTaken { index: 1 });
    assert_eq!(named(store, 1, "a").await, pending(ids[0], 1));
    assert_eq!(named(store, 2, "a").await, None, "names of topics are apart");
}

pub(super) async fn a_name_passes_on_from_whom_it_was_read<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let places = [1, 2, 3].map(|counter| key(1, 100, counter));
    let ids = places.map(|place| id(place, &sent));
    done(store, owner, vec![put(places[0], &sent), name(ids[0], "a", 1, None)]).await;
    let changes = vec![
        end(ids[0], places[0], State::Cancelled, 5),
        put(places[1], &sent),
        name(ids[1], "a", u64::MAX, Some(ids[0])),
    ];
    done(store, owner, changes).await;
    assert_eq!(named(store, 1, "a").await, pending(ids[1], u64::MAX));
    let stale = vec![put(places[2], &sent), name(ids[2], "a", 3, Some(ids[0]))];
    assert_eq!(apply(store, owner, stale).await, Outcome::NameTaken { index: 1 });
    let missing = vec![name(ids[2], "b", 3, Some(ids[0]))];
    let outcome = apply(store, owner, missing).await;
    assert_eq!(outcome, Outcome::NameTaken { index: 0 }, "it was read as another's");
}

pub(super) async fn a_name_tells_what_became_of_its_message<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let ended = [("delivered", State::Delivered), ("cancelled", State::Cancelled)];
    for (counter, (text, state)) in (1..).zip(ended) {
        let place = key(1, 100, counter);
        let message = id(place, &sent);
        done(store, owner, vec![put(place, &sent), name(message, text, 1, None)]).await;
        assert_eq!(named(store, 1, text).await, pending(message, 1));
        done(store, owner, vec![end(message, place, state, 700 + counter)]).await;
        let at = Some(after(700 + counter));
        let expected = Named { id: message, print: 1, state: Some(state), ended_at: at };
        assert_eq!(named(store, 1, text).await, Some(expected));
    }
}

pub(super) async fn names_are_told_apart<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    let sent = entry(topic(1), after(100), "x");
    let longest = "ö".repeat(128);
    let texts = ["a", "A", "a ", " a", "ä", "a\u{308}", "%", "_", "'", "\\", "\0", &longest];
    let messages: Vec<MessageId> =
        (1..).zip(texts).map(|(counter, _)| id(key(1, 100, counter), &sent)).collect();
    for (message, text) in messages.iter().zip(texts) {
        let changes = vec![put(message.key, &sent), name(*message, text, 1, None)];
        done(store, owner, changes).await;
    }
    let asked: Vec<Arc<str>> = texts.iter().rev().map(|name| text(name)).collect();
    let found = store.names(topic(1), asked).await.unwrap();
    let found: Vec<Option<MessageId>> =
        found.into_iter().map(|named| named.map(|named| named.id)).collect();
    let expected: Vec<Option<MessageId>> = messages.into_iter().rev().map(Some).collect();
    assert_eq!(found, expected);
    assert_eq!(named(store, 1, "aa").await, None);
}

/// Each slot has a writer of its own; a name is unique all the same.
pub(super) async fn of_concurrent_groups_one_gets_the_name<S: SlotStore>(store: &S) {
    let sent = entry(topic(1), after(100), "x");
    for slot in 1..=4 {
        take(store, tenure(slot, 1)).await;
    }
    for round in 0..10 {
        let group = |slot: u16| {
            let place = key(slot, 100, round + 1);
            let text = format!("round {round}");
            let changes = vec![put(place, &sent), name(id(place, &sent), &text, 1, None)];
            store.apply(vec![Group { tenure: tenure(slot, 1), changes }])
        };
        let (one, two, three, four) = tokio::join!(group(1), group(2), group(3), group(4));
        let outcomes = [one, two, three, four].map(|outcome| outcome.unwrap()[0]);
        let done = outcomes.iter().position(|outcome| *outcome == Outcome::Done);
        let slot = u16::try_from(done.expect("somebody is first")).unwrap() + 1;
        let taken = outcomes.iter().filter(|one| **one == Outcome::NameTaken { index: 1 });
        assert_eq!(taken.count(), 3, "{outcomes:?}");
        let owner = named(store, 1, &format!("round {round}")).await;
        assert_eq!(owner, pending(id(key(slot, 100, round + 1), &sent), 1));
    }
}
