//! The keeper over files, with a clock and counts that tests set.

use punctual_broker::TopicCounts;
use punctual_engine::disk::RealDisk;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::trends::files::TrendFiles;

/// A machine that is started again and again.
struct House {
    directory: TempDir,
    runtime: Runtime,
    world: Arc<Mutex<World>>,
}

/// What the keeper sees.
struct World {
    now: Timestamp,
    /// Messages scheduled since the start of the process.
    scheduled: u64,
    pending: u64,
}

impl House {
    fn new() -> Self {
        let world = World { now: time("10:03:00"), scheduled: 0, pending: 0 };
        Self {
            directory: tempfile::tempdir().unwrap(),
            runtime: Runtime::new().unwrap(),
            world: Arc::new(Mutex::new(world)),
        }
    }

    fn store(&self) -> TrendFiles {
        TrendFiles::open(Arc::new(RealDisk::new(self.directory.path()).unwrap())).unwrap()
    }

    fn start(&self) -> Keeper {
        self.start_having(0)
    }

    /// Starts a process that has counted so much before its keeper is there.
    fn start_having(&self, scheduled: u64) -> Keeper {
        self.world.lock().scheduled = scheduled;
        let kept = Kept::read(Arc::new(self.store()), "single".into(), false);
        let kept = self.runtime.block_on(kept).unwrap();
        let (looked, clock) = (Arc::clone(&self.world), Arc::clone(&self.world));
        let parts = KeeperParts {
            kept,
            look: Box::new(move || look(&looked.lock())),
            now: Box::new(move || clock.lock().now),
        };
        Keeper::open(parts, self.runtime.handle().clone())
    }

    fn at(&self, clock: &str) {
        self.world.lock().now = time(clock);
    }

    fn schedule(&self, count: u64) {
        let mut world = self.world.lock();
        world.scheduled += count;
        world.pending += count;
    }

    /// The points that were written: minute of the day, and what was scheduled in them.
    fn written(&self) -> Vec<(String, u64)> {
        let points = self.store();
        let points = self.runtime.block_on(points.points(Timestamp::MIN, Timestamp::MAX)).unwrap();
        let shown = |point: &StoredPoint| {
            let read: Point = serde_json::from_slice(&point.content).unwrap();
            assert_eq!(read.start(), point.at);
            (point.at.to_string()[11..16].to_owned(), read.whole.get("scheduled"))
        };
        points.iter().map(shown).collect()
    }
}

fn time(clock: &str) -> Timestamp {
    format!("2030-01-05T{clock}Z").parse().unwrap()
}

fn look(world: &World) -> Look {
    let counts = TopicCounts { scheduled: world.scheduled, ..TopicCounts::default() };
    let counts = MessageCounts::from(counts);
    Look {
        tally: Tally { whole: counts, topics: [(1, counts)].into(), apps: [].into() },
        topics: [(1, ("orders".into(), world.pending))].into(),
        ..Look::default()
    }
}

fn expect(house: &House, expected: &[(&str, u64)]) {
    let written = house.written();
    let written: Vec<(&str, u64)> = written.iter().map(|(at, count)| (&**at, *count)).collect();
    assert_eq!(written, expected);
}

fn total(house: &House, keeper: &Keeper) -> (u64, u64) {
    let counts = look(&house.world.lock()).tally.whole;
    (keeper.whole(counts).get("scheduled"), keeper.topic(1, counts).get("scheduled"))
}

#[test]
fn totals_and_the_point_under_way_survive_a_restart() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(5);
    keeper.save();
    drop(keeper);
    house.at("10:07:00");
    let keeper = house.start();
    assert_eq!(total(&house, &keeper), (5, 5));
    house.schedule(2);
    assert_eq!(total(&house, &keeper), (7, 7));
    house.at("10:10:00");
    keeper.turn_over();
    expect(&house, &[("10:00", 7)]);
    house.schedule(1);
    house.at("10:19:59");
    keeper.turn_over();
    expect(&house, &[("10:00", 7)]);
    let open = keeper.open_points();
    assert_eq!((open.len(), open[0].1.whole.get("scheduled"), open[0].1.pending), (1, 1, 8));
}

#[test]
fn what_is_counted_before_the_keeper_is_there_is_in_the_point_under_way() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(5);
    keeper.save();
    drop(keeper);
    let keeper = house.start_having(3);
    assert_eq!(total(&house, &keeper), (8, 8));
    house.schedule(1);
    let open = keeper.open_points();
    assert_eq!(open[0].1.whole.get("scheduled"), 9);
    assert_eq!(open[0].1.topics["orders"].0.get("scheduled"), 9);
    drop(keeper);
    // Also when it begins ten minutes of its own.
    house.at("10:20:00");
    let keeper = house.start_having(2);
    house.at("10:30:00");
    keeper.turn_over();
    expect(&house, &[("10:00", 5), ("10:20", 2)]);
}

#[test]
fn a_point_that_was_over_while_nobody_was_there_is_written_as_it_was_left() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(5);
    keeper.save();
    house.schedule(3); // A crash loses these.
    drop(keeper);
    house.at("12:34:00");
    let keeper = house.start();
    assert_eq!(total(&house, &keeper), (5, 5));
    keeper.save();
    expect(&house, &[("10:00", 5)]);
    house.at("12:40:00");
    keeper.turn_over();
    expect(&house, &[("10:00", 5), ("12:30", 0)]);
}

#[test]
fn a_crash_after_a_point_was_written_does_not_make_it_smaller() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(5);
    keeper.save();
    let path = house.directory.path().join("trends/totals.single");
    let left = std::fs::read(&path).unwrap();
    house.schedule(2);
    house.at("10:10:01");
    keeper.turn_over();
    drop(keeper);
    // As if the crash had come between the two.
    std::fs::write(&path, left).unwrap();
    house.start().save();
    expect(&house, &[("10:00", 7)]);
}

#[test]
fn a_clock_that_is_set_back_writes_no_point_twice() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(1);
    house.at("10:10:00");
    keeper.turn_over();
    house.schedule(2);
    // A little: what is under way goes on.
    house.at("10:05:00");
    keeper.turn_over();
    house.schedule(4);
    house.at("10:20:00");
    keeper.turn_over();
    expect(&house, &[("10:00", 1), ("10:10", 6)]);
    house.schedule(8);
    // Far: earlier points go on.
    house.at("08:55:00");
    keeper.turn_over();
    house.schedule(16);
    house.at("09:55:00");
    keeper.turn_over();
    house.schedule(32);
    house.at("10:02:00");
    keeper.turn_over();
    house.schedule(64);
    drop(keeper);
    expect(&house, &[("08:50", 16), ("09:50", 32), ("10:00", 1), ("10:10", 6), ("10:20", 8)]);
    let lost = house.start();
    house.at("10:10:00");
    lost.turn_over();
    house.schedule(128);
    house.at("10:20:30");
    lost.turn_over();
    let known = [("10:00", 1), ("10:10", 6 + 128), ("10:20", 8)];
    expect(&house, &[&[("08:50", 16), ("09:50", 32)], &known[..]].concat());
    let text = std::fs::read_to_string(house.directory.path().join("trends/2030-01-05.ndjson"));
    assert_eq!(text.unwrap().lines().count(), 5);
}

#[test]
fn damaged_totals_begin_at_zero_and_points_older_than_a_week_go() {
    let house = House::new();
    let keeper = house.start();
    house.schedule(5);
    house.at("10:10:00");
    keeper.turn_over();
    drop(keeper);
    std::fs::write(house.directory.path().join("trends/totals.single"), b"no\nsum\n").unwrap();
    let keeper = house.start();
    assert_eq!(total(&house, &keeper), (0, 0));
    expect(&house, &[("10:00", 5)]);
    house.world.lock().now = "2030-01-13T10:00:00Z".parse().unwrap();
    keeper.turn_over();
    house.world.lock().now = "2030-01-13T10:10:00Z".parse().unwrap();
    keeper.turn_over();
    expect(&house, &[("10:00", 0)]);
    assert!(!house.directory.path().join("trends/2030-01-05.ndjson").exists());
}
