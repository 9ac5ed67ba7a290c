//! A cluster that is running: how fast it takes messages, and how fast and how late they are in Kafka.
//!
//! Schedules go to one node, then to all of them. What falls due is read by kcat, a consumer of other
//! people's, so that the lateness is that of a consumer: from the due time to the line it prints. Beside
//! it, what the database itself does with batches of the same size, sent by its own client.

use std::borrow::Cow;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_model::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::args::{ClusterOptions, Common, HttpOptions, ServerOptions};
use crate::http;
use crate::measure::Latency;
use crate::random::Random;
use crate::report::{Report, Table, say};
use crate::rig::pause;
use crate::server::{Connection, request, talk};

/// What is due late in a run is scheduled at least so long before.
const LEAD: Duration = Duration::from_secs(5);
/// Statements that each client of the database has ready.
const STATEMENTS: usize = 40;

pub(crate) fn run(common: &Common, options: &ClusterOptions) -> Result<()> {
    let settings = json!({
        "nodes": options.nodes.len(), "connections": options.connections, "seconds": options.secs,
        "body": options.body, "batch": options.batch, "rate": options.rate, "herd": options.herd,
    });
    let mut report = Report::new("cluster", common, settings);
    schedules(options, &mut report)?;
    let mut late = Table::of_latency("due to in a consumer's hands");
    let mut chart = Vec::new();
    for (name, rate) in [("steady", options.rate), ("all at once", 0)] {
        let took = fires(options, name, rate, &mut report)?;
        late.row(name, took.millis());
        chart.push((name, took));
    }
    report.table(late);
    let chart: Vec<_> = chart.iter().map(|(name, latency)| (*name, latency)).collect();
    report.latency_chart("lateness", &chart);
    report.finish(common)
}

/// Schedules over one node, over all of them, and the database alone.
fn schedules(options: &ClusterOptions, report: &mut Report) -> Result<()> {
    let mut rates = Table::new("schedules", &["messages/s", "requests/s"]);
    let mut latencies = Table::of_latency("schedule latency");
    let first = options.nodes.get(..1).context("name at least one node")?;
    let mut parts = vec![("one node", first)];
    if options.nodes.len() > 1 {
        parts.push(("all nodes", &options.nodes[..]));
    }
    let mut best: f64 = 0.0;
    for (name, nodes) in parts {
        let (requests, latency, took) = drive(options, nodes)?;
        let per_second = requests as f64 / took.as_secs_f64();
        let messages = per_second * options.batch as f64;
        best = best.max(messages);
        rates.row(name, vec![messages, per_second]);
        latencies.row(name, latency.millis());
        report.figure(&format!("schedules per second, {name}"), messages);
    }
    if let Some(database) = options.mariadb {
        let plain = plain_inserts(options, database)?;
        rates.row("plain inserts", vec![plain, plain / options.batch as f64]);
        report.figure("plain inserts per second", plain);
        report.figure("share of plain inserts", best / plain);
    }
    report.table(rates);
    report.table(latencies);
    Ok(())
}

/// Batches of messages due in days, over all connections to all these nodes.
fn drive(options: &ClusterOptions, nodes: &[SocketAddr]) -> Result<(u64, Latency, Duration)> {
    let each = HttpOptions {
        connections: (options.connections / nodes.len()).max(1),
        threads: 1,
        secs: options.secs,
        body: options.body,
        batch: options.batch,
        server: ServerOptions::default(),
    };
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("bench-node-{number}"));
            let each = &each;
            running.push(builder.spawn_scoped(scope, || http::drive(*node, each, each.batch))?);
        }
        let (mut requests, mut latency, mut longest) = (0, Latency::new(), Duration::ZERO);
        for thread in running {
            let (sent, took) = thread.join().ok().context("a client thread ended by a panic")??;
            requests += sent.requests;
            latency.add(&sent.latency);
            longest = longest.max(took);
        }
        Ok((requests, latency, longest))
    })
}

/// Rows a second that the database takes in batches of the same size from as many clients.
fn plain_inserts(options: &ClusterOptions, database: SocketAddr) -> Result<f64> {
    let mariadb = |more: &[&str]| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uroot", "-N", "-h"]).arg(database.ip().to_string());
        command.args(["-P", &database.port().to_string()]).args(more);
        command
    };
    let table = "CREATE DATABASE IF NOT EXISTS punctual_bench; DROP TABLE IF EXISTS punctual_bench.plain; \
                 CREATE TABLE punctual_bench.plain (slot SMALLINT UNSIGNED, due BIGINT, id BIGINT, \
                 body VARBINARY(2048), PRIMARY KEY (slot, due, id)) ENGINE=InnoDB";
    ensure!(mariadb(&["-e", table]).status()?.success(), "the database does not answer");
    let clients = options.connections.min(16);
    let clock = SystemClock::new();
    let mut running = Vec::new();
    for client in 0..clients {
        let mut child = mariadb(&[]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut input = child.stdin.take().context("it was asked for")?;
        let statements = statements(options, client as u64);
        let builder = std::thread::Builder::new().name(format!("bench-plain-{client}"));
        let feed = move || statements.iter().try_for_each(|text| input.write_all(text.as_bytes()));
        running.push((child, builder.spawn(feed)?));
    }
    for (mut child, feed) in running {
        feed.join().ok().context("a client thread ended by a panic")??;
        ensure!(child.wait()?.success(), "the database refused");
    }
    let rows = (clients * STATEMENTS * options.batch) as f64;
    let rate = rows / clock.read().monotonic.as_secs_f64();
    ensure!(
        mariadb(&["-e", "DROP DATABASE punctual_bench"]).status()?.success(),
        "it is not dropped"
    );
    Ok(rate)
}

/// One statement for a batch, in a transaction of its own.
fn statements(options: &ClusterOptions, client: u64) -> Vec<String> {
    let mut random = Random::new(client + 1);
    let one = |number: usize| {
        let row = |at: usize| {
            let id = (number * options.batch + at) as u64;
            let due = 1_800_000_000_000 + random.below(39 * 86_400_000);
            format!("({client},{due},{id},'{}')", "x".repeat(options.body))
        };
        let rows: Vec<String> = (0..options.batch).map(row).collect();
        format!("INSERT INTO punctual_bench.plain VALUES {};\n", rows.join(","))
    };
    (0..STATEMENTS).map(one).collect()
}

/// Messages that fall due at that rate, or all in one moment, and how late kcat had each.
fn fires(options: &ClusterOptions, name: &str, rate: u64, report: &mut Report) -> Result<Latency> {
    let clock = SystemClock::new();
    let count = if rate == 0 { options.herd } else { rate * options.secs };
    let now_ms = millis(&clock);
    let topic = format!("bench-{now_ms}");
    let first = *options.nodes.first().context("name at least one node")?;
    let mut connection = Connection::open(first)?;
    let shape = json!({ "partitions": options.partitions });
    connection.call_json("PUT", &format!("/v1/topics/{topic}"), &shape)?;
    // Long enough for all of them to be scheduled before the first is due.
    let lead = LEAD + Duration::from_micros(count * 1_000_000 / options.lead_rate.max(1));
    let start_ms = millis(&clock) + u64::try_from(lead.as_millis())?;
    let due = |at: u64| start_ms + at.saturating_mul(1000).checked_div(rate).unwrap_or_default();
    let mut reader = Reader::start(&options.kafka, &topic)?;
    send(options, &topic, count, due)?;
    let spare = start_ms.saturating_sub(millis(&clock));
    if spare == 0 {
        say(&format!("{name}: scheduling took longer than the lead; say a lower --lead-rate"));
    }
    let found = reader.read(count, &clock)?;
    ensure!(found.early == 0, "{} came early", found.early);
    let seconds = found.last_ms.saturating_sub(start_ms) as f64 / 1000.0;
    report.figure(&format!("messages, {name}"), count as f64);
    report.figure(&format!("in Kafka per second, {name}"), count as f64 / seconds.max(1e-3));
    report.figure(&format!("twice, {name}"), found.twice as f64);
    Ok(found.late)
}

/// Schedules that many over all nodes; each body begins with its number and its due time.
fn send(options: &ClusterOptions, topic: &str, count: u64, due: impl Fn(u64) -> u64) -> Result<()> {
    let clock = SystemClock::new();
    let path = format!("/v1/topics/{topic}/messages");
    let mut at = 0;
    let mut next = || {
        let until = (at + options.batch as u64).min(count);
        let message = |number: u64| -> Value {
            let due = due(number);
            json!({ "body": format!("{number} {due} {}", "x".repeat(options.body)), "deliver_at": due })
        };
        let messages: Vec<Value> = (at..until).map(message).collect();
        at = until;
        let json = json!({ "messages": messages });
        (!messages_are_none(&json)).then(|| request("POST", &path, json.to_string().as_bytes()))
    };
    let mut connections = Vec::new();
    for number in 0..options.connections {
        let Some(request) = next() else { break };
        let mut connection = Connection::open(options.nodes[number % options.nodes.len()])?;
        connection.send(&request, &clock)?;
        connections.push((connection, ()));
    }
    talk(connections, &clock, |_, ()| Ok(next().map(Cow::Owned)))
}

fn messages_are_none(json: &Value) -> bool {
    json["messages"].as_array().is_none_or(Vec::is_empty)
}

/// kcat, reading a topic from its beginning until it is ended.
struct Reader {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

/// What a reader has found.
struct Found {
    late: Latency,
    early: u64,
    twice: u64,
    last_ms: u64,
}

impl Reader {
    fn start(kafka: &str, topic: &str) -> Result<Self> {
        let mut child = Command::new("kcat")
            .args(["-b", kafka, "-C", "-t", topic, "-o", "beginning", "-q", "-u", "-f", "%s\n"])
            .args(["-X", "fetch.wait.max.ms=5"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("kcat")?;
        let stdout = child.stdout.take().context("it was asked for")?;
        // So that it is there before the first one is due.
        pause(Duration::from_millis(500));
        Ok(Self { child, lines: BufReader::with_capacity(1 << 20, stdout).lines() })
    }

    /// Reads until it has seen that many different ones.
    fn read(&mut self, count: u64, clock: &SystemClock) -> Result<Found> {
        let mut found = Found { late: Latency::new(), early: 0, twice: 0, last_ms: 0 };
        let mut seen = vec![false; usize::try_from(count)?];
        let mut left = count;
        while left > 0 {
            let line = self.lines.next().context("kcat has ended")??;
            let now_ms = millis(clock);
            let mut words = line.split(' ');
            let mut word = || words.next().and_then(|word| word.parse::<u64>().ok());
            let (number, due_ms) = word().zip(word()).context("not one of ours")?;
            let place = seen.get_mut(usize::try_from(number)?).context("not one of ours")?;
            if std::mem::replace(place, true) {
                found.twice += 1;
                continue;
            }
            left -= 1;
            found.early += u64::from(now_ms < due_ms);
            found.late.note(Duration::from_millis(now_ms.saturating_sub(due_ms)));
            found.last_ms = now_ms;
        }
        Ok(found)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ended = self.child.kill().is_ok();
        let _gone = self.child.wait().is_ok();
    }
}

/// The wall clock, as the due times of messages are written.
fn millis(clock: &SystemClock) -> u64 {
    clock.read().timestamp().as_millis()
}
