//! The apps of a cluster: documents that all nodes read about every second.
//!
//! An app that was disabled, removed or given another secret on one node is so on the others once
//! they have read it. A node that cannot reach the store goes on with what it read last. A document
//! that cannot be read locks its app out: what it may do is not known.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_cluster::catalogue::{Reader, Shelf, refusal};
use punctual_cluster::store::{Document, Documents};
use tokio::runtime::Handle;
use tracing::error;

use crate::access::gate::Inner;
use crate::access::record::{self, AppKey, AppRecord};
use crate::access::store::{AppStore, Revision, Written};

/// The kind of the documents.
const KIND: &str = "app";

/// The apps of a cluster.
#[derive(Debug)]
pub(crate) struct AppDocuments {
    shelf: Shelf,
    reader: Arc<AppReader>,
}

/// Takes in what was read.
#[derive(Debug, Default)]
struct AppReader {
    /// Told after the app itself: whoever looks at the revision first never takes an old app for a
    /// new one.
    revisions: Mutex<HashMap<Arc<str>, u64>>,
    gate: OnceLock<Weak<Inner>>,
    /// What was read before there was a gate.
    first: Mutex<Vec<Read>>,
}

/// An app as it was read; `None` when it was removed.
#[derive(Debug)]
struct Read {
    name: Arc<str>,
    record: Result<Option<AppRecord>, record::RecordError>,
}

impl AppDocuments {
    /// Reads all apps there are.
    ///
    /// # Errors
    /// As the store says; `InvalidData` for a document that is damaged or newer.
    pub(crate) async fn open(
        documents: Arc<impl Documents>,
        handle: Handle,
    ) -> io::Result<(AppStore, Vec<AppRecord>)> {
        let reader = Arc::new(AppReader::default());
        let shelf = Shelf::new(documents, KIND, Arc::clone(&reader) as Arc<dyn Reader>, handle);
        shelf.refresh().await.map_err(|failure| io::Error::other(refusal(failure)))?;
        let first = std::mem::take(&mut *reader.first.lock());
        let mut records = Vec::new();
        for Read { name, record } in first {
            let refused = |error: record::RecordError| {
                let text = format!("the app {name} of the cluster: {error}");
                io::Error::new(io::ErrorKind::InvalidData, text)
            };
            records.extend(record.map_err(refused)?);
        }
        Ok((AppStore::Shared(Self { shelf, reader }), records))
    }

    /// From now on changes of other nodes are told to the gate.
    pub(super) fn follow(&self, gate: Weak<Inner>) {
        if self.reader.gate.set(gate).is_ok() {
            self.shelf.keep_in_step();
        }
    }

    /// Takes in what other nodes have changed up to now. Blocks.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        let shelf = self.shelf.clone();
        let read = self.shelf.wait(async move { shelf.refresh().await });
        read.map_err(io::Error::other)?.map_err(|failure| io::Error::other(refusal(failure)))
    }

    /// How often an app was changed.
    pub(crate) fn revision(&self, key: &str) -> Revision {
        Revision(self.reader.revisions.lock().get(key).copied().unwrap_or(0))
    }

    /// Writes an app. Blocks.
    pub(crate) fn put(&self, record: &AppRecord, revision: Revision) -> io::Result<Written> {
        self.write(&record.key, revision, Some(record::encode(record).into()))
    }

    /// Removes an app. Blocks.
    pub(crate) fn remove(&self, key: &AppKey, revision: Revision) -> io::Result<Written> {
        self.write(key, revision, None)
    }

    fn write(
        &self,
        key: &AppKey,
        revision: Revision,
        content: Option<Bytes>,
    ) -> io::Result<Written> {
        let (shelf, name) = (self.shelf.clone(), Arc::from(key.as_str()));
        let work = async move {
            match (revision, content) {
                (Revision(0), Some(content)) => shelf.create(name, content).await,
                (Revision(expected), content) => shelf.put(name, expected, content).await,
            }
        };
        let written = self.shelf.wait(work).map_err(io::Error::other)?;
        match written.map_err(|failure| io::Error::other(refusal(failure)))? {
            true => Ok(Written::TakenIn),
            false => Ok(Written::Overtaken),
        }
    }
}

impl Drop for AppDocuments {
    fn drop(&mut self) {
        self.shelf.stop();
    }
}

impl Reader for AppReader {
    fn read(&self, changed: &[Document]) {
        for Document { name, revision, content } in changed {
            let record = content.as_deref().map(|content| record_of(name, content)).transpose();
            let read = Read { name: Arc::clone(name), record };
            match self.gate.get() {
                None => self.first.lock().push(read),
                Some(gate) => {
                    if let Some(gate) = gate.upgrade() {
                        take_in(&gate, read);
                    }
                }
            }
            let mut revisions = self.revisions.lock();
            match content {
                Some(_) => revisions.insert(Arc::clone(name), *revision),
                None => revisions.remove(name),
            };
        }
    }
}

fn take_in(gate: &Inner, Read { name, record }: Read) {
    match record {
        Ok(Some(record)) => gate.take_in(record),
        Ok(None) => gate.let_go(&name),
        Err(error) => {
            error!(app = %name, %error, "an app of the cluster cannot be read; it is locked out");
            gate.let_go(&name);
        }
    }
}

/// The app of a document, if it is that of the app it is named after.
fn record_of(name: &str, content: &[u8]) -> Result<AppRecord, record::RecordError> {
    let record = record::decode(content)?;
    match record.key.as_str() == name {
        true => Ok(record),
        false => Err(record::RecordError::Damaged),
    }
}

#[cfg(test)]
mod tests;
