//! Slots and documents in MySQL or MariaDB.
//!
//! What must hold: a group is in one transaction, which locks the row of its slot in share mode and
//! reads its term there; a take-over changes that row and so waits for every transaction under way. A
//! message stands in one row, clustered by slot, lane and key; its row stays until it is forgotten.
//! No statement walks over more rows than it was asked for, but for rows that have ended; a listing
//! walks over other topics' rows of the same hours too, a bounded number for each call.
//!
//! The tables and what they are for: `migrations/mysql`. Statements are sent as text, several in one
//! packet, because the time of a transaction is that of its round trips; values are numbers and
//! hexadecimal digits, so nothing has to be quoted.

mod options;
mod settings;
mod schema;
mod line;
mod script;
mod row;
mod apply;
mod slots;
mod hours;
mod read;
mod walk;
mod listing;
mod counts;
mod purge;
mod documents;
mod trends;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_model::ports::{Forecast, PendingPage, PendingQuery};
use punctual_model::{Key, Lane, MessageId, Timestamp, TopicId};
use sqlx::MySqlPool;

use crate::store::{
    Counted, Document, Documents, Failure, Group, Marks, Named, Outcome, Slot, SlotStore, Stored,
    Tenure,
};

use hours::Hours;
use settings::Facts;

pub use options::{Finished, MysqlOptions, OpenError};
pub use settings::UNSAFE_SETTINGS;

/// Slots and documents in one database. Clones share its connections.
#[derive(Clone)]
pub struct MysqlStore {
    pool: MySqlPool,
    deadline: Duration,
    finished: Finished,
    packet_bytes: usize,
    ends_idle_transactions: bool,
    hours: Arc<Hours>,
}

impl MysqlStore {
    /// Connects, looks at the settings of the server, and brings the tables up to date. Several nodes
    /// may do so at once.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong and what to do about it.
    pub async fn open(options: MysqlOptions) -> Result<Self, OpenError> {
        settings::check_names(&options.allow_unsafe)?;
        let hours = Arc::new(Hours::default());
        let pool = options.pool(&hours)?;
        let result = Self::prepare(&pool, &options).await;
        match result {
            Ok(Facts { packet_bytes, ends_idle_transactions }) => {
                let MysqlOptions { deadline, finished, .. } = options;
                Ok(Self { pool, deadline, finished, packet_bytes, ends_idle_transactions, hours })
            }
            Err(error) => {
                pool.close().await;
                Err(error)
            }
        }
    }

    async fn prepare(pool: &MySqlPool, options: &MysqlOptions) -> Result<Facts, OpenError> {
        let refused = |error| options::unconnected(error, pool);
        let mut connection = pool.acquire().await.map_err(refused)?;
        let facts = settings::check(&mut connection, options).await?;
        schema::migrate(&mut connection).await?;
        Ok(facts)
    }

    /// Waits for calls under way and closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore").field("finished", &self.finished).finish_non_exhaustive()
    }
}

impl SlotStore for MysqlStore {
    async fn take(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        self.take_slot(tenure).await
    }

    async fn keep(&self, slots: Vec<(Tenure, Marks, Vec<Counted>)>) -> Result<Vec<bool>, Failure> {
        self.keep_slots(&slots).await
    }

    async fn apply(&self, groups: Vec<Group>) -> Result<Vec<Outcome>, Failure> {
        self.apply_groups(&groups).await
    }

    async fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> Result<Vec<Stored>, Failure> {
        self.read_page(read::PageQuery { slot, lane, after, until, limit: limit.0 }, limit.1).await
    }

    async fn get(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Stored>>, Failure> {
        self.read_messages(&ids).await
    }

    async fn names(
        &self,
        topic: TopicId,
        texts: Vec<Arc<str>>,
    ) -> Result<Vec<Option<Named>>, Failure> {
        self.read_names(topic, &texts).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, Failure> {
        self.list_pending(&query).await
    }

    async fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Result<Forecast, Failure> {
        self.read_forecast(topic, &bounds).await
    }

    async fn counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        self.read_counts(lane).await
    }

    async fn purge(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Failure> {
        self.purge_slot(tenure, before).await
    }

    async fn is_empty(&self, slot: Slot) -> Result<bool, Failure> {
        self.is_slot_empty(slot).await
    }
}

impl Documents for MysqlStore {
    async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.read_changes(kind, revision).await
    }

    async fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        self.put_document(documents::Put { kind, name, expected, content }).await
    }
}
