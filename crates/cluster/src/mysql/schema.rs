//! Brings the tables up to date, one node at a time.
//!
//! Statements of a migration may run again, since the server cannot undo half of one; what a node
//! that vanished has begun is begun anew by the next.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::MySqlConnection;
use sqlx::{Executor, Row, SqlSafeStr};

use super::options::OpenError;

/// Where the versions are written down.
const TABLE: &str = "punctual_schema";

/// How long a node waits for others that bring the tables up to date.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('punctual.', MD5(DATABASE())), 60)";
const UNLOCK: &str = "SELECT RELEASE_LOCK(CONCAT('punctual.', MD5(DATABASE())))";

/// The server's word for a table that is not there.
const NO_SUCH_TABLE: u16 = 1146;

fn migrator() -> Migrator {
    let first = include_str!("../../migrations/mysql/0001_slots.sql").into_sql_str();
    let second = include_str!("../../migrations/mysql/0002_trends.sql").into_sql_str();
    let migrations = vec![
        Migration::new(1, "slots".into(), MigrationType::Simple, first, true),
        Migration::new(2, "trends".into(), MigrationType::Simple, second, true),
    ];
    let mut migrator = Migrator::with_migrations(migrations);
    migrator.dangerous_set_table_name(TABLE);
    // Its own lock waits for ever on some servers and not at all on others.
    migrator.set_locking(false);
    migrator
}

/// Runs what has not been run yet, under a lock.
pub(super) async fn migrate(connection: &mut MySqlConnection) -> Result<(), OpenError> {
    let row = connection.fetch_one(LOCK).await.map_err(failed)?;
    if row.try_get::<Option<i64>, _>(0).map_err(failed)? != Some(1) {
        let text = "another node has been at it for a minute; try again".to_owned();
        return Err(OpenError::Migration(text));
    }
    let result = migrate_locked(connection).await;
    // Should this fail the connection is broken, and the lock has ended with it.
    let _ended = connection.execute(UNLOCK).await.is_ok();
    result
}

async fn migrate_locked(connection: &mut MySqlConnection) -> Result<(), OpenError> {
    let forget = "DELETE FROM punctual_schema WHERE success = FALSE";
    match connection.execute(forget).await {
        Ok(_) => {}
        Err(error) if super::line::code(&error) == Some(NO_SUCH_TABLE) => {}
        Err(error) => return Err(failed(error)),
    }
    let migrator = migrator();
    let known = migrator.iter().map(|migration| migration.version).max().unwrap_or(0);
    migrator.run_direct(None, connection, false).await.map_err(|error| match error {
        MigrateError::VersionMissing(found) => OpenError::SchemaNewer { found, known },
        error => OpenError::Migration(error.to_string()),
    })
}

fn failed(error: sqlx::Error) -> OpenError {
    OpenError::Migration(error.to_string())
}
