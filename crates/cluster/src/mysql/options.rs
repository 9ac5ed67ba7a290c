//! Where the database is, how it is used, and why it may not be.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::limits::BODY_BYTES_MAX;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySqlPool};

use super::hours::Hours;

/// Connections of a node unless configured otherwise.
const CONNECTIONS_DEFAULT: u32 = 16;

/// How long a call may take unless configured otherwise.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(5);

/// What every connection is told first. Without gaps to lock, inserts of different slots never wait
/// for each other; and a wait for a lock ends early enough to be tried again within a deadline.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
    SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1, \
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";

/// How long a transaction may be idle, with calls that may take so long. Should a node stop in the middle
/// of one, the server ends it soon, so that it does not keep a take-over waiting.
pub(super) fn idle_seconds(deadline: Duration) -> u64 {
    deadline.as_secs() + 1
}

/// What every connection is told then, by one server only: how long a transaction may be idle. Others
/// take it for a remark.
fn session_of_maria(idle_seconds: u64) -> String {
    format!("SET SESSION autocommit = 1 /*M! , idle_transaction_timeout = {idle_seconds} */")
}

/// The server's words for a database that is not there, and for one that the user may not use. Whoever
/// may use none is told the second of both.
const NO_DATABASE: [u16; 2] = [1049, 1044];

/// What becomes of finished messages when they are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finished {
    /// They are deleted; their content is as soon as they end.
    #[default]
    Delete,
    /// They are moved to `punctual_archive` with all they were.
    Archive,
}

/// Where a database is and how it is used.
#[derive(Clone)]
pub struct MysqlOptions {
    /// `mysql://host:port/database`, with `ssl-mode`, `ssl-ca` and the like as parameters.
    pub url: String,
    /// The user, in place of the one in the url.
    pub user: Option<String>,
    /// The password, in place of the one in the url.
    pub password: Option<String>,
    /// The most connections that are open at once.
    pub connections: u32,
    /// How long a call may take.
    pub deadline: Duration,
    /// What becomes of finished messages.
    pub finished: Finished,
    /// Settings of the server, by name, that are accepted although messages may be lost by them. See
    /// [`UNSAFE_SETTINGS`](super::UNSAFE_SETTINGS).
    pub allow_unsafe: Vec<String>,
    /// The largest body that is going to be stored; the server must take packets large enough for it.
    pub body_bytes_max: usize,
}

impl MysqlOptions {
    /// The database at `url`, used as usual.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            connections: CONNECTIONS_DEFAULT,
            deadline: DEADLINE_DEFAULT,
            finished: Finished::default(),
            allow_unsafe: Vec::new(),
            body_bytes_max: BODY_BYTES_MAX,
        }
    }

    /// Connections to be made when they are needed. What is known of hours does not outlast the server:
    /// another one that has taken its place is found by a new connection.
    pub(super) fn pool(&self, hours: &Arc<Hours>) -> Result<MySqlPool, OpenError> {
        let bad = |error: sqlx::Error| OpenError::Url(error.to_string());
        let mut connect = MySqlConnectOptions::from_str(&self.url).map_err(bad)?;
        if connect.get_database().is_none_or(str::is_empty) {
            return Err(OpenError::Url("it names no database".to_owned()));
        }
        if let Some(user) = &self.user {
            connect = connect.username(user);
        }
        if let Some(password) = &self.password {
            connect = connect.password(password);
        }
        // A statement is megabytes of digits: not for a log.
        let connect = connect.pipes_as_concat(false).no_engine_substitution(false).timezone(None);
        let connect = connect.disable_statement_logging();
        let hours = Arc::clone(hours);
        let session = format!("{SESSION}; {}", session_of_maria(idle_seconds(self.deadline)));
        let pool = MySqlPoolOptions::new()
            .max_connections(self.connections.max(1))
            .acquire_timeout(self.deadline)
            .test_before_acquire(false)
            .after_connect(move |connection, _meta| {
                hours.forget_all();
                let session = AssertSqlSafe(session.clone());
                Box::pin(async move { connection.execute(session).await.map(drop) })
            });
        Ok(pool.connect_lazy_with(connect))
    }
}

impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The url may hold a password too.
        f.debug_struct("MysqlOptions")
            .field("user", &self.user)
            .field("connections", &self.connections)
            .field("deadline", &self.deadline)
            .field("finished", &self.finished)
            .field("allow_unsafe", &self.allow_unsafe)
            .finish_non_exhaustive()
    }
}

/// Why a database cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The address makes no sense.
    #[error("not the address of a database: {0}; write mysql://host:port/database")]
    Url(String),
    /// It does not answer, or lets nobody in.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The server answers, and has no such database, or none that this user may use.
    #[error("{why}; whoever looks after the database server can make it: {statements}")]
    NoDatabase {
        /// What the server says.
        why: String,
        /// What makes the database, and lets the user of these options use it.
        statements: String,
    },
    /// A setting of the server by which acknowledged messages may be lost.
    #[error(
        "the database server has {setting} = {value}: {why}; {advice}, or name {setting} in timeline.allow_unsafe"
    )]
    Unsafe {
        /// The setting.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What may happen.
        why: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A setting of the server with which nothing works.
    #[error("the database server has {setting} = {value}; {advice}")]
    Unfit {
        /// The setting.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What to do.
        advice: String,
    },
    /// A name in `allow_unsafe` that is no setting.
    #[error("timeline.allow_unsafe names {0}, which is none of {names}", names = super::UNSAFE_SETTINGS.join(", "))]
    UnknownSetting(String),
    /// A newer version has changed the tables.
    #[error(
        "the tables are of version {found} and this program knows version {known}; start the newer program"
    )]
    SchemaNewer {
        /// The version of the tables.
        found: i64,
        /// The last version that this program knows.
        known: i64,
    },
    /// The tables cannot be made or changed.
    #[error("the tables cannot be brought up to date: {0}")]
    Migration(String),
}

/// Why no connection could be had, with what to do about it where that is known.
pub(super) fn unconnected(error: sqlx::Error, pool: &MySqlPool) -> OpenError {
    if !super::line::code(&error).is_some_and(|code| NO_DATABASE.contains(&code)) {
        return unreachable(error);
    }
    let connect = pool.connect_options();
    let database = connect.get_database().unwrap_or_default().replace('`', "``");
    let user = connect.get_username().replace('\'', "''");
    let statements = format!(
        "CREATE DATABASE IF NOT EXISTS `{database}`; GRANT ALL ON `{database}`.* TO '{user}'@'%';"
    );
    OpenError::NoDatabase { why: error.to_string(), statements }
}

/// An error of the driver before anything is known of the database.
pub(super) fn unreachable(error: sqlx::Error) -> OpenError {
    OpenError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let mut options = MysqlOptions::new("mysql://root:secret@localhost/punctual");
        options.password = Some("secret".to_owned());
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn an_address_without_a_database_is_refused() {
        for url in ["mysql://localhost", "mysql://localhost/", "nonsense"] {
            let refused = MysqlOptions::new(url).pool(&Arc::default());
            assert!(matches!(refused, Err(OpenError::Url(_))), "{url}");
        }
    }

    #[tokio::test]
    async fn the_server_ends_what_a_node_leaves_open() {
        let Some(address) = punctual_testkit::services::mariadb() else { return };
        let mut options = MysqlOptions::new(format!("mysql://{address}/mysql"));
        options.user = Some("root".to_owned());
        options.deadline = Duration::from_secs(40);
        let pool = options.pool(&Arc::default()).unwrap();
        let asked = "SELECT CAST(@@SESSION.idle_transaction_timeout AS SIGNED)";
        let (seconds,): (i64,) = sqlx::query_as(asked).fetch_one(&pool).await.unwrap();
        assert_eq!(seconds, 41);
    }
}
