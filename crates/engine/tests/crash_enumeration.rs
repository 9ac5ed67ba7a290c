//! A loss of power before every single operation of the disk, with every kind of remains, and again
//! during the recovery from it (G1, G2, G5, G7, G26).
//!
//! `PUNCTUAL_CRASH_IMAGES` sets how many remains are looked at in all.

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod store_support;

use punctual_engine::{Durability, Options};
use punctual_testkit::forgetful::{Fate, ForgetfulDisk};

use store_support::crash::Past;
use store_support::ledger::Moment;
use store_support::runner::Runner;
use store_support::steps::{Step, Taste, random, script};
use store_support::{Dice, scaled, small};

/// Remains looked at for one moment, at most; and for every sixth, so that each way to tear each
/// write has its turn.
const IMAGES_PER_MOMENT: usize = 14;
const IMAGES_PER_SIXTH_MOMENT: usize = 200;
/// The same for a moment of a recovery.
const IMAGES_PER_RECOVERY_MOMENT: usize = 8;
/// Power is lost again after every so many kills of the process.
const KILLED_AGAIN_EVERY: u64 = 40;
/// Every so many remains are crashed again.
const AGAIN_EVERY: u64 = 199;

const SCRIPTS: [&str; 10] = [
    // The shortest life: accept, deliver, save.
    "put a 1
     schedule a 1 2 3
     fire 2
     checkpoint
     fire 10
     checkpoint",
    // A cancel in every place an entry can be in.
    "put a 2
     schedule a 1 2 3 50 60 70 500
     cancel 0
     arm 3
     cancel 1
     freeze
     cancel 3
     upkeep
     cancel 4
     fire 4
     checkpoint
     cancel 5 6
     checkpoint",
    // Runs pile up and are merged while some of their entries are out.
    "put a 1
     schedule a 10 20 30 40
     freeze
     upkeep
     schedule a 11 21 31 41
     freeze
     upkeep
     schedule a 12 22 32 42
     arm 13
     freeze
     upkeep
     schedule a 13 23 33 43
     freeze
     cancel 1 5
     upkeep
     fire 25
     schedule a 26 27 28
     freeze
     upkeep
     fire 40",
    // Topics come, grow and go.
    "put a 1
     put b 2
     schedule a 1 2
     schedule b 1 2 90
     fire 2
     put a 3
     schedule a 5 6 7
     delete b
     fire 10
     put b 1
     schedule b 20
     checkpoint
     delete a
     fire 30
     checkpoint",
    // Logs roll over several segments, sealed and unsealed.
    "put a 1
     schedule a 1 1 1 1 1 1 1 1
     fire 2
     schedule a 3 3 3 3 3 3 3 3
     fire 4
     maintain
     schedule a 5 5 5 5 5 5 5 5
     fire 6
     checkpoint
     schedule a 7 7 7 7 7 7 7 7
     fire 8
     maintain
     checkpoint",
    // Retention removes what the checkpoint knows.
    "put a 1 1000
     schedule a 1 1 1 1 1 1 1 1
     fire 2
     schedule a 3 3 3 3 3 3 3 3
     fire 4
     schedule a 5 5 5 5 5 5 5 5
     fire 6
     maintain
     checkpoint
     maintain
     schedule a 7 7 7
     fire 8
     checkpoint
     maintain",
    // The journal goes through several files and uses them again.
    "put a 1
     schedule a 100
     schedule a 101
     schedule a 102
     schedule a 103
     schedule a 104
     schedule a 105
     schedule a 106
     schedule a 107
     freeze
     upkeep
     checkpoint
     schedule a 108
     schedule a 109
     schedule a 110
     schedule a 111
     schedule a 112
     schedule a 113
     freeze
     upkeep
     checkpoint
     schedule a 114
     schedule a 115
     schedule a 116
     schedule a 117
     checkpoint
     cancel 0 17",
    // Late arrivals behind what was asked for.
    "put a 1
     arm 50
     schedule a 1 60 2 61
     fire 10
     schedule a 3 62
     freeze
     upkeep
     schedule a 4 63
     fire 62
     checkpoint
     fire 70",
    // Nothing but cancels, so that runs and tables are empty.
    "put a 1
     schedule a 10 11 12
     cancel 0 1 2
     freeze
     upkeep
     schedule a 13 14 15
     freeze
     upkeep
     cancel 3 4 5
     checkpoint
     checkpoint",
    // Delivered from memory before the table is written out.
    "put a 2
     schedule a 1 2 3 100 101
     fire 3
     freeze
     upkeep
     fire 5
     schedule a 6 7 102
     fire 7
     checkpoint
     freeze
     upkeep
     fire 200
     checkpoint",
];

/// A workload, lived in one or two lives.
struct Workload {
    name: String,
    before: Vec<Step>,
    steps: Vec<Step>,
    options: Options,
    /// Whether power is lost between the two, and not only the process.
    power_lost: bool,
}

fn workload(number: u64) -> Workload {
    let options = small();
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    if let Some(text) = SCRIPTS.get(place) {
        let name = format!("script {number}");
        let (before, steps) = (Vec::new(), script(text));
        return Workload { name, before, steps, options, power_lost: false };
    }
    let mut dice = Dice(number);
    let mut steps = random(number, Taste { steps: 40, days: false, batch: 5 });
    let split = if dice.percent(60) { 10 + dice.place(20) } else { 0 };
    let rest = steps.split_off(split);
    let near_bytes = [300, 1200, 5000][dice.place(3)];
    // Where nobody waits for the disk, answers may be lost. Everything else still holds.
    let durability = if dice.percent(20) { Durability::Os } else { Durability::Fsync };
    Workload {
        name: format!("seed {number}"),
        before: steps,
        steps: rest,
        options: Options { near_bytes, durability, ..options },
        power_lost: dice.percent(50),
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

fn enumerate(number: u64, limit: u64, tally: &mut Tally) {
    let Workload { name, before, steps, options, power_lost } = workload(number);
    let mut runner = Runner::new(ForgetfulDisk::new(), options.clone());
    if !before.is_empty() {
        runner.run(&before);
        let disk =
            if power_lost { runner.disk.crash_image(|_| Fate::Kept) } else { runner.disk.reopen() };
        runner.restart(disk);
    }
    let first = runner.ops();
    runner.disk.keep_history();
    runner.run(&steps);
    let history = runner.disk.history();
    let start = history.first().map_or(0, |(ops, _)| *ops);
    let lossy = options.durability == Durability::Os;
    let past = Past { ledger: runner.ledger, options };
    tally.workloads += 1;
    for (ops, disk) in history {
        let ops = first + ops - start;
        tally.moments += 1;
        let killed = Moment { killed: true, ..Moment::after(ops) };
        let what = format!("{name}, operation {ops}, killed");
        look(&past, &disk.reopen(), killed, &what, tally);
        let moment = Moment { lossy, ..Moment::after(ops) };
        if !lossy && tally.moments.is_multiple_of(KILLED_AGAIN_EVERY) {
            let told = crash_again(&past, &disk, killed, tally);
            told.unwrap_or_else(|found| panic!("{what}: {found}"));
        }
        let sixth = (ops + number).is_multiple_of(6);
        let budget = if sixth { IMAGES_PER_SIXTH_MOMENT } else { IMAGES_PER_MOMENT };
        for (what, image) in disk.images(budget, number ^ ops) {
            look(&past, &image, moment, &format!("{name}, operation {ops}, {what}"), tally);
        }
        if tally.images + tally.again >= limit {
            return;
        }
    }
}

fn look(past: &Past, image: &ForgetfulDisk, moment: Moment, what: &str, tally: &mut Tally) {
    tally.images += 1;
    let fine = if tally.images % AGAIN_EVERY == 1 && past.options.durability == Durability::Fsync {
        crash_again(past, image, moment, tally)
    } else if tally.images.is_multiple_of(16) {
        past.examine_twice(image, moment)
    } else {
        past.examine(image, moment)
    };
    if let Err(found) = fine {
        panic!("{what}: {found}");
    }
}

/// Starts on `image` and loses power before each operation of that.
fn crash_again(
    past: &Past,
    image: &ForgetfulDisk,
    moment: Moment,
    tally: &mut Tally,
) -> Result<(), String> {
    let image = image.reopen();
    image.keep_history();
    let (shown, started) = past.recover(&image, moment)?;
    for (ops, disk) in image.history() {
        // Once a start was complete, what it has shown must stay.
        let later = Moment { drained: true, killed: false, ..moment };
        for (what, remains) in disk.images(IMAGES_PER_RECOVERY_MOMENT, ops) {
            tally.again += 1;
            let fine = if ops >= started {
                past.examine_shown(&remains, later, &shown)
            } else {
                past.examine(&remains, later)
            };
            fine.map_err(|found| format!("then operation {ops} of the recovery, {what}: {found}"))?;
        }
    }
    Ok(())
}

/// Goes through the workloads of one parity until enough was looked at.
fn run(parity: u64) {
    let limit = scaled("PUNCTUAL_CRASH_IMAGES", 110_000) / 2;
    let mut tally = Tally::default();
    let mut number = parity;
    while tally.images + tally.again < limit {
        enumerate(number, limit, &mut tally);
        number += 2;
    }
    println!("{} images: {tally:?}", tally.images + tally.again);
}

#[test]
fn every_crash_leaves_what_was_promised_even_workloads() {
    run(0);
}

#[test]
fn every_crash_leaves_what_was_promised_odd_workloads() {
    run(1);
}
