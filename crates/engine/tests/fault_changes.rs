//! The n-th call of the disk fails while messages are changed, for every n, once or from then on:
//! nothing is acknowledged that is not kept, nothing is done by halves, a full disk can be waited
//! out, and a restart on a sound disk finds every message where it stood (G4, G6, G28).

mod change_support;
mod store_support;

use punctual_model::ports::StoreError;
use punctual_testkit::forgetful::{Fault, ForgetfulDisk};

use change_support::examine::Past;
use change_support::runner::Runner;
use change_support::small;
use change_support::steps::{Step, random, script};
use change_support::world::World;

const SCRIPT: &str = "
    put a 2
    put b 1
    send a 10 20 30 40
    name a x 1 50
    move 0 5
    arm 12
    move 1 60 ; pause 2 ; name b y 1 9
    freeze
    upkeep
    move 4 15
    series a 6
    fire 8
    rename a x 2 70
    prepare a b
    freeze
    upkeep
    name a x 2 1
    next 6 30
    move 2 25
    checkpoint
    commit 9 28
    fire 40
    freeze
    upkeep
    rename b y 3 80
    withdraw 1 3
    cancel 6 ; drop 12
    maintain
    checkpoint
    fire 90";

fn workloads() -> Vec<(String, Vec<Step>)> {
    let drawn = (0..4).map(|seed| (format!("seed {seed}"), random(seed, 36)));
    [("the script".to_owned(), script(SCRIPT))].into_iter().chain(drawn).collect()
}

/// How often a run ended how.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    poisoned: u64,
    waited_out: u64,
}

/// The worlds one after the other, as they are when nothing fails.
fn sound(steps: &[Step]) -> Result<(Vec<World>, u64), String> {
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    let first = runner.ops();
    runner.run(steps)?;
    let mut worlds = vec![World::default()];
    for (_, event) in &runner.past.events {
        let mut next = worlds[worlds.len() - 1].clone();
        next.take(event);
        worlds.push(next);
    }
    Ok((worlds, runner.ops() - first))
}

/// Lives the workload with the `n`-th call failing; heals, goes on or restarts, and compares.
fn live(
    steps: &[Step],
    worlds: &[World],
    (n, fault, persistent): (u64, Fault, bool),
    tally: &mut Tally,
) -> Result<(), String> {
    tally.runs += 1;
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    runner.disk.fail_at(runner.disk.ops() + n, fault, persistent);
    for (number, step) in steps.iter().enumerate() {
        let Err(what) = runner.step(step) else { continue };
        let place = |what: &str| format!("step {number} {step:?}: {what}");
        runner.disk.heal();
        match runner.take_refusal() {
            Some(StoreError::Poisoned(_)) => {}
            Some(StoreError::Full) if fault == Fault::NoSpace => {
                // There is room again after a while, and everything goes on.
                tally.waited_out += 1;
                for step in [&Step::Maintain, step] {
                    runner.step(step).map_err(|what| place(&format!("once more: {what}")))?;
                }
                runner.check().map_err(|found| place(&found))?;
                continue;
            }
            _ => return Err(place(&what)),
        }
        tally.poisoned += 1;
        let answered = runner.past.events.len();
        let may_be: Vec<World> = worlds.iter().skip(answered).take(2).cloned().collect();
        let past = Past { options: small(), ..Past::default() };
        return past
            .examine_as(&runner.disk.reopen(), may_be)
            .map(drop)
            .map_err(|found| place(&found));
    }
    runner.disk.heal();
    runner.check().map_err(|found| format!("in the end: {found}"))?;
    let disk = runner.disk.reopen();
    runner.restart(disk).map_err(|found| format!("after a restart: {found}"))
}

#[test]
fn g6_whatever_call_fails_changes_are_kept_or_refused() {
    let mut tally = Tally::default();
    for (name, steps) in workloads() {
        let (worlds, ops) = sound(&steps).unwrap_or_else(|what| panic!("{name}: {what}"));
        for n in 1..=ops {
            for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite] {
                for persistent in [false, true] {
                    let plan = (n, fault, persistent);
                    live(&steps, &worlds, plan, &mut tally)
                        .unwrap_or_else(|found| panic!("{name}, call {plan:?}: {found}"));
                }
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.poisoned > 0 && tally.waited_out > 0, "not reached: {tally:?}");
}
