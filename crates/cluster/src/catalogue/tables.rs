//! The topics and groups as one node has read them, and what documents a change of them comes to.
//!
//! Only reads of the store change them. A document that cannot be read is remembered as such: what
//! it is about must not be taken for deleted.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::catalogue::{self, Catalogue, GroupCatalogue, takes_groups};
use punctual_model::group::{Group, GroupId, GroupName, GroupSettings};
use punctual_model::ports::{GroupError, Topic, TopicError};
use punctual_model::stored::codec::Malformed;
use punctual_model::{DelayLevels, TopicId, TopicName, TopicSettings};
use tracing::error;

use super::document::{self, About, LEVELS, NUMBERS, Numbers, OwnedTopic, Owner};
use crate::store::Document;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) topics: Catalogue,
    pub(super) groups: GroupCatalogue,
    owners: HashMap<TopicId, Owner>,
    /// Of the documents that are there.
    revisions: HashMap<Arc<str>, u64>,
    unreadable: BTreeSet<Arc<str>>,
}

/// A document to be written, or deleted, as long as it is what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) name: Arc<str>,
    /// 0 when there was none.
    pub(super) expected: u64,
    pub(super) content: Option<Bytes>,
}

/// What a change comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan<T> {
    /// It is so already.
    Same(Arc<T>),
    /// These documents, in this order, make it so.
    Change(T, Vec<Write>),
}

impl Tables {
    /// Takes in what has changed.
    pub(super) fn read(&mut self, changed: &[Document]) {
        for Document { name, revision, content } in changed {
            let Some(content) = content else {
                self.forget(name);
                self.revisions.remove(name);
                self.unreadable.remove(name);
                continue;
            };
            self.revisions.insert(Arc::clone(name), *revision);
            match self.put(name, content) {
                Ok(()) => {
                    self.unreadable.remove(name);
                }
                Err(Malformed) => {
                    error!(document = %name, "it cannot be read: damaged, or of a newer version");
                    self.unreadable.insert(Arc::clone(name));
                }
            }
        }
    }

    fn put(&mut self, name: &str, content: &Bytes) -> Result<(), Malformed> {
        match About::of(name) {
            About::Topic(topic) => {
                let OwnedTopic { topic, owner } = document::read_topic(content, &topic)?;
                if let Some(before) = self.topics.by_name(&topic.name) {
                    self.owners.remove(&before.id);
                }
                if let Some(owner) = owner {
                    self.owners.insert(topic.id, owner);
                }
                self.topics.put(topic);
            }
            About::Group(topic, group) => {
                let group = document::read_group(content, (topic, &group))?;
                self.groups.put(group);
            }
            About::Numbers => {
                let numbers = document::read_numbers(content)?;
                self.topics.given_until(numbers.topics);
                self.groups.given_until(numbers.groups);
            }
            About::Levels => self.topics.levels = document::read_levels(content)?,
            // Of a newer version, which knows what to do with it.
            About::Other => {}
        }
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        match About::of(name) {
            About::Topic(topic) => {
                if let Some(topic) = self.topics.by_name(&topic) {
                    self.topics.delete(topic.id);
                    self.owners.remove(&topic.id);
                }
            }
            About::Group(topic, group) => {
                if let Some(group) = self.groups.by_name(topic, &group) {
                    self.groups.delete(group.id);
                }
            }
            About::Levels => self.topics.levels = DelayLevels::default(),
            About::Numbers | About::Other => {}
        }
    }

    /// A document that cannot be read, if there is one.
    pub(super) fn first_unreadable(&self) -> Option<&Arc<str>> {
        self.unreadable.first()
    }

    /// What putting this topic comes to; one that is only wanted is taken as it is.
    pub(super) fn plan_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        only_make: bool,
    ) -> Result<Plan<Topic>, TopicError> {
        let known = self.topics.by_name(name);
        if let Some(known) = known.as_ref().filter(|_| only_make) {
            return Ok(Plan::Same(Arc::clone(known)));
        }
        let planned = self.topics.plan(name, settings)?;
        match known {
            Some(known) if *known == planned => Ok(Plan::Same(known)),
            known => {
                let mut writes = Vec::new();
                if known.is_none() {
                    writes.push(self.give_numbers(1, 0));
                }
                writes.push(self.write_topic(&planned, self.owners.get(&planned.id)));
                Ok(Plan::Change(planned, writes))
            }
        }
    }

    /// What putting this group comes to. Topics that are left of one that was never finished are
    /// its own; of one that is half removed they are made again.
    pub(super) fn plan_group(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
    ) -> Result<Plan<Group>, GroupError> {
        let topic = self.topics.by_id(topic).filter(|topic| takes_groups(topic));
        let topic = topic.ok_or(GroupError::TopicNotFound)?;
        let known = self.groups.by_name(topic.id, name);
        let (mut ids, mut new) = (Vec::new(), Vec::new());
        for planned in catalogue::own_topics(&topic.name, name)? {
            let there = self.own(topic.id, name, &planned.0)?;
            let further = u32::try_from(new.len()).unwrap_or(u32::MAX);
            ids.push(match there {
                Some(there) => there,
                None => {
                    let made = self.topics.plan_one_of_own(further, planned)?;
                    let id = made.id;
                    new.push(made);
                    id
                }
            });
        }
        let (retry, dead) = match ids[..] {
            [retry, dead] => (retry, dead),
            _ => return Err(GroupError::TopicNotFound),
        };
        let group = match &known {
            Some(known) => Group { retry, dead, settings, ..Group::clone(known) },
            None => self.groups.plan(topic.id, name, settings, (retry, dead))?,
        };
        if let Some(known) = known.as_ref().filter(|known| ***known == group) {
            return Ok(Plan::Same(Arc::clone(known)));
        }
        let owner = Owner { topic: topic.id, group: name.clone() };
        let (new_topics, new_groups) = (new.len(), u32::from(known.is_none()));
        let mut writes = Vec::new();
        if new_topics > 0 || new_groups > 0 {
            writes.push(self.give_numbers(u32::try_from(new_topics).unwrap_or(0), new_groups));
        }
        writes.extend(new.iter().map(|own| self.write_topic(own, Some(&owner))));
        let document = document::of_group(topic.id, name);
        writes.push(self.write(document, Some(document::write_group(&group))));
        Ok(Plan::Change(group, writes))
    }

    /// The topic of that name, if there is one and it is this group's.
    fn own(
        &self,
        topic: TopicId,
        group: &GroupName,
        name: &TopicName,
    ) -> Result<Option<TopicId>, GroupError> {
        let Some(found) = self.topics.by_name(name) else { return Ok(None) };
        let owner = self.owners.get(&found.id);
        match owner.is_some_and(|owner| owner.topic == topic && owner.group == *group) {
            true => Ok(Some(found.id)),
            false => Err(GroupError::NameTaken(name.clone())),
        }
    }

    /// What removing a topic with its groups comes to.
    pub(super) fn plan_topic_removal(&self, topic: &Topic) -> Vec<Write> {
        let mut writes = self.plan_removal(&self.groups.doomed_of(topic.id));
        writes.push(self.write(document::of_topic(&topic.name), None));
        writes
    }

    /// What removing a group, and all that goes with it, comes to.
    pub(super) fn plan_group_removal(&self, id: GroupId) -> Vec<Write> {
        self.plan_removal(&self.groups.doomed_with(id))
    }

    /// What is left to be removed of a topic that is gone: groups that were made meanwhile.
    pub(super) fn plan_rest_removal(&self, topic: TopicId) -> Vec<Write> {
        self.plan_removal(&self.groups.doomed_of(topic))
    }

    fn plan_removal(&self, doomed: &[Arc<Group>]) -> Vec<Write> {
        let mut innermost_first: Vec<&Arc<Group>> = doomed.iter().collect();
        innermost_first.sort_by_key(|group| Reverse(group.dead));
        let mut writes = Vec::new();
        for group in innermost_first {
            let own = [group.retry, group.dead].map(|own| self.topics.by_id(own));
            let own = own.into_iter().flatten();
            writes.extend(own.map(|own| self.write(document::of_topic(&own.name), None)));
            writes.push(self.write(document::of_group(group.topic, &group.name), None));
        }
        writes
    }

    /// What changing the delay levels comes to; nothing when they are these already.
    pub(super) fn plan_levels(&self, levels: &DelayLevels) -> Option<Write> {
        let is_new = self.topics.levels != *levels;
        is_new.then(|| self.write(LEVELS.into(), Some(document::write_levels(levels))))
    }

    /// Gives the numbers that are free, so that nobody else gets them.
    fn give_numbers(&self, topics: u32, groups: u32) -> Write {
        let until = Numbers {
            topics: self.topics.next().saturating_add(topics),
            groups: self.groups.next().saturating_add(groups),
        };
        self.write(NUMBERS.into(), Some(document::write_numbers(until)))
    }

    fn write_topic(&self, topic: &Topic, owner: Option<&Owner>) -> Write {
        let content = document::write_topic(topic, owner);
        self.write(document::of_topic(&topic.name), Some(content))
    }

    fn write(&self, name: Arc<str>, content: Option<Bytes>) -> Write {
        let expected = self.revisions.get(&name).copied().unwrap_or(0);
        Write { name, expected, content }
    }
}
