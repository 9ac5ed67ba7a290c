//! Are schedule, fire, deliver and ack of a message one trace, as a real receiver of OTLP sees it?
//! And is the broker as quick and as sound without anybody who receives?
#![cfg(feature = "otel")]
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "the support module serves several tests, and a failed set-up may stop one"
)]

mod process_support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use process_support::process::{Launch, Process};
use process_support::{PATIENCE, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A receiver that somebody else wrote.
struct Receiver {
    process: Child,
    port: u16,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/otlp-receiver.sh");
        let mut process =
            Command::new(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let spans = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&spans);
        let (tell, told) = mpsc::channel();
        std::thread::Builder::new()
            .name("receive spans".to_owned())
            .spawn(move || {
                let port = lines.next().and_then(Result::ok).and_then(|line| line.parse().ok());
                let _gone = port.map(|port: u16| tell.send(port)).is_none();
                for line in lines.map_while(Result::ok) {
                    received.lock().unwrap().push(serde_json::from_str(&line).unwrap());
                }
            })
            .unwrap();
        let port = told.recv_timeout(PATIENCE).unwrap();
        Self { process, port, spans }
    }

    /// Waits for the span of that name in that trace.
    fn span(&self, trace: &str, name: &str) -> Value {
        let find = || {
            let spans = self.spans.lock().unwrap();
            spans.iter().find(|span| span["trace"] == trace && span["name"] == name).cloned()
        };
        wait_for(name, find).0
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ended = self.process.kill().is_err();
        let _gone = self.process.wait().is_err();
    }
}

fn start(data: &TempDir, endpoint: &str) -> Process {
    Launch::on(data.path()).with("PUNCTUAL_OTEL__ENDPOINT", endpoint).start()
}

/// Sends a message that comes from there in a trace.
fn send_from(address: SocketAddr, parent: &str, message: &Value) {
    let answer = call_from(address, parent, "/v1/topics/orders/messages", message);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn call_from(address: SocketAddr, parent: &str, path: &str, asked: &Value) -> String {
    let body = asked.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ntraceparent: {parent}\r\ntracestate: vendor=1\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Receives one message.
fn receive(process: &Process) -> Value {
    let ask = json!({"max": 1, "wait": "20s"});
    let path = "/v1/topics/orders/groups/billing/receive";
    let answer = process.client().post(path, &ask).unwrap().expect(200);
    answer["messages"][0].clone()
}

fn settle(process: &Process, verb: &str, message: &Value) {
    let path = format!("/v1/topics/orders/groups/billing/{verb}");
    let ask = json!({"receipts": [message["receipt"]]});
    process.client().post(&path, &ask).unwrap().expect(200);
}

#[test]
fn one_message_is_one_trace_from_its_caller_to_its_ack() {
    let (receiver, data) = (Receiver::start(), TempDir::new().unwrap());
    let process = start(&data, &format!("http://127.0.0.1:{}", receiver.port));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    // Nobody records this one, so nobody here does.
    let unrecorded = "11111111111111111111111111111111";
    send_from(
        process.address(),
        &format!("00-{unrecorded}-b7ad6b7169203331-00"),
        &json!({"body": "x"}),
    );
    settle(&process, "ack", &receive(&process));
    send_from(
        process.address(),
        &format!("00-{trace}-b7ad6b7169203331-01"),
        &json!({"body": "x", "delay": "50ms", "headers": {"a": "1"}}),
    );
    let message = receive(&process);
    settle(&process, "ack", &message);
    let [schedule, fire, deliver, ack] = ["schedule", "fire", "deliver", "ack"]
        .map(|verb| receiver.span(trace, &format!("{verb} orders")));
    assert_eq!(schedule["parent"], "b7ad6b7169203331");
    assert_eq!(fire["parent"], schedule["span"]);
    assert_eq!(deliver["parent"], fire["span"]);
    assert_eq!(ack["parent"], deliver["span"]);
    assert_eq!(schedule["service"], "punctual");
    for span in [&schedule, &fire, &deliver] {
        assert_eq!(span["attributes"]["messaging.message.id"], message["id"]);
        assert_eq!(span["attributes"]["punctual.due"], message["due"]);
        assert!(span["start"].as_u64() <= span["end"].as_u64());
    }
    assert!(fire["attributes"]["punctual.lateness_ms"].as_f64().unwrap() >= 0.0);
    assert_eq!(deliver["attributes"]["punctual.outcome"], "acked");
    // The consumer goes on below the deliver span.
    let handed_on = format!("00-{trace}-{}-01", deliver["span"].as_str().unwrap());
    assert_eq!(message["headers"]["traceparent"], handed_on);
    assert_eq!(message["headers"]["tracestate"], "vendor=1");
    assert_eq!(message["headers"]["a"], "1");
    let spans = receiver.spans.lock().unwrap();
    assert!(spans.iter().all(|span| span["trace"] != unrecorded), "{spans:?}");
    process.check_log();
}

#[test]
fn a_trace_may_begin_with_the_message_and_go_on_after_a_failure() {
    let (receiver, data) = (Receiver::start(), TempDir::new().unwrap());
    let process = start(&data, &format!("http://127.0.0.1:{}", receiver.port));
    // The message's own header counts before that of the request.
    let own = "00-22222222222222222222222222222222-b7ad6b7169203331-01";
    let message = json!({"body": "x", "headers": {"traceparent": own}});
    send_from(
        process.address(),
        "00-33333333333333333333333333333333-b7ad6b7169203331-01",
        &message,
    );
    let message = receive(&process);
    settle(&process, "nack", &message);
    let trace = "2".repeat(32);
    let nack = receiver.span(&trace, "nack orders");
    let deliver = receiver.span(&trace, "deliver orders");
    assert_eq!((&nack["parent"], &deliver["status"]), (&deliver["span"], &json!(2)));
    assert_eq!(deliver["attributes"]["punctual.attempt"], 1);
    // Whoever names no trace begins one.
    let path = "/v1/topics/orders/messages";
    process.client().post(path, &json!({"body": "y"})).unwrap().expect(201);
    let begun = |span: &&Value| span["parent"] == "" && span["name"] == "schedule orders";
    let find = || receiver.spans.lock().unwrap().iter().find(begun).cloned();
    let (root, _) = wait_for("a trace of its own", find);
    receiver.span(root["trace"].as_str().unwrap(), "fire orders");
    // Over gRPC the place is in the metadata.
    let called = json!({"topic": "orders", "messages": [{"body": "eA=="}]});
    let trace = "6".repeat(32);
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let method = "/punctual.v1.MessageService/Send";
    let answer = call_from(process.address(), &parent, method, &called);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(receiver.span(&trace, "schedule orders")["parent"], "b7ad6b7169203331");
    // A repeated request is the same one, whatever trace it is in.
    let named = json!({"body": "z", "id": "one"});
    send_from(process.address(), &format!("00-{}-b7ad6b7169203331-01", "4".repeat(32)), &named);
    let again = process.client().post(path, &named).unwrap().expect(200);
    assert_eq!(again["duplicate"], true);
}

#[test]
fn a_dead_collector_costs_only_spans() {
    // It takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let data = TempDir::new().unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut process = start(&data, &endpoint);
    let messages: Vec<Value> = (0..5000).map(|n| json!({"body": n})).collect();
    for _ in 0..3 {
        let sent =
            process.client().post("/v1/topics/orders/messages", &json!({"messages": messages}));
        assert_eq!(sent.unwrap().expect(201)["messages"].as_array().unwrap().len(), 5000);
    }
    let message = receive(&process);
    settle(&process, "ack", &message);
    process.wait_for_line("the collector does not take traces");
    assert!(dropped(process.address()) > 1000);
    process.signal("TERM");
    assert!(process.wait_for_end().success());
}

/// How many spans were lost.
fn dropped(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let name = "punctual_trace_spans_dropped_total ";
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}
