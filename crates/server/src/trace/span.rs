//! Spans as the collector wants them, and the ids they have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use punctual_model::MessageId;

use crate::trace::context::Context;

/// Spans of a recorded trace have this flag.
const SAMPLED: u32 = 1;

/// A span in the making.
#[derive(Debug)]
pub(super) struct Draft(Span);

impl Draft {
    /// A span of this name, below `parent` if there is one.
    pub(super) fn new(
        (verb, topic): (&str, &str),
        kind: SpanKind,
        context: Context,
        parent: Option<u64>,
    ) -> Self {
        let span = Span {
            trace_id: context.trace.to_be_bytes().to_vec(),
            span_id: context.span.to_be_bytes().to_vec(),
            parent_span_id: parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
            flags: SAMPLED,
            name: format!("{verb} {topic}"),
            kind: kind.into(),
            ..Span::default()
        };
        Self(span)
            .with("messaging.system", "punctual")
            .with("messaging.operation.name", verb)
            .with("messaging.destination.name", topic)
    }

    pub(super) fn with(self, name: &str, value: impl Into<Text>) -> Self {
        self.put(name, Value::StringValue(value.into().0))
    }

    pub(super) fn with_number(self, name: &str, value: u64) -> Self {
        self.put(name, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    pub(super) fn with_fraction(self, name: &str, value: f64) -> Self {
        self.put(name, Value::DoubleValue(value))
    }

    pub(super) fn failed(mut self, why: &str) -> Self {
        let status = Status { message: why.to_owned(), code: StatusCode::Error.into() };
        self.0.status = Some(status);
        self
    }

    /// The span, from and until then; since the epoch.
    pub(super) fn between(mut self, start: Duration, end: Duration) -> Span {
        self.0.start_time_unix_nano = nanos(start);
        self.0.end_time_unix_nano = nanos(end.max(start));
        self.0
    }

    fn put(mut self, name: &str, value: Value) -> Self {
        let value = Some(AnyValue { value: Some(value) });
        self.0.attributes.push(KeyValue { key: name.to_owned(), value, ..KeyValue::default() });
        self
    }
}

/// The text of an attribute.
pub(super) struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives ids that nobody else has.
#[derive(Debug)]
pub(super) struct Ids {
    seed: u64,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        // Without chance ids would repeat from one start to the next, which is better than none.
        let chance = || getrandom::u64().unwrap_or_default();
        Self { seed: chance(), next: AtomicU64::new(chance()) }
    }

    pub(super) fn span(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        mixed(self.seed ^ mixed(number)).max(1)
    }

    pub(super) fn trace(&self) -> u128 {
        u128::from(self.span()) << 64 | u128::from(self.span())
    }
}

/// The span of a message's firing: it follows from the message, so that whoever delivers it later,
/// even after a restart, knows it.
pub(super) fn firing(scheduled: u64, id: MessageId) -> u64 {
    let key = mixed(id.key.due.as_millis()) ^ mixed(!id.key.sequence.get());
    mixed(scheduled ^ mixed(key)).max(1)
}

/// Spreads the bits of a number over all places; no two numbers give the same one.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
