//! Messages whose number says all about them, and the transfers that carry them away.
//!
//! What comes back, as a line of an export or from a log, is held against its number: key, headers
//! and body, byte for byte.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each part is used by one test, and a failed set-up may stop it"
)]

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::process_support::dice::Dice;
use crate::process_support::http::Client;
use crate::process_support::logs::time_ms;

pub const TOPIC: &str = "orders";
/// Partitions of a topic that came into being by itself.
const PARTITIONS: usize = 4;
/// The key of messages that are to be paused.
pub const PAUSED_KEY: &str = "held back";
/// Numbers from here on are of messages that wait for seconds only.
pub const SHORT: u64 = 1 << 36;
/// Numbers from here on are those of series.
pub const SERIES: u64 = 1 << 40;
/// A series that comes round each second, and has a name of its own.
pub const FAST_SERIES: u64 = SERIES + 2;
/// Longest wait for the next piece of a transfer.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);

/// The path of the topic, and what follows.
pub fn path(rest: &str) -> String {
    format!("/v1/topics/{TOPIC}{rest}")
}

/// The message of that number, as it is sent, without its time.
pub fn message(number: u64) -> Value {
    let mut message = json!({});
    let letters = "é\n\"x\" ".repeat(usize::try_from(number % 20).unwrap());
    if number.is_multiple_of(6) {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend((0..=255).rev().take(usize::try_from(number % 256).unwrap()));
        bytes.push(0xff);
        message["body_base64"] = json!(STANDARD.encode(bytes));
    } else {
        message["body"] = json!(format!("{number}:{letters}"));
    }
    if number.is_multiple_of(3) {
        message["id"] = json!(own_id(number));
    }
    match number % 101 {
        0 if number < SHORT => message["key"] = json!(PAUSED_KEY),
        1..20 => message["key_base64"] = json!(STANDARD.encode([0xff, 0x00, 0xfe])),
        20..60 => message["key"] = json!(format!("customer/{}", number % 97)),
        _ => {}
    }
    match number % 10 {
        5 => message["headers"] = json!({"kind": "ü", "number": number.to_string()}),
        7 => {
            message["headers"] = json!([
                {"name": "kind", "value": "one"},
                {"name": "kind", "value_base64": STANDARD.encode([0xf0, 0x00])},
            ]);
        }
        _ => {}
    }
    if number.is_multiple_of(7) {
        message["ttl"] = json!("2h");
    }
    if number.is_multiple_of(11) {
        message["max_attempts"] = json!(3);
    }
    message
}

/// The name of a message that has one.
pub fn own_id(number: u64) -> String {
    format!("order/{number} ü")
}

/// Milliseconds of its wait: minutes to days, longer than the test.
pub fn long_wait_ms(number: u64) -> u64 {
    const MINUTE: u64 = 60_000;
    let spread = if number.is_multiple_of(2) { 120 * MINUTE } else { 20 * 24 * 60 * MINUTE };
    30 * MINUTE + Dice::new(number).part(1).next() % spread
}

/// What must arrive as it was sent.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    key: Option<Vec<u8>>,
    headers: BTreeMap<String, Vec<Vec<u8>>>,
    body: Vec<u8>,
}

impl Content {
    fn of(view: &Value) -> Self {
        let mut headers: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        if let Some(object) = view["headers"].as_object() {
            for (name, value) in object {
                headers.insert(name.clone(), vec![value.as_str().unwrap().into()]);
            }
        }
        for header in view["headers"].as_array().into_iter().flatten() {
            let name = header["name"].as_str().unwrap().to_owned();
            headers.entry(name).or_default().push(bytes(header, "value").unwrap());
        }
        // Notes of the broker for those who consume.
        headers.retain(|name, _| !name.starts_with("punctual-"));
        Self { key: bytes(view, "key"), headers, body: bytes(view, "body").unwrap() }
    }
}

/// The bytes of a field, which may be text or base 64.
fn bytes(view: &Value, name: &str) -> Option<Vec<u8>> {
    match &view[name] {
        Value::String(text) => Some(text.as_bytes().to_owned()),
        _ => Some(STANDARD.decode(view[format!("{name}_base64")].as_str()?).unwrap()),
    }
}

/// The number of a message that came back, after a look at all of it.
pub fn number_of(view: &Value) -> u64 {
    let content = Content::of(view);
    let number = match std::str::from_utf8(&content.body) {
        Ok(text) => text.split(':').next().unwrap().parse().unwrap(),
        Err(_) => u64::from_be_bytes(content.body[..8].try_into().unwrap()),
    };
    assert_eq!(content, Content::of(&message(number)), "{number} came back altered");
    number
}

/// What an export said.
#[derive(Debug, Default)]
pub struct Export {
    /// Messages and series, by number.
    pub numbers: HashSet<u64>,
    pub lines: u64,
    /// Those that came a second time.
    pub again: u64,
    /// The last line, if it was there.
    pub end: Option<Value>,
}

impl Export {
    pub fn take(&mut self, line: &str) {
        assert!(self.end.is_none(), "a line behind the last one: {line}");
        let json: Value = serde_json::from_str(line).unwrap();
        if json.get("exported").is_some() {
            self.end = Some(json);
            return;
        }
        let number = number_of(&json);
        assert_eq!(json.get("repeat").is_some(), number >= SERIES, "{line}");
        let sent = message(number);
        assert_eq!(json["own_id"], sent["id"], "{line}");
        assert_eq!((&json["ttl"], &json["max_attempts"]), (&sent["ttl"], &sent["max_attempts"]));
        let is_paused = sent["key"] == PAUSED_KEY;
        assert_eq!(json.get("paused").is_some(), is_paused, "{line}");
        self.lines += 1;
        self.again += u64::from(!self.numbers.insert(number));
    }

    /// Takes so many lines of a transfer, or all of them.
    pub fn read(&mut self, transfer: &mut BufReader<TcpStream>, most: u64) {
        let mut line = String::new();
        for _ in 0..most {
            line.clear();
            if transfer.read_line(&mut line).unwrap() == 0 {
                break;
            }
            self.take(line.strip_suffix('\n').unwrap());
        }
    }

    /// Where to go on, of an export that is whole.
    pub fn next(&self) -> Option<String> {
        let end = self.end.as_ref().unwrap();
        assert_eq!(end["exported"].as_u64(), Some(self.lines), "{end}");
        end["next"].as_str().map(str::to_owned)
    }
}

/// Sends the head of a request whose answer ends with the connection.
fn transfer(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PIECE_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(PIECE_TIMEOUT)).unwrap();
    stream.write_all(format!("{head}\r\nhost: localhost\r\n").as_bytes()).unwrap();
    stream
}

/// An export under way, at its first line.
pub fn open_export(address: SocketAddr, query: &str) -> BufReader<TcpStream> {
    let mut stream = transfer(address, &format!("GET {} HTTP/1.0", path("/export") + query));
    stream.write_all(b"\r\n").unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains(" 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0);
    }
    lines
}

/// Announces an import of all of the text, sends half of it and is gone.
pub fn break_off_import(address: SocketAddr, text: &[u8]) {
    let mut stream = transfer(address, &format!("POST {} HTTP/1.1", path("/import")));
    let head =
        format!("content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n", text.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&text[..text.len() / 2]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // Whatever it answers: it has ended then.
    let _cut = stream.read_to_end(&mut Vec::new()).is_err();
}

/// A delivered message.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub number: u64,
    pub due_ms: u64,
    pub delivered_ms: u64,
}

/// Follows the log of the topic.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    offsets: [u64; PARTITIONS],
}

impl Follower {
    pub fn new(client: Client) -> Self {
        Self { client, offsets: [0; PARTITIONS] }
    }

    /// Goes on over another connection; one that is not used for a while is closed.
    pub fn reconnect(&mut self, client: Client) {
        self.client = client;
    }

    /// Gives everything that has been delivered since the last time.
    pub fn follow(&mut self, mut each: impl FnMut(Delivery)) {
        for (partition, offset) in self.offsets.iter_mut().enumerate() {
            loop {
                let rest = format!("/partitions/{partition}/messages?offset={offset}&limit=1000");
                let page = self.client.get(&path(&rest)).unwrap().expect(200);
                let messages = page["messages"].as_array().unwrap();
                if messages.is_empty() {
                    break;
                }
                for view in messages {
                    assert_eq!(view["offset"].as_u64(), Some(*offset), "offsets have no gap");
                    *offset += 1;
                    let [due_ms, delivered_ms] =
                        ["due", "delivered_at"].map(|name| time_ms(&view[name]));
                    assert!(due_ms <= delivered_ms, "early: {view}");
                    each(Delivery { number: number_of(view), due_ms, delivered_ms });
                }
            }
        }
    }
}
