//! With all threads at work at once, and everything small so that tables are written out, runs
//! merged and checkpoints taken all the time: each message is delivered or cancelled, once.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may panic")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_executor::block_on;
use punctual_engine::journal::change::Draft;
use punctual_engine::log::LogOptions;
use punctual_engine::store::{Outcome, Request};
use punctual_engine::{Engine, Options};
use punctual_model::ports::{
    ArmLimit, CancelOutcome, LogPosition, Outlet, Timeline, Topic, Topics,
};
use punctual_model::{
    Basis, Clock, Entry, Lane, Message, MessageId, Partition, Sequence, Span, SystemClock,
    Timestamp, TopicName, TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

const BATCHES: u64 = 400;
const BATCH: usize = 100;
const PRODUCERS: u64 = 2;
const FAR_EVERY: usize = 5;
const FAR: Span = Span::from_days(1);
/// Longer than what is left at the end takes on a slow machine.
const PATIENCE: Span = Span::from_secs(60);
const LIMIT: ArmLimit = ArmLimit { entries: 500, bytes: 1 << 20 };

fn tiny() -> Options {
    Options {
        table_bytes: 64 << 10,
        near_bytes: 256 << 10,
        journal_file_bytes: 1 << 20,
        reserve_bytes: 64 << 10,
        block_bytes: 1 << 10,
        runs_max: 2,
        horizon: Span::from_millis(20),
        checkpoint_interval: Duration::from_millis(5),
        log: LogOptions { segment_bytes: 256 << 10, ..LogOptions::default() },
        ..Options::default()
    }
}

fn is_far(number: usize) -> bool {
    number.is_multiple_of(FAR_EVERY)
}

fn now(clock: &SystemClock) -> Timestamp {
    clock.read().timestamp()
}

const FAR_MESSAGES: u64 = PRODUCERS * BATCHES * (BATCH / FAR_EVERY) as u64;

/// Schedules batches due over the next second and cancels some of what it sent.
fn produce(engine: &Engine, topic: &Topic, clock: &SystemClock, seed: u64) -> Sent {
    let mut sent = Sent::default();
    let mut dice = seed;
    for batch in 0..BATCHES {
        let entries = (0..BATCH).map(|number| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            // Some stay, so that runs are never spent and have to be merged.
            let delay = if is_far(number) { FAR } else { Span::from_millis((dice >> 33) % 1000) };
            let partition = u16::try_from(number % 4).unwrap();
            Entry {
                topic: topic.id,
                partition: Partition::new(partition).unwrap(),
                due: now(clock).saturating_add(delay),
                basis: Basis::Delay,
                message: Message { body: Bytes::from(vec![b'x'; 60]), ..Message::default() },
                extra: None,
            }
        });
        let entries: Vec<Entry> = entries.collect();
        let ids = if batch % 3 == 0 {
            retry(engine, &entries)
        } else {
            block_on(engine.schedule(entries)).unwrap()
        };
        if batch % 2 == 0 {
            let near = ids.iter().enumerate().filter(|(n, _)| !is_far(*n));
            let doomed: Vec<MessageId> = near.map(|(_, id)| *id).step_by(7).collect();
            let outcomes = block_on(engine.cancel(doomed.clone())).unwrap();
            for (id, outcome) in doomed.into_iter().zip(outcomes) {
                match outcome {
                    CancelOutcome::Cancelled => drop(sent.cancelled.insert(id)),
                    CancelOutcome::AlreadyDelivered => {}
                    other => panic!("{id} was sent a moment ago and is {other:?}"),
                }
            }
        }
        let near = ids.into_iter().enumerate().filter(|(number, _)| !is_far(*number));
        sent.near.extend(near.map(|(_, id)| id));
    }
    sent
}

/// Puts entries into the lane of the retries.
fn retry(engine: &Engine, entries: &[Entry]) -> Vec<MessageId> {
    let draft = Draft::new(entries, Lane::Retry);
    let slots = draft.slots.clone();
    match engine.store().commit(vec![Request::Schedule(draft)]).remove(0) {
        Ok(Outcome::Scheduled(first)) => (first.get()..)
            .zip(slots)
            .map(|(sequence, slot)| MessageId {
                key: slot.key(Sequence::new(sequence).unwrap()),
                topic: slot.topic,
                partition: slot.partition,
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[derive(Default)]
struct Sent {
    near: Vec<MessageId>,
    cancelled: HashSet<MessageId>,
}

/// Fires what is due in a lane until nothing is left and nothing more comes.
fn fire(engine: &Engine, lane: Lane, clock: &SystemClock, done: &AtomicBool) {
    let mut waiting = Vec::new();
    let mut finished_at = None;
    loop {
        let finished = done.load(Ordering::Acquire);
        let until = now(clock).saturating_add(Span::from_millis(200));
        waiting.extend(block_on(engine.arm(lane, until, LIMIT)).unwrap());
        let present = now(clock);
        let (mut due, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|armed| armed.key.due <= present);
        waiting = rest;
        if !due.is_empty() {
            due.sort_by_key(|armed| armed.key);
            block_on(engine.claim(&mut due)).unwrap();
            block_on(engine.deliver(&due, present)).unwrap();
            block_on(engine.settle(&due)).unwrap();
        } else if finished && waiting.is_empty() && pending(engine) == FAR_MESSAGES {
            return;
        } else {
            finished_at = finished.then(|| finished_at.unwrap_or(present));
            let late = finished_at.is_some_and(|since| present.since(since) > PATIENCE);
            assert!(!late, "{} are pending, not {FAR_MESSAGES}", pending(engine));
            std::thread::yield_now();
        }
    }
}

fn pending(engine: &Engine) -> u64 {
    Lane::ALL.into_iter().flat_map(|lane| engine.counts(lane)).map(|(_, count)| count).sum()
}

fn in_logs(engine: &Engine, topic: &Topic) -> HashMap<MessageId, u32> {
    let mut found = HashMap::new();
    for number in 0..4 {
        let partition = Partition::new(number).unwrap();
        let mut offset = 0;
        loop {
            let from = LogPosition { topic: topic.id, partition, offset };
            let page = engine.read(from, 1000).unwrap();
            let Some(last) = page.last() else { break };
            offset = last.offset + 1;
            for delivered in page {
                assert!(delivered.delivered_at >= delivered.id.key.due, "early");
                *found.entry(delivered.id).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn g1_g26_g27_each_message_is_delivered_or_cancelled_once() {
    let disk = ForgetfulDisk::new();
    let clock = Arc::new(SystemClock::new());
    let open = |disk: ForgetfulDisk| {
        Engine::open(Arc::new(disk), tiny(), Arc::<SystemClock>::clone(&clock)).unwrap()
    };
    let engine = open(disk.clone());
    let settings = TopicSettings { partitions: 4, ..TopicSettings::default() };
    let topic = engine.put(&TopicName::new("threads").unwrap(), settings).unwrap();
    let done = AtomicBool::new(false);
    let sent: Vec<Sent> = std::thread::scope(|scope| {
        let firing = Lane::ALL.map(|lane| {
            let (engine, clock, done) = (&engine, &clock, &done);
            scope.spawn(move || fire(engine, lane, clock, done))
        });
        let producing = (1..=PRODUCERS).map(|seed| {
            let (engine, topic, clock) = (&engine, &topic, &clock);
            scope.spawn(move || produce(engine, topic, clock, seed))
        });
        let producing: Vec<_> = producing.collect();
        let produced: Vec<_> = producing.into_iter().map(|producer| producer.join()).collect();
        // Also when one of them has failed, or nobody would end.
        done.store(true, Ordering::Release);
        for lane in firing {
            lane.join().unwrap();
        }
        produced.into_iter().map(Result::unwrap).collect()
    });
    let found = in_logs(&engine, &topic);
    let mut expected = 0;
    for sent in sent {
        for id in &sent.near {
            let delivered = !sent.cancelled.contains(id);
            expected += usize::from(delivered);
            assert_eq!(found.get(id).copied().unwrap_or(0), u32::from(delivered), "{id}");
        }
    }
    assert_eq!(found.len(), expected);
    drop(engine);
    let again = open(disk.reopen());
    assert_eq!(pending(&again), FAR_MESSAGES);
    assert_eq!(in_logs(&again, &topic).len(), expected, "the same after a restart");
}
