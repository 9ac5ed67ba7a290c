//! What every group is entitled to, and the only ways in which that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_model::group::{Committed, Note, SeekBy};
use punctual_model::ports::Topic;
use punctual_model::{Group, GroupId, Message, MessageId, Source, TopicId, TopicKind};

/// What there is, as a client knows it.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The topics, those of groups too.
    pub topics: BTreeMap<TopicId, Arc<Topic>>,
    /// The groups.
    pub groups: BTreeMap<GroupId, Arc<Group>>,
    /// What was sent or moved and is pending or delivered.
    pub entries: BTreeMap<MessageId, Message>,
    /// What each group is not given, because it settled it or was moved past it.
    pub done: BTreeMap<GroupId, BTreeSet<MessageId>>,
    /// What groups have noted.
    pub notes: BTreeMap<(GroupId, MessageId), Note>,
    /// The sources whose place was last moved by a commit of offsets.
    pub streams: BTreeSet<Source>,
    /// What was last committed, where nothing was settled since.
    pub said: BTreeMap<Source, Committed>,
}

/// Something that was asked of the store.
#[derive(Clone, Debug)]
pub enum Event {
    /// A topic was made or changed.
    Topic(Arc<Topic>),
    /// A topic was removed.
    TopicGone(TopicId),
    /// A group was made or changed, with its topics; a new one is not given these messages.
    Group(Arc<Group>, Vec<Arc<Topic>>, Vec<MessageId>),
    /// A group was removed.
    GroupGone(GroupId),
    /// Messages were sent, or groups have moved on and messages with them.
    Applied(Vec<Change>, Vec<(MessageId, Message)>),
}

/// A change of a group's progress.
#[derive(Clone, Debug)]
pub enum Change {
    Settle(Source, Vec<MessageId>),
    Note(Source, MessageId, Note),
    /// With the messages before the new place.
    Seek(Source, Vec<MessageId>, SeekBy),
    /// As a seek, and what was said.
    Commit(Source, Vec<MessageId>, Committed),
}

impl World {
    /// What there is after `event`.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Topic(topic) => {
                self.topics.insert(topic.id, Arc::clone(topic));
            }
            Event::TopicGone(id) => self.remove_topic(*id),
            Event::Group(group, topics, passed) => {
                for topic in topics {
                    self.topics.insert(topic.id, Arc::clone(topic));
                }
                if self.groups.insert(group.id, Arc::clone(group)).is_none() {
                    self.done.insert(group.id, passed.iter().copied().collect());
                }
            }
            Event::GroupGone(id) => self.remove_group(*id),
            Event::Applied(changes, entries) => {
                for change in changes {
                    self.change(change);
                }
                self.entries.extend(entries.iter().cloned());
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let (Change::Settle(source, _)
        | Change::Note(source, ..)
        | Change::Seek(source, ..)
        | Change::Commit(source, ..)) = change;
        let group = source.group;
        let Some(done) = self.done.get_mut(&group) else { return };
        self.streams.remove(source);
        match change {
            Change::Settle(_, ids) => {
                done.extend(ids);
                self.said.remove(source);
                ids.iter().for_each(|id| drop(self.notes.remove(&(group, *id))));
            }
            Change::Note(_, id, note) => {
                if !done.contains(id) {
                    self.notes.insert((group, *id), note.clone());
                }
            }
            Change::Seek(source, passed, by) => {
                self.said.remove(source);
                self.go_on(*source, passed, *by);
            }
            Change::Commit(source, passed, said) => {
                self.said.insert(*source, said.clone());
                self.go_on(*source, passed, SeekBy::Commit);
            }
        }
    }

    fn go_on(&mut self, source: Source, passed: &[MessageId], by: SeekBy) {
        let group = source.group;
        let Some(done) = self.done.get_mut(&group) else { return };
        done.retain(|id| !is_of(source, *id));
        done.extend(passed);
        self.notes.retain(|(noted, id), _| *noted != group || !is_of(source, *id));
        if by == SeekBy::Commit {
            self.streams.insert(source);
        }
    }

    fn remove_topic(&mut self, id: TopicId) {
        let groups: Vec<GroupId> =
            self.groups.values().filter(|group| group.topic == id).map(|group| group.id).collect();
        groups.into_iter().for_each(|group| self.remove_group(group));
        self.topics.remove(&id);
        self.entries.retain(|entry, _| entry.topic != id);
    }

    fn remove_group(&mut self, id: GroupId) {
        let Some(group) = self.groups.remove(&id) else { return };
        self.done.remove(&id);
        self.notes.retain(|(noted, _), _| *noted != id);
        self.streams.retain(|source| source.group != id);
        self.said.retain(|source, _| source.group != id);
        self.remove_topic(group.retry);
        self.remove_topic(group.dead);
    }

    /// The topic of that name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.values().find(|topic| topic.name.as_str() == name).cloned()
    }

    /// The group of that name.
    pub fn group(&self, topic: &str, name: &str) -> Option<Arc<Group>> {
        let topic = self.topic(topic)?.id;
        let named = |group: &&Arc<Group>| group.topic == topic && group.name.as_str() == name;
        self.groups.values().find(named).cloned()
    }

    /// Whether the group is done with the message.
    pub fn is_done(&self, group: GroupId, id: MessageId) -> bool {
        self.done.get(&group).is_some_and(|done| done.contains(&id))
    }

    /// Whether retention may take a delivered message.
    pub fn may_expire(&self, id: MessageId) -> bool {
        let Some(topic) = self.topics.get(&id.topic) else { return true };
        let limited = match topic.kind {
            TopicKind::Plain => topic.settings.retention_bytes.is_some(),
            TopicKind::Retry => true,
            // They are kept for days, and no test is as long.
            TopicKind::Dead => false,
        };
        let reads = |group: &&Arc<Group>| [group.topic, group.retry].contains(&id.topic);
        let spares = |group: &Arc<Group>| {
            let source = Source { group: group.id, topic: id.topic, partition: id.partition };
            self.is_done(group.id, id)
                || self.streams.contains(&source)
                || (self.streams_beside(source) && self.never_was(source))
        };
        limited && self.groups.values().filter(reads).all(spares)
    }
}

impl World {
    /// Whether the group keeps its own place in some partition of the topic.
    fn streams_beside(&self, source: Source) -> bool {
        let beside = |other: &Source| (other.group, other.topic) == (source.group, source.topic);
        self.streams.iter().any(beside)
    }

    /// Whether the group has done nothing in the partition.
    fn never_was(&self, source: Source) -> bool {
        let mut done = self.done.get(&source.group).into_iter().flatten();
        let mut noted = self.notes.keys().filter(|(group, _)| *group == source.group);
        !done.any(|id| is_of(source, *id)) && !noted.any(|(_, id)| is_of(source, *id))
    }
}

fn is_of(source: Source, id: MessageId) -> bool {
    source.topic == id.topic && source.partition == id.partition
}
