//! Durable batched scheduling with more and more pending: is it flat?

use std::time::Duration;

use anyhow::{Result, bail};
use punctual_model::{Clock as _, SystemClock};
use serde_json::json;

use crate::args::{Common, ScheduleOptions};
use crate::load::{Load, Progress, far};
use crate::measure::{self, memory_of};
use crate::picture::{Chart, Series};
use crate::report::{Cost, Report, Table, number, say, short};
use crate::rig::{Place, Rig, disk_needed};

/// Messages between two looks.
const WINDOW: u64 = 1_000_000;
/// How many pending make a row that is printed.
const ROWS: [u64; 11] = [1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 50];

/// A look at one moment.
#[derive(Clone, Debug)]
struct Look {
    pending: u64,
    at: Duration,
    cpu: Duration,
    written: u64,
    rss: u64,
    threads: Vec<(String, f64)>,
}

impl Look {
    fn take(pending: u64, clock: &SystemClock) -> Self {
        Self {
            pending,
            at: clock.read().monotonic,
            cpu: measure::cpu(),
            written: measure::written(),
            rss: memory_of(std::process::id()).now,
            threads: measure::threads(),
        }
    }

    fn cost_since(&self, before: &Self) -> Cost {
        Cost {
            messages: self.pending - before.pending,
            took: self.at.saturating_sub(before.at),
            cpu: self.cpu.saturating_sub(before.cpu),
        }
    }
}

pub(crate) fn run(common: &Common, options: &ScheduleOptions) -> Result<()> {
    let load = options.load;
    let place = Place::fresh(common, disk_needed(options.pending, load.body))?;
    let before = measure::bandwidth(place.path())?;
    let rig = Rig::open(place.path(), common)?;
    let clock = SystemClock::new();
    let progress = Progress::of(options.pending);
    let start = Look::take(0, &clock);
    let sender = Load::new(&rig, load, far);
    let (sent, looks) =
        sender.send_watched(&progress, |progress| look_on(progress, options, &clock, start))?;
    let memory = memory_of(std::process::id());
    let stopping = clock.read().monotonic;
    rig.close()?;
    let stopped = clock.read().monotonic.saturating_sub(stopping);
    let after = measure::bandwidth(place.path())?;

    let name = format!("schedule-{}-{}B", short(options.pending), load.body);
    let settings = json!({
        "pending": options.pending, "body": load.body, "batch": load.batch,
        "producers": load.producers, "in_flight": load.in_flight, "due": "random over 40 days",
        "bodies": "slices of one shared random buffer",
    });
    let mut report = Report::new(name, common, settings);
    let (first, last) = (&looks[0], looks.last().unwrap_or(&looks[0]));
    let cost = last.cost_since(first);
    report.cost(&cost);
    let payload = cost.rate() * load.body as f64;
    report.figure("body MB per second", payload / 1e6);
    report.figure("disk MB per second, 1 MiB writes, before", before / 1e6);
    report.figure("disk MB per second, 1 MiB writes, after", after / 1e6);
    report.figure("bodies as a share of the disk", payload / ((before + after) / 2.0));
    let written = (last.written - first.written) as f64;
    report.figure("bytes sent to disk per message", written / cost.messages as f64);
    report.figure("sent to disk, MB per second", written / cost.took.as_secs_f64() / 1e6);
    report.memory(memory);
    report.disk(place.path(), cost.messages);
    report.figure("clean stop, seconds", stopped.as_secs_f64());
    report.table(Table::of_latency("batch latency").latency("schedule", &sent.latency));
    report.latency_chart("batch latency", &[("schedule", &sent.latency)]);
    tables(&mut report, &looks);
    report.finish(common)?;
    place.clear()
}

/// Looks at every window until the end, or until the time is up.
fn look_on(
    progress: &Progress,
    options: &ScheduleOptions,
    clock: &SystemClock,
    start: Look,
) -> Result<Vec<Look>> {
    let end = start.at + Duration::from_secs(options.secs_max);
    let mut looks = vec![start];
    let mut next = 0;
    while next < options.pending {
        next = (next + WINDOW).min(options.pending);
        let left = end.saturating_sub(clock.read().monotonic);
        let done = progress.wait_for(next, left);
        if done < next {
            bail!("only {done} messages were taken within {} s", options.secs_max);
        }
        let look = Look::take(done, clock);
        let cost = look.cost_since(&looks[looks.len() - 1]);
        say(&format!("{:>12} pending  {:>12} /s", number(done as f64), number(cost.rate())));
        looks.push(look);
    }
    Ok(looks)
}

fn tables(report: &mut Report, looks: &[Look]) {
    let columns = ["last 1M/s", "CPU s/M", "written B", "since row/s", "RSS MB"];
    let mut rows = Table::new("pending", &columns);
    let mut all = Table::new("every window", &columns);
    let mut rates = Vec::new();
    let mut row_before = &looks[0];
    for pair in looks.windows(2) {
        let [before, look] = pair else { continue };
        let window = look.cost_since(before);
        let written = (look.written - before.written) as f64 / window.messages as f64;
        let since = look.cost_since(row_before).rate();
        let rss = look.rss as f64 / 1e6;
        let cells = vec![window.rate(), window.cpu_per_million(), written, since, rss];
        let millions = look.pending as f64 / 1e6;
        rates.push((millions, window.rate()));
        let mark = ROWS.contains(&(look.pending / WINDOW));
        if mark || look.pending == looks[looks.len() - 1].pending {
            rows.row(format!("{millions:.1}M"), cells.clone());
            row_before = look;
        }
        all.row(format!("{millions:.1}M"), cells);
    }
    report.table(rows);
    report.detail(all);
    report.table(thread_table(looks));
    let ticks =
        rates.iter().step_by(rates.len().div_ceil(10)).map(|r| (r.0, format!("{:.0}M", r.0)));
    report.chart(Chart {
        title: "messages per second, in windows of one million".to_owned(),
        x_label: "pending".to_owned(),
        y_label: "1/s".to_owned(),
        x_ticks: ticks.collect(),
        log_y: false,
        series: vec![Series { name: "schedule".to_owned(), points: rates.clone() }],
    });
}

/// CPU seconds of each thread over the whole run, per million messages.
fn thread_table(looks: &[Look]) -> Table {
    let mut table = Table::new("CPU by thread", &["s/M", "share of run"]);
    // The producers may be gone at the very last look.
    let last = &looks[looks.len().saturating_sub(2)];
    let last = if last.pending == 0 { &looks[looks.len() - 1] } else { last };
    let cost = last.cost_since(&looks[0]);
    for (name, seconds) in &last.threads {
        let before = looks[0].threads.iter().find(|(other, _)| other == name);
        let seconds = seconds - before.map_or(0.0, |(_, seconds)| *seconds);
        let million = cost.messages as f64 / 1e6;
        table.row(name.clone(), vec![seconds / million, seconds / cost.took.as_secs_f64()]);
    }
    table
}
