//! Messages that were sent, as the broker knows them.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use punctual_proto::v1;

use crate::connection::Connection;
use crate::error::ReadError;
use crate::message::Header;
use crate::wire;

/// Names a message: by the broker's id, or by its topic and the sender's own id.
///
/// A text is taken as an id of the broker's; a pair as topic and own id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub(crate) wire: v1::MessageName,
}

impl Name {
    /// By the broker's id.
    #[must_use]
    pub fn id(id: impl Into<String>) -> Self {
        Self { wire: v1::MessageName { topic: None, id: id.into() } }
    }

    /// By topic and own id.
    #[must_use]
    pub fn own(topic: impl Into<String>, own_id: impl Into<String>) -> Self {
        Self { wire: v1::MessageName { topic: Some(topic.into()), id: own_id.into() } }
    }
}

impl From<&str> for Name {
    fn from(id: &str) -> Self {
        Self::id(id)
    }
}

impl From<&String> for Name {
    fn from(id: &String) -> Self {
        Self::id(id)
    }
}

impl From<(&str, &str)> for Name {
    fn from((topic, own_id): (&str, &str)) -> Self {
        Self::own(topic, own_id)
    }
}

/// What a cancel found. After [`Cancel::Cancelled`] the message is never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancel {
    /// It was pending and is not any more.
    Cancelled,
    /// It came too late.
    AlreadyDelivered,
    /// Somebody else was first.
    AlreadyCancelled,
    /// There is no such message, or it may not be seen.
    NotFound,
}

/// What should become different of a pending message. What is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub(crate) wire: v1::ChangeRequest,
}

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It waits for its due time.
    Scheduled,
    /// Its time stands still.
    Paused,
    /// It waits for the decision on its transaction.
    Prepared,
    /// It is in the log of its topic, for every group.
    Delivered,
    /// It was cancelled.
    Cancelled,
    /// The broker knows more states than this client.
    Unknown,
}

impl From<v1::State> for State {
    fn from(state: v1::State) -> Self {
        match state {
            v1::State::Scheduled => Self::Scheduled,
            v1::State::Paused => Self::Paused,
            v1::State::Prepared => Self::Prepared,
            v1::State::Delivered => Self::Delivered,
            v1::State::Cancelled => Self::Cancelled,
            v1::State::Unspecified => Self::Unknown,
        }
    }
}

/// A message as the broker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The broker's id.
    pub id: String,
    /// The sender's own id.
    pub own_id: Option<String>,
    /// Its topic.
    pub topic: String,
    /// How far it has come.
    pub state: State,
    /// Its due time, while that is known.
    pub due: Option<SystemTime>,
    /// How often it was changed, counted from 1, while it is pending.
    pub version: Option<u32>,
    /// Its partition.
    pub partition: u32,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Its body, while it is known.
    pub body: Option<Bytes>,
    /// How long after its due time it may still be given to a group.
    pub ttl: Option<Duration>,
    /// The series it belongs to.
    pub series: Option<String>,
    /// The transaction it belongs to.
    pub transaction: Option<String>,
    /// When it was delivered.
    pub delivered_at: Option<SystemTime>,
    /// Where it is in the log of its partition, once delivered.
    pub offset: Option<u64>,
}

impl From<v1::Message> for StoredMessage {
    fn from(message: v1::Message) -> Self {
        Self {
            state: message.state().into(),
            id: message.id,
            own_id: message.own_id,
            topic: message.topic,
            due: message.due.map(|due| wire::from_time(Some(due))),
            version: message.version,
            partition: message.partition,
            key: message.key,
            headers: message.headers.into_iter().map(Header::from).collect(),
            body: message.body,
            ttl: message.ttl.map(wire::from_duration),
            series: message.series,
            transaction: message.transaction,
            delivered_at: message.delivered_at.map(|time| wire::from_time(Some(time))),
            offset: message.offset,
        }
    }
}

/// Which pending messages are listed. Without a word: all that are scheduled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    wire: v1::ListRequest,
}

impl Filter {
    /// All that are scheduled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Due at that time or later.
    #[must_use]
    pub fn from(mut self, from: SystemTime) -> Self {
        self.wire.due_from = Some(wire::time(from));
        self
    }

    /// Due before that time.
    #[must_use]
    pub fn to(mut self, to: SystemTime) -> Self {
        self.wire.due_to = Some(wire::time(to));
        self
    }

    /// With this key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.wire.key = Some(key.into());
        self
    }

    /// With a key that begins so.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<Bytes>) -> Self {
        self.wire.key_prefix = Some(prefix.into());
        self
    }

    /// Sent by the app of this key.
    #[must_use]
    pub fn app(mut self, key: impl Into<String>) -> Self {
        self.wire.app = Some(key.into());
        self
    }

    /// The paused ones instead.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.wire.state = v1::State::Paused.into();
        self
    }

    /// Messages of a page, from 1 to 1000; 100 if nothing is said.
    #[must_use]
    pub fn page_size(mut self, messages: u32) -> Self {
        self.wire.limit = messages;
        self
    }
}

/// Pending messages, page by page.
///
/// ```no_run
/// # async fn example(producer: punctual_client::Producer) -> Result<(), punctual_client::ReadError> {
/// let mut pages = producer.list("orders", punctual_client::Filter::new());
/// while let Some(page) = pages.next_page().await? {
///     for message in page {
///         println!("{} is due at {:?}", message.id, message.due);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pages {
    connection: Connection,
    request: v1::ListRequest,
    is_over: bool,
    /// Of the page at hand, for those who take them one by one.
    rest: VecDeque<StoredMessage>,
}

impl Pages {
    pub(crate) fn new(connection: Connection, topic: &str, filter: Filter) -> Self {
        let mut request = filter.wire;
        topic.clone_into(&mut request.topic);
        Self { connection, request, is_over: false, rest: VecDeque::new() }
    }

    /// The next page; `None` after the last.
    ///
    /// If the future is dropped, the page can be asked for again.
    ///
    /// # Errors
    /// When the broker refuses the request or is not there in time.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredMessage>>, ReadError> {
        if !self.rest.is_empty() {
            return Ok(Some(self.rest.drain(..).collect()));
        }
        if self.is_over {
            return Ok(None);
        }
        let attempt = || {
            let (mut messages, request) = (self.connection.messages(), self.request.clone());
            async move { messages.list(request).await }
        };
        let v1::ListResponse { messages, next } = self.connection.call(attempt).await?;
        self.is_over = next.is_empty();
        self.request.cursor = next;
        Ok(Some(messages.into_iter().map(StoredMessage::from).collect()))
    }

    /// The next message; `None` after the last.
    ///
    /// If the future is dropped, no message is lost.
    ///
    /// # Errors
    /// As [`Pages::next_page`].
    pub async fn next(&mut self) -> Result<Option<StoredMessage>, ReadError> {
        loop {
            if let Some(message) = self.rest.pop_front() {
                return Ok(Some(message));
            }
            match self.next_page().await? {
                Some(page) => self.rest = page.into(),
                None => return Ok(None),
            }
        }
    }
}
