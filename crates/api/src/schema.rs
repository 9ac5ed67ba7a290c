//! The shapes of the contract as JSON Schema (2020-12), for the OpenAPI document.
//!
//! Each file of this folder describes the shapes of the module of the same name. What a request may
//! hold is told exactly as its reader takes it: `null` is nothing, and what is not listed is refused.
//! Answers list what they have today; more may come, and clients must not mind. The numbers that
//! bound requests are handed in, as they are to the readers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::code::Code;

mod message;
mod pending;
mod topic;
mod group;
mod consume;
mod dead;
mod transaction;
mod transfer;
mod legacy;
mod app;
mod session;
mod stats;
mod alert;
mod admin;

/// The numbers that bound what may be asked for. Durations are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest name of a topic or group.
    pub name_chars: usize,
    /// Most messages of a batch.
    pub batch_messages: usize,
    /// Most headers of a message.
    pub headers: usize,
    /// Longest key, in bytes.
    pub key_bytes: usize,
    /// Longest id of a sender's own, in bytes.
    pub own_id_bytes: usize,
    /// Most attempts.
    pub attempts: u16,
    /// Most partitions of a topic.
    pub partitions: u16,
    /// Longest delay.
    pub delay: u64,
    /// The end of time, since the epoch.
    pub time: u64,
    /// Longest delay that can be configured.
    pub delay_ceiling: u64,
    /// Shortest interval of a series.
    pub every_min: u64,
    /// Most messages of one page.
    pub page: usize,
    /// Messages of a page where nothing is said.
    pub page_default: usize,
    /// Most messages of one receive.
    pub receive: usize,
    /// Messages of a receive where nothing is said.
    pub receive_default: usize,
    /// Longest wait of a call.
    pub wait: u64,
    /// Shortest lease.
    pub lease_min: u64,
    /// Longest lease.
    pub lease_max: u64,
    /// Most receipts of one request.
    pub receipts: usize,
    /// Most rungs of a retry ladder.
    pub rungs: usize,
    /// Most messages that a topic may be made to fire in a second, and most that are sent again.
    pub rate: u32,
    /// Longest jitter.
    pub jitter: u64,
    /// Most checks of a transaction.
    pub checks: u16,
    /// Shortest time between two checks.
    pub check_interval_min: u64,
    /// Longest retry wait.
    pub retry_wait: u64,
    /// Most requests that a group may have pushed at once.
    pub push_concurrency: u16,
    /// Shortest and longest time-out of a push.
    pub push_timeout: (u64, u64),
    /// Longest address.
    pub url_chars: usize,
    /// Characters of an id of ours.
    pub id_chars: usize,
    /// Longest key of an app.
    pub app_key_chars: usize,
    /// Most permissions of an app.
    pub permissions: usize,
    /// What can be granted.
    pub verbs: [&'static str; 10],
    /// Longest time for which an old secret may count.
    pub keep_old: u64,
}

/// A schema in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema(Value);

/// All shapes that have a name, by it.
#[must_use]
pub fn components(bounds: &Bounds) -> BTreeMap<&'static str, Schema> {
    let mut all = BTreeMap::from([("Problem", problem())]);
    for part in [
        message::components(bounds),
        pending::components(bounds),
        topic::components(bounds),
        group::components(bounds),
        consume::components(bounds),
        dead::components(bounds),
        transaction::components(bounds),
        transfer::components(bounds),
        legacy::components(bounds),
        app::components(bounds),
        session::components(bounds),
        stats::components(),
        alert::components(),
        admin::components(bounds),
    ] {
        for (name, schema) in part {
            let earlier = all.insert(name, schema);
            debug_assert!(earlier.is_none(), "two shapes have the name {name}");
        }
    }
    all
}

/// The shapes of one module, by name.
type Named = Vec<(&'static str, Schema)>;

fn problem() -> Schema {
    let codes = Code::ALL.iter().map(|code| code.as_str());
    object()
        .with("type", text().about("A URN of the code."))
        .with("title", text().about("The same for every occurrence of the code, for people."))
        .with("status", integer(400u64, 599u64).about("The HTTP status."))
        .with("detail", text().about("What was wrong this time, for people."))
        .with("code", word(codes).about("The stable code, for programs."))
        .may("index", integer(0u64, u64::MAX).about("Which one of a batch it was, counted from 0."))
        .about("Why a request was refused: RFC 9457, with a stable code.")
        .example(json!({
            "type": "urn:punctual:error:topic_not_found",
            "title": Code::TopicNotFound.title(),
            "status": Code::TopicNotFound.status(),
            "detail": Code::TopicNotFound.title(),
            "code": Code::TopicNotFound.as_str(),
        }))
}

/// Anything at all.
#[must_use]
pub fn anything() -> Schema {
    Schema(json!({}))
}

/// Any text.
#[must_use]
pub fn text() -> Schema {
    Schema(json!({"type": "string"}))
}

/// One of these words.
#[must_use]
pub fn word<'a>(words: impl IntoIterator<Item = &'a str>) -> Schema {
    let words: Vec<&str> = words.into_iter().collect();
    Schema(json!({"type": "string", "enum": words}))
}

/// A whole number.
#[must_use]
pub fn integer(least: impl Into<u64>, most: impl Into<u64>) -> Schema {
    Schema(json!({"type": "integer", "minimum": least.into(), "maximum": most.into()}))
}

/// How many there are.
#[must_use]
pub fn count() -> Schema {
    Schema(json!({"type": "integer", "minimum": 0}))
}

/// A number.
#[must_use]
pub fn number(least: f64, most: f64) -> Schema {
    Schema(json!({"type": "number", "minimum": least, "maximum": most}))
}

/// True or false.
#[must_use]
pub fn truth() -> Schema {
    Schema(json!({"type": "boolean"}))
}

/// A list of these.
#[must_use]
pub fn list(item: Schema) -> Schema {
    Schema(json!({"type": "array", "items": item.0}))
}

/// An object with the fields to come.
#[must_use]
pub fn object() -> Schema {
    Schema(json!({"type": "object"}))
}

/// An object whose names are free and whose values are these.
#[must_use]
pub fn map(value: Schema) -> Schema {
    Schema(json!({"type": "object", "additionalProperties": value.0}))
}

/// A shape that has a name.
#[must_use]
pub fn named(name: &str) -> Schema {
    Schema(json!({"$ref": format!("#/components/schemas/{name}")}))
}

/// One of several shapes.
#[must_use]
pub fn any_of<const N: usize>(shapes: [Schema; N]) -> Schema {
    let shapes: Vec<Value> = shapes.into_iter().map(|shape| shape.0).collect();
    Schema(json!({"anyOf": shapes}))
}

/// A time as it is answered.
#[must_use]
pub fn time() -> Schema {
    Schema(json!({"type": "string", "format": "date-time"}))
}

/// A time as it may be asked for.
#[must_use]
pub fn time_asked(bounds: &Bounds) -> Schema {
    let written = time().pattern(TIME);
    let digits = text().pattern("^[0-9]+$").format("epoch-millis");
    any_of([written, digits, integer(0u64, bounds.time)])
        .about("RFC 3339 with a zone, or milliseconds since the epoch.")
}

/// The edge of a window of time. One past the end of time is the end of time.
#[must_use]
pub fn edge_asked() -> Schema {
    let written = time().pattern(TIME);
    let digits = text().pattern("^[0-9]+$").format("epoch-millis");
    any_of([written, digits, count()])
        .about("RFC 3339 with a zone, or milliseconds since the epoch.")
}

/// A duration as it is answered.
#[must_use]
pub fn span() -> Schema {
    text().about("A duration, as 1h30m.")
}

/// A duration as it may be asked for, between so many milliseconds.
#[must_use]
pub fn span_asked(least: u64, most: u64) -> Schema {
    let written = text().pattern(SPAN).format("span").set("minLength", 1);
    any_of([written, integer(least, most)]).about(&format!(
        "A duration as 30s, 1h30m or PT30S, or a number of milliseconds; from {least} to {most} \
         milliseconds."
    ))
}

/// The name of a topic or a group.
#[must_use]
pub fn name(bounds: &Bounds) -> Schema {
    let most = bounds.name_chars;
    // Neither one dot nor two.
    text().pattern("^([.]{0,2}[A-Za-z0-9_-]|[.]{3})[A-Za-z0-9._-]*$").length(1, most)
}

/// Bytes in base 64.
#[must_use]
pub fn base64() -> Schema {
    text().pattern(BASE64).set("contentEncoding", "base64")
}

/// An id that the broker gave.
#[must_use]
pub fn id() -> Schema {
    text().about("An id that the broker gave.")
}

/// An id of ours as it may be asked for.
#[must_use]
pub fn id_asked(bounds: &Bounds) -> Schema {
    let chars = bounds.id_chars;
    text().pattern("^[0-9a-hjkmnp-tv-z]+$").length(chars, chars).format("message-id")
}

/// A time with a zone, as in RFC 3339.
const TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?\
                    ([Zz]|[+-][0-9]{2}:[0-9]{2})$";
/// A duration in words, as ISO 8601 has it, or in milliseconds.
const SPAN: &str = "^([0-9]+|([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|\
                    P([0-9]+D|([0-9]+D)?T([0-9]+H([0-9]+M)?([0-9]+(\\.[0-9]{1,3}0*)?S)?|\
                    [0-9]+M([0-9]+(\\.[0-9]{1,3}0*)?S)?|[0-9]+(\\.[0-9]{1,3}0*)?S)))$";
/// Only one way to write the same bytes.
const BASE64: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

impl Schema {
    /// The schema as JSON.
    #[must_use]
    pub fn into_json(self) -> Value {
        self.0
    }

    /// The same with another keyword.
    #[must_use]
    pub fn set(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.keywords().insert(keyword.to_owned(), value.into());
        self
    }

    /// What it stands for.
    #[must_use]
    pub fn about(self, words: &str) -> Self {
        self.set("description", words)
    }

    /// One that is legal.
    #[must_use]
    pub fn example(self, value: Value) -> Self {
        self.set("examples", json!([value]))
    }

    /// What holds where nothing is said.
    #[must_use]
    pub fn default(self, value: impl Into<Value>) -> Self {
        self.set("default", value)
    }

    /// How the text looks.
    #[must_use]
    pub fn pattern(self, pattern: &str) -> Self {
        self.set("pattern", pattern)
    }

    /// What kind of text it is.
    #[must_use]
    pub fn format(self, name: &str) -> Self {
        self.set("format", name)
    }

    /// How many characters the text has.
    #[must_use]
    pub fn length(self, least: usize, most: usize) -> Self {
        self.set("minLength", least).set("maxLength", most)
    }

    /// How many items the list has.
    #[must_use]
    pub fn items(self, least: usize, most: usize) -> Self {
        self.set("minItems", least).set("maxItems", most)
    }

    /// The same, or null.
    #[must_use]
    pub fn or_null(self) -> Self {
        match self.0.get("type") {
            Some(Value::String(kind)) if self.0.get("enum").is_none() => {
                let kinds = json!([kind, "null"]);
                self.set("type", kinds)
            }
            _ => {
                let words = self.0.get("description").cloned();
                let either = any_of([self, Self(json!({"type": "null"}))]);
                match words {
                    Some(words) => either.set("description", words),
                    None => either,
                }
            }
        }
    }

    /// A field that is always there.
    #[must_use]
    pub fn with(mut self, name: &str, schema: Self) -> Self {
        let required = self.keywords().entry("required").or_insert_with(|| json!([]));
        if let Value::Array(names) = required {
            names.push(name.into());
        }
        self.may(name, schema)
    }

    /// A field that is there where it makes sense.
    #[must_use]
    pub fn may(mut self, name: &str, schema: Self) -> Self {
        let fields = self.keywords().entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(fields) = fields {
            fields.insert(name.to_owned(), schema.0);
        }
        self
    }

    /// A field of a request that may be left out; null is the same as nothing.
    #[must_use]
    pub fn can(self, name: &str, schema: Self) -> Self {
        self.may(name, schema.or_null())
    }

    /// Nothing else may be said.
    #[must_use]
    pub fn closed(self) -> Self {
        self.set("additionalProperties", false)
    }

    /// At most one of these fields may say something.
    #[must_use]
    pub fn at_most_one(mut self, names: &[&str]) -> Self {
        for (place, first) in names.iter().enumerate() {
            for second in names.iter().skip(place + 1) {
                let said = json!({"not": {"type": "null"}});
                self = self.never(json!({
                    "required": [first, second],
                    "properties": {*first: said, *second: said},
                }));
            }
        }
        self
    }

    /// At least one of these fields must say something.
    #[must_use]
    pub fn at_least_one(self, names: &[&str]) -> Self {
        let silent = names.iter().map(|name| ((*name).to_owned(), json!({"type": "null"})));
        let silent: Map<String, Value> = silent.collect();
        self.never(json!({ "properties": silent }))
    }

    /// Where a filter of these fields says nothing, `all` must be true.
    #[must_use]
    pub fn all_or(self, filter: &str, fields: &[&str]) -> Self {
        let nothing = fields.iter().map(|name| ((*name).to_owned(), json!({"type": "null"})));
        let nothing: Map<String, Value> = nothing.collect();
        let silent =
            json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": nothing}]});
        self.never(json!({
            "properties": {"all": {"enum": [false, null]}, filter: silent},
        }))
    }

    /// What an object must not be, beside what was said before.
    #[must_use]
    pub fn never(mut self, schema: Value) -> Self {
        let not = self.keywords().entry("not").or_insert_with(|| json!({"anyOf": []}));
        if let Some(Value::Array(cases)) = not.get_mut("anyOf") {
            cases.push(schema);
        }
        self
    }

    fn keywords(&mut self) -> &mut Map<String, Value> {
        match &mut self.0 {
            Value::Object(keywords) => keywords,
            _ => unreachable!("every schema is made as an object"),
        }
    }
}

#[cfg(test)]
mod tests;
