//! What apps have sent since the start.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{App, Gate};
use crate::access::quota::Cost;
use crate::access::record::AppRecord;

/// Counters of an app, which only grow.
#[derive(Debug, Default)]
pub(super) struct Tally {
    scheduled: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
}

/// What an app has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppCounts {
    /// Messages that were stored.
    pub(crate) scheduled: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Messages that a quota refused, each time.
    pub(crate) refused: u64,
}

/// Which app is meant: one that was made anew under its key is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AppIdentity {
    pub(crate) key: Box<str>,
    /// When it was made, in milliseconds. The built-in one is always the same.
    pub(crate) made: u64,
}

impl AppCounts {
    pub(crate) const fn is_zero(&self) -> bool {
        self.scheduled == 0 && self.bytes == 0 && self.refused == 0
    }
}

impl AppIdentity {
    pub(crate) fn of(record: &AppRecord) -> Self {
        let made = if record.key.is_admin() { 0 } else { record.created.as_millis() };
        Self { key: record.key.as_str().into(), made }
    }
}

impl App {
    /// So much of what it sent was stored.
    pub(in crate::access) fn stored(&self, cost: Cost) {
        self.tally.scheduled.fetch_add(cost.messages, Ordering::Relaxed);
        self.tally.bytes.fetch_add(cost.bytes, Ordering::Relaxed);
    }

    /// So many messages were refused by a quota.
    pub(in crate::access) fn refused(&self, messages: u64) {
        self.tally.refused.fetch_add(messages, Ordering::Relaxed);
    }

    fn counts(&self) -> AppCounts {
        AppCounts {
            scheduled: self.tally.scheduled.load(Ordering::Relaxed),
            bytes: self.tally.bytes.load(Ordering::Relaxed),
            refused: self.tally.refused.load(Ordering::Relaxed),
        }
    }
}

impl Gate {
    /// What each app has sent since the start.
    pub(crate) fn counts(&self) -> Vec<(AppIdentity, AppCounts)> {
        let apps = self.inner.apps.read();
        apps.values().map(|app| (AppIdentity::of(&app.record.load()), app.counts())).collect()
    }

    /// What one app has sent since the start.
    pub(crate) fn counts_of(&self, key: &str) -> AppCounts {
        self.inner.apps.read().get(key).map(|app| app.counts()).unwrap_or_default()
    }
}
