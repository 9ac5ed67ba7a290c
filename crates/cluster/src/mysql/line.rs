//! A connection for one call: its deadline, its transaction, and what a failure means.
//!
//! Before a commit is sent nothing has happened, and a connection that is lost or a deadlock is
//! tried again on another; after that only the server knows. A connection on which anything went
//! wrong is closed and never used again: so a transaction that was left open ends with it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt as _;
use sqlx::mysql::{MySql, MySqlDatabaseError, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Either, Executor};

use super::MysqlStore;
use super::options::idle_seconds;
use super::script::Script;
use crate::store::Failure;

/// How often something is tried at most; the deadline ends it earlier as a rule.
const TRIES: usize = 50;

/// The server's words for a deadlock, a lock not had in time, and a row that was changed meanwhile.
const AGAIN: [u16; 3] = [1213, 1205, 1020];

/// The server's word for a key that is there already.
const DUPLICATE: u16 = 1062;

/// Why a call did not get through.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server could not do it just now.
    Again(Arc<str>),
    /// The connection is gone.
    Lost(Arc<str>),
    /// The server refused.
    Refused(Arc<str>),
    /// A key is there already; tells the statement, counted over all of the line's scripts.
    Duplicate(usize, Arc<str>),
    /// What came cannot be read.
    Damaged(Arc<str>),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        let text = error.to_string().into();
        match (&error, code(&error)) {
            (_, Some(code)) if AGAIN.contains(&code) => Self::Again(text),
            (_, Some(_)) => Self::Refused(text),
            (sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. }, _) => Self::Damaged(text),
            _ => Self::Lost(text),
        }
    }
}

/// The number of an error that the server told.
pub(super) fn code(error: &sqlx::Error) -> Option<u16> {
    let told = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(told.number())
}

/// Something to be asked of the server. It may be attempted more than once: an attempt that failed
/// has changed nothing, unless that was in its commit.
pub(super) trait Call: Sync {
    /// What comes of it.
    type Answer: Send;

    /// Does it, on a connection that is its own meanwhile.
    fn attempt(
        &self,
        line: &mut Line<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Trouble>> + Send;
}

/// The rows of one statement.
pub(super) type Rows = Vec<MySqlRow>;

/// A connection in use.
pub(super) struct Line<'a> {
    connection: Option<PoolConnection<MySql>>,
    is_committing: &'a AtomicBool,
    /// How long a transaction may be idle, where each one has to tell.
    idle_seconds: Option<u64>,
    in_transaction: bool,
}

impl Line<'_> {
    /// Sends packets and answers the rows of each statement.
    pub(super) async fn ask(&mut self, script: Script) -> Result<Vec<Rows>, Trouble> {
        let mut sets = Vec::new();
        self.ask_into(script, &mut sets).await?;
        Ok(sets)
    }

    /// The same, with what was answered before something went wrong.
    pub(super) async fn ask_into(
        &mut self,
        script: Script,
        sets: &mut Vec<Rows>,
    ) -> Result<(), Trouble> {
        let mut failed = None;
        for packet in script.into_packets() {
            if let Err(error) = self.send(packet, sets).await {
                failed = Some(error);
                break;
            }
        }
        let Some(error) = failed else { return Ok(()) };
        // The rows of a statement are followed by its end: the last, open set is that of the failed one.
        let place = sets.len().saturating_sub(1);
        let duplicate = code(&error) == Some(DUPLICATE);
        let text: Arc<str> = error.to_string().into();
        Err(if duplicate { Trouble::Duplicate(place, text) } else { error.into() })
    }

    async fn send(&mut self, packet: String, sets: &mut Vec<Rows>) -> Result<(), sqlx::Error> {
        let connection = self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        let mut answers = (&mut **connection).fetch_many(AssertSqlSafe(packet));
        let mut rows = Rows::new();
        loop {
            match answers.try_next().await {
                Ok(None) => return Ok(()),
                Ok(Some(Either::Right(row))) => rows.push(row),
                Ok(Some(Either::Left(_ended))) => sets.push(std::mem::take(&mut rows)),
                Err(error) => {
                    sets.push(rows);
                    return Err(error);
                }
            }
        }
    }

    /// Sends one statement and hands its rows out one by one until `each` has enough. A connection
    /// whose rows were not all wanted is closed, rather than read to their end.
    pub(super) async fn stream(
        &mut self,
        statement: String,
        mut each: impl FnMut(MySqlRow) -> Result<bool, Trouble> + Send,
    ) -> Result<(), Trouble> {
        let mut connection = self.connection.take().ok_or(sqlx::Error::PoolClosed)?;
        let mut answers = (&mut *connection).fetch_many(AssertSqlSafe(statement));
        let mut is_enough = false;
        let result = loop {
            match answers.try_next().await {
                Ok(None) => break Ok(()),
                Ok(Some(Either::Left(_ended))) => {}
                Ok(Some(Either::Right(_rest))) if is_enough => {
                    drop(answers);
                    drop(connection.detach());
                    return Ok(());
                }
                Ok(Some(Either::Right(row))) => match each(row) {
                    Ok(more) => is_enough = !more,
                    Err(trouble) => break Err(trouble),
                },
                Err(error) => break Err(error.into()),
            }
        };
        drop(answers);
        self.connection = Some(connection);
        result
    }

    /// A script that begins with the start of a transaction. The server ends one that is idle, if not
    /// by itself then as a connection that is.
    pub(super) fn transaction(&mut self, packet_bytes: usize) -> Script {
        self.in_transaction = true;
        let mut script = Script::new(packet_bytes);
        if let Some(seconds) = self.idle_seconds {
            script.statement(&format!("SET SESSION wait_timeout = {seconds}"));
        }
        script.statement("START TRANSACTION");
        script
    }

    /// Makes the transaction durable.
    pub(super) async fn commit(&mut self) -> Result<(), Trouble> {
        self.is_committing.store(true, Ordering::Relaxed);
        self.end("COMMIT").await?;
        self.is_committing.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the transaction back.
    pub(super) async fn roll_back(&mut self) -> Result<(), Trouble> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, how: &str) -> Result<(), Trouble> {
        let packet = match self.idle_seconds {
            Some(_) => format!("{how}; SET SESSION wait_timeout = DEFAULT"),
            None => how.to_owned(),
        };
        self.send(packet, &mut Vec::new()).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Gives the connection back for the next call.
    fn put_back(mut self) {
        if !self.in_transaction {
            drop(self.connection.take());
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        // Not put back: something is left open or unread on it.
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

impl MysqlStore {
    /// Attempts a call, again as long as that is safe and there is time.
    pub(super) async fn run<C: Call>(&self, call: C) -> Result<C::Answer, Failure> {
        let is_committing = AtomicBool::new(false);
        match tokio::time::timeout(self.deadline, self.run_on(&call, &is_committing)).await {
            Ok(result) => result,
            Err(_late) => {
                let text = format!("no answer within {:?}", self.deadline).into();
                Err(failure(&is_committing, text))
            }
        }
    }

    async fn run_on<C: Call>(
        &self,
        call: &C,
        is_committing: &AtomicBool,
    ) -> Result<C::Answer, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let connection = self.pool.acquire().await;
            let connection =
                connection.map_err(|error| Failure::Unavailable(error.to_string().into()))?;
            let mut line = Line {
                connection: Some(connection),
                is_committing,
                idle_seconds: (!self.ends_idle_transactions).then(|| idle_seconds(self.deadline)),
                in_transaction: false,
            };
            let trouble = match call.attempt(&mut line).await {
                Ok(value) => {
                    line.put_back();
                    return Ok(value);
                }
                Err(trouble) => trouble,
            };
            drop(line);
            match trouble {
                // A deadlock takes the whole transaction back, also one that comes at its end.
                Trouble::Again(_) if tries < TRIES => is_committing.store(false, Ordering::Relaxed),
                Trouble::Lost(_) if tries < TRIES && !is_committing.load(Ordering::Relaxed) => {}
                Trouble::Again(text)
                | Trouble::Lost(text)
                | Trouble::Refused(text)
                | Trouble::Duplicate(_, text) => return Err(failure(is_committing, text)),
                Trouble::Damaged(text) => return Err(Failure::Damaged(text)),
            }
        }
    }
}

fn failure(is_committing: &AtomicBool, text: Arc<str>) -> Failure {
    if is_committing.load(Ordering::Relaxed) {
        Failure::Unsure(text)
    } else {
        Failure::Unavailable(text)
    }
}
