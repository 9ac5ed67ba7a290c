//! What the broker calls: each call becomes a request to the commit thread, a question to the
//! lookup thread, or is answered at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_model::group::{
    Group, GroupChange, GroupId, GroupName, GroupSettings, Placed, Source, Standing, Start,
};
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Delivered, Forecast, Found, GroupError, Groups, LogBounds,
    LogPosition, Order, Outlet, PendingPage, PendingQuery, Pulled, Revised, StoreError, Timeline,
    Topic, TopicError, Topics, Untaken,
};
use punctual_model::{
    DelayLevels, Entry, Lane, MessageId, Partition, Sequence, Timestamp, TopicId, TopicName,
    TopicSettings,
};

use crate::engine::Engine;
use crate::journal::change::{Draft, Slot};
use crate::store::{CommitError, InLogs, Outcome, Request, Revision};

impl Timeline for Engine {
    fn schedule(
        &self,
        batch: Vec<Entry>,
    ) -> impl Future<Output = Result<Vec<MessageId>, StoreError>> + Send {
        let draft = Draft::new(&batch, Lane::Message);
        let slots = draft.slots.clone();
        let answer = self.submit(Request::Schedule(draft));
        async move {
            match answer.await.unwrap_or(Err(StoreError::Closed.into())) {
                Ok(Outcome::Scheduled(first)) => Ok(ids(first, &slots)),
                Ok(_) => Err(StoreError::Closed),
                Err(error) => Err(store_refusal(error)),
            }
        }
    }

    fn cancel(
        &self,
        ids: Vec<MessageId>,
    ) -> impl Future<Output = Result<Vec<CancelOutcome>, StoreError>> + Send {
        let answer = self.submit(Request::Cancel(ids, InLogs::Unknown));
        async move {
            match answer.await.unwrap_or(Err(StoreError::Closed.into())) {
                Ok(Outcome::Cancelled(outcomes)) => Ok(outcomes),
                Ok(_) => Err(StoreError::Closed),
                Err(error) => Err(store_refusal(error)),
            }
        }
    }

    fn revise(
        &self,
        orders: Vec<Order>,
    ) -> impl Future<Output = Result<Revised, StoreError>> + Send {
        let revision = Revision::new(&orders, self.now());
        let answer = self.submit(Request::Revise(revision));
        async move {
            match answer.await.unwrap_or(Err(StoreError::Closed.into())) {
                Ok(Outcome::Revised(revised)) => Ok(revised),
                Ok(_) => Err(StoreError::Closed),
                Err(error) => Err(store_refusal(error)),
            }
        }
    }

    fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> impl Future<Output = Result<Vec<Option<MessageId>>, StoreError>> + Send {
        let now = self.now();
        self.ask(move |store| store.named(topic, &own_ids, now))
    }

    fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> impl Future<Output = Result<Forecast, StoreError>> + Send {
        self.ask(move |store| store.forecast(topic, &bounds))
    }

    fn forecast_together(
        &self,
        topics: Vec<TopicId>,
        bounds: Vec<Timestamp>,
    ) -> impl Future<Output = Result<Forecast, StoreError>> + Send {
        self.ask(move |store| store.forecast_together(&topics, &bounds))
    }

    fn find(
        &self,
        ids: Vec<MessageId>,
    ) -> impl Future<Output = Result<Vec<Option<Found>>, StoreError>> + Send {
        self.ask(move |store| store.find(&ids))
    }

    fn pending(
        &self,
        query: PendingQuery,
    ) -> impl Future<Output = Result<PendingPage, StoreError>> + Send {
        self.ask(move |store| store.pending(query))
    }

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        let armed = self.shared.store.arm(lane, until, limit);
        self.shared.tell_room();
        armed
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        self.shared.store.claim(batch)
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.shared.store.settle(batch)
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        let outcome = self.shared.store.defer(&batch, self.now());
        // What was put aside to be written out wants room.
        if self.shared.store.needs_flush() {
            self.shared.upkeep_due.notify_one();
        }
        outcome
    }

    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.shared.store.release(batch);
        Ok(())
    }

    fn next_due(
        &self,
        lane: Lane,
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send {
        self.ask(move |store| Ok(store.next_due(lane)))
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        self.shared.store.listen(listener);
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        self.shared.store.counts_in(lane)
    }
}

/// The ids of entries that were numbered from `first` on.
fn ids(first: Sequence, slots: &[Slot]) -> Vec<MessageId> {
    let id = |(index, slot): (u64, &Slot)| {
        let sequence = Sequence::new(first.get() + index).unwrap_or(Sequence::MAX);
        MessageId { key: slot.key(sequence), topic: slot.topic, partition: slot.partition }
    };
    (0u64..).zip(slots).map(id).collect()
}

fn store_refusal(error: CommitError) -> StoreError {
    match error {
        CommitError::Store(error) => error,
        // None of them comes back to those who schedule or cancel.
        CommitError::Topic(_)
        | CommitError::Group(_)
        | CommitError::Append(_)
        | CommitError::Slice(_)
        | CommitError::AskLogs(_)
        | CommitError::Later(_) => StoreError::Busy,
    }
}

impl Outlet for Engine {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        self.shared.store.deliver(batch, now)?;
        // A log takes what it is given.
        Ok(Vec::new())
    }
}

impl Groups for Engine {
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        match self.submit_for_group(Request::PutGroup(topic, name.clone(), settings, start))? {
            Outcome::Group(group) => Ok(group),
            _ => Err(StoreError::Closed.into()),
        }
    }

    fn delete(&self, id: GroupId) -> Result<bool, GroupError> {
        match self.submit_for_group(Request::DeleteGroup(id))? {
            Outcome::Deleted(deleted) => Ok(deleted),
            _ => Err(StoreError::Closed.into()),
        }
    }

    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.shared.store.group_by_name(topic, name)
    }

    fn list(&self) -> Vec<Arc<Group>> {
        self.shared.store.groups()
    }

    fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError> {
        self.shared.store.pull(source, from, limit)
    }

    fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError> {
        self.shared.store.standing(id, oldest)
    }

    fn placed(&self, id: GroupId) -> Vec<Placed> {
        self.shared.store.placed(id)
    }

    fn apply(
        &self,
        changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>> {
        let draft = (!entries.is_empty()).then(|| Draft::new(&entries, Lane::Retry));
        let slots = draft.as_ref().map(|draft| draft.slots.clone()).unwrap_or_default();
        let answer = self.submit(Request::Progress(changes, draft));
        Box::pin(async move {
            match answer.await.unwrap_or(Err(StoreError::Closed.into())) {
                Ok(Outcome::Progressed(first)) => Ok(ids(first.unwrap_or_default(), &slots)),
                Ok(_) => Err(StoreError::Closed),
                Err(error) => Err(store_refusal(error)),
            }
        })
    }
}

impl Topics for Engine {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        match self.submit_and_wait(Request::PutTopic(name.clone(), settings))? {
            Outcome::Topic(topic) => Ok(topic),
            _ => Err(StoreError::Closed.into()),
        }
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        match self.submit_and_wait(Request::DeleteTopic(name.clone()))? {
            Outcome::Deleted(deleted) => Ok(deleted),
            _ => Err(StoreError::Closed.into()),
        }
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.shared.store.topic_by_name(name)
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.shared.store.topic_by_id(id)
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.shared.store.topics()
    }

    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        self.shared.store.logs.read(from, limit)
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        self.shared.store.logs.bounds(topic, partition)
    }

    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        self.shared.store.locate(id)
    }

    fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        time: Timestamp,
    ) -> Result<u64, TopicError> {
        self.shared.store.logs.offset_at(topic, partition, time)
    }

    fn levels(&self) -> DelayLevels {
        self.shared.store.levels()
    }

    fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError> {
        let answer = futures_executor::block_on(self.submit(Request::PutLevels(levels)));
        answer.unwrap_or(Err(StoreError::Closed.into())).map(drop).map_err(store_refusal)
    }
}
