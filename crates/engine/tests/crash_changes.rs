//! A loss of power before every single operation of the disk while messages are named, moved,
//! paused, linked and withdrawn, with every kind of remains, and again during the recovery from it
//! (G3, G26, G28, G31).
//!
//! What is left is exactly what was answered, or that and what was being asked: a message that was
//! moved stands in one place and is delivered for its newest time only, an own id that was answered
//! is known, and whatever was ordered together is there together.
//!
//! `PUNCTUAL_CRASH_CHANGE_IMAGES` sets how many remains are looked at in all.

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod change_support;
mod store_support;

use punctual_engine::Options;
use punctual_testkit::forgetful::ForgetfulDisk;

use change_support::examine::Past;
use change_support::runner::{Reached, Runner};
use change_support::small;
use change_support::steps::{Step, random, script};
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
const SCRIPTS: [&str; 12] = [
    // The shortest life of a moved message.
    "put a 1
     send a 10 20 30
     move 0 40
     fire 35
     move 0 5
     fire 41
     checkpoint",
    // Moved in every place an entry can be in, and in hand.
    "put a 2
     send a 1 2 3 50 60 70 500
     move 0 4
     arm 3
     move 1 55
     move 2 2
     freeze
     move 3 51
     upkeep
     move 3 52
     move 4 1
     fire 10
     freeze
     upkeep
     move 6 53
     cancel 5
     withdraw 3
     fire 600
     checkpoint",
    // Own ids: again, replaced, after the end, of two topics.
    "put a 1
     put b 1
     name a x 1 10
     name b x 2 10
     name a x 1 50
     name a x 2 50
     rename a x 2 20
     rename b y 1 1
     fire 5
     name b y 1 30
     rename b y 1 40
     checkpoint
     freeze
     upkeep
     name a x 2 1
     withdraw 2
     name a x 2 1
     rename a x 3 60
     fire 100
     name a x 3 1",
    // Named, moved, and named again by another.
    "put a 1
     name a x 1 10
     move 0 30
     freeze
     upkeep
     move 0 20
     rename a x 2 25
     name a x 2 9
     move 1 15
     freeze
     upkeep
     checkpoint
     fire 30
     name a x 2 9",
    // Paused and let go, in tables and runs, and across lives.
    "put a 1
     send a 10 20 30
     pause 0
     freeze
     upkeep
     pause 1
     checkpoint
     power is lost
     move 0 15
     fire 16
     power is lost
     move 1 40
     pause 2
     cancel 2
     fire 50",
    // A series and its occurrences.
    "put a 1
     series a 10
     fire 11
     next 0 20
     freeze
     upkeep
     next 0 30
     fire 25
     next 0 40 ; cancel 3
     checkpoint
     cancel 0 ; drop 4",
    // A transaction committed, one rolled back, one undecided.
    "put a 1
     put b 1
     prepare a b
     prepare b
     prepare a
     commit 0 10
     freeze
     upkeep
     rollback 3
     fire 20
     checkpoint
     commit 5 30
     fire 40",
    // Everything in one call, and refused calls between.
    "put a 1
     send a 10 20 30 40
     move 0 50 ; cancel 1 ; name a x 1 15 ; pause 2 ; drop 3
     cancel 1 ; send a 60
     move 1 5 ; name a y 1 5
     name a z 1 9 ; name a x 2 9
     move 0 60 ; move 2 61 ; rename a x 3 62
     fire 55
     fire 70",
    // Runs pile up and are merged while the place of a message changes in each.
    "put a 1
     send a 100 101 102
     name a x 1 103
     freeze
     upkeep
     move 0 110
     move 3 111
     freeze
     upkeep
     move 0 120
     move 1 121
     freeze
     upkeep
     move 0 130
     freeze
     upkeep
     move 0 90
     freeze
     upkeep
     checkpoint
     fire 99
     name a x 1 5
     fire 200",
    // A topic goes with its names and its moves.
    "put a 1
     put b 1
     name a x 1 10
     name b x 1 10
     move 0 30
     pause 1
     checkpoint
     delete a
     put a 1
     name a x 2 20
     move 2 40
     freeze
     upkeep
     delete b
     fire 50",
    // Delivered, lost with the power, and moved when it has come back.
    "put a 1
     name a x 1 1
     send a 2
     fire 3
     power is lost
     move 0 20
     name a x 1 9
     move 1 30
     fire 25
     power is lost
     name a x 1 9
     withdraw 0 1
     fire 40",
    // Late: moved behind what was asked for, in both lanes.
    "put a 1
     arm 50
     send a 60 61
     series a 62
     move 0 1
     move 2 2
     fire 3
     move 1 30 ; move 3 31
     fire 40
     checkpoint
     fire 100",
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
    let (may_be, started) = past.recover(&image, ops)?;
    for (step, disk) in image.history() {
        for (what, remains) in disk.images(IMAGES_PER_RECOVERY_MOMENT, step) {
            tally.again += 1;
            // Once a start was complete, what it has shown must stay, but for what was withdrawn
            // since.
            let worlds = if step >= started { may_be.clone() } else { past.worlds(ops) };
            let fine = past.examine_as(&remains, worlds);
            fine.map_err(|found| {
                format!("then operation {step} of the recovery, {what}: {found}")
            })?;
        }
    }
    Ok(())
}

/// Goes through the workloads of one parity until enough was looked at.
fn run(parity: u64) {
    let limit = scaled("PUNCTUAL_CRASH_CHANGE_IMAGES", 40_000) / 2;
    let mut tally = Tally::default();
    let mut reached = Reached::default();
    let mut number = parity;
    while tally.images + tally.again < limit {
        reached.add(enumerate(number, limit, &mut tally));
        number += 2;
    }
    println!("{} images: {tally:?} {reached:?}", tally.images + tally.again);
}

#[test]
fn every_crash_leaves_changes_as_they_were_answered_even_workloads() {
    run(0);
}

#[test]
fn every_crash_leaves_changes_as_they_were_answered_odd_workloads() {
    run(1);
}
