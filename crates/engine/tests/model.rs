//! Random lives of a store against a ledger: whatever is done in whatever order, every answer and
//! everything that is shown is what the ledger says (G1, G2, G9, G14, G25, G26, G27).

#![expect(clippy::panic, clippy::print_stdout, reason = "helpers of tests may panic and tell")]

mod store_support;

use punctual_engine::{Durability, Options};
use punctual_model::ports::{CancelOutcome, PendingQuery};
use punctual_model::{Lane, State, Timestamp};
use punctual_testkit::forgetful::ForgetfulDisk;

use store_support::runner::{Reached, Runner};
use store_support::steps::{Step, Taste, random};
use store_support::{Dice, scaled, small};

const STEPS: usize = 60;

fn options(dice: &mut Dice) -> Options {
    let mut options = small();
    options.near_bytes = [300, 700, 1500, 6000][dice.place(4)];
    options.table_bytes = [600, 1500, 4000][dice.place(3)];
    options.block_bytes = [128, 256, 512][dice.place(3)];
    options.durability = if dice.percent(30) { Durability::Os } else { Durability::Fsync };
    options.runs_max = 2;
    options
}

/// Compares what is found for single messages, and filtered pages, with the ledger.
fn compare_answers(runner: &Runner, dice: &mut Dice) -> Result<(), String> {
    let sent = &runner.ledger.sent;
    let Some(one) = sent.get(dice.place(sent.len() + 1)) else { return Ok(()) };
    let number = sent.iter().position(|other| other.id == one.id).unwrap_or(usize::MAX);
    let found = runner.store.find(&[one.id]).map_err(|error| error.to_string())?.remove(0);
    let state = found.as_ref().map(|found| found.state);
    let told = match state {
        Some(State::Scheduled | State::Paused | State::Prepared) => CancelOutcome::Cancelled,
        Some(State::Delivered) => CancelOutcome::AlreadyDelivered,
        Some(State::Cancelled) => CancelOutcome::AlreadyCancelled,
        None => CancelOutcome::NotFound,
    };
    let expected = runner.expected(number);
    if !expected.contains(&told) {
        return Err(format!("message {number} is {state:?}, expected {expected:?}: {one:?}"));
    }
    if let Some(entry) = found.and_then(|found| found.entry)
        && (entry.id != one.id || entry.message != one.message)
    {
        return Err(format!("message {number} is found as {entry:?}"));
    }
    compare_page(runner, dice, one.id.key.due)
}

fn compare_page(runner: &Runner, dice: &mut Dice, due: Timestamp) -> Result<(), String> {
    let mut topics = runner.store.topics();
    let Some(topic) = topics.pop() else { return Ok(()) };
    let from = due;
    let to = Timestamp::from_millis_saturating(due.as_millis() + dice.below(100_000));
    let key = dice.percent(50).then(|| format!("key-{}", dice.below(5)).into());
    let limit = 1 + dice.place(4);
    let lane = Lane::ALL[dice.place(2)];
    let query = PendingQuery { from, to, key, ..PendingQuery::all_of(topic.id, lane, limit) };
    let page = runner.store.pending(query.clone()).map_err(|error| error.to_string())?;
    let mut all: Vec<_> = (0..runner.ledger.sent.len())
        .filter(|&number| runner.expected(number) == [CancelOutcome::Cancelled])
        .map(|number| &runner.ledger.sent[number])
        .filter(|sent| sent.id.topic == topic.id && (from..to).contains(&sent.id.key.due))
        .filter(|sent| sent.id.key.sequence.lane() == lane)
        .filter(|sent| query.key.is_none() || sent.message.key == query.key)
        .map(|sent| sent.id)
        .collect();
    all.sort_unstable();
    let listed: Vec<_> = page.entries.iter().map(|entry| entry.id).collect();
    let expected: Vec<_> = all.iter().copied().take(limit).collect();
    if listed != expected || (page.next.is_none() && all.len() > limit) {
        return Err(format!("a page lists {listed:?}, expected {expected:?}"));
    }
    Ok(())
}

/// Lives one life and answers what it reached.
fn live(seed: u64) -> Reached {
    let mut dice = Dice(seed ^ 0x5eed);
    let mut runner = Runner::new(ForgetfulDisk::new(), options(&mut dice));
    let steps = random(seed, Taste { steps: STEPS, days: dice.percent(50), batch: 8 });
    for (number, step) in steps.iter().enumerate() {
        let told = runner.step(step);
        assert!(told.is_ok(), "seed {seed}, step {number} {step:?}: {told:?}");
        if dice.percent(4) {
            let disk = runner.disk.reopen();
            runner.restart(disk);
        }
        let fine = if dice.percent(20) || number + 1 == STEPS {
            runner.check().and_then(|_| compare_answers(&runner, &mut dice))
        } else {
            compare_answers(&runner, &mut dice)
        };
        if let Err(what) = fine {
            panic!("seed {seed}, after step {number} {step:?}: {what}");
        }
    }
    let end = Step::Fire(200_000_000 + runner.now());
    let told = runner.step(&end);
    assert!(told.is_ok(), "seed {seed}, at the end: {told:?}");
    if let Err(what) = runner.check() {
        panic!("seed {seed}, at the end: {what}");
    }
    runner.reached
}

fn lives(seeds: impl Iterator<Item = u64>) {
    let mut sum = Reached::default();
    let mut count = 0;
    for seed in seeds {
        let one = std::panic::catch_unwind(|| live(seed));
        let Ok(one) = one else { panic!("seed {seed} failed") };
        count += 1;
        sum.flushed += one.flushed;
        sum.merged += one.merged;
        sum.shrunk += one.shrunk;
        sum.advanced += one.advanced;
        sum.late += one.late;
        sum.cancelled_in_run += one.cancelled_in_run;
        sum.cancelled_near += one.cancelled_near;
        sum.cancelled_in_hand += one.cancelled_in_hand;
        sum.cancelled_ended += one.cancelled_ended;
        sum.restarts += one.restarts;
        sum.fired += one.fired;
    }
    println!("{count} lives of {STEPS} steps: {sum:?}");
    let least = count / 4;
    for (what, reached) in [
        ("flush", sum.flushed),
        ("merge", sum.merged),
        ("shrink", sum.shrunk),
        ("horizon advance", sum.advanced),
        ("late arrival", sum.late),
        ("cancel in a run", sum.cancelled_in_run),
        ("cancel in the near future", sum.cancelled_near),
        ("cancel of what was handed out", sum.cancelled_in_hand),
        ("cancel of what had ended", sum.cancelled_ended),
        ("restart", sum.restarts),
        ("delivery", sum.fired),
    ] {
        assert!(reached > least, "{what} happened only {reached} times");
    }
}

#[test]
fn a_store_does_what_the_ledger_says_even_seeds() {
    let count = scaled("PUNCTUAL_MODEL_SEEDS", 2000);
    lives((0..count).filter(|seed| seed % 2 == 0));
}

#[test]
fn a_store_does_what_the_ledger_says_odd_seeds() {
    let count = scaled("PUNCTUAL_MODEL_SEEDS", 2000);
    lives((0..count).filter(|seed| seed % 2 == 1));
}
