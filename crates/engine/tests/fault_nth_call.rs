//! The n-th call of the disk fails, for every n, once or from then on (G4, G6): nothing is
//! acknowledged that is not kept, a full disk can be waited out, and a restart on a sound disk finds
//! everything once.

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod store_support;

use punctual_engine::Options;
use punctual_model::ports::StoreError;
use punctual_testkit::forgetful::{Fault, ForgetfulDisk};

use store_support::crash::Past;
use store_support::ledger::Moment;
use store_support::open;
use store_support::runner::Runner;
use store_support::small;
use store_support::steps::{Part, Step, Taste, random, script};

const SCRIPT: &str = "
    put a 2
    schedule a 1 2 3 50 60 70
    arm 3
    cancel 1
    fire 3
    schedule a 4 5 90
    freeze
    upkeep
    schedule a 6 7 91
    cancel 4
    freeze
    upkeep
    fire 8
    checkpoint
    put b 1
    schedule b 9 10 92
    freeze
    upkeep
    schedule a 11 12 93 94 95
    freeze
    upkeep
    maintain
    schedule a 13 13 13 13 13 13
    fire 14
    schedule a 15 15 15 15 15 15
    fire 16
    maintain
    schedule a 96
    schedule a 97
    cancel 3 5
    checkpoint
    delete b
    schedule a 17
    fire 18
    checkpoint";

fn workloads() -> Vec<(String, Vec<Step>)> {
    let drawn = (0..9).map(|seed| {
        let steps = random(seed, Taste { steps: 36, days: false, batch: 5 });
        (format!("seed {seed}"), steps)
    });
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

fn ends_writing(error: &StoreError) -> bool {
    matches!(error, StoreError::Poisoned(_))
}

/// Lives the workload with the `n`-th call failing; heals, goes on, restarts and compares.
fn live(steps: &[Step], n: u64, fault: Fault, persistent: bool) -> Result<Run, String> {
    let mut run = Run::default();
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    runner.disk.fail_at(runner.disk.ops() + n, fault, persistent);
    let strikes_at = runner.disk.ops() + n;
    for (number, step) in steps.iter().enumerate() {
        match runner.step(step) {
            Ok(()) => {}
            Err(error) if ends_writing(&error) => {
                run.poisoned = true;
                nothing_more(&mut runner, &steps[number + 1..])?;
                break;
            }
            Err(StoreError::Full) => {
                run.full = true;
                if fault != Fault::NoSpace {
                    return Err(format!("step {number} {step:?} took {fault:?} for a full disk"));
                }
                // The disk has room again after a while, and everything goes on.
                runner.disk.heal();
                wait_out(&mut runner, step).map_err(|what| format!("step {number}: {what}"))?;
            }
            Err(error) => return Err(format!("step {number} {step:?}: {error}")),
        }
    }
    run.struck = runner.disk.ops() >= strikes_at;
    if !run.poisoned {
        runner.check()?;
    }
    restart(runner)?;
    Ok(run)
}

/// Once the store has stopped, nothing is acknowledged any more.
fn nothing_more(runner: &mut Runner, steps: &[Step]) -> Result<(), String> {
    let ledger = runner.ledger.clone();
    runner.disk.heal();
    let ops = runner.ops();
    for step in steps {
        match runner.step(step) {
            Err(error) if ends_writing(&error) => {}
            // A commit of nothing promises nothing.
            Ok(()) if matches!(step, Step::Freeze | Step::Commit(_)) => {}
            other => return Err(format!("{step:?} after the store had stopped: {other:?}")),
        }
    }
    let promised = |sent: &store_support::ledger::Sent| sent.scheduled.end < u64::MAX;
    let before = ledger.sent.iter().filter(|sent| promised(sent)).count();
    if runner.ledger.sent.iter().filter(|sent| promised(sent)).count() != before {
        return Err("messages were accepted after the store had stopped".to_owned());
    }
    if runner.ops() != ops {
        return Err("the disk was written to after the store had stopped".to_owned());
    }
    runner.ledger = ledger;
    Ok(())
}

/// After healing and housekeeping the store accepts again, without a restart.
fn wait_out(runner: &mut Runner, step: &Step) -> Result<(), String> {
    runner.step(&Step::Maintain).map_err(|error| format!("housekeeping: {error}"))?;
    if runner.store.is_full() {
        return Err("the store is full although the disk is not".to_owned());
    }
    runner.step(step).map_err(|error| format!("again {step:?}: {error}"))?;
    let more = script("put late 1\n schedule late 1");
    runner.run(&more);
    runner.check().map(drop)
}

/// Everything comes back on a sound disk, and only once.
fn restart(runner: Runner) -> Result<(), String> {
    let disk = runner.disk.reopen();
    let ops = runner.ops() + 1;
    let past = Past { ledger: runner.ledger.clone(), options: runner.options.clone() };
    drop(runner);
    past.examine_twice(&disk, Moment::after(ops))
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
fn an_error_of_the_disk_stops_writing_and_loses_nothing() {
    every_call(Fault::Eio, false);
    every_call(Fault::Eio, true);
}

#[test]
fn a_short_write_stops_writing_and_loses_nothing() {
    every_call(Fault::ShortWrite, false);
    every_call(Fault::ShortWrite, true);
}

#[test]
fn a_full_disk_is_waited_out() {
    every_call(Fault::NoSpace, false);
    every_call(Fault::NoSpace, true);
}

#[test]
fn a_fault_at_the_start_is_met_with_an_error_and_the_next_start_is_fine() {
    for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite] {
        for persistent in [false, true] {
            let mut runner = Runner::new(ForgetfulDisk::new(), small());
            runner.run(&script(SCRIPT));
            let ops = runner.ops() + 1;
            let past = Past { ledger: runner.ledger.clone(), options: small() };
            let moment = Moment { killed: true, ..Moment::after(ops) };
            for n in 1.. {
                let disk = runner.disk.reopen();
                disk.fail_at(n, fault, persistent);
                let failed = open(&disk, &small()).is_err();
                let untouched = disk.ops() < n;
                disk.heal();
                let fine = past.examine(&disk.reopen(), moment);
                assert!(fine.is_ok(), "{fault:?} at call {n} of a start: {fine:?}");
                if untouched {
                    assert!(!failed, "nothing failed");
                    break;
                }
            }
        }
    }
}

/// On a disk with little room.
fn confined(capacity: u64) -> Runner {
    let options = Options { reserve_bytes: 64 << 10, ..small() };
    let runner = Runner::new(ForgetfulDisk::new(), options);
    runner.disk.capacity(Some(capacity));
    runner
}

#[test]
fn a_disk_fills_up_and_cancels_and_deliveries_go_on() {
    let mut runner = confined(300 << 10);
    runner.run(&script("put a 1\n put b 1"));
    let mut accepted = 0;
    let batch = "schedule a 10 20 30 40 50 60 1000 1010 1020";
    loop {
        match runner.step(&script(batch)[0]) {
            Ok(()) => accepted += 1,
            Err(error) => {
                assert_eq!(error, StoreError::Full, "a full disk is called full");
                break;
            }
        }
        assert!(accepted < 10_000, "the disk has to fill up");
        let kept = runner.step(&Step::Upkeep);
        assert!(matches!(kept, Ok(()) | Err(StoreError::Full)), "{kept:?}");
    }
    assert!(runner.store.is_full(), "new messages are refused until there is room");
    assert_eq!(runner.step(&script(batch)[0]), Err(StoreError::Full));
    runner.run(&script("cancel 0 6 7\n fire 15\n cancel 1 8\n fire 25"));
    assert!(runner.reached.fired > 0, "deliveries go on");
    runner.check().unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(runner.step(&script(batch)[0]), Err(StoreError::Full));

    runner.disk.capacity(Some(4 << 20));
    runner.run(&script("maintain\n upkeep\n checkpoint"));
    runner.run(&script(batch));
    runner.check().unwrap_or_else(|what| panic!("{what}"));
    restart(runner).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn room_made_by_deleting_a_topic_is_used_again() {
    let mut runner = confined(420 << 10);
    runner.run(&script("put a 1\n put b 1"));
    let fill = script("schedule b 1 1 1 1 1 1 1 1 1 1 1 1\n fire 2");
    'full: for _ in 0..2000 {
        for step in fill.iter().chain(&[Step::Freeze, Step::Upkeep, Step::Checkpoint]) {
            if runner.step(step).is_err() {
                break 'full;
            }
        }
    }
    assert!(runner.store.is_full(), "the log of b has filled the disk");
    runner.run(&script("delete b\n maintain\n schedule a 5 6 7\n fire 6"));
    assert!(!runner.store.is_full(), "its room is free again");
    runner.check().unwrap_or_else(|what| panic!("{what}"));
    restart(runner).unwrap_or_else(|what| panic!("{what}"));
}

/// The disk is full from before step `from` on. Nothing stops for good, and cancels and deliveries
/// go on; answers how many steps were refused.
fn live_on_full_disk(steps: &[Step], from: usize) -> Result<u64, String> {
    let options = Options { reserve_bytes: 160 << 10, ..small() };
    let mut runner = Runner::new(ForgetfulDisk::new(), options);
    let (before, after) = steps.split_at(from);
    runner.run(before);
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
    wait_out(&mut runner, &Step::Upkeep)?;
    restart(runner)?;
    Ok(refused)
}

/// Whether a full disk may refuse the step: what is new may wait, and so may what saves work later.
fn may_wait(step: &Step) -> bool {
    let is_batch = |part: &Part| matches!(part, Part::Schedule(..));
    match step {
        Step::Commit(parts) => parts.iter().any(is_batch),
        Step::Put(..) | Step::Upkeep | Step::Checkpoint => true,
        _ => false,
    }
}

#[test]
fn a_disk_may_be_full_from_any_step_on() {
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
