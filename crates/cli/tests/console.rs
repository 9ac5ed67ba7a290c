//! Does the console work in a real browser, against the real program?
//!
//! The tests themselves are in `console/tests`, a file for each part, and run by
//! `scripts/console-browser.sh`. Where Node.js or Chromium is not on the machine they are left out,
//! but in CI they fail.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::collections::BTreeSet;
use std::path::Path;

use process_support::foreign::Foreign;

const SUFFIX: &str = ".test.mjs";

/// A test for each file, and the names of all files.
macro_rules! parts {
    ($($test:ident: $part:literal,)*) => {
        $(#[test]
        fn $test() {
            run($part);
        })*

        const PARTS: &[&str] = &[$($part),*];
    };
}

parts! {
    who_signs_in_sees_what_is_theirs: "access",
    pages_look_right_in_both_themes_and_languages: "appearance",
    it_costs_little: "budget",
    many_messages_are_changed_at_once: "bulk",
    a_cluster_is_seen_as_one: "cluster",
    dead_letters_are_seen_edited_and_driven_back: "dead",
    transactions_series_and_alerts_are_seen_and_decided: "decisions",
    groups_are_seen_and_changed: "groups",
    hostile_texts_stay_texts: "hostile",
    a_keyboard_is_enough: "keyboard",
    the_overview_is_live: "overview",
    pending_messages_are_found_and_changed: "pending",
    who_may_only_read_is_offered_nothing_else: "readonly",
    very_many_topics_and_messages_are_no_trouble: "scale",
    foreign_pages_achieve_nothing: "security",
    topics_are_seen_made_and_changed: "topics",
    totals_are_what_happened: "totals",
}

/// Runs the tests of one file, each of which starts its own servers.
fn run(part: &str) {
    let foreign = Foreign::new("console-browser.sh", &[&format!("{part}{SUFFIX}")])
        .with("PUNCTUAL_BIN", env!("CARGO_BIN_EXE_punctual"))
        .run();
    if let Some(said) = foreign {
        assert!(said.contains("test result: ok."), "{part}: {said}");
    }
}

#[test]
fn no_file_is_left_out() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/tests");
    let files = std::fs::read_dir(tests).expect("the tests of the console");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    let there: BTreeSet<String> =
        names.filter_map(|name| name.strip_suffix(SUFFIX).map(str::to_owned)).collect();
    let run: BTreeSet<String> = PARTS.iter().map(|&part| part.to_owned()).collect();
    assert_eq!(there, run);
}
