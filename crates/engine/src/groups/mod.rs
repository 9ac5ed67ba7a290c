//! The groups and what they are done with, in memory. Changes are journaled by the store before
//! they are applied here.

pub(crate) mod progress;
pub(crate) mod stored;

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use punctual_model::catalogue::GroupCatalogue;
use punctual_model::group::{Group, GroupChange, GroupId, Note, Placed, Source};
use punctual_model::ports::Delivered;
use punctual_model::stored::group;
use punctual_model::{Partition, TopicId};

use crate::codec::{self, Malformed};
use crate::groups::progress::{Met, Progress, Stray};

/// The groups there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) known: GroupCatalogue,
    /// A source that is not here is at its beginning.
    progress: HashMap<Source, Progress>,
}

impl Groups {
    /// Adds a group that starts at these offsets, or changes the settings of one that is there.
    pub(crate) fn put(&mut self, group: Group, starts: &[u64]) -> Arc<Group> {
        let (group, is_new) = self.known.put(group);
        if is_new {
            for (number, &start) in (0..).zip(starts).filter(|(_, start)| **start > 0) {
                if let Some(partition) = Partition::new(number) {
                    let source = Source { group: group.id, topic: group.topic, partition };
                    self.progress.insert(source, Progress::starting_at(start));
                }
            }
        }
        group
    }

    /// Removes a group; its number is not given again.
    pub(crate) fn delete(&mut self, id: GroupId) -> Option<Arc<Group>> {
        let group = self.known.delete(id)?;
        self.progress.retain(|source, _| source.group != id);
        Some(group)
    }

    /// Whether the group may read this partition at all.
    pub(crate) fn reads(&self, source: Source) -> bool {
        self.known
            .by_id(source.group)
            .is_some_and(|group| [group.topic, group.retry, group.dead].contains(&source.topic))
    }

    /// Applies a change, unless its group is gone.
    pub(crate) fn apply(&mut self, change: GroupChange) {
        match change {
            GroupChange::Settle(source, marks) => {
                if let Some(progress) = self.progress_mut(source) {
                    for mark in marks {
                        progress.found(mark.sequence);
                        progress.settle(mark.offset);
                    }
                }
            }
            GroupChange::Note(source, mark, note) => {
                if let Some(progress) = self.progress_mut(source) {
                    progress.found(mark.sequence);
                    progress.note(mark.offset, note);
                }
            }
            GroupChange::Seek(source, offset, by) => {
                if let Some(progress) = self.progress_mut(source) {
                    progress.seek(offset, by);
                }
            }
            GroupChange::Commit(source, cursor, said) => {
                if let Some(progress) = self.progress_mut(source) {
                    progress.commit(cursor, said);
                }
            }
            GroupChange::Forget(source) => {
                self.progress.remove(&source);
            }
        }
    }

    /// The progress in a source, made where there is none; `None` when the group is gone.
    pub(crate) fn progress_mut(&mut self, source: Source) -> Option<&mut Progress> {
        self.reads(source).then(|| self.progress.entry(source).or_default())
    }

    /// Remembers a message whose place in the log was lost.
    pub(crate) fn lose(
        &mut self,
        source: Source,
        sequence: punctual_model::Sequence,
        stray: Stray,
    ) {
        if let Some(progress) = self.progress_mut(source) {
            progress.lose(sequence, stray);
        }
    }

    /// How far the group is: the cursor and how many are settled ahead of it.
    pub(crate) fn cursor(&self, source: Source) -> (u64, u64) {
        let known = self.progress.get(&source);
        known.map_or((0, 0), |progress| (progress.cursor(), progress.settled_ahead()))
    }

    /// Where the group goes on in the partitions of its topic.
    pub(crate) fn placed(&self, group: &Group, partitions: u16) -> Vec<Placed> {
        let placed = |partition| {
            let source = Source { group: group.id, topic: group.topic, partition };
            let (committed, by) = self.progress.get(&source)?.placed()?;
            Some(Placed { partition, committed, by })
        };
        (0..partitions).filter_map(Partition::new).filter_map(placed).collect()
    }

    /// Where reading from `from` has to begin.
    pub(crate) fn next_unsettled(&self, source: Source, from: u64) -> u64 {
        self.progress.get(&source).map_or(from, |progress| progress.next_unsettled(from))
    }

    /// Keeps of a page, which is all that lies in a stretch, what the group has not settled.
    pub(crate) fn sift(
        &mut self,
        source: Source,
        stretch: Range<u64>,
        page: Vec<Delivered>,
        open: &mut Vec<(Delivered, Option<Note>)>,
    ) {
        let Some(progress) = self.progress_mut(source) else { return };
        let mut expected = stretch.start;
        for delivered in page {
            progress.skip(expected, delivered.offset);
            expected = delivered.offset + 1;
            match progress.meet(delivered.offset, delivered.id.key.sequence) {
                Met::Settled => {}
                Met::Open(note) => {
                    let note = note.cloned();
                    open.push((delivered, note));
                }
            }
        }
        progress.skip(expected, stretch.end);
    }

    /// Up to where logs must be kept for some group. Dead letters are not kept for their own group:
    /// they go with the retention of their topic.
    pub(crate) fn floors(&self) -> Floors {
        let mut floors = Floors::default();
        for group in self.known.by_number() {
            floors.groups.entry(group.topic).or_default().push(group.id);
            floors.groups.entry(group.retry).or_default().push(group.id);
        }
        for (source, progress) in &self.progress {
            let floor = if progress.holds() { progress.cursor() } else { u64::MAX };
            floors.cursors.insert(*source, floor);
            if !progress.holds() {
                floors.streaming.insert((source.group, source.topic));
            }
        }
        floors
    }

    /// Appends the stored form of everything.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(&self.known.next().to_le_bytes());
        let groups = self.known.by_number();
        codec::put_varint(out, groups.len() as u64);
        for group in groups {
            group::encode_group(out, group);
        }
        codec::put_varint(out, self.progress.len() as u64);
        let mut sources: Vec<&Source> = self.progress.keys().collect();
        sources.sort_unstable();
        for source in sources {
            stored::put_source(out, *source);
            if let Some(progress) = self.progress.get(source) {
                progress.encode(out)?;
            }
        }
        Ok(())
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Malformed`] for anything else.
    pub(crate) fn decode(rest: &mut &[u8]) -> Result<Self, Malformed> {
        let known = GroupCatalogue::new(codec::get_u32(rest)?);
        let mut groups = Self { known, ..Self::default() };
        for _ in 0..codec::get_length(rest)? {
            groups.put(group::decode_group(rest)?, &[]);
        }
        for _ in 0..codec::get_length(rest)? {
            let source = stored::get_source(rest)?;
            groups.progress.insert(source, Progress::decode(rest)?);
        }
        Ok(groups)
    }
}

/// Up to where logs must be kept.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    groups: HashMap<TopicId, Vec<GroupId>>,
    cursors: HashMap<Source, u64>,
    /// Groups that keep their own place in a topic. Where they never were they hold nothing: they
    /// begin where they please.
    streaming: HashSet<(GroupId, TopicId)>,
}

impl Floors {
    /// The first offset of a partition that some group still needs; `None` without any group.
    pub(crate) fn of(&self, topic: TopicId, partition: Partition) -> Option<u64> {
        let cursor = |group: &GroupId| {
            let source = Source { group: *group, topic, partition };
            let never = if self.streaming.contains(&(*group, topic)) { u64::MAX } else { 0 };
            self.cursors.get(&source).copied().unwrap_or(never)
        };
        self.groups.get(&topic)?.iter().map(cursor).min()
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::group::{GroupName, GroupSettings};

    use punctual_model::Sequence;
    use punctual_model::group::{Committed, Mark};

    use super::*;

    #[test]
    fn who_keeps_its_own_place_holds_nothing_where_it_never_was() {
        let topic = |number| TopicId::new(number).unwrap();
        let partition = |number| Partition::new(number).unwrap();
        let mut groups = Groups::default();
        let (id, own) = (GroupId(1), topic(1));
        groups.put(
            Group {
                id,
                topic: own,
                name: GroupName::new("g").unwrap(),
                retry: topic(2),
                dead: topic(3),
                settings: GroupSettings::default(),
            },
            &[],
        );
        let floors = |groups: &Groups| {
            let floors = groups.floors();
            [0, 1].map(|number| floors.of(own, partition(number)))
        };
        assert_eq!(floors(&groups), [Some(0), Some(0)], "a new group may want everything");
        let source = Source { group: id, topic: own, partition: partition(0) };
        groups.apply(GroupChange::Commit(source, 5, Committed::at(5)));
        assert_eq!(floors(&groups), [Some(u64::MAX); 2], "it begins where it pleases");
        assert_eq!(groups.floors().of(topic(2), partition(0)), Some(0), "its retries are its own");
        let other = Source { partition: partition(1), ..source };
        let mark = |offset| Mark { offset, sequence: Sequence::default() };
        groups.apply(GroupChange::Settle(other, vec![mark(0)]));
        assert_eq!(floors(&groups), [Some(u64::MAX), Some(1)], "where it settles it holds");
        groups.apply(GroupChange::Forget(source));
        assert_eq!(floors(&groups), [Some(0), Some(1)]);
    }
}
