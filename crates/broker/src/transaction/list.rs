//! Looking at transactions: one, or a page of them.

use punctual_model::ports::{PendingQuery, StoreError, Timeline};
use punctual_model::{Key, Lane, MessageId, Timestamp, TopicId, limits};

use super::desk::{Desk, Inner};
use super::record::Stored;
use super::{HalfRef, Transaction, TransactionPage, TransactionQuery, TransactionState};

/// Transactions looked at for one page.
const LOOKED_AT_MAX: usize = 10_000;
/// Messages named by one page; the last transaction may pass it.
const NAMED_MAX: usize = limits::BATCH_MESSAGES_MAX;

impl<T: Timeline> Desk<T> {
    /// The transaction, while it is known: until 24 hours after its decision.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get(&self, id: MessageId) -> Result<Option<Transaction>, StoreError> {
        Ok(self.inner.load(id).await?.map(|stored| self.inner.shown(&stored)))
    }

    /// One page of transactions. Those that change while pages are read may be missed or come twice.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self, query: TransactionQuery) -> Result<TransactionPage, StoreError> {
        self.list_where(query, |_| true).await
    }

    /// The same without those that are not `wanted`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list_where(
        &self,
        query: TransactionQuery,
        wanted: impl Fn(&Transaction) -> bool,
    ) -> Result<TransactionPage, StoreError> {
        let mut page = TransactionPage { transactions: Vec::new(), next: query.after };
        let (mut looked_at, mut named) = (0, 0);
        while looked_at < LOOKED_AT_MAX
            && named < NAMED_MAX
            && page.transactions.len() < query.limit
        {
            let pending = self.inner.timeline.pending(pending_query(&query, page.next)).await?;
            page.next = pending.next;
            looked_at += pending.entries.len();
            for entry in &pending.entries {
                let stored = Stored::of_pending(entry)
                    .filter(|stored| query.state.is_none_or(|state| stored.record.state == state));
                let Some(stored) = stored else { continue };
                named += stored.halves.len();
                let shown = self.inner.shown(&stored);
                if !wanted(&shown) {
                    continue;
                }
                page.transactions.push(shown);
                if page.transactions.len() >= query.limit || named >= NAMED_MAX {
                    let last = pending.entries.last().map(|last| last.key);
                    if last != Some(entry.key) {
                        page.next = Some(entry.key);
                    }
                    return Ok(page);
                }
            }
            if page.next.is_none() {
                break;
            }
        }
        Ok(page)
    }
}

/// The timeline's part of a query. Only unresolved ones stand where nothing falls due.
fn pending_query(query: &TransactionQuery, after: Option<Key>) -> PendingQuery {
    let (from, to) = match query.state {
        None => (Timestamp::MIN, Timestamp::MAX),
        Some(TransactionState::Unresolved) => (Timestamp::PREPARED, Timestamp::MAX),
        Some(_) => (Timestamp::MIN, Timestamp::PREPARED),
    };
    let key = query.producer_group.as_ref();
    PendingQuery {
        topic: TopicId::TRANSACTIONS,
        lane: Lane::Retry,
        from,
        to,
        after,
        key: key.map(|group| group.as_str().to_owned().into()),
        key_prefix: None,
        limit: query.limit.clamp(1, limits::PAGE_MESSAGES_MAX),
    }
}

impl<T: Timeline> Inner<T> {
    /// The transaction as it is shown.
    pub(super) fn shown(&self, stored: &Stored) -> Transaction {
        let record = &stored.record;
        let half = |id: &MessageId| {
            let topic = self.topics.by_id(id.topic).map(|topic| topic.name.clone());
            HalfRef { topic, id: *id }
        };
        let next_check = match record.ready_since {
            _ if record.state != TransactionState::Prepared => None,
            Some(since) => Some(since),
            None => Some(stored.key.due).filter(|_| record.checks_sent < record.policy.max),
        };
        Transaction {
            id: stored.id,
            producer_group: record.producer_group.clone(),
            state: record.state,
            created: record.created,
            decided: record.decided,
            checks_sent: record.checks_sent,
            policy: record.policy,
            url: record.url.clone(),
            next_check,
            messages: stored.halves.iter().map(half).collect(),
        }
    }
}
