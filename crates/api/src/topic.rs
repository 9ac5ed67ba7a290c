//! Topics in JSON.

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::members;
use crate::request::value::{checked_depth, string, whole};

/// Settings of the contract that nothing stands behind yet.
const UNBUILT: [&str; 7] =
    ["max_backlog", "overflow", "max_delay", "rate_cap", "jitter", "catch_up", "default_ttl"];

/// What somebody wants a topic to be; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicChange {
    /// Number of partitions.
    pub partitions: Option<u16>,
    /// How long delivered messages are kept: a duration as it was written.
    pub retention: Option<Keep<String>>,
    /// How many bytes of delivered messages each partition keeps.
    pub retention_bytes: Option<Keep<u64>>,
}

/// A bound of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep<T> {
    /// `"forever"`: without bound.
    Forever,
    /// So long, or so many bytes.
    UpTo(T),
}

impl TopicChange {
    /// Reads the object of a PUT; an empty request is an empty object.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &[u8], depth_max: usize) -> Result<Self, Problem> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        let text = checked_depth(json, depth_max)?;
        let mut change = Self::default();
        let mut seen = Vec::new();
        for (name, value) in members(text, FIELDS_MAX, too_many)? {
            if seen.contains(&name) {
                let detail = "a field occurs twice";
                return Err(Problem::new(Code::DuplicateField, detail));
            }
            change.set(&name, value)?;
            seen.push(name);
        }
        Ok(change)
    }

    fn set(&mut self, name: &str, raw: &str) -> Result<(), Problem> {
        let known = matches!(name, "partitions" | "retention" | "retention_bytes");
        if UNBUILT.contains(&name) {
            let detail = format!("the field {name} is not supported yet");
            return Err(Problem::new(Code::NotSupported, detail));
        }
        if !known {
            return Err(crate::request::unknown(name));
        }
        if raw == "null" {
            return Ok(());
        }
        match name {
            "partitions" => self.partitions = Some(partitions(raw)?),
            "retention" => {
                self.retention = Some(keep(name, raw, |text| Some(text.to_owned()))?);
            }
            _ => self.retention_bytes = Some(keep(name, raw, whole)?),
        }
        Ok(())
    }
}

/// More than there are.
const FIELDS_MAX: usize = 32;

fn too_many(most: usize) -> Problem {
    Problem::new(Code::UnknownField, format!("a topic has fewer than {most} fields"))
}

fn partitions(raw: &str) -> Result<u16, Problem> {
    whole(raw).and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        Problem::new(Code::InvalidField, "partitions must be a whole number from 1 to 1024")
    })
}

fn keep<T>(name: &str, raw: &str, read: impl Fn(&str) -> Option<T>) -> Result<Keep<T>, Problem> {
    let text = if raw.starts_with('"') { string(name, raw)? } else { raw.into() };
    if text == "forever" {
        return Ok(Keep::Forever);
    }
    read(&text).map(Keep::UpTo).ok_or_else(|| {
        Problem::new(Code::InvalidField, format!("{name} has an illegal value; or say \"forever\""))
    })
}

/// A topic as it is answered.
#[derive(Clone, Debug, Serialize)]
pub struct TopicView {
    /// Its name.
    pub name: String,
    /// Number of partitions.
    pub partitions: u16,
    /// How long delivered messages are kept: a duration or `forever`.
    pub retention: String,
    /// How many bytes of delivered messages each partition keeps; absent when there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
    /// Number of pending messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
}

/// One page of topics.
#[derive(Clone, Debug, Serialize)]
pub struct TopicList {
    /// By name.
    pub topics: Vec<TopicView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}
