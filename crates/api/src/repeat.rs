//! Messages that come round, and what becomes of missed ones, in JSON.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::code::Code;
use crate::problem::Problem;
use crate::request::Parameters;
use crate::request::fields::Fields;
use crate::request::value::{scalar, string, whole};

/// When a message comes round. Texts are as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat<'a> {
    /// By which rule.
    pub rule: Rule<'a>,
    /// How often.
    pub count: Option<u64>,
    /// Not after this time.
    pub until: Option<Cow<'a, str>>,
}

/// By which rule a message comes round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule<'a> {
    /// After each interval, a duration.
    Every(Cow<'a, str>),
    /// At the times of a cron expression.
    Cron {
        /// The expression.
        cron: Cow<'a, str>,
        /// The name of the time zone whose clocks count.
        zone: Option<Cow<'a, str>>,
    },
}

impl<'a> Repeat<'a> {
    /// Reads `{"every":…}` or `{"cron":…,"zone":…}`, with `count` and `until`.
    pub(crate) fn read(raw: &'a str) -> Result<Self, Problem> {
        if !raw.starts_with('{') {
            return Err(refused("repeat is an object with every or cron"));
        }
        let mut fields = Fields::nested("repeat", raw)?;
        let kind = |name: &str| refused(format!("repeat.{name} has a value of the wrong kind"));
        let text = |name, raw: Option<&'a str>| {
            let text = raw.map(|raw| string(name, raw)).transpose();
            text.map_err(|_other| kind(name))
        };
        let every = fields.take("every");
        let every = every.map(|raw| scalar("every", raw, Code::InvalidRepeat)).transpose()?;
        let cron = text("cron", fields.take("cron"))?;
        let zone = text("zone", fields.take("zone"))?;
        let count = fields.take("count");
        let count = count.map(|raw| whole(raw).ok_or_else(|| kind("count"))).transpose()?;
        let until = fields.take_time("until")?;
        fields.end()?;
        Self::of_parts(every, cron, zone, (count, until))?
            .ok_or_else(|| refused("repeat needs every or cron"))
    }

    /// Takes the same out of the parameters of a request.
    pub(crate) fn take(parameters: &mut Parameters<'a>) -> Result<Option<Self>, Problem> {
        let every = parameters.take("every")?;
        let cron = parameters.take("cron")?;
        let zone = parameters.take("zone")?;
        let count = parameters.take("count")?;
        let number = |text: Cow<'a, str>| {
            whole(&text).ok_or_else(|| refused("count is a whole number from 1 on"))
        };
        let count = count.map(number).transpose()?;
        let until = parameters.take_time("until")?;
        Self::of_parts(every, cron, zone, (count, until))
    }

    fn of_parts(
        every: Option<Cow<'a, str>>,
        cron: Option<Cow<'a, str>>,
        zone: Option<Cow<'a, str>>,
        (count, until): (Option<u64>, Option<Cow<'a, str>>),
    ) -> Result<Option<Self>, Problem> {
        let rule = match (every, cron, zone) {
            (Some(_), Some(_), _) => return Err(refused("give every or cron, not both")),
            (Some(_), None, Some(_)) => return Err(refused("a zone goes with cron only")),
            (Some(every), None, None) => Rule::Every(every),
            (None, Some(cron), zone) => Rule::Cron { cron, zone },
            (None, None, None) if count.is_none() && until.is_none() => return Ok(None),
            (None, None, _) => return Err(refused("zone, count and until go with every or cron")),
        };
        Ok(Some(Self { rule, count, until }))
    }
}

fn refused(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(Code::InvalidRepeat, detail)
}

impl Serialize for Repeat<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.rule {
            Rule::Every(every) => map.serialize_entry("every", every)?,
            Rule::Cron { cron, zone } => {
                map.serialize_entry("cron", cron)?;
                if let Some(zone) = zone {
                    map.serialize_entry("zone", zone)?;
                }
            }
        }
        if let Some(count) = self.count {
            map.serialize_entry("count", &count)?;
        }
        if let Some(until) = &self.until {
            map.serialize_entry("until", until)?;
        }
        map.end()
    }
}

/// What becomes of messages that fell due while the broker was down; durations as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUp<'a> {
    /// All are delivered at once.
    All,
    /// Only the latest of each key or series.
    Latest,
    /// All are delivered, spread over this time.
    Spread(Cow<'a, str>),
    /// Those later than this are cancelled.
    SkipOlderThan(Cow<'a, str>),
}

impl<'a> CatchUp<'a> {
    /// Reads a word or an object with a duration.
    pub(crate) fn read(raw: &'a str) -> Result<Self, Problem> {
        match raw {
            "\"all\"" => return Ok(Self::All),
            "\"latest\"" => return Ok(Self::Latest),
            _ if raw.starts_with('{') => {}
            _ => return Err(no_policy()),
        }
        let mut fields = Fields::nested("catch_up", raw)?;
        let mut span = |name| {
            let raw = fields.take(name);
            raw.map(|raw| scalar(name, raw, Code::InvalidCatchUp)).transpose()
        };
        let (spread, skip) = (span("spread")?, span("skip_older_than")?);
        fields.end()?;
        match (spread, skip) {
            (Some(over), None) => Ok(Self::Spread(over)),
            (None, Some(than)) => Ok(Self::SkipOlderThan(than)),
            _ => Err(no_policy()),
        }
    }

    /// Reads `all`, `latest`, `spread:10m` or `skip_older_than:1h`.
    pub(crate) fn read_text(text: Cow<'a, str>) -> Result<Self, Problem> {
        match (&*text, text.split_once(':')) {
            ("all", _) => Ok(Self::All),
            ("latest", _) => Ok(Self::Latest),
            (_, Some(("spread", over))) => Ok(Self::Spread(over.to_owned().into())),
            (_, Some(("skip_older_than", than))) => Ok(Self::SkipOlderThan(than.to_owned().into())),
            _ => Err(no_policy()),
        }
    }
}

fn no_policy() -> Problem {
    let detail =
        "catch_up is \"all\", \"latest\", {\"spread\":\"10m\"} or {\"skip_older_than\":\"1h\"}";
    Problem::new(Code::InvalidCatchUp, detail)
}

impl Serialize for CatchUp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, span) = match self {
            Self::All => return serializer.serialize_str("all"),
            Self::Latest => return serializer.serialize_str("latest"),
            Self::Spread(over) => ("spread", over),
            Self::SkipOlderThan(than) => ("skip_older_than", than),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(name, span)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for json in [
            r#"{"every":"10m"}"#,
            r#"{"cron":"0 9 * * 1-5","zone":"Asia/Shanghai","count":3,"until":"5"}"#,
            r#"{"cron":"* * * * *"}"#,
        ] {
            let repeat = Repeat::read(json).unwrap();
            assert_eq!(serde_json::to_string(&repeat).unwrap(), json);
        }
        for json in
            [r#""all""#, r#""latest""#, r#"{"spread":"10m"}"#, r#"{"skip_older_than":"1h"}"#]
        {
            let policy = CatchUp::read(json).unwrap();
            assert_eq!(serde_json::to_string(&policy).unwrap(), json);
        }
        for (text, json) in [("spread:10m", r#"{"spread":"10m"}"#), ("all", r#""all""#)] {
            let policy = CatchUp::read_text(text.into()).unwrap();
            assert_eq!(serde_json::to_string(&policy).unwrap(), json);
        }
    }

    #[test]
    fn each_fault_has_its_code() {
        for json in [
            "5",
            r#""10m""#,
            "{}",
            r#"{"every":"10m","cron":"* * * * *"}"#,
            r#"{"every":"10m","zone":"UTC"}"#,
            r#"{"every":true}"#,
            r#"{"cron":5}"#,
            r#"{"cron":"* * * * *","zone":5}"#,
            r#"{"every":"10m","count":-1}"#,
            r#"{"count":5}"#,
        ] {
            assert_eq!(Repeat::read(json).unwrap_err().code, Code::InvalidRepeat, "{json}");
        }
        assert_eq!(Repeat::read(r#"{"evry":1}"#).unwrap_err().code, Code::UnknownField);
        assert_eq!(Repeat::read(r#"{"every":1,"until":[]}"#).unwrap_err().code, Code::InvalidTime);
        for json in ["5", r#""some""#, "{}", r#"{"spread":"1m","skip_older_than":"1m"}"#] {
            assert_eq!(CatchUp::read(json).unwrap_err().code, Code::InvalidCatchUp, "{json}");
        }
        assert_eq!(CatchUp::read(r#"{"spread":[]}"#).unwrap_err().code, Code::InvalidCatchUp);
        assert_eq!(CatchUp::read_text("spread".into()).unwrap_err().code, Code::InvalidCatchUp);
    }
}
