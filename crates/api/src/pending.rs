//! Changes of pending messages in JSON, of one and of many, and how much is due when.

use std::borrow::Cow;

use bytes::Bytes;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::code::Code;
use crate::problem::Problem;
use crate::request::fields::Fields;
use crate::request::value::{duration, level, scalar, time};
use crate::request::{Parameters, ReadLimits, When, headers};

/// What to change in a pending message; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageChange<'a> {
    /// Another time.
    pub when: Option<When<'a>>,
    /// Whether its countdown stands still.
    pub paused: Option<bool>,
    /// Another body.
    pub body: Option<Bytes>,
    /// Other headers, all of them.
    pub headers: Option<Vec<(String, Bytes)>>,
    /// How long after its due time it may be given to a group: a duration as it was written.
    pub ttl: Option<Cow<'a, str>>,
    /// The version it must still have.
    pub version: Option<u64>,
}

impl<'a> MessageChange<'a> {
    /// Reads the object of a PATCH.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong; a change of nothing is one too.
    pub fn read(json: &'a [u8], limits: ReadLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let headers = fields.take("headers");
        let ttl = fields.take("ttl");
        let change = Self {
            when: take_when(&mut fields)?,
            paused: fields.take_bool("paused")?,
            body: fields.take_body()?,
            headers: headers.map(|raw| headers::read(raw, limits.headers)).transpose()?,
            ttl: ttl.map(|raw| scalar("ttl", raw, Code::InvalidDelay)).transpose()?,
            version: fields.take_whole("version")?,
        };
        fields.end()?;
        if (Self { version: change.version, ..Self::default() }) == change {
            let detail = "say what to change: a time, paused, a body, headers or ttl";
            return Err(Problem::new(Code::EmptyChange, detail));
        }
        Ok(change)
    }
}

/// Takes the one field that says when.
fn take_when<'a>(fields: &mut Fields<'a>) -> Result<Option<When<'a>>, Problem> {
    let names = ["delay", "deliver_at", "delay_level"];
    let given = names.map(|name| fields.take(name));
    match given {
        [None, None, None] => Ok(None),
        [Some(raw), None, None] => Ok(Some(When::After(duration(raw)?))),
        [None, Some(raw), None] => Ok(Some(When::At(time(raw)?))),
        [None, None, Some(raw)] => Ok(Some(When::Level(level(raw)?))),
        _ => {
            let detail = "give one of delay, deliver_at and delay_level";
            Err(Problem::new(Code::ConflictingFields, detail))
        }
    }
}

/// Which pending messages are meant. Texts are as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingFilter<'a> {
    /// Due at this time or later.
    pub from: Option<Cow<'a, str>>,
    /// Due before this time.
    pub to: Option<Cow<'a, str>>,
    /// With this key.
    pub key: Option<Bytes>,
    /// With a key that begins so.
    pub key_prefix: Option<Bytes>,
    /// In this state.
    pub state: Option<Cow<'a, str>>,
    /// Sent by the app of this key.
    pub app: Option<Cow<'a, str>>,
}

impl<'a> PendingFilter<'a> {
    /// Takes what a filter is made of out of the parameters of a request.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn take(parameters: &mut Parameters<'a>) -> Result<Self, Problem> {
        Ok(Self {
            from: parameters.take_time("from")?,
            to: parameters.take_time("to")?,
            key: parameters.take_key()?,
            key_prefix: parameters
                .take_bytes("key_prefix")
                .map(|prefix| Bytes::copy_from_slice(&prefix)),
            state: parameters.take("state")?,
            app: parameters.take("app")?,
        })
    }

    fn read(raw: &'a str) -> Result<Self, Problem> {
        let mut fields = Fields::nested("filter", raw)?;
        let prefix = fields.take_string("key_prefix")?;
        let filter = Self {
            from: fields.take_time("from")?,
            to: fields.take_time("to")?,
            key: fields.take_key()?,
            key_prefix: prefix.map(|text| Bytes::copy_from_slice(text.as_bytes())),
            state: fields.take_string("state")?,
            app: fields.take_string("app")?,
        };
        fields.end()?;
        Ok(filter)
    }
}

/// What is to be done with many pending messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bulk<'a> {
    /// Which ones.
    pub filter: PendingFilter<'a>,
    /// Really all, if the filter says nothing.
    pub all: bool,
    /// Whether only to count them.
    pub dry_run: bool,
    /// How long the answer may wait for the end: a duration as it was written.
    pub wait: Option<Cow<'a, str>>,
}

/// When many messages are to be due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move<'a> {
    /// All at this time.
    To(When<'a>),
    /// Each so much later than it was: a duration as it was written.
    Later(Cow<'a, str>),
    /// Each so much earlier: a duration as it was written.
    Earlier(Cow<'a, str>),
}

impl<'a> Bulk<'a> {
    /// Reads the object of a request that needs nothing else said.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let bulk = Self::take(&mut fields)?;
        fields.end()?;
        Ok(bulk)
    }

    /// Reads the object of a request that says when, too.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read_reschedule(json: &'a [u8], depth_max: usize) -> Result<(Self, Move<'a>), Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let bulk = Self::take(&mut fields)?;
        let when = take_when(&mut fields)?;
        let shift = fields.take("shift");
        fields.end()?;
        let to = match (when, shift) {
            (Some(_), Some(_)) => {
                let detail = "give a time or a shift, not both";
                return Err(Problem::new(Code::ConflictingFields, detail));
            }
            (Some(when), None) => Move::To(when),
            (None, Some(raw)) => shifted(raw)?,
            (None, None) => {
                let detail = "give delay, deliver_at, delay_level or shift";
                return Err(Problem::new(Code::MissingTime, detail));
            }
        };
        Ok((bulk, to))
    }

    fn take(fields: &mut Fields<'a>) -> Result<Self, Problem> {
        let filter = fields.take("filter").map(PendingFilter::read).transpose()?;
        Ok(Self {
            filter: filter.unwrap_or_default(),
            all: fields.take_bool("all")?.unwrap_or(false),
            dry_run: fields.take_bool("dry_run")?.unwrap_or(false),
            wait: fields.take_text("wait")?,
        })
    }
}

/// A duration with a sign.
fn shifted(raw: &str) -> Result<Move<'_>, Problem> {
    let text = scalar("shift", raw, Code::InvalidShift)?;
    let without = |text: Cow<'_, str>| text.get(1..).unwrap_or_default().to_owned().into();
    Ok(match text.as_bytes().first() {
        Some(b'-') => Move::Earlier(without(text)),
        Some(b'+') => Move::Later(without(text)),
        _ => Move::Later(text),
    })
}

/// What became of many messages.
#[derive(Clone, Debug)]
pub struct BulkView {
    /// How many it is about, as far as they are counted.
    pub matched: u64,
    /// What was done with them, in a word.
    pub done_word: &'static str,
    /// With how many of them.
    pub done: u64,
    /// How many could not be changed.
    pub failed: u64,
    /// What to ask for its progress with.
    pub job: String,
    /// `running`, `done`, `stopped` or `failed`.
    pub state: &'static str,
}

impl Serialize for BulkView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("matched", &self.matched)?;
        map.serialize_entry(self.done_word, &self.done)?;
        map.serialize_entry("failed", &self.failed)?;
        map.serialize_entry("job", &self.job)?;
        map.serialize_entry("state", self.state)?;
        map.end()
    }
}

/// How far a job is.
#[derive(Clone, Debug, Serialize)]
pub struct BulkJobView {
    /// Its id.
    pub job: String,
    /// `cancel`, `reschedule`, `shift`, `deliver`, `pause` or `resume`.
    pub kind: &'static str,
    /// Whether it only counts.
    pub dry_run: bool,
    /// `running`, `done`, `stopped` or `failed`.
    pub state: &'static str,
    /// When it was started, as RFC 3339.
    pub started: String,
    /// How many messages matched, as far as they are counted.
    pub matched: u64,
    /// How many were changed.
    pub done: u64,
    /// How many could not be changed.
    pub failed: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The jobs of a topic.
#[derive(Clone, Debug, Serialize)]
pub struct BulkJobList {
    /// The newest first.
    pub jobs: Vec<BulkJobView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// One page of series.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesPage<T> {
    /// By the time of their next occurrence.
    pub series: Vec<T>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// How much of a topic, or of everything, is due when.
#[derive(Clone, Debug, Serialize)]
pub struct ForecastView {
    /// Everything that is pending.
    pub total: u64,
    /// Of that, what is paused.
    pub paused: u64,
    /// Of that, half messages of transactions.
    pub prepared: u64,
    /// How much is due within each time from now; each count has those before it.
    pub due: Vec<WithinView>,
    /// What is due after the last of them.
    pub later: u64,
    /// How much is due in each step, where steps were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepView>>,
}

/// How much is due in a step: until its end, and after that of the one before.
#[derive(Clone, Debug, Serialize)]
pub struct StepView {
    /// When it ends.
    pub until: String,
    /// How much. What is overdue is in the first.
    pub count: u64,
}

/// How much is due within a time from now.
#[derive(Clone, Debug, Serialize)]
pub struct WithinView {
    /// The time: a duration.
    pub within: String,
    /// How much.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReadLimits = ReadLimits { depth: 8, messages: 1, headers: 4 };

    #[test]
    fn a_change_with_everything() {
        let json = br#"{"deliver_at":5,"paused":false,"body":{"a":1},"headers":{"h":"1"},"ttl":"1h","version":2}"#;
        let change = MessageChange::read(json, LIMITS).unwrap();
        assert_eq!(change.when, Some(When::At("5".into())));
        assert_eq!((change.paused, change.version), (Some(false), Some(2)));
        assert_eq!(change.body.as_deref(), Some(&br#"{"a":1}"#[..]));
        assert_eq!(
            (change.headers.map(|all| all.len()), change.ttl.as_deref()),
            (Some(1), Some("1h"))
        );
    }

    #[test]
    fn each_fault_of_a_change_has_its_code() {
        for (json, code) in [
            ("", Code::EmptyChange),
            ("{}", Code::EmptyChange),
            (r#"{"version":1}"#, Code::EmptyChange),
            (r#"{"delay":null}"#, Code::EmptyChange),
            (r#"{"delay":"1s","deliver_at":1}"#, Code::ConflictingFields),
            (r#"{"body":1,"body_base64":""}"#, Code::ConflictingFields),
            (r#"{"paused":"yes"}"#, Code::InvalidField),
            (r#"{"paused":true,"version":-1}"#, Code::InvalidField),
            (r#"{"key":"k"}"#, Code::UnknownField),
            (r#"{"delay_level":1.5}"#, Code::UnknownLevel),
            (r#"{"ttl":[]}"#, Code::InvalidDelay),
        ] {
            let refused = MessageChange::read(json.as_bytes(), LIMITS).unwrap_err();
            assert_eq!(refused.code, code, "{json}");
        }
    }

    #[test]
    fn many_are_moved_to_a_time_or_by_one() {
        let read = |json: &'static str| Bulk::read_reschedule(json.as_bytes(), 8);
        assert_eq!(read(r#"{"delay":"1h"}"#).unwrap().1, Move::To(When::After("1h".into())));
        assert_eq!(read(r#"{"shift":"-1h"}"#).unwrap().1, Move::Earlier("1h".into()));
        assert_eq!(read(r#"{"shift":"+1h"}"#).unwrap().1, Move::Later("1h".into()));
        assert_eq!(read(r#"{"shift":500}"#).unwrap().1, Move::Later("500".into()));
        assert_eq!(read("{}").unwrap_err().code, Code::MissingTime);
        assert_eq!(read(r#"{"shift":true}"#).unwrap_err().code, Code::InvalidShift);
        assert_eq!(read(r#"{"shift":1,"delay":1}"#).unwrap_err().code, Code::ConflictingFields);
    }

    #[test]
    fn a_filter_of_many() {
        let json = br#"{"filter":{"from":1,"to":"2","key_base64":"aw==","key_prefix":"k","state":"paused"},"all":true,"dry_run":true,"wait":"0s"}"#;
        let bulk = Bulk::read(json, 8).unwrap();
        assert!(bulk.all && bulk.dry_run);
        assert_eq!(bulk.filter.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(bulk.filter.state.as_deref(), Some("paused"));
        for (json, code) in [
            (r#"{"filter":[]}"#, Code::InvalidField),
            (r#"{"filter":{"colour":1}}"#, Code::UnknownField),
            (r#"{"delay":"1s"}"#, Code::UnknownField),
            (r#"{"filter":{"from":true}}"#, Code::InvalidTime),
            (r#"{"filter":{"state":1}}"#, Code::InvalidField),
        ] {
            assert_eq!(Bulk::read(json.as_bytes(), 8).unwrap_err().code, code, "{json}");
        }
    }
}
