//! Do clients that other people wrote get along with the server, over gRPC and over Triple?
//!
//! They are fetched by `scripts/clients/clients.sh --install`, with stubs made of our contract. Where
//! a language is not on the machine its client says so and the test passes, but in CI it fails.
#![expect(clippy::print_stderr, reason = "a client that is not there says so")]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use process_support::process::Launch;
use tempfile::TempDir;

/// What the script answers where the language of a client is not there.
const NOT_THERE: i32 = 3;

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/clients/clients.sh")
}

fn target_dir() -> PathBuf {
    // target/debug/deps/this-test
    let this = std::env::current_exe().expect("a path");
    this.ancestors().nth(3).expect("it was built somewhere").to_path_buf()
}

/// Runs a client against a server of its own.
fn run(client: &str) {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(data.path()).start();
    let outcome = Command::new(script())
        .args([client, &server.address().to_string()])
        .env("CARGO_TARGET_DIR", target_dir())
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let (said, told) =
        (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    if outcome.status.code() == Some(NOT_THERE) && std::env::var_os("CI").is_none() {
        eprintln!("{client} was not tried: {}", told.trim());
        return;
    }
    assert!(outcome.status.success(), "{client}: {}\n{said}{told}", outcome.status);
    assert!(said.contains("all is well"), "{client}: {said}{told}");
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
