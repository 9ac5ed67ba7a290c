//! Long random lives of messages that are named, moved, paused, linked and withdrawn, each ended by
//! a loss of power or of the process: every answer, and all that is shown after each start, is what
//! a simple model says.
//!
//! `PUNCTUAL_MODEL_CHANGE_SEEDS` sets how many lives are lived.

mod change_support;
mod store_support;

use punctual_engine::Options;
use punctual_testkit::forgetful::ForgetfulDisk;

use change_support::runner::{Reached, Runner};
use change_support::small;
use change_support::steps::random;
use store_support::{Dice, scaled};

fn live(seed: u64) -> Result<Reached, String> {
    let mut dice = Dice(seed ^ 0x11fe);
    let options = Options {
        near_bytes: [300, 1200, 5000][dice.place(3)],
        table_bytes: [400, 900, 4000][dice.place(3)],
        ..small()
    };
    let mut runner = Runner::new(ForgetfulDisk::new(), options);
    let mut steps = random(seed, 160);
    while !steps.is_empty() {
        let rest = steps.split_off(steps.len().min(10 + dice.place(60)));
        let life = std::mem::replace(&mut steps, rest);
        runner.run(&life)?;
        let (what, image) = if dice.percent(40) {
            ("killed".to_owned(), runner.disk.reopen())
        } else {
            let images: Vec<_> = runner.disk.images(40, dice.below(1000)).collect();
            images[dice.place(images.len())].clone()
        };
        runner.restart(image).map_err(|found| format!("next life, {what}: {found}"))?;
    }
    Ok(runner.reached)
}

#[test]
fn changes_are_what_a_simple_model_says() {
    let mut reached = Reached::default();
    for seed in 0..scaled("PUNCTUAL_MODEL_CHANGE_SEEDS", 150) {
        reached.add(live(seed).unwrap_or_else(|found| panic!("seed {seed}: {found}")));
    }
    println!("{reached:?}");
    let Reached { moved, known, refused, dropped, merged, id_files_merged, .. } = reached;
    for count in [moved, known, refused, dropped, merged, id_files_merged] {
        assert!(count > 0, "not everything was reached: {reached:?}");
    }
}
