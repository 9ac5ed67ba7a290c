//! Documents: one partition for each kind, whose head counts its changes.
//!
//! A change is one lightweight transaction over the head and the document, so no two changes have
//! the same revision, and whoever has seen a head has seen all changes up to it.

use bytes::Bytes;
use scylla::response::PagingState;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};

use super::Inner;
use super::calls::{Trouble, damaged};
use super::place::{number, small};
use crate::store::{Document, Failure};

/// How often a change is tried while others change documents of the same kind.
const ATTEMPTS: usize = 50;

type DocumentColumns = (Option<i64>, Option<String>, Option<i64>, Option<Bytes>);

impl Inner {
    pub(super) async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.changed(kind, revision).await.map_err(Trouble::read)
    }

    async fn changed(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Trouble> {
        // Nothing has changed most of the time.
        let head = self.head(kind).await?;
        if head <= revision {
            return Ok((Vec::new(), revision));
        }
        let mut changed = Vec::new();
        let mut from = PagingState::start();
        loop {
            let page = self.calls.page(&self.statements.documents, (kind,), from).await?;
            let (rows, next) = page;
            for row in rows.rows::<DocumentColumns>().map_err(damaged)? {
                let (_, name, of, content) = row.map_err(damaged)?;
                let (Some(name), Some(of)) = (name, of) else { continue };
                let of = number(of);
                if of > revision {
                    changed.push(Document { name: name.into(), revision: of, content });
                }
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok((changed, head))
    }

    async fn head(&self, kind: &'static str) -> Result<u64, Trouble> {
        let rows = self.calls.rows(&self.statements.head, (kind,)).await?;
        let row = rows.maybe_first_row::<(String, Option<i64>)>().map_err(damaged)?;
        Ok(number(row.and_then(|(_, head)| head).unwrap_or(0)))
    }

    pub(super) async fn put_document(
        &self,
        kind: &'static str,
        name: &str,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        for _ in 0..ATTEMPTS {
            let head = self.head(kind).await.map_err(Trouble::read)?;
            let found = self.revision_of(kind, name).await.map_err(Trouble::read)?;
            if found != expected {
                return Ok(None);
            }
            let new = head + 1;
            let was = (head > 0).then(|| small(head));
            let expected = (expected > 0).then(|| small(expected));
            let mut batch = Batch::new(BatchType::Unlogged);
            batch.set_consistency(self.level());
            batch.set_serial_consistency(self.statements.take.get_serial_consistency());
            batch.append_statement(self.statements.document_head.clone());
            batch.append_statement(self.statements.document_put.clone());
            let values: Vec<Box<dyn SerializeRow + Send + Sync>> = vec![
                Box::new((small(new), kind, was)),
                Box::new((small(new), content.clone(), kind, name.to_owned(), expected)),
            ];
            // Another document of the kind may have been changed meanwhile: look again.
            if self.calls.decide_all(&batch, values).await.map_err(Trouble::first)? {
                return Ok(Some(new));
            }
        }
        Err(Failure::Unavailable("too many changes of documents at a time".into()))
    }

    async fn revision_of(&self, kind: &'static str, name: &str) -> Result<u64, Trouble> {
        let rows = self.calls.rows(&self.statements.document, (kind, name)).await?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<i64>)>().map_err(damaged)?;
        Ok(number(row.and_then(|(_, revision)| revision).unwrap_or(0)))
    }
}
