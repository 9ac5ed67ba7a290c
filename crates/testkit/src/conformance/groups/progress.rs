//! What a group is done with: settling, notes, seeking, and how that is told.

use std::thread;

use punctual_model::group::{SeekBy, Start};
use punctual_model::ports::{Delivered, TopicError};
use punctual_model::{GroupId, Partition, Source, TopicId};

use super::super::{after, partition};
use super::{
    GroupStore, Scene, a_note, assert_pulled, bodies, group, group_from, mark, note, pull,
    pull_from, seek, send, settle, standing, topic,
};

fn numbered<S: GroupStore>(store: &S, topic: TopicId, place: Partition) -> Vec<Delivered> {
    let texts: Vec<String> = (0..40).map(|number: u32| number.to_string()).collect();
    send(store, topic, place, &texts.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(super) fn what_is_not_settled_is_pulled<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let source = scene.main(1);
    assert_eq!(pull(store, source), [], "an empty log");
    let sent = numbered(store, scene.topic.id, partition(1));
    for limit in [1, 3, 40, 1000] {
        let all = pull_from(store, source, 0, limit);
        assert!(all.iter().map(|(delivered, _)| delivered).eq(&sent), "in steps of {limit}");
    }
    for index in [1, 17, 39] {
        let rest = pull_from(store, source, sent[index].offset, 7);
        assert!(rest.iter().map(|(delivered, _)| delivered).eq(&sent[index..]), "from {index}");
    }
    let end = sent[39].offset + 1;
    let last = store.pull(source, end, 10).expect("a working store lets pull");
    assert_eq!((last.messages, last.next), (Vec::new(), end), "the end of the log");
    assert_pulled(store, source, &sent, "reading changes nothing");
    let more = numbered(store, scene.topic.id, partition(1));
    assert_eq!(pull_from(store, source, end, 100).len(), more.len(), "it goes on from there");
}

pub(super) fn what_is_settled_is_never_pulled_again<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let source = scene.main(0);
    let sent = numbered(store, scene.topic.id, partition(0));
    let mut open: Vec<&Delivered> = sent.iter().collect();
    // In an order with holes at the start, in the middle and at the end.
    for step in [[7, 8, 9], [39, 20, 0], [1, 38, 2], [4, 6, 5], [3, 3, 3], [10, 30, 20]] {
        settle(store, source, step.iter().map(|&index| &sent[index]));
        open.retain(|delivered| !step.iter().any(|&index| sent[index] == **delivered));
        assert_pulled(store, source, open.iter().copied(), "what is left");
        for limit in [1, 5] {
            assert_eq!(pull_from(store, source, 0, limit).len(), open.len());
        }
    }
    settle(store, source, &sent);
    assert_pulled(store, source, [], "everything is settled");
    let more = numbered(store, scene.topic.id, partition(0));
    assert_pulled(store, source, &more, "what came later is not");
}

pub(super) fn the_cursor_moves_over_what_is_settled<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let source = scene.main(0);
    let sent = numbered(store, scene.topic.id, partition(0));
    let told = || {
        let standing = standing(store, source);
        (standing.cursor, standing.settled_ahead, standing.lag())
    };
    assert_eq!(told(), (0, 0, 40));
    settle(store, source, &sent[2..5]);
    assert_eq!(told(), (0, 3, 37));
    settle(store, source, &sent[0..1]);
    assert_eq!(told(), (1, 3, 36));
    settle(store, source, &sent[1..2]);
    assert_eq!(told(), (5, 0, 35), "over those settled before");
    settle(store, source, &sent[..7]);
    assert_eq!(told(), (7, 0, 33), "twice is once");
    settle(store, source, sent[8..].iter().rev());
    assert_eq!(told(), (7, 32, 1));
    settle(store, source, &sent[7..8]);
    assert_eq!(told(), (40, 0, 0));
}

pub(super) fn notes_are_given_back<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let source = scene.main(0);
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c", "d", "e", "f"]);
    for (number, delivered) in (1..=4).zip(&sent) {
        note(store, source, delivered, a_note(number));
    }
    let notes = || pull(store, source).into_iter().map(|(_, note)| note).collect::<Vec<_>>();
    let first = [Some(a_note(1)), Some(a_note(2)), Some(a_note(3)), Some(a_note(4)), None, None];
    assert_eq!(notes(), first);
    assert_eq!(
        bodies(&pull(store, source)),
        ["a", "b", "c", "d", "e", "f"],
        "a note moves nothing"
    );

    note(store, source, &sent[1], a_note(7));
    settle(store, source, [&sent[2], &sent[5]]);
    let second = [Some(a_note(1)), Some(a_note(7)), Some(a_note(4)), None];
    assert_eq!(notes(), second, "the last note counts; settled messages have none");
    note(store, source, &sent[2], a_note(9));
    assert_eq!(notes(), second, "what is settled stays so");
    settle(store, source, &sent[..4]);
    assert_eq!(notes(), [None]);

    let other = Source { group: group(store, &scene.topic, "other").id, ..source };
    assert_pulled(store, other, &sent, "notes are those of one group");
}

pub(super) fn a_seek_forgets_what_was_there<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let sent = numbered(store, scene.topic.id, partition(0));
    let elsewhere = numbered(store, scene.topic.id, partition(1));
    settle(store, scene.main(1), &elsewhere[..3]);
    let source = scene.main(0);
    for by in [SeekBy::Reset, SeekBy::Commit] {
        for to in [0, 10, 39, 40, 5] {
            settle(store, source, sent[6..8].iter().chain(&sent[20..30]));
            note(store, source, &sent[35], a_note(2));
            seek(store, source, to, by);
            let rest = usize::try_from(to).expect("a small offset");
            assert_pulled(store, source, &sent[rest..], "from there on, without notes");
            let told = standing(store, source);
            assert_eq!((told.cursor, told.settled_ahead), (to, 0), "{by:?}");
        }
    }
    settle(store, source, &sent[5..7]);
    assert_pulled(store, source, &sent[7..], "settling goes on from there");
    seek(store, source, 3, SeekBy::Reset);
    settle(store, source, &sent[3..5]);
    assert_pulled(store, source, &sent[5..], "what was settled before the seek is forgotten");
    assert_pulled(store, scene.main(1), &elsewhere[3..], "another partition stays where it is");
}

pub(super) fn a_group_may_start_at_the_end<S: GroupStore>(store: &S) {
    let orders = topic(store, "orders", 2);
    let old = send(store, orders.id, partition(1), &["a", "b"]);
    let of = |start| Source {
        group: group_from(store, &orders, &format!("{start:?}"), start).id,
        topic: orders.id,
        partition: partition(1),
    };
    let (earliest, latest) = (of(Start::Earliest), of(Start::Latest));
    assert_pulled(store, earliest, &old, "the oldest that is there");
    assert_pulled(store, latest, [], "nothing from before");
    assert_eq!((standing(store, latest).cursor, standing(store, latest).lag()), (2, 0));
    let new = send(store, orders.id, partition(1), &["c"]);
    assert_pulled(store, latest, &new, "what is delivered from now on");
    assert_eq!(pull(store, earliest).len(), 3);

    topic(store, "orders", 3);
    let grown = send(store, orders.id, partition(2), &["d", "e"]);
    for source in [earliest, latest] {
        let source = Source { partition: partition(2), ..source };
        assert_pulled(store, source, &grown, "a new partition has no messages from before");
        settle(store, source, &grown[..1]);
        assert_pulled(store, source, &grown[1..], "and is settled like the others");
    }
}

pub(super) fn groups_and_partitions_are_independent<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let other = Source { group: group(store, &scene.topic, "other").id, ..scene.main(0) };
    let [first, second] =
        [0, 1].map(|number| send(store, scene.topic.id, partition(number), &["a", "b", "c"]));
    settle(store, scene.main(0), &first[..2]);
    assert_pulled(store, scene.main(0), &first[2..], "what was settled");
    assert_pulled(store, scene.main(1), &second, "another partition");
    assert_pulled(store, other, &first, "another group");
    seek(store, other, 3, SeekBy::Reset);
    note(store, scene.main(1), &second[0], a_note(1));
    assert_pulled(store, other, [], "the group that was moved");
    assert_pulled(store, scene.main(0), &first[2..], "and the one that was not");
    let partition_1 = Source { partition: partition(1), ..other };
    assert_pulled(store, partition_1, &second, "another group has no note");
}

pub(super) fn the_standing_tells_how_far_a_group_is<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    send(store, scene.topic.id, partition(0), &["a"]);
    let sent = send(store, scene.topic.id, partition(1), &["a", "b", "c", "d"]);
    settle(store, scene.main(1), [&sent[0], &sent[2]]);
    let all = store.standing(scene.group.id, false).expect("a working store tells the standing");
    let sources: Vec<Source> = all.iter().map(|standing| standing.source).collect();
    let expected = [scene.main(0), scene.main(1), scene.retry(), scene.dead()];
    assert_eq!(sources, expected, "its topic, its retry topic, its dead letters");
    let told: Vec<[u64; 5]> = all
        .iter()
        .map(|told| [told.cursor, told.start, told.end, told.settled_ahead, told.lag()])
        .collect();
    assert_eq!(told, [[0, 0, 1, 0, 1], [1, 0, 4, 1, 2], [0; 5], [0; 5]]);
    assert!(all[0].bytes > 0 && all[1].bytes > 0, "{all:?}");

    let oldest = || standing(store, scene.main(1)).oldest;
    assert_eq!(oldest(), Some(sent[1].delivered_at));
    settle(store, scene.main(1), &sent);
    assert_eq!(oldest(), None, "nothing waits");
    assert_eq!(standing(store, scene.retry()).oldest, None);
    topic(store, "orders", 3);
    let grown = store.standing(scene.group.id, true).expect("a working store tells the standing");
    assert_eq!(grown.len(), 5);
    assert_eq!(grown[2].source, scene.main(2), "a new partition is among them");
    assert_eq!(grown[0].oldest, Some(after(100)), "{grown:?}");
    let nobody = store.standing(GroupId(u32::MAX), true);
    assert_eq!(nobody, Err(TopicError::NotFound));
}

pub(super) fn a_source_that_is_not_of_the_group_is_refused<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let other = group(store, &scene.topic, "other");
    let unrelated = topic(store, "unrelated", 1);
    let group = scene.group.id;
    let refused = [
        Source { group, topic: unrelated.id, partition: partition(0) },
        Source { group, topic: other.retry, partition: partition(0) },
        Source { group, topic: other.dead, partition: partition(0) },
        Source { group, topic: scene.topic.id, partition: partition(2) },
        Source { group, topic: scene.group.retry, partition: partition(1) },
        Source { group, topic: TopicId::MAX, partition: partition(0) },
        Source { group: GroupId(u32::MAX), ..scene.main(0) },
    ];
    for source in refused {
        assert_eq!(store.pull(source, 0, 10), Err(TopicError::NotFound), "{source:?}");
    }
}

/// Several threads settle every other message, and one in between pulls.
pub(super) fn many_settle_at_once<S: GroupStore>(store: &S) {
    const THREADS: usize = 4;
    let scene = Scene::new(store);
    let source = scene.main(0);
    let sent: Vec<Delivered> =
        (0..5).flat_map(|_| numbered(store, scene.topic.id, partition(0))).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mine = sent.iter().skip(thread).step_by(THREADS);
            let settle_mine = move || mine.for_each(|delivered| settle(store, source, [delivered]));
            let builder = thread::Builder::new().name(format!("settler {thread}"));
            builder.spawn_scoped(scope, settle_mine).expect("a test may start a thread");
        }
        let mut left = sent.len();
        while left > 0 {
            let now = pull(store, source).len();
            assert!(now <= left, "{now} after {left}: something settled came back");
            left = now;
        }
    });
    let told = standing(store, source);
    assert_eq!((told.cursor, told.settled_ahead, told.lag()), (200, 0, 0));
    assert_eq!(sent.iter().map(mark).map(|mark| mark.offset).max(), Some(199));
}
