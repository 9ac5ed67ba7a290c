//! Does the real program bear clients that mean it no good? (G16, G40, G41, G50)
//!
//! Raw sockets, one table of attacks for each part of the protocol; see `hostile_support` for what
//! must hold during each of them.

#![allow(
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test of real sockets"
)]

mod hostile_support;
mod process_support;

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use hostile_support::{
    Attack, RSS_MAX, Victim, bodies, frames, heads, kafka, readers, tls, until_closed,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

#[test]
fn g50_heads_that_mean_no_good() {
    Victim::start(&[]).suffer(heads::ATTACKS);
}

#[test]
fn g40_bodies_that_mean_no_good() {
    Victim::start(&[]).suffer(bodies::ATTACKS);
}

#[test]
fn g40_peers_that_do_not_read() {
    Victim::start(&[]).suffer(readers::ATTACKS);
}

#[test]
fn g50_frames_that_mean_no_good() {
    Victim::start(&[]).suffer(frames::ATTACKS);
}

#[test]
fn g40_kafka_clients_that_mean_no_good() {
    Victim::start(kafka::SETTINGS).suffer(kafka::ATTACKS);
}

/// What ten thousand connections may take beside the rest, in bytes: each its buffers and task.
const IDLE_BYTES_MAX: u64 = 10_000 * (24 << 10);

#[test]
fn g50_ten_thousand_idle_connections_are_borne() {
    const CONNECTIONS: usize = 10_000;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let enough = u64::try_from(CONNECTIONS).unwrap() + 1000;
    if files.maximum.is_some_and(|maximum| maximum < enough) {
        println!("skipped: this machine allows only {:?} open files", files.maximum);
        return;
    }
    let all = rustix::process::Rlimit { current: files.maximum, maximum: files.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let mut victim = Victim::start(&[
        ("PUNCTUAL_HTTP__CONNECTIONS_MAX", "10500"),
        // They stay until all of them are there.
        ("PUNCTUAL_HTTP__HEADER_TIMEOUT", "60s"),
        ("PUNCTUAL_HTTP__STRANGER_TIMEOUT", "60s"),
    ]);
    let before = victim.rss_peak();
    victim.suffer(&[Attack {
        name: "ten thousand connections without a word",
        run: |victim| (0..CONNECTIONS).map(|_| victim.connect()).collect::<Vec<TcpStream>>(),
    }]);
    let more = victim.rss_peak() - before;
    println!("{} KB each", (more / u64::try_from(CONNECTIONS).unwrap()) >> 10);
    assert!(more <= IDLE_BYTES_MAX, "{} MB more", more >> 20);
}

#[test]
fn g50_one_address_has_only_so_many_places() {
    let victim = Victim::start(&[("PUNCTUAL_HTTP__CONNECTIONS_PER_ADDRESS_MAX", "8")]);
    let places: Vec<TcpStream> = (0..8).map(|_| victim.connect()).collect();
    let answer = until_closed(&mut victim.connect());
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop(places);
    assert!(victim.rss_peak() <= RSS_MAX);
}

/// A certificate for localhost in the directory, with its key and its authority.
fn certify(directory: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    std::fs::write(directory.join("ca.pem"), pem).unwrap();
    let issuer = Issuer::new(authority, key);
    let mut own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    own.distinguished_name.push(DnType::CommonName, "localhost");
    let key = KeyPair::generate().unwrap();
    let signed = own.signed_by(&key, &issuer).unwrap().pem();
    std::fs::write(directory.join("cert.pem"), signed).unwrap();
    std::fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
}

/// Whether curl is served, and with which certificate, as far as it tells.
fn curl(victim: &Victim, directory: &Path) -> Option<String> {
    let port = victim.process.address().port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--verbose", "--max-time", "60", "--cacert"])
        .arg(directory.join("ca.pem"))
        .arg(format!("https://localhost:{port}/v1/topics"))
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn g50_handshakes_that_mean_no_good() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let victim = Victim::start(&[
        ("PUNCTUAL_TLS__CERT_FILE", &path("cert.pem")),
        ("PUNCTUAL_TLS__KEY_FILE", &path("key.pem")),
        ("PUNCTUAL_TLS__HANDSHAKE_TIMEOUT", "3s"),
    ]);
    for attack in tls::ATTACKS {
        let left = (attack.run)(&victim);
        if curl(&victim, directory.path()).is_none() {
            println!("there is no curl on this machine: nobody watches");
        }
        drop(left);
        let rss = victim.rss_peak();
        println!("{:<44} {:>4} MB", attack.name, rss >> 20);
        assert!(rss <= RSS_MAX, "{}: {} MB of memory", attack.name, rss >> 20);
    }
    // Nobody needs a new process for a new certificate, either.
    certify(directory.path());
    victim.process.signal("HUP");
    process_support::wait_for("the new certificate", || {
        victim.process.log().contains("certificates were read anew").then_some(())
    });
    let _served = curl(&victim, directory.path());
    victim.process.check_log();
}
