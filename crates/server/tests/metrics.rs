//! Are the metrics in order, few, and true?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod metrics_support;
mod support;

use std::io::{Read, Write};

use metrics_support::{Metrics, read, value};
use serde_json::json;
use support::{Server, wait_for};

const OTHER: &str = "~other";

fn metrics(server: &Server) -> Metrics {
    let answer = server.get("/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    read(&answer.body)
}

fn pending(metrics: &Metrics, topic: &str) -> Option<f64> {
    value(metrics, "punctual_pending_messages", &[("topic", topic)])
}

#[test]
fn every_line_is_in_order() {
    let server = Server::start();
    // Names that look like something else.
    for topic in ["a.b-c_D", "other", "_other", "total", "0"] {
        server.send(topic, &json!({"body": "x", "delay": "1h"}));
        server.put(&format!("/v1/topics/{topic}/groups/other"), "{}");
    }
    let metrics = metrics(&server);
    assert!(metrics.len() > 40, "{}", metrics.len());
    assert_eq!(pending(&metrics, "other"), Some(1.0));
    assert_eq!(pending(&metrics, OTHER), None, "all have lines of their own");
    assert_eq!(value(&metrics, "punctual_topics", &[]), Some(10.0), "with those of dead letters");
    assert_eq!(value(&metrics, "punctual_groups", &[]), Some(5.0));
    let labels = [("topic", "_other"), ("group", "other")];
    assert_eq!(value(&metrics, "punctual_group_lag", &labels), Some(0.0));
}

#[test]
fn the_process_tells_what_it_takes() {
    let server = Server::start();
    let metrics = metrics(&server);
    let figure = |name| value(&metrics, name, &[]).unwrap_or_else(|| panic!("{name}"));
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(value(&metrics, "punctual_build_info", &version), Some(1.0));
    assert!(figure("process_resident_memory_bytes") > 1e6);
    assert!(figure("process_cpu_seconds_total") >= 0.0);
    assert!(figure("process_open_fds") > 3.0);
    assert!(figure("process_max_fds") >= figure("process_open_fds"));
    assert!(figure("punctual_store_bytes") > 0.0);
    assert!(figure("punctual_disk_free_bytes") <= figure("punctual_disk_size_bytes"));
    assert!(figure("punctual_disk_free_bytes") > 0.0);
    assert_eq!(figure("punctual_cluster_nodes"), 1.0);
    assert_eq!(figure("punctual_cluster_slots_unowned"), 0.0);
    let started = server.get("/v1/stats").json()["started_at"].as_str().unwrap().to_owned();
    let started: punctual_model::Timestamp = started.parse().unwrap();
    let told = figure("punctual_start_time_seconds");
    assert!((told * 1000.0 - started.as_millis() as f64).abs() < 1.5, "{told}");
}

#[test]
fn callers_are_timed_once_for_each_request() {
    let server = Server::start();
    let counted = |name: &str, via: &str| {
        value(&metrics(&server), &format!("{name}_count"), &[("via", via)]).unwrap()
    };
    let schedule = || counted("punctual_schedule_seconds", "http");
    assert_eq!(schedule(), 0.0);
    server.send("t", &json!({"body": 1}));
    let batch = json!({"messages": [{"body": 2, "delay": "1h"}, {"body": 3, "delay": "1h"}]});
    assert_eq!(server.post("/v1/topics/t/messages", batch.to_string()).status, 201);
    assert_eq!(server.request("POST", "/v1/topics/t/publish?delay=1h", "", b"x").status, 201);
    let legacy = r#"{"topic":"t","message":"x","execTime":"2030-01-01T00:00:00Z"}"#;
    assert_eq!(server.post("/delay/sendDelayMsg", legacy).json()["error"], "delay_too_long");
    let legacy = r#"{"topic":"t","message":"x","execTime":"2001-01-01T00:00:00Z"}"#;
    assert_eq!(server.post("/delay/sendDelayMsg", legacy).status, 200);
    assert_eq!(schedule(), 4.0);
    // What is refused takes no time worth telling.
    assert_eq!(server.post("/v1/topics/t/messages", r#"{"body":1,"delay":"never"}"#).status, 400);
    assert_eq!(schedule(), 4.0);
    let lines = b"{\"body\":1,\"delay\":\"1h\"}\nnonsense\n";
    let kind = "content-type: application/x-ndjson\r\n";
    let answer = server.request("POST", "/v1/topics/t/messages", kind, lines);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(schedule() > 4.0);

    let group = "/v1/topics/t/groups/g";
    let receive = || counted("punctual_receive_seconds", "http");
    assert_eq!(server.receive_all(group, 2).len(), 2);
    let once = receive();
    assert!(once >= 1.0);
    // Who is given nothing has not received.
    assert!(server.receive(group, &json!({"wait": "1ms"})).is_empty());
    assert_eq!(receive(), once);
    assert_eq!(counted("punctual_receive_seconds", "grpc"), 0.0);
    assert_eq!(counted("punctual_schedule_seconds", "kafka"), 0.0);
}

#[test]
fn a_receive_that_waits_is_not_slow() {
    let server = Server::start();
    server.put("/v1/topics/t/groups/g", "{}");
    server.send("t", &json!({"body": "later", "delay": "1200ms"}));
    let got = server.receive("/v1/topics/t/groups/g", &json!({"wait": "20s"}));
    assert_eq!(got.len(), 1);
    let sum = value(&metrics(&server), "punctual_receive_seconds_sum", &[("via", "http")]).unwrap();
    assert!(sum < 1.0, "the second that it waited is not in {sum}");
}

/// Makes topics with so many pending messages each, over one connection.
fn make_topics(server: &Server, topics: impl Iterator<Item = (String, usize)>) {
    let mut stream = server.connect();
    let mut rest = Vec::new();
    for (topic, count) in topics {
        let messages = vec![json!({"body": "x", "delay": "1h"}); count];
        let body = json!({"messages": messages}).to_string();
        let head = format!(
            "POST /v1/topics/{topic}/messages HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("it is sent");
        // The answer ends with its body, which ends with this.
        while !rest.ends_with(b"]}") {
            let mut piece = [0; 4096];
            let size = stream.read(&mut piece).expect("an answer");
            assert!(size > 0, "{}", String::from_utf8_lossy(&rest));
            rest.extend_from_slice(&piece[..size]);
        }
        assert!(rest.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&rest));
        rest.clear();
    }
}

#[test]
fn however_many_topics_there_are_the_text_stays_small() {
    let server = Server::with(&[("store.durability", "os")]);
    let few = server.get("/metrics").body.len();
    let topics = (0..400).map(|n| (format!("topic-{n:04}"), if n < 100 { 3 } else { 1 }));
    make_topics(&server, topics);
    let text = server.get("/metrics").body;
    let metrics = read(&text);
    assert_eq!(value(&metrics, "punctual_topics", &[]), Some(400.0));
    let shown = &metrics["punctual_pending_messages"].samples;
    assert_eq!(shown.len(), 101);
    assert!(shown.iter().all(|sample| sample.value == 3.0 || sample.value == 300.0));
    assert_eq!(pending(&metrics, OTHER), Some(300.0));
    assert_eq!(shown.iter().map(|sample| sample.value).sum::<f64>(), 600.0, "nothing is lost");
    assert!(text.len() < few + 101 * 64, "{} after {few}", text.len());
    // One that grows a little takes nobody's place, and one that grows much does.
    make_topics(&server, std::iter::once(("topic-0250".to_owned(), 4)));
    assert_eq!(pending(&self::metrics(&server), "topic-0250"), None);
    make_topics(&server, std::iter::once(("topic-0250".to_owned(), 2)));
    let metrics = self::metrics(&server);
    assert_eq!(pending(&metrics, "topic-0250"), Some(7.0));
    assert_eq!(metrics["punctual_pending_messages"].samples.len(), 101);
    assert_eq!(pending(&metrics, OTHER), Some(302.0));
}

#[test]
fn groups_are_bounded_too() {
    let settings = [("metrics.groups_max", "2"), ("metrics.topics_max", "0")];
    let server = Server::with(&settings);
    for group in ["a", "b", "c", "d"] {
        assert_eq!(server.put(&format!("/v1/topics/{group}/groups/{group}"), "{}").status, 201);
    }
    for topic in ["b", "d", "d", "c"] {
        server.send(topic, &json!({"body": "x"}));
    }
    let lag = |metrics: &Metrics, group: &str| {
        value(metrics, "punctual_group_lag", &[("topic", group), ("group", group)])
    };
    let metrics = wait_for("the lags", || {
        let metrics = metrics(&server);
        let lags = metrics["punctual_group_lag"].samples.iter().map(|sample| sample.value);
        (lags.sum::<f64>() == 4.0 && lag(&metrics, "d") == Some(2.0)).then_some(metrics)
    });
    for name in ["lag", "in_flight", "retrying", "dead"] {
        assert_eq!(metrics[&format!("punctual_group_{name}")].samples.len(), 3, "{name}");
    }
    assert!(lag(&metrics, OTHER).is_some());
    assert_eq!(value(&metrics, "punctual_groups", &[]), Some(4.0));
    let pending = &metrics["punctual_pending_messages"].samples;
    assert_eq!((pending.len(), pending[0].labels["topic"].as_str()), (1, OTHER));
}
