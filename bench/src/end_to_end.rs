//! From the due time to the moment at which a consumer, waiting over HTTP, has the message.
//!
//! Everything is scheduled in advance, over HTTP and in random order. Each consumer has one receive
//! under way all the time; its messages are acked beside that, on a connection of their own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_model::{Clock as _, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::args::{Common, EndToEndOptions};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table, short};
use crate::rig::{Place, disk_needed, pause};
use crate::server::{Connection, Server, ack_request, acked, receipts, request, texts_after};

const TOPIC: &str = "/v1/topics/bench";
const PATH: &str = "/v1/topics/bench/groups/consumers";
/// Messages of each request that schedules.
const BATCH: u64 = 1000;
/// Messages a second that even a slow machine takes; decides how far ahead the first is due.
const FILL_RATE: u64 = 25_000;
/// Digits of a due time in milliseconds, with which each body begins.
const DUE_DIGITS: usize = 13;
/// Most receipts of one ack.
const ACKS_MAX: usize = 1000;

pub(crate) fn run(common: &Common, options: &EndToEndOptions) -> Result<()> {
    let count = options.rate * options.secs;
    let place = Place::fresh(common, disk_needed(2 * count, options.body))?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let measured = measure(common, options, &server);
    let stopped = server.stop();
    let (report, least_ms) = measured?;
    report.finish(common)?;
    stopped?;
    ensure!(least_ms >= 0.0, "a message was {} ms early", -least_ms);
    place.clear()
}

fn measure(common: &Common, options: &EndToEndOptions, server: &Server) -> Result<(Report, f64)> {
    let count = options.rate * options.secs;
    let clock = SystemClock::new();
    let start_ms = clock.read().timestamp().as_millis() + 4000 + count * 1000 / FILL_RATE;
    Connection::open(server.address)?.call_json("PUT", PATH, &json!({}))?;
    schedule(server.address, options, start_ms)?;
    let (start, ready) = (Duration::from_millis(start_ms), clock.read().wall);
    ensure!(ready < start, "scheduling in advance took too long; ask for fewer");

    let (server_cpu, client_cpu) = (server.cpu()?, measure::cpu());
    let end = start + Duration::from_secs(options.secs + 60);
    let (seen, acks) = consume(server.address, options, count, end)?;
    let took = seen.last.saturating_sub(start);
    let cost = Cost { messages: count, took, cpu: server.cpu()?.saturating_sub(server_cpu) };
    let client = Cost { cpu: measure::cpu().saturating_sub(client_cpu), ..cost };

    let settings = json!({
        "due_per_second": options.rate, "seconds": options.secs, "body": options.body,
        "connections": options.consumers, "messages_per_receive_max": options.max,
        "partitions": 4,
    });
    let mut report = Report::new(format!("end-to-end-{}", short(options.rate)), common, settings);
    report.table(
        Table::of_latency("lateness and latency")
            .latency("due to received", &seen.lateness)
            .latency("acks beside that", &acks),
    );
    report.latency_chart(
        "wall clock when the answer was there minus due time",
        &[("due to received", &seen.lateness)],
    );
    report.figure("messages", count as f64);
    report.figure("messages per receive", count as f64 / (seen.receives as f64).max(1.0));
    report.figure("least lateness, ms", seen.least_ms);
    report.figure("server CPU seconds per million", cost.cpu_per_million());
    report.figure("client CPU seconds per million", client.cpu_per_million());
    // Of the server, not of this program.
    report.memory(memory_of(server.pid()));
    Ok((report, seen.least_ms))
}

/// Schedules all messages at random moments of the time that is measured.
fn schedule(address: SocketAddr, options: &EndToEndOptions, start_ms: u64) -> Result<()> {
    let mut random = Random::new(3);
    let mut connection = Connection::open(address)?;
    let filler = "x".repeat(options.body.saturating_sub(DUE_DIGITS));
    let mut left = options.rate * options.secs;
    while left > 0 {
        let message = |_| -> Value {
            let due_ms = start_ms + random.below(options.secs * 1000);
            json!({ "body": format!("{due_ms}{filler}"), "deliver_at": due_ms })
        };
        let messages: Vec<Value> = (0..left.min(BATCH)).map(message).collect();
        left -= messages.len() as u64;
        let path = format!("{TOPIC}/messages");
        connection.call_json("POST", &path, &json!({ "messages": messages }))?;
    }
    Ok(())
}

/// What the consumers saw.
struct Seen {
    lateness: Latency,
    least_ms: f64,
    receives: u64,
    last: Duration,
}

impl Seen {
    fn nothing() -> Self {
        let (lateness, last) = (Latency::new(), Duration::ZERO);
        Self { lateness, least_ms: f64::INFINITY, receives: 0, last }
    }

    fn add(&mut self, other: &Self) {
        self.lateness.add(&other.lateness);
        self.least_ms = self.least_ms.min(other.least_ms);
        self.receives += other.receives;
        self.last = self.last.max(other.last);
    }
}

/// Consumes until all have come; answers with the latency of the acks.
fn consume(
    address: SocketAddr,
    options: &EndToEndOptions,
    count: u64,
    end: Duration,
) -> Result<(Seen, Latency)> {
    let (left, failed) = (AtomicU64::new(count), AtomicBool::new(false));
    let (left, failed) = (&left, &failed);
    let (give, to_ack) = channel();
    std::thread::scope(|scope| {
        let thread = |name: String| std::thread::Builder::new().name(name);
        let mut consumers = Vec::new();
        for number in 0..options.consumers {
            let give = give.clone();
            let work = move || {
                let outcome = wait_for_messages(address, options.max, &give, left, failed);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            };
            let builder = thread(format!("bench-wait-{number}"));
            consumers.push(builder.spawn_scoped(scope, work)?);
        }
        drop(give);
        let acks = thread("bench-ack".to_owned()).spawn_scoped(scope, move || {
            let outcome = ack_all(address, &to_ack);
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            outcome
        })?;
        let clock = SystemClock::new();
        while left.load(Ordering::Relaxed) > 0 && !failed.load(Ordering::Relaxed) {
            failed.fetch_or(clock.read().wall > end, Ordering::Relaxed);
            pause(Duration::from_millis(100));
        }
        let mut all = Seen::nothing();
        for consumer in consumers {
            all.add(&consumer.join().ok().context("a consumer ended by a panic")??);
        }
        let (acks, acked) = acks.join().ok().context("acking ended by a panic")??;
        let left = left.load(Ordering::Relaxed);
        ensure!(left == 0, "{left} of {count} did not come within a minute of the last due time");
        ensure!(acked == count, "{acked} of {count} were acked");
        Ok((all, acks))
    })
}

/// One receive after the other, with what it brings handed on to be acked.
fn wait_for_messages(
    address: SocketAddr,
    max: usize,
    give: &Sender<Vec<u8>>,
    left: &AtomicU64,
    failed: &AtomicBool,
) -> Result<Seen> {
    let json = json!({ "max": max, "wait": "20s", "lease": "60s" }).to_string();
    let receive = request("POST", &format!("{PATH}/receive"), json.as_bytes());
    let clock = SystemClock::new();
    let mut connection = Connection::open(address)?;
    let mut seen = Seen::nothing();
    let look = Timespec::try_from(Duration::from_millis(100))?;
    loop {
        connection.send(&receive, &clock)?;
        loop {
            let mut fds = [PollFd::new(&connection.stream, PollFlags::IN)];
            let is_ready = poll(&mut fds, Some(&look))? > 0;
            if is_ready && connection.receive()? {
                break;
            }
            if left.load(Ordering::Relaxed) == 0 || failed.load(Ordering::Relaxed) {
                return Ok(seen);
            }
        }
        let wall = clock.read().wall;
        let mut count = 0;
        for body in texts_after(connection.answer(), b"\"body\":\"") {
            let digits = std::str::from_utf8(body.get(..DUE_DIGITS).context("a foreign body")?)?;
            let due = Duration::from_millis(digits.parse()?);
            let late_ms = (wall.as_secs_f64() - due.as_secs_f64()) * 1e3;
            seen.least_ms = seen.least_ms.min(late_ms);
            seen.lateness.note(wall.saturating_sub(due));
            count += 1;
        }
        if count > 0 {
            seen.receives += 1;
            seen.last = wall;
            // Gone when acking has failed, which is told elsewhere.
            let _untold = give.send(connection.answer().to_vec()).is_err();
            left.fetch_sub(count, Ordering::Relaxed);
        }
    }
}

/// Acks what comes, as much at once as there is.
fn ack_all(address: SocketAddr, to_ack: &Receiver<Vec<u8>>) -> Result<(Latency, u64)> {
    let clock = SystemClock::new();
    let mut connection = Connection::open(address)?;
    let (mut latency, mut all) = (Latency::new(), 0);
    while let Ok(first) = to_ack.recv() {
        let more = to_ack.try_iter().collect::<Vec<_>>();
        let answers = [vec![first], more].concat();
        let found: Vec<&[u8]> = answers.iter().flat_map(|answer| receipts(answer)).collect();
        for some in found.chunks(ACKS_MAX) {
            let (request, count) = ack_request(PATH, some.iter().copied());
            let done = acked(connection.call(&request, &clock)?);
            ensure!(done == count, "{done} of {count} receipts were acked");
            latency.note(clock.read().monotonic.saturating_sub(connection.sent_at));
            all += done;
        }
    }
    Ok((latency, all))
}
