//! Consuming in JSON: receive, ack, nack, extend and retry.
//!
//! Receipts are opaque: they are kept and answered as they were written, escapes and all, so that
//! thousands of them cost no copies.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::answer::Content;
use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::{Bounded, Item};
use crate::request::fields::Fields;
use crate::request::value::{checked_depth, string};
use crate::request::{NewMessage, OnConflict, ReadLimits, When, read_one};

/// Longest receipt that is looked at, in characters.
pub(crate) const RECEIPT_CHARS_MAX: usize = 256;

/// What somebody wants to receive; what is not said has its default elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receive<'a> {
    /// At most so many messages.
    pub max: Option<u64>,
    /// How long to wait for the first: a duration as it was written.
    pub wait: Option<Cow<'a, str>>,
    /// How long they are lent: a duration as it was written.
    pub lease: Option<Cow<'a, str>>,
}

impl<'a> Receive<'a> {
    /// Reads the object; an empty request is an empty object.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let max = fields.take_whole("max")?;
        let wait = fields.take_text("wait")?;
        let lease = fields.take_text("lease")?;
        fields.end()?;
        Ok(Self { max, wait, lease })
    }
}

/// A receipt as it was written, with its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenReceipt<'a>(&'a str);

impl<'a> WrittenReceipt<'a> {
    fn read(raw: &'a str) -> Result<Self, Problem> {
        let text = string("a receipt", raw)?;
        // No text has more characters than bytes.
        if text.len() <= RECEIPT_CHARS_MAX || text.chars().nth(RECEIPT_CHARS_MAX).is_none() {
            return Ok(Self(raw));
        }
        let detail = format!("a receipt has at most {RECEIPT_CHARS_MAX} characters");
        Err(Problem::new(Code::InvalidField, detail))
    }

    /// The receipt itself; `None` when it is escaped, which none of ours ever is.
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        (!inner.contains('\\')).then_some(inner)
    }
}

/// Messages that somebody holds, and what is to be done with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settle<'a> {
    /// What was given with each message.
    pub receipts: Vec<WrittenReceipt<'a>>,
    /// When to try again, for a nack: a duration as it was written.
    pub delay: Option<Cow<'a, str>>,
    /// Whether a nack is to be the last one.
    pub reject: bool,
    /// What went wrong, for a nack.
    pub error: Option<Cow<'a, str>>,
    /// How much longer, for an extend: a duration as it was written.
    pub lease: Option<Cow<'a, str>>,
}

impl<'a> Settle<'a> {
    /// Reads `{"receipts":[…]}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read_ack(json: &'a [u8], limits: SettleLimits) -> Result<Self, Problem> {
        let (ack, fields) = Self::begin(json, limits)?;
        fields.end()?;
        Ok(ack)
    }

    /// Reads `{"receipts":[…],"delay":…,"reject":…,"error":…}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read_nack(json: &'a [u8], limits: SettleLimits) -> Result<Self, Problem> {
        let (mut nack, mut fields) = Self::begin(json, limits)?;
        nack.delay = fields.take_text("delay")?;
        nack.reject = fields.take_bool("reject")?.unwrap_or(false);
        nack.error = fields.take_string("error")?;
        fields.end()?;
        if nack.reject && nack.delay.is_some() {
            let detail = "what is rejected is not tried again, so give no delay with it";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        Ok(nack)
    }

    /// Reads `{"receipts":[…],"lease":…}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read_extend(json: &'a [u8], limits: SettleLimits) -> Result<Self, Problem> {
        let (mut extend, mut fields) = Self::begin(json, limits)?;
        extend.lease = fields.take_text("lease")?;
        fields.end()?;
        Ok(extend)
    }

    fn begin(json: &'a [u8], limits: SettleLimits) -> Result<(Self, Fields<'a>), Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let missing = || Problem::new(Code::InvalidField, "receipts must be an array of strings");
        let raw = fields.take("receipts").filter(|raw| raw.starts_with('['));
        let items = Bounded::<Item<'_>>::read(raw.ok_or_else(missing)?, limits.receipts, |most| {
            Problem::new(Code::InvalidField, format!("there are more than {most} receipts"))
        })?;
        if items.is_empty() {
            return Err(Problem::new(Code::InvalidField, "receipts must hold at least one"));
        }
        let receipts = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                WrittenReceipt::read(item.0.get()).map_err(|problem| problem.at(index))
            })
            .collect::<Result<_, _>>()?;
        Ok((Self { receipts, ..Self::default() }, fields))
    }
}

/// What a reader of receipts may be asked to read.
#[derive(Clone, Copy, Debug)]
pub struct SettleLimits {
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    /// Most receipts.
    pub receipts: usize,
}

/// Writes `{"results":[{"receipt":…,"result":…},…]}`, one word for each receipt.
#[must_use]
pub fn results<'a>(
    receipts: &[WrittenReceipt<'_>],
    words: impl IntoIterator<Item = &'a str>,
) -> Vec<u8> {
    let bytes: usize = receipts.iter().map(|receipt| receipt.0.len() + 40).sum();
    let mut text = Vec::with_capacity(bytes + 16);
    text.extend_from_slice(b"{\"results\":[");
    for (index, (receipt, word)) in receipts.iter().zip(words).enumerate() {
        let head: &[u8] = if index == 0 { b"{\"receipt\":" } else { b",{\"receipt\":" };
        for piece in [head, receipt.0.as_bytes(), b",\"result\":\"", word.as_bytes(), b"\"}"] {
            text.extend_from_slice(piece);
        }
    }
    text.extend_from_slice(b"]}");
    text
}

/// A message that failed somewhere outside, to be tried again by the rules of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry<'a> {
    /// What failed.
    pub message: NewMessage<'a>,
    /// The id it has, where that is known.
    pub id: Option<Cow<'a, str>>,
    /// Its place in the log, where that is known.
    pub offset: Option<u64>,
    /// The attempt that failed, counted from 1.
    pub attempt: u64,
    /// When to try again: a duration as it was written.
    pub delay: Option<Cow<'a, str>>,
    /// What went wrong.
    pub error: Option<Cow<'a, str>>,
}

impl<'a> Retry<'a> {
    /// Reads `{"message":{…},"id":…,"offset":…,"attempt":n,"delay":…,"error":…}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: ReadLimits) -> Result<Self, Problem> {
        let text = checked_depth(json, limits.depth)?;
        let mut fields = Fields::nested("the request", text.trim_ascii())?;
        let raw = fields.take("message");
        let raw = raw.ok_or_else(|| Problem::new(Code::InvalidField, "give the message"))?;
        let message = read_one(raw, limits)?;
        let attempt = fields.take_whole("attempt")?;
        let missing = || Problem::new(Code::InvalidField, "give the attempt that failed");
        let retry = Self {
            id: fields.take_string("id")?,
            offset: fields.take_whole("offset")?,
            attempt: attempt.ok_or_else(missing)?,
            delay: fields.take_text("delay")?,
            error: fields.take_string("error")?,
            message,
        };
        fields.end()?;
        if !is_plain(&retry.message) {
            let detail = "a message that failed was sent before; only content and partition count";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        Ok(retry)
    }
}

/// Whether a message asks for nothing that only a new one can.
fn is_plain(message: &NewMessage<'_>) -> bool {
    message.when == When::Now
        && message.ttl.is_none()
        && message.max_attempts.is_none()
        && message.id.is_none()
        && message.on_conflict == OnConflict::Reject
        && message.repeat.is_none()
        && message.catch_up.is_none()
}

/// The answer to a [`Retry`].
#[derive(Clone, Debug, Serialize)]
pub struct RetryView {
    /// `requeued` or `dead`.
    pub result: &'static str,
    /// When it is tried again, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
}

/// A message as somebody receives it.
#[derive(Clone, Debug)]
pub struct ReceivedView<'a> {
    /// Its id.
    pub id: &'a str,
    /// What tells that this consumer holds it.
    pub receipt: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// Its partition.
    pub partition: u16,
    /// Its place in the log.
    pub offset: u64,
    /// Key, headers and body.
    pub content: Content<'a>,
    /// When it was due, as RFC 3339.
    pub due: &'a str,
    /// When it was delivered, as RFC 3339.
    pub delivered_at: &'a str,
    /// The how-manieth attempt this is, counted from 1.
    pub attempt: u16,
}

impl Serialize for ReceivedView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("receipt", self.receipt)?;
        map.serialize_entry("topic", self.topic)?;
        map.serialize_entry("partition", &self.partition)?;
        map.serialize_entry("offset", &self.offset)?;
        self.content.entries(&mut map)?;
        map.serialize_entry("due", self.due)?;
        map.serialize_entry("delivered_at", self.delivered_at)?;
        map.serialize_entry("attempt", &self.attempt)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SettleLimits = SettleLimits { depth: 8, receipts: 3 };

    #[test]
    fn an_empty_receive_is_one_with_defaults() {
        for json in ["", "{}", r#"{"max":null,"wait":null}"#] {
            assert_eq!(Receive::read(json.as_bytes(), 8), Ok(Receive::default()), "{json}");
        }
        let receive = Receive::read(br#"{"max":7,"wait":"1s","lease":5000}"#, 8).unwrap();
        assert_eq!(receive.max, Some(7));
        assert_eq!((receive.wait.as_deref(), receive.lease.as_deref()), (Some("1s"), Some("5000")));
    }

    #[test]
    fn receipts_are_answered_as_they_were_written() {
        let json = br#"{"receipts":["ab","c\u0064","\""]}"#;
        let ack = Settle::read_ack(json, LIMITS).unwrap();
        let texts: Vec<_> = ack.receipts.iter().map(|receipt| receipt.text()).collect();
        assert_eq!(texts, [Some("ab"), None, None]);
        let answer = results(&ack.receipts, ["acked", "not_held", "not_held"]);
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["results"][1]["receipt"], "cd");
        assert_eq!(answer["results"][2]["receipt"], "\"");
        assert_eq!(answer["results"][0]["result"], "acked");
    }

    #[test]
    fn each_fault_has_its_code() {
        let long = format!(r#"{{"receipts":["{}"]}}"#, "x".repeat(257));
        for (json, code) in [
            ("", Code::InvalidField),
            ("{}", Code::InvalidField),
            ("[]", Code::InvalidRequest),
            ("{", Code::InvalidJson),
            (r#"{"receipts":null}"#, Code::InvalidField),
            (r#"{"receipts":[]}"#, Code::InvalidField),
            (r#"{"receipts":"a"}"#, Code::InvalidField),
            (r#"{"receipts":[5]}"#, Code::InvalidField),
            (r#"{"receipts":[null]}"#, Code::InvalidField),
            (r#"{"receipts":["a","b","c","d"]}"#, Code::InvalidField),
            (r#"{"receipts":["a"],"receipts":["b"]}"#, Code::DuplicateField),
            (r#"{"receipts":["a"],"colour":1}"#, Code::UnknownField),
            (r#"{"receipts":[[[[[[[[["a"]]]]]]]]]}"#, Code::InvalidJson),
            (long.as_str(), Code::InvalidField),
        ] {
            let refused = Settle::read_ack(json.as_bytes(), LIMITS).unwrap_err();
            assert_eq!(refused.code, code, "{json}");
        }
        for (json, code) in [
            (r#"{"receipts":["a"],"reject":1}"#, Code::InvalidField),
            (r#"{"receipts":["a"],"reject":true,"delay":"1s"}"#, Code::ConflictingFields),
            (r#"{"receipts":["a"],"delay":[]}"#, Code::InvalidField),
            (r#"{"receipts":["a"],"error":5}"#, Code::InvalidField),
            (r#"{"receipts":["a"],"lease":5}"#, Code::UnknownField),
        ] {
            let refused = Settle::read_nack(json.as_bytes(), LIMITS).unwrap_err();
            assert_eq!(refused.code, code, "{json}");
        }
        assert_eq!(
            Receive::read(br#"{"max":-1}"#, 8).unwrap_err().code,
            Code::InvalidField,
            "negative"
        );
    }

    #[test]
    fn a_retry_holds_a_message() {
        let limits = ReadLimits { depth: 8, messages: 1, headers: 4 };
        let retry = Retry::read(br#" {"message":{"body":"x","key":"k"},"attempt":3}"#, limits);
        let retry = retry.unwrap();
        assert_eq!((retry.attempt, &retry.message.body[..]), (3, &b"x"[..]));
        for (json, code) in [
            ("", Code::InvalidField),
            (r#"{"attempt":1}"#, Code::InvalidField),
            (r#"{"message":{"body":1}}"#, Code::InvalidField),
            (r#"{"message":{},"attempt":1}"#, Code::MissingBody),
            (r#"{"message":{"messages":[]},"attempt":1}"#, Code::UnknownField),
            (r#"{"message":{"body":1,"delay":1},"attempt":1}"#, Code::ConflictingFields),
        ] {
            assert_eq!(Retry::read(json.as_bytes(), limits).unwrap_err().code, code, "{json}");
        }
    }
}
