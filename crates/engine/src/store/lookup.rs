//! Answering questions about messages. Reads the disk without holding a state.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{
    Delivered, Found, PendingEntry, PendingPage, PendingQuery, StoreError, TopicError,
};
use punctual_model::{Key, MessageId, State as LifeState};

use crate::lanes::PerLane;
use crate::log::Wanted;
use crate::options::OutletKind;
use crate::record::{self, Record};
use crate::store::Store;
use crate::store::track::States;
use crate::timeline::Standing;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::{Run, Stamp};

impl Store {
    /// The states of the lanes of these ids, and what the runs on their shelves say of them: a
    /// stamp where one holds the message. The runs are asked without a lock, and again if a shelf
    /// changed meanwhile.
    pub(crate) fn states_and_stamps(
        &self,
        ids: &[MessageId],
    ) -> Result<(States<'_>, Vec<Option<Stamp>>), StoreError> {
        let mut named: PerLane<bool> = PerLane::default();
        for id in ids {
            *named.of_mut(id.key.sequence.lane()) = true;
        }
        loop {
            let states = States::lock(&self.tracks, named);
            let editions = states.editions();
            let runs: Vec<Option<Arc<Run>>> = ids.iter().map(|id| run_of(&states, id)).collect();
            drop(states);
            let stamp = |(id, run): (&MessageId, Option<Arc<Run>>)| match run {
                Some(run) => run.stamp_of(id.key.sequence),
                None => Ok(None),
            };
            let stamps = ids.iter().zip(runs).map(stamp).collect::<Result<_, _>>()?;
            let states = States::lock(&self.tracks, named);
            if states.editions() == editions {
                return Ok((states, stamps));
            }
        }
    }

    /// What is known of each message.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn find(&self, ids: &[MessageId]) -> Result<Vec<Option<Found>>, StoreError> {
        ids.iter().map(|id| self.find_one(*id)).collect()
    }

    fn find_one(&self, id: MessageId) -> Result<Option<Found>, StoreError> {
        loop {
            let (place, standing) = self.stands(id)?;
            match standing {
                Standing::Unknown => return Ok(None),
                Standing::Past => {
                    let delivered = self.was_delivered(wanted(id, place))?;
                    return Ok(delivered.then_some(ended(LifeState::Delivered)));
                }
                Standing::In(LifeState::Scheduled) => {}
                Standing::In(state) => return Ok(Some(ended(state))),
            }
            // It may have gone from there in the meantime.
            let Some(content) = self.content(place)? else { continue };
            let record = record::decode(&content).map_err(StoreError::damaged)?;
            let entry = pending_entry(place.key, record);
            if entry.id != id {
                return Ok(None);
            }
            return Ok(Some(Found { state: entry.state(), entry: Some(entry) }));
        }
    }

    /// Whether a message that ended so long ago that memory does not know it was delivered: the
    /// logs tell. With another outlet there is nothing that could: what was due and is neither
    /// pending nor known to be cancelled was.
    pub(super) fn was_delivered(&self, wanted: Wanted) -> Result<bool, StoreError> {
        Ok(self.is_settled_past(wanted) || self.logs.contains(wanted)?)
    }

    /// Whether it had its turn, for another outlet than the logs.
    pub(super) fn is_settled_past(&self, wanted: Wanted) -> bool {
        let lane = wanted.id.key.sequence.lane();
        self.options.outlet == OutletKind::Foreign
            && wanted.since < self.tracks.of(lane).state.lock().armed_until
    }

    /// The record of the entry at `place`; `None` when it is neither in memory nor in a run.
    fn content(&self, place: MessageId) -> Result<Option<Bytes>, StoreError> {
        let lane = place.key.sequence.lane();
        let state = self.tracks.of(lane).state.lock();
        if let Some(content) = state.content(place.key.sequence) {
            return Ok(Some(content));
        }
        let run = state.run_of(place.key.sequence).map(|shelved| Arc::clone(&shelved.run));
        drop(state);
        run.map(|run| read_from(run, place)).transpose()
    }

    /// The delivered message of that id, while the log still holds it.
    ///
    /// # Errors
    /// [`TopicError::Store`] for a damaged log.
    pub fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        let place = self.places(&[id])?.pop().unwrap_or(id);
        self.logs.locate(wanted(id, place))
    }

    /// One page of what is pending.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let sources = self.tracks.of(query.lane).state.lock().sources(query);
        sources.page()
    }
}

/// A message that was delivered for the time at which it stands, or for an earlier one.
pub(super) fn wanted(id: MessageId, place: MessageId) -> Wanted {
    Wanted { id, since: id.key.due.min(place.key.due) }
}

fn ended(state: LifeState) -> Found {
    Found { state, entry: None }
}

fn run_of(states: &States<'_>, id: &MessageId) -> Option<Arc<Run>> {
    let sequence = id.key.sequence;
    states.of(sequence.lane()).run_of(sequence).map(|shelved| Arc::clone(&shelved.run))
}

/// A pending message as people see it, standing at `key`.
pub(crate) fn pending_entry(key: Key, record: Record) -> PendingEntry {
    let Record { topic, partition, basis, message, extra } = record;
    let changed = extra.as_ref().and_then(|extra| extra.changed);
    let first = changed.map_or(key, |changed| changed.first);
    PendingEntry { id: MessageId { key: first, topic, partition }, key, basis, message, extra }
}

fn read_from(run: Arc<Run>, id: MessageId) -> Result<Bytes, StoreError> {
    let number = run.number;
    let mut cursor = Cursor::seek(run, id.key);
    match cursor.take() {
        Some((key, content)) if key == id.key => Ok(content),
        _ => Err(StoreError::damaged(format_args!("run {number} lacks a message it lists"))),
    }
}
