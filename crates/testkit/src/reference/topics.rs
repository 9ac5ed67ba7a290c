//! [`Topics`] of the reference: a catalogue by name, and every log a plain list.

use std::sync::Arc;

use punctual_model::limits::TOPICS_MAX;
use punctual_model::ports::{
    Delivered, LogBounds, LogPosition, StoreError, Topic, TopicError, Topics,
};
use punctual_model::{
    DelayLevels, GroupId, MessageId, Partition, Timestamp, TopicId, TopicKind, TopicName,
    TopicSettings,
};

use super::{Memory, Reference};

impl Memory {
    /// Makes a topic whose name nobody has.
    pub(super) fn make_topic(
        &mut self,
        name: &TopicName,
        kind: TopicKind,
        settings: TopicSettings,
    ) -> Result<Arc<Topic>, TopicError> {
        if self.topics.len() >= TOPICS_MAX {
            return Err(TopicError::TooMany);
        }
        self.topics_given += 1;
        let id = TopicId::new(self.topics_given).ok_or(TopicError::TooMany)?;
        Ok(self.store_topic(Topic {
            id,
            name: name.clone(),
            kind,
            key_partitions: settings.partitions,
            settings,
        }))
    }

    fn store_topic(&mut self, topic: Topic) -> Arc<Topic> {
        let topic = Arc::new(topic);
        self.topics.insert(topic.name.clone(), Arc::clone(&topic));
        topic
    }

    /// Removes the topic with all that belongs to it, its groups too.
    pub(super) fn remove_topic(&mut self, id: TopicId) {
        let of_topic = self.groups.values().filter(|group| group.topic == id);
        let groups: Vec<GroupId> = of_topic.map(|group| group.id).collect();
        for group in groups {
            self.remove_group(group);
        }
        self.topics.retain(|_, topic| topic.id != id);
        self.logs.retain(|(topic, _), _| *topic != id);
        self.book.forget_topic(id);
    }
}

impl Topics for Reference {
    fn put(&self, name: &TopicName, settings: TopicSettings) -> Result<Arc<Topic>, TopicError> {
        let mut memory = self.lock();
        let Some(topic) = memory.topics.get(name).cloned() else {
            return memory.make_topic(name, TopicKind::Plain, settings);
        };
        if settings.partitions < topic.settings.partitions {
            return Err(TopicError::CannotShrink(topic.settings.partitions));
        }
        if topic.kind != TopicKind::Plain && settings.partitions > topic.settings.partitions {
            return Err(TopicError::Reserved);
        }
        Ok(memory.store_topic(Topic { settings, ..Topic::clone(&topic) }))
    }

    fn delete(&self, name: &TopicName) -> Result<bool, TopicError> {
        let mut memory = self.lock();
        match memory.topics.get(name).cloned() {
            None => Ok(false),
            Some(topic) if topic.kind != TopicKind::Plain => Err(TopicError::Reserved),
            Some(topic) => {
                memory.remove_topic(topic.id);
                Ok(true)
            }
        }
    }

    fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.lock().topics.get(name).cloned()
    }

    fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.lock().topic(id).cloned()
    }

    fn list(&self) -> Vec<Arc<Topic>> {
        self.lock().topics.values().cloned().collect()
    }

    fn read(&self, from: LogPosition, limit: usize) -> Result<Vec<Delivered>, TopicError> {
        let memory = self.lock();
        let log = memory.log(from.topic, from.partition)?;
        let behind = log.iter().filter(|delivered| delivered.offset >= from.offset);
        Ok(behind.take(limit).cloned().collect())
    }

    fn bounds(&self, topic: TopicId, partition: Partition) -> Result<LogBounds, TopicError> {
        let end = self.lock().log(topic, partition)?.len() as u64;
        Ok(LogBounds { start: 0, end })
    }

    fn locate(&self, id: MessageId) -> Result<Option<Delivered>, TopicError> {
        let memory = self.lock();
        let log = memory.logs.get(&(id.topic, id.partition));
        Ok(log.and_then(|log| log.iter().find(|delivered| delivered.id == id).cloned()))
    }

    fn offset_at(
        &self,
        topic: TopicId,
        partition: Partition,
        time: Timestamp,
    ) -> Result<u64, TopicError> {
        let memory = self.lock();
        let log = memory.log(topic, partition)?;
        let found = log.iter().find(|delivered| delivered.delivered_at >= time);
        Ok(found.map_or(log.len() as u64, |delivered| delivered.offset))
    }

    fn levels(&self) -> DelayLevels {
        self.lock().levels.clone()
    }

    fn put_levels(&self, levels: DelayLevels) -> Result<(), StoreError> {
        self.lock().levels = levels;
        Ok(())
    }
}
