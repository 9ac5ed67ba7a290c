//! Does the served OpenAPI document say what the server does?
//!
//! The tools are public ones: `scripts/openapi-check.sh` fetches them, and fails where it cannot. What
//! each test asks of them stands there.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::path::Path;
use std::process::Command;

use process_support::process::{Launch, Process};
use tempfile::TempDir;

/// What hangs is ended after so many seconds, and fails.
const LIMIT_SECONDS: &str = "900";
const TOKEN: &str = "admin.only-for-this-test-0123456789";

/// Runs the script against a server, and answers what it has printed.
fn check(server: &Process, what: &str, arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/openapi-check.sh");
    let url = format!("http://{}", server.address());
    let mut command = Command::new("timeout");
    command.arg(LIMIT_SECONDS).arg(script).args([what, &url]).args(arguments);
    let output = command.env("PUNCTUAL_TOKEN", TOKEN).output().expect("bash and timeout are there");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{printed}\n{errors}", output.status);
    printed.into_owned()
}

#[test]
fn the_document_is_legal_and_so_are_its_examples() {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(&data).start();
    let printed = check(&server, "document", &[]);
    assert!(printed.starts_with("legal: "), "{printed}");
}

#[test]
fn a_client_made_from_the_document_sends_and_receives() {
    let (data, made) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let server = Launch::on(&data).start();
    let made = made.path().to_str().expect("a plain name");
    let printed = check(&server, "client", &[made]);
    assert!(printed.contains("acknowledged by a generated client"), "{printed}");
    server.check_log();
}

#[test]
fn every_answer_is_as_the_document_says() {
    let data = TempDir::new().expect("a directory");
    let guarded = Launch::on(&data)
        .with("PUNCTUAL_AUTH__ENABLED", "true")
        .with("PUNCTUAL_AUTH__ADMIN_TOKEN", TOKEN)
        .start();
    // The same requests every time; `scripts/openapi-check.sh fuzz` makes as many others as one likes.
    let printed = check(&guarded, "fuzz", &["--max-examples", "3", "--seed", "1"]);
    let count = |line: &str| line.trim().split_once(" generated")?.0.parse::<u32>().ok();
    let cases = printed.lines().find_map(count).unwrap_or(0);
    assert!(cases >= 5000, "{printed}");
    guarded.check_log();
}
