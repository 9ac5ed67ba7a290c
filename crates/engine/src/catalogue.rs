//! The topics by name and number. Changes are journaled by the store before they are applied here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use punctual_model::limits::TOPICS_MAX;
use punctual_model::ports::{GroupError, Topic, TopicError};
use punctual_model::{DelayLevels, TopicId, TopicKind, TopicName, TopicSettings};

/// The topics there are.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    by_name: BTreeMap<TopicName, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    next: u32,
    /// The delay levels of topics that have none of their own.
    pub(crate) levels: DelayLevels,
}

impl Catalogue {
    /// The topics of a checkpoint; new ones get numbers from `next` on.
    #[must_use]
    pub(crate) fn new(topics: Vec<Topic>, next: u32, levels: DelayLevels) -> Self {
        let mut catalogue = Self { next, levels, ..Self::default() };
        for topic in topics {
            catalogue.put(topic);
        }
        catalogue
    }

    /// What putting this topic would make it.
    ///
    /// # Errors
    /// [`TopicError::CannotShrink`], [`TopicError::Reserved`] and [`TopicError::TooMany`].
    pub(crate) fn plan(
        &self,
        name: &TopicName,
        settings: TopicSettings,
    ) -> Result<Topic, TopicError> {
        let name = name.clone();
        if let Some(known) = self.by_name.get(&name) {
            if settings.partitions < known.settings.partitions {
                return Err(TopicError::CannotShrink(known.settings.partitions));
            }
            let fixed = known.kind != TopicKind::Plain;
            if fixed && settings.partitions != known.settings.partitions {
                return Err(TopicError::Reserved);
            }
            return Ok(Topic { settings, ..Topic::clone(known) });
        }
        let kind = TopicKind::Plain;
        let key_partitions = settings.partitions;
        Ok(Topic { id: self.free_id(0)?, name, kind, key_partitions, settings })
    }

    /// The topics of a group as they would be.
    ///
    /// # Errors
    /// [`GroupError::NameTaken`] and [`GroupError::TooMany`].
    pub(crate) fn plan_own(
        &self,
        [first, second]: [(TopicName, TopicKind, TopicSettings); 2],
    ) -> Result<[Topic; 2], GroupError> {
        let plan = |further: u32, (name, kind, settings): (TopicName, TopicKind, TopicSettings)| {
            if self.by_name.contains_key(&name) {
                return Err(GroupError::NameTaken(name));
            }
            let id = self.free_id(further).map_err(|_full| GroupError::TooMany)?;
            let key_partitions = settings.partitions;
            Ok(Topic { id, name, kind, key_partitions, settings })
        };
        Ok([plan(0, first)?, plan(1, second)?])
    }

    /// The number that the topic made after `further` others gets.
    fn free_id(&self, further: u32) -> Result<TopicId, TopicError> {
        if self.by_id.len() >= TOPICS_MAX {
            return Err(TopicError::TooMany);
        }
        TopicId::new(self.next + further).ok_or(TopicError::TooMany)
    }

    /// Adds or replaces a topic.
    pub(crate) fn put(&mut self, topic: Topic) -> Arc<Topic> {
        self.next = self.next.max(topic.id.get() + 1);
        let topic = Arc::new(topic);
        self.by_name.insert(topic.name.clone(), Arc::clone(&topic));
        self.by_id.insert(topic.id, Arc::clone(&topic));
        topic
    }

    /// Removes a topic; its number is not given again.
    pub(crate) fn delete(&mut self, id: TopicId) {
        if let Some(topic) = self.by_id.remove(&id) {
            self.by_name.remove(&topic.name);
        }
    }

    /// The topic of that name.
    #[must_use]
    pub(crate) fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.by_name.get(name).cloned()
    }

    /// The topic of that number.
    #[must_use]
    pub(crate) fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.by_id.get(&id).cloned()
    }

    /// All topics, by name.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<Arc<Topic>> {
        self.by_name.values().cloned().collect()
    }

    /// The number the next new topic gets.
    #[must_use]
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }
}
