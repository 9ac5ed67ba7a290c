//! Transactions in JSON: prepare, decide, and what producers are asked.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::answer::{Content, is_false};
use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::{Bounded, Item};
use crate::request::fields::Fields;
use crate::request::{NewMessage, ReadLimits};

/// Longest reason that somebody may give for a decision, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 1024;

/// A transaction that somebody wants. Texts are as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// Whose members are asked.
    pub producer_group: Cow<'a, str>,
    /// Its messages.
    pub messages: Vec<HalfMessage<'a>>,
    /// When they are asked.
    pub check: Option<Check<'a>>,
}

/// A message of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfMessage<'a> {
    /// The topic it goes to.
    pub topic: Cow<'a, str>,
    /// Whether its delay counts from the send, and not from the commit.
    pub from_send: bool,
    /// The message.
    pub message: NewMessage<'a>,
}

/// When producers are asked; what is not said has its default elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check<'a> {
    /// The first time: a duration.
    pub first: Option<Cow<'a, str>>,
    /// Between two times: a duration.
    pub interval: Option<Cow<'a, str>>,
    /// How often at most.
    pub max: Option<u64>,
    /// Where, if not by a waiting call.
    pub url: Option<Cow<'a, str>>,
}

impl<'a> Prepare<'a> {
    /// Reads `{"producer_group":…,"messages":[…],"check":{…}}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong, with the index of the message.
    pub fn read(json: &'a [u8], limits: ReadLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let producer_group = fields.take_string("producer_group")?;
        let missing = |detail: &'static str| Problem::new(Code::InvalidField, detail);
        let producer_group = producer_group.ok_or_else(|| missing("give the producer_group"))?;
        let raw = fields.take("messages").ok_or_else(|| missing("give the messages"))?;
        let check = fields.take("check").map(|raw| Check::read("check", raw)).transpose()?;
        fields.end()?;
        if !raw.starts_with('[') {
            return Err(missing("messages is an array"));
        }
        let over = |most| {
            let detail = format!("a transaction has at most {most} messages");
            Problem::new(Code::BatchTooLarge, detail)
        };
        let items = Bounded::<Item<'_>>::read(raw, limits.messages, over)?;
        if items.is_empty() {
            return Err(Code::EmptyBatch.into());
        }
        let half = |(index, item): (usize, Item<'a>)| {
            HalfMessage::read(item.0.get(), limits).map_err(|problem| problem.at(index))
        };
        let messages = items.into_iter().enumerate().map(half).collect::<Result<_, _>>()?;
        Ok(Self { producer_group, messages, check })
    }
}

impl<'a> HalfMessage<'a> {
    fn read(raw: &'a str, limits: ReadLimits) -> Result<Self, Problem> {
        let mut fields = Fields::nested("a message", raw)?;
        let topic = fields.take_string("topic")?;
        let delay_from = fields.take_string("delay_from")?;
        let message = NewMessage::take(&mut fields, limits)?;
        fields.end()?;
        let missing = || Problem::new(Code::InvalidField, "give the topic of the message");
        let from_send = match delay_from.as_deref() {
            None | Some("commit") => false,
            Some("send") => true,
            Some(_) => {
                let detail = "delay_from is commit or send";
                return Err(Problem::new(Code::InvalidField, detail));
            }
        };
        if message.repeat.is_some() {
            let detail = "a message of a transaction cannot come round";
            return Err(Problem::new(Code::NotSupported, detail));
        }
        Ok(Self { topic: topic.ok_or_else(missing)?, from_send, message })
    }
}

impl<'a> Check<'a> {
    /// Reads `{"first":…,"interval":…,"max":n,"url":…}`.
    pub(crate) fn read(name: &str, raw: &'a str) -> Result<Self, Problem> {
        let mut fields = Fields::nested(name, raw)?;
        let check = Self {
            first: fields.take_text("first")?,
            interval: fields.take_text("interval")?,
            max: fields.take_whole("max")?,
            url: fields.take_string("url")?,
        };
        fields.end()?;
        Ok(check)
    }
}

/// Reads `{"reason":…}`: why somebody decides about a transaction by hand.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn read_reason(json: &[u8], depth_max: usize) -> Result<Option<String>, Problem> {
    let mut fields = Fields::read(json, depth_max)?;
    let reason = fields.take_string("reason")?;
    fields.end()?;
    if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        let detail = format!("a reason has at most {REASON_BYTES_MAX} bytes");
        return Err(Problem::new(Code::InvalidField, detail));
    }
    Ok(reason.map(Cow::into_owned))
}

/// The answer to a prepare.
#[derive(Clone, Debug, Serialize)]
pub struct PreparedView<'a> {
    /// The id of the transaction.
    pub id: String,
    /// `prepared`, unless this is a duplicate.
    pub state: &'static str,
    /// Its messages, in order.
    pub messages: Vec<HalfView<'a>>,
    /// Whether the same was accepted before; then this is its answer.
    #[serde(skip_serializing_if = "is_false")]
    pub duplicate: bool,
}

/// Which message belongs to a transaction.
#[derive(Clone, Debug, Serialize)]
pub struct HalfView<'a> {
    /// Its topic; absent when that was deleted.
    pub topic: Option<Cow<'a, str>>,
    /// Its id.
    pub id: String,
}

/// A transaction as it is answered.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionView<'a> {
    /// Its id.
    pub id: String,
    /// Whose members are asked.
    pub producer_group: &'a str,
    /// `prepared`, `committed`, `rolled_back` or `unresolved`.
    pub state: &'static str,
    /// When it was prepared, as RFC 3339.
    pub created: String,
    /// When it was decided, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<String>,
    /// How many checks were handed to somebody since it was prepared, or resumed.
    pub checks_sent: u16,
    /// When its producers are asked.
    pub check: CheckPolicyView<'a>,
    /// When the next check is due, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_check: Option<String>,
    /// Its messages.
    pub messages: Vec<HalfView<'a>>,
}

/// When producers are asked.
#[derive(Clone, Debug, Serialize)]
pub struct CheckPolicyView<'a> {
    /// The first time: a duration.
    pub first: String,
    /// Between two times: a duration.
    pub interval: String,
    /// How often at most.
    pub max: u16,
    /// Where, if not by a waiting call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<&'a str>,
}

/// One page of transactions.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionList<'a> {
    /// Whatever changes soonest comes first.
    pub transactions: Vec<TransactionView<'a>>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// What the members of a producer group are asked.
#[derive(Clone, Debug, Serialize)]
pub struct Checks<'a> {
    /// One for each transaction.
    pub checks: Vec<CheckView<'a>>,
}

/// The question what became of a transaction.
#[derive(Clone, Debug, Serialize)]
pub struct CheckView<'a> {
    /// The transaction.
    pub transaction: String,
    /// Whose; only where that is not clear from the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer_group: Option<&'a str>,
    /// The number of this check, counted from 1.
    pub attempt: u16,
    /// Its messages, as they were sent.
    pub messages: Vec<CheckedView<'a>>,
}

/// A message of a transaction that is not decided.
#[derive(Clone, Debug)]
pub struct CheckedView<'a> {
    /// Its id.
    pub id: String,
    /// The name its sender gave it.
    pub own_id: Option<&'a str>,
    /// Its topic.
    pub topic: &'a str,
    /// Key, headers and body.
    pub content: Content<'a>,
}

impl Serialize for CheckedView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if let Some(own_id) = self.own_id {
            map.serialize_entry("own_id", own_id)?;
        }
        map.serialize_entry("topic", self.topic)?;
        self.content.entries(&mut map)?;
        map.end()
    }
}

/// What somebody who was asked by a URL decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The messages count.
    Commit,
    /// They never happened.
    Rollback,
    /// That is not known yet.
    Unknown,
}

impl Decision {
    /// Reads `{"decision":"commit"}`; whatever else it may say does not matter.
    ///
    /// # Errors
    /// A [`Problem`] for anything that is no decision.
    pub fn read(json: &[u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        match fields.take_string("decision")?.as_deref() {
            Some("commit") => Ok(Self::Commit),
            Some("rollback") => Ok(Self::Rollback),
            Some("unknown") => Ok(Self::Unknown),
            _ => {
                let detail = "decision is commit, rollback or unknown";
                Err(Problem::new(Code::InvalidField, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReadLimits = ReadLimits { depth: 8, messages: 2, headers: 4 };

    #[test]
    fn a_transaction_with_everything() {
        let json = br#"{"producer_group":"orders","messages":[
            {"topic":"a","body":"x","delay":"1s","delay_from":"send","id":"own","on_conflict":"replace"},
            {"topic":"b","body_base64":""}],
            "check":{"first":"6s","interval":30000,"max":15,"url":"https://example.test/"}}"#;
        let prepare = Prepare::read(json, LIMITS).unwrap();
        assert_eq!((&*prepare.producer_group, prepare.messages.len()), ("orders", 2));
        assert!(prepare.messages[0].from_send && !prepare.messages[1].from_send);
        assert_eq!(prepare.messages[0].message.id.as_deref(), Some("own"));
        let check = prepare.check.unwrap();
        assert_eq!((check.interval.as_deref(), check.max), (Some("30000"), Some(15)));
    }

    #[test]
    fn each_fault_has_its_code_and_place() {
        for (json, code, index) in [
            ("{}", Code::InvalidField, None),
            (r#"{"producer_group":"p"}"#, Code::InvalidField, None),
            (r#"{"producer_group":"p","messages":{}}"#, Code::InvalidField, None),
            (r#"{"producer_group":"p","messages":[]}"#, Code::EmptyBatch, None),
            (r#"{"producer_group":"p","messages":[1]}"#, Code::InvalidField, Some(0)),
            (r#"{"producer_group":"p","messages":[{"body":1}]}"#, Code::InvalidField, Some(0)),
            (r#"{"producer_group":"p","messages":[{"topic":"t"}]}"#, Code::MissingBody, Some(0)),
            (
                r#"{"producer_group":"p","messages":[{"topic":"t","body":1},{"topic":"t","body":1,"colour":1}]}"#,
                Code::UnknownField,
                Some(1),
            ),
            (
                r#"{"producer_group":"p","messages":[{"topic":"t","body":1,"delay_from":"now"}]}"#,
                Code::InvalidField,
                Some(0),
            ),
            (
                r#"{"producer_group":"p","messages":[{"topic":"t","body":1,"repeat":{"every":"1m"}}]}"#,
                Code::NotSupported,
                Some(0),
            ),
            (r#"{"producer_group":"p","messages":[{},{},{}]}"#, Code::BatchTooLarge, None),
            (r#"{"producer_group":"p","messages":[{}],"check":5}"#, Code::InvalidField, None),
        ] {
            let refused = Prepare::read(json.as_bytes(), LIMITS).unwrap_err();
            assert_eq!((refused.code, refused.index), (code, index), "{json}");
        }
    }

    #[test]
    fn a_decision_is_one_word() {
        let read = |json: &str| Decision::read(json.as_bytes(), 8).ok();
        assert_eq!(read(r#"{"decision":"commit","note":1}"#), Some(Decision::Commit));
        assert_eq!(read(r#"{"decision":"rollback"}"#), Some(Decision::Rollback));
        assert_eq!(read(r#"{"decision":"unknown"}"#), Some(Decision::Unknown));
        for json in ["", "commit", "{}", r#"{"decision":"COMMIT"}"#, r#"{"decision":true}"#, "[["] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn a_reason_is_short() {
        assert_eq!(read_reason(b"", 8), Ok(None));
        assert_eq!(read_reason(br#"{"reason":"why"}"#, 8), Ok(Some("why".to_owned())));
        let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(1025));
        assert_eq!(read_reason(long.as_bytes(), 8).unwrap_err().code, Code::InvalidField);
    }
}
