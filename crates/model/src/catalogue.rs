//! Which topics and groups there are, in memory, and the rules by which they are made: the same
//! wherever they are stored.
//!
//! Nothing is changed here before whoever stores them has made it durable. A number is given once,
//! also after what had it was deleted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::group::{Group, GroupId, GroupName, GroupSettings};
use crate::levels::DelayLevels;
use crate::limits::{DEAD_RETENTION_DEFAULT, GROUPS_MAX, GROUPS_PER_TOPIC_MAX, TOPICS_MAX};
use crate::ports::{GroupError, Topic, TopicError};
use crate::time::Span;
use crate::topic::{TopicId, TopicKind, TopicName, TopicSettings};

/// The topics there are.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    by_name: BTreeMap<TopicName, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    next: u32,
    /// The delay levels of topics that have none of their own.
    pub levels: DelayLevels,
}

impl Catalogue {
    /// The topics that are stored; new ones get numbers from `next` on.
    #[must_use]
    pub fn new(topics: Vec<Topic>, next: u32, levels: DelayLevels) -> Self {
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
    pub fn plan(&self, name: &TopicName, settings: TopicSettings) -> Result<Topic, TopicError> {
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

    /// The topic that deleting this name takes away; `None` when there is none.
    ///
    /// # Errors
    /// [`TopicError::Reserved`] for one that goes with its group.
    pub fn plan_delete(&self, name: &TopicName) -> Result<Option<Arc<Topic>>, TopicError> {
        match self.by_name(name) {
            Some(topic) if topic.kind != TopicKind::Plain => Err(TopicError::Reserved),
            found => Ok(found),
        }
    }

    /// The topics of a new group of this topic, as they would be: that of its retries and that of
    /// its dead letters.
    ///
    /// # Errors
    /// [`GroupError::NameTaken`], [`GroupError::NameTooLong`] and [`GroupError::TooMany`].
    pub fn plan_own(&self, topic: &TopicName, group: &GroupName) -> Result<[Topic; 2], GroupError> {
        let [retry, dead] = own_topics(topic, group)?;
        Ok([self.plan_one_of_own(0, retry)?, self.plan_one_of_own(1, dead)?])
    }

    /// One topic of a group, as it would be, made after `further` others.
    ///
    /// # Errors
    /// [`GroupError::NameTaken`] and [`GroupError::TooMany`].
    pub fn plan_one_of_own(
        &self,
        further: u32,
        (name, kind, settings): (TopicName, TopicKind, TopicSettings),
    ) -> Result<Topic, GroupError> {
        if self.by_name.contains_key(&name) {
            return Err(GroupError::NameTaken(name));
        }
        let id = self.free_id(further).map_err(|_full| GroupError::TooMany)?;
        let key_partitions = settings.partitions;
        Ok(Topic { id, name, kind, key_partitions, settings })
    }

    /// The number that the topic made after `further` others gets.
    fn free_id(&self, further: u32) -> Result<TopicId, TopicError> {
        if self.by_id.len() >= TOPICS_MAX {
            return Err(TopicError::TooMany);
        }
        let id = TopicId::new(self.next.saturating_add(further));
        id.filter(|id| *id != TopicId::TRANSACTIONS).ok_or(TopicError::TooMany)
    }

    /// Adds or replaces a topic.
    pub fn put(&mut self, topic: Topic) -> Arc<Topic> {
        self.next = self.next.max(topic.id.get() + 1);
        let topic = Arc::new(topic);
        let before = self.by_name.insert(topic.name.clone(), Arc::clone(&topic));
        if let Some(before) = before.filter(|before| before.id < topic.id) {
            // Deleted and made again, as seen by somebody who looks from time to time. A journal
            // that is read again brings older ones, which take nothing away.
            self.by_id.remove(&before.id);
        }
        self.by_id.insert(topic.id, Arc::clone(&topic));
        topic
    }

    /// Removes a topic; its number is not given again.
    pub fn delete(&mut self, id: TopicId) {
        if let Some(topic) = self.by_id.remove(&id) {
            self.by_name.remove(&topic.name);
        }
    }

    /// The topic of that name.
    #[must_use]
    pub fn by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.by_name.get(name).cloned()
    }

    /// The topic of that number.
    #[must_use]
    pub fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.by_id.get(&id).cloned()
    }

    /// All topics, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Topic>> {
        self.by_name.values().cloned().collect()
    }

    /// The number the next new topic gets.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Numbers below `next` were given.
    pub fn given_until(&mut self, next: u32) {
        self.next = self.next.max(next);
    }
}

/// Names, kinds and settings of the topics that a group of this topic has: that of its retries and
/// that of its dead letters.
///
/// # Errors
/// [`GroupError::NameTooLong`].
pub fn own_topics(
    topic: &TopicName,
    group: &GroupName,
) -> Result<[(TopicName, TopicKind, TopicSettings); 2], GroupError> {
    let too_long = |_error| GroupError::NameTooLong;
    let (retry, dead) = (group.retry_topic(topic), group.dead_topic(topic));
    let (retry, dead) = (retry.map_err(too_long)?, dead.map_err(too_long)?);
    let settings = |retention| TopicSettings {
        partitions: 1,
        retention: Some(retention),
        ..TopicSettings::default()
    };
    Ok([
        (retry, TopicKind::Retry, settings(Span::from_millis(0))),
        (dead, TopicKind::Dead, settings(DEAD_RETENTION_DEFAULT)),
    ])
}

/// The groups there are; not what they are done with.
#[derive(Clone, Debug, Default)]
pub struct GroupCatalogue {
    by_id: BTreeMap<GroupId, Arc<Group>>,
    by_name: BTreeMap<(TopicId, GroupName), GroupId>,
    next: u32,
}

impl GroupCatalogue {
    /// None yet; new ones get numbers from `next` on.
    #[must_use]
    pub fn new(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    /// The group of that number.
    #[must_use]
    pub fn by_id(&self, id: GroupId) -> Option<Arc<Group>> {
        self.by_id.get(&id).cloned()
    }

    /// The group of that name.
    #[must_use]
    pub fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.by_name.get(&(topic, name.clone())).and_then(|id| self.by_id(*id))
    }

    /// All groups, by topic and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Group>> {
        self.by_name.values().filter_map(|id| self.by_id(*id)).collect()
    }

    /// All groups, by number.
    pub fn by_number(&self) -> impl ExactSizeIterator<Item = &Arc<Group>> {
        self.by_id.values()
    }

    /// The groups of a topic.
    #[must_use]
    pub fn of_topic(&self, topic: TopicId) -> Vec<Arc<Group>> {
        self.by_id.values().filter(|group| group.topic == topic).cloned().collect()
    }

    /// The groups that go with a topic: its own, those of their dead letters, and so on.
    #[must_use]
    pub fn doomed_of(&self, topic: TopicId) -> Vec<Arc<Group>> {
        let mut doomed = Vec::new();
        let mut topics = vec![topic];
        while let Some(topic) = topics.pop() {
            for group in self.of_topic(topic) {
                topics.push(group.dead);
                doomed.push(group);
            }
        }
        doomed
    }

    /// The group and all that goes with it: the groups of its dead letters, and theirs.
    #[must_use]
    pub fn doomed_with(&self, id: GroupId) -> Vec<Arc<Group>> {
        let Some(group) = self.by_id(id) else { return Vec::new() };
        let mut doomed = self.doomed_of(group.dead);
        doomed.push(group);
        doomed
    }

    /// A new group as it would be, with these topics of its own.
    ///
    /// # Errors
    /// [`GroupError::TooMany`].
    pub fn plan(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        (retry, dead): (TopicId, TopicId),
    ) -> Result<Group, GroupError> {
        if self.by_id.len() >= GROUPS_MAX || self.of_topic(topic).len() >= GROUPS_PER_TOPIC_MAX {
            return Err(GroupError::TooMany);
        }
        Ok(Group { id: GroupId(self.next), topic, name: name.clone(), retry, dead, settings })
    }

    /// Adds a group, or changes one that is there. Answers it, and whether it is new.
    pub fn put(&mut self, group: Group) -> (Arc<Group>, bool) {
        self.next = self.next.max(group.id.0.saturating_add(1));
        let group = Arc::new(group);
        let before = self.by_name.insert((group.topic, group.name.clone()), group.id);
        if let Some(before) = before.filter(|before| *before < group.id) {
            // Deleted and made again, as for topics.
            self.by_id.remove(&before);
        }
        let is_new = self.by_id.insert(group.id, Arc::clone(&group)).is_none();
        (group, is_new)
    }

    /// Removes a group; its number is not given again.
    pub fn delete(&mut self, id: GroupId) -> Option<Arc<Group>> {
        let group = self.by_id.remove(&id)?;
        self.by_name.remove(&(group.topic, group.name.clone()));
        Some(group)
    }

    /// The number the next new group gets.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Numbers below `next` were given.
    pub fn given_until(&mut self, next: u32) {
        self.next = self.next.max(next);
    }
}

/// Whether groups can consume a topic: all but retry topics, which have their one reader.
#[must_use]
pub fn takes_groups(topic: &Topic) -> bool {
    topic.kind != TopicKind::Retry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TopicName {
        TopicName::new(text).unwrap()
    }

    fn settings(partitions: u16) -> TopicSettings {
        TopicSettings { partitions, ..TopicSettings::default() }
    }

    #[test]
    fn a_number_is_given_once() {
        let mut topics = Catalogue::default();
        let first = topics.plan(&name("a"), settings(1)).unwrap();
        let id = first.id;
        topics.put(first);
        topics.delete(id);
        assert_eq!(topics.plan(&name("a"), settings(1)).unwrap().id.get(), id.get() + 1);
        topics.given_until(70);
        assert_eq!(topics.plan(&name("a"), settings(1)).unwrap().id.get(), 70);
        topics.given_until(5);
        assert_eq!(topics.next(), 70);
    }

    #[test]
    fn where_transactions_stand_is_no_topic() {
        let mut topics = Catalogue::default();
        topics.given_until(TopicId::TRANSACTIONS.get());
        assert_eq!(topics.plan(&name("a"), settings(1)), Err(TopicError::TooMany));
        topics.given_until(u32::MAX);
        assert_eq!(topics.plan(&name("a"), settings(1)), Err(TopicError::TooMany));
    }

    #[test]
    fn one_that_was_made_again_is_known_by_its_new_number_only() {
        let mut topics = Catalogue::default();
        let old = topics.put(topics.plan(&name("a"), settings(1)).unwrap());
        let id = TopicId::new(9).unwrap();
        topics.put(Topic { id, ..(*old).clone() });
        assert_eq!((topics.by_id(old.id), topics.by_name(&name("a")).unwrap().id), (None, id));
    }

    #[test]
    fn groups_of_a_topic_are_its_own_and_those_of_its_dead_letters_go_with_it() {
        let id = |number| TopicId::new(number).unwrap();
        let group = |number: u32, topic: u32, text: &str| Group {
            id: GroupId(number),
            topic: id(topic),
            name: GroupName::new(text).unwrap(),
            retry: id(100 + 2 * number),
            dead: id(101 + 2 * number),
            settings: GroupSettings::default(),
        };
        let mut groups = GroupCatalogue::default();
        for made in [group(1, 1, "a"), group(2, 2, "Z"), group(3, 103, "-"), group(4, 1, "b")] {
            groups.put(made);
        }
        let ids = |found: Vec<Arc<Group>>| {
            let mut ids: Vec<u32> = found.iter().map(|group| group.id.0).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(groups.of_topic(id(1))), [1, 4]);
        assert_eq!(ids(groups.doomed_of(id(1))), [1, 3, 4]);
        assert_eq!(ids(groups.doomed_with(GroupId(1))), [1, 3]);
        assert_eq!(ids(groups.of_topic(id(3))), [] as [u32; 0]);
    }
}
