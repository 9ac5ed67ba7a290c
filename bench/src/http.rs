//! The server over loopback: one message a request, and batches.
//!
//! The client is as small as can be and shares the machine's cores with the server: a few threads,
//! each waiting for whichever of its keep-alive connections has an answer and sending the next
//! request on it at once.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use punctual_model::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::args::{Common, HttpOptions};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table};
use crate::rig::Place;
use crate::server::{Connection, Server, request, talk};

/// Different requests each thread sends in turn.
const REQUESTS: usize = 64;

pub(crate) fn run(common: &Common, options: &HttpOptions) -> Result<()> {
    let place = Place::fresh(common, 4 << 30)?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let measured = both_modes(common, options, &server, place.path());
    let stopped = server.stop();
    measured?.finish(common)?;
    stopped?;
    place.clear()
}

fn both_modes(
    common: &Common,
    options: &HttpOptions,
    server: &Server,
    dir: &Path,
) -> Result<Report> {
    let settings = json!({
        "connections": options.connections, "client_threads": options.threads,
        "seconds_each": options.secs, "body": options.body, "batch": options.batch,
    });
    let mut report = Report::new("http", common, settings);
    let columns = ["requests/s", "messages/s", "server s/M", "client s/M"];
    let mut rates = Table::new("mode", &columns);
    let mut latencies = Table::of_latency("latency");
    let mut all = 0;
    let mut chart = Vec::new();
    for (name, batch) in [("one by one", 1), ("in batches", options.batch)] {
        let (server_cpu, client_cpu) = (server.cpu()?, measure::cpu());
        let (sent, took) = drive(server.address, options, batch)?;
        let messages = sent.requests * batch as u64;
        let cost = Cost { messages, took, cpu: server.cpu()?.saturating_sub(server_cpu) };
        let client = Cost { cpu: measure::cpu().saturating_sub(client_cpu), ..cost };
        let requests = sent.requests as f64 / took.as_secs_f64();
        let (server_million, client_million) = (cost.cpu_per_million(), client.cpu_per_million());
        rates.row(name, vec![requests, cost.rate(), server_million, client_million]);
        report.figure(&format!("messages per second, {name}"), cost.rate());
        report.figure(&format!("server CPU seconds per million, {name}"), server_million);
        latencies.row(name, sent.latency.millis());
        chart.push((name, sent.latency));
        all += messages;
    }
    let chart: Vec<_> = chart.iter().map(|(name, latency)| (*name, latency)).collect();
    report.latency_chart("request latency", &chart);
    report.table(rates);
    report.table(latencies);
    report.figure("messages", all as f64);
    // Of the server, not of this program.
    report.memory(memory_of(server.pid()));
    report.disk(dir, all);
    Ok(report)
}

/// What the connections of one thread did.
pub(crate) struct Sent {
    pub(crate) requests: u64,
    pub(crate) latency: Latency,
}

/// Sends for as long as asked over all connections.
pub(crate) fn drive(
    address: SocketAddr,
    options: &HttpOptions,
    batch: usize,
) -> Result<(Sent, Duration)> {
    let clock = SystemClock::new();
    let end = Duration::from_secs(options.secs);
    let threads = options.threads.min(options.connections);
    let share = |thread: usize| {
        options.connections / threads + usize::from(thread < options.connections % threads)
    };
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for thread in 0..threads {
            let (clock, count) = (&clock, share(thread));
            let builder = std::thread::Builder::new().name(format!("bench-http-{thread}"));
            let work = move || {
                let requests = requests(options, batch, thread as u64);
                drive_some(address, &requests, count, clock, end)
            };
            running.push(builder.spawn_scoped(scope, work)?);
        }
        let mut all = Sent { requests: 0, latency: Latency::new() };
        for thread in running {
            let sent = thread.join().ok().context("a client thread ended by a panic")??;
            all.requests += sent.requests;
            all.latency.add(&sent.latency);
        }
        Ok((all, clock.read().monotonic))
    })
}

/// Requests ready to be sent, with random bodies and due times over 40 days.
fn requests(options: &HttpOptions, batch: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed + 1);
    let mut message = || -> Value {
        let letter = |byte: u8| char::from(b'a' + byte % 26);
        let body: String = random.bytes(options.body).into_iter().map(letter).collect();
        let delay_ms = 600_000 + random.below(39 * 86_400_000);
        json!({ "body": body, "delay": format!("{delay_ms}ms") })
    };
    let mut one = || {
        let json = if batch == 1 {
            message()
        } else {
            json!({ "messages": (0..batch).map(|_| message()).collect::<Vec<_>>() })
        };
        request("POST", "/v1/topics/bench/messages", json.to_string().as_bytes())
    };
    (0..REQUESTS).map(|_| one()).collect()
}

fn drive_some(
    address: SocketAddr,
    requests: &[Vec<u8>],
    count: usize,
    clock: &SystemClock,
    end: Duration,
) -> Result<Sent> {
    let mut sent = Sent { requests: 0, latency: Latency::new() };
    let mut next = requests.iter().cycle();
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open(address)?;
        connection.send(next.next().context("no requests")?, clock)?;
        connections.push((connection, ()));
    }
    talk(connections, clock, |connection, ()| {
        sent.requests += 1;
        let now = clock.read().monotonic;
        sent.latency.note(now.saturating_sub(connection.sent_at));
        let request = next.next().filter(|_| now < end);
        Ok(request.map(|request| Cow::Borrowed(request.as_slice())))
    })?;
    Ok(sent)
}
