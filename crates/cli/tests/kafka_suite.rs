//! Do librdkafka's own tests pass against the real program?
//!
//! The list with the reason for each exclusion is `scripts/clients/kafka/librdkafka-tests.txt`; the
//! tests are built by `scripts/clients/kafka/librdkafka-suite.sh --install`.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use process_support::foreign::Foreign;
use process_support::process::Launch;
use tempfile::TempDir;

#[test]
fn the_tests_of_librdkafka_that_apply_pass() {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(data.path()).start();
    let address = server.kafka().to_string();
    if let Some(said) = Foreign::new("clients/kafka/librdkafka-suite.sh", &[&address]).run() {
        println!("{said}");
        server.check_log();
    }
}
