//! Attacks with the heads of requests, and with what stands between two of them.

use std::io::Write as _;
use std::net::TcpStream;

use super::{Attack, Victim, drip, flood, status, until_closed};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "silence", run: silence },
    Attack { name: "heads that drip", run: dripping_heads },
    Attack { name: "a first line without end", run: endless_line },
    Attack { name: "a field without end", run: endless_field },
    Attack { name: "fields without end", run: endless_fields },
    Attack { name: "ten thousand fields", run: many_fields },
    Attack { name: "empty lines without end", run: empty_lines },
    Attack { name: "bytes that are no request", run: garbage },
    Attack { name: "two lengths", run: two_lengths },
    Attack { name: "a length and chunks", run: length_and_chunks },
    Attack { name: "codings that are none", run: odd_codings },
    Attack { name: "lengths that are none", run: odd_lengths },
    Attack { name: "fields that are none", run: odd_fields },
    Attack { name: "methods and targets that are none of ours", run: odd_targets },
    Attack { name: "requests without end, no answer read", run: pipelined },
    Attack { name: "an expectation and nothing more", run: expecting },
];

const HOST: &str = "host: localhost\r\n";

/// Far more connections than places, and not a word on any of them.
fn silence(victim: &Victim) -> Vec<TcpStream> {
    let mut streams: Vec<TcpStream> = (0..500).map(|_| victim.connect()).collect();
    let (early, late) = streams.split_at_mut(372);
    // Those that came first gave way, the others end when their time is over.
    early.iter_mut().chain(late).for_each(|stream| drop(until_closed(stream)));
    // And again: these are there while the witness asks for the last time.
    (0..128).map(|_| victim.connect()).collect()
}

fn dripping_heads(victim: &Victim) -> Vec<TcpStream> {
    let starts = ["", "G", "GET /", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: localhost\r\n"];
    let streams = starts.iter().cycle().take(50).map(|start| {
        let mut stream = victim.connect();
        stream.write_all(start.as_bytes()).unwrap();
        stream
    });
    drip(streams.collect(), b"x-slow: loris\r\n");
    Vec::new()
}

fn endless_line(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    stream.write_all(b"GET /").unwrap();
    let times = flood(&mut stream, &[b'x'; 1 << 16]);
    assert!(times < 1000, "{times}");
    Vec::new()
}

fn endless_field(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nx-long: ").unwrap();
    let times = flood(&mut stream, &[b'x'; 1 << 16]);
    assert!(times < 1000, "{times}");
    Vec::new()
}

fn endless_fields(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let times = flood(&mut stream, "x-many: 1\r\n".repeat(6000).as_bytes());
    assert!(times < 1000, "{times}");
    Vec::new()
}

fn many_fields(victim: &Victim) -> Vec<TcpStream> {
    let fields: String = (0..10_000).map(|number| format!("{number}:\r\n")).collect();
    let answer = victim.ask(format!("GET /v1/topics HTTP/1.1\r\n{HOST}{fields}\r\n"));
    assert!(matches!(status(&answer), 0 | 400 | 431), "{answer}");
    Vec::new()
}

fn empty_lines(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = victim.connect();
    flood(&mut stream, &b"\r\n".repeat(4096));
    Vec::new()
}

fn garbage(victim: &Victim) -> Vec<TcpStream> {
    let noise: Vec<u8> =
        (0..=255).cycle().map(|byte: u8| byte.wrapping_mul(167)).take(4096).collect();
    for bytes in
        [&noise[..], &[0; 4096], &[0xff; 4096], b"\x16\x03\x01\x00\x05hello", b"EHLO there\r\n"]
    {
        let answer = victim.ask(bytes);
        assert!(matches!(status(&answer), 0 | 400..=499), "{answer}");
    }
    Vec::new()
}

/// Two requests in one for whoever believes the second length.
fn two_lengths(victim: &Victim) -> Vec<TcpStream> {
    for lengths in [
        "content-length: 0\r\ncontent-length: 60\r\n",
        "content-length: 60\r\ncontent-length: 0\r\n",
        "content-length: 0, 60\r\n",
    ] {
        smuggle(victim, lengths, "");
    }
    Vec::new()
}

/// Chunks count, the length does not, and nothing follows on that connection.
fn length_and_chunks(victim: &Victim) -> Vec<TcpStream> {
    for lengths in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    ] {
        smuggle(victim, lengths, "0\r\n\r\n");
    }
    Vec::new()
}

fn odd_codings(victim: &Victim) -> Vec<TcpStream> {
    for coding in
        ["chunked, identity", "xchunked", "gzip", "identity", "\x0bchunked", "chunked\x00"]
    {
        smuggle(victim, &format!("transfer-encoding: {coding}\r\n"), "0\r\n\r\n");
    }
    // What is no coding to an older server, and what is chunked twice.
    for lengths in [
        "transfer-encoding : chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    ] {
        smuggle(victim, lengths, "0\r\n\r\n");
    }
    Vec::new()
}

fn odd_lengths(victim: &Victim) -> Vec<TcpStream> {
    for length in ["-1", "+0", "0x0", "0 0", "1e0", "18446744073709551616", "", "0;0"] {
        smuggle(victim, &format!("content-length: {length}\r\n"), "");
    }
    Vec::new()
}

fn odd_fields(victim: &Victim) -> Vec<TcpStream> {
    for fields in
        ["x-a : 1\r\n", " x-a: 1\r\n", "x\x00a: 1\r\n", "x-a: 1\x002\r\n", ": 1\r\n", "x-a\r\n"]
    {
        smuggle(victim, fields, "");
    }
    Vec::new()
}

/// Whatever the head is taken for, the request behind it is not a second one.
fn smuggle(victim: &Victim, fields: &str, before: &str) {
    let hidden = format!("PUT /v1/topics/smuggled HTTP/1.1\r\n{HOST}content-length: 0\r\n\r\n");
    let head = format!("POST /v1/topics/t/publish HTTP/1.1\r\n{HOST}{fields}\r\n");
    let answer = victim.ask(format!("{head}{before}{hidden}"));
    let answers = answer.matches("HTTP/1.1 ").count();
    assert!(answers <= 1, "{fields:?}: {answer}");
    let topics = victim.process.client().get("/v1/topics").unwrap().expect(200);
    assert!(!topics.to_string().contains("smuggled"), "{fields:?}: {answer}");
}

fn odd_targets(victim: &Victim) -> Vec<TcpStream> {
    for line in [
        "CONNECT localhost:80 HTTP/1.1",
        "TRACE / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET http://evil.test/v1/topics HTTP/1.1",
        "GET /../../etc/passwd HTTP/1.1",
        "GET /v1/topics/%00 HTTP/1.1",
        "GET /v1/topics/%2e%2e%2f HTTP/1.1",
        "GET //evil.test HTTP/1.1",
        "GET /v1/topics HTTP/3.0",
        "get /v1/topics HTTP/1.1",
    ] {
        let answer = victim.ask(format!("{line}\r\n{HOST}connection: close\r\n\r\n"));
        assert!(matches!(status(&answer), 0 | 400..=499), "{line}: {answer}");
    }
    // An upgrade is nothing we do; the request is answered as it stands.
    let upgrade = "upgrade: h2c\r\nconnection: upgrade, http2-settings, close\r\nhttp2-settings: AAMAAABk\r\n";
    let answer = victim.ask(format!("GET /v1/topics HTTP/1.1\r\n{HOST}{upgrade}\r\n"));
    assert_ne!(status(&answer), 101, "{answer}");
    Vec::new()
}

fn pipelined(victim: &Victim) -> Vec<TcpStream> {
    let request = format!("GET /v1/topics HTTP/1.1\r\n{HOST}\r\n").repeat(1000);
    for _ in 0..4 {
        flood(&mut victim.connect(), request.as_bytes());
    }
    Vec::new()
}

fn expecting(victim: &Victim) -> Vec<TcpStream> {
    let head = format!(
        "POST /v1/topics/t/publish HTTP/1.1\r\n{HOST}content-length: 1000\r\n\
         expect: 100-continue\r\n\r\n"
    );
    let send = |_| {
        let mut stream = victim.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<TcpStream> = (0..20).map(send).collect();
    for stream in &mut streams {
        let answer = until_closed(stream);
        assert!(answer.contains("HTTP/1.1 408 "), "{answer}");
    }
    Vec::new()
}
