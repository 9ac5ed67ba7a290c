//! The `headers` of a message: an object of strings, or a list of names and values where a name
//! repeats or a value is not text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::value::{base64, bytes_of, json_problem, string};

/// Reads the headers; `raw` is well-formed JSON.
pub(crate) fn read(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    match raw.as_bytes().first() {
        Some(b'{') => object(raw, headers_max),
        Some(b'[') => list(raw, headers_max),
        _ => Err(Problem::new(Code::InvalidField, "headers must be an object or a list")),
    }
}

fn object(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    let Members(members) = serde_json::from_str(raw).map_err(|error| json_problem(&error))?;
    checked_count(members.len(), headers_max)?;
    let mut names = HashSet::with_capacity(members.len());
    let mut headers = Vec::with_capacity(members.len());
    for (name, value) in members {
        if !names.insert(name.clone()) {
            let detail = "a header name occurs twice; give headers as a list for that";
            return Err(Problem::new(Code::DuplicateField, detail));
        }
        if value.get() != "null" {
            let value = bytes_of(string("a header", value.get())?);
            headers.push((name.into_owned(), value));
        }
    }
    Ok(headers)
}

fn list(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(|error| json_problem(&error))?;
    checked_count(items.len(), headers_max)?;
    items.into_iter().map(|item| list_item(item.get())).collect()
}

fn list_item(raw: &str) -> Result<(String, Bytes), Problem> {
    if !raw.starts_with('{') {
        return Err(Problem::new(Code::InvalidField, "an item of headers must be an object"));
    }
    let Members(members) = serde_json::from_str(raw).map_err(|error| json_problem(&error))?;
    let (mut name, mut value) = (None, None);
    let mut seen = HashSet::new();
    for (field, raw) in members {
        if !seen.insert(field.clone()) {
            let detail = "a field of a header occurs twice";
            return Err(Problem::new(Code::DuplicateField, detail));
        }
        let raw = raw.get();
        match &*field {
            "name" | "value" | "value_base64" if raw == "null" => {}
            "name" => name = Some(string("name", raw)?.into_owned()),
            "value" | "value_base64" if value.is_some() => {
                let detail = "give value or value_base64, not both";
                return Err(Problem::new(Code::ConflictingFields, detail));
            }
            "value" => value = Some(bytes_of(string("value", raw)?)),
            "value_base64" => value = Some(base64("value_base64", raw)?),
            other => return Err(super::unknown(&format!("headers.{other}"))),
        }
    }
    name.zip(value)
        .ok_or_else(|| Problem::new(Code::InvalidField, "a header has a name and a value"))
}

fn checked_count(count: usize, headers_max: usize) -> Result<(), Problem> {
    if count > headers_max {
        let detail = format!("a message has at most {headers_max} headers");
        return Err(Problem::new(Code::TooManyHeaders, detail));
    }
    Ok(())
}

/// The members of an object in their order, repeated names included.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<Name<'de>>()? {
            members.push((name.0, map.next_value::<&'de RawValue>()?));
        }
        Ok(Members(members))
    }
}

/// Text that is borrowed when nothing in it is escaped.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }
}
