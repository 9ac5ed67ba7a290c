//! Pending messages on their way to another broker: one JSON object a line.
//!
//! What is written here is read here again: a line has everything that a message needs to wait
//! elsewhere as it waits here.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::answer::Content;
use crate::code::Code;
use crate::problem::Problem;
use crate::repeat::Repeat;
use crate::request::fields::Fields;
use crate::request::value::{checked_depth, scalar};
use crate::request::{NewMessage, ReadLimits, When};

/// A line to write.
#[derive(Clone, Debug)]
pub struct ExportLine<'a> {
    /// The id it has here.
    pub id: String,
    /// The name its sender gave it.
    pub own_id: Option<&'a str>,
    /// When it is due, as RFC 3339; of a paused one when it was.
    pub deliver_at: String,
    /// What is left of its wait, if it is paused: a duration.
    pub remaining: Option<String>,
    /// The partition, where it does not follow from the key.
    pub partition: Option<u16>,
    /// How often it was changed.
    pub version: u32,
    /// Of a series, when it comes round.
    pub repeat: Option<Repeat<'a>>,
    /// Key, headers and body.
    pub content: Content<'a>,
}

impl Serialize for ExportLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        if let Some(own_id) = self.own_id {
            map.serialize_entry("own_id", own_id)?;
        }
        map.serialize_entry("deliver_at", &self.deliver_at)?;
        if let Some(remaining) = &self.remaining {
            map.serialize_entry("paused", &true)?;
            map.serialize_entry("remaining", remaining)?;
        }
        if let Some(partition) = self.partition {
            map.serialize_entry("partition", &partition)?;
        }
        map.serialize_entry("version", &self.version)?;
        if let Some(repeat) = &self.repeat {
            map.serialize_entry("repeat", repeat)?;
        }
        let body = self.content.body;
        if is_worth_escaping(body) {
            self.content.entries(&mut map)?;
        } else {
            self.content.entries_before_body(&mut map)?;
            map.serialize_entry("body_base64", &STANDARD.encode(body))?;
        }
        map.end()
    }
}

/// Whether a body is not longer as a JSON string than in base 64; so no line grows without bound.
fn is_worth_escaping(body: &[u8]) -> bool {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    let more: usize = body.iter().map(escaped).sum();
    more <= body.len() / 3 + 8
}

/// The last line of an export.
#[derive(Clone, Debug, Serialize)]
pub struct ExportEnd {
    /// The cursor to go on with; absent at the end.
    pub next: Option<String>,
    /// How many messages came before.
    pub exported: u64,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportLine<'a> {
    /// A message.
    Message(Box<ImportMessage<'a>>),
    /// The last line of an export, which says nothing that matters here.
    End,
}

/// A message that comes from elsewhere. Texts are as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportMessage<'a> {
    /// The id it had there.
    pub id: Cow<'a, str>,
    /// The name its sender gave it there.
    pub own_id: Option<Cow<'a, str>>,
    /// What is left of its wait, if it is paused: a duration.
    pub remaining: Option<Cow<'a, str>>,
    /// The message and when it is due.
    pub message: NewMessage<'a>,
}

impl<'a> ImportLine<'a> {
    /// Reads one line.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(line: &'a [u8], limits: ReadLimits) -> Result<Self, Problem> {
        let text = checked_depth(line, limits.depth)?.trim_ascii();
        if !text.starts_with('{') {
            serde_json::from_str::<serde::de::IgnoredAny>(text)
                .map_err(|error| Problem::new(Code::InvalidJson, error.to_string()))?;
            return Err(Problem::new(Code::InvalidRequest, "a line is an object"));
        }
        let mut fields = Fields::nested("a line", text)?;
        if fields.take_any("exported").is_some() {
            return Ok(Self::End);
        }
        let id = fields.take_string("id")?;
        let own_id = fields.take_string("own_id")?;
        let paused = fields.take_bool("paused")?.unwrap_or(false);
        let remaining = fields.take("remaining");
        let remaining =
            remaining.map(|raw| scalar("remaining", raw, Code::InvalidDelay)).transpose()?;
        // It was changed there, not here.
        let _version = fields.take_whole("version")?;
        let message = NewMessage::take(&mut fields, limits)?;
        fields.end()?;
        let missing = |detail: &'static str| Problem::new(Code::InvalidField, detail);
        if paused && remaining.is_none() {
            return Err(missing("a paused message has remaining"));
        }
        if !matches!(message.when, When::At(_)) {
            return Err(Problem::new(Code::MissingTime, "a line has deliver_at"));
        }
        let id = id.ok_or_else(|| missing("a line has the id that the message had"))?;
        let remaining = remaining.filter(|_| paused);
        Ok(Self::Message(Box::new(ImportMessage { id, own_id, remaining, message })))
    }
}

/// What became of an import.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ImportView {
    /// How many messages are new here.
    pub imported: u64,
    /// How many were here already.
    pub duplicates: u64,
    /// How many were refused.
    pub failed_count: u64,
    /// The first of those.
    pub failed: Vec<FailedLine>,
}

/// A line that was refused.
#[derive(Clone, Debug, Serialize)]
pub struct FailedLine {
    /// Its number, counted from 1.
    pub line: u64,
    /// The stable code.
    pub code: &'static str,
    /// What was wrong.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReadLimits = ReadLimits { depth: 8, messages: 1, headers: 4 };

    #[test]
    fn what_is_written_is_read_again() {
        for body in
            [&b"plain \"text\"\n"[..], b"\x00\x01\x02\x03\x04\x05\x06\x07\x08", b"\xff", b""]
        {
            let line = ExportLine {
                id: "source".to_owned(),
                own_id: Some("own"),
                deliver_at: "2030-01-01T00:00:00.000Z".to_owned(),
                remaining: Some("5s".to_owned()),
                partition: Some(3),
                version: 2,
                repeat: None,
                content: Content { key: Some(b"k"), body, ..Content::default() },
            };
            let text = serde_json::to_vec(&line).unwrap();
            let ImportLine::Message(read) = ImportLine::read(&text, LIMITS).unwrap() else {
                panic!("a message");
            };
            assert_eq!(read.message.body, body);
            assert_eq!((&*read.id, read.own_id.as_deref()), ("source", Some("own")));
            assert_eq!((read.remaining.as_deref(), read.message.partition), (Some("5s"), Some(3)));
        }
    }

    #[test]
    fn no_line_is_much_longer_than_base_64() {
        let body = vec![1; 3000];
        let content = Content { body: &body, ..Content::default() };
        let line = ExportLine {
            id: String::new(),
            own_id: None,
            deliver_at: String::new(),
            remaining: None,
            partition: None,
            version: 1,
            repeat: None,
            content,
        };
        assert!(serde_json::to_vec(&line).unwrap().len() < 4200);
    }

    #[test]
    fn each_fault_has_its_code() {
        for (line, code) in [
            ("", Code::InvalidJson),
            ("{", Code::InvalidJson),
            ("x", Code::InvalidJson),
            ("5", Code::InvalidRequest),
            ("[]", Code::InvalidRequest),
            (r#"{"body":1,"deliver_at":1}"#, Code::InvalidField),
            (r#"{"id":"a","body":1}"#, Code::MissingTime),
            (r#"{"id":"a","body":1,"delay":1}"#, Code::MissingTime),
            (r#"{"id":"a","deliver_at":1}"#, Code::MissingBody),
            (r#"{"id":"a","body":1,"deliver_at":1,"paused":true}"#, Code::InvalidField),
            (r#"{"id":"a","body":1,"deliver_at":1,"colour":1}"#, Code::UnknownField),
        ] {
            let refused = ImportLine::read(line.as_bytes(), LIMITS).unwrap_err();
            assert_eq!(refused.code, code, "{line}");
        }
        let end = ImportLine::read(br#"{"next":null,"exported":5}"#, LIMITS);
        assert_eq!(end, Ok(ImportLine::End));
    }
}
