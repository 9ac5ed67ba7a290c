//! Every scenario, small, one after the other, each in a process of its own so that memory figures
//! do not mix.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::args::{AllOptions, Common};
use crate::report::say;

/// Those that start a server.
const WITH_SERVER: [&str; 7] =
    ["http", "grpc", "races", "consume", "end-to-end", "hostile", "kafka"];

/// Small enough to take about two minutes in all.
const QUICK: [&[&str]; 19] = [
    &["schedule", "--pending", "3M"],
    &["schedule", "--pending", "500k", "--body", "1024", "--batch", "2048"],
    &["restart", "--pending", "1M"],
    &["lateness", "--rate", "20k", "--secs", "5"],
    &["lateness", "--rate", "20k", "--secs", "5", "--background-schedule", "50k"],
    &["herd", "--count", "200k"],
    &["cancel", "--pending", "1M", "--cancels", "100k"],
    &["list", "--pending", "200k", "--questions", "500"],
    &["own-ids", "--pending", "500k"],
    &["http", "--secs", "3"],
    &["grpc", "--secs", "3"],
    &["races", "--messages", "20k"],
    &["consume", "--messages", "300k"],
    &["end-to-end", "--secs", "5"],
    &["groups", "--messages", "500k"],
    &["retries", "--secs", "4", "--retries", "100k"],
    &["acked-set", "--messages", "2M"],
    &["hostile", "--secs", "2"],
    &["kafka", "--secs", "1", "--rounds", "1", "--megabytes", "64", "--fetches", "1048576"],
];

const FULL: [&[&str]; 20] = [
    &["schedule"],
    &["schedule", "--pending", "10M", "--body", "1024", "--batch", "2048"],
    &["restart"],
    &["lateness"],
    &["lateness", "--background-schedule", "100k"],
    &["herd"],
    &["cancel"],
    &["cancel", "--ids", "10k"],
    &["list"],
    &["own-ids"],
    &["http"],
    &["grpc"],
    &["races"],
    &["consume"],
    &["end-to-end"],
    &["groups"],
    &["retries"],
    &["acked-set"],
    &["hostile"],
    &["kafka"],
];

pub(crate) fn run(common: &Common, options: &AllOptions) -> Result<()> {
    let runs: &[&[&str]] = if options.quick { &QUICK } else { &FULL };
    let mut failed = Vec::new();
    for arguments in runs {
        let line = arguments.join(" ");
        say(&format!("\n>> {line}"));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--out").arg(&common.out);
        command.args(["--durability", common.durability.word()]);
        if let Some(data) = &common.data {
            command.arg("--data").arg(data);
        }
        command.args(*arguments);
        let has_server = arguments.first().is_some_and(|name| WITH_SERVER.contains(name));
        if let (Some(binary), true) = (&options.server.binary, has_server) {
            command.arg("--binary").arg(binary);
        }
        let status = command.status().with_context(|| line.clone())?;
        if !status.success() {
            failed.push(line);
        }
    }
    ensure!(failed.is_empty(), "these did not succeed: {}", failed.join("; "));
    Ok(())
}
