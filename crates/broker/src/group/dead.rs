//! Dead letters: what a group has given up, to be looked at, thrown away or sent again.
//!
//! The list is the log of the group's dead-letter topic, less what the group has settled there. So
//! a letter leaves the list by one durable change, and whatever is decided about a letter is
//! decided under one lock of the group: no letter is thrown away and sent again at once.

mod summary;

use std::sync::Arc;

use bytes::Bytes;
use futures_executor::block_on;
use parking_lot::{Mutex, MutexGuard};
use punctual_model::group::{GroupChange, Mark};
use punctual_model::ports::{Delivered, GroupError, Groups, Topics};
use punctual_model::{Entry, Group, Message, MessageId, Partition, Source, Timestamp, TopicName};

pub use self::summary::{DeadDay, DeadSummary};
use super::Consumer;
use super::history::{History, Reason};
use super::read::refusal;

/// Records that one look at the list reads at most, so that it ends soon also if few fit.
const SCAN_RECORDS_MAX: usize = 10_000;
/// Letters that are decided about at once.
pub(super) const DECIDE_LETTERS_MAX: usize = 500;
/// Bytes of letters that are decided about at once, about.
const DECIDE_BYTES_MAX: usize = 8 << 20;
/// Records read at once.
const READ_RECORDS: usize = 500;

/// A message that a group has given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place in the list.
    pub offset: u64,
    /// Who it was and what happened to it.
    pub history: History,
    /// The message as it was sent.
    pub message: Message,
    /// Since when it is in the list.
    pub died_at: Timestamp,
}

/// Which dead letters; by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only those with this reason.
    pub reason: Option<Reason>,
    /// Only those that died at this time or later.
    pub from: Option<Timestamp>,
    /// Only those that died before this time.
    pub to: Option<Timestamp>,
    /// Only those with this key.
    pub key: Option<Bytes>,
    /// Only the one that its sender knows by this id.
    pub id: Option<MessageId>,
}

impl DeadFilter {
    fn fits(&self, letter: &DeadLetter) -> bool {
        let reason_fits = self.reason.is_none_or(|reason| letter.history.reason == Some(reason));
        let key_fits = self.key.is_none() || self.key == letter.message.key;
        reason_fits
            && key_fits
            && self.id.is_none_or(|id| letter.history.id == id)
            && self.from.is_none_or(|from| from <= letter.died_at)
            && self.to.is_none_or(|to| letter.died_at < to)
    }
}

/// Which part of the list to show.
#[derive(Clone, Debug, Default)]
pub struct DeadQuery {
    /// Which letters.
    pub filter: DeadFilter,
    /// Where the page before ended: its `next`.
    pub after: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// One page of dead letters.
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    /// The longest dead first. May be fewer than asked for, even none, although more follow.
    pub letters: Vec<DeadLetter>,
    /// Where the next page starts; `None` when nothing follows.
    pub next: Option<u64>,
}

impl Consumer {
    /// One page of the group's dead letters. Blocks.
    ///
    /// # Errors
    /// [`GroupError::NotFound`] after the group was deleted, or as the store says.
    pub fn dead(&self, query: &DeadQuery) -> Result<DeadPage, GroupError> {
        self.dead_list().page(query)
    }

    /// How many dead letters of that kind there are. Blocks.
    ///
    /// # Errors
    /// As [`dead`](Self::dead).
    pub fn count_dead(&self, filter: &DeadFilter) -> Result<u64, GroupError> {
        self.dead_list().count(filter)
    }

    /// Throws all dead letters of that kind away that are there now, and answers how many that
    /// were. Blocks.
    ///
    /// # Errors
    /// As [`dead`](Self::dead). Some may be gone then.
    pub fn purge(&self, filter: &DeadFilter) -> Result<u64, GroupError> {
        self.dead_list().purge(filter)
    }

    pub(super) fn dead_list(&self) -> DeadList {
        let core = &self.running.core;
        DeadList {
            groups: Arc::clone(&core.groups),
            topics: Arc::clone(&core.topics),
            group: self.group(),
            topic: self.topic().clone(),
            deciding: core.jobs.deciding(self.running.id),
        }
    }
}

/// The dead letters of one group.
#[derive(Clone)]
pub(super) struct DeadList {
    pub(super) groups: Arc<dyn Groups>,
    pub(super) topics: Arc<dyn Topics>,
    pub(super) group: Arc<Group>,
    /// The name of the topic that the group consumes.
    pub(super) topic: TopicName,
    /// Held while it is decided about letters.
    pub(super) deciding: Arc<Mutex<()>>,
}

impl DeadList {
    /// One page of the list.
    pub(super) fn page(&self, query: &DeadQuery) -> Result<DeadPage, GroupError> {
        let mut scan = self.scan(&query.filter, query.after)?;
        let mut letters = Vec::new();
        while letters.len() < query.limit && scan.records_read < SCAN_RECORDS_MAX {
            let Some((_, letter)) = scan.next()? else {
                return Ok(DeadPage { letters, next: None });
            };
            letters.extend(letter);
        }
        let next = (scan.position < scan.end).then_some(scan.position);
        Ok(DeadPage { letters, next })
    }

    /// How many letters there are of that kind.
    pub(super) fn count(&self, filter: &DeadFilter) -> Result<u64, GroupError> {
        if *filter == DeadFilter::default() {
            let standing = self.groups.standing(self.group.id, false).map_err(refusal)?;
            let dead = standing.iter().filter(|standing| standing.source == self.source());
            return Ok(dead.map(|standing| standing.lag()).sum());
        }
        let mut scan = self.scan(filter, None)?;
        let mut count = 0;
        while let Some((_, letter)) = scan.next()? {
            count += u64::from(letter.is_some());
        }
        Ok(count)
    }

    /// Takes all letters of that kind that are there now off the list, for good.
    pub(super) fn purge(&self, filter: &DeadFilter) -> Result<u64, GroupError> {
        let mut scan = self.scan(filter, None)?;
        let mut purged = 0;
        while !scan.finished() {
            let held = self.deciding.lock();
            let letters = scan.decide(&held)?;
            purged += letters.len() as u64;
            self.take_off(&held, &letters, Vec::new())?;
        }
        Ok(purged)
    }

    /// A walk over the letters that are there now, from `after` or the start of the window on.
    pub(super) fn scan<'a>(
        &'a self,
        filter: &'a DeadFilter,
        after: Option<u64>,
    ) -> Result<Scan<'a>, GroupError> {
        let Source { topic, partition, .. } = self.source();
        let bounds = self.topics.bounds(topic, partition).map_err(refusal)?;
        let first = match filter.from {
            Some(from) => self.topics.offset_at(topic, partition, from).map_err(refusal)?,
            None => bounds.start,
        };
        let position = first.max(after.unwrap_or(0));
        let page = Vec::new().into_iter();
        Ok(Scan { list: self, filter, position, end: bounds.end, page, records_read: 0 })
    }

    /// Takes `letters` off the list and stores `entries`, in one step. Whoever calls has found the
    /// letters since it holds the lock.
    pub(super) fn take_off(
        &self,
        _held: &MutexGuard<'_, ()>,
        letters: &[(Mark, DeadLetter)],
        entries: Vec<Entry>,
    ) -> Result<(), GroupError> {
        if letters.is_empty() {
            return Ok(());
        }
        let marks = letters.iter().map(|(mark, _)| *mark).collect();
        block_on(self.groups.apply(vec![GroupChange::Settle(self.source(), marks)], entries))?;
        Ok(())
    }

    fn source(&self) -> Source {
        let partition = Partition::new(0).expect("every topic has a partition 0");
        Source { group: self.group.id, topic: self.group.dead, partition }
    }

    fn letter(&self, delivered: Delivered) -> (Mark, DeadLetter) {
        let Delivered { id, offset, due, delivered_at, mut message } = delivered;
        // Only the broker writes there, always with a trailer; should one be missing all the same,
        // the letter is shown for what it is rather than hidden.
        let history = History::detach(&mut message).unwrap_or_else(|| History {
            id,
            topic: self.topic.clone(),
            partition: id.partition,
            offset,
            due,
            delivered_at,
            failed: 0,
            first_error: None,
            last_error: None,
            reason: None,
        });
        let letter = DeadLetter { offset, history, message, died_at: delivered_at };
        (Mark { offset, sequence: id.key.sequence }, letter)
    }
}

/// A walk over the letters of a list that were there when it began.
pub(super) struct Scan<'a> {
    list: &'a DeadList,
    filter: &'a DeadFilter,
    /// Everything before this was looked at.
    position: u64,
    end: u64,
    page: std::vec::IntoIter<Delivered>,
    records_read: usize,
}

impl Scan<'_> {
    /// Whether there is nothing more to look at.
    pub(super) fn finished(&self) -> bool {
        self.page.len() == 0 && self.position >= self.end
    }

    /// How far it is, for [`go_back`](Self::go_back).
    pub(super) fn place(&self) -> u64 {
        self.position
    }

    /// Looks again at what followed `place`: it was not decided about after all.
    pub(super) fn go_back(&mut self, place: u64) {
        self.position = place;
        self.page = Vec::new().into_iter();
    }

    /// Looks at one more record: the letter if it fits, otherwise only that there was one. `None`
    /// at the end.
    fn next(&mut self) -> Result<Option<(Mark, Option<DeadLetter>)>, GroupError> {
        loop {
            if let Some(delivered) = self.page.next() {
                return Ok(self.look(delivered));
            }
            if self.finished() {
                return Ok(None);
            }
            let pull = self.list.groups.pull(self.list.source(), self.position, READ_RECORDS);
            let pulled = pull.map_err(refusal)?;
            let messages: Vec<Delivered> = pulled.messages.into_iter().map(|(m, _)| m).collect();
            if messages.is_empty() {
                self.position = if pulled.next > self.position { pulled.next } else { self.end };
            }
            self.page = messages.into_iter();
        }
    }

    fn look(&mut self, delivered: Delivered) -> Option<(Mark, Option<DeadLetter>)> {
        let past_window = self.filter.to.is_some_and(|to| to <= delivered.delivered_at);
        if past_window || delivered.offset >= self.end {
            self.stop();
            return None;
        }
        self.position = delivered.offset + 1;
        self.records_read += 1;
        let (mark, letter) = self.list.letter(delivered);
        Some((mark, Some(letter).filter(|letter| self.filter.fits(letter))))
    }

    fn stop(&mut self) {
        self.position = self.end;
        self.page = Vec::new().into_iter();
    }

    /// The next letters that fit, as many as are decided about at once, read afresh under the lock
    /// that the caller holds. Perhaps none although the walk is not finished: so that nobody waits
    /// for the lock while a long list is searched.
    pub(super) fn decide(
        &mut self,
        _held: &MutexGuard<'_, ()>,
    ) -> Result<Vec<(Mark, DeadLetter)>, GroupError> {
        // What was read before the lock was held may have left the list.
        self.page = Vec::new().into_iter();
        let read_max = self.records_read + SCAN_RECORDS_MAX;
        let (mut letters, mut bytes) = (Vec::new(), 0);
        while letters.len() < DECIDE_LETTERS_MAX
            && bytes < DECIDE_BYTES_MAX
            && self.records_read < read_max
        {
            let Some((mark, letter)) = self.next()? else { break };
            if let Some(letter) = letter {
                bytes += letter.message.weight();
                letters.push((mark, letter));
            }
        }
        Ok(letters)
    }
}
