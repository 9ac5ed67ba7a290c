//! Whatever is done to the table of ids, and wherever the power fails, the last write of a name wins.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod ids_support;

use std::collections::HashMap;

use ids_support::{name, value};
use proptest::prelude::*;
use punctual_engine::disk::Disk;
use punctual_engine::ids::{self, IdOptions, Ids};
use punctual_engine::journal::Position;
use punctual_testkit::forgetful::{Fate, ForgetfulDisk};

const OPTIONS: IdOptions = IdOptions { table_entries: 60, files_max: 5 };
const NAMES: u64 = 300;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u64),
    Get(u64, u64),
    Freeze,
    Write,
    Merge,
    /// Merges, and drops what is older than this many puts.
    MergeAndForget(u64),
    /// Begins to merge, writes a table meanwhile, and ends the merge.
    MergeDuringWrite,
    LosePower,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..NAMES, 1..80u64).prop_map(|(from, count)| Step::Put(from, count)),
        4 => (0..NAMES + 50, 1..80u64).prop_map(|(from, count)| Step::Get(from, count)),
        4 => Just(Step::Freeze),
        4 => Just(Step::Write),
        2 => Just(Step::Merge),
        1 => (0..500u64).prop_map(Step::MergeAndForget),
        1 => Just(Step::MergeDuringWrite),
        1 => Just(Step::LosePower),
    ]
}

/// The table, beside what it has to answer.
struct World {
    disk: ForgetfulDisk,
    ids: Ids,
    next_file: u64,
    /// The name of every put; the value is its place, which is also its place in the journal.
    journal: Vec<u64>,
    expected: HashMap<u64, u64>,
    /// Whatever was put before this may be forgotten.
    forgotten: u64,
}

impl World {
    fn new() -> Self {
        let disk = ForgetfulDisk::new();
        let ids = Ids::open(&disk, &[], OPTIONS).unwrap();
        let (journal, expected) = (Vec::new(), HashMap::new());
        Self { disk, ids, next_file: 1, journal, expected, forgotten: 0 }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Put(from, count) => (from..from + count).for_each(|n| self.put(n % NAMES)),
            Step::Get(from, count) => (from..from + count).for_each(|number| self.check(number)),
            Step::Freeze => self.ids.freeze(),
            Step::Write => self.write(),
            Step::Merge => self.merge(0, false),
            Step::MergeAndForget(age) => {
                let forgotten = (self.journal.len() as u64).saturating_sub(age);
                self.forgotten = self.forgotten.max(forgotten);
                self.merge(self.forgotten, false);
            }
            Step::MergeDuringWrite => self.merge(0, true),
            Step::LosePower => self.lose_power(),
        }
    }

    fn put(&mut self, number: u64) {
        let place = self.journal.len() as u64;
        self.ids.begin_at(Position(place));
        self.ids.put(name(number), value(place));
        self.journal.push(number);
        self.expected.insert(number, place);
    }

    fn check(&self, number: u64) {
        let found = self.ids.get(name(number)).unwrap();
        match self.expected.get(&number) {
            Some(&place) if place >= self.forgotten => assert_eq!(found, Some(value(place))),
            Some(_) => assert!(found.is_none_or(|value| value.print < self.forgotten)),
            None => assert_eq!(found, None),
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file
    }

    fn write(&mut self) {
        if let Some(frozen) = self.ids.frozen() {
            let number = self.take_number();
            self.ids.install(ids::write(&self.disk, number, &frozen).unwrap());
        }
    }

    fn merge(&mut self, keep_from: u64, write_meanwhile: bool) {
        let Some(plan) = self.ids.merge_plan() else { return };
        let number = self.take_number();
        let mut before = None;
        let merged = ids::merge(&self.disk, number, &plan, |name, value| {
            assert!(before < Some(name), "each name comes once, in order");
            before = Some(name);
            value.print >= keep_from
        });
        if write_meanwhile {
            self.ids.freeze();
            self.write();
        }
        let old: Vec<u64> = plan.iter().map(|file| file.number()).collect();
        self.ids.replace(&old, merged.unwrap());
        old.iter().for_each(|&number| self.disk.remove(&ids::path(number)).unwrap());
    }

    fn lose_power(&mut self) {
        let (files, start) = (self.ids.files(), self.ids.journal_start());
        let image = self.disk.crash_image(|change| {
            // Removed files are missing only when nobody refers to them any more.
            if change.is_name { Fate::Kept } else { Fate::Lost }
        });
        self.disk = image;
        self.ids = Ids::open(&self.disk, &files, OPTIONS).unwrap();
        let start = start.map_or(self.journal.len() as u64, |position| position.0);
        for (place, &number) in (0u64..).zip(&self.journal).filter(|(place, _)| *place >= start) {
            self.ids.begin_at(Position(place));
            self.ids.put(name(number), value(place));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_last_write_of_a_name_wins(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        (0..NAMES + 50).for_each(|number| world.check(number));
    }
}

#[test]
fn files_stay_few_while_the_table_grows() {
    let mut world = World::new();
    for round in 0..100 {
        for number in 0..60 {
            world.put((round * 60 + number * 7) % NAMES);
        }
        assert!(world.ids.is_full() || round > 0);
        world.ids.freeze();
        world.write();
        while world.ids.merge_plan().is_some() {
            world.merge(0, false);
        }
        assert!(world.ids.files().len() <= 5);
    }
    (0..NAMES + 50).for_each(|number| world.check(number));
}
