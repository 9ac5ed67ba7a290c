//! Taking messages of a group that nobody holds, to move them elsewhere.

use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::group::{GroupChange, Mark, Note, Standing};
use punctual_model::ports::{Delivered, GroupError};
use punctual_model::{Group, Timestamp};

use crate::group::feed::RETRY_FEED;
use crate::group::history::{History, Reason};
use crate::group::open::Lease;
use crate::group::queue::{Next, ReadFrom};
use crate::group::read::refusal;
use crate::group::running::Running;
use crate::group::settle::{Work, moved};

/// Bytes of messages that are taken at once, about.
const SEIZE_BYTES_MAX: usize = 8 << 20;
/// What a message is taken to weigh whose content is not in memory.
const BARE_BYTES: usize = 256 << 10;
/// Pages that are read at most in search of something to take.
const PAGES_MAX: usize = 64;
/// Retries that are put aside at most in search of something to take.
const ASIDE_MAX: usize = 4096;
/// Messages that are looked at together at the end of a partition.
const TAIL_MESSAGES: usize = 500;

impl Running {
    /// Takes up to `max` messages of the topic itself that could be given out now, about the oldest
    /// first, also while the group is paused. They are to be buried, settled or given back.
    pub(in crate::group) fn seize(&self, max: usize) -> Result<Vec<Work>, GroupError> {
        let mut seized = Seized::default();
        for _ in 0..PAGES_MAX {
            let Some(from) = self.seize_from_memory(&mut seized, max) else { break };
            if let Err(error) = self.read(from) {
                self.unseize(&seized.aside);
                self.unseize(&seized.works);
                return Err(error);
            }
        }
        self.unseize(&seized.aside);
        Ok(seized.works)
    }

    fn seize_from_memory(&self, seized: &mut Seized, max: usize) -> Option<ReadFrom> {
        let mut state = self.state.lock();
        let deadline = self.core.time.read().monotonic;
        while !seized.is_enough(max) {
            let place = match state.queue.next() {
                Next::Give(place) => place,
                Next::Read(from) => return Some(from),
                Next::Nothing => return None,
            };
            let lease = Lease { nonce: self.core.nonces.next(), deadline };
            if let Some(open) = state.queue.seize(place, lease) {
                seized.add(Work { place, lease, open });
            }
        }
        None
    }

    /// Gives back what was taken.
    pub(in crate::group) fn unseize(&self, works: &[Work]) {
        let mut state = self.state.lock();
        let now = self.core.time.read().timestamp();
        let mut ready = 0;
        for Work { place, lease, .. } in works {
            ready += usize::from(state.queue.offer_again(*place, *lease, Timestamp::MIN, now));
        }
        drop(state);
        self.waiters.wake(ready);
    }

    /// What was taken is settled, durably.
    pub(in crate::group) fn settled(&self, works: &[Work]) {
        let mut state = self.state.lock();
        let now = self.core.time.read();
        let mut ready = 0;
        for Work { place, lease, .. } in works {
            ready += state.queue.settled(*place, *lease, now.timestamp());
        }
        self.set_alarm(&mut state, now);
        drop(state);
        self.waiters.wake(ready);
    }

    /// Makes up to `max` of the newest messages dead letters, as far as nobody holds one that is
    /// newer; answers how many.
    pub(super) fn bury_newest(
        &self,
        standings: &[Standing],
        max: usize,
    ) -> Result<usize, GroupError> {
        // Nobody reads meanwhile, so what is not in memory now will not be.
        let reader = self.reader.lock();
        let group = self.group();
        let mut buried = 0;
        for (standing, marks) in self.newest(standings, max)? {
            let feed = standing.source.partition.get() + 1;
            let Some(first) = marks.first() else { continue };
            let now = self.core.time.read().timestamp();
            let free = self.state.lock().queue.unread(feed, first.offset, now);
            let marks: Vec<Mark> = marks.into_iter().filter(|mark| mark.offset >= free).collect();
            buried += self.bury_unread(&group, standing, &marks)?;
        }
        drop(reader);
        // What was forgotten here without being buried is to be read again.
        self.waiters.wake(1);
        Ok(buried)
    }

    /// The newest messages of all partitions, by partition and offset.
    fn newest<'a>(
        &self,
        standings: &'a [Standing],
        max: usize,
    ) -> Result<Vec<(&'a Standing, Vec<Mark>)>, GroupError> {
        let mut all = Vec::new();
        for (index, standing) in standings.iter().enumerate() {
            let tail = self.tail(standing, max)?;
            all.extend(tail.into_iter().map(|(time, mark)| (time, mark.sequence, index, mark)));
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.truncate(max);
        let mut chosen: Vec<(&Standing, Vec<Mark>)> =
            standings.iter().map(|standing| (standing, Vec::new())).collect();
        for (_, _, index, mark) in all {
            chosen[index].1.push(mark);
        }
        chosen.iter_mut().for_each(|(_, marks)| marks.sort_unstable());
        Ok(chosen)
    }

    /// The last messages of a partition that are not settled, and when they were delivered.
    fn tail(&self, standing: &Standing, max: usize) -> Result<Vec<(Timestamp, Mark)>, GroupError> {
        let wanted = usize::try_from(standing.lag()).unwrap_or(max).min(max);
        let floor = standing.cursor.max(standing.start);
        let mut back = wanted as u64;
        loop {
            let from = standing.end.saturating_sub(back).max(floor);
            let mut tail = self.unsettled(standing, from)?;
            if tail.len() >= wanted || from == floor {
                tail.drain(..tail.len().saturating_sub(wanted));
                return Ok(tail);
            }
            // Some of them are settled: look further back.
            back = back.saturating_mul(2);
        }
    }

    fn unsettled(
        &self,
        standing: &Standing,
        from: u64,
    ) -> Result<Vec<(Timestamp, Mark)>, GroupError> {
        let mut found = Vec::new();
        let mut position = from;
        while position < standing.end {
            let pulled = self.core.groups.pull(standing.source, position, TAIL_MESSAGES);
            let pulled = pulled.map_err(refusal)?;
            let messages = pulled.messages.iter().map(|(delivered, _)| delivered);
            found.extend(messages.map(|delivered| (delivered.delivered_at, mark_of(delivered))));
            if pulled.next <= position {
                break;
            }
            position = pulled.next;
        }
        Ok(found)
    }

    /// Makes messages that are not in memory dead letters; the caller holds the reader.
    fn bury_unread(
        &self,
        group: &Arc<Group>,
        standing: &Standing,
        wanted: &[Mark],
    ) -> Result<usize, GroupError> {
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(0) };
        let mut position = first.offset;
        let mut buried = 0;
        while position <= last.offset {
            let pulled = self.core.groups.pull(standing.source, position, wanted.len());
            let pulled = pulled.map_err(refusal)?;
            let now = self.core.time.read().timestamp();
            let (mut marks, mut entries) = (Vec::new(), Vec::new());
            for (delivered, note) in pulled.messages {
                let mark = mark_of(&delivered);
                if wanted.binary_search(&mark).is_ok() {
                    marks.push(mark);
                    let history = self.history_of(&delivered, note.unwrap_or_default());
                    entries.push(moved(group.dead, now, delivered.message, &history));
                }
            }
            buried += marks.len();
            let died = marks.len() as u64;
            if !marks.is_empty() {
                let change = GroupChange::Settle(standing.source, marks);
                block_on(self.core.groups.apply(vec![change], entries))?;
                self.core.counters.died(group.topic, Reason::Overflow, died);
            }
            if pulled.next <= position {
                break;
            }
            position = pulled.next;
        }
        Ok(buried)
    }

    fn history_of(&self, delivered: &Delivered, note: Note) -> History {
        History {
            id: delivered.id,
            topic: self.topic.clone(),
            partition: delivered.id.partition,
            offset: delivered.offset,
            due: delivered.due,
            delivered_at: delivered.delivered_at,
            failed: note.failed,
            first_error: note.first_error,
            last_error: note.last_error,
            reason: Some(Reason::Overflow),
        }
    }
}

fn mark_of(delivered: &Delivered) -> Mark {
    Mark { offset: delivered.offset, sequence: delivered.id.key.sequence }
}

/// What was taken.
#[derive(Default)]
struct Seized {
    works: Vec<Work>,
    bytes: usize,
    /// Retries, which are not meant.
    aside: Vec<Work>,
}

impl Seized {
    fn is_enough(&self, max: usize) -> bool {
        self.works.len() >= max || self.bytes >= SEIZE_BYTES_MAX || self.aside.len() >= ASIDE_MAX
    }

    fn add(&mut self, work: Work) {
        if work.place.feed == RETRY_FEED {
            self.aside.push(work);
        } else {
            self.bytes += work.open.content.as_ref().map_or(BARE_BYTES, |content| content.weight());
            self.works.push(work);
        }
    }
}
