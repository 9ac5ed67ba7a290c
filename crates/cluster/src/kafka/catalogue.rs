//! A catalogue of topics whose messages go to Kafka: what is made there is made in Kafka first.
//!
//! A topic that Kafka has already is adopted, with as many partitions as it has there. Deleting a
//! topic leaves Kafka's alone: what was delivered belongs to those who read it.

use std::sync::Arc;

use punctual_model::ports::{
    Delivered, LogBounds, LogPosition, StoreError, Topic, TopicError, Topics,
};
use punctual_model::{
    DelayLevels, MessageId, Partition, Timestamp, TopicId, TopicName, TopicSettings,
};

use super::topics::{KafkaTopics, Shape};

/// A catalogue over another one. Calls may block, and must not come from threads of the runtime.
pub struct TopicsInKafka {
    inner: Arc<dyn Topics>,
    kafka: KafkaTopics,
}

impl std::fmt::Debug for TopicsInKafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicsInKafka").field("kafka", &self.kafka).finish_non_exhaustive()
    }
}

impl TopicsInKafka {
    /// The topics of `inner`, which are made in Kafka as well.
    #[must_use]
    pub fn new(inner: Arc<dyn Topics>, kafka: KafkaTopics) -> Self {
        Self { inner, kafka }
    }

    /// The settings as Kafka lets them be: with no fewer partitions than it has.
    fn settled(
        &self,
        name: &TopicName,
        settings: TopicSettings,
    ) -> Result<TopicSettings, TopicError> {
        let found = self.kafka.make_blocking(name, Shape::of(&settings))?;
        Ok(TopicSettings { partitions: found.max(settings.partitions), ..settings })
    }
}

impl Topics for TopicsInKafka {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        if let Some(known) = self.inner.by_name(name)
            && known.settings.partitions == settings.partitions
        {
            // Kafka has nothing to do with the rest.
            return self.inner.put(name, settings);
        }
        let settings = self.settled(name, settings)?;
        self.inner.put(name, settings)
    }

    fn make(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        if let Some(known) = self.inner.by_name(name) {
            return Ok(known);
        }
        let settings = self.settled(name, settings)?;
        self.inner.make(name, settings)
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        self.inner.delete(name)
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.inner.by_name(name)
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.inner.by_id(id)
    }

    fn is_gone(&self, id: TopicId) -> bool {
        self.inner.is_gone(id)
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.inner.list()
    }

    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        self.inner.read(from, limit)
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        self.inner.bounds(topic, partition)
    }

    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        self.inner.locate(id)
    }

    fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        time: Timestamp,
    ) -> Result<u64, TopicError> {
        self.inner.offset_at(topic, partition, time)
    }

    fn levels(&self) -> DelayLevels {
        self.inner.levels()
    }

    fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError> {
        self.inner.put_levels(levels)
    }
}
