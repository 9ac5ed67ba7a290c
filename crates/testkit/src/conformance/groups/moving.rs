//! Moving messages on: changes and entries in one step, and the lane in which these entries fire.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_executor::block_on;
use punctual_model::group::{GroupChange, SeekBy};
use punctual_model::ports::{Armed, CancelOutcome, Groups, LogPosition, PendingQuery, Timeline};
use punctual_model::{
    Entry, GroupId, Key, Lane, Message, MessageId, Sequence, Source, State, Timestamp, TopicId,
};

use super::super::{after, delicate_messages, partition};
use super::{
    GroupStore, Scene, a_note, apply, arm, assert_pulled, bodies, counts, deliver, entry, fire,
    group, mark, pull, read, seek, send, settled,
};

fn ids(armed: &[Armed]) -> Vec<MessageId> {
    armed.iter().map(Armed::id).collect()
}

fn schedule<S: Timeline>(store: &S, batch: Vec<Entry>) -> Vec<MessageId> {
    block_on(store.schedule(batch)).expect("a working store takes a batch")
}

fn cancel<S: Timeline>(store: &S, ids: &[MessageId]) -> Vec<CancelOutcome> {
    block_on(store.cancel(ids.to_vec())).expect("a working store cancels")
}

fn states<S: Timeline>(store: &S, ids: &[MessageId]) -> Vec<Option<State>> {
    let found = block_on(store.find(ids.to_vec())).expect("a working store finds");
    found.into_iter().map(|found| found.map(|found| found.state)).collect()
}

fn pending<S: Timeline>(store: &S, topic: TopicId, lane: Lane) -> Vec<MessageId> {
    let query = PendingQuery::all_of(topic, lane, 100);
    let page = block_on(store.pending(query)).expect("a working store lists");
    page.entries.iter().map(|entry| entry.id).collect()
}

pub(super) fn an_empty_apply_is_nothing<S: GroupStore>(store: &S) {
    assert_eq!(apply(store, Vec::new(), Vec::new()), []);
    let scene = Scene::new(store);
    let sent = send(store, scene.topic.id, partition(0), &["a"]);
    let nothing = vec![GroupChange::Settle(scene.main(0), Vec::new())];
    assert_eq!(apply(store, nothing, Vec::new()), []);
    assert_pulled(store, scene.main(0), &sent, "nothing was settled");
}

pub(super) fn entries_go_to_the_retry_lane<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let (main, retry) = (scene.topic.id, scene.group.retry);
    let sent = schedule(store, vec![entry(main, 10, "m0"), entry(main, 30, "m1")]);
    let entries = vec![entry(retry, 30, "r0"), entry(retry, 10, "r1"), entry(main, 20, "r2")];
    let moved = apply(store, Vec::new(), entries);
    let places: Vec<_> = moved.iter().map(|id| (id.key.due, id.topic)).collect();
    let expected = [(after(30), retry), (after(10), retry), (after(20), main)];
    assert_eq!(places, expected, "in the order of the entries");
    let sequences: Vec<Sequence> = moved.iter().map(|id| id.key.sequence).collect();
    assert!(sequences.is_sorted_by(|one, other| one < other), "sequences grow: {sequences:?}");
    assert!(sequences.iter().all(|sequence| sequence.lane() == Lane::Retry), "{sequences:?}");

    assert_eq!(states(store, &moved), [Some(State::Scheduled); 3]);
    assert_eq!(pending(store, retry, Lane::Retry), [moved[1], moved[0]]);
    assert_eq!(pending(store, main, Lane::Retry), moved[2..], "listed apart");
    assert_eq!(pending(store, main, Lane::Message), sent, "listed apart");
    assert_eq!(counts(store), [(main, 3), (retry, 2)]);

    assert_eq!(ids(&arm(store, Lane::Message, after(25))), sent[..1]);
    assert_eq!(ids(&arm(store, Lane::Retry, after(25))), [moved[1], moved[2]]);
    let late = apply(store, Vec::new(), vec![entry(retry, 5, "late")]);
    assert_eq!(arm(store, Lane::Message, Timestamp::MAX).len(), 1, "only what producers sent");
    assert_eq!(ids(&arm(store, Lane::Retry, after(25))), late);
    assert_eq!(ids(&arm(store, Lane::Retry, Timestamp::MAX)), moved[..1]);
}

pub(super) fn lanes_are_claimed_and_settled_apart<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let (main, retry) = (scene.topic.id, scene.group.retry);
    let sent = schedule(store, vec![entry(main, 10, "m0"), entry(main, 11, "m1")]);
    let moved = apply(store, Vec::new(), vec![entry(retry, 10, "r0"), entry(main, 11, "r1")]);
    let mut messages = arm(store, Lane::Message, after(100));
    let retries = arm(store, Lane::Retry, after(100));
    block_on(store.claim(&mut messages)).expect("a working store lets claim");
    assert_eq!(cancel(store, &[sent[0]]), [CancelOutcome::AlreadyDelivered], "claimed");
    assert_eq!(cancel(store, &[moved[0]]), [CancelOutcome::Cancelled], "the other lane is not");

    deliver(store, retries, after(100));
    assert_eq!(states(store, &moved), [Some(State::Cancelled), Some(State::Delivered)]);
    block_on(store.deliver(&messages, after(101))).expect("a working outlet takes a batch");
    block_on(store.settle(&messages)).expect("a working store settles");
    assert_eq!(states(store, &sent), [Some(State::Delivered); 2]);
    assert_eq!(bodies(&pull(store, scene.main(0))), ["r1", "m0", "m1"], "in the order they came");
    assert_eq!(pull(store, scene.retry()), []);
    assert_eq!(counts(store), []);
}

pub(super) fn cancel_works_in_both_lanes<S: GroupStore>(store: &S) {
    use CancelOutcome::{AlreadyCancelled, AlreadyDelivered, Cancelled, NotFound};
    let scene = Scene::new(store);
    let (main, retry) = (scene.topic.id, scene.group.retry);
    let batch =
        |topic| vec![entry(topic, 10, "x"), entry(topic, 2000, "y"), entry(topic, 3000, "z")];
    let sent = schedule(store, batch(main));
    let moved = apply(store, Vec::new(), batch(retry));
    for lane in Lane::ALL {
        assert_eq!(fire(store, lane, after(100)), 1);
    }
    let stranger = |lane: Lane, like: MessageId| {
        let sequence = Sequence::new(lane.first().get() + (1 << 50)).expect("fewer than 56 bits");
        MessageId { key: Key { sequence, ..like.key }, ..like }
    };
    let other_lane = |id: MessageId| {
        let number = id.key.sequence.get() ^ Lane::Retry.first().get();
        let sequence = Sequence::new(number).expect("fewer than 56 bits");
        MessageId { key: Key { sequence, ..id.key }, ..id }
    };
    let asked = [
        sent[0],
        moved[0],
        sent[1],
        moved[1],
        stranger(Lane::Message, sent[2]),
        stranger(Lane::Retry, moved[2]),
        moved[1],
        other_lane(sent[2]),
        other_lane(moved[2]),
    ];
    let expected = [
        AlreadyDelivered,
        AlreadyDelivered,
        Cancelled,
        Cancelled,
        NotFound,
        NotFound,
        AlreadyCancelled,
        NotFound,
        NotFound,
    ];
    assert_eq!(cancel(store, &asked), expected);
    for lane in Lane::ALL {
        let left = ids(&arm(store, lane, Timestamp::MAX));
        assert_eq!(left, [if lane == Lane::Message { sent[2] } else { moved[2] }]);
    }
    assert_eq!(cancel(store, &[moved[2], sent[2]]), [Cancelled; 2], "armed, and not claimed");
    assert_eq!(counts(store), []);
}

pub(super) fn the_listener_hears_which_lane<S: GroupStore>(store: &S) {
    // Far more than any store needs; it is reached only by one that never calls.
    const PATIENCE: Duration = Duration::from_secs(60);
    let scene = Scene::new(store);
    let (sender, heard) = mpsc::sync_channel(1000);
    store.listen(Arc::new(move |lane| {
        // A full or closed channel will do: it was heard often enough.
        sender.try_send(lane).ok();
    }));
    arm(store, Lane::Retry, after(1000));
    for due in [999, 0, 10] {
        while heard.try_recv().is_ok() {}
        apply(store, Vec::new(), vec![entry(scene.group.retry, due, "late")]);
        let mut told = heard.recv_timeout(PATIENCE);
        while told == Ok(Lane::Message) {
            told = heard.recv_timeout(PATIENCE);
        }
        assert_eq!(told, Ok(Lane::Retry), "nobody heard of {due}");
        assert_eq!(arm(store, Lane::Retry, after(1000)).len(), 1);
    }
}

pub(super) fn a_failed_message_comes_back_through_the_retry_topic<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let sent = send(store, scene.topic.id, partition(1), &["a", "b", "c"]);
    let again =
        Entry { message: delicate_messages()[3].clone(), ..entry(scene.group.retry, 500, "") };
    let moved = apply(store, settled(scene.main(1), [&sent[1]]), vec![again.clone()]);
    assert_pulled(store, scene.main(1), [&sent[0], &sent[2]], "it is not here any more");
    assert_eq!(pull(store, scene.retry()), [], "and not back yet");
    assert_eq!(fire(store, Lane::Retry, after(400)), 0);
    assert_eq!(fire(store, Lane::Retry, after(501)), 1);
    let back = pull(store, scene.retry());
    assert_eq!(back.len(), 1);
    let delivered = &back[0].0;
    assert_eq!((delivered.id, &delivered.message), (moved[0], &again.message));
    assert_eq!(store.locate(moved[0]).as_ref(), Ok(&Some(delivered.clone())));

    let once_more = vec![entry(scene.group.retry, 600, "twice failed")];
    apply(store, settled(scene.retry(), [delivered]), once_more);
    assert_eq!(pull(store, scene.retry()), []);
    assert_eq!(fire(store, Lane::Retry, after(1000)), 1);
    assert_eq!(bodies(&pull(store, scene.retry())), ["twice failed"]);
}

pub(super) fn a_dead_letter_can_be_redriven_and_purged<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let watch = store.by_id(scene.group.dead).map(|dead| group(store, &dead, "watch"));
    let watch = watch.expect("the topic was made with the group");
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c"]);
    for (delivered, body) in sent.iter().zip(["dead a", "dead b", "dead c"]) {
        let letter = vec![entry(scene.group.dead, 10, body)];
        apply(store, settled(scene.main(0), [delivered]), letter);
    }
    assert_eq!(fire(store, Lane::Retry, after(100)), 3);
    let letters: Vec<_> = pull(store, scene.dead()).into_iter().map(|(letter, _)| letter).collect();
    assert_eq!(letters.len(), 3);
    assert_eq!(pull(store, scene.main(0)), []);

    let redriven = vec![entry(scene.group.retry, 200, "again")];
    apply(store, settled(scene.dead(), [&letters[1]]), redriven);
    apply(store, settled(scene.dead(), [&letters[0]]), Vec::new());
    assert_pulled(store, scene.dead(), [&letters[2]], "redriven and purged ones are gone");
    assert_eq!(fire(store, Lane::Retry, after(300)), 1);
    assert_eq!(bodies(&pull(store, scene.retry())), ["again"]);
    let of_watch = Source { group: watch.id, ..scene.dead() };
    assert_pulled(
        store,
        of_watch,
        &letters,
        "another reader of the dead letters has its own place",
    );
    let start = LogPosition { topic: scene.group.dead, partition: partition(0), offset: 0 };
    assert_eq!(read(store, start), letters, "the log is as it was");
}

pub(super) fn changes_are_applied_in_their_order<S: GroupStore>(store: &S) {
    use GroupChange::{Note, Seek, Settle};
    let scene = Scene::new(store);
    let source = scene.main(0);
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c", "d", "e", "f"]);
    let marks: Vec<_> = sent.iter().map(mark).collect();
    apply(
        store,
        vec![
            Settle(source, vec![marks[0], marks[4]]),
            Seek(source, 1, SeekBy::Reset),
            Settle(source, vec![marks[1], marks[5]]),
            Note(source, marks[2], a_note(1)),
            Note(source, marks[3], a_note(1)),
            Note(source, marks[2], a_note(2)),
            Settle(source, vec![marks[3]]),
        ],
        Vec::new(),
    );
    let expected = vec![(sent[2].clone(), Some(a_note(2))), (sent[4].clone(), None)];
    assert_eq!(pull(store, source), expected);
    let back = vec![Settle(source, marks), Seek(source, 0, SeekBy::Reset)];
    apply(store, back, Vec::new());
    assert_pulled(store, source, &sent, "a seek comes after what was settled before it");
}

pub(super) fn changes_of_what_is_no_more_are_left_out<S: GroupStore>(store: &S) {
    let scene = Scene::new(store);
    let gone = group(store, &scene.topic, "gone");
    let sent = send(store, scene.topic.id, partition(0), &["a", "b", "c"]);
    assert_eq!(Groups::delete(store, gone.id), Ok(true));
    let nobody = [
        Source { group: gone.id, ..scene.main(0) },
        Source { group: gone.id, topic: gone.retry, partition: partition(0) },
        Source { group: GroupId(u32::MAX), ..scene.main(0) },
        Source { partition: partition(9), ..scene.main(0) },
        Source { topic: TopicId::MAX, ..scene.main(0) },
    ];
    let mut changes = Vec::new();
    for source in nobody {
        changes.push(GroupChange::Settle(source, sent.iter().map(mark).collect()));
        changes.push(GroupChange::Note(source, mark(&sent[0]), a_note(1)));
        changes.push(GroupChange::Seek(source, 3, SeekBy::Reset));
    }
    changes.extend(settled(scene.main(0), [&sent[0]]));
    let entries = vec![entry(scene.group.retry, 10, "moved")];
    assert_eq!(apply(store, changes, entries).len(), 1, "the rest is done");
    assert_pulled(store, scene.main(0), &sent[1..], "the rest is done");
    assert_eq!(fire(store, Lane::Retry, after(100)), 1);
    seek(store, Source { group: gone.id, ..scene.main(0) }, 0, SeekBy::Commit);
    let body = |message: &Message| message.body.clone();
    let back = pull(store, scene.retry());
    assert_eq!(back.iter().map(|(back, _)| body(&back.message)).collect::<Vec<_>>(), ["moved"]);
    let again = group(store, &scene.topic, "gone");
    assert_pulled(store, Source { group: again.id, ..scene.main(0) }, &sent, "a group of its own");
}
