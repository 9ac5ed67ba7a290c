//! What it costs to give every message a name: the same load without and with own ids.
//!
//! Each message follows from its number alone, so that it can be sent again word for word. Some of
//! the named ones are sent again, before and after a restart, and must be known every time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use punctual_broker::{Request, Scheduled};
use punctual_model::{Clock as _, Message, MessageId, SystemClock};
use serde_json::json;

use crate::args::{Common, LoadOptions, OwnIdsOptions};
use crate::load::{far, topic};
use crate::measure::{self, Latency, Memory, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, number, say, short};
use crate::rig::{Place, Rig, disk_needed};

/// One of so many messages is sent again.
const AGAIN_ONE_OF: u64 = 100;
/// Where in the data directory the names are.
const NAMES_DIR: &str = "ids";

pub(crate) fn run(common: &Common, options: &OwnIdsOptions) -> Result<()> {
    let load = options.load;
    let settings = json!({
        "pending": options.pending, "body": load.body, "batch": load.batch,
        "producers": load.producers, "in_flight": load.in_flight, "due": "random over 40 days",
        "own_id": own_id(12_345_678), "sent_again_one_of": AGAIN_ONE_OF,
    });
    let name = format!("own-ids-{}", short(options.pending));
    let mut report = Report::new(name, common, settings);
    let plain = fill(common, options, false)?;
    plain.place.clear()?;
    let named = fill(common, options, true)?;
    compare(&mut report, &plain.filled, &named.filled);
    let ids_disk = measure::allocated(&named.place.path().join(NAMES_DIR));
    report.figure("disk bytes of each name", ids_disk as f64 / options.pending as f64);

    let clock = SystemClock::new();
    let rig = Rig::open(named.place.path(), common)?;
    report.figure("start with names, seconds", clock.read().monotonic.as_secs_f64());
    let sender = Sender::new(&rig, load, true);
    let (cost, latency) = sender.send_again(&named.filled.sample)?;
    report.figure("sent again per second, after a restart", cost.rate());
    report.figure("CPU seconds per million sent again, after a restart", cost.cpu_per_million());
    rig.close()?;
    let (_, before) = named.filled.again.as_ref().context("names are sent again")?;
    let latencies = [
        ("first, without own ids", &plain.filled.latency),
        ("first, with own ids", &named.filled.latency),
        ("again", before),
        ("again, after a restart", &latency),
    ];
    let table = latencies
        .iter()
        .fold(Table::of_latency("batch latency"), |table, (name, one)| table.latency(name, one));
    report.table(table);
    report.latency_chart("batch latency", &latencies);
    report.finish(common)?;
    named.place.clear()
}

fn own_id(number: u64) -> String {
    format!("order-{number}-timeout")
}

/// A store that was filled, and stopped.
struct Store {
    place: Place,
    filled: Filled,
}

/// What filling a store took.
struct Filled {
    cost: Cost,
    latency: Latency,
    memory: Memory,
    disk: u64,
    /// Names and moves, and the memory their table takes.
    names: (u64, usize),
    /// Number and id of some messages.
    sample: Vec<(u64, MessageId)>,
    /// How fast they were sent again.
    again: Option<(Cost, Latency)>,
}

fn fill(common: &Common, options: &OwnIdsOptions, is_named: bool) -> Result<Store> {
    let place = Place::fresh(common, disk_needed(options.pending, options.load.body + 64))?;
    let rig = Rig::open(place.path(), common)?;
    let sender = Sender::new(&rig, options.load, is_named);
    let (cost, (latency, sample)) = sender.send_all(options.pending)?;
    let what = if is_named { "with own ids" } else { "without" };
    say(&format!("{what:>14}  {:>12} /s", number(cost.rate())));
    let names = rig.engine.store().ids_size();
    let memory = memory_of(std::process::id());
    let again = is_named.then(|| sender.send_again(&sample)).transpose()?;
    rig.close()?;
    let disk = measure::allocated(place.path());
    Ok(Store { place, filled: Filled { cost, latency, memory, disk, names, sample, again } })
}

fn compare(report: &mut Report, plain: &Filled, named: &Filled) {
    report.cost(&named.cost);
    let columns = ["1/s", "CPU s/M", "RSS MB", "disk B each"];
    let mut table = Table::new("own ids", &columns);
    for (name, filled) in [("without", plain), ("with", named)] {
        let disk = filled.disk as f64 / filled.cost.messages as f64;
        let rss = filled.memory.now as f64 / 1e6;
        table.row(name, vec![filled.cost.rate(), filled.cost.cpu_per_million(), rss, disk]);
    }
    report.table(table);
    report.figure("messages per second, without own ids", plain.cost.rate());
    report.figure("rate with own ids as a share", named.cost.rate() / plain.cost.rate());
    let (names, memory) = named.names;
    report.figure("names and moves", names as f64);
    report.figure("memory of names, MB", memory as f64 / 1e6);
    report.figure("memory bytes of each name", memory as f64 / (names as f64).max(1.0));
    report.memory(named.memory);
    if let Some((cost, _)) = &named.again {
        report.figure("sent again", cost.messages as f64);
        report.figure("sent again per second", cost.rate());
        report.figure("CPU seconds per million sent again", cost.cpu_per_million());
    }
}

/// Sends messages by their numbers.
struct Sender<'a> {
    rig: &'a Rig,
    options: LoadOptions,
    is_named: bool,
    pool: Bytes,
}

/// How long batches took, and the ids of some numbers.
type Sent = (Latency, Vec<(u64, MessageId)>);

impl<'a> Sender<'a> {
    fn new(rig: &'a Rig, options: LoadOptions, is_named: bool) -> Self {
        let pool = Bytes::from(Random::new(1).bytes(options.body + 4096));
        Self { rig, options, is_named, pool }
    }

    fn request(&self, number: u64) -> Request {
        let mut random = Random::new(number);
        let at = usize::try_from(random.below(4096)).expect("below 4096");
        let body = self.pool.slice(at..at + self.options.body);
        let message = Message { key: None, headers: Vec::new(), body };
        let own_id = self.is_named.then(|| own_id(number).into());
        Request { own_id, ..Request::new(message, far(&mut random)) }
    }

    /// Sends the numbers from 0 on and keeps the ids of some.
    fn send_all(&self, count: u64) -> Result<(Cost, Sent)> {
        let clock = SystemClock::new();
        let cpu = measure::cpu();
        let next = AtomicU64::new(0);
        let batch = self.options.batch as u64;
        let take = || {
            let first = next.fetch_add(batch, Ordering::Relaxed);
            (first < count).then(|| (first..count.min(first + batch)).collect::<Vec<u64>>())
        };
        let sent = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.options.producers {
                let thread = std::thread::Builder::new().name(format!("bench-send-{number}"));
                threads.push(thread.spawn_scoped(scope, || self.send_new(take))?);
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Sent>>| {
                thread.join().ok().context("a producer ended by a panic")?
            };
            threads.into_iter().map(join).collect::<Result<Vec<Sent>>>()
        })?;
        let took = clock.read().monotonic;
        let cost = Cost { messages: count, took, cpu: measure::cpu().saturating_sub(cpu) };
        let mut latency = Latency::new();
        let mut sample = Vec::new();
        for (some, kept) in sent {
            latency.add(&some);
            sample.extend(kept);
        }
        Ok((cost, (latency, sample)))
    }

    fn send_new(&self, take: impl FnMut() -> Option<Vec<u64>>) -> Result<Sent> {
        let mut sample = Vec::new();
        let latency = self.send(take, |number, scheduled| {
            ensure!(!scheduled.duplicate, "{number} was known before it was sent");
            if number.is_multiple_of(AGAIN_ONE_OF) {
                sample.push((number, scheduled.id));
            }
            Ok(())
        })?;
        Ok((latency, sample))
    }

    /// Sends those messages once more; each must be known by the id that it got first.
    fn send_again(&self, sample: &[(u64, MessageId)]) -> Result<(Cost, Latency)> {
        let clock = SystemClock::new();
        let cpu = measure::cpu();
        let firsts: HashMap<u64, MessageId> = sample.iter().copied().collect();
        let mut numbers: Vec<u64> = firsts.keys().copied().collect();
        Random::new(5).shuffle(&mut numbers);
        let mut batches = numbers.chunks(self.options.batch);
        let take = || batches.next().map(<[u64]>::to_vec);
        let latency = self.send(take, |number, scheduled| {
            let is_same = firsts.get(&number) == Some(&scheduled.id);
            ensure!(scheduled.duplicate && is_same, "{number} sent again is {scheduled:?}");
            Ok(())
        })?;
        let took = clock.read().monotonic;
        let messages = numbers.len() as u64;
        Ok((Cost { messages, took, cpu: measure::cpu().saturating_sub(cpu) }, latency))
    }

    /// Sends batches of numbers, several at once, for as long as there are any.
    fn send(
        &self,
        mut take: impl FnMut() -> Option<Vec<u64>>,
        mut each: impl FnMut(u64, &Scheduled) -> Result<()>,
    ) -> Result<Latency> {
        let (clock, topic) = (&SystemClock::new(), &topic());
        let mut latency = Latency::new();
        let mut waiting = FuturesUnordered::new();
        futures_executor::block_on(async {
            loop {
                while waiting.len() < self.options.in_flight {
                    let Some(numbers) = take() else { break };
                    let batch = numbers.iter().map(|number| self.request(*number)).collect();
                    waiting.push(async move {
                        let started = clock.read().monotonic;
                        let answer = self.rig.broker.schedule(topic, batch).await;
                        (numbers, answer, clock.read().monotonic.saturating_sub(started))
                    });
                }
                let Some((numbers, answer, took)) = waiting.next().await else { return Ok(()) };
                latency.note(took);
                for (number, scheduled) in numbers.into_iter().zip(&answer?) {
                    each(number, scheduled)?;
                }
            }
        })
        .map(|()| latency)
    }
}
