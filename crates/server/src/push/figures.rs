//! What can be counted about pushing.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all pushers together.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    delivered: AtomicU64,
    failed: AtomicU64,
    pauses: AtomicU64,
    paused: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that an endpoint answered with success.
    pub(crate) delivered: u64,
    /// Requests that failed, for whatever reason.
    pub(crate) failed: u64,
    /// How often a failing endpoint was given a pause.
    pub(crate) pauses: u64,
    /// Endpoints that have a pause now.
    pub(crate) paused: u64,
}

impl Figures {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            delivered: self.delivered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            pauses: self.pauses.load(Ordering::Relaxed),
            paused: self.paused.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn delivered(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn breaker_opened(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    /// Also when an open one is gone with its group.
    pub(crate) fn breaker_closed(&self) {
        self.paused.fetch_sub(1, Ordering::Relaxed);
    }
}
