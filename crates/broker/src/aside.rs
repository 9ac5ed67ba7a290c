//! Claimed messages that the outlet did not take with their batch: some are to come again later, of
//! others it is not known yet.
//!
//! They stay claimed until the timeline has it that they were taken, or that they are due at a later
//! time. Neither holds up anything else: what the timeline refuses for now is asked for again at the
//! next step. Only when there are more of them than [`ENTRIES_MAX`] nothing new is claimed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual_model::ports::{Armed, Fate, Outlet, StoreError, Timeline, Told, Untaken};
use punctual_model::{Key, Span, Timestamp, TopicId};

use crate::rate::place;

/// Messages aside, and bytes of them.
const ENTRIES_MAX: usize = 128 << 10;
const BYTES_MAX: usize = 128 << 20;
/// Messages that are made later with one call.
const DEFER_MAX: usize = 1024;
/// Messages put off of which it is remembered when they were due.
const PUT_OFF_MAX: usize = 10_000;
/// So much after its time a message that was put off is here again, unless it never is.
const PUT_OFF_GRACE: Span = Span::from_secs(10);

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
    /// When each of them was due in the first place.
    dues: BTreeSet<(Timestamp, Key)>,
    /// Those that are due at a later time now, by their first place, and until when they are
    /// expected here again.
    put_off: BTreeMap<Key, Timestamp>,
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

    /// When the oldest one was due in the first place.
    pub(crate) fn oldest(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.forget_put_off(now);
        let aside = self.dues.first().map(|(due, _)| *due);
        let put_off = self.put_off.first_key_value().map(|(place, _)| place.due);
        aside.into_iter().chain(put_off).min()
    }

    /// Some of these may have been put off before; they are in other hands now.
    pub(crate) fn welcome(&mut self, batch: &[Armed]) {
        if self.put_off.is_empty() {
            return;
        }
        for armed in batch {
            self.put_off.remove(&place(armed));
        }
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
            self.dues.insert((place(&armed).due, armed.key));
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
            settled.iter().for_each(|armed| self.let_go(armed));
        }
        while !self.later.is_empty() {
            let count = self.later.len().min(DEFER_MAX);
            if !has_passed(timeline.defer(self.later[..count].to_vec()).await)? {
                break;
            }
            let gone: Vec<_> = self.later.drain(..count).collect();
            for (armed, due) in gone {
                self.let_go(&armed);
                self.put_off.insert(place(&armed), due.saturating_add(PUT_OFF_GRACE));
            }
        }
        Ok(settled)
    }

    fn let_go(&mut self, armed: &Armed) {
        self.bytes = self.bytes.saturating_sub(armed.message.weight());
        self.dues.remove(&(place(armed).due, armed.key));
    }

    /// Forgets those that did not come again: somebody has cancelled them, or has them now. Of too
    /// many the oldest are of interest.
    fn forget_put_off(&mut self, now: Timestamp) {
        while self.put_off.len() > PUT_OFF_MAX {
            self.put_off.pop_last();
        }
        while self.put_off.first_key_value().is_some_and(|(_, until)| *until < now) {
            self.put_off.pop_first();
        }
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
