//! What was asked for, what was answered, and what must therefore hold.
//!
//! Moments are counted in operations of the disk. What was answered before a crash holds after it;
//! what was being asked holds entirely or not at all; nothing else is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual_engine::store::Store;
use punctual_model::ports::Topic;
use punctual_model::{Message, MessageId, Sequence, TopicId, TopicSettings};

use super::look::Look;

/// From before the first operation of the disk to after the last one; open when no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct During {
    /// Operations done when it was asked.
    pub start: u64,
    /// Operations done when it was answered.
    pub end: u64,
}

/// How far something had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not asked yet.
    Before,
    /// Asked, and not answered.
    Open,
    /// Answered.
    Done,
}

impl During {
    /// How far it had come after that many operations.
    pub const fn phase(&self, ops: u64) -> Phase {
        if self.end <= ops {
            Phase::Done
        } else if self.start < ops {
            Phase::Open
        } else {
            Phase::Before
        }
    }
}

/// A message that was scheduled.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its id.
    pub id: MessageId,
    /// What was sent.
    pub message: Message,
    /// The topic, by its place in the ledger.
    pub topic: usize,
    /// The batch it was part of.
    pub batch: usize,
    /// When it was scheduled.
    pub scheduled: During,
    /// When it was cancelled with success, and what the clock showed.
    pub cancelled: Option<(During, u64)>,
    /// When it was delivered.
    pub fired: Option<During>,
}

/// A topic that was made.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its number, once it was told.
    pub id: Option<TopicId>,
    /// When it got which settings.
    pub puts: Vec<(During, TopicSettings)>,
    /// When it was removed.
    pub deleted: Option<During>,
}

/// Where a store was stopped, and how.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Operations of the disk done by then.
    pub ops: u64,
    /// Whether only the process ended, so that everything written is there.
    pub killed: bool,
    /// Whether everything may have been delivered since.
    pub drained: bool,
    /// Whether what was answered may be lost, because nobody waited for the disk.
    pub lossy: bool,
}

impl Moment {
    /// After that many operations, everything being safe that was answered.
    pub const fn after(ops: u64) -> Self {
        Self { ops, killed: false, drained: false, lossy: false }
    }

    /// How far something had come that the journal keeps.
    fn phase(&self, during: During) -> Phase {
        match during.phase(self.ops) {
            Phase::Done if self.lossy => Phase::Open,
            phase => phase,
        }
    }
}

/// What is there of the ledger's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Pending.
    pub pending: BTreeSet<MessageId>,
    /// Delivered.
    pub logged: BTreeSet<MessageId>,
}

impl Seen {
    /// Pending or delivered.
    pub fn all(&self) -> BTreeSet<MessageId> {
        self.pending.union(&self.logged).copied().collect()
    }
}

/// Everything that was asked and answered.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The messages, in the order of scheduling.
    pub sent: Vec<Sent>,
    /// The topics, in the order of making.
    pub topics: Vec<Known>,
    /// The checkpoints.
    pub checkpoints: Vec<During>,
    /// The rounds of housekeeping.
    pub maintained: Vec<During>,
    /// Batches so far.
    pub batches: usize,
    /// The place of each message by its sequence.
    places: HashMap<Sequence, usize>,
}

impl Ledger {
    /// Adds a message.
    pub fn send(&mut self, sent: Sent) {
        self.places.insert(sent.id.key.sequence, self.sent.len());
        self.sent.push(sent);
    }

    /// The place of the message with that sequence.
    pub fn place(&self, sequence: Sequence) -> Option<usize> {
        self.places.get(&sequence).copied()
    }

    /// The topic that has this name now.
    pub fn live(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|known| known.name == name && known.deleted.is_none())
    }

    /// Holds a store that was stopped at `moment` against the ledger.
    pub fn check(&self, store: &Store, moment: Moment) -> Result<Seen, String> {
        let look = Look::at(store)?;
        self.check_topics(&look, moment)?;
        let mut batches: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut strangers = look.pending.len() + look.logged.len();
        for (number, sent) in self.sent.iter().enumerate() {
            let pending = usize::from(look.pending.contains_key(&sent.id));
            let logged = usize::from(look.logged.contains_key(&sent.id));
            strangers -= pending + logged;
            self.judge(sent, &look, moment)
                .map_err(|what| format!("message {number} {} {what}: {sent:?}", sent.id))?;
            if moment.phase(sent.scheduled) == Phase::Open && sent.cancelled.is_none() {
                let (there, all) = batches.entry(sent.batch).or_default();
                *there += pending + logged;
                *all += 1;
            }
        }
        if let Some((batch, (there, all))) =
            batches.iter().find(|(_, (there, all))| *there != 0 && there != all)
            && !moment.lossy
        {
            return Err(format!("{there} of {all} messages of batch {batch} are there"));
        }
        if strangers > 0 {
            return Err(format!("{strangers} messages are there that nobody sent"));
        }
        look.compare_counts(store)?;
        Ok(Seen {
            pending: look.pending.keys().copied().collect(),
            logged: look.logged.keys().copied().collect(),
        })
    }

    fn check_topics(&self, look: &Look, moment: Moment) -> Result<(), String> {
        for (name, topic) in &look.topics {
            let mut known = self.topics.iter().filter(|known| known.name == *name);
            if !known.any(|known| may_be(known, topic, moment)) {
                return Err(format!("topic {name} is there as {topic:?}"));
            }
        }
        for known in &self.topics {
            let made = known.puts.iter().any(|(put, _)| moment.phase(*put) == Phase::Done);
            if made && known.deleted.is_none_or(|gone| moment.phase(gone) == Phase::Before) {
                let found = look.topics.get(&known.name);
                if found.is_none_or(|found| known.id != Some(found.id)) {
                    return Err(format!("topic {} is gone", known.name));
                }
            }
        }
        Ok(())
    }

    fn judge(&self, sent: &Sent, look: &Look, moment: Moment) -> Result<(), &'static str> {
        let pending = look.pending.get(&sent.id);
        let logged = look.logged.get(&sent.id).map_or(&[][..], Vec::as_slice);
        if logged.len() > 1 {
            return Err("is in the log twice");
        }
        if pending.into_iter().chain(logged).any(|message| *message != sent.message) {
            return Err("is altered");
        }
        let is_pending = pending.is_some();
        let is_logged = !logged.is_empty();
        if is_pending && is_logged {
            return Err("is pending and in the log");
        }
        let is_there = is_pending || is_logged;
        if !self.topic_is_there(sent, look, moment) {
            return if is_there { Err("is there without its topic") } else { Ok(()) };
        }
        let ops = moment.ops;
        if moment.phase(sent.scheduled) == Phase::Before && is_there {
            return Err("is there before it was sent");
        }
        let cancelled = sent.cancelled.map_or(Phase::Before, |(during, _)| moment.phase(during));
        if cancelled == Phase::Done && is_there {
            return Err("was cancelled, and is there");
        }
        let fired = sent.fired.map_or(Phase::Before, |during| during.phase(ops));
        if is_logged && fired == Phase::Before && !moment.drained {
            return Err("was delivered before its time");
        }
        let due_there = moment.phase(sent.scheduled) == Phase::Done && cancelled == Phase::Before;
        if due_there && !is_there && !self.may_have_expired(sent, ops) {
            return Err("is lost");
        }
        if is_pending && fired == Phase::Done && (moment.killed || self.is_saved(sent, ops)) {
            return Err("was delivered for certain, and is pending again");
        }
        Ok(())
    }

    fn topic_is_there(&self, sent: &Sent, look: &Look, moment: Moment) -> bool {
        let known = &self.topics[sent.topic];
        if known.puts.iter().all(|(put, _)| moment.phase(*put) != Phase::Done) {
            return look.topics.values().any(|topic| Some(topic.id) == known.id);
        }
        match known.deleted.map_or(Phase::Before, |gone| moment.phase(gone)) {
            Phase::Before => true,
            Phase::Done => false,
            Phase::Open => look.topics.values().any(|topic| Some(topic.id) == known.id),
        }
    }

    /// Whether retention may have removed the message.
    pub fn may_have_expired(&self, sent: &Sent, ops: u64) -> bool {
        let limited = self.topics[sent.topic]
            .puts
            .iter()
            .any(|(_, settings)| settings.retention_bytes.is_some());
        let Some(fired) = sent.fired else { return false };
        limited
            && self.maintained.iter().any(|during| during.start >= fired.end && during.start < ops)
    }

    /// Whether a checkpoint was made after the message was delivered.
    fn is_saved(&self, sent: &Sent, ops: u64) -> bool {
        let Some(fired) = sent.fired else { return false };
        let after = |during: &During| during.start >= fired.end && during.end <= ops;
        self.checkpoints.iter().any(after)
    }
}

/// Whether `topic` is what `known` was by then, or was about to be.
fn may_be(known: &Known, topic: &Topic, moment: Moment) -> bool {
    let gone = known.deleted.is_some_and(|deleted| moment.phase(deleted) == Phase::Done);
    if gone || known.id.is_some_and(|id| id != topic.id) {
        return false;
    }
    let done = known.puts.iter().rev().find(|(put, _)| moment.phase(*put) == Phase::Done);
    let open = known.puts.iter().filter(|(put, _)| moment.phase(*put) == Phase::Open);
    open.chain(done).any(|(_, settings)| *settings == topic.settings)
}
