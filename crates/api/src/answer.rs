//! Answers about messages in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// The answer to a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduledView<'a> {
    /// The id of the message.
    pub id: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// When it is due, as RFC 3339.
    pub due: String,
    /// `scheduled`.
    pub state: &'static str,
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
#[derive(Clone, Debug, Serialize)]
pub struct MessageView<'a> {
    /// Its id.
    pub id: String,
    /// Its topic.
    pub topic: &'a str,
    /// Where it is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// When it is or was due, as RFC 3339.
    pub due: String,
    /// When it was delivered, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
    /// Its partition.
    pub partition: u16,
    /// Its place in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Key, headers and body, while they are known.
    #[serde(flatten)]
    pub content: Option<Content<'a>>,
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
        bytes_entry(map, ("body", "body_base64"), self.body)
    }
}

/// Bytes as text where they are text, else in base 64 under the second name.
fn bytes_entry<M: SerializeMap>(
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
