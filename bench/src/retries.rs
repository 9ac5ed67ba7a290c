//! How late messages are while very many failed ones wait for their next attempt, and while all of
//! those come due in the same second.
//!
//! The failed messages belong to another topic. They are taken and given back in process, each with
//! the delay that brings it to the one moment at which all are due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_broker::When;
use punctual_broker::group::{Consumer, Failure, NackOutcome, Receipt};
use punctual_model::group::{GroupName, GroupSettings, Start};
use punctual_model::limits::RECEIVE_MESSAGES_MAX;
use punctual_model::{Clock as _, Span, SystemClock, Timestamp, TopicId, TopicName, TopicSettings};
use serde_json::json;

use crate::args::{Common, RetriesOptions};
use crate::load::{Load, topic};
use crate::measure::{self, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, say, short};
use crate::rig::{Place, Rig, Seen, disk_needed, pause};

/// Failures a second that even a slow machine takes; decides when all are due again.
const FAIL_RATE: u64 = 20_000;
/// From scheduling in advance to the first due time.
const LEAD_MS: u64 = 4000;
/// Threads that fail with messages.
const THREADS: usize = 2;
const LEASE: Span = Span::from_secs(3600);
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(common: &Common, options: &RetriesOptions) -> Result<()> {
    let messages = 3 * options.rate * options.secs;
    let needed = disk_needed(2 * messages + 4 * options.retries, options.load.body + 300);
    let place = Place::fresh(common, needed)?;
    let rig = Rig::open(place.path(), common)?;
    let settings = json!({
        "due_per_second": options.rate, "seconds_each": options.secs,
        "retries": options.retries, "body": options.load.body, "partitions": 4,
    });
    let name = format!("retries-{}", short(options.retries));
    let mut report = Report::new(name, common, settings);
    let course = Course::run(&rig, options)?;
    let rows = [
        ("alone", &course.alone),
        ("retries pending", &course.pending),
        ("retries due at once", &course.due),
    ];
    let mut table = Table::of_latency("lateness");
    rows.iter().for_each(|(name, seen)| table.row(*name, seen.lateness.millis()));
    report.table(table);
    let chart = rows.map(|(name, seen)| (name, &seen.lateness));
    report.latency_chart("wall clock after the append minus due time", &chart);
    let least_ms = rows.iter().fold(f64::INFINITY, |least, (_, seen)| least.min(seen.least_ms));
    report.figure("least lateness, ms", least_ms);
    report.figure("messages while retries came due", course.due.count as f64);
    report.figure("retries", options.retries as f64);
    report.figure("taken and nacked per second", course.failed.rate());
    report.figure("CPU seconds per million nacked", course.failed.cpu_per_million());
    report.figure("retries due to last in the log, seconds", course.came.took.as_secs_f64());
    report.figure("retries in the log per second", course.came.rate());
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), options.retries);
    rig.close()?;
    report.finish(common)?;
    ensure!(least_ms >= 0.0, "a message was {} ms early", -least_ms);
    place.clear()
}

/// What was measured.
struct Course {
    alone: Seen,
    pending: Seen,
    due: Seen,
    failed: Cost,
    came: Cost,
}

impl Course {
    fn run(rig: &Rig, options: &RetriesOptions) -> Result<Self> {
        let clock = SystemClock::new();
        let business = rig.broker.topics().put(&topic(), TopicSettings::default())?.id;
        let now_ms = || clock.read().timestamp().as_millis();
        say("alone");
        let alone = lateness(rig, options, business, now_ms() + LEAD_MS)?;

        let consumer = fill(rig, options)?;
        let span_ms = options.secs * 1000;
        let fail_ms = options.retries * 1000 / FAIL_RATE;
        let due_ms = now_ms() + fail_ms + span_ms + 3 * LEAD_MS;
        say("failing");
        let failed = fail_all(&consumer, options.retries, due_ms)?;
        say("retries pending");
        let pending = lateness(rig, options, business, now_ms() + LEAD_MS)?;

        let start_ms = due_ms.saturating_sub(1000);
        schedule(rig, options, start_ms)?;
        ensure!(now_ms() < start_ms, "failing took too long; ask for fewer");
        say("retries due at once");
        let due = Duration::from_millis(due_ms);
        pause(due.saturating_sub(clock.read().wall));
        rig.watch.look_at(business);
        let cpu = measure::cpu();
        ensure!(rig.watch.wait_for_others(options.retries, WAIT_MAX), "not all retries came");
        let seen = rig.watch.seen();
        let came = Cost {
            messages: options.retries,
            took: seen.others.1.saturating_sub(due),
            cpu: measure::cpu().saturating_sub(cpu),
        };
        Ok(Self { alone, pending, due: seen, failed, came })
    }
}

/// Schedules the messages whose lateness counts.
fn schedule(rig: &Rig, options: &RetriesOptions, start_ms: u64) -> Result<()> {
    let span_ms = options.secs * 1000;
    let when = |random: &mut Random| {
        When::At(Timestamp::from_millis_saturating(start_ms + random.below(span_ms)))
    };
    Load::new(rig, options.load, when).send(options.rate * options.secs).map(drop)
}

/// Schedules them and sees them come out.
fn lateness(rig: &Rig, options: &RetriesOptions, business: TopicId, start_ms: u64) -> Result<Seen> {
    schedule(rig, options, start_ms)?;
    let start = Duration::from_millis(start_ms);
    ensure!(SystemClock::new().read().wall < start, "scheduling in advance took too long");
    rig.watch.look_at(business);
    let all = rig.watch.wait_for(options.rate * options.secs, WAIT_MAX);
    ensure!(all, "not all came out in five minutes");
    Ok(rig.watch.seen())
}

/// Messages of a topic of their own, there to be failed with.
fn fill(rig: &Rig, options: &RetriesOptions) -> Result<Consumer> {
    let name = TopicName::new("failing")?;
    let failing = rig.broker.topics().put(&name, TopicSettings::default())?.id;
    rig.watch.look_at(failing);
    let now = |_: &mut Random| When::Now;
    Load::new(rig, options.load, now).to(name.clone()).send(options.retries)?;
    ensure!(rig.watch.wait_for(options.retries, WAIT_MAX), "not all came out in five minutes");
    let group = GroupName::new("unlucky")?;
    let settings = GroupSettings::default();
    Ok(rig.broker.consumers().put(&name, &group, settings, Start::Earliest)?)
}

/// Takes everything and gives it back, to come again at that moment.
fn fail_all(consumer: &Consumer, count: u64, due_ms: u64) -> Result<Cost> {
    let (clock, cpu) = (SystemClock::new(), measure::cpu());
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..THREADS {
            let builder = std::thread::Builder::new().name(format!("bench-fail-{number}"));
            let work = || fail_some(consumer, due_ms, &failed);
            running.push(builder.spawn_scoped(scope, work)?);
        }
        for thread in running {
            thread.join().ok().context("a consumer ended by a panic")??;
        }
        anyhow::Ok(())
    })?;
    let messages = failed.into_inner();
    ensure!(messages == count, "{messages} of {count} were there to be failed with");
    Ok(Cost { messages, took: clock.read().monotonic, cpu: measure::cpu().saturating_sub(cpu) })
}

fn fail_some(consumer: &Consumer, due_ms: u64, failed: &AtomicU64) -> Result<()> {
    let clock = SystemClock::new();
    loop {
        let taken = consumer.take(RECEIVE_MESSAGES_MAX, LEASE)?;
        if taken.is_empty() {
            return Ok(());
        }
        let receipts: Vec<Receipt> = taken.iter().map(|leased| leased.receipt).collect();
        let now_ms = clock.read().timestamp().as_millis();
        let delay = due_ms.checked_sub(now_ms).context("failing took too long; ask for fewer")?;
        let failure = Failure { delay: Some(Span::from_millis(delay)), ..Failure::default() };
        let outcomes = consumer.nack(&receipts, &failure)?;
        let requeued = outcomes.iter().all(|outcome| *outcome == NackOutcome::Requeued);
        ensure!(requeued, "not all of them come again");
        failed.fetch_add(receipts.len() as u64, Ordering::Relaxed);
    }
}
