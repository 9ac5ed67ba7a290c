//! Figures of nodes: a row for what each has counted, and one for each point, by day.
//!
//! A node writes its own rows only, one after another, so the time that Cassandra gives a write is
//! enough to tell which is the last.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::Timestamp;
use punctual_model::ports::{Keeping, StoredPoint, Trends};
use scylla::response::PagingState;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;

use super::calls::{Trouble, damaged};
use super::place::{number, small};
use super::{CassandraStore, Inner};
use crate::catalogue::refusal;

/// The kind of rows that say what a node has counted in all.
const TOTALS: &str = "totals";
/// Rows of a page: one may have some hundred kilobytes.
const PAGE_ROWS: i32 = 64;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Days that are looked at in one call at most.
const DAYS_MAX: u64 = 32;
/// Days before those that are kept which are removed. What is older goes by itself.
const DAYS_REMOVED: u64 = 8;

type TotalsColumns = (String, Option<Bytes>);
type PointColumns = (i64, String, Option<Bytes>);

impl Inner {
    /// All rows of a statement, in small pages.
    async fn each_row<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow + Clone,
        mut each: impl FnMut(R),
    ) -> Result<(), Trouble>
    where
        R: for<'frame, 'metadata> scylla::deserialize::row::DeserializeRow<'frame, 'metadata>,
    {
        let mut statement = statement.clone();
        statement.set_page_size(PAGE_ROWS);
        let mut from = PagingState::start();
        loop {
            let (rows, next) = self.calls.page(&statement, values.clone(), from).await?;
            for row in rows.rows::<R>().map_err(damaged)? {
                each(row.map_err(damaged)?);
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    async fn read_totals(&self) -> Result<Vec<(Arc<str>, Bytes)>, Trouble> {
        let mut totals = Vec::new();
        let note = |(node, content): TotalsColumns| {
            totals.push((node.into(), content.unwrap_or_default()));
        };
        self.each_row(&self.statements.figures, (TOTALS,), note).await?;
        Ok(totals)
    }

    async fn read_points(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<StoredPoint>, Trouble> {
        let mut points = Vec::new();
        let bounds = (small(from.as_millis()), small(until.as_millis()));
        let days = day_of(from)..=day_of(until).min(day_of(from) + DAYS_MAX);
        for day in days {
            let note = |(at, node, content): PointColumns| {
                let at = Timestamp::from_millis_saturating(number(at));
                let content = content.unwrap_or_default();
                points.push(StoredPoint { at, node: node.into(), content });
            };
            let values = (small(day), bounds.0, bounds.1);
            self.each_row(&self.statements.trend, values, note).await?;
        }
        Ok(points)
    }

    async fn drop_days(&self, before: Timestamp) -> Result<(), Trouble> {
        let kept = day_of(before);
        for day in kept.saturating_sub(DAYS_REMOVED)..kept {
            self.calls.write(&self.statements.trend_drop, (small(day),)).await?;
        }
        Ok(())
    }
}

fn day_of(time: Timestamp) -> u64 {
    time.as_millis() / DAY_MS
}

impl Trends for CassandraStore {
    fn put_totals(&self, node: Arc<str>, content: Bytes) -> Keeping<'_, ()> {
        Box::pin(async move {
            let (inner, values) = (&self.inner, (TOTALS, &*node, content));
            let write = async {
                inner
                    .calls
                    .write(&inner.statements.figures_put, values)
                    .await
                    .map_err(Trouble::first)
            };
            inner.writing(write).await.map_err(refusal)
        })
    }

    fn totals(&self) -> Keeping<'_, Vec<(Arc<str>, Bytes)>> {
        Box::pin(async move {
            let read = async { self.inner.read_totals().await.map_err(Trouble::read) };
            self.inner.reading(read).await.map_err(refusal)
        })
    }

    fn put_point(&self, point: StoredPoint) -> Keeping<'_, ()> {
        Box::pin(async move {
            let StoredPoint { at, node, content } = point;
            let (inner, at_ms) = (&self.inner, small(at.as_millis()));
            let values = (small(day_of(at)), at_ms, &*node, content);
            let write = async {
                inner.calls.write(&inner.statements.trend_put, values).await.map_err(Trouble::first)
            };
            inner.writing(write).await.map_err(refusal)
        })
    }

    fn points(&self, from: Timestamp, until: Timestamp) -> Keeping<'_, Vec<StoredPoint>> {
        Box::pin(async move {
            let read = async { self.inner.read_points(from, until).await.map_err(Trouble::read) };
            self.inner.reading(read).await.map_err(refusal)
        })
    }

    fn forget(&self, before: Timestamp) -> Keeping<'_, ()> {
        Box::pin(async move {
            let drop_days = async { self.inner.drop_days(before).await.map_err(Trouble::later) };
            self.inner.writing(drop_days).await.map_err(refusal)
        })
    }
}
