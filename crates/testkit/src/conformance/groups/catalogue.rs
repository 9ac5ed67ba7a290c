//! Making, changing, listing and deleting groups, and the topics that come and go with them.

use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::group::{Exponential, Push, RetryPolicy, Start};
use punctual_model::limits::{DEAD_RETENTION_DEFAULT, NAME_CHARS_MAX};
use punctual_model::ports::{GroupError, Groups, LogPosition, TopicError, Topics};
use punctual_model::{
    Group, GroupId, GroupSettings, Lane, Source, Span, TopicId, TopicKind, TopicSettings,
};

use super::super::{after, partition};
use super::{
    A_DAY, GroupStore, Scene, apply, assert_pulled, counts, entry, fire, group, group_name, pull,
    send, settle, settled, topic, topic_name,
};

/// Settings that differ from the default in everything.
pub(super) fn unusual() -> GroupSettings {
    GroupSettings {
        ordered: true,
        retry: RetryPolicy::Exponential(Exponential {
            first: Span::from_millis(1500),
            max: Span::from_secs(77),
            factor_percent: 137,
            jitter_percent: 23,
        }),
        attempts_max: Some(5),
        lease: Span::from_millis(1234),
        paused: true,
        push: Some(Push {
            url: "https://example.org/hook?key=ä".into(),
            secret: Some("unguessable".into()),
            concurrency: 17,
            timeout: Span::from_millis(4321),
        }),
    }
}

pub(super) fn a_group_brings_its_own_topics<S: GroupStore>(store: &S) {
    let Scene { topic, group } = Scene::new(store);
    assert_eq!((group.topic, group.name.as_str()), (topic.id, "billing"));
    assert_eq!(group.settings, GroupSettings::default());
    let own = [
        (group.retry, "orders.billing.retry", TopicKind::Retry, Span::from_millis(0)),
        (group.dead, "orders.billing.dead", TopicKind::Dead, DEAD_RETENTION_DEFAULT),
    ];
    for (id, name, kind, retention) in own {
        let found = store.by_id(id).expect("the topic was made with the group");
        assert_eq!((found.name.as_str(), found.kind), (name, kind));
        assert_eq!((found.settings.partitions, found.settings.retention), (1, Some(retention)));
        assert_eq!(Topics::by_name(store, &topic_name(name)), Some(found));
    }
    assert_eq!(Groups::by_name(store, topic.id, &group_name("billing")), Some(Arc::clone(&group)));
    assert_eq!(Groups::by_name(store, topic.id, &group_name("Billing")), None, "case matters");
    assert_eq!(Groups::by_name(store, group.dead, &group_name("billing")), None);
    assert_eq!(Groups::list(store), [group]);
    assert_eq!(Topics::list(store).len(), 3);
}

pub(super) fn settings_of_a_group_can_be_changed<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let sent = send(store, scene.topic.id, partition(1), &["a", "b", "c"]);
    settle(store, scene.main(1), &sent[..1]);
    let ladder: Arc<[Span]> = [Span::from_millis(1), A_DAY].into();
    let by_ladder = GroupSettings { retry: RetryPolicy::Ladder(ladder), ..unusual() };
    for settings in [unusual(), by_ladder, GroupSettings::default()] {
        let name = group_name("billing");
        let changed = Groups::put(store, scene.topic.id, &name, settings.clone(), Start::Latest);
        let expected = Group { settings, ..Group::clone(&scene.group) };
        assert_eq!(changed.as_deref(), Ok(&expected), "the group stays the same one");
        assert_eq!(Groups::by_name(store, scene.topic.id, &name).as_deref(), Some(&expected));
        assert_eq!(Groups::list(store).len(), 1);
        assert_pulled(store, scene.main(1), &sent[1..], "a start counts for a new group only");
    }
}

pub(super) fn groups_are_listed_by_topic_and_name<S: GroupStore>(store: &S) {
    assert_eq!(Groups::list(store), []);
    let topics = ["a", "b"].map(|name| topic(store, name, 1));
    let mut made = Vec::new();
    for name in ["z", "a-b", "B", "10", "9", "a"] {
        for topic in &topics {
            made.push(group(store, topic, name));
        }
    }
    let mut numbers: Vec<GroupId> = made.iter().map(|group| group.id).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), made.len(), "each group has a number of its own");
    made.sort_by(|one, other| (one.topic, &one.name).cmp(&(other.topic, &other.name)));
    assert_eq!(Groups::list(store), made);
}

pub(super) fn a_name_that_is_taken_is_refused<S: GroupStore>(store: &S) {
    let orders = topic(store, "orders", 1);
    for taken in ["orders.billing.retry", "orders.billing.dead"] {
        let in_the_way = topic(store, taken, 1);
        let name = group_name("billing");
        let made = Groups::put(store, orders.id, &name, GroupSettings::default(), Start::Earliest);
        assert_eq!(made, Err(GroupError::NameTaken(in_the_way.name.clone())));
        assert_eq!(Groups::list(store), [], "a refusal changes nothing");
        assert_eq!(Topics::list(store).len(), 2, "a refusal changes nothing");
        assert_eq!(Topics::delete(store, &in_the_way.name), Ok(true));
    }
    group(store, &orders, "billing");
}

pub(super) fn a_name_that_is_too_long_is_refused<S: GroupStore>(store: &S) {
    let orders = topic(store, &"o".repeat(100), 1);
    // What is left for the name of the group next to the dots and the word.
    let longest = NAME_CHARS_MAX - 100 - ".".len() - ".retry".len();
    for chars in [longest + 1, longest + 2, NAME_CHARS_MAX] {
        let name = group_name(&"b".repeat(chars));
        let made = Groups::put(store, orders.id, &name, GroupSettings::default(), Start::Earliest);
        assert_eq!(made, Err(GroupError::NameTooLong), "{chars} characters");
    }
    assert_eq!(Topics::list(store).len(), 1, "a refusal changes nothing");
    let made = group(store, &orders, &"b".repeat(longest));
    let retry = store.by_id(made.retry).expect("the topic was made with the group");
    assert_eq!(retry.name.as_str().len(), NAME_CHARS_MAX);
}

pub(super) fn only_some_topics_can_have_groups<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    for topic in [scene.group.retry, TopicId::MAX] {
        let name = group_name("other");
        let made = Groups::put(store, topic, &name, GroupSettings::default(), Start::Earliest);
        assert_eq!(made, Err(GroupError::TopicNotFound));
    }
    let dead = store.by_id(scene.group.dead).expect("the topic was made with the group");
    let second = group(store, &dead, "watch");
    let second_dead = store.by_id(second.dead).expect("the topic was made with the group");
    assert_eq!(second_dead.name.as_str(), "orders.billing.dead.watch.dead");
}

pub(super) fn the_topics_of_a_group_are_reserved<S: GroupStore>(store: &S) {
    let Scene { group, .. } = Scene::new(store);
    for id in [group.retry, group.dead] {
        let before = store.by_id(id).expect("the topic was made with the group");
        assert_eq!(Topics::delete(store, &before.name), Err(TopicError::Reserved));
        let more = TopicSettings { partitions: 2, ..before.settings.clone() };
        assert_eq!(Topics::put(store, &before.name, more), Err(TopicError::Reserved));
        assert_eq!(store.by_id(id), Some(Arc::clone(&before)), "a refusal changes nothing");
        let settings = TopicSettings { retention: Some(A_DAY), ..before.settings.clone() };
        let after = Topics::put(store, &before.name, settings.clone()).expect("it may change");
        assert_eq!((after.id, after.kind, &after.settings), (id, before.kind, &settings));
        assert_eq!(store.by_id(id), Some(after));
    }
}

pub(super) fn a_deleted_group_is_gone_with_all_it_had<S: GroupStore>(store: &S) {
    let mut scene = Scene::new(store);
    let other = group(store, &scene.topic, "other");
    let sent = send(store, scene.topic.id, partition(0), &["a", "b"]);
    let mut numbers = vec![scene.group.id];
    for _ in 0..3 {
        let entries = vec![entry(scene.group.retry, 10, "r"), entry(scene.group.dead, 10, "d")];
        let later = vec![entry(scene.group.retry, 9000, "r"), entry(other.retry, 9000, "kept")];
        apply(store, settled(scene.main(0), &sent), entries);
        assert_eq!(fire(store, Lane::Retry, after(100)), 2);
        let moved = apply(store, Vec::new(), later);
        assert_eq!(Groups::delete(store, scene.group.id), Ok(true));

        assert_eq!(Groups::delete(store, scene.group.id), Ok(false), "there is none any more");
        let old = scene;
        let name = group_name("billing");
        assert_eq!(Groups::by_name(store, old.topic.id, &name), None);
        assert_eq!(Groups::list(store), [Arc::clone(&other)]);
        for topic in [old.group.retry, old.group.dead] {
            assert_eq!(store.by_id(topic), None);
            let start = LogPosition { topic, partition: partition(0), offset: 0 };
            assert_eq!(store.read(start, 10), Err(TopicError::NotFound));
        }
        for source in [old.main(0), old.retry(), old.dead()] {
            assert_eq!(store.pull(source, 0, 10), Err(TopicError::NotFound));
        }
        assert_eq!(store.standing(old.group.id, false), Err(TopicError::NotFound));
        assert_eq!(counts(store), [(other.retry, 1)], "what was pending went with it");
        block_on(store.cancel(moved[1..].to_vec())).expect("a working store cancels");

        scene = Scene::new(store);
        assert!(!numbers.contains(&scene.group.id), "{:?} was given before", scene.group.id);
        numbers.push(scene.group.id);
        assert_ne!((scene.group.retry, scene.group.dead), (old.group.retry, old.group.dead));
        assert_pulled(store, scene.main(0), &sent, "a new group has settled nothing");
        assert_eq!(pull(store, scene.retry()), []);
        assert_eq!(pull(store, scene.dead()), []);
    }
    assert_eq!(Groups::delete(store, GroupId(u32::MAX)), Ok(false));
    let of_other = Source { group: other.id, ..scene.main(0) };
    assert_pulled(store, of_other, &sent, "another group keeps its place");
}

pub(super) fn a_deleted_topic_takes_its_groups_along<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let dead = store.by_id(scene.group.dead).expect("the topic was made with the group");
    let watch = group(store, &dead, "watch");
    let kept = topic(store, "kept", 1);
    let kept_group = group(store, &kept, "billing");
    send(store, scene.topic.id, partition(0), &["a"]);
    let entries = [scene.group.retry, watch.retry, kept_group.retry];
    apply(store, Vec::new(), entries.iter().map(|topic| entry(*topic, 10, "r")).collect());
    assert_eq!(Topics::delete(store, &scene.topic.name), Ok(true));

    assert_eq!(Groups::list(store), [Arc::clone(&kept_group)]);
    assert_eq!(Topics::list(store).len(), 3, "the other topic and those of its group");
    assert_eq!(counts(store), [(kept_group.retry, 1)]);
    for group in [scene.group.id, watch.id] {
        assert_eq!(store.standing(group, false), Err(TopicError::NotFound));
        assert_eq!(Groups::delete(store, group), Ok(false));
    }
    assert_eq!(fire(store, Lane::Retry, after(100)), 1);
    let again = Scene::new(store);
    assert_ne!(again.group.id, scene.group.id);
    assert_eq!(pull(store, again.main(0)), []);
}
