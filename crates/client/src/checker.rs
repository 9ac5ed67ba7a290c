//! Answering the broker's questions what became of transactions.
//!
//! What must hold: a question is answered by the checker's decision or not at all; the broker then
//! asks again. The stream of questions comes back by itself.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use punctual_proto::v1;
use punctual_proto::v1::CheckStreamRequest;
use punctual_proto::v1::check_stream_request::Request;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::TransactionError;
use crate::fault::Fault;
use crate::link::{self, Link};
use crate::message::Header;
use crate::tasks::until;
use crate::transaction::{Decision, decide};

/// Requests that wait to be written.
const REQUESTS_MAX: usize = 16;
/// Questions that are looked into at the same time, if nothing is said.
const CONCURRENCY_DEFAULT: usize = 16;

/// A question what became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The broker's id of the transaction.
    pub transaction: String,
    /// How often it was asked, counted from 1.
    pub attempt: u32,
    /// Its messages, which tell what it was about.
    pub messages: Vec<CheckedMessage>,
}

/// A message of a transaction that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedMessage {
    /// The broker's id.
    pub id: String,
    /// The sender's own id.
    pub own_id: Option<String>,
    /// Its topic.
    pub topic: String,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

impl From<v1::Check> for Check {
    fn from(check: v1::Check) -> Self {
        let message = |message: v1::CheckedMessage| CheckedMessage {
            id: message.id,
            own_id: message.own_id,
            topic: message.topic,
            key: message.key,
            headers: message.headers.into_iter().map(Header::from).collect(),
            body: message.body,
        };
        Self {
            transaction: check.transaction,
            attempt: check.attempt,
            messages: check.messages.into_iter().map(message).collect(),
        }
    }
}

/// Answers the questions about the transactions of a producer group.
///
/// ```no_run
/// # async fn example(client: punctual_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use punctual_client::Decision;
///
/// # async fn is_stored(own_id: &str) -> bool { true }
/// client
///     .checker("order-service", |check| async move {
///         let order = check.messages.first().and_then(|message| message.own_id.as_deref());
///         match order {
///             Some(order) if is_stored(order).await => Decision::Commit,
///             _ => Decision::Rollback,
///         }
///     })
///     .run()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Checker<F> {
    client: Client,
    producer_group: String,
    concurrency: usize,
    answer: Arc<F>,
}

impl Client {
    /// A checker that answers the broker's questions about the transactions of a producer group. A
    /// panic counts as [`Decision::Unknown`].
    #[must_use]
    pub fn checker<F, Fut>(&self, producer_group: &str, answer: F) -> Checker<F>
    where
        F: Fn(Check) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Decision> + Send + 'static,
    {
        Checker {
            client: self.clone(),
            producer_group: producer_group.to_owned(),
            concurrency: CONCURRENCY_DEFAULT,
            answer: Arc::new(answer),
        }
    }
}

impl<F, Fut> Checker<F>
where
    F: Fn(Check) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Decision> + Send + 'static,
{
    /// Questions that are looked into at the same time; 16 if nothing is said.
    #[must_use]
    pub fn concurrency(mut self, questions: usize) -> Self {
        self.concurrency = questions.max(1);
        self
    }

    /// Answers questions, for ever. The connection comes back by itself.
    ///
    /// If the future is dropped, questions that are being looked into stay unanswered, and the broker
    /// asks again.
    ///
    /// # Errors
    /// When the broker refuses the group or the caller. A broker that is not there is waited for.
    pub async fn run(&self) -> Result<(), TransactionError> {
        self.run_until(std::future::pending()).await
    }

    /// The same until `shutdown` is over; then what is being looked into is answered, and nothing
    /// more.
    ///
    /// If the future is dropped, the same happens as for [`Checker::run`].
    ///
    /// # Errors
    /// As [`Checker::run`].
    pub async fn run_until(
        &self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), TransactionError> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut desk = Desk::new(self);
        let mut is_stopping = false;
        while !(is_stopping && desk.answering.is_empty()) {
            let opens_at = if is_stopping { None } else { desk.open() };
            desk.grant();
            let Desk { link, answering, .. } = &mut desk;
            tokio::select! {
                () = &mut shutdown, if !is_stopping => {
                    is_stopping = true;
                    desk.link = None;
                }
                question = link::next(link) => match question {
                    Ok(check) => desk.look_into(Check::from(check)),
                    Err(fault) => desk.lose(fault)?,
                },
                Some(ended) = answering.join_next(), if !answering.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a question stays unanswered");
                    }
                }
                () = until(opens_at) => {}
            }
        }
        Ok(())
    }
}

/// What a checker has at hand.
struct Desk<'a, F> {
    checker: &'a Checker<F>,
    link: Option<Link<CheckStreamRequest, v1::Check>>,
    answering: JoinSet<()>,
    /// Questions the broker may still send.
    credit: usize,
    backoff: Backoff,
    open_at: Instant,
}

impl<'a, F, Fut> Desk<'a, F>
where
    F: Fn(Check) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Decision> + Send + 'static,
{
    fn new(checker: &'a Checker<F>) -> Self {
        Self {
            backoff: Backoff::new(checker.client.connection().retry),
            checker,
            link: None,
            answering: JoinSet::new(),
            credit: 0,
            open_at: Instant::now(),
        }
    }

    /// Opens the stream, or says when it may be opened.
    fn open(&mut self) -> Option<Instant> {
        if self.link.is_some() {
            return None;
        }
        if Instant::now() < self.open_at {
            return Some(self.open_at);
        }
        let connection = self.checker.client.connection();
        let mut transactions = connection.transactions();
        let open = move |requests| async move { transactions.check_stream(requests).await };
        let link = Link::open(REQUESTS_MAX, connection.answer_timeout, open);
        let producer_group = self.checker.producer_group.clone();
        let open = v1::OpenChecks { producer_group, credit: 0 };
        // A new link has room.
        let _ended = !link.send(CheckStreamRequest { request: Some(Request::Open(open)) });
        self.link = Some(link);
        self.credit = 0;
        None
    }

    /// Asks for as many questions as can be looked into.
    fn grant(&mut self) {
        let Some(link) = self.link.as_ref().filter(|link| link.has_room()) else { return };
        let used = self.answering.len() + self.credit;
        let more = self.checker.concurrency.saturating_sub(used);
        if more > 0 {
            self.credit += more;
            let credit = Request::Credit(u32::try_from(more).unwrap_or(u32::MAX));
            // A link that has ended says so by its answers.
            let _ended = !link.send(CheckStreamRequest { request: Some(credit) });
        }
    }

    fn look_into(&mut self, check: Check) {
        self.backoff.reset();
        self.credit = self.credit.saturating_sub(1);
        let (client, answer) = (self.checker.client.clone(), Arc::clone(&self.checker.answer));
        let id = check.transaction.clone();
        let span =
            tracing::info_span!("punctual.check", transaction = %id, attempt = check.attempt);
        let answering = async move {
            let decision = answer(check).await;
            match decide(&client, &id, decision).await {
                Ok(()) => tracing::debug!(?decision, "the transaction was asked about"),
                Err(error) => tracing::warn!(%error, ?decision, "the decision was refused"),
            }
        };
        self.answering.spawn(answering.instrument(span));
    }

    fn lose(&mut self, fault: Fault) -> Result<(), TransactionError> {
        self.link = None;
        if !fault.is_passing() {
            return Err(fault.into());
        }
        let wait = self.backoff.after_failure().max(fault.retry_after().unwrap_or_default());
        tracing::debug!(fault = %fault.text(), ?wait, "the stream of questions broke");
        self.open_at = Instant::now() + wait;
        Ok(())
    }
}
