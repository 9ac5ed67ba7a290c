//! Handing out: each entry exactly once, in order, within the limits, and never lost where
//! scheduling and arming meet.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_executor::block_on;
use punctual_model::ports::{ArmLimit, Timeline};
use punctual_model::{Lane, Message, MessageId, Timestamp};

use super::super::{START, Stage, after, message};
use super::{PLENTY, arm_all, entry, ids, schedule, schedule_at, sorted};

pub(super) fn each_entry_is_handed_out_once_in_key_order<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let mut all = schedule_at(stage, &[500, 100, 300, 100, 900]);
    all.extend(schedule_at(stage, &[100, 700, 0]));
    let all = sorted(all);
    let limit = ArmLimit { entries: 2, ..PLENTY };
    let mut armed = ids(&arm_all(timeline, after(301), limit));
    assert_eq!(armed.len(), 5, "the five due before 301");
    assert!(arm_all(timeline, after(301), PLENTY).is_empty(), "nothing is handed out twice");
    armed.extend(ids(&arm_all(timeline, after(10_000), limit)));
    assert_eq!(armed, all, "every entry once, by due time and then in order of acceptance");
    assert!(arm_all(timeline, Timestamp::MAX, PLENTY).is_empty(), "nothing is handed out twice");
}

pub(super) fn nothing_is_handed_out_before_its_window<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let ids_given = schedule_at(stage, &[100, 101]);
    assert!(arm_all(timeline, START, PLENTY).is_empty());
    assert!(arm_all(timeline, after(100), PLENTY).is_empty(), "the end of a window is outside it");
    assert_eq!(ids(&arm_all(timeline, after(101), PLENTY)), ids_given[..1]);
    assert!(arm_all(timeline, after(50), PLENTY).is_empty(), "a window may end earlier again");
    assert_eq!(ids(&arm_all(timeline, after(102), PLENTY)), ids_given[1..]);
}

pub(super) fn late_arrivals_are_handed_out<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    schedule_at(stage, &[100, 5000]);
    arm_all(timeline, after(1000), PLENTY);
    let late = schedule_at(stage, &[999, 50, 0, 1000]);
    let before_start = entry(stage.topics[1], Timestamp::MIN, message("overdue for decades"));
    let late = [&late[..3], &schedule(timeline, vec![before_start])].concat();
    let armed = ids(&arm_all(timeline, after(1000), PLENTY));
    assert_eq!(sorted(armed), sorted(late), "due before what was armed already");
    assert_eq!(arm_all(timeline, after(5001), PLENTY).len(), 2, "the rest follows");
}

pub(super) fn the_limits_of_arm_are_respected<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let kilobyte = Message { body: Bytes::from(vec![7; 1024]), ..Message::default() };
    let batch = |due| vec![entry(stage.topics[0], after(due), kilobyte.clone()); 20];
    schedule(timeline, batch(100));
    // The limits are checked in `arm_all`, for what was stored before and for late arrivals.
    assert_eq!(arm_all(timeline, after(200), ArmLimit { entries: 7, ..PLENTY }).len(), 20);
    schedule(timeline, batch(100));
    assert_eq!(arm_all(timeline, after(200), ArmLimit { entries: 3, ..PLENTY }).len(), 20);
    schedule(timeline, batch(300));
    assert_eq!(arm_all(timeline, after(400), ArmLimit { bytes: 5000, ..PLENTY }).len(), 20);
    schedule(timeline, batch(300));
    let one_by_one = ArmLimit { bytes: 1, ..PLENTY };
    assert_eq!(arm_all(timeline, after(400), one_by_one).len(), 20, "a large entry gets through");
}

/// One thread schedules around the moment up to which another one arms.
pub(super) fn nothing_is_lost_between_scheduling_and_arming<T: Timeline>(stage: &Stage<T>) {
    const BATCHES: u64 = 100;
    let timeline = &stage.subject;
    let mut armed = Vec::new();
    let given = thread::scope(|scope| {
        let producer = thread::Builder::new()
            .name("producer".into())
            .spawn_scoped(scope, || {
                let around = |batch: u64| (0..10).map(move |step| batch * 10 + step * 7);
                (0..BATCHES)
                    .flat_map(|batch| schedule_at(stage, &around(batch).collect::<Vec<_>>()))
                    .collect::<Vec<MessageId>>()
            })
            .expect("a test may start a thread");
        for step in 0..BATCHES {
            armed.extend(ids(&arm_all(timeline, after(step * 10), PLENTY)));
        }
        producer.join().expect("the producer ends well")
    });
    armed.extend(ids(&arm_all(timeline, after(1_000_000), PLENTY)));
    assert_eq!(given.len(), 1000);
    assert_eq!(sorted(armed), sorted(given), "each entry exactly once");
}

pub(super) fn the_listener_hears_of_late_arrivals<T: Timeline>(stage: &Stage<T>) {
    // Far more than any store needs; it is reached only by one that never calls.
    const PATIENCE: Duration = Duration::from_secs(60);
    let timeline = &stage.subject;
    let (sender, heard) = mpsc::sync_channel(1000);
    timeline.listen(Arc::new(move |lane| {
        // A full or closed channel will do: it was heard often enough.
        sender.try_send(lane).ok();
    }));
    arm_all(timeline, after(1000), PLENTY);
    for dues in [&[999][..], &[0], &[5000, 10]] {
        while heard.try_recv().is_ok() {}
        schedule_at(stage, dues);
        let told = heard.recv_timeout(PATIENCE);
        assert_eq!(told, Ok(Lane::Message), "nobody heard of {dues:?}");
        assert_eq!(arm_all(timeline, after(1000), PLENTY).len(), 1);
    }
}

pub(super) fn what_producers_sent_is_not_in_the_retry_lane<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let retries =
        |until| block_on(timeline.arm(Lane::Retry, until, PLENTY)).expect("a working store arms");
    let given = schedule_at(stage, &[10, 5000]);
    assert!(given.iter().all(|id| id.key.sequence.lane() == Lane::Message), "{given:?}");
    assert!(retries(Timestamp::MAX).is_empty(), "nobody retries anything");
    assert_eq!(ids(&arm_all(timeline, after(100), PLENTY)), given[..1], "the lanes are apart");
    let late = schedule_at(stage, &[20]);
    assert!(retries(Timestamp::MAX).is_empty(), "nor a late arrival");
    assert_eq!(ids(&arm_all(timeline, after(100), PLENTY)), late);
}
