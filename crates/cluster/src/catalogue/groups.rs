//! The groups of a cluster: their settings and topics, and no progress, since their messages are
//! read where the cluster delivers to.
//!
//! What failed there comes back through [`apply`](Groups::apply): its entries go on the timeline,
//! in the retry lane.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_model::group::{
    Group, GroupChange, GroupId, GroupName, GroupSettings, Placed, Source, Standing, Start,
};
use punctual_model::ports::{
    Done, GroupError, Groups, OnConflict, Order, Pulled, Revised, StoreError, Timeline, TopicError,
};
use punctual_model::{Entry, Lane, MessageId, TopicId};

use super::SharedTopics;

/// The groups of a cluster.
pub struct SharedGroups<T> {
    topics: Arc<SharedTopics>,
    timeline: Arc<T>,
}

impl<T> std::fmt::Debug for SharedGroups<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedGroups").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl<T: Timeline> SharedGroups<T> {
    /// The groups of these topics; what failed waits on that timeline.
    #[must_use]
    pub fn new(topics: Arc<SharedTopics>, timeline: Arc<T>) -> Self {
        Self { topics, timeline }
    }

    fn by_id(&self, id: GroupId) -> Option<Arc<Group>> {
        self.topics.changes.tables.read().groups.by_id(id)
    }
}

impl<T: Timeline> Groups for SharedGroups<T> {
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        _start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        let (changes, name) = (self.topics.changes.clone(), name.clone());
        self.topics.wait(async move { changes.put_group(topic, name, settings).await })
    }

    fn delete(&self, id: GroupId) -> Result<bool, GroupError> {
        let changes = self.topics.changes.clone();
        self.topics.wait(async move { changes.delete_group(id).await })
    }

    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.topics.found(|tables| tables.groups.by_name(topic, name))
    }

    fn list(&self) -> Vec<Arc<Group>> {
        self.topics.changes.tables.read().groups.list()
    }

    fn pull(&self, source: Source, from: u64, _limit: usize) -> Result<Pulled, TopicError> {
        self.by_id(source.group).ok_or(TopicError::NotFound)?;
        Ok(Pulled { messages: Vec::new(), next: from })
    }

    fn standing(&self, id: GroupId, _oldest: bool) -> Result<Vec<Standing>, TopicError> {
        self.by_id(id).ok_or(TopicError::NotFound)?;
        Ok(Vec::new())
    }

    fn placed(&self, _id: GroupId) -> Vec<Placed> {
        Vec::new()
    }

    fn apply(
        &self,
        _changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>> {
        if entries.is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        let order =
            |entry| Order::Schedule { lane: Lane::Retry, entry, conflict: OnConflict::Reject };
        let orders: Vec<Order> = entries.into_iter().map(order).collect();
        let timeline = Arc::clone(&self.timeline);
        Box::pin(async move {
            match timeline.revise(orders).await? {
                Revised::Done(done) => Ok(done.into_iter().filter_map(id_of).collect()),
                // Without an own id nothing is in the way of an entry.
                Revised::Refused { .. } => Err(StoreError::Busy),
            }
        })
    }
}

fn id_of(done: Done) -> Option<MessageId> {
    match done {
        Done::Stored(id) | Done::Known(id) => Some(id),
        Done::Moved(_) | Done::Cancelled | Done::Nothing => None,
    }
}
