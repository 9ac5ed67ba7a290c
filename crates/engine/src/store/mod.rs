//! The store without its threads: every step is a call, so a test can take them one by one.
//!
//! Locks, in the order they may be taken: `writer`, `checkpoints`, `reader`, `state`. None is held
//! while waiting for somebody outside, and `state` never while waiting for the disk.

mod commit;
mod lookup;
mod deliver;
mod upkeep;
mod recovery;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use punctual_model::ports::{StoreError, Topic, TopicError};
use punctual_model::{MessageId, Sequence, TopicId, TopicName, TopicSettings};

use crate::catalogue::Catalogue;
use crate::disk::Disk;
use crate::journal::change::Draft;
use crate::journal::writer::Writer;
use crate::log::Logs;
use crate::options::Options;
use crate::reserve::Reserve;
use crate::timeline::State;
use crate::timeline::merge::Reader;
use crate::trust::Trust;

pub(crate) use commit::size as commit_size;
pub use recovery::OpenError;
pub use upkeep::{Progress, Upkeep};

/// An open store.
pub struct Store {
    pub(crate) options: Options,
    pub(crate) trust: Trust,
    pub(crate) logs: Logs,
    disk: Arc<dyn Disk>,
    writer: Mutex<Writer>,
    checkpoints: Mutex<upkeep::Kept>,
    reader: Mutex<Reader>,
    state: Mutex<State>,
    /// Told when a table was written out, or the near future has room again.
    room: Condvar,
    catalogue: RwLock<Catalogue>,
    reserve: Reserve,
    listener: RwLock<Option<Arc<dyn Fn() + Send + Sync>>>,
    damaged_blocks: AtomicU64,
    _lock: Box<dyn Send + Sync>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// A change somebody asks for.
#[derive(Debug)]
pub enum Request {
    /// Store these entries.
    Schedule(Draft),
    /// Cancel these messages, with what is known of the logs.
    Cancel(Vec<MessageId>, InLogs),
    /// Make or change a topic.
    PutTopic(TopicName, TopicSettings),
    /// Remove a topic.
    DeleteTopic(TopicName),
}

/// What a cancel knows of messages that ended long ago.
#[derive(Debug)]
pub enum InLogs {
    /// Nothing: if the logs have to be asked, the cancel is refused with
    /// [`CommitError::AskLogs`], and nothing of it was done.
    Unknown,
    /// Whether the logs hold each of those that had ended; see [`Store::past_in_logs`].
    Known(HashMap<MessageId, bool>),
}

/// What became of a change.
#[derive(Debug)]
pub enum Outcome {
    /// The entries have the numbers from this one on.
    Scheduled(Sequence),
    /// What each cancel came to.
    Cancelled(Vec<punctual_model::ports::CancelOutcome>),
    /// The topic as it is now.
    Topic(Arc<Topic>),
    /// Whether there was such a topic.
    Deleted(bool),
}

impl Store {
    /// The topics.
    #[must_use]
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.catalogue.read().list()
    }

    /// The topic of that name.
    #[must_use]
    pub fn topic_by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.catalogue.read().by_name(name)
    }

    /// The topic of that number.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.catalogue.read().by_id(id)
    }

    /// Pending entries of each topic that has any.
    #[must_use]
    pub fn counts(&self) -> Vec<(TopicId, u64)> {
        let state = self.state.lock();
        state.counts.iter().filter(|(_, n)| **n > 0).map(|(&topic, &n)| (topic, n)).collect()
    }

    /// The topic logs.
    #[must_use]
    pub const fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Calls `listener` whenever something is accepted that is due before what was armed.
    pub fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        *self.listener.write() = Some(listener);
    }

    /// Blocks of runs that could not be read since the start.
    #[must_use]
    pub fn damaged_blocks(&self) -> u64 {
        self.damaged_blocks.load(Ordering::Relaxed)
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.reserve.is_spent()
    }

    /// The largest group the journal takes at once.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        self.writer.lock().payload_max()
    }

    /// Whether a table waits to be written out.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.state.lock().frozen.is_some()
    }

    /// Does `work`; on a full disk once more with the reserve given up.
    fn with_reserve<T>(
        &self,
        mut work: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match work() {
            Err(StoreError::Full) => {
                let freed = self.reserve.spend().map_err(|e| self.trust.lose("reserve", e))?;
                if freed { work() } else { Err(StoreError::Full) }
            }
            Err(StoreError::Poisoned(why)) => Err(self.trust.lose("log", why)),
            outcome => outcome,
        }
    }
}

/// The refusal of a topic call, from a refusal of the store.
pub(crate) fn topic_refusal(error: CommitError) -> TopicError {
    match error {
        CommitError::Topic(error) => error,
        CommitError::Store(error) => TopicError::Store(error),
        CommitError::AskLogs(_) => TopicError::Store(StoreError::Busy),
    }
}

/// How a change is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The topic call makes no sense.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The logs have to be asked about some of these messages first.
    #[error("the logs have to be asked first")]
    AskLogs(Vec<MessageId>),
}
