//! Opens what a crash left behind and holds it against the worlds it may be: that of everything
//! answered, or that and the beginning of what was being asked.

use std::collections::{BTreeMap, BTreeSet};

use punctual_engine::Options;
use punctual_engine::store::Store;
use punctual_model::group::{Committed, Note, Placed};
use punctual_model::ports::{ArmLimit, Delivered, StoreError};
use punctual_model::{Group, Lane, MessageId, Partition, Source, Timestamp};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::world::{Event, World};
use crate::store_support::ledger::{During, Phase};
use crate::store_support::look::Look;
use crate::store_support::open;

/// What was asked and answered, and the settings it was done with.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What there was at the beginning.
    pub base: World,
    /// What was asked, in order.
    pub events: Vec<(During, Event)>,
    /// What retention was free to take, from which moment on.
    pub expirable: Vec<(u64, BTreeSet<MessageId>)>,
    /// The settings.
    pub options: Options,
}

impl Past {
    /// What may be there after that many operations of the disk: whatever was answered, and the
    /// beginning of what was being asked.
    pub fn worlds(&self, ops: u64) -> Vec<World> {
        let mut worlds = vec![self.base.clone()];
        for (during, event) in &self.events {
            match during.phase(ops) {
                Phase::Done => worlds.iter_mut().for_each(|world| world.take(event)),
                Phase::Before => break,
                Phase::Open => {
                    let mut further = worlds[worlds.len() - 1].clone();
                    further.take(event);
                    worlds.push(further);
                }
            }
        }
        worlds
    }

    fn expired(&self, ops: u64) -> BTreeSet<MessageId> {
        let taken = self.expirable.iter().filter(|(start, _)| *start < ops);
        taken.flat_map(|(_, ids)| ids).copied().collect()
    }

    /// Starts on `image`, which is what was left after that many operations, and holds it against
    /// what may be there, before and after everything is delivered.
    pub fn examine(&self, image: &ForgetfulDisk, ops: u64) -> Result<Vec<World>, String> {
        self.examine_as(image, self.worlds(ops), ops)
    }

    /// As [`examine`](Self::examine), goes on with the store, and starts once more.
    pub fn examine_twice(&self, image: &ForgetfulDisk, ops: u64) -> Result<(), String> {
        let worlds = self.examine(image, ops)?;
        let again = image.reopen();
        self.examine_as(&again, worlds, ops)
            .map(drop)
            .map_err(|what| format!("after another start: {what}"))
    }

    /// As [`examine`](Self::examine), where only these worlds may be.
    pub fn examine_as(
        &self,
        image: &ForgetfulDisk,
        worlds: Vec<World>,
        ops: u64,
    ) -> Result<Vec<World>, String> {
        let store = self.start(image)?;
        self.judge(&store, worlds, ops)
    }

    /// As [`examine`](Self::examine), and writes a checkpoint. Answers what it turned out to be, and
    /// after how many operations the start was complete.
    pub fn recover(&self, image: &ForgetfulDisk, ops: u64) -> Result<(Vec<World>, u64), String> {
        let store = self.start(image)?;
        let started = image.ops();
        let worlds = self.judge(&store, self.worlds(ops), ops)?;
        store.checkpoint(Timestamp::MAX).map_err(|error| format!("checkpoint: {error}"))?;
        Ok((worlds, started))
    }

    fn start(&self, image: &ForgetfulDisk) -> Result<Store, String> {
        open(image, &self.options).map_err(|error| format!("does not start: {error}"))
    }

    /// The worlds that the store may be, before and after everything is delivered.
    fn judge(&self, store: &Store, worlds: Vec<World>, ops: u64) -> Result<Vec<World>, String> {
        let expired = self.expired(ops);
        let worlds = fitting(store, worlds, &expired)?;
        drain(store).map_err(|error| format!("drain: {error}"))?;
        let worlds = fitting(store, worlds, &expired)
            .map_err(|what| format!("after everything was delivered: {what}"))?;
        let pending = store.counts();
        if !pending.is_empty() {
            return Err(format!("after everything was delivered, pending: {pending:?}"));
        }
        Ok(worlds)
    }
}

/// The worlds that the store may be showing.
pub fn fitting(
    store: &Store,
    worlds: Vec<World>,
    expired: &BTreeSet<MessageId>,
) -> Result<Vec<World>, String> {
    let shown = Shown::by(store)?;
    let mut reasons = Vec::new();
    let fits = |world: &World| match shown.compare(world, expired) {
        Ok(()) => true,
        Err(reason) => {
            reasons.push(reason);
            false
        }
    };
    let fitting: Vec<World> = worlds.into_iter().filter(fits).collect();
    if fitting.is_empty() { Err(reasons.join("; or else ")) } else { Ok(fitting) }
}

/// Delivers everything there is, as if it were the end of time.
pub fn drain(store: &Store) -> Result<(), StoreError> {
    for lane in Lane::ALL {
        loop {
            let limit = ArmLimit { entries: 40, bytes: 1 << 20 };
            let mut batch = store.arm(lane, Timestamp::MAX, limit)?;
            if batch.is_empty() {
                break;
            }
            store.claim(&mut batch)?;
            store.deliver(&batch, Timestamp::MAX)?;
            store.settle(&batch).unwrap();
        }
    }
    Ok(())
}

type Given = BTreeMap<MessageId, Option<Note>>;

/// Everything that a store shows of groups.
#[derive(Debug)]
pub struct Shown {
    look: Look,
    groups: Vec<Group>,
    given: BTreeMap<Source, Given>,
    said: BTreeMap<Source, Committed>,
}

impl Shown {
    /// Reads everything.
    pub fn by(store: &Store) -> Result<Self, String> {
        let look = Look::at(store)?;
        look.compare_counts(store)?;
        let (mut given, mut said) = (BTreeMap::new(), BTreeMap::new());
        let groups: Vec<Group> = store.groups().iter().map(|group| (**group).clone()).collect();
        for group in &groups {
            let mut sources = Vec::new();
            for topic in [group.topic, group.retry, group.dead] {
                let found = look.topics.values().find(|found| found.id == topic);
                let found = found.ok_or_else(|| format!("{group:?} without topic {topic:?}"))?;
                for number in 0..found.settings.partitions {
                    let partition = Partition::new(number).unwrap();
                    sources.push(Source { group: group.id, topic, partition });
                }
            }
            for source in &sources {
                given.insert(*source, pull(store, *source)?);
            }
            compare_standings(store, group, &sources, &given)?;
            for Placed { partition, committed, .. } in store.placed(group.id) {
                said.insert(Source { group: group.id, topic: group.topic, partition }, committed);
            }
        }
        Ok(Self { look, groups, given, said })
    }

    /// Whether this is `world`, but for what retention may have taken.
    pub fn compare(&self, world: &World, expired: &BTreeSet<MessageId>) -> Result<(), String> {
        let mut groups = self.groups.clone();
        groups.sort_by_key(|group| group.id);
        let expected = world.groups.values().map(|group| &**group);
        if !expected.eq(&groups) {
            return Err(format!("groups {groups:?}, not {:?}", world.groups));
        }
        let topics: BTreeMap<_, _> =
            self.look.topics.values().map(|topic| (topic.id, topic.clone())).collect();
        if topics != world.topics {
            return Err(format!("topics {topics:?}, not {:?}", world.topics));
        }
        self.compare_entries(world, expired)?;
        for (source, given) in &self.given {
            self.compare_source(world, *source, given)?;
        }
        let own = |source: &Source| {
            world.groups.get(&source.group).is_some_and(|group| group.topic == source.topic)
        };
        for (source, expected) in world.said.iter().filter(|(source, _)| own(source)) {
            let told = self.said.get(source);
            if told != Some(expected) {
                return Err(format!("{source:?}: {told:?} is told, not {expected:?}"));
            }
        }
        Ok(())
    }

    fn compare_entries(&self, world: &World, expired: &BTreeSet<MessageId>) -> Result<(), String> {
        let mut strangers = self.look.pending.len() + self.look.logged.len();
        for (id, message) in &world.entries {
            let pending = self.look.pending.get(id);
            let logged = self.look.logged.get(id).map_or(&[][..], Vec::as_slice);
            strangers -= usize::from(pending.is_some()) + usize::from(!logged.is_empty());
            let copies: Vec<_> = pending.into_iter().chain(logged).collect();
            match copies.as_slice() {
                [] if expired.contains(id) => {}
                [] => return Err(format!("{id} of {:?} is lost: {message:?}", id.topic)),
                [copy] if *copy == message => {}
                [copy] => return Err(format!("{id} is altered: {copy:?}, not {message:?}")),
                [..] => return Err(format!("{id} is there {} times", copies.len())),
            }
        }
        if strangers > 0 {
            let known = |id: &&MessageId| !world.entries.contains_key(*id);
            let all = self.look.pending.keys().chain(self.look.logged.keys());
            let unknown: Vec<_> = all.filter(known).collect();
            return Err(format!("there are messages that nobody sent: {unknown:?}"));
        }
        Ok(())
    }

    fn compare_source(&self, world: &World, source: Source, given: &Given) -> Result<(), String> {
        let here = |id: &&MessageId| id.topic == source.topic && id.partition == source.partition;
        for id in self.look.logged.keys().filter(here) {
            let done = world.is_done(source.group, *id);
            match (done, given.get(id)) {
                (true, None) => {}
                (true, Some(_)) => return Err(format!("{source:?} is given {id} again")),
                (false, None) => return Err(format!("{source:?} is not given {id}")),
                (false, Some(note)) => {
                    let expected = world.notes.get(&(source.group, *id));
                    if note.as_ref() != expected {
                        return Err(format!("{source:?} {id}: {note:?}, not {expected:?}"));
                    }
                }
            }
        }
        let in_log = |id: &MessageId| self.look.logged.contains_key(id);
        match given.keys().find(|id| !in_log(id)) {
            Some(id) => Err(format!("{source:?} is given {id}, which is in no log")),
            None => Ok(()),
        }
    }
}

/// What the group is given, in small steps.
fn pull(store: &Store, source: Source) -> Result<Given, String> {
    let all = pull_all(store, source)?;
    let given: Given = all.iter().map(|(delivered, note)| (delivered.id, note.clone())).collect();
    if given.len() != all.len() {
        return Err(format!("{source:?} is given something twice"));
    }
    Ok(given)
}

/// What the group is given, in order, in small steps.
pub fn pull_all(store: &Store, source: Source) -> Result<Vec<(Delivered, Option<Note>)>, String> {
    let mut all = Vec::new();
    let mut next = 0;
    loop {
        let pulled = store.pull(source, next, 4).map_err(|error| format!("pull: {error}"))?;
        if pulled.next < next || pulled.messages.len() > 4 {
            return Err(format!("{source:?} pulled from {next}: {pulled:?}"));
        }
        all.extend(pulled.messages);
        if pulled.next == next {
            return Ok(all);
        }
        next = pulled.next;
    }
}

/// Holds what is told of a group against what it is given.
fn compare_standings(
    store: &Store,
    group: &Group,
    sources: &[Source],
    given: &BTreeMap<Source, Given>,
) -> Result<(), String> {
    let told = store.standing(group.id, true).map_err(|error| format!("standing: {error}"))?;
    if !told.iter().map(|standing| &standing.source).eq(sources) {
        return Err(format!("the standing is told of {told:?}, not of {sources:?}"));
    }
    for standing in told {
        let open = given[&standing.source].len() as u64;
        if standing.lag() != open || standing.oldest.is_some() != (open > 0) {
            return Err(format!("{open} are open, and the standing is {standing:?}"));
        }
    }
    Ok(())
}
