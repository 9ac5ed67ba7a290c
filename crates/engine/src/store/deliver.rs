//! The way out of a lane: arm, claim, deliver, settle. A batch is always of one lane.

use std::sync::atomic::Ordering;

use punctual_model::ports::{ArmLimit, Armed, Origin, StoreError};
use punctual_model::{Lane, Timestamp};

use crate::record;
use crate::store::Store;
use crate::timeline::State;
use crate::timeline::merge::Taken;

/// The origin of an entry that came through the near future; runs count from one.
const NEAR: u64 = 0;

impl Store {
    /// The next entries of a lane due before `until`.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] once the store has stopped.
    pub fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        self.trust.check()?;
        let track = self.tracks.of(lane);
        let mut reader = track.reader.lock();
        let changes = {
            let mut state = track.state.lock();
            state.look_ahead(until, self.options.horizon);
            state.shrink(track.near_bytes);
            std::mem::take(&mut state.changes)
        };
        if !changes.is_empty() {
            reader.follow(changes);
        }
        let taken = loop {
            let damaged = reader.fill(until, limit);
            let mut state = track.state.lock();
            self.note_damage(&mut state, damaged);
            let waiting = reader.waiting();
            let taken = reader.hand_out(&mut state, until, limit);
            // All that was read may have ended since. To answer nothing would say that nothing
            // follows, so more is read.
            if !taken.is_empty() || reader.waiting() == waiting {
                break taken;
            }
        };
        Ok(taken.into_iter().filter_map(armed).collect())
    }

    /// When the first entry of a lane is due that was not handed out yet.
    #[must_use]
    pub fn next_due(&self, lane: Lane) -> Option<Timestamp> {
        let track = self.tracks.of(lane);
        let mut reader = track.reader.lock();
        let (changes, in_memory) = {
            let mut state = track.state.lock();
            (std::mem::take(&mut state.changes), state.next_due())
        };
        reader.follow(changes);
        let first = in_memory.into_iter().chain(reader.next_due()).min();
        first.filter(|due| !due.is_parked())
    }

    fn note_damage(&self, state: &mut State, damaged: Vec<(u64, usize)>) {
        for (number, block) in damaged {
            self.damaged_blocks.fetch_add(1, Ordering::Relaxed);
            tracing::error!(run = number, block, "a block cannot be read; its messages wait there");
            if let Some(shelved) = state.runs.get_mut(&number)
                && let Some(at) = shelved.run.blocks.get(block)
            {
                let first = at.first;
                let known = shelved.damaged_from.unwrap_or(first);
                shelved.damaged_from = Some(known.min(first));
            }
        }
    }

    /// Takes out of `batch` what was cancelled; the rest is on its way.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] once the store has stopped.
    pub fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        self.trust.check()?;
        let Some(lane) = lane_of(batch) else { return Ok(()) };
        let mut state = self.tracks.of(lane).state.lock();
        batch.retain(|armed| {
            let withdrawn = state.is_withdrawn(armed.key.sequence, armed.topic);
            if withdrawn {
                state.end_handed(armed.key, armed.topic, origin(armed));
            }
            !withdrawn
        });
        state.set_in_flight(batch.iter().map(|armed| armed.key.sequence.get()).collect());
        Ok(())
    }

    /// Appends the batch to the logs.
    ///
    /// # Errors
    /// [`StoreError::Full`] when even the reserve is used up; [`StoreError::Poisoned`] otherwise.
    pub fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<(), StoreError> {
        self.trust.check()?;
        self.with_reserve(|| self.logs.deliver(batch, now)).map(drop)
    }

    /// Ends what the caller has been given and nobody will claim: it was replaced or cancelled.
    pub fn release(&self, batch: &[Armed]) {
        for armed in batch {
            let mut state = self.tracks.of(armed.key.sequence.lane()).state.lock();
            if state.is_withdrawn(armed.key.sequence, armed.topic) {
                state.end_handed(armed.key, armed.topic, origin(armed));
            }
        }
    }

    /// Ends everything in `batch`.
    pub fn settle(&self, batch: &[Armed]) {
        let Some(lane) = lane_of(batch) else { return };
        let mut state = self.tracks.of(lane).state.lock();
        for armed in batch {
            state.end_handed(armed.key, armed.topic, origin(armed));
        }
        state.set_in_flight(Vec::new());
        drop(state);
        self.logs.settled(lane);
    }
}

/// The lane of a batch; one without entries has none, and asks for nothing.
fn lane_of(batch: &[Armed]) -> Option<Lane> {
    let lane = batch.first()?.key.sequence.lane();
    debug_assert!(batch.iter().all(|armed| armed.key.sequence.lane() == lane), "all of one lane");
    Some(lane)
}

fn origin(armed: &Armed) -> Option<u64> {
    (armed.origin.0 != NEAR).then_some(armed.origin.0)
}

fn armed(taken: Taken) -> Option<Armed> {
    let record = record::decode(&taken.content).ok()?;
    Some(Armed {
        key: taken.key,
        topic: record.topic,
        partition: record.partition,
        basis: record.basis,
        message: record.message,
        extra: record.extra,
        origin: Origin(taken.run.unwrap_or(NEAR)),
    })
}
