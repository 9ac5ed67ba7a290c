//! Drain: the backlog of a group moves to another topic.
//!
//! A message is taken as a consumer would take it, so nobody else is given it meanwhile, and then
//! settled and scheduled in one durable step. In the other topic it is a new message that is due at
//! once: key, headers and body stay; the id and the due time it had are lost. What is with a
//! consumer or waits for another attempt stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::group::{GroupChange, Mark};
use punctual_model::ports::{GroupError, Topic};
use punctual_model::{
    Basis, Entry, Message, MessageId, Timestamp, TopicId, TopicKind, TopicName, partitioner,
};

use super::{JobError, MoveResult, Moved, Worker};
use crate::group::Reason;
use crate::group::read::refusal;
use crate::group::running::Running;
use crate::group::settle::Work;

/// Messages moved at once.
const MOVE_MESSAGES_MAX: usize = 500;

/// Where to move a backlog.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Another topic that producers may send to.
    pub to: TopicName,
    /// At most this many messages; as many as wait now if nothing is said.
    pub max: Option<u64>,
}

impl Drain {
    pub(super) fn target(&self, running: &Running) -> Result<TopicId, JobError> {
        let target = running.core.topics.by_name(&self.to).ok_or(JobError::NoTarget)?;
        let own = running.group().topic;
        if target.kind != TopicKind::Plain || target.id == own {
            return Err(JobError::NoTarget);
        }
        Ok(target.id)
    }
}

/// The work of the job.
pub(super) fn run(
    worker: &Worker,
    running: &Running,
    target: TopicId,
    max: Option<u64>,
) -> Result<(), JobError> {
    let max = match max {
        Some(max) => max,
        // More may arrive meanwhile, for ever.
        None => backlog(running)?,
    };
    let mut moved = 0;
    while moved < max {
        let left = usize::try_from(max - moved).unwrap_or(usize::MAX);
        let batch = worker.step(|| step(running, target, left.min(MOVE_MESSAGES_MAX), moved))?;
        if batch.taken == 0 {
            break;
        }
        moved += batch.moved.len() as u64;
        worker.note(batch.moved.into_iter().map(|(id, due)| Moved {
            id,
            result: MoveResult::Drained,
            due: Some(due),
        }));
    }
    Ok(())
}

fn backlog(running: &Running) -> Result<u64, GroupError> {
    let topic = running.group().topic;
    let standing = running.core.groups.standing(running.id, false).map_err(refusal)?;
    let own = standing.iter().filter(|standing| standing.source.topic == topic);
    Ok(own.map(|standing| standing.lag()).sum())
}

/// What one step has done.
struct Batch {
    taken: usize,
    moved: Vec<(MessageId, Timestamp)>,
}

fn step(running: &Running, target: TopicId, max: usize, turn: u64) -> Result<Batch, GroupError> {
    let works = running.seize(max)?;
    let taken = works.len();
    let now = running.core.time.read().timestamp();
    let (expired, works): (Vec<Work>, Vec<Work>) =
        works.into_iter().partition(|work| work.open.expires <= now);
    let moved = match running.bury(expired, Reason::Expired) {
        Ok(()) => transfer(running, target, &works, turn),
        Err(error) => Err(error),
    };
    match moved {
        Ok(moved) => {
            running.settled(&works);
            Ok(Batch { taken, moved })
        }
        Err(error) => {
            running.unseize(&works);
            Err(error)
        }
    }
}

/// Settles the messages and schedules them for the other topic, in one step.
fn transfer(
    running: &Running,
    target: TopicId,
    works: &[Work],
    turn: u64,
) -> Result<Vec<(MessageId, Timestamp)>, GroupError> {
    if works.is_empty() {
        return Ok(Vec::new());
    }
    let target = running.core.topics.by_id(target).ok_or(GroupError::TopicNotFound)?;
    let due = running.core.time.read().timestamp();
    let bare = works.iter().filter(|work| work.open.content.is_none());
    let mut contents = running.contents(bare.map(|work| work.place))?;
    let (mut entries, mut moved) = (Vec::with_capacity(works.len()), Vec::new());
    let mut marks: BTreeMap<u16, Vec<Mark>> = BTreeMap::new();
    for (work, turn) in works.iter().zip(turn..) {
        marks.entry(work.place.feed).or_default().push(work.open.mark);
        let read_again = contents.remove(&work.place).filter(|(mark, _)| *mark == work.open.mark);
        let read_again = read_again.map(|(_, message)| message);
        // What is not in the log any more is settled all the same.
        if let Some(message) = work.open.content.as_deref().cloned().or(read_again) {
            entries.push(entry(&target, message, due, turn));
            moved.push((work.open.identity.id, due));
        }
    }
    let group = running.group();
    let settle = |(feed, marks)| GroupChange::Settle(running.source(&group, feed), marks);
    block_on(running.core.groups.apply(marks.into_iter().map(settle).collect(), entries))?;
    Ok(moved)
}

fn entry(target: &Arc<Topic>, message: Message, due: Timestamp, turn: u64) -> Entry {
    let partitions = target.settings.partitions;
    let partition = match &message.key {
        Some(key) => partitioner::by_key(key, target.key_partitions),
        None => partitioner::by_turn(turn, partitions),
    };
    Entry { topic: target.id, partition, due, basis: Basis::Delay, message, extra: None }
}
