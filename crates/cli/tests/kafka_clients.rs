//! Do Kafka clients that other people wrote, as they are, get along with the real program?
//!
//! Each program makes, changes and deletes topics, produces with all its codecs, with and without
//! delays and idempotence, and consumes in groups whose members join, leave and crash. They are
//! fetched by `scripts/clients/kafka/kafka.sh --install`. Where a language is not on the machine its
//! client says so and the test passes, but in CI it fails.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use process_support::foreign::Foreign;
use process_support::process::Launch;
use tempfile::TempDir;

/// Runs a client against a server of its own.
fn run(client: &str) {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(data.path()).start();
    let foreign =
        Foreign::new("clients/kafka/kafka.sh", &[client, &server.kafka().to_string()]).run();
    if let Some(said) = foreign {
        assert!(said.contains("all is well"), "{client}: {said}");
        server.check_log();
    }
}

#[test]
fn kcat_with_an_old_librdkafka_works() {
    run("kcat");
}

#[test]
fn confluent_kafka_for_python_works() {
    run("confluent");
}

#[test]
fn kafka_python_works() {
    run("kafka-python");
}

#[test]
fn kafkajs_works() {
    run("kafkajs");
}

#[test]
fn rdkafka_for_rust_works() {
    run("rdkafka");
}

#[test]
fn the_java_client_works() {
    run("java");
}

#[test]
fn the_java_client_of_the_older_line_works() {
    run("java-3");
}

#[test]
fn the_tools_of_apache_kafka_work() {
    run("java-tools");
}

#[test]
fn franz_go_works() {
    run("franz-go");
}

#[test]
fn sarama_works() {
    run("sarama");
}
