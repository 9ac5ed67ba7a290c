//! Messages that are delivered if and only if some local work was done.
//!
//! What must hold: the messages are prepared before the work begins; a commit follows only an `Ok`,
//! and is repeated until its outcome is known. Whatever ends this process in between, the broker
//! asks the [checker](crate::Checker) of the producer group.

use std::future::Future;
use std::time::Duration;

use punctual_proto::v1;
use tracing::Instrument as _;

use crate::client::Client;
use crate::error::{RunError, TransactionError};
use crate::message::Message;
use crate::wire;

/// A transaction to be run: messages, and how the producer is asked about it.
///
/// ```no_run
/// # async fn example(client: punctual_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use punctual_client::Message;
///
/// # async fn store_order() -> Result<u64, std::io::Error> { Ok(42) }
/// let order = client
///     .transaction("order-service")
///     .send([("orders", Message::new("order 42").id("order-42"))])
///     .run(|| async { store_order().await })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Transaction {
    client: Client,
    request: v1::PrepareRequest,
}

impl Client {
    /// A transaction of a producer group, which is asked about it if it stays undecided.
    #[must_use]
    pub fn transaction(&self, producer_group: &str) -> Transaction {
        let request = v1::PrepareRequest {
            producer_group: producer_group.to_owned(),
            ..v1::PrepareRequest::default()
        };
        Transaction { client: self.clone(), request }
    }
}

impl Transaction {
    /// Adds messages, each with its topic. A delay counts from the commit.
    #[must_use]
    pub fn send<T: Into<String>>(
        mut self,
        messages: impl IntoIterator<Item = (T, Message)>,
    ) -> Self {
        let halves =
            messages.into_iter().map(|(topic, message)| half(topic.into(), message, false));
        self.request.messages.extend(halves);
        self
    }

    /// The same with delays that count from now, whenever the commit comes.
    #[must_use]
    pub fn send_counting_from_now<T: Into<String>>(
        mut self,
        messages: impl IntoIterator<Item = (T, Message)>,
    ) -> Self {
        let halves = messages.into_iter().map(|(topic, message)| half(topic.into(), message, true));
        self.request.messages.extend(halves);
        self
    }

    /// When the producer group is first asked about it, if it is undecided then.
    #[must_use]
    pub fn first_check(mut self, after: Duration) -> Self {
        self.request.check.get_or_insert_default().first = Some(wire::duration(after));
        self
    }

    /// How long after one question the next is asked.
    #[must_use]
    pub fn check_interval(mut self, interval: Duration) -> Self {
        self.request.check.get_or_insert_default().interval = Some(wire::duration(interval));
        self
    }

    /// How often it is asked at most.
    #[must_use]
    pub fn checks(mut self, checks: u32) -> Self {
        self.request.check.get_or_insert_default().max = Some(checks);
        self
    }

    /// Prepares the messages, does the local work, and commits if it says `Ok` or rolls back if it
    /// says `Err`.
    ///
    /// An answer to the commit that was lost is asked for until there is one. If the future is
    /// dropped, or the work panics, the transaction stays undecided and the broker asks the
    /// [checker](crate::Checker) of the producer group.
    ///
    /// # Errors
    /// When it was not prepared, the work failed, or the commit was refused; see [`RunError`].
    pub async fn run<T, E, Fut>(self, work: impl FnOnce() -> Fut) -> Result<T, RunError<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let group = self.request.producer_group.clone();
        let span = tracing::info_span!("punctual.transaction", producer_group = %group);
        async {
            let prepared = self.prepare().await.map_err(RunError::Prepare)?;
            match work().await {
                Ok(done) => match prepared.commit().await {
                    Ok(()) => Ok(done),
                    Err(error) => Err(RunError::Commit(error)),
                },
                Err(error) => match prepared.rollback().await {
                    Ok(()) => Err(RunError::RolledBack(error)),
                    Err(rollback) => Err(RunError::Undecided { error, rollback }),
                },
            }
        }
        .instrument(span)
        .await
    }

    /// Prepares the messages and leaves the decision to the caller.
    ///
    /// If the future is dropped, they may be prepared; the broker then asks the producer group.
    ///
    /// # Errors
    /// When the broker refuses them or is not there in time.
    pub async fn prepare(self) -> Result<Prepared, TransactionError> {
        let Self { client, mut request } = self;
        // With own ids, preparing again after a lost answer finds the first.
        for message in request.messages.iter_mut().filter_map(|half| half.message.as_mut()) {
            message.id.get_or_insert_with(|| client.names().next());
        }
        let attempt = || {
            let (mut transactions, request) = (client.connection().transactions(), request.clone());
            async move { transactions.prepare(request).await }
        };
        let transaction = client.connection().call(attempt).await?;
        let messages = transaction.messages.into_iter().map(|message| message.id).collect();
        Ok(Prepared { client, id: transaction.id, messages })
    }
}

/// A transaction that waits for its decision. Dropped, it stays undecided, and the broker asks.
#[derive(Clone, Debug)]
pub struct Prepared {
    client: Client,
    id: String,
    messages: Vec<String>,
}

impl Prepared {
    /// The broker's id of the transaction.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The broker's ids of its messages, in their order.
    #[must_use]
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Delivers its messages.
    ///
    /// A lost answer is asked for until there is one. If the future is dropped, it may be committed
    /// or not, and the broker asks if it is not.
    ///
    /// # Errors
    /// When the opposite was decided before, or the broker refuses it.
    pub async fn commit(&self) -> Result<(), TransactionError> {
        decide(&self.client, &self.id, Decision::Commit).await
    }

    /// Withdraws its messages.
    ///
    /// A dropped future does what that of [`Prepared::commit`] does.
    ///
    /// # Errors
    /// As [`Prepared::commit`].
    pub async fn rollback(&self) -> Result<(), TransactionError> {
        decide(&self.client, &self.id, Decision::Rollback).await
    }
}

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Its messages are delivered.
    Commit,
    /// Its messages are withdrawn.
    Rollback,
    /// It cannot be said yet; the broker asks again.
    Unknown,
}

/// Tells the broker a decision until it has answered. Nothing is told while it is unknown.
pub(crate) async fn decide(
    client: &Client,
    id: &str,
    decision: Decision,
) -> Result<(), TransactionError> {
    let connection = client.connection();
    let attempt = || {
        let request = v1::DecideRequest { id: id.to_owned(), ..v1::DecideRequest::default() };
        let mut transactions = connection.transactions();
        async move {
            match decision {
                Decision::Commit => transactions.commit(request).await,
                _ => transactions.rollback(request).await,
            }
        }
    };
    if decision != Decision::Unknown {
        connection.call_until_definite(attempt).await?;
    }
    Ok(())
}

fn half(topic: String, message: Message, delay_from_send: bool) -> v1::HalfMessage {
    v1::HalfMessage { topic, message: Some(message.into_wire()), delay_from_send }
}
