//! What a client was told, and whether what it finds at the end agrees.
//!
//! A request without an answer stays open: it was applied as a whole, once, or not at all.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::http::{Answer, Client};
use super::logs::{self, Delivered};

/// The content of a message follows from its number, so that the ledger need not keep it.
pub fn body(serial: u64) -> String {
    let length = match serial % 64 {
        0 => 0,
        1 => 60_000,
        short => short * 24,
    };
    let letter = char::from(b'a' + u8::try_from(serial % 26).unwrap());
    let filler: String = std::iter::repeat_n(letter, usize::try_from(length).unwrap()).collect();
    format!("{serial}:{filler}")
}

fn serial_of(body: &str) -> u64 {
    let serial = body.split(':').next().unwrap().parse().unwrap();
    assert_eq!(body, self::body(serial), "a body came back altered");
    serial
}

/// What came of a request that schedules the messages of consecutive numbers.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Each with its id and due time.
    Accepted(Vec<(String, u64)>),
    Refused,
    NoAnswer,
}

/// What came of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    Cancelled,
    AlreadyDelivered,
    AlreadyCancelled,
    NoAnswer,
}

impl Cancel {
    /// As the server answered for a message that it had accepted.
    pub fn of(answer: &Answer) -> Self {
        match (answer.status, answer.code()) {
            (200, _) => Self::Cancelled,
            (409, "already_delivered") => Self::AlreadyDelivered,
            (409, "already_cancelled") => Self::AlreadyCancelled,
            _ => panic!("a cancel of a known message: {answer:?}"),
        }
    }
}

/// Everything a client knows.
#[derive(Debug, Default)]
pub struct Ledger {
    /// First number, how many, and the outcome of each request.
    pub requests: Vec<(u64, u64, Outcome)>,
    pub cancels: Vec<(String, Cancel)>,
    /// The ids a reader has seen in each partition, by offset.
    pub seen: HashMap<(String, u64), Vec<String>>,
}

/// Sums over a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub accepted: u64,
    pub refused: u64,
    pub unanswered: u64,
    pub unanswered_applied: u64,
    pub delivered: u64,
    pub pending: u64,
    pub cancelled: u64,
    pub cancels_unanswered: u64,
    pub cancels_too_late: u64,
}

/// What the server has at the end.
#[derive(Debug, Default)]
struct Holdings {
    /// Id and due time by number.
    delivered: HashMap<u64, (String, u64)>,
    pending: HashMap<u64, (String, u64)>,
}

impl Ledger {
    /// Takes over what another one knows.
    pub fn merge(&mut self, other: Self) {
        self.requests.extend(other.requests);
        self.cancels.extend(other.cancels);
    }

    /// Writes down the answer to a request of `count` messages from number `first`.
    pub fn note_schedule(&mut self, first: u64, count: u64, answer: Option<&Answer>) {
        let outcome = match answer {
            None => Outcome::NoAnswer,
            Some(Answer { status: 201, json }) => Outcome::Accepted(accepted(json)),
            Some(Answer { status: 429 | 507, .. }) => Outcome::Refused,
            Some(other) => panic!("a legal request: {other:?}"),
        };
        self.requests.push((first, count, outcome));
    }

    /// Reads everything in those topics, each with its number of partitions, and compares.
    pub fn check(&self, client: &mut Client, topics: &[(String, u64)]) -> Figures {
        let mut holdings = Holdings::default();
        for (topic, partitions) in topics {
            for partition in 0..*partitions {
                self.take_log(client, &mut holdings, topic, partition);
            }
            logs::read_pending(client, topic, |id, due_ms, body| {
                let twice = holdings.pending.insert(serial_of(body), (id.to_owned(), due_ms));
                assert!(twice.is_none(), "{id} is listed twice");
            });
        }
        let both = holdings.pending.keys().find(|serial| holdings.delivered.contains_key(serial));
        assert!(both.is_none(), "{both:?} is delivered and pending");
        self.compare(client, &holdings)
    }

    fn take_log(&self, client: &mut Client, to: &mut Holdings, topic: &str, partition: u64) {
        let empty = Vec::new();
        let seen = self.seen.get(&(topic.to_owned(), partition)).unwrap_or(&empty);
        let end = logs::read_log(client, topic, partition, |message: Delivered| {
            if let Some(before) = usize::try_from(message.offset).ok().and_then(|at| seen.get(at)) {
                assert_eq!(*before, message.id, "a reader saw another message there");
            }
            let serial = serial_of(&message.body);
            let twice = to.delivered.insert(serial, (message.id.clone(), message.due_ms));
            assert!(twice.is_none(), "delivered twice: {message:?} {twice:?}");
        });
        assert!(end >= u64::try_from(seen.len()).unwrap(), "a reader saw more of {topic}");
    }

    fn compare(&self, client: &mut Client, holdings: &Holdings) -> Figures {
        let mut figures = Figures::default();
        let cancels = self.cancels_by_id(&mut figures);
        let mut known = HashSet::new();
        for (first, count, outcome) in &self.requests {
            let serials = *first..first + count;
            known.extend(serials.clone());
            let is_there = |serial: &u64| {
                holdings.delivered.contains_key(serial) || holdings.pending.contains_key(serial)
            };
            let there = u64::try_from(serials.clone().filter(is_there).count()).unwrap();
            match outcome {
                Outcome::Refused => {
                    assert_eq!(there, 0, "refused and there: {serials:?}");
                    figures.refused += count;
                }
                Outcome::NoAnswer => {
                    assert!(there == 0 || there == *count, "half of a batch: {serials:?} {there}");
                    figures.unanswered += count;
                    figures.unanswered_applied += there;
                }
                Outcome::Accepted(ids) => {
                    assert_eq!(ids.len(), serials.clone().count());
                    for (serial, told) in serials.zip(ids) {
                        let tried = cancels.get(told.0.as_str()).map_or(&[][..], Vec::as_slice);
                        let fate = Fate { serial, told, tried };
                        fate.check(client, holdings, &mut figures);
                    }
                }
            }
        }
        let held = holdings.delivered.keys().chain(holdings.pending.keys());
        let foreign: Vec<&u64> = held.filter(|serial| !known.contains(serial)).collect();
        assert!(foreign.is_empty(), "nobody sent {foreign:?}");
        figures
    }

    fn cancels_by_id(&self, figures: &mut Figures) -> HashMap<&str, Vec<Cancel>> {
        let mut cancels: HashMap<&str, Vec<Cancel>> = HashMap::new();
        for (id, outcome) in &self.cancels {
            cancels.entry(id).or_default().push(*outcome);
            figures.cancels_unanswered += u64::from(*outcome == Cancel::NoAnswer);
            figures.cancels_too_late += u64::from(*outcome == Cancel::AlreadyDelivered);
        }
        cancels
    }
}

/// An accepted message: what was told about it and which cancels were tried.
struct Fate<'a> {
    serial: u64,
    told: &'a (String, u64),
    tried: &'a [Cancel],
}

impl Fate<'_> {
    fn check(&self, client: &mut Client, holdings: &Holdings, figures: &mut Figures) {
        let (id, tried) = (&self.told.0, self.tried);
        let count = |outcome| tried.iter().filter(|one| **one == outcome).count();
        let (cancelled, open) = (count(Cancel::Cancelled), count(Cancel::NoAnswer));
        assert!(cancelled <= 1, "{id} was cancelled more than once");
        figures.accepted += 1;
        if let Some(found) = holdings.delivered.get(&self.serial) {
            assert_eq!(found, self.told);
            assert_eq!(cancelled + count(Cancel::AlreadyCancelled), 0, "{id} is there after all");
            figures.delivered += 1;
            return;
        }
        assert_eq!(count(Cancel::AlreadyDelivered), 0, "{id} was told to be delivered");
        if let Some(found) = holdings.pending.get(&self.serial) {
            assert_eq!(found, self.told);
            assert_eq!(cancelled + count(Cancel::AlreadyCancelled), 0, "{id} is there after all");
            figures.pending += 1;
            return;
        }
        assert!(cancelled + open > 0, "{id} due {} is lost; {tried:?}", self.told.1);
        let answer = client.get(&format!("/v1/messages/{id}")).unwrap().expect(200);
        assert_eq!(answer["state"], "cancelled", "{id}");
        figures.cancelled += 1;
    }
}

fn accepted(json: &Value) -> Vec<(String, u64)> {
    let one = |json: &Value| (json["id"].as_str().unwrap().to_owned(), logs::time_ms(&json["due"]));
    match json["messages"].as_array() {
        Some(messages) => messages.iter().map(one).collect(),
        None => vec![one(json)],
    }
}
