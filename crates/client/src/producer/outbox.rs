//! Messages on their way out: gathered into batches, handed out, re-sent, settled.
//!
//! Plain bookkeeping without a runtime. What must hold: every message that came in gets an outcome;
//! a batch whose answer was lost goes out again before anything newer, in the old order; no more
//! than the allowed number of batches is under way; a message that is refused takes no other along.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use punctual_proto::v1;
use tokio::time::Instant;

use crate::backoff::{Backoff, RetryPolicy};
use crate::error::{Problem, SendError};
use crate::producer::Receipt;
use crate::producer::parcel::Slot;

/// How batches are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) linger: Duration,
    pub(crate) under_way: usize,
    pub(crate) retry: RetryPolicy,
}

/// A message with its place in its parcel.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) message: v1::NewMessage,
    pub(crate) weight: usize,
    pub(crate) slot: Slot,
    /// When its sender is told that it did not work.
    pub(crate) expires: Instant,
}

/// Messages of one topic that go together.
#[derive(Debug)]
struct Batch {
    topic: Arc<str>,
    entries: Vec<Entry>,
    bytes: usize,
    /// When its first message came.
    since: Instant,
    /// Whether it was handed out before without an answer, so that it may be stored.
    may_be_stored: bool,
    backoff: Backoff,
}

/// A batch to be sent under that sequence.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sequence: u64,
    pub(crate) topic: Arc<str>,
    pub(crate) messages: Vec<v1::NewMessage>,
}

/// All messages on their way out.
#[derive(Debug)]
pub(crate) struct Outbox {
    limits: Limits,
    /// One batch per topic that still grows, and the topics in the order of their first message.
    growing: HashMap<Arc<str>, Batch>,
    order: VecDeque<Arc<str>>,
    ready: VecDeque<Batch>,
    /// Refused for now, with the moment of the next attempt.
    postponed: Vec<(Instant, Batch)>,
    under_way: BTreeMap<u64, Batch>,
    next_sequence: u64,
}

impl Outbox {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            growing: HashMap::new(),
            order: VecDeque::new(),
            ready: VecDeque::new(),
            postponed: Vec::new(),
            under_way: BTreeMap::new(),
            next_sequence: 0,
        }
    }

    /// Takes a message in.
    pub(crate) fn push(&mut self, topic: &Arc<str>, entry: Entry, now: Instant) {
        let Limits { messages, bytes, retry, .. } = self.limits;
        let is_full =
            |batch: &Batch| batch.entries.len() >= messages || batch.bytes + entry.weight > bytes;
        if self.growing.get(topic).is_some_and(is_full) {
            self.close(topic);
        }
        let order = &mut self.order;
        let batch = self.growing.entry(Arc::clone(topic)).or_insert_with(|| {
            order.push_back(Arc::clone(topic));
            Batch {
                topic: Arc::clone(topic),
                entries: Vec::new(),
                bytes: 0,
                since: now,
                may_be_stored: false,
                backoff: Backoff::new(retry),
            }
        });
        batch.bytes += entry.weight;
        batch.entries.push(entry);
        if batch.entries.len() >= messages {
            self.close(topic);
        }
    }

    /// Nothing that is here waits to become larger.
    pub(crate) fn hurry(&mut self) {
        for topic in std::mem::take(&mut self.order) {
            self.ready.extend(self.growing.remove(&topic));
        }
    }

    /// The next batch to be sent, if one is ready and may be under way. A batch waits to become
    /// larger only while others are under way.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Outgoing> {
        if self.under_way.len() >= self.limits.under_way {
            return None;
        }
        let batch = loop {
            let mut batch = self.take_ready(now)?;
            drop_expired(&mut batch, now);
            if !batch.entries.is_empty() {
                break batch;
            }
        };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let topic = Arc::clone(&batch.topic);
        let messages = batch.entries.iter().map(|entry| entry.message.clone()).collect();
        self.under_way.insert(sequence, batch);
        Some(Outgoing { sequence, topic, messages })
    }

    /// When [`Outbox::next`] may have something without anything else happening.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.under_way.len() >= self.limits.under_way {
            return None;
        }
        let postponed = self.postponed.iter().map(|(at, _)| *at).min();
        let growing = self.order.front().and_then(|topic| self.growing.get(topic));
        let grown = growing.map(|batch| batch.since + self.limits.linger);
        [postponed, grown].into_iter().flatten().min()
    }

    /// The broker stored a batch. False if nobody asked, or the answer does not fit the question.
    pub(crate) fn stored(&mut self, sequence: u64, sent: Vec<v1::Sent>) -> bool {
        let Some(batch) = self.under_way.remove(&sequence) else { return false };
        if sent.len() != batch.entries.len() {
            let error = || SendError::Unanswered("the answer does not fit the batch".to_owned());
            batch.entries.iter().for_each(|entry| entry.slot.settle(Err(error())));
            return false;
        }
        for (entry, sent) in batch.entries.iter().zip(sent) {
            entry.slot.settle(Ok(Receipt::from(sent)));
        }
        true
    }

    /// The broker refused a batch: for now, for one of its messages, for its size, or as a whole.
    pub(crate) fn refused(&mut self, sequence: u64, problem: Problem, now: Instant) -> bool {
        let Some(mut batch) = self.under_way.remove(&sequence) else { return false };
        // A refusal is definite: whatever was unknown of an earlier attempt, a batch that had been
        // stored would have been answered as a duplicate.
        batch.may_be_stored = false;
        if problem.retriable {
            let wait = batch.backoff.after_failure().max(problem.retry_after.unwrap_or_default());
            self.postponed.push((now + wait, batch));
            return true;
        }
        let offender = problem.index.filter(|index| *index < batch.entries.len());
        if let Some(index) = offender {
            let entry = batch.entries.remove(index);
            batch.bytes -= entry.weight;
            entry.slot.settle(Err(refusal(problem)));
            self.ready.push_front(batch);
        } else if is_of_size(&problem) && batch.entries.len() > 1 {
            let (first, second) = batch.halves();
            self.ready.push_front(second);
            self.ready.push_front(first);
        } else {
            let refuse = |entry: &Entry| entry.slot.settle(Err(refusal(problem.clone())));
            batch.entries.iter().for_each(refuse);
        }
        true
    }

    /// The stream broke. What was under way goes out again, except messages without an own id:
    /// another one could come into being, so their senders are told that nobody knows.
    pub(crate) fn lost(&mut self, detail: &str) {
        while let Some((_, mut batch)) = self.under_way.pop_last() {
            batch.may_be_stored = true;
            batch.entries.retain(|entry| {
                let can_repeat = entry.message.id.is_some();
                if !can_repeat {
                    entry.slot.settle(Err(SendError::Unanswered(detail.to_owned())));
                }
                can_repeat
            });
            self.ready.push_front(batch);
        }
    }

    /// No stream came into being, so nothing of what was handed to it left.
    pub(crate) fn unsent(&mut self) {
        while let Some((_, batch)) = self.under_way.pop_last() {
            self.ready.push_front(batch);
        }
    }

    /// Refuses what is under way, which broke the stream.
    pub(crate) fn refuse_under_way(&mut self, problem: &Problem) {
        let batches = std::mem::take(&mut self.under_way).into_values();
        for entry in batches.flat_map(|batch| batch.entries) {
            entry.slot.settle(Err(refusal(problem.clone())));
        }
    }

    /// Refuses everything that is here.
    pub(crate) fn refuse_all(&mut self, problem: &Problem) {
        self.refuse_under_way(problem);
        let growing = std::mem::take(&mut self.growing).into_values();
        self.order.clear();
        let batches = growing
            .chain(self.ready.drain(..))
            .chain(self.postponed.drain(..).map(|(_, batch)| batch));
        for entry in batches.flat_map(|batch| batch.entries) {
            entry.slot.settle(Err(refusal(problem.clone())));
        }
    }

    /// Tells the senders of messages whose time is over. Those under way stay there, because their
    /// answer is still to come; it is not heard any more.
    pub(crate) fn expire(&mut self, now: Instant) {
        let waiting = self.growing.values_mut().chain(self.ready.iter_mut());
        for batch in waiting.chain(self.postponed.iter_mut().map(|(_, batch)| batch)) {
            drop_expired(batch, now);
        }
        self.growing.retain(|_, batch| !batch.entries.is_empty());
        let growing = &self.growing;
        self.order.retain(|topic| growing.contains_key(topic));
        self.ready.retain(|batch| !batch.entries.is_empty());
        self.postponed.retain(|(_, batch)| !batch.entries.is_empty());
        for entry in self.under_way.values().flat_map(|batch| &batch.entries) {
            if entry.expires <= now {
                entry.slot.settle(Err(SendError::Unanswered("no answer in time".to_owned())));
            }
        }
    }

    /// Whether all messages have an outcome.
    pub(crate) fn is_empty(&self) -> bool {
        self.growing.is_empty()
            && self.ready.is_empty()
            && self.postponed.is_empty()
            && self.under_way.is_empty()
    }

    /// Whether answers are awaited.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn take_ready(&mut self, now: Instant) -> Option<Batch> {
        if let Some(place) = self.postponed.iter().position(|(at, _)| *at <= now) {
            return Some(self.postponed.remove(place).1);
        }
        if let Some(batch) = self.ready.pop_front() {
            return Some(batch);
        }
        let oldest = self.growing.get(self.order.front()?)?;
        if !self.under_way.is_empty() && now < oldest.since + self.limits.linger {
            return None;
        }
        self.order.pop_front().and_then(|topic| self.growing.remove(&topic))
    }

    /// A batch that grows no more.
    fn close(&mut self, topic: &Arc<str>) {
        if let Some(batch) = self.growing.remove(topic) {
            self.order.retain(|other| other != topic);
            self.ready.push_back(batch);
        }
    }
}

impl Batch {
    fn halves(mut self) -> (Self, Self) {
        let entries = self.entries.split_off(self.entries.len() / 2);
        let bytes = entries.iter().map(|entry| entry.weight).sum();
        self.bytes -= bytes;
        let second = Self {
            topic: Arc::clone(&self.topic),
            entries,
            bytes,
            since: self.since,
            may_be_stored: self.may_be_stored,
            backoff: self.backoff.clone(),
        };
        (self, second)
    }
}

fn drop_expired(batch: &mut Batch, now: Instant) {
    let may_be_stored = batch.may_be_stored;
    batch.entries.retain(|entry| {
        if entry.expires > now {
            return true;
        }
        let detail = "no answer in time".to_owned();
        entry.slot.settle(Err(match may_be_stored {
            true => SendError::Unanswered(detail),
            false => SendError::Unreachable(detail),
        }));
        false
    });
    batch.bytes = batch.entries.iter().map(|entry| entry.weight).sum();
}

/// Whether smaller batches may be taken.
fn is_of_size(problem: &Problem) -> bool {
    ["batch_too_large", "request_too_large"].contains(&problem.code.as_str())
}

fn refusal(problem: Problem) -> SendError {
    crate::fault::Fault::Refused(problem).into()
}

#[cfg(test)]
mod tests;
