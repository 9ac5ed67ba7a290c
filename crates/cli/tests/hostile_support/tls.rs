//! Attacks on the handshake. The witness speaks to the same broker through the same port, encrypted,
//! with a client we did not write: curl.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Victim, flood, status, until_closed};

/// An attack on a port that speaks TLS.
pub struct TlsAttack {
    pub name: &'static str,
    pub run: fn(&Victim) -> Vec<TcpStream>,
}

pub const ATTACKS: &[TlsAttack] = &[
    TlsAttack { name: "TLS: silence", run: silence },
    TlsAttack { name: "TLS: half a greeting", run: half },
    TlsAttack { name: "TLS: a greeting and nothing more", run: greeting },
    TlsAttack { name: "TLS: a greeting in records of one byte", run: crumbs },
    TlsAttack { name: "TLS: a greeting that says it is megabytes", run: huge_greeting },
    TlsAttack { name: "TLS: records that are none", run: odd_records },
    TlsAttack { name: "TLS: records without end", run: endless },
    TlsAttack { name: "TLS: requests in the clear", run: clear },
];

/// A greeting that is whole: TLS 1.2, one cipher, one group, one signature scheme.
fn hello() -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 2, 0xc0, 0x2b, 1, 0]);
    // Groups: x25519; schemes: ECDSA on P-256; the name asked for is left out.
    hello.extend_from_slice(&[0, 16, 0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut message = vec![1, 0, 0, length];
    message.extend_from_slice(&hello);
    message
}

fn record(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    let mut record = vec![0x16, 3, 1, length[0], length[1]];
    record.extend_from_slice(message);
    record
}

/// So many connections, each with these bytes and then silence; all of them end.
fn stall(victim: &Victim, bytes: &[u8]) {
    let mut streams: Vec<TcpStream> = (0..200).map(|_| victim.connect()).collect();
    for stream in &mut streams {
        // Those over the number of places have given way already.
        let _gone = stream.write_all(bytes).is_err();
    }
    streams.iter_mut().for_each(|stream| drop(until_closed(stream)));
}

fn silence(victim: &Victim) -> Vec<TcpStream> {
    stall(victim, &[]);
    (0..128).map(|_| victim.connect()).collect()
}

fn half(victim: &Victim) -> Vec<TcpStream> {
    stall(victim, &record(&hello())[..30]);
    Vec::new()
}

fn greeting(victim: &Victim) -> Vec<TcpStream> {
    stall(victim, &record(&hello()));
    // The server did answer, and waits no longer than it said.
    let mut stream = victim.connect();
    stream.write_all(&record(&hello())).unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, [0x16]);
    vec![stream]
}

fn crumbs(victim: &Victim) -> Vec<TcpStream> {
    let crumbs: Vec<u8> = hello().iter().flat_map(|byte| record(&[*byte])).collect();
    stall(victim, &crumbs);
    Vec::new()
}

fn huge_greeting(victim: &Victim) -> Vec<TcpStream> {
    for _ in 0..20 {
        let mut stream = victim.connect();
        // Sixteen megabytes are announced, record by record.
        stream.write_all(&record(&[1, 0xff, 0xff, 0xff, 3, 3])).unwrap();
        let times = flood(&mut stream, &record(&[0; 16_000]));
        assert!(times < 1000, "{times}");
    }
    Vec::new()
}

fn odd_records(victim: &Victim) -> Vec<TcpStream> {
    for bytes in [
        &b"\x16\x03\x01\xff\xff"[..],
        b"\x16\x03\x01\x00\x00",
        b"\x16\xff\xff\x00\x01\x00",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\xff\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
    ] {
        let mut stream = victim.connect();
        stream.write_all(bytes).unwrap();
        until_closed(&mut stream);
    }
    Vec::new()
}

fn endless(victim: &Victim) -> Vec<TcpStream> {
    for bytes in [record(&[]), vec![0x14, 3, 3, 0, 1, 1], vec![0x15, 3, 3, 0, 2, 1, 90]] {
        let mut stream = victim.connect();
        stream.write_all(&record(&hello())).unwrap();
        flood(&mut stream, &bytes.repeat(1000));
    }
    Vec::new()
}

fn clear(victim: &Victim) -> Vec<TcpStream> {
    let answer = victim.ask("GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(status(&answer), 400, "{answer}");
    assert!(answer.contains("speaks TLS"), "{answer}");
    for bytes in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0; 4096], b"EHLO\r\n"] {
        victim.ask(bytes);
    }
    flood(
        &mut victim.connect(),
        &b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100),
    );
    Vec::new()
}
