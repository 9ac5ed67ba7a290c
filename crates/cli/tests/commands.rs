//! Do the commands do what they say, and tell the outcome by their exit code?
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

use std::io::Write as _;
use std::process::{Output, Stdio};

use command_support::{Server, punctual, text};
use process_support::{PATIENCE, wait_for};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_message_by_command_line() {
    let server = Server::start();
    let send = ["send", "orders", "hello", "--delay", "1h", "--key", "k", "--header", "a=1=2"];
    let id = server.json(&send)[0]["id"].as_str().unwrap().to_owned();
    let message = &server.json(&["get", &id])[0];
    assert_eq!((&message["body"], &message["key"]), (&"hello".into(), &"k".into()));
    assert_eq!(message["headers"]["a"], "1=2");
    assert_eq!(server.json(&["list", "orders", "--key", "k"])[0]["id"], id.as_str());
    assert_eq!(server.json(&["list", "orders", "--limit", "0"]).len(), 0);
    assert_eq!(server.json(&["cancel", &id])[0]["result"], "cancelled");
    let again = server.run(&["cancel", &id]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("already_cancelled"));
    assert_eq!(server.json(&["list", "orders"]).len(), 0);
}

#[test]
fn a_body_from_a_pipe_is_kept_byte_for_byte() {
    let server = Server::start();
    let mut child = punctual()
        .args(["send", "raw", "-", "--delay", "1h", "--json", "--server", &server.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\x00\xff").unwrap();
    let output = child.wait_with_output().unwrap();
    let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = &server.json(&["get", sent["id"].as_str().unwrap()])[0];
    assert_eq!(message["body_base64"], "AP8=");
}

#[test]
fn topics_by_command_line() {
    let server = Server::start();
    server.json(&["topics", "create", "t", "--partitions", "2", "--retention", "forever"]);
    assert_eq!(server.json(&["topics", "show", "t"])[0]["partitions"], 2);
    assert_eq!(server.json(&["topics", "list"]).len(), 1);
    server.json(&["topics", "delete", "t"]);
    assert_eq!(server.run(&["topics", "show", "t"]).status.code(), Some(1));
}

#[test]
fn exit_codes() {
    let server = Server::start();
    for (arguments, code) in [
        (&["send", "t", "x", "--delay", "-5s"][..], 1),
        (&["send", "../t", "x"], 1),
        (&["get", "nonsense"], 1),
        (&["get", "x", "--server", "http://127.0.0.1:1"], 1),
        (&["serve", "--http", "0.0.0.0:0"], 1),
        (&["serve", "--durability", "never"], 1),
        (&["serve", "--config", "/nowhere/punctual.toml"], 1),
        (&["send", "t", "x", "--delay", "1s", "--level", "1"], 2),
        (&["send", "t", "x", "--header", "novalue"], 2),
        (&["dance"], 2),
        (&["cancel"], 2),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["config", "print"], 0),
    ] {
        let output = server.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {}", text(&output.stderr));
        assert_eq!(output.stderr.is_empty(), code == 0, "{arguments:?} {}", text(&output.stderr));
    }
}

#[test]
fn the_printed_configuration_is_a_configuration() {
    let data = TempDir::new().unwrap();
    let first = punctual().args(["config", "print", "--durability", "os"]).output().unwrap();
    let path = data.path().join("punctual.toml");
    std::fs::write(&path, &first.stdout).unwrap();
    let second = punctual().args(["config", "print", "--config"]).arg(&path).output().unwrap();
    let values = |output: &Output| -> Vec<String> {
        let text = text(&output.stdout);
        text.lines().filter_map(|line| line.split(" # ").next().map(str::to_owned)).collect()
    };
    assert!(values(&first).contains(&"durability = \"os\"".to_owned()));
    assert_eq!(values(&first), values(&second));
}

#[test]
fn g1_what_was_acknowledged_survives_a_kill() {
    let mut server = Server::start();
    let mut pending = Vec::new();
    for round in 0..5 {
        for _ in 0..10 {
            let sent = server.json(&["send", "t", "body", "--delay", "1h"]);
            pending.push(sent[0]["id"].as_str().unwrap().to_owned());
        }
        let cancelled = pending.swap_remove(round);
        server.json(&["cancel", &cancelled]);
        server = server.kill_and_restart();
        let listed = server.json(&["list", "t", "--limit", "1000"]);
        let mut ids: Vec<&str> = listed.iter().map(|one| one["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        pending.sort_unstable();
        assert_eq!(ids, pending);
        assert_eq!(server.json(&["get", &cancelled])[0]["state"], "cancelled");
    }
}

#[test]
fn g8_a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let data = server.data.as_ref().unwrap().path().join("data");
    let serve = ["serve", "--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--data"];
    let second = punctual().args(serve).arg(&data).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("in use"), "{}", text(&second.stderr));
    server.json(&["send", "t", "still here", "--delay", "1h"]);
}

#[test]
fn a_signal_ends_the_server_well() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start();
        server.signal(signal);
        assert_eq!(server.wait_for_end().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Server::start();
    let mut stream =
        std::net::TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = b"POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\
                 expect: 100-continue\r\n\r\n";
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head).unwrap();
    // The server is waiting for a body that will not come.
    let mut line = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut line).unwrap();
    server.signal("TERM");
    let closed = || std::net::TcpStream::connect(server.url.trim_start_matches("http://")).is_err();
    wait_for("the port to be closed", || closed().then_some(()));
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(130));
}
