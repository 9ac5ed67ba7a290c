//! Groups whose messages are read from Kafka: the topics of a new group are made there too, so that
//! its consumers can subscribe to them before the first message has failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use punctual_model::catalogue::own_topics;
use punctual_model::group::{
    Group, GroupChange, GroupId, GroupName, GroupSettings, Placed, Source, Standing, Start,
};
use punctual_model::ports::{GroupError, Groups, Pulled, StoreError, TopicError, Topics};
use punctual_model::{Entry, MessageId, TopicId, TopicKind, TopicSettings};

use super::topics::{KafkaTopics, Shape};

/// Other groups, with their topics in Kafka. Calls may block.
pub struct GroupsInKafka {
    inner: Arc<dyn Groups>,
    topics: Arc<dyn Topics>,
    kafka: KafkaTopics,
}

impl std::fmt::Debug for GroupsInKafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupsInKafka")
    }
}

impl GroupsInKafka {
    /// These groups of these topics.
    #[must_use]
    pub fn new(inner: Arc<dyn Groups>, topics: Arc<dyn Topics>, kafka: KafkaTopics) -> Self {
        Self { inner, topics, kafka }
    }

    /// Makes the topics of a new group, unless their names are another's.
    fn make_topics(&self, topic: TopicId, group: &GroupName) -> Result<(), GroupError> {
        let topic = self.topics.by_id(topic).ok_or(GroupError::TopicNotFound)?;
        let own = own_topics(&topic.name, group)?;
        for (name, _, _) in &own {
            let taken = self.topics.by_name(name);
            if taken.is_some_and(|taken| taken.kind == TopicKind::Plain) {
                return Err(GroupError::NameTaken(name.clone()));
            }
        }
        for (name, kind, settings) in &own {
            // Here a retry goes as soon as it is handed out; there it waits for its consumer.
            let retention = match kind {
                TopicKind::Retry => topic.settings.retention,
                TopicKind::Plain | TopicKind::Dead => settings.retention,
            };
            let shape = Shape::of(&TopicSettings { retention, ..settings.clone() });
            self.kafka.make_blocking(name, shape).map_err(StoreError::from)?;
        }
        Ok(())
    }
}

impl Groups for GroupsInKafka {
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        if self.inner.by_name(topic, name).is_none() {
            self.make_topics(topic, name)?;
        }
        self.inner.put(topic, name, settings, start)
    }

    fn delete(&self, id: GroupId) -> Result<bool, GroupError> {
        self.inner.delete(id)
    }

    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.inner.by_name(topic, name)
    }

    fn list(&self) -> Vec<Arc<Group>> {
        self.inner.list()
    }

    fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError> {
        self.inner.pull(source, from, limit)
    }

    fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError> {
        self.inner.standing(id, oldest)
    }

    fn placed(&self, id: GroupId) -> Vec<Placed> {
        self.inner.placed(id)
    }

    fn apply(
        &self,
        changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>> {
        self.inner.apply(changes, entries)
    }
}
