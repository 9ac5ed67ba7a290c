//! From the start of the process to the first delivery, after a clean stop and after SIGKILL.
//!
//! A child of this program fills the directory and is stopped or killed; a second child opens it
//! and tells when the first of a few messages, due by then, is in the log. The page cache stays
//! warm: what is measured is the work, not the disk after a power cut.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use punctual_broker::When;
use punctual_model::{Clock as _, Span, SystemClock};
use serde_json::{Value, json};

use crate::args::{Common, FillOptions, LoadOptions, ProbeOptions, RestartOptions};
use crate::load::{Load, far};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Report, Table, say, short};
use crate::rig::{Place, Rig, disk_needed, pause};

/// Messages that are due at the restart.
const PLANTED: u64 = 10;
/// When they are due after they were accepted: the process has ended by then.
const DUE_AFTER: Duration = Duration::from_secs(4);
/// How long a restless child goes on filling before it is killed.
const RESTLESS: Duration = Duration::from_secs(2);
const FIRST_MAX: Duration = Duration::from_secs(120);

pub(crate) fn run(common: &Common, options: &RestartOptions) -> Result<()> {
    let place = match &options.existing {
        Some(dir) => Place::existing(dir),
        None => Place::fresh(common, disk_needed(options.pending, options.load.body) + (2 << 30))?,
    };
    let pending = if options.existing.is_some() { 0 } else { options.pending };
    let settings = json!({
        "pending_filled": pending, "body": options.load.body, "page_cache": "warm",
        "existing": options.existing.is_some(),
    });
    let name = match &options.existing {
        Some(_) => "restart-existing".to_owned(),
        None => format!("restart-{}", short(pending)),
    };
    let mut report = Report::new(name, common, settings);
    let columns = ["open ms", "first ms", "all ms", "RSS MB", "peak MB", "CPU s", "pending"];
    let mut table = Table::new("after", &columns);
    let mut firsts = Latency::new();
    let ends = [("a clean stop", false), ("SIGKILL", false), ("SIGKILL while filling", true)];
    for (index, (title, restless)) in ends.into_iter().enumerate() {
        let clean = index == 0;
        let fill = if clean { pending } else { 0 };
        end_one(common, options, place.path(), End { fill, clean, restless })?;
        let probed = start_again(common, place.path())?;
        let field = |name: &str| probed[name].as_f64().unwrap_or(f64::NAN);
        let row = ["open_ms", "first_ms", "all_ms", "rss_mb", "peak_mb", "cpu_s", "pending"];
        table.row(title, row.iter().map(|name| field(name)).collect());
        report.figure(&format!("first delivery after {title}, ms"), field("first_ms"));
        firsts.note(Duration::from_secs_f64((field("first_ms") / 1e3).max(0.0)));
    }
    report.table(table);
    report.latency_chart("process start to first delivery", &[("the three ends", &firsts)]);
    report.disk(place.path(), options.pending);
    report.finish(common)?;
    place.clear()
}

/// How a process ends.
#[derive(Clone, Copy)]
struct End {
    fill: u64,
    clean: bool,
    restless: bool,
}

/// Runs a child that fills, and ends it.
fn end_one(common: &Common, options: &RestartOptions, dir: &Path, end: End) -> Result<()> {
    let LoadOptions { body, batch, producers, in_flight } = options.load;
    let mut command = again(common, "restart-fill", dir)?;
    command.args(["--pending", &end.fill.to_string(), "--body", &body.to_string()]);
    command.args(["--batch", &batch.to_string(), "--producers", &producers.to_string()]);
    command.args(["--in-flight", &in_flight.to_string()]);
    if end.restless {
        command.arg("--restless");
    }
    let (mut child, mut lines) = start(command)?;
    let planted = expect_line(&mut lines, "planted");
    if planted.is_ok() {
        if end.clean {
            // The child ends by itself when its input closes.
            drop(child.stdin.take());
        } else {
            if end.restless {
                pause(RESTLESS);
            }
            child.kill()?;
        }
    }
    let status = child.wait()?;
    let planted = planted?;
    ensure!(status.success() == end.clean, "the filling process ended with {status}");
    let due = planted["due_ms"].as_u64().context("no due time")?;
    let now = SystemClock::new().read().wall;
    pause((Duration::from_millis(due + 100)).saturating_sub(now));
    Ok(())
}

/// Runs a child that opens the directory and tells when the first message came out.
fn start_again(common: &Common, dir: &Path) -> Result<Value> {
    let mut command = again(common, "restart-probe", dir)?;
    let micros = SystemClock::new().read().wall.as_micros();
    command.args(["--started-micros", &micros.to_string()]);
    let (mut child, mut lines) = start(command)?;
    let probed = expect_line(&mut lines, "probed");
    drop(child.stdin.take());
    let status = child.wait()?;
    let probed = probed?;
    ensure!(status.success(), "the new process ended with {status}");
    Ok(probed)
}

fn again(common: &Common, scenario: &str, dir: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--durability", common.durability.word(), scenario, "--dir"]).arg(dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

type Lines = std::io::Lines<BufReader<ChildStdout>>;

fn start(mut command: Command) -> Result<(Child, Lines)> {
    let mut child = command.spawn()?;
    let output = child.stdout.take().context("no output of the child")?;
    Ok((child, BufReader::new(output).lines()))
}

/// The JSON of the next line, which must be of that kind.
fn expect_line(lines: &mut Lines, kind: &str) -> Result<Value> {
    let line = lines.next().context("the child ended early")??;
    let value: Value = serde_json::from_str(&line)?;
    if value["kind"] != kind {
        bail!("the child said {line} instead of {kind}");
    }
    Ok(value)
}

/// The child that fills: a line when the last messages are accepted, then it waits for the end of
/// its input, or goes on filling.
pub(crate) fn fill(common: &Common, options: &FillOptions) -> Result<()> {
    let rig = Rig::open(&options.dir, common)?;
    Load::new(&rig, options.load, far).send(options.pending)?;
    let soon = Span::from_millis(u64::try_from(DUE_AFTER.as_millis())?);
    let when = |_: &mut Random| When::After(soon);
    let load = Load::new(&rig, options.load, when).keeping(1);
    let ids = load.send(PLANTED)?.ids;
    let due_ms = ids.iter().map(|id| id.key.due.as_millis()).max();
    say(&json!({ "kind": "planted", "due_ms": due_ms }).to_string());
    if options.restless {
        // Bounded by the disk at the latest; the parent kills this process long before.
        Load::new(&rig, options.load, far).send(20_000_000)?;
    }
    wait_for_end_of_input()?;
    rig.close()
}

/// The child that starts again.
pub(crate) fn probe(common: &Common, options: &ProbeOptions) -> Result<()> {
    let clock = SystemClock::new();
    let started = Duration::from_micros(options.started_micros);
    let millis = |wall: Duration| wall.saturating_sub(started).as_secs_f64() * 1e3;
    let rig = Rig::open(&options.dir, common)?;
    let opened = clock.read().wall;
    ensure!(rig.watch.wait_for(PLANTED, FIRST_MAX), "nothing came out in two minutes");
    let seen = rig.watch.seen();
    let memory = memory_of(std::process::id());
    // The watcher hears of a message a moment before it leaves the count of pending ones.
    while rig.broker.stats().delivered < PLANTED && clock.read().wall < opened + FIRST_MAX {
        pause(Duration::from_millis(1));
    }
    let pending: u64 = rig.broker.stats().pending.iter().map(|(_, count)| count).sum();
    let line = json!({
        "kind": "probed", "open_ms": millis(opened),
        "first_ms": millis(seen.first.unwrap_or_default()), "all_ms": millis(seen.last),
        "rss_mb": memory.now as f64 / 1e6, "peak_mb": memory.peak as f64 / 1e6,
        "cpu_s": measure::cpu().as_secs_f64(), "pending": pending,
    });
    say(&line.to_string());
    wait_for_end_of_input()?;
    ensure!(rig.watch.seen().count == PLANTED, "a message came out twice, or one too many");
    rig.close()
}

fn wait_for_end_of_input() -> Result<()> {
    let mut line = String::new();
    while std::io::stdin().lock().read_line(&mut line)? > 0 {
        line.clear();
    }
    Ok(())
}
