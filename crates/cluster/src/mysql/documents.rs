//! What all nodes share, in revisions that nobody can miss.
//!
//! Whoever changes a document of a kind locks the kind's row until the commit, so revisions become
//! visible in their order; and one statement reads the last revision and what was changed.

use std::sync::Arc;

use bytes::Bytes;

use super::MysqlStore;
use super::line::{Call, Line, Trouble};
use super::row::{column, damaged};
use super::script::{Script, bytes};
use crate::store::{Document, Failure};

/// A change of a document.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) kind: &'static str,
    pub(super) name: Arc<str>,
    pub(super) expected: u64,
    pub(super) content: Option<Bytes>,
}

impl MysqlStore {
    pub(super) async fn read_changes(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.run(Changes { kind, revision }).await
    }

    pub(super) async fn put_document(&self, put: Put) -> Result<Option<u64>, Failure> {
        self.run(PutCall { store: self, put }).await
    }
}

struct Changes {
    kind: &'static str,
    revision: u64,
}

/// The last revision of a kind, beside each document that was changed after a revision.
pub(super) fn changes_statement(kind: &str, revision: u64) -> String {
    let kind = bytes(kind.as_bytes());
    format!(
        "SELECT k.revision, d.revision, d.name, d.content FROM punctual_kinds k \
         LEFT JOIN punctual_documents d FORCE INDEX (changes) \
         ON d.kind = {kind} AND d.revision > {revision} WHERE k.kind = {kind}"
    )
}

impl Call for Changes {
    type Answer = (Vec<Document>, u64);

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Self::Answer, Trouble> {
        let statement = changes_statement(self.kind, self.revision);
        let sets = line.ask(Script::of(statement)).await?;
        let mut documents = Vec::new();
        let mut last = 0;
        for row in sets.iter().flatten() {
            last = column(row, 0)?;
            let Some(revision) = column::<Option<u64>>(row, 1)? else { continue };
            let name = String::from_utf8(column(row, 2)?)
                .map_err(|_not_text| damaged("the name of a document is no text"))?;
            let content = column::<Option<Vec<u8>>>(row, 3)?.map(Bytes::from);
            documents.push(Document { name: name.into(), revision, content });
        }
        documents.sort_unstable_by_key(|document| document.revision);
        Ok((documents, last))
    }
}

struct PutCall<'a> {
    store: &'a MysqlStore,
    put: Put,
}

impl Call for PutCall<'_> {
    type Answer = Option<u64>;

    async fn attempt(&self, line: &mut Line<'_>) -> Result<Option<u64>, Trouble> {
        let Put { kind, name, expected, content } = &self.put;
        let (kind, name) = (bytes(kind.as_bytes()), bytes(name.as_bytes()));
        let mut script = line.transaction(self.store.packet_bytes);
        script.statement(&format!(
            "INSERT INTO punctual_kinds (kind, revision) VALUES ({kind}, 1) \
             ON DUPLICATE KEY UPDATE revision = revision + 1"
        ));
        let place = script.statements();
        script.statement(&format!("SELECT revision FROM punctual_kinds WHERE kind = {kind}"));
        script.statement(&format!(
            "SELECT revision FROM punctual_documents WHERE kind = {kind} AND name = {name}"
        ));
        let sets = line.ask(script).await?;
        let read = |place: usize| {
            let row = sets.get(place).and_then(|rows| rows.first());
            row.map_or(Ok(0), |row| column::<u64>(row, 0))
        };
        let (next, present) = (read(place)?, read(place + 1)?);
        if present != *expected {
            line.roll_back().await?;
            return Ok(None);
        }
        let content = content.as_ref().map_or_else(|| "NULL".to_owned(), |content| bytes(content));
        line.ask(Script::of(format!(
            "INSERT INTO punctual_documents (kind, name, revision, content) \
             VALUES ({kind}, {name}, {next}, {content}) \
             ON DUPLICATE KEY UPDATE revision = VALUES(revision), content = VALUES(content)"
        )))
        .await?;
        line.commit().await?;
        Ok(Some(next))
    }
}
