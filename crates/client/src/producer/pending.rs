//! What can be done to a message that was sent: look at it, cancel it, change it, list what waits.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use punctual_proto::v1;
use punctual_proto::v1::change_request::When;

use crate::error::{CancelError, ChangeError, ReadError};
use crate::fault::Fault;
use crate::level::DelayLevel;
use crate::pending::{Cancel, Change, Filter, Name, Pages, StoredMessage};
use crate::producer::Producer;
use crate::wire;

impl Producer {
    /// Cancels a message by the broker's id.
    ///
    /// A lost answer is asked for again. The repetition may then find the work of the first attempt
    /// and say [`Cancel::AlreadyCancelled`]. If the future is dropped, the message may be cancelled
    /// or not.
    ///
    /// # Errors
    /// When the broker refuses it or is not there in time. A message that cannot be cancelled any
    /// more is not an error; see [`Cancel`].
    pub async fn cancel(&self, id: &str) -> Result<Cancel, CancelError> {
        self.cancel_named(Name::id(id)).await
    }

    /// Cancels a message by its topic and the sender's own id.
    ///
    /// A dropped future does what that of [`Producer::cancel`] does.
    ///
    /// # Errors
    /// As [`Producer::cancel`].
    pub async fn cancel_own(&self, topic: &str, own_id: &str) -> Result<Cancel, CancelError> {
        self.cancel_named(Name::own(topic, own_id)).await
    }

    /// Cancels a message.
    ///
    /// A dropped future does what that of [`Producer::cancel`] does.
    ///
    /// # Errors
    /// As [`Producer::cancel`].
    pub async fn cancel_named(&self, name: impl Into<Name>) -> Result<Cancel, CancelError> {
        let request = v1::CancelRequest { name: Some(name.into().wire) };
        let connection = &self.core.connection;
        let attempt = || {
            let (mut messages, request) = (connection.messages(), request.clone());
            async move { messages.cancel(request).await }
        };
        match connection.call(attempt).await {
            Ok(v1::CancelResponse { .. }) => Ok(Cancel::Cancelled),
            Err(Fault::Refused(problem)) => match problem.code.as_str() {
                "already_delivered" => Ok(Cancel::AlreadyDelivered),
                "already_cancelled" => Ok(Cancel::AlreadyCancelled),
                "not_found" | "topic_not_found" => Ok(Cancel::NotFound),
                _ => Err(Fault::Refused(problem).into()),
            },
            Err(lost) => Err(lost.into()),
        }
    }

    /// What is known of a message.
    ///
    /// A dropped future changes nothing.
    ///
    /// # Errors
    /// When there is no such message, or the broker is not there in time.
    pub async fn get(&self, name: impl Into<Name>) -> Result<StoredMessage, ReadError> {
        let request = v1::GetRequest { name: Some(name.into().wire) };
        let connection = &self.core.connection;
        let attempt = || {
            let (mut messages, request) = (connection.messages(), request.clone());
            async move { messages.get(request).await }
        };
        Ok(StoredMessage::from(connection.call(attempt).await?))
    }

    /// Makes a pending message due after `delay`, counted from now.
    ///
    /// If the future is dropped, it may be changed or not.
    ///
    /// # Errors
    /// As [`Producer::change`].
    pub async fn reschedule(
        &self,
        name: impl Into<Name>,
        delay: Duration,
    ) -> Result<StoredMessage, ChangeError> {
        self.change(name, Change::new().delay(delay)).await
    }

    /// Makes a pending message due at that time.
    ///
    /// If the future is dropped, it may be changed or not.
    ///
    /// # Errors
    /// As [`Producer::change`].
    pub async fn reschedule_at(
        &self,
        name: impl Into<Name>,
        when: SystemTime,
    ) -> Result<StoredMessage, ChangeError> {
        self.change(name, Change::new().deliver_at(when)).await
    }

    /// Stops the time of a pending message.
    ///
    /// If the future is dropped, it may be changed or not.
    ///
    /// # Errors
    /// As [`Producer::change`].
    pub async fn pause(&self, name: impl Into<Name>) -> Result<StoredMessage, ChangeError> {
        self.change(name, Change::new().paused(true)).await
    }

    /// Lets the time of a paused message go on.
    ///
    /// If the future is dropped, it may be changed or not.
    ///
    /// # Errors
    /// As [`Producer::change`].
    pub async fn resume(&self, name: impl Into<Name>) -> Result<StoredMessage, ChangeError> {
        self.change(name, Change::new().paused(false)).await
    }

    /// Changes a pending message. With a [`version`](Change::version) it is changed only if nobody
    /// else did meanwhile.
    ///
    /// A lost answer is asked for again, unless there is a version: then the repetition could take
    /// its own change for another's, and the outcome is [`ChangeError::Unanswered`]. If the future is
    /// dropped, the message may be changed or not.
    ///
    /// # Errors
    /// When it is not pending, has another version, the broker refuses the change or is not there in
    /// time.
    pub async fn change(
        &self,
        name: impl Into<Name>,
        change: Change,
    ) -> Result<StoredMessage, ChangeError> {
        let mut request = change.wire;
        request.name = Some(name.into().wire);
        let connection = &self.core.connection;
        let attempt = || {
            let (mut messages, request) = (connection.messages(), request.clone());
            async move { messages.change(request).await }
        };
        let changed = match request.version {
            Some(_) => connection.call_once(attempt).await,
            None => connection.call(attempt).await,
        };
        Ok(StoredMessage::from(changed?))
    }

    /// Delivers a pending message now.
    ///
    /// A lost answer is asked for again; the repetition may then say
    /// [`ChangeError::AlreadyDelivered`]. If the future is dropped, it may be delivered or not.
    ///
    /// # Errors
    /// When it is not pending, or the broker is not there in time.
    pub async fn deliver_now(&self, name: impl Into<Name>) -> Result<StoredMessage, ChangeError> {
        let request = v1::DeliverRequest { name: Some(name.into().wire) };
        let connection = &self.core.connection;
        let attempt = || {
            let (mut messages, request) = (connection.messages(), request.clone());
            async move { messages.deliver(request).await }
        };
        Ok(StoredMessage::from(connection.call(attempt).await?))
    }

    /// Pending messages of a topic, soonest first, page by page.
    #[must_use]
    pub fn list(&self, topic: &str, filter: Filter) -> Pages {
        Pages::new(self.core.connection.clone(), topic, filter)
    }
}

impl Change {
    /// A change of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the message has this version.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.wire.version = Some(version);
        self
    }

    /// Due after that time, counted from now.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.wire.when = Some(When::Delay(wire::duration(delay)));
        self
    }

    /// Due at that time.
    #[must_use]
    pub fn deliver_at(mut self, when: SystemTime) -> Self {
        self.wire.when = Some(When::DeliverAt(wire::time(when)));
        self
    }

    /// Due after the delay of that level, counted from now.
    #[must_use]
    pub fn level(mut self, level: DelayLevel) -> Self {
        self.wire.when = Some(When::DelayLevel(u32::from(level.number())));
        self
    }

    /// Whether its time stands still.
    #[must_use]
    pub fn paused(mut self, paused: bool) -> Self {
        self.wire.paused = Some(paused);
        self
    }

    /// Another body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.wire.body = Some(body.into());
        self
    }

    /// One more of the headers that take the place of all it has.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        let headers = self.wire.headers.get_or_insert_default();
        headers.headers.push(v1::Header { name: name.into(), value: value.into() });
        self
    }

    /// No headers, unless [`Change::header`] adds some.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.wire.headers = Some(v1::Headers::default());
        self
    }

    /// How long after its due time it may still be given to a group.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.wire.ttl = Some(wire::duration(ttl));
        self
    }
}
