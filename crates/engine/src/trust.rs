//! Whether the store may still be believed.
//!
//! After a failed write or sync nobody knows what is on disk, so nothing more is acknowledged. Only
//! a restart, which reads what really is there, brings trust back.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;

use punctual_model::ports::StoreError;

/// The trust in one open store; lost at most once.
#[derive(Debug, Default)]
pub(crate) struct Trust(OnceLock<Arc<str>>);

impl Trust {
    /// Fine, or why not.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] once trust is lost.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(why) => Err(StoreError::Poisoned(Arc::clone(why))),
        }
    }

    /// Ends trust, and answers the error everybody gets from now on.
    pub(crate) fn lose(&self, what: &str, error: impl fmt::Display) -> StoreError {
        let why = self.0.get_or_init(|| {
            tracing::error!(%error, what, "the store stops: a write failed");
            format!("{what}: {error}").into()
        });
        StoreError::Poisoned(Arc::clone(why))
    }
}
