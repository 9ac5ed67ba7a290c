//! Do the examples of the Rust client do what they say, against a real server?
//!
//! They are parts of this test and run in processes of their own: this program calls itself with the
//! name of one of the ignored tests below.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a failed step may stop a test, and what runs an example marks its output"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

#[path = "../../client/examples/close_unpaid_orders.rs"]
mod close_unpaid_orders;
#[path = "../../client/examples/ten_lines.rs"]
mod ten_lines;
#[path = "../../client/examples/transaction.rs"]
mod transaction;
#[path = "../../client/examples/worker.rs"]
mod worker;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use command_support::{LIMIT_SECONDS, Server, signal};
use process_support::{PATIENCE, wait_for};
use serde_json::json;

/// Begins what an example prints; the test runner prints other lines.
const MARK: &str = "\u{1}";

/// Runs an example if this process was started for it.
fn run(main: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) {
    if std::env::var("PUNCTUAL_SERVER").is_ok() {
        println!("{MARK}begin");
        main().unwrap();
        println!("{MARK}end");
    }
}

#[test]
#[ignore = "started by the tests below"]
fn example_ten_lines() {
    run(ten_lines::main);
}

#[test]
#[ignore = "started by the tests below"]
fn example_close_unpaid_orders() {
    run(close_unpaid_orders::main);
}

#[test]
#[ignore = "started by the tests below"]
fn example_worker() {
    run(worker::main);
}

#[test]
#[ignore = "started by the tests below"]
fn example_transaction() {
    run(transaction::main);
}

/// An example in a process of its own, and its lines as they are printed.
struct Example {
    process: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(server: &Server, name: &str) -> Self {
        let mut process = Command::new("timeout")
            .args(["--foreground", LIMIT_SECONDS])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", &format!("example_{name}")])
            .env("PUNCTUAL_SERVER", &server.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap()).lines();
        let (tell, lines) = mpsc::channel();
        // All of it is read, so that the example never writes to nobody.
        let read = move || {
            let mut is_inside = false;
            for line in out.map_while(Result::ok) {
                match line.split_once(MARK) {
                    Some((_, "begin")) => is_inside = true,
                    Some(_) => is_inside = false,
                    None if is_inside => drop(tell.send(line)),
                    None => {}
                }
            }
        };
        std::thread::Builder::new().spawn(read).unwrap();
        Self { process, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    /// Everything else it prints, once it has ended well.
    fn rest(mut self) -> Vec<String> {
        let lines = self.lines.iter().collect();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{lines:?}");
        lines
    }
}

#[test]
fn ten_lines_send_and_receive() {
    let server = Server::start();
    let lines = Example::start(&server, "ten_lines").rest();
    assert_eq!(lines, ["received: hello", "received: later"]);
}

#[test]
fn unpaid_orders_are_closed_and_paid_ones_are_not() {
    let server = Server::start();
    let lines = Example::start(&server, "close_unpaid_orders").rest();
    let expected = [
        "orders 1, 2 and 3 are placed",
        "order 2 is paid",
        "order 1 is closed",
        "order 3 is closed",
        "order 1 is paid too late: AlreadyDelivered",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_worker_acks_gives_back_and_stops_in_order() {
    let server = Server::start();
    let worker = Example::start(&server, "worker");
    assert_eq!(worker.line(), "working");
    server.json(&["send", "jobs", "print one"]);
    assert_eq!(worker.line(), "one");
    server.json(&["send", "jobs", "later two"]);
    assert_eq!(worker.line(), "not now: two");
    assert_eq!(worker.line(), "now: two");
    server.json(&["send", "jobs", "nonsense"]);
    let list = ["dead", "list", "jobs", "--group", "workers"];
    let (letters, _) =
        wait_for("a dead letter", || Some(server.json(&list)).filter(|l| !l.is_empty()));
    let told = json!([letters[0]["reason"], letters[0]["attempts"], letters[0]["last_error"]]);
    assert_eq!(told, json!(["rejected", 1, "no such job"]));
    server.json(&["send", "jobs", "sleep 2"]);
    assert_eq!(worker.line(), "sleeping");
    signal(&worker.process, "TERM");
    assert_eq!(worker.rest(), ["slept", "done"], "what was begun is brought to its end");
    let group = server.json(&["groups", "show", "jobs", "workers"]).remove(0);
    assert_eq!((&group["lag"], &group["in_flight"]), (&json!(0), &json!(0)), "and acked");
}

#[test]
fn messages_go_out_if_and_only_if_the_order_is_stored() {
    let server = Server::start();
    let mut lines = Example::start(&server, "transaction").rest();
    // The first is packed while the third is asked about.
    lines[3..].sort();
    let expected = [
        "order-1: committed",
        "order-2: rolled back, out of stock",
        "order-3: the service stops before the commit",
        "the warehouse packs order-1",
        "the warehouse packs order-3",
    ];
    assert_eq!(lines, expected);
}
