//! Do alerts fire and end for the real program when its wall clock is stepped and when its disk runs
//! full? Are the secrets of alerts hidden by `config print`?
//!
//! The clock is faked with libfaketime; a small file system is mounted for real, which takes the
//! rights of root. Without either the test says so and is skipped.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed step may stop the test, which is about real time"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod command_support;
mod process_support;

use std::path::Path;
use std::process::Command;

use command_support::{punctual, text};
use process_support::faked::{FakedClock, library};
use process_support::process::{Launch, Process};
use process_support::wait_for;
use serde_json::Value;

const SECOND_MICROS: i64 = 1_000_000;

fn watching(launch: Launch) -> Launch {
    launch.with("PUNCTUAL_ALERTS__INTERVAL", "100ms")
}

fn rule(process: &Process, name: &str) -> Value {
    let alerts = process.client().get("/v1/alerts").unwrap().expect(200);
    let rules = alerts["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == name).unwrap().clone()
}

fn wait_for_state(process: &Process, name: &str, state: &str) -> Value {
    wait_for(state, || Some(rule(process, name)).filter(|rule| rule["state"] == state)).0
}

#[test]
fn a_step_of_the_wall_clock_fires_and_is_over_after_the_window() {
    if library().is_none() {
        eprintln!("skipped: there is no libfaketime");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let wall = FakedClock::new(directory.path());
    wall.set(0);
    let launch = wall.rule(Launch::on(directory.path().join("data")));
    let launch = watching(launch).with("PUNCTUAL_ALERTS__WINDOW", "3s");
    let process = launch.start();
    let before =
        wait_for("a look", || Some(rule(&process, "clock_step")).filter(|rule| rule["value"] == 0));
    assert_eq!(before.0["state"], "ok");
    wall.set(3600 * SECOND_MICROS);
    let fired = wait_for_state(&process, "clock_step", "firing");
    assert!(fired["value"].as_u64() >= Some(1) && fired["unit"] == "steps", "{fired}");
    process.wait_for_line("an alert is firing");
    wait_for_state(&process, "clock_step", "ok");
    process.wait_for_line("an alert is resolved");
    let log = process.log();
    let line = log.lines().find(|line| line.contains("an alert is firing")).unwrap();
    assert!(line.contains("WARN") && line.contains("clock_step"), "{line}");
    process.check_log();
}

/// A file system of its own, in memory.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=200m", "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: mounting a tmpfs is not permitted");
        }
        mounted.then_some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).output();
        if !unmounted.is_ok_and(|output| output.status.success()) {
            eprintln!("{} is still mounted", self.0.display());
        }
    }
}

#[test]
fn a_disk_with_little_room_fires_and_is_over_when_there_is_room_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let Some(disk) = SmallDisk::mount(&path) else { return };
    let launch = watching(Launch::on(path.join("data"))).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    // What the store sets aside for itself takes some room too.
    let launch = launch.with("PUNCTUAL_ALERTS__DISK_SPACE", "30");
    let process = launch.with("PUNCTUAL_ALERTS__DISK_SPACE_FOR", "0s").start();
    let room = wait_for("a look", || {
        Some(rule(&process, "disk_space")).filter(|rule| rule["value"].is_number())
    });
    assert_eq!(room.0["state"], "ok", "{}", room.0);
    let percent = room.0["value"].as_f64().unwrap();
    assert!(percent > 30.0, "{percent}");
    // All but a fifth of the disk.
    let filler = path.join("filler");
    std::fs::write(&filler, vec![1; mebibytes(2.0 * (percent - 20.0))]).unwrap();
    let fired = wait_for_state(&process, "disk_space", "firing");
    assert!(fired["value"].as_f64() < Some(30.0), "{fired}");
    assert!(fired["detail"].as_str().unwrap().ends_with("MiB are free"), "{fired}");
    std::fs::remove_file(&filler).unwrap();
    wait_for_state(&process, "disk_space", "ok");
    process.check_log();
    drop(process);
    drop(disk);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a small one")]
fn mebibytes(count: f64) -> usize {
    (count as usize) << 20
}

#[test]
fn the_address_and_the_secret_are_not_printed() {
    let output = punctual()
        .args(["config", "print"])
        .env("PUNCTUAL_ALERTS__WEBHOOK", "https://hooks.example/a-hidden-path")
        .env("PUNCTUAL_ALERTS__WEBHOOK_SECRET", "a-hidden-secret")
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("# webhook = \"(hidden)\""), "{out}");
    assert!(out.contains("# webhook_secret = \"(hidden)\""), "{out}");
    assert!(!out.contains("a-hidden") && !out.contains("hooks.example"), "{out}");
    let output = punctual()
        .args(["config", "print"])
        .env("PUNCTUAL_ALERTS__WEBHOOK", "http://169.254.169.254/a-hidden-path")
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("alerts.webhook") && told.contains("push.allow"), "{told}");
    assert!(!told.contains("a-hidden-path"), "{told}");
}
