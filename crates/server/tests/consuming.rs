//! Do groups receive, ack, nack and wait over HTTP as the contract says?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Server, read_answer, until_closed, wait_for};

const GROUP: &str = "/v1/topics/orders/groups/billing";
/// Far less than the waits that are cut short in these tests, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn receipts(messages: &[Value]) -> Value {
    json!({"receipts": messages.iter().map(|message| &message["receipt"]).collect::<Vec<_>>()})
}

/// Starts a receive that waits, on a connection of its own; returns once the server has it.
fn waiting(server: &Server, group: &str, ask: &str) -> TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "POST {group}/receive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        ask.len()
    );
    stream.write_all(head.as_bytes()).expect("it is open");
    let mut line = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut line).expect("the server reads the request");
    stream.write_all(ask.as_bytes()).expect("it is open");
    stream
}

#[test]
fn a_message_is_received_and_acked() {
    let server = Server::start();
    let id = server.send("orders", &json!({"body": "hello", "key": "k", "headers": {"a": "1"}}));
    let messages = server.receive(GROUP, &json!({"wait": "20s"}));
    let message = &messages[0];
    assert_eq!((messages.len(), &message["id"]), (1, &json!(id)));
    assert_eq!((&message["topic"], &message["offset"]), (&json!("orders"), &json!(0)));
    assert_eq!((&message["body"], &message["key"]), (&json!("hello"), &json!("k")));
    assert_eq!((&message["headers"], &message["attempt"]), (&json!({"a": "1"}), &json!(1)));
    for field in ["receipt", "due", "delivered_at"] {
        assert!(message[field].is_string(), "{field}: {message}");
    }
    assert!(message["partition"].is_u64());
    assert_eq!(server.receive(GROUP, &json!({})).len(), 0, "it is lent");
    assert_eq!(server.settle(GROUP, "ack", &receipts(&messages)), ["acked"]);
    assert_eq!(server.settle(GROUP, "ack", &receipts(&messages)), ["not_held"], "G20");
    let group = server.get(GROUP).json();
    assert_eq!((&group["lag"], &group["in_flight"]), (&json!(0), &json!(0)), "{group}");
}

#[test]
fn g25_content_comes_byte_for_byte() {
    let server = Server::start();
    for message in [
        json!({"body_base64": "AP8NCg==", "key_base64": "/w=="}),
        json!({"body": "", "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}),
        json!({"body": "\"\\\n\u{1f600}\u{0}", "headers": {"": "x"}}),
    ] {
        server.send("orders", &message);
        let received = server.receive(GROUP, &json!({"wait": "20s"}));
        for (field, value) in message.as_object().unwrap() {
            assert_eq!(&received[0][field], value, "{message}");
        }
        server.settle(GROUP, "ack", &receipts(&received));
    }
}

#[test]
fn g23_two_groups_do_not_concern_each_other() {
    let server = Server::start();
    let other = "/v1/topics/orders/groups/shipping";
    let ids: Vec<String> = (0..20).map(|n| server.send("orders", &json!({"body": n}))).collect();
    for group in [GROUP, other] {
        let received = server.receive_all(group, 20);
        let mut got: Vec<&str> = received.iter().map(|one| one["id"].as_str().unwrap()).collect();
        got.sort_unstable();
        let mut sent: Vec<&str> = ids.iter().map(String::as_str).collect();
        sent.sort_unstable();
        assert_eq!(got, sent);
        if group == GROUP {
            let results = server.settle(group, "ack", &receipts(&received));
            assert!(results.iter().all(|word| word == "acked"), "{results:?}");
            let foreign = server.put(other, "");
            assert_eq!(foreign.status, 201, "{}", foreign.body);
            let foreign = server.settle(other, "ack", &receipts(&received));
            assert!(foreign.iter().all(|word| word == "not_held"), "receipts of another group");
        }
    }
    assert_eq!(server.get(GROUP).json()["lag"], 0);
    let shipping = server.get(other).json();
    assert_eq!((&shipping["lag"], &shipping["in_flight"]), (&json!(20), &json!(20)), "{shipping}");
}

#[test]
fn a_receive_that_waits_is_woken_by_a_delivery() {
    let server = Server::start();
    server.put(GROUP, "");
    let mut stream = waiting(&server, GROUP, r#"{"wait":"60s"}"#);
    let start = Instant::now();
    server.send("orders", &json!({"body": "late", "delay": "300ms"}));
    let answer = read_answer(&mut stream);
    assert_eq!(answer.json()["messages"][0]["body"], "late");
    assert!(start.elapsed() >= Duration::from_millis(300), "never early");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_wait_ends_when_it_is_over() {
    let server = Server::start();
    let start = Instant::now();
    assert_eq!(server.receive(GROUP, &json!({"wait": "300ms"})).len(), 0);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(start.elapsed() < SOON);
    let empty = server.request("POST", &format!("{GROUP}/receive"), "", b"");
    assert_eq!((empty.status, empty.body.as_str()), (200, r#"{"messages":[]}"#), "all defaults");
}

#[test]
fn who_has_gone_takes_nothing() {
    let server = Server::start();
    server.put(GROUP, "");
    for _ in 0..20 {
        let stream = waiting(&server, GROUP, r#"{"wait":"60s","lease":"12h"}"#);
        drop(stream);
    }
    // A closed socket is noticed after a moment.
    wait_for("the end of their calls", || {
        (server.get("/v1/stats").json()["connections"]["open"] == 1).then_some(())
    });
    for number in 0..20 {
        server.send("orders", &json!({"body": number}));
    }
    let received = server.receive_all(GROUP, 20);
    assert!(received.iter().all(|message| message["attempt"] == 1), "nothing was lent before");
}

#[test]
fn a_server_that_ends_does_not_keep_those_who_wait() {
    let mut server = Server::start();
    server.put(GROUP, "");
    let mut streams: Vec<_> =
        (0..5).map(|_| waiting(&server, GROUP, r#"{"wait":"60s"}"#)).collect();
    let start = Instant::now();
    server.stop();
    for stream in &mut streams {
        let answer = read_answer(stream);
        assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"messages":[]}"#));
        until_closed(stream);
    }
    server.join().expect("it ends well");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn g22_a_nacked_message_comes_again_not_before_its_time() {
    let server = Server::start();
    server.put(GROUP, r#"{"retry":{"ladder":["400ms","1h"]}}"#);
    let id = server.send("orders", &json!({"body": "x"}));
    let first = server.receive(GROUP, &json!({"wait": "20s"}));
    let start = Instant::now();
    let nack = json!({"receipts": [first[0]["receipt"]], "error": "no luck"});
    assert_eq!(server.settle(GROUP, "nack", &nack), ["requeued"]);
    assert_eq!(server.settle(GROUP, "nack", &nack), ["not_held"]);
    let again = server.receive(GROUP, &json!({"wait": "20s"}));
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!((&again[0]["id"], &again[0]["attempt"]), (&json!(id), &json!(2)));
    for field in ["due", "delivered_at", "partition", "offset"] {
        assert_eq!(first[0][field], again[0][field], "{field} is the original one");
    }
    let start = Instant::now();
    let nack = json!({"receipts": [again[0]["receipt"]], "delay": "200ms"});
    assert_eq!(server.settle(GROUP, "nack", &nack), ["requeued"]);
    let third = server.receive(GROUP, &json!({"wait": "20s"}));
    assert!(start.elapsed() >= Duration::from_millis(200) && start.elapsed() < SOON);
    assert_eq!(third[0]["attempt"], 3);
    let nack = json!({"receipts": [third[0]["receipt"]]});
    assert_eq!(server.settle(GROUP, "nack", &nack), ["dead"], "the ladder has two rungs");
    wait_for("the dead letter", || (server.get(GROUP).json()["dead"] == 1).then_some(()));
    assert_eq!(server.get(GROUP).json()["lag"], 0);
}

#[test]
fn a_lease_runs_out_and_can_be_extended() {
    let server = Server::start();
    server.send("orders", &json!({"body": "x"}));
    // Long enough for a busy machine to extend it.
    let first = server.receive(GROUP, &json!({"wait": "20s", "lease": "5s"}));
    let receipt = &first[0]["receipt"];
    let extend = json!({"receipts": [receipt, "nonsense"], "lease": "7s"});
    let start = Instant::now();
    assert_eq!(server.settle(GROUP, "extend", &extend), ["extended", "not_held"]);
    let again = server.receive(GROUP, &json!({"wait": "60s"}));
    assert!(start.elapsed() >= Duration::from_millis(6900), "{:?}", start.elapsed());
    assert_eq!((again.len(), &again[0]["attempt"]), (1, &json!(2)));
    assert_ne!(&again[0]["receipt"], receipt);
    for call in ["ack", "nack", "extend"] {
        let late = server.settle(GROUP, call, &json!({"receipts": [receipt]}));
        assert_eq!(late, ["not_held"], "G20: {call}");
    }
    assert_eq!(server.settle(GROUP, "ack", &receipts(&again)), ["acked"]);
}

#[test]
fn g24_an_ordered_group_gets_one_message_of_a_key_at_a_time() {
    let server = Server::start();
    server.put(GROUP, r#"{"ordered":true,"retry":{"ladder":["200ms"]}}"#);
    let messages: Vec<Value> =
        (0..6).map(|n| json!({"body": n.to_string(), "key": format!("k{}", n % 2)})).collect();
    let batch = json!({"messages": messages}).to_string();
    assert_eq!(server.post("/v1/topics/orders/messages", batch).status, 201);
    let mut seen: Vec<Vec<String>> = vec![Vec::new(), Vec::new()];
    let mut failed = false;
    while seen.iter().map(Vec::len).sum::<usize>() < 6 {
        for message in server.receive(GROUP, &json!({"wait": "20s", "max": 100})) {
            let receipt = json!({"receipts": [message["receipt"]]});
            if !failed && message["body"] == "2" {
                failed = true;
                assert_eq!(server.settle(GROUP, "nack", &receipt), ["requeued"]);
                continue;
            }
            let place = usize::from(message["key"] == "k1");
            seen[place].push(message["body"].as_str().unwrap().to_owned());
            assert_eq!(server.settle(GROUP, "ack", &receipt), ["acked"]);
        }
    }
    assert!(failed);
    assert_eq!(seen, [["0", "2", "4"], ["1", "3", "5"]]);
}

#[test]
fn a_paused_group_gives_nothing_until_it_is_resumed() {
    let server = Server::start();
    server.put(GROUP, "");
    let paused = server.post(&format!("{GROUP}/pause"), "");
    assert_eq!((paused.status, &paused.json()["paused"]), (200, &json!(true)));
    server.send("orders", &json!({"body": "x"}));
    let mut stream = waiting(&server, GROUP, r#"{"wait":"60s"}"#);
    assert_eq!(server.receive(GROUP, &json!({"wait": "100ms"})).len(), 0);
    let resumed = server.patch(GROUP, r#"{"paused":false}"#);
    assert_eq!((resumed.status, &resumed.json()["paused"]), (200, &json!(false)));
    assert_eq!(read_answer(&mut stream).json()["messages"][0]["body"], "x");
    assert_eq!(server.post(&format!("{GROUP}/resume"), "").status, 200);
}

#[test]
fn a_page_of_large_messages_is_bounded() {
    let server = Server::start();
    let body = "x".repeat(1 << 20);
    for _ in 0..20 {
        server.send("orders", &json!({"body": body, "partition": 0}));
    }
    let first = server.receive(GROUP, &json!({"max": 1000, "wait": "20s"}));
    assert!((1..=9).contains(&first.len()), "{} messages of 1 MiB", first.len());
    let rest = server.receive_all(GROUP, 20 - first.len());
    assert!(rest.iter().all(|message| message["attempt"] == 1));
}

#[test]
fn g41_memory_that_is_not_there_lends_nothing() {
    let server = Server::with(&[
        ("http.held_bytes_max", "64MiB"),
        ("limits.body_bytes_max", "12MiB"),
        // Nobody is to be closed before all of them wait.
        ("http.body_idle_timeout", "5m"),
        ("http.drain_timeout", "100ms"),
    ]);
    // More than the system keeps for a peer that does not read.
    let large = "x".repeat(12 << 20);
    for _ in 0..6 {
        let sent = server.request("POST", "/v1/topics/orders/publish", "", large.as_bytes());
        assert_eq!(sent.status, 201, "{}", sent.body);
    }
    server.put(GROUP, "");
    wait_for("six messages", || (server.get(GROUP).json()["lag"] == 6).then_some(()));
    let in_flight = || server.get(GROUP).json()["in_flight"].as_u64().unwrap();
    let ask = json!({"max": 1, "lease": "12h"}).to_string();
    let mut silent = Vec::new();
    for _ in 0..5 {
        // Peers who read nothing fill the memory that answers may take.
        let stream = waiting(&server, GROUP, &ask);
        stream.peek(&mut [0]).expect("the answer has begun");
        silent.push(stream);
    }
    assert_eq!(in_flight(), 5);
    let refused = server.post(&format!("{GROUP}/receive"), &ask);
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_busy"));
    assert_eq!(in_flight(), 5, "what could not be answered went back at once");
    drop(silent);
    // The memory comes back when the server sees that they are gone.
    let last = wait_for("the memory to come back", || {
        let answer = server.post(&format!("{GROUP}/receive"), &ask);
        (answer.status == 200).then(|| answer.json()["messages"][0].clone())
    });
    assert_eq!(last["attempt"], 1);
}

#[test]
fn a_failure_from_elsewhere_is_tried_again_by_the_rules_of_the_group() {
    let server = Server::start();
    server.put(GROUP, r#"{"retry":{"ladder":["100ms"]},"max_attempts":2}"#);
    let path = format!("{GROUP}/retry");
    let failed = json!({"message": {"body": "x", "key": "k"}, "attempt": 1, "error": "refused"});
    let answer = server.post(&path, failed.to_string());
    assert_eq!((answer.status, &answer.json()["result"]), (200, &json!("requeued")));
    assert!(answer.json()["due"].is_string());
    let again = server.receive(GROUP, &json!({"wait": "20s"}));
    assert_eq!((&again[0]["body"], &again[0]["attempt"]), (&json!("x"), &json!(2)));
    let failed = json!({"message": {"body": "y"}, "attempt": 2});
    assert_eq!(server.post(&path, failed.to_string()).json(), json!({"result": "dead"}));
}

#[test]
fn a_message_out_of_time_or_attempts_is_a_dead_letter() {
    let server = Server::start();
    server.put(GROUP, r#"{"paused":true}"#);
    server.send("orders", &json!({"body": "old", "ttl": "1ms"}));
    let raw =
        server.request("POST", "/v1/topics/orders/publish?max_attempts=1&ttl=1h", "", b"once");
    assert_eq!(raw.status, 201, "{}", raw.body);
    server.patch(GROUP, r#"{"paused":false}"#);
    let received = server.receive(GROUP, &json!({"wait": "20s"}));
    assert_eq!((received.len(), &received[0]["body"]), (1, &json!("once")));
    assert_eq!(received[0]["headers"], Value::Null, "headers are as sent");
    assert_eq!((&received[0]["ttl"], &received[0]["max_attempts"]), (&json!("1h"), &json!(1)));
    let nack = json!({"receipts": [received[0]["receipt"]]});
    assert_eq!(server.settle(GROUP, "nack", &nack), ["dead"]);
}

#[test]
fn what_happened_is_counted() {
    let server = Server::start();
    server.put(GROUP, "");
    for number in 0..3 {
        server.send("orders", &json!({"body": number}));
    }
    let received = server.receive_all(GROUP, 3);
    server.settle(GROUP, "ack", &receipts(&received[..1]));
    server.settle(GROUP, "nack", &json!({"receipts": [received[1]["receipt"]], "delay": "1h"}));
    server.settle(GROUP, "nack", &json!({"receipts": [received[2]["receipt"]], "reject": true}));
    let metrics = server.get("/metrics").body;
    for line in [
        "punctual_received_total 3",
        "punctual_acked_total 1",
        "punctual_retries_total 1",
        "punctual_dead_total{reason=\"rejected\"} 1",
        "punctual_dead_total{reason=\"expired\"} 0",
        "punctual_group_lag{topic=\"orders\",group=\"billing\"} 0",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("orders.billing.retry"), "retry topics are nobody's business");
}
