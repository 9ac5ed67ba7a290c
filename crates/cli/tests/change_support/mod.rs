//! What a client that changes pending messages may believe of each of them.
//!
//! A request without an answer was applied or not, so a message may stand in more than one way; the
//! next answer tells which. What the server says, at any time, has to be one of the ways left.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

use serde_json::{Value, json};

use super::process_support::http::Answer;
use super::process_support::logs::{Delivered, time_ms};
use super::process_support::wall_ms;

/// The content of an edition of a message follows from its number.
pub fn body(serial: u64, edition: u64) -> String {
    let length = usize::try_from((serial * 7 + edition * 31) % 300).unwrap();
    format!("{serial}:{edition}:{}", "x".repeat(length))
}

/// Number and edition of a message that came back.
pub fn read_body(text: &str) -> (u64, u64) {
    let mut words = text.split(':');
    let mut number = || words.next().unwrap().parse().unwrap();
    let (serial, edition) = (number(), number());
    assert_eq!(text, body(serial, edition), "a body came back altered");
    (serial, edition)
}

/// What is asked for a pending message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Due at another time.
    Move(u64),
    Pause,
    Resume,
    /// Another body.
    Edit(u64),
    DeliverNow,
    Cancel,
    /// A change of a version that it cannot have.
    Outdated,
}

impl Deed {
    /// The body of the PATCH, where it is one.
    pub fn patch(self, serial: u64) -> Option<Value> {
        match self {
            Self::Move(at) => Some(json!({ "deliver_at": at })),
            Self::Pause => Some(json!({ "paused": true })),
            Self::Resume => Some(json!({ "paused": false })),
            Self::Edit(edition) => Some(json!({ "body": body(serial, edition) })),
            Self::Outdated => Some(json!({ "paused": true, "version": 1_000_000 })),
            Self::DeliverNow | Self::Cancel => None,
        }
    }
}

/// A pending message. Its due time is exactly known once an answer has told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub is_paused: bool,
    pub due_from: u64,
    pub due_to: u64,
    pub version: u64,
    pub edition: u64,
}

impl Waiting {
    /// What the deed makes of it, if it comes before the delivery; sent at `sent_ms`.
    fn after(self, deed: Deed, sent_ms: u64) -> Standing {
        let next = Self { version: self.version + 1, ..self };
        Standing::Waiting(match deed {
            Deed::Cancel => return Standing::Cancelled,
            Deed::Outdated => self,
            Deed::Edit(edition) => Self { edition, ..next },
            Deed::Move(at) => Self { due_from: at, due_to: u64::MAX, ..next },
            Deed::Pause if self.is_paused => self,
            Deed::Pause => Self { is_paused: true, ..next },
            Deed::Resume if !self.is_paused => self,
            Deed::Resume | Deed::DeliverNow => {
                Self { is_paused: false, due_from: sent_ms, due_to: u64::MAX, ..next }
            }
        })
    }

    fn may_be_due(self, now_ms: u64) -> bool {
        !self.is_paused && self.due_from <= now_ms
    }

    fn is_delivered_as(self, delivered: &Delivered, edition: u64) -> bool {
        let is_due = (self.due_from..=self.due_to).contains(&delivered.due_ms);
        !self.is_paused && self.edition == edition && is_due
    }
}

/// One way in which a message may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was never accepted.
    Absent,
    Waiting(Waiting),
    /// It was delivered as it was.
    Delivered(Waiting),
    Cancelled,
}

/// A message and the ways in which it may stand.
#[derive(Clone, Debug)]
pub struct Record {
    pub serial: u64,
    /// When its sender wanted it.
    pub deliver_at: u64,
    pub has_own_id: bool,
    pub id: Option<String>,
    pub editions: u64,
    pub possible: Vec<Standing>,
}

impl Record {
    /// A message that is about to be sent.
    pub fn new(serial: u64, deliver_at: u64, has_own_id: bool) -> Self {
        let possible = vec![Standing::Absent];
        Self { serial, deliver_at, has_own_id, id: None, editions: 0, possible }
    }

    pub fn own_id(&self) -> String {
        format!("own-{}", self.serial)
    }

    /// The message as it was sent first.
    pub fn request(&self) -> Value {
        let mut request = json!({ "body": body(self.serial, 0), "deliver_at": self.deliver_at });
        if self.has_own_id {
            request["id"] = self.own_id().into();
        }
        request
    }

    /// Whether all is over with it.
    pub fn is_over(&self) -> bool {
        let over = |one: &Standing| matches!(one, Standing::Cancelled | Standing::Delivered(_));
        self.possible.iter().all(over)
    }

    pub fn may_be_absent(&self) -> bool {
        self.possible.contains(&Standing::Absent)
    }

    /// It was sent, and nobody answered.
    pub fn sent_without_answer(&mut self) {
        let (due_from, due_to) = (self.deliver_at, u64::MAX);
        let first = Waiting { is_paused: false, due_from, due_to, version: 1, edition: 0 };
        let first = Standing::Waiting(first);
        if self.may_be_absent() && !self.possible.contains(&first) {
            self.possible.push(first);
        }
    }

    /// It was sent, for the first time or again, and answered.
    pub fn sent(&mut self, answer: &Value) {
        let id = answer["id"].as_str().unwrap().to_owned();
        if answer["duplicate"] == true {
            self.possible.retain(|one| *one != Standing::Absent);
            assert!(!self.possible.is_empty(), "known, and never sent: {self:?} {answer}");
        } else {
            assert!(self.may_be_absent(), "accepted a second time: {self:?} {answer}");
            let due = time_ms(&answer["due"]);
            let (is_paused, due_from, due_to) = (false, due, due);
            let first = Waiting { is_paused, due_from, due_to, version: 1, edition: 0 };
            self.possible = vec![Standing::Waiting(first)];
        }
        let before = self.id.replace(id.clone());
        assert!(before.is_none_or(|before| before == id), "another id: {self:?} {answer}");
    }

    /// Something was asked, and nobody answered.
    pub fn asked_without_answer(&mut self, deed: Deed, sent_ms: u64) {
        for standing in self.possible.clone() {
            let Standing::Waiting(waiting) = standing else { continue };
            let after = waiting.after(deed, sent_ms);
            if !self.possible.contains(&after) {
                self.possible.push(after);
            }
        }
    }

    /// Something was asked, and answered.
    pub fn asked(&mut self, deed: Deed, sent_ms: u64, answer: &Answer) {
        let now_ms = wall_ms();
        let left: Vec<Standing> = match (answer.status, answer.code()) {
            (200, _) => {
                let after = self.possible.iter().filter_map(|standing| match standing {
                    Standing::Waiting(waiting) => Some(waiting.after(deed, sent_ms)),
                    _ => None,
                });
                after.filter_map(|standing| confirmed(standing, &answer.json)).take(1).collect()
            }
            (409, "already_delivered") => {
                let delivered = |standing: &Standing| match *standing {
                    Standing::Waiting(one) if one.may_be_due(now_ms) => Some(one),
                    Standing::Delivered(one) => Some(one),
                    _ => None,
                };
                self.possible.iter().filter_map(delivered).map(Standing::Delivered).collect()
            }
            (409, "already_cancelled") => {
                self.possible.iter().filter(|one| **one == Standing::Cancelled).copied().collect()
            }
            (409, "version_conflict") => {
                assert_eq!(deed, Deed::Outdated, "{self:?} {answer:?}");
                let waiting = |one: &&Standing| matches!(one, Standing::Waiting(_));
                self.possible.iter().filter(waiting).copied().collect()
            }
            _ => panic!("{deed:?} of a known message: {self:?} {answer:?}"),
        };
        assert!(!left.is_empty(), "{deed:?} cannot be answered so: {self:?} {answer:?}");
        self.possible = left;
    }

    /// Compares with the delivery that a log has.
    pub fn check_delivered(&self, delivered: &Delivered) {
        let (_, edition) = read_body(&delivered.body);
        let agrees = |standing: &Standing| match standing {
            Standing::Waiting(one) | Standing::Delivered(one) => {
                one.is_delivered_as(delivered, edition)
            }
            Standing::Absent | Standing::Cancelled => false,
        };
        assert!(self.possible.iter().any(agrees), "{delivered:?} {self:?}");
        self.check_id(&delivered.id);
    }

    /// Compares with what the server says of a pending message.
    pub fn check_waiting(&self, view: &Value) {
        let agrees = |standing: &Standing| match standing {
            Standing::Waiting(_) => confirmed(*standing, view).is_some(),
            _ => false,
        };
        assert!(self.possible.iter().any(agrees), "{view} {self:?}");
        self.check_id(view["id"].as_str().unwrap());
    }

    fn check_id(&self, found: &str) {
        assert!(self.id.as_ref().is_none_or(|id| id == found), "{found} {self:?}");
    }
}

/// The standing with what a view adds, unless that contradicts it.
fn confirmed(standing: Standing, view: &Value) -> Option<Standing> {
    let Standing::Waiting(one) = standing else {
        let is_cancelled = view["result"] == "cancelled" && standing == Standing::Cancelled;
        return is_cancelled.then_some(standing);
    };
    let is_paused = match view["state"].as_str()? {
        "paused" => true,
        "scheduled" => false,
        _ => return None,
    };
    let (_, edition) = read_body(view["body"].as_str()?);
    let version = view["version"].as_u64()?;
    if (is_paused, edition, version) != (one.is_paused, one.edition, one.version) {
        return None;
    }
    let due = time_ms(&view["due"]);
    // A paused message tells when it was due; that it was not, no more.
    let is_due = is_paused || (one.due_from..=one.due_to).contains(&due);
    is_due.then_some(Standing::Waiting(Waiting { due_from: due, due_to: due, ..one }))
}
