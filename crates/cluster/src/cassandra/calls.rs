//! Statements on their way to Cassandra: how many at a time, how long, how often, and what a failure
//! means.
//!
//! An attempt that may have been carried out makes the whole statement [`Trouble::Unsure`], even if
//! a later attempt was refused. The driver itself repeats nothing, so that this is known.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::batch::BatchValues;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use tokio::sync::Semaphore;

use crate::store::Failure;

/// Statements on their way at a time, of one node.
const STATEMENTS_MAX: usize = 256;

/// How often a statement that may be repeated is tried.
const ATTEMPTS: u32 = 4;

/// The pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(30);

/// Why a statement was not carried out, or not surely.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// It was refused: nothing has changed.
    Refused(Arc<str>),
    /// Whether it was carried out is not known.
    Unsure(Arc<str>),
    /// What came back cannot be read.
    Damaged(Arc<str>),
}

impl Trouble {
    /// As a failure of a call that has changed nothing so far.
    pub(super) fn first(self) -> Failure {
        match self {
            Self::Refused(text) => Failure::Unavailable(text),
            Self::Unsure(text) => Failure::Unsure(text),
            Self::Damaged(text) => Failure::Damaged(text),
        }
    }

    /// As a failure of a call that only reads.
    pub(super) fn read(self) -> Failure {
        match self {
            Self::Refused(text) | Self::Unsure(text) => Failure::Unavailable(text),
            Self::Damaged(text) => Failure::Damaged(text),
        }
    }

    /// As a failure of a call that may have changed something before.
    pub(super) fn later(self) -> Failure {
        match self {
            Self::Refused(text) | Self::Unsure(text) => Failure::Unsure(text),
            Self::Damaged(text) => Failure::Damaged(text),
        }
    }
}

/// Bytes or rows that are not what they have to be.
pub(super) fn damaged(what: impl std::fmt::Display) -> Trouble {
    Trouble::Damaged(what.to_string().into())
}

/// The way to Cassandra.
pub(super) struct Calls {
    pub(super) session: Session,
    permits: Semaphore,
}

impl Calls {
    pub(super) fn new(session: Session) -> Self {
        Self { session, permits: Semaphore::new(STATEMENTS_MAX) }
    }

    /// Carries a statement out that may be repeated.
    pub(super) async fn write(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), Trouble> {
        let run = || async { self.session.execute_unpaged(statement, &values).await.map(drop) };
        self.again(run, trouble).await
    }

    /// Carries a statement out once, for it adds to what is there.
    pub(super) async fn add(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), Trouble> {
        let _permit = self.permit().await;
        self.session.execute_unpaged(statement, &values).await.map(drop).map_err(|e| trouble(&e))
    }

    /// Carries out changes of one partition at once; they may be repeated.
    pub(super) async fn batch(
        &self,
        batch: &Batch,
        values: impl BatchValues,
    ) -> Result<(), Trouble> {
        let run = || async { self.session.batch(batch, &values).await.map(drop) };
        self.again(run, trouble).await
    }

    /// Carries out changes of several partitions, of which some may be carried out and others not; they
    /// may be repeated.
    pub(super) async fn batch_of_several(
        &self,
        batch: &Batch,
        values: impl BatchValues,
    ) -> Result<(), Trouble> {
        let run = || async { self.session.batch(batch, &values).await.map(drop) };
        self.again(run, trouble_midway).await
    }

    /// All rows of a statement whose answer is small by its nature.
    pub(super) async fn rows(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, Trouble> {
        let run = || async { self.session.execute_unpaged(statement, &values).await };
        self.again(run, trouble).await?.into_rows_result().map_err(damaged)
    }

    /// One page of rows, and where the next one starts.
    pub(super) async fn page(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        from: PagingState,
    ) -> Result<(QueryRowsResult, Option<PagingState>), Trouble> {
        let run =
            || async { self.session.execute_single_page(statement, &values, from.clone()).await };
        let (result, next) = self.again(run, trouble).await?;
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        Ok((result.into_rows_result().map_err(damaged)?, next))
    }

    /// Changes what has not been changed meanwhile; whether it was so. Tried once: whether the first
    /// attempt of two was carried out would not be known.
    pub(super) async fn decide(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Trouble> {
        let _permit = self.permit().await;
        let answer = self.session.execute_unpaged(statement, &values).await;
        applied(answer.map_err(|e| trouble_midway(&e))?)
    }

    /// Changes several rows of one partition, if all conditions hold.
    pub(super) async fn decide_all(
        &self,
        batch: &Batch,
        values: impl BatchValues,
    ) -> Result<bool, Trouble> {
        let _permit = self.permit().await;
        let answer = self.session.batch(batch, &values).await;
        applied(answer.map_err(|e| trouble_midway(&e))?)
    }

    async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // It is never closed.
        self.permits.acquire().await.ok()
    }

    /// Tries until it is done or cannot be; `meaning` tells what a failed attempt means.
    async fn again<T, F>(
        &self,
        run: impl Fn() -> F,
        meaning: fn(&ExecutionError) -> Trouble,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, ExecutionError>>,
    {
        let _permit = self.permit().await;
        let mut unsure: Option<Trouble> = None;
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            let trouble = match run().await {
                Ok(answer) => return Ok(answer),
                Err(e) => meaning(&e),
            };
            let last = attempt == ATTEMPTS || !passes(&trouble);
            if matches!(trouble, Trouble::Unsure(_)) {
                unsure = Some(trouble);
            } else if last {
                return Err(unsure.unwrap_or(trouble));
            }
            if last {
                break;
            }
            tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
            pause *= 2;
        }
        Err(unsure.unwrap_or_else(|| Trouble::Refused("no attempt was made".into())))
    }
}

/// Runs these side by side, so many at a time, and answers in their order.
pub(super) async fn side_by_side<F: Future>(
    at_once: usize,
    futures: impl IntoIterator<Item = F>,
) -> Vec<F::Output> {
    stream::iter(futures.into_iter().collect::<Vec<F>>()).buffered(at_once).collect().await
}

/// Whether another attempt may fare better.
fn passes(trouble: &Trouble) -> bool {
    !matches!(trouble, Trouble::Damaged(_))
}

fn applied(answer: scylla::response::query_result::QueryResult) -> Result<bool, Trouble> {
    // How many columns there are depends on the outcome, the first one is always it.
    let rows = answer.into_rows_result().map_err(damaged)?;
    let first = rows.first_row::<Row>().map_err(damaged)?;
    match first.columns.first() {
        Some(Some(CqlValue::Boolean(applied))) => Ok(*applied),
        _ => Err(damaged("a condition without an outcome")),
    }
}

fn trouble(error: &ExecutionError) -> Trouble {
    let text: Arc<str> = error.to_string().into();
    let refused = match error {
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => true,
        ExecutionError::LastAttemptError(attempt) => was_refused(attempt),
        _ => false,
    };
    if refused { Trouble::Refused(text) } else { Trouble::Unsure(text) }
}

/// Of a lightweight transaction any answer but a plain refusal may come after its proposal was taken, and
/// of several partitions after the first of them was changed.
fn trouble_midway(error: &ExecutionError) -> Trouble {
    match (trouble(error), error) {
        (
            Trouble::Refused(text),
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                DbError::Unavailable { .. },
                _,
            )),
        ) => Trouble::Unsure(text),
        (trouble, _) => trouble,
    }
}

fn was_refused(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::UnableToAllocStreamId => true,
        RequestAttemptError::DbError(error, _) => matches!(
            error,
            DbError::SyntaxError
                | DbError::Invalid
                | DbError::AuthenticationError
                | DbError::Unauthorized
                | DbError::ConfigError
                | DbError::Unavailable { .. }
                | DbError::IsBootstrapping
        ),
        _ => false,
    }
}
