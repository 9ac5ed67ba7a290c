//! [`Groups`] of the reference: for each source a cursor, and what is known of messages past it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use punctual_model::group::{
    Committed, GroupChange, Mark, Note, Placed, PlacedBy, SeekBy, Standing, Start,
};
use punctual_model::limits::{DEAD_RETENTION_DEFAULT, GROUPS_MAX, TOPICS_MAX};
use punctual_model::ports::{Delivered, GroupError, Groups, Pulled, StoreError, Topic, TopicError};
use punctual_model::{
    Entry, Group, GroupId, GroupName, GroupSettings, Lane, MessageId, Partition, Source, Span,
    TopicId, TopicKind, TopicName, TopicSettings,
};

use super::{Memory, Reference};

/// How far a group is in one source.
#[derive(Default)]
pub(super) struct Progress {
    cursor: u64,
    /// At the cursor or past it.
    settled: BTreeSet<Mark>,
    /// At the cursor or past it, and not settled.
    notes: BTreeMap<Mark, Note>,
    /// What was said by whoever moved the cursor, if nothing was settled since.
    placed: Option<(Committed, PlacedBy)>,
}

impl Progress {
    fn at(cursor: u64, placed: Option<(Committed, PlacedBy)>) -> Self {
        Self { cursor, placed, ..Self::default() }
    }

    fn settle(&mut self, mark: Mark) {
        self.placed = None;
        if mark.offset >= self.cursor {
            self.notes.remove(&mark);
            self.settled.insert(mark);
        }
        while self.settled.first().is_some_and(|first| first.offset == self.cursor) {
            self.settled.pop_first();
            self.cursor += 1;
        }
    }

    fn note(&mut self, mark: Mark, note: Note) {
        if mark.offset >= self.cursor && !self.settled.contains(&mark) {
            self.notes.insert(mark, note);
        }
    }

    fn is_settled(&self, mark: Mark) -> bool {
        mark.offset < self.cursor || self.settled.contains(&mark)
    }
}

fn mark_of(delivered: &Delivered) -> Mark {
    Mark { offset: delivered.offset, sequence: delivered.id.key.sequence }
}

fn topic_settings(retention: Span) -> TopicSettings {
    TopicSettings { partitions: 1, retention: Some(retention), ..TopicSettings::default() }
}

fn too_many(error: TopicError) -> GroupError {
    match error {
        TopicError::Store(error) => GroupError::Store(error),
        _ => GroupError::TooMany,
    }
}

impl Memory {
    fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.groups.values().find(|group| group.id == id)
    }

    fn make_group(
        &mut self,
        topic: &Topic,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        let names = [name.retry_topic(&topic.name), name.dead_topic(&topic.name)];
        let [Ok(retry), Ok(dead)] = names else { return Err(GroupError::NameTooLong) };
        if let Some(taken) = [&retry, &dead].into_iter().find(|name| self.topics.contains_key(name))
        {
            return Err(GroupError::NameTaken(TopicName::clone(taken)));
        }
        if self.groups.len() >= GROUPS_MAX || self.topics.len() + 2 > TOPICS_MAX {
            return Err(GroupError::TooMany);
        }
        let retry = self.make_topic(&retry, TopicKind::Retry, topic_settings(Span::from_millis(0)));
        let dead = self.make_topic(&dead, TopicKind::Dead, topic_settings(DEAD_RETENTION_DEFAULT));
        let (retry, dead) = (retry.map_err(too_many)?.id, dead.map_err(too_many)?.id);
        self.groups_given += 1;
        let id = GroupId(self.groups_given);
        if start == Start::Latest {
            for partition in partitions(topic) {
                let cursor = self.log(topic.id, partition).map_or(0, |log| log.len() as u64);
                let source = Source { group: id, topic: topic.id, partition };
                self.progress.insert(source, Progress::at(cursor, None));
            }
        }
        Ok(self.store_group(Group {
            id,
            topic: topic.id,
            name: name.clone(),
            retry,
            dead,
            settings,
        }))
    }

    fn store_group(&mut self, group: Group) -> Arc<Group> {
        let group = Arc::new(group);
        self.groups.insert((group.topic, group.name.clone()), Arc::clone(&group));
        group
    }

    /// Removes the group and its own topics; false when there is none.
    pub(super) fn remove_group(&mut self, id: GroupId) -> bool {
        let Some(group) = self.group(id).cloned() else { return false };
        self.groups.remove(&(group.topic, group.name.clone()));
        self.progress.retain(|source, _| source.group != id);
        self.remove_topic(group.retry);
        self.remove_topic(group.dead);
        true
    }

    /// The log of a source, if there is such a source.
    fn source(&self, source: Source) -> Result<&[Delivered], TopicError> {
        let group = self.group(source.group).ok_or(TopicError::NotFound)?;
        if ![group.topic, group.retry, group.dead].contains(&source.topic) {
            return Err(TopicError::NotFound);
        }
        self.log(source.topic, source.partition)
    }

    /// Whether this very message is in the source.
    fn holds(&self, source: Source, mark: Mark) -> bool {
        let log = self.source(source).unwrap_or(&[]);
        log.iter().any(|delivered| mark_of(delivered) == mark)
    }

    fn change(&mut self, change: GroupChange) {
        match change {
            GroupChange::Settle(source, mut marks) => {
                marks.retain(|mark| self.holds(source, *mark));
                for mark in marks {
                    self.progress.entry(source).or_default().settle(mark);
                }
            }
            GroupChange::Note(source, mark, note) => {
                if self.holds(source, mark) {
                    self.progress.entry(source).or_default().note(mark, note);
                }
            }
            GroupChange::Seek(source, cursor, by) => {
                let by = match by {
                    SeekBy::Commit => PlacedBy::Commit,
                    SeekBy::Reset => PlacedBy::Reset,
                };
                self.place(source, cursor, (Committed::at(cursor), by));
            }
            GroupChange::Commit(source, cursor, said) => {
                self.place(source, cursor, (said, PlacedBy::Commit));
            }
            GroupChange::Forget(source) => {
                self.progress.remove(&source);
            }
        }
    }

    fn place(&mut self, source: Source, cursor: u64, placed: (Committed, PlacedBy)) {
        if self.source(source).is_ok() {
            self.progress.insert(source, Progress::at(cursor, Some(placed)));
        }
    }

    fn standing(&self, source: Source, oldest: bool) -> Result<Standing, TopicError> {
        let log = self.source(source)?;
        let none = Progress::default();
        let progress = self.progress.get(&source).unwrap_or(&none);
        let behind = || log.iter().filter(|delivered| delivered.offset >= progress.cursor);
        let open = behind().find(|delivered| !progress.is_settled(mark_of(delivered)));
        Ok(Standing {
            source,
            cursor: progress.cursor,
            start: 0,
            end: log.len() as u64,
            settled_ahead: progress.settled.len() as u64,
            bytes: behind().map(|delivered| delivered.message.weight() as u64).sum(),
            oldest: open.filter(|_| oldest).map(|delivered| delivered.delivered_at),
        })
    }
}

fn partitions(topic: &Topic) -> impl Iterator<Item = Partition> + use<> {
    (0..topic.settings.partitions).filter_map(Partition::new)
}

impl Groups for Reference {
    fn put(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Arc<Group>, GroupError> {
        let mut memory = self.lock();
        let topic = memory.topic(topic).cloned().ok_or(GroupError::TopicNotFound)?;
        if topic.kind == TopicKind::Retry {
            return Err(GroupError::TopicNotFound);
        }
        match memory.groups.get(&(topic.id, name.clone())).cloned() {
            Some(group) => Ok(memory.store_group(Group { settings, ..Group::clone(&group) })),
            None => memory.make_group(&topic, name, settings, start),
        }
    }

    fn delete(&self, id: GroupId) -> Result<bool, GroupError> {
        Ok(self.lock().remove_group(id))
    }

    fn by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.lock().groups.get(&(topic, name.clone())).cloned()
    }

    fn list(&self) -> Vec<Arc<Group>> {
        self.lock().groups.values().cloned().collect()
    }

    fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError> {
        let memory = self.lock();
        let log = memory.source(source)?;
        let none = Progress::default();
        let progress = memory.progress.get(&source).unwrap_or(&none);
        let mut pulled = Pulled { messages: Vec::new(), next: from.max(progress.cursor) };
        for delivered in log.iter().filter(|delivered| delivered.offset >= from) {
            if pulled.messages.len() >= limit {
                break;
            }
            let mark = mark_of(delivered);
            if !progress.is_settled(mark) {
                pulled.messages.push((delivered.clone(), progress.notes.get(&mark).cloned()));
            }
            pulled.next = pulled.next.max(delivered.offset + 1);
        }
        Ok(pulled)
    }

    fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError> {
        let memory = self.lock();
        let group = memory.group(id).ok_or(TopicError::NotFound)?;
        let topics = [group.topic, group.retry, group.dead];
        let topics = topics.into_iter().filter_map(|topic| memory.topic(topic));
        let sources = topics.flat_map(|topic| {
            partitions(topic).map(|partition| Source { group: id, topic: topic.id, partition })
        });
        sources.map(|source| memory.standing(source, oldest)).collect()
    }

    fn placed(&self, id: GroupId) -> Vec<Placed> {
        let memory = self.lock();
        let Some(group) = memory.group(id) else { return Vec::new() };
        let own = |source: &Source| source.group == id && source.topic == group.topic;
        let mut all = Vec::new();
        for (source, progress) in memory.progress.iter().filter(|(source, _)| own(source)) {
            let Progress { cursor, placed, .. } = progress;
            let settled = (*cursor > 0).then(|| (Committed::at(*cursor), PlacedBy::Settle));
            if let Some((committed, by)) = placed.clone().or(settled) {
                all.push(Placed { partition: source.partition, committed, by });
            }
        }
        all.sort_unstable_by_key(|placed| placed.partition);
        all
    }

    fn apply(
        &self,
        changes: Vec<GroupChange>,
        entries: Vec<Entry>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<MessageId>, StoreError>> + Send>> {
        let mut memory = self.lock();
        for change in changes {
            memory.change(change);
        }
        let (ids, listener) = memory.accept_all(Lane::Retry, entries);
        // The listener may call back into the store.
        drop(memory);
        if let Some(listener) = listener {
            listener(Lane::Retry);
        }
        Box::pin(ready(Ok(ids)))
    }
}
