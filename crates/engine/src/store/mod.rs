//! The store without its threads: every step is a call, so a test can take them one by one.
//!
//! What is pending lies in lanes, each with locks of its own, so that neither waits for the other.
//!
//! Locks, in the order they may be taken: `writer`, `checkpoints`, the `reader` of a lane, the
//! `state` of a lane (of two states, that of the messages first), `groups`. None is held while waiting for
//! somebody outside, and a `state` never while waiting for the disk.

mod track;
mod commit;
mod revise;
mod append;
mod decide;
mod places;
mod ids;
mod forecast;
mod lookup;
mod deliver;
mod groups;
mod upkeep;
mod format;
mod recovery;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use punctual_model::catalogue::Catalogue;
use punctual_model::group::{Group, GroupChange, GroupId, GroupName, GroupSettings, Start};
use punctual_model::ports::{
    AppendError, Appended, GroupError, LogPosition, SliceError, StoreError, Topic, TopicError,
};
use punctual_model::{
    DelayLevels, Lane, MessageId, Sequence, Timestamp, TopicId, TopicName, TopicSettings,
};

use crate::disk::Disk;
use crate::groups::Groups;
use crate::ids::Ids;
use crate::journal::change::Draft;
use crate::journal::writer::Writer;
use crate::lanes::PerLane;
use crate::log::Logs;
use crate::options::Options;
use crate::reserve::Reserve;
use crate::store::track::Track;
use crate::trust::Trust;

pub use append::Appending;
pub(crate) use commit::size as commit_size;
pub use deliver::Settled;
pub(crate) use lookup::pending_entry;
pub use recovery::OpenError;
pub use revise::Revision;
pub use upkeep::{Progress, Upkeep};

type Listener = Arc<dyn Fn(Lane) + Send + Sync>;

/// An open store.
pub struct Store {
    pub(crate) options: Options,
    pub(crate) trust: Trust,
    pub(crate) logs: Logs,
    disk: Arc<dyn Disk>,
    writer: Mutex<Writer>,
    checkpoints: Mutex<upkeep::Kept>,
    tracks: PerLane<Track>,
    /// The number of the next run, of whichever lane.
    next_run: AtomicU64,
    /// Tables that wait to be written out.
    frozen: AtomicUsize,
    catalogue: RwLock<Catalogue>,
    /// Own ids, and where changed messages stand. Never locked while a state is.
    ids: RwLock<Ids>,
    /// What time it was when somebody first told.
    opened: OnceLock<Timestamp>,
    /// First sequences of messages that the present commit moves.
    changing: Mutex<HashSet<Sequence>>,
    /// The last lock to be taken.
    groups: Mutex<Groups>,
    reserve: Reserve,
    listener: RwLock<Option<Listener>>,
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
    /// Store these entries, of one lane.
    Schedule(Draft),
    /// Carry out these orders together.
    Revise(Revision),
    /// Change the delay levels.
    PutLevels(DelayLevels),
    /// Cancel these messages, with what is known of the logs.
    Cancel(Vec<MessageId>, InLogs),
    /// Make or change a topic.
    PutTopic(TopicName, TopicSettings),
    /// Remove a topic.
    DeleteTopic(TopicName),
    /// Make or change a group; the last says where a new one starts.
    PutGroup(TopicId, GroupName, GroupSettings, Start),
    /// Remove a group.
    DeleteGroup(GroupId),
    /// Change the progress of groups, and with it store these entries.
    Progress(Vec<GroupChange>, Option<Draft>),
    /// Append a batch to a log, and store what was taken out of it.
    Append(Box<Appending>),
    /// Take everything before this off a log.
    Trim(LogPosition),
    /// Another outlet has taken these, all of one lane.
    Settle(Vec<Settled>),
}

impl Request {
    /// The lane in whose line it waits: that of its entries, otherwise that of the messages.
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::Schedule(draft) | Self::Progress(_, Some(draft)) => draft.lane,
            Self::Progress(_, None) => Lane::Retry,
            Self::Settle(settled) => match settled.as_slice() {
                [first, ..] => first.key.sequence.lane(),
                [] => Lane::Message,
            },
            Self::Revise(revision) => revision.lane(),
            Self::PutLevels(_)
            | Self::Cancel(..)
            | Self::PutTopic(..)
            | Self::DeleteTopic(_)
            | Self::PutGroup(..)
            | Self::DeleteGroup(_)
            | Self::Append(_)
            | Self::Trim(_) => Lane::Message,
        }
    }

    /// Whether it brings entries, for which there has to be memory.
    pub(crate) const fn takes_room(&self) -> bool {
        match self {
            Self::Schedule(_) | Self::Progress(_, Some(_)) => true,
            Self::Revise(revision) => revision.takes_room(),
            Self::Append(appending) => appending.takes_room(),
            _ => false,
        }
    }

    /// Whether it brings messages, which are refused on a full disk.
    pub(crate) const fn brings_messages(&self) -> bool {
        self.takes_room() || matches!(self, Self::Append(_))
    }

    /// Whether it has to be a group of its own: what it comes to depends on the changes before it.
    pub(crate) const fn is_alone(&self) -> bool {
        match self {
            Self::PutTopic(..)
            | Self::DeleteTopic(_)
            | Self::PutGroup(..)
            | Self::DeleteGroup(_) => true,
            Self::Schedule(_)
            | Self::Revise(_)
            | Self::PutLevels(_)
            | Self::Cancel(..)
            | Self::Progress(..)
            | Self::Append(_)
            | Self::Trim(_)
            | Self::Settle(_) => false,
        }
    }
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
    /// Whether there was such a topic or group.
    Deleted(bool),
    /// The group as it is now.
    Group(Arc<Group>),
    /// What became of the orders.
    Revised(punctual_model::ports::Revised),
    /// The levels are as asked for.
    Levels,
    /// Applied; the entries, if there were any, have the numbers from this one on.
    Progressed(Option<Sequence>),
    /// Where the batch went.
    Appended(Appended),
    /// Where the log starts now.
    Trimmed(u64),
    /// They have ended.
    Settled,
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
        let mut counts: HashMap<TopicId, u64> = HashMap::new();
        for (topic, count) in Lane::ALL.into_iter().flat_map(|lane| self.counts_in(lane)) {
            *counts.entry(topic).or_default() += count;
        }
        counts.into_iter().collect()
    }

    /// Pending entries of each topic that has any in `lane`.
    #[must_use]
    pub fn counts_in(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        let state = self.tracks.of(lane).state.lock();
        state.counts.iter().filter(|(_, n)| **n > 0).map(|(&topic, &n)| (topic, n)).collect()
    }

    /// Entries in the tables, those that have ended lately among them, and the bytes they take.
    #[must_use]
    pub fn tables_size(&self) -> (usize, usize) {
        let mut size = (0, 0);
        for lane in Lane::ALL {
            let state = self.tracks.of(lane).state.lock();
            for tabled in std::iter::once(&state.active).chain(&state.frozen) {
                size = (size.0 + tabled.table.len(), size.1 + tabled.table.bytes());
            }
        }
        size
    }

    /// The delay levels of topics that have none of their own.
    #[must_use]
    pub fn levels(&self) -> DelayLevels {
        self.catalogue.read().levels.clone()
    }

    /// How many own ids and moves are known, and the bytes of memory that takes.
    #[must_use]
    pub fn ids_size(&self) -> (u64, usize) {
        let table = self.ids.read();
        (table.entries(), table.memory_bytes())
    }

    /// The topic logs.
    #[must_use]
    pub const fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Calls `listener` whenever something is accepted that is due before what was armed in its
    /// lane.
    pub fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
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
        self.frozen.load(Ordering::Acquire) > 0
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
        CommitError::Group(_)
        | CommitError::Append(_)
        | CommitError::Slice(_)
        | CommitError::AskLogs(_)
        | CommitError::Later(_) => TopicError::Store(StoreError::Busy),
    }
}

/// How a change is refused.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The topic call makes no sense.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The group call makes no sense.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The batch is not appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log does not reach that far.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// It has to do with something that the same group changes: it comes again in the next one.
    #[error("a message is being changed")]
    Later(Box<Request>),
    /// The logs have to be asked about some of these messages first.
    #[error("the logs have to be asked first")]
    AskLogs(Vec<MessageId>),
}
