//! The fields of a request object. Each is taken by whoever knows it; what is left is unknown.

use std::borrow::Cow;

use bytes::Bytes;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::members;
use crate::request::value::{base64, body, bytes_of, checked_depth, scalar, string, whole};

/// More than any object has.
const FIELDS_MAX: usize = 32;

/// The fields of one object as they were written, none of them twice.
#[derive(Debug)]
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    /// The fields of a whole request; an empty request is an empty object.
    pub(crate) fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        if json.is_empty() {
            return Ok(Self(Vec::new()));
        }
        Self::split(checked_depth(json, depth_max)?)
    }

    /// The fields of an object that is the value of `field`.
    pub(crate) fn nested(field: &str, raw: &'a str) -> Result<Self, Problem> {
        if raw.starts_with('{') {
            Self::split(raw)
        } else {
            Err(Problem::new(Code::InvalidField, format!("{field} must be an object")))
        }
    }

    fn split(text: &'a str) -> Result<Self, Problem> {
        let fields = members(text, FIELDS_MAX, |_most| too_many())?;
        for (place, (name, _)) in fields.iter().enumerate() {
            if fields.iter().take(place).any(|(earlier, _)| earlier == name) {
                let detail = format!("the field {:?} occurs twice", shown(name));
                return Err(Problem::new(Code::DuplicateField, detail));
            }
        }
        Ok(Self(fields))
    }

    /// Takes the value of a field as it was written, `null` too.
    pub(crate) fn take_any(&mut self, name: &str) -> Option<&'a str> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Takes the value of a field as it was written; `null` is the same as nothing.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a str> {
        self.take_any(name).filter(|raw| *raw != "null")
    }

    /// Takes a string.
    pub(crate) fn take_string(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.take(name).map(|raw| string(name, raw)).transpose()
    }

    /// Takes a duration or a time as it was written: a string or a number.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.take(name).map(|raw| scalar(name, raw, Code::InvalidField)).transpose()
    }

    /// Takes a whole number; which ones are allowed is decided elsewhere.
    pub(crate) fn take_whole(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let refused = || Problem::new(Code::InvalidField, format!("{name} must be a whole number"));
        self.take(name).map(|raw| whole(raw).ok_or_else(refused)).transpose()
    }

    /// Takes a time as it was written: a string or a number.
    pub(crate) fn take_time(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.take(name).map(|raw| scalar(name, raw, Code::InvalidTime)).transpose()
    }

    /// Takes `key` or `key_base64`.
    pub(crate) fn take_key(&mut self) -> Result<Option<Bytes>, Problem> {
        match (self.take("key"), self.take("key_base64")) {
            (Some(_), Some(_)) => Err(both("key", "key_base64")),
            (Some(raw), None) => Ok(Some(bytes_of(string("key", raw)?))),
            (None, Some(raw)) => base64("key_base64", raw).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Takes `body` or `body_base64`.
    pub(crate) fn take_body(&mut self) -> Result<Option<Bytes>, Problem> {
        match (self.take("body"), self.take("body_base64")) {
            (Some(_), Some(_)) => Err(both("body", "body_base64")),
            (Some(raw), None) => body(raw).map(Some),
            (None, Some(raw)) => base64("body_base64", raw).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Takes a truth value.
    pub(crate) fn take_bool(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => {
                Err(Problem::new(Code::InvalidField, format!("{name} must be true or false")))
            }
        }
    }

    /// Nothing else may be left.
    pub(crate) fn end(self) -> Result<(), Problem> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(unknown(name)))
    }
}

fn both(first: &str, second: &str) -> Problem {
    Problem::new(Code::ConflictingFields, format!("give {first} or {second}, not both"))
}

/// The refusal of a field that is not known.
pub(crate) fn unknown(name: &str) -> Problem {
    Problem::new(Code::UnknownField, format!("there is no field {:?}", shown(name)))
}

fn too_many() -> Problem {
    Problem::new(Code::UnknownField, format!("an object has at most {FIELDS_MAX} fields"))
}

fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}
