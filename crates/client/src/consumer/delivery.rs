//! A message as it is given to a consumer.

use std::str::Utf8Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use punctual_proto::v1;

use crate::message::Header;
use crate::wire;

/// A message that this consumer holds for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// The broker's id of the message. It is the same each time the message is given.
    pub id: Arc<str>,
    /// Its topic.
    pub topic: Arc<str>,
    /// The group it is given to.
    pub group: Arc<str>,
    /// Where it is in the log of its topic.
    pub partition: u32,
    /// Where it is in the log of its partition.
    pub offset: u64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers, as they were sent.
    pub headers: Vec<Header>,
    /// Its body, as it was sent.
    pub body: Bytes,
    /// When it was due, at first.
    pub due: SystemTime,
    /// When it was delivered to the topic.
    pub delivered_at: SystemTime,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// How long after its due time it may be given to a group.
    pub ttl: Option<Duration>,
    /// Says that this consumer holds it.
    pub(crate) receipt: String,
}

impl Delivery {
    pub(crate) fn new(delivery: v1::Delivery, topic: &Arc<str>, group: &Arc<str>) -> Self {
        Self {
            id: delivery.id.into(),
            topic: Arc::clone(topic),
            group: Arc::clone(group),
            partition: delivery.partition,
            offset: delivery.offset,
            key: delivery.key,
            headers: delivery.headers.into_iter().map(Header::from).collect(),
            body: delivery.body,
            due: wire::from_time(delivery.due),
            delivered_at: wire::from_time(delivery.delivered_at),
            attempt: delivery.attempt,
            ttl: delivery.ttl.map(wire::from_duration),
            receipt: delivery.receipt,
        }
    }

    /// The body as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.body)
    }

    /// The value of the first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        self.headers.iter().find(|header| header.name == name).map(|header| &header.value)
    }
}
