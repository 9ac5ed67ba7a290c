//! Topics in JSON.

use std::borrow::Cow;

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::repeat::CatchUp;
use crate::request::bounded::{Bounded, Item};
use crate::request::fields::Fields;
use crate::request::value::{scalar, string, whole};
use crate::transaction::{Check, CheckPolicyView};

/// Number of delay levels.
pub const LEVELS: usize = 18;

/// What somebody wants a topic to be; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicChange<'a> {
    /// Number of partitions.
    pub partitions: Option<u16>,
    /// How long delivered messages are kept: a duration as it was written.
    pub retention: Option<Keep<String>>,
    /// How many bytes of delivered messages each partition keeps.
    pub retention_bytes: Option<Keep<u64>>,
    /// How long after its due time a message may be given to a group, if it says nothing itself: a
    /// duration as it was written.
    pub default_ttl: Option<Keep<String>>,
    /// How much may wait for a group.
    pub max_backlog: Option<BacklogChange>,
    /// What happens past that.
    pub overflow: Option<OverflowWord>,
    /// The longest delay: a duration as it was written.
    pub max_delay: Option<Bound<Cow<'a, str>>>,
    /// How many messages fire in a second at most.
    pub rate_cap: Option<Bound<u64>>,
    /// How much later than asked for a message may be due: a duration as it was written.
    pub jitter: Option<Bound<Cow<'a, str>>>,
    /// What becomes of messages that fell due while the broker was down.
    pub catch_up: Option<CatchUp<'a>>,
    /// Delay levels of its own.
    pub levels: Option<Bound<Vec<Cow<'a, str>>>>,
    /// When producers of transactions are asked, if they say nothing.
    pub check: Option<Bound<Check<'a>>>,
    /// Whether nothing fires.
    pub paused: Option<bool>,
}

/// Something that a topic may have or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<T> {
    /// `"none"` or `"default"`: the topic has nothing of its own.
    Absent,
    /// The topic has this.
    Set(T),
}

/// A bound of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep<T> {
    /// `"forever"`: without bound.
    Forever,
    /// So long, or so many bytes.
    UpTo(T),
}

/// How much may wait for a group; what is not said has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogChange {
    /// Number of messages.
    pub messages: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// What happens when more waits for a group than may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OverflowWord {
    /// New messages are refused.
    Refuse,
    /// The oldest become dead letters.
    DropOldest,
    /// The newest become dead letters.
    DeadLetterNewest,
}

impl<'a> TopicChange<'a> {
    /// Reads the object of a PUT; an empty request is an empty object.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let mut span = |name| {
            let text = |text: &str| Some(text.to_owned());
            fields.take(name).map(|raw| keep(name, raw, text)).transpose()
        };
        let (retention, default_ttl) = (span("retention")?, span("default_ttl")?);
        let bytes = "retention_bytes";
        let change = Self {
            partitions: fields.take("partitions").map(partitions).transpose()?,
            retention,
            retention_bytes: fields.take(bytes).map(|raw| keep(bytes, raw, whole)).transpose()?,
            default_ttl,
            max_backlog: fields.take("max_backlog").map(backlog).transpose()?,
            overflow: fields.take_string("overflow")?.map(|text| overflow(&text)).transpose()?,
            max_delay: take_span(&mut fields, "max_delay")?,
            rate_cap: fields.take("rate_cap").map(rate_cap).transpose()?,
            jitter: take_span(&mut fields, "jitter")?,
            catch_up: fields.take("catch_up").map(CatchUp::read).transpose()?,
            levels: fields.take("levels").map(levels_or_default).transpose()?,
            check: fields.take("check").map(check_or_default).transpose()?,
            paused: fields.take_bool("paused")?,
        };
        fields.end()?;
        Ok(change)
    }
}

fn take_span<'a>(
    fields: &mut Fields<'a>,
    name: &str,
) -> Result<Option<Bound<Cow<'a, str>>>, Problem> {
    Ok(fields.take_text(name)?.map(|text| match &*text {
        "none" => Bound::Absent,
        _ => Bound::Set(text),
    }))
}

fn rate_cap(raw: &str) -> Result<Bound<u64>, Problem> {
    if raw == "\"none\"" {
        return Ok(Bound::Absent);
    }
    whole(raw).map(Bound::Set).ok_or_else(|| {
        Problem::new(Code::InvalidField, "rate_cap is a number of messages a second, or \"none\"")
    })
}

fn levels_or_default(raw: &str) -> Result<Bound<Vec<Cow<'_, str>>>, Problem> {
    if raw == "\"default\"" { Ok(Bound::Absent) } else { levels(raw).map(Bound::Set) }
}

fn check_or_default(raw: &str) -> Result<Bound<Check<'_>>, Problem> {
    if raw == "\"default\"" {
        return Ok(Bound::Absent);
    }
    let check = Check::read("check", raw)?;
    if check.url.is_some() {
        let detail = "a transaction has a url, a topic does not";
        return Err(Problem::new(Code::InvalidCheck, detail));
    }
    Ok(Bound::Set(check))
}

/// Eighteen durations as they were written.
fn levels(raw: &str) -> Result<Vec<Cow<'_, str>>, Problem> {
    let refused = || {
        let detail = format!("levels is an array of {LEVELS} durations");
        Problem::new(Code::InvalidLevels, detail)
    };
    if !raw.starts_with('[') {
        return Err(refused());
    }
    let items = Bounded::<Item<'_>>::read(raw, LEVELS, |_most| refused())?;
    if items.len() != LEVELS {
        return Err(refused());
    }
    items.into_iter().map(|item| scalar("a level", item.0.get(), Code::InvalidLevels)).collect()
}

/// Reads `{"levels":[…]}`.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn read_levels(json: &[u8], depth_max: usize) -> Result<Vec<Cow<'_, str>>, Problem> {
    let mut fields = Fields::read(json, depth_max)?;
    let raw = fields.take("levels");
    fields.end()?;
    levels(raw.unwrap_or_default())
}

/// The delay levels.
#[derive(Clone, Debug, Serialize)]
pub struct LevelsView {
    /// From level 1 on: durations.
    pub levels: Vec<String>,
}

fn backlog(raw: &str) -> Result<BacklogChange, Problem> {
    if raw == "\"none\"" {
        return Ok(BacklogChange::default());
    }
    if let Some(messages) = whole(raw) {
        return Ok(BacklogChange { messages: Some(messages), bytes: None });
    }
    if !raw.starts_with('{') {
        let detail =
            "max_backlog is a number of messages, {\"messages\":n,\"bytes\":n} or \"none\"";
        return Err(Problem::new(Code::InvalidField, detail));
    }
    let mut fields = Fields::nested("max_backlog", raw)?;
    let change = BacklogChange {
        messages: fields.take_whole("messages")?,
        bytes: fields.take_whole("bytes")?,
    };
    fields.end()?;
    Ok(change)
}

fn overflow(text: &str) -> Result<OverflowWord, Problem> {
    match text {
        "refuse" => Ok(OverflowWord::Refuse),
        "drop_oldest" => Ok(OverflowWord::DropOldest),
        "dead_letter_newest" => Ok(OverflowWord::DeadLetterNewest),
        _ => {
            let detail = "overflow is refuse, drop_oldest or dead_letter_newest";
            Err(Problem::new(Code::InvalidField, detail))
        }
    }
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
    /// `plain`, or `dead` for the dead letters of a group.
    pub kind: &'static str,
    /// Number of partitions.
    pub partitions: u16,
    /// How long delivered messages are kept: a duration or `forever`.
    pub retention: String,
    /// How many bytes of delivered messages each partition keeps; absent when there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
    /// How long after its due time a message may be given to a group; absent without a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl: Option<String>,
    /// How much may wait for a group; absent without a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_backlog: Option<BacklogView>,
    /// What happens past that.
    pub overflow: OverflowWord,
    /// The longest delay; absent where that of the broker counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<String>,
    /// How many messages fire in a second at most; absent without a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_cap: Option<u32>,
    /// How much later than asked for a message may be due; absent where it never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// What becomes of messages that fell due while the broker was down.
    pub catch_up: CatchUp<'static>,
    /// Delay levels of its own; absent where those of the broker count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Vec<String>>,
    /// When producers of transactions are asked; absent where the usual holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckPolicyView<'static>>,
    /// Whether nothing fires.
    pub paused: bool,
    /// Number of pending messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// How many messages wait for the group that is furthest behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
    /// What was counted since it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<TopicTotalsView>,
}

/// What was counted of a topic since it was made; restarts do not matter.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TopicTotalsView {
    /// Messages accepted.
    pub scheduled: u64,
    /// Messages whose due time came.
    pub fired: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Failed messages that came again.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

/// How much may wait for a group.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogView {
    /// Number of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// One page of topics.
#[derive(Clone, Debug, Serialize)]
pub struct TopicList {
    /// By name.
    pub topics: Vec<TopicView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_a_number_or_two_bounds_or_none() {
        for (json, messages, bytes) in [
            (r#"{"max_backlog":10}"#, Some(10), None),
            (r#"{"max_backlog":{"bytes":5}}"#, None, Some(5)),
            (r#"{"max_backlog":{"messages":1,"bytes":2}}"#, Some(1), Some(2)),
            (r#"{"max_backlog":"none"}"#, None, None),
        ] {
            let change = TopicChange::read(json.as_bytes(), 8).unwrap();
            assert_eq!(change.max_backlog, Some(BacklogChange { messages, bytes }), "{json}");
        }
    }

    #[test]
    fn each_fault_has_its_code() {
        for (json, code) in [
            (r#"{"max_backlog":-1}"#, Code::InvalidField),
            (r#"{"max_backlog":"10"}"#, Code::InvalidField),
            (r#"{"max_backlog":{"letters":1}}"#, Code::UnknownField),
            (r#"{"overflow":"explode"}"#, Code::InvalidField),
            (r#"{"overflow":5}"#, Code::InvalidField),
            (r#"{"kind":"dead"}"#, Code::UnknownField),
            (r#"{"rate_cap":"fast"}"#, Code::InvalidField),
            (r#"{"rate_cap":-1}"#, Code::InvalidField),
            (r#"{"jitter":true}"#, Code::InvalidField),
            (r#"{"max_delay":[]}"#, Code::InvalidField),
            (r#"{"catch_up":"some"}"#, Code::InvalidCatchUp),
            (r#"{"levels":["1s"]}"#, Code::InvalidLevels),
            (r#"{"levels":5}"#, Code::InvalidLevels),
            (r#"{"check":{"url":"https://example.test/"}}"#, Code::InvalidCheck),
            (r#"{"check":5}"#, Code::InvalidField),
            (r#"{"paused":1}"#, Code::InvalidField),
        ] {
            assert_eq!(TopicChange::read(json.as_bytes(), 8).unwrap_err().code, code, "{json}");
        }
    }
}
