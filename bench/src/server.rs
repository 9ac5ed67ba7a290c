//! The server as a child of this process, and connections to it that cost as little as can be.

use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use punctual_model::{Clock as _, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::args::{Common, ServerOptions};
use crate::measure;
use crate::rig::pause;

const START_MAX: Duration = Duration::from_secs(20);
/// Longest wait for an answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Taken from a connection at once.
const PIECE_BYTES: usize = 256 << 10;

/// A server that is a child of this process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where it listens for Kafka clients.
    pub(crate) kafka: SocketAddr,
}

impl Server {
    /// Starts the one named, or the one beside this program.
    pub(crate) fn start(options: &ServerOptions, dir: &Path, common: &Common) -> Result<Self> {
        Self::start_with(options, dir, common, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn start_with(
        options: &ServerOptions,
        dir: &Path,
        common: &Common,
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let binary = binary(options)?;
        // Free a moment ago; somebody else taking one meanwhile shows as a server that ends.
        let held = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let [address, kafka] = held.map(|held| held.and_then(|held| held.local_addr()));
        let (address, kafka) = (address?, kafka?);
        let child = Command::new(&binary)
            .args(["serve", "--http", &address.to_string(), "--kafka", &kafka.to_string()])
            .args(["--durability", common.durability.word(), "--data"])
            .arg(dir)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{}", binary.display()))?;
        let mut server = Self { child, address, kafka };
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far, user and system together.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let (user, system) = measure::cpu_of(self.pid())?;
        Ok(user + system)
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("no pid")?;
        kill_process(pid, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

fn binary(options: &ServerOptions) -> Result<PathBuf> {
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

/// A request with JSON, ready to be sent.
pub(crate) fn request(method: &str, path: &str, json: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        json.len()
    );
    [head.as_bytes(), json].concat()
}

/// One keep-alive connection with at most one request under way.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    piece: Vec<u8>,
    received: Vec<u8>,
    /// Where the answer begins that has arrived.
    body: usize,
    /// What the answer is, once its head is there.
    status: u16,
    /// Whether a refusal is an answer like any other.
    takes_refusals: bool,
    pub(crate) sent_at: Duration,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self {
            stream,
            piece: vec![0; PIECE_BYTES],
            received: Vec::new(),
            body: 0,
            status: 0,
            takes_refusals: false,
            sent_at: Duration::ZERO,
        })
    }

    pub(crate) fn send(&mut self, request: &[u8], clock: &SystemClock) -> Result<()> {
        self.received.clear();
        self.sent_at = clock.read().monotonic;
        Ok(self.stream.write_all(request)?)
    }

    /// Takes what has arrived, or waits for it. True when that completes the answer.
    pub(crate) fn receive(&mut self) -> Result<bool> {
        let count = self.stream.read(&mut self.piece).context("no answer for half a minute")?;
        ensure!(count > 0, "the server closed a connection");
        self.received.extend_from_slice(&self.piece[..count]);
        let Some((body, length)) = answer_parts(&self.received)? else { return Ok(false) };
        self.status = status(&self.received)?;
        if !self.takes_refusals && !(200..300).contains(&self.status) {
            bail!("the server answered {}", String::from_utf8_lossy(&self.received));
        }
        self.body = body;
        ensure!(self.received.len() <= body + length, "more than one answer");
        Ok(self.received.len() == body + length)
    }

    /// The answer that has arrived.
    pub(crate) fn answer(&self) -> &[u8] {
        &self.received[self.body..]
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call(&mut self, request: &[u8], clock: &SystemClock) -> Result<&[u8]> {
        self.send(request, clock)?;
        while !self.receive()? {}
        Ok(self.answer())
    }

    /// The same for an answer that may be a refusal; its status comes first.
    pub(crate) fn call_any(&mut self, request: &[u8], clock: &SystemClock) -> Result<(u16, &[u8])> {
        self.takes_refusals = true;
        self.send(request, clock)?;
        while !self.receive()? {}
        self.takes_refusals = false;
        Ok((self.status, self.answer()))
    }

    /// The same with JSON.
    pub(crate) fn call_json(&mut self, method: &str, path: &str, json: &Value) -> Result<()> {
        let request = request(method, path, json.to_string().as_bytes());
        self.call(&request, &SystemClock::new()).map(drop)
    }
}

/// Keeps connections busy, each with something of its own: whenever one has its answer, `next` says
/// what to send on it, or nothing when it is done.
pub(crate) fn talk<'a, T>(
    mut connections: Vec<(Connection, T)>,
    clock: &SystemClock,
    mut next: impl FnMut(&Connection, &mut T) -> Result<Option<Cow<'a, [u8]>>>,
) -> Result<()> {
    let wait = Timespec::try_from(ANSWER_MAX)?;
    while !connections.is_empty() {
        let ready: Vec<bool> = {
            let streams = connections.iter().map(|(connection, _)| &connection.stream);
            let mut fds: Vec<PollFd<'_>> =
                streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
            ensure!(poll(&mut fds, Some(&wait))? > 0, "no answer for half a minute");
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut waiting = Vec::with_capacity(connections.len());
        for ((mut connection, mut own), ready) in connections.into_iter().zip(ready) {
            if ready && connection.receive()? {
                let Some(request) = next(&connection, &mut own)? else { continue };
                connection.send(&request, clock)?;
            }
            waiting.push((connection, own));
        }
        connections = waiting;
    }
    Ok(())
}

/// Where the answer that `received` starts with begins, and its length, once its head is there.
fn answer_parts(received: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(head) = memmem::find(received, b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&received[..head])?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    Ok(Some((head + 4, length.context("an answer without its length")??)))
}

/// The status of an answer.
fn status(received: &[u8]) -> Result<u16> {
    let digits = received.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let digits = digits.context("not an answer in HTTP")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

/// The texts that follow each `marker` in an answer, up to the next quotation mark.
pub(crate) fn texts_after<'a>(
    answer: &'a [u8],
    marker: &'static [u8],
) -> impl Iterator<Item = &'a [u8]> {
    memmem::find_iter(answer, marker).map(move |at| {
        let rest = &answer[at + marker.len()..];
        let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// The receipts of an answered receive.
pub(crate) fn receipts(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    texts_after(answer, b"\"receipt\":\"")
}

/// A request that settles receipts; answers how many there are.
pub(crate) fn ack_request<'a>(
    path: &str,
    receipts: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, u64) {
    let mut json = b"{\"receipts\":[".to_vec();
    let mut count = 0;
    for receipt in receipts {
        json.extend_from_slice(if count == 0 { b"\"" } else { b",\"" });
        json.extend_from_slice(receipt);
        json.push(b'"');
        count += 1;
    }
    json.extend_from_slice(b"]}");
    (request("POST", &format!("{path}/ack"), &json), count)
}

/// How many receipts an answer calls acked.
pub(crate) fn acked(answer: &[u8]) -> u64 {
    memmem::find_iter(answer, b"\"acked\"").count() as u64
}
