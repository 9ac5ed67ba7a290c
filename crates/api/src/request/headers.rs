//! The `headers` of a message: an object of strings, or a list of names and values where a name
//! repeats or a value is not text.

use std::collections::HashSet;

use bytes::Bytes;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::{Bounded, Item, members};
use crate::request::value::{base64, bytes_of, string};

/// Reads the headers; `raw` is well-formed JSON.
pub(crate) fn read(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    match raw.as_bytes().first() {
        Some(b'{') => object(raw, headers_max),
        Some(b'[') => list(raw, headers_max),
        _ => Err(Problem::new(Code::InvalidField, "headers must be an object or a list")),
    }
}

fn object(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    let members = members(raw, headers_max, too_many)?;
    let mut names = HashSet::with_capacity(members.len());
    let mut headers = Vec::with_capacity(members.len());
    for (name, value) in members {
        if !names.insert(name.clone()) {
            let detail = "a header name occurs twice; give headers as a list for that";
            return Err(Problem::new(Code::DuplicateField, detail));
        }
        if value != "null" {
            headers.push((name.into_owned(), bytes_of(string("a header", value)?)));
        }
    }
    Ok(headers)
}

fn list(raw: &str, headers_max: usize) -> Result<Vec<(String, Bytes)>, Problem> {
    let items = Bounded::<Item<'_>>::read(raw, headers_max, too_many)?;
    items.into_iter().map(|item| list_item(item.0.get())).collect()
}

fn list_item(raw: &str) -> Result<(String, Bytes), Problem> {
    if !raw.starts_with('{') {
        return Err(Problem::new(Code::InvalidField, "an item of headers must be an object"));
    }
    let (mut name, mut value) = (None, None);
    let mut seen = HashSet::new();
    for (field, raw) in members(raw, ITEM_FIELDS_MAX, |_| super::fields::unknown("headers"))? {
        if !seen.insert(field.clone()) {
            let detail = "a field of a header occurs twice";
            return Err(Problem::new(Code::DuplicateField, detail));
        }
        match &*field {
            "name" | "value" | "value_base64" if raw == "null" => {}
            "name" => name = Some(string("name", raw)?.into_owned()),
            "value" | "value_base64" if value.is_some() => {
                let detail = "give value or value_base64, not both";
                return Err(Problem::new(Code::ConflictingFields, detail));
            }
            "value" => value = Some(bytes_of(string("value", raw)?)),
            "value_base64" => value = Some(base64("value_base64", raw)?),
            other => return Err(super::fields::unknown(&format!("headers.{other}"))),
        }
    }
    name.zip(value)
        .ok_or_else(|| Problem::new(Code::InvalidField, "a header has a name and a value"))
}

/// Three fields are known, so whoever gives more gives one that is not.
const ITEM_FIELDS_MAX: usize = 8;

fn too_many(headers_max: usize) -> Problem {
    Problem::new(Code::TooManyHeaders, format!("a message has at most {headers_max} headers"))
}
