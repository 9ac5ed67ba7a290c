//! Many messages due in the same millisecond: how long until the last is in the log?

use std::time::Duration;

use anyhow::{Result, ensure};
use punctual_broker::When;
use punctual_model::{Clock as _, SystemClock, Timestamp};
use serde_json::json;

use crate::args::{Common, HerdOptions};
use crate::load::Load;
use crate::measure::{self, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, Rig, disk_needed, pause};

/// Messages a second that even a slow machine takes.
const FILL_RATE: u64 = 150_000;
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(common: &Common, options: &HerdOptions) -> Result<()> {
    let place = Place::fresh(common, disk_needed(2 * options.count, options.load.body))?;
    let rig = Rig::open(place.path(), common)?;
    let clock = SystemClock::new();
    let due_ms = clock.read().timestamp().as_millis() + 4000 + options.count * 1000 / FILL_RATE;
    let when = |_: &mut Random| When::At(Timestamp::from_millis_saturating(due_ms));
    let load = Load::new(&rig, options.load, when);
    let sent = load.send(options.count)?;
    let due = Duration::from_millis(due_ms);
    let ready = clock.read().wall;
    ensure!(ready < due, "scheduling took too long; ask for fewer");
    pause(due - ready);

    let cpu = measure::cpu();
    ensure!(rig.watch.wait_for(options.count, WAIT_MAX), "not all came out in five minutes");
    let seen = rig.watch.seen();
    let took = seen.last.saturating_sub(due);
    let cost = Cost { messages: seen.count, took, cpu: measure::cpu().saturating_sub(cpu) };

    let settings = json!({ "count": options.count, "body": options.load.body, "partitions": 4 });
    let mut report = Report::new(format!("herd-{}", short(options.count)), common, settings);
    report.table(
        Table::of_latency("lateness and latency")
            .latency("lateness", &seen.lateness)
            .latency("batches scheduled in advance", &sent.latency),
    );
    report.latency_chart("wall clock after the append minus due time", &[("herd", &seen.lateness)]);
    let first = seen.first.unwrap_or_default().saturating_sub(due);
    report.figure("due to first in the log, ms", first.as_secs_f64() * 1e3);
    report.figure("due to last in the log, ms", took.as_secs_f64() * 1e3);
    report.figure("least lateness, ms", seen.least_ms);
    report.cost(&cost);
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), options.count);
    rig.close()?;
    report.finish(common)?;
    ensure!(seen.least_ms >= 0.0, "a message was {} ms early", -seen.least_ms);
    place.clear()
}
