//! Does an idempotent Kafka producer lose or repeat anything while the broker is killed again and again?
//!
//! An unmodified confluent-kafka sends, a quarter of the records with a delay, while the real program
//! is killed and started again on the same ports and data. `PUNCTUAL_KAFKA_KILLS=40` and
//! `PUNCTUAL_KAFKA_KILL_PAUSE_MS=3000` make the run two minutes long. The figures are printed.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::time::Duration;

use process_support::dice::Dice;
use process_support::foreign::Foreign;
use process_support::process::Launch;
use process_support::{free_address, number_from_environment};
use tempfile::TempDir;

/// Kills of the run that everybody makes, and the time the server has between two of them.
const KILLS: u64 = 6;
const PAUSE_MS: u64 = 1000;

#[test]
fn an_idempotent_producer_loses_and_repeats_nothing_while_the_broker_is_killed() {
    let kills = number_from_environment("PUNCTUAL_KAFKA_KILLS", KILLS);
    let pause =
        Duration::from_millis(number_from_environment("PUNCTUAL_KAFKA_KILL_PAUSE_MS", PAUSE_MS));
    let data = TempDir::new().expect("a directory");
    let address = free_address(&mut Dice::new(u64::from(std::process::id())));
    let launch = Launch::on(data.path()).kafka_at(address);
    let mut process = launch.start();
    let client = Foreign::new("clients/kafka/kafka.sh", &["kill", &address.to_string()]).start();
    for _ in 0..kills {
        std::thread::sleep(pause);
        process.kill();
        process.check_log();
        process = launch.start();
    }
    std::thread::sleep(pause);
    if let Some(said) = client.finish() {
        println!("{kills} kills: {said}");
        assert!(said.contains("all is well"), "{said}");
    }
    process.check_log();
}
