//! Reads topics of a real Kafka with kcat, a consumer that other people wrote.

use std::net::SocketAddr;

use super::oracle::Received;
use crate::process_support::foreign::kcat;

/// The header in which the outlet puts the id of a message.
const ID_HEADER: &str = "punctual-id";

/// Everything in the topic: by the time Kafka took it, its id and its body.
pub fn read(kafka: SocketAddr, topic: &str) -> Vec<Received> {
    let output = kcat()
        .args(["-b", &kafka.to_string(), "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
        // Of a busy broker even metadata take long.
        .args(["-m", "60"])
        // A consumer that sees only what is committed, and checks what it is given.
        .args(["-X", "check.crcs=true", "-f", "%T\\t%p\\t%o\\t%h\\t%s\\n"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kcat: {errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(received).collect()
}

fn received(line: &str) -> Received {
    let mut parts = line.splitn(5, '\t');
    let mut part = || parts.next().unwrap_or_else(|| panic!("kcat wrote {line:?}"));
    let (taken_ms, _partition, _offset, headers, body) = (part(), part(), part(), part(), part());
    let id =
        headers.split(',').find_map(|header| header.strip_prefix(ID_HEADER)?.strip_prefix('='));
    Received {
        taken_ms: taken_ms.parse().unwrap(),
        id: id.unwrap_or_else(|| panic!("no id in {line:?}")).to_owned(),
        body: body.to_owned(),
    }
}
