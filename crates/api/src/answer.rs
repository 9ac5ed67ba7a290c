//! Answers about messages in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::repeat::{CatchUp, Repeat};

/// The answer to a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduledView<'a> {
    /// The id of the message.
    pub id: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// When it is due, as RFC 3339.
    pub due: String,
    /// `scheduled`, unless this is a duplicate.
    pub state: &'static str,
    /// Whether the same request was accepted before; then this is its answer.
    #[serde(skip_serializing_if = "is_false")]
    pub duplicate: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes by reference")]
pub(crate) fn is_false(truth: &bool) -> bool {
    !truth
}

/// `{"messages":[…]}`
#[derive(Clone, Debug, Serialize)]
pub struct Batch<T> {
    /// In the order of the request.
    pub messages: Vec<T>,
}

/// One page of messages.
#[derive(Clone, Debug, Serialize)]
pub struct Page<T, N> {
    /// In order.
    pub messages: Vec<T>,
    /// Where the next page starts.
    pub next: N,
}

/// `{"result":"…"}`
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// One word.
    pub result: &'static str,
}

/// Everything known about a message; what is not known is left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MessageView<'a> {
    /// Its id.
    pub id: String,
    /// The name its sender gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_id: Option<&'a str>,
    /// Its topic.
    pub topic: &'a str,
    /// Where it is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// When it is or was due, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// How often it was changed, counted from 1, while it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// What is left of its wait, while it is paused: a duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<String>,
    /// The series it is an occurrence of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// The transaction that decides about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// When it was delivered, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
    /// Its partition.
    pub partition: u16,
    /// Its place in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Of a series, when it comes round and what is next.
    #[serde(flatten)]
    pub round: Option<Round<'a>>,
    /// Key, headers and body, while they are known.
    #[serde(flatten)]
    pub content: Option<Content<'a>>,
}

/// What a series has beside its message.
#[derive(Clone, Debug, Serialize)]
pub struct Round<'a> {
    /// When it comes round.
    pub repeat: Repeat<'a>,
    /// The number of the occurrence that is to come, counted from 1.
    pub number: u64,
    /// The id of that occurrence.
    pub occurrence: Option<String>,
}

/// Key, headers and body.
#[derive(Clone, Debug, Default)]
pub struct Content<'a> {
    /// The key.
    pub key: Option<&'a [u8]>,
    /// Names and values.
    pub headers: Vec<(&'a str, &'a [u8])>,
    /// How long after its due time it may be given to a group.
    pub ttl: Option<String>,
    /// After how many failed attempts it is a dead letter.
    pub max_attempts: Option<u16>,
    /// What becomes of it if it falls due while the broker is down.
    pub catch_up: Option<CatchUp<'a>>,
    /// The key of the app that sent it.
    pub app: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

impl Content<'_> {
    /// Writes them among the other fields of an object.
    pub(crate) fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.entries_before_body(map)?;
        bytes_entry(map, ("body", "body_base64"), self.body)
    }

    /// Writes all but the body.
    pub(crate) fn entries_before_body<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if let Some(key) = self.key {
            bytes_entry(map, ("key", "key_base64"), key)?;
        }
        if !self.headers.is_empty() {
            map.serialize_entry("headers", &Headers(&self.headers))?;
        }
        if let Some(ttl) = &self.ttl {
            map.serialize_entry("ttl", ttl)?;
        }
        if let Some(attempts) = self.max_attempts {
            map.serialize_entry("max_attempts", &attempts)?;
        }
        if let Some(catch_up) = &self.catch_up {
            map.serialize_entry("catch_up", catch_up)?;
        }
        if let Some(app) = self.app {
            map.serialize_entry("app", app)?;
        }
        Ok(())
    }
}

/// Bytes as text where they are text, else in base 64 under the second name.
pub(crate) fn bytes_entry<M: SerializeMap>(
    map: &mut M,
    names: (&'static str, &'static str),
    bytes: &[u8],
) -> Result<(), M::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => map.serialize_entry(names.0, text),
        Err(_not_text) => map.serialize_entry(names.1, &STANDARD.encode(bytes)),
    }
}

struct Headers<'a>(&'a [(&'a str, &'a [u8])]);

impl Headers<'_> {
    /// Whether an object of strings can express them.
    fn are_plain(&self) -> bool {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
            && self.0.iter().all(|(_, value)| std::str::from_utf8(value).is_ok())
    }
}

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.are_plain() {
            let mut map = serializer.serialize_map(Some(self.0.len()))?;
            for (name, value) in self.0 {
                map.serialize_entry(name, &String::from_utf8_lossy(value))?;
            }
            return map.end();
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (name, value) in self.0 {
            list.serialize_element(&ListHeader { name, value })?;
        }
        list.end()
    }
}

struct ListHeader<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl Serialize for ListHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", self.name)?;
        bytes_entry(&mut map, ("value", "value_base64"), self.value)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_text_is_base_64() {
        let headers: Vec<(&str, &[u8])> = vec![("a", b"1"), ("a", b"\xfe")];
        let content = Content { key: Some(b"\xff"), headers, body: b"x", ..Content::default() };
        assert_eq!(
            serde_json::to_string(&content).unwrap(),
            r#"{"key_base64":"/w==","headers":[{"name":"a","value":"1"},{"name":"a","value_base64":"/g=="}],"body":"x"}"#
        );
    }

    #[test]
    fn plain_headers_are_an_object() {
        let content = Content { headers: vec![("b", b"2"), ("a", b"1")], ..Content::default() };
        assert_eq!(
            serde_json::to_string(&content).unwrap(),
            r#"{"headers":{"b":"2","a":"1"},"body":""}"#
        );
    }
}
