//! Takes steps on a store, writes down what was asked and answered, and holds the store against it.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_engine::Options;
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{CommitError, Outcome, Request, Store};
use punctual_model::group::{Committed, GroupChange, Mark, Note, SeekBy, Start};
use punctual_model::limits::DEAD_RETENTION_DEFAULT;
use punctual_model::ports::{
    ArmLimit, Armed, Delivered, LogPosition, StoreError, Topic, TopicError,
};
use punctual_model::{
    Basis, Entry, Group, GroupId, GroupName, GroupSettings, Key, Lane, Message, MessageId,
    Partition, Sequence, Source, Span, TopicId, TopicKind, TopicName, TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::examine::{Past, fitting, pull_all};
use super::steps::{Act, Place, Step, What, Who};
use super::world::{Change, Event, World};
use crate::store_support::ledger::During;
use crate::store_support::{at, message, open};

/// No answer came.
const NEVER: u64 = u64::MAX;

/// How often something worth reaching was reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub settled: u64,
    pub noted: u64,
    pub moved: u64,
    pub redriven: u64,
    pub sought: u64,
    pub delivered: [u64; 2],
    pub flushed: u64,
    pub merged: u64,
    pub expired: u64,
    pub restarts: u64,
}

/// A store, its disk, and what is known of them.
#[derive(Debug)]
pub struct Runner {
    pub disk: ForgetfulDisk,
    pub store: Store,
    pub past: Past,
    /// What there is now.
    pub world: World,
    pub reached: Reached,
    /// Operations of the disks before this one.
    before: u64,
    now: u64,
    sent: usize,
    /// The next sequence of each lane.
    next: [u64; 2],
    /// The numbers of the next topic and group.
    next_topic: u32,
    next_group: u32,
    /// Claimed; a full disk may keep it waiting.
    claimed: [Vec<Armed>; 2],
}

/// One request and what it comes to if it is answered well.
struct Asked {
    request: Request,
    changes: Vec<Change>,
    entries: Vec<Entry>,
    lane: Lane,
}

impl Runner {
    /// A new store on `disk`.
    pub fn new(disk: ForgetfulDisk, options: Options) -> Self {
        let store = open(&disk, &options).unwrap();
        Self {
            disk,
            store,
            past: Past { options, ..Past::default() },
            world: World::default(),
            reached: Reached::default(),
            before: 0,
            now: 0,
            sent: 0,
            next: Lane::ALL.map(|lane| lane.first().get()),
            next_topic: 0,
            next_group: 0,
            claimed: Default::default(),
        }
    }

    /// Goes on with what is found on `disk`, which must be what there was; operations are counted
    /// on.
    pub fn restart(&mut self, disk: ForgetfulDisk) -> Result<(), String> {
        self.before = self.ops();
        let started = open(&disk, &self.past.options);
        self.store = started.map_err(|error| format!("does not start: {error}"))?;
        self.disk = disk;
        self.claimed = Default::default();
        self.reached.restarts += 1;
        self.past.base = self.world.clone();
        self.past.events.clear();
        self.check()
    }

    /// Operations of the disk so far.
    pub fn ops(&self) -> u64 {
        self.before + self.disk.ops()
    }

    /// Holds the store as it is against what there should be.
    pub fn check(&self) -> Result<(), String> {
        let expired: BTreeSet<MessageId> =
            self.past.expirable.iter().flat_map(|(_, ids)| ids).copied().collect();
        fitting(&self.store, vec![self.world.clone()], &expired).map(drop)
    }

    /// Takes all steps, none of which may be refused, and looks after each.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        for (number, step) in steps.iter().enumerate() {
            let told = |what| format!("step {number} {step:?}: {what}");
            self.step(step).map_err(|error| told(error.to_string()))?;
            self.check().map_err(told)?;
        }
        Ok(())
    }

    /// Takes a step. An error is a refusal that is written down.
    pub fn step(&mut self, step: &Step) -> Result<(), StoreError> {
        match step {
            Step::Put(name, partitions, keep) => self.put(name, *partitions, *keep),
            Step::Delete(name) => self.delete(name),
            Step::Group(who, latest) => {
                let start = if *latest { Start::Latest } else { Start::Earliest };
                self.put_group(who, GroupSettings::default(), start)
            }
            Step::Change(who) => self.change_group(who),
            Step::Ungroup(who) => self.ungroup(who),
            Step::Schedule(topic, dues) => self.schedule(topic, dues),
            Step::Fire(lane, until) => self.fire(*lane, *until),
            Step::Acts(acts) => self.act(acts),
            Step::Freeze => {
                self.store.freeze();
                Ok(())
            }
            Step::Upkeep => {
                let done = self.store.upkeep(at(self.now), false)?;
                self.reached.flushed += u64::from(done.flushed);
                self.reached.merged += u64::from(done.merged);
                Ok(())
            }
            Step::Checkpoint => self.store.checkpoint(at(self.now)),
            Step::Maintain => self.maintain(),
        }
    }

    fn maintain(&mut self) -> Result<(), StoreError> {
        let start = self.ops();
        let delivered = self.world.entries.keys().filter(|id| self.offset_of(**id).is_some());
        let free: BTreeSet<MessageId> =
            delivered.filter(|id| self.world.may_expire(**id)).copied().collect();
        self.past.expirable.push((start, free.clone()));
        self.store.maintain(at(self.now))?;
        let gone = free.iter().filter(|id| self.offset_of(**id).is_none()).count();
        self.reached.expired += gone as u64;
        Ok(())
    }

    fn offset_of(&self, id: MessageId) -> Option<u64> {
        let found = self.log(id.topic, id.partition).into_iter();
        found.filter(|delivered| delivered.id == id).map(|delivered| delivered.offset).next()
    }

    /// Everything in the log of a partition.
    fn log(&self, topic: TopicId, partition: Partition) -> Vec<Delivered> {
        let mut all: Vec<Delivered> = Vec::new();
        let Ok(bounds) = self.store.logs().bounds(topic, partition) else { return all };
        let mut offset = bounds.start;
        while offset < bounds.end {
            let from = LogPosition { topic, partition, offset };
            all.extend(self.store.logs().read(from, 100).unwrap());
            offset = all.last().unwrap().offset + 1;
        }
        all
    }

    /// Commits one request that makes or removes something. `guess` is what it comes to when no
    /// answer tells: the numbers of topics and groups are given without gaps.
    fn commit_one(
        &mut self,
        request: Request,
        guess: Option<Event>,
        event: impl FnOnce(&Self, Outcome) -> Option<Event>,
    ) -> Result<(), StoreError> {
        let start = self.ops();
        let answer = self.store.commit(vec![request]).remove(0);
        let end = self.ops();
        match answer {
            Ok(outcome) => {
                if let Some(event) = event(self, outcome) {
                    self.learn(&event);
                    self.world.take(&event);
                    self.past.events.push((During { start, end }, event));
                }
                Ok(())
            }
            Err(error) => {
                let error = store_error(&error);
                if let Some(guess) = guess.filter(|_| error != StoreError::Full) {
                    self.past.events.push((During { start, end: NEVER }, guess));
                }
                Err(error)
            }
        }
    }

    fn learn(&mut self, event: &Event) {
        match event {
            Event::Topic(topic) => self.next_topic = self.next_topic.max(topic.id.get() + 1),
            Event::Group(group, ..) => {
                self.next_topic = self.next_topic.max(group.dead.get() + 1);
                self.next_group = self.next_group.max(group.id.0 + 1);
            }
            Event::TopicGone(_) | Event::GroupGone(_) | Event::Applied(..) => {}
        }
    }

    fn put(&mut self, name: &str, partitions: u16, keep: Option<u64>) -> Result<(), StoreError> {
        let known = self.world.topic(name);
        let least = known.as_ref().map_or(1, |topic| topic.settings.partitions);
        let settings = TopicSettings {
            partitions: partitions.max(least),
            retention: None,
            retention_bytes: keep,
            ..TopicSettings::default()
        };
        let name = TopicName::new(name).unwrap();
        let id = known.as_ref().map_or(TopicId::new(self.next_topic).unwrap(), |topic| topic.id);
        let key_partitions = known.map_or(settings.partitions, |topic| topic.key_partitions);
        let guess = Topic { id, name, kind: TopicKind::Plain, key_partitions, settings };
        let request = Request::PutTopic(guess.name.clone(), guess.settings.clone());
        let guess = Event::Topic(Arc::new(guess));
        self.commit_one(request, Some(guess), |_, outcome| match outcome {
            Outcome::Topic(topic) => Some(Event::Topic(topic)),
            other => panic!("a topic was answered with {other:?}"),
        })
    }

    fn delete(&mut self, name: &str) -> Result<(), StoreError> {
        let request = Request::DeleteTopic(TopicName::new(name).unwrap());
        let known = self.world.topic(name).map(|topic| topic.id);
        self.commit_one(request, known.map(Event::TopicGone), |_, outcome| match outcome {
            Outcome::Deleted(was_there) => {
                assert_eq!(was_there, known.is_some(), "topic {name}");
                known.map(Event::TopicGone)
            }
            other => panic!("a deletion was answered with {other:?}"),
        })
    }

    fn put_group(
        &mut self,
        who: &Who,
        settings: GroupSettings,
        start: Start,
    ) -> Result<(), StoreError> {
        let Some(topic) = self.world.topic(&who.topic) else { return Ok(()) };
        let name = GroupName::new(&who.group).unwrap();
        let mut passed = Vec::new();
        if start == Start::Latest {
            for partition in (0..topic.settings.partitions).filter_map(Partition::new) {
                passed.extend(self.log(topic.id, partition).iter().map(|passed| passed.id));
            }
        }
        let guess = self.guess_group(who, &topic, &settings, passed.clone());
        let request = Request::PutGroup(topic.id, name, settings, start);
        self.commit_one(request, Some(guess), |runner, outcome| match outcome {
            Outcome::Group(group) => {
                let topic = |id| runner.store.topic_by_id(id).expect("a group has its topics");
                let topics = [group.retry, group.dead].map(topic).to_vec();
                Some(Event::Group(group, topics, passed))
            }
            other => panic!("a group was answered with {other:?}"),
        })
    }

    fn guess_group(
        &self,
        who: &Who,
        topic: &Topic,
        settings: &GroupSettings,
        passed: Vec<MessageId>,
    ) -> Event {
        let settings = settings.clone();
        if let Some(known) = self.world.group(&who.topic, &who.group) {
            let topics = [known.retry, known.dead].map(|id| Arc::clone(&self.world.topics[&id]));
            return Event::Group(
                Arc::new(Group { settings, ..(*known).clone() }),
                topics.to_vec(),
                passed,
            );
        }
        let name = GroupName::new(&who.group).unwrap();
        let own = |place: u32, name, kind, retention| Topic {
            id: TopicId::new(self.next_topic + place).unwrap(),
            name,
            kind,
            key_partitions: 1,
            settings: TopicSettings {
                partitions: 1,
                retention: Some(retention),
                ..TopicSettings::default()
            },
        };
        let retry = name.retry_topic(&topic.name).unwrap();
        let retry = own(0, retry, TopicKind::Retry, Span::from_millis(0));
        let dead = name.dead_topic(&topic.name).unwrap();
        let dead = own(1, dead, TopicKind::Dead, DEAD_RETENTION_DEFAULT);
        let id = GroupId(self.next_group);
        let (topic, ids) = (topic.id, (retry.id, dead.id));
        let group = Group { id, topic, name, retry: ids.0, dead: ids.1, settings };
        Event::Group(Arc::new(group), vec![Arc::new(retry), Arc::new(dead)], passed)
    }

    fn change_group(&mut self, who: &Who) -> Result<(), StoreError> {
        let Some(group) = self.world.group(&who.topic, &who.group) else { return Ok(()) };
        let paused = !group.settings.paused;
        let settings = GroupSettings { paused, ..group.settings.clone() };
        self.put_group(who, settings, Start::Latest)
    }

    fn ungroup(&mut self, who: &Who) -> Result<(), StoreError> {
        let Some(group) = self.world.group(&who.topic, &who.group) else { return Ok(()) };
        let gone = Event::GroupGone(group.id);
        self.commit_one(Request::DeleteGroup(group.id), Some(gone), |_, outcome| match outcome {
            Outcome::Deleted(true) => Some(Event::GroupGone(group.id)),
            other => panic!("the removal of a group was answered with {other:?}"),
        })
    }

    fn schedule(&mut self, topic: &str, dues: &[u64]) -> Result<(), StoreError> {
        let Some(topic) = self.world.topic(topic) else { return Ok(()) };
        let entries: Vec<Entry> = (self.sent..)
            .zip(dues)
            .map(|(number, due)| Entry {
                topic: topic.id,
                partition: Partition::new(
                    u16::try_from(number).unwrap() % topic.settings.partitions,
                )
                .unwrap(),
                due: at(*due),
                basis: Basis::Delay,
                message: message(number),
                extra: None,
            })
            .collect();
        self.sent += dues.len();
        let lane = Lane::Message;
        let request = Request::Schedule(Draft::new(&entries, lane));
        self.commit_all(vec![Asked { request, changes: Vec::new(), entries, lane }])
    }

    fn act(&mut self, acts: &[Act]) -> Result<(), StoreError> {
        let mut taken = BTreeSet::new();
        let asked: Vec<Asked> = acts.iter().filter_map(|act| self.ask(act, &mut taken)).collect();
        if asked.is_empty() { Ok(()) } else { self.commit_all(asked) }
    }

    fn source(&self, group: &Group, place: Place) -> Option<Source> {
        let (topic, number) = match place {
            Place::Main(number) => (group.topic, number),
            Place::Retry => (group.retry, 0),
            Place::Dead => (group.dead, 0),
        };
        let partitions = self.world.topics.get(&topic)?.settings.partitions;
        let partition = Partition::new(number).filter(|_| number < partitions)?;
        Some(Source { group: group.id, topic, partition })
    }

    /// What the act comes to, unless there is no such message.
    fn ask(&mut self, act: &Act, taken: &mut BTreeSet<(Source, u64)>) -> Option<Asked> {
        let group = self.world.group(&act.who.topic, &act.who.group)?;
        let source = self.source(&group, act.place)?;
        if let What::Seek(behind, by) = act.what {
            let bounds = self.store.logs().bounds(source.topic, source.partition).unwrap();
            let offset = (bounds.start + behind).min(bounds.end);
            let log = self.log(source.topic, source.partition);
            let passed = log.iter().filter(|passed| passed.offset < offset).map(|passed| passed.id);
            let passed: Vec<MessageId> = passed.collect();
            self.reached.sought += 1;
            let number = self.reached.sought;
            if by == SeekBy::Commit && !number.is_multiple_of(3) {
                let said = said(offset, number);
                let change = Change::Commit(source, passed, said.clone());
                return Some(asked(GroupChange::Commit(source, offset, said), change, Vec::new()));
            }
            let change = Change::Seek(source, passed, by);
            return Some(asked(GroupChange::Seek(source, offset, by), change, Vec::new()));
        }
        let given = pull_all(&self.store, source).unwrap_or_else(|what| panic!("{what}"));
        let picks: Vec<usize> = match &act.what {
            What::Settle(picks) => picks.clone(),
            What::Note(pick) | What::Retry(pick, _) | What::Bury(pick) => vec![*pick],
            What::Seek(..) => Vec::new(),
        };
        let picked: Vec<&Delivered> = picks
            .iter()
            .filter_map(|&pick| given.get(pick).map(|(delivered, _)| delivered))
            .filter(|delivered| taken.insert((source, delivered.offset)))
            .collect();
        let first = *picked.first()?;
        let marks = picked.iter().map(|delivered| mark(delivered)).collect();
        let ids = picked.iter().map(|delivered| delivered.id).collect();
        let settle = (GroupChange::Settle(source, marks), Change::Settle(source, ids));
        let (change, entries) = match act.what {
            What::Note(_) => {
                let note = self.a_note();
                let change = GroupChange::Note(source, mark(first), note.clone());
                ((change, Change::Note(source, first.id, note)), Vec::new())
            }
            What::Retry(_, later) => (settle, vec![moved(first, group.retry, self.now + later)]),
            What::Bury(_) => (settle, vec![moved(first, group.dead, self.now)]),
            What::Settle(_) | What::Seek(..) => (settle, Vec::new()),
        };
        self.count(act, picked.len());
        Some(asked(change.0, change.1, entries))
    }

    fn count(&mut self, act: &Act, picked: usize) {
        match act.what {
            What::Settle(_) => self.reached.settled += picked as u64,
            What::Note(_) => self.reached.noted += 1,
            What::Retry(..) if act.place == Place::Dead => self.reached.redriven += 1,
            What::Retry(..) | What::Bury(_) => self.reached.moved += 1,
            What::Seek(..) => {}
        }
    }

    fn a_note(&self) -> Note {
        let number = self.reached.noted;
        Note {
            failed: u16::try_from(number % 1000).unwrap(),
            not_before: at(self.now + number),
            first_error: (!number.is_multiple_of(3)).then(|| "first".into()),
            last_error: Some(format!("error {number}").into()),
        }
    }

    /// Commits requests together and writes down each as one event.
    fn commit_all(&mut self, asked: Vec<Asked>) -> Result<(), StoreError> {
        let start = self.ops();
        let mut requests = Vec::new();
        let mut told = Vec::new();
        for Asked { request, changes, entries, lane } in asked {
            requests.push(request);
            told.push((changes, entries, lane));
        }
        let answers = self.store.commit(requests);
        let end = self.ops();
        let mut refused = None;
        for ((changes, entries, lane), answer) in told.into_iter().zip(answers) {
            let next = &mut self.next[lane.index()];
            let end = match &answer {
                Ok(Outcome::Scheduled(first) | Outcome::Progressed(Some(first))) => {
                    assert!(first.get() >= *next, "sequences only grow");
                    *next = first.get();
                    end
                }
                Ok(Outcome::Progressed(None)) => {
                    assert!(entries.is_empty(), "entries have numbers");
                    end
                }
                Ok(other) => panic!("entries were answered with {other:?}"),
                Err(error) => {
                    let error = store_error(error);
                    let left_out = matches!(error, StoreError::Full | StoreError::Busy);
                    refused = Some(error);
                    if left_out {
                        continue;
                    }
                    NEVER
                }
            };
            let mut numbered = Vec::new();
            for entry in entries {
                numbered.push((id_of(&entry, Sequence::new(*next).unwrap()), entry.message));
                *next += 1;
            }
            let event = Event::Applied(changes, numbered);
            if end != NEVER {
                self.world.take(&event);
            }
            self.past.events.push((During { start, end }, event));
        }
        refused.map_or(Ok(()), Err)
    }

    fn fire(&mut self, lane: Lane, until: u64) -> Result<(), StoreError> {
        self.now = self.now.max(until);
        self.deliver_claimed(lane)?;
        loop {
            let limit = ArmLimit { entries: 6, bytes: 700 };
            let mut batch = self.store.arm(lane, at(until), limit)?;
            if batch.is_empty() {
                return Ok(());
            }
            self.store.claim(&mut batch)?;
            self.claimed[lane.index()] = batch;
            self.deliver_claimed(lane)?;
        }
    }

    fn deliver_claimed(&mut self, lane: Lane) -> Result<(), StoreError> {
        let batch = &self.claimed[lane.index()];
        if batch.is_empty() {
            return Ok(());
        }
        self.store.deliver(batch, at(self.now))?;
        self.store.settle(batch).unwrap();
        self.reached.delivered[lane.index()] += batch.len() as u64;
        self.claimed[lane.index()].clear();
        Ok(())
    }
}

fn asked(group_change: GroupChange, change: Change, entries: Vec<Entry>) -> Asked {
    let lane = Lane::Retry;
    let draft = (!entries.is_empty()).then(|| Draft::new(&entries, lane));
    let request = Request::Progress(vec![group_change], draft);
    Asked { request, changes: vec![change], entries, lane }
}

fn mark(delivered: &Delivered) -> Mark {
    Mark { offset: delivered.offset, sequence: delivered.id.key.sequence }
}

/// The entry that takes the place of a message that a group is done with.
/// What somebody says who commits; mostly it lies in the log.
fn said(offset: u64, number: u64) -> Committed {
    let beyond = if number.is_multiple_of(5) { number } else { 0 };
    Committed {
        offset: offset + beyond,
        text: format!("commit {number}").into(),
        leader_epoch: number.is_multiple_of(2).then_some(7),
    }
}

fn moved(delivered: &Delivered, topic: TopicId, due: u64) -> Entry {
    let message = Message { headers: Vec::new(), ..delivered.message.clone() };
    let partition = Partition::new(0).unwrap();
    Entry { topic, partition, due: at(due), basis: Basis::Delay, message, extra: None }
}

fn id_of(entry: &Entry, sequence: Sequence) -> MessageId {
    let key = Key { due: entry.due, sequence };
    MessageId { key, topic: entry.topic, partition: entry.partition }
}

fn store_error(error: &CommitError) -> StoreError {
    match error {
        CommitError::Store(error) | CommitError::Topic(TopicError::Store(error)) => error.clone(),
        other => panic!("the call makes no sense: {other}"),
    }
}
