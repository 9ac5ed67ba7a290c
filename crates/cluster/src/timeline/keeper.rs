//! Writes down, about every second, how far each slot has come and what is counted in it, and sees
//! to what ended long ago and to slots that are to end.
//!
//! Marks of all slots are written by one at a time: what was made later arrives later.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use punctual_model::{Lane, Span, Timestamp};

use crate::store::{Counted, Failure, Marks, Slot, SlotStore, Tenure};

use super::Phase;
use super::inner::{Inner, pause};
use super::slot::Owned;

/// How far ahead claims are announced.
const CLAIM_AHEAD: Span = Span::from_secs(2);
/// How far the marks stay behind, so that a message for now or a little earlier needs no new ones. Listings
/// and new owners look through all that was delivered since.
const ENDED_LAG: Span = Span::from_secs(10);
/// Rounds after which the marks of a slot without work are written down.
const ROUNDS_IDLE: u32 = 30;
/// Rounds between looks at what all nodes have counted, and at slots that are to end.
const ROUNDS_COUNTS: u32 = 5;
/// The fewest counters that are reserved at a time: more than one batch needs.
const COUNTERS_BLOCK_MIN: u64 = 1 << 18;
/// Calls to purge a slot in one go.
const PURGES_MAX: usize = 100;

/// Keeps while the timeline is there.
pub(super) async fn run<S: SlotStore>(inner: Weak<Inner<S>>) {
    let mut round = 0;
    while let Some(inner) = inner.upgrade() {
        inner.keep_due().await;
        if round % ROUNDS_COUNTS == 0 {
            inner.read_counts().await;
            inner.look_for_drained().await;
        }
        round += 1;
        let wait = inner.options.keep_every;
        drop(inner);
        pause(wait).await;
    }
}

/// Purges while the timeline is there.
pub(super) async fn purge<S: SlotStore>(inner: Weak<Inner<S>>) {
    while let Some(inner) = inner.upgrade() {
        let tenures: Vec<Tenure> = {
            let state = inner.state.lock();
            state.slots.values().map(|owned| owned.tenure).collect()
        };
        let before = inner.now().saturating_sub(inner.options.finished_after);
        for tenure in tenures {
            inner.purge(tenure, before).await;
        }
        let wait = inner.options.purge_every;
        drop(inner);
        pause(wait).await;
    }
}

/// What is written down of a slot.
type Kept = (Tenure, Marks, Vec<Counted>);

impl<S: SlotStore> Inner<S> {
    /// Writes down what has to be.
    async fn keep_due(self: &Arc<Self>) {
        let soon = self.now().saturating_add(CLAIM_AHEAD).saturating_add(CLAIM_AHEAD);
        let due: BTreeMap<Slot, Option<Timestamp>> = {
            let mut state = self.state.lock();
            for owned in state.slots.values_mut() {
                owned.rounds += 1;
            }
            let slots = state.slots.values().filter(|owned| {
                let first = Lane::ALL.map(|lane| owned.near(lane).ended_before()).into_iter().min();
                let works = first.is_some_and(|first| first <= soon) && owned.entries() > 0;
                works || !owned.unwritten.is_empty() || owned.rounds > ROUNDS_IDLE
            });
            slots.map(|owned| (owned.tenure.slot, None)).collect()
        };
        if !due.is_empty()
            && let Err(failure) = self.keep(due).await
        {
            tracing::warn!(%failure, "marks cannot be written down yet");
        }
    }

    /// Writes the marks and counts of slots down; claims are announced at least up to the time
    /// beside each. A slot that turns out to be another node's is dropped.
    pub(super) async fn keep(
        self: &Arc<Self>,
        slots: BTreeMap<Slot, Option<Timestamp>>,
    ) -> Result<(), Failure> {
        let _turn = self.keeping.lock().await;
        let now = self.now();
        let kept: Vec<Kept> = {
            let mut state = self.state.lock();
            let counter = state.counter;
            let mut kept = Vec::with_capacity(slots.len());
            for (slot, until) in slots {
                let Some(owned) = state.slots.get_mut(&slot) else { continue };
                let marks = self.marks(owned, counter, now, until);
                owned.may_be_written(&marks);
                kept.push((owned.tenure, marks, owned.unwritten.counted()));
            }
            kept
        };
        if kept.is_empty() {
            return Ok(());
        }
        let answer = self.store.keep(kept.clone()).await;
        let answers = match answer {
            Ok(answers) => answers,
            Err(failure) => {
                if matches!(failure, Failure::Unsure(_)) {
                    // Counted once or not at all, rather than twice.
                    self.note_counted(&kept);
                }
                return Err(failure);
            }
        };
        for ((tenure, marks, counted), holds) in kept.into_iter().zip(answers) {
            if holds {
                let mut state = self.state.lock();
                if let Some(owned) = state.owned_mut(tenure) {
                    owned.were_written(marks);
                }
                drop(state);
                self.note_counted(&[(tenure, marks, counted)]);
            } else {
                self.fenced(tenure);
            }
        }
        Ok(())
    }

    fn note_counted(&self, kept: &[Kept]) {
        let mut state = self.state.lock();
        for (tenure, _, counted) in kept {
            if let Some(owned) = state.owned_mut(*tenure) {
                owned.unwritten.written(counted);
            }
            state.note_written(counted);
        }
    }

    fn marks(
        &self,
        owned: &Owned,
        counter: u64,
        now: Timestamp,
        until: Option<Timestamp>,
    ) -> Marks {
        let block = self.options.counters_block.max(COUNTERS_BLOCK_MIN);
        let low = counter.saturating_add(block / 2) >= owned.marks.counters_until;
        let leaving = owned.phase == Phase::Leaving && owned.is_idle();
        let counters_until = match (low, leaving) {
            // Nothing more is given out here.
            (_, true) => owned.marks.counters_until.min(counter),
            (true, false) => counter.saturating_add(block),
            (false, false) => owned.marks.counters_until,
        };
        let announced = now.saturating_add(CLAIM_AHEAD).max(until.unwrap_or_default());
        // At rest, whatever is pending was not sent from here.
        let claimed_until =
            if leaving { owned.doubted_until() } else { owned.marks.claimed_until.max(announced) };
        let latest = now.saturating_sub(ENDED_LAG);
        Marks {
            claimed_until,
            ended_before: Lane::ALL.map(|lane| owned.ended_before(lane).min(latest)),
            counters_until,
        }
    }

    /// Reads what all nodes have counted.
    pub(super) async fn read_counts(&self) {
        // Nothing of this node's is on its way meanwhile.
        let _turn = self.keeping.lock().await;
        for lane in Lane::ALL {
            match self.store.counts(lane).await {
                Ok(counts) => {
                    let mut state = self.state.lock();
                    let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
                    let counts = counts.into_iter().map(|(topic, count)| (topic, signed(count)));
                    state.counts[lane.index()] = counts.collect();
                    state.written[lane.index()].clear();
                    state.has_counts |= lane == Lane::Retry;
                }
                Err(failure) => {
                    tracing::warn!(%failure, "counts cannot be read yet");
                    return;
                }
            }
        }
        self.progressed();
    }

    /// Tells the coordinator of slots that are to end and have nothing left.
    async fn look_for_drained(&self) {
        let is_done = |owned: &&Owned| {
            let written = owned.unwritten.is_empty();
            owned.retired && owned.is_idle() && owned.entries() == 0 && written
        };
        let candidates: Vec<Tenure> = {
            let state = self.state.lock();
            state.slots.values().filter(is_done).map(|owned| owned.tenure).collect()
        };
        for tenure in candidates {
            if !matches!(self.store.is_empty(tenure.slot).await, Ok(true)) {
                continue;
            }
            let dropped = {
                let mut state = self.state.lock();
                let done = state.owned(tenure).as_ref().is_some_and(is_done);
                if done { state.slots.remove(&tenure.slot) } else { None }
            };
            // Nothing comes any more: what came since it was looked at is seen now, and then the
            // slot is taken over once more.
            if dropped.is_some() && matches!(self.store.is_empty(tenure.slot).await, Ok(true)) {
                self.coordinator.drained(u32::from(tenure.slot.0), tenure.term);
            }
        }
    }

    async fn purge(&self, tenure: Tenure, before: Timestamp) {
        for _ in 0..PURGES_MAX {
            if self.state.lock().owned(tenure).is_none() {
                return;
            }
            match self.store.purge(tenure, before).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => {
                    tracing::warn!(%failure, slot = tenure.slot.0, "a slot cannot be purged yet");
                    return;
                }
            }
        }
    }
}
