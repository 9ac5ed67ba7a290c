//! Attacks on the Kafka listener: lengths that lie, requests that drip, and floods.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::super::process_support::PATIENCE;
use super::{Attack, Victim, drip, is_end, until_closed};

/// What the listener allows in these attacks.
pub const SETTINGS: &[(&str, &str)] = &[
    ("PUNCTUAL_KAFKA__CONNECTIONS_MAX", "128"),
    ("PUNCTUAL_KAFKA__IDLE_TIMEOUT", "4s"),
    ("PUNCTUAL_KAFKA__REQUEST_TIMEOUT", "3s"),
    ("PUNCTUAL_KAFKA__STRANGER_TIMEOUT", "3s"),
    ("PUNCTUAL_KAFKA__HELD_BYTES_MAX", "64MiB"),
];

pub const ATTACKS: &[Attack] = &[
    Attack { name: "Kafka: silence", run: silence },
    Attack { name: "Kafka: lengths that are none", run: odd_lengths },
    Attack { name: "Kafka: frames of nineteen bytes", run: nineteen_bytes },
    Attack { name: "Kafka: large claims that drip", run: dripping_claims },
    Attack { name: "Kafka: most of many large requests", run: most_of_large_requests },
    Attack { name: "Kafka: requests without end, no answer read", run: pipelined },
    Attack { name: "Kafka: bytes that are no request", run: garbage },
    Attack { name: "Kafka: a handshake of TLS", run: tls_hello },
];

/// ApiVersions in its first version: what is offered.
const OFFERED: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255];

fn connect(victim: &Victim) -> TcpStream {
    let stream = TcpStream::connect(victim.process.kafka()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Somebody who has asked something and got an answer.
fn known(victim: &Victim) -> TcpStream {
    let mut stream = connect(victim);
    stream.write_all(&OFFERED).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap();
    stream.read_exact(&mut vec![0; length]).unwrap();
    stream
}

fn silence(victim: &Victim) -> Vec<TcpStream> {
    let mut streams: Vec<TcpStream> = (0..400).map(|_| connect(victim)).collect();
    streams.iter_mut().for_each(|stream| drop(until_closed(stream)));
    drop(known(victim));
    (0..128).map(|_| connect(victim)).collect()
}

fn odd_lengths(victim: &Victim) -> Vec<TcpStream> {
    for length in [-1, i32::MIN, i32::MAX, 100 << 20, 0] {
        let mut stream = connect(victim);
        stream.write_all(&length.to_be_bytes()).unwrap();
        assert_eq!(until_closed(&mut stream), "", "{length}");
    }
    Vec::new()
}

/// A head, and an array that claims two thousand million elements.
fn nineteen_bytes(victim: &Victim) -> Vec<TcpStream> {
    for key in 0..100_u8 {
        for version in 0..14_u8 {
            let mut stream = connect(victim);
            let frame =
                [0, 0, 0, 15, 0, key, 0, version, 0, 0, 0, 1, 255, 255, 127, 255, 255, 255, 0];
            stream.write_all(&frame).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            until_closed(&mut stream);
        }
    }
    drop(known(victim));
    Vec::new()
}

fn dripping_claims(victim: &Victim) -> Vec<TcpStream> {
    let streams = (0..100).map(|_| {
        let mut stream = known(victim);
        stream.write_all(&(39_i32 << 20).to_be_bytes()).unwrap();
        stream
    });
    drip(streams.collect(), &[0]);
    Vec::new()
}

/// Far more than may be held, and none of it whole; whoever asks little is served meanwhile.
fn most_of_large_requests(victim: &Victim) -> Vec<TcpStream> {
    const CLAIMED: usize = 39 << 20;
    let mut streams: Vec<TcpStream> = (0..30).map(|_| known(victim)).collect();
    let piece = vec![0; 256 << 10];
    for stream in &mut streams {
        let claimed = i32::try_from(CLAIMED).unwrap();
        stream.write_all(&claimed.to_be_bytes()).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    for _ in 0..CLAIMED / piece.len() - 1 {
        streams.retain_mut(|stream| match stream.write(&piece) {
            Ok(_) => true,
            Err(error) if is_end(&error) => false,
            Err(error) => {
                let full = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(full.contains(&error.kind()), "{error}");
                true
            }
        });
        drop(known(victim));
    }
    streams.iter_mut().for_each(|stream| drop(until_closed(stream)));
    Vec::new()
}

fn pipelined(victim: &Victim) -> Vec<TcpStream> {
    let mut streams: Vec<TcpStream> = (0..20).map(|_| known(victim)).collect();
    let many = OFFERED.repeat(1000);
    for stream in &mut streams {
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // Until nothing more is taken, or the other side has had enough.
        while stream.write_all(&many).is_ok() {}
    }
    // They lose their connections without having read anything.
    for stream in &mut streams {
        until_closed(stream);
    }
    Vec::new()
}

fn garbage(victim: &Victim) -> Vec<TcpStream> {
    for byte in 0..=255_u8 {
        let mut stream = connect(victim);
        stream.write_all(&[0, 0, 0, 60]).unwrap();
        stream.write_all(&[byte; 60]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        until_closed(&mut stream);
    }
    Vec::new()
}

fn tls_hello(victim: &Victim) -> Vec<TcpStream> {
    let mut stream = connect(victim);
    stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).unwrap();
    assert_eq!(until_closed(&mut stream), "");
    Vec::new()
}
