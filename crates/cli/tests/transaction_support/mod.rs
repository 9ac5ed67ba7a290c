//! What the clients of transactions were told, and whether it goes together.
//!
//! The first decision that is durable wins, so whatever an answer says was decided, every later one
//! says again. A decision that got no answer may have been the first one.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

use std::collections::HashMap;

use serde_json::{Value, json};

use super::process_support::http::Answer;
use super::process_support::logs::Delivered;
use super::process_support::wall_ms;

/// Checks of a transaction before it is unresolved.
pub const CHECKS: u64 = 3;
pub const TOPICS: [&str; 2] = ["half-one", "half-two"];
pub const PRODUCERS: &str = "producers";

pub fn body(serial: u64) -> String {
    format!("{serial}:{}", "x".repeat(usize::try_from(serial % 200).unwrap()))
}

pub fn read_body(text: &str) -> u64 {
    let serial = text.split(':').next().unwrap().parse().unwrap();
    assert_eq!(text, body(serial), "a body came back altered");
    serial
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Commit,
    Rollback,
}

impl Decision {
    pub fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Rollback => "rollback",
        }
    }

    pub fn state(self) -> &'static str {
        match self {
            Self::Commit => "committed",
            Self::Rollback => "rolled_back",
        }
    }

    pub fn opposite(self) -> Self {
        match self {
            Self::Commit => Self::Rollback,
            Self::Rollback => Self::Commit,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Commit => 0,
            Self::Rollback => 1,
        }
    }
}

/// Messages that are sent together, to be decided about later.
#[derive(Clone, Debug)]
pub struct Prepare {
    pub serials: Vec<u64>,
    pub has_own_ids: bool,
    /// Milliseconds, from the commit or from the send.
    pub delay: u64,
    pub from_commit: bool,
    pub sent_ms: u64,
    pub life: u64,
}

impl Prepare {
    pub fn request(&self) -> Value {
        let message = |serial: &u64| {
            let place = usize::try_from(serial % 2).unwrap();
            let from = if self.from_commit { "commit" } else { "send" };
            let mut message = json!({
                "topic": TOPICS[place], "body": body(*serial), "delay": self.delay,
                "delay_from": from,
            });
            if self.has_own_ids {
                message["id"] = format!("own-{serial}").into();
            }
            message
        };
        let messages: Vec<Value> = self.serials.iter().map(message).collect();
        let check = json!({ "first": "100ms", "interval": "1s", "max": CHECKS });
        json!({ "producer_group": PRODUCERS, "messages": messages, "check": check })
    }
}

/// A transaction whose id is known.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub prepare: Prepare,
    /// When each decision was sent first.
    sent: [Option<u64>; 2],
    pub decided: Option<Decision>,
    /// Attempt and life of each check that arrived.
    pub checks: Vec<(u64, u64)>,
}

impl Transaction {
    pub fn new(prepare: Prepare) -> Self {
        Self { prepare, sent: [None; 2], decided: None, checks: Vec::new() }
    }

    /// It is about to be decided.
    pub fn sending(&mut self, decision: Decision) {
        self.sent[decision.index()].get_or_insert(wall_ms());
    }

    /// A decision was answered.
    pub fn answered(&mut self, decision: Decision, answer: &Answer) {
        match (answer.status, answer.code()) {
            (200, _) => {
                assert_eq!(answer.json["state"], decision.state(), "{self:?}");
                self.learn(decision);
            }
            (409, "already_decided") => self.learn(decision.opposite()),
            _ => panic!("{decision:?} of a known transaction: {self:?} {answer:?}"),
        }
    }

    /// The server has said what state it is in.
    pub fn seen(&mut self, state: &str) {
        match state {
            "committed" => self.learn(Decision::Commit),
            "rolled_back" => self.learn(Decision::Rollback),
            "prepared" | "unresolved" => {
                assert!(self.decided.is_none(), "a decision was forgotten: {self:?}");
            }
            other => panic!("{other}: {self:?}"),
        }
    }

    fn learn(&mut self, decision: Decision) {
        assert!(self.sent[decision.index()].is_some(), "nobody sent {decision:?}: {self:?}");
        assert!(self.decided.is_none_or(|before| before == decision), "it flipped: {self:?}");
        self.decided = Some(decision);
    }

    /// A check of it arrived.
    pub fn checked(&mut self, attempt: u64, life: u64) {
        let (before, before_life) = self.checks.last().copied().unwrap_or((0, self.prepare.life));
        // Only a kill may lose one that was counted.
        let lost = attempt.checked_sub(before + 1);
        assert!(lost.is_some_and(|lost| lost <= life - before_life), "{attempt} {self:?}");
        assert!(attempt <= CHECKS, "one too many: {attempt} {self:?}");
        self.checks.push((attempt, life));
    }

    /// All its checks are spent.
    pub fn spent(&self, life: u64) {
        let (last, last_life) = self.checks.last().copied().unwrap_or((0, self.prepare.life));
        assert!(CHECKS - last <= life - last_life, "checks were skipped: {self:?}");
    }

    /// Compares with what is in the logs at the end; answers how many messages came.
    pub fn check(&self, logs: &mut HashMap<u64, Delivered>) -> u64 {
        let mut came = 0;
        for serial in &self.prepare.serials {
            let delivered = logs.remove(serial);
            let Some(delivered) = delivered else {
                assert_ne!(self.decided, Some(Decision::Commit), "{serial} is lost: {self:?}");
                continue;
            };
            assert_eq!(self.decided, Some(Decision::Commit), "{delivered:?} {self:?}");
            let committed = self.sent[Decision::Commit.index()].unwrap();
            assert!(
                delivered.delivered_ms >= committed,
                "before its commit: {delivered:?} {self:?}"
            );
            let Prepare { from_commit, delay, sent_ms, .. } = self.prepare;
            let from = if from_commit { committed } else { sent_ms };
            assert!(delivered.due_ms >= from + delay, "early: {delivered:?} {self:?}");
            came += 1;
        }
        came
    }
}

/// Everything all clients know.
#[derive(Debug, Default)]
pub struct Book {
    pub transactions: HashMap<String, Transaction>,
    /// Without an answer, and so without an id.
    pub open: Vec<Prepare>,
}

impl Book {
    /// A prepare was answered, for the first time or again.
    pub fn prepared(&mut self, prepare: Prepare, answer: &Answer) {
        assert!(matches!(answer.status, 200 | 201), "{prepare:?} {answer:?}");
        let id = answer.json["id"].as_str().unwrap().to_owned();
        self.open.retain(|open| open.serials != prepare.serials);
        let known =
            self.transactions.entry(id).or_insert_with(|| Transaction::new(prepare.clone()));
        assert_eq!(known.prepare.serials, prepare.serials, "{answer:?}");
    }

    /// A check arrived, perhaps of a transaction of which nobody knew that it was accepted.
    pub fn checked(&mut self, check: &Value, life: u64) -> String {
        let id = check["transaction"].as_str().unwrap().to_owned();
        let messages = check["messages"].as_array().unwrap();
        let mut serials: Vec<u64> =
            messages.iter().map(|message| read_body(message["body"].as_str().unwrap())).collect();
        serials.sort_unstable();
        if !self.transactions.contains_key(&id) {
            let place = self.open.iter().position(|open| open.serials == serials);
            let place = place.unwrap_or_else(|| panic!("nobody sent {check}"));
            let prepare = self.open.swap_remove(place);
            self.transactions.insert(id.clone(), Transaction::new(prepare));
        }
        let transaction = self.transactions.get_mut(&id).unwrap();
        // One that was decided meanwhile has lost its halves, or some of them.
        assert!(serials == transaction.prepare.serials || serials.is_empty(), "{check}");
        transaction.checked(check["attempt"].as_u64().unwrap(), life);
        id
    }
}
