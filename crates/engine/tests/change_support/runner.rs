//! Takes the steps of a workload, holds every answer against the world, and notes what was asked
//! when.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_engine::Options;
use punctual_engine::store::{CommitError, InLogs, Outcome, Request, Revision, Store};
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Done, Order, PendingEntry, Revised, StoreError, TopicError,
};
use punctual_model::{
    Action, Entry, Key, Lane, Link, MessageId, Parked, State, Timestamp, TopicName, TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::examine::{Past, fitting};
use super::plan::Plan;
use super::shown::Shown;
use super::steps::{Act, FROM_THE_END, Step};
use super::world::{Effect, Event, World};
use crate::store_support::ledger::During;
use crate::store_support::{at, open};

/// Later than anything is due in these tests, and not so late that anything is forgotten.
pub const LATE_MS: u64 = 3_600_000;

/// Carries out orders without threads.
pub fn revise(store: &Store, orders: &[Order], now: Timestamp) -> Result<Revised, StoreError> {
    let request = Request::Revise(Revision::new(orders, now));
    match store.commit(vec![request]).remove(0) {
        Ok(Outcome::Revised(revised)) => Ok(revised),
        Ok(other) => panic!("orders were answered with {other:?}"),
        Err(CommitError::Store(error)) => Err(error),
        Err(error) => panic!("the orders make no sense: {error}"),
    }
}

/// What workloads have come upon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub stored: u64,
    pub moved: u64,
    pub cancelled: u64,
    pub known: u64,
    pub refused: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub flushed: u64,
    pub merged: u64,
    pub id_files_merged: u64,
}

impl Reached {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.stored += other.stored;
        self.moved += other.moved;
        self.cancelled += other.cancelled;
        self.known += other.known;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.flushed += other.flushed;
        self.merged += other.merged;
        self.id_files_merged += other.id_files_merged;
    }
}

/// A store, and what was done to it.
#[derive(Debug)]
pub struct Runner {
    pub disk: ForgetfulDisk,
    pub store: Store,
    pub past: Past,
    pub reached: Reached,
    pub(super) world: World,
    /// Ids in the order in which they were stored.
    pub(super) stored: Vec<MessageId>,
    /// Delivered, as far as the store has shown.
    delivered: BTreeSet<MessageId>,
    /// Operations of the disks before this one.
    before: u64,
    pub(super) now: u64,
    held: Vec<Armed>,
    /// Why the store has refused something.
    refused: RefCell<Option<StoreError>>,
}

impl Runner {
    /// A new store on `disk`.
    pub fn new(disk: ForgetfulDisk, options: Options) -> Self {
        let store = open(&disk, &options).unwrap();
        Self {
            disk,
            store,
            past: Past { options, ..Past::default() },
            reached: Reached::default(),
            world: World::default(),
            stored: Vec::new(),
            delivered: BTreeSet::new(),
            before: 0,
            now: 0,
            held: Vec::new(),
            refused: RefCell::default(),
        }
    }

    /// Operations of the disk so far.
    pub fn ops(&self) -> u64 {
        self.before + self.disk.ops()
    }

    /// Whether the store shows what it should.
    pub fn check(&self) -> Result<(), String> {
        fitting(&self.store, vec![self.world.clone()]).map(drop)
    }

    /// Goes on with what is found on `disk` after a loss of power; operations are counted on.
    pub fn restart(&mut self, disk: ForgetfulDisk) -> Result<(), String> {
        let ops = self.ops();
        self.store = self.past.start(&disk)?;
        self.disk = disk;
        self.before = ops;
        let worlds = fitting(&self.store, self.past.worlds(ops))?;
        self.world = worlds.into_iter().next().unwrap();
        self.past.base = self.world.clone();
        self.past.events.clear();
        self.held.clear();
        self.delivered = Shown::by(&self.store)?.logged.into_keys().collect();
        Ok(())
    }

    /// Takes all steps.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        for (number, step) in steps.iter().enumerate() {
            self.step(step).map_err(|what| format!("step {number} {step:?}: {what}"))?;
        }
        self.check()
    }

    /// Takes a step.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Put(name, partitions) => self.put(name, *partitions),
            Step::Delete(name) => self.delete(name),
            Step::Revise(acts) => self.revise(acts),
            Step::Withdraw(numbers) => self.withdraw(numbers),
            Step::Arm(until) => self.arm(at(*until)),
            Step::Fire(until) => self.fire(*until),
            Step::Freeze => {
                self.store.freeze();
                Ok(())
            }
            Step::Upkeep => {
                let before = self.id_files();
                let done =
                    self.store.upkeep(at(self.now), false).map_err(|error| self.told(&error))?;
                self.reached.id_files_merged += u64::from(self.id_files() < before);
                self.reached.flushed += u64::from(done.flushed);
                self.reached.merged += u64::from(done.merged);
                Ok(())
            }
            Step::Checkpoint => {
                self.store.checkpoint(at(self.now)).map_err(|error| self.told(&error))
            }
            Step::Maintain => self.store.maintain(at(self.now)).map_err(|error| self.told(&error)),
        }
    }

    /// Why the store has refused something, since this was last asked.
    pub fn take_refusal(&self) -> Option<StoreError> {
        self.refused.take()
    }

    fn told(&self, error: &StoreError) -> String {
        self.refused.replace(Some(error.clone()));
        error.to_string()
    }

    fn id_files(&self) -> usize {
        self.disk.files().iter().filter(|path| path.starts_with("ids/")).count()
    }

    fn note(&mut self, start: u64, event: Event) {
        self.world.take(&event);
        self.past.events.push((During { start, end: self.ops() }, event));
    }

    fn commit(&self, request: Request) -> Result<Outcome, String> {
        let answer = self.store.commit(vec![request]).remove(0);
        answer.map_err(|error| match error {
            CommitError::Store(error) | CommitError::Topic(TopicError::Store(error)) => {
                self.told(&error)
            }
            other => other.to_string(),
        })
    }

    fn put(&mut self, name: &str, partitions: u16) -> Result<(), String> {
        let known = self.world.topic(name).map_or(0, |topic| topic.settings.partitions);
        let start = self.ops();
        let settings = TopicSettings {
            partitions: partitions.max(known),
            retention: None,
            ..TopicSettings::default()
        };
        let request = Request::PutTopic(TopicName::new(name).unwrap(), settings);
        match self.commit(request)? {
            Outcome::Topic(topic) => self.note(start, Event::Topic(topic)),
            other => return Err(format!("answered with {other:?}")),
        }
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<(), String> {
        let Some(topic) = self.world.topic(name) else { return Ok(()) };
        let start = self.ops();
        match self.commit(Request::DeleteTopic(TopicName::new(name).unwrap()))? {
            Outcome::Deleted(true) => self.note(start, Event::TopicGone(topic.id)),
            other => return Err(format!("answered with {other:?}")),
        }
        Ok(())
    }

    fn withdraw(&mut self, numbers: &[usize]) -> Result<(), String> {
        let numbers: BTreeSet<&usize> = numbers.iter().collect();
        let known = numbers.into_iter().filter_map(|number| self.id_of(*number));
        let ids: BTreeSet<MessageId> = known.collect();
        let ids: Vec<MessageId> = ids.into_iter().collect();
        let start = self.ops();
        let in_logs = self.store.past_in_logs(&ids).map_or(InLogs::Unknown, InLogs::Known);
        let Outcome::Cancelled(outcomes) = self.commit(Request::Cancel(ids.clone(), in_logs))?
        else {
            return Err("a cancel is answered with something else".to_owned());
        };
        let mut effects = Vec::new();
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            let shown = self.world.alive.get(&id).map(PendingEntry::state);
            let expected = match self.ended(id) {
                None if shown == Some(State::Prepared) => CancelOutcome::Undecided,
                None => CancelOutcome::Cancelled,
                Some(Some(State::Delivered)) => CancelOutcome::AlreadyDelivered,
                Some(Some(_)) => CancelOutcome::AlreadyCancelled,
                Some(None) => CancelOutcome::NotFound,
            };
            if outcome != expected {
                return Err(format!("cancel of {id}: {outcome:?}, not {expected:?}"));
            }
            if outcome == CancelOutcome::Cancelled {
                effects.push(Effect::Cancelled(id));
            }
        }
        self.note(start, Event::Revised(effects));
        Ok(())
    }

    /// The message of that number, if there is one.
    pub(super) fn id_of(&self, number: usize) -> Option<MessageId> {
        let place = match number.checked_sub(FROM_THE_END) {
            Some(back) => self.stored.len().checked_sub(back + 1)?,
            None => number,
        };
        self.stored.get(place).copied()
    }

    /// How a message ended; `Some(None)` when it is not known any more, `None` while it is pending.
    pub(super) fn ended(&self, id: MessageId) -> Option<Option<State>> {
        if self.world.cancelled.contains(&id) {
            Some(Some(State::Cancelled))
        } else if !self.world.alive.contains_key(&id) {
            Some(None)
        } else if self.delivered.contains(&id) {
            Some(Some(State::Delivered))
        } else {
            None
        }
    }

    fn arm(&mut self, until: Timestamp) -> Result<(), String> {
        for lane in Lane::ALL {
            loop {
                let limit = ArmLimit { entries: 6, bytes: 700 };
                let batch = self.store.arm(lane, until, limit);
                let batch = batch.map_err(|error| self.told(&error))?;
                if batch.is_empty() {
                    break;
                }
                self.held.extend(batch);
            }
        }
        Ok(())
    }

    fn fire(&mut self, until: u64) -> Result<(), String> {
        self.now = self.now.max(until);
        self.arm(at(until))?;
        let (due, waiting): (Vec<Armed>, Vec<Armed>) =
            self.held.drain(..).partition(|armed| armed.key.due < at(until));
        self.held = waiting;
        for lane in Lane::ALL {
            let of_lane = due.iter().filter(|armed| armed.key.sequence.lane() == lane);
            let (messages, control): (Vec<Armed>, Vec<Armed>) =
                of_lane.cloned().partition(|armed| armed.action() == Action::Deliver);
            self.postpone(&control)?;
            self.deliver(messages)?;
        }
        Ok(())
    }

    /// What a handler of series and transactions does: they stand elsewhere afterwards.
    fn postpone(&mut self, control: &[Armed]) -> Result<(), String> {
        for armed in control {
            let stands = self.world.alive.get(&armed.id()).map(|entry| entry.key);
            let number = self.stored.iter().position(|id| *id == armed.id());
            if stands == Some(armed.key) {
                self.revise(&[Act::Move(number.unwrap(), self.now + 700)])?;
            }
        }
        self.store.release(control);
        Ok(())
    }

    fn deliver(&mut self, mut batch: Vec<Armed>) -> Result<(), String> {
        let count = batch.len();
        self.store.claim(&mut batch).map_err(|error| self.told(&error))?;
        self.reached.dropped += (count - batch.len()) as u64;
        for armed in &batch {
            let stands = self.world.alive.get(&armed.id());
            if stands.is_none_or(|entry| entry.key != armed.key) {
                return Err(format!("{} is claimed at {:?}: {stands:?}", armed.id(), armed.key));
            }
        }
        let mut delivered = self.store.deliver(&batch, at(self.now));
        if delivered == Err(StoreError::Full) {
            // What is claimed is offered again when there is room.
            self.disk.heal();
            delivered = self.store.deliver(&batch, at(self.now));
        }
        delivered.map_err(|error| self.told(&error))?;
        self.store.settle(&batch).unwrap();
        self.reached.delivered += batch.len() as u64;
        self.delivered.extend(batch.iter().map(Armed::id));
        Ok(())
    }

    fn revise(&mut self, acts: &[Act]) -> Result<(), String> {
        let mut plan = Plan::new(self);
        for act in acts {
            plan.add(act);
        }
        let Plan { orders, expected, .. } = plan;
        let start = self.ops();
        let answer = revise(&self.store, &orders, at(self.now));
        let answer = answer.map_err(|error| self.told(&error))?;
        match (answer, expected) {
            (Revised::Refused { index, reason }, Err((place, because)))
                if index == place && because == reason =>
            {
                self.reached.refused += 1;
                Ok(())
            }
            (Revised::Done(done), Ok(())) if done.len() == orders.len() => {
                self.note_done(start, orders, &done)
            }
            (answer, expected) => Err(format!("{answer:?}, not {expected:?}: {orders:?}")),
        }
    }

    fn note_done(&mut self, start: u64, orders: Vec<Order>, done: &[Done]) -> Result<(), String> {
        let ids: Vec<MessageId> = orders
            .iter()
            .zip(done)
            .map(|(order, done)| match (order, done) {
                (_, Done::Stored(id) | Done::Known(id)) => *id,
                (Order::Replace { id, .. } | Order::Cancel { id, .. }, _) => *id,
                (Order::Schedule { .. }, _) => panic!("a new message was answered {done:?}"),
            })
            .collect();
        let mut effects = Vec::new();
        let mut names = self.world.names.clone();
        for ((order, done), id) in orders.into_iter().zip(done).zip(&ids) {
            match (order, *done) {
                (Order::Schedule { entry, .. }, Done::Stored(id)) => {
                    self.reached.stored += 1;
                    self.stored.push(id);
                    if let Some(own) = entry.extra.as_ref().and_then(|extra| extra.own_id.clone()) {
                        let name = (entry.topic, Arc::clone(&own.text));
                        let before = names.insert(name, (id, own.print));
                        let replaced = before.map(|(id, _)| id);
                        effects.extend(
                            replaced
                                .filter(|id| self.is_pending(*id, &effects))
                                .map(Effect::Cancelled),
                        );
                        effects.push(Effect::Named(entry.topic, own.text, id, own.print));
                    }
                    effects.push(Effect::Stands(standing(id.key, id, entry, &ids)));
                }
                (Order::Replace { entry, .. }, Done::Moved(key)) => {
                    self.reached.moved += 1;
                    effects.push(Effect::Stands(standing(key, *id, entry, &ids)));
                }
                (Order::Cancel { .. }, Done::Cancelled) => {
                    self.reached.cancelled += 1;
                    effects.push(Effect::Cancelled(*id));
                }
                (Order::Schedule { .. }, Done::Known(_)) => self.reached.known += 1,
                (Order::Cancel { expected: None, .. }, Done::Nothing) => {
                    if self.ended(*id).is_none() {
                        return Err(format!("{id} had not ended"));
                    }
                }
                (order, done) => return Err(format!("{order:?} was answered {done:?}")),
            }
        }
        self.note(start, Event::Revised(effects));
        Ok(())
    }

    fn is_pending(&self, id: MessageId, effects: &[Effect]) -> bool {
        let new = |effect: &Effect| matches!(effect, Effect::Stands(entry) if entry.id == id);
        self.ended(id).is_none() || effects.iter().any(new)
    }
}

/// What an entry looks like once it is stored.
fn standing(key: Key, id: MessageId, mut entry: Entry, ids: &[MessageId]) -> PendingEntry {
    if let Some(extra) = &mut entry.extra {
        let resolve = |link: &mut Link| {
            if let Link::Order(place) = *link {
                *link = Link::Id(ids[usize::try_from(place).unwrap()]);
            }
        };
        extra.series.iter_mut().chain(&mut extra.links).for_each(resolve);
        if let Some(Parked::Half { transaction, .. }) = &mut extra.parked {
            resolve(transaction);
        }
    }
    PendingEntry { id, key, basis: entry.basis, message: entry.message, extra: entry.extra }
}
