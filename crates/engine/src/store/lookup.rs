//! Answering questions about messages. Reads the disk without holding the state.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{Found, PendingEntry, PendingPage, PendingQuery, StoreError};
use punctual_model::{MessageId, State as LifeState};

use crate::record;
use crate::store::Store;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::{Run, Stamp};
use crate::timeline::{Standing, State};

impl Store {
    /// What the runs say of these ids: a stamp where one holds the message.
    pub(crate) fn stamps(&self, ids: &[MessageId]) -> Result<Vec<Option<Stamp>>, StoreError> {
        let state = self.state.lock();
        let runs: Vec<Option<Arc<Run>>> = ids.iter().map(|id| run_of(&state, id)).collect();
        drop(state);
        let pairs = ids.iter().zip(runs);
        pairs
            .map(|(id, run)| match run {
                Some(run) => run.stamp_of(id.key.sequence),
                None => Ok(None),
            })
            .collect()
    }

    /// What is known of each message.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn find(&self, ids: &[MessageId]) -> Result<Vec<Option<Found>>, StoreError> {
        let stamps = self.stamps(ids)?;
        ids.iter().zip(stamps).map(|(id, stamp)| self.find_one(*id, stamp)).collect()
    }

    fn find_one(&self, id: MessageId, stamp: Option<Stamp>) -> Result<Option<Found>, StoreError> {
        let state = self.state.lock();
        let standing = state.standing(id, stamp);
        let in_memory = state.content(id.key.sequence);
        let run = run_of(&state, &id);
        drop(state);
        let state = match standing {
            Standing::Unknown => return Ok(None),
            Standing::Past => {
                let delivered = self.logs.contains(id)?;
                return Ok(delivered.then_some(ended(LifeState::Delivered)));
            }
            Standing::Delivered => return Ok(Some(ended(LifeState::Delivered))),
            Standing::Cancelled => return Ok(Some(ended(LifeState::Cancelled))),
            Standing::Pending => LifeState::Scheduled,
        };
        let content = match (in_memory, run) {
            (Some(content), _) => content,
            (None, Some(run)) => read_from(run, id)?,
            // Its table was written out between the two looks.
            (None, None) => return Err(StoreError::Busy),
        };
        let record = record::decode(&content).map_err(StoreError::damaged)?;
        if record.topic != id.topic || record.partition != id.partition {
            return Ok(None);
        }
        Ok(Some(Found { state, entry: Some(PendingEntry { id, message: record.message }) }))
    }

    /// One page of what is pending.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        let sources = self.state.lock().sources(query);
        sources.page()
    }
}

fn ended(state: LifeState) -> Found {
    Found { state, entry: None }
}

fn run_of(state: &State, id: &MessageId) -> Option<Arc<Run>> {
    state.run_of(id.key.sequence).map(|shelved| Arc::clone(&shelved.run))
}

fn read_from(run: Arc<Run>, id: MessageId) -> Result<Bytes, StoreError> {
    let number = run.number;
    let mut cursor = Cursor::seek(run, id.key);
    match cursor.take() {
        Some((key, content)) if key == id.key => Ok(content),
        _ => Err(StoreError::damaged(format_args!("run {number} lacks a message it lists"))),
    }
}
