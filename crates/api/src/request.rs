//! Reading messages from JSON.
//!
//! The reader stops at the first thing that is wrong and says what and where; it never guesses. A
//! field that is not known, not built yet, or there twice is refused. Nesting is bounded before
//! anything is parsed, and no number in the input decides how much is allocated.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Code;
use crate::problem::Problem;
use crate::repeat::{CatchUp, Repeat};
use crate::request::fields::Fields;
use crate::request::value::{bytes_of, checked_depth, json_problem, scalar};

pub(crate) mod bounded;
pub(crate) mod fields;
pub(crate) mod headers;
mod query;
pub(crate) mod value;

pub use query::{Parameters, decode_path, published};

/// A message as somebody asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage<'a> {
    /// Messages with the same key go to the same partition.
    pub key: Option<Bytes>,
    /// Names and values, in the order given.
    pub headers: Vec<(String, Bytes)>,
    /// The content.
    pub body: Bytes,
    /// When it is due.
    pub when: When<'a>,
    /// The partition, where the caller chose one.
    pub partition: Option<u16>,
    /// How long after its due time it may be given to a group: a duration as it was written.
    pub ttl: Option<Cow<'a, str>>,
    /// After how many failed attempts it is a dead letter.
    pub max_attempts: Option<u64>,
    /// The name its sender gives it.
    pub id: Option<Cow<'a, str>>,
    /// What to do if a message has that name.
    pub on_conflict: OnConflict,
    /// Whether and when it comes round.
    pub repeat: Option<Box<Repeat<'a>>>,
    /// What becomes of it if it falls due while the broker is down.
    pub catch_up: Option<CatchUp<'a>>,
}

impl<'a> NewMessage<'a> {
    /// Takes what a message is made of out of the fields of an object that has others too.
    pub(crate) fn take(fields: &mut Fields<'a>, limits: ReadLimits) -> Result<Self, Problem> {
        let mut written = Written::default();
        for (slot, name) in written.0.iter_mut().zip(FIELDS) {
            *slot = fields.take(name);
        }
        written.message(limits)
    }
}

/// What to do with a message whose name another one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused, unless it is the same request again.
    #[default]
    Reject,
    /// The other one gives way.
    Replace,
}

impl OnConflict {
    pub(crate) fn read(word: &str) -> Result<Self, Problem> {
        match word {
            "reject" => Ok(Self::Reject),
            "replace" => Ok(Self::Replace),
            _ => Err(Problem::new(Code::InvalidField, "on_conflict is reject or replace")),
        }
    }
}

/// When a message is due, as it was written: the content of a string, or the digits of a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum When<'a> {
    /// At once.
    #[default]
    Now,
    /// So long after arrival; whoever takes it must read the duration.
    After(Cow<'a, str>),
    /// At this time; whoever takes it must read the time.
    At(Cow<'a, str>),
    /// After the delay of this level.
    Level(u64),
}

/// What was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted<'a> {
    /// A message object.
    One(Box<NewMessage<'a>>),
    /// `{"messages":[…]}`
    Many(Vec<NewMessage<'a>>),
}

/// What a reader may be asked to read.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Deepest nesting of arrays and objects.
    pub depth: usize,
    /// Most messages of one batch.
    pub messages: usize,
    /// Most headers of one message.
    pub headers: usize,
}

/// Reads one message or a batch.
///
/// # Errors
/// A [`Problem`] for the first thing that is wrong, with its index in a batch.
pub fn read_messages(json: &[u8], limits: ReadLimits) -> Result<Posted<'_>, Problem> {
    let text = checked_depth(json, limits.depth)?;
    let reader = Reader { problem: Cell::new(None), limits };
    let mut source = serde_json::Deserializer::from_str(text);
    let posted = Document(&reader).deserialize(&mut source);
    posted
        .and_then(|posted| source.end().map(|()| posted))
        .map_err(|error| reader.problem.take().unwrap_or_else(|| json_problem(&error)))
}

/// Reads one message out of a request whose nesting is known to be harmless.
pub(crate) fn read_one(raw: &str, limits: ReadLimits) -> Result<NewMessage<'_>, Problem> {
    let reader = Reader { problem: Cell::new(None), limits };
    let mut source = serde_json::Deserializer::from_str(raw);
    let message = source.deserialize_map(Element(&reader, 0));
    message.map_err(|error| reader.problem.take().unwrap_or_else(|| json_problem(&error)))
}

/// What is known while reading. Serde's errors are texts only, so the real one is left here.
struct Reader {
    problem: Cell<Option<Problem>>,
    limits: ReadLimits,
}

impl Reader {
    fn refuse<E: Error>(&self, problem: Problem) -> E {
        self.problem.set(Some(problem));
        E::custom("refused")
    }
}

/// The fields of a message.
pub(crate) const FIELDS: [&str; 15] = [
    "body",
    "body_base64",
    "key",
    "key_base64",
    "headers",
    "delay",
    "deliver_at",
    "delay_level",
    "partition",
    "ttl",
    "max_attempts",
    "id",
    "on_conflict",
    "repeat",
    "catch_up",
];
const BODY: usize = 0;
const BODY_BASE64: usize = 1;
const KEY: usize = 2;
const KEY_BASE64: usize = 3;
const HEADERS: usize = 4;
const DELAY: usize = 5;
const DELIVER_AT: usize = 6;
const DELAY_LEVEL: usize = 7;
const PARTITION: usize = 8;
const TTL: usize = 9;
const MAX_ATTEMPTS: usize = 10;
const ID: usize = 11;
const ON_CONFLICT: usize = 12;
const REPEAT: usize = 13;
const CATCH_UP: usize = 14;

/// The values of one message as they were written, by place in [`FIELDS`].
#[derive(Default)]
struct Written<'de>([Option<&'de str>; FIELDS.len()]);

impl<'de> Written<'de> {
    /// The value of a field; `null` is the same as nothing.
    fn get(&self, field: usize) -> Option<&'de str> {
        self.0.get(field).copied().flatten().filter(|text| *text != "null")
    }

    fn one_of<const N: usize>(&self, fields: [usize; N]) -> Result<Option<usize>, Problem> {
        let mut given = fields.into_iter().filter(|field| self.get(*field).is_some());
        match (given.next(), given.next()) {
            (Some(first), Some(second)) => Err(Problem::new(
                Code::ConflictingFields,
                format!("give {} or {}, not both", FIELDS[first], FIELDS[second]),
            )),
            (first, _) => Ok(first),
        }
    }

    fn message(&self, limits: ReadLimits) -> Result<NewMessage<'de>, Problem> {
        let body = match self.one_of([BODY, BODY_BASE64])? {
            Some(BODY) => value::body(self.get(BODY).unwrap_or_default())?,
            Some(field) => value::base64(FIELDS[field], self.get(field).unwrap_or_default())?,
            None => return Err(Problem::new(Code::MissingBody, "give body or body_base64")),
        };
        let key = match self.one_of([KEY, KEY_BASE64])? {
            Some(KEY) => Some(bytes_of(value::string("key", self.get(KEY).unwrap_or_default())?)),
            Some(field) => Some(value::base64(FIELDS[field], self.get(field).unwrap_or_default())?),
            None => None,
        };
        let headers = match self.get(HEADERS) {
            Some(text) => headers::read(text, limits.headers)?,
            None => Vec::new(),
        };
        let when = match self.one_of([DELAY, DELIVER_AT, DELAY_LEVEL])? {
            Some(DELAY) => When::After(value::duration(self.get(DELAY).unwrap_or_default())?),
            Some(DELIVER_AT) => When::At(value::time(self.get(DELIVER_AT).unwrap_or_default())?),
            Some(field) => When::Level(value::level(self.get(field).unwrap_or_default())?),
            None => When::Now,
        };
        let partition = self.get(PARTITION).map(value::partition).transpose()?;
        let ttl = self.get(TTL).map(|raw| scalar("ttl", raw, Code::InvalidDelay)).transpose()?;
        let max_attempts = self.get(MAX_ATTEMPTS).map(value::attempts).transpose()?;
        let text = |field: usize| self.get(field).map(|raw| value::string(FIELDS[field], raw));
        let on_conflict = text(ON_CONFLICT).transpose()?;
        Ok(NewMessage {
            key,
            headers,
            body,
            when,
            partition,
            ttl,
            max_attempts,
            id: text(ID).transpose()?,
            on_conflict: on_conflict
                .map_or(Ok(OnConflict::Reject), |word| OnConflict::read(&word))?,
            repeat: self.get(REPEAT).map(Repeat::read).transpose()?.map(Box::new),
            catch_up: self.get(CATCH_UP).map(CatchUp::read).transpose()?,
        })
    }
}

/// The name of a field, looked up without keeping the text.
enum Name {
    Field(usize),
    Messages,
    Refused(Problem),
}

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Name, D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        if let Some(field) = FIELDS.iter().position(|known| *known == name) {
            return Ok(Name::Field(field));
        }
        if name == "messages" {
            return Ok(Name::Messages);
        }
        Ok(Name::Refused(fields::unknown(name)))
    }
}

struct Document<'r>(&'r Reader);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Posted<'de>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Posted<'de>, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Posted<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message object or {\"messages\":[…]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Posted<'de>, A::Error> {
        let reader = self.0;
        let mut written = Written::default();
        let mut fields_seen = false;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            match name {
                Name::Messages if !fields_seen => {
                    let batch = map.next_value_seed(Batch(reader))?;
                    if map.next_key::<IgnoredAny>()?.is_some() {
                        let detail = "nothing may stand beside messages";
                        return Err(reader.refuse(Problem::new(Code::InvalidRequest, detail)));
                    }
                    return Ok(Posted::Many(batch));
                }
                name => {
                    fields_seen = true;
                    reader.take(name, &mut map, &mut written)?;
                }
            }
        }
        let message = written.message(reader.limits).map_err(|problem| reader.refuse(problem))?;
        Ok(Posted::One(Box::new(message)))
    }
}

impl Reader {
    /// Takes the value of the field `name` out of `map`, or refuses the field.
    fn take<'de, A: MapAccess<'de>>(
        &self,
        name: Name,
        map: &mut A,
        written: &mut Written<'de>,
    ) -> Result<(), A::Error> {
        let field = match name {
            Name::Field(field) => field,
            Name::Messages => return Err(self.refuse(fields::unknown("messages"))),
            Name::Refused(problem) => return Err(self.refuse(problem)),
        };
        let slot = &mut written.0[field];
        if slot.is_some() {
            let detail = format!("the field {} occurs twice", FIELDS[field]);
            return Err(self.refuse(Problem::new(Code::DuplicateField, detail)));
        }
        *slot = Some(map.next_value::<&RawValue>()?.get());
        Ok(())
    }
}

struct Batch<'r>(&'r Reader);

impl<'de> DeserializeSeed<'de> for Batch<'_> {
    type Value = Vec<NewMessage<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Batch<'_> {
    type Value = Vec<NewMessage<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of message objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let reader = self.0;
        let mut messages = Vec::new();
        while let Some(message) = seq.next_element_seed(Element(reader, messages.len()))? {
            if messages.len() == reader.limits.messages {
                let detail = format!("a batch has at most {} messages", reader.limits.messages);
                return Err(reader.refuse(Problem::new(Code::BatchTooLarge, detail)));
            }
            messages.push(message);
        }
        if messages.is_empty() {
            return Err(reader.refuse(Code::EmptyBatch.into()));
        }
        Ok(messages)
    }
}

struct Element<'r>(&'r Reader, usize);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = NewMessage<'de>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<NewMessage<'de>, D::Error> {
        let (reader, index) = (self.0, self.1);
        source.deserialize_map(self).inspect_err(|_| {
            let problem = reader.problem.take();
            // Without a problem of ours it is a fault of syntax or kind, which says where it is.
            if let Some(problem) = problem {
                let index = problem.index.unwrap_or(index);
                reader.problem.set(Some(problem.at(index)));
            }
        })
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = NewMessage<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NewMessage<'de>, A::Error> {
        let reader = self.0;
        let mut written = Written::default();
        while let Some(name) = map.next_key_seed(NameSeed)? {
            reader.take(name, &mut map, &mut written)?;
        }
        written.message(reader.limits).map_err(|problem| reader.refuse(problem))
    }
}

#[cfg(test)]
mod tests;
