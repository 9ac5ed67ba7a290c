//! What a timeline does with what it is given: ids, content, counts, states.

use std::collections::BTreeSet;

use punctual_model::ports::Timeline;
use punctual_model::{Basis, Entry, Lane, MessageId, Sequence, State};

use super::super::{Stage, after, delicate_messages, message, partition};
use super::{
    PLENTY, arm_all, cancel, claim, entry, everything, find, list, schedule, schedule_at, settle,
    state, stranger,
};

pub(super) fn ids_come_in_the_order_of_the_batch<T: Timeline>(stage: &Stage<T>) {
    let places = [(0, 3, 50), (1, 0, 10), (0, 1, 50), (1, 2, 30)];
    let batch: Vec<Entry> = places
        .iter()
        .map(|&(topic, number, due)| Entry {
            partition: partition(number),
            ..entry(stage.topics[topic], after(due), message("in order"))
        })
        .collect();
    let first = schedule(&stage.subject, batch.clone());
    let second = schedule(&stage.subject, batch.clone());
    for (id, entry) in first.iter().chain(&second).zip(batch.iter().chain(&batch)) {
        let told = (id.key.due, id.topic, id.partition);
        assert_eq!(told, (entry.due, entry.topic, entry.partition), "an id tells the place");
    }
    let sequences: Vec<Sequence> = first.iter().chain(&second).map(|id| id.key.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "sequences grow: {sequences:?}");
    assert_eq!(first.len() + second.len(), 8, "one id for each entry");
}

pub(super) fn an_empty_batch_is_nothing<T: Timeline>(stage: &Stage<T>) {
    assert_eq!(schedule(&stage.subject, Vec::new()), []);
    assert_eq!(cancel(&stage.subject, &[]), []);
    assert_eq!(claim(&stage.subject, Vec::new()).len(), 0);
    settle(&stage.subject, &[]);
    assert_eq!(stage.subject.counts(Lane::Message), []);
}

pub(super) fn content_is_kept_byte_for_byte<T: Timeline>(stage: &Stage<T>) {
    let topic = stage.topics[0];
    let sent = delicate_messages();
    let batch = sent.iter().map(|message| entry(topic, after(5), message.clone())).collect();
    let ids = schedule(&stage.subject, batch);
    let entries = list(&stage.subject, everything(topic));
    for (index, (id, message)) in ids.iter().zip(&sent).enumerate() {
        let found = find(&stage.subject, *id).and_then(|found| found.entry);
        assert!(found.is_some_and(|found| found.message == *message), "find changed {index}");
        assert!(entries[index].message == *message, "the listing changed {index}");
    }
    for (index, armed) in arm_all(&stage.subject, after(6), PLENTY).iter().enumerate() {
        assert_eq!(armed.id(), ids[index]);
        assert_eq!(armed.basis, Basis::Delay);
        assert!(armed.message == sent[index], "arm changed {index}");
    }
    let by_date = Entry { basis: Basis::Date, ..entry(topic, after(9), message("by date")) };
    schedule(&stage.subject, vec![by_date]);
    let armed = arm_all(&stage.subject, after(10), PLENTY);
    assert_eq!(armed[0].basis, Basis::Date);
}

pub(super) fn find_tells_the_state<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let given = schedule_at(stage, &[10, 20, 10_000]);
    let scheduled = find(timeline, given[0]).expect("a pending message is known");
    assert_eq!(scheduled.state, State::Scheduled);
    let shown = scheduled.entry.expect("a pending message is shown");
    assert_eq!((shown.id, shown.message), (given[0], message("due 10")));

    let armed = arm_all(timeline, after(11), PLENTY);
    assert_eq!(state(timeline, given[0]), Some(State::Scheduled), "armed is still scheduled");
    let claimed = claim(timeline, armed);
    settle(timeline, &claimed);
    let delivered = find(timeline, given[0]).expect("a delivered message is known");
    assert_eq!(delivered.state, State::Delivered);
    assert!(delivered.entry.is_none(), "only a pending message is shown");

    cancel(timeline, &given[1..2]);
    let cancelled = find(timeline, given[1]).expect("a cancelled message is known");
    assert_eq!(cancelled.state, State::Cancelled);
    assert!(cancelled.entry.is_none(), "only a pending message is shown");

    assert_eq!(state(timeline, stranger(stage.topics[0], after(10_000))), None);
    let elsewhere = MessageId { topic: stage.topics[1], ..given[2] };
    assert_eq!(state(timeline, elsewhere), None, "another topic's id is another id");
    assert_eq!(state(timeline, given[2]), Some(State::Scheduled), "reading changes nothing");
}

pub(super) fn counts_are_exact<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let counts = || timeline.counts(Lane::Message).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(counts(), BTreeSet::new());
    let given = schedule_at(stage, &[10, 20, 30, 40_000, 50_000]);
    let others = schedule(timeline, vec![entry(other, after(10), message("of another topic"))]);
    assert_eq!(counts(), [(topic, 5), (other, 1)].into());

    cancel(timeline, &[given[3], stranger(topic, after(7))]);
    cancel(timeline, &given[3..4]);
    assert_eq!(counts(), [(topic, 4), (other, 1)].into(), "a cancel counts once");

    let armed = arm_all(timeline, after(35), PLENTY);
    cancel(timeline, &[given[1], others[0]]);
    assert_eq!(counts(), [(topic, 3)].into(), "a topic without pending messages is left out");
    settle(timeline, &claim(timeline, armed));
    assert_eq!(counts(), [(topic, 1)].into());
    let late = schedule_at(stage, &[5]);
    assert_eq!(counts(), [(topic, 2)].into());
    cancel(timeline, &[late[0], given[4]]);
    assert_eq!(counts(), BTreeSet::new());
}
