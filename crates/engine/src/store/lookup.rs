//! Answering questions about messages. Reads the disk without holding the state.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::MutexGuard;
use punctual_model::ports::{Found, PendingEntry, PendingPage, PendingQuery, StoreError};
use punctual_model::{MessageId, State as LifeState};

use crate::record;
use crate::store::Store;
use crate::timeline::cursor::Cursor;
use crate::timeline::run::{Run, Stamp};
use crate::timeline::{Standing, State};

impl Store {
    /// The state, and what the runs on its shelf say of these ids: a stamp where one holds the
    /// message. The runs are asked without the lock, and again if the shelf changed meanwhile.
    pub(crate) fn state_and_stamps(
        &self,
        ids: &[MessageId],
    ) -> Result<(MutexGuard<'_, State>, Vec<Option<Stamp>>), StoreError> {
        loop {
            let state = self.state.lock();
            let edition = state.edition;
            let runs: Vec<Option<Arc<Run>>> = ids.iter().map(|id| run_of(&state, id)).collect();
            drop(state);
            let stamp = |(id, run): (&MessageId, Option<Arc<Run>>)| match run {
                Some(run) => run.stamp_of(id.key.sequence),
                None => Ok(None),
            };
            let stamps = ids.iter().zip(runs).map(stamp).collect::<Result<_, _>>()?;
            let state = self.state.lock();
            if state.edition == edition {
                return Ok((state, stamps));
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
        let (state, stamps) = self.state_and_stamps(&[id])?;
        let standing = state.standing(id, stamps.into_iter().next().flatten());
        let in_memory = state.content(id.key.sequence);
        let run = run_of(&state, &id);
        drop(state);
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
