//! Which transactions nobody has decided yet, and for how long.
//!
//! A note in memory, of bounded size, that is made again at the start. Other brokers over the same
//! timeline may decide without a word, so those that have been open for long are looked up before
//! anybody is told of them.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use punctual_model::ports::{Found, StoreError, Timeline};
use punctual_model::{MessageId, Span, Timestamp};

use super::desk::Desk;
use super::record::Stored;

/// Transactions that are noted at most; beyond that fewer are told of than there are.
const NOTED_MAX: usize = 100_000;
/// Transactions looked up with one call, and calls at most.
const LOOKED_UP_MAX: usize = 100;
const ROUNDS_MAX: usize = 100;

/// Transactions that nobody has decided for a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    /// How many.
    pub count: u64,
    /// When the oldest of them was prepared.
    pub oldest: Option<Timestamp>,
}

/// All that are undecided, by the time of their prepare.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<BTreeSet<(Timestamp, MessageId)>>);

impl Noted {
    /// One is undecided.
    pub(super) fn note(&self, created: Timestamp, id: MessageId) {
        let mut noted = self.0.lock();
        if noted.len() < NOTED_MAX {
            noted.insert((created, id));
        }
    }

    /// Notes those of them that are.
    pub(super) fn note_all(&self, stored: impl Iterator<Item = Stored>) {
        for stored in stored.filter(|stored| !stored.record.state.is_decided()) {
            self.note(stored.record.created, stored.id);
        }
    }

    /// One is not any more.
    pub(super) fn forget(&self, created: Timestamp, id: MessageId) {
        self.0.lock().remove(&(created, id));
    }

    fn oldest(&self, before: Timestamp, max: usize) -> Vec<(Timestamp, MessageId)> {
        let noted = self.0.lock();
        noted.iter().take_while(|(created, _)| *created <= before).take(max).copied().collect()
    }

    fn count(&self, before: Timestamp) -> Undecided {
        let noted = self.0.lock();
        let count = noted.iter().take_while(|(created, _)| *created <= before).count() as u64;
        let oldest = noted.first().map(|(created, _)| *created).filter(|_| count > 0);
        Undecided { count, oldest }
    }
}

impl<T: Timeline> Desk<T> {
    /// How many transactions have been undecided for so long, as far as this broker knows of them.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn undecided(&self, after: Span) -> Result<Undecided, StoreError> {
        let (inner, noted) = (&self.inner, &self.inner.undecided);
        let before = inner.time.read().timestamp().saturating_sub(after);
        for _ in 0..ROUNDS_MAX {
            let oldest = noted.oldest(before, LOOKED_UP_MAX);
            if oldest.is_empty() {
                break;
            }
            let ids = oldest.iter().map(|(_, id)| *id).collect();
            let found = inner.timeline.find(ids).await?;
            let mut all_open = true;
            for ((created, id), found) in oldest.into_iter().zip(found) {
                if !is_open(found.as_ref()) {
                    noted.forget(created, id);
                    all_open = false;
                }
            }
            if all_open {
                break;
            }
        }
        Ok(noted.count(before))
    }
}

fn is_open(found: Option<&Found>) -> bool {
    let entry = found.and_then(|found| found.entry.as_ref());
    let stored = entry.and_then(Stored::of_pending);
    stored.is_some_and(|stored| !stored.record.state.is_decided())
}
