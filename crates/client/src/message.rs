//! A message to be sent.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use punctual_proto::v1;
use punctual_proto::v1::new_message::When;

use crate::level::DelayLevel;
use crate::wire;

/// What a message costs beside its bytes, in the accounts of the queue.
const MESSAGE_OVERHEAD_BYTES: usize = 128;

/// A message to be sent: a body, and whatever else should go with it.
///
/// ```
/// use punctual_client::Message;
///
/// let message = Message::new(r#"{"order":42}"#)
///     .key("42")
///     .header("content-type", "application/json")
///     .id("order-42-created");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    wire: v1::NewMessage,
}

impl Message {
    /// A message with this body: text or bytes.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { wire: v1::NewMessage { body: body.into(), ..v1::NewMessage::default() } }
    }

    /// Messages with the same key go to the same partition, and an ordered group handles them one
    /// after the other.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.wire.key = Some(key.into());
        self
    }

    /// Adds a header. A `traceparent` (W3C Trace Context) connects the broker's spans and the
    /// consumer's with those of the caller.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.wire.headers.push(v1::Header { name: name.into(), value: value.into() });
        self
    }

    /// The sender's own id, unique in the topic: sending the same again makes no second message, and
    /// the message can be cancelled by it. Without one the producer makes one up.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.wire.id = Some(id.into());
        self
    }

    /// If a message with the same own id is pending, this one takes its place.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.wire.on_conflict = v1::OnConflict::Replace.into();
        self
    }

    /// Delivers it after that time.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.wire.when = Some(When::Delay(wire::duration(delay)));
        self
    }

    /// Delivers it at that time.
    #[must_use]
    pub fn deliver_at(mut self, when: SystemTime) -> Self {
        self.wire.when = Some(When::DeliverAt(wire::time(when)));
        self
    }

    /// Delivers it after the delay of that level.
    #[must_use]
    pub fn level(mut self, level: DelayLevel) -> Self {
        self.wire.when = Some(When::DelayLevel(u32::from(level.number())));
        self
    }

    /// How long after its due time it may still be given to a group; then it is a dead letter.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.wire.ttl = Some(wire::duration(ttl));
        self
    }

    /// The partition it goes to, instead of the one of its key.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.wire.partition = Some(partition);
        self
    }

    /// After so many failed attempts it is a dead letter, if the group does not give up earlier.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.wire.max_attempts = Some(attempts);
        self
    }

    /// Makes it a series that comes round.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.wire.repeat = Some(repeat.wire);
        self
    }

    /// Its own id, if it has one.
    #[must_use]
    pub fn own_id(&self) -> Option<&str> {
        self.wire.id.as_deref()
    }

    /// How much of a batch or of the queue it takes up.
    pub(crate) fn weight(&self) -> usize {
        let headers = self.wire.headers.iter().map(|one| one.name.len() + one.value.len() + 8);
        MESSAGE_OVERHEAD_BYTES
            + self.wire.body.len()
            + self.wire.key.as_ref().map_or(0, Bytes::len)
            + headers.sum::<usize>()
    }

    pub(crate) fn into_wire(self) -> v1::NewMessage {
        self.wire
    }
}

/// When a series comes round.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    wire: v1::Repeat,
}

impl Repeat {
    /// Again and again after this time, at least a second.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self::rule(v1::repeat::Rule::Every(wire::duration(interval)))
    }

    /// At the times of a cron expression of five fields, or six with seconds first, in UTC.
    #[must_use]
    pub fn cron(expression: impl Into<String>) -> Self {
        Self::rule(v1::repeat::Rule::Cron(v1::Cron { expression: expression.into(), zone: None }))
    }

    /// The same in a time zone such as `Asia/Shanghai`. An interval has no zone; it stays as it is.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        if let Some(v1::repeat::Rule::Cron(cron)) = &mut self.wire.rule {
            cron.zone = Some(zone.into());
        }
        self
    }

    /// Ends after so many occurrences.
    #[must_use]
    pub fn count(mut self, count: u32) -> Self {
        self.wire.count = Some(count);
        self
    }

    /// Ends at that time.
    #[must_use]
    pub fn until(mut self, until: SystemTime) -> Self {
        self.wire.until = Some(wire::time(until));
        self
    }

    fn rule(rule: v1::repeat::Rule) -> Self {
        Self { wire: v1::Repeat { rule: Some(rule), count: None, until: None } }
    }
}

/// A header of a message. Names may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value, byte for byte.
    pub value: Bytes,
}

impl From<v1::Header> for Header {
    fn from(header: v1::Header) -> Self {
        Self { name: header.name, value: header.value }
    }
}

impl From<Header> for v1::Header {
    fn from(header: Header) -> Self {
        Self { name: header.name, value: header.value }
    }
}
