//! Groups: making and removing them, reading what they have not settled, and the way their changes
//! take through the journal.
//!
//! A group and its two topics are made and removed in one group of the journal. What a group is done
//! with and the entries that take its place are one change as well: after a crash both are there or
//! neither is.

use std::sync::Arc;

use punctual_model::catalogue;
use punctual_model::group::{
    Group, GroupChange, GroupId, GroupName, GroupSettings, Placed, RetryPolicy, Source, Standing,
    Start,
};
use punctual_model::ports::{GroupError, LogPosition, Pulled, StoreError, Topic, TopicError};
use punctual_model::{Partition, TopicId};

use crate::journal::change;
use crate::store::{CommitError, Store};

/// Messages looked at by one pull, settled ones included, before it answers what it has.
const PULL_LOOK_MAX: usize = 16 << 10;
/// Bytes of messages after which a pull answers what it has.
const PULL_BYTES: usize = 1 << 20;

/// A group about to be made.
#[derive(Debug)]
pub(super) struct NewGroup {
    pub(super) group: Group,
    pub(super) starts: Vec<u64>,
    pub(super) topics: [Topic; 2],
}

impl Store {
    /// The group of that name.
    #[must_use]
    pub fn group_by_name(&self, topic: TopicId, name: &GroupName) -> Option<Arc<Group>> {
        self.groups.lock().known.by_name(topic, name)
    }

    /// All groups, by topic and name.
    #[must_use]
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.lock().known.list()
    }

    /// Messages of the source from `from` on that the group has not settled, at most `limit`.
    ///
    /// # Errors
    /// [`TopicError::NotFound`] without such a group or partition; [`TopicError::Store`] for a
    /// damaged log.
    pub fn pull(&self, source: Source, from: u64, limit: usize) -> Result<Pulled, TopicError> {
        let mut pulled = Pulled { messages: Vec::new(), next: from };
        let (mut looked, mut bytes) = (0, 0);
        while pulled.messages.len() < limit && looked < PULL_LOOK_MAX && bytes < PULL_BYTES {
            let offset = {
                let groups = self.groups.lock();
                if !groups.reads(source) {
                    return Err(TopicError::NotFound);
                }
                groups.next_unsettled(source, pulled.next)
            };
            let Source { topic, partition, .. } = source;
            let wanted = limit - pulled.messages.len();
            let from = LogPosition { topic, partition, offset };
            let (page, next) = self.logs.read_on(from, wanted)?;
            pulled.next = next;
            if next == offset {
                break;
            }
            looked += page.len();
            bytes += page.iter().map(|delivered| delivered.message.weight()).sum::<usize>();
            self.groups.lock().sift(source, offset..next, page, &mut pulled.messages);
        }
        Ok(pulled)
    }

    /// How far the group is in each partition of its topic, of its retry topic and of its dead
    /// letters.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    pub fn standing(&self, id: GroupId, oldest: bool) -> Result<Vec<Standing>, TopicError> {
        let group = self.groups.lock().known.by_id(id).ok_or(TopicError::NotFound)?;
        let topic = self.topic_by_id(group.topic).ok_or(TopicError::NotFound)?;
        let partitions = (0..topic.settings.partitions).filter_map(Partition::new);
        let first = Partition::new(0).ok_or(TopicError::NotFound)?;
        let of = |topic, partition| Source { group: id, topic, partition };
        let mut sources: Vec<Source> = partitions.map(|p| of(group.topic, p)).collect();
        sources.extend([of(group.retry, first), of(group.dead, first)]);
        sources.into_iter().map(|source| self.standing_in(source, oldest)).collect()
    }

    /// Where the group goes on in the partitions of its topic.
    pub fn placed(&self, id: GroupId) -> Vec<Placed> {
        let Some(group) = self.groups.lock().known.by_id(id) else { return Vec::new() };
        let partitions = self.topic_by_id(group.topic).map_or(0, |one| one.settings.partitions);
        self.groups.lock().placed(&group, partitions)
    }

    fn standing_in(&self, source: Source, oldest: bool) -> Result<Standing, TopicError> {
        let (cursor, settled_ahead) = self.groups.lock().cursor(source);
        let Source { topic, partition, .. } = source;
        let bounds = self.logs.bounds(topic, partition)?;
        let from = cursor.max(bounds.start);
        let bytes =
            if from < bounds.end { self.logs.bytes_from(topic, partition, from)? } else { 0 };
        let first = if oldest && from < bounds.end {
            self.pull(source, from, 1)?.messages.first().map(|(first, _)| first.delivered_at)
        } else {
            None
        };
        let (start, end) = (bounds.start, bounds.end);
        Ok(Standing { source, cursor, start, end, settled_ahead, bytes, oldest: first })
    }

    /// What making this group comes to: the group as it is or will be, and whether it is new.
    pub(super) fn plan_group(
        &self,
        topic: TopicId,
        name: &GroupName,
        settings: GroupSettings,
        start: Start,
    ) -> Result<Planned, CommitError> {
        if let Some(known) = self.group_by_name(topic, name) {
            if known.settings == settings {
                return Ok(Planned::Same(known));
            }
            return Ok(Planned::Changed(Group { settings, ..(*known).clone() }));
        }
        let topic = self.topic_by_id(topic).filter(|topic| catalogue::takes_groups(topic));
        let topic = topic.ok_or(GroupError::TopicNotFound)?;
        let topics = self.catalogue.read().plan_own(&topic.name, name)?;
        let ids = (topics[0].id, topics[1].id);
        let group = self.groups.lock().known.plan(topic.id, name, settings, ids)?;
        let starts = match start {
            Start::Earliest => Vec::new(),
            Start::Latest => self.ends(&topic)?,
        };
        Ok(Planned::New(Box::new(NewGroup { group, starts, topics })))
    }

    /// Where the partitions of a topic end, certain: a loss of power does not take that back.
    fn ends(&self, topic: &Topic) -> Result<Vec<u64>, StoreError> {
        let mut ends = Vec::new();
        for partition in (0..topic.settings.partitions).filter_map(Partition::new) {
            let bounds = self.logs.bounds(topic.id, partition);
            self.sync_log(topic.id, partition)?;
            ends.push(bounds.map_or(0, |bounds| bounds.end));
        }
        Ok(ends)
    }

    pub(super) fn sync_log(&self, topic: TopicId, partition: Partition) -> Result<(), StoreError> {
        self.logs.sync_partition(topic, partition).map_err(|error| self.trust.lose("log", error))
    }

    /// Writes the changes to the payload. A cursor never comes to lie behind what a loss of power
    /// would leave of the log, or messages appended later would be passed over.
    pub(super) fn prepare_changes(
        &self,
        payload: &mut Vec<u8>,
        changes: &[GroupChange],
    ) -> Result<(), StoreError> {
        for change in changes {
            if let GroupChange::Seek(source, ..) | GroupChange::Commit(source, ..) = change {
                self.sync_log(source.topic, source.partition)?;
            }
        }
        for change in changes {
            change::put_progress(payload, change);
        }
        Ok(())
    }

    /// Makes a new group visible.
    pub(super) fn apply_new_group(&self, new: NewGroup) -> Result<Arc<Group>, CommitError> {
        for topic in new.topics {
            self.apply_put(topic)?;
        }
        Ok(self.groups.lock().put(new.group, &new.starts))
    }

    /// The group and all that goes with it.
    pub(super) fn doomed_with(&self, id: GroupId) -> Vec<Arc<Group>> {
        self.groups.lock().known.doomed_with(id)
    }

    /// The groups that go with a topic.
    pub(super) fn doomed_of(&self, topic: TopicId) -> Vec<Arc<Group>> {
        self.groups.lock().known.doomed_of(topic)
    }
}

/// What putting a group comes to.
#[derive(Debug)]
pub(super) enum Planned {
    Same(Arc<Group>),
    Changed(Group),
    New(Box<NewGroup>),
}

/// Bytes that the settings of a group take at most.
pub(super) fn settings_size(settings: &GroupSettings) -> usize {
    let rungs = match &settings.retry {
        RetryPolicy::Ladder(rungs) => rungs.len(),
        RetryPolicy::Exponential(_) => 0,
    };
    let text = |text: &Arc<str>| text.len();
    let push = settings.push.as_ref();
    let push = push.map_or(0, |push| push.url.len() + push.secret.as_ref().map_or(0, text));
    64 + 8 * rungs + push
}

/// Appends the making of a group and its topics.
pub(super) fn put_new_group(payload: &mut Vec<u8>, new: &NewGroup) {
    for topic in &new.topics {
        change::put_topic(payload, topic);
    }
    change::put_group(payload, &new.group, &new.starts);
}

/// Appends the removal of a group and its topics.
pub(super) fn put_group_removal(payload: &mut Vec<u8>, group: &Group) {
    change::put_delete_group(payload, group.id);
    for topic in [group.retry, group.dead] {
        change::put_delete(payload, topic);
    }
}
