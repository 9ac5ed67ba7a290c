//! The embedded engine keeps the promises of the seams.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::sync::Arc;

use punctual_engine::disk::RealDisk;
use punctual_engine::{Engine, Options};
use punctual_model::ports::{LogPosition, Topics};
use punctual_model::{SystemClock, Timestamp, TopicName, TopicSettings};
use punctual_testkit::ManualClock;
use punctual_testkit::conformance::{self, Stage};
use punctual_testkit::forgetful::ForgetfulDisk;

fn small() -> Options {
    Options {
        table_bytes: 4 << 10,
        near_bytes: 4 << 20,
        journal_file_bytes: 8 << 20,
        reserve_bytes: 64 << 10,
        block_bytes: 512,
        runs_max: 4,
        ..Options::default()
    }
}

fn in_memory() -> Engine {
    let disk = Arc::new(ForgetfulDisk::new());
    Engine::open(disk, small(), Arc::new(SystemClock::new())).unwrap()
}

fn staged() -> Stage<Engine> {
    with_topics(in_memory())
}

fn with_topics(engine: Engine) -> Stage<Engine> {
    let settings = TopicSettings { partitions: 4, ..TopicSettings::default() };
    let topics = ["one", "two"]
        .map(|name| engine.put(&TopicName::new(name).unwrap(), settings.clone()).unwrap().id);
    Stage { subject: engine, topics }
}

#[test]
fn the_engine_is_a_timeline() {
    conformance::timeline(staged);
}

/// Later than anything is due in the cases about changes, so that it is not news to the engine that
/// something was delivered.
fn late() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis_saturating(1_800_003_600_000)))
}

#[test]
fn the_engine_takes_changes() {
    let disk = || Arc::new(ForgetfulDisk::new());
    conformance::changes(|| with_topics(Engine::open(disk(), small(), late()).unwrap()));
}

#[test]
fn the_engine_keeps_changes() {
    let last = std::cell::RefCell::new(ForgetfulDisk::new());
    let start = |disk: ForgetfulDisk| {
        last.replace(disk.clone());
        Engine::open(Arc::new(disk), small(), late()).unwrap()
    };
    conformance::lasting_changes(
        || with_topics(start(ForgetfulDisk::new())),
        |engine| {
            drop(engine);
            let disk = last.borrow().reopen();
            start(disk)
        },
    );
}

#[test]
fn the_engine_is_an_outlet() {
    conformance::outlet(staged, |engine, topic, partition| {
        let mut found = Vec::new();
        loop {
            let offset = u64::try_from(found.len()).unwrap();
            let page = engine.read(LogPosition { topic, partition, offset }, 1000).unwrap();
            if page.is_empty() {
                return found;
            }
            found.extend(page.into_iter().map(|delivered| (delivered.id, delivered.message)));
        }
    });
}

#[test]
fn the_engine_has_topics() {
    conformance::topics(in_memory);
}

#[test]
fn the_engine_has_groups() {
    let last = std::cell::RefCell::new(ForgetfulDisk::new());
    let start = |disk: ForgetfulDisk| {
        last.replace(disk.clone());
        Engine::open(Arc::new(disk), small(), Arc::new(SystemClock::new())).unwrap()
    };
    conformance::groups(
        || start(ForgetfulDisk::new()),
        |engine| {
            drop(engine);
            let disk = last.borrow().reopen();
            start(disk)
        },
    );
}

#[test]
fn the_engine_is_a_whole_store() {
    conformance::store(in_memory);
}

#[test]
fn the_engine_is_a_whole_store_on_a_real_disk() {
    let dirs = std::cell::RefCell::new(Vec::new());
    conformance::store(|| {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(dir.path()).unwrap());
        dirs.borrow_mut().push(dir);
        Engine::open(disk, small(), Arc::new(SystemClock::new())).unwrap()
    });
}
