//! A server under attack: what it was promised to keep, and somebody well-behaved who watches.
//!
//! Every attack runs against the real program while a witness goes on asking. Asserted is only what
//! does not depend on the speed of the machine: that connections end by themselves, that answers
//! are refusals, that memory stays under its ceiling, and that the witness is served.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod bodies;
pub mod frames;
pub mod heads;
pub mod kafka;
pub mod readers;
pub mod tls;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::process_support::PATIENCE;
use super::process_support::http::Client;
use super::process_support::process::{Launch, Process};

/// What the victim allows, short enough for a test.
pub const SETTINGS: &[(&str, &str)] = &[
    ("PUNCTUAL_HTTP__CONNECTIONS_MAX", "128"),
    ("PUNCTUAL_HTTP__HEADER_TIMEOUT", "3s"),
    ("PUNCTUAL_HTTP__IDLE_TIMEOUT", "4s"),
    ("PUNCTUAL_HTTP__STRANGER_TIMEOUT", "6s"),
    ("PUNCTUAL_HTTP__BODY_IDLE_TIMEOUT", "2s"),
    ("PUNCTUAL_HTTP__BODY_TIMEOUT", "5s"),
    ("PUNCTUAL_HTTP__HELD_BYTES_MAX", "64MiB"),
    ("PUNCTUAL_STORE__MEMORY", "64MiB"),
    ("PUNCTUAL_STORE__DURABILITY", "os"),
];

/// Most memory the process may have with these settings: what may be held, as much again while it is
/// made or moved, what the store may use, what is read ahead on every connection, and the rest.
pub const RSS_MAX: u64 = (2 * 64 + 64 + 8 + 128) << 20;

/// One attack. What it leaves open stays open until the witness was served once more.
pub struct Attack {
    pub name: &'static str,
    pub run: fn(&Victim) -> Vec<TcpStream>,
}

/// The server.
pub struct Victim {
    pub process: Process,
    _data: TempDir,
}

impl Victim {
    pub fn start(more: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut launch = Launch::on(data.path().join("data"));
        for (name, value) in SETTINGS.iter().chain(more) {
            launch = launch.with(name, value);
        }
        Self { process: launch.start(), _data: data }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.process.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends all of it on a connection of its own, and answers what came back until it was closed.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect();
        // Whoever refuses early closes before everything is sent.
        let _broken = stream.write_all(request.as_ref()).is_err();
        until_closed(&mut stream)
    }

    /// The most memory it ever had, in bytes.
    pub fn rss_peak(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Runs one attack after the other.
    pub fn suffer(&mut self, attacks: &[Attack]) {
        for attack in attacks {
            let started = Instant::now();
            let witness = Witness::start(self.process.address());
            let left = (attack.run)(self);
            let rounds = witness.stop();
            drop(left);
            let (rss, took) = (self.rss_peak(), started.elapsed());
            println!("{:<44} {:>4} MB {rounds:>5} rounds {took:.1?}", attack.name, rss >> 20);
            assert!(rss <= RSS_MAX, "{}: {} MB of memory", attack.name, rss >> 20);
        }
        self.process.check_log();
    }
}

/// Reads until the other side closes, and closes it must.
pub fn until_closed(stream: &mut impl Read) -> String {
    let started = Instant::now();
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if is_end(&error) => break,
            Err(error) => panic!("still open after {:?}: {error}", started.elapsed()),
        }
        assert!(started.elapsed() < PATIENCE, "still open");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | UnexpectedEof)
}

/// Sends a byte a time on each, in turn, until all of them were closed by the other side.
pub fn drip(mut streams: Vec<TcpStream>, bytes: &[u8]) {
    let started = Instant::now();
    for stream in &streams {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    }
    for byte in bytes.iter().cycle() {
        streams.retain_mut(|stream| {
            let mut sink = [0; 4096];
            // The read is the pause, and sees the end.
            stream.write_all(&[*byte]).is_ok()
                && match stream.read(&mut sink) {
                    Ok(count) => count > 0,
                    Err(error) => !is_end(&error),
                }
        });
        if streams.is_empty() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{} still open", streams.len());
    }
}

/// Sends the same again and again until the other side has had enough; how often.
pub fn flood(stream: &mut TcpStream, bytes: &[u8]) -> u64 {
    let started = Instant::now();
    let mut times = 0;
    while stream.write_all(bytes).is_ok() {
        times += 1;
        assert!(started.elapsed() < PATIENCE, "nobody minds after {times} times");
    }
    times
}

/// The status of the first answer, or zero.
pub fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// Somebody who does as one should, all the time: one connection that stays, and a new one for
/// every round.
struct Witness {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Witness {
    fn start(address: SocketAddr) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (asked, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let watch = move || {
            let mut known = (connect(address), Instant::now());
            while !asked.load(Ordering::Relaxed) {
                round(&mut known, address);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            round(&mut known, address);
        };
        let thread = std::thread::Builder::new().name("witness".to_owned()).spawn(watch).unwrap();
        Self { stop, rounds, thread }
    }

    /// Another whole round, and then the end; how many there were.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.rounds.load(Ordering::Relaxed)
    }
}

/// A connection that has been answered once. Strangers may have to give way; then one tries again.
fn connect(address: SocketAddr) -> Client {
    let started = Instant::now();
    loop {
        let mut client = Client::connect(address).unwrap();
        let outcome = client.get("/v1/topics");
        match outcome {
            Ok(answer) if answer.status == 200 => return client,
            other => assert!(started.elapsed() < PATIENCE, "the witness: {other:?}"),
        }
    }
}

/// Uses the connection that stays, and a new one.
fn round((known, used): &mut (Client, Instant), address: SocketAddr) {
    // On a busy machine it may have been idle for as long as it may.
    if used.elapsed() > Duration::from_secs(1) {
        *known = connect(address);
    }
    let message = json!({"body": "well-behaved", "delay": "1h"});
    let answer = known.post("/v1/topics/witness/messages", &message).expect("it keeps its place");
    // Too busy is an answer, where others hold all that may be held.
    assert!(matches!(answer.status, 201 | 429), "{answer:?}");
    *used = Instant::now();
    drop(connect(address));
}
