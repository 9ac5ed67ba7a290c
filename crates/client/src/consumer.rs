//! Consuming messages: with a handler that is called, or by asking for them.
//!
//! What must hold: a message is acked only after its handler said so; whatever happens to the
//! connection, a handled message is acked until the broker knows it.

mod delivery;
mod desk;
mod failure;
mod memory;
mod worker;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use punctual_proto::v1;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::error::{ConsumeError, Problem};
use crate::fault::Fault;
use crate::tasks::spawn;
use crate::wire;

pub use self::delivery::Delivery;
pub use self::failure::{Failure, Reject, Retry};

use self::desk::{Limits, nack};
use self::worker::Task;

/// Shortest lease the broker gives.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// A consumer of a topic for a group.
///
/// ```no_run
/// # async fn example(client: punctual_client::Client) -> Result<(), punctual_client::ConsumeError> {
/// client
///     .consumer("orders", "billing")
///     .concurrency(32)
///     .run(|delivery| async move {
///         println!("{}", delivery.text()?);
///         Ok(())
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Consumer {
    connection: Connection,
    topic: Arc<str>,
    group: Arc<str>,
    concurrency: usize,
    prefetch: usize,
    is_ordered: bool,
    lease: Duration,
    drain_limit: Duration,
    max: u32,
    wait: Duration,
}

impl Consumer {
    pub(crate) fn new(connection: Connection, topic: &str, group: &str) -> Self {
        Self {
            connection,
            topic: Arc::from(topic),
            group: Arc::from(group),
            concurrency: 16,
            prefetch: 0,
            is_ordered: false,
            lease: Duration::from_secs(60),
            drain_limit: Duration::from_secs(30),
            max: 10,
            wait: Duration::from_secs(20),
        }
    }

    /// Messages that are handled at the same time; 16 if nothing is said.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// Messages that are held ready beside those that are handled; none if nothing is said. They
    /// save the way to the broker when handlers are quick, and are kept from other consumers.
    #[must_use]
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Handles the messages of one key one after the other, in the order of their delivery. The
    /// group is made an ordered one if it is not.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// How long a message is held without a sign of life; 60 seconds if nothing is said, at least
    /// one. While its handler runs this is extended by itself, every third of it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// How long handlers may go on after the shutdown; 30 seconds if nothing is said.
    #[must_use]
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.drain_limit = limit;
        self
    }

    /// Most messages of one [`Consumer::receive`]; 10 if nothing is said.
    #[must_use]
    pub fn max(mut self, messages: u32) -> Self {
        self.max = messages;
        self
    }

    /// How long one [`Consumer::receive`] waits for a message; 20 seconds if nothing is said.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Handles messages, for ever: several at the same time, each acked when its handler says `Ok`
    /// and given back with the text of the error when it says `Err` or panics.
    ///
    /// The connection comes back by itself; handlers go on meanwhile, and their acks are sent on the
    /// new one. If the future is dropped, running handlers are ended where they wait, and their
    /// messages come again when their leases run out; use [`Consumer::run_until`] to end in order.
    ///
    /// # Errors
    /// When the broker refuses the topic, the group or the caller. A broker that is not there is
    /// waited for.
    pub async fn run<F, Fut>(&self, handler: F) -> Result<(), ConsumeError>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.run_until(std::future::pending(), handler).await
    }

    /// The same until `shutdown` is over. Then nothing more is taken, what nobody has looked at is
    /// given back, running handlers go on for the [`drain limit`](Consumer::drain_limit) at most,
    /// and their messages are settled. Those whose handler has to be broken off come again at once.
    ///
    /// If the future is dropped, the same happens as for [`Consumer::run`].
    ///
    /// # Errors
    /// As [`Consumer::run`].
    pub async fn run_until<F, Fut>(
        &self,
        shutdown: impl Future<Output = ()> + Send,
        handler: F,
    ) -> Result<(), ConsumeError>
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if self.is_ordered {
            self.make_ordered().await?;
        }
        let limits = Limits {
            concurrency: self.concurrency,
            prefetch: self.prefetch,
            is_ordered: self.is_ordered,
            lease: self.lease,
            retry: self.connection.retry,
        };
        let task = Task {
            connection: self.connection.clone(),
            topic: Arc::clone(&self.topic),
            group: Arc::clone(&self.group),
            limits,
            drain_limit: self.drain_limit,
        };
        worker::run(task, handler, shutdown).await
    }

    /// The same in a task of its own, which the handle stops. Needs to be called inside a runtime.
    #[must_use]
    pub fn start<F, Fut>(&self, handler: F) -> ConsumerHandle
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (stop, mut stopped) = watch::channel(false);
        let consumer = self.clone();
        let shutdown = async move {
            // A handle that is dropped leaves the consumer running.
            if stopped.wait_for(|is_stopped| *is_stopped).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = spawn(async move { consumer.run_until(shutdown, handler).await });
        ConsumerHandle { stop, task }
    }

    /// Takes messages that are there, or waits for some; none came if the answer is empty.
    ///
    /// They are held for the lease and come again after it unless they are settled by
    /// [`Consumer::ack`] or [`Consumer::nack`]. If the future is dropped, messages may be held that
    /// nobody has seen; they come again when their lease runs out.
    ///
    /// # Errors
    /// When the broker refuses it or is not there in time.
    pub async fn receive(&self) -> Result<Vec<Delivery>, ConsumeError> {
        let request = v1::ReceiveRequest {
            topic: self.topic.as_ref().to_owned(),
            group: self.group.as_ref().to_owned(),
            max: self.max,
            wait: Some(wire::duration(self.wait)),
            lease: Some(wire::duration(self.lease)),
        };
        let mut connection = self.connection.clone();
        connection.answer_timeout += self.wait;
        let attempt = || {
            let (mut consuming, request) = (connection.consuming(), request.clone());
            async move { consuming.receive(request).await }
        };
        let received = connection.call(attempt).await?;
        let deliver = |one| Delivery::new(one, &self.topic, &self.group);
        Ok(received.deliveries.into_iter().map(deliver).collect())
    }

    /// Says that messages are handled. Answers for each, in order.
    ///
    /// If the future is dropped, they may be acked or not.
    ///
    /// # Errors
    /// When the broker refuses it or is not there in time.
    pub async fn ack(
        &self,
        deliveries: impl IntoIterator<Item = &Delivery>,
    ) -> Result<Vec<Settled>, ConsumeError> {
        let request = v1::AckRequest {
            topic: self.topic.as_ref().to_owned(),
            group: self.group.as_ref().to_owned(),
            receipts: receipts(deliveries),
        };
        let attempt = || {
            let (mut consuming, request) = (self.connection.consuming(), request.clone());
            async move { consuming.ack(request).await }
        };
        Ok(settled(&self.connection.call(attempt).await?))
    }

    /// Says that messages are not handled, and what should become of them. Answers for each, in
    /// order.
    ///
    /// If the future is dropped, they may be given back or not.
    ///
    /// # Errors
    /// When the broker refuses it or is not there in time.
    pub async fn nack(
        &self,
        deliveries: impl IntoIterator<Item = &Delivery>,
        failure: impl Into<Failure>,
    ) -> Result<Vec<Settled>, ConsumeError> {
        let Failure { error, next } = failure.into();
        let request = v1::NackRequest {
            topic: self.topic.as_ref().to_owned(),
            group: self.group.as_ref().to_owned(),
            receipts: receipts(deliveries),
            nack: Some(nack(next, &error)),
        };
        let attempt = || {
            let (mut consuming, request) = (self.connection.consuming(), request.clone());
            async move { consuming.nack(request).await }
        };
        Ok(settled(&self.connection.call(attempt).await?))
    }

    /// Holds messages for a full lease more, counted from now. Answers for each, in order.
    ///
    /// If the future is dropped, they may be held longer or not.
    ///
    /// # Errors
    /// When the broker refuses it or is not there in time.
    pub async fn extend(
        &self,
        deliveries: impl IntoIterator<Item = &Delivery>,
    ) -> Result<Vec<Settled>, ConsumeError> {
        let request = v1::ExtendRequest {
            topic: self.topic.as_ref().to_owned(),
            group: self.group.as_ref().to_owned(),
            receipts: receipts(deliveries),
            lease: Some(wire::duration(self.lease)),
        };
        let attempt = || {
            let (mut consuming, request) = (self.connection.consuming(), request.clone());
            async move { consuming.extend(request).await }
        };
        Ok(settled(&self.connection.call(attempt).await?))
    }

    /// Makes the group an ordered one, unless it is.
    async fn make_ordered(&self) -> Result<(), ConsumeError> {
        let (topic, group) = (self.topic.as_ref().to_owned(), self.group.as_ref().to_owned());
        let name = v1::GroupName { topic: topic.clone(), group: group.clone() };
        let attempt = || {
            let (mut admin, name) = (self.connection.admin(), name.clone());
            async move { admin.get_group(name).await }
        };
        match self.connection.call(attempt).await {
            Ok(group) if group.settings.as_ref().is_some_and(v1::GroupSettings::ordered) => {
                return Ok(());
            }
            Err(Fault::Refused(Problem { code, .. })) if code == "forbidden" => {
                tracing::warn!("the group may not be looked at; it is taken to be ordered");
                return Ok(());
            }
            Err(fault @ Fault::Lost { .. }) => return Err(fault.into()),
            Ok(_) | Err(Fault::Refused(_)) => {}
        }
        let settings = v1::GroupSettings { ordered: Some(true), ..v1::GroupSettings::default() };
        let request = v1::PutGroupRequest {
            topic,
            group,
            settings: Some(settings),
            ..v1::PutGroupRequest::default()
        };
        let attempt = || {
            let (mut admin, request) = (self.connection.admin(), request.clone());
            async move { admin.put_group(request).await }
        };
        self.connection.call(attempt).await?;
        Ok(())
    }
}

/// A consumer that runs in a task of its own. It goes on when the handle is dropped.
#[derive(Debug)]
pub struct ConsumerHandle {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), ConsumeError>>,
}

impl ConsumerHandle {
    /// Stops it in order, as [`Consumer::run_until`] does, and waits for its end.
    ///
    /// If the future is dropped, the consumer ends in order all the same.
    ///
    /// # Errors
    /// What it ended with; see [`Consumer::run`].
    pub async fn stop(self) -> Result<(), ConsumeError> {
        // It may have ended before.
        let _ended = self.stop.send(true).is_err();
        self.task.await.unwrap_or(Err(ConsumeError::Closed))
    }

    /// Waits for it to end by itself, which it does when the broker refuses it.
    ///
    /// If the future is dropped, the consumer goes on.
    ///
    /// # Errors
    /// What it ended with; see [`Consumer::run`].
    pub async fn ended(self) -> Result<(), ConsumeError> {
        let Self { stop, task } = self;
        let outcome = task.await.unwrap_or(Err(ConsumeError::Closed));
        drop(stop);
        outcome
    }
}

/// What became of a message that was settled or held longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settled {
    /// It is handled and never comes again to the group.
    Acked,
    /// It comes again.
    Requeued,
    /// It is a dead letter.
    Dead,
    /// It is held longer.
    Extended,
    /// Its lease had run out, or it was settled before.
    NotHeld,
    /// The broker knows more results than this client.
    Unknown,
}

impl From<v1::SettleResult> for Settled {
    fn from(result: v1::SettleResult) -> Self {
        match result {
            v1::SettleResult::Acked => Self::Acked,
            v1::SettleResult::Requeued => Self::Requeued,
            v1::SettleResult::Dead => Self::Dead,
            v1::SettleResult::Extended => Self::Extended,
            v1::SettleResult::NotHeld => Self::NotHeld,
            _ => Self::Unknown,
        }
    }
}

fn receipts<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<String> {
    deliveries.into_iter().map(|delivery| delivery.receipt.clone()).collect()
}

fn settled(response: &v1::SettleResponse) -> Vec<Settled> {
    response.results().map(Settled::from).collect()
}
