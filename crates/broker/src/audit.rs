//! The record of who changed what: each entry is durable before the change is answered.
//!
//! Where the entries go is not known here.

use std::fmt;
use std::io;
use std::sync::Arc;

use punctual_model::ports::Timeline;
use punctual_model::{Timestamp, TopicName};

use crate::broker::Broker;

/// Keeps the entries.
pub trait Sink: fmt::Debug + Send + Sync + 'static {
    /// Keeps an entry. `Ok` means it survives a crash. May block on the disk.
    ///
    /// # Errors
    /// As the operating system says; then the change is not answered as done.
    fn append(&self, entry: &Entry) -> io::Result<()>;
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub who: Arc<str>,
    /// What was done, in a word.
    pub what: String,
    /// To which topic, if to one.
    pub topic: Option<TopicName>,
    /// Whatever else there is to say, by name.
    pub details: Vec<(String, String)>,
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Sink for Silent {
    fn append(&self, _entry: &Entry) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Timeline> Broker<T> {
    /// Takes down a change that was made, before it is answered.
    ///
    /// # Errors
    /// As [`Sink::append`]; [`io::ErrorKind::ResourceBusy`] when too many wait.
    pub async fn audit(
        &self,
        who: &str,
        what: &str,
        topic: Option<&TopicName>,
        details: Vec<(String, String)>,
    ) -> io::Result<()> {
        let entry = Entry {
            at: self.now(),
            who: who.into(),
            what: what.to_owned(),
            topic: topic.cloned(),
            details,
        };
        let sink = Arc::clone(&self.shared.options.audit);
        let appended = self.shared.errands.run(move || sink.append(&entry)).await;
        appended.map_err(|error| io::Error::new(io::ErrorKind::ResourceBusy, error))?
    }
}
