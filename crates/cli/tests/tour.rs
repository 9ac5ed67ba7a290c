//! Does the tour of README.md do what it shows, command by command?
//!
//! The commands are those of the page itself, run in one shell in an empty directory, as a newcomer
//! would. What they print is compared with the page: ids, receipts, times and tokens may differ, but an
//! id that the page shows twice must be the same both times. `make run` starts the real program, on a
//! free port.
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "helpers of tests may stop them"
)]

mod command_support;
mod process_support;
mod tour_support;

use std::path::Path;

use tour_support::page::{Part, parts};
use tour_support::shape::Shapes;
use tour_support::shell::Shell;

#[test]
fn the_tour_prints_what_the_page_shows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let parts = parts(&page, "## Five minutes");
    assert!(parts.len() > 20, "the page has lost its tour: {} parts", parts.len());
    let mut shell = Shell::start();
    let (mut shown, mut printed) = (Shapes::default(), Shapes::default());
    let mut output = String::new();
    let mut commands = 0;
    let mut compared = 0;
    for part in &parts {
        match part {
            Part::Commands(block) => {
                output.clear();
                for command in tour_support::page::commands(block) {
                    commands += 1;
                    output.push_str(&shell.run(&command));
                }
            }
            Part::Output(text) => {
                compared += 1;
                let (expected, got) = (shown.of(text), printed.of(&output));
                assert_eq!(got, expected, "printed in full:\n{output}\nshown:\n{text}");
            }
        }
    }
    println!("{commands} commands run, {compared} outputs compared");
    assert!(commands >= 40 && compared >= 12, "{commands} commands, {compared} outputs");
}
