//! Records going out, beside a bare sender of the same file.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use punctual_kafka_wire::frame;
use punctual_kafka_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use punctual_model::{Clock as _, SystemClock};

use crate::args::{KafkaOptions, SendingWord};
use crate::kafka::link::{Link, number};
use crate::kafka::produce::{Shape, fill};
use crate::kafka::sender::{Sender, largest_log};
use crate::kafka::{TOPIC, median, memory, rates};
use crate::measure::cpu;
use crate::report::Report;
use crate::server::Server;

/// The version that is spoken: the last one in which an answer has a fixed layout.
const VERSION: i16 = 11;
/// Size, correlation id, throttle time, error, session, and the count of topics.
const BEFORE_TOPIC: usize = 4 + 4 + 4 + 2 + 4 + 4;
/// Count of partitions, partition, error, three offsets, aborted transactions, replica, and the
/// length of the records.
const AFTER_TOPIC: usize = 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4;
/// Offset, and length behind it, of a batch.
const BATCH_START: usize = 12;
/// Bytes of the batches that are fetched.
const BATCH_BYTES: usize = 16 << 10;
/// Bytes of each record.
const RECORD_BYTES: usize = 1024;

/// What went out.
struct Sent {
    bytes: u64,
    took: Duration,
    /// Of the sending side.
    cpu: Duration,
    /// Of the reading side.
    client_cpu: Duration,
}

impl Sent {
    fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took.as_secs_f64()
    }

    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 / 1e9)
    }
}

pub(crate) fn run(
    options: &KafkaOptions,
    server: &Server,
    dir: &Path,
    report: &mut Report,
) -> Result<()> {
    let shape = Shape { record: RECORD_BYTES, batch: BATCH_BYTES, delayed: false };
    let log = fill(server, &shape, options)?;
    let file = largest_log(dir)?;
    let sendfile = Sender::start(&file, SendingWord::Sendfile)?;
    let copy = Sender::start(&file, SendingWord::Copy)?;
    let columns = ["MB/s", "of the limit, %", "sender s/GB", "reader s/GB"];
    let mut table = rates("fetch, 1 KiB records", &columns);
    for &fetch in &options.fetches {
        let mut all: [Vec<Sent>; 3] = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            all[0].push(bare(&sendfile, options)?);
            all[1].push(served(server, &log, fetch, options)?);
            all[2].push(bare(&copy, options)?);
        }
        let ratios = |kind: usize| -> Vec<f64> {
            let pairs = all[kind].iter().zip(&all[0]);
            pairs
                .map(|(one, limit)| one.megabytes_per_second() / limit.megabytes_per_second())
                .collect()
        };
        let size = crate::report::short(fetch as u64 / 1024);
        let names = ["bare sendfile", "fetch", "bare read and write"];
        for (kind, name) in names.iter().enumerate() {
            let share = median(ratios(kind));
            let of = |figure: fn(&Sent) -> f64| median(all[kind].iter().map(figure).collect());
            let client = |sent: &Sent| sent.client_cpu.as_secs_f64() / (sent.bytes as f64 / 1e9);
            let figures = vec![
                of(Sent::megabytes_per_second),
                100.0 * share,
                of(Sent::cpu_per_gigabyte),
                of(client),
            ];
            if kind == 1 {
                report.figure(&format!("fetches of {size} KiB, of the limit, %"), 100.0 * share);
                report.figure(&format!("fetches of {size} KiB, MB per second"), figures[0]);
            }
            table.row(format!("{name}, {size} KiB"), figures);
        }
    }
    report.table(table);
    report.figure("server peak RSS after fetches, MB", memory(server));
    Ok(())
}

/// Drains a bare sender for as long as a round takes.
fn bare(sender: &Sender, options: &KafkaOptions) -> Result<Sent> {
    let before = sender.cpu()?;
    let mut sent = drained(options, |clock, end, _| {
        let mut link = Link::open(sender.address)?;
        let mut bytes = 0;
        while clock.read().monotonic < end {
            // The clock is not asked for every piece.
            for _ in 0..16 {
                bytes += link.drain_some(usize::MAX)? as u64;
            }
        }
        Ok(bytes)
    })?;
    sent.cpu = sender.cpu()?.saturating_sub(before);
    Ok(sent)
}

/// The log that is fetched.
pub(crate) struct Log {
    /// Bytes of each batch.
    pub(crate) batch_bytes: usize,
    /// Records of each batch.
    pub(crate) batch_records: u64,
    /// Where each partition ends.
    pub(crate) end: u64,
}

/// Fetches from the server for as long as a round takes.
fn served(server: &Server, log: &Log, fetch: usize, options: &KafkaOptions) -> Result<Sent> {
    let before = server.cpu()?;
    let mut sent = drained(options, |clock, end, connection| {
        fetched(server.kafka, (connection, fetch), log, options, clock, end)
    })?;
    sent.cpu = server.cpu()?.saturating_sub(before);
    Ok(sent)
}

/// The same reader on every connection, each on a thread of its own.
fn drained(
    options: &KafkaOptions,
    work: impl Fn(&SystemClock, Duration, usize) -> Result<u64> + Sync,
) -> Result<Sent> {
    let (clock, client) = (SystemClock::new(), cpu());
    let end = Duration::from_secs(options.secs);
    let bytes = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for connection in 0..options.connections {
            let (clock, work) = (&clock, &work);
            let builder = std::thread::Builder::new().name(format!("bench-fetch-{connection}"));
            running.push(builder.spawn_scoped(scope, move || work(clock, end, connection))?);
        }
        let mut bytes = 0;
        for thread in running {
            bytes += thread.join().ok().context("a client thread ended by a panic")??;
        }
        Ok::<_, anyhow::Error>(bytes)
    })?;
    let took = clock.read().monotonic;
    Ok(Sent { bytes, took, cpu: Duration::ZERO, client_cpu: cpu().saturating_sub(client) })
}

/// Fetches one partition round and round; the bytes of whole batches that came.
fn fetched(
    address: SocketAddr,
    (partition, fetch): (usize, usize),
    log: &Log,
    options: &KafkaOptions,
    clock: &SystemClock,
    end: Duration,
) -> Result<u64> {
    let mut link = Link::open(address)?;
    // Where a full answer leads to is known before it comes.
    let step = (fetch / log.batch_bytes).max(1) as u64 * log.batch_records;
    let offsets = (0..log.end).step_by(usize::try_from(step)?);
    let frames = offsets.map(|offset| Ok((offset, request(partition, offset, fetch)?)));
    let frames: Vec<(u64, Bytes)> = frames.collect::<Result<_>>()?;
    let mut asked = frames.iter().cycle();
    let mut answered = frames.iter().cycle();
    for (_, frame) in asked.by_ref().take(options.under_way) {
        link.send(frame)?;
    }
    let mut bytes = 0;
    let mut left = options.under_way;
    while left > 0 {
        let (offset, _) = answered.next().context("no requests")?;
        bytes += answer(&mut link, *offset, log)?;
        if clock.read().monotonic < end {
            link.send(&asked.next().context("no requests")?.1)?;
        } else {
            left -= 1;
        }
    }
    Ok(bytes)
}

fn request(partition: usize, offset: u64, fetch: usize) -> Result<Bytes> {
    let partition = FetchPartition {
        partition: i32::try_from(partition)?,
        fetch_offset: i64::try_from(offset)?,
        partition_max_bytes: i32::try_from(fetch)?,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic: TOPIC.to_owned(),
        partitions: vec![partition],
        ..FetchTopic::default()
    };
    let request = FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: i32::try_from(fetch)?,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    Ok(frame::call(1, VERSION, Some("bench"), &request)?)
}

/// Takes an answer; the bytes of its whole batches.
fn answer(link: &mut Link, offset: u64, log: &Log) -> Result<u64> {
    let topic = 2 + TOPIC.len();
    let head = link.take(BEFORE_TOPIC + topic + AFTER_TOPIC)?;
    let error = i16::from_be_bytes(number(head, BEFORE_TOPIC + topic + 8)?);
    ensure!(error == 0, "the server answered with the error {error}");
    let records = i32::from_be_bytes(number(head, head.len() - 4)?);
    let records = usize::try_from(records)?;
    ensure!(records > BATCH_START, "the server sent no records of offset {offset}");
    let start = link.take(BATCH_START)?;
    let first = u64::from_be_bytes(number(start, 0)?);
    let length = usize::try_from(i32::from_be_bytes(number(start, 8)?))?;
    ensure!(first == offset && length + BATCH_START == log.batch_bytes, "not the batch asked for");
    link.drain(records - BATCH_START)?;
    Ok((records - records % log.batch_bytes) as u64)
}
