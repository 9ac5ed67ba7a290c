//! Numbers that nobody can guess: each lease has one of its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives out numbers. The keys of the hash are new in every process, so a receipt of an earlier one
/// is not held in this one.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    given: AtomicU64,
    hash: RandomState,
}

impl Nonces {
    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        self.hash.hash_one(self.given.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a key; the same for the same key in one process.
    pub(crate) fn of_key(&self, key: &[u8]) -> u64 {
        self.hash.hash_one(key)
    }
}
