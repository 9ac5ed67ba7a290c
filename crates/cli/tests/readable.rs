//! Is what people see readable, harmless and helpful?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the support module serves several tests, and helpers of tests may stop them"
)]

mod command_support;
mod process_support;

use std::process::{Command, Output, Stdio};

use command_support::{LIMIT_SECONDS, Server, punctual, text};
use process_support::wait_for;
use serde_json::{Value, json};

/// A text that would clear the screen and colour what follows.
const HOSTILE: &str = "\u{1b}[2J\u{1b}[31mred\r\n\u{7}\u{202e}gnp.exe";

fn both(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// A command on a terminal of so many columns.
fn on_terminal(server: &Server, columns: u16, arguments: &str) -> String {
    let line =
        format!("stty cols {columns} rows 24; timeout {LIMIT_SECONDS} \"$BINARY\" {arguments}");
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("BINARY", env!("CARGO_BIN_EXE_punctual"))
        .env("PUNCTUAL_SERVER", &server.url)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .output()
        .expect("script");
    text(&output.stdout)
}

#[test]
fn lists_are_tables_with_times_and_how_far_away_they_are() {
    let server = Server::start();
    let first = server.json(&["send", "orders", "one", "--delay", "30m", "--key", "a-long-key"]);
    server.json(&["send", "orders", "two", "--delay", "40d"]);
    let table = text(&server.run(&["list", "orders"]).stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    let columns: Vec<usize> = ["ID", "DUE", "WHEN", "KEY", "BODY"]
        .iter()
        .map(|head| lines[0].find(head).expect("a head"))
        .collect();
    let cell = |line: usize, column: usize| lines[line][columns[column]..].split("  ").next();
    assert_eq!(cell(1, 0), first[0]["id"].as_str());
    assert_eq!(cell(1, 1), first[0]["due"].as_str());
    assert!(
        cell(1, 2).is_some_and(|when| when.starts_with("in 29m") || when == "in 30m"),
        "{table}"
    );
    assert_eq!((cell(1, 3), cell(2, 3)), (Some("a-long-key"), Some("-")));
    assert_eq!((cell(1, 4), cell(2, 4)), (Some("one"), Some("two")));
    assert!(lines.iter().all(|line| line.trim_end() == *line), "no space at the ends\n{table}");
    let shown = text(&server.run(&["get", first[0]["id"].as_str().unwrap()]).stdout);
    assert!(shown.starts_with("id ") && shown.contains("Z, in "), "{shown}");
}

#[test]
fn scripts_get_ids_alone() {
    let server = Server::start();
    let id = text(&server.run(&["send", "orders", "x", "--delay", "1h", "-q"]).stdout);
    assert_eq!(text(&server.run(&["list", "orders", "-q"]).stdout), id);
    assert_eq!(text(&server.run(&["cancel", id.trim(), "-q"]).stdout), id);
    assert_eq!(text(&server.run(&["topics", "-q"]).stdout), "orders\n");
    server.json(&["send", "orders", "now"]);
    let receive = ["receive", "orders", "--group", "g", "--wait", "20s", "-q"];
    let receipt = text(&server.run(&receive).stdout);
    let ack = server.run(&["ack", "orders", receipt.trim(), "--group", "g"]);
    assert_eq!(text(&ack.stdout), format!("{}  acked\n", receipt.trim()));
    let again = server.run(&["ack", "orders", receipt.trim(), "--group", "g"]);
    assert_eq!(again.status.code(), Some(1), "{}", both(&again));
    assert_eq!(server.run(&["topics", "-q", "--json"]).status.code(), Some(2));
}

/// A dead letter of the group, once it is there: it comes as a message that is due at once.
fn dead_letter(server: &Server) -> Value {
    let list = ["dead", "list", "t", "--group", "g"];
    wait_for("a dead letter", || server.json(&list).pop()).0
}

#[test]
fn what_was_received_is_given_back_kept_or_rejected() {
    let server = Server::start();
    server.json(&["groups", "create", "t", "g", "--max-attempts", "5"]);
    server.json(&["send", "t", "x"]);
    let receive = || {
        let ask = ["receive", "t", "--group", "g", "--wait", "20s"];
        let message = server.json(&ask).remove(0);
        (message["receipt"].as_str().unwrap().to_owned(), message["attempt"].clone())
    };
    let (receipt, _) = receive();
    let extended = server.json(&["extend", "t", &receipt, "--group", "g", "--lease", "5m"]);
    assert_eq!(extended[0]["result"], "extended");
    let nack = ["nack", "t", &receipt, "--group", "g", "--delay", "1ms", "--error", "no luck"];
    assert_eq!(server.json(&nack)[0]["result"], "requeued");
    let (receipt, attempt) = receive();
    assert_eq!(attempt, 2);
    let reject = ["nack", "t", &receipt, "--group", "g", "--reject", "--error", "never"];
    assert_eq!(server.json(&reject)[0]["result"], "dead");
    let letter = dead_letter(&server);
    assert_eq!((&letter["reason"], &letter["last_error"]), (&json!("rejected"), &json!("never")));
}

#[test]
fn an_empty_list_says_what_to_do_and_leaves_a_pipe_empty() {
    let server = Server::start();
    let topics = server.run(&["topics"]);
    assert_eq!((topics.status.code(), topics.stdout.len()), (Some(0), 0));
    assert!(text(&topics.stderr).contains("punctual send"), "{}", both(&topics));
    server.json(&["topics", "create", "orders"]);
    for arguments in [
        &["list", "orders"][..],
        &["series", "orders"],
        &["groups"],
        &["transactions"],
        &["receive", "orders", "--group", "g"],
        &["dead", "list", "orders", "--group", "g"],
        &["read", "orders"],
    ] {
        let output = server.run(arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
        assert!(server.run(&[arguments, &["--json"]].concat()).stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn nothing_hostile_reaches_the_terminal() {
    let server = Server::start();
    let header = format!("name={HOSTILE}");
    let send = ["send", "t", HOSTILE, "--delay", "1h", "--key", HOSTILE, "--header", &header];
    let id = server.json(&send)[0]["id"].as_str().unwrap().to_owned();
    server.json(&["send", "t", HOSTILE, "--key", HOSTILE]);
    server.json(&["groups", "create", "t", "g", "--max-attempts", "1"]);
    let receipt = server.json(&["receive", "t", "--group", "g", "--wait", "20s"]).remove(0);
    let receipt = receipt["receipt"].as_str().unwrap();
    server.json(&["nack", "t", receipt, "--group", "g", "--reject", "--error", HOSTILE]);
    assert_eq!(dead_letter(&server)["reason"], "rejected");
    for arguments in [
        &["list", "t"][..],
        &["get", &id],
        &["dead", "list", "t", "--group", "g"],
        &["read", "t"],
        &["get", HOSTILE],
        &["list", HOSTILE],
        &["groups", "show", "t", HOSTILE],
        &["get", &id, "--server", HOSTILE],
        &["send", "t", "x", "--delay", HOSTILE],
    ] {
        let output = server.run(arguments);
        let shown = both(&output);
        let is_bad = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
        assert!(!shown.contains(is_bad), "{arguments:?} {shown:?}");
        assert!(!shown.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_screen_is_not_wide_enough_for_everything_but_ids_are_whole() {
    let server = Server::start();
    let body = "a body that is much too long for the screen that it is to be shown on".repeat(3);
    let id =
        server.json(&["send", "orders", &body, "--delay", "1h", "--key", "k"])[0]["id"].clone();
    let shown = on_terminal(&server, 110, "list orders");
    assert!(shown.contains(id.as_str().unwrap()) && shown.contains('…'), "{shown}");
    assert!(shown.contains("\u{1b}[1m"), "the head is bold: {shown:?}");
    let plain = shown.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 110), "{shown}");
    let plain = on_terminal(&server, 110, "list orders; true NO_COLOR");
    assert!(plain.contains('\u{1b}'), "a control of the next line: {plain:?}");
    let plain = on_terminal(&server, 110, "list orders --json");
    assert!(!plain.contains('\u{1b}') && plain.contains(&body), "{plain}");
}

#[test]
fn no_colour_means_none() {
    let server = Server::start();
    server.json(&["send", "orders", "x", "--delay", "1h"]);
    let output = Command::new("script")
        .args(["-qec", "\"$BINARY\" list orders", "/dev/null"])
        .env("BINARY", env!("CARGO_BIN_EXE_punctual"))
        .envs([("PUNCTUAL_SERVER", server.url.as_str()), ("NO_COLOR", "1"), ("TERM", "xterm")])
        .stdin(Stdio::null())
        .output()
        .expect("script");
    let shown = text(&output.stdout);
    assert!(shown.contains("BODY") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn long_work_shows_a_bar_on_a_terminal_and_nothing_in_a_pipe() {
    let server = Server::start();
    for _ in 0..3 {
        server.json(&["send", "orders", "x", "--delay", "1h"]);
    }
    let file = server.data.as_ref().unwrap().path().join("orders.ndjson");
    let file = file.to_str().unwrap();
    let piped = server.run(&["export", "orders", "--file", file]);
    assert_eq!((piped.stdout.len(), piped.stderr.len()), (0, 0), "{}", both(&piped));
    let shown = on_terminal(&server, 100, &format!("import copies --file {file}"));
    assert!(
        shown.contains("3 imported") && shown.contains("\u{1b}["),
        "a bar came and went: {shown:?}"
    );
    let piped = server.run(&["import", "others", "--file", file]);
    assert_eq!(
        (text(&piped.stdout).as_str(), piped.stderr.len()),
        ("3 imported, 0 were there already\n", 0)
    );
}

#[test]
fn a_slip_is_answered_with_what_was_meant() {
    let server = Server::start();
    server.json(&["send", "orders", "x", "--delay", "1h"]);
    server.json(&["groups", "create", "orders", "billing"]);
    for (arguments, expected) in [
        (&["list", "ordesr"][..], "did you mean `orders`?"),
        (&["forecast", "order"], "did you mean `orders`?"),
        (&["list", "quite-another"], "`punctual topics` lists"),
        (&["groups", "show", "orders", "biling"], "did you mean `billing`?"),
        (&["dead", "list", "orders", "--group", "zzz"], "`punctual groups list orders`"),
        (&["get", "close-42"], "--topic"),
        (&["send", "orders", "x", "--delay", "3 moons"], "250ms, 30s, 1h30m, 40d, PT30S"),
        (&["send", "orders", "x", "--at", "tomorrow"], "2030-01-31T09:00:00+01:00"),
        (&["send", "orders", "x", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlni"], "IANA"),
        (&["send", "orders", "x", "--cron", "nine"], "five fields"),
        (&["send", "orders", "x", "--level", "99"], "punctual levels"),
        (&["bulk", "cancel", "orders"], "--all"),
        (&["time", "advance", "1h"], "--virtual-time"),
        (&["sned", "orders", "x"], "'send'"),
        (&["send", "orders", "x", "--dealy", "1s"], "'--delay'"),
        (&["get", "x", "--server", "http://127.0.0.1:1"], "punctual serve"),
        (&["get", "x", "--server", "http://no.such.host.invalid"], "machine of that name"),
        (&["get", "x", "--server", "localhost:7070"], "http://HOST:PORT"),
    ] {
        let output = server.run(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?} {}", both(&output));
        assert!(output.stdout.is_empty(), "{arguments:?} {}", both(&output));
    }
}

#[test]
fn a_token_is_shown_nowhere() {
    let server = Server::start();
    let secret = "shop.c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNl";
    for arguments in [
        &["--help"][..],
        &["send", "--help"],
        &["get", "x"],
        &["get", "x", "--server", "http://127.0.0.1:1"],
        &["get", "x", "--server", "nonsense"],
        &["sned"],
        &["topics", "--token"],
        &["config", "print"],
    ] {
        let output = punctual()
            .args(arguments)
            .envs([("PUNCTUAL_TOKEN", secret), ("PUNCTUAL_SERVER", &server.url)])
            .output()
            .expect("it runs");
        assert!(!both(&output).contains("c2VjcmV0"), "{arguments:?} {}", both(&output));
    }
    let odd = ["topics", "--token", "c2VjcmV0\nx: y"];
    let output = server.run(&odd);
    assert_eq!(output.status.code(), Some(1));
    assert!(!both(&output).contains("c2VjcmV0"), "{}", both(&output));
}

#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    let server = Server::start();
    let output = punctual()
        .args(["topics", "--server", &server.url])
        .envs([("http_proxy", "http://127.0.0.1:1"), ("ALL_PROXY", "http://127.0.0.1:1")])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
}

#[test]
fn consuming_ends_after_as_many_as_were_asked_for() {
    let server = Server::start();
    for body in ["one", "two", "three"] {
        server.json(&["send", "t", body, "--key", "k"]);
    }
    let two = server.run(&["consume", "t", "--group", "g", "--max", "2"]);
    assert_eq!(
        (two.status.code(), text(&two.stdout).lines().count()),
        (Some(0), 2),
        "{}",
        both(&two)
    );
    let exec =
        ["consume", "t", "--group", "g", "--max", "1", "--exec", "cat; echo", "--concurrency", "3"];
    let one = server.run(&exec);
    assert_eq!(
        (one.status.code(), text(&one.stdout).lines().count()),
        (Some(0), 1),
        "{}",
        both(&one)
    );
    assert_eq!(server.json(&["groups", "show", "t", "g"])[0]["lag"], 0);
}

#[test]
fn time_is_moved_by_hand_where_it_is_virtual() {
    let data = tempfile::TempDir::new().unwrap();
    let server =
        Server::with(&["--http", "127.0.0.1:0", "--virtual-time=2030-01-31T00:00:00Z"], data);
    assert_eq!(text(&server.run(&["time"]).stdout), "2030-01-31T00:00:00.000Z, virtual\n");
    server.json(&["send", "t", "x", "--delay", "30d"]);
    let listed = text(&server.run(&["list", "t"]).stdout);
    assert!(listed.contains("in 30d"), "by the clock of the server: {listed}");
    let moved = text(&server.run(&["time", "advance", "30d"]).stdout);
    assert_eq!(moved, "2030-03-02T00:00:00.000Z, 1 fired\n");
    assert_eq!(server.json(&["time", "set", "2030-04-01T00:00:00Z"])[0]["fired"], 0);
}
