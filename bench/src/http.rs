//! The server over loopback: one message a request, and batches.
//!
//! The client is as small as can be and shares the machine's cores with the server: a few threads,
//! each waiting for whichever of its keep-alive connections has an answer and sending the next
//! request on it at once.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use punctual_model::{Clock as _, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::args::{Common, HttpOptions};
use crate::measure::{self, Latency, memory_of};
use crate::random::Random;
use crate::report::{Cost, Report, Table};
use crate::rig::{Place, pause};

const START_MAX: Duration = Duration::from_secs(20);
/// Different requests each thread sends in turn.
const REQUESTS: usize = 64;
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub(crate) fn run(common: &Common, options: &HttpOptions) -> Result<()> {
    let binary = binary(options)?;
    let place = Place::fresh(common, 4 << 30)?;
    let mut server = Server::start(&binary, place.path(), common)?;
    let measured = both_modes(common, options, &server, place.path());
    let stopped = server.stop();
    measured?.finish(common)?;
    stopped?;
    place.clear()
}

/// The server to run: the one named, or the one beside this program.
fn binary(options: &HttpOptions) -> Result<PathBuf> {
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("punctual"));
    let path = options.binary.clone().map_or_else(beside, Ok)?;
    ensure!(
        path.is_file(),
        "there is no server at {}; build it with `cargo build --release -p punctual-cli`, \
         or name it with --binary",
        path.display()
    );
    Ok(path)
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
        let (server_cpu, client_cpu) = (measure::cpu_of(server.pid())?, measure::cpu());
        let (sent, took) = drive(server.address, options, batch)?;
        let after = measure::cpu_of(server.pid())?;
        let messages = sent.requests * batch as u64;
        let server_cpu = (after.0 + after.1).saturating_sub(server_cpu.0 + server_cpu.1);
        let cost = Cost { messages, took, cpu: server_cpu };
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

/// A server that is a child of this process.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(binary: &Path, dir: &Path, common: &Common) -> Result<Self> {
        // Free a moment ago; somebody else taking it meanwhile shows as a server that ends.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = Command::new(binary)
            .args(["serve", "--http", &address.to_string()])
            .args(["--durability", common.durability.word(), "--data"])
            .arg(dir)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{}", binary.display()))?;
        let mut server = Self { child, address };
        let clock = SystemClock::new();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait()?;
            if ended.is_some() || clock.read().monotonic > START_MAX {
                server.child.kill()?;
                bail!("the server does not answer at {address}");
            }
            pause(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn stop(&mut self) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("no pid")?;
        kill_process(pid, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// What the connections of one thread did.
struct Sent {
    requests: u64,
    latency: Latency,
}

/// Sends for as long as asked over all connections.
fn drive(address: SocketAddr, options: &HttpOptions, batch: usize) -> Result<(Sent, Duration)> {
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
                let requests = requests(address, options, batch, thread as u64);
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
fn requests(address: SocketAddr, options: &HttpOptions, batch: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed + 1);
    let mut message = || -> Value {
        let letter = |byte: u8| char::from(b'a' + byte % 26);
        let body: String = random.bytes(options.body).into_iter().map(letter).collect();
        let delay_ms = 600_000 + random.below(39 * 86_400_000);
        json!({ "body": body, "delay": format!("{delay_ms}ms") })
    };
    let mut request = || {
        let json = if batch == 1 {
            message()
        } else {
            json!({ "messages": (0..batch).map(|_| message()).collect::<Vec<_>>() })
        };
        let json = json.to_string();
        let head = format!(
            "POST /v1/topics/bench/messages HTTP/1.1\r\nhost: {address}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            json.len()
        );
        [head.into_bytes(), json.into_bytes()].concat()
    };
    (0..REQUESTS).map(|_| request()).collect()
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
        connections.push(connection);
    }
    let wait = Timespec::try_from(ANSWER_MAX)?;
    while !connections.is_empty() {
        let ready: Vec<bool> = {
            let mut fds: Vec<PollFd<'_>> =
                connections.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)).collect();
            ensure!(poll(&mut fds, Some(&wait))? > 0, "no answer for half a minute");
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let now = clock.read().monotonic;
        for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            if !connection.receive()? {
                continue;
            }
            sent.requests += 1;
            let after = clock.read().monotonic;
            sent.latency.note(after.saturating_sub(connection.sent_at));
            if now < end {
                connection.send(next.next().context("no requests")?, clock)?;
            } else {
                connection.is_done = true;
            }
        }
        connections.retain(|connection| !connection.is_done);
    }
    Ok(sent)
}

/// One keep-alive connection with at most one request under way.
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    sent_at: Duration,
    is_done: bool,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Self { stream, received: Vec::new(), sent_at: Duration::ZERO, is_done: false })
    }

    fn send(&mut self, request: &[u8], clock: &SystemClock) -> Result<()> {
        self.sent_at = clock.read().monotonic;
        Ok(self.stream.write_all(request)?)
    }

    /// Takes what has arrived. True when that completes the answer.
    fn receive(&mut self) -> Result<bool> {
        let mut piece = [0; 64 << 10];
        let count = self.stream.read(&mut piece)?;
        ensure!(count > 0, "the server closed a connection");
        self.received.extend_from_slice(&piece[..count]);
        let Some(length) = answer_length(&self.received)? else { return Ok(false) };
        if self.received.len() < length {
            return Ok(false);
        }
        ensure!(self.received.len() == length, "more than one answer");
        self.received.clear();
        Ok(true)
    }
}

/// The whole length of the answer that `received` starts with, once its head is there.
fn answer_length(received: &[u8]) -> Result<Option<usize>> {
    let Some(head) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&received[..head])?;
    if !text.starts_with("HTTP/1.1 201") {
        bail!("the server answered {}", String::from_utf8_lossy(received));
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    Ok(Some(head + 4 + length.context("an answer without its length")??))
}
