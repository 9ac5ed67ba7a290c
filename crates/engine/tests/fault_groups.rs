//! The n-th call of the disk fails while groups work, for every n, once or from then on: nothing is
//! acknowledged that is not kept, a full disk can be waited out, and a restart on a sound disk finds
//! every group where it was.

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod group_support;
mod store_support;

use punctual_engine::Options;
use punctual_model::ports::StoreError;
use punctual_testkit::forgetful::{Fault, ForgetfulDisk};

use group_support::runner::Runner;
use group_support::small;
use group_support::steps::{Act, Step, What, random, script};

const SCRIPT: &str = "
    put a 2
    group a g
    schedule a 1 1 1 1 1 1
    fire 2
    settle a g 0 0
    retry a g 0 1 3
    bury a g 1 0
    note a g 1 1
    freeze
    upkeep
    refire 3
    group a h latest
    schedule a 4 4 4 4
    fire 5
    settle a h 0 0 ; settle a g 1 0 ; retry a h 1 0 1
    refire 7
    checkpoint
    settle a g r 0
    retry a g d 0 1
    seek a h 0 0
    change a g
    freeze
    upkeep
    refire 9
    settle a g 0 0 1 2 ; commit a h 1 2
    maintain
    checkpoint
    ungroup a h
    settle a g r 0
    delete a";

fn workloads() -> Vec<(String, Vec<Step>)> {
    let drawn = (0..4).map(|seed| (format!("seed {seed}"), random(seed, 36)));
    [("the script".to_owned(), script(SCRIPT))].into_iter().chain(drawn).collect()
}

/// How a run with a fault went.
#[derive(Debug, Default)]
struct Run {
    /// The fault was met.
    struck: bool,
    poisoned: bool,
    full: bool,
}

/// Lives the workload with the `n`-th call failing; heals, goes on, restarts and compares.
fn live(steps: &[Step], n: u64, fault: Fault, persistent: bool) -> Result<Run, String> {
    let mut run = Run::default();
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    let strikes_at = runner.disk.ops() + n;
    runner.disk.fail_at(strikes_at, fault, persistent);
    for (number, step) in steps.iter().enumerate() {
        match runner.step(step) {
            Ok(()) => {}
            Err(StoreError::Poisoned(_)) => {
                run.poisoned = true;
                break;
            }
            Err(StoreError::Full) if fault == Fault::NoSpace => {
                run.full = true;
                // The disk has room again after a while, and everything goes on.
                runner.disk.heal();
                for step in [&Step::Maintain, step] {
                    let again = runner.step(step);
                    again.map_err(|error| format!("step {number} {step:?} again: {error}"))?;
                }
                runner.check().map_err(|what| format!("after step {number} {step:?}: {what}"))?;
            }
            Err(error) => return Err(format!("step {number} {step:?}: {error}")),
        }
    }
    run.struck = runner.disk.ops() >= strikes_at;
    if !run.poisoned {
        runner.check()?;
    }
    runner.disk.heal();
    restart(runner)?;
    Ok(run)
}

/// Everything comes back on a sound disk.
fn restart(runner: Runner) -> Result<(), String> {
    let disk = runner.disk.reopen();
    let ops = runner.ops() + 1;
    let Runner { past, store, .. } = runner;
    drop(store);
    past.examine_twice(&disk, ops)
}

fn every_call(fault: Fault, persistent: bool) {
    let (mut runs, mut poisoned, mut full) = (0, 0, 0);
    for (name, steps) in workloads() {
        for n in 1.. {
            let run = live(&steps, n, fault, persistent).unwrap_or_else(|what| {
                panic!("{name}, {fault:?} at call {n}, persistent: {persistent}: {what}")
            });
            runs += 1;
            poisoned += u64::from(run.poisoned);
            full += u64::from(run.full);
            if !run.struck {
                break;
            }
        }
    }
    println!("{fault:?}, persistent {persistent}: {runs} runs, {poisoned} stopped, {full} full");
    assert!(poisoned + full > 0, "faults have consequences");
}

#[test]
fn an_error_of_the_disk_loses_nothing_of_a_group() {
    every_call(Fault::Eio, false);
    every_call(Fault::Eio, true);
}

#[test]
fn a_short_write_loses_nothing_of_a_group() {
    every_call(Fault::ShortWrite, false);
}

#[test]
fn a_full_disk_loses_nothing_of_a_group() {
    every_call(Fault::NoSpace, false);
    every_call(Fault::NoSpace, true);
}

/// The disk is full from before step `from` on. Nothing stops for good, and groups settle on;
/// answers how many steps were refused.
fn live_on_full_disk(steps: &[Step], from: usize) -> Result<u64, String> {
    let options = Options { reserve_bytes: 160 << 10, ..small() };
    let mut runner = Runner::new(ForgetfulDisk::new(), options);
    let (before, after) = steps.split_at(from);
    runner.run(before)?;
    runner.disk.capacity(Some(runner.disk.used()));
    let mut refused = 0;
    for (number, step) in after.iter().enumerate() {
        match runner.step(step) {
            Ok(()) => {}
            Err(StoreError::Full) if may_wait(step) => refused += 1,
            Err(error) => return Err(format!("step {} {step:?}: {error}", from + number)),
        }
    }
    runner.check()?;
    runner.disk.capacity(None);
    let mended = runner.step(&Step::Maintain);
    mended.map_err(|error| format!("housekeeping: {error}"))?;
    runner.run(&script("put late 1\n group late g\n schedule late 1"))?;
    restart(runner)?;
    Ok(refused)
}

/// Whether a full disk may refuse the step: what is new may wait, and so may what saves work later.
fn may_wait(step: &Step) -> bool {
    let moves = |act: &Act| matches!(act.what, What::Retry(..) | What::Bury(_));
    match step {
        Step::Acts(acts) => acts.iter().any(moves),
        Step::Put(..) | Step::Group(..) | Step::Schedule(..) | Step::Upkeep | Step::Checkpoint => {
            true
        }
        _ => false,
    }
}

#[test]
fn groups_settle_on_a_disk_that_is_full_from_any_step_on() {
    let (mut runs, mut refused) = (0, 0);
    for (name, steps) in workloads() {
        for from in 0..steps.len() {
            let told = live_on_full_disk(&steps, from);
            refused += told.unwrap_or_else(|what| panic!("{name}, full from {from} on: {what}"));
            runs += 1;
        }
    }
    println!("{runs} runs on a full disk, {refused} steps refused");
    assert!(refused > runs, "a full disk refuses something");
}
