//! Documents of one kind, read about every second and whenever somebody needs to be sure.
//!
//! What a node has read of them only ever changes here, by one read after the other and in the order
//! of revisions, so an older state never takes the place of a newer one. Whoever asks for a fresh
//! state waits for a read that began after it asked; however many ask, one read is under way. While
//! the store is away what was read last stays.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::ports::StoreError;
use tokio::runtime::Handle;
use tokio::sync::Mutex as TurnLock;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use crate::store::{Document, Documents, Failure};

/// How often other nodes' changes are looked for.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// How long a thread waits for a change at most; stores have deadlines of their own below it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Reads after a change until its own revision is there; more are left to the next round.
const OWN_READS_MAX: u32 = 4;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Documents`] whose store is not named.
trait AnyDocuments: Send + Sync {
    fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Boxed<'_, Result<(Vec<Document>, u64), Failure>>;

    fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Boxed<'_, Result<Option<u64>, Failure>>;
}

/// Of a store that several share.
struct Of<D>(Arc<D>);

impl<D: Documents> AnyDocuments for Of<D> {
    fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Boxed<'_, Result<(Vec<Document>, u64), Failure>> {
        Box::pin(self.0.changed_since(kind, revision))
    }

    fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Boxed<'_, Result<Option<u64>, Failure>> {
        Box::pin(self.0.put(kind, name, expected, content))
    }
}

/// Who takes in what was read.
pub trait Reader: Send + Sync + 'static {
    /// These documents have changed, in the order of their revisions. Does not block.
    fn read(&self, changed: &[Document]);
}

/// The documents of a kind. Clones are handles of the same.
#[derive(Clone)]
pub struct Shelf {
    inner: Arc<Inner>,
}

struct Inner {
    documents: Box<dyn AnyDocuments>,
    kind: &'static str,
    handle: Handle,
    reader: Arc<dyn Reader>,
    /// How many reads were asked for.
    asked: AtomicU64,
    /// Held by whoever reads.
    turn: TurnLock<Turn>,
    /// Whether the last read failed.
    is_away: AtomicBool,
    keeping: Mutex<Option<AbortHandle>>,
}

/// How far reading is.
#[derive(Default)]
struct Turn {
    revision: u64,
    /// Those who asked up to here have their answer.
    served: u64,
    outcome: Option<Failure>,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("kind", &self.inner.kind).finish_non_exhaustive()
    }
}

impl Shelf {
    /// The documents of that kind, none of which is read yet.
    pub fn new(
        documents: Arc<impl Documents>,
        kind: &'static str,
        reader: Arc<dyn Reader>,
        handle: Handle,
    ) -> Self {
        let inner = Inner {
            documents: Box::new(Of(documents)),
            kind,
            handle,
            reader,
            asked: AtomicU64::new(0),
            turn: TurnLock::default(),
            is_away: AtomicBool::new(false),
            keeping: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads whatever was changed before this was called.
    ///
    /// # Errors
    /// As the store says; then what was read before stays.
    pub async fn refresh(&self) -> Result<(), Failure> {
        self.read_once().await.map(drop)
    }

    /// As [`refresh`](Self::refresh), and answers the revision up to which everything was read.
    async fn read_once(&self) -> Result<u64, Failure> {
        let inner = &self.inner;
        let ticket = inner.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut turn = inner.turn.lock().await;
        if turn.served < ticket {
            let until = inner.asked.load(Ordering::Acquire);
            let read = inner.documents.changed_since(inner.kind, turn.revision).await;
            turn.served = until;
            turn.outcome = match read {
                Ok((mut changed, revision)) => {
                    changed.sort_by_key(|document| document.revision);
                    if !changed.is_empty() {
                        inner.reader.read(&changed);
                    }
                    turn.revision = turn.revision.max(revision);
                    None
                }
                Err(failure) => Some(failure),
            };
            inner.tell(turn.outcome.as_ref());
        }
        match &turn.outcome {
            None => Ok(turn.revision),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// Writes a document, or deletes it, if its revision is still `expected`, and reads it back.
    /// `Ok(false)` when somebody else was first.
    ///
    /// # Errors
    /// As the store says.
    pub async fn put(
        &self,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<bool, Failure> {
        let inner = &self.inner;
        let written = inner.documents.put(inner.kind, name, expected, content).await?;
        let Some(revision) = written else { return Ok(false) };
        for _ in 0..OWN_READS_MAX {
            // It is written: a read that fails changes nothing about that.
            match self.read_once().await {
                Ok(read) if read < revision => {}
                Ok(_) | Err(_) => break,
            }
        }
        Ok(true)
    }

    /// Writes a document that is not there, whether it never was or was deleted. `Ok(false)` when
    /// there is one.
    ///
    /// # Errors
    /// As the store says.
    pub async fn create(&self, name: Arc<str>, content: Bytes) -> Result<bool, Failure> {
        if self.put(Arc::clone(&name), 0, Some(content.clone())).await? {
            return Ok(true);
        }
        // What was deleted is not kept in memory, so to make it again takes a look at everything.
        let (all, _) = self.inner.documents.changed_since(self.inner.kind, 0).await?;
        let found = all.into_iter().find(|document| document.name == name);
        match found {
            Some(Document { revision, content: None, .. }) => {
                self.put(name, revision, Some(content)).await
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Reads about every second from now on, until [`stop`](Self::stop) or until the last handle is
    /// gone.
    pub fn keep_in_step(&self) {
        let weak = Arc::downgrade(&self.inner);
        let task = self.inner.handle.spawn(async move {
            let mut interval = tokio::time::interval(REFRESH_INTERVAL);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval.tick().await;
            loop {
                interval.tick().await;
                let Some(inner) = weak.upgrade() else { return };
                // Told by the read itself.
                let _failed = Self { inner }.refresh().await.is_err();
            }
        });
        if let Some(before) = self.inner.keeping.lock().replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Looks for changes no more.
    pub fn stop(&self) {
        if let Some(task) = self.inner.keeping.lock().take() {
            task.abort();
        }
    }

    /// Carries `work` out on the runtime while this thread waits. Not for threads of the runtime.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it takes too long, [`StoreError::Closed`] at the end of the
    /// runtime. It may be carried out all the same.
    pub fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.wait_for(work, WAIT_MAX)
    }

    /// The same, with a time of one's own.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(super) fn wait_for<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        most: Duration,
    ) -> Result<T, StoreError> {
        use std::sync::mpsc::RecvTimeoutError;

        let (answer, answered) = sync_channel(1);
        self.inner.handle.spawn(async move {
            // Nobody waits any more.
            let _unheard = answer.send(work.await).is_err();
        });
        answered.recv_timeout(most).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                StoreError::Unavailable("the store of the cluster did not answer in time".into())
            }
            RecvTimeoutError::Disconnected => StoreError::Closed,
        })
    }

    /// The runtime that everything is carried out on.
    pub(super) fn handle(&self) -> &Handle {
        &self.inner.handle
    }
}

impl Inner {
    /// Says it once when the store goes away and once when it is back.
    fn tell(&self, failure: Option<&Failure>) {
        let was_away = self.is_away.swap(failure.is_some(), Ordering::AcqRel);
        match failure {
            Some(failure) if !was_away => {
                warn!(kind = self.kind, %failure, "changes of other nodes cannot be seen");
            }
            None if was_away => info!(kind = self.kind, "changes of other nodes are seen again"),
            Some(_) | None => {}
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.keeping.get_mut().take() {
            task.abort();
        }
    }
}

/// What the broker is told of a failure.
#[must_use]
pub fn refusal(failure: Failure) -> StoreError {
    match failure {
        Failure::Unavailable(_) | Failure::Unsure(_) => {
            StoreError::Unavailable(failure.to_string().into())
        }
        Failure::Damaged(what) => StoreError::Damaged(what),
    }
}
