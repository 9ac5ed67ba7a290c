//! Several groups consume everything that is sent, while it is sent: is anything lost, or given out
//! twice?
//!
//! In process, on a real disk. The body of each message is its number, and each group ticks off the
//! numbers it gets and the numbers it acks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::{Condvar, Mutex};
use punctual_broker::When;
use punctual_broker::group::{Consumer, Receipt};
use punctual_model::group::{GroupName, GroupSettings, Start};
use punctual_model::{Clock as _, Span, SystemClock};
use serde_json::json;

use crate::args::{Common, GroupsOptions};
use crate::load::{Load, topic};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, Rig, disk_needed};

/// Longer than any run.
const LEASE: Span = Span::from_secs(3600);
/// How often somebody who found nothing looks again.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) fn run(common: &Common, options: &GroupsOptions) -> Result<()> {
    let place = Place::fresh(common, disk_needed(2 * options.messages, 16))?;
    let rig = Rig::open(place.path(), common)?;
    let mut groups = Vec::new();
    for number in 0..options.groups {
        let name = GroupName::new(&format!("group-{number}"))?;
        let consumers = rig.broker.consumers();
        let consumer = consumers.put(&topic(), &name, GroupSettings::default(), Start::Earliest)?;
        groups.push(Ticks::new(consumer, options.messages));
    }
    let (clock, cpu) = (SystemClock::new(), measure::cpu());
    let sent = consume_all(&rig, options, &groups, &clock)?;
    let took = clock.read().monotonic;
    let deliveries = options.messages * options.groups as u64;
    let cost = Cost { messages: deliveries, took, cpu: measure::cpu().saturating_sub(cpu) };

    let name = format!("groups-{}-by-{}", short(options.messages), options.groups);
    let settings = json!({
        "messages": options.messages, "groups": options.groups, "body": 8, "partitions": 4,
        "threads_per_group": options.consumers, "messages_per_take": options.max,
    });
    let mut report = Report::new(name, common, settings);
    let columns = ["given out", "lost", "twice", "acked", "acked twice"];
    let mut table = Table::new("group", &columns);
    let mut faults = 0;
    for group in &groups {
        let counts = group.counts(options.messages);
        let [given, lost, twice, acked, acked_twice] = counts;
        faults += lost + twice + acked_twice + given.abs_diff(acked);
        table.row(group.consumer.group().name.to_string(), counts.map(|n| n as f64).to_vec());
    }
    let mut latencies = Table::of_latency("latency").latency("batches sent", &sent);
    let mut chart = vec![("batches sent", sent)];
    let all = |which: fn(&Calls) -> &Latency| {
        let mut all = Latency::new();
        groups.iter().for_each(|group| all.add(which(&group.calls.lock())));
        all
    };
    for (name, latency) in [("take", all(|calls| &calls.takes)), ("ack", all(|calls| &calls.acks))]
    {
        latencies.row(name, latency.millis());
        chart.push((name, latency));
    }
    let chart: Vec<_> = chart.iter().map(|(name, latency)| (*name, latency)).collect();
    report.latency_chart("latency of a call", &chart);
    report.table(table);
    report.table(latencies);
    report.figure("messages given out and acked", cost.messages as f64);
    report.figure("seconds", cost.took.as_secs_f64());
    report.figure("messages given out and acked per second", cost.rate());
    report.figure("CPU seconds per million given out", cost.cpu_per_million());
    report.memory(memory_of(std::process::id()));
    report.disk(place.path(), options.messages);
    drop(groups);
    rig.close()?;
    report.finish(common)?;
    ensure!(faults == 0, "something was lost or given out twice");
    place.clear()
}

/// Sends everything and lets all groups consume it; answers with the latency of the batches sent.
fn consume_all(
    rig: &Rig,
    options: &GroupsOptions,
    groups: &[Ticks],
    clock: &SystemClock,
) -> Result<Latency> {
    let end = Duration::from_secs(options.secs_max);
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (group, number) in groups.iter().zip(0..) {
            for thread in 0..options.consumers {
                let failed = &failed;
                let work = move || {
                    let outcome = group.consume(options, clock, end, failed);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome
                };
                let builder = std::thread::Builder::new();
                let builder = builder.name(format!("bench-take-{number}-{thread}"));
                running.push(builder.spawn_scoped(scope, work)?);
            }
        }
        let now = |_: &mut Random| When::Now;
        let sent = Load::new(rig, options.load, now).numbered().send(options.messages);
        failed.fetch_or(sent.is_err(), Ordering::Relaxed);
        for thread in running {
            thread.join().ok().context("a consumer ended by a panic")??;
        }
        Ok(sent?.latency)
    })
}

/// A group, and the numbers it has ticked off.
struct Ticks {
    consumer: Consumer,
    given: Bitmap,
    acked: Bitmap,
    left: AtomicU64,
    calls: Mutex<Calls>,
    waiting: (Mutex<()>, Condvar),
}

struct Calls {
    takes: Latency,
    acks: Latency,
}

impl Ticks {
    fn new(consumer: Consumer, messages: u64) -> Self {
        Self {
            consumer,
            given: Bitmap::new(messages),
            acked: Bitmap::new(messages),
            left: AtomicU64::new(messages),
            calls: Mutex::new(Calls { takes: Latency::new(), acks: Latency::new() }),
            waiting: (Mutex::new(()), Condvar::new()),
        }
    }

    /// Takes and acks until everything is acked.
    fn consume(
        &self,
        options: &GroupsOptions,
        clock: &SystemClock,
        end: Duration,
        failed: &AtomicBool,
    ) -> Result<()> {
        let (mut takes, mut acks) = (Latency::new(), Latency::new());
        while self.left.load(Ordering::Relaxed) > 0 && !failed.load(Ordering::Relaxed) {
            let started = clock.read().monotonic;
            ensure!(started < end, "not through in {} seconds", options.secs_max);
            let taken = self.consumer.take(options.max, LEASE)?;
            if taken.is_empty() {
                self.waiting.1.wait_for(&mut self.waiting.0.lock(), LOOK);
                continue;
            }
            let given = clock.read().monotonic;
            takes.note(given.saturating_sub(started));
            let mut numbers = Vec::with_capacity(taken.len());
            for leased in &taken {
                let bytes = leased.message.body.as_ref().try_into();
                numbers.push(u64::from_le_bytes(bytes.context("a foreign message")?));
            }
            self.given.tick(&numbers)?;
            let receipts: Vec<Receipt> = taken.into_iter().map(|leased| leased.receipt).collect();
            let held = futures_executor::block_on(self.consumer.ack(&receipts))?;
            acks.note(clock.read().monotonic.saturating_sub(given));
            if held.contains(&false) {
                bail!("a receipt was not held");
            }
            let fresh = self.acked.tick(&numbers)?;
            self.left.fetch_sub(fresh, Ordering::Relaxed);
        }
        let mut calls = self.calls.lock();
        calls.takes.add(&takes);
        calls.acks.add(&acks);
        Ok(())
    }

    /// Given out, lost, given out twice, acked, acked twice.
    fn counts(&self, messages: u64) -> [u64; 5] {
        let (given, acked) = (self.given.count(), self.acked.count());
        [given, messages - given, self.given.twice(), acked, self.acked.twice()]
    }
}

/// Numbers that were ticked off, each counted once.
struct Bitmap {
    words: Vec<AtomicU64>,
    twice: AtomicU64,
}

impl Bitmap {
    fn new(size: u64) -> Self {
        let words = size.div_ceil(64);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), twice: AtomicU64::new(0) }
    }

    /// Answers how many of them were not ticked off before.
    fn tick(&self, numbers: &[u64]) -> Result<u64> {
        let mut twice = 0;
        for number in numbers {
            let word = usize::try_from(number / 64).ok().and_then(|at| self.words.get(at));
            let bit = 1 << (number % 64);
            let before = word.context("a number nobody sent")?.fetch_or(bit, Ordering::Relaxed);
            twice += u64::from(before & bit != 0);
        }
        self.twice.fetch_add(twice, Ordering::Relaxed);
        Ok(numbers.len() as u64 - twice)
    }

    fn count(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.words.iter().map(ones).sum()
    }

    fn twice(&self) -> u64 {
        self.twice.load(Ordering::Relaxed)
    }
}
