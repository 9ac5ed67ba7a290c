//! Where a group goes on, and what was said when it was put there.

use punctual_model::group::{Committed, GroupChange, Placed, PlacedBy, SeekBy, Source};
use punctual_model::limits::COMMIT_TEXT_BYTES_MAX;
use punctual_model::ports::Groups;

use super::{GroupStore, Scene, apply, assert_pulled, group, seek, send, settle, standing};
use crate::conformance::partition;

fn commit<S: Groups>(store: &S, source: Source, cursor: u64, said: &Committed) {
    apply(store, vec![GroupChange::Commit(source, cursor, said.clone())], Vec::new());
}

fn said(offset: u64, text: &str, leader_epoch: Option<u32>) -> Committed {
    Committed { offset, text: text.into(), leader_epoch }
}

fn placed(number: u16, committed: Committed, by: PlacedBy) -> Placed {
    Placed { partition: partition(number), committed, by }
}

pub(super) fn what_was_committed_is_told_exactly<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c"]);
    let told = |scene: &Scene| store.placed(scene.group.id);
    assert_eq!(told(&scene), [], "it never was anywhere");

    let first = said(1, "one of three", Some(0));
    commit(store, scene.main(0), 1, &first);
    assert_eq!(told(&scene), [placed(0, first, PlacedBy::Commit)], "and nothing of partition 1");
    assert_pulled(store, scene.main(0), &sent[1..], "it goes on there");

    let beyond = said(42, "", None);
    commit(store, scene.main(0), 3, &beyond);
    assert_eq!(told(&scene), [placed(0, beyond, PlacedBy::Commit)], "past the end of the log");
    assert_eq!(standing(store, scene.main(0)).cursor, 3, "where the cursor does not go");

    let zero = said(0, "from the start", Some(7));
    commit(store, scene.main(1), 0, &zero);
    seek(store, scene.main(0), 0, SeekBy::Reset);
    let both = [placed(0, Committed::at(0), PlacedBy::Reset), placed(1, zero, PlacedBy::Commit)];
    assert_eq!(told(&scene), both, "a beginning that somebody chose is a place");

    settle(store, scene.main(0), &sent[..2]);
    let settled = placed(0, Committed::at(2), PlacedBy::Settle);
    assert_eq!(told(&scene)[0], settled, "what settles messages moves the group too");
    let other = group(store, &scene.topic, "other");
    assert_eq!(store.placed(other.id), [], "another group");
}

pub(super) fn what_is_forgotten_was_never_there<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c"]);
    commit(store, scene.main(0), 2, &said(2, "two", None));
    commit(store, scene.main(1), 0, &said(0, "", None));
    apply(store, vec![GroupChange::Forget(scene.main(0))], Vec::new());
    let rest = [placed(1, Committed::at(0), PlacedBy::Commit)];
    assert_eq!(store.placed(scene.group.id), rest);
    assert_pulled(store, scene.main(0), &sent, "it begins at the beginning again");
    apply(store, vec![GroupChange::Forget(scene.main(0))], Vec::new());
    assert_eq!(store.placed(scene.group.id), rest, "twice is as good as once");
}

pub(super) fn places_survive_a_restart<S: GroupStore>(mut store: S, reopen: &impl Fn(S) -> S) {
    let scene = Scene::new(&store);
    send(&store, scene.topic.id, partition(0), &["a", "b", "c"]);
    let long = "ü".repeat(COMMIT_TEXT_BYTES_MAX / 2);
    let steps: [(&str, Vec<GroupChange>); 4] = [
        (
            "commits",
            vec![
                GroupChange::Commit(scene.main(0), 1, said(1, &long, Some(3))),
                GroupChange::Commit(scene.main(1), 0, said(9, "far", None)),
            ],
        ),
        ("a reset", vec![GroupChange::Seek(scene.main(0), 0, SeekBy::Reset)]),
        ("the end of one", vec![GroupChange::Forget(scene.main(1))]),
        ("one again", vec![GroupChange::Commit(scene.main(1), 0, said(0, "", Some(0)))]),
    ];
    for (when, changes) in steps {
        apply(&store, changes, Vec::new());
        let before = store.placed(scene.group.id);
        for time in ["one restart", "two restarts"] {
            store = reopen(store);
            assert_eq!(store.placed(scene.group.id), before, "{when}, after {time}");
        }
    }
}
