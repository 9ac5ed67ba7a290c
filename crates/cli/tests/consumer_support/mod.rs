//! Consumers of a group over HTTP, and what they write down of all they were given.
//!
//! Every call is written down with the moments at which it was sent and answered, so that what the
//! server did in between can be judged without asking it.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each test file uses a part of this, real time is what these tests are about, and a \
              failed set-up may stop a test"
)]

pub mod deliveries;
pub mod duties;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process_support::http::Client;
use deliveries::Told;

/// The path of a group.
pub fn group_path(topic: &str, group: &str) -> String {
    format!("/v1/topics/{topic}/groups/{group}")
}

/// The server has ended, or is about to.
#[derive(Debug)]
pub struct Gone;

/// Tells everybody to stop when the thread that has it fails, so that nobody waits for it.
#[derive(Debug)]
pub struct Brake<'a>(pub &'a AtomicBool);

impl Drop for Brake<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

/// What to ask for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub max: u64,
    pub wait: Duration,
    pub lease: Duration,
}

/// A message as it was offered.
#[derive(Clone, Debug)]
pub struct Offer {
    pub id: String,
    pub receipt: String,
    pub body: String,
    pub key: Option<String>,
    pub attempt: u64,
}

/// An answered call and its moments.
#[derive(Debug)]
pub struct Answered<T> {
    pub sent: Instant,
    pub got: Instant,
    pub answer: T,
}

/// A connection that consumes for one group.
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    path: String,
}

impl Consumer {
    pub fn new(client: Client, topic: &str, group: &str) -> Self {
        Self { client, path: group_path(topic, group) }
    }

    pub fn receive(&mut self, ask: Ask) -> Result<Answered<Vec<Offer>>, Gone> {
        let request = json!({
            "max": ask.max,
            "wait": format!("{}ms", ask.wait.as_millis()),
            "lease": format!("{}ms", ask.lease.as_millis()),
        });
        let Answered { sent, got, answer } = self.call("receive", &request)?;
        let answer = answer["messages"].as_array().unwrap().iter().map(offer).collect();
        Ok(Answered { sent, got, answer })
    }

    pub fn ack(&mut self, receipts: &[&str]) -> Result<Answered<Vec<Told>>, Gone> {
        self.settle("ack", json!({ "receipts": receipts }))
    }

    /// Gives messages back for another attempt, as the group says if no delay is given.
    pub fn nack(
        &mut self,
        receipts: &[&str],
        delay: Option<Duration>,
    ) -> Result<Answered<Vec<Told>>, Gone> {
        let mut request = json!({ "receipts": receipts, "error": "no luck" });
        if let Some(delay) = delay {
            request["delay"] = format!("{}ms", delay.as_millis()).into();
        }
        self.settle("nack", request)
    }

    pub fn reject(&mut self, receipts: &[&str]) -> Result<Answered<Vec<Told>>, Gone> {
        self.settle("nack", json!({ "receipts": receipts, "reject": true, "error": "no use" }))
    }

    pub fn extend(
        &mut self,
        receipts: &[&str],
        lease: Duration,
    ) -> Result<Answered<Vec<Told>>, Gone> {
        let lease = format!("{}ms", lease.as_millis());
        self.settle("extend", json!({ "receipts": receipts, "lease": lease }))
    }

    fn settle(&mut self, verb: &str, request: Value) -> Result<Answered<Vec<Told>>, Gone> {
        let Answered { sent, got, answer } = self.call(verb, &request)?;
        let results = answer["results"].as_array().unwrap();
        let receipts = request["receipts"].as_array().unwrap();
        assert_eq!(results.len(), receipts.len());
        let told = results.iter().zip(receipts).map(|(result, receipt)| {
            assert_eq!(result["receipt"], *receipt, "in the order of the request");
            Told::of(result["result"].as_str().unwrap())
        });
        Ok(Answered { sent, got, answer: told.collect() })
    }

    fn call(&mut self, verb: &str, request: &Value) -> Result<Answered<Value>, Gone> {
        let sent = Instant::now();
        let answer = self.client.post(&format!("{}/{verb}", self.path), request);
        let answer = answer.map_err(|_no_answer| Gone)?;
        if answer.code() == "unavailable" {
            return Err(Gone);
        }
        Ok(Answered { sent, got: Instant::now(), answer: answer.expect(200) })
    }
}

fn offer(json: &Value) -> Offer {
    let text = |name: &str| json[name].as_str().map(str::to_owned);
    Offer {
        id: text("id").unwrap(),
        receipt: text("receipt").unwrap(),
        body: text("body").unwrap(),
        key: text("key"),
        attempt: json["attempt"].as_u64().unwrap(),
    }
}

/// What a group has still to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub lag: u64,
    pub in_flight: u64,
    pub retrying: u64,
    pub dead: u64,
}

impl Standing {
    pub fn of(client: &mut Client, topic: &str, group: &str) -> Self {
        let view = client.get(&group_path(topic, group)).unwrap().expect(200);
        let number = |name: &str| view[name].as_u64().unwrap();
        Self {
            lag: number("lag"),
            in_flight: number("in_flight"),
            retrying: number("retrying"),
            dead: number("dead"),
        }
    }

    pub fn is_done(self) -> bool {
        self.lag + self.in_flight + self.retrying == 0
    }
}

/// Whether a group is done with everything. A message on its way from one place to the next may be
/// in neither for a moment, so it is asked twice.
pub fn is_done(client: &mut Client, topic: &str, group: &str) -> bool {
    (0..2).all(|_| Standing::of(client, topic, group).is_done())
}

/// A dead letter as it is listed.
#[derive(Clone, Debug)]
pub struct Letter {
    pub id: String,
    pub body: String,
    pub reason: String,
    pub attempts: u64,
}

/// All dead letters of a group.
pub fn dead_letters(client: &mut Client, topic: &str, group: &str) -> Vec<Letter> {
    let mut letters = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{}/dead?limit=1000{cursor}", group_path(topic, group));
        let page = client.get(&path).unwrap().expect(200);
        for letter in page["messages"].as_array().unwrap() {
            let text = |name: &str| letter[name].as_str().unwrap().to_owned();
            letters.push(Letter {
                id: text("id"),
                body: text("body"),
                reason: text("reason"),
                attempts: letter["attempts"].as_u64().unwrap(),
            });
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return letters,
        }
    }
}
