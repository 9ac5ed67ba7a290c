//! Taking slots over and letting them go, as the coordinator says.
//!
//! A slot that the coordinator no longer lists is dropped at once. One that is to leave is first
//! brought to rest: nothing more is begun, what is on its way ends, the marks are written down, and
//! then the coordinator is told.

use std::sync::{Arc, Weak};
use std::time::Duration;

use punctual_model::Lane;
use punctual_model::ports::{Held, Holding};

use crate::store::{Slot, SlotStore, Tenure};

use super::Phase;
use super::inner::{Inner, RETRY_WAIT, Signals, pause};
use super::slot::Owned;

/// How often the coordinator is looked at without being told.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often a slot that is to leave is looked at.
const REST_WAIT: Duration = Duration::from_millis(5);

/// What is to be done about a slot.
enum Step {
    Take(Tenure, bool),
    Lose(Tenure),
    LetGo(Tenure),
    /// It never was taken.
    Release(Tenure),
}

/// Follows the coordinator while the timeline is there.
pub(super) async fn run<S: SlotStore>(inner: Weak<Inner<S>>, signals: Arc<Signals>) {
    while let Some(inner) = inner.upgrade() {
        inner.follow();
        drop(inner);
        tokio::time::timeout(LOOK_EVERY, signals.tenures.notified()).await.unwrap_or_default();
    }
}

impl<S: SlotStore> Inner<S> {
    /// Does what the coordinator says now.
    pub(super) fn follow(self: &Arc<Self>) {
        let holding = self.coordinator.holding();
        for step in self.steps(&holding) {
            match step {
                Step::Take(tenure, retired) => {
                    drop(self.handle.spawn(take(Arc::clone(self), tenure, retired)));
                }
                Step::Lose(tenure) => self.lose(tenure),
                Step::LetGo(tenure) => {
                    drop(self.handle.spawn(let_go(Arc::clone(self), tenure)));
                }
                Step::Release(tenure) => {
                    self.coordinator.released(u32::from(tenure.slot.0), tenure.term);
                }
            }
        }
    }

    fn steps(&self, holding: &Holding) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut state = self.state.lock();
        let gone = state.slots.values().filter(|owned| find(holding, owned.tenure).is_none());
        steps.extend(gone.map(|owned| Step::Lose(owned.tenure)));
        let closed = state.closed;
        for held in &holding.slots {
            let Ok(slot) = u16::try_from(held.slot).map(Slot) else { continue };
            let tenure = Tenure { slot, term: held.term };
            let leaving = held.leaving || closed;
            if let Some(owned) = state.owned_mut(tenure) {
                owned.retired = held.retired;
                steps.extend(self.step(owned, leaving));
            } else if leaving && !state.taking.contains_key(&slot) && held.leaving {
                steps.push(Step::Release(tenure));
            } else if !leaving && state.taking.get(&slot) != Some(&held.term) {
                state.taking.insert(slot, held.term);
                steps.push(Step::Take(tenure, held.retired));
            }
        }
        steps
    }

    /// What a slot that is here does next.
    fn step(&self, owned: &mut Owned, leaving: bool) -> Option<Step> {
        match (owned.phase, leaving) {
            (Phase::Held, true) => {
                owned.phase = Phase::Leaving;
                Some(Step::LetGo(owned.tenure))
            }
            // Whoever lets it go sees that it stays.
            (Phase::Leaving, false) => {
                owned.phase = Phase::Held;
                None
            }
            _ => None,
        }
    }

    fn is_assigned(&self, tenure: Tenure) -> bool {
        find(&self.coordinator.holding(), tenure).is_some()
    }
}

fn find(holding: &Holding, tenure: Tenure) -> Option<&Held> {
    let same = |held: &&Held| held.slot == u32::from(tenure.slot.0) && held.term == tenure.term;
    holding.slots.iter().find(same)
}

/// Takes a slot over, for as long as it is assigned to this node.
async fn take<S: SlotStore>(inner: Arc<Inner<S>>, tenure: Tenure, retired: bool) {
    while inner.is_assigned(tenure) && !inner.state.lock().closed {
        match inner.store.take(tenure).await {
            Ok(Some(marks)) => {
                let mut state = inner.state.lock();
                state.counter = state.counter.max(marks.counters_until);
                let owned = Owned::new(tenure, marks, state.counter, retired);
                let newer =
                    state.slots.get(&tenure.slot).is_some_and(|o| o.tenure.term > tenure.term);
                if !newer && !state.closed {
                    state.slots.insert(tenure.slot, owned);
                }
                break;
            }
            Ok(None) => {
                tracing::warn!(
                    slot = tenure.slot.0,
                    term = tenure.term,
                    "the slot has another owner"
                );
                break;
            }
            Err(failure) => {
                tracing::warn!(%failure, slot = tenure.slot.0, "a slot cannot be taken over yet");
                pause(RETRY_WAIT).await;
            }
        }
    }
    {
        let mut state = inner.state.lock();
        if state.taking.get(&tenure.slot) == Some(&tenure.term) {
            state.taking.remove(&tenure.slot);
        }
    }
    inner.progressed();
    inner.signals.pages.notify_one();
}

/// Reads a slot again of which nobody knows what is in the store.
pub(super) async fn read_again<S: SlotStore>(inner: Arc<Inner<S>>, tenure: Tenure) {
    while inner.state.lock().owned(tenure).is_some() {
        // Whatever was sent before has arrived when the slot could be taken again, or never will.
        match inner.store.take(tenure).await {
            Ok(Some(_)) => {}
            Ok(None) => return inner.fenced(tenure),
            Err(failure) => {
                tracing::warn!(%failure, slot = tenure.slot.0, "a slot cannot be read again yet");
                pause(RETRY_WAIT).await;
                continue;
            }
        }
        let claimed = {
            let state = inner.state.lock();
            state.owned(tenure).map(Owned::claimed_ids).unwrap_or_default()
        };
        let ids = claimed.iter().map(|(_, id)| *id).collect();
        let Ok(found) = inner.store.get(ids).await else {
            pause(RETRY_WAIT).await;
            continue;
        };
        let mut state = inner.state.lock();
        if let Some(owned) = state.owned_mut(tenure) {
            for ((key, id), stored) in claimed.into_iter().zip(found) {
                let there =
                    |stored: &crate::store::Stored| stored.key == key && stored.state.is_pending();
                if !stored.as_ref().is_some_and(there) {
                    owned.forget_claimed(key, id);
                }
            }
            owned.start_again();
            owned.phase = Phase::Held;
        }
        break;
    }
    inner.progressed();
    inner.signals.pages.notify_one();
    inner.signals.tenures.notify_one();
    inner.wake([true; Lane::ALL.len()]);
}

/// Brings a slot to rest and lets it go, unless it is to stay after all.
async fn let_go<S: SlotStore>(inner: Arc<Inner<S>>, tenure: Tenure) {
    let rest = async {
        loop {
            if at_rest(&inner, tenure) != Some(false) {
                return;
            }
            // The writer and the one who settles say nothing, so it is looked at often.
            pause(REST_WAIT).await;
        }
    };
    // What is open for longer may be sent once more by the next owner: the marks say so.
    tokio::time::timeout(inner.options.leave_within, rest).await.unwrap_or_default();
    let leaves = |inner: &Inner<S>| {
        let state = inner.state.lock();
        state.owned(tenure).is_some_and(|owned| owned.phase == Phase::Leaving)
    };
    if !leaves(&inner) {
        return;
    }
    let kept = inner.keep([(tenure.slot, None)].into()).await;
    if let Err(failure) = &kept {
        tracing::warn!(%failure, slot = tenure.slot.0, "the last marks of a slot were not written");
    }
    // Marks that may arrive later say that nothing was sent: then nothing may be sent any more.
    if leaves(&inner) || kept.is_err() {
        inner.coordinator.released(u32::from(tenure.slot.0), tenure.term);
        inner.lose(tenure);
    }
}

/// Whether nothing of a slot that is to leave is on its way; `None` if it is not to leave.
fn at_rest<S: SlotStore>(inner: &Inner<S>, tenure: Tenure) -> Option<bool> {
    let state = inner.state.lock();
    let owned = state.owned(tenure).filter(|owned| owned.phase == Phase::Leaving)?;
    Some(owned.is_idle())
}
