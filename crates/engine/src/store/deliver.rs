//! The way out of a lane: arm, claim, deliver, settle. A batch is always of one lane.

use std::sync::atomic::Ordering;

use punctual_model::ports::{ArmLimit, Armed, Order, Origin, Refusal, Revised, StoreError};
use punctual_model::{Key, Lane, Timestamp, TopicId};

use crate::options::OutletKind;
use crate::record;
use crate::store::{CommitError, Outcome, Request, Revision, Store};
use crate::timeline::State;
use crate::timeline::merge::Taken;

/// The origin of an entry that came through the near future; runs count from one.
const NEAR: u64 = 0;
/// Bytes that one group of deferred entries takes, and what each has beside its message.
const DEFER_BYTES: usize = 4 << 20;
const DEFER_OVERHEAD: usize = 256;

/// An entry that the outlet has taken.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// Where it stood.
    pub(super) key: Key,
    /// Its topic.
    pub(super) topic: TopicId,
    /// The run it was read from, if it was.
    origin: Option<u64>,
}

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
        state.claim(sequences(batch));
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

    /// Ends everything in `batch`, which the outlet has taken.
    ///
    /// # Errors
    /// Only with another outlet than the own logs, which remember by themselves what they took:
    /// [`StoreError::Full`] or [`StoreError::Busy`] when that cannot be written down now,
    /// [`StoreError::Poisoned`] once the store has stopped.
    pub fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        let Some(lane) = lane_of(batch) else { return Ok(()) };
        if self.options.outlet == OutletKind::Foreign {
            // Not in the line of those who wait for room: whoever settles makes room.
            self.commit_now(Request::Settle(batch.iter().map(settled).collect()))?;
            return Ok(());
        }
        self.end_settled(lane, batch.iter().map(settled));
        self.logs.settled(lane);
        Ok(())
    }

    /// Ends what the outlet has taken.
    pub(super) fn end_settled(
        &self,
        lane: Lane,
        batch: impl ExactSizeIterator<Item = Settled> + Clone,
    ) {
        let mut state = self.tracks.of(lane).state.lock();
        for Settled { key, topic, origin } in batch.clone() {
            state.end_handed(key, topic, origin);
        }
        state.unclaim(batch.map(|settled| settled.key.sequence.get()));
    }

    /// Makes claimed entries that the outlet did not take pending again, each at the time beside it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] or [`StoreError::Full`] while there is no room for them;
    /// [`StoreError::Poisoned`] once the store has stopped.
    pub fn defer(&self, batch: &[(Armed, Timestamp)], now: Timestamp) -> Result<(), StoreError> {
        let Some((first, _)) = batch.first() else { return Ok(()) };
        let lane = first.key.sequence.lane();
        let bytes_max = DEFER_BYTES.min(self.payload_max() / 2);
        let mut rest = batch;
        while !rest.is_empty() {
            if !self.has_room(lane) {
                return Err(StoreError::Busy);
            }
            let mut bytes = 0;
            let fits = |(armed, _): &&(Armed, Timestamp)| {
                bytes += armed.message.weight() + DEFER_OVERHEAD;
                bytes <= bytes_max
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (some, others) = rest.split_at(count);
            self.defer_some(lane, some.to_vec(), now)?;
            rest = others;
        }
        Ok(())
    }

    fn defer_some(
        &self,
        lane: Lane,
        mut batch: Vec<(Armed, Timestamp)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        while !batch.is_empty() {
            let order = |(armed, due): &(Armed, Timestamp)| Order::Replace {
                id: armed.id(),
                expected: armed.key,
                entry: armed.deferred(*due),
            };
            let orders: Vec<Order> = batch.iter().map(order).collect();
            let revision = Revision::of_claimed(&orders, now);
            match self.commit_now(Request::Revise(revision))? {
                Outcome::Revised(Revised::Refused { index, reason }) => {
                    let Some((refused, _)) = batch.get(index) else { return Ok(()) };
                    let (key, topic) = (refused.key, refused.topic);
                    // With its topic everything else of it is gone as well.
                    let gone = reason == Refusal::NotFound;
                    let out = batch.extract_if(.., |(armed, _)| {
                        armed.key == key || (gone && armed.topic == topic)
                    });
                    let out: Vec<Armed> = out.map(|(armed, _)| armed).collect();
                    self.unclaim(lane, &out);
                }
                _ => {
                    let moved: Vec<Armed> = batch.drain(..).map(|(armed, _)| armed).collect();
                    self.unclaim(lane, &moved);
                }
            }
        }
        Ok(())
    }

    /// These are not on their way any more; what has ended of them is let go.
    fn unclaim(&self, lane: Lane, batch: &[Armed]) {
        self.release(batch);
        self.tracks.of(lane).state.lock().unclaim(sequences(batch));
    }

    fn commit_now(&self, request: Request) -> Result<Outcome, StoreError> {
        match self.commit(vec![request]).pop() {
            Some(Ok(outcome)) => Ok(outcome),
            Some(Err(CommitError::Store(error))) => Err(error),
            Some(Err(_)) | None => Err(StoreError::Busy),
        }
    }
}

fn sequences(batch: &[Armed]) -> impl ExactSizeIterator<Item = u64> {
    batch.iter().map(|armed| armed.key.sequence.get())
}

fn settled(armed: &Armed) -> Settled {
    Settled { key: armed.key, topic: armed.topic, origin: origin(armed) }
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
