//! How far a group is, and putting it elsewhere.

use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::group::{Committed, Group, GroupChange, SeekBy, Source, Standing};
use punctual_model::ports::{GroupError, LogBounds, Topic, TopicError};
use punctual_model::{Partition, Timestamp};

use super::read::refusal;
use super::running::Running;

/// Where a group is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the oldest message still there.
    Earliest,
    /// With what is delivered from now on.
    Latest,
    /// At the first message that was delivered then or later.
    Time(Timestamp),
    /// At these offsets; partitions that are not named stay where they are.
    Offsets(Vec<(Partition, u64)>),
}

/// How far a group is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStanding {
    /// Delivered messages that it has not settled, those that failed and are due again included.
    pub lag: u64,
    /// Messages with consumers.
    pub in_flight: u64,
    /// Failed messages that wait for their next attempt.
    pub retrying: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest message that is not settled was delivered.
    pub oldest: Option<Timestamp>,
    /// The partitions of its topic.
    pub partitions: Vec<Standing>,
}

impl Running {
    pub(crate) fn standing(&self, oldest: bool) -> Result<GroupStanding, GroupError> {
        let group = self.group();
        // A message that moves between the log and its wait while this is read shows in one of the
        // two at least, so a group is never called done too soon.
        let before = (self.core.pending)(group.retry);
        let all = self.core.groups.standing(self.id, oldest).map_err(refusal)?;
        let mut standing = GroupStanding {
            in_flight: self.state.lock().queue.in_flight() as u64,
            retrying: (self.core.pending)(group.retry).max(before),
            ..GroupStanding::default()
        };
        for source in all {
            if source.source.topic == group.dead {
                standing.dead += source.lag();
                continue;
            }
            standing.lag += source.lag();
            let known = standing.oldest.into_iter().chain(source.oldest);
            standing.oldest = known.min();
            if source.source.topic == group.topic {
                standing.partitions.push(source);
            }
        }
        Ok(standing)
    }

    pub(crate) fn reset(&self, to: &ResetTo) -> Result<(), GroupError> {
        let group = self.group();
        let topic = self.core.topics.by_id(group.topic).ok_or(GroupError::NotFound)?;
        let offsets = match to {
            ResetTo::Offsets(offsets) => self.within(&topic, offsets)?,
            ResetTo::Earliest => self.each(&topic, |bounds, _| Ok(bounds.start))?,
            ResetTo::Latest => self.each(&topic, |bounds, _| Ok(bounds.end))?,
            ResetTo::Time(time) => {
                let topics = &self.core.topics;
                self.each(&topic, |_, partition| topics.offset_at(topic.id, partition, *time))?
            }
        };
        self.seek(&group, &offsets, SeekBy::Reset)
    }

    pub(crate) fn commit(&self, offsets: &[(Partition, u64)]) -> Result<(), GroupError> {
        let group = self.group();
        let topic = self.core.topics.by_id(group.topic).ok_or(GroupError::NotFound)?;
        let offsets = self.within(&topic, offsets)?;
        self.seek(&group, &offsets, SeekBy::Commit)
    }

    pub(crate) fn commit_said(&self, said: Vec<(Partition, Committed)>) -> Result<(), GroupError> {
        let group = self.group();
        let topic = self.core.topics.by_id(group.topic).ok_or(GroupError::NotFound)?;
        let asked: Vec<(Partition, u64)> =
            said.iter().map(|(partition, said)| (*partition, said.offset)).collect();
        let offsets = self.within(&topic, &asked)?;
        let mut said = said.into_iter();
        self.go_on(&group, &offsets, |source, offset| match said.next() {
            Some((_, said)) => GroupChange::Commit(source, offset, said),
            None => GroupChange::Seek(source, offset, SeekBy::Commit),
        })
    }

    pub(crate) fn forget_places(&self, partitions: &[Partition]) -> Result<(), GroupError> {
        let offsets: Vec<(Partition, u64)> =
            partitions.iter().map(|partition| (*partition, 0)).collect();
        self.go_on(&self.group(), &offsets, |source, _| GroupChange::Forget(source))
    }
}

impl Running {
    /// An offset for each partition.
    fn each(
        &self,
        topic: &Arc<Topic>,
        offset: impl Fn(LogBounds, Partition) -> Result<u64, TopicError>,
    ) -> Result<Vec<(Partition, u64)>, GroupError> {
        let find = |partition| {
            let bounds = self.core.topics.bounds(topic.id, partition)?;
            Ok((partition, offset(bounds, partition)?))
        };
        let partitions = (0..topic.settings.partitions).filter_map(Partition::new);
        partitions.map(find).collect::<Result<_, _>>().map_err(refusal)
    }

    /// The offsets, moved to within the logs.
    fn within(
        &self,
        topic: &Arc<Topic>,
        offsets: &[(Partition, u64)],
    ) -> Result<Vec<(Partition, u64)>, GroupError> {
        let find = |(partition, offset): &(Partition, u64)| {
            let bounds = self.core.topics.bounds(topic.id, *partition)?;
            Ok((*partition, (*offset).max(bounds.start).min(bounds.end)))
        };
        offsets.iter().map(find).collect::<Result<_, _>>().map_err(|error| match refusal(error) {
            GroupError::NotFound => GroupError::TopicNotFound,
            other => other,
        })
    }

    fn seek(
        &self,
        group: &Group,
        offsets: &[(Partition, u64)],
        by: SeekBy,
    ) -> Result<(), GroupError> {
        self.go_on(group, offsets, |source, offset| GroupChange::Seek(source, offset, by))
    }

    /// Goes on at the offsets. What was read of those partitions is forgotten, and nobody holds any
    /// of it any more.
    fn go_on(
        &self,
        group: &Group,
        offsets: &[(Partition, u64)],
        mut change: impl FnMut(Source, u64) -> GroupChange,
    ) -> Result<(), GroupError> {
        let changes = offsets
            .iter()
            .map(|(partition, offset)| change(self.source(group, partition.get() + 1), *offset))
            .collect();
        // Nothing is read meanwhile, or it would be taken for what comes after.
        let reader = self.reader.lock();
        block_on(self.core.groups.apply(changes, Vec::new()))?;
        let mut state = self.state.lock();
        let now = self.core.time.read().timestamp();
        for (partition, offset) in offsets {
            state.queue.grow(partition.get() + 1);
            state.queue.seek(partition.get() + 1, *offset, now);
        }
        drop((state, reader));
        self.waiters.wake_all();
        self.holders.wake_all();
        Ok(())
    }
}
