//! What a consumer has at hand: what waits, what is being handled, what is to be settled.
//!
//! Plain bookkeeping without a runtime. What must hold: a message is handled by one handler at a
//! time, in an ordered group also a key; every handled message is settled until the broker says
//! that it is, or that it cannot be; never more is asked for than can be held.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_proto::v1;
use punctual_proto::v1::SettleResult;
use punctual_proto::v1::settle::What;
use tokio::time::Instant;

use crate::backoff::{Backoff, RetryPolicy};
use crate::consumer::delivery::Delivery;
use crate::consumer::failure::Next;
use crate::consumer::memory::Memory;
use crate::error::Problem;
use crate::wire;

/// Most receipts of one request.
const RECEIPTS_MAX: usize = 1000;
/// Requests to settle that may be under way; what comes meanwhile goes together.
const SETTLES_MAX: usize = 32;
/// Messages that are handled but not settled yet; beyond that nothing new is asked for.
const UNSETTLED_MAX: usize = 10_000;

/// How much is held, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) is_ordered: bool,
    pub(crate) lease: Duration,
    pub(crate) retry: RetryPolicy,
}

/// A message that is held, by its newest receipt.
#[derive(Clone, Debug)]
struct Held {
    id: Arc<str>,
    receipt: String,
    key: Option<Bytes>,
}

/// What is asked for messages that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is handled.
    Ack,
    /// It is not.
    Fail(Next, String),
    /// Nobody has looked at it.
    Release,
}

/// A request that has no answer yet.
#[derive(Debug)]
enum Asked {
    Settle(Verdict, Vec<Held>),
    Extend(Vec<Arc<str>>),
}

/// Everything at hand.
#[derive(Debug)]
pub(crate) struct Desk {
    limits: Limits,
    waiting: VecDeque<Delivery>,
    running: HashMap<u64, Held>,
    by_id: HashMap<Arc<str>, u64>,
    busy_keys: HashSet<Bytes>,
    next_job: u64,
    /// To be settled.
    verdicts: VecDeque<(Verdict, Held)>,
    asked: BTreeMap<u64, Asked>,
    next_sequence: u64,
    /// Handled, but the ack is not known to have worked.
    handled: Memory,
    /// Messages the broker may still send.
    credit: usize,
    extend_at: Instant,
    /// Ids and receipts whose lease is to be extended now.
    extending: Vec<(Arc<str>, String)>,
    /// Nothing is settled before, because the broker was too busy.
    settle_at: Instant,
    backoff: Backoff,
    is_stopping: bool,
}

impl Desk {
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            by_id: HashMap::new(),
            busy_keys: HashSet::new(),
            next_job: 0,
            verdicts: VecDeque::new(),
            asked: BTreeMap::new(),
            next_sequence: 0,
            handled: Memory::new(limits.lease * 2),
            credit: 0,
            extend_at: now,
            extending: Vec::new(),
            settle_at: now,
            backoff: Backoff::new(limits.retry),
            is_stopping: false,
        }
    }

    /// Takes in what the broker gives.
    pub(crate) fn offer(&mut self, delivery: Delivery, now: Instant) {
        self.credit = self.credit.saturating_sub(1);
        if let Some(held) = self.by_id.get(&delivery.id).and_then(|job| self.running.get_mut(job)) {
            // Its lease was lost, but its handler still runs: the outcome counts for this one.
            held.receipt = delivery.receipt;
            return;
        }
        if let Some(old) = self.waiting.iter_mut().find(|one| one.id == delivery.id) {
            old.receipt = delivery.receipt;
            return;
        }
        let Delivery { id, receipt, key, .. } = &delivery;
        let held = Held { id: Arc::clone(id), receipt: receipt.clone(), key: key.clone() };
        if self.handled.holds(&delivery.id, now) {
            self.verdicts.push_back((Verdict::Ack, held));
        } else if self.is_stopping {
            self.verdicts.push_back((Verdict::Release, held));
        } else {
            if self.running.is_empty() && self.waiting.is_empty() {
                self.extend_at = now + self.limits.lease / 3;
            }
            self.waiting.push_back(delivery);
        }
    }

    /// The next message to be handled, with the number of the job.
    pub(crate) fn begin(&mut self) -> Option<(u64, Delivery)> {
        if self.running.len() >= self.limits.concurrency {
            return None;
        }
        let is_free = |delivery: &Delivery| match &delivery.key {
            Some(key) if self.limits.is_ordered => !self.busy_keys.contains(key),
            _ => true,
        };
        let place = self.waiting.iter().position(is_free)?;
        let delivery = self.waiting.remove(place)?;
        let job = self.next_job;
        self.next_job += 1;
        let Delivery { id, receipt, key, .. } = &delivery;
        let held = Held { id: Arc::clone(id), receipt: receipt.clone(), key: key.clone() };
        self.by_id.insert(Arc::clone(id), job);
        self.busy_keys.extend(key.clone());
        self.running.insert(job, held);
        Some((job, delivery))
    }

    /// A handler has ended.
    pub(crate) fn finish(&mut self, job: u64, verdict: Verdict, now: Instant) {
        let Some(held) = self.running.remove(&job) else { return };
        self.by_id.remove(&held.id);
        if let Some(key) = &held.key {
            self.busy_keys.remove(key);
        }
        if verdict == Verdict::Ack {
            self.handled.add(Arc::clone(&held.id), now);
        }
        self.verdicts.push_back((verdict, held));
    }

    /// Takes nothing more. What nobody has looked at goes back.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        for delivery in std::mem::take(&mut self.waiting) {
            let Delivery { id, receipt, key, .. } = delivery;
            self.verdicts.push_back((Verdict::Release, Held { id, receipt, key }));
        }
    }

    /// The jobs that are under way.
    pub(crate) fn jobs(&self) -> Vec<u64> {
        self.running.keys().copied().collect()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.verdicts.is_empty() && !self.is_settling()
    }

    /// Whether answers are awaited.
    pub(crate) fn is_settling(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Settle(..)))
    }

    /// How many more messages the broker may send now; it is counted as told.
    pub(crate) fn grant(&mut self) -> u32 {
        let settling = self.asked.values().map(|asked| match asked {
            Asked::Settle(_, held) => held.len(),
            Asked::Extend(_) => 0,
        });
        if self.is_stopping || self.verdicts.len() + settling.sum::<usize>() > UNSETTLED_MAX {
            return 0;
        }
        let Limits { concurrency, prefetch, .. } = self.limits;
        let used = self.waiting.len() + self.running.len() + self.credit;
        let more = (concurrency + prefetch).saturating_sub(used);
        self.credit += more;
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// The next request about messages that are held.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<v1::Settle> {
        self.settle(now).or_else(|| self.extend(now))
    }

    /// When [`Desk::ask`] may have something without anything else happening.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let is_held = !self.running.is_empty() || !self.waiting.is_empty();
        let is_settling = !self.verdicts.is_empty() && self.asked.len() < SETTLES_MAX;
        let times = [is_held.then_some(self.extend_at), is_settling.then_some(self.settle_at)];
        times.into_iter().flatten().min()
    }

    /// The broker has answered a request. False if nobody asked.
    pub(crate) fn answered(&mut self, sequence: u64, results: &[SettleResult]) -> bool {
        let Some(asked) = self.asked.remove(&sequence) else { return false };
        self.backoff.reset();
        match asked {
            Asked::Settle(verdict, held) => {
                for (place, held) in held.iter().enumerate() {
                    match results.get(place) {
                        Some(SettleResult::NotHeld) | None => {
                            tracing::warn!(id = %held.id, ?verdict, "the message was not held any more");
                        }
                        Some(_) if verdict == Verdict::Ack => self.handled.forget(&held.id),
                        Some(_) => {}
                    }
                }
            }
            Asked::Extend(ids) => {
                for (place, id) in ids.iter().enumerate() {
                    if results.get(place) == Some(&SettleResult::NotHeld) {
                        tracing::warn!(%id, "the lease was lost before it could be extended");
                    }
                }
            }
        }
        true
    }

    /// The broker has refused a request. False if nobody asked.
    pub(crate) fn refused(&mut self, sequence: u64, problem: &Problem, now: Instant) -> bool {
        let Some(asked) = self.asked.remove(&sequence) else { return false };
        let Asked::Settle(verdict, held) = asked else { return true };
        if problem.retriable {
            let wait = self.backoff.after_failure().max(problem.retry_after.unwrap_or_default());
            self.settle_at = now + wait;
            let again = held.into_iter().map(|held| (verdict.clone(), held));
            again.for_each(|one| self.verdicts.push_back(one));
        } else {
            tracing::error!(%problem, messages = held.len(), "messages cannot be settled");
        }
        true
    }

    /// The stream broke: everything that has no answer is asked again, and leases are renewed as
    /// soon as that is possible.
    pub(crate) fn lost(&mut self, now: Instant) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Settle(verdict, held) = asked {
                let again = held.into_iter().map(|held| (verdict.clone(), held));
                again.for_each(|one| self.verdicts.push_back(one));
            }
        }
        self.credit = 0;
        self.extend_at = now;
    }

    /// Settles the first verdict and all like it.
    fn settle(&mut self, now: Instant) -> Option<v1::Settle> {
        if now < self.settle_at || self.asked.len() >= SETTLES_MAX {
            return None;
        }
        let verdict = self.verdicts.front()?.0.clone();
        let mut held = Vec::new();
        while held.len() < RECEIPTS_MAX {
            let Some((_, one)) = self.verdicts.pop_front_if(|(other, _)| *other == verdict) else {
                break;
            };
            held.push(one);
        }
        let receipts = held.iter().map(|held| held.receipt.clone()).collect();
        let what = verdict.to_wire();
        Some(self.asking(Asked::Settle(verdict, held), receipts, what))
    }

    /// Gives everything that is held a full lease again, once a third of one is over.
    fn extend(&mut self, now: Instant) -> Option<v1::Settle> {
        if now >= self.extend_at {
            self.extend_at = now + self.limits.lease / 3;
            let running = self.running.values().map(|held| (&held.id, &held.receipt));
            let waiting = self.waiting.iter().map(|delivery| (&delivery.id, &delivery.receipt));
            let held = running.chain(waiting);
            self.extending = held.map(|(id, receipt)| (Arc::clone(id), receipt.clone())).collect();
        }
        if self.extending.is_empty() {
            return None;
        }
        let rest = self.extending.split_off(RECEIPTS_MAX.min(self.extending.len()));
        let (ids, receipts) = std::mem::replace(&mut self.extending, rest).into_iter().unzip();
        let lease = Some(wire::duration(self.limits.lease));
        let what = What::Extend(v1::ExtendThese { lease });
        Some(self.asking(Asked::Extend(ids), receipts, what))
    }

    fn asking(&mut self, asked: Asked, receipts: Vec<String>, what: What) -> v1::Settle {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.asked.insert(sequence, asked);
        v1::Settle { sequence, receipts, what: Some(what) }
    }
}

impl Verdict {
    pub(crate) fn to_wire(&self) -> What {
        match self {
            Self::Ack => What::Ack(v1::AckThese {}),
            Self::Release => What::Release(v1::ReleaseThese {}),
            Self::Fail(next, error) => What::Nack(nack(*next, error)),
        }
    }
}

pub(crate) fn nack(next: Next, error: &str) -> v1::NackThese {
    let (delay, reject) = match next {
        Next::Again(delay) => (delay.map(wire::duration), false),
        Next::Never => (None, true),
    };
    v1::NackThese { delay, reject, error: Some(error.to_owned()).filter(|text| !text.is_empty()) }
}

#[cfg(test)]
mod tests;
