//! A loss of power before every single operation of the disk while groups settle, note, move and
//! seek, with every kind of remains, and again during the recovery from it (G17, G19, G22, G23).
//!
//! What is left is exactly what was answered, or that and what was being asked: nothing settled
//! comes back, nothing else is passed over, and a message that was moved is in one place.
//!
//! `PUNCTUAL_CRASH_GROUP_IMAGES` sets how many remains are looked at in all.

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod group_support;
mod store_support;

use punctual_engine::Options;
use punctual_testkit::forgetful::ForgetfulDisk;

use group_support::examine::Past;
use group_support::runner::{Reached, Runner};
use group_support::small;
use group_support::steps::{Step, random, script};
use store_support::{Dice, scaled};

/// Remains looked at for one moment, at most; and for every sixth.
const IMAGES_PER_MOMENT: usize = 6;
const IMAGES_PER_SIXTH_MOMENT: usize = 40;
/// The same for a moment of a recovery.
const IMAGES_PER_RECOVERY_MOMENT: usize = 5;
/// Every so many remains are crashed again.
const AGAIN_EVERY: u64 = 199;
/// Every so many remains are started twice.
const TWICE_EVERY: u64 = 8;

/// `power is lost` starts another life, with nothing but what was synced.
const SCRIPTS: [&str; 13] = [
    // The shortest life of a message: delivered, settled, out of order.
    "put a 1
     group a g
     schedule a 1 1 1 1 1
     fire 2
     settle a g 0 0
     settle a g 0 1 2
     checkpoint
     settle a g 0 0
     settle a g 0 0",
    // Settled before the log is safe, and more delivered behind it.
    "put a 1
     group a g
     schedule a 1 2 3 4 5 6
     fire 3
     settle a g 0 0 1
     fire 5
     settle a g 0 1
     fire 7
     settle a g 0 0
     note a g 0 0
     schedule a 8 8
     fire 9
     settle a g 0 2",
    // Up the ladder and into the dead letters, and back from there.
    "put a 1
     group a g
     schedule a 1 1 1
     fire 2
     retry a g 0 0 5
     bury a g 0 0
     refire 3
     refire 9
     retry a g r 0 5
     refire 20
     bury a g r 0
     refire 21
     retry a g d 0 1
     settle a g d 0
     refire 30
     settle a g r 0",
    // A failed message stays in its place, in a group that keeps order.
    "put a 1
     group a g
     schedule a 1 1 1
     fire 2
     note a g 0 0
     note a g 0 0
     note a g 0 1
     checkpoint
     note a g 0 0
     settle a g 0 1
     bury a g 0 0
     refire 5",
    // Backwards and forwards.
    "put a 1
     group a g
     schedule a 1 1 1 1 1 1
     fire 2
     settle a g 0 0 1 3
     seek a g 0 1
     settle a g 0 0 2
     commit a g 0 4
     schedule a 3 3
     fire 4
     seek a g 0 0
     settle a g 0 0
     note a g 0 2
     seek a g 0 8
     schedule a 5
     fire 6",
    // Groups come and go while others work.
    "put a 2
     schedule a 1 1 1 1
     group a g
     fire 2
     group a h latest
     settle a g 0 0
     schedule a 3 3
     fire 4
     settle a h 0 0 ; settle a g 1 0
     bury a g 1 0 ; retry a h 1 0 5
     change a g
     group a.g.dead w
     refire 5
     settle a.g.dead w 0 0
     ungroup a h
     group a h latest
     put a 3
     schedule a 6 6 6
     fire 7
     settle a h 2 0
     ungroup a g
     delete a",
    // Everything in one commit.
    "put a 2
     group a g
     group a h
     schedule a 1 1 1 1 1 1 1 1
     fire 2
     settle a g 0 0 1 ; retry a g 1 0 1 ; bury a h 0 1 ; note a h 1 0 ; seek a h 1 1
     refire 4
     settle a g r 0 ; settle a h d 0 ; settle a g 0 0 1 2 3
     refire 5",
    // Tables become runs and runs are merged while groups work.
    "put a 1
     group a g
     schedule a 1 2 3 4 50 60
     freeze
     upkeep
     fire 5
     retry a g 0 0 1
     retry a g 0 0 100
     freeze
     upkeep
     bury a g 0 0
     refire 7
     freeze
     upkeep
     settle a g r 0
     retry a g 0 0 2
     freeze
     upkeep
     refire 20
     checkpoint
     settle a g d 0
     upkeep",
    // Retention takes what every group is done with and nothing else.
    "put a 1 1000
     group a g
     group a h
     schedule a 1 1 1 1 1 1 1 1 1 1 1 1
     fire 2
     settle a g 0 0 1 2 3 4 5 6 7
     maintain
     settle a h 0 0 1 2 3 4 5
     schedule a 3 3 3 3 3 3 3 3 3 3 3 3
     fire 4
     retry a g 0 0 1
     refire 6
     settle a g r 0
     maintain
     commit a h 0 9
     maintain
     checkpoint
     settle a g 0 0 1 2 3 4 5 6 7
     maintain
     seek a g 0 0",
    // What was settled comes back at another place, and another message stands where it was.
    "put a 1
     group a g
     schedule a 1 2
     fire 3
     settle a g 0 1
     power is lost
     schedule a 0
     fire 3
     checkpoint
     settle a g 0 0",
    // What was noted comes back at another place and is noted again.
    "put a 1
     group a g
     schedule a 1 2
     fire 3
     note a g 0 1
     power is lost
     schedule a 0
     checkpoint
     fire 3
     note a g 0 2
     settle a g 0 0
     checkpoint",
    // A place in a log is taken by a group and must stay what it was.
    "put a 1
     group a g
     schedule a 1 2
     fire 3
     group a h latest
     power is lost
     schedule a 0 4
     fire 3
     seek a g 0 2
     power is lost
     schedule a 0
     fire 5
     settle a g 0 0
     settle a h 0 0",
    // The power is lost again before what came back is safe.
    "put a 1
     group a g
     schedule a 1 2 3
     fire 4
     settle a g 0 0 2
     retry a g 0 0 1
     power is lost
     schedule a 0
     fire 4
     refire 5
     settle a g r 0
     power is lost
     schedule a 0
     fire 4
     refire 5
     settle a g 0 0
     checkpoint
     settle a g 0 0",
];

/// A workload, lived in several lives with a loss of power between them.
struct Workload {
    name: String,
    lives: Vec<Vec<Step>>,
    options: Options,
}

fn workload(number: u64) -> Workload {
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    if let Some(text) = SCRIPTS.get(place) {
        let name = format!("script {number}");
        let lives = text.split("power is lost").map(script).collect();
        return Workload { name, lives, options: small() };
    }
    let mut dice = Dice(number);
    let mut steps = random(number, 50);
    let mut lives = Vec::new();
    for _ in 0..dice.below(3) {
        let rest = steps.split_off(12 + dice.place(8));
        lives.push(std::mem::replace(&mut steps, rest));
    }
    lives.push(steps);
    let near_bytes = [300, 1200, 5000][dice.place(3)];
    let options = Options { near_bytes, ..small() };
    Workload { name: format!("seed {number}"), lives, options }
}

impl Workload {
    /// Whether it is one of the scripts, whose power cuts leave only what was synced.
    fn is_written(&self) -> bool {
        self.name.starts_with("script")
    }
}

/// How many remains were looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    workloads: u64,
    moments: u64,
    images: u64,
    again: u64,
}

/// Lives all lives but the last, each ended by a loss of power, and then the last one with every
/// moment of it kept.
fn live(work: &Workload, seed: u64) -> Result<Runner, String> {
    let mut runner = Runner::new(ForgetfulDisk::new(), work.options.clone());
    let mut dice = Dice(seed ^ 0x5eed);
    let (last, before) = work.lives.split_last().ok_or("a workload has a life")?;
    for life in before {
        runner.run(life)?;
        let images: Vec<(String, ForgetfulDisk)> =
            runner.disk.images(40, dice.below(1000)).collect();
        let place = if work.is_written() { 0 } else { dice.place(images.len()) };
        let (what, image) = &images[place];
        runner.restart(image.reopen()).map_err(|found| format!("next life, {what}: {found}"))?;
    }
    runner.disk.keep_history();
    runner.run(last)?;
    Ok(runner)
}

fn enumerate(number: u64, limit: u64, tally: &mut Tally) -> Reached {
    let work = workload(number);
    let name = &work.name;
    let runner = live(&work, number).unwrap_or_else(|found| panic!("{name}: {found}"));
    let history = runner.disk.history();
    let behind = runner.ops() - runner.disk.ops();
    let past = runner.past;
    tally.workloads += 1;
    for (ops, disk) in history {
        let ops = behind + ops;
        tally.moments += 1;
        look(&past, &disk.reopen(), ops, &format!("{name}, operation {ops}, killed"), tally);
        let sixth = (ops + number).is_multiple_of(6);
        let budget = if sixth { IMAGES_PER_SIXTH_MOMENT } else { IMAGES_PER_MOMENT };
        for (what, image) in disk.images(budget, number ^ ops) {
            look(&past, &image, ops, &format!("{name}, operation {ops}, {what}"), tally);
        }
        if tally.images + tally.again >= limit {
            break;
        }
    }
    runner.reached
}

fn look(past: &Past, image: &ForgetfulDisk, ops: u64, what: &str, tally: &mut Tally) {
    tally.images += 1;
    let fine = if tally.images % AGAIN_EVERY == 1 {
        crash_again(past, image, ops, tally)
    } else if tally.images.is_multiple_of(TWICE_EVERY) {
        past.examine_twice(image, ops)
    } else {
        past.examine(image, ops).map(drop)
    };
    if let Err(found) = fine {
        panic!("{what}: {found}");
    }
}

/// Starts on `image`, delivers everything, writes a checkpoint, and loses power before each
/// operation of that.
fn crash_again(
    past: &Past,
    image: &ForgetfulDisk,
    ops: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let image = image.reopen();
    image.keep_history();
    let may_be = past.worlds(ops);
    let (shown, started) = past.recover(&image, ops)?;
    for (step, disk) in image.history() {
        for (what, remains) in disk.images(IMAGES_PER_RECOVERY_MOMENT, step) {
            tally.again += 1;
            // Once a start was complete, what it has shown must stay.
            let worlds = if step >= started { shown.clone() } else { may_be.clone() };
            let fine = past.examine_as(&remains, worlds, ops);
            fine.map_err(|found| {
                format!("then operation {step} of the recovery, {what}: {found}")
            })?;
        }
    }
    Ok(())
}

/// Goes through the workloads of one parity until enough was looked at.
fn run(parity: u64) {
    let limit = scaled("PUNCTUAL_CRASH_GROUP_IMAGES", 40_000) / 2;
    let mut tally = Tally::default();
    let mut number = parity;
    while tally.images + tally.again < limit {
        enumerate(number, limit, &mut tally);
        number += 2;
    }
    println!("{} images: {tally:?}", tally.images + tally.again);
}

#[test]
fn every_crash_leaves_groups_what_was_promised_even_workloads() {
    run(0);
}

#[test]
fn every_crash_leaves_groups_what_was_promised_odd_workloads() {
    run(1);
}
