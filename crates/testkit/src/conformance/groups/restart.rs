//! What is still there after a restart: everything that was acknowledged.

use std::sync::Arc;

use punctual_model::group::{GroupChange, Note, SeekBy, Standing, Start};
use punctual_model::ports::{Delivered, Groups, Topic, Topics};
use punctual_model::{
    CatchUp, DelayLevels, Group, GroupSettings, Lane, Source, Span, TopicId, TopicSettings,
};

use super::super::{after, partition, topics};
use super::catalogue::unusual;
use super::{
    GroupStore, Pending, Scene, a_note, apply, assert_pulled, bodies, counts, entry, fire, group,
    group_from, group_name, mark, note, pull, seek, send, settle, settled, standing, topic,
    topic_name,
};

/// All that groups and topics show of themselves.
#[derive(Debug, PartialEq)]
struct Shown {
    topics: Vec<Arc<Topic>>,
    groups: Vec<Arc<Group>>,
    standings: Vec<Standing>,
    pulled: Vec<(Source, Pending)>,
    counts: Vec<(TopicId, u64)>,
    levels: DelayLevels,
}

fn show<S: GroupStore>(store: &S) -> Shown {
    let groups = Groups::list(store);
    let of_group = |group: &Arc<Group>| {
        store.standing(group.id, true).expect("a working store tells the standing")
    };
    let mut standings: Vec<Standing> = groups.iter().flat_map(of_group).collect();
    let sources = standings.iter().map(|standing| standing.source);
    let pulled = sources.map(|source| (source, pull(store, source))).collect();
    // How the bytes of a log are counted may differ after a start.
    standings.iter_mut().for_each(|standing| standing.bytes = 0);
    let (topics, levels) = (Topics::list(store), store.levels());
    Shown { topics, groups, standings, pulled, counts: counts(store), levels }
}

/// Starts again, twice, and finds everything as it was.
fn restarted<S: GroupStore>(mut store: S, reopen: &impl Fn(S) -> S, when: &str) -> S {
    let before = show(&store);
    for time in ["one restart", "two restarts"] {
        store = reopen(store);
        assert_eq!(show(&store), before, "{when}, after {time}");
    }
    store
}

pub(super) fn progress_survives_a_restart<S: GroupStore>(store: S, reopen: &impl Fn(S) -> S) {
    let scene = Scene::new(&store);
    let other = group(&store, &scene.topic, "other");
    let texts = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let [first, second] =
        [0, 1].map(|number| send(&store, scene.topic.id, partition(number), &texts));
    settle(&store, scene.main(0), [&first[0], &first[1], &first[3], &first[6]]);
    let store = restarted(store, reopen, "settled ones");
    note(&store, scene.main(0), &first[2], a_note(1));
    note(&store, scene.main(0), &first[4], a_note(2));
    note(&store, scene.main(0), &first[4], a_note(5));
    settle(&store, scene.main(0), [&first[7]]);
    let store = restarted(store, reopen, "notes");
    let expected: Vec<(Delivered, Option<Note>)> = vec![
        (first[2].clone(), Some(a_note(1))),
        (first[4].clone(), Some(a_note(5))),
        (first[5].clone(), None),
    ];
    assert_eq!(pull(&store, scene.main(0)), expected);

    seek(&store, scene.main(0), 3, SeekBy::Reset);
    seek(&store, scene.main(1), 6, SeekBy::Commit);
    settle(&store, scene.main(1), [&second[7]]);
    let store = restarted(store, reopen, "seeks");
    assert_pulled(&store, scene.main(0), &first[3..], "what was settled before the seek");
    assert_pulled(&store, scene.main(1), [&second[6]], "what was settled after the seek");
    settle(&store, scene.main(0), [&first[3]]);
    seek(&store, scene.main(1), 0, SeekBy::Reset);
    let store = restarted(store, reopen, "more of the same");
    assert_pulled(&store, scene.main(0), &first[4..], "settled after the restart");
    assert_pulled(&store, Source { group: other.id, ..scene.main(1) }, &second, "another group");
    let more = send(&store, scene.topic.id, partition(0), &["i"]);
    let all = first[4..].iter().chain(&more);
    assert_pulled(&store, scene.main(0), all, "what came after the restart");
}

pub(super) fn the_catalogue_survives_a_restart<S: GroupStore>(store: S, reopen: &impl Fn(S) -> S) {
    let scene = Scene::new(&store);
    let sent = send(&store, scene.topic.id, partition(1), &["a", "b"]);
    group_from(&store, &scene.topic, "late", Start::Latest);
    let put = |store: &S, name: &str, settings: GroupSettings| {
        Groups::put(store, scene.topic.id, &group_name(name), settings, Start::Earliest)
            .expect("settings may change")
    };
    put(&store, "new", unusual());
    put(&store, "billing", unusual());
    let store = restarted(store, reopen, "settings");
    let late = Groups::by_name(&store, scene.topic.id, &group_name("late"));
    let late = late.expect("the group is still there").id;
    let late = Source { group: late, ..scene.main(1) };
    assert_pulled(&store, late, [], "it started at the end");
    assert_pulled(&store, scene.main(1), &sent, "it started at the beginning");

    put(&store, "billing", GroupSettings { paused: true, ..GroupSettings::default() });
    topic(&store, "orders", 4);
    let grown = send(&store, scene.topic.id, partition(3), &["c", "d"]);
    let late = Source { partition: partition(3), ..late };
    settle(&store, late, &grown[..1]);
    let store = restarted(store, reopen, "a new partition");
    assert_pulled(&store, late, &grown[1..], "settled in the new partition");

    let new = put(&store, "new", GroupSettings::default());
    apply(&store, settled(scene.main(3), &grown[1..]), vec![entry(new.retry, 10, "r")]);
    assert_eq!(Groups::delete(&store, new.id), Ok(true));
    let store = restarted(store, reopen, "a deleted group");
    assert_eq!(Groups::list(&store).len(), 2);
    assert_eq!(counts(&store), []);
    assert_eq!(Topics::delete(&store, &topic_name("orders")), Ok(true));
    let store = restarted(store, reopen, "a deleted topic");
    assert_eq!((Groups::list(&store), Topics::list(&store)), (Vec::new(), Vec::new()));
    let again = Scene::new(&store);
    assert_eq!(pull(&store, again.main(1)), [], "a new topic");
}

pub(super) fn settings_survive_a_restart<S: GroupStore>(store: S, reopen: &impl Fn(S) -> S) {
    let minute = Span::from_secs(60);
    let all = [CatchUp::All, CatchUp::Spread(minute), CatchUp::SkipOlder(minute), CatchUp::Latest];
    for (number, catch_up) in all.into_iter().enumerate() {
        let settings = TopicSettings { catch_up, ..topics::unusual() };
        let name = topic_name(&format!("unusual-{number}"));
        Topics::put(&store, &name, settings).expect("a working store makes topics");
    }
    let levels = DelayLevels::new(std::array::from_fn(|level| Span::from_days(level as u64)));
    store.put_levels(levels.clone()).expect("a working store takes levels");
    let store = restarted(store, reopen, "unusual settings");
    assert_eq!(store.levels(), levels);
    for number in 0..3 {
        let plain = TopicSettings { partitions: 2, ..TopicSettings::default() };
        let name = topic_name(&format!("unusual-{number}"));
        Topics::put(&store, &name, plain).expect("settings may change");
    }
    store.put_levels(DelayLevels::default()).expect("a working store takes levels");
    let store = restarted(store, reopen, "plain settings");
    assert_eq!(store.levels(), DelayLevels::default());
}

pub(super) fn moves_survive_a_restart<S: GroupStore>(store: S, reopen: &impl Fn(S) -> S) {
    let scene = Scene::new(&store);
    let sent = send(&store, scene.topic.id, partition(0), &["a", "b", "c", "d"]);
    for (delivered, due) in sent.iter().zip([10, 10, 5000]) {
        let body = format!("{due} again");
        let moved = vec![entry(scene.group.retry, due, &body)];
        apply(&store, settled(scene.main(0), [delivered]), moved);
    }
    let store = restarted(store, reopen, "moves");
    assert_pulled(&store, scene.main(0), &sent[3..], "settled with the move");
    assert_eq!(counts(&store), [(scene.group.retry, 3)]);
    assert_eq!(fire(&store, Lane::Message, after(6000)), 0, "the lane is the same");
    assert_eq!(fire(&store, Lane::Retry, after(100)), 2);
    let store = restarted(store, reopen, "what came back");
    let back = pull(&store, scene.retry());
    assert_eq!(bodies(&back), ["10 again", "10 again"], "once each");
    let changes = vec![
        GroupChange::Settle(scene.retry(), vec![mark(&back[0].0)]),
        GroupChange::Note(scene.retry(), mark(&back[1].0), a_note(3)),
    ];
    apply(&store, changes, vec![entry(scene.group.dead, 20, "dead")]);
    let store = restarted(store, reopen, "a dead letter on its way");
    assert_eq!(pull(&store, scene.retry()), [(back[1].0.clone(), Some(a_note(3)))]);
    assert_eq!(fire(&store, Lane::Retry, after(6000)), 2);
    let letters = pull(&store, scene.dead());
    assert_eq!(bodies(&letters), ["dead"]);
    settle(&store, scene.dead(), [&letters[0].0]);
    let store = restarted(store, reopen, "a dead letter settled");
    assert_eq!(pull(&store, scene.dead()), []);
    assert_eq!(standing(&store, scene.dead()).cursor, 1);
    assert_eq!(fire(&store, Lane::Retry, after(9000)), 0, "everything was delivered");
}

pub(super) fn numbers_are_not_given_again<S: GroupStore>(store: S, reopen: &impl Fn(S) -> S) {
    let scene = Scene::new(&store);
    let moved = apply(&store, Vec::new(), vec![entry(scene.group.retry, 10, "r")]);
    let other = group(&store, &scene.topic, "other");
    assert_eq!(Groups::delete(&store, other.id), Ok(true));
    assert_eq!(fire(&store, Lane::Retry, after(100)), 1);
    let store = restarted(store, reopen, "a number that was given");
    let again = group(&store, &scene.topic, "other");
    assert!(again.id > other.id, "{:?} after {:?}", again.id, other.id);
    assert!(again.retry > other.dead && again.dead > other.dead, "topics have numbers as well");
    let next = apply(&store, Vec::new(), vec![entry(scene.group.retry, 10, "r")]);
    assert!(next[0].key.sequence > moved[0].key.sequence, "{next:?} after {moved:?}");
    let late = Source { group: other.id, ..scene.main(0) };
    let sent = send(&store, scene.topic.id, partition(0), &["a"]);
    settle(&store, late, &sent);
    let of_again = Source { group: again.id, ..scene.main(0) };
    assert_pulled(&store, of_again, &sent, "a change of the deleted group");
}
