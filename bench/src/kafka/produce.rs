//! Records coming in: batches that were made before, several under way on every connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use punctual_kafka_wire::frame;
use punctual_kafka_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use punctual_kafka_wire::records::{BatchWriter, NewRecord, Opening};
use punctual_model::{Clock as _, SystemClock};

use crate::args::{Common, KafkaOptions};
use crate::kafka::fetch::Log;
use crate::kafka::link::{Link, number};
use crate::kafka::{TOPIC, memory, rates};
use crate::measure::{Latency, cpu};
use crate::random::Random;
use crate::report::{Cost, Report, Table};
use crate::server::Server;

/// The version that is spoken: the last one in which an answer has a fixed layout.
const VERSION: i16 = 7;
/// Size, correlation id, and the count of topics.
const BEFORE_TOPIC: usize = 4 + 4 + 4;
/// Count of partitions, partition, error, offset, time, start of the log, and throttle time.
const AFTER_TOPIC: usize = 4 + 4 + 2 + 8 + 8 + 8 + 4;
/// Different frames each connection sends in turn.
const FRAMES: usize = 16;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of each record's value.
    pub(crate) record: usize,
    /// Bytes of each batch, about.
    pub(crate) batch: usize,
    /// Whether each record has a delay.
    pub(crate) delayed: bool,
}

/// Every size of record in every size of batch.
pub(crate) fn shapes(options: &KafkaOptions) -> Vec<Shape> {
    let of = |record: usize| {
        options.batches.iter().map(move |&batch| Shape { record, batch, delayed: false })
    };
    options.records.iter().flat_map(|&record| of(record)).collect()
}

/// The smallest records, each with a delay.
pub(crate) fn delayed_shapes(options: &KafkaOptions) -> Vec<Shape> {
    let record = options.records.iter().copied().min().unwrap_or(100);
    options.batches.iter().map(|&batch| Shape { record, batch, delayed: true }).collect()
}

pub(crate) fn table(title: &str) -> Table {
    let columns = ["records/s", "MB/s", "server s/M", "client s/M", "p50 ms", "p99 ms"];
    rates(title, &columns)
}

pub(crate) fn run(
    common: &Common,
    options: &KafkaOptions,
    server: &Server,
    shape: &Shape,
    (table, report): (&mut Table, &mut Report),
) -> Result<()> {
    let (server_cpu, client_cpu) = (server.cpu()?, cpu());
    let end = Until::Time(Duration::from_secs(options.secs));
    let (sent, took) = send_all(server.kafka, options, shape, end)?;
    let cost = Cost { messages: sent.records, took, cpu: server.cpu()?.saturating_sub(server_cpu) };
    let client = Cost { cpu: cpu().saturating_sub(client_cpu), ..cost };
    let megabytes = sent.bytes as f64 / 1e6 / took.as_secs_f64();
    let name = format!(
        "{}, {} B in {} KiB{}",
        common.durability.word(),
        shape.record,
        shape.batch / 1024,
        if shape.delayed { ", delayed" } else { "" },
    );
    report.figure(&format!("records per second, {name}"), cost.rate());
    report.figure(&format!("peak RSS, MB, {name}"), memory(server));
    let (server_million, client_million) = (cost.cpu_per_million(), client.cpu_per_million());
    let millis = sent.latency.millis();
    let (middle, high) = (millis[0], millis.get(2).copied().unwrap_or(f64::NAN));
    table.row(name, vec![cost.rate(), megabytes, server_million, client_million, middle, high]);
    Ok(())
}

/// Fills every partition, and answers what is in them.
pub(crate) fn fill(server: &Server, shape: &Shape, options: &KafkaOptions) -> Result<Log> {
    let (bytes, records) = batch(shape, &mut Random::new(1))?;
    let share = options.megabytes * 1_000_000 / options.connections as u64;
    let batches = (share / bytes.len() as u64).max(1);
    send_all(server.kafka, options, shape, Until::Batches(batches))?;
    Ok(Log { batch_bytes: bytes.len(), batch_records: records, end: batches * records })
}

/// How long a connection sends.
#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Batches(u64),
}

/// What the connections did.
struct Sent {
    records: u64,
    bytes: u64,
    latency: Latency,
}

/// Sends on all connections, each to a partition of its own.
fn send_all(
    address: SocketAddr,
    options: &KafkaOptions,
    shape: &Shape,
    until: Until,
) -> Result<(Sent, Duration)> {
    let mut frames = Vec::new();
    for connection in 0..options.connections {
        frames.push(Frames::new(shape, connection)?);
    }
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (connection, frames) in frames.iter().enumerate() {
            let clock = &clock;
            let builder = std::thread::Builder::new().name(format!("bench-produce-{connection}"));
            let work = move || send(address, frames, options.under_way, clock, until);
            running.push(builder.spawn_scoped(scope, work)?);
        }
        let mut all = Sent { records: 0, bytes: 0, latency: Latency::new() };
        for thread in running {
            let sent = thread.join().ok().context("a client thread ended by a panic")??;
            all.records += sent.records;
            all.bytes += sent.bytes;
            all.latency.add(&sent.latency);
        }
        Ok((all, clock.read().monotonic))
    })
}

/// Requests ready to be sent.
struct Frames {
    frames: Vec<Bytes>,
    /// Of each.
    records: u64,
    batch_bytes: u64,
}

impl Frames {
    fn new(shape: &Shape, partition: usize) -> Result<Self> {
        let mut random = Random::new(partition as u64 + 1);
        let (mut frames, mut records, mut batch_bytes) = (Vec::new(), 0, 0);
        for _ in 0..FRAMES {
            let (batch, count) = batch(shape, &mut random)?;
            (records, batch_bytes) = (count, batch.len() as u64);
            frames.push(request(partition, batch)?);
        }
        Ok(Self { frames, records, batch_bytes })
    }
}

fn request(partition: usize, batch: Bytes) -> Result<Bytes> {
    let partition = PartitionProduceData { index: i32::try_from(partition)?, records: Some(batch) };
    let topic = TopicProduceData {
        name: TOPIC.to_owned(),
        partition_data: vec![partition],
        ..TopicProduceData::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..ProduceRequest::default()
    };
    Ok(frame::call(1, VERSION, Some("bench"), &request)?)
}

/// A batch of random values, and how many records it has; all of one shape are of one size.
fn batch(shape: &Shape, random: &mut Random) -> Result<(Bytes, u64)> {
    let now = SystemClock::new().read().timestamp().as_millis();
    let opening = Opening { base_timestamp: i64::try_from(now)?, ..Opening::default() };
    let mut writer = BatchWriter::new(opening);
    let mut count = 0;
    loop {
        let value = random.bytes(shape.record);
        // Up to 40 days, in as many digits.
        let delay = format!("{}ms", 1_000_000_000 + random.below(2_000_000_000));
        let header: [(&[u8], Option<&[u8]>); 1] = [(b"punctual-delay", Some(delay.as_bytes()))];
        let headers = if shape.delayed { &header[..] } else { &[] };
        writer.push(&NewRecord {
            offset_delta: count,
            value: Some(&value),
            headers,
            ..NewRecord::default()
        });
        count += 1;
        if writer.size() + shape.record + 16 > shape.batch {
            return Ok((writer.finish()?, count.into()));
        }
    }
}

/// Sends frame after frame, with so many under way.
fn send(
    address: SocketAddr,
    frames: &Frames,
    under_way: usize,
    clock: &SystemClock,
    until: Until,
) -> Result<Sent> {
    let mut link = Link::open(address)?;
    let mut sent = Sent { records: 0, bytes: 0, latency: Latency::new() };
    let mut times = VecDeque::with_capacity(under_way);
    for (begun, frame) in (0..).zip(frames.frames.iter().cycle()) {
        let now = clock.read().monotonic;
        let over = match until {
            Until::Time(end) => now >= end,
            Until::Batches(count) => begun >= count,
        };
        if over {
            break;
        }
        if times.len() == under_way {
            let since = times.pop_front().context("nothing is under way")?;
            answer(&mut link)?;
            sent.note(frames, clock.read().monotonic.saturating_sub(since));
        }
        times.push_back(clock.read().monotonic);
        link.send(frame)?;
    }
    for since in times {
        answer(&mut link)?;
        sent.note(frames, clock.read().monotonic.saturating_sub(since));
    }
    Ok(sent)
}

impl Sent {
    fn note(&mut self, frames: &Frames, took: Duration) {
        self.records += frames.records;
        self.bytes += frames.batch_bytes;
        self.latency.note(took);
    }
}

/// Takes an answer, which is to say that the batch was stored.
fn answer(link: &mut Link) -> Result<()> {
    let topic = 2 + TOPIC.len();
    let answer = link.take(BEFORE_TOPIC + topic + AFTER_TOPIC)?;
    let error = i16::from_be_bytes(number(answer, BEFORE_TOPIC + topic + 8)?);
    ensure!(error == 0, "the server answered with the error {error}");
    Ok(())
}
