//! Answering questions about messages. Reads the disk without holding a state.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{Found, PendingEntry, PendingPage, PendingQuery, StoreError};
use punctual_model::{MessageId, State as LifeState};

use crate::lanes::PerLane;
use crate::record;
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
        let (states, stamps) = self.states_and_stamps(&[id])?;
        let state = states.of(id.key.sequence.lane());
        let standing = state.standing(id, stamps.into_iter().next().flatten());
        let in_memory = state.content(id.key.sequence);
        let run = run_of(&states, &id);
        drop(states);
        match standing {
            Standing::Unknown => return Ok(None),
            Standing::Past => {
                let delivered = self.logs.contains(id)?;
                return Ok(delivered.then_some(ended(LifeState::Delivered)));
            }
            Standing::In(LifeState::Scheduled) => {}
            Standing::In(state) => return Ok(Some(ended(state))),
        }
        let content = match (in_memory, run) {
            (Some(content), _) => content,
            (None, Some(run)) => read_from(run, id)?,
            (None, None) => return Ok(None),
        };
        let record = record::decode(&content).map_err(StoreError::damaged)?;
        if record.topic != id.topic || record.partition != id.partition {
            return Ok(None);
        }
        let entry = Some(PendingEntry { id, message: record.message });
        Ok(Some(Found { state: LifeState::Scheduled, entry }))
    }

    /// One page of what is pending.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let limit = query.limit;
        let mut pages = Vec::new();
        for (_, track) in self.tracks.iter() {
            let sources = track.state.lock().sources(query.clone());
            pages.push(sources.page()?);
        }
        Ok(merge_pages(pages, limit))
    }
}

fn ended(state: LifeState) -> Found {
    Found { state, entry: None }
}

fn run_of(states: &States<'_>, id: &MessageId) -> Option<Arc<Run>> {
    let sequence = id.key.sequence;
    states.of(sequence.lane()).run_of(sequence).map(|shelved| Arc::clone(&shelved.run))
}

/// One page of what the lanes answered to the same query. Each has everything up to its `next`, so
/// together they have everything up to the least of those.
fn merge_pages(pages: Vec<PendingPage>, limit: usize) -> PendingPage {
    let next = pages.iter().filter_map(|page| page.next).min();
    let mut entries: Vec<PendingEntry> = pages.into_iter().flat_map(|page| page.entries).collect();
    entries.retain(|entry| next.is_none_or(|next| entry.id.key <= next));
    entries.sort_by_key(|entry| entry.id.key);
    if entries.len() <= limit {
        return PendingPage { entries, next };
    }
    entries.truncate(limit);
    let next = entries.last().map(|entry| entry.id.key);
    PendingPage { entries, next }
}

fn read_from(run: Arc<Run>, id: MessageId) -> Result<Bytes, StoreError> {
    let number = run.number;
    let mut cursor = Cursor::seek(run, id.key);
    match cursor.take() {
        Some((key, content)) if key == id.key => Ok(content),
        _ => Err(StoreError::damaged(format_args!("run {number} lacks a message it lists"))),
    }
}
