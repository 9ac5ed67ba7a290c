//! Long random lives of groups, with kills and losses of power between them: after every step each
//! group is given exactly what it has not settled, with the notes it made.
//!
//! `PUNCTUAL_MODEL_GROUP_RUNS` sets how many lives are lived.

mod group_support;
mod store_support;

use punctual_engine::Options;
use punctual_testkit::forgetful::ForgetfulDisk;

use group_support::runner::{Reached, Runner};
use group_support::small;
use group_support::steps::random;
use store_support::{Dice, scaled};

fn live(seed: u64, all: &mut Reached) -> Result<(), String> {
    let mut dice = Dice(seed);
    let near_bytes = [300, 1200, 5000][dice.place(3)];
    let mut runner = Runner::new(ForgetfulDisk::new(), Options { near_bytes, ..small() });
    let mut steps = random(seed, 120);
    let mut life = 0;
    while !steps.is_empty() {
        let rest = steps.split_off(steps.len().min(1 + dice.place(30)));
        runner.run(&steps).map_err(|what| format!("life {life}, {what}"))?;
        steps = rest;
        life += 1;
        let (what, disk) = if dice.percent(40) {
            ("killed".to_owned(), runner.disk.reopen())
        } else {
            let mut images: Vec<_> = runner.disk.images(30, dice.below(1000)).collect();
            images.swap_remove(dice.place(images.len()))
        };
        runner.restart(disk).map_err(|found| format!("life {life}, {what}: {found}"))?;
    }
    add(all, &runner.reached);
    Ok(())
}

fn add(all: &mut Reached, one: &Reached) {
    all.settled += one.settled;
    all.noted += one.noted;
    all.moved += one.moved;
    all.redriven += one.redriven;
    all.sought += one.sought;
    all.delivered[0] += one.delivered[0];
    all.delivered[1] += one.delivered[1];
    all.flushed += one.flushed;
    all.merged += one.merged;
    all.expired += one.expired;
    all.restarts += one.restarts;
}

#[test]
fn groups_do_what_the_model_says() {
    let runs = scaled("PUNCTUAL_MODEL_GROUP_RUNS", 300);
    let mut all = Reached::default();
    for seed in 0..runs {
        live(seed, &mut all).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("{runs} runs: {all:?}");
    assert!(all.redriven > 0 && all.expired > 0 && all.merged > 0, "not reached: {all:?}");
}
