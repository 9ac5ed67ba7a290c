//! How late messages are appended to the log when many fall due all the time.
//!
//! Everything is scheduled in advance, in random order; then nothing but firing happens, unless
//! background schedules are asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_broker::When;
use punctual_model::{Clock as _, SystemClock, Timestamp};
use serde_json::json;

use crate::args::{Common, LatenessOptions, LoadOptions};
use crate::load::{Load, far};
use crate::measure::{self, Latency, memory_of};
use crate::picture::{Chart, Series};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, Rig, disk_needed, pause};

/// Messages a second that even a slow machine takes; decides how far ahead the first is due.
const FILL_RATE: u64 = 150_000;
/// Batches of background schedules each second.
const TICKS: u64 = 100;

pub(crate) fn run(common: &Common, options: &LatenessOptions) -> Result<()> {
    let count = options.rate * options.secs;
    let background = options.background_schedule * (options.secs + 5);
    let place = Place::fresh(common, disk_needed(2 * count + background, options.load.body))?;
    let rig = Rig::open(place.path(), common)?;
    let clock = SystemClock::new();
    let lead_ms = 4000 + count * 1000 / FILL_RATE;
    let start_ms = clock.read().timestamp().as_millis() + lead_ms;
    let span_ms = options.secs * 1000;
    let at = |millis| When::At(Timestamp::from_millis_saturating(millis));
    let when = |random: &mut Random| at(start_ms + random.below(span_ms));
    let load = Load::new(&rig, options.load, when);
    let sent = load.send(count)?;
    let start = Duration::from_millis(start_ms);
    let ready = clock.read().wall;
    ensure!(ready < start, "scheduling in advance took too long; ask for fewer");
    pause(start - ready);

    let cpu = measure::cpu();
    let end = start + Duration::from_secs(options.secs);
    let (all_out, background) = beside(&rig, options, &clock, || {
        let left = end.saturating_sub(clock.read().wall) + Duration::from_secs(60);
        rig.watch.wait_for(count, left)
    })?;
    let seen = rig.watch.seen();
    ensure!(
        all_out,
        "only {} of {count} came out within a minute of the last due time",
        seen.count
    );
    let took = seen.last.saturating_sub(start);
    let cost = Cost { messages: count, took, cpu: measure::cpu().saturating_sub(cpu) };

    let beside = match options.background_schedule {
        0 => String::new(),
        rate => format!("-and-{}", short(rate)),
    };
    let name = format!("lateness-{}{beside}", short(options.rate));
    let settings = json!({
        "due_per_second": options.rate, "seconds": options.secs, "partitions": 4,
        "background_schedules_per_second": options.background_schedule,
        "body": options.load.body,
    });
    let mut report = Report::new(name, common, settings);
    let mut table = Table::of_latency("lateness and latency")
        .latency("lateness", &seen.lateness)
        .latency("batches scheduled in advance", &sent.latency);
    let mut chart = vec![("lateness", &seen.lateness)];
    if let Some(background) = &background {
        table = table.latency("background schedules", background);
        chart.push(("background schedules", background));
    }
    report.latency_chart("wall clock after the append minus due time", &chart);
    report.table(table);
    by_second(&mut report, &seen.worst_ms);
    report.figure("least lateness, ms", seen.least_ms);
    report.cost(&cost);
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), count);
    rig.close()?;
    report.finish(common)?;
    ensure!(seen.least_ms >= 0.0, "a message was {} ms early", -seen.least_ms);
    place.clear()
}

/// The worst of every second, where a tail shows whether it comes at intervals.
fn by_second(report: &mut Report, worst_ms: &[f64]) {
    let mut table = Table::new("second", &["worst lateness, ms"]);
    for (second, &worst) in worst_ms.iter().enumerate() {
        table.row(second.to_string(), vec![worst]);
    }
    report.detail(table);
    let seconds = || (0u32..).map(f64::from);
    let step = worst_ms.len().div_ceil(12).max(1);
    let ticks = seconds().take(worst_ms.len()).step_by(step).map(|at| (at, format!("{at:.0}")));
    report.chart(Chart {
        title: "worst lateness in each second".to_owned(),
        x_label: "second".to_owned(),
        y_label: "ms".to_owned(),
        x_ticks: ticks.collect(),
        log_y: true,
        series: vec![Series {
            name: "worst".to_owned(),
            points: seconds().zip(worst_ms.iter().copied()).collect(),
        }],
    });
}

/// Runs `main` with background schedules beside it, if any are asked for.
fn beside<R>(
    rig: &Rig,
    options: &LatenessOptions,
    clock: &SystemClock,
    main: impl FnOnce() -> R,
) -> Result<(R, Option<Latency>)> {
    if options.background_schedule == 0 {
        return Ok((main(), None));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("bench-beside".to_owned());
        let thread = thread.spawn_scoped(scope, || keep_scheduling(rig, options, clock, &done))?;
        let answer = main();
        done.store(true, Ordering::Relaxed);
        let latency = thread.join().ok().context("background schedules ended by a panic")??;
        Ok((answer, Some(latency)))
    })
}

/// Small batches at a steady pace; one that is late is followed by the next at once.
fn keep_scheduling(
    rig: &Rig,
    options: &LatenessOptions,
    clock: &SystemClock,
    done: &AtomicBool,
) -> Result<Latency> {
    let batch = options.background_schedule.div_ceil(TICKS);
    let size = usize::try_from(batch)?;
    let one = LoadOptions { batch: size, producers: 1, in_flight: 1, ..options.load };
    let load = Load::new(rig, one, far);
    let mut latency = Latency::new();
    let mut next = clock.read().monotonic;
    while !done.load(Ordering::Relaxed) {
        latency.add(&load.send(batch)?.latency);
        next += Duration::from_millis(1000 / TICKS);
        let now = clock.read().monotonic;
        if next > now {
            pause(next - now);
        }
    }
    Ok(latency)
}
