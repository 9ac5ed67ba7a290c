//! Are messages streamed to a consumer as they come, no more than it wants, and none lost? (G17)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use std::net::Shutdown;

use serde_json::{Value, json};
use support::{Server, wait_for};
use wire::{Wire, ask};

const GROUP: &str = "/v1/topics/t/groups/g";

fn started(settings: &[(&str, &str)]) -> Server {
    let server = Server::with(settings);
    assert_eq!(server.put(GROUP, r#"{"lease":"60s"}"#).status, 201);
    server
}

fn open(server: &Server, query: &str) -> Wire {
    let mut wire = Wire::open(server);
    wire.send(format!("GET {GROUP}/stream{query} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    let head = wire.head();
    assert_eq!(head.status, 200, "{}", head.text);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(head.get("cache-control"), Some("no-store"));
    wire
}

/// An event: its name, its id and its data.
fn event(wire: &mut Wire) -> Option<(String, String, Value)> {
    let (mut name, mut id, mut data) = (String::new(), String::new(), Value::Null);
    loop {
        let line = wire.line()?;
        if line.is_empty() {
            if !name.is_empty() {
                return Some((name, id, data));
            }
        } else if let Some((field, value)) = line.split_once(": ") {
            match field {
                "event" => value.clone_into(&mut name),
                "id" => value.clone_into(&mut id),
                "data" => data = serde_json::from_str(value).expect("JSON"),
                "" => {}
                other => panic!("{other}"),
            }
        }
    }
}

/// The next message.
fn message(wire: &mut Wire) -> Value {
    let (name, id, data) = event(wire).unwrap_or_else(|| panic!("the stream has ended"));
    assert_eq!(name, "message", "{data}");
    assert_eq!(data["id"], id.as_str());
    data
}

fn in_flight(server: &Server) -> u64 {
    server.get(GROUP).json()["in_flight"].as_u64().expect("a figure")
}

fn send(server: &Server, bodies: impl IntoIterator<Item = usize>) {
    let messages: Vec<Value> = bodies.into_iter().map(|n| json!({"body": n.to_string()})).collect();
    let answer = server.post("/v1/topics/t/messages", json!({"messages": messages}).to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
}

fn settle(server: &Server, call: &str, message: &Value) -> Vec<String> {
    server.settle(GROUP, call, &json!({"receipts": [message["receipt"]]}))
}

#[test]
fn messages_come_as_they_are_due_with_all_that_a_receive_tells() {
    let server = started(&[]);
    let mut wire = open(&server, "");
    server.send("t", &json!({"body": "line\nend \u{e9}", "key": "k", "headers": {"a": "1"}}));
    let got = message(&mut wire);
    assert_eq!((&got["body"], &got["key"]), (&json!("line\nend \u{e9}"), &json!("k")));
    assert_eq!((&got["headers"], &got["attempt"]), (&json!({"a": "1"}), &json!(1)));
    for field in ["receipt", "topic", "partition", "offset", "due", "delivered_at"] {
        assert!(got.get(field).is_some(), "{field}: {got}");
    }
    assert_eq!(settle(&server, "ack", &got), ["acked"]);
    server.send("t", &json!({"body": "second"}));
    assert_eq!(message(&mut wire)["body"], "second");
}

#[test]
fn no_more_are_unsettled_than_the_consumer_wants() {
    let server = started(&[]);
    send(&server, 0..20);
    let mut wire = open(&server, "?max_in_flight=3&lease=10m");
    let mut held: Vec<Value> = (0..3).map(|_| message(&mut wire)).collect();
    let mut seen = 3;
    while seen < 20 {
        // Nothing more comes until one is settled, by whatever word.
        assert_eq!(in_flight(&server), 3);
        let done = held.remove(0);
        match seen % 3 {
            0 => assert_eq!(settle(&server, "ack", &done), ["acked"]),
            1 => {
                let ask = json!({"receipts": [done["receipt"]], "reject": true});
                assert_eq!(server.settle(GROUP, "nack", &ask), ["dead"]);
            }
            _ => {
                let ask = json!({"receipts": [done["receipt"]], "delay": "1h"});
                assert_eq!(server.settle(GROUP, "nack", &ask), ["requeued"]);
            }
        }
        held.push(message(&mut wire));
        seen += 1;
    }
    let mut all: Vec<String> = held.iter().map(|one| one["id"].to_string()).collect();
    all.dedup();
    assert_eq!(all.len(), 3);
}

#[test]
fn what_others_settle_makes_no_room() {
    let server = started(&[]);
    send(&server, 0..4);
    wait_for("all of them", || (server.get(GROUP).json()["lag"] == 4).then_some(()));
    let mut wire = open(&server, "?max_in_flight=1");
    let own = message(&mut wire);
    let others = server.receive(GROUP, &json!({"max": 2}));
    assert_eq!(others.len(), 2);
    for other in &others {
        assert_eq!(settle(&server, "ack", other), ["acked"]);
    }
    assert_eq!(in_flight(&server), 1, "the stream holds what it has and no more");
    assert_eq!(settle(&server, "extend", &own), ["extended"]);
    assert_eq!(in_flight(&server), 1);
    assert_eq!(settle(&server, "ack", &own), ["acked"]);
    message(&mut wire);
}

#[test]
fn a_lease_that_runs_out_makes_room() {
    let server = started(&[]);
    send(&server, 0..1);
    let mut wire = open(&server, "?max_in_flight=1&lease=1s");
    let first = message(&mut wire);
    let again = message(&mut wire);
    assert_eq!(again["id"], first["id"]);
    assert_eq!(again["attempt"], 2);
    assert_eq!(settle(&server, "ack", &first), ["not_held"]);
    // On a slow machine this lease may have run out too; then it came once more.
    let mut last = again;
    while settle(&server, "ack", &last) != ["acked"] {
        last = message(&mut wire);
        assert_eq!(last["id"], first["id"]);
    }
}

#[test]
fn g21_what_was_written_stays_with_its_consumer_when_the_stream_ends() {
    let server = started(&[]);
    send(&server, 0..2);
    let mut wire = open(&server, "?max_in_flight=2&lease=10m");
    let held = [message(&mut wire), message(&mut wire)];
    wire.stream.shutdown(Shutdown::Both).expect("a socket");
    drop(wire);
    // Another stream gets none of them.
    let mut other = open(&server, "?max_in_flight=5");
    server.send("t", &json!({"body": "new"}));
    assert_eq!(message(&mut other)["body"], "new");
    for one in &held {
        assert_eq!(settle(&server, "ack", one), ["acked"]);
    }
}

#[test]
fn who_is_gone_is_given_nothing_more() {
    let server = started(&[]);
    let wire = open(&server, "?max_in_flight=1000");
    drop(wire);
    // Once it is seen that nobody is there, nothing is lent to nobody any more.
    wait_for("the end of the stream", || {
        (server.get("/v1/stats").json()["connections"]["open"] == 1).then_some(())
    });
    send(&server, 0..5);
    let got = server.receive_all(GROUP, 5);
    assert!(got.iter().all(|message| message["attempt"] == 1));
}

#[test]
fn what_was_taken_for_a_reader_that_stops_reading_goes_back() {
    let settings = [("http.body_idle_timeout", "3s"), ("store.durability", "os")];
    let server = started(&settings);
    let body = "x".repeat(100_000);
    for _ in 0..600 {
        server.send("t", &json!({"body": body}));
    }
    let wire = open(&server, "?max_in_flight=1000&lease=12h");
    // Nobody reads: what fits into the sockets is lent, the rest is not; and when the connection
    // is given up everything that was not handed over goes back.
    wait_for("the end of the stream", || {
        (server.get("/v1/stats").json()["connections"]["open"] == 1).then_some(())
    });
    let lent = in_flight(&server);
    assert!(lent < 600, "{lent} are lent to a reader that does not read");
    // What was on its way to the reader goes back a moment after its connection has ended.
    let mut got = Vec::new();
    wait_for("everything to be lent", || {
        got.extend(server.receive(GROUP, &json!({"max": 1000, "lease": "10m"})));
        (in_flight(&server) == 600).then_some(())
    });
    let count = usize::try_from(600 - lent).expect("a number");
    assert!(got.len() >= count, "{} came, {lent} were lent", got.len());
    drop(wire);
}

#[test]
fn two_streams_share_what_there_is() {
    let server = started(&[]);
    send(&server, 0..10);
    let mut wires = [open(&server, "?max_in_flight=5"), open(&server, "?max_in_flight=5")];
    let mut ids: Vec<String> = Vec::new();
    for wire in &mut wires {
        ids.extend((0..5).map(|_| message(wire)["id"].to_string()));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10, "each message went to one of them");
}

#[test]
fn a_get_creates_nothing() {
    let server = Server::start();
    for (path, code) in [
        ("/v1/topics/none/groups/g/stream", "topic_not_found"),
        ("/v1/topics/t/groups/none/stream", "group_not_found"),
    ] {
        server.put("/v1/topics/t", "{}");
        let refused = server.get(path);
        assert_eq!((refused.status, refused.code().as_str()), (404, code));
    }
    assert_eq!(server.get("/v1/topics/none").status, 404);
    server.put(GROUP, "{}");
    for query in ["?max_in_flight=0", "?max_in_flight=1001", "?lease=1ms", "?x=1"] {
        assert_eq!(server.get(&format!("{GROUP}/stream{query}")).status, 400, "{query}");
    }
    send(&server, 0..1);
    let (head, _) = ask(&server, "HEAD", &format!("{GROUP}/stream"), &[], b"");
    assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
    assert_eq!(in_flight(&server), 0, "nobody was given anything");
}

#[test]
fn a_group_that_is_deleted_ends_its_streams() {
    let server = started(&[]);
    let mut wire = open(&server, "");
    assert_eq!(server.delete(GROUP).status, 200);
    let (name, _, data) = event(&mut wire).expect("the reason");
    assert_eq!((name.as_str(), &data["code"]), ("problem", &json!("group_not_found")));
    assert_eq!(event(&mut wire), None);
}

#[test]
fn at_the_end_of_the_server_the_stream_ends_too() {
    let mut server = started(&[]);
    send(&server, 0..1);
    let mut wire = open(&server, "");
    message(&mut wire);
    server.stop();
    assert_eq!(event(&mut wire), None);
    server.join().expect("it ends well");
}
