//! Do clients that other people wrote get along with the server, over gRPC and over Triple?
//!
//! They are fetched by `scripts/clients/clients.sh --install`, with stubs made of our contract. Where
//! a language is not on the machine its client says so and the test passes, but in CI it fails.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use process_support::foreign::Foreign;
use process_support::process::Launch;
use tempfile::TempDir;

/// Runs a client against a server of its own.
fn run(client: &str) {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(data.path()).start();
    let foreign = Foreign::new("clients/clients.sh", &[client, &server.address().to_string()]);
    if let Some(said) = foreign.run() {
        assert!(said.contains("all is well"), "{client}: {said}");
    }
}

#[test]
fn grpcio_sends_receives_streams_and_answers_questions() {
    run("grpcio");
}

#[test]
fn grpcurl_learns_the_contract_by_reflection() {
    run("grpcurl");
}

#[test]
fn dubbo_for_python_is_understood() {
    run("dubbo-python");
}

#[test]
fn dubbo_for_node_is_understood_over_all_of_its_transports() {
    run("dubbo-node");
}
