//! A loss of power, or a kill, before every single operation of the disk: batches of producers keep the
//! offsets they were answered, what was taken out of them is there with them or not at all, and one
//! that comes again is known.
//!
//! `PUNCTUAL_RECORD_IMAGES` sets how many remains are looked at in all.

#![expect(clippy::panic, reason = "helpers of tests may panic")]

mod records_support;
mod store_support;

use punctual_engine::{Durability, Options};
use punctual_testkit::forgetful::{Fate, ForgetfulDisk};
use records_support::life::{Life, Step};
use records_support::{Dice, scaled, small};

/// Remains looked at for one moment, at most; and for every sixth.
const IMAGES_PER_MOMENT: usize = 8;
const IMAGES_PER_SIXTH_MOMENT: usize = 24;

fn plain(records: usize) -> Step {
    Step::Send(vec![(records, Vec::new())])
}

fn scripts() -> Vec<Vec<Step>> {
    vec![
        // The shortest life.
        vec![plain(3), plain(1), Step::Checkpoint, plain(2)],
        // Fired and produced batches take turns, and some of what was fired is not settled when the
        // state is saved.
        vec![
            Step::Schedule(1),
            plain(2),
            Step::Schedule(2),
            Step::Fire(2),
            plain(3),
            Step::Schedule(3),
            Step::Deliver(3),
            plain(2),
            Step::Checkpoint,
            plain(2),
            Step::Settle,
            Step::Checkpoint,
            plain(1),
        ],
        // The very first thing in a log is fired and not settled when the state is saved.
        vec![
            Step::Schedule(1),
            Step::Deliver(1),
            plain(2),
            Step::Send(vec![(2, vec![1])]),
            Step::Checkpoint,
            Step::Checkpoint,
            plain(1),
            Step::Settle,
            plain(1),
            Step::Checkpoint,
        ],
        // What was sent behind messages that are not settled is in no part of the journal that a
        // restart reads.
        vec![
            Step::Schedule(1),
            Step::Schedule(2),
            Step::Flush,
            Step::Deliver(1),
            plain(2),
            plain(1),
            Step::Checkpoint,
            Step::Checkpoint,
            plain(1),
            Step::Settle,
            Step::Deliver(2),
            plain(3),
            Step::Checkpoint,
        ],
    ]
}

/// With records that are delayed, and with a front that is taken off.
fn longer_scripts() -> Vec<Vec<Step>> {
    vec![
        // Some or all records of a batch are delayed.
        vec![
            Step::Send(vec![(3, vec![1])]),
            Step::Send(vec![(2, vec![0, 1])]),
            Step::Flush,
            Step::Send(vec![(4, vec![0, 3]), (1, Vec::new()), (2, vec![0, 1])]),
            Step::Fire(80),
            Step::Checkpoint,
            Step::Send(vec![(3, vec![2])]),
            Step::Fire(10_000),
            Step::Flush,
        ],
        // Several segments before anything was saved: the name of the first may be lost alone.
        vec![plain(8); 7],
        // Several segments, housekeeping, and a front that is taken off.
        vec![
            plain(4),
            plain(4),
            Step::Checkpoint,
            plain(4),
            Step::Schedule(5),
            Step::Fire(5),
            Step::Maintain,
            Step::Trim(3),
            plain(4),
            Step::Checkpoint,
            Step::Maintain,
            plain(4),
            Step::Trim(0),
            plain(1),
            Step::Checkpoint,
            Step::Maintain,
        ],
    ]
}

fn random(seed: u64) -> Vec<Step> {
    let mut dice = Dice(seed);
    let batch = |dice: &mut Dice| {
        let records = 1 + dice.place(5);
        let delayed = if dice.percent(40) { 50 } else { 0 };
        let taken = (0..u32::try_from(records).unwrap_or(1)).filter(|_| dice.percent(delayed));
        (records, taken.collect())
    };
    let mut now = 0;
    let mut step = |dice: &mut Dice| {
        now += dice.below(30);
        match dice.below(100) {
            0..45 => Step::Send((0..=dice.below(3)).map(|_| batch(dice)).collect()),
            45..60 => Step::Schedule(now + dice.below(40)),
            60..72 => Step::Fire(now),
            72..77 => Step::Deliver(now),
            77..82 => Step::Settle,
            82..87 => Step::Flush,
            87..95 => Step::Checkpoint,
            95..98 => Step::Maintain,
            _ => Step::Trim(dice.below(12)),
        }
    };
    (0..30).map(|_| step(&mut dice)).collect()
}

/// How many remains were looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    lives: u64,
    moments: u64,
    images: u64,
}

fn enumerate(number: u64, limit: u64, tally: &mut Tally) {
    let mut dice = Dice(number ^ 0x5eed);
    let steps = scripts()
        .into_iter()
        .chain(longer_scripts())
        .nth(usize::try_from(number).unwrap_or(usize::MAX));
    let scripted = steps.is_some();
    let mut steps = steps.unwrap_or_else(|| random(number));
    // Where nobody waits for the disk only a kill leaves everything.
    let lossy = !scripted && dice.percent(20);
    let durability = if lossy { Durability::Os } else { Durability::Fsync };
    let mut life = Life::new(Options { durability, ..small() });
    if !scripted && dice.percent(60) {
        let rest = steps.split_off(8 + dice.place(14));
        life.run(&steps);
        steps = rest;
        let power_lost = !lossy && dice.percent(70);
        let survives = dice.percent(50);
        let fate = |_: &_| if survives { Fate::Kept } else { Fate::Lost };
        let disk = if power_lost { life.disk.crash_image(fate) } else { life.disk.reopen() };
        life.restart(disk);
    }
    life.disk.keep_history();
    life.run(&steps);
    life.end();
    let history = life.disk.history();
    tally.lives += 1;
    for (ops, disk) in history {
        let ops = life.count(ops);
        tally.moments += 1;
        let look = |image: &ForgetfulDisk, what: &str| {
            if let Err(found) = life.examine(image, ops) {
                panic!("life {number}, operation {ops}, {what}: {found}\n{steps:?}");
            }
        };
        look(&disk.reopen(), "killed");
        tally.images += 1;
        if !lossy {
            let sixth = (ops + number).is_multiple_of(6);
            let budget = if sixth { IMAGES_PER_SIXTH_MOMENT } else { IMAGES_PER_MOMENT };
            for (what, image) in disk.images(budget, number ^ ops) {
                look(&image, &what);
                tally.images += 1;
            }
        }
        if tally.images >= limit {
            return;
        }
    }
}

#[test]
fn every_crash_leaves_batches_where_they_were_answered() {
    let limit = scaled("PUNCTUAL_RECORD_IMAGES", 6_000);
    let mut tally = Tally::default();
    // One to begin with, for whoever looks into a life that went wrong.
    let mut number = scaled("PUNCTUAL_RECORD_LIFE", 0);
    while tally.images < limit {
        enumerate(number, limit, &mut tally);
        number += 1;
    }
    println!("{tally:?}");
}
