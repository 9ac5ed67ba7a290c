//! Claimed messages that the outlet did not take with their batch: some are to come again later, of
//! others it is not known yet.
//!
//! They stay claimed until the timeline has it that they were taken, or that they are due at a later
//! time. Neither holds up anything else: what the timeline refuses for now is asked for again at the
//! next step. Only when there are more of them than [`ENTRIES_MAX`] nothing new is claimed.

use std::collections::HashMap;

use punctual_model::ports::{Armed, Fate, Outlet, StoreError, Timeline, Told, Untaken};
use punctual_model::{Key, Timestamp, TopicId};

/// Messages aside, and bytes of them.
const ENTRIES_MAX: usize = 128 << 10;
const BYTES_MAX: usize = 128 << 20;
/// Messages that are made later with one call.
const DEFER_MAX: usize = 1024;

/// Messages between the outlet and the timeline.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Nobody knows yet whether the outlet has taken them.
    open: HashMap<Key, Armed>,
    /// The outlet has taken them after all, and the timeline has to hear of it.
    taken: Vec<Armed>,
    /// They were not taken and are due at these times instead.
    later: Vec<(Armed, Timestamp)>,
    bytes: usize,
}

impl Aside {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.taken.is_empty() && self.later.is_empty()
    }

    /// Whether there are so many that nothing more is to be claimed.
    pub(crate) fn is_crowded(&self) -> bool {
        let entries = self.open.len() + self.taken.len() + self.later.len();
        entries >= ENTRIES_MAX || self.bytes >= BYTES_MAX
    }

    /// Takes out of `batch` what the outlet has not taken. Answers what it has refused, by topic.
    pub(crate) fn put(
        &mut self,
        batch: &mut Vec<Armed>,
        untaken: Vec<Untaken>,
        now: Timestamp,
    ) -> Vec<(TopicId, u64)> {
        let mut untaken = untaken.into_iter().peekable();
        let mut refused = Refused::default();
        for (index, armed) in std::mem::take(batch).into_iter().enumerate() {
            let Some(Untaken { fate, .. }) = untaken.next_if(|untaken| untaken.index == index)
            else {
                batch.push(armed);
                continue;
            };
            self.bytes += armed.message.weight();
            match fate {
                Fate::Later(wait) => {
                    refused.note(armed.topic);
                    self.later.push((armed, now.saturating_add(wait)));
                }
                Fate::Open => drop(self.open.insert(armed.key, armed)),
            }
        }
        refused.0
    }

    /// Asks the outlet what became of open ones. Answers what it has refused, by topic.
    pub(crate) fn hear<O: Outlet>(&mut self, outlet: &O, now: Timestamp) -> Vec<(TopicId, u64)> {
        let Some(lane) = self.open.keys().next().map(|key| key.sequence.lane()) else {
            return Vec::new();
        };
        let mut refused = Refused::default();
        for Told { key, later } in outlet.told(lane) {
            let Some(armed) = self.open.remove(&key) else { continue };
            match later {
                None => self.taken.push(armed),
                Some(wait) => {
                    refused.note(armed.topic);
                    self.later.push((armed, now.saturating_add(wait)));
                }
            }
        }
        refused.0
    }

    /// Tells the timeline what became of messages, as far as that is known. Answers those that were
    /// taken. What it refuses for now stays.
    ///
    /// # Errors
    /// Those of the timeline that do not pass.
    pub(crate) async fn tell<T: Timeline>(
        &mut self,
        timeline: &T,
    ) -> Result<Vec<Armed>, StoreError> {
        let mut settled = Vec::new();
        if !self.taken.is_empty() && has_passed(timeline.settle(&self.taken).await)? {
            settled = std::mem::take(&mut self.taken);
            for armed in &settled {
                self.bytes = self.bytes.saturating_sub(armed.message.weight());
            }
        }
        while !self.later.is_empty() {
            let count = self.later.len().min(DEFER_MAX);
            if !has_passed(timeline.defer(self.later[..count].to_vec()).await)? {
                break;
            }
            for (armed, _) in self.later.drain(..count) {
                self.bytes = self.bytes.saturating_sub(armed.message.weight());
            }
        }
        Ok(settled)
    }
}

/// Whether it was done; an error that passes is no error yet.
fn has_passed(outcome: Result<(), StoreError>) -> Result<bool, StoreError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.passes() => Ok(false),
        Err(error) => Err(error),
    }
}

/// How many messages of each topic an outlet has refused. Neighbours are mostly of one topic.
#[derive(Default)]
struct Refused(Vec<(TopicId, u64)>);

impl Refused {
    fn note(&mut self, topic: TopicId) {
        match self.0.last_mut() {
            Some((last, count)) if *last == topic => *count += 1,
            _ => self.0.push((topic, 1)),
        }
    }
}
