//! Dead letters in JSON: look at them, send them again, throw them away; and moving a backlog.

use std::borrow::Cow;

use bytes::Bytes;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::answer::Content;
use crate::code::Code;
use crate::problem::Problem;
use crate::request::fields::Fields;
use crate::request::value::scalar;
use crate::request::{Parameters, ReadLimits, headers};

/// Which dead letters; nothing said means all. Texts are as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter<'a> {
    /// Why they are dead.
    pub reason: Option<Cow<'a, str>>,
    /// Dead since this time or later.
    pub from: Option<Cow<'a, str>>,
    /// Dead before this time.
    pub to: Option<Cow<'a, str>>,
    /// Dead on this day, in UTC.
    pub day: Option<Cow<'a, str>>,
    /// With this key.
    pub key: Option<Bytes>,
    /// The one of this id.
    pub id: Option<Cow<'a, str>>,
}

impl<'a> DeadFilter<'a> {
    /// Takes what a filter is made of out of the parameters of a request.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn take(parameters: &mut Parameters<'a>) -> Result<Self, Problem> {
        let key = parameters.take_key()?;
        let filter = Self {
            reason: parameters.take("reason")?,
            from: parameters.take_time("from")?,
            to: parameters.take_time("to")?,
            day: parameters.take("day")?,
            key,
            id: parameters.take("id")?,
        };
        filter.checked()
    }

    fn read(raw: &'a str) -> Result<Self, Problem> {
        let mut fields = Fields::nested("filter", raw)?;
        let mut time = |name| {
            let raw = fields.take(name);
            raw.map(|raw| scalar(name, raw, Code::InvalidTime)).transpose()
        };
        let (from, to) = (time("from")?, time("to")?);
        let filter = Self {
            reason: fields.take_string("reason")?,
            from,
            to,
            day: fields.take_string("day")?,
            key: fields.take_key()?,
            id: fields.take_string("id")?,
        };
        fields.end()?;
        filter.checked()
    }

    fn checked(self) -> Result<Self, Problem> {
        if self.day.is_some() && (self.from.is_some() || self.to.is_some()) {
            let detail = "give a day, or from and to, not both";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        Ok(self)
    }

    /// Whether it lets everything through.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What is to be sent again, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redrive<'a> {
    /// Which ones.
    pub filter: DeadFilter<'a>,
    /// How many in a second.
    pub rate: Option<u64>,
    /// Not before this time, as it was written.
    pub at: Option<Cow<'a, str>>,
    /// Whether only to count.
    pub dry_run: bool,
    /// What to change in each.
    pub edit: Option<Edit>,
}

/// What to change in a message; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Another key.
    pub key: Option<Bytes>,
    /// Other headers, all of them.
    pub headers: Option<Vec<(String, Bytes)>>,
    /// Another body.
    pub body: Option<Bytes>,
}

impl<'a> Redrive<'a> {
    /// Reads the object; an empty request is an empty object.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: ReadLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let filter = fields.take("filter").map(DeadFilter::read).transpose()?;
        let at = fields.take("at").map(|raw| scalar("at", raw, Code::InvalidTime)).transpose()?;
        let redrive = Self {
            filter: filter.unwrap_or_default(),
            rate: fields.take_whole("rate")?,
            at,
            dry_run: fields.take_bool("dry_run")?.unwrap_or(false),
            edit: fields.take("edit").map(|raw| edit(raw, limits.headers)).transpose()?,
        };
        fields.end()?;
        Ok(redrive)
    }
}

fn edit(raw: &str, headers_max: usize) -> Result<Edit, Problem> {
    let mut fields = Fields::nested("edit", raw)?;
    let key = fields.take_key()?;
    let headers = fields.take("headers").map(|raw| headers::read(raw, headers_max)).transpose()?;
    let body = fields.take_body()?;
    fields.end()?;
    Ok(Edit { key, headers, body })
}

/// What is to be thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge<'a> {
    /// Which ones.
    pub filter: DeadFilter<'a>,
    /// Whether only to count.
    pub dry_run: bool,
}

impl<'a> Purge<'a> {
    /// Reads `{"filter":{…}}` or `{"all":true}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong; nothing said is not everything.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let filter = fields.take("filter").map(DeadFilter::read).transpose()?.unwrap_or_default();
        let all = fields.take_bool("all")?.unwrap_or(false);
        let dry_run = fields.take_bool("dry_run")?.unwrap_or(false);
        fields.end()?;
        if all && !filter.is_empty() {
            let detail = "give a filter, or \"all\":true, not both";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        if !all && filter.is_empty() {
            let detail = "a filter says which; for every one say \"all\":true";
            return Err(Problem::new(Code::InvalidField, detail));
        }
        Ok(Self { filter, dry_run })
    }
}

/// Where a backlog is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain<'a> {
    /// The topic.
    pub to: Cow<'a, str>,
    /// At most so many messages.
    pub max: Option<u64>,
}

impl<'a> Drain<'a> {
    /// Reads `{"to":"topic","max":n}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let to = fields.take_string("to")?;
        let max = fields.take_whole("max")?;
        fields.end()?;
        let missing = || Problem::new(Code::InvalidField, "to names the topic that they go to");
        Ok(Self { to: to.ok_or_else(missing)?, max })
    }
}

/// A dead letter as it is answered.
#[derive(Clone, Debug)]
pub struct DeadView<'a> {
    /// The id of the message.
    pub id: String,
    /// The topic it was sent to.
    pub topic: &'a str,
    /// The partition it was in.
    pub partition: u16,
    /// Its place in the log of its topic.
    pub offset: u64,
    /// Key, headers and body.
    pub content: Content<'a>,
    /// When it was due, as RFC 3339.
    pub due: String,
    /// When it was delivered, as RFC 3339.
    pub delivered_at: String,
    /// Why it is dead.
    pub reason: Option<&'static str>,
    /// How many attempts there were.
    pub attempts: u16,
    /// What went wrong the first time.
    pub first_error: Option<&'a str>,
    /// What went wrong the last time.
    pub last_error: Option<&'a str>,
    /// Since when it is dead, as RFC 3339.
    pub died_at: String,
}

impl Serialize for DeadView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("topic", self.topic)?;
        map.serialize_entry("partition", &self.partition)?;
        map.serialize_entry("offset", &self.offset)?;
        self.content.entries(&mut map)?;
        map.serialize_entry("due", &self.due)?;
        map.serialize_entry("delivered_at", &self.delivered_at)?;
        map.serialize_entry("reason", &self.reason)?;
        map.serialize_entry("attempts", &self.attempts)?;
        map.serialize_entry("first_error", &self.first_error)?;
        map.serialize_entry("last_error", &self.last_error)?;
        map.serialize_entry("died_at", &self.died_at)?;
        map.end()
    }
}

/// How many letters died when, and of what.
#[derive(Clone, Debug, Serialize)]
pub struct SummaryView {
    /// All letters on the list.
    pub total: u64,
    /// Counts, newest day first.
    pub days: Vec<DayView>,
    /// Whether everything on the list was counted, and every count is told.
    pub complete: bool,
}

/// How many letters died on a day of one reason.
#[derive(Clone, Debug, Serialize)]
pub struct DayView {
    /// The day in UTC: `2030-01-31`.
    pub day: String,
    /// Why they are dead.
    pub reason: Option<&'static str>,
    /// How many.
    pub count: u64,
}

/// `{"job":"…"}`
#[derive(Clone, Debug, Serialize)]
pub struct Started {
    /// What to ask for its progress with.
    pub job: String,
}

/// `{"matched":n}`
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Matched {
    /// How many it is about.
    pub matched: u64,
}

/// `{"matched":n,"purged":n}`
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Purged {
    /// How many it is about.
    pub matched: u64,
    /// How many are gone.
    pub purged: u64,
}

/// How far a job is.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    /// Its id.
    pub job: String,
    /// `redrive` or `drain`.
    pub kind: &'static str,
    /// `running`, `done` or `failed`.
    pub state: &'static str,
    /// When it was started, as RFC 3339.
    pub started: String,
    /// How many messages it has come across.
    pub matched: u64,
    /// How many of them are done.
    pub done: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What became of each, in order.
    pub results: Vec<JobResultView>,
    /// The cursor of the next page of results; absent when there are no more for now.
    pub next: Option<String>,
    /// Whether there were more results than are remembered.
    pub results_cut: bool,
}

/// What a job did with one message.
#[derive(Clone, Debug, Serialize)]
pub struct JobResultView {
    /// The id of the message.
    pub id: String,
    /// One word.
    pub result: &'static str,
    /// When it is tried again, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReadLimits = ReadLimits { depth: 8, messages: 1, headers: 4 };

    #[test]
    fn a_redrive_with_everything() {
        let json = br#"{"filter":{"reason":"expired","day":"2030-01-01","key":"k","id":"x"},
            "rate":100,"at":5,"dry_run":false,
            "edit":{"body":{"a":1},"headers":{"h":"1"},"key_base64":"/w=="}}"#;
        let redrive = Redrive::read(json, LIMITS).unwrap();
        assert_eq!(redrive.filter.reason.as_deref(), Some("expired"));
        assert_eq!((redrive.rate, redrive.at.as_deref()), (Some(100), Some("5")));
        let edit = redrive.edit.unwrap();
        assert_eq!(edit.body.as_deref(), Some(&br#"{"a":1}"#[..]));
        assert_eq!(edit.key.as_deref(), Some(&b"\xff"[..]));
        assert_eq!(Redrive::read(b"", LIMITS), Ok(Redrive::default()));
    }

    #[test]
    fn each_fault_has_its_code() {
        for (json, code) in [
            (r#"{"filter":5}"#, Code::InvalidField),
            (r#"{"filter":{"colour":1}}"#, Code::UnknownField),
            (r#"{"filter":{"from":true}}"#, Code::InvalidTime),
            (r#"{"filter":{"from":1,"day":"2030-01-01"}}"#, Code::ConflictingFields),
            (r#"{"filter":{"key":"a","key_base64":"YQ=="}}"#, Code::ConflictingFields),
            (r#"{"rate":-1}"#, Code::InvalidField),
            (r#"{"rate":1.5}"#, Code::InvalidField),
            (r#"{"edit":{"body":1,"body_base64":""}}"#, Code::ConflictingFields),
            (r#"{"edit":{"headers":5}}"#, Code::InvalidField),
            (r#"{"edit":{"delay":5}}"#, Code::UnknownField),
        ] {
            assert_eq!(Redrive::read(json.as_bytes(), LIMITS).unwrap_err().code, code, "{json}");
        }
    }

    #[test]
    fn throwing_everything_away_must_be_said() {
        for json in ["", "{}", r#"{"filter":{}}"#, r#"{"filter":null,"all":false}"#] {
            let refused = Purge::read(json.as_bytes(), 8).unwrap_err();
            assert_eq!(refused.code, Code::InvalidField, "{json}");
        }
        assert!(Purge::read(br#"{"all":true}"#, 8).unwrap().filter.is_empty());
        let both = Purge::read(br#"{"all":true,"filter":{"reason":"expired"}}"#, 8);
        assert_eq!(both.unwrap_err().code, Code::ConflictingFields);
    }

    #[test]
    fn a_filter_from_parameters() {
        let mut parameters = Parameters::read(Some("reason=rejected&key=a+b&from=5")).unwrap();
        let filter = DeadFilter::take(&mut parameters).unwrap();
        parameters.end().unwrap();
        assert_eq!(filter.key.as_deref(), Some(&b"a b"[..]));
        let mut parameters = Parameters::read(Some("day=2030-01-01&from=5")).unwrap();
        let refused = DeadFilter::take(&mut parameters).unwrap_err();
        assert_eq!(refused.code, Code::ConflictingFields);
    }
}
