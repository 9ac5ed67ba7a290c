//! Query strings: the parameters of a request, and a message whose fields came that way.

use std::borrow::Cow;

use bytes::Bytes;

use crate::code::Code;
use crate::problem::Problem;
use crate::repeat::{CatchUp, Repeat};
use crate::request::fields::unknown;
use crate::request::value::{attempts, decode_base64, level_text, partition_text};
use crate::request::{NewMessage, OnConflict, When};

/// Most parameters of one query string.
const PARAMETERS_MAX: usize = 32;

/// The parameters of a query string. Each is taken by whoever knows it; what is left is unknown.
#[derive(Debug)]
pub struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

impl<'a> Parameters<'a> {
    /// Splits and decodes a query string.
    ///
    /// # Errors
    /// A [`Problem`] for a parameter that is there twice or is wrongly encoded.
    pub fn read(query: Option<&'a str>) -> Result<Self, Problem> {
        let mut parameters: Vec<(Cow<'_, str>, Cow<'_, [u8]>)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = utf8(decode(name, true)?)?;
            if parameters.iter().any(|(known, _)| *known == name) {
                let detail = format!("the parameter {:?} occurs twice", shortened(&name));
                return Err(Problem::new(Code::DuplicateField, detail));
            }
            if parameters.len() == PARAMETERS_MAX {
                return Err(Problem::new(Code::InvalidParameter, "there are too many parameters"));
            }
            parameters.push((name, decode(value, true)?));
        }
        Ok(Self(parameters))
    }

    /// Takes the bytes of a parameter.
    pub fn take_bytes(&mut self, name: &str) -> Option<Cow<'a, [u8]>> {
        let place = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Takes a parameter as text.
    ///
    /// # Errors
    /// A [`Problem`] when it is not UTF-8.
    pub fn take(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.take_bytes(name).map(utf8).transpose()
    }

    /// Takes `key` or `key_base64`.
    ///
    /// # Errors
    /// A [`Problem`] when both are there, or the latter is not base 64.
    pub fn take_key(&mut self) -> Result<Option<Bytes>, Problem> {
        match (self.take_bytes("key"), self.take("key_base64")?) {
            (Some(_), Some(_)) => Err(conflict("key", "key_base64")),
            (Some(key), None) => Ok(Some(Bytes::copy_from_slice(&key))),
            (None, Some(text)) => decode_base64("key_base64", &text).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Takes a time as it was meant to be written.
    ///
    /// # Errors
    /// A [`Problem`] when it is not UTF-8.
    pub fn take_time(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Problem> {
        // A bare plus sign in a query means a space, and people do not escape that of a zone.
        Ok(self.take(name)?.map(|text| match text.rsplit_once(' ') {
            Some((time, zone)) if zone.len() == 5 => Cow::Owned(format!("{time}+{zone}")),
            _ => text,
        }))
    }

    /// Takes a whole number between `least` and `most`.
    ///
    /// # Errors
    /// A [`Problem`] for anything else.
    pub fn take_number(
        &mut self,
        name: &str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, Problem> {
        let Some(text) = self.take(name)? else {
            return Ok(None);
        };
        super::value::whole(&text)
            .filter(|number| (least..=most).contains(number))
            .map(Some)
            .ok_or_else(|| {
                let detail = format!("{name} is a whole number from {least} to {most}");
                Problem::new(Code::InvalidParameter, detail)
            })
    }

    /// Takes `true` or `false`; what is not there is false.
    ///
    /// # Errors
    /// A [`Problem`] for anything else.
    pub fn take_truth(&mut self, name: &str) -> Result<bool, Problem> {
        match self.take(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => {
                Err(Problem::new(Code::InvalidParameter, format!("{name} is true or false")))
            }
        }
    }

    /// Nothing else may be left.
    ///
    /// # Errors
    /// A [`Problem`] that names what is left.
    pub fn end(self) -> Result<(), Problem> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(unknown(name)))
    }
}

/// A message whose fields are parameters. Its body is empty: that is the request itself, which
/// need not have arrived yet.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn published(query: Option<&str>) -> Result<NewMessage<'_>, Problem> {
    let mut parameters = Parameters::read(query)?;
    let key = parameters.take_key()?;
    let delay = parameters.take("delay")?;
    let level = parameters.take("delay_level")?;
    let deliver_at = parameters.take_time("deliver_at")?;
    let when = match (delay, deliver_at, level) {
        (None, None, None) => When::Now,
        (Some(text), None, None) => When::After(text),
        (None, Some(text), None) => When::At(text),
        (None, None, Some(text)) => When::Level(level_text(&text)?),
        (Some(_), Some(_), _) => return Err(conflict("delay", "deliver_at")),
        (Some(_), _, Some(_)) => return Err(conflict("delay", "delay_level")),
        (None, Some(_), Some(_)) => return Err(conflict("deliver_at", "delay_level")),
    };
    let partition = parameters.take("partition")?.map(|text| partition_text(&text)).transpose()?;
    let ttl = parameters.take("ttl")?;
    let max_attempts = parameters.take("max_attempts")?.map(|text| attempts(&text)).transpose()?;
    let id = parameters.take("id")?;
    let on_conflict = parameters.take("on_conflict")?;
    let on_conflict = on_conflict.map_or(Ok(OnConflict::Reject), |word| OnConflict::read(&word))?;
    let repeat = Repeat::take(&mut parameters)?.map(Box::new);
    let catch_up = parameters.take("catch_up")?.map(CatchUp::read_text).transpose()?;
    parameters.end()?;
    let named = NewMessage { id, on_conflict, repeat, catch_up, ..NewMessage::default() };
    Ok(NewMessage { key, when, partition, ttl, max_attempts, ..named })
}

fn conflict(first: &str, second: &str) -> Problem {
    Problem::new(Code::ConflictingFields, format!("give {first} or {second}, not both"))
}

/// Undoes percent-encoding; in a query a plus sign is a space.
fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, [u8]>, Problem> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' if plus_is_space => decoded.push(b' '),
            b'%' => {
                let (high, low, behind) = match behind {
                    [high, low, behind @ ..] => (nibble(*high), nibble(*low), behind),
                    _ => return Err(badly_encoded()),
                };
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(badly_encoded());
                };
                decoded.push(high << 4 | low);
                rest = behind;
            }
            byte => decoded.push(byte),
        }
    }
    Ok(Cow::Owned(decoded))
}

/// Undoes percent-encoding of one part of a path.
///
/// # Errors
/// A [`Problem`] when it is wrongly encoded or not UTF-8.
pub fn decode_path(text: &str) -> Result<Cow<'_, str>, Problem> {
    decode(text, false).and_then(utf8)
}

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn utf8(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, Problem> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).ok(),
    }
    .ok_or_else(badly_encoded)
}

fn badly_encoded() -> Problem {
    Problem::new(Code::InvalidParameter, "the address is wrongly encoded")
}

fn shortened(name: &str) -> String {
    name.chars().take(100).collect()
}
