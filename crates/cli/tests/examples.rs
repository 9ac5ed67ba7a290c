//! Do the programs in `examples/` do what they say, against a real server?
//!
//! They need bash, curl and python3. Each has two minutes; what hangs is ended and fails.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use command_support::{LIMIT_SECONDS, Server, signal, text};
use process_support::wait_for;
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// An example as a user would run it: with the command line on the path.
fn command(server: &Server, program: &str, name: &str, arguments: &[&str]) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_punctual"));
    let mut command = Command::new("timeout");
    command.args([LIMIT_SECONDS, "bash", "-c", r#"PATH="$BINARY:$PATH" exec "$@""#, "example"]);
    command.arg(program).arg(example(name)).args(arguments).stdin(Stdio::null());
    command.env("BINARY", binary.parent().expect("it lies in a directory"));
    command.env("PUNCTUAL_SERVER", &server.url);
    command
}

/// What a script has printed, once it has ended well.
fn printed(mut command: Command) -> Vec<String> {
    let output = command.output().expect("it runs");
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{errors}");
    out.lines().map(str::to_owned).collect()
}

/// Starts what goes on until it is stopped; its lines come as they are printed.
fn started(mut command: Command) -> (Child, impl Iterator<Item = String>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let out = child.stdout.take().expect("a pipe");
    (child, BufReader::new(out).lines().map_while(Result::ok))
}

fn group(server: &Server, topic: &str, group: &str) -> Value {
    server.json(&["groups", "show", topic, group]).remove(0)
}

/// The dead letters of a group, once there are so many.
fn letters(server: &Server, topic: &str, group: &str, count: usize) -> Vec<Value> {
    let list = ["dead", "list", topic, "--group", group];
    let ask = || Some(server.json(&list)).filter(|letters| letters.len() >= count);
    wait_for("dead letters", ask).0
}

#[test]
fn unpaid_orders_are_closed_and_paid_ones_are_not() {
    let server = Server::start();
    let mut script = command(&server, "bash", "close-unpaid-orders.sh", &[]);
    script.env("TIME_TO_PAY", "10s");
    let expected = [
        "orders 1, 2 and 3 are placed, to be paid within 10s",
        "order 2 is paid",
        "order 1 is closed",
        "order 3 is closed",
        "order 1 is paid too late",
        "order 3 is paid too late",
    ];
    assert_eq!(printed(script), expected);
}

#[test]
fn an_order_and_its_stock_are_told_of_together() {
    let server = Server::start();
    let mut lines = printed(command(&server, "python3", "order_and_stock.py", &[]));
    // Which of the two is asked about first is open.
    if let Some(asked) = lines.get_mut(3..5) {
        asked.sort();
    }
    let expected = [
        "order 1: committed",
        "order 2: the shop stops before the commit",
        "order 3: the shop stops before the order is stored",
        "asked about order 2: commit",
        "asked about order 3: rollback",
        "the warehouse reserves for orders [1, 2]",
        "billing hears of orders [1, 2]",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn dead_letters_are_mended_and_sent_again() {
    let server = Server::start();
    let lines = printed(command(&server, "bash", "redrive.sh", &[]));
    let dead = lines.iter().filter(|line| line.contains("  attempts_exhausted  ")).count();
    assert_eq!(dead, 4, "{lines:?}");
    let mut sent: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("sent: invoice for ")).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["anna", "carla", "dora"]);
    assert_eq!(lines.last().map(String::as_str), Some("no dead letters are left"));
    assert_eq!(server.json(&["topics", "list"]).len(), 0, "it cleans up");
}

#[test]
fn the_worker_acks_gives_back_and_stops_in_order() {
    let server = Server::start();
    server.json(&["groups", "create", "jobs", "workers", "--max-attempts", "2", "--ladder", "1ms"]);
    let (mut worker, mut lines) =
        started(command(&server, "python3", "worker.py", &["jobs", "workers"]));
    server.json(&["send", "jobs", "print one"]);
    assert_eq!(lines.next().as_deref(), Some("done: print one"));
    server.json(&["send", "jobs", "fail"]);
    server.json(&["send", "jobs", "nonsense"]);
    let letters = letters(&server, "jobs", "workers", 2);
    let told = |body: &str| {
        let letter = letters.iter().find(|letter| letter["body"] == body);
        letter.map(|letter| json!([letter["reason"], letter["attempts"], letter["last_error"]]))
    };
    assert_eq!(told("fail"), Some(json!(["attempts_exhausted", 2, "attempt 2 failed"])));
    assert_eq!(told("nonsense"), Some(json!(["rejected", 1, "no such job"])));
    server.json(&["send", "jobs", "sleep 3"]);
    wait_for("the job to be begun", || {
        (group(&server, "jobs", "workers")["in_flight"] == 1).then_some(())
    });
    signal(&worker, "TERM");
    assert_eq!(lines.next().as_deref(), Some("done: sleep 3"));
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    assert_eq!(group(&server, "jobs", "workers")["lag"], 0, "what was at hand was acked");
}

/// A server with the configuration that the example of pushing names.
fn pushing_server() -> Server {
    let config = example("push.toml");
    let config = config.to_str().expect("a path of text");
    let data = TempDir::new().expect("a directory");
    Server::with(&["--http", "127.0.0.1:0", "--config", config], data)
}

#[test]
fn the_webhook_takes_what_is_signed_and_nothing_else() {
    let server = pushing_server();
    let mut endpoint = command(&server, "python3", "webhook.py", &["0"]);
    endpoint.env("PUNCTUAL_PUSH_SECRET", SECRET);
    let (mut webhook, mut lines) = started(endpoint);
    let listening = lines.next().expect("it says where it listens");
    let port = listening.strip_prefix("listening on ").expect("a port");
    let url = format!("http://127.0.0.1:{port}/orders");
    let push = |group: &str, secret: &str| {
        let place = ["groups", "create", "orders", group, "--max-attempts", "1"];
        server.json(&[&place[..], &["--push", &url, "--push-secret", secret]].concat());
    };
    push("hook", SECRET);
    server.json(&["send", "orders", "order 42", "--key", "42", "--delay", "100ms"]);
    assert_eq!(lines.next().as_deref(), Some("key 42, attempt 1: order 42"));
    wait_for("the ack", || (group(&server, "orders", "hook")["lag"] == 0).then_some(()));
    push("forger", "guessed");
    let letters = letters(&server, "orders", "forger", 1);
    assert_eq!(letters[0]["last_error"], "HTTP 401");
    signal(&webhook, "TERM");
    webhook.wait().unwrap();
    assert_eq!(lines.next(), None, "only what was signed was printed");
}
