//! Do the commands about consuming do what they say?
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Child;

use command_support::{Server, punctual, signal, text};
use process_support::dice::Dice;
use process_support::{free_address, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Lines of a command that goes on.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).lines().map_while(Result::ok)
}

fn ends_well(mut child: Child) {
    signal(&child, "INT");
    let status = child.wait().expect("it ends");
    let mut errors = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    assert_eq!(status.code(), Some(0), "{errors}");
}

fn show_group(server: &Server) -> Value {
    server.json(&["groups", "show", "t", "g"]).remove(0)
}

#[test]
fn messages_are_received_by_command_line() {
    let server = Server::start();
    let nothing = server.run(&["receive", "t", "--group", "g"]);
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(0), 0), "an empty receive");
    let sent = server.json(&["send", "t", "hello", "--key", "k", "--ttl", "1h"]);
    let received = server.json(&["receive", "t", "--group", "g", "--wait", "20s", "--ack"]);
    assert_eq!((received.len(), &received[0]["id"]), (1, &sent[0]["id"]));
    assert_eq!((&received[0]["body"], &received[0]["ttl"]), (&json!("hello"), &json!("1h")));
    assert_eq!(show_group(&server)["lag"], 0, "it was acked");
    server.json(&["send", "t", "again"]);
    let shown = server.run(&["receive", "t", "--group", "g", "--wait", "20s", "--lease", "1h"]);
    let shown = text(&shown.stdout);
    let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[2..], ["1", "-", "again"], "{shown}");
    assert_eq!(show_group(&server)["in_flight"], 1, "it was not acked");
}

#[test]
fn a_key_for_pushes_in_the_environment_does_not_concern_other_groups() {
    let server = Server::start();
    let made = punctual()
        .args(["groups", "create", "t", "g", "--server", &server.url])
        .env("PUNCTUAL_PUSH_SECRET", "whsec_c2VjcmV0")
        .output()
        .expect("it runs");
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert_eq!(show_group(&server)["push"], Value::Null);
}

#[test]
fn consuming_prints_each_message_and_acks_it() {
    let server = Server::start();
    let mut consumer = server.start_command(&["consume", "t", "--group", "g"]);
    let mut printed = lines(&mut consumer);
    for body in ["one", "two", "three"] {
        server.json(&["send", "t", body]);
        assert_eq!(printed.next().as_deref(), Some(body));
    }
    ends_well(consumer);
    assert_eq!(printed.next(), None);
    let group = show_group(&server);
    assert_eq!((&group["lag"], &group["in_flight"]), (&json!(0), &json!(0)), "{group}");

    server.json(&["send", "t", "four"]);
    let mut consumer = server.start_command(&["consume", "t", "--group", "g", "--json"]);
    let line = lines(&mut consumer).next().expect("a line");
    let message: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&message["body"], &message["attempt"]), (&json!("four"), &json!(1)));
    ends_well(consumer);
}

#[test]
fn a_command_is_run_for_each_message() {
    let server = Server::start();
    server.json(&["groups", "create", "t", "g", "--max-attempts", "1"]);
    let command = r#"body=$(cat); echo "$PUNCTUAL_TOPIC $PUNCTUAL_KEY $PUNCTUAL_ATTEMPT $body"
        if [ "$body" = bad ]; then echo first >&2; echo "no luck" >&2; exit 3; fi"#;
    let arguments = ["consume", "t", "--group", "g", "--exec", command, "--concurrency", "2"];
    let mut consumer = server.start_command(&arguments);
    let mut printed = lines(&mut consumer);
    server.json(&["send", "t", "good", "--key", "k"]);
    assert_eq!(printed.next().as_deref(), Some("t k 1 good"));
    server.json(&["send", "t", "bad"]);
    assert_eq!(printed.next().as_deref(), Some("t  1 bad"));
    // The command has spoken; that it failed is told to the server a moment later.
    let list = ["dead", "list", "t", "--group", "g"];
    let (letter, _) = wait_for("a dead letter", || server.json(&list).pop());
    assert_eq!((&letter["body"], &letter["last_error"]), (&json!("bad"), &json!("no luck")));
    assert_eq!(letter["reason"], "attempts_exhausted");
    ends_well(consumer);
    assert_eq!(show_group(&server)["lag"], 0);
}

#[test]
fn an_interrupt_lets_the_command_at_work_finish() {
    let server = Server::start();
    let pipe = server.data.as_ref().unwrap().path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let command = format!("echo begun; cat {}; echo ended", pipe.display());
    let arguments = ["consume", "t", "--group", "g", "--exec", &command];
    let mut consumer = server.start_command(&arguments);
    let mut printed = lines(&mut consumer);
    server.json(&["send", "t", "x"]);
    assert_eq!(printed.next().as_deref(), Some("begun"));
    signal(&consumer, "INT");
    // Opened for both ways, it does not wait for a reader that may never come.
    let mut writing = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    writing.write_all(b"go on\n").unwrap();
    assert_eq!(printed.next().as_deref(), Some("go on"));
    drop(writing);
    assert_eq!(printed.next().as_deref(), Some("ended"));
    assert_eq!(consumer.wait().unwrap().code(), Some(0));
    let group = show_group(&server);
    assert_eq!((&group["lag"], &group["in_flight"]), (&json!(0), &json!(0)), "it was acked");
}

#[test]
fn a_consumer_outlives_its_server() {
    // A port that nobody is given while the server is down.
    let address = free_address(&mut Dice::new(u64::from(std::process::id())));
    let server = Server::at(&address.to_string(), TempDir::new().unwrap());
    let mut consumer = server.start_command(&["consume", "t", "--group", "g"]);
    let mut printed = lines(&mut consumer);
    server.json(&["send", "t", "before"]);
    assert_eq!(printed.next().as_deref(), Some("before"));
    let server = server.kill_and_return();
    server.json(&["send", "t", "after"]);
    loop {
        // An ack that the end of the server broke off lets a message come twice.
        let line = printed.next().expect("it goes on");
        if line == "after" {
            break;
        }
        assert_eq!(line, "before");
    }
    ends_well(consumer);
}

#[test]
fn what_the_server_refuses_for_good_ends_a_consumer() {
    let server = Server::start();
    let output = server.run(&["consume", "t", "--group", "a b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("invalid_group_name"), "{}", text(&output.stderr));
}

#[test]
fn groups_by_command_line() {
    let server = Server::start();
    let create = ["groups", "create", "t", "g", "--ordered", "--ladder", "1s,1m", "--lease", "30s"];
    let made = server.json(&create);
    assert_eq!((&made[0]["ordered"], &made[0]["lease"]), (&json!(true), &json!("30s")));
    assert_eq!(made[0]["retry"], json!({"ladder": ["1s", "1m"]}));
    let set = ["groups", "set", "t", "g", "--backoff", "2s", "--max-attempts", "4"];
    let changed = server.json(&set);
    assert_eq!(changed[0]["retry"]["exponential"]["first"], "2s");
    assert_eq!((&changed[0]["max_attempts"], &changed[0]["ordered"]), (&json!(4), &json!(true)));
    server.json(&["groups", "create", "t", "other"]);
    server.json(&["groups", "create", "u", "g"]);
    assert_eq!(server.json(&["groups", "list"]).len(), 3);
    assert_eq!(server.json(&["groups", "list", "t"]).len(), 2);
    assert_eq!(server.json(&["groups", "pause", "t", "g"])[0]["paused"], true);
    let shown = text(&server.run(&["groups", "show", "t", "g"]).stdout);
    let last: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["3", "0", "0", "0"], "partition, cursor, end and lag\n{shown}");
    assert_eq!(server.json(&["groups", "resume", "t", "g"])[0]["paused"], false);
    server.json(&["groups", "reset", "t", "g", "--to", "latest"]);
    server.json(&["groups", "reset", "t", "g", "--time", "2030-01-01T00:00:00Z"]);
    server.json(&["groups", "reset", "t", "g", "--offset", "0=0", "--offset", "1=0"]);
    server.json(&["groups", "offsets", "t", "g", "--commit", "0=0"]);
    let offsets = server.json(&["groups", "offsets", "t", "g"]);
    assert_eq!(offsets[0]["offsets"]["0"], 0);
    server.json(&["groups", "delete", "u", "g"]);
    assert_eq!(server.run(&["groups", "show", "u", "g"]).status.code(), Some(1));
    assert_eq!(server.run(&["groups", "reset", "t", "g"]).status.code(), Some(2), "where to");
    assert_eq!(
        server.run(&["groups", "offsets", "t", "g", "--commit", "x"]).status.code(),
        Some(2)
    );
}

#[test]
fn dead_letters_by_command_line() {
    let server = Server::start();
    server.json(&["groups", "create", "t", "g", "--max-attempts", "1", "--lease", "1m"]);
    let reject = ["consume", "t", "--group", "g", "--exec", "cat >/dev/null; echo no >&2; exit 1"];
    let consumer = server.start_command(&reject);
    let ids: Vec<String> = (0..4)
        .map(|n| server.json(&["send", "t", &n.to_string(), "--key", &format!("k{n}")]).remove(0))
        .map(|sent| sent["id"].as_str().unwrap().to_owned())
        .collect();
    let list = ["dead", "list", "t", "--group", "g"];
    wait_for("four dead letters", || (server.json(&list).len() == 4).then_some(()));
    ends_well(consumer);
    let shown = server.json(&["dead", "show", "t", "--group", "g", &ids[1]]);
    assert_eq!((&shown[0]["key"], &shown[0]["last_error"]), (&json!("k1"), &json!("no")));
    let missing = server.run(&["dead", "show", "t", "--group", "g", "nonsense"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(server.json(&[&list[..], &["--key", "k2"]].concat()).len(), 1);

    let redrive = ["dead", "redrive", "t", "--group", "g"];
    let dry = server.json(&[&redrive[..], &["--dry-run"]].concat());
    assert_eq!(dry, [json!({"matched": 4})]);
    let edited = [&redrive[..], &["--id", &ids[0], "--set-body", "mended"]].concat();
    let results = server.json(&edited);
    assert_eq!((&results[0]["id"], &results[0]["result"]), (&json!(ids[0]), &json!("redriven")));
    let received = server.json(&["receive", "t", "--group", "g", "--wait", "20s", "--ack"]);
    assert_eq!((&received[0]["body"], &received[0]["attempt"]), (&json!("mended"), &json!(1)));
    let told = server.run(&[&redrive[..], &["--key", "k1", "--rate", "100"]].concat());
    assert_eq!(text(&told.stdout), "1 of 1 redriven\n");
    assert_eq!(text(&told.stderr), "", "silent in a pipe");

    let purge = ["dead", "purge", "t", "--group", "g"];
    assert_eq!(server.run(&purge).status.code(), Some(1), "everything must be said");
    let dry = server.json(&[&purge[..], &["--all", "--dry-run"]].concat());
    assert_eq!(dry[0]["matched"], 2);
    assert_eq!(server.json(&[&purge[..], &["--all"]].concat())[0]["purged"], 2);
    assert_eq!(server.json(&list).len(), 0);
}

#[test]
fn a_backlog_is_moved_by_command_line() {
    let server = Server::start();
    server.json(&["topics", "create", "elsewhere"]);
    server.json(&["groups", "create", "t", "g"]);
    for number in 0..3 {
        server.json(&["send", "t", &number.to_string()]);
    }
    // Everything is delivered once another group has got it.
    let mut seen = 0;
    while seen < 3 {
        let more = server.json(&["receive", "t", "--group", "w", "--wait", "20s", "--ack"]).len();
        assert!(more > 0, "{seen} of 3 came");
        seen += more;
    }
    let moved = server.json(&["groups", "drain", "t", "g", "--to", "elsewhere"]);
    assert_eq!(moved.len(), 3);
    assert_eq!(show_group(&server)["lag"], 0);
    let refused = server.run(&["groups", "drain", "t", "g", "--to", "absent"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn settings_of_topics_by_command_line() {
    let server = Server::start();
    server.json(&["topics", "create", "t", "--max-backlog", "10", "--overflow", "drop_oldest"]);
    let set = ["topics", "set", "t", "--default-ttl", "1h", "--max-backlog", "5"];
    let topic = &server.json(&[&set[..], &["--max-backlog-bytes", "1000"]].concat())[0];
    assert_eq!(topic["max_backlog"], json!({"messages": 5, "bytes": 1000}));
    assert_eq!((&topic["overflow"], &topic["default_ttl"]), (&json!("drop_oldest"), &json!("1h")));
    let topic = &server.json(&["topics", "set", "t", "--max-backlog", "none"])[0];
    assert_eq!(topic["max_backlog"], Value::Null);
    assert_eq!(server.run(&["topics", "set", "absent"]).status.code(), Some(1));
    assert_eq!(server.run(&["topics", "set", "t", "--overflow", "explode"]).status.code(), Some(2));
}
