//! What all nodes share beside the entries: topics, groups and delay levels, as documents in the
//! store of the cluster.
//!
//! Each node has all of it in memory and reads what has changed about every second, so what was done
//! on one node is seen by the others a moment later; whoever changes something, and whoever has to
//! be sure, asks the store first. The rules by which topics and groups are made are those of
//! [`punctual_model::catalogue`].
//!
//! There are no logs here: where a cluster delivers to, messages are read there.

mod shelf;
mod document;
mod tables;
mod change;
mod groups;

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use punctual_model::ports::{
    Delivered, LogBounds, LogPosition, StoreError, Topic, TopicError, Topics,
};
use punctual_model::{
    DelayLevels, MessageId, Partition, Timestamp, TopicId, TopicName, TopicSettings,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use self::change::Changes;
pub use self::groups::SharedGroups;
pub use self::shelf::{REFRESH_INTERVAL, Reader, Shelf, refusal};
use self::tables::Tables;
use crate::store::{Document, Documents};

/// The kind of the documents.
const KIND: &str = "catalogue";

/// What is not known is asked for no more often than this.
const MISS_INTERVAL: Duration = Duration::from_millis(250);
/// How long somebody who asks for what is not known waits for the store.
const MISS_WAIT: Duration = Duration::from_millis(500);
/// How many may wait so at one time; others are told that there is no such topic.
const MISS_WAITERS_MAX: usize = 16;
/// Deleted topics that are remembered as such, so that nobody asks for each of their entries.
const GONE_MAX: usize = 64 << 10;

type Listener = Arc<dyn Fn() + Send + Sync>;

/// Whether topics are still there, for whoever holds entries of them.
pub trait KnownTopics: Send + Sync + 'static {
    /// True for a topic that is known here. False may mean that another node made it a moment ago:
    /// then ask [`known`](Self::known). Never blocks.
    fn is_known(&self, id: TopicId) -> bool;

    /// For each whether it is there, as far as was read about a second ago. One that is not was
    /// deleted for certain, and its number is never given again. Asks the store only for those of
    /// which nothing is known.
    fn known(
        &self,
        ids: Vec<TopicId>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, StoreError>> + Send>>;
}

/// The topics of a cluster.
pub struct SharedTopics {
    changes: Changes,
    reader: Arc<TableReader>,
    /// When the store was last asked for something that was not known.
    missed: Mutex<Option<Instant>>,
    waiting: AtomicUsize,
    gone: Arc<Mutex<HashSet<TopicId>>>,
}

/// Takes in what was read, and tells others.
struct TableReader {
    tables: Arc<RwLock<Tables>>,
    listeners: Mutex<Vec<Listener>>,
    handle: Handle,
}

impl Reader for TableReader {
    fn read(&self, changed: &[Document]) {
        self.tables.write().read(changed);
        for listener in self.listeners.lock().iter().cloned() {
            // Elsewhere, since it may wait for somebody who waits for this read.
            drop(self.handle.spawn_blocking(move || listener()));
        }
    }
}

impl std::fmt::Debug for SharedTopics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedTopics").field("shelf", &self.changes.shelf).finish_non_exhaustive()
    }
}

impl SharedTopics {
    /// Reads all topics and groups there are, and keeps in step from now on.
    ///
    /// # Errors
    /// As the store says; [`StoreError::Damaged`] when a document cannot be read.
    pub async fn open(
        documents: Arc<impl Documents>,
        handle: Handle,
    ) -> Result<Arc<Self>, StoreError> {
        let tables = Arc::new(RwLock::new(Tables::default()));
        let reader = Arc::new(TableReader {
            tables: Arc::clone(&tables),
            listeners: Mutex::default(),
            handle: handle.clone(),
        });
        let taking = Arc::clone(&reader) as Arc<dyn Reader>;
        let shelf = Shelf::new(documents, KIND, taking, handle);
        let changes = Changes { shelf, tables };
        changes.refresh().await?;
        if let Some(name) = changes.tables.read().first_unreadable() {
            let what = format!("the document {name} of the cluster cannot be read");
            return Err(StoreError::damaged(what));
        }
        changes.shelf.keep_in_step();
        Ok(Arc::new(Self {
            changes,
            reader,
            missed: Mutex::default(),
            waiting: AtomicUsize::new(0),
            gone: Arc::default(),
        }))
    }

    /// `listener` is called, on a thread that may block, after topics or groups were changed by
    /// whichever node.
    pub fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.reader.listeners.lock().push(listener);
    }

    /// Looks for changes of other nodes no more.
    pub fn stop(&self) {
        self.changes.shelf.stop();
        self.reader.listeners.lock().clear();
    }

    /// Reads what was changed by other nodes up to now.
    ///
    /// # Errors
    /// As the store says.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.changes.refresh().await
    }

    /// What is found in the tables, or else after a look at the store if the last one was not just
    /// now.
    fn found<T>(&self, find: impl Fn(&Tables) -> Option<T>) -> Option<T> {
        let found = find(&self.changes.tables.read());
        if found.is_some() || !self.may_ask() {
            return found;
        }
        let changes = self.changes.clone();
        // What the store says is told where it is read.
        let _failed = self.wait_anywhere(async move { changes.refresh().await }).is_none();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        find(&self.changes.tables.read())
    }

    /// Whether somebody may ask for what is not known; then it counts as waiting.
    fn may_ask(&self) -> bool {
        let now = Instant::now();
        let mut missed = self.missed.lock();
        let is_due = missed.is_none_or(|missed| now.duration_since(missed) >= MISS_INTERVAL);
        // Those who miss something while a look is under way wait for it too.
        if !is_due && self.waiting.load(Ordering::Acquire) == 0 {
            return false;
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= MISS_WAITERS_MAX {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        *missed = Some(now);
        true
    }

    fn wait<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        self.changes.shelf.wait(work)?
    }

    /// Carries `work` out while this thread waits for a short time, whatever thread it is. `None`
    /// when it takes longer, or on the only thread of a runtime, which cannot wait for itself.
    fn wait_anywhere<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let shelf = self.changes.shelf.clone();
        match Handle::try_current().map(|handle| handle.runtime_flavor()) {
            Err(_none) => shelf.wait_for(work, MISS_WAIT).ok(),
            Ok(RuntimeFlavor::MultiThread) => {
                tokio::task::block_in_place(|| shelf.wait_for(work, MISS_WAIT)).ok()
            }
            Ok(_) => {
                drop(shelf.handle().spawn(work));
                None
            }
        }
    }

    fn check_partition(&self, topic: TopicId, partition: Partition) -> Result<(), TopicError> {
        let topic = self.by_id(topic).ok_or(TopicError::NotFound)?;
        let there = partition.get() < topic.settings.partitions;
        if there { Ok(()) } else { Err(TopicError::NotFound) }
    }
}

impl KnownTopics for SharedTopics {
    fn is_known(&self, id: TopicId) -> bool {
        id == TopicId::TRANSACTIONS || self.changes.tables.read().topics.by_id(id).is_some()
    }

    fn known(
        &self,
        ids: Vec<TopicId>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, StoreError>> + Send>> {
        let is_open = |id: &TopicId| !self.is_known(*id) && !self.gone.lock().contains(id);
        if !ids.iter().any(is_open) {
            let known = ids.iter().map(|id| self.is_known(*id)).collect();
            return Box::pin(std::future::ready(Ok(known)));
        }
        let (changes, gone) = (self.changes.clone(), Arc::clone(&self.gone));
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.changes.shelf.handle().spawn(async move {
            // Nobody waits any more.
            let _unheard = answer.send(certain(&changes, &gone, &ids).await).is_err();
        });
        Box::pin(async move { answered.await.unwrap_or(Err(StoreError::Closed)) })
    }
}

/// For each topic whether it is there. A topic is stored before any entry of it is, so one that a
/// look at the store does not find after an entry of it was met was deleted.
async fn certain(
    changes: &Changes,
    gone: &Mutex<HashSet<TopicId>>,
    ids: &[TopicId],
) -> Result<Vec<bool>, StoreError> {
    changes.refresh().await?;
    let tables = changes.tables.read();
    let is_there =
        |id: &TopicId| *id == TopicId::TRANSACTIONS || tables.topics.by_id(*id).is_some();
    let there: Vec<bool> = ids.iter().map(is_there).collect();
    if let Some(name) = tables.first_unreadable().filter(|_| there.contains(&false)) {
        let what = format!("the document {name} of the cluster cannot be read");
        return Err(StoreError::damaged(what));
    }
    let mut gone = gone.lock();
    if gone.len() >= GONE_MAX {
        gone.clear();
    }
    // A number that was not given yet may be.
    let given = tables.topics.next();
    let missing = ids.iter().zip(&there).filter(|(id, there)| !**there && id.get() < given);
    gone.extend(missing.map(|(id, _)| *id));
    Ok(there)
}

impl Topics for SharedTopics {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        let (changes, name) = (self.changes.clone(), name.clone());
        self.wait(async move { changes.put_topic(name, settings, false).await })
    }

    fn make(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        let known = self.changes.tables.read().topics.by_name(name);
        if let Some(known) = known {
            return Ok(known);
        }
        let (changes, name) = (self.changes.clone(), name.clone());
        self.wait(async move { changes.put_topic(name, settings, true).await })
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        let (changes, name) = (self.changes.clone(), name.clone());
        self.wait(async move { changes.delete_topic(name).await })
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.found(|tables| tables.topics.by_name(name))
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let known = self.changes.tables.read().topics.by_id(id);
        if known.is_some() || id == TopicId::TRANSACTIONS || self.gone.lock().contains(&id) {
            return known;
        }
        self.found(|tables| tables.topics.by_id(id))
    }

    fn is_gone(&self, id: TopicId) -> bool {
        if self.is_known(id) {
            return false;
        }
        let answer = self.wait_anywhere(self.known(vec![id]));
        matches!(answer, Some(Ok(known)) if known == [false])
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.changes.tables.read().topics.list()
    }

    fn read(&self, from: LogPosition, _limit: usize) -> Result<Vec<Delivered>, TopicError> {
        self.check_partition(from.topic, from.partition)?;
        Ok(Vec::new())
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        self.check_partition(topic, partition)?;
        Ok(LogBounds { start: 0, end: 0 })
    }

    fn locate(&self, _id: MessageId) -> Result<Option<Delivered>, TopicError> {
        Ok(None)
    }

    fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        _time: Timestamp,
    ) -> Result<u64, TopicError> {
        self.check_partition(topic, partition)?;
        Ok(0)
    }

    fn levels(&self) -> DelayLevels {
        self.changes.tables.read().topics.levels.clone()
    }

    fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError> {
        let changes = self.changes.clone();
        self.wait(async move { changes.put_levels(levels).await })
    }
}
