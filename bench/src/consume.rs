//! A backlog consumed over HTTP: receive and ack in batches, as fast as it goes.
//!
//! The backlog is made in process, before the server starts on it. The client is as small as can be
//! and shares the machine's cores with the server; it looks for receipts and does not read the rest.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_broker::When;
use punctual_model::{Clock as _, SystemClock};
use serde_json::json;

use crate::args::{Common, ConsumeOptions};
use crate::load::Load;
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, Rig, disk_needed};
use crate::server::{Connection, Server, ack_request, acked, receipts, request, talk};

const PATH: &str = "/v1/topics/bench/groups/consumers";
const WAIT_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(common: &Common, options: &ConsumeOptions) -> Result<()> {
    let place = Place::fresh(common, disk_needed(2 * options.messages, options.load.body))?;
    let rig = Rig::open(place.path(), common)?;
    Load::new(&rig, options.load, |_: &mut Random| When::Now).send(options.messages)?;
    ensure!(rig.watch.wait_for(options.messages, WAIT_MAX), "not all came out in five minutes");
    rig.close()?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let measured = measure(common, options, &server);
    let stopped = server.stop();
    measured?.finish(common)?;
    stopped?;
    place.clear()
}

fn measure(common: &Common, options: &ConsumeOptions, server: &Server) -> Result<Report> {
    let (server_cpu, client_cpu) = (server.cpu()?, measure::cpu());
    let (seen, took) = drive(server.address, options)?;
    let cost = Cost { messages: seen.acked, took, cpu: server.cpu()?.saturating_sub(server_cpu) };
    let client = Cost { cpu: measure::cpu().saturating_sub(client_cpu), ..cost };
    ensure!(
        seen.acked == options.messages,
        "{} messages were acked instead of {}",
        seen.acked,
        options.messages
    );
    let settings = json!({
        "messages": options.messages, "body": options.load.body, "partitions": 4,
        "connections": options.consumers, "client_threads": options.threads,
        "messages_per_receive": options.max,
    });
    let mut report = Report::new(format!("consume-{}", short(options.messages)), common, settings);
    report.table(
        Table::of_latency("latency of a call")
            .latency("receive", &seen.receives)
            .latency("ack", &seen.acks),
    );
    let chart = [("receive", &seen.receives), ("ack", &seen.acks)];
    report.latency_chart("latency of a call", &chart);
    report.figure("messages", cost.messages as f64);
    report.figure("seconds", cost.took.as_secs_f64());
    report.figure("messages received and acked per second", cost.rate());
    report.figure("server CPU seconds per million", cost.cpu_per_million());
    report.figure("client CPU seconds per million", client.cpu_per_million());
    // Of the server, not of this program.
    report.memory(memory_of(server.pid()));
    Ok(report)
}

/// What the consumers saw.
struct Seen {
    acked: u64,
    receives: Latency,
    acks: Latency,
}

impl Seen {
    fn nothing() -> Self {
        Self { acked: 0, receives: Latency::new(), acks: Latency::new() }
    }
}

/// Consumes until nothing is left.
fn drive(address: SocketAddr, options: &ConsumeOptions) -> Result<(Seen, Duration)> {
    let clock = SystemClock::new();
    let threads = options.threads.min(options.consumers);
    let left = AtomicU64::new(options.messages);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for thread in 0..threads {
            let extra = usize::from(thread < options.consumers % threads);
            let (clock, left, count) = (&clock, &left, options.consumers / threads + extra);
            let builder = std::thread::Builder::new().name(format!("bench-consume-{thread}"));
            let work = move || consume(address, options.max, count, clock, left);
            running.push(builder.spawn_scoped(scope, work)?);
        }
        let mut all = Seen::nothing();
        for thread in running {
            let seen = thread.join().ok().context("a client thread ended by a panic")??;
            all.acked += seen.acked;
            all.receives.add(&seen.receives);
            all.acks.add(&seen.acks);
        }
        Ok((all, clock.read().monotonic))
    })
}

/// What a connection waits for.
enum Awaits {
    Messages,
    /// So many receipts to be called acked.
    Acks(u64),
}

fn consume(
    address: SocketAddr,
    max: usize,
    count: usize,
    clock: &SystemClock,
    left: &AtomicU64,
) -> Result<Seen> {
    // Whoever asks before another has acked the last of it waits a little instead of asking again.
    let json = json!({ "max": max, "wait": "100ms", "lease": "60s" }).to_string();
    let receive = request("POST", &format!("{PATH}/receive"), json.as_bytes());
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open(address)?;
        connection.send(&receive, clock)?;
        connections.push((connection, Awaits::Messages));
    }
    let mut seen = Seen::nothing();
    talk(connections, clock, |connection, awaits| {
        let took = clock.read().monotonic.saturating_sub(connection.sent_at);
        if let Awaits::Acks(count) = *awaits {
            seen.acks.note(took);
            let acked = acked(connection.answer());
            ensure!(acked == count, "{acked} of {count} receipts were acked");
            seen.acked += acked;
            left.fetch_sub(acked, Ordering::Relaxed);
        } else {
            let (request, count) = ack_request(PATH, receipts(connection.answer()));
            if count > 0 {
                seen.receives.note(took);
                *awaits = Awaits::Acks(count);
                return Ok(Some(Cow::Owned(request)));
            }
        }
        *awaits = Awaits::Messages;
        let more = left.load(Ordering::Relaxed) > 0;
        Ok(more.then_some(Cow::Borrowed(receive.as_slice())))
    })?;
    Ok(seen)
}
