//! Clients that schedule, move and cancel at a steady pace while the cluster is being hurt.
//!
//! Each keeps to one node while that answers and goes on to the next when it does not. Nothing is
//! repeated: a request without an answer stays open in the ledger.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::oracle::{Cancel, Ledger, Sent, body};
use crate::process_support::dice::Dice;
use crate::process_support::http::{Answer, Client};
use crate::process_support::{logs, wall_ms};

/// Longest wait for an answer; a node that takes longer is left for another.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest wait before a message is due.
const DELAY_MOST_MS: u64 = 6_000;
/// Messages of a client that are looked at first for one to move or cancel: most of them still wait.
const RECENT: u64 = 200;
/// How much later a moved message is due than before, at most.
const MOVE_MOST_MS: u64 = 3_000;

/// How much is sent, and how fast.
#[derive(Clone, Debug)]
pub struct Load {
    pub topic: String,
    pub nodes: Vec<SocketAddr>,
    pub clients: u64,
    pub messages: u64,
    /// The messages are due over this time, about evenly.
    pub window: Duration,
    /// Messages in a request, at most.
    pub batch: u64,
}

/// A load under way.
#[derive(Debug)]
pub struct Running {
    clients: Vec<std::thread::JoinHandle<(Ledger, Counts)>>,
}

/// How many requests there were.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub requests: u64,
    /// Answered with a 5xx.
    pub refused: u64,
    /// Without any answer.
    pub silent: u64,
    pub moved: u64,
    /// How long each answer took.
    pub took_ms: Vec<u64>,
}

impl Load {
    pub fn start(self, dice: &Dice) -> Running {
        let start = |number: u64| {
            let client = Sender {
                dice: dice.part(number),
                at: usize::try_from(number).unwrap() % self.nodes.len(),
                connection: None,
                ledger: Ledger::default(),
                counts: Counts::default(),
                candidates: Vec::new(),
                load: self.clone(),
            };
            let name = format!("client {number}");
            let run = move || client.run(number);
            std::thread::Builder::new().name(name).spawn(run).unwrap()
        };
        Running { clients: (0..self.clients).map(start).collect() }
    }
}

impl Running {
    pub fn finish(self) -> (Ledger, Counts) {
        let mut ledger = Ledger::default();
        let mut sum = Counts::default();
        for client in self.clients {
            let (part, counts) = client.join().unwrap();
            ledger.merge(part);
            sum.requests += counts.requests;
            sum.refused += counts.refused;
            sum.silent += counts.silent;
            sum.moved += counts.moved;
            sum.took_ms.extend(counts.took_ms);
        }
        sum.took_ms.sort_unstable();
        (ledger, sum)
    }
}

struct Sender {
    load: Load,
    dice: Dice,
    /// Which node it speaks to.
    at: usize,
    connection: Option<Client>,
    ledger: Ledger,
    counts: Counts,
    /// Numbers of messages that may be moved or cancelled.
    candidates: Vec<u64>,
}

impl Sender {
    fn run(mut self, number: u64) -> (Ledger, Counts) {
        let share = self.load.messages / self.load.clients;
        let first = number * share;
        let started = Instant::now();
        let mut sent = 0;
        while sent < share {
            let count = self.dice.within(1, self.load.batch).min(share - sent);
            self.schedule(first + sent, count);
            sent += count;
            if self.dice.chance(25) {
                self.cancel();
            }
            if self.dice.chance(15) {
                self.reschedule();
            }
            // In step with the time, also after an answer that took long.
            let part = u32::try_from(sent * 1000 / share).unwrap();
            let planned = self.load.window * part / 1000;
            std::thread::sleep(planned.saturating_sub(started.elapsed()));
        }
        (self.ledger, self.counts)
    }

    fn schedule(&mut self, first: u64, count: u64) {
        let now = wall_ms();
        let serials: Vec<u64> = (first..first + count).collect();
        let dues: Vec<u64> =
            serials.iter().map(|_| now + self.dice.within(500, DELAY_MOST_MS)).collect();
        let message =
            |(serial, due): (&u64, &u64)| json!({ "body": body(*serial), "deliver_at": due });
        let messages: Vec<Value> = serials.iter().zip(&dues).map(message).collect();
        let path = format!("/v1/topics/{}/messages", self.load.topic);
        let answer = self.call(|client| client.post(&path, &json!({ "messages": messages })));
        let accepted = answer.as_ref().filter(|answer| answer.status == 201).map(|answer| {
            let list = answer.json["messages"].as_array().unwrap();
            assert_eq!(list.len(), serials.len(), "{answer:?}");
            list
        });
        for (at, serial) in serials.iter().enumerate() {
            let told = accepted.map(|list| &list[at]);
            let id = told.map(|told| told["id"].as_str().unwrap().to_owned());
            let due_ms = told.map_or(dues[at], |told| logs::time_ms(&told["due"]));
            assert_eq!(due_ms, dues[at], "it was asked for another time");
            let certain = Some(due_ms);
            let sent = Sent { id, due_ms, due_for_certain_ms: certain, cancel: Cancel::Never };
            if sent.id.is_some() {
                self.candidates.push(*serial);
            }
            self.ledger.sent.insert(*serial, sent);
        }
    }

    /// One of the messages of this client, which then is no candidate any more.
    fn candidate(&mut self) -> Option<(u64, String)> {
        let length = u64::try_from(self.candidates.len()).unwrap();
        if length == 0 {
            return None;
        }
        // Now and then one that is most likely delivered already.
        let recent = if self.dice.chance(90) { length.min(RECENT) } else { length };
        let place = usize::try_from(length - 1 - self.dice.next() % recent).unwrap();
        let serial = self.candidates.swap_remove(place);
        Some((serial, self.ledger.sent[&serial].id.clone().unwrap()))
    }

    fn cancel(&mut self) {
        let Some((serial, id)) = self.candidate() else { return };
        let answer = self.call(|client| client.delete(&format!("/v1/messages/{id}")));
        let cancel = match answer.map(|answer| (answer.status, answer.code().to_owned())) {
            None => Cancel::Open,
            Some((200, _)) => Cancel::Done,
            Some((409, code)) if code == "already_delivered" => Cancel::TooLate,
            Some(other) => panic!("a cancel of a known message {id}: {other:?}"),
        };
        self.ledger.sent.get_mut(&serial).unwrap().cancel = cancel;
    }

    fn reschedule(&mut self) {
        let Some((serial, id)) = self.candidate() else { return };
        let sent = &self.ledger.sent[&serial];
        let later = sent.due_ms.max(wall_ms()) + self.dice.within(0, MOVE_MOST_MS);
        let change = json!({ "deliver_at": later });
        let answer = self.call(|client| client.patch(&format!("/v1/messages/{id}"), &change));
        let sent = self.ledger.sent.get_mut(&serial).unwrap();
        match answer.map(|answer| (answer.status, answer.code().to_owned())) {
            None => sent.due_for_certain_ms = None,
            Some((200, _)) => {
                (sent.due_ms, sent.due_for_certain_ms) = (later, Some(later));
                self.counts.moved += 1;
            }
            Some((409, code)) if code == "already_delivered" => sent.cancel = Cancel::TooLate,
            Some(other) => panic!("a new time for a known message {id}: {other:?}"),
        }
        // It may be moved again, or cancelled after all.
        if sent.cancel == Cancel::Never && sent.due_for_certain_ms.is_some() {
            self.candidates.push(serial);
        }
    }

    /// The answer, unless there was none or one that says to try again.
    fn call(&mut self, ask: impl FnOnce(&mut Client) -> std::io::Result<Answer>) -> Option<Answer> {
        self.counts.requests += 1;
        let connection = self.connection.take().or_else(|| self.connect());
        let Some(mut connection) = connection else {
            self.counts.silent += 1;
            return None;
        };
        let asked = Instant::now();
        let Ok(answer) = ask(&mut connection) else {
            self.counts.silent += 1;
            self.at = (self.at + 1) % self.load.nodes.len();
            return None;
        };
        self.counts.took_ms.push(u64::try_from(asked.elapsed().as_millis()).unwrap());
        self.connection = Some(connection);
        if answer.status >= 500 || answer.status == 429 {
            self.counts.refused += 1;
            return None;
        }
        Some(answer)
    }

    /// The first node from the present one on that takes a connection.
    fn connect(&mut self) -> Option<Client> {
        for _ in 0..self.load.nodes.len() {
            let connection = Client::connect(self.load.nodes[self.at])
                .and_then(|client| client.patience(ANSWER_TIMEOUT));
            if let Ok(connection) = connection {
                return Some(connection);
            }
            self.at = (self.at + 1) % self.load.nodes.len();
        }
        None
    }
}
