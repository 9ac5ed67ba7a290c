//! Attacks with the frames of HTTP/2, written byte by byte; and with what gRPC puts into them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::process_support::PATIENCE;
use super::{Attack, Victim, flood, is_end};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "h2: a preface and nothing more", run: preface },
    Attack { name: "h2: frames that are none", run: odd_frames },
    Attack { name: "h2: a head in endless continuations", run: continuations },
    Attack { name: "h2: empty continuations without end", run: empty_continuations },
    Attack { name: "h2: a head that unpacks to megabytes", run: unpacking },
    Attack { name: "h2: a table of headers without bound", run: table_size },
    Attack { name: "h2: streams opened and reset", run: rapid_reset },
    Attack { name: "h2: streams that make the server reset", run: made_to_reset },
    Attack { name: "h2: streams over the limit", run: many_streams },
    Attack { name: "h2: settings without end", run: settings },
    Attack { name: "h2: pings without end", run: pings },
    Attack { name: "h2: priorities without end", run: priorities },
    Attack { name: "h2: empty data without end", run: empty_data },
    Attack { name: "h2: a body that stops", run: stopping },
    Attack { name: "h2: data beyond the window", run: beyond_the_window },
    Attack { name: "h2: windows that overflow", run: windows },
    Attack { name: "h2: answers that have no window", run: no_window },
    Attack { name: "h2: answers that have a window of one byte", run: small_window },
    Attack { name: "gRPC: a message that says it is gigabytes", run: grpc_length },
    Attack { name: "gRPC: messages that drip", run: grpc_drip },
    Attack { name: "gRPC: megabytes in kilobytes", run: grpc_bomb },
];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header that is not kept in the table.
fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    string(&mut bytes, name.as_bytes());
    string(&mut bytes, value);
    bytes
}

fn string(bytes: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    if length < 127 {
        bytes.push(u8::try_from(length).unwrap());
    } else {
        bytes.push(127);
        length -= 127;
        while length >= 128 {
            bytes.push(u8::try_from(length % 128).unwrap() | 128);
            length /= 128;
        }
        bytes.push(u8::try_from(length).unwrap());
    }
    bytes.extend_from_slice(text);
}

/// The head of a request, packed.
fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = literal(":method", method.as_bytes());
    block.extend(literal(":scheme", b"http"));
    block.extend(literal(":authority", b"localhost"));
    block.extend(literal(":path", path.as_bytes()));
    for (name, value) in more {
        block.extend(literal(name, value.as_bytes()));
    }
    block
}

/// A connection of HTTP/2 that does what it is told.
struct Connection {
    stream: TcpStream,
}

impl Connection {
    fn open(victim: &Victim) -> Self {
        Self::with_settings(victim, &[])
    }

    fn with_settings(victim: &Victim, settings: &[(u16, u32)]) -> Self {
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut stream = victim.connect();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &payload)).unwrap();
        Self { stream }
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        // Whoever has had enough has closed it.
        let _closed = self.stream.write_all(&frame(kind, flags, stream, payload)).is_err();
    }

    /// The next frame: its kind, its stream and what it carries; `None` at the end.
    fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut start = [0; 9];
        self.fill(&mut start)?;
        let length = u32::from_be_bytes([0, start[0], start[1], start[2]]);
        let stream = u32::from_be_bytes([start[5], start[6], start[7], start[8]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.fill(&mut payload)?;
        Some((start[3], stream, payload))
    }

    fn fill(&mut self, into: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) if is_end(&error) => None,
            Err(error) => panic!("still open: {error}"),
        }
    }

    /// The frame of that kind and stream; answers nothing else and drops what comes before.
    fn wait_for(&mut self, kind: u8, stream: u32) -> Option<Vec<u8>> {
        let started = Instant::now();
        loop {
            let (found, of, payload) = self.next()?;
            if found == kind && of == stream {
                return Some(payload);
            }
            assert!(started.elapsed() < PATIENCE, "no frame of kind {kind}");
        }
    }

    /// Reads to the end, which must come; the reason that was given, if one was.
    fn ends(&mut self) -> Option<u32> {
        let started = Instant::now();
        let mut reason = None;
        while let Some((kind, _, payload)) = self.next() {
            if kind == GOAWAY && payload.len() >= 8 {
                reason = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
            assert!(started.elapsed() < PATIENCE, "still open");
        }
        reason
    }
}

fn preface(victim: &Victim) -> Vec<TcpStream> {
    let mut all: Vec<Connection> = (0..100).map(|_| Connection::open(victim)).collect();
    for connection in &mut all {
        connection.ends();
    }
    Vec::new()
}

fn odd_frames(victim: &Victim) -> Vec<TcpStream> {
    let large = vec![0; 1 << 20];
    for (kind, flags, stream, payload) in [
        (DATA, 0, 1, &b"unasked"[..]),
        (DATA, 0, 0, b"nowhere"),
        (HEADERS, END_HEADERS, 2, b"\x82"),
        (HEADERS, END_HEADERS, 0, b"\x82"),
        (HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        (HEADERS, END_HEADERS | 8, 1, b"\xff\x82"),
        (SETTINGS, 0, 0, b"odd"),
        (SETTINGS, 0, 1, b""),
        (SETTINGS, 0, 0, b"\x00\x05\x00\x00\x00\x01"),
        (PUSH, END_HEADERS, 1, b"\x00\x00\x00\x02\x82"),
        (PING, 0, 0, b"short"),
        (WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x00"),
        (CONTINUATION, END_HEADERS, 1, b"\x82"),
        (HEADERS, END_HEADERS, 1, &large),
    ] {
        let mut connection = Connection::open(victim);
        connection.send(kind, flags, stream, payload);
        connection.ends();
    }
    Vec::new()
}

fn continuations(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    connection.send(HEADERS, END_STREAM, 1, &head("GET", "/v1/topics", &[]));
    let more = literal("x-more", &[b'x'; 15_000]);
    let times = flood(&mut connection.stream, &frame(CONTINUATION, 0, 1, &more));
    assert!(times < 10_000, "{times}");
    Vec::new()
}

fn empty_continuations(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    connection.send(HEADERS, END_STREAM, 1, &head("GET", "/v1/topics", &[]));
    flood(&mut connection.stream, &frame(CONTINUATION, 0, 1, &[]).repeat(1000));
    Vec::new()
}

/// One long header goes into the table and is then named in one byte, as often as fits.
fn unpacking(victim: &Victim) -> Vec<TcpStream> {
    for round in 0..20 {
        let mut connection = Connection::open(victim);
        let mut block = head("GET", "/v1/topics", &[]);
        block.push(0x40);
        string(&mut block, b"x-bomb");
        string(&mut block, &[b'x'; 4000]);
        block.extend_from_slice(&[0xbe; 10_000]);
        connection.send(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        // Refused in words or by a reset, whichever; there is an end.
        connection.send(PING, 0, 0, b"are you?");
        if round == 0 {
            let answered = connection.next();
            assert!(answered.is_some());
        }
    }
    Vec::new()
}

fn table_size(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::with_settings(victim, &[(1, u32::MAX)]);
    // A table of gigabytes is asked for, which was never granted.
    let mut block = vec![0x3f, 0xe1, 0xff, 0xff, 0xff, 0x0f];
    block.extend(head("GET", "/v1/topics", &[]));
    connection.send(HEADERS, END_HEADERS | END_STREAM, 1, &block);
    connection.ends();
    Vec::new()
}

fn rapid_reset(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    let block = head("POST", "/v1/topics/t/publish", &[]);
    let started = Instant::now();
    let mut stream = 1;
    loop {
        let mut pair = frame(HEADERS, END_HEADERS, stream, &block);
        pair.extend(frame(RESET, 0, stream, &8u32.to_be_bytes()));
        if connection.stream.write_all(&pair).is_err() {
            break;
        }
        stream += 2;
        assert!(started.elapsed() < PATIENCE, "nobody minds after {stream}");
    }
    Vec::new()
}

/// Requests that the server itself has to end, again and again.
fn made_to_reset(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    let block = head("POST", "/v1/topics/t/publish", &[]);
    let started = Instant::now();
    let mut stream = 1;
    loop {
        let mut pair = frame(HEADERS, END_HEADERS, stream, &block);
        pair.extend(frame(WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes()));
        if connection.stream.write_all(&pair).is_err() {
            break;
        }
        stream += 2;
        assert!(started.elapsed() < PATIENCE, "nobody minds after {stream}");
    }
    Vec::new()
}

fn many_streams(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    let block = head("POST", "/v1/topics/t/publish", &[]);
    for number in 0..1000 {
        connection.send(HEADERS, END_HEADERS, number * 2 + 1, &block);
    }
    // Those within the limit are told that their bodies did not come, the others are refused.
    let started = Instant::now();
    let (mut answered, mut refused) = (0, 0);
    while answered + refused < 1000 {
        match connection.next() {
            Some((HEADERS, ..)) => answered += 1,
            Some((RESET, _, reason)) if reason == 7u32.to_be_bytes() => refused += 1,
            Some(_) => {}
            None => break,
        }
        assert!(started.elapsed() < PATIENCE, "{answered} {refused}");
    }
    assert!(answered <= 128, "{answered} at one time");
    Vec::new()
}

fn settings(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    let setting = frame(SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x64");
    flood(&mut connection.stream, &setting.repeat(1000));
    Vec::new()
}

fn pings(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    flood(&mut connection.stream, &frame(PING, 0, 0, b"and ping").repeat(1000));
    Vec::new()
}

fn priorities(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    flood(&mut connection.stream, &frame(PRIORITY, 0, 1, b"\x00\x00\x00\x03\x10").repeat(1000));
    Vec::new()
}

fn empty_data(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    connection.send(HEADERS, END_HEADERS, 1, &head("POST", "/v1/topics/t/publish", &[]));
    flood(&mut connection.stream, &frame(DATA, 0, 1, &[]).repeat(1000));
    Vec::new()
}

fn stopping(victim: &Victim) -> Vec<TcpStream> {
    let block = head("POST", "/v1/topics/t/publish", &[]);
    let send = |_| {
        let mut connection = Connection::open(victim);
        for number in 0..50 {
            connection.send(HEADERS, END_HEADERS, number * 2 + 1, &block);
            connection.send(DATA, 0, number * 2 + 1, b"half");
        }
        connection
    };
    let mut all: Vec<Connection> = (0..20).map(send).collect();
    for connection in &mut all {
        assert!(connection.wait_for(HEADERS, 1).is_some(), "it is told");
        connection.ends();
    }
    Vec::new()
}

fn beyond_the_window(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    connection.send(HEADERS, END_HEADERS, 1, &head("POST", "/v1/topics/t/publish", &[]));
    let times = flood(&mut connection.stream, &frame(DATA, 0, 1, &[b'x'; 16 << 10]));
    assert!(times < 16_000, "a quarter of a gigabyte was taken");
    Vec::new()
}

fn windows(victim: &Victim) -> Vec<TcpStream> {
    for stream in [0, 1] {
        let mut connection = Connection::open(victim);
        connection.send(HEADERS, END_HEADERS, 1, &head("POST", "/v1/topics/t/publish", &[]));
        for _ in 0..3 {
            connection.send(WINDOW_UPDATE, 0, stream, &0x7fff_ffffu32.to_be_bytes());
        }
        connection.ends();
    }
    Vec::new()
}

fn large_topic(victim: &Victim) {
    let mut client = victim.process.client();
    let message = json!({"body": "x".repeat(1 << 20), "delay": "10h"});
    for _ in 0..4 {
        client.post("/v1/topics/windows/messages", &message).unwrap().expect(201);
    }
}

/// Asks for large answers, makes no room for any, and asks on, so as not to be idle.
fn no_window(victim: &Victim) -> Vec<TcpStream> {
    starve(victim, 0);
    Vec::new()
}

fn small_window(victim: &Victim) -> Vec<TcpStream> {
    starve(victim, 1);
    Vec::new()
}

fn starve(victim: &Victim, window: u32) {
    large_topic(victim);
    let mut all: Vec<Connection> =
        (0..3).map(|_| Connection::with_settings(victim, &[(4, window)])).collect();
    let page = head("GET", "/v1/topics/windows/scheduled", &[]);
    let started = Instant::now();
    let mut stream = 1;
    while !all.is_empty() {
        all.retain_mut(|connection| {
            let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &page);
            connection.stream.write_all(&request).is_ok()
        });
        stream += 2;
        assert!(started.elapsed() < PATIENCE, "{} still open", all.len());
        std::thread::sleep(Duration::from_millis(100));
    }
}

const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc"), ("te", "trailers")];

fn grpc_length(victim: &Victim) -> Vec<TcpStream> {
    for (path, flag) in [("Send", 0), ("SendStream", 0), ("Send", 1), ("Send", 255)] {
        let mut connection = Connection::open(victim);
        let path = format!("/punctual.v1.MessageService/{path}");
        connection.send(HEADERS, END_HEADERS, 1, &head("POST", &path, GRPC));
        // A message of almost four gigabytes, of which a little comes.
        connection.send(DATA, 0, 1, &[flag, 0xff, 0xff, 0xff, 0xff]);
        connection.send(DATA, 0, 1, &[b'x'; 16_000]);
        assert!(connection.wait_for(HEADERS, 1).is_some(), "it is told");
    }
    Vec::new()
}

/// The start of a message and then a byte now and then, on many streams.
fn grpc_drip(victim: &Victim) -> Vec<TcpStream> {
    let mut connection = Connection::open(victim);
    for number in 0..50 {
        let block = head("POST", "/punctual.v1.MessageService/Send", GRPC);
        connection.send(HEADERS, END_HEADERS, number * 2 + 1, &block);
        connection.send(DATA, 0, number * 2 + 1, &[0, 0, 0, 0x10, 0]);
    }
    let started = Instant::now();
    connection.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut answered = Vec::new();
    let mut piece = [0; 16 << 10];
    // All of them have been answered, or the connection was ended.
    while answered.iter().filter(|byte| **byte == HEADERS).count() < 50 {
        for number in 0..50 {
            connection.send(DATA, 0, number * 2 + 1, b"x");
        }
        match connection.stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answered.extend(kinds(&piece[..count])),
            Err(error) if is_end(&error) => break,
            Err(_later) => {}
        }
        assert!(started.elapsed() < PATIENCE, "still waiting");
    }
    Vec::new()
}

fn grpc_bomb(victim: &Victim) -> Vec<TcpStream> {
    let bomb = zstd::encode_all(&vec![0; 16 << 20][..], 19).unwrap().repeat(8);
    // All of it is within the window that a connection has at its start.
    assert!(bomb.len() < 30_000, "{}", bomb.len());
    let mut message = vec![1];
    message.extend_from_slice(&u32::try_from(bomb.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&bomb);
    for path in ["Send", "SendStream"] {
        let mut connection = Connection::open(victim);
        let path = format!("/punctual.v1.MessageService/{path}");
        let coding = [GRPC, &[("grpc-encoding", "zstd")]].concat();
        for stream in [1, 3] {
            connection.send(HEADERS, END_HEADERS, stream, &head("POST", &path, &coding));
            for piece in message.chunks(16_000) {
                connection.send(DATA, 0, stream, piece);
            }
        }
        assert!(connection.wait_for(HEADERS, 1).is_some(), "it is told");
    }
    Vec::new()
}

/// The kinds of the frames in bytes that begin with one.
fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while bytes.len() >= 9 {
        let length = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        kinds.push(bytes[3]);
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    kinds
}
