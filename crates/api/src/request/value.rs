//! Single values of a JSON request, read from the text they were sent as.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::code::Code;
use crate::problem::Problem;

/// The request as text, once its encoding and nesting are known to be harmless.
pub(crate) fn checked_depth(json: &[u8], depth_max: usize) -> Result<&str, Problem> {
    let text = std::str::from_utf8(json)
        .map_err(|error| Problem::new(Code::InvalidJson, format!("not UTF-8: {error}")))?;
    if nests_deeper(json, depth_max) {
        let detail = format!("arrays and objects are nested deeper than {depth_max}");
        return Err(Problem::new(Code::InvalidJson, detail));
    }
    Ok(text)
}

fn nests_deeper(json: &[u8], depth_max: usize) -> bool {
    let mut depth = 0usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// What serde found: broken JSON, or JSON of another form than asked for.
pub(crate) fn json_problem(error: &serde_json::Error) -> Problem {
    let code = if error.is_data() { Code::InvalidRequest } else { Code::InvalidJson };
    Problem::new(code, error.to_string())
}

pub(crate) fn bytes_of(text: Cow<'_, str>) -> Bytes {
    match text {
        Cow::Borrowed(text) => Bytes::copy_from_slice(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text.into_bytes()),
    }
}

/// The body: a string is its characters, everything else its own text.
pub(crate) fn body(raw: &str) -> Result<Bytes, Problem> {
    if raw.starts_with('"') {
        string("body", raw).map(bytes_of)
    } else {
        Ok(Bytes::copy_from_slice(raw.as_bytes()))
    }
}

/// The content of a JSON string, borrowed when nothing in it is escaped.
pub(crate) fn string<'a>(field: &str, raw: &'a str) -> Result<Cow<'a, str>, Problem> {
    let Some(inner) = raw.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return Err(Problem::new(Code::InvalidField, format!("{field} must be a string")));
    };
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).map(Cow::Owned).map_err(|error| json_problem(&error))
}

/// The bytes of a base 64 string.
pub(crate) fn base64(field: &'static str, raw: &str) -> Result<Bytes, Problem> {
    let text = string(field, raw)?;
    decode_base64(field, &text)
}

/// The bytes of base 64 text.
pub(crate) fn decode_base64(field: &str, text: &str) -> Result<Bytes, Problem> {
    STANDARD.decode(text).map(Bytes::from).map_err(|error| {
        Problem::new(Code::InvalidBase64, format!("{field} is not base 64: {error}"))
    })
}

/// A duration as it was written: a string, or a number of milliseconds.
pub(crate) fn duration(raw: &str) -> Result<Cow<'_, str>, Problem> {
    scalar("delay", raw, Code::InvalidDelay)
}

/// A time as it was written: a string, or epoch milliseconds.
pub(crate) fn time(raw: &str) -> Result<Cow<'_, str>, Problem> {
    scalar("deliver_at", raw, Code::InvalidTime)
}

/// A delay level; which ones exist is decided elsewhere.
pub(crate) fn level(raw: &str) -> Result<u64, Problem> {
    level_text(&scalar("delay_level", raw, Code::UnknownLevel)?)
}

/// A delay level in text.
pub(crate) fn level_text(text: &str) -> Result<u64, Problem> {
    whole(text).ok_or_else(|| Problem::new(Code::UnknownLevel, "delay_level is a whole number"))
}

/// The number of a partition.
pub(crate) fn partition(raw: &str) -> Result<u16, Problem> {
    partition_text(&scalar("partition", raw, Code::InvalidField)?)
}

/// The number of a partition in text.
pub(crate) fn partition_text(text: &str) -> Result<u16, Problem> {
    let number = whole(text)
        .ok_or_else(|| Problem::new(Code::InvalidField, "partition must be a whole number"))?;
    u16::try_from(number).map_err(|_too_large| {
        Problem::new(Code::NoSuchPartition, format!("no topic has a partition {number}"))
    })
}

/// A number of attempts; how many are allowed is decided elsewhere.
pub(crate) fn attempts(raw: &str) -> Result<u64, Problem> {
    let refused = || Problem::new(Code::InvalidField, "max_attempts must be a whole number");
    whole(raw).ok_or_else(refused)
}

/// A whole number that fits, written with digits only.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The text of a string or a number.
pub(crate) fn scalar<'a>(field: &str, raw: &'a str, code: Code) -> Result<Cow<'a, str>, Problem> {
    match raw.as_bytes().first() {
        Some(b'"') => string(field, raw),
        Some(b'0'..=b'9' | b'-') => Ok(Cow::Borrowed(raw)),
        _ => Err(Problem::new(code, format!("{field} must be a string or a number"))),
    }
}
