//! Groups in JSON: their settings, how far they are, and moving them elsewhere.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::code::Code;
use crate::problem::Problem;
use crate::request::bounded::{Bounded, Item, members};
use crate::request::fields::Fields;
use crate::request::value::{scalar, string, whole};

/// What somebody wants a group to be; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange<'a> {
    /// Whether messages of one key are given out one after the other.
    pub ordered: Option<bool>,
    /// How long to wait between attempts.
    pub retry: Option<RetryChange<'a>>,
    /// After how many failed attempts a message is a dead letter.
    pub max_attempts: Option<u64>,
    /// How long a message is lent to a consumer that says nothing: a duration as it was written.
    pub lease: Option<Cow<'a, str>>,
    /// Whether nothing is given out.
    pub paused: Option<bool>,
    /// Where messages are pushed to; `Some(None)` takes that away.
    pub push: Option<Option<PushChange<'a>>>,
    /// Where a new group starts.
    pub start: Option<StartAt>,
}

/// How long to wait between attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryChange<'a> {
    /// Durations as they were written, one for each failure.
    Ladder(Vec<Cow<'a, str>>),
    /// Waits that grow.
    Exponential {
        /// The first one, as it was written.
        first: Cow<'a, str>,
        /// The longest one, as it was written.
        max: Option<Cow<'a, str>>,
        /// How much longer each is than the one before, in percent.
        factor_percent: Option<u32>,
        /// How much of it is left to chance, in percent.
        jitter_percent: Option<u32>,
    },
}

/// Where messages are pushed to; what is not said stays as it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PushChange<'a> {
    /// The address.
    pub url: Option<Cow<'a, str>>,
    /// What requests are signed with; empty takes it away.
    pub secret: Option<Cow<'a, str>>,
    /// Requests under way at one time.
    pub concurrency: Option<u64>,
    /// How long one may take: a duration as it was written.
    pub timeout: Option<Cow<'a, str>>,
}

impl std::fmt::Debug for PushChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secret; nor the address, which may carry one.
        f.debug_struct("PushChange").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

/// Where a new group starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the oldest message still there.
    Earliest,
    /// With the next one.
    Latest,
}

impl<'a> GroupChange<'a> {
    /// Reads the object of a PUT; an empty request is an empty object.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: GroupLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let change = Self {
            ordered: fields.take_bool("ordered")?,
            retry: fields.take("retry").map(|raw| retry(raw, limits.rungs)).transpose()?,
            max_attempts: fields.take_whole("max_attempts")?,
            lease: fields.take_text("lease")?,
            paused: fields.take_bool("paused")?,
            push: fields.take_any("push").map(push).transpose()?,
            start: fields.take_string("start")?.map(|text| start(&text)).transpose()?,
        };
        fields.end()?;
        Ok(change)
    }
}

/// What a reader of groups may be asked to read.
#[derive(Clone, Copy, Debug)]
pub struct GroupLimits {
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    /// Most rungs of a ladder.
    pub rungs: usize,
}

fn retry(raw: &str, rungs_max: usize) -> Result<RetryChange<'_>, Problem> {
    let mut fields = Fields::nested("retry", raw)?;
    let (ladder, exponential) = (fields.take("ladder"), fields.take("exponential"));
    fields.end()?;
    match (ladder, exponential) {
        (Some(raw), None) => self::ladder(raw, rungs_max).map(RetryChange::Ladder),
        (None, Some(raw)) => self::exponential(raw),
        (Some(_), Some(_)) => {
            let detail = "give a ladder or exponential, not both";
            Err(Problem::new(Code::ConflictingFields, detail))
        }
        (None, None) => {
            Err(Problem::new(Code::InvalidField, "retry holds a ladder, or exponential"))
        }
    }
}

fn ladder(raw: &str, rungs_max: usize) -> Result<Vec<Cow<'_, str>>, Problem> {
    let bounds = || {
        let detail = format!("retry.ladder is an array of 1 to {rungs_max} durations");
        Problem::new(Code::InvalidField, detail)
    };
    if !raw.starts_with('[') {
        return Err(bounds());
    }
    let items = Bounded::<Item<'_>>::read(raw, rungs_max, |_most| bounds())?;
    if items.is_empty() {
        return Err(bounds());
    }
    items.into_iter().map(|item| scalar("a rung", item.0.get(), Code::InvalidField)).collect()
}

fn exponential(raw: &str) -> Result<RetryChange<'_>, Problem> {
    let mut fields = Fields::nested("retry.exponential", raw)?;
    let first = fields.take_text("first")?;
    let max = fields.take_text("max")?;
    let mut percent = |name| fields.take(name).map(|raw| percent(name, raw)).transpose();
    let (factor_percent, jitter_percent) = (percent("factor")?, percent("jitter")?);
    fields.end()?;
    let first = first.ok_or_else(|| {
        Problem::new(Code::InvalidField, "retry.exponential needs the first wait")
    })?;
    Ok(RetryChange::Exponential { first, max, factor_percent, jitter_percent })
}

/// A number with at most two decimals, in hundredths.
fn percent(name: &str, raw: &str) -> Result<u32, Problem> {
    let (units, hundredths) = raw.split_once('.').unwrap_or((raw, "0"));
    let hundredths = match hundredths.trim_end_matches('0') {
        "" => Some(0),
        digits if digits.len() == 1 => whole(digits).map(|tenths| tenths * 10),
        digits if digits.len() == 2 => whole(digits),
        _ => None,
    };
    whole(units)
        .and_then(|units| units.checked_mul(100)?.checked_add(hundredths?))
        .and_then(|percent| u32::try_from(percent).ok())
        .ok_or_else(|| {
            let detail = format!("{name} is a number with at most two decimals, as 1.75");
            Problem::new(Code::InvalidField, detail)
        })
}

fn push(raw: &str) -> Result<Option<PushChange<'_>>, Problem> {
    if raw == "null" {
        return Ok(None);
    }
    let mut fields = Fields::nested("push", raw)?;
    let push = PushChange {
        url: fields.take_string("url")?,
        secret: fields.take_string("secret")?,
        concurrency: fields.take_whole("concurrency")?,
        timeout: fields.take_text("timeout")?,
    };
    fields.end()?;
    Ok(Some(push))
}

fn start(text: &str) -> Result<StartAt, Problem> {
    match text {
        "earliest" => Ok(StartAt::Earliest),
        "latest" => Ok(StartAt::Latest),
        _ => Err(Problem::new(Code::InvalidField, "start is earliest or latest")),
    }
}

/// Where somebody wants a group to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reset<'a> {
    /// With the oldest message still there.
    Earliest,
    /// With the next one.
    Latest,
    /// With the first that was delivered at this time or later: a time as it was written.
    Time(Cow<'a, str>),
    /// At these offsets.
    Offsets(Vec<(u16, u64)>),
}

impl<'a> Reset<'a> {
    /// Reads `{"to":…}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], limits: OffsetLimits) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, limits.depth)?;
        let to = fields.take("to");
        fields.end()?;
        let forms = || {
            let detail = "to is \"earliest\", \"latest\", {\"time\":…} or {\"offsets\":{…}}";
            Problem::new(Code::InvalidField, detail)
        };
        let raw = to.ok_or_else(forms)?;
        if !raw.starts_with('{') {
            return match &*string("to", raw)? {
                "earliest" => Ok(Self::Earliest),
                "latest" => Ok(Self::Latest),
                _ => Err(forms()),
            };
        }
        let mut fields = Fields::nested("to", raw)?;
        let (time, offsets) = (fields.take_text("time")?, fields.take("offsets"));
        fields.end()?;
        match (time, offsets) {
            (Some(time), None) => Ok(Self::Time(time)),
            (None, Some(raw)) => self::offsets(raw, limits.partitions).map(Self::Offsets),
            _ => Err(forms()),
        }
    }
}

/// Reads `{"offsets":{"0":12,…}}`.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong.
pub fn read_offsets(json: &[u8], limits: OffsetLimits) -> Result<Vec<(u16, u64)>, Problem> {
    let mut fields = Fields::read(json, limits.depth)?;
    let raw = fields.take("offsets");
    fields.end()?;
    offsets(raw.unwrap_or_default(), limits.partitions)
}

/// What a reader of offsets may be asked to read.
#[derive(Clone, Copy, Debug)]
pub struct OffsetLimits {
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    /// Most partitions.
    pub partitions: usize,
}

fn offsets(raw: &str, partitions_max: usize) -> Result<Vec<(u16, u64)>, Problem> {
    let form = || {
        let detail = "offsets is an object of partitions and their offsets, as {\"0\":12}";
        Problem::new(Code::InvalidField, detail)
    };
    if !raw.starts_with('{') {
        return Err(form());
    }
    let mut offsets: Vec<(u16, u64)> = Vec::new();
    for (name, raw) in members(raw, partitions_max, |_most| Code::NoSuchPartition.into())? {
        let partition = whole(&name).and_then(|number| u16::try_from(number).ok());
        let partition = partition.ok_or(Code::NoSuchPartition)?;
        offsets.push((partition, whole(raw).ok_or_else(form)?));
    }
    offsets.sort_unstable();
    if offsets.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Problem::new(Code::DuplicateField, "a partition occurs twice"));
    }
    if offsets.is_empty() { Err(form()) } else { Ok(offsets) }
}

/// A group as it is answered; figures are there only when the group itself was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// The topic it consumes.
    pub topic: String,
    /// Whether messages of one key are given out one after the other.
    pub ordered: bool,
    /// How long it waits between attempts.
    pub retry: RetryPolicyView,
    /// After how many failed attempts a message is a dead letter.
    pub max_attempts: u16,
    /// How long a message is lent to a consumer that says nothing.
    pub lease: String,
    /// Whether nothing is given out.
    pub paused: bool,
    /// Where messages are pushed to.
    pub push: Option<PushView>,
    /// The topic of its dead letters.
    pub dead_topic: String,
    /// How far it is.
    #[serde(flatten)]
    pub standing: Option<StandingView>,
}

/// How long a group waits between attempts.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryPolicyView {
    /// Durations, one for each failure.
    Ladder(Vec<String>),
    /// Waits that grow.
    Exponential {
        /// The first.
        first: String,
        /// The longest.
        max: String,
        /// How much longer each is than the one before.
        factor: f64,
        /// How much of it is left to chance.
        jitter: f64,
    },
}

/// Where messages are pushed to. The secret is never shown.
#[derive(Clone, Debug, Serialize)]
pub struct PushView {
    /// The address.
    pub url: String,
    /// Whether requests are signed.
    pub secret_set: bool,
    /// Requests under way at one time.
    pub concurrency: u16,
    /// How long one may take.
    pub timeout: String,
}

/// How far a group is.
#[derive(Clone, Debug, Serialize)]
pub struct StandingView {
    /// Messages it is not done with.
    pub lag: u64,
    /// Messages that are with consumers.
    pub in_flight: u64,
    /// Messages that wait for another attempt.
    pub retrying: u64,
    /// Its dead letters.
    pub dead: u64,
    /// When the oldest message it is not done with was delivered, as RFC 3339.
    pub oldest_unacked: Option<String>,
    /// How long ago that is.
    pub oldest_unacked_age: Option<String>,
    /// How far it is in each partition.
    pub partitions: Vec<PartitionView>,
}

/// How far a group is in one partition.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartitionView {
    /// Its number.
    pub partition: u16,
    /// Everything before this offset is done.
    pub cursor: u64,
    /// The offset the next message will get.
    pub end: u64,
    /// Messages that are not done.
    pub lag: u64,
}

/// One page of groups.
#[derive(Clone, Debug, Serialize)]
pub struct GroupList {
    /// By topic and name.
    pub groups: Vec<GroupView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// `{"offsets":{"0":12,…}}`
#[derive(Clone, Debug)]
pub struct OffsetsView(pub Vec<(u16, u64)>);

impl Serialize for OffsetsView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("offsets", &Offsets(&self.0))?;
        map.end()
    }
}

struct Offsets<'a>(&'a [(u16, u64)]);

impl Serialize for Offsets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(partition, offset)| (partition, offset)))
    }
}

#[cfg(test)]
mod tests;
