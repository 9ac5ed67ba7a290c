//! Figures of nodes: a row for what each has counted, and one for each point.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::Timestamp;
use punctual_model::ports::{Keeping, StoredPoint, Trends};

use super::MysqlStore;
use super::line::{Call, Line, Rows, Trouble};
use super::row::column;
use super::script::{Script, bytes};
use crate::catalogue::refusal;

/// Points that one statement removes.
const REMOVED_MAX: usize = 10_000;

/// What is made of the rows of a statement.
type Read<T> = fn(&Rows) -> Result<T, Trouble>;

/// One statement, which may be repeated.
struct Ask<T> {
    statement: String,
    read: Read<T>,
}

impl<T: Send> Call for Ask<T> {
    type Answer = T;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<T, Trouble> {
        let sets = line.ask(Script::of(self.statement.clone())).await?;
        (self.read)(&sets.into_iter().next().unwrap_or_default())
    }
}

impl MysqlStore {
    /// Carries out a statement, and reads its rows.
    fn asking<T: Send + 'static>(&self, statement: String, read: Read<T>) -> Keeping<'_, T> {
        Box::pin(async move { self.run(Ask { statement, read }).await.map_err(refusal) })
    }
}

fn nothing(_: &Rows) -> Result<(), Trouble> {
    Ok(())
}

/// The name of a node.
fn name(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

impl Trends for MysqlStore {
    fn put_totals(&self, node: Arc<str>, content: Bytes) -> Keeping<'_, ()> {
        let (node, content) = (bytes(node.as_bytes()), bytes(&content));
        let statement = format!(
            "INSERT INTO punctual_figures (node, content) VALUES ({node}, {content}) \
             ON DUPLICATE KEY UPDATE content = VALUES(content)"
        );
        self.asking(statement, nothing)
    }

    fn totals(&self) -> Keeping<'_, Vec<(Arc<str>, Bytes)>> {
        let statement = "SELECT node, content FROM punctual_figures ORDER BY node";
        self.asking(statement.to_owned(), |rows| {
            let read = |row| Ok((name(column(row, 0)?), column::<Vec<u8>>(row, 1)?.into()));
            rows.iter().map(read).collect()
        })
    }

    fn put_point(&self, point: StoredPoint) -> Keeping<'_, ()> {
        let (node, content) = (bytes(point.node.as_bytes()), bytes(&point.content));
        let statement = format!(
            "INSERT INTO punctual_trends (starts_at, node, content) \
             VALUES ({}, {node}, {content}) ON DUPLICATE KEY UPDATE content = VALUES(content)",
            point.at.as_millis()
        );
        self.asking(statement, nothing)
    }

    fn points(&self, from: Timestamp, until: Timestamp) -> Keeping<'_, Vec<StoredPoint>> {
        let statement = format!(
            "SELECT starts_at, node, content FROM punctual_trends \
             WHERE starts_at >= {} AND starts_at < {} ORDER BY starts_at, node",
            from.as_millis(),
            until.as_millis()
        );
        self.asking(statement, |rows| {
            let read = |row| {
                Ok(StoredPoint {
                    at: Timestamp::from_millis_saturating(column(row, 0)?),
                    node: name(column(row, 1)?),
                    content: column::<Vec<u8>>(row, 2)?.into(),
                })
            };
            rows.iter().map(read).collect()
        })
    }

    fn forget(&self, before: Timestamp) -> Keeping<'_, ()> {
        let statement = format!(
            "DELETE FROM punctual_trends WHERE starts_at < {} LIMIT {REMOVED_MAX}",
            before.as_millis()
        );
        self.asking(statement, nothing)
    }
}
