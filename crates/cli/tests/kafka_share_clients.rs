//! Do share consumers that other people wrote, as they are, get along with the real program?
//!
//! Each program accepts, releases and rejects records of a share group, counts their deliveries, and
//! asks over HTTP what became of them. They are fetched by `scripts/clients/kafka/kafka.sh --install`.
//! Where a language is not on the machine its client says so and the test passes, but in CI it fails.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use process_support::foreign::Foreign;
use process_support::process::Launch;
use tempfile::TempDir;

/// Runs a client against a server of its own.
fn run(client: &str) {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(data.path()).start();
    let (kafka, http) = (server.kafka().to_string(), server.address().to_string());
    let foreign = Foreign::new("clients/kafka/kafka.sh", &[client, &kafka, &http]).run();
    if let Some(said) = foreign {
        assert!(said.contains("all is well"), "{client}: {said}");
        server.check_log();
    }
}

#[test]
fn the_share_consumer_of_confluent_kafka_works() {
    run("confluent-share");
}

#[test]
fn the_share_consumer_of_the_java_client_works() {
    run("java-share");
}
