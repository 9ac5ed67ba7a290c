//! Reading: pages of a feed into memory, and the content of single messages again.
//!
//! One thread reads for a group at a time, so that what is read arrives in the order of offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_model::group::{Group, Mark};
use punctual_model::ports::{Delivered, GroupError, TopicError};
use punctual_model::{Message, Timestamp};

use super::Leased;
use super::feed::RETRY_FEED;
use super::history::History;
use super::open::{Lease, Open};
use super::queue::{Place, ReadFrom};
use super::running::Running;

/// About how much one page is to bring.
const PAGE_BYTES: usize = 1 << 20;
/// Messages of one page, whatever their size.
const PAGE_MIN: usize = 16;
const PAGE_MAX: usize = 1024;
/// Messages looked through at once to find some of them again.
const FILL_MAX: usize = 256;

/// Bytes of content that all groups together keep in memory before each keeps less.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// What is remembered from page to page.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Bytes of a message, by the last page.
    weight: usize,
}

impl Default for Reader {
    fn default() -> Self {
        // Until a page was seen messages may be large.
        Self { weight: PAGE_BYTES / PAGE_MIN }
    }
}

impl Running {
    /// Reads one page, unless somebody else has done so meanwhile.
    pub(crate) fn read(&self, from: ReadFrom) -> Result<(), GroupError> {
        let mut reader = self.reader.lock();
        let group = {
            let state = self.state.lock();
            if !state.queue.is_current(from) {
                return Ok(());
            }
            Arc::clone(&state.group)
        };
        let limit = (PAGE_BYTES / reader.weight.max(1)).clamp(PAGE_MIN, PAGE_MAX).min(from.room);
        let source = self.source(&group, from.feed);
        let pulled = self.core.groups.pull(source, from.offset, limit).map_err(refusal)?;
        let retried = from.feed == RETRY_FEED;
        let mut weight = 0;
        let mut page = Vec::with_capacity(pulled.messages.len());
        for (delivered, note) in pulled.messages {
            weight += delivered.message.weight();
            let mut open = Open::new(delivered, note, retried);
            if group.settings.ordered {
                let key = open.content.as_ref().and_then(|content| content.key.as_deref());
                open.key = key.map(|key| self.core.nonces.of_key(key));
            }
            page.push(open);
        }
        if !page.is_empty() {
            reader.weight = weight / page.len();
        }
        let mut state = self.state.lock();
        let now = self.core.time.read();
        state.queue.be_thrifty(self.core.kept.load(Ordering::Relaxed) > KEPT_BYTES_MAX);
        state.queue.admit(from, page, pulled.next, now.timestamp());
        self.account(&mut state);
        self.set_alarm(&mut state, now);
        Ok(())
    }

    /// Reads the content of what was leased without it. What is not in the log any more is no
    /// longer the group's.
    pub(crate) fn fill(
        &self,
        bare: Vec<(Place, Lease, Leased)>,
    ) -> Result<Vec<Leased>, GroupError> {
        if bare.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = bare.iter().map(|(place, _, _)| *place);
        let mut contents = match self.contents(wanted) {
            Ok(contents) => contents,
            Err(error) => {
                let leases = bare.iter().map(|(place, lease, _)| (*place, *lease));
                self.release_leases(leases);
                return Err(error);
            }
        };
        let mut filled = Vec::with_capacity(bare.len());
        for (place, _, mut leased) in bare {
            match contents.remove(&place) {
                Some((_, message)) => {
                    leased.message = message;
                    filled.push(leased);
                }
                None => self.forget(place, leased.receipt.nonce),
            }
        }
        Ok(filled)
    }

    /// The content of messages that are open, without what the broker has added to it.
    pub(crate) fn contents(
        &self,
        wanted: impl Iterator<Item = Place>,
    ) -> Result<BTreeMap<Place, (Mark, Message)>, GroupError> {
        let group = self.group();
        let mut wanted: Vec<Place> = wanted.collect();
        wanted.sort_unstable();
        let mut found = BTreeMap::new();
        let mut rest = wanted.as_slice();
        while let Some((first, others)) = rest.split_first() {
            // As far as they lie together, they are read together.
            let near = |place: &&Place| {
                place.feed == first.feed && place.offset - first.offset < FILL_MAX as u64
            };
            let together = others.iter().take_while(near).count();
            let last = rest.get(together).copied().unwrap_or(*first);
            let limit = usize::try_from(last.offset - first.offset + 1).unwrap_or(FILL_MAX);
            self.find_between(&group, *first, last, limit, &mut found)?;
            rest = rest.get(together + 1..).unwrap_or_default();
        }
        found.retain(|place, _| wanted.binary_search(place).is_ok());
        Ok(found)
    }

    fn find_between(
        &self,
        group: &Group,
        first: Place,
        last: Place,
        limit: usize,
        found: &mut BTreeMap<Place, (Mark, Message)>,
    ) -> Result<(), GroupError> {
        let source = self.source(group, first.feed);
        let mut from = first.offset;
        while from <= last.offset {
            let pulled = self.core.groups.pull(source, from, limit).map_err(refusal)?;
            for (delivered, _) in pulled.messages {
                let Delivered { id, offset, mut message, .. } = delivered;
                if first.feed == RETRY_FEED {
                    // Without a history it stays as it was read.
                    drop(History::detach(&mut message));
                }
                let mark = Mark { offset, sequence: id.key.sequence };
                found.insert(Place { feed: first.feed, offset }, (mark, message));
            }
            if pulled.next <= from {
                break;
            }
            from = pulled.next;
        }
        Ok(())
    }

    /// A message that is not in the log any more.
    fn forget(&self, place: Place, nonce: u64) {
        let mut state = self.state.lock();
        let now = self.core.time.read();
        let held = state.queue.begin(place, nonce, now.monotonic).map(|(_, lease)| lease);
        if let Some(lease) = held {
            state.queue.settled(place, lease, now.timestamp());
        }
    }

    /// Gives back leases nobody got to know of.
    fn release_leases(&self, leases: impl Iterator<Item = (Place, Lease)>) {
        let mut state = self.state.lock();
        let now = self.core.time.read();
        for (place, lease) in leases {
            if state.queue.begin(place, lease.nonce, now.monotonic).is_some() {
                state.queue.offer_again(place, lease, Timestamp::MIN, now.timestamp());
            }
        }
    }
}

/// What a refused read is for whoever asked the group.
pub(crate) fn refusal(error: TopicError) -> GroupError {
    match error {
        TopicError::Store(error) => GroupError::Store(error),
        TopicError::NotFound
        | TopicError::CannotShrink(_)
        | TopicError::TooMany
        | TopicError::Reserved => GroupError::NotFound,
    }
}
