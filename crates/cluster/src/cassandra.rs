//! Slots and documents in Cassandra.
//!
//! **Fencing.** Entries are spread over partitions, and Cassandra decides conditions within one
//! only. So a slot is taken by a lightweight transaction on its row; entries are written with a
//! quorum, and *then* the term is read again with a quorum: only if it is still the writer's is the
//! write answered as done. A new owner reads entries after its own term is there, so it sees
//! whatever was answered as done. What was written by an owner that had lost its slot meanwhile was
//! never answered.
//!
//! **All or none.** A group of several steps (a message that moves, names, entries that know each
//! other) is first written down whole, as an intent in the row of the slot, by a lightweight
//! transaction with the term as its condition; then it is carried out. Whoever takes the slot
//! carries out the intent that it finds. New entries that know nothing of each other need none: of
//! a group that was not answered some of them may be there.
//!
//! **Order.** Each write carries a stamp, and of two writes of one cell Cassandra keeps the one with
//! the later stamp. An owner's stamps are below a bound that it has written down, and the next
//! owner's begin past it: whatever a former owner still writes loses against what the present one
//! has written, by whatever clock.
//!
//! Read in the order of the modules.

mod place;
mod calls;
mod schema;
mod statements;
mod tenure;
mod rows;
mod intent;
mod batches;
mod apply;
mod read;
mod listing;
mod counting;
mod purge;
mod documents;
mod trends;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::clock::SystemClock;
use punctual_model::ports::{Forecast, PendingPage, PendingQuery};
use punctual_model::{Key, Lane, MessageId, Timestamp, TopicId};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::types::Consistency as Level;
use scylla::policies::retry::FallthroughRetryPolicy;

use crate::store::{
    Counted, Document, Documents, Failure, Group, Marks, Named, Outcome, Slot, SlotStore, Stored,
    Tenure,
};
use calls::Calls;
use statements::Statements;
use tenure::Holder;

/// The name by which fewer than three copies are allowed.
const REPLICATION: &str = "replication";

/// The name by which answers of less than a quorum are allowed.
const CONSISTENCY: &str = "consistency";

/// What `allow_unsafe` may name.
pub const UNSAFE_SETTINGS: &[&str] = &[REPLICATION, CONSISTENCY];

/// Where Cassandra is and how it is used.
#[derive(Clone)]
pub struct CassandraOptions {
    /// Some of its nodes, as host and port; the others are found by asking these.
    pub endpoints: Vec<String>,
    /// The keyspace, which is made if it is not there.
    pub keyspace: String,
    /// Who asks, where passwords are asked for.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<String>,
    /// How many copies there are, if the keyspace has to be made.
    pub replication: Replication,
    /// How many copies have to answer.
    pub consistency: Consistency,
    /// How long a call may take.
    pub deadline: Duration,
    /// What becomes of messages some time after they have ended.
    pub finished: Finished,
    /// Settings that may be unsafe, by name; see [`UNSAFE_SETTINGS`].
    pub allow_unsafe: Vec<String>,
}

impl CassandraOptions {
    /// Three copies, quorums, ten seconds, and what has ended is deleted.
    #[must_use]
    pub fn new(endpoints: Vec<String>, keyspace: impl Into<String>) -> Self {
        Self {
            endpoints,
            keyspace: keyspace.into(),
            user: None,
            password: None,
            replication: Replication::Simple(3),
            consistency: Consistency::Quorum,
            deadline: Duration::from_secs(10),
            finished: Finished::Delete,
            allow_unsafe: Vec::new(),
        }
    }

    fn allows(&self, setting: &str) -> bool {
        self.allow_unsafe.iter().any(|name| name == setting)
    }

    fn check(&self) -> Result<(), OpenError> {
        if let Some(name) =
            self.allow_unsafe.iter().find(|n| !UNSAFE_SETTINGS.contains(&n.as_str()))
        {
            return Err(OpenError::UnknownSetting(name.clone()));
        }
        if self.endpoints.is_empty() {
            return Err(OpenError::Invalid("no endpoint is named".into()));
        }
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let begins = self.keyspace.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || self.keyspace.len() > 48 || !self.keyspace.bytes().all(legal) {
            return Err(OpenError::Invalid(
                "a keyspace has up to 48 characters of a-z 0-9 _ and begins with a letter".into(),
            ));
        }
        self.replication.check()?;
        if self.consistency == Consistency::One && !self.allows(CONSISTENCY) {
            return Err(OpenError::Unsafe {
                setting: CONSISTENCY,
                value: "one".into(),
                advice: "let a quorum answer",
            });
        }
        Ok(())
    }
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraOptions")
            .field("endpoints", &self.endpoints)
            .field("keyspace", &self.keyspace)
            .field("user", &self.user)
            .field("replication", &self.replication)
            .field("consistency", &self.consistency)
            .field("deadline", &self.deadline)
            .field("finished", &self.finished)
            .field("allow_unsafe", &self.allow_unsafe)
            .finish_non_exhaustive()
    }
}

/// How many copies are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replication {
    /// So many in all, wherever they are.
    Simple(u32),
    /// So many in each of these datacenters.
    Datacenters(Vec<(String, u32)>),
}

impl Replication {
    fn check(&self) -> Result<(), OpenError> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let fine = match self {
            Self::Simple(copies) => *copies > 0,
            Self::Datacenters(all) => {
                !all.is_empty()
                    && all.iter().all(|(name, copies)| {
                        *copies > 0 && !name.is_empty() && name.bytes().all(legal)
                    })
            }
        };
        let wrong =
            || OpenError::Invalid("replication is a number, or a number by datacenter".into());
        if fine { Ok(()) } else { Err(wrong()) }
    }

    fn smallest(&self, consistency: Consistency) -> u32 {
        match self {
            Self::Simple(copies) => *copies,
            Self::Datacenters(all) => {
                Self::count(all.iter().map(|(_, copies)| *copies), consistency)
            }
        }
    }

    /// Over all datacenters where a quorum is, or of the one with the fewest copies.
    fn count(copies: impl Iterator<Item = u32>, consistency: Consistency) -> u32 {
        match consistency {
            Consistency::LocalQuorum => copies.min().unwrap_or(0),
            Consistency::Quorum | Consistency::One => copies.sum(),
        }
    }
}

impl fmt::Display for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(copies) => {
                write!(f, "{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
            }
            Self::Datacenters(all) => {
                f.write_str("{'class': 'NetworkTopologyStrategy'")?;
                for (name, copies) in all {
                    write!(f, ", '{name}': {copies}")?;
                }
                f.write_str("}")
            }
        }
    }
}

/// How many copies have to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// More than half of all.
    #[default]
    Quorum,
    /// More than half of those in the datacenter of the node that is asked. All nodes of the cluster
    /// must be in one then: quorums of two datacenters know nothing of each other.
    LocalQuorum,
    /// One alone: a lost machine loses messages.
    One,
}

impl Consistency {
    fn level(self) -> Level {
        match self {
            Self::Quorum => Level::Quorum,
            Self::LocalQuorum => Level::LocalQuorum,
            Self::One => Level::One,
        }
    }
}

/// What becomes of messages some time after they have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finished {
    /// They are deleted.
    #[default]
    Delete,
    /// They go to the table `archive`, for whoever wants to read them there.
    Archive,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options say something that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// There is no such setting to allow.
    #[error("timeline.allow_unsafe names {0}; it may name replication and consistency")]
    UnknownSetting(String),
    /// A setting could lose messages.
    #[error(
        "Cassandra's {setting} is {value}: {advice}, or name {setting} in timeline.allow_unsafe"
    )]
    Unsafe {
        /// Which one.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        advice: &'static str,
    },
    /// A later version made the tables.
    #[error("the tables have version {found}, which this version does not know")]
    Newer {
        /// The version found.
        found: i32,
    },
    /// It cannot be reached, or refused.
    #[error("Cassandra is unavailable: {0}")]
    Unavailable(String),
}

impl OpenError {
    fn unavailable(error: impl fmt::Display) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Slots and documents in Cassandra. Clones share their connections.
#[derive(Clone)]
pub struct CassandraStore {
    inner: Arc<Inner>,
}

struct Inner {
    calls: Calls,
    statements: Statements,
    /// What this process knows of the slots that it holds.
    holders: Mutex<HashMap<Slot, Arc<Holder>>>,
    clock: SystemClock,
    deadline: Duration,
    finished: Finished,
    /// Where a test holds an owner up between its write and its look at the term.
    #[cfg(test)]
    pauses: Mutex<Option<tests::Pause>>,
}

impl fmt::Debug for CassandraStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraStore").finish_non_exhaustive()
    }
}

impl CassandraStore {
    /// Connects, makes what is missing and checks what is there. To be called within tokio.
    ///
    /// # Errors
    /// [`OpenError`]; only [`OpenError::Unavailable`] may pass by itself.
    pub async fn open(options: CassandraOptions) -> Result<Self, OpenError> {
        options.check()?;
        // The driver repeats nothing by itself: whether a first attempt was carried out must be known.
        let profile = ExecutionProfile::builder()
            .consistency(options.consistency.level())
            .request_timeout(Some(options.deadline / 2))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&options.endpoints)
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(options.deadline)
            .tcp_nodelay(true);
        if let Some(user) = &options.user {
            builder = builder.user(user, options.password.clone().unwrap_or_default());
        }
        let session = builder.build().await.map_err(OpenError::unavailable)?;
        schema::make(&session, &options).await?;
        let statements =
            Statements::prepare(&session, &options.keyspace, options.consistency).await?;
        let inner = Inner {
            calls: Calls::new(session),
            statements,
            holders: Mutex::new(HashMap::new()),
            clock: SystemClock::new(),
            deadline: options.deadline,
            finished: options.finished,
            #[cfg(test)]
            pauses: Mutex::new(None),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Inner {
    /// A call that only reads, with its deadline.
    async fn reading<T>(
        &self,
        call: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unavailable("Cassandra did not answer in time".into())),
        }
    }

    /// A call that changes something, with its deadline.
    async fn writing<T>(
        &self,
        call: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Unsure("Cassandra did not answer in time".into())),
        }
    }
}

impl SlotStore for CassandraStore {
    async fn take(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        self.inner.writing(self.inner.take(tenure)).await
    }

    async fn keep(&self, slots: Vec<(Tenure, Marks, Vec<Counted>)>) -> Result<Vec<bool>, Failure> {
        self.inner.writing(self.inner.keep(slots)).await
    }

    async fn apply(&self, groups: Vec<Group>) -> Result<Vec<Outcome>, Failure> {
        self.inner.writing(self.inner.apply(groups)).await
    }

    async fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> Result<Vec<Stored>, Failure> {
        self.inner.reading(self.inner.page(slot, lane, after, until, limit)).await
    }

    async fn get(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Stored>>, Failure> {
        self.inner.reading(self.inner.get(&ids)).await
    }

    async fn names(
        &self,
        topic: TopicId,
        texts: Vec<Arc<str>>,
    ) -> Result<Vec<Option<Named>>, Failure> {
        self.inner.reading(self.inner.names(topic, &texts)).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, Failure> {
        self.inner.reading(self.inner.pending(&query)).await
    }

    async fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Result<Forecast, Failure> {
        self.inner.reading(self.inner.forecast(topic, &bounds)).await
    }

    async fn counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        self.inner.reading(self.inner.counts(lane)).await
    }

    async fn purge(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Failure> {
        self.inner.writing(self.inner.purge(tenure, before)).await
    }

    async fn is_empty(&self, slot: Slot) -> Result<bool, Failure> {
        self.inner.reading(self.inner.is_empty(slot)).await
    }
}

impl Documents for CassandraStore {
    async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.inner.reading(self.inner.changed_since(kind, revision)).await
    }

    async fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        self.inner.writing(self.inner.put_document(kind, &name, expected, content)).await
    }
}
