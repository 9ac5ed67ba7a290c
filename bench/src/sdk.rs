//! The Rust client: sends one by one from many tasks, sends in batches with and without own ids, and
//! a consumer that acks everything.
//!
//! The client shares the machine's cores with the server and runs on one thread. Every message is
//! made when it is sent, and every outcome is looked at.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::future::try_join_all;
use punctual_client::{Client, Message, Producer, ProducerOptions};
use punctual_model::{Clock as _, SystemClock};
use serde_json::json;
use tokio::sync::Notify;

use crate::args::{Common, SdkOptions};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table};
use crate::rig::Place;
use crate::server::Server;

/// Tasks that send batches.
const BATCH_TASKS: u64 = 4;
/// Longest wait for the consumer.
const CONSUME_MAX: Duration = Duration::from_secs(600);

pub(crate) fn run(common: &Common, options: &SdkOptions) -> Result<()> {
    let place = Place::fresh(common, 8 << 30)?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(measure_all(common, options, &server));
    let stopped = server.stop();
    measured?.finish(common)?;
    stopped?;
    place.clear()
}

/// What a way of sending or consuming did.
struct Done {
    messages: u64,
    /// Of a call: a message, or a batch.
    latency: Latency,
}

async fn measure_all(common: &Common, options: &SdkOptions, server: &Server) -> Result<Report> {
    let settings = json!({
        "tasks": options.tasks, "batch": options.batch, "body": options.body,
        "seconds_each": options.secs, "consumed": options.messages,
    });
    let mut report = Report::new("sdk", common, settings);
    let mut rates = Table::new("way", &["messages/s", "server s/M", "client s/M"]);
    let mut latencies = Table::of_latency("latency of a call");
    let client = Client::connect(&format!("http://{}", server.address)).await?;
    let nameless = ProducerOptions { idempotent: false, ..ProducerOptions::default() };
    let nameless = client.producer_with(nameless);
    let mut note = |name: &str, done: Done, cost: Cost, client: Cost| {
        let columns = vec![cost.rate(), cost.cpu_per_million(), client.cpu_per_million()];
        rates.row(name, columns);
        report.figure(&format!("messages per second, {name}"), cost.rate());
        // Handlers that count take no time worth telling.
        if done.latency.len() > 0 {
            latencies.row(name, done.latency.millis());
        }
    };
    let (done, cost, own) = timed(server, one_by_one(&client.producer(), options)).await?;
    note("one by one", done, cost, own);
    let (done, cost, own) = timed(server, in_batches(&client.producer(), options)).await?;
    note("in batches", done, cost, own);
    let (done, cost, own) = timed(server, in_batches(&nameless, options)).await?;
    note("in batches without own ids", done, cost, own);
    fill(&client.producer(), options).await?;
    let (done, cost, own) = timed(server, consume(&client, options)).await?;
    note("consumed and acked", done, cost, own);
    report.table(rates);
    report.table(latencies);
    // Of the server, not of this program.
    report.memory(memory_of(server.pid()));
    Ok(report)
}

/// Does it, and says what it took of the server and of this program.
async fn timed(
    server: &Server,
    work: impl Future<Output = Result<Done>>,
) -> Result<(Done, Cost, Cost)> {
    let (clock, server_cpu, own_cpu) = (SystemClock::new(), server.cpu()?, measure::cpu());
    let done = work.await?;
    let took = clock.read().monotonic;
    let cpu = server.cpu()?.saturating_sub(server_cpu);
    let cost = Cost { messages: done.messages, took, cpu };
    let own = Cost { cpu: measure::cpu().saturating_sub(own_cpu), ..cost };
    Ok((done, cost, own))
}

/// A message with a random body, due within 40 days.
fn message(random: &mut Random, body: usize) -> Message {
    let delay = Duration::from_millis(600_000 + random.below(39 * 86_400_000));
    Message::new(random.bytes(body)).delay(delay)
}

async fn one_by_one(producer: &Producer, options: &SdkOptions) -> Result<Done> {
    let send = |task: usize| async move {
        let (clock, mut random) = (SystemClock::new(), Random::new(task as u64 + 1));
        let mut done = Done { messages: 0, latency: Latency::new() };
        let end = Duration::from_secs(options.secs);
        let mut now = clock.read().monotonic;
        while now < end {
            producer.send("bench", message(&mut random, options.body)).await?;
            let after = clock.read().monotonic;
            done.latency.note(after.saturating_sub(now));
            done.messages += 1;
            now = after;
        }
        anyhow::Ok(done)
    };
    Ok(total(try_join_all((0..options.tasks).map(send)).await?))
}

async fn in_batches(producer: &Producer, options: &SdkOptions) -> Result<Done> {
    let send = |task: u64| async move {
        let (clock, mut random) = (SystemClock::new(), Random::new(task + 1));
        let mut done = Done { messages: 0, latency: Latency::new() };
        let end = Duration::from_secs(options.secs);
        let mut now = clock.read().monotonic;
        while now < end {
            let batch = (0..options.batch).map(|_| message(&mut random, options.body));
            for outcome in producer.send_all("bench", batch).await {
                outcome?;
            }
            let after = clock.read().monotonic;
            done.latency.note(after.saturating_sub(now));
            done.messages += options.batch as u64;
            now = after;
        }
        anyhow::Ok(done)
    };
    Ok(total(try_join_all((0..BATCH_TASKS).map(send)).await?))
}

fn total(parts: Vec<Done>) -> Done {
    let mut all = Done { messages: 0, latency: Latency::new() };
    for part in parts {
        all.messages += part.messages;
        all.latency.add(&part.latency);
    }
    all
}

/// Sends what is to be consumed.
async fn fill(producer: &Producer, options: &SdkOptions) -> Result<()> {
    let body = Bytes::from(Random::new(7).bytes(options.body));
    let messages = (0..options.messages).map(|_| Message::new(body.clone()));
    for outcome in producer.send_all("now", messages).await {
        outcome?;
    }
    Ok(())
}

/// Handles everything that was sent, and waits until it is acked.
async fn consume(client: &Client, options: &SdkOptions) -> Result<Done> {
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (handled, over, all) = (Arc::clone(&count), Arc::clone(&is_over), options.messages);
    let consumer = client.consumer("now", "bench").concurrency(options.tasks).prefetch(1000);
    let running = consumer.start(move |_delivery| {
        let (handled, over) = (Arc::clone(&handled), Arc::clone(&over));
        async move {
            if handled.fetch_add(1, Ordering::Relaxed) + 1 == all {
                over.notify_one();
            }
            Ok(())
        }
    });
    let waited = tokio::time::timeout(CONSUME_MAX, is_over.notified()).await;
    waited.context("the consumer does not get everything")?;
    running.stop().await?;
    Ok(Done { messages: count.load(Ordering::Relaxed), latency: Latency::new() })
}
