//! Owning a slot: terms only grow, and whoever has an old one changes nothing.

use punctual_cluster::store::{Counted, Group, Kind, Marks, Outcome, SlotStore};
use punctual_model::{Lane, State, Timestamp};

use super::{after, apply, done, end, entry, get, id, key, page, put, state, take, tenure, topic};

fn marks(number: u64) -> Marks {
    Marks {
        claimed_until: after(number),
        ended_before: [after(number + 1), after(number + 2)],
        counters_until: number + 3,
    }
}

pub(super) async fn a_slot_is_taken_and_remembers_its_marks<S: SlotStore>(store: &S) {
    let first = tenure(7, 10);
    assert_eq!(take(store, first).await, Marks::default(), "nobody had it before");
    assert_eq!(take(store, first).await, Marks::default(), "the same tenure may take again");
    assert_eq!(store.keep(vec![(first, marks(100), Vec::new())]).await.unwrap(), [true]);
    assert_eq!(take(store, first).await, marks(100));
    let lower = Marks { ended_before: [after(0), after(1)], ..marks(100) };
    assert_eq!(store.keep(vec![(first, lower, Vec::new())]).await.unwrap(), [true]);
    assert_eq!(take(store, tenure(7, 11)).await, lower, "as the owner before has left it");
    let high = tenure(u16::MAX, u64::from(u32::MAX) << 20);
    assert_eq!(take(store, high).await, Marks::default());
    let far = Marks { counters_until: (1 << 38) + 5, ..marks(1) };
    assert_eq!(store.keep(vec![(high, far, Vec::new())]).await.unwrap(), [true]);
    assert_eq!(take(store, high).await, far);
}

pub(super) async fn claims_are_taken_back_by_saying_none<S: SlotStore>(store: &S) {
    let owner = tenure(1, 1);
    take(store, owner).await;
    // Counters never go back.
    let marks = |number| Marks { counters_until: 103, ..marks(number) };
    let none = Marks { claimed_until: Timestamp::MIN, ..marks(100) };
    for marks in [marks(100), none, marks(50), marks(70)] {
        assert_eq!(store.keep(vec![(owner, marks, Vec::new())]).await.unwrap(), [true]);
        assert_eq!(take(store, owner).await, marks);
    }
}

pub(super) async fn a_lower_term_is_refused<S: SlotStore>(store: &S) {
    take(store, tenure(3, 5)).await;
    assert_eq!(store.take(tenure(3, 4)).await.unwrap(), None);
    take(store, tenure(3, 9)).await;
    assert_eq!(store.take(tenure(3, 5)).await.unwrap(), None);
    take(store, tenure(3, 9)).await;
}

pub(super) async fn a_write_with_an_old_term_changes_nothing<S: SlotStore>(store: &S) {
    let (old, new) = (tenure(3, 5), tenure(3, 6));
    take(store, old).await;
    let (there, sent) = (key(3, 100, 1), entry(topic(1), after(100), "there"));
    done(store, old, vec![put(there, &sent)]).await;
    take(store, new).await;
    let message = id(there, &sent);
    let late = entry(topic(1), after(50), "late");
    for forged in [old, tenure(3, 1), tenure(3, 7), tenure(4, 5)] {
        let changes =
            vec![put(key(forged.slot.0, 50, 9), &late), end(message, there, State::Cancelled, 1)];
        assert_eq!(apply(store, forged, changes).await, Outcome::Fenced, "{forged:?}");
        let kept = store.keep(vec![(forged, marks(500), Vec::new())]).await.unwrap();
        assert_eq!(kept, [false], "{forged:?}");
    }
    assert_eq!(state(store, message).await, Some(State::Scheduled));
    assert_eq!(page(store, 3, Lane::Message).await.len(), 1);
    assert!(get(store, id(key(3, 50, 9), &late)).await.is_none());
    assert_eq!(take(store, new).await, Marks::default());
    done(store, new, vec![end(message, there, State::Delivered, 1)]).await;
    assert_eq!(state(store, message).await, Some(State::Delivered));
}

pub(super) async fn keep_answers_for_each_slot<S: SlotStore>(store: &S) {
    assert_eq!(store.keep(Vec::new()).await.unwrap(), Vec::<bool>::new());
    for slot in [1, 2, 3] {
        take(store, tenure(slot, 5)).await;
    }
    take(store, tenure(2, 6)).await;
    let counted = |difference| {
        let (topic, lane, kind) = (topic(1), Lane::Message, Kind::Scheduled);
        vec![Counted { topic, lane, kind, hour: 500_000, difference }]
    };
    let kept = store.keep(vec![
        (tenure(3, 5), marks(30), counted(1)),
        (tenure(2, 5), marks(20), counted(10)),
        (tenure(1, 5), marks(10), counted(100)),
        (tenure(9, 5), marks(90), counted(1000)),
    ]);
    assert_eq!(kept.await.unwrap(), [true, false, true, false]);
    assert_eq!(take(store, tenure(1, 6)).await, marks(10));
    assert_eq!(take(store, tenure(2, 6)).await, Marks::default());
    assert_eq!(take(store, tenure(3, 6)).await, marks(30));
    assert_eq!(store.counts(Lane::Message).await.unwrap(), [(topic(1), 101)]);
}

pub(super) async fn slots_are_independent<S: SlotStore>(store: &S) {
    let tenures = [tenure(0, 5), tenure(1, 900), tenure(255, 2), tenure(u16::MAX, 7)];
    let sent = entry(topic(1), after(100), "one of each");
    let mut groups = Vec::new();
    for tenure in tenures {
        take(store, tenure).await;
        groups.push(Group { tenure, changes: vec![put(key(tenure.slot.0, 100, 1), &sent)] });
    }
    assert_eq!(store.apply(groups).await.unwrap(), [Outcome::Done; 4]);
    for tenure in tenures {
        let found = page(store, tenure.slot.0, Lane::Message).await;
        assert_eq!(found.len(), 1, "{tenure:?}");
        assert_eq!(found[0].key, key(tenure.slot.0, 100, 1));
    }
}
